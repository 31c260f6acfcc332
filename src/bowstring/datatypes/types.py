"""The data types of the columnar format («Data Types»): one frozen dataclass each, and the words that make them.

Types are values: they compare and hash by their parameters. The names of the constructing functions are pyarrow's. How
the values of a type lie in memory is not known here, but in `bowstring.layouts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from bowstring.datatypes.field import Field, field
from bowstring.errors import UsageError

TimeUnit: TypeAlias = Literal["s", "ms", "us", "ns"]
IntervalUnit: TypeAlias = Literal["year_month", "day_time", "month_day_nano"]
TIME_UNITS: tuple[TimeUnit, ...] = ("s", "ms", "us", "ns")
MAX_DECIMAL_DIGITS = {32: 9, 64: 18, 128: 38, 256: 76}
"""The largest precision for each bit width of a decimal."""


@dataclass(frozen=True, slots=True, repr=False)
class DataType:
    """The base of all data types."""

    NAME: ClassVar[str] = ""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The child fields of a nested type, in order; none for the others."""
        return ()

    @property
    def num_fields(self) -> int:
        """The number of child fields."""
        return len(self.fields)

    def equals(self, other: object, check_metadata: bool = False) -> bool:
        """Whether both are the same type, and the custom metadata of their fields at every level if asked for."""
        if not isinstance(other, DataType) or self != other:
            return False
        return not check_metadata or self.metadata_within() == other.metadata_within()

    def metadata_within(self) -> tuple[object, ...]:
        """The custom metadata of the fields at every level, which `==` and hashes leave out; hashable."""
        fields = self.fields
        return tuple((frozenset(f.pairs), f.type.metadata_within()) for f in fields) if fields else ()

    def __str__(self) -> str:
        return self.NAME

    def __repr__(self) -> str:
        return f"DataType({self})"

    def __arrow_c_schema__(self) -> object:
        from bowstring.exchange import cdata

        return cdata.export_type(self)


@dataclass(frozen=True, slots=True, repr=False)
class Null(DataType):
    """A sequence of nulls."""

    NAME: ClassVar[str] = "null"


@dataclass(frozen=True, slots=True, repr=False)
class Bool(DataType):
    """True or false, a bit a value."""

    NAME: ClassVar[str] = "bool"


@dataclass(frozen=True, slots=True, repr=False)
class Int(DataType):
    """Integers of 8, 16, 32 or 64 bits, with or without sign."""

    bit_width: int
    is_signed: bool = True

    def __post_init__(self) -> None:
        _one_of("an integer's bit width", self.bit_width, (8, 16, 32, 64))

    def __str__(self) -> str:
        return f"{'' if self.is_signed else 'u'}int{self.bit_width}"


@dataclass(frozen=True, slots=True, repr=False)
class FloatingPoint(DataType):
    """IEEE 754 numbers of 16, 32 or 64 bits."""

    bit_width: int

    def __post_init__(self) -> None:
        _one_of("a float's bit width", self.bit_width, (16, 32, 64))

    def __str__(self) -> str:
        return {16: "halffloat", 32: "float", 64: "double"}[self.bit_width]


@dataclass(frozen=True, slots=True, repr=False)
class Decimal(DataType):
    """Exact decimals: integers of 32, 64, 128 or 256 bits, scaled by 10**-scale."""

    precision: int
    scale: int
    bit_width: int = 128

    def __post_init__(self) -> None:
        _one_of("a decimal's bit width", self.bit_width, tuple(MAX_DECIMAL_DIGITS))
        most = MAX_DECIMAL_DIGITS[self.bit_width]
        if not 1 <= self.precision <= most:
            raise UsageError(f"the precision of a decimal{self.bit_width} is 1 to {most} digits, not {self.precision}")
        if not -(1 << 31) <= self.scale < 1 << 31:
            raise UsageError(f"a decimal's scale is a 32-bit integer, not {self.scale}")

    def __str__(self) -> str:
        return f"decimal{self.bit_width}({self.precision}, {self.scale})"


@dataclass(frozen=True, slots=True, repr=False)
class Date(DataType):
    """Days (32 bits) or milliseconds (64 bits) since 1970-01-01."""

    unit: Literal["day", "ms"]

    def __post_init__(self) -> None:
        _one_of("a date's unit", self.unit, ("day", "ms"))

    @property
    def bit_width(self) -> int:
        """32 for days, 64 for milliseconds."""
        return 32 if self.unit == "day" else 64

    def __str__(self) -> str:
        return f"date{self.bit_width}[{self.unit}]"


@dataclass(frozen=True, slots=True, repr=False)
class Time(DataType):
    """Time of day since midnight: 32 bits for seconds and milliseconds, 64 for the finer units."""

    unit: TimeUnit

    def __post_init__(self) -> None:
        _one_of("a time's unit", self.unit, TIME_UNITS)

    @property
    def bit_width(self) -> int:
        """32 for s and ms, 64 for us and ns."""
        return 32 if self.unit in ("s", "ms") else 64

    def __str__(self) -> str:
        return f"time{self.bit_width}[{self.unit}]"


@dataclass(frozen=True, slots=True, repr=False)
class Timestamp(DataType):
    """Moments since 1970-01-01 00:00, 64 bits: UTC shown in a time zone, or wall-clock time where there is no zone."""

    unit: TimeUnit
    timezone: str | None = None

    def __post_init__(self) -> None:
        _one_of("a timestamp's unit", self.unit, TIME_UNITS)

    def __str__(self) -> str:
        return f"timestamp[{self.unit}]" if self.timezone is None else f"timestamp[{self.unit}, tz={self.timezone}]"


@dataclass(frozen=True, slots=True, repr=False)
class Duration(DataType):
    """Elapsed time, 64 bits."""

    unit: TimeUnit

    def __post_init__(self) -> None:
        _one_of("a duration's unit", self.unit, TIME_UNITS)

    def __str__(self) -> str:
        return f"duration[{self.unit}]"


@dataclass(frozen=True, slots=True, repr=False)
class Interval(DataType):
    """Calendar intervals: whole months (32 bits), days and milliseconds (64), or months, days and nanoseconds (128)."""

    unit: IntervalUnit

    def __post_init__(self) -> None:
        _one_of("an interval's unit", self.unit, ("year_month", "day_time", "month_day_nano"))

    def __str__(self) -> str:
        return {"year_month": "month_interval", "day_time": "day_time_interval"}.get(
            self.unit, "month_day_nano_interval"
        )


@dataclass(frozen=True, slots=True, repr=False)
class FixedSizeBinary(DataType):
    """Byte strings that are all `byte_width` bytes long."""

    byte_width: int

    def __post_init__(self) -> None:
        _size("a fixed-size binary's byte width", self.byte_width)

    def __str__(self) -> str:
        return f"fixed_size_binary[{self.byte_width}]"


@dataclass(frozen=True, slots=True, repr=False)
class Binary(DataType):
    """Byte strings, with 32-bit offsets."""

    NAME: ClassVar[str] = "binary"


@dataclass(frozen=True, slots=True, repr=False)
class LargeBinary(DataType):
    """Byte strings, with 64-bit offsets."""

    NAME: ClassVar[str] = "large_binary"


@dataclass(frozen=True, slots=True, repr=False)
class BinaryView(DataType):
    """Byte strings behind 16-byte views."""

    NAME: ClassVar[str] = "binary_view"


@dataclass(frozen=True, slots=True, repr=False)
class Utf8(DataType):
    """Unicode strings, with 32-bit offsets."""

    NAME: ClassVar[str] = "string"


@dataclass(frozen=True, slots=True, repr=False)
class LargeUtf8(DataType):
    """Unicode strings, with 64-bit offsets."""

    NAME: ClassVar[str] = "large_string"


@dataclass(frozen=True, slots=True, repr=False)
class Utf8View(DataType):
    """Unicode strings behind 16-byte views."""

    NAME: ClassVar[str] = "string_view"


@dataclass(frozen=True, slots=True, repr=False)
class _ListLike(DataType):
    value_field: Field

    @property
    def value_type(self) -> DataType:
        """The data type of the elements."""
        return self.value_field.type

    @property
    def fields(self) -> tuple[Field, ...]:
        """The one child field: the elements."""
        return (self.value_field,)

    def __str__(self) -> str:
        return f"{self.NAME}<{self.value_field._inside()}>"


@dataclass(frozen=True, slots=True, repr=False)
class List(_ListLike):
    """Lists, with 32-bit offsets."""

    NAME: ClassVar[str] = "list"


@dataclass(frozen=True, slots=True, repr=False)
class LargeList(_ListLike):
    """Lists, with 64-bit offsets."""

    NAME: ClassVar[str] = "large_list"


@dataclass(frozen=True, slots=True, repr=False)
class ListView(_ListLike):
    """Lists, with 32-bit offsets and sizes in any order."""

    NAME: ClassVar[str] = "list_view"


@dataclass(frozen=True, slots=True, repr=False)
class LargeListView(_ListLike):
    """Lists, with 64-bit offsets and sizes in any order."""

    NAME: ClassVar[str] = "large_list_view"


@dataclass(frozen=True, slots=True, repr=False)
class FixedSizeList(_ListLike):
    """Lists that all have `list_size` elements."""

    list_size: int

    def __post_init__(self) -> None:
        _size("a fixed-size list's size", self.list_size)

    def __str__(self) -> str:
        return f"fixed_size_list<{self.value_field._inside()}>[{self.list_size}]"


@dataclass(frozen=True, slots=True, repr=False)
class Struct(DataType):
    """Named fields, side by side."""

    children: tuple[Field, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields, in order."""
        return self.children

    def __str__(self) -> str:
        return f"struct<{', '.join(f._inside() for f in self.children)}>"


@dataclass(frozen=True, slots=True, repr=False)
class Map(DataType):
    """Lists of key-value pairs: a list of a struct of two fields, the keys not nullable."""

    entries_field: Field
    keys_sorted: bool = False

    def __post_init__(self) -> None:
        if len(self.entries_field.type.fields) != 2 or not isinstance(self.entries_field.type, Struct):
            raise UsageError(f"a map's entries are a struct of a key and a value, not {self.entries_field.type}")

    @property
    def key_field(self) -> Field:
        """The field of the keys."""
        return self.entries_field.type.fields[0]

    @property
    def item_field(self) -> Field:
        """The field of the values."""
        return self.entries_field.type.fields[1]

    @property
    def fields(self) -> tuple[Field, ...]:
        """The one child field: the entries."""
        return (self.entries_field,)

    def __str__(self) -> str:
        mark = ", keys_sorted" if self.keys_sorted else ""
        return f"map<{self.key_field.type}, {self.item_field.type}{mark}>"


@dataclass(frozen=True, slots=True, repr=False)
class Union(DataType):
    """Values that are each of one of several types; `type_ids[i]` stands for child i."""

    mode: Literal["sparse", "dense"]
    children: tuple[Field, ...]
    type_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        _one_of("a union's mode", self.mode, ("sparse", "dense"))
        if len(self.type_ids) != len(self.children):
            raise UsageError(f"a union of {len(self.children)} fields needs as many type ids, not {self.type_ids}")
        if len(set(self.type_ids)) != len(self.type_ids) or not all(0 <= i <= 127 for i in self.type_ids):
            raise UsageError(f"a union's type ids are distinct integers from 0 to 127, not {self.type_ids}")

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields, in order."""
        return self.children

    def __str__(self) -> str:
        inside = ", ".join(f"{f._inside()}={i}" for f, i in zip(self.children, self.type_ids, strict=True))
        return f"{self.mode}_union<{inside}>"


@dataclass(frozen=True, slots=True, repr=False)
class Dictionary(DataType):
    """Integers that are indices into a dictionary of values."""

    index_type: Int
    value_type: DataType
    ordered: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.index_type, Int):
            raise UsageError(f"dictionary indices are integers, not {self.index_type}")

    def metadata_within(self) -> tuple[object, ...]:
        """That of the dictionary's type."""
        return self.value_type.metadata_within()

    def __str__(self) -> str:
        return f"dictionary<values={self.value_type}, indices={self.index_type}, ordered={int(self.ordered)}>"


@dataclass(frozen=True, slots=True, repr=False)
class RunEndEncoded(DataType):
    """Runs of equal values: where each run ends, and its value."""

    run_ends_field: Field
    values_field: Field

    def __post_init__(self) -> None:
        ends = self.run_ends_field.type
        if not isinstance(ends, Int) or not ends.is_signed or ends.bit_width == 8:
            raise UsageError(f"run ends are int16, int32 or int64, not {ends}")

    @property
    def run_end_type(self) -> DataType:
        """The data type of the run ends."""
        return self.run_ends_field.type

    @property
    def value_type(self) -> DataType:
        """The data type of the values."""
        return self.values_field.type

    @property
    def fields(self) -> tuple[Field, ...]:
        """The run ends and the values."""
        return (self.run_ends_field, self.values_field)

    def __str__(self) -> str:
        return f"run_end_encoded<run_ends: {self.run_end_type}, values: {self.value_type}>"


def _one_of(what: str, value: object, allowed: Sequence[object]) -> None:
    if value not in allowed:
        raise UsageError(f"{what} is one of {', '.join(map(str, allowed))}, not {value!r}")


def _size(what: str, value: int) -> None:
    if not 0 <= value < 1 << 31:
        raise UsageError(f"{what} is an integer from 0 to 2147483647, not {value!r}")


def as_field(value: DataType | Field, name: str) -> Field:
    """`value` itself where it is a field, else a nullable field called `name` of that type."""
    return value if isinstance(value, Field) else field(name, value)


def null() -> Null:
    """The type of nothing but nulls."""
    return Null()


def bool_() -> Bool:
    """Booleans, a bit a value."""
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
    """Decimals of up to 9 digits, `scale` of them behind the point."""
    return Decimal(precision, scale, 32)


def decimal64(precision: int, scale: int = 0) -> Decimal:
    """Decimals of up to 18 digits, `scale` of them behind the point."""
    return Decimal(precision, scale, 64)


def decimal128(precision: int, scale: int = 0) -> Decimal:
    """Decimals of up to 38 digits, `scale` of them behind the point."""
    return Decimal(precision, scale, 128)


def decimal256(precision: int, scale: int = 0) -> Decimal:
    """Decimals of up to 76 digits, `scale` of them behind the point."""
    return Decimal(precision, scale, 256)


def date32() -> Date:
    """Days since 1970-01-01, 32 bits."""
    return Date("day")


def date64() -> Date:
    """Milliseconds since 1970-01-01, 64 bits, meant to be whole days."""
    return Date("ms")


def time32(unit: TimeUnit) -> Time:
    """Time of day in "s" or "ms"."""
    _one_of("a time32's unit", unit, ("s", "ms"))
    return Time(unit)


def time64(unit: TimeUnit) -> Time:
    """Time of day in "us" or "ns"."""
    _one_of("a time64's unit", unit, ("us", "ns"))
    return Time(unit)


def timestamp(unit: TimeUnit, tz: str | None = None) -> Timestamp:
    """Moments in "s", "ms", "us" or "ns", shown in time zone `tz` ("UTC", "Europe/Paris", "+02:00") where given."""
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
    """Byte strings: with 32-bit offsets, or all of `length` bytes where one is given."""
    return Binary() if length == -1 else FixedSizeBinary(length)


def large_binary() -> LargeBinary:
    """Byte strings, with 64-bit offsets."""
    return LargeBinary()


def binary_view() -> BinaryView:
    """Byte strings behind views."""
    return BinaryView()


def string() -> Utf8:
    """Unicode strings, with 32-bit offsets."""
    return Utf8()


utf8 = string


def large_string() -> LargeUtf8:
    """Unicode strings, with 64-bit offsets."""
    return LargeUtf8()


large_utf8 = large_string


def string_view() -> Utf8View:
    """Unicode strings behind views."""
    return Utf8View()


def list_(value_type: DataType | Field, list_size: int = -1) -> DataType:
    """Lists of `value_type`: with 32-bit offsets, or all of `list_size` elements where that is given."""
    value_field = as_field(value_type, "item")
    return List(value_field) if list_size == -1 else FixedSizeList(value_field, list_size)


def large_list(value_type: DataType | Field) -> LargeList:
    """Lists of `value_type`, with 64-bit offsets."""
    return LargeList(as_field(value_type, "item"))


def list_view(value_type: DataType | Field) -> ListView:
    """Lists of `value_type`, with 32-bit offsets and sizes."""
    return ListView(as_field(value_type, "item"))


def large_list_view(value_type: DataType | Field) -> LargeListView:
    """Lists of `value_type`, with 64-bit offsets and sizes."""
    return LargeListView(as_field(value_type, "item"))


FieldLike: TypeAlias = Field | tuple[str, DataType]


def as_fields(fields: Iterable[FieldLike] | Mapping[str, DataType]) -> tuple[Field, ...]:
    """Fields from fields, (name, type) pairs or a mapping."""
    items: Iterable[FieldLike] = fields.items() if isinstance(fields, Mapping) else fields
    return tuple(f if isinstance(f, Field) else field(*f) for f in items)


def struct(fields: Iterable[FieldLike] | Mapping[str, DataType]) -> Struct:
    """Named fields, given as fields, (name, type) pairs or a mapping."""
    return Struct(as_fields(fields))


def map_(key_type: DataType | Field, item_type: DataType | Field, keys_sorted: bool = False) -> Map:
    """Lists of key-value pairs."""
    key = key_type if isinstance(key_type, Field) else field("key", key_type, nullable=False)
    return Map(field("entries", Struct((key, as_field(item_type, "value"))), nullable=False), keys_sorted)


def union(
    fields: Iterable[FieldLike], mode: Literal["sparse", "dense"], type_ids: Sequence[int] | None = None
) -> Union:
    """Values of one of several types; the type ids are 0, 1, … unless they are given."""
    children = as_fields(fields)
    return Union(mode, children, tuple(range(len(children)) if type_ids is None else type_ids))


def sparse_union(fields: Iterable[FieldLike], type_ids: Sequence[int] | None = None) -> Union:
    """A union whose children all have the union's length."""
    return union(fields, "sparse", type_ids)


def dense_union(fields: Iterable[FieldLike], type_ids: Sequence[int] | None = None) -> Union:
    """A union whose children hold only the values that are theirs."""
    return union(fields, "dense", type_ids)


def dictionary(index_type: Int, value_type: DataType, ordered: bool = False) -> Dictionary:
    """Indices of `index_type` into a dictionary of `value_type`."""
    return Dictionary(index_type, value_type, ordered)


def run_end_encoded(run_end_type: DataType, value_type: DataType | Field) -> RunEndEncoded:
    """Runs of equal values of `value_type`, their ends as `run_end_type`."""
    return RunEndEncoded(field("run_ends", run_end_type, nullable=False), as_field(value_type, "values"))
