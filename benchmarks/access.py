"""Access parts of a table of ten batches: single values, a sample of rows; sort it; convert it to pandas.

The table comes from a mapped file with number, string, nullable, embedding and dictionary columns. The peer is
pyarrow's table of the same file; its scalars are converted to Python values, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring
from benchmarks import datasets
from benchmarks.measure import Measurement, Settings, compare_calls

_BATCHES = 10
_BATCH_ROWS = 100_000
_EMBEDDING_SIZE = 16
_SAMPLE_ROWS = 64
_REPETITIONS = 500


def run(folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure each kind of access."""
    random = np.random.default_rng(2032)
    path = folder / "access.arrow"
    rows = settings.rows(_BATCH_ROWS)
    datasets.write_file(path, [_random_batch(random, rows)], _BATCHES)
    pa_table, table = datasets.read_with_pyarrow(str(path)), bowstring.open_file(path).read_all()
    sample = random.integers(0, rows * _BATCHES, _SAMPLE_ROWS).tolist()
    index = sample[0]
    lines: tuple[tuple[str, float, Callable[[], Any], Callable[[], Any]], ...] = (
        (
            "a value of a column",
            5,
            _repeat(lambda: table["id"][index]),
            _repeat(lambda: pa_table["id"][index].as_py()),  # noqa: PLW0108 -- each call looks the value up
        ),
        (
            f"{_SAMPLE_ROWS} rows, take(indices).to_pylist()",
            5,
            lambda: table.take(sample).to_pylist(),
            lambda: pa_table.take(sample).to_pylist(),
        ),
        ("sort_by one column", 2, lambda: table.sort_by("float64_1"), lambda: pa_table.sort_by("float64_1")),
        ("to_pandas", 1.1, table.to_pandas, pa_table.to_pandas),
    )
    for line, bound, call, pa_call in lines:
        assert _first_rows(call()) == _first_rows(pa_call()), f"{line}: Bowstring and pyarrow return different values"
        yield compare_calls(f"{line}, {rows * _BATCHES:,} rows in {_BATCHES} batches", bound, call, pa_call, settings)
    path.unlink()


def _random_batch(random: np.random.Generator, rows: int) -> Any:
    mixed = datasets.mixed_batch(random, rows, 5)
    numbers = pa.array(random.random(rows * _EMBEDDING_SIZE).astype(np.float32))
    categories = pa.array([f"category {number}" for number in range(20)])
    indices = pa.array(random.integers(0, len(categories), rows).astype(np.int32))
    columns = {
        "id": pa.array(random.permutation(rows)),
        **dict(zip(mixed.schema.names, mixed.columns, strict=True)),
        "embedding": pa.FixedSizeListArray.from_arrays(numbers, _EMBEDDING_SIZE),
        "category": pa.DictionaryArray.from_arrays(indices, categories),
    }
    return pa.record_batch(columns)


def _repeat(call: Callable[[], Any]) -> Callable[[], Any]:
    """A call repeated often enough for the clock; returns the last value."""

    def repeated() -> Any:
        for _ in range(_REPETITIONS - 1):
            call()
        return call()

    return repeated


def _first_rows(value: Any) -> Any:
    if isinstance(value, bowstring.Table | pa.Table):
        return value.slice(0, _SAMPLE_ROWS).to_pylist()
    if hasattr(value, "to_dict"):
        return bowstring.table(value.head(_SAMPLE_ROWS)).to_pylist()
    return value
