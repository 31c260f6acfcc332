"""Conversion from pandas: series to columns, and frames to tables.

Missing values of pandas (NaN, NaT, None, NA) become null, as with pyarrow's `from_pandas`. Memory is shared if pandas
has the same layout: numbers, timestamps, durations, category codes, and columns stored as Arrow arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bowstring.datatypes import types as t
from bowstring.datatypes.conversion import TypeLike, as_type
from bowstring.datatypes.field import Field, Metadata
from bowstring.datatypes.schema import Schema, SchemaLike, as_schema
from bowstring.errors import InvalidArgumentError, TypeMismatchError
from bowstring.interop import c_data
from bowstring.interop.pandas import metadata
from bowstring.interop.pandas.pandas_api import as_series, import_pandas
from bowstring.kernels.column_chunks import ColumnChunks, cast_chunks
from bowstring.layouts.base import ArrayData, Values, pack_validity, prefix_errors
from bowstring.layouts.construction import array_from_numpy, array_from_python
from bowstring.layouts.dictionary import DictionaryLayout
from bowstring.layouts.list_ import ListLayout, concatenate_numpy_arrays
from bowstring.layouts.registry import layout_of
from bowstring.layouts.type_inference import get_timezone_name
from bowstring.layouts.value_codecs.base import not_none_mask
from bowstring.layouts.value_codecs.intervals import MonthDayNano


def series_to_column(values: Any, type_: TypeLike | None = None) -> ColumnChunks:
    """Convert a series, an index or a pandas array to a column of one chunk, or of several if pandas has several.

    Raises `TypeMismatchError` if the values don't have one type or don't fit the requested type, and for periods,
    intervals and sparse values, which have no Arrow type.
    """
    series = as_series(values)
    type_ = None if type_ is None else as_type(type_, "from_pandas")
    column = _convert_series(series, type_)
    return column if type_ is None or column.type == type_ else cast_chunks(column, type_)


def frame_to_columns(
    frame: Any, schema: SchemaLike | None = None, preserve_index: bool | None = None
) -> tuple[Schema, list[ColumnChunks]]:
    """Convert a frame to a schema and its columns.

    The `pandas` entry of the schema's metadata describes the index, labels and dtypes.
    The index is appended as columns; a range index is only described, unless `preserve_index` is True. With False the
    index is dropped. A `schema` selects and orders the columns and sets their types. Raises `InvalidArgumentError` if
    it names columns that the frame doesn't have, and as `series_to_column`, naming the column.
    """
    pd = import_pandas()
    if not isinstance(frame, pd.DataFrame):
        raise InvalidArgumentError(f"expected a DataFrame, found {type(frame).__name__}")
    names = [metadata.label_to_string(label) for label in frame.columns]
    series = [frame.iloc[:, i] for i in range(len(names))]
    labels: list[Any] = [metadata.label_to_optional_string(label) for label in frame.columns]
    levels = _index_levels(frame.index, names, preserve_index)
    index_entries: list[Any] = []
    for name, level in levels:
        if name is None:
            index_entries.append(metadata.describe_range(level))
            continue
        index_entries.append(name)
        names.append(name)
        series.append(level)
        labels.append(metadata.label_to_optional_string(level.name))
    schema = None if schema is None else as_schema(schema, "from_pandas")
    if schema is not None:
        indices = _match_columns_to_fields(names, schema)
        names, series, labels = ([entries[i] for i in indices] for entries in (names, series, labels))
        # A schema may leave out the columns of the index, but not if these are requested. Ranges have no column.
        dropped = [entry for entry in index_entries if not isinstance(entry, dict) and entry not in names]
        if dropped and preserve_index:
            raise InvalidArgumentError(f"preserve_index: the schema lacks the columns of the index: {dropped}")
        index_entries = [entry for entry in index_entries if entry not in dropped]
    columns, fields, entries = [], [], []
    for i, (name, values) in enumerate(zip(names, series, strict=True)):
        field = None if schema is None else schema.fields[i]
        with prefix_errors(f"column {name!r}"):
            column = series_to_column(values, None if field is None else field.type)
            if field is not None and not field.nullable and column.null_count:
                raise TypeMismatchError(f"{column.null_count} nulls, but the field is not nullable")
        columns.append(column)
        fields.append(field or Field(name, column.type))
        entries.append(metadata.describe_column(labels[i], name, values, column.type))
    pairs: Metadata = () if schema is None else tuple(p for p in schema.pairs if p[0] != metadata.PANDAS_KEY)
    table_schema = Schema(
        tuple(fields), (*pairs, (metadata.PANDAS_KEY, metadata.encode_frame_metadata(frame, entries, index_entries)))
    )
    return table_schema, columns


def _index_levels(index: Any, names: Sequence[str], preserve_index: bool | None) -> list[tuple[str | None, Any]]:
    """Return the column name and values of each index level. The name is None for a range that needs no column."""
    pd = import_pandas()
    if preserve_index is False:
        return []
    used_names = list(names)
    levels: list[tuple[str | None, Any]] = []
    for i in range(index.nlevels):
        level = index.get_level_values(i)
        if preserve_index is None and isinstance(level, pd.RangeIndex):
            levels.append((None, level))
            continue
        name = metadata.label_to_optional_string(level.name)
        if name is None or name in used_names:
            suffix = i
            while f"__index_level_{suffix}__" in used_names:
                suffix += 1
            name = f"__index_level_{suffix}__"
        used_names.append(name)
        levels.append((name, level))
    return levels


def _match_columns_to_fields(names: list[str], schema: Schema) -> list[int]:
    """Return the index of the column of each field of the schema."""
    indices = []
    for name in schema.names:
        if names.count(name) != 1:
            raise InvalidArgumentError(f"expected one column {name!r} in the frame, found {names.count(name)}")
        indices.append(names.index(name))
    return indices


# Columns


def _convert_series(series: Any, type_: t.DataType | None) -> ColumnChunks:
    pd = import_pandas()
    dtype = series.dtype
    if hasattr(dtype, "pyarrow_dtype") or (isinstance(dtype, pd.StringDtype) and dtype.storage == "pyarrow"):
        series = series if isinstance(series, pd.Series) else pd.Series(series)
        if hasattr(series, "__arrow_c_stream__"):
            return c_data.import_chunked_array(series)
        frame = series.reset_index(drop=True).to_frame("values")  # before pandas 2.3
        schema, batches = c_data.import_stream(frame)
        return ColumnChunks([batch.columns[0] for batch in batches], schema.field(0).type)
    array = _convert_to_array(series, type_)
    return ColumnChunks([array], array.type)


def _convert_to_array(series: Any, type_: t.DataType | None) -> ArrayData:
    pd = import_pandas()
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return _convert_categories(series)
    if isinstance(dtype, pd.DatetimeTZDtype):
        zoned_type = t.Timestamp(dtype.unit, get_timezone_name(dtype.tz))
        utc_values = series.array.tz_convert(None).to_numpy()  # as in Arrow, pandas stores UTC
        return array_from_numpy(utc_values).with_layout(layout_of(zoned_type))
    if isinstance(dtype, pd.StringDtype):
        return array_from_python(_to_pylist(series), t.Utf8())
    if isinstance(dtype, np.dtype):
        values = series.to_numpy()
        if dtype.kind == "O":
            lists = None if type_ is not None else _convert_lists(series.tolist())
            if lists is not None:
                return lists
            return array_from_python(_to_pylist(series), None if isinstance(type_, t.Dictionary) else type_)
        return _array_with_nan_as_null(values)
    numpy_dtype = getattr(dtype, "numpy_dtype", None)
    if isinstance(numpy_dtype, np.dtype) and numpy_dtype.kind in "biuf" and hasattr(series.array, "_mask"):
        missing = np.asarray(series.isna())
        values = series.to_numpy(numpy_dtype, na_value=numpy_dtype.type(0))
        return array_from_numpy(values, valid=~missing)
    raise TypeMismatchError(f"the pandas dtype {dtype} has no Arrow type: convert the column first")


def _array_with_nan_as_null(values: Values) -> ArrayData:
    """Create an array of NumPy values, with null for NaN."""
    return array_from_numpy(values, valid=~np.isnan(values) if values.dtype.kind == "f" else None)


def _convert_categories(series: Any) -> ArrayData:
    # A CategoricalIndex and a Categorical have codes; a series has them in its array.
    values = series.array if hasattr(series, "cat") or not hasattr(series, "codes") else series
    codes = np.asarray(values.codes)
    dictionary = series_to_column(values.categories).combine_chunks()
    layout = layout_of(t.Dictionary(t.Int(codes.dtype.itemsize * 8), dictionary.type, bool(values.ordered)))
    assert isinstance(layout, DictionaryLayout)
    return layout.create_array(layout.index_layout.create_array(codes, codes >= 0), dictionary)  # -1: missing


def _convert_lists(rows: list[Any]) -> ArrayData | None:
    """Convert NumPy arrays of shape (n,) and one dtype to a list array; return None for anything else."""
    values = concatenate_numpy_arrays(rows)
    if values is None:
        return None
    elements = _array_with_nan_as_null(values)
    lengths = np.fromiter((0 if row is None else len(row) for row in rows), np.int64, len(rows))
    layout = layout_of((t.list_ if len(values) < 1 << 31 else t.large_list)(elements.type))
    assert isinstance(layout, ListLayout)
    return layout.create_array(lengths, elements, pack_validity(not_none_mask(rows)))


def _to_pylist(series: Any) -> list[Any]:
    """Return the values as Python objects, with None for missing values, also within lists and dictionaries."""
    pd = import_pandas()
    missing_values, offset, containers = (pd.NaT, pd.NA), pd.DateOffset, (list, tuple, dict, np.ndarray)

    def convert(value: Any) -> Any:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return None
        if any(value is missing for missing in missing_values):
            return None
        if isinstance(value, containers):
            return convert_container(value)
        return _convert_date_offset(value) if isinstance(value, offset) else value

    def convert_container(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: convert(member) for key, member in value.items()}
        if isinstance(value, np.ndarray):
            # Of NumPy's types, only objects and floats can have missing values.
            if value.dtype.kind not in "Of" or value.ndim != 1:
                return value
            if value.dtype.kind == "f" and not np.isnan(value).any():
                return value
            return [convert(element) for element in value.tolist()]
        elements = [convert(element) for element in value]
        return tuple(elements) if type(value) is tuple else elements if type(value) is list else value

    return [convert(value) for value in series.tolist()]


_UNIT_NANOSECONDS = {
    "hours": 3_600_000_000_000,
    "minutes": 60_000_000_000,
    "seconds": 1_000_000_000,
    "milliseconds": 1_000_000,
    "microseconds": 1_000,
    "nanoseconds": 1,
}


def _convert_date_offset(offset: Any) -> MonthDayNano:
    """Convert a pandas `DateOffset` to a calendar interval. Raises `TypeMismatchError` if it is not relative."""
    parts = dict(offset.kwds)
    months = 12 * parts.pop("years", 0) + parts.pop("months", 0)
    days = 7 * parts.pop("weeks", 0) + parts.pop("days", 0)
    nanoseconds = sum(parts.pop(name, 0) * unit for name, unit in _UNIT_NANOSECONDS.items())
    if parts:
        raise TypeMismatchError(f"{offset!r} can't be expressed in months, days and nanoseconds")
    return MonthDayNano(months * offset.n, days * offset.n, nanoseconds * offset.n)
