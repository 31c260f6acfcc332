"""pandas' series and frames -> columns and tables.

What pandas calls missing (NaN, NaT, None, NA) becomes null, as with pyarrow's `from_pandas`. Memory is shared where the
values lie as Arrow has them: numbers, moments, category codes, and columns that pandas itself keeps as Arrow arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bowstring.arrays import construction, type_inference
from bowstring.arrays.chunked_array import ChunkedArray
from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table
from bowstring.datatypes import types as t
from bowstring.datatypes.base import TypeLike, as_type
from bowstring.datatypes.field import Field, Metadata, Schema, SchemaLike, as_schema
from bowstring.errors import DataTypeError, UsageError
from bowstring.interop import c_data
from bowstring.interop.pandas import metadata
from bowstring.interop.pandas.library import as_series, pandas
from bowstring.layouts.array import Array
from bowstring.layouts.base import error_context, pack_validity
from bowstring.layouts.dictionary import DictionaryLayout
from bowstring.layouts.registry import layout_of
from bowstring.layouts.value_codecs.intervals import MonthDayNano


def column_from_series(values: Any, type_: TypeLike | None = None) -> ChunkedArray:
    """The column of a series, an index or one of pandas' arrays; in one chunk but where pandas has several.

    Raises `DataTypeError` where values do not fit one type, or the type given, and for periods, intervals and sparse
    values, which Arrow has no type for.
    """
    series = as_series(values)
    type_ = None if type_ is None else as_type(type_, "from_pandas")
    made = _column(series, type_)
    return made if type_ is None or made.type == type_ else made.cast(type_)


def table_from_frame(frame: Any, schema: SchemaLike | None = None, preserve_index: bool | None = None) -> Table:
    """The columns of a frame as a table whose metadata `pandas` describes index, labels and dtypes.

    The index goes along as columns behind the others, or as a mere description where it is a range and `preserve_index`
    is not True; with False it is left out. A `schema` says which columns are taken, in which order, and their types.
    Raises `UsageError` where it names others, and as `column_from_series`, naming the column.
    """
    pd = pandas()
    if not isinstance(frame, pd.DataFrame):
        raise UsageError(f"a table comes from a DataFrame, not from {type(frame).__name__}")
    names = [metadata.label_text(label) for label in frame.columns]
    series = [frame.iloc[:, number] for number in range(len(names))]
    shown: list[Any] = [metadata.name_of(label) for label in frame.columns]
    levels = _levels(frame.index, names, preserve_index)
    of_index: list[Any] = []
    for name, level in levels:
        if name is None:
            of_index.append(metadata.range_entry(level))
            continue
        of_index.append(name)
        names.append(name)
        series.append(level)
        shown.append(metadata.name_of(level.name))
    schema = None if schema is None else as_schema(schema, "from_pandas")
    if schema is not None:
        chosen = _chosen(names, schema)
        names, series, shown = ([part[number] for number in chosen] for part in (names, series, shown))
        of_index = [entry for entry in of_index if isinstance(entry, dict) or entry in names]
    columns, fields, entries = [], [], []
    for number, (name, values) in enumerate(zip(names, series, strict=True)):
        wanted = None if schema is None else schema.fields[number]
        with error_context(f"column {name!r}"):
            column = column_from_series(values, None if wanted is None else wanted.type)
            if wanted is not None and not wanted.nullable and column.null_count:
                raise DataTypeError(f"has {column.null_count} nulls, its field allows none")
        columns.append(column)
        fields.append(wanted or Field(name, column.type))
        entries.append(metadata.column_entry(shown[number], name, values, column.type))
    pairs: Metadata = () if schema is None else tuple(p for p in schema.pairs if p[0] != metadata.KEY)
    if preserve_index is False:
        of_index = []
    said = Schema(tuple(fields), (*pairs, (metadata.KEY, metadata.described(frame, entries, of_index))))
    if not columns:
        return Table(said, [RecordBatch(said, len(frame), [])])
    return Table.from_arrays(columns, schema=said)


def batch_from_frame(frame: Any, schema: SchemaLike | None = None, preserve_index: bool | None = None) -> RecordBatch:
    """As `table_from_frame`, in one record batch."""
    made = table_from_frame(frame, schema, preserve_index).combine_chunks().to_batches()
    return made[0]


def _levels(index: Any, names: Sequence[str], preserve_index: bool | None) -> list[tuple[str | None, Any]]:
    """The levels of an index and the columns' names for them; None for a range that needs no column."""
    pd = pandas()
    if preserve_index is False:
        return []
    taken = list(names)
    found: list[tuple[str | None, Any]] = []
    for number in range(index.nlevels):
        level = index.get_level_values(number)
        if preserve_index is None and isinstance(level, pd.RangeIndex):
            found.append((None, level))
            continue
        name = metadata.name_of(level.name)
        if name is None or name in taken:
            at = number
            while f"__index_level_{at}__" in taken:
                at += 1
            name = f"__index_level_{at}__"
        taken.append(name)
        found.append((name, level))
    return found


def _chosen(names: list[str], schema: Schema) -> list[int]:
    chosen = []
    for name in schema.names:
        if names.count(name) != 1:
            raise UsageError(f"{names.count(name)} columns of the frame are called {name!r}, as the schema wants")
        chosen.append(names.index(name))
    return chosen


# Columns


def _column(series: Any, type_: t.DataType | None) -> ChunkedArray:
    pd = pandas()
    dtype = series.dtype
    if hasattr(dtype, "pyarrow_dtype") or (isinstance(dtype, pd.StringDtype) and dtype.storage == "pyarrow"):
        held = series if isinstance(series, pd.Series) else pd.Series(series)
        if hasattr(held, "__arrow_c_stream__"):
            return c_data.import_chunked(held)
        return c_data.import_table(held.reset_index(drop=True).to_frame("values")).column(0)  # before pandas 2.3
    made = _array(series, type_)
    return ChunkedArray([made], made.type)


def _array(series: Any, type_: t.DataType | None) -> Array:
    pd = pandas()
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return _categories(series)
    if isinstance(dtype, pd.DatetimeTZDtype):
        zoned = t.Timestamp(dtype.unit, type_inference.timezone_name(dtype.tz))
        plain = series.array.tz_convert(None).to_numpy()
        return construction.array(plain).with_layout(layout_of(zoned))
    if isinstance(dtype, pd.StringDtype):
        return construction.array(_without_missing(series), t.Utf8())
    if isinstance(dtype, np.dtype):
        values = series.to_numpy()
        if dtype.kind == "O":
            rows = None if type_ is not None else _rows_of_numpy(series.tolist())
            if rows is not None:
                return rows
            items = _without_missing(series)
            return construction.array(items, None if isinstance(type_, t.Dictionary) else type_)
        return construction.array(values, mask=np.isnan(values)) if dtype.kind == "f" else construction.array(values)
    numpy_dtype = getattr(dtype, "numpy_dtype", None)
    if isinstance(numpy_dtype, np.dtype) and numpy_dtype.kind in "biuf" and hasattr(series.array, "_mask"):
        missing = np.asarray(series.isna())
        values = series.to_numpy(numpy_dtype, na_value=numpy_dtype.type(0))
        return construction.array(values, mask=missing)
    raise DataTypeError(f"pandas' {dtype} has no data type: convert the column first")


def _categories(series: Any) -> Array:
    values = series.array if hasattr(series, "cat") or not hasattr(series, "codes") else series
    codes = np.asarray(values.codes)
    words = column_from_series(values.categories).combine_chunks()
    kind = t.Dictionary(t.Int(codes.dtype.itemsize * 8), words.type, bool(values.ordered))
    layout = layout_of(kind)
    assert isinstance(layout, DictionaryLayout)
    return layout.of(layout.index_layout.of(codes, codes >= 0), words)


def _rows_of_numpy(items: list[Any]) -> Array | None:
    """Lists of NumPy arrays of one type of numbers, moments or truth values, taken together; None for anything else."""
    rows = [item for item in items if item is not None]
    dtype = getattr(rows[0], "dtype", None) if rows else None
    if dtype is None or getattr(dtype, "kind", "O") not in "biufmM":
        return None
    if not all(type(row) is np.ndarray and row.ndim == 1 and row.dtype == dtype for row in rows):
        return None
    values = np.concatenate(rows)
    elements = construction.array(values, mask=np.isnan(values)) if dtype.kind == "f" else construction.array(values)
    lengths = np.fromiter((0 if item is None else len(item) for item in items), np.int64, len(items))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    small = len(values) < 1 << 31
    kind = t.list_(elements.type) if small else t.large_list(elements.type)
    mask = None if len(rows) == len(items) else np.fromiter((item is not None for item in items), np.bool_, len(items))
    buffers = [pack_validity(mask), offsets.astype(np.int32 if small else np.int64)]
    return Array.from_buffers(kind, len(items), buffers, [elements])


def _without_missing(series: Any) -> list[Any]:
    """The values as Python objects, None for what is missing, within lists and dictionaries too."""
    pd = pandas()
    nothing, offset, containers = (pd.NaT, pd.NA), pd.DateOffset, (list, tuple, dict, np.ndarray)

    def present(item: Any) -> Any:
        if item is None or (isinstance(item, float) and math.isnan(item)) or any(item is one for one in nothing):
            return None
        if isinstance(item, containers):
            return within(item)
        return _interval(item) if isinstance(item, offset) else item

    def within(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: present(value) for key, value in item.items()}
        if isinstance(item, np.ndarray):
            if item.dtype.kind not in "Of" or item.ndim != 1:
                return item
            if item.dtype.kind == "f" and not np.isnan(item).any():
                return item
            return [present(value) for value in item.tolist()]
        made = [present(value) for value in item]
        return tuple(made) if type(item) is tuple else made if type(item) is list else item

    return [present(item) for item in series.tolist()]


_NANOSECONDS = {
    "hours": 3_600_000_000_000,
    "minutes": 60_000_000_000,
    "seconds": 1_000_000_000,
    "milliseconds": 1_000_000,
    "microseconds": 1_000,
    "nanoseconds": 1,
}


def _interval(offset: Any) -> MonthDayNano:
    """A relative offset of pandas as a calendar interval; raises `DataTypeError` for one that is none."""
    words = dict(offset.kwds)
    months = 12 * words.pop("years", 0) + words.pop("months", 0)
    days = 7 * words.pop("weeks", 0) + words.pop("days", 0)
    nanoseconds = sum(words.pop(word, 0) * unit for word, unit in _NANOSECONDS.items())
    if words:
        raise DataTypeError(f"{offset!r} is no span of months, days and nanoseconds")
    return MonthDayNano(months * offset.n, days * offset.n, nanoseconds * offset.n)
