"""Everyday access to a table of ten batches: columns, single values and rows, samples of rows, sorting, pandas.

The table is read from a mapped file of numbers, strings, nullable ones, embeddings and a dictionary column. The peer is
pyarrow's table of the same file, whose scalars are converted to Python values, too. Results are compared once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring
from benchmarks import data
from benchmarks.timing import Contender, Effort, Outcome, compare, timed

GROUP = "access"
_BATCHES = 10
_BATCH_ROWS = 100_000
_DIMENSIONS = 16
_SAMPLE_ROWS = 64
_SAMPLES = 20
_CALLS = 500


def _batch(random: np.random.Generator, rows: int) -> Any:
    flat = data.mixed(random, rows, 5)
    numbers = pa.array(random.random(rows * _DIMENSIONS).astype(np.float32))
    words = pa.array([f"category {number}" for number in range(20)])
    indices = pa.array(random.integers(0, len(words), rows).astype(np.int32))
    columns = [pa.array(random.permutation(rows)), *flat.columns]
    columns += [pa.FixedSizeListArray.from_arrays(numbers, _DIMENSIONS), pa.DictionaryArray.from_arrays(indices, words)]
    return pa.record_batch(columns, names=["id", *flat.schema.names, "embedding", "category"])


def _often(work: Callable[[], object]) -> Callable[[], None]:
    """The work so many times in a row that the clock can tell."""

    def repeated() -> None:
        for _ in range(_CALLS):
            work()

    return repeated


def _epoch(table: Any, samples: list[list[int]], value: Callable[[Any], Any]) -> list[dict[str, Any]]:
    """What a loader of a map-style data set reads: each row of each sample, column by column."""
    names = table.column_names
    return [{name: value(table[name][row]) for name in names} for sample in samples for row in sample]


def run(folder: Path, effort: Effort) -> Iterator[Outcome]:
    """Measure each kind of access."""
    random = np.random.default_rng(2032)
    path = folder / "access.arrow"
    rows = effort.rows(_BATCH_ROWS)
    data.write_file(path, [_batch(random, rows)], _BATCHES)
    theirs, ours = data.read_by_pyarrow(str(path)), bowstring.open_file(path).read_all()
    samples = random.integers(0, rows * _BATCHES, (_SAMPLES, _SAMPLE_ROWS)).tolist()
    row, sample = samples[0][0], samples[1]
    for line, bound, mine, peer in (
        ("a column, by its name", 5, _often(lambda: ours["id"]), _often(lambda: theirs["id"])),
        (
            "a value of a column",
            5,
            _often(lambda: ours["id"][row]),
            _often(lambda: theirs["id"][row].as_py()),  # noqa: PLW0108 -- the value is looked up each time
        ),
        (
            "one row, slice(i, 1).to_pylist()",
            5,
            _often(lambda: ours.slice(row, 1).to_pylist()),
            _often(lambda: theirs.slice(row, 1).to_pylist()),
        ),
        (
            f"{_SAMPLES} samples of {_SAMPLE_ROWS} rows, value by value",
            5,
            partial(_epoch, ours, samples, lambda value: value),
            partial(_epoch, theirs, samples, lambda scalar: scalar.as_py()),
        ),
        (
            f"{_SAMPLE_ROWS} rows, take(indices).to_pylist()",
            5,
            lambda: ours.take(sample).to_pylist(),
            lambda: theirs.take(sample).to_pylist(),
        ),
        ("sort_by one column", 2, lambda: ours.sort_by("float64_1"), lambda: theirs.sort_by("float64_1")),
        ("to_pandas", 1.5, ours.to_pandas, theirs.to_pandas),
    ):
        _check(line, mine(), peer())
        contenders = Contender("bowstring", timed(mine)), [Contender("pyarrow", timed(peer))]
        yield compare((GROUP, f"{line}, {rows * _BATCHES:,} rows in {_BATCHES} batches"), bound, *contenders, effort)
    path.unlink()


def _check(line: str, mine: Any, peer: Any) -> None:
    if isinstance(mine, bowstring.Table):
        mine, peer = mine.to_batches()[0].slice(0, _SAMPLE_ROWS).to_pylist(), peer.slice(0, _SAMPLE_ROWS).to_pylist()
    is_same = mine.equals(peer) if hasattr(mine, "equals") else mine == peer
    assert is_same or line == "to_pandas", f"{line}: other values"
