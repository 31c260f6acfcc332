"""The data types without children («Data Types»): numbers, booleans, dates and times, strings and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np

from bowstring.datatypes.field import DataType
from bowstring.datatypes.parameters import check_one_of, check_size, check_text, is_integer_within
from bowstring.errors import InvalidArgumentError

TimeUnit: TypeAlias = Literal["s", "ms", "us", "ns"]
IntervalUnit: TypeAlias = Literal["year_month", "day_time", "month_day_nano"]
TIME_UNITS: tuple[TimeUnit, ...] = ("s", "ms", "us", "ns")
MAX_DECIMAL_DIGITS = {32: 9, 64: 18, 128: 38, 256: 76}
"""The largest precision for each bit width of a decimal."""
_INT_FORMATS = {8: b"c", 16: b"s", 32: b"i", 64: b"l"}
_FLOAT_FORMATS = {16: b"e", 32: b"f", 64: b"g"}


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

    def aliases(self) -> tuple[str, ...]:
        """The names of the type."""
        return ("bool", "boolean", "bool_")

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

    def aliases(self) -> tuple[str, ...]:
        """The names of the type."""
        return ("string", "str", "utf8")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LargeUtf8(BaseString):
    """Unicode strings with 64-bit offsets.

    >>> isinstance(bs.large_string(), bs.datatypes.LargeUtf8)
    True
    """

    NAME: ClassVar[str] = "large_string"
    C_FORMAT: ClassVar[bytes] = b"U"

    def aliases(self) -> tuple[str, ...]:
        """The names of the type."""
        return ("large_string", "large_str", "large_utf8")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Utf8View(BaseString):
    """Unicode strings with 16-byte views.

    >>> isinstance(bs.string_view(), bs.datatypes.Utf8View)
    True
    """

    NAME: ClassVar[str] = "string_view"
    C_FORMAT: ClassVar[bytes] = b"vu"

    def aliases(self) -> tuple[str, ...]:
        """The names of the type."""
        return ("string_view", "utf8_view")


SIMPLE_TYPES: tuple[DataType, ...] = (
    *(Null(), Bool(), Utf8(), LargeUtf8(), Utf8View(), Binary(), LargeBinary(), BinaryView()),
    *(Int(bits, is_signed) for bits in (8, 16, 32, 64) for is_signed in (True, False)),
    *(FloatingPoint(bits) for bits in (16, 32, 64)),
    *(Date("day"), Date("ms")),
    *(kind(unit) for kind in (Time, Timestamp, Duration) for unit in TIME_UNITS),
    *(Interval("year_month"), Interval("day_time"), Interval("month_day_nano")),
)
"""All types whose parameters have few values."""
