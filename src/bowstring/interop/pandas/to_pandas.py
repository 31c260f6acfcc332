"""Columns and tables -> pandas' series and frames.

By default the dtypes are NumPy's, as pyarrow's `to_pandas` chooses them: where there are nulls, integers become float64
with NaN, moments have NaT, booleans and everything that NumPy has no type for become Python objects with None; text is
pandas' `str` (from pandas 3 on), dictionaries are categories. Series and frames have memory of their own and can be
edited. With `copy=False` columns of one chunk of numbers or moments without nulls share theirs, and are read-only.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypedDict

import numpy as np

from bowstring.arrays.chunked_array import ChunkedArray, combine_chunks_widened
from bowstring.compute.encode import run_end_decode
from bowstring.datatypes import types as t
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import Schema
from bowstring.errors import UsageError, WouldCopyError
from bowstring.interop.pandas import blocks, metadata
from bowstring.interop.pandas.library import arrow_backed, pandas, strings_dtype
from bowstring.layouts.array import Array
from bowstring.layouts.base import Values, object_array
from bowstring.layouts.binary_view import BinaryViewLayout
from bowstring.layouts.boolean import BooleanLayout
from bowstring.layouts.dictionary import decode_dictionary
from bowstring.layouts.gather import check_length
from bowstring.layouts.registry import layout_of
from bowstring.layouts.value_codecs.intervals import MonthDayNano
from bowstring.layouts.value_codecs.temporal import find_timezone

Mapper: TypeAlias = Callable[[t.DataType], Any]

_EXACT = 1 << 53
"""Integers up to this one are exact as float64."""


class ToPandasOptions(TypedDict, total=False):
    """The options of every `to_pandas`; each has a default."""

    types_mapper: Mapper | None
    """Gives the pandas dtype for a data type, or None for the default one."""
    dtype_backend: Literal["numpy", "numpy_nullable", "pyarrow"]
    """NumPy's dtypes ("numpy", the default), pandas' dtypes with masks, or dtypes over Arrow (needs pyarrow)."""
    ignore_metadata: bool
    """Whether what the schema's metadata `pandas` says of index, labels and dtypes does not count (False)."""
    integer_object_nulls: bool
    """Whether integers with nulls become Python objects, exactly, and not float64 (False)."""
    date_as_object: bool
    """Whether dates become Python's dates, and not datetime64 (True)."""
    copy: bool
    """Whether numbers and moments are copied, so that series and frames can be edited (True); False shares memory,
    read-only, where it can.
    """
    zero_copy_only: bool
    """Whether to share memory, as with `copy=False`, and raise `WouldCopyError` for a column that would be copied
    (False).
    """


@dataclass(frozen=True, slots=True)
class Options:
    """As `ToPandasOptions`, with the defaults."""

    types_mapper: Mapper | None = None
    dtype_backend: str = "numpy"
    ignore_metadata: bool = False
    integer_object_nulls: bool = False
    date_as_object: bool = True
    copy: bool = True
    zero_copy_only: bool = False


def options_of(given: ToPandasOptions) -> Options:
    """The options with their defaults; raises `UsageError` for one that does not exist."""
    unknown = sorted(set(given) - set(Options.__slots__))
    if unknown:
        raise UsageError(f"to_pandas has no option {unknown[0]!r}; its options are {', '.join(Options.__slots__)}")
    made = Options(**given)
    if made.dtype_backend not in ("numpy", "numpy_nullable", "pyarrow"):
        raise UsageError(f"dtype_backend is 'numpy', 'numpy_nullable' or 'pyarrow', not {made.dtype_backend!r}")
    if made.zero_copy_only:
        if given.get("copy"):
            raise UsageError("to_pandas: copy=True contradicts zero_copy_only=True")
        made = replace(made, copy=False)
    return made


def to_series(column: Array | ChunkedArray, given: ToPandasOptions) -> Any:
    """A column as a series without a name."""
    options = options_of(given)
    return _named(_column(_chunked(column), options))


def to_frame(schema: Schema, columns: Sequence[Array | ChunkedArray], num_rows: int, given: ToPandasOptions) -> Any:
    """A table as a frame, with the index and the labels that the schema's metadata `pandas` describes."""
    options = options_of(given)
    pd = pandas()
    description = None if options.ignore_metadata else metadata.read(schema)
    names = schema.names
    dtypes = {} if description is None else _stored_dtypes(description)

    def values_of(number: int) -> Any:
        try:
            return _column(_chunked(columns[number]), options, dtypes.get(names[number]))
        except WouldCopyError as error:
            raise WouldCopyError(f"column {names[number]!r}: {error}") from None

    index, of_index = _index(description, names, values_of, num_rows)
    kept = [number for number in range(len(names)) if number not in of_index]
    if options.copy:
        sources = []
        for number in kept:
            column = _chunked(columns[number])
            dtype = _plain_dtype(column, options, dtypes.get(names[number]))
            sources.append((values_of(number) if dtype is None else column, dtype))
        found = blocks.frame_of(sources, num_rows)
    else:
        found = pd.DataFrame({at: _named(values_of(number)) for at, number in enumerate(kept)}, copy=False)
    found.index = index
    found.columns = metadata.labels([names[number] for number in kept], description)
    if description is not None:
        found.attrs = dict(description.attributes)
    return found


def _named(values: Any) -> Any:
    """A series of just these values, not copied: of Python objects pandas would find out a dtype of its own."""
    return pandas().Series(values, dtype=values.dtype, copy=False)


def _chunked(column: Array | ChunkedArray) -> ChunkedArray:
    return column if isinstance(column, ChunkedArray) else ChunkedArray([column], column.type)


# The index


def _index(
    description: metadata.Description | None, names: list[str], values_of: Callable[[int], Any], num_rows: int
) -> tuple[Any, set[int]]:
    """The index, and which columns it is made of."""
    pd = pandas()
    levels, labels, used = [], [], set()
    for entry in () if description is None else description.index:
        if isinstance(entry, dict):
            level = pd.RangeIndex(entry["start"], entry["stop"], entry["step"], name=entry.get("name"))
            if len(level) == num_rows:
                levels.append(level)
                labels.append(level.name)
        elif names.count(entry) == 1:
            number = names.index(entry)
            used.add(number)
            name = description.columns.get(entry, {}).get("name") if description else None
            levels.append(pd.Index(_named(values_of(number)), name=name))
            labels.append(name)
    if not levels:
        return pd.RangeIndex(num_rows), used
    return (levels[0] if len(levels) == 1 else pd.MultiIndex.from_arrays(levels, names=labels)), used


def _stored_dtypes(description: metadata.Description) -> dict[str, Any]:
    """The pandas dtypes that columns had and that are no default of any type, by the field's name."""
    pd = pandas()
    found = {}
    for name, entry in description.columns.items():
        text = entry["numpy_type"]
        if text in _nullable() or text.startswith("string") or text.endswith("[pyarrow]"):
            try:
                found[name] = pd.api.types.pandas_dtype(text)
            except (TypeError, ValueError, ImportError):
                continue
    return found


def _nullable() -> dict[str, Any]:
    pd = pandas()
    kinds = [f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)]
    return {name: getattr(pd, f"{name}Dtype")() for name in (*kinds, "Float32", "Float64")} | {
        "boolean": pd.BooleanDtype()
    }


# Columns


def _column(column: ChunkedArray, options: Options, stored: Any = None) -> Any:
    """A NumPy array or one of pandas' arrays."""
    type_ = column.type
    for chunk in column.chunks:
        check_length(chunk)
    if options.zero_copy_only:
        _refuse_copies(column, options, stored)
    elif options.copy and (plain := _plain_dtype(column, options, stored)) is not None:
        values = np.empty(len(column), plain)
        blocks.write(column, values)
        return values
    dtype = options.types_mapper(type_) if options.types_mapper is not None else None
    if dtype is None and options.dtype_backend == "pyarrow":
        return arrow_backed(column)
    if dtype is None and options.dtype_backend == "numpy_nullable":
        dtype = _masked_dtype(type_)
    if dtype is None and not isinstance(type_, t.Dictionary):
        dtype = stored
    if dtype is not None:
        return _of_dtype(column, dtype, options)
    if isinstance(type_, _TEXTS) and strings_dtype() is not None:
        return _text(column, strings_dtype())
    return _default(combine_chunks_widened(column), options)


_TEXTS = (t.Utf8, t.LargeUtf8, t.Utf8View)
_PLAIN = (t.Int, t.FloatingPoint, t.Timestamp, t.Duration)


def _plain_dtype(column: ChunkedArray, options: Options, stored: Any) -> np.dtype[Any] | None:
    """The NumPy dtype of numbers and moments that become NumPy's, chunk by chunk; None for any other column. Warns of
    integers that their dtype rounds.
    """
    type_ = column.type
    is_numpy = options.dtype_backend == "numpy" and stored is None
    if not (is_numpy and isinstance(type_, _PLAIN)) or getattr(type_, "timezone", None) is not None:
        return None
    if options.types_mapper is not None and options.types_mapper(type_) is not None:
        return None
    if isinstance(type_, t.Int) and column.null_count:
        if options.integer_object_nulls:
            return None
        _warn_of_rounding(column)
        return np.dtype(np.float64)
    return layout_of(type_).build([]).to_numpy().dtype


def _refuse_copies(column: ChunkedArray, options: Options, stored: Any) -> None:
    is_default = options.types_mapper is None and options.dtype_backend == "numpy" and stored is None
    if not (is_default and isinstance(column.type, _PLAIN)):
        raise WouldCopyError(f"{column.type} does not become pandas' values without copying")
    column.to_numpy(zero_copy_only=True)


def _default(array: Array, options: Options) -> Any:
    """The values as pandas has them by default."""
    for kind, make in _MAKERS.items():
        if isinstance(array.type, kind):
            return make(array, options)
    return object_array(array.to_pylist())


def _text(column: ChunkedArray, dtype: Any) -> Any:
    pd = pandas()
    if len(column) and getattr(dtype, "storage", "python") == "pyarrow" and hasattr(pd.Series, "from_arrow"):
        filled = ChunkedArray([chunk for chunk in column.chunks if chunk.length], column.type)
        filled.validate(full=True)  # pandas would believe every offset
        for chunk in filled.chunks:
            if isinstance(chunk.layout, BinaryViewLayout):
                chunk.layout.checked_lengths(chunk, chunk.layout.views(chunk))
        made = pd.Series.from_arrow(filled).array
        return made if made.dtype == dtype else made.astype(dtype)
    return pd.array(object_array(column.to_pylist()), dtype=dtype)


def _numbers(array: Array, options: Options) -> Any:
    if array.null_count and isinstance(array.type, t.Int):
        if options.integer_object_nulls:
            return object_array(array.to_pylist())
        _warn_of_rounding(_chunked(array))
    return _numpy(array, options)


def _numpy(array: Array, options: Options) -> Values:
    return _own(array.to_numpy(zero_copy_only=False), options)


def _own(values: Values, options: Options) -> Values:
    """The values, copied if their memory is the table's and must not be shared."""
    return values.copy() if options.copy and not values.flags.writeable else values


def _warn_of_rounding(column: ChunkedArray) -> None:
    inexact = next((value for chunk in column.chunks for value in _rounded(chunk)), None)
    if inexact is not None:
        warnings.warn(
            f"{column.type} with nulls becomes float64, which rounds {inexact}: integer_object_nulls=True or "
            "dtype_backend='numpy_nullable' keeps it",
            UserWarning,
            stacklevel=2,
        )


def _rounded(array: Array) -> list[int]:
    """The integers that are not exact as float64."""
    slots, mask = array.values(1), array.mask()
    if slots.dtype.itemsize < 8:
        return []
    beyond = (slots > _EXACT) | (slots < -_EXACT) if slots.dtype.kind == "i" else slots > _EXACT
    if mask is not None:
        beyond &= mask
    return [value for value in slots[beyond].tolist() if int(float(value)) != value]


def _moments(array: Array, options: Options) -> Any:
    values = _numpy(array, options)
    zone = getattr(array.type, "timezone", None)
    if zone is None:
        return values
    pd = pandas()
    dtype = pd.DatetimeTZDtype(np.datetime_data(values.dtype)[0], find_timezone(zone))
    return pd.array(values.view(np.int64), dtype=dtype, copy=False)


def _dates(array: Array, options: Options) -> Any:
    if options.date_as_object:
        return object_array(array.to_pylist())
    return array.to_numpy(zero_copy_only=False).astype("M8[ms]")


def _months(array: Array, _: Options) -> Any:
    offset = pandas().DateOffset
    return object_array(
        [
            offset(months=v.months, days=v.days, nanoseconds=v.nanoseconds) if isinstance(v, MonthDayNano) else v
            for v in array.to_pylist()
        ]
    )


def _categories(array: Array, options: Options) -> Any:
    pd = pandas()
    layout = array.layout
    mask = array.mask()
    keys = layout.indices(array)  # type: ignore[attr-defined]
    words = array.dictionary
    assert words is not None
    if words.type == t.FloatingPoint(16):  # of which pandas makes no index
        return _default(decode_dictionary(array), options)
    labels = pd.Index(_column(_chunked(words), Options()))
    if words.layout.valid_mask(words) is not None or not _unique(labels):
        plain = decode_dictionary(array)
        array = plain.dictionary_encode(t.Int(32))
        if array.dictionary is not None and array.dictionary.layout.valid_mask(array.dictionary) is not None:
            return _default(plain, options)
        keys, mask, words = array.layout.indices(array), array.mask(), array.dictionary  # type: ignore[attr-defined]
        labels = pd.Index(_column(_chunked(words), Options()))  # type: ignore[arg-type]
        if not _unique(labels):
            return _default(plain, options)
    codes = keys if mask is None else np.where(mask, keys, -1)
    return pd.Categorical.from_codes(codes, categories=labels, ordered=array.type.ordered)  # type: ignore[attr-defined]


def _unique(labels: Any) -> bool:
    """Whether these can be categories: hashable, different, none of them missing."""
    try:
        if labels.dtype == object:
            hash(tuple(labels))
        return bool(labels.is_unique) and not labels.hasnans
    except TypeError:
        return False


def _lists(array: Array, options: Options) -> Any:
    own = array.compact()
    values = _default(own.children[0], options)
    flat = values if isinstance(values, np.ndarray) else np.asarray(values)
    starts, sizes = own.layout.list_ranges(own)  # type: ignore[attr-defined]
    size, rows = int(sizes[0]) if sizes.size else 0, []
    if (starts == np.arange(len(starts)) * size).all() and len(flat) == size * len(starts):
        rows = list(flat.reshape(len(starts), size))
    else:
        rows = [flat[start:stop] for start, stop in zip(starts.tolist(), (starts + sizes).tolist(), strict=True)]
    mask = own.mask()
    return object_array(
        [row if valid else None for row, valid in zip(rows, mask.tolist(), strict=True)] if mask is not None else rows
    )


def _extended(array: Array, options: Options) -> Any:
    """The storage's values as those; others by their NumPy form where they are numbers, booleans or moments, else as
    the extension's Python values.
    """
    kind: Any = type(array.type)
    if kind.decode is ExtensionType.decode and kind.from_storage_numpy is ExtensionType.from_storage_numpy:
        return _default(array.storage, options)
    values = object_array([]) if array.null_count else _numpy(array, options)
    if values.ndim == 1 and values.dtype.kind in "biufmM":
        return values
    return object_array(array.to_pylist())


_MAKERS: dict[type[t.DataType], Callable[[Array, Options], Any]] = {
    t.Bool: lambda array, _: array.to_numpy(zero_copy_only=False),
    t.Int: _numbers,
    t.FloatingPoint: _numbers,
    t.Date: _dates,
    t.Timestamp: _moments,
    t.Duration: _moments,
    t.Interval: _months,
    t.Dictionary: _categories,
    t.RunEndEncoded: lambda array, options: _column(_chunked(run_end_decode(array)), options),
    t.Map: lambda array, _: object_array(array.to_pylist()),
    t.List: _lists,
    t.LargeList: _lists,
    t.ListView: _lists,
    t.LargeListView: _lists,
    t.FixedSizeList: _lists,
    ExtensionType: _extended,
}
"""What makes pandas' values of a type; types that are not here become Python objects."""


# Other dtypes


def _masked_dtype(type_: t.DataType) -> Any:
    """The pandas dtype with a mask for a type; None where it has none."""
    if isinstance(type_, t.Bool):
        return _nullable()["boolean"]
    if isinstance(type_, t.Int):
        return _nullable()[f"{'' if type_.is_signed else 'U'}Int{type_.bit_width}"]
    if isinstance(type_, t.FloatingPoint) and type_.bit_width > 16:
        return _nullable()[f"Float{type_.bit_width}"]
    return pandas().StringDtype() if isinstance(type_, _TEXTS) else None


def _of_dtype(column: ChunkedArray, dtype: Any, options: Options) -> Any:
    pd = pandas()
    if isinstance(dtype, pd.StringDtype) and isinstance(column.type, _TEXTS):
        return _text(column, dtype)
    if hasattr(dtype, "pyarrow_dtype"):
        made = arrow_backed(column)
        return made if made.dtype == dtype else made.astype(dtype)
    if str(dtype) in _nullable() and _masked_dtype(column.type) == dtype:
        return _masked(column.combine_chunks(), options)
    if isinstance(dtype, np.dtype) or not hasattr(dtype, "construct_array_type"):
        return _own(np.asarray(column, dtype), options)
    return pd.array(object_array(column.to_pylist()), dtype=dtype)


def _masked(array: Array, options: Options) -> Any:
    """A pandas array of values and a mask; shares the values' memory where it may."""
    pd = pandas()
    mask = array.mask()
    missing = np.zeros(array.length, np.bool_) if mask is None else ~mask
    if isinstance(array.layout, BooleanLayout):
        return pd.arrays.BooleanArray(array.layout.bits(array), missing)
    make = pd.arrays.IntegerArray if isinstance(array.type, t.Int) else pd.arrays.FloatingArray
    values: Values = array.values(1)
    return make(values, missing, copy=options.copy)
