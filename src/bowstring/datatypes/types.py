"""The classes of data types («Data Types»). Types are frozen dataclasses: they compare and hash by their parameters.

Their physical layouts are in `bowstring.layouts`, the functions that create them, with pyarrow's names, in
`bowstring.datatypes.factories`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np

from bowstring.datatypes.field import DataType as DataType, Field, check_type  # noqa: PLC0414 -- imported from here
from bowstring.datatypes.parameters import check_one_of, check_size, check_text, is_integer_within
from bowstring.errors import InvalidArgumentError, NotFoundError

TimeUnit: TypeAlias = Literal["s", "ms", "us", "ns"]
IntervalUnit: TypeAlias = Literal["year_month", "day_time", "month_day_nano"]
TIME_UNITS: tuple[TimeUnit, ...] = ("s", "ms", "us", "ns")
MAX_DECIMAL_DIGITS = {32: 9, 64: 18, 128: 38, 256: 76}
"""The largest precision for each bit width of a decimal."""
_INT_FORMATS = {8: b"c", 16: b"s", 32: b"i", 64: b"l"}
_FLOAT_FORMATS = {16: b"e", 32: b"f", 64: b"g"}
DICTIONARY_ORDERED, MAP_KEYS_SORTED = 1, 4
"""ARROW_FLAG_DICTIONARY_ORDERED and ARROW_FLAG_MAP_KEYS_SORTED of the C data interface."""


# Types without children: numbers, booleans, dates and times, strings and bytes


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FixedWidth(DataType):
    """The base of the types whose values all have the same width."""

    # Some types have it as a field. As a property of the base class it would be the default value of that field.
    if TYPE_CHECKING:

        @property
        def bit_width(self) -> int:
            """The width of a value in bits."""

    @property
    def byte_width(self) -> int:
        """The width of a value in bytes. Raises `InvalidArgumentError` for booleans, which are bits."""
        if self.bit_width < 8:
            raise InvalidArgumentError(f"values of {self} are less than one byte")
        return self.bit_width // 8


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Null(DataType):
    """Only nulls.

    >>> isinstance(bs.null(), bs.datatypes.Null)
    True
    """

    NAME: ClassVar[str] = "null"
    C_FORMAT: ClassVar[bytes] = b"n"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Bool(FixedWidth):
    """Booleans, one bit per value.

    >>> isinstance(bs.bool_(), bs.datatypes.Bool)
    True
    """

    NAME: ClassVar[str] = "bool"
    C_FORMAT: ClassVar[bytes] = b"b"
    ALIASES: ClassVar[tuple[str, ...]] = ("bool", "boolean", "bool_")

    @property
    def bit_width(self) -> int:
        """1."""
        return 1

    def to_pandas_dtype(self) -> Any:
        """Return `numpy.bool_`."""
        return np.bool_


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Int(FixedWidth):
    """Signed or unsigned integers of 8, 16, 32 or 64 bits.

    >>> bs.uint16().bit_width, bs.uint16().is_signed
    (16, False)
    """

    bit_width: int
    is_signed: bool = True

    def __post_init__(self) -> None:
        check_one_of("an integer's bit width", self.bit_width, (8, 16, 32, 64))

    def c_format(self) -> bytes:
        """Return the format string."""
        return _INT_FORMATS[self.bit_width] if self.is_signed else _INT_FORMATS[self.bit_width].upper()

    def __str__(self) -> str:
        return f"{'' if self.is_signed else 'u'}int{self.bit_width}"

    def aliases(self) -> tuple[str, ...]:
        """The names of the type."""
        return (str(self), f"{'i' if self.is_signed else 'u'}{self.bit_width // 8}")

    def to_pandas_dtype(self) -> Any:
        """Return a NumPy type such as `numpy.int64`."""
        return np.dtype(str(self)).type


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FloatingPoint(FixedWidth):
    """IEEE 754 numbers of 16, 32 or 64 bits.

    >>> bs.float32().bit_width
    32
    """

    bit_width: int

    def __post_init__(self) -> None:
        check_one_of("a float's bit width", self.bit_width, (16, 32, 64))

    def c_format(self) -> bytes:
        """Return the format string."""
        return _FLOAT_FORMATS[self.bit_width]

    def __str__(self) -> str:
        return {16: "halffloat", 32: "float", 64: "double"}[self.bit_width]

    def aliases(self) -> tuple[str, ...]:
        """The names of the type."""
        return (str(self), f"float{self.bit_width}", f"f{self.bit_width // 8}")

    def to_pandas_dtype(self) -> Any:
        """Return a NumPy type such as `numpy.float64`."""
        return np.dtype(f"f{self.bit_width // 8}").type


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Decimal(FixedWidth):
    """Exact decimals: integers of 32, 64, 128 or 256 bits, multiplied by 10**-scale.

    >>> type_ = bs.decimal128(20, 2)
    >>> type_.precision, type_.scale, type_.bit_width
    (20, 2, 128)
    """

    precision: int
    scale: int
    bit_width: int = 128

    def __post_init__(self) -> None:
        check_one_of("a decimal's bit width", self.bit_width, tuple(MAX_DECIMAL_DIGITS))
        most = MAX_DECIMAL_DIGITS[self.bit_width]
        if not is_integer_within(self.precision, 1, most):
            raise InvalidArgumentError(
                f"the precision of a decimal{self.bit_width} is 1 to {most} digits, not {self.precision}"
            )
        if not is_integer_within(self.scale, -(1 << 31), (1 << 31) - 1):
            raise InvalidArgumentError(f"a decimal's scale is a 32-bit integer, not {self.scale}")

    def c_format(self) -> bytes:
        """Return the format string."""
        width = b",%d" % self.bit_width if self.bit_width != 128 else b""
        return b"d:%d,%d" % (self.precision, self.scale) + width

    def __str__(self) -> str:
        return f"decimal{self.bit_width}({self.precision}, {self.scale})"

    def aliases(self) -> tuple[str, ...]:
        """The names of the type."""
        return (str(self), str(self).replace(" ", ""))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class BaseTemporal(FixedWidth):
    """The base of the types whose values are numbers of a unit of time.

    >>> isinstance(bs.date32(), bs.datatypes.BaseTemporal), isinstance(bs.int32(), bs.datatypes.BaseTemporal)
    (True, False)
    """


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Date(BaseTemporal):
    """Days (32 bits) or milliseconds (64 bits) since 1970-01-01.

    >>> bs.date32().unit, bs.date64().unit
    ('day', 'ms')
    """

    unit: Literal["day", "ms"]

    def __post_init__(self) -> None:
        check_one_of("a date's unit", self.unit, ("day", "ms"))

    @property
    def bit_width(self) -> int:
        """32 for days, 64 for milliseconds."""
        return 32 if self.unit == "day" else 64

    def c_format(self) -> bytes:
        """Return the format string."""
        return b"tdD" if self.unit == "day" else b"tdm"

    def __str__(self) -> str:
        return f"date{self.bit_width}[{self.unit}]"

    def aliases(self) -> tuple[str, ...]:
        """The names of the type."""
        return (str(self), f"date{self.bit_width}")

    def to_pandas_dtype(self) -> Any:
        """Return the NumPy dtype of milliseconds, which is as in pyarrow for both units."""
        return np.dtype("datetime64[ms]")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Time(BaseTemporal):
    """Time since midnight: 32 bits for s and ms, 64 bits for us and ns.

    >>> bs.time64("ns").unit, bs.time64("ns").bit_width
    ('ns', 64)
    """

    unit: TimeUnit

    def __post_init__(self) -> None:
        check_one_of("a time's unit", self.unit, TIME_UNITS)

    @property
    def bit_width(self) -> int:
        """32 for s and ms, 64 for us and ns."""
        return 32 if self.unit in ("s", "ms") else 64

    def c_format(self) -> bytes:
        """Return the format string."""
        return b"tt" + self.unit[0].encode()

    def __str__(self) -> str:
        return f"time{self.bit_width}[{self.unit}]"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Timestamp(BaseTemporal):
    """Time since 1970-01-01 00:00, 64 bits: UTC displayed in a time zone, or wall-clock time without a time zone.

    >>> type_ = bs.timestamp("us", tz="UTC")
    >>> type_.unit, type_.timezone
    ('us', 'UTC')
    """

    unit: TimeUnit
    timezone: str | None = None

    def __post_init__(self) -> None:
        check_one_of("a timestamp's unit", self.unit, TIME_UNITS)
        if self.timezone is not None:
            check_text("a timestamp's time zone", self.timezone)

    @property
    def tz(self) -> str | None:
        """The time zone: pyarrow's name for `timezone`."""
        return self.timezone

    @property
    def bit_width(self) -> int:
        """64."""
        return 64

    def to_pandas_dtype(self) -> Any:
        """Return a NumPy dtype, or with a time zone the name of a pandas dtype, which equals that dtype."""
        if self.timezone is None:
            return np.dtype(f"datetime64[{self.unit}]")
        return f"datetime64[{self.unit}, {self.timezone}]"

    def c_format(self) -> bytes:
        """Return the format string."""
        return b"ts%c:%s" % (self.unit[0].encode(), (self.timezone or "").encode())

    def __str__(self) -> str:
        return f"timestamp[{self.unit}]" if self.timezone is None else f"timestamp[{self.unit}, tz={self.timezone}]"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Duration(BaseTemporal):
    """Elapsed time, 64 bits.

    >>> bs.duration("ms").unit
    'ms'
    """

    unit: TimeUnit

    def __post_init__(self) -> None:
        check_one_of("a duration's unit", self.unit, TIME_UNITS)

    @property
    def bit_width(self) -> int:
        """64."""
        return 64

    def to_pandas_dtype(self) -> Any:
        """Return a dtype of NumPy."""
        return np.dtype(f"timedelta64[{self.unit}]")

    def c_format(self) -> bytes:
        """Return the format string."""
        return b"tD" + self.unit[0].encode()

    def __str__(self) -> str:
        return f"duration[{self.unit}]"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Interval(FixedWidth):
    """Calendar intervals: whole months (32 bits), days and milliseconds (64), or months, days and nanoseconds (128).

    >>> bs.month_interval().unit
    'year_month'
    """

    unit: IntervalUnit

    def __post_init__(self) -> None:
        check_one_of("an interval's unit", self.unit, ("year_month", "day_time", "month_day_nano"))

    @property
    def bit_width(self) -> int:
        """32, 64 or 128."""
        return {"year_month": 32, "day_time": 64, "month_day_nano": 128}[self.unit]

    def c_format(self) -> bytes:
        """Return the format string."""
        return {"year_month": b"tiM", "day_time": b"tiD", "month_day_nano": b"tin"}[self.unit]

    def __str__(self) -> str:
        return {"year_month": "month_interval", "day_time": "day_time_interval"}.get(
            self.unit, "month_day_nano_interval"
        )


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class BaseBinary(DataType):
    """The base of the types of byte strings.

    >>> isinstance(bs.large_binary(), bs.datatypes.BaseBinary), isinstance(bs.string(), bs.datatypes.BaseBinary)
    (True, False)
    """


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FixedSizeBinary(BaseBinary):
    """Byte strings of exactly `byte_width` bytes.

    >>> bs.binary(16).byte_width
    16
    """

    # Not a `FixedWidth`, which computes the width in bytes from that in bits.
    byte_width: int

    def __post_init__(self) -> None:
        check_size("a fixed-size binary's byte width", self.byte_width)

    @property
    def bit_width(self) -> int:
        """8 bits for each byte."""
        return self.byte_width * 8

    def c_format(self) -> bytes:
        """Return the format string."""
        return b"w:%d" % self.byte_width

    def __str__(self) -> str:
        return f"fixed_size_binary[{self.byte_width}]"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Binary(BaseBinary):
    """Byte strings with 32-bit offsets.

    >>> isinstance(bs.binary(), bs.datatypes.Binary)
    True
    """

    NAME: ClassVar[str] = "binary"
    C_FORMAT: ClassVar[bytes] = b"z"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LargeBinary(BaseBinary):
    """Byte strings with 64-bit offsets.

    >>> isinstance(bs.large_binary(), bs.datatypes.LargeBinary)
    True
    """

    NAME: ClassVar[str] = "large_binary"
    C_FORMAT: ClassVar[bytes] = b"Z"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class BinaryView(BaseBinary):
    """Byte strings with 16-byte views.

    >>> isinstance(bs.binary_view(), bs.datatypes.BinaryView)
    True
    """

    NAME: ClassVar[str] = "binary_view"
    C_FORMAT: ClassVar[bytes] = b"vz"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class BaseString(DataType):
    """The base of the types of Unicode strings.

    >>> isinstance(bs.string_view(), bs.datatypes.BaseString), isinstance(bs.binary(), bs.datatypes.BaseString)
    (True, False)
    """


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Utf8(BaseString):
    """Unicode strings with 32-bit offsets.

    >>> isinstance(bs.string(), bs.datatypes.Utf8)
    True
    """

    NAME: ClassVar[str] = "string"
    C_FORMAT: ClassVar[bytes] = b"u"
    ALIASES: ClassVar[tuple[str, ...]] = ("string", "str", "utf8")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LargeUtf8(BaseString):
    """Unicode strings with 64-bit offsets.

    >>> isinstance(bs.large_string(), bs.datatypes.LargeUtf8)
    True
    """

    NAME: ClassVar[str] = "large_string"
    C_FORMAT: ClassVar[bytes] = b"U"
    ALIASES: ClassVar[tuple[str, ...]] = ("large_string", "large_str", "large_utf8")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Utf8View(BaseString):
    """Unicode strings with 16-byte views.

    >>> isinstance(bs.string_view(), bs.datatypes.Utf8View)
    True
    """

    NAME: ClassVar[str] = "string_view"
    C_FORMAT: ClassVar[bytes] = b"vu"
    ALIASES: ClassVar[tuple[str, ...]] = ("string_view", "utf8_view")


SIMPLE_TYPES: tuple[DataType, ...] = (
    *(Null(), Bool(), Utf8(), LargeUtf8(), Utf8View(), Binary(), LargeBinary(), BinaryView()),
    *(Int(bits, is_signed) for bits in (8, 16, 32, 64) for is_signed in (True, False)),
    *(FloatingPoint(bits) for bits in (16, 32, 64)),
    *(Date("day"), Date("ms")),
    *(kind(unit) for kind in (Time, Timestamp, Duration) for unit in TIME_UNITS),
    *(Interval("year_month"), Interval("day_time"), Interval("month_day_nano")),
)
"""All types whose parameters have few values."""


# Types that contain other types: lists, structs, maps, unions, dictionaries, runs


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class _UnnamedChildren(DataType):
    """A type that is equal to others whose children have other names, as in pyarrow: producers choose them freely."""

    def _identity(self) -> tuple[object, ...]:
        """What makes two types of this class equal."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return False
        return self is other or self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((self.__class__, self._identity()))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class BaseList(_UnnamedChildren):
    """The base of the list types.

    >>> [isinstance(type, bs.datatypes.BaseList) for type in (bs.list_view("int8"), bs.map_("int8", "int8"))]
    [True, False]
    """

    value_field: Field

    def _identity(self) -> tuple[object, ...]:
        return self.value_field.type, self.value_field.nullable

    @property
    def value_type(self) -> DataType:
        """The data type of the elements."""
        return self.value_field.type

    @property
    def fields(self) -> tuple[Field, ...]:
        """The field of the elements."""
        return (self.value_field,)

    def __str__(self) -> str:
        return f"{self.NAME}<{self.value_field._to_string()}>"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class List(BaseList):
    """Lists with 32-bit offsets.

    >>> bs.list_("int8").value_type
    DataType(int8)
    """

    NAME: ClassVar[str] = "list"
    C_FORMAT: ClassVar[bytes] = b"+l"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LargeList(BaseList):
    """Lists with 64-bit offsets.

    >>> isinstance(bs.large_list("int8"), bs.datatypes.LargeList)
    True
    """

    NAME: ClassVar[str] = "large_list"
    C_FORMAT: ClassVar[bytes] = b"+L"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ListView(BaseList):
    """Lists with 32-bit offsets and sizes, in any order.

    >>> bs.list_view("int8").value_type
    DataType(int8)
    """

    NAME: ClassVar[str] = "list_view"
    C_FORMAT: ClassVar[bytes] = b"+vl"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LargeListView(BaseList):
    """Lists with 64-bit offsets and sizes, in any order.

    >>> isinstance(bs.large_list_view("int8"), bs.datatypes.LargeListView)
    True
    """

    NAME: ClassVar[str] = "large_list_view"
    C_FORMAT: ClassVar[bytes] = b"+vL"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FixedSizeList(BaseList):
    """Lists of exactly `list_size` elements.

    >>> bs.list_("float32", 3).list_size
    3
    """

    list_size: int

    def __post_init__(self) -> None:
        check_size("a fixed-size list's size", self.list_size)

    def _identity(self) -> tuple[object, ...]:
        return self.value_field.type, self.value_field.nullable, self.list_size

    def c_format(self) -> bytes:
        """Return the format string."""
        return b"+w:%d" % self.list_size

    def __str__(self) -> str:
        return f"fixed_size_list<{self.value_field._to_string()}>[{self.list_size}]"


@dataclass(frozen=True, slots=True, repr=False)
class Struct(DataType):
    """A value for each of several named fields.

    >>> [field.name for field in bs.struct({"x": "int8", "y": "string"}).fields]
    ['x', 'y']
    """

    C_FORMAT: ClassVar[bytes] = b"+s"

    children: tuple[Field, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields, in order."""
        return self.children

    @property
    def names(self) -> list[str]:
        """The names of the fields, in order."""
        return [f.name for f in self.children]

    def get_all_field_indices(self, name: str) -> list[int]:
        """Return the indices of all fields of that name."""
        return [index for index, f in enumerate(self.children) if f.name == name]

    def get_field_index(self, name: str) -> int:
        """Return the index of a field by name; -1 if there is none, or several have that name."""
        indices = self.get_all_field_indices(name)
        return indices[0] if len(indices) == 1 else -1

    def field(self, key: str | int) -> Field:
        """Return a field by name or index. Raises `NotFoundError` unless there is exactly one."""
        # -1 is the last field, but for a name it means that there is no such field, or several.
        index = self.get_field_index(key) if isinstance(key, str) else key
        if not is_integer_within(index, -len(self.children), len(self.children) - 1) or (index < 0 and index != key):
            raise NotFoundError(f"expected the name or the index of one field of {self}, found {key!r}")
        return self.children[index]

    def __getitem__(self, key: str | int) -> Field:
        return self.field(key)

    def __len__(self) -> int:
        return len(self.children)

    def __bool__(self) -> bool:
        return True  # also without fields

    def __iter__(self) -> Iterator[Field]:
        return iter(self.children)

    def __str__(self) -> str:
        return f"struct<{', '.join(f._to_string() for f in self.children)}>"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Map(_UnnamedChildren):
    """Lists of key-value pairs: lists of structs of a key and a value.

    Entries and keys are not nullable, even if their fields were: files that declare it are valid for some writers, but
    other readers reject them.

    >>> type_ = bs.map_("string", "int64")
    >>> type_.key_field.type, type_.item_field.type
    (DataType(string), DataType(int64))
    """

    C_FORMAT: ClassVar[bytes] = b"+m"

    entries_field: Field
    keys_sorted: bool = False

    def __post_init__(self) -> None:
        if len(self.entries_field.type.fields) != 2 or not isinstance(self.entries_field.type, Struct):
            raise InvalidArgumentError(
                f"a map's entries are a struct of a key and a value, not {self.entries_field.type}"
            )
        if self.entries_field.nullable or self.key_field.nullable:
            entries = Struct((self.key_field.with_nullable(False), self.item_field))
            object.__setattr__(self, "entries_field", self.entries_field.with_type(entries).with_nullable(False))

    def _identity(self) -> tuple[object, ...]:
        return (
            *((f.type, f.nullable) for f in self.entries_field.type.fields),
            self.entries_field.nullable,
            self.keys_sorted,
        )

    @property
    def key_field(self) -> Field:
        """The field of the keys."""
        return self.entries_field.type.fields[0]

    @property
    def item_field(self) -> Field:
        """The field of the values."""
        return self.entries_field.type.fields[1]

    @property
    def key_type(self) -> DataType:
        """The data type of the keys."""
        return self.key_field.type

    @property
    def item_type(self) -> DataType:
        """The data type of the values."""
        return self.item_field.type

    @property
    def fields(self) -> tuple[Field, ...]:
        """The field of the entries."""
        return (self.entries_field,)

    @property
    def c_flags(self) -> int:
        """Return MAP_KEYS_SORTED, or 0."""
        return MAP_KEYS_SORTED if self.keys_sorted else 0

    def __str__(self) -> str:
        mark = ", keys_sorted" if self.keys_sorted else ""
        return f"map<{self.key_field.type}, {self.item_field.type}{mark}>"


@dataclass(frozen=True, slots=True, repr=False)
class Union(DataType):
    """Values of one of several types each; `type_ids[i]` identifies child i.

    >>> bs.dense_union({"n": "int64", "s": "string"}).mode
    'dense'
    """

    mode: Literal["sparse", "dense"]
    children: tuple[Field, ...]
    type_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        check_one_of("a union's mode", self.mode, ("sparse", "dense"))
        if len(self.type_ids) != len(self.children):
            raise InvalidArgumentError(
                f"a union of {len(self.children)} fields needs as many type ids, not {self.type_ids}"
            )
        if len(set(self.type_ids)) != len(self.type_ids) or not all(
            is_integer_within(i, 0, 127) for i in self.type_ids
        ):
            raise InvalidArgumentError(f"a union's type ids are distinct integers from 0 to 127, not {self.type_ids}")

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields, in order."""
        return self.children

    @property
    def type_codes(self) -> list[int]:
        """The type ids, in order."""
        return list(self.type_ids)

    def c_format(self) -> bytes:
        """Return the format string."""
        return b"+u%c:%s" % (self.mode[0].encode(), ",".join(map(str, self.type_ids)).encode())

    def __str__(self) -> str:
        inside = ", ".join(f"{f._to_string()}={i}" for f, i in zip(self.children, self.type_ids, strict=True))
        return f"{self.mode}_union<{inside}>"


@dataclass(frozen=True, slots=True, repr=False)
class Dictionary(DataType):
    """Indices into a dictionary of values.

    >>> type_ = bs.dictionary("int8", "string")
    >>> type_.index_type, type_.value_type, type_.ordered
    (DataType(int8), DataType(string), False)
    """

    index_type: Int
    value_type: DataType
    ordered: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.index_type, Int):
            raise InvalidArgumentError(f"dictionary indices are integers, not {self.index_type}")
        check_type("a dictionary's values", self.value_type)

    def child_field_metadata(self) -> tuple[object, ...]:
        """The custom metadata of the fields in the dictionary's type."""
        return self.value_type.child_field_metadata()

    def c_format(self) -> bytes:
        """Return the format string of the indices."""
        return self.index_type.c_format()

    @property
    def c_flags(self) -> int:
        """Return DICTIONARY_ORDERED, or 0."""
        return DICTIONARY_ORDERED if self.ordered else 0

    @property
    def c_dictionary_type(self) -> DataType:
        """The type of the dictionary's values."""
        return self.value_type

    def __str__(self) -> str:
        return f"dictionary<values={self.value_type}, indices={self.index_type}, ordered={int(self.ordered)}>"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RunEndEncoded(_UnnamedChildren):
    """Runs of equal values: the end and the value of each run.

    >>> bs.run_end_encoded("int32", "string").value_type
    DataType(string)
    """

    C_FORMAT: ClassVar[bytes] = b"+r"

    run_ends_field: Field
    values_field: Field

    def __post_init__(self) -> None:
        ends = self.run_ends_field.type
        if not isinstance(ends, Int) or not ends.is_signed or ends.bit_width == 8:
            raise InvalidArgumentError(f"run ends are int16, int32 or int64, not {ends}")

    def _identity(self) -> tuple[object, ...]:
        return self.run_ends_field.type, self.values_field.type, self.values_field.nullable

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
