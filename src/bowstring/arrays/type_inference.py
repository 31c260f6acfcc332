"""The data type of Python values and of NumPy arrays that come without one, and arrays made while it is found out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from itertools import chain
from types import NoneType
from typing import Any

import numpy as np

from bowstring.datatypes import types
from bowstring.datatypes.types import DataType
from bowstring.errors import DataTypeError, UnsupportedError
from bowstring.layouts.array import Array
from bowstring.layouts.base import Values, fill_nulls, pack_validity
from bowstring.layouts.gather import check_values
from bowstring.layouts.list_ import ListLayout
from bowstring.layouts.registry import layout_of, primitive_layout
from bowstring.layouts.struct_ import StructLayout, rows_to_columns
from bowstring.layouts.value_codecs.intervals import DayTime, MonthDayNano
from bowstring.layouts.value_codecs.temporal import find_timezone


def infer_array(values: Sequence[Any]) -> Array:
    """An array of Python values, of the data type that `infer_type` says: in the quickest way where they are all of
    the type of the first, or None.
    """
    first = next((value for value in values if value is not None), None)
    fast_type = _FAST_TYPES.get(type(first))
    array = None
    if fast_type is not None:
        array = layout_of(fast_type).build_fast(values)
    elif type(first) in _NUMBERS:
        array = _infer_numbers(values, type(first))
    elif type(first) is list or type(first) is dict:
        array = _infer_lists(values) if type(first) is list else _infer_structs(values)
    return layout_of(infer_type(values)).build(values) if array is None else array


_FAST_TYPES: dict[type, DataType] = {bool: types.bool_(), str: types.string(), bytes: types.binary()}
_NUMBERS: dict[type, DataType] = {int: types.int64(), float: types.float64()}


def _infer_numbers(values: Sequence[Any], kind: type) -> Array | None:
    """An array of Python's numbers, of `kind` if all are, None where other values are among them."""
    array = primitive_layout(_NUMBERS[kind]).build_fast(values, is_exact=True)
    if array is None and {*map(type, values)} - {NoneType} == {int, float}:
        array = layout_of(types.float64()).build_fast(values)
    return array


def _infer_lists(values: Sequence[Any]) -> Array | None:
    """An array of lists, None where other values are among them."""
    filled, mask = fill_nulls(values, [])
    if not {list}.issuperset(map(type, filled)):
        return None
    child = infer_array(list(chain.from_iterable(filled)))
    layout = layout_of(types.list_(child.type))
    assert isinstance(layout, ListLayout)
    return layout.of(np.fromiter(map(len, filled), np.int64, len(filled)), child, pack_validity(mask))


def _infer_structs(values: Sequence[Any]) -> Array | None:
    """An array of structs, None where other values than dictionaries with strings as keys are among them. Raises
    `LimitError` where hardly one has the keys of the others, so that nearly all values would be null.
    """
    filled, mask, names = values, None, list(values[0] or ())
    value_columns = rows_to_columns(names, filled)
    if value_columns is None:
        filled, mask = fill_nulls(values, {})
        if not {dict}.issuperset(map(type, filled)):
            return None
        names = list(dict.fromkeys(chain.from_iterable(filled)))
        check_values(len(names) * len(filled), sum(map(len, filled)))
        value_columns = [[value.get(name) for value in filled] for name in names]
    if not {str}.issuperset(map(type, names)):
        return None
    columns = [infer_array(column) for column in value_columns]
    struct_type = types.struct([(name, column.type) for name, column in zip(names, columns, strict=True)])
    layout = layout_of(struct_type)
    assert isinstance(layout, StructLayout)
    return layout.of(columns, len(filled), mask)


def type_of_numpy(values: Values) -> DataType:
    """The data type for a NumPy array: its elements', in fixed-size lists for each dimension beyond the first."""
    if values.ndim > 1:
        return types.list_(type_of_numpy(values[:, 0] if values.shape[1] else values.reshape(-1)), values.shape[1])
    if values.dtype.kind == "O":
        return infer_type(values.tolist())
    return _dtype_type(values.dtype)


def _dtype_type(dtype: np.dtype[Any]) -> DataType:
    if dtype.subdtype is not None:
        data_type = _dtype_type(dtype.base)
        for size in reversed(dtype.shape):
            data_type = types.list_(data_type, size)
        return data_type
    make = _NUMPY_KINDS.get(dtype.kind)
    if make is None or (dtype.kind == "f" and dtype.itemsize > 8):
        raise DataTypeError(f"NumPy's {dtype} has no data type: give one")
    return make(dtype)


def _time_unit(dtype: np.dtype[Any]) -> types.TimeUnit:
    unit, count = np.datetime_data(dtype)
    for time_unit in types.TIME_UNITS:
        if unit == time_unit and count == 1:
            return time_unit
    raise DataTypeError(f"NumPy's {dtype} has no data type: convert it to s, ms, us or ns")


def _datetime_type(dtype: np.dtype[Any]) -> DataType:
    return types.date32() if np.datetime_data(dtype) == ("D", 1) else types.Timestamp(_time_unit(dtype))


def _void_type(dtype: np.dtype[Any]) -> DataType:
    if dtype.fields is None:
        return types.FixedSizeBinary(dtype.itemsize)
    return types.struct([(name, _dtype_type(dtype.fields[name][0])) for name in dtype.names or ()])


_NUMPY_KINDS: dict[str, Callable[[np.dtype[Any]], DataType]] = {
    "b": lambda _: types.bool_(),
    "i": lambda d: types.Int(d.itemsize * 8),
    "u": lambda d: types.Int(d.itemsize * 8, False),
    "f": lambda d: types.FloatingPoint(d.itemsize * 8),
    "U": lambda _: types.string(),
    "T": lambda _: types.string(),
    "S": lambda _: types.binary(),
    "M": _datetime_type,
    "m": lambda d: types.Duration(_time_unit(d)),
    "V": _void_type,
}


def infer_type(values: Sequence[Any]) -> DataType:
    """The data type for Python values: the narrowest of Python's own kinds that holds them all, `null` for nothing but
    None.

    Integers become int64 (uint64 where they need it), integers with floats float64, datetimes microseconds in the zone
    of the first, sequences lists, dictionaries structs. Raises `DataTypeError` for a mixture or an unknown kind.
    """
    present = [value for value in values if value is not None]
    kinds = set(map(type, present))
    families = {_family_of(kind) for kind in kinds}
    if not families:
        return types.null()
    if families == {int, float}:
        families = {float}
    if len(families) > 1:
        raise DataTypeError(f"values of {_names(families)} have no common data type: give one")
    return _FAMILIES[families.pop()](present)


def _names(kinds: Iterable[Any]) -> str:
    return " and ".join(sorted(kind.__name__ for kind in kinds))


def _family_of(kind: type) -> type:
    for family in kind.__mro__:
        if family in _FAMILIES:
            return family
    for other, family in _EQUIVALENT_KINDS.items():
        if issubclass(kind, other):
            return family
    raise DataTypeError(f"Python's {kind.__name__} has no data type: give one")


def _integers(values: list[Any]) -> DataType:
    low, high = min(values), max(values)
    if low >= -(1 << 63) and high < 1 << 63:
        return types.int64()
    if low >= 0 and high < 1 << 64:
        return types.uint64()
    raise DataTypeError(f"integers from {low} to {high} do not fit 64 bits: give a decimal type")


def _decimals(values: list[Decimal]) -> DataType:
    digits = scale = 0
    for value in values:
        _, value_digits, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            raise DataTypeError(f"{value} is no finite decimal")
        scale = max(scale, -exponent)
        digits = max(digits, len(value_digits) + exponent)
    precision = max(digits + scale, 1)
    return types.Decimal(precision, scale, 128 if precision <= 38 else 256)


def _datetimes(values: list[datetime]) -> DataType:
    zones = {value.tzinfo is not None for value in values}
    if len(zones) > 1:
        raise DataTypeError("datetimes with and without a zone have no common data type: give one")
    zone = values[0].tzinfo
    return types.timestamp("us", None if zone is None else timezone_name(zone))


def timezone_name(zone: tzinfo) -> str:
    """The name of a zone that leads back to it, else UTC: the moments are the same."""
    name = getattr(zone, "key", None) or getattr(zone, "zone", None) or zone.tzname(None) or "UTC"
    if name.startswith(("UTC+", "UTC-")):
        name = name[3:]
    try:
        find_timezone(name)
    except UnsupportedError:
        return "UTC"
    return str(name)


def _lists(values: list[Any]) -> DataType:
    return types.list_(infer_type(list(chain.from_iterable(values))))


def _structs(values: list[Mapping[str, Any]]) -> DataType:
    names = list(dict.fromkeys(chain.from_iterable(values)))
    for name in names:
        if not isinstance(name, str):
            raise DataTypeError(f"a struct's field is named by a string, not by {name!r}")
    return types.struct([(name, infer_type([value.get(name) for value in values])) for name in names])


_FAMILIES: dict[type, Callable[[list[Any]], DataType]] = {
    bool: lambda _: types.bool_(),
    int: _integers,
    float: lambda _: types.float64(),
    str: lambda _: types.string(),
    bytes: lambda _: types.binary(),
    datetime: _datetimes,
    date: lambda _: types.date32(),
    time: lambda _: types.time64("us"),
    timedelta: lambda _: types.duration("us"),
    Decimal: _decimals,
    MonthDayNano: lambda _: types.month_day_nano_interval(),
    DayTime: lambda _: types.day_time_interval(),
    np.datetime64: lambda v: _datetime_type(v[0].dtype),
    np.timedelta64: lambda v: types.Duration(_time_unit(v[0].dtype)),
    list: _lists,
    dict: _structs,
}
_EQUIVALENT_KINDS: dict[type, type] = {
    np.integer: int,
    np.floating: float,
    np.bool_: bool,
    bytearray: bytes,
    memoryview: bytes,
    tuple: list,
    np.ndarray: list,
    Array: list,
    Mapping: dict,
}
"""What has the data type of another kind."""
