"""Statistics of a file's record batches, in the footer's custom metadata («Custom Application Metadata»).

The value of the key `bowstring:statistics` is an Arrow stream in base64, as other readers expect text there. It has one
record batch with a row for each record batch of the file. Its columns are `rows`, `offset` and `length` (int64: the
number of rows, and the bytes of the message by the footer's `Block`, with `length` = `metaDataLength` + `bodyLength`),
and a struct for each column with statistics, named by its index "0", "1" and so on, with the fields `nulls` (int64),
`min` and `max` (of the decoded type, null if no value has an order; absent for types without order), `lengths` (for
lists, see `ColumnStatistics.list_lengths`: fixed-size lists of a fixed-size list of two int64 for each level), and if
counted `distinct` (int64; the values of `unique`).

Statistics whose offsets and lengths differ from the footer's belong to another file and are ignored. Minima, maxima and
lengths of lists are not verified on reading; `FileReader.check_statistics` compares them with the values.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bowstring.arrays.array import Array
from bowstring.arrays.record_batch import RecordBatch
from bowstring.datatypes.factories import list_
from bowstring.datatypes.field import DataType, Field, Metadata
from bowstring.datatypes.schema import Schema
from bowstring.datatypes.types import FloatingPoint, Int, Struct
from bowstring.errors import InvalidArgumentError, InvalidDataError, prefix_errors
from bowstring.io.memory_source import MemorySource
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.message import END_OF_STREAM, Block, frame_message
from bowstring.ipc.metadata.schema import IpcSchema
from bowstring.ipc.stream import Encoder, StreamReader
from bowstring.kernels.array_statistics import (
    compute_dense_ranks,
    count_distinct,
    get_decoded_type,
    has_nan,
    is_orderable,
    min_max,
)
from bowstring.kernels.comparison import compare
from bowstring.kernels.filters import Filters, Predicate
from bowstring.kernels.list_lengths import (
    NO_LISTS,
    ListLengthBounds,
    ListLengths,
    count_list_levels,
    list_length_bounds,
)
from bowstring.kernels.nulls import drop_null
from bowstring.layouts.base import check_expanded_array
from bowstring.layouts.registry import layout_of, primitive_layout
from bowstring.memory.bitmap import Mask
from bowstring.memory.buffer import Memory
from bowstring.memory.iovec import Int64Array

METADATA_KEY = b"bowstring:statistics"
_INT64 = Int(64, True)
_COUNT_COLUMNS = ("rows", "offset", "length")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ColumnStatistics:
    """The statistics of one column, batch by batch: shape (batches,).

    `minima` and `maxima` are bounds of the values that are neither null nor NaN, and null if there are none; strings
    and binary values are truncated to 64 bytes, a maximum to a greater value. They are None for a type without order.
    `distinct_counts` excludes nulls and is None if not counted. `null_counts` includes nulls in dictionaries and runs.
    `list_lengths` has the lengths of the shortest and the longest list at each level, outermost first, or 2**63 - 1 and
    -1 if there is none: shape (batches, levels, 2). It is None for a type that is not a list.

    >>> with bs.new_file("days.arrow", {"day": "int64"}) as writer:
    ...     writer.enable_statistics(["day"], distinct=True)
    ...     writer.write(bs.record_batch({"day": [1, 2, None]}))
    ...     writer.write(bs.record_batch({"day": [3, 3]}))
    >>> with bs.open_file("days.arrow") as reader:
    ...     column = reader.statistics.columns[0]
    >>> column.minima.to_pylist(), column.maxima.to_pylist()
    ([1, 3], [2, 3])
    >>> column.null_counts.tolist(), column.distinct_counts.tolist()
    ([1, 0], [2, 1])
    """

    null_counts: Int64Array
    minima: Array | None = None
    maxima: Array | None = None
    distinct_counts: Int64Array | None = None
    list_lengths: Int64Array | None = None


@dataclass(frozen=True, slots=True, weakref_slot=True)
class FileStatistics:
    """The statistics of a file: the rows of each record batch, shape (batches,), and columns by index.

    >>> with bs.new_file("days.arrow", {"day": "int64"}) as writer:
    ...     writer.enable_statistics(["day"])
    ...     writer.write(bs.record_batch({"day": [1, 2]}))
    ...     writer.write(bs.record_batch({"day": [3, 4]}))
    >>> with bs.open_file("days.arrow") as reader:
    ...     reader.statistics.find_batches(0, 3, 9)
    [1]
    """

    row_counts: Int64Array
    columns: Mapping[int, ColumnStatistics]

    @property
    def list_lengths(self) -> ListLengths:
        """The lengths of the shortest and longest lists of the file, for the columns that have them."""
        columns = sorted(self.columns.items())
        return tuple(
            (index, _merge_batches(each.list_lengths)) for index, each in columns if each.list_lengths is not None
        )

    def find_batches(self, index: int, low: Any, high: Any) -> list[int]:
        """Return the batches that may contain a value from `low` to `high`, both included, None for no bound.

        Raises `TypeMismatchError` for bounds of another type, `InvalidArgumentError` for NaN.
        """
        column = self.columns.get(index)
        if column is None or column.minima is None or column.maxima is None:
            return list(range(len(self.row_counts)))
        is_candidate = ~_is_null(column.minima)
        for bound, symbol, extremes in ((low, ">=", column.maxima), (high, "<=", column.minima)):
            if bound is not None:
                value = extremes.layout.from_pylist([bound])
                if min_max(value) is None:
                    raise InvalidArgumentError(f"a bound must be a value with an order, found {bound!r}")
                is_candidate &= compare(extremes, symbol, value)
        candidates: list[int] = np.flatnonzero(is_candidate).tolist()
        return candidates

    def may_match(self, filters: Filters) -> Mask:
        """Return which batches may have rows that match filters of all columns of the file, shape (batches,)."""
        return filters.combine(self._may_match_predicate)

    def _may_match_predicate(self, predicate: Predicate) -> Mask:
        column = self.columns.get(predicate.column_index)
        if column is None:
            return np.ones(len(self.row_counts), np.bool_)
        has_values: Mask = column.null_counts < self.row_counts
        if predicate.values is None:
            return column.null_counts > 0 if predicate.operator == "is null" else has_values
        if column.minima is None or column.maxima is None:
            return has_values
        return has_values & _may_match_bounds(predicate, column.minima, column.maxima)


def _merge_batches(list_lengths: Int64Array) -> ListLengthBounds:
    shortest = list_lengths[:, :, 0].min(0, initial=NO_LISTS[0])
    longest = list_lengths[:, :, 1].max(0, initial=NO_LISTS[1])
    return tuple(zip(shortest.tolist(), longest.tolist(), strict=True))


def _may_match_bounds(predicate: Predicate, minima: Array, maxima: Array) -> Mask:
    """Return which batches with these bounds may match a predicate with values."""
    values = predicate.values
    assert values is not None
    is_float = isinstance(minima.type, FloatingPoint)  # then other values may be NaN, which has no bounds
    has_bounds = ~_is_null(minima)
    match predicate.operator:
        case "<" | "<=" as symbol:
            return has_bounds & compare(minima, symbol, values)
        case ">" | ">=" as symbol:
            return has_bounds & compare(maxima, symbol, values)
    singles = [values.slice(index, 1) for index in range(values.length)]
    if predicate.operator in ("==", "in"):
        mask = np.zeros(minima.length, np.bool_)
        for value in singles:
            mask |= has_bounds & compare(minima, "<=", value) & compare(maxima, ">=", value)
        return mask | (is_float and predicate.operator == "in" and has_nan(values))
    # Only a batch in which every value is the excluded one has no match.
    mask = np.ones(minima.length, np.bool_)
    for value in singles if not is_float else ():
        mask &= ~(has_bounds & compare(minima, "==", value) & compare(maxima, "==", value))
    return mask


def read_statistics(
    pairs: Metadata,
    schema: IpcSchema,
    blocks: npt.NDArray[np.void],
    limits: ReadLimits,
    location: str,
    column_indices: Collection[int] | None = None,
) -> FileStatistics | None:
    """Read the statistics in a footer's custom metadata; None if there are none, or if they belong to other blocks.

    `column_indices` are the columns whose statistics are read, by default all; the others are not checked.

    Raises `InvalidDataError` if they are malformed or contradictory.
    """
    raw = next((value for key, value in pairs if key == METADATA_KEY), None)
    if raw is None:
        return None
    with prefix_errors(f"{location}: footer: {METADATA_KEY.decode()}"):
        try:
            stream = base64.b64decode(raw, validate=True)
        except ValueError as error:
            raise InvalidDataError(f"not valid base64: {error}") from None
        batches = list(StreamReader(MemorySource(Memory(stream), "stream"), None, limits))
        if len(batches) != 1:
            raise InvalidDataError(f"expected one record batch, found {len(batches)}")
        batch = batches[0]
        if column_indices is not None:
            names = {*_COUNT_COLUMNS, *map(str, column_indices)}
            batch = batch.select([index for index, name in enumerate(batch.schema.names) if name in names])
        batch.validate(full=True)
        return _read_statistics_batch(batch, schema, blocks)


def _read_statistics_batch(
    batch: RecordBatch, schema: IpcSchema, blocks: npt.NDArray[np.void]
) -> FileStatistics | None:
    names = batch.schema.names
    if tuple(names[:3]) != _COUNT_COLUMNS or len(set(names)) < len(names):
        raise InvalidDataError(
            f"expected columns {', '.join(_COUNT_COLUMNS)} and one for each column, found {names[:5]}"
        )
    rows, offsets, lengths = (_read_counts(batch.column(index), _COUNT_COLUMNS[index]) for index in range(3))
    ends = blocks["metaDataLength"].astype(np.int64) + blocks["bodyLength"]
    if not (np.array_equal(offsets, blocks["offset"]) and np.array_equal(lengths, ends)):
        return None
    columns = {}
    for index, name in enumerate(names[3:], 3):
        # `int` also accepts other digits and underscores, and takes long for long texts.
        column_index = int(name) if name.isascii() and name.isdigit() and len(name) < 10 else -1
        if not 0 <= column_index < len(schema):
            raise InvalidDataError(f"there is no column {name!r}")
        columns[column_index] = _read_column_statistics(
            batch.column(index), schema.fields.field_at(column_index).type, rows
        )
    return FileStatistics(rows, columns)


def _read_counts(array: Array, name: str, max_counts: Int64Array | None = None) -> Int64Array:
    if array.type != _INT64 or array.null_count:
        raise InvalidDataError(f"{name} is {array.type} with {array.null_count} nulls, not int64 with none")
    counts: Int64Array = array.buffer_values(1).astype(np.int64)
    if (counts < 0).any() or (max_counts is not None and (counts > max_counts).any()):
        raise InvalidDataError(f"{name} is negative or exceeds the number of rows")
    return counts


def _read_column_statistics(array: Array, type_: DataType, rows: Int64Array) -> ColumnStatistics:
    if not isinstance(array.type, Struct) or array.null_count:
        raise InvalidDataError(f"expected structs for the column, found {array.type} with {array.null_count} nulls")
    parts = {
        field.name: child.slice(array.offset, array.length)
        for field, child in zip(array.type.fields, array.children, strict=True)
    }
    is_known = {"nulls"} <= parts.keys() <= {"nulls", "min", "max", "lengths", "distinct"}
    if not is_known or ("min" in parts) != ("max" in parts):
        raise InvalidDataError(f"a column's statistics are {', '.join(parts)}")
    nulls = _read_counts(parts["nulls"], "nulls", rows)
    distinct = _read_counts(parts["distinct"], "distinct", rows - nulls) if "distinct" in parts else None
    lengths = _read_list_lengths(parts["lengths"], type_) if "lengths" in parts else None
    if "min" not in parts:
        return ColumnStatistics(nulls, None, None, distinct, lengths)
    minima, maxima = parts["min"], parts["max"]
    if minima.type != get_decoded_type(type_) or maxima.type != minima.type or not is_orderable(minima.layout):
        raise InvalidDataError(f"bounds of type {minima.type} and {maxima.type} for a column of type {type_}")
    is_missing = _is_null(minima)
    if not np.array_equal(is_missing, _is_null(maxima)) or (~is_missing & (nulls == rows)).any():
        raise InvalidDataError("bounds without values, or only one of the two bounds")
    batch_indices = np.flatnonzero(~is_missing)
    bounds = minima.layout.concat([minima.take(batch_indices), maxima.take(batch_indices)])
    if has_nan(bounds):
        raise InvalidDataError("NaN is not a valid bound")
    value_ranks = compute_dense_ranks(bounds)
    if (value_ranks[: len(batch_indices)] > value_ranks[len(batch_indices) :]).any():
        raise InvalidDataError("a minimum is greater than the maximum")
    return ColumnStatistics(nulls, minima, maxima, distinct, lengths)


def _read_list_lengths(array: Array, type_: DataType) -> Int64Array:
    num_levels = count_list_levels(type_)
    lengths = array.layout.view_as_numpy(array) if num_levels and array.type == _list_lengths_type(num_levels) else None
    if lengths is None:
        raise InvalidDataError(f"lengths of type {array.type} for a column of type {type_}, or nulls in them")
    shortest, longest = lengths[:, :, 0], lengths[:, :, 1]
    if not (((shortest >= 0) & (shortest <= longest)) | (lengths == NO_LISTS).all(2)).all():
        raise InvalidDataError("lengths of lists are negative, or the shortest list is longer than the longest")
    return lengths


def _list_lengths_type(num_levels: int) -> DataType:
    return list_(list_(_INT64, 2), num_levels)


def check_batch_statistics(statistics: FileStatistics, index: int, columns: Sequence[Array]) -> None:
    """Compare the statistics of a record batch with all its columns. Raises `InvalidDataError` if they differ."""
    for column_index, column in statistics.columns.items():
        array = columns[column_index]
        array.validate(full=True)
        valid_values = drop_null(array)
        location = f"record batch {index}, column {column_index}: by the statistics, expected"
        claimed_nulls = int(column.null_counts[index])
        if claimed_nulls != array.length - valid_values.length:
            raise InvalidDataError(f"{location} {claimed_nulls} nulls, found {array.length - valid_values.length}")
        if column.distinct_counts is not None and count_distinct(valid_values) not in (
            None,
            column.distinct_counts[index],
        ):
            raise InvalidDataError(
                f"{location} {column.distinct_counts[index]} distinct values, found {count_distinct(valid_values)}"
            )
        if column.list_lengths is not None:
            lengths = tuple(map(tuple, column.list_lengths[index].tolist()))
            if lengths != list_length_bounds(array):
                raise InvalidDataError(f"{location} lists of {lengths} elements, found {list_length_bounds(array)}")
        actual = min_max(valid_values, truncate=False)
        if column.minima is None or column.maxima is None or actual is None:
            continue
        low, high = (bounds.slice(index, 1) for bounds in (column.minima, column.maxima))
        # The ranks must ascend: the minimum may be less than the least value, and the maximum greater.
        value_ranks = None if _is_null(low)[0] else compute_dense_ranks(low.layout.concat([low, *actual, high]))
        if value_ranks is None or (np.diff(value_ranks) < 0).any():
            claimed_values, actual_values = (
                [bound.to_pylist()[0] for bound in (low, high)],
                [bound.to_pylist()[0] for bound in actual],
            )
            raise InvalidDataError(
                f"{location} values from {claimed_values[0]!r} to {claimed_values[1]!r}, "
                f"found {actual_values[0]!r} to {actual_values[1]!r}"
            )


def _is_null(array: Array) -> npt.NDArray[np.bool_]:
    valid = array.layout.logical_validity_mask(array)
    return np.zeros(array.length, np.bool_) if valid is None else ~valid


# Collecting


class StatisticsCollector:
    """Collects the statistics of batches as they are written, for the columns at `column_indices`, with `distinct` also
    the number of distinct values. `existing` are the statistics of existing batches.
    """

    def __init__(
        self, schema: Schema, column_indices: Sequence[int], distinct: bool, existing: FileStatistics | None = None
    ) -> None:
        self._schema = schema
        self._column_indices = list(dict.fromkeys(column_indices))
        self._distinct = distinct
        self._parts = [existing or self._create_empty()]

    def _create_empty(self) -> FileStatistics:
        columns = {}
        for column_index in self._column_indices:
            data_type = self._schema.fields[column_index].type
            none, num_levels = np.empty(0, np.int64), count_list_levels(data_type)
            bounds = layout_of(get_decoded_type(data_type)).from_pylist([])
            has_bounds = not num_levels and is_orderable(bounds.layout)
            columns[column_index] = ColumnStatistics(
                none,
                Array.from_array_data(bounds) if has_bounds else None,
                Array.from_array_data(bounds) if has_bounds else None,
                none if self._distinct else None,
                none.reshape(0, num_levels, 2) if num_levels else None,
            )
        return FileStatistics(np.empty(0, np.int64), columns)

    def compute_batch(self, batch: RecordBatch) -> FileStatistics:
        """Compute the statistics of a batch. Raises `InvalidDataError` for invalid values."""
        columns = {}
        for column_index in self._column_indices:
            array = batch.column(column_index)
            check_expanded_array(array)
            # Of lists, only offsets are needed: their values may take a hundred times as long.
            array.validate(full=self._distinct or not count_list_levels(array.type))
            valid = array.layout.logical_validity_mask(array)
            null_count = 0 if valid is None else array.length - int(np.count_nonzero(valid))
            statistics = ColumnStatistics(np.array([null_count], np.int64))
            layout, lengths = layout_of(get_decoded_type(array.type)), list_length_bounds(array)
            if lengths is not None:
                statistics = replace(statistics, list_lengths=np.array([lengths], np.int64))
            elif is_orderable(layout):
                minimum, maximum = map(Array.from_array_data, min_max(array) or (layout.nulls(1),) * 2)
                statistics = replace(statistics, minima=minimum, maxima=maximum)
            count = count_distinct(drop_null(array)) if self._distinct else None
            if count is not None:
                statistics = replace(statistics, distinct_counts=np.array([count], np.int64))
            columns[column_index] = statistics
        return FileStatistics(np.array([batch.num_rows], np.int64), columns)

    def add(self, batch: FileStatistics) -> None:
        """Add the statistics of a batch after it was written."""
        self._parts.append(batch)

    def to_file_statistics(self) -> FileStatistics:
        """Return the statistics of all batches."""
        return concat_statistics(self._schema, self._parts)


def find_bounded_columns(schema: Schema) -> list[int]:
    """Return the indices of the columns whose statistics have a minimum and a maximum, or lengths of lists."""
    return [index for index, field in enumerate(schema.fields) if _has_bounds(field.type)]


def _has_bounds(data_type: DataType) -> bool:
    return count_list_levels(data_type) > 0 or is_orderable(layout_of(get_decoded_type(data_type)))


def concat_statistics(schema: Schema, parts: Sequence[FileStatistics]) -> FileStatistics:
    """Concatenate the statistics of one or more files, for the columns that all of them have."""
    columns = {}
    for column_index in sorted(set.intersection(*(set(part.columns) for part in parts))):
        column_parts = [part.columns[column_index] for part in parts]
        statistics = ColumnStatistics(np.concatenate([one.null_counts for one in column_parts]))
        minima = [one.minima for one in column_parts if one.minima is not None]
        maxima = [one.maxima for one in column_parts if one.maxima is not None]
        if len(minima) == len(maxima) == len(column_parts):
            layout = layout_of(get_decoded_type(schema.fields[column_index].type))
            bounds = [Array.from_array_data(layout.concat(arrays)) for arrays in (minima, maxima)]
            statistics = replace(statistics, minima=bounds[0], maxima=bounds[1])
        counts = [one.distinct_counts for one in column_parts if one.distinct_counts is not None]
        if len(counts) == len(column_parts):
            statistics = replace(statistics, distinct_counts=np.concatenate(counts))
        lengths = [one.list_lengths for one in column_parts if one.list_lengths is not None]
        if len(lengths) == len(column_parts):
            statistics = replace(statistics, list_lengths=np.concatenate(lengths))
        columns[column_index] = statistics
    return FileStatistics(np.concatenate([part.row_counts for part in parts]), columns)


def replace_statistics(pairs: Metadata, statistics: FileStatistics | None, blocks: Sequence[Block]) -> Metadata:
    """A footer's custom metadata with its statistics replaced by these, or removed."""
    others = tuple(pair for pair in pairs if pair[0] != METADATA_KEY)
    if statistics is None:
        return others
    return (
        *others,
        (METADATA_KEY, base64.b64encode(_encode_statistics(statistics, np.array(blocks, np.int64).reshape(-1, 3)))),
    )


def _encode_statistics(statistics: FileStatistics, blocks: Int64Array) -> bytes:
    integers = primitive_layout(_INT64)
    rows = statistics.row_counts
    columns = [
        Array.from_array_data(integers.create_array(values))
        for values in (rows, blocks[:, 0], blocks[:, 1] + blocks[:, 2])
    ]
    types = []
    for column_index, column in statistics.columns.items():
        parts = {"nulls": integers.create_array(column.null_counts)}
        if column.minima is not None and column.maxima is not None:
            parts |= {"min": column.minima, "max": column.maxima}
        if column.list_lengths is not None:
            layout = layout_of(_list_lengths_type(column.list_lengths.shape[1]))
            parts["lengths"] = layout.from_numpy(column.list_lengths)
        if column.distinct_counts is not None:
            parts["distinct"] = integers.create_array(column.distinct_counts)
        type_ = Struct(tuple(Field(name, array.type) for name, array in parts.items()))
        types.append((column_index, type_))
        columns.append(Array.from_buffers(type_, len(rows), [None], list(parts.values())))
    batch = RecordBatch(_create_statistics_schema(tuple(types)), len(rows), columns)
    encoder = Encoder(batch.schema, 8)
    stream = bytearray()
    for message in (encoder.encode_schema_message(), *encoder.encode_batch(batch)):
        stream += frame_message(message.metadata, len(stream))
        for part in message.parts:
            stream += bytes(part)
    return bytes(stream + END_OF_STREAM)


@lru_cache(maxsize=8)
def _create_statistics_schema(types: tuple[tuple[int, Struct], ...]) -> Schema:
    """Return the schema of the statistics of some columns: one object, which is encoded once for many files."""
    fields = [Field(name, _INT64, False) for name in _COUNT_COLUMNS]
    return Schema((*fields, *(Field(str(index), type_, False) for index, type_ in types)))
