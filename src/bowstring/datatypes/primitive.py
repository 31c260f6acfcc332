"""The data types without children («Data Types»): numbers, truth values, moments, strings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from bowstring.datatypes.base import DataType, check_one_of, check_size, check_text, is_within
from bowstring.errors import UsageError

TimeUnit: TypeAlias = Literal["s", "ms", "us", "ns"]
IntervalUnit: TypeAlias = Literal["year_month", "day_time", "month_day_nano"]
TIME_UNITS: tuple[TimeUnit, ...] = ("s", "ms", "us", "ns")
MAX_DECIMAL_DIGITS = {32: 9, 64: 18, 128: 38, 256: 76}
"""The largest precision for each bit width of a decimal."""


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
        check_one_of("an integer's bit width", self.bit_width, (8, 16, 32, 64))

    def __str__(self) -> str:
        return f"{'' if self.is_signed else 'u'}int{self.bit_width}"


@dataclass(frozen=True, slots=True, repr=False)
class FloatingPoint(DataType):
    """IEEE 754 numbers of 16, 32 or 64 bits."""

    bit_width: int

    def __post_init__(self) -> None:
        check_one_of("a float's bit width", self.bit_width, (16, 32, 64))

    def __str__(self) -> str:
        return {16: "halffloat", 32: "float", 64: "double"}[self.bit_width]


@dataclass(frozen=True, slots=True, repr=False)
class Decimal(DataType):
    """Exact decimals: integers of 32, 64, 128 or 256 bits, scaled by 10**-scale."""

    precision: int
    scale: int
    bit_width: int = 128

    def __post_init__(self) -> None:
        check_one_of("a decimal's bit width", self.bit_width, tuple(MAX_DECIMAL_DIGITS))
        most = MAX_DECIMAL_DIGITS[self.bit_width]
        if not is_within(self.precision, 1, most):
            raise UsageError(f"the precision of a decimal{self.bit_width} is 1 to {most} digits, not {self.precision}")
        if not is_within(self.scale, -(1 << 31), (1 << 31) - 1):
            raise UsageError(f"a decimal's scale is a 32-bit integer, not {self.scale}")

    def __str__(self) -> str:
        return f"decimal{self.bit_width}({self.precision}, {self.scale})"


@dataclass(frozen=True, slots=True, repr=False)
class Date(DataType):
    """Days (32 bits) or milliseconds (64 bits) since 1970-01-01."""

    unit: Literal["day", "ms"]

    def __post_init__(self) -> None:
        check_one_of("a date's unit", self.unit, ("day", "ms"))

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
        check_one_of("a time's unit", self.unit, TIME_UNITS)

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
        check_one_of("a timestamp's unit", self.unit, TIME_UNITS)
        if self.timezone is not None:
            check_text("a timestamp's time zone", self.timezone)

    def __str__(self) -> str:
        return f"timestamp[{self.unit}]" if self.timezone is None else f"timestamp[{self.unit}, tz={self.timezone}]"


@dataclass(frozen=True, slots=True, repr=False)
class Duration(DataType):
    """Elapsed time, 64 bits."""

    unit: TimeUnit

    def __post_init__(self) -> None:
        check_one_of("a duration's unit", self.unit, TIME_UNITS)

    def __str__(self) -> str:
        return f"duration[{self.unit}]"


@dataclass(frozen=True, slots=True, repr=False)
class Interval(DataType):
    """Calendar intervals: whole months (32 bits), days and milliseconds (64), or months, days and nanoseconds (128)."""

    unit: IntervalUnit

    def __post_init__(self) -> None:
        check_one_of("an interval's unit", self.unit, ("year_month", "day_time", "month_day_nano"))

    def __str__(self) -> str:
        return {"year_month": "month_interval", "day_time": "day_time_interval"}.get(
            self.unit, "month_day_nano_interval"
        )


@dataclass(frozen=True, slots=True, repr=False)
class FixedSizeBinary(DataType):
    """Byte strings that are all `byte_width` bytes long."""

    byte_width: int

    def __post_init__(self) -> None:
        check_size("a fixed-size binary's byte width", self.byte_width)

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
