"""Differences between two files or streams: the schema, then the rows, independent of batch sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bowstring.arrays.array import Array
from bowstring.arrays.record_batch import RecordBatch
from bowstring.datatypes.field import Field
from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidDataError, prefix_errors
from bowstring.inspection.formatting import to_python_values

_ArrayPair = tuple[Array, Array]


@dataclass(frozen=True, slots=True)
class CellDifference:
    """A value that differs: the column name and the Python values of both sides."""

    column: str
    left: Any
    right: Any


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A row that differs: its index and the cells that differ."""

    row: int
    cells: tuple[CellDifference, ...]


@dataclass(frozen=True, slots=True)
class LengthDifference:
    """The numbers of rows of both sides, if they differ."""

    left: int
    right: int


def find_schema_differences(left: Schema, right: Schema, check_metadata: bool = True) -> Iterator[str]:
    """Yield a sentence for each difference between two schemas. Columns are matched by name."""
    left_fields, right_fields = _fields_by_name(left), _fields_by_name(right)
    for key, field in left_fields.items():
        other = right_fields.get(key)
        if other is None:
            yield f"column {field.name!r} ({field.type}) is only on the left"
            continue
        is_same_type = field.type == other.type
        if not is_same_type or (check_metadata and not field.type.equals(other.type, True)):
            left_type, right_type = str(field.type), str(other.type)
            if left_type == right_type:
                what = "name or custom metadata" if is_same_type else "name or nullability"
                yield f"column {field.name!r}: fields inside {field.type} differ in {what}"
            else:
                yield f"column {field.name!r}: the type is {left_type} on the left, {right_type} on the right"
        if field.nullable != other.nullable:
            yield f"column {field.name!r}: nullable is {field.nullable} on the left, {other.nullable} on the right"
        if check_metadata and sorted(field.pairs) != sorted(other.pairs):
            yield f"column {field.name!r}: the custom metadata differs"
    for key, field in right_fields.items():
        if key not in left_fields:
            yield f"column {field.name!r} ({field.type}) is only on the right"
    if [key for key in left_fields if key in right_fields] != [key for key in right_fields if key in left_fields]:
        yield "the order of the columns differs"
    if check_metadata and sorted(left.pairs) != sorted(right.pairs):
        yield "the custom metadata of the schema differs"


def find_common_columns(left: Schema, right: Schema) -> list[tuple[int, int]]:
    """Return the pairs of indices of columns with the same name and type."""
    right_fields = {key: (index, field) for index, (key, field) in enumerate(_fields_by_name(right).items())}
    return [
        (index, right_fields[key][0])
        for index, (key, field) in enumerate(_fields_by_name(left).items())
        if key in right_fields and right_fields[key][1].type == field.type
    ]


def find_row_differences(
    left: Iterable[RecordBatch], right: Iterable[RecordBatch], columns: Sequence[tuple[int, int]]
) -> Iterator[RowDifference | LengthDifference]:
    """Yield the rows that differ in these columns, in order; then a difference in length, if any.

    NaN equals NaN, and values under nulls are ignored. Reads batch by batch.

    Raises `InvalidDataError` for malformed data.
    """
    left_batches, right_batches = iter(left), iter(right)
    left_batch, right_batch = next(left_batches, None), next(right_batches, None)
    row, left_offset, right_offset = 0, 0, 0
    while left_batch is not None and right_batch is not None:
        count = min(left_batch.num_rows - left_offset, right_batch.num_rows - right_offset)
        if count:
            pairs = [
                (
                    left_batch.schema[i].name,
                    (left_batch.column(i).slice(left_offset, count), right_batch.column(j).slice(right_offset, count)),
                )
                for i, j in columns
            ]
            yield from _bisect_differences(pairs, row, count)
        row, left_offset, right_offset = row + count, left_offset + count, right_offset + count
        if left_offset == left_batch.num_rows:
            left_batch, left_offset = next(left_batches, None), 0
        if right_offset == right_batch.num_rows:
            right_batch, right_offset = next(right_batches, None), 0
    lengths = [
        row + (0 if current is None else current.num_rows - offset) + sum(batch.num_rows for batch in remaining)
        for current, offset, remaining in (
            (left_batch, left_offset, left_batches),
            (right_batch, right_offset, right_batches),
        )
    ]
    if lengths[0] != lengths[1]:
        yield LengthDifference(lengths[0], lengths[1])


def _bisect_differences(pairs: Sequence[tuple[str, _ArrayPair]], start: int, count: int) -> Iterator[RowDifference]:
    """Find the rows that differ by bisection."""
    differing = [(name, pair) for name, pair in pairs if not _is_equal(name, pair, start)]
    if not differing:
        return
    if count == 1:
        yield RowDifference(start, tuple(_cell_difference(name, pair, start) for name, pair in differing))
        return
    half = count // 2
    for offset, length in ((0, half), (half, count - half)):
        halves = [(name, (a.slice(offset, length), b.slice(offset, length))) for name, (a, b) in differing]
        yield from _bisect_differences(halves, start + offset, length)


def _is_equal(name: str, pair: _ArrayPair, start: int) -> bool:
    with _prefix_pair_errors(name, pair, start):
        return pair[0].equals(pair[1], nans_equal=True)


def _cell_difference(name: str, pair: _ArrayPair, row: int) -> CellDifference:
    with _prefix_pair_errors(name, pair, row):
        return CellDifference(name, to_python_values(pair[0])[0], to_python_values(pair[1])[0])


@contextmanager
def _prefix_pair_errors(name: str, pair: _ArrayPair, start: int) -> Iterator[None]:
    """Add the side, row and column to an error in malformed data."""
    try:
        yield
    except InvalidDataError:
        for side, array in zip(("left", "right"), pair, strict=True):
            with prefix_errors(f"on the {side}, from row {start} on, column {name!r}"):
                array.validate(full=True)
        raise


def _fields_by_name(schema: Schema) -> dict[tuple[str, int], Field]:
    """Return the fields by name and the number of previous fields with that name."""
    counts: dict[str, int] = {}
    fields = {}
    for field in schema:
        number = counts[field.name] = counts.get(field.name, -1) + 1
        fields[field.name, number] = field
    return fields
