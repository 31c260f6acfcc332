"""Convert arrays to Python objects and back. The peer is pyarrow: `to_pylist`, `array` and `Table.from_pylist`.

pyarrow caches the UTF-8 of every non-ASCII string that it converts in the string itself. The benchmark of multilingual
strings therefore creates new strings for each sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring
from benchmarks import datasets
from benchmarks.measure import Measurement, Settings, compare_calls

_BOUND = 3.0


@dataclass(frozen=True, slots=True)
class ConversionCase:
    """Values to convert."""

    name: str
    create: Callable[[np.random.Generator, int], Any]
    rows: int
    converts_to_python: bool = True


def _nullable_integers(random: np.random.Generator, rows: int) -> Any:
    return datasets.with_nulls(random, datasets.integers(random, rows))


def _lists(random: np.random.Generator, rows: int) -> Any:
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(random.integers(0, 9, rows), out=offsets[1:])
    return pa.ListArray.from_arrays(offsets, datasets.integers(random, int(offsets[-1])))


def _timestamps(random: np.random.Generator, rows: int) -> Any:
    return pa.array(random.integers(0, 1 << 50, rows)).cast(pa.timestamp("us"))


_CONVERSIONS = (
    ConversionCase("integers with nulls", _nullable_integers, 1_000_000),
    ConversionCase("ASCII strings", datasets.ascii_strings, 1_000_000),
    ConversionCase("lists of integers", _lists, 200_000),
    ConversionCase("timestamps", _timestamps, 200_000, converts_to_python=False),
)


def run(_folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure arrays in both directions, then rows."""
    for case in _CONVERSIONS:
        rows = settings.rows(case.rows)
        pa_array = case.create(np.random.default_rng(2029), rows)
        array = bowstring.array(pa_array)
        values = pa_array.to_pylist()
        assert array.to_pylist() == values, f"{case.name}: to_pylist returns other values"
        assert bowstring.array(values).equals(array), f"{case.name}: array has other values"
        line = f"{rows:,} {case.name}"
        if case.converts_to_python:
            yield compare_calls(f"to_pylist, {line}", _BOUND, array.to_pylist, pa_array.to_pylist, settings)
        yield compare_calls(
            f"array, {line}",
            _BOUND,
            partial(bowstring.array, values),
            partial(pa.array, values),
            settings,
        )
    yield from _measure_rows(settings)


def _measure_rows(settings: Settings) -> Iterator[Measurement]:
    rows = settings.rows(200_000)
    pa_table = pa.Table.from_batches([datasets.mixed_batch(np.random.default_rng(2030), rows, 5)])
    table, values = bowstring.table(pa_table), pa_table.to_pylist()
    assert table.to_pylist() == values, "rows: to_pylist returns other values"
    assert pa.table(bowstring.table(values)).equals(pa.Table.from_pylist(values)), "rows: table has other values"
    line = f"{rows:,} rows of 5 columns"
    yield compare_calls(f"to_pylist, {line}", _BOUND, table.to_pylist, pa_table.to_pylist, settings)
    yield compare_calls(
        f"table, {line}", _BOUND, partial(bowstring.table, values), partial(pa.Table.from_pylist, values), settings
    )
