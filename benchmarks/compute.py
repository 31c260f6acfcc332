"""Functions of strings, decimals and numbers. The peer is pyarrow; there are no bounds.

pyarrow runs compiled loops over the values; these lines show the cost of doing the same with NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    others, members = pa_array.take(pa.array(np.where(mask, order, np.arange(rows)))), pa_array[:1000]
    for name, *arguments in (("equal", others), ("less", others), ("is_in", members), ("utf8_upper",)):
        yield _compare_functions(f"{name} of {rows:,} strings", name, [pa_array, *arguments], settings)
    integers, more = (pa.array(random.integers(-1000, 1000, rows)) for _ in range(2))
    with_nulls = pa.compute.if_else(pa.array(mask), integers, None)
    yield _compare_functions(f"coalesce of {rows:,} integers", "coalesce", [with_nulls, more], settings)
    decimals = [each.cast(pa.decimal128(21, 2)) for each in (integers, pa.compute.add(more, 5000))]
    for name in ("add", "multiply", "divide"):
        operands = [each.cast(pa.decimal128(12, 2)) for each in decimals]
        yield _compare_functions(f"{name} of {rows:,} decimals", name, operands, settings)


def _compare_functions(line: str, name: str, arguments: list[Any], settings: Settings) -> Measurement:
    """Compare a compute function of arrays with pyarrow's."""
    call = partial(getattr(bowstring.compute, name), *map(bowstring.array, arguments))
    return _compare(line, call, partial(getattr(pa.compute, name), *arguments), settings)


def _compare(line: str, call: Callable[[], Any], pa_call: Callable[[], Any], settings: Settings) -> Measurement:
    assert call().equals(bowstring.array(pa_call())), f"{line}: Bowstring and pyarrow return different values"
    return compare_calls(line, None, call, pa_call, settings)
