"""Conversion to pandas: columns to series, and tables to frames.

The default dtypes are those of pyarrow's `to_pandas`: NumPy dtypes if possible, `str` for strings (from pandas 3),
`category` for dictionaries. With nulls, integers become float64 with NaN, timestamps and durations have NaT, booleans
and types without a NumPy dtype become Python objects with None. Series and frames have their own memory and can be
modified. With `copy=False`, numbers, timestamps and durations without nulls in one chunk share memory, read-only.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, TypeAlias, TypedDict, TypeGuard

import numpy as np

from bowstring.datatypes import types as t
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidArgumentError, WouldCopyError
from bowstring.interop.c_data import ColumnStreamExporter
from bowstring.interop.pandas import blocks, metadata
from bowstring.interop.pandas.pandas_api import get_default_string_dtype, import_pandas, to_arrow_extension_array
from bowstring.kernels.column_chunks import ColumnChunks, combine_with_wider_indices
from bowstring.kernels.encode import dictionary_encode, run_end_decode
from bowstring.layouts.base import ArrayData, Values, set_nulls_to_none, to_object_array
from bowstring.layouts.binary_view import BinaryViewLayout
from bowstring.layouts.boolean import BooleanLayout
from bowstring.layouts.dictionary import decode_dictionary
from bowstring.layouts.expansion_limits import check_expanded_array
from bowstring.layouts.list_ import lists_to_numpy
from bowstring.layouts.registry import layout_of
from bowstring.layouts.struct_ import StructLayout, columns_to_rows
from bowstring.layouts.value_codecs.intervals import MonthDayNano
from bowstring.layouts.value_codecs.temporal import find_timezone

TypesMapper: TypeAlias = Callable[[t.DataType], Any]

_MAX_EXACT_FLOAT = 1 << 53
"""The largest integer up to which all integers are exact in float64."""


class ToPandasOptions(TypedDict, total=False):
    """The options of every `to_pandas`; each has a default."""

    types_mapper: TypesMapper | None
    """A function from a data type to a pandas dtype, or to None for the default dtype."""
    dtype_backend: Literal["numpy", "numpy_nullable", "pyarrow"]
    """NumPy dtypes ("numpy", the default), masked dtypes of pandas, or `ArrowDtype`, which requires pyarrow."""
    ignore_metadata: bool
    """Whether to ignore the schema's `pandas` metadata, which has the index, labels and dtypes (default False)."""
    integer_object_nulls: bool
    """Whether to convert integers with nulls to Python objects instead of float64 (default False)."""
    date_as_object: bool
    """Whether to convert dates to `datetime.date` instead of `datetime64[ms]` (default True)."""
    copy: bool
    """Whether to copy numbers, timestamps and durations, so that series and frames can be modified (default True).
    False shares memory, read-only, where possible.
    """
    zero_copy_only: bool
    """Whether to share memory, as with `copy=False`, and raise `WouldCopyError` if a column would be copied (default
    False).
    """


@dataclass(frozen=True, slots=True)
class ParsedOptions:
    """The options of `ToPandasOptions` with their defaults."""

    types_mapper: TypesMapper | None = None
    dtype_backend: str = "numpy"
    ignore_metadata: bool = False
    integer_object_nulls: bool = False
    date_as_object: bool = True
    copy: bool = True
    zero_copy_only: bool = False


def parse_options(keywords: ToPandasOptions) -> ParsedOptions:
    """Check the options and add the defaults. Raises `InvalidArgumentError` for an unknown option or value."""
    unknown = sorted(set(keywords) - set(ParsedOptions.__slots__))
    if unknown:
        raise InvalidArgumentError(
            f"to_pandas has no option {unknown[0]!r}; its options are {', '.join(ParsedOptions.__slots__)}"
        )
    options = ParsedOptions(**keywords)
    if options.dtype_backend not in ("numpy", "numpy_nullable", "pyarrow"):
        raise InvalidArgumentError(
            f"dtype_backend must be 'numpy', 'numpy_nullable' or 'pyarrow', found {options.dtype_backend!r}"
        )
    if options.zero_copy_only:
        if keywords.get("copy"):
            raise InvalidArgumentError("to_pandas: copy=True contradicts zero_copy_only=True")
        options = replace(options, copy=False)
    return options


def to_series(column: ArrayData | ColumnChunks, keywords: ToPandasOptions) -> Any:
    """Convert a column to a series without a name."""
    options = parse_options(keywords)
    return _series_without_copy(_convert_column(_as_column_chunks(column), options))


def to_frame(
    schema: Schema, columns: Sequence[ArrayData | ColumnChunks], num_rows: int, keywords: ToPandasOptions
) -> Any:
    """Convert a table to a frame, with the index and labels from the schema's `pandas` metadata, if any."""
    options = parse_options(keywords)
    pd = import_pandas()
    frame_metadata = None if options.ignore_metadata else metadata.read_frame_metadata(schema)
    names = schema.names
    dtypes = {} if frame_metadata is None else _get_stored_dtypes(frame_metadata)

    def convert(index: int) -> Any:
        try:
            return _convert_column(_as_column_chunks(columns[index]), options, dtypes.get(names[index]))
        except WouldCopyError as error:
            raise WouldCopyError(f"column {names[index]!r}: {error}") from None

    index, index_columns = _restore_index(frame_metadata, names, convert, num_rows)
    data_columns = [i for i in range(len(names)) if i not in index_columns]
    if options.copy:
        sources = []
        for i in data_columns:
            column = _as_column_chunks(columns[i])
            dtype = _find_numpy_dtype(column, options, dtypes.get(names[i]))
            sources.append((convert(i) if dtype is None else column, dtype))
        frame = blocks.create_frame(sources, num_rows)
    else:
        frame = pd.DataFrame(
            {label: _series_without_copy(convert(i)) for label, i in enumerate(data_columns)}, copy=False
        )
    frame.index = index
    frame.columns = metadata.restore_labels([names[i] for i in data_columns], frame_metadata)
    if frame_metadata is not None:
        frame.attrs = dict(frame_metadata.attributes)
    return frame


def _series_without_copy(values: Any) -> Any:
    """Return a series of the values without a copy. The explicit dtype prevents pandas from inferring another one."""
    return import_pandas().Series(values, dtype=values.dtype, copy=False)


def _as_column_chunks(column: ArrayData | ColumnChunks) -> ColumnChunks:
    return column if isinstance(column, ColumnChunks) else ColumnChunks([column], column.type)


# The index


def _restore_index(
    frame_metadata: metadata.FrameMetadata | None, names: list[str], convert: Callable[[int], Any], num_rows: int
) -> tuple[Any, set[int]]:
    """Return the index and the indices of its columns."""
    pd = import_pandas()
    levels, labels, index_columns = [], [], set()
    for entry in () if frame_metadata is None else frame_metadata.index:
        if isinstance(entry, dict):
            level = pd.RangeIndex(entry["start"], entry["stop"], entry["step"], name=entry.get("name"))
            if len(level) == num_rows:
                levels.append(level)
                labels.append(level.name)
        elif names.count(entry) == 1:
            index = names.index(entry)
            index_columns.add(index)
            name = frame_metadata.columns.get(entry, {}).get("name") if frame_metadata else None
            levels.append(pd.Index(_series_without_copy(convert(index)), name=name))
            labels.append(name)
    if not levels:
        return pd.RangeIndex(num_rows), index_columns
    return (levels[0] if len(levels) == 1 else pd.MultiIndex.from_arrays(levels, names=labels)), index_columns


def _get_stored_dtypes(frame_metadata: metadata.FrameMetadata) -> dict[str, Any]:
    """Return the pandas dtypes from the metadata that are not the default of any type, by field name."""
    pd = import_pandas()
    dtypes = {}
    for name, entry in frame_metadata.columns.items():
        text = entry["numpy_type"]
        if text in _MASKED_DTYPES or text.startswith("string") or text.endswith("[pyarrow]"):
            try:
                dtypes[name] = pd.api.types.pandas_dtype(text)
            except (TypeError, ValueError, ImportError):
                continue
    return dtypes


_MASKED_DTYPES = {
    "boolean": t.Bool(),
    **{f"{sign}Int{bits}": t.Int(bits, not sign) for sign in ("", "U") for bits in (8, 16, 32, 64)},
    **{f"Float{bits}": t.FloatingPoint(bits) for bits in (32, 64)},
}
"""The data types of the pandas dtypes that store a mask, by name."""


# Columns


def _convert_column(column: ColumnChunks, options: ParsedOptions, stored_dtype: Any = None) -> Any:
    """Convert a column to a NumPy array or a pandas array. `stored_dtype` is the dtype from the metadata, if any."""
    type_ = column.type
    for chunk in column.chunks:
        check_expanded_array(chunk)
    if options.zero_copy_only:
        _check_zero_copy(column, options, stored_dtype)
    elif options.copy and (numpy_dtype := _find_numpy_dtype(column, options, stored_dtype)) is not None:
        values = np.empty(len(column), numpy_dtype)
        blocks.write_block_row(column, values)
        return values
    dtype = options.types_mapper(type_) if options.types_mapper is not None else None
    if dtype is None and options.dtype_backend == "pyarrow":
        return to_arrow_extension_array(ColumnStreamExporter(column))
    if dtype is None and options.dtype_backend == "numpy_nullable":
        dtype = _nullable_dtype(type_)
    if dtype is None and not isinstance(type_, t.Dictionary):
        dtype = stored_dtype
    if dtype is not None:
        return _convert_to_dtype(column, dtype, options)
    if _has_storage_values(type_):
        column = ColumnChunks([chunk.storage for chunk in column.chunks], type_.storage_type)
    if isinstance(column.type, t.BaseString) and get_default_string_dtype() is not None:
        return _convert_strings(column, get_default_string_dtype())
    return _convert_to_default_dtype(combine_with_wider_indices(column), options)


_NUMPY_TYPES = (t.Int, t.FloatingPoint, t.Timestamp, t.Duration)


def _find_numpy_dtype(column: ColumnChunks, options: ParsedOptions, stored_dtype: Any) -> np.dtype[Any] | None:
    """Return the NumPy dtype of a column that converts to NumPy chunk by chunk: numbers, timestamps and durations; None
    for any other column. Warns about integers that the conversion to float64 rounds.
    """
    type_ = column.type
    is_numpy = options.dtype_backend == "numpy" and stored_dtype is None
    if not (is_numpy and isinstance(type_, _NUMPY_TYPES)) or getattr(type_, "timezone", None) is not None:
        return None
    if options.types_mapper is not None and options.types_mapper(type_) is not None:
        return None
    if isinstance(type_, t.Int) and column.null_count:
        if options.integer_object_nulls:
            return None
        _warn_of_rounding(column)
        return np.dtype(np.float64)
    return layout_of(type_).from_pylist([]).to_numpy().dtype


def _check_zero_copy(column: ColumnChunks, options: ParsedOptions, stored_dtype: Any) -> None:
    is_default = options.types_mapper is None and options.dtype_backend == "numpy" and stored_dtype is None
    if not (is_default and isinstance(column.type, _NUMPY_TYPES)):
        raise WouldCopyError(f"{column.type} can't be converted to pandas without a copy")
    column.to_numpy(zero_copy_only=True)


def _convert_to_default_dtype(array: ArrayData, options: ParsedOptions) -> Any:
    """Convert an array to the default pandas dtype of its type."""
    for type_class, convert in _CONVERTERS.items():
        if isinstance(array.type, type_class):
            return convert(array, options)
    return to_object_array(array.to_pylist())


def _convert_strings(column: ColumnChunks, dtype: Any) -> Any:
    pd = import_pandas()
    if len(column) and getattr(dtype, "storage", "python") == "pyarrow" and hasattr(pd.Series, "from_arrow"):
        non_empty = ColumnChunks([chunk for chunk in column.chunks if chunk.length], column.type)
        non_empty.validate(full=True)  # pandas does not check offsets
        layout = layout_of(column.type)
        if isinstance(layout, BinaryViewLayout):  # pandas allocates the sum of all lengths
            chunks = list(map(layout.with_empty_nulls, non_empty.chunks))
            for chunk in chunks:
                layout.checked_lengths(chunk, layout.views(chunk))
            non_empty = ColumnChunks(chunks, column.type)
        strings = pd.Series.from_arrow(ColumnStreamExporter(non_empty)).array
        return strings if strings.dtype == dtype else strings.astype(dtype)
    return pd.array(to_object_array(column.to_pylist()), dtype=dtype)


def _convert_numbers(array: ArrayData, options: ParsedOptions) -> Any:
    if array.null_count and isinstance(array.type, t.Int):
        if options.integer_object_nulls:
            return to_object_array(array.to_pylist())
        _warn_of_rounding(_as_column_chunks(array))
    return _to_numpy(array, options)


def _to_numpy(array: ArrayData, options: ParsedOptions) -> Values:
    return _copy_if_shared(array.to_numpy(zero_copy_only=False), options)


def _copy_if_shared(values: Values, options: ParsedOptions) -> Values:
    """Copy the values if they share the table's memory and the options don't allow it."""
    return values.copy() if options.copy and not values.flags.writeable else values


def _warn_of_rounding(column: ColumnChunks) -> None:
    inexact = next((value for chunk in column.chunks for value in _find_inexact_integers(chunk)), None)
    if inexact is not None:
        warnings.warn(
            f"{column.type} with nulls becomes float64, which rounds {inexact}: use integer_object_nulls=True or "
            "dtype_backend='numpy_nullable' for exact values",
            UserWarning,
            stacklevel=2,
        )


def _find_inexact_integers(array: ArrayData) -> list[int]:
    """Return the integers that are not exact in float64."""
    values, mask = array.buffer_values(1), array.validity_mask()
    if values.dtype.itemsize < 8:
        return []
    is_large = values > _MAX_EXACT_FLOAT
    if values.dtype.kind == "i":
        is_large |= values < -_MAX_EXACT_FLOAT
    if mask is not None:
        is_large &= mask
    return [value for value in values[is_large].tolist() if int(float(value)) != value]


def _convert_temporal(array: ArrayData, options: ParsedOptions) -> Any:
    values = _to_numpy(array, options)
    timezone = getattr(array.type, "timezone", None)
    if timezone is None:
        return values
    pd = import_pandas()
    dtype = pd.DatetimeTZDtype(np.datetime_data(values.dtype)[0], find_timezone(timezone))
    return pd.array(values.view(np.int64), dtype=dtype, copy=False)


def _convert_dates(array: ArrayData, options: ParsedOptions) -> Any:
    if options.date_as_object:
        return to_object_array(array.to_pylist())
    return array.to_numpy(zero_copy_only=False).astype("M8[ms]")


def _to_date_offsets(array: ArrayData, _: ParsedOptions) -> Any:
    offset = import_pandas().DateOffset
    return to_object_array(
        [
            offset(months=v.months, days=v.days, nanoseconds=v.nanoseconds) if isinstance(v, MonthDayNano) else v
            for v in array.to_pylist()
        ]
    )


def _convert_dictionary(array: ArrayData, options: ParsedOptions) -> Any:
    categories = _to_categories(array)
    if categories is None:  # with duplicates or nulls; encoding the values again removes duplicates
        values = decode_dictionary(array)
        array = dictionary_encode(values)
        categories = _to_categories(array)
        if categories is None:
            return _convert_to_default_dtype(values, options)
    indices, mask = array.layout.indices(array), array.validity_mask()  # type: ignore[attr-defined]
    codes = indices if mask is None else np.where(mask, indices, -1)
    return import_pandas().Categorical.from_codes(codes, categories=categories, ordered=array.type.ordered)  # type: ignore[attr-defined]


def _to_categories(array: ArrayData) -> Any:
    """Convert the dictionary to the labels of categories; None if they are not hashable, unique and valid."""
    dictionary = array.dictionary
    array.layout.check(array)
    assert dictionary is not None
    if dictionary.type == t.FloatingPoint(16):  # pandas has no index of float16
        return None
    labels = import_pandas().Index(_convert_column(_as_column_chunks(dictionary), ParsedOptions()))
    try:
        if labels.dtype == object:
            hash(tuple(labels))
        is_valid = dictionary.layout.logical_validity_mask(dictionary) is None and not labels.hasnans
        return labels if is_valid and labels.is_unique else None
    except TypeError:
        return None


def _convert_lists(array: ArrayData, options: ParsedOptions) -> Any:
    lists = array.compact()
    elements = decode_dictionary(lists.children[0])  # not as categories, which represent null by NaN
    values = _convert_to_default_dtype(elements, options)
    return lists_to_numpy(lists, values if isinstance(values, np.ndarray) else np.asarray(values))


def _convert_structs(array: ArrayData, options: ParsedOptions) -> Any:
    """Convert structs to dictionaries; lists in them, at any depth, become NumPy arrays."""
    layout = array.layout
    if not isinstance(layout, StructLayout) or not _has_list(array.type):
        return to_object_array(array.to_pylist())
    members = [_convert_members(child, options) for child in layout.columns(array)]
    rows = columns_to_rows(layout.names, members, array.length)
    return to_object_array(set_nulls_to_none(rows, array.validity_mask()))


def _convert_maps(array: ArrayData, options: ParsedOptions) -> Any:
    """Convert maps to lists of pairs; lists in them, at any depth, become NumPy arrays."""
    if not _has_list(array.type.fields[0].type):
        return to_object_array(array.to_pylist())
    maps = array.compact()
    keys, items = (_convert_members(child, options) for child in maps.children[0].layout.columns(maps.children[0]))  # type: ignore[attr-defined]
    pairs = list(zip(keys, items, strict=True))
    offsets = maps.layout.offsets(maps).tolist()  # type: ignore[attr-defined]
    rows = [pairs[start:stop] for start, stop in pairwise(offsets)]
    return to_object_array(set_nulls_to_none(rows, array.validity_mask()))


def _convert_members(array: ArrayData, options: ParsedOptions) -> list[Any]:
    """Convert the values of a struct's or map's child: those without lists to Python objects."""
    return list(_convert_to_default_dtype(array, options)) if _has_list(array.type) else array.to_pylist()


def _has_list(type_: t.DataType) -> bool:
    """Whether a type is a list, or a struct or map of one at any depth."""
    if isinstance(type_, t.Map):
        type_ = type_.entries_field.type
    return isinstance(type_, t.BaseList) or (
        isinstance(type_, t.Struct) and any(_has_list(f.type) for f in type_.fields)
    )


def _has_storage_values(type_: t.DataType) -> TypeGuard[ExtensionType]:
    """Whether a type is an extension that does not decode the values of its storage."""
    type_class: Any = type(type_)
    return (
        isinstance(type_, ExtensionType)
        and type_class.decode is ExtensionType.decode
        and type_class.from_storage_numpy is ExtensionType.from_storage_numpy
    )


def _convert_extension(array: ArrayData, options: ParsedOptions) -> Any:
    """Convert extension values: the storage values if the type doesn't decode them, NumPy values if they are numeric,
    boolean or temporal, else Python objects.
    """
    if _has_storage_values(array.type):
        return _convert_to_default_dtype(array.storage, options)
    values = to_object_array([]) if array.null_count else _to_numpy(array, options)
    if values.ndim == 1 and values.dtype.kind in "biufmM":
        return values
    return to_object_array(array.to_pylist())


_CONVERTERS: dict[type[t.DataType], Callable[[ArrayData, ParsedOptions], Any]] = {
    t.Bool: lambda array, _: array.to_numpy(zero_copy_only=False),
    t.Int: _convert_numbers,
    t.FloatingPoint: _convert_numbers,
    t.Date: _convert_dates,
    t.Timestamp: _convert_temporal,
    t.Duration: _convert_temporal,
    t.Interval: _to_date_offsets,
    t.Dictionary: _convert_dictionary,
    t.RunEndEncoded: lambda array, options: _convert_column(_as_column_chunks(run_end_decode(array)), options),
    t.Struct: _convert_structs,
    t.Map: _convert_maps,
    t.BaseList: _convert_lists,
    ExtensionType: _convert_extension,
}
"""Converters by type. Other types become Python objects."""


# Other dtypes


def _nullable_dtype(type_: t.DataType) -> Any:
    """Return the nullable pandas dtype of a type, or None."""
    for name, masked_type in _MASKED_DTYPES.items():
        if type_ == masked_type:
            return import_pandas().api.types.pandas_dtype(name)
    return import_pandas().StringDtype() if isinstance(type_, t.BaseString) else None


def _convert_to_dtype(column: ColumnChunks, dtype: Any, options: ParsedOptions) -> Any:
    pd = import_pandas()
    if isinstance(dtype, pd.StringDtype) and isinstance(column.type, t.BaseString):
        return _convert_strings(column, dtype)
    if hasattr(dtype, "pyarrow_dtype"):
        values = to_arrow_extension_array(ColumnStreamExporter(column))
        return values if values.dtype == dtype else values.astype(dtype)
    if column.type == _MASKED_DTYPES.get(str(dtype)):
        return _to_masked_array(column.combine_chunks(), options)
    if isinstance(dtype, np.dtype) or not hasattr(dtype, "construct_array_type"):
        return _copy_if_shared(np.asarray(column, dtype), options)
    return pd.array(to_object_array(column.to_pylist()), dtype=dtype)


def _to_masked_array(array: ArrayData, options: ParsedOptions) -> Any:
    """Convert to a masked pandas array, which shares the values' memory if the options allow it."""
    pd = import_pandas()
    mask = array.validity_mask()
    missing = np.zeros(array.length, np.bool_) if mask is None else ~mask
    if isinstance(array.layout, BooleanLayout):
        return pd.arrays.BooleanArray(array.layout.unpack_values(array), missing)
    array_class = pd.arrays.IntegerArray if isinstance(array.type, t.Int) else pd.arrays.FloatingArray
    values: Values = array.buffer_values(1)
    return array_class(values, missing, copy=options.copy)
