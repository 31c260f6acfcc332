"""Inference of the data type of Python values and NumPy arrays, and arrays of values of an inferred type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from itertools import chain
from types import NoneType
from typing import Any
from uuid import UUID

import numpy as np

from bowstring.datatypes import factories, types
from bowstring.datatypes.canonical.uuid import uuid
from bowstring.datatypes.types import DataType
from bowstring.errors import TypeMismatchError, UnsupportedError, prefix_errors
from bowstring.layouts.base import ArrayData, Values, pack_validity, replace_none
from bowstring.layouts.expansion_limits import check_expanded_values
from bowstring.layouts.list_ import ListLayout, concatenate_numpy_arrays
from bowstring.layouts.registry import layout_of, layout_of_class
from bowstring.layouts.struct_ import StructLayout
from bowstring.layouts.value_codecs.intervals import DayTime, MonthDayNano
from bowstring.layouts.value_codecs.temporal import find_timezone


def infer_array(values: Sequence[Any]) -> ArrayData:
    """Create an array of Python values, of the narrowest of Python's own kinds of types that represents all of them.

    Only None becomes `null`, NumPy numbers of one dtype this dtype, integers int64 (uint64 if necessary), integers with
    floats float64, text with bytes binary, datetimes microseconds in the time zone of the first, UUIDs their extension
    type, sequences and sets lists, and mappings structs. Raises `TypeMismatchError` for another mixture or an unknown
    type, and `LimitError` for mappings with hardly any common key, because nearly all fields would be null.
    """
    python_types = set(map(type, values))
    base_types = {_supported_base_type(python_type) for python_type in python_types - {NoneType}}
    for common, others in ((float, {int}), (bytes, {str})):
        if base_types == {common, *others}:
            base_types = {common}
    if len(base_types) > 1:
        names = " and ".join(sorted(base_type.__name__ for base_type in base_types))
        raise TypeMismatchError(f"values of {names} have no common data type: specify one")
    base_type = base_types.pop() if base_types else NoneType
    if base_type in _NESTED:
        return _NESTED[base_type](values)
    data_type = _TYPES[base_type]
    if base_type in (int, float) and (dtype := _find_numpy_dtype(python_types - {NoneType})):
        data_type = _type_of_dtype(dtype)
    elif base_type is int:
        # To encode them checks their range, so that usual integers take one pass.
        try:
            return layout_of(factories.int64()).from_pylist_of_types(values, python_types)
        except TypeMismatchError:  # too large, or unsigned
            pass
    if not isinstance(data_type, DataType):
        data_type = data_type([value for value in values if value is not None])
    return layout_of(data_type).from_pylist_of_types(values, python_types)


def _find_numpy_dtype(python_types: set[type]) -> np.dtype[Any] | None:
    """Return the dtype of NumPy scalars of one type; None for other types, or several."""
    python_type = next(iter(python_types))
    return np.dtype(python_type) if len(python_types) == 1 and issubclass(python_type, np.generic) else None


def _infer_list_array(values: Sequence[Any]) -> ArrayData:
    lists, mask = replace_none(values, ())
    if any(isinstance(value, np.ndarray) and not value.ndim for value in lists):
        raise TypeMismatchError("a NumPy array without dimensions is not a list: take its value with item()")
    elements = concatenate_numpy_arrays(values)
    if elements is None:
        child = infer_array(list(chain.from_iterable(lists)))
    else:
        child = layout_of(_type_of_dtype(elements.dtype)).from_numpy(elements)
    layout = layout_of_class(factories.list_(child.type), ListLayout)
    return layout.create_array(np.fromiter(map(len, lists), np.int64, len(lists)), child, pack_validity(mask))


def _infer_struct_array(values: Sequence[Mapping[str, Any] | None]) -> ArrayData:
    mappings, mask = replace_none(values, {})
    names = list(dict.fromkeys(chain.from_iterable(mappings)))
    for name in names:
        if not isinstance(name, str):
            raise TypeMismatchError(f"expected a string as the name of a struct's field, found {name!r}")
    check_expanded_values(len(names) * len(mappings), sum(map(len, mappings)))
    columns = []
    for name in names:
        with prefix_errors(f"field {name!r}"):
            columns.append(infer_array([value.get(name) for value in mappings]))
    struct_type = factories.struct([(name, column.type) for name, column in zip(names, columns, strict=True)])
    layout = layout_of_class(struct_type, StructLayout)
    return layout.create_array(columns, len(mappings), mask)


def type_of_numpy_array(values: Values) -> DataType:
    """Return the data type of a NumPy array: the type of its elements, in one fixed-size list per further dimension."""
    if values.ndim > 1:
        rows = values[:, 0] if values.shape[1] else values.reshape(0, *values.shape[2:])
        return factories.list_(type_of_numpy_array(rows), values.shape[1])
    if values.dtype.kind == "O":
        return infer_array(values.tolist()).type
    return _type_of_dtype(values.dtype)


def _type_of_dtype(dtype: np.dtype[Any]) -> DataType:
    if dtype.subdtype is not None:
        data_type = _type_of_dtype(dtype.base)
        for size in reversed(dtype.shape):
            data_type = factories.list_(data_type, size)
        return data_type
    create_type = _NUMPY_KINDS.get(dtype.kind)
    if create_type is None or (dtype.kind == "f" and dtype.itemsize > 8):
        raise TypeMismatchError(f"NumPy's {dtype} has no data type: specify one")
    return create_type(dtype)


def _time_unit_of_dtype(dtype: np.dtype[Any]) -> types.TimeUnit:
    unit, count = np.datetime_data(dtype)
    for time_unit in types.TIME_UNITS:
        if unit == time_unit and count == 1:
            return time_unit
    raise TypeMismatchError(f"NumPy's {dtype} has no data type: convert it to s, ms, us or ns")


def _type_of_datetime_dtype(dtype: np.dtype[Any]) -> DataType:
    return factories.date32() if np.datetime_data(dtype) == ("D", 1) else types.Timestamp(_time_unit_of_dtype(dtype))


def _type_of_void_dtype(dtype: np.dtype[Any]) -> DataType:
    if dtype.fields is None:
        return types.FixedSizeBinary(dtype.itemsize)
    return factories.struct([(name, _type_of_dtype(dtype.fields[name][0])) for name in dtype.names or ()])


_NUMPY_KINDS: dict[str, Callable[[np.dtype[Any]], DataType]] = {
    "b": lambda _: factories.bool_(),
    "i": lambda d: types.Int(d.itemsize * 8),
    "u": lambda d: types.Int(d.itemsize * 8, False),
    "f": lambda d: types.FloatingPoint(d.itemsize * 8),
    "U": lambda _: factories.string(),
    "T": lambda _: factories.string(),
    "S": lambda _: factories.binary(),
    "M": _type_of_datetime_dtype,
    "m": lambda d: types.Duration(_time_unit_of_dtype(d)),
    "V": _type_of_void_dtype,
}


def _supported_base_type(python_type: type) -> type:
    """Return the key of `_TYPES` or `_NESTED` for a Python type. Raises `TypeMismatchError` if there is none."""
    for base in python_type.__mro__:
        if base in _TYPES or base in _NESTED:
            return base
    for other, equivalent in _EQUIVALENT_TYPES.items():
        if issubclass(python_type, other):
            return equivalent
    raise TypeMismatchError(f"Python's {python_type.__name__} has no data type: specify one")


def _infer_integer_type(values: list[Any]) -> DataType:
    low, high = min(values), max(values)
    if low >= -(1 << 63) and high < 1 << 63:
        return factories.int64()
    if low >= 0 and high < 1 << 64:
        return factories.uint64()
    raise TypeMismatchError(f"integers from {low} to {high} do not fit 64 bits: specify a decimal type")


def _infer_decimal_type(values: list[Decimal]) -> DataType:
    # Digits before and after the point separately: the values with the most of each may be different ones.
    digits = scale = 0
    for value in values:
        _, value_digits, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            raise TypeMismatchError(f"{value} is not a finite decimal")
        scale = max(scale, -exponent)
        digits = max(digits, len(value_digits) + exponent)
    precision = max(digits + scale, 1)
    return types.Decimal(precision, scale, 128 if precision <= 38 else 256)


def _infer_timestamp_type(values: list[datetime]) -> DataType:
    zone = values[0].tzinfo
    if any((value.tzinfo is None) != (zone is None) for value in values):
        raise TypeMismatchError("datetimes with and without a zone have no common data type: specify one")
    return factories.timestamp("us", None if zone is None else get_timezone_name(zone))


def get_timezone_name(zone: tzinfo) -> str:
    """Return the name of a time zone, or "UTC" if the name is not found: it denotes the same points in time."""
    names = (getattr(zone, "key", None), getattr(zone, "zone", None), zone.tzname(None))  # zoneinfo, pytz, others
    name = next(filter(None, names), "UTC")
    if name.startswith(("UTC+", "UTC-")):
        name = name[3:]
    try:
        find_timezone(name)
    except UnsupportedError:
        return "UTC"
    return str(name)


_TYPES: dict[type, DataType | Callable[[list[Any]], DataType]] = {
    NoneType: factories.null(),
    bool: factories.bool_(),
    int: _infer_integer_type,
    float: factories.float64(),
    str: factories.string(),
    bytes: factories.binary(),
    datetime: _infer_timestamp_type,
    date: factories.date32(),
    time: factories.time64("us"),
    timedelta: factories.duration("us"),
    Decimal: _infer_decimal_type,
    UUID: uuid(),
    MonthDayNano: factories.month_day_nano_interval(),
    DayTime: factories.day_time_interval(),
    **dict.fromkeys((np.datetime64, np.timedelta64), lambda values: _type_of_dtype(values[0].dtype)),
}
"""The data type of each Python type, or a function of the values that are not None."""
_NESTED: dict[type, Callable[[Sequence[Any]], ArrayData]] = {list: _infer_list_array, dict: _infer_struct_array}
_EQUIVALENT_TYPES: dict[type, type] = {
    np.integer: int,
    np.floating: float,
    np.bool_: bool,
    bytearray: bytes,
    memoryview: bytes,
    tuple: list,
    set: list,
    frozenset: list,
    np.ndarray: list,
    ArrayData: list,
    Mapping: dict,
}
"""Python types that have the data type of another one."""
