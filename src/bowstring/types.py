"""Questions about data types, with the names of ``pyarrow.types``: ``bs.types.is_integer(column.type)``.

A type is one of Bowstring or of another library, or a name. Extension types are none of these; their storage types are.

>>> bs.types.is_integer(bs.uint8()), bs.types.is_int8("uint8"), bs.types.is_nested(bs.list_("int8"))
(True, False, True)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bowstring.datatypes import types as arrow
from bowstring.datatypes.conversion import TypeLike, as_type


def _instance_of(*classes: type) -> Callable[[TypeLike], bool]:
    return lambda t: isinstance(as_type(t), classes)


def _with_width(class_: type, bit_width: int, is_signed: bool | None = None) -> Callable[[TypeLike], bool]:
    def has_width(t: TypeLike) -> bool:
        type_ = as_type(t)
        return (
            isinstance(type_, class_)
            and getattr(type_, "bit_width", None) == bit_width
            and getattr(type_, "is_signed", None) is is_signed
        )

    return has_width


is_null = _instance_of(arrow.Null)
is_boolean = _instance_of(arrow.Bool)

is_integer = _instance_of(arrow.Int)
is_int8, is_int16, is_int32, is_int64 = (_with_width(arrow.Int, width, True) for width in (8, 16, 32, 64))
is_uint8, is_uint16, is_uint32, is_uint64 = (_with_width(arrow.Int, width, False) for width in (8, 16, 32, 64))
is_floating = _instance_of(arrow.FloatingPoint)
is_float16, is_float32, is_float64 = (_with_width(arrow.FloatingPoint, width) for width in (16, 32, 64))
is_decimal = _instance_of(arrow.Decimal)
is_decimal32, is_decimal64, is_decimal128, is_decimal256 = (
    _with_width(arrow.Decimal, width) for width in (32, 64, 128, 256)
)

is_temporal = _instance_of(arrow.BaseTemporal, arrow.Interval)
is_date = _instance_of(arrow.Date)
is_date32, is_date64 = _with_width(arrow.Date, 32), _with_width(arrow.Date, 64)
is_time = _instance_of(arrow.Time)
is_time32, is_time64 = _with_width(arrow.Time, 32), _with_width(arrow.Time, 64)
is_timestamp = _instance_of(arrow.Timestamp)
is_duration = _instance_of(arrow.Duration)

is_string = is_unicode = _instance_of(arrow.Utf8)
is_large_string = is_large_unicode = _instance_of(arrow.LargeUtf8)
is_string_view = _instance_of(arrow.Utf8View)
is_binary = _instance_of(arrow.Binary)
is_large_binary = _instance_of(arrow.LargeBinary)
is_binary_view = _instance_of(arrow.BinaryView)
is_fixed_size_binary = _instance_of(arrow.FixedSizeBinary)

is_nested = _instance_of(arrow.BaseList, arrow.Map, arrow.Struct, arrow.Union, arrow.RunEndEncoded)
is_list = _instance_of(arrow.List)
is_large_list = _instance_of(arrow.LargeList)
is_list_view = _instance_of(arrow.ListView)
is_large_list_view = _instance_of(arrow.LargeListView)
is_fixed_size_list = _instance_of(arrow.FixedSizeList)
is_map = _instance_of(arrow.Map)
is_struct = _instance_of(arrow.Struct)
is_union = _instance_of(arrow.Union)
is_dictionary = _instance_of(arrow.Dictionary)
is_run_end_encoded = _instance_of(arrow.RunEndEncoded)


def is_interval(t: TypeLike) -> bool:
    """Whether a type is an interval of months, days and nanoseconds; pyarrow has no others."""
    return isinstance(type_ := as_type(t), arrow.Interval) and type_.unit == "month_day_nano"


def is_signed_integer(t: TypeLike) -> bool:
    """Whether a type is one of signed integers."""
    return isinstance(type_ := as_type(t), arrow.Int) and type_.is_signed


def is_unsigned_integer(t: TypeLike) -> bool:
    """Whether a type is one of unsigned integers."""
    return isinstance(type_ := as_type(t), arrow.Int) and not type_.is_signed


def is_primitive(t: TypeLike) -> bool:
    """Whether values of a type are numbers, booleans or times of a fixed width; decimals are not."""
    return isinstance(as_type(t), (arrow.Bool, arrow.Int, arrow.FloatingPoint, arrow.BaseTemporal)) or is_interval(t)


def _name_functions(functions: dict[str, Any]) -> None:
    """Set the names and docstrings of the predicates created by `_instance_of` and `_with_width`, for `help`."""
    for name, function in functions.items():
        if name.startswith("is_") and not function.__doc__:
            function.__name__ = function.__qualname__ = name
            function.__doc__ = f"Whether a type is `{name.removeprefix('is_')}`."


_name_functions(dict(globals()))
