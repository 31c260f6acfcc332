"""The functions that create data types («Data Types»), with pyarrow's names, and all type classes.

Types are frozen dataclasses: they compare and hash by their parameters. Their physical layouts are in
`bowstring.layouts`.
"""

# ruff: noqa: PLC0414 -- other modules import the type classes from here
from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from bowstring.datatypes.base import DataType as DataType, check_one_of
from bowstring.datatypes.conversion import TypeLike, as_type, field, import_field_if_foreign
from bowstring.datatypes.field import Field
from bowstring.datatypes.nested import (
    BaseList as BaseList,
    Dictionary as Dictionary,
    FixedSizeList as FixedSizeList,
    LargeList as LargeList,
    LargeListView as LargeListView,
    List as List,
    ListView as ListView,
    Map as Map,
    RunEndEncoded as RunEndEncoded,
    Struct as Struct,
    Union as Union,
)
from bowstring.datatypes.non_nested import (
    MAX_DECIMAL_DIGITS as MAX_DECIMAL_DIGITS,
    TIME_UNITS as TIME_UNITS,
    BaseBinary as BaseBinary,
    BaseString as BaseString,
    BaseTemporal as BaseTemporal,
    Binary as Binary,
    BinaryView as BinaryView,
    Bool as Bool,
    Date as Date,
    Decimal as Decimal,
    Duration as Duration,
    FixedSizeBinary as FixedSizeBinary,
    FloatingPoint as FloatingPoint,
    Int as Int,
    Interval as Interval,
    IntervalUnit as IntervalUnit,
    LargeBinary as LargeBinary,
    LargeUtf8 as LargeUtf8,
    Null as Null,
    Time as Time,
    Timestamp as Timestamp,
    TimeUnit as TimeUnit,
    Utf8 as Utf8,
    Utf8View as Utf8View,
)
from bowstring.datatypes.schema import FieldsLike as FieldsLike, as_fields as as_fields


def as_child_field(value: TypeLike, name: str) -> Field:
    """Return a field as it is, and for a type a nullable field of this name.

    An object of another library is a field if it has a name or metadata, or is not nullable.
    """
    if isinstance(value, Field | DataType | str):
        return value if isinstance(value, Field) else field(name, value)
    foreign = import_field_if_foreign(value)
    if isinstance(foreign, Field):
        return foreign if foreign.name or foreign.pairs or not foreign.nullable else field(name, foreign.type)
    return field(name, value)


def null() -> Null:
    """The type of arrays that have only nulls."""
    return Null()


def bool_() -> Bool:
    """Booleans, one bit per value."""
    return Bool()


def int8() -> Int:
    """Signed integers of 8 bits."""
    return Int(8)


def int16() -> Int:
    """Signed integers of 16 bits."""
    return Int(16)


def int32() -> Int:
    """Signed integers of 32 bits."""
    return Int(32)


def int64() -> Int:
    """Signed integers of 64 bits."""
    return Int(64)


def uint8() -> Int:
    """Unsigned integers of 8 bits."""
    return Int(8, False)


def uint16() -> Int:
    """Unsigned integers of 16 bits."""
    return Int(16, False)


def uint32() -> Int:
    """Unsigned integers of 32 bits."""
    return Int(32, False)


def uint64() -> Int:
    """Unsigned integers of 64 bits."""
    return Int(64, False)


def float16() -> FloatingPoint:
    """IEEE 754 half precision."""
    return FloatingPoint(16)


def float32() -> FloatingPoint:
    """IEEE 754 single precision."""
    return FloatingPoint(32)


def float64() -> FloatingPoint:
    """IEEE 754 double precision."""
    return FloatingPoint(64)


def decimal32(precision: int, scale: int = 0) -> Decimal:
    """Decimals of up to 9 digits, `scale` of them after the decimal point."""
    return Decimal(precision, scale, 32)


def decimal64(precision: int, scale: int = 0) -> Decimal:
    """Decimals of up to 18 digits, `scale` of them after the decimal point."""
    return Decimal(precision, scale, 64)


def decimal128(precision: int, scale: int = 0) -> Decimal:
    """Decimals of up to 38 digits, `scale` of them after the decimal point."""
    return Decimal(precision, scale, 128)


def decimal256(precision: int, scale: int = 0) -> Decimal:
    """Decimals of up to 76 digits, `scale` of them after the decimal point."""
    return Decimal(precision, scale, 256)


def date32() -> Date:
    """Days since 1970-01-01, 32 bits."""
    return Date("day")


def date64() -> Date:
    """Milliseconds since 1970-01-01, 64 bits; should be whole days."""
    return Date("ms")


def time32(unit: TimeUnit) -> Time:
    """Time of day in "s" or "ms"."""
    check_one_of("a time32's unit", unit, ("s", "ms"))
    return Time(unit)


def time64(unit: TimeUnit) -> Time:
    """Time of day in "us" or "ns"."""
    check_one_of("a time64's unit", unit, ("us", "ns"))
    return Time(unit)


def timestamp(unit: TimeUnit, tz: str | None = None) -> Timestamp:
    """Timestamps in "s", "ms", "us" or "ns", with a time zone such as "UTC", "Europe/Paris" or "+02:00", or without."""
    return Timestamp(unit, tz)


def duration(unit: TimeUnit) -> Duration:
    """Elapsed time in "s", "ms", "us" or "ns"."""
    return Duration(unit)


def month_interval() -> Interval:
    """Whole months."""
    return Interval("year_month")


def day_time_interval() -> Interval:
    """Days and milliseconds."""
    return Interval("day_time")


def month_day_nano_interval() -> Interval:
    """Months, days and nanoseconds."""
    return Interval("month_day_nano")


def binary(length: int = -1) -> DataType:
    """Byte strings with 32-bit offsets, or of exactly `length` bytes."""
    return Binary() if length == -1 else FixedSizeBinary(length)


def large_binary() -> LargeBinary:
    """Byte strings with 64-bit offsets."""
    return LargeBinary()


def binary_view() -> BinaryView:
    """Byte strings with 16-byte views."""
    return BinaryView()


def string() -> Utf8:
    """Unicode strings with 32-bit offsets."""
    return Utf8()


def large_string() -> LargeUtf8:
    """Unicode strings with 64-bit offsets."""
    return LargeUtf8()


def string_view() -> Utf8View:
    """Unicode strings with 16-byte views."""
    return Utf8View()


def list_(value_type: TypeLike, list_size: int = -1) -> DataType:
    """Lists of `value_type` with 32-bit offsets, or of exactly `list_size` elements."""
    value_field = as_child_field(value_type, "item")
    return List(value_field) if list_size == -1 else FixedSizeList(value_field, list_size)


def large_list(value_type: TypeLike) -> LargeList:
    """Lists of `value_type` with 64-bit offsets."""
    return LargeList(as_child_field(value_type, "item"))


def list_view(value_type: TypeLike) -> ListView:
    """Lists of `value_type` with 32-bit offsets and sizes."""
    return ListView(as_child_field(value_type, "item"))


def large_list_view(value_type: TypeLike) -> LargeListView:
    """Lists of `value_type` with 64-bit offsets and sizes."""
    return LargeListView(as_child_field(value_type, "item"))


def struct(fields: FieldsLike) -> Struct:
    """Structs of fields, which are given as fields, (name, type) pairs or a mapping."""
    return Struct(as_fields(fields))


def map_(key_type: TypeLike, item_type: TypeLike, keys_sorted: bool = False) -> Map:
    """Lists of key-value pairs; keys are not nullable."""
    entries = Struct((as_child_field(key_type, "key"), as_child_field(item_type, "value")))
    return Map(field("entries", entries, nullable=False), keys_sorted)


def union(fields: FieldsLike, mode: Literal["sparse", "dense"], type_ids: Sequence[int] | None = None) -> Union:
    """Values of one of several types; the type ids are 0, 1, … by default."""
    children = as_fields(fields)
    return Union(mode, children, tuple(range(len(children)) if type_ids is None else type_ids))


def sparse_union(fields: FieldsLike, type_ids: Sequence[int] | None = None) -> Union:
    """A union whose children have the union's length."""
    return union(fields, "sparse", type_ids)


def dense_union(fields: FieldsLike, type_ids: Sequence[int] | None = None) -> Union:
    """A union whose children have only their own values."""
    return union(fields, "dense", type_ids)


def dictionary(index_type: TypeLike, value_type: TypeLike, ordered: bool = False) -> Dictionary:
    """Indices of `index_type` into a dictionary of `value_type`."""
    indices = as_type(index_type, "a dictionary's indices")
    return Dictionary(indices, as_type(value_type, "a dictionary's values"), ordered)  # type: ignore[arg-type]


def run_end_encoded(run_end_type: TypeLike, value_type: TypeLike) -> RunEndEncoded:
    """Runs of equal values of `value_type`, with ends of `run_end_type`."""
    return RunEndEncoded(field("run_ends", run_end_type, nullable=False), as_child_field(value_type, "values"))
