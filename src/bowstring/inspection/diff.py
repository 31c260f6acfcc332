"""What two files or streams differ in: the schema first, then the rows, however either is cut into batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bowstring.arrays.record_batch import RecordBatch
from bowstring.datatypes.field import Field, Schema
from bowstring.errors import InvalidDataError
from bowstring.layouts.array import Array
from bowstring.layouts.base import error_context

_Pair = tuple[Array, Array]


@dataclass(frozen=True, slots=True)
class Cell:
    """A value that differs: the column's name, and the Python value on either side."""

    column: str
    left: Any
    right: Any


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A row that differs, counted from 0, and in which columns."""

    row: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class LengthDifference:
    """One side has more rows: how many either has."""

    left: int
    right: int


def schema_differences(left: Schema, right: Schema, check_metadata: bool = True) -> Iterator[str]:
    """A sentence for each difference of two schemas; columns are paired by name. Names in it are as `repr` has them."""
    mine, theirs = _keyed(left), _keyed(right)
    for key, field in mine.items():
        other = theirs.get(key)
        if other is None:
            yield f"column {field.name!r} ({field.type}) is only on the left"
            continue
        if field.type != other.type:
            mine_in_words, theirs_in_words = str(field.type), str(other.type)
            if mine_in_words == theirs_in_words:
                yield f"column {field.name!r}: fields inside {field.type} differ in name or nullability"
            else:
                yield f"column {field.name!r}: the type is {mine_in_words} on the left, {theirs_in_words} on the right"
        elif check_metadata and not field.type.equals(other.type, True):
            yield f"column {field.name!r}: fields inside differ in custom metadata"
        if field.nullable != other.nullable:
            yield f"column {field.name!r}: nullable is {field.nullable} on the left, {other.nullable} on the right"
        if check_metadata and sorted(field.pairs) != sorted(other.pairs):
            yield f"column {field.name!r}: the custom metadata differs"
    for key, field in theirs.items():
        if key not in mine:
            yield f"column {field.name!r} ({field.type}) is only on the right"
    if [key for key in mine if key in theirs] != [key for key in theirs if key in mine]:
        yield "the order of the columns differs"
    if check_metadata and sorted(left.pairs) != sorted(right.pairs):
        yield "the custom metadata of the schema differs"


def comparable(left: Schema, right: Schema) -> list[tuple[int, int]]:
    """The positions of the columns that both have under one name and with one type."""
    theirs = {key: (index, field) for index, (key, field) in enumerate(_keyed(right).items())}
    return [
        (index, theirs[key][0])
        for index, (key, field) in enumerate(_keyed(left).items())
        if key in theirs and theirs[key][1].type == field.type
    ]


def row_differences(
    left: Iterable[RecordBatch], right: Iterable[RecordBatch], columns: Sequence[tuple[int, int]]
) -> Iterator[RowDifference | LengthDifference]:
    """The rows that differ in these columns, in order, found batch by batch; then whether one side has more rows.

    NaN equals NaN, and what lies under a null does not count. Raises `InvalidDataError` for malformed data.
    """
    mine, theirs = iter(left), iter(right)
    here, there = next(mine, None), next(theirs, None)
    at, here_at, there_at = 0, 0, 0
    while here is not None and there is not None:
        count = min(here.num_rows - here_at, there.num_rows - there_at)
        if count:
            pairs = [
                (here.schema[i].name, (here.column(i).slice(here_at, count), there.column(j).slice(there_at, count)))
                for i, j in columns
            ]
            yield from _within(pairs, at, count)
        at, here_at, there_at = at + count, here_at + count, there_at + count
        if here_at == here.num_rows:
            here, here_at = next(mine, None), 0
        if there_at == there.num_rows:
            there, there_at = next(theirs, None), 0
    lengths = [
        at + (0 if held is None else held.num_rows - taken) + sum(batch.num_rows for batch in rest)
        for held, taken, rest in ((here, here_at, mine), (there, there_at, theirs))
    ]
    if lengths[0] != lengths[1]:
        yield LengthDifference(lengths[0], lengths[1])


def _within(pairs: Sequence[tuple[str, _Pair]], start: int, count: int) -> Iterator[RowDifference]:
    """The rows that differ, by halving what is not equal."""
    differing = [(name, pair) for name, pair in pairs if not _equal(name, pair, start)]
    if not differing:
        return
    if count == 1:
        yield RowDifference(start, tuple(_cell(name, pair, start) for name, pair in differing))
        return
    half = count // 2
    for offset, length in ((0, half), (half, count - half)):
        cut = [(name, (a.slice(offset, length), b.slice(offset, length))) for name, (a, b) in differing]
        yield from _within(cut, start + offset, length)


def _equal(name: str, pair: _Pair, start: int) -> bool:
    with _told(name, pair, start):
        return pair[0].equals(pair[1], nans_equal=True)


def _cell(name: str, pair: _Pair, row: int) -> Cell:
    with _told(name, pair, row):
        return Cell(name, pair[0].to_pylist()[0], pair[1].to_pylist()[0])


@contextmanager
def _told(name: str, pair: _Pair, start: int) -> Iterator[None]:
    """Say on which side and in which rows what is malformed lies."""
    try:
        yield
    except InvalidDataError:
        for side, array in zip(("left", "right"), pair, strict=True):
            with error_context(f"on the {side}, from row {start} on, column {name!r}"):
                array.validate(full=True)
        raise


def _keyed(schema: Schema) -> dict[tuple[str, int], Field]:
    """The fields by name, and how many before them have it."""
    seen: dict[str, int] = {}
    out = {}
    for field in schema:
        number = seen[field.name] = seen.get(field.name, -1) + 1
        out[field.name, number] = field
    return out
