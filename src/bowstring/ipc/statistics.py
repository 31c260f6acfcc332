"""What a file says of its batches, in the footer's custom metadata («Custom Application Metadata») under a key of ours.

The value is an Arrow stream in base64, as other readers want text there: one record batch with a row for each record
batch of the file. Its columns are `rows`, `offset` and `length` (the number of rows, and which bytes of the file the
message takes), and a struct for each column of the file that has statistics, called by its position, "0", "1" and so
on, of `nulls`, and where they are known `min` and `max`, of the column's own type without encoding, and `distinct`.

Statistics whose bytes are not the footer's are those of another file, and do not count. Whether minima and maxima are
right can't be seen without looking at the values: `FileReader.check_statistics` does.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.arrays.record_batch import RecordBatch
from bowstring.datatypes.base import DataType
from bowstring.datatypes.field import Field, Metadata, Schema
from bowstring.datatypes.types import Int, Struct
from bowstring.errors import InvalidDataError, UsageError
from bowstring.io.memory_source import MemorySource
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.message import END_OF_STREAM, frame_message
from bowstring.ipc.min_max import MinMax, decoded_type, distinct_count, has_nan, has_order, min_max, ranks
from bowstring.ipc.record_batch.plan import ReadSchema
from bowstring.ipc.stream import Encoder, StreamReader
from bowstring.layouts.array import Array
from bowstring.layouts.gather import check_length
from bowstring.layouts.registry import layout_of, primitive_layout
from bowstring.memory.buffer import Memory

KEY = b"bowstring:statistics"
_INT64 = Int(64, True)
_COUNTS = ("rows", "offset", "length")

Counts: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """What is said of one column, batch by batch: shape (batches,).

    `minima` and `maxima` are bounds of the values that are neither null nor NaN, null where there are none; strings and
    binary are cut to 64 bytes, a maximum to something that is greater. They are None for a type without order, as
    `distinct_counts`, of values that are not null, are where they were not counted. `null_counts` includes nulls in
    dictionaries and runs.
    """

    null_counts: Counts
    minima: Array | None = None
    maxima: Array | None = None
    distinct_counts: Counts | None = None


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """What a file says of its record batches: the rows of each, shape (batches,), and columns by their position."""

    row_counts: Counts
    columns: Mapping[int, ColumnStatistics]

    def find(self, position: int, low: Any, high: Any) -> list[int]:
        """The batches that may hold a value from `low` to `high`, both included, None for no bound.

        Raises `DataTypeError` for bounds of another type, `UsageError` for NaN.
        """
        known = self.columns.get(position)
        every = list(range(len(self.row_counts)))
        if known is None or known.minima is None or known.maxima is None:
            return every
        wanted = [known.minima.layout.build([bound]) for bound in (low, high) if bound is not None]
        for bound in wanted:
            if min_max(bound) is None:
                raise UsageError(f"a bound is a value that has a place in the order, not {bound.to_pylist()[0]!r}")
        there = np.flatnonzero(~_is_null(known.minima))
        joined = known.minima.layout.concat([known.minima.take(there), known.maxima.take(there), *wanted])
        order = ranks(joined)
        lows, highs, bounds = np.split(order, [len(there), 2 * len(there)])
        may = np.ones(len(there), np.bool_)
        if low is not None:
            may &= highs >= bounds[0]
        if high is not None:
            may &= lows <= bounds[-1]
        found: list[int] = there[may].tolist()
        return found


def read_statistics(
    pairs: Metadata, schema: ReadSchema, blocks: npt.NDArray[Any], limits: ReadLimits, where: str
) -> FileStatistics | None:
    """The statistics among a footer's custom metadata; None where there are none, or those of other blocks.

    Raises `InvalidDataError` where they are malformed or say what can't be.
    """
    raw = next((value for key, value in pairs if key == KEY), None)
    if raw is None:
        return None
    try:
        try:
            stream = base64.b64decode(raw, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidDataError(f"no base64: {error}") from None
        batches = list(StreamReader(MemorySource(Memory(stream), "stream"), None, limits))
        if len(batches) != 1:
            raise InvalidDataError(f"expected one record batch, found {len(batches)}")
        batches[0].validate(full=True)
        return _read(batches[0], schema, blocks)
    except InvalidDataError as error:
        raise type(error)(f"{where}: footer: {KEY.decode()}: {error}") from None


def _read(batch: RecordBatch, schema: ReadSchema, blocks: npt.NDArray[Any]) -> FileStatistics | None:
    names = batch.schema.names
    if tuple(names[:3]) != _COUNTS or len(set(names)) < len(names):
        raise InvalidDataError(f"expected columns {', '.join(_COUNTS)} and one for each position, found {names[:5]}")
    rows, offsets, lengths = (_counts(batch.column(index), _COUNTS[index]) for index in range(3))
    ends = blocks["metaDataLength"].astype(np.int64) + blocks["bodyLength"]
    if not (np.array_equal(offsets, blocks["offset"]) and np.array_equal(lengths, ends)):
        return None
    columns = {}
    for index, name in enumerate(names[3:], 3):
        position = int(name) if name.isascii() and name.isdigit() and len(name) < 10 else -1
        if not 0 <= position < len(schema):
            raise InvalidDataError(f"there is no column {name!r}")
        columns[position] = _read_column(batch.column(index), schema.entry(position)[0].type, rows)
    return FileStatistics(rows, columns)


def _counts(array: Array, what: str, most: Counts | None = None) -> Counts:
    if array.type != _INT64 or array.null_count:
        raise InvalidDataError(f"{what} is {array.type} with {array.null_count} nulls, not int64 with none")
    counts: Counts = array.values(1).astype(np.int64)
    if (counts < 0).any() or (most is not None and (counts > most).any()):
        raise InvalidDataError(f"{what} is negative, or more than there are rows")
    return counts


def _read_column(array: Array, type_: DataType, rows: Counts) -> ColumnStatistics:
    if not isinstance(array.type, Struct) or array.null_count:
        raise InvalidDataError(f"expected structs for the column, found {array.type} with {array.null_count} nulls")
    parts = {
        field.name: child.slice(array.offset, array.length)
        for field, child in zip(array.type.fields, array.children, strict=True)
    }
    if not {"nulls"} <= parts.keys() <= {"nulls", "min", "max", "distinct"} or ("min" in parts) != ("max" in parts):
        raise InvalidDataError(f"a column's statistics are {', '.join(parts)}")
    nulls = _counts(parts["nulls"], "nulls", rows)
    distinct = _counts(parts["distinct"], "distinct", rows - nulls) if "distinct" in parts else None
    if "min" not in parts:
        return ColumnStatistics(nulls, None, None, distinct)
    minima, maxima = parts["min"], parts["max"]
    if minima.type != decoded_type(type_) or maxima.type != minima.type or not has_order(minima.layout):
        raise InvalidDataError(f"bounds of type {minima.type} and {maxima.type} for a column of type {type_}")
    missing = _is_null(minima)
    if not np.array_equal(missing, _is_null(maxima)) or (~missing & (nulls == rows)).any():
        raise InvalidDataError("bounds of no values, or only one of two")
    there = np.flatnonzero(~missing)
    bounds = minima.layout.concat([minima.take(there), maxima.take(there)])
    if has_nan(bounds):
        raise InvalidDataError("NaN is no bound")
    order = ranks(bounds)
    if (order[: len(there)] > order[len(there) :]).any():
        raise InvalidDataError("a minimum is greater than the maximum")
    return ColumnStatistics(nulls, minima, maxima, distinct)


def check_batch(statistics: FileStatistics, index: int, columns: Sequence[Array]) -> None:
    """Compare what is said of a record batch with its columns, all of the file's; raises `InvalidDataError`."""
    for position, known in statistics.columns.items():
        array = columns[position]
        array.validate(full=True)
        kept = _without_nulls(array)
        where = f"record batch {index}, column {position}: the statistics say"
        claimed = int(known.null_counts[index])
        if claimed != array.length - kept.length:
            raise InvalidDataError(f"{where} {claimed} nulls, and there are {array.length - kept.length}")
        if known.distinct_counts is not None and distinct_count(kept) not in (None, known.distinct_counts[index]):
            raise InvalidDataError(
                f"{where} {known.distinct_counts[index]} distinct values, and there are {distinct_count(kept)}"
            )
        found = min_max(kept, cuts=False)
        if known.minima is None or known.maxima is None or found is None:
            continue
        low, high = (bounds.slice(index, 1) for bounds in (known.minima, known.maxima))
        order = None if _is_null(low)[0] else ranks(low.layout.concat([low, *found, high]))
        if order is None or (np.diff(order) < 0).any():
            said, there = [one.to_pylist()[0] for one in (low, high)], [one.to_pylist()[0] for one in found]
            raise InvalidDataError(
                f"{where} values from {said[0]!r} to {said[1]!r}, and there are {there[0]!r} to {there[1]!r}"
            )


def _without_nulls(array: Array) -> Array:
    check_length(array)
    valid = array.layout.valid_mask(array)
    return array if valid is None else array.layout.take(array, np.flatnonzero(valid))


def _is_null(array: Array) -> npt.NDArray[np.bool_]:
    valid = array.layout.valid_mask(array)
    return np.zeros(array.length, np.bool_) if valid is None else ~valid


# Making them


@dataclass(frozen=True, slots=True)
class BatchStatistics:
    """What one batch is like: its rows, and for each column that is looked at its nulls, bounds and distinct values."""

    rows: int
    columns: tuple[tuple[int, MinMax | None, int | None], ...]


class StatisticsCollector:
    """Gathers the statistics of batches as they are written: of the columns at these positions, and with `distinct` how
    many values differ. `before` are those of batches that are there already.
    """

    def __init__(
        self, schema: Schema, positions: Sequence[int], distinct: bool, before: FileStatistics | None = None
    ) -> None:
        self._schema = schema
        self._positions = list(dict.fromkeys(positions))
        self._distinct = distinct
        self._before = before
        self._seen: list[BatchStatistics] = []

    def look(self, batch: RecordBatch) -> BatchStatistics:
        """What a batch is like; raises `InvalidDataError` for values that are not valid."""
        return compute_batch_statistics(batch.columns, batch.num_rows, self._positions, self._distinct)

    def take(self, seen: BatchStatistics) -> None:
        """The batch has been written."""
        self._seen.append(seen)

    def statistics(self) -> FileStatistics:
        """All that was gathered."""
        made = collect_file_statistics(self._schema, self._positions, self._distinct, self._seen)
        return made if self._before is None else merged(self._schema, [self._before, made])


def compute_batch_statistics(
    columns: Sequence[Array], rows: int, positions: Sequence[int], distinct: bool
) -> BatchStatistics:
    """What the columns of a batch at these positions are like."""
    out = []
    for position in positions:
        array = columns[position]
        array.validate(full=True)
        kept = _without_nulls(array)
        count = distinct_count(kept) if distinct else None
        out.append((array.length - kept.length, min_max(kept), count))
    return BatchStatistics(rows, tuple(out))


def collect_file_statistics(
    schema: Schema, positions: Sequence[int], distinct: bool, seen: Sequence[BatchStatistics]
) -> FileStatistics:
    """Statistics of what was seen, batch by batch."""
    columns = {}
    for number, position in enumerate(positions):
        own = [batch.columns[number] for batch in seen]
        made = ColumnStatistics(np.array([nulls for nulls, _, _ in own], np.int64))
        layout = layout_of(decoded_type(schema.fields[position].type))
        if has_order(layout):
            null = layout.build([None])
            sides = [[null if bounds is None else bounds[side] for _, bounds, _ in own] for side in (0, 1)]
            minima, maxima = (layout.concat(side) if side else layout.build([]) for side in sides)
            made = replace(made, minima=minima, maxima=maxima)
        counts = [count for _, _, count in own if count is not None]
        if distinct and len(counts) == len(own):
            made = replace(made, distinct_counts=np.array(counts, np.int64))
        columns[position] = made
    return FileStatistics(np.array([batch.rows for batch in seen], np.int64), columns)


def merged(schema: Schema, parts: Sequence[FileStatistics]) -> FileStatistics:
    """Statistics of files, one after the other, as far as all of them have them; at least one."""
    columns = {}
    for position in sorted(set.intersection(*(set(part.columns) for part in parts))):
        own = [part.columns[position] for part in parts]
        made = ColumnStatistics(np.concatenate([one.null_counts for one in own]))
        minima = [one.minima for one in own if one.minima is not None]
        maxima = [one.maxima for one in own if one.maxima is not None]
        if len(minima) == len(maxima) == len(own):
            layout = layout_of(decoded_type(schema.fields[position].type))
            made = replace(made, minima=layout.concat(minima), maxima=layout.concat(maxima))
        counts = [one.distinct_counts for one in own if one.distinct_counts is not None]
        if len(counts) == len(own):
            made = replace(made, distinct_counts=np.concatenate(counts))
        columns[position] = made
    return FileStatistics(np.concatenate([part.row_counts for part in parts]), columns)


def with_statistics(
    pairs: Metadata, statistics: FileStatistics | None, blocks: Iterable[tuple[int, int, int, int]]
) -> Metadata:
    """A footer's custom metadata with these statistics of the blocks, and no others."""
    others = tuple(pair for pair in pairs if pair[0] != KEY)
    if statistics is None:
        return others
    return (*others, (KEY, base64.b64encode(_encoded(statistics, np.array(list(blocks), np.int64).reshape(-1, 4)))))


def _encoded(statistics: FileStatistics, blocks: Counts) -> bytes:
    integers = primitive_layout(_INT64)
    rows = statistics.row_counts
    columns = [integers.of(values) for values in (rows, blocks[:, 0], blocks[:, 1] + blocks[:, 3])]
    fields = [Field(name, _INT64, False) for name in _COUNTS]
    for position, known in statistics.columns.items():
        parts = {"nulls": integers.of(known.null_counts)}
        if known.minima is not None and known.maxima is not None:
            parts |= {"min": known.minima, "max": known.maxima}
        if known.distinct_counts is not None:
            parts["distinct"] = integers.of(known.distinct_counts)
        made = Struct(tuple(Field(name, array.type) for name, array in parts.items()))
        fields.append(Field(str(position), made, False))
        columns.append(Array.from_buffers(made, len(rows), [None], list(parts.values())))
    batch = RecordBatch(Schema(tuple(fields)), len(rows), columns)
    encoder = Encoder(batch.schema, 8)
    out = bytearray()
    for message in (encoder.schema_message(), *encoder.encode_batch(batch)):
        out += frame_message(message.metadata, len(out))
        for part in message.parts:
            out += bytes(part)
    return bytes(out + END_OF_STREAM)
