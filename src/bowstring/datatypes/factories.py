"""The functions that create data types («Data Types»), with pyarrow's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from bowstring.datatypes import types
from bowstring.datatypes.conversion import TypeLike, as_type, field, import_field_if_foreign
from bowstring.datatypes.field import DataType, Field
from bowstring.datatypes.parameters import check_one_of
from bowstring.datatypes.schema import FieldsLike, as_fields
from bowstring.datatypes.type_specs import create_union


def as_child_field(value: TypeLike, name: str) -> Field:
    """Return a field unchanged, or for a type a nullable field of this name.

    An object of another library is a field if it has a name or metadata, or is not nullable.
    """
    if isinstance(value, Field | DataType | str):
        return value if isinstance(value, Field) else field(name, value)
    foreign = import_field_if_foreign(value)
    if isinstance(foreign, Field):
        return foreign if foreign.name or foreign.pairs or not foreign.nullable else field(name, foreign.type)
    return field(name, value)


def null() -> types.Null:
    """The type of arrays that have only nulls.

    >>> bs.array([None, None], bs.null())
    <bowstring.Array null[2]>
    [null, null]
    """
    return types.Null()


def bool_() -> types.Bool:
    """Booleans, one bit per value.

    >>> bs.array([True, None], bs.bool_())
    <bowstring.Array bool[2]>
    [true, null]
    """
    return types.Bool()


def int8() -> types.Int:
    """Signed integers of 8 bits.

    >>> bs.array([1, None], bs.int8())
    <bowstring.Array int8[2]>
    [1, null]
    """
    return types.Int(8)


def int16() -> types.Int:
    """Signed integers of 16 bits.

    >>> bs.array([1, None], bs.int16())
    <bowstring.Array int16[2]>
    [1, null]
    """
    return types.Int(16)


def int32() -> types.Int:
    """Signed integers of 32 bits.

    >>> bs.array([1, None], bs.int32())
    <bowstring.Array int32[2]>
    [1, null]
    """
    return types.Int(32)


def int64() -> types.Int:
    """Signed integers of 64 bits.

    >>> bs.array([1, None], bs.int64())
    <bowstring.Array int64[2]>
    [1, null]
    """
    return types.Int(64)


def uint8() -> types.Int:
    """Unsigned integers of 8 bits.

    >>> bs.array([1, None], bs.uint8())
    <bowstring.Array uint8[2]>
    [1, null]
    """
    return types.Int(8, False)


def uint16() -> types.Int:
    """Unsigned integers of 16 bits.

    >>> bs.array([1, None], bs.uint16())
    <bowstring.Array uint16[2]>
    [1, null]
    """
    return types.Int(16, False)


def uint32() -> types.Int:
    """Unsigned integers of 32 bits.

    >>> bs.array([1, None], bs.uint32())
    <bowstring.Array uint32[2]>
    [1, null]
    """
    return types.Int(32, False)


def uint64() -> types.Int:
    """Unsigned integers of 64 bits.

    >>> bs.array([1, None], bs.uint64())
    <bowstring.Array uint64[2]>
    [1, null]
    """
    return types.Int(64, False)


def float16() -> types.FloatingPoint:
    """IEEE 754 half precision.

    >>> bs.array([1.5, None], bs.float16())
    <bowstring.Array halffloat[2]>
    [1.5, null]
    """
    return types.FloatingPoint(16)


def float32() -> types.FloatingPoint:
    """IEEE 754 single precision.

    >>> bs.array([1.5, None], bs.float32())
    <bowstring.Array float[2]>
    [1.5, null]
    """
    return types.FloatingPoint(32)


def float64() -> types.FloatingPoint:
    """IEEE 754 double precision.

    >>> bs.array([1.5, None], bs.float64())
    <bowstring.Array double[2]>
    [1.5, null]
    """
    return types.FloatingPoint(64)


def decimal32(precision: int, scale: int = 0) -> types.Decimal:
    """Decimals of up to 9 digits, `scale` of them after the decimal point.

    >>> bs.array(["1.50", None]).cast(bs.decimal32(5, 2))
    <bowstring.Array decimal32(5, 2)[2]>
    [1.50, null]
    """
    return types.Decimal(precision, scale, 32)


def decimal64(precision: int, scale: int = 0) -> types.Decimal:
    """Decimals of up to 18 digits, `scale` of them after the decimal point.

    >>> bs.array(["1.50", None]).cast(bs.decimal64(12, 2))
    <bowstring.Array decimal64(12, 2)[2]>
    [1.50, null]
    """
    return types.Decimal(precision, scale, 64)


def decimal128(precision: int, scale: int = 0) -> types.Decimal:
    """Decimals of up to 38 digits, `scale` of them after the decimal point.

    >>> bs.array(["1.50", None]).cast(bs.decimal128(20, 2))
    <bowstring.Array decimal128(20, 2)[2]>
    [1.50, null]
    """
    return types.Decimal(precision, scale, 128)


def decimal256(precision: int, scale: int = 0) -> types.Decimal:
    """Decimals of up to 76 digits, `scale` of them after the decimal point.

    >>> bs.array(["1.50", None]).cast(bs.decimal256(50, 2))
    <bowstring.Array decimal256(50, 2)[2]>
    [1.50, null]
    """
    return types.Decimal(precision, scale, 256)


def date32() -> types.Date:
    """Days since 1970-01-01, 32 bits.

    >>> bs.array(["2024-02-29"]).cast(bs.date32())
    <bowstring.Array date32[day][1]>
    [2024-02-29]
    """
    return types.Date("day")


def date64() -> types.Date:
    """Milliseconds since 1970-01-01, 64 bits; should be whole days.

    >>> bs.array(["2024-02-29"]).cast(bs.date64())
    <bowstring.Array date64[ms][1]>
    [2024-02-29]
    """
    return types.Date("ms")


def time32(unit: types.TimeUnit) -> types.Time:
    """Time of day in "s" or "ms".

    >>> bs.array(["12:30:00"]).cast(bs.time32("s"))
    <bowstring.Array time32[s][1]>
    [12:30:00]
    """
    check_one_of("a time32's unit", unit, ("s", "ms"))
    return types.Time(unit)


def time64(unit: types.TimeUnit) -> types.Time:
    """Time of day in "us" or "ns".

    >>> bs.array(["12:30:00.000001"]).cast(bs.time64("us"))
    <bowstring.Array time64[us][1]>
    [12:30:00.000001]
    """
    check_one_of("a time64's unit", unit, ("us", "ns"))
    return types.Time(unit)


def timestamp(unit: types.TimeUnit, tz: str | None = None) -> types.Timestamp:
    """Timestamps in "s", "ms", "us" or "ns", with a time zone such as "UTC", "Europe/Paris" or "+02:00", or without.

    >>> bs.array(["2024-02-29 12:30:00"]).cast(bs.timestamp("ms"))
    <bowstring.Array timestamp[ms][1]>
    [2024-02-29 12:30:00]
    >>> bs.timestamp("us", tz="Europe/Riga")
    DataType(timestamp[us, tz=Europe/Riga])
    """
    return types.Timestamp(unit, tz)


def duration(unit: types.TimeUnit) -> types.Duration:
    """Elapsed time in "s", "ms", "us" or "ns".

    >>> bs.array([90, None], bs.duration("s"))
    <bowstring.Array duration[s][2]>
    [0:01:30, null]
    """
    return types.Duration(unit)


def month_interval() -> types.Interval:
    """Whole months.

    >>> bs.array([12, None], bs.month_interval())
    <bowstring.Array month_interval[2]>
    [12, null]
    """
    return types.Interval("year_month")


def day_time_interval() -> types.Interval:
    """Days and milliseconds.

    >>> bs.day_time_interval()
    DataType(day_time_interval)
    """
    return types.Interval("day_time")


def month_day_nano_interval() -> types.Interval:
    """Months, days and nanoseconds.

    >>> bs.array([(1, 15, -30), None], bs.month_day_nano_interval()).to_pylist()[0].days
    15
    """
    return types.Interval("month_day_nano")


def binary(length: int = -1) -> DataType:
    """Byte strings with 32-bit offsets, or of exactly `length` bytes.

    >>> bs.array([b"a", None], bs.binary())
    <bowstring.Array binary[2]>
    [b'a', null]
    >>> bs.binary(16)
    DataType(fixed_size_binary[16])
    """
    return types.Binary() if length == -1 else types.FixedSizeBinary(length)


def large_binary() -> types.LargeBinary:
    """Byte strings with 64-bit offsets.

    >>> bs.array([b"a", None], bs.large_binary())
    <bowstring.Array large_binary[2]>
    [b'a', null]
    """
    return types.LargeBinary()


def binary_view() -> types.BinaryView:
    """Byte strings with 16-byte views.

    >>> bs.array([b"a", None], bs.binary_view())
    <bowstring.Array binary_view[2]>
    [b'a', null]
    """
    return types.BinaryView()


def string() -> types.Utf8:
    """Unicode strings with 32-bit offsets.

    >>> bs.array(["a", None], bs.string())
    <bowstring.Array string[2]>
    ["a", null]
    """
    return types.Utf8()


def utf8() -> types.Utf8:
    """Unicode strings with 32-bit offsets, as `string`.

    >>> bs.utf8() == bs.string()
    True
    """
    return types.Utf8()


def large_utf8() -> types.LargeUtf8:
    """Unicode strings with 64-bit offsets, as `large_string`.

    >>> bs.large_utf8() == bs.large_string()
    True
    """
    return types.LargeUtf8()


def large_string() -> types.LargeUtf8:
    """Unicode strings with 64-bit offsets.

    >>> bs.array(["a", None], bs.large_string())
    <bowstring.Array large_string[2]>
    ["a", null]
    """
    return types.LargeUtf8()


def string_view() -> types.Utf8View:
    """Unicode strings with 16-byte views.

    >>> bs.array(["a", None], bs.string_view())
    <bowstring.Array string_view[2]>
    ["a", null]
    """
    return types.Utf8View()


def list_(value_type: TypeLike, list_size: int = -1) -> DataType:
    """Lists of `value_type` with 32-bit offsets, or of exactly `list_size` elements.

    >>> bs.array([[1, 2], None, []], bs.list_(bs.int8()))
    <bowstring.Array list<item: int8>[3]>
    [[1, 2], null, []]
    >>> bs.list_(bs.float32(), 3)
    DataType(fixed_size_list<item: float>[3])
    """
    value_field = as_child_field(value_type, "item")
    return types.List(value_field) if list_size == -1 else types.FixedSizeList(value_field, list_size)


def large_list(value_type: TypeLike) -> types.LargeList:
    """Lists of `value_type` with 64-bit offsets.

    >>> bs.array([[1, 2], None], bs.large_list(bs.int8()))
    <bowstring.Array large_list<item: int8>[2]>
    [[1, 2], null]
    """
    return types.LargeList(as_child_field(value_type, "item"))


def list_view(value_type: TypeLike) -> types.ListView:
    """Lists of `value_type` with 32-bit offsets and sizes.

    >>> bs.array([[1, 2], None], bs.list_view(bs.int8()))
    <bowstring.Array list_view<item: int8>[2]>
    [[1, 2], null]
    """
    return types.ListView(as_child_field(value_type, "item"))


def large_list_view(value_type: TypeLike) -> types.LargeListView:
    """Lists of `value_type` with 64-bit offsets and sizes.

    >>> bs.array([[1, 2], None], bs.large_list_view(bs.int8()))
    <bowstring.Array large_list_view<item: int8>[2]>
    [[1, 2], null]
    """
    return types.LargeListView(as_child_field(value_type, "item"))


def struct(fields: FieldsLike) -> types.Struct:
    """Structs of fields, which are given as fields, (name, type) pairs or a mapping.

    >>> bs.array([{"x": 1, "y": None}], bs.struct({"x": "int8", "y": "string"}))
    <bowstring.Array struct<x: int8, y: string>[1]>
    [{x: 1, y: null}]
    """
    return types.Struct(as_fields(fields))


def map_(key_type: TypeLike, item_type: TypeLike, keys_sorted: bool = False) -> types.Map:
    """Lists of key-value pairs; keys are not nullable.

    >>> bs.array([{"a": 1}, None], bs.map_(bs.string(), bs.int8()))
    <bowstring.Array map<string, int8>[2]>
    [[("a", 1)], null]
    """
    entries = types.Struct((as_child_field(key_type, "key"), as_child_field(item_type, "value")))
    return types.Map(field("entries", entries, nullable=False), keys_sorted)


def union(
    child_fields: FieldsLike, mode: Literal["sparse", "dense"], type_codes: Sequence[int] | None = None
) -> types.Union:
    """Values of one of several types; the type ids are 0, 1, … by default.

    >>> bs.union({"n": "int64", "s": "string"}, "dense") == bs.dense_union({"n": "int64", "s": "string"})
    True
    """
    return create_union(as_fields(child_fields), mode, type_codes)


def sparse_union(child_fields: FieldsLike, type_codes: Sequence[int] | None = None) -> types.Union:
    """A union whose children have the union's length.

    >>> bs.array([1, "a"], bs.sparse_union({"n": "int64", "s": "string"}))
    <bowstring.Array sparse_union<n: int64=0, s: string=1>[2]>
    [1, "a"]
    """
    return union(child_fields, "sparse", type_codes)


def dense_union(child_fields: FieldsLike, type_codes: Sequence[int] | None = None) -> types.Union:
    """A union whose children have only their own values.

    >>> bs.array([1, "a"], bs.dense_union({"n": "int64", "s": "string"}))
    <bowstring.Array dense_union<n: int64=0, s: string=1>[2]>
    [1, "a"]
    """
    return union(child_fields, "dense", type_codes)


def dictionary(index_type: TypeLike, value_type: TypeLike, ordered: bool = False) -> types.Dictionary:
    """Indices of `index_type` into a dictionary of `value_type`.

    >>> bs.array(["a", "b", "a"], bs.dictionary(bs.int8(), bs.string()))
    <bowstring.Array dictionary<values=string, indices=int8, ordered=0>[3]>
    ["a", "b", "a"]
    """
    indices = as_type(index_type, "a dictionary's indices")
    return types.Dictionary(indices, as_type(value_type, "a dictionary's values"), ordered)  # type: ignore[arg-type]


def run_end_encoded(run_end_type: TypeLike, value_type: TypeLike) -> types.RunEndEncoded:
    """Runs of equal values of `value_type`, with ends of `run_end_type`.

    >>> bs.array(["a", "a", "b"], bs.run_end_encoded(bs.int16(), bs.string()))
    <bowstring.Array run_end_encoded<run_ends: int16, values: string>[3]>
    ["a", "a", "b"]
    """
    return types.RunEndEncoded(field("run_ends", run_end_type, nullable=False), as_child_field(value_type, "values"))
