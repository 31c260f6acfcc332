"""Equality of arrays that are equal, at different addresses. The peer is pyarrow's `equals`.

Before the clock starts, both say that the arrays are equal, and that they are not with the last value changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring
from benchmarks import data
from benchmarks.timing import Contender, Effort, Outcome, compare, timed

GROUP = "equality"
_ROWS = 10_000_000
_COLUMNS, _BATCHES, _BATCH_ROWS = 20, 10, 10_000


@dataclass(frozen=True, slots=True)
class Shape:
    """Values to compare, and the bound for it."""

    name: str
    dtype: type[Any] | None
    bound: float | None
    has_nulls: bool = False
    rows: int = _ROWS

    def make(self, rows: int, under_nulls: int) -> Any:
        """So many of them, as a pyarrow array; always the same, never at the same address."""
        random = np.random.default_rng(2028)
        if self.dtype is None:
            strings = data.ascii_strings(random, rows)
            return data.with_nulls(random, strings) if self.has_nulls else strings
        values = random.integers(-1_000_000, 1_000_000, rows).astype(self.dtype)
        if not self.has_nulls:
            return pa.array(values)
        valid = random.random(rows) >= data.NULL_SHARE
        values[~valid] = under_nulls
        buffers = [np.packbits(valid, bitorder="little"), values]
        return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), rows, list(map(pa.py_buffer, buffers)))


SHAPES = (
    Shape("int64", np.int64, 0.8),
    Shape("float64", np.float64, 0.8),
    Shape("int32", np.int32, 0.8),
    Shape("int64 with nulls", np.int64, 0.8, has_nulls=True),
    Shape("float64 with nulls", np.float64, 0.8, has_nulls=True),
    Shape("strings", None, None, rows=_ROWS // 5),
    Shape("strings with nulls", None, None, has_nulls=True, rows=_ROWS // 5),
)


def run(_folder: Path, effort: Effort) -> Iterator[Outcome]:
    """Measure each kind of values, then a table."""
    for shape in SHAPES:
        rows = effort.rows(shape.rows)
        theirs, others = shape.make(rows, 1), shape.make(rows, 2)
        ours, mine = bowstring.array(theirs), bowstring.array(others)
        changed = pa.concat_arrays([others.slice(0, rows - 1), pa.array([None], others.type)])
        for left, right, other in ((theirs, others, changed), (ours, mine, bowstring.array(changed))):
            assert left.equals(right), f"{shape.name}: not equal"
            assert not left.equals(other), f"{shape.name}: equal to others"
        yield _compared(f"{rows:,} {shape.name}", shape.bound, (ours, mine), (theirs, others), effort)
    theirs, others = (_table(effort.rows(_BATCH_ROWS)) for _ in range(2))
    left_table, right_table = bowstring.table(theirs), bowstring.table(others)
    assert left_table.equals(right_table)
    assert not left_table.equals(bowstring.table(others.slice(1)))
    line = f"a table of {_COLUMNS} columns × {_BATCHES} batches of {effort.rows(_BATCH_ROWS):,} numbers"
    yield _compared(line, None, (left_table, right_table), (theirs, others), effort)


def _table(rows: int) -> Any:
    random = np.random.default_rng(2028)
    return pa.Table.from_batches([data.numbers(random, rows, _COLUMNS) for _ in range(_BATCHES)])


def _compared(line: str, bound: float | None, ours: Any, theirs: Any, effort: Effort) -> Outcome:
    """The time for two equal things of ours, and of theirs."""
    return compare(
        (GROUP, line),
        bound,
        Contender("bowstring", timed(partial(ours[0].equals, ours[1]))),
        [Contender("pyarrow", timed(partial(theirs[0].equals, theirs[1])))],
        effort,
    )
