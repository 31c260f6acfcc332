"""Methods of strings, without bounds, and calls of pyarrow's functions, which may take 150 µs more than pyarrow's own.

pyarrow runs compiled loops over the values; the lines of methods show the cost of doing the same with NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

import bowstring
from benchmarks import datasets
from benchmarks.measure import Measurement, Settings, compare_calls

_ROWS = 500_000
_CALLS = 200
"""The calls of one sample: the first ones, with cold caches, take several times as long, in pyarrow as well."""
_BOUND_US = 150.0


def run(_folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure each function."""
    rows = settings.rows(_ROWS)
    random = np.random.default_rng(2031)
    pa_array = datasets.ascii_strings(random, rows)
    array = bowstring.array(pa_array)
    order, mask = random.permutation(rows), random.random(rows) < 0.5
    lines: tuple[tuple[str, Callable[[], Any], Callable[[], Any]], ...] = (
        ("take in random order", partial(array.take, order), partial(pa_array.take, pa.array(order))),
        ("filter half of", partial(array.filter, mask), partial(pa_array.filter, pa.array(mask))),
        ("dictionary_encode", array.dictionary_encode, pa_array.dictionary_encode),
    )
    for line, call, pa_call in lines:
        yield _compare(f"{line} {rows:,} strings", call, pa_call, settings)
    integers = pa.array(random.integers(-1000, 1000, rows))
    columns = {
        "strings": pa_array,
        "integers": integers,
        "structs": pa.table({"a": integers, "b": pa_array}).to_struct_array(),
    }
    for length in (10, rows):
        for kind, column in columns.items():
            part = column.slice(0, length)
            part = part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part
            yield _compare_functions(f"is_valid of {length:,} {kind}", "is_valid", [part], settings)
        part = integers.slice(0, length)
        yield _compare_functions(f"add of {length:,} integers", "add", [part, part], settings)


def _compare_functions(line: str, name: str, arguments: list[Any], settings: Settings) -> Measurement:
    """Return the microseconds that a call of a function takes more than pyarrow's."""
    call = partial(getattr(bowstring.compute, name), *map(bowstring.array, arguments))
    pa_call = partial(getattr(pa.compute, name), *arguments)
    compared = compare_calls(line, None, partial(_repeat, call), partial(_repeat, pa_call), settings)
    assert compared.bowstring is not None
    assert compared.best_peer is not None
    excess_us = (compared.bowstring.median_s - compared.best_peer.median_s) / _CALLS * 1e6
    return replace(
        compared, line=f"{line}, {_CALLS} calls: more than pyarrow's", value=excess_us, bound=_BOUND_US, unit="µs"
    )


def _repeat(call: Callable[[], Any]) -> None:
    for _ in range(_CALLS):
        call()


def _compare(line: str, call: Callable[[], Any], pa_call: Callable[[], Any], settings: Settings) -> Measurement:
    assert call().equals(bowstring.array(pa_call())), f"{line}: Bowstring and pyarrow return different values"
    return compare_calls(line, None, call, pa_call, settings)
