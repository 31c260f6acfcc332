"""The type to which values of several types are cast before they are compared or added, as in pyarrow.

Integers become as wide as the widest, signed if one is; integers with floats become floats, and with decimals decimals.
Dates and times take the finest unit. Null takes any type, strings and bytes the type with the larger offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bowstring.datatypes import types as t
from bowstring.errors import TypeMismatchError
from bowstring.kernels.array_statistics import get_decoded_type

_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}


def find_common_type(types: Sequence[t.DataType]) -> t.DataType:
    """Return the type to which values of all types can be cast. Raises `TypeMismatchError` if there is none.

    Dictionaries, runs and extension types count as the types of their values.
    """
    decoded = [get_decoded_type(each) for each in types]
    distinct = list(dict.fromkeys(each for each in decoded if not isinstance(each, t.Null))) or [t.null()]
    if len(distinct) == 1:
        return distinct[0]
    common = None
    for family, find in _FAMILIES:
        if all(isinstance(each, family) for each in distinct):
            common = find(distinct)
            break
    if common is None:
        raise TypeMismatchError(f"{' and '.join(map(str, distinct))} have no common type")
    return common


def _find_number(types: Sequence[t.DataType]) -> t.DataType:
    floats = [each for each in types if isinstance(each, t.FloatingPoint)]
    decimals = [each for each in types if isinstance(each, t.Decimal)]
    integers = [each for each in types if isinstance(each, t.Int)]
    if floats:
        return t.float64() if decimals else max(floats, key=lambda each: each.bit_width)
    if decimals:
        return find_common_decimal([*decimals, *map(integer_as_decimal, integers)])
    signed = max((each.bit_width for each in integers if each.is_signed), default=0)
    unsigned = max((each.bit_width for each in integers if not each.is_signed), default=0)
    return t.Int(max(signed, min(2 * unsigned, 64)) if signed else unsigned, bool(signed))


def integer_as_decimal(type_: t.Int) -> t.Decimal:
    """Return a decimal type with the digits of an integer."""
    return t.Decimal(_INTEGER_DIGITS[type_.bit_width] + (type_ == t.uint64()), 0)


def find_common_decimal(types: Sequence[t.Decimal]) -> t.Decimal:
    """Return a decimal type with the integral and fractional digits of all."""
    scale = max(each.scale for each in types)
    precision = max(each.precision - each.scale for each in types) + scale
    return create_decimal_type(precision, scale, max(each.bit_width for each in types))


def create_decimal_type(precision: int, scale: int, bit_width: int) -> t.Decimal:
    """Return a decimal type, wider than `bit_width` if the digits require it. Raises `TypeMismatchError` for too many
    digits.
    """
    for width, most in t.MAX_DECIMAL_DIGITS.items():
        if width >= bit_width and precision <= most:
            return t.Decimal(max(precision, 1), scale, width)
    raise TypeMismatchError(f"a decimal of {precision} digits is too large")


def _find_date_or_timestamp(types: Sequence[t.DataType]) -> t.DataType | None:
    timestamps = [each for each in types if isinstance(each, t.Timestamp)]
    zones = {each.timezone for each in timestamps}
    if not timestamps:
        return t.date64()
    if len(zones) > 1:
        return None
    units = [each.unit for each in timestamps] + ["ms"] * (t.date64() in types)
    return t.Timestamp(find_finest_unit(units), zones.pop())


def find_finest_unit(units: Sequence[str]) -> t.TimeUnit:
    """Return the smallest of units of time."""
    return [unit for unit in t.TIME_UNITS if unit in units][-1]


def _find_byte_strings(types: Sequence[t.DataType]) -> t.DataType:
    is_text = all(isinstance(each, t.BaseString) for each in types)
    if any(isinstance(each, t.Utf8View | t.BinaryView) for each in types):
        return t.string_view() if is_text else t.binary_view()
    if any(isinstance(each, t.LargeUtf8 | t.LargeBinary) for each in types):
        return t.large_string() if is_text else t.large_binary()
    return t.string() if is_text else t.binary()


def _find_time(types: Sequence[t.Time]) -> t.DataType:
    return t.Time(find_finest_unit([each.unit for each in types]))


def _find_duration(types: Sequence[t.Duration]) -> t.DataType:
    return t.Duration(find_finest_unit([each.unit for each in types]))


_FAMILIES: tuple[tuple[tuple[type[t.DataType], ...], Callable[[Sequence[Any]], t.DataType | None]], ...] = (
    ((t.Int, t.FloatingPoint, t.Decimal), _find_number),
    ((t.Date, t.Timestamp), _find_date_or_timestamp),
    ((t.Time,), _find_time),
    ((t.Duration,), _find_duration),
    ((t.BaseString, t.BaseBinary), _find_byte_strings),
)
"""Families of types, and the functions that find the common type within one."""
