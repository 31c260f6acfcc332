"""Dates, times of day, timestamps and durations.

A value that Python's `datetime` can't represent exactly (nanoseconds, years after 9999, times of day after midnight) is
returned as NumPy's exact `datetime64` or `timedelta64`. Nothing is rounded.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import numpy as np

from bowstring.datatypes.types import Date, Duration, Time, Timestamp
from bowstring.errors import UnsupportedError
from bowstring.layouts.value_codecs.base import ValueCodec, Values
from bowstring.memory.bitmap import Mask

UNITS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
SECONDS_PER_DAY = 86_400
_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = _EPOCH.toordinal()
# Microseconds of 0001-01-01 and of the end of 9999-12-31, the range of Python's datetime.
_FIRST_US = -62_135_596_800_000_000
_LAST_US = 253_402_300_799_999_999
_MAX_US = (1 << 63) - 1
_TIMEDELTA_UNITS = {"s": timedelta(seconds=1), "ms": timedelta(milliseconds=1)}
"""The units in which all of Python's timedeltas fit 64 bits."""
_MICROSECOND = timedelta(microseconds=1)
# NumPy's NaT: this value of a slot can't be represented by datetime64, though Arrow has no such exception.
_NAT = np.iinfo(np.int64).min


@lru_cache(256)
def find_timezone(name: str) -> tzinfo:
    """Return the time zone for an IANA name or an offset such as "+02:00".

    Raises `UnsupportedError` if this machine has no such time zone.
    """
    if name in ("UTC", "Etc/UTC", "Z"):
        return UTC
    offset = re.fullmatch(r"([+-])(\d\d):?(\d\d)", name)
    if offset:
        difference = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        if difference < timedelta(days=1):
            return timezone(-difference if offset[1] == "-" else difference)
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise UnsupportedError(f"this machine has no time zone {name!r}") from error


class _TemporalCodec(ValueCodec):
    """Integers that count `unit`s; in NumPy, datetime64 or timedelta64."""

    __slots__ = ("_numpy_type", "_unit")

    def __init__(self, dtype: str, unit: str, numpy_kind: str) -> None:
        super().__init__(dtype)
        self._unit = unit
        self._numpy_type = np.dtype(f"{numpy_kind}[{unit}]")

    @abstractmethod
    def _python_to_units(self, value: Any) -> int:
        """Convert a Python value to a number of units."""

    def encode(self, values: Sequence[Any], python_types: set[type]) -> Values:
        units = [v if type(v) is int else self._scalar_to_units(v) for v in values]
        return np.fromiter(units, self.dtype, len(units))

    def _scalar_to_units(self, value: Any) -> int:
        if isinstance(value, (np.datetime64, np.timedelta64)):
            return _numpy_to_units(value, self._numpy_type)
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            return int(value)
        return self._python_to_units(value)

    def view_as_numpy(self, slots: Values) -> Values | None:
        return slots.view(self._numpy_type) if self.dtype.itemsize == 8 else None

    def copy_to_numpy(self, slots: Values, mask: Mask | None) -> Values:
        out = slots.astype(np.int64).view(self._numpy_type)
        if mask is not None:
            out[~mask] = np.array("NaT", self._numpy_type)
        return out

    def encode_numpy(self, array: Values) -> tuple[Values, Mask | None]:
        if array.dtype.kind != self._numpy_type.kind:
            if array.dtype.kind in "iu":
                slots = array.astype(self.dtype, copy=False)
                if not np.array_equal(slots, array):
                    raise ValueError("an integer does not fit")
                return slots, None
            return super().encode_numpy(array)
        # NaT differs from itself, so only the other values are compared. NumPy wraps around without an error: a value
        # fits if the conversion back gives it again.
        mask = ~np.isnat(array)
        if mask.any():
            _check_unit(array.dtype)
        numpy_values = array.astype(self._numpy_type, copy=False)
        if numpy_values is not array and not np.array_equal(numpy_values.astype(array.dtype)[mask], array[mask]):
            raise ValueError(f"some values do not convert exactly from {array.dtype} to {self._numpy_type}")
        units = numpy_values.view(np.int64)
        slots = units.astype(self.dtype, copy=False)
        if slots is not units and not np.array_equal(slots[mask], units[mask]):
            raise ValueError("a value does not fit 32 bits")
        return slots, None if mask.all() else mask


def _check_unit(dtype: np.dtype[Any]) -> None:
    """Raise `ValueError` for durations without a fixed length, which NumPy would convert by an average: 30.44 days."""
    if dtype.kind == "m" and np.datetime_data(dtype)[0] in ("Y", "M", "generic"):
        raise ValueError(f"NumPy's {dtype} has no fixed length: convert it to s, ms, us or ns")


def _numpy_to_units(value: Any, dtype: np.dtype[Any]) -> int:
    if np.isnat(value):
        raise ValueError("NaT is not a value: pass None for null")
    if value.dtype.kind != dtype.kind:
        raise ValueError(f"expected NumPy's {dtype}, found {value.dtype}")
    _check_unit(value.dtype)
    numpy_value = value.astype(dtype)
    # The sign as well: a number that wraps around may come back as itself.
    if numpy_value.astype(value.dtype) != value or (numpy_value.astype(np.int64) > 0) != (value.astype(np.int64) > 0):
        raise ValueError(f"not a whole number of {dtype}, or out of its range")
    return int(numpy_value.astype(np.int64))


def _slots_to_microseconds(slots: Values, unit: str, first_us: int, last_us: int) -> Values | None:
    """Convert slots to microseconds; None if one is not a whole number of them or outside first to last."""
    if not slots.size:
        return slots.astype(np.int64)
    per_unit, rest = divmod(10**6, UNITS_PER_SECOND[unit])
    # Python's integers, which do not overflow. Only of nanoseconds are there several in a microsecond.
    low, high = int(slots.min()), int(slots.max())
    if rest:
        if low // 1000 < first_us or high // 1000 > last_us or (slots % 1000).any():
            return None
        return slots // 1000
    if low * per_unit < first_us or high * per_unit > last_us:
        return None
    return slots.astype(np.int64) * per_unit


class _MicrosecondCodec(_TemporalCodec):
    """Values with a Python type of microsecond precision and limited range."""

    __slots__ = ("_first_us", "_last_us")

    PYTHON_TYPE: ClassVar[type]
    DESCRIPTION: ClassVar[str]
    """The values in messages."""

    def __init__(self, dtype: str, unit: str, numpy_kind: str, bounds_us: tuple[int, int]) -> None:
        super().__init__(dtype, unit, numpy_kind)
        self._first_us, self._last_us = bounds_us

    def encode(self, values: Sequence[Any], python_types: set[type]) -> Values:
        if python_types != {self.PYTHON_TYPE}:
            return super().encode(values, python_types)
        try:
            microseconds = np.array(self._python_to_microseconds(values), np.int64)
        except (TypeError, ValueError, OverflowError):
            return super().encode(values, python_types)
        slots = None
        if not ((microseconds < self._first_us) | (microseconds > self._last_us)).any():
            slots = self._microseconds_to_slots(microseconds)
        return super().encode(values, python_types) if slots is None else slots

    def _python_to_units(self, value: Any) -> int:
        value = self._convert(value)
        if not isinstance(value, self.PYTHON_TYPE):
            raise ValueError(f"not {self.DESCRIPTION}")
        if value != value:  # pandas' NaT is a datetime
            raise ValueError("NaT is not a value: pass None for null")
        (microseconds,) = self._python_to_microseconds([value])
        if not self._first_us <= microseconds <= self._last_us:
            raise OverflowError  # such as a datetime in the year 1 that is in the year 0 in UTC
        # pandas' timestamps and timedeltas are finer than their Python types.
        nanoseconds = getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)
        units, rest = divmod(int(microseconds) * 1000 + nanoseconds, 10**9 // UNITS_PER_SECOND[self._unit])
        if rest:
            raise ValueError(f"finer than the unit {self._unit}")
        return units

    def _convert(self, value: Any) -> Any:
        """Convert a value of another Python type that stands for one of this type."""
        return value

    @abstractmethod
    def _python_to_microseconds(self, values: Sequence[Any]) -> list[int]:
        """Convert values of the Python type, rounded down; raises TypeError, ValueError or OverflowError for others."""

    def _microseconds_to_slots(self, microseconds: Values) -> Values | None:
        """Convert microseconds to slots; None if one is not a whole number of units or out of a slot's range."""
        per_second = UNITS_PER_SECOND[self._unit]
        if per_second > 10**6:
            return None if (np.abs(microseconds) > _MAX_US // 1000).any() else microseconds * 1000
        units, rest = np.divmod(microseconds, 10**6 // per_second)
        return None if rest.any() else units.astype(self.dtype)

    @abstractmethod
    def _microseconds_to_python(self, microseconds: Values) -> list[Any]:
        """Convert microseconds within the bounds to Python values."""

    def decode(self, slots: Values) -> list[Any]:
        bounds_us = max(self._first_us, -_MAX_US), min(self._last_us, _MAX_US)
        microseconds = _slots_to_microseconds(slots, self._unit, *bounds_us)
        if microseconds is not None:
            return self._microseconds_to_python(microseconds)
        # Each by itself: one value that Python can't represent must not change the type of the others.
        if len(slots) == 1:
            return [self._units_to_value(int(slots[0]))]
        return [self.decode(slots[index : index + 1])[0] for index in range(len(slots))]

    def _units_to_value(self, units: int) -> Any:
        """Convert a number of units that are not whole microseconds within the bounds of `decode`."""
        return _units_to_numpy(units, self._numpy_type)


def _units_to_numpy(units: int, numpy_type: np.dtype[Any]) -> Any:
    return units if units == _NAT else np.array(units, np.int64).view(numpy_type)[()]


class TimestampCodec(_MicrosecondCodec):
    """Python datetimes: aware in the type's time zone, or naive if it has none. Naive datetimes count as UTC, and dates
    as their midnight.
    """

    __slots__ = ("_zone",)

    PYTHON_TYPE = datetime
    DESCRIPTION = "a datetime"

    def __init__(self, type: Timestamp) -> None:
        self._zone = type.timezone or None
        super().__init__("i8", type.unit, "M8", (_FIRST_US, _LAST_US))

    def _convert(self, value: Any) -> Any:
        is_date = isinstance(value, date) and not isinstance(value, datetime)
        return datetime(value.year, value.month, value.day) if is_date else value

    def _python_to_microseconds(self, values: Sequence[Any]) -> list[int]:
        epoch = _EPOCH if values[0].tzinfo is None else _EPOCH_UTC
        return [(value - epoch) // _MICROSECOND for value in values]  # TypeError for aware and naive ones

    def _microseconds_to_python(self, microseconds: Values) -> list[Any]:
        datetimes: list[datetime] = microseconds.view("M8[us]").tolist()
        if self._zone is None:
            return datetimes
        zone = find_timezone(self._zone)
        return [_convert_utc_to_zone(value, zone) for value in datetimes]


def _convert_utc_to_zone(utc: datetime, zone: tzinfo) -> Any:
    """Convert a naive datetime in UTC to a time zone, or to `datetime64` if its year there is not 1 to 9999."""
    try:
        return utc.replace(tzinfo=UTC).astimezone(zone)
    except OverflowError:
        return np.datetime64(utc, "us")


class DurationCodec(_MicrosecondCodec):
    """Python timedeltas."""

    __slots__ = ()

    PYTHON_TYPE = timedelta
    DESCRIPTION = "a timedelta"

    def __init__(self, type: Duration) -> None:
        bounds_us = (-_MAX_US, _MAX_US)
        if type.unit in _TIMEDELTA_UNITS:
            bounds_us = timedelta.min // _MICROSECOND, timedelta.max // _MICROSECOND
        super().__init__("i8", type.unit, "m8", bounds_us)

    def _python_to_microseconds(self, values: Sequence[Any]) -> list[int]:
        return [value // _MICROSECOND for value in values]

    def _microseconds_to_python(self, microseconds: Values) -> list[Any]:
        return list(microseconds.view("m8[us]").tolist())

    def _units_to_value(self, units: int) -> Any:
        if self._unit in _TIMEDELTA_UNITS:
            with suppress(OverflowError):
                return units * _TIMEDELTA_UNITS[self._unit]
        return super()._units_to_value(units)


class TimeCodec(_MicrosecondCodec):
    """Python times of day; in NumPy, timedeltas since midnight."""

    __slots__ = ()

    PYTHON_TYPE = time
    DESCRIPTION = "a time of day without time zone"

    def __init__(self, type: Time) -> None:
        super().__init__(f"i{type.bit_width // 8}", type.unit, "m8", (0, SECONDS_PER_DAY * 10**6 - 1))

    def _python_to_microseconds(self, values: Sequence[Any]) -> list[int]:
        if any(value.tzinfo for value in values):
            raise ValueError(f"not {self.DESCRIPTION}")
        return [((v.hour * 60 + v.minute) * 60 + v.second) * 10**6 + v.microsecond for v in values]

    def _microseconds_to_python(self, microseconds: Values) -> list[Any]:
        return [value.time() for value in microseconds.view("M8[us]").tolist()]

    def find_invalid_slot(self, slots: Values) -> tuple[int, str] | None:
        return _find_first_invalid(
            (slots < 0) | (slots >= SECONDS_PER_DAY * UNITS_PER_SECOND[self._unit]), slots, "is not a time of day"
        )


class DateCodec(_TemporalCodec):
    """Python dates, and the dates of datetimes."""

    __slots__ = ("_per_day",)

    def __init__(self, type: Date) -> None:
        super().__init__(f"i{type.bit_width // 8}", "D" if type.unit == "day" else "ms", "M8")
        self._per_day = 1 if type.unit == "day" else SECONDS_PER_DAY * 1000

    def _python_to_units(self, value: Any) -> int:
        if not isinstance(value, date):
            raise ValueError("not a date")
        return (value.toordinal() - _EPOCH_DAY) * self._per_day

    def encode(self, values: Sequence[Any], python_types: set[type]) -> Values:
        if python_types != {date}:
            return super().encode(values, python_types)
        days = np.fromiter(map(date.toordinal, values), np.int64, len(values)) - _EPOCH_DAY
        return (days * self._per_day).astype(self.dtype)

    def decode(self, slots: Values) -> list[Any]:
        days, rest = np.divmod(slots.astype(np.int64), self._per_day)
        dates: list[Any] = days.view("M8[D]").tolist()
        if rest.any() or any(type(day) is not date for day in dates):
            return [
                day if type(day) is date and not extra else _units_to_numpy(int(units), self._numpy_type)
                for day, extra, units in zip(dates, rest, slots, strict=True)
            ]
        return dates

    def find_invalid_slot(self, slots: Values) -> tuple[int, str] | None:
        return _find_first_invalid(slots % self._per_day != 0, slots, "ms is not a whole number of days")


def _find_first_invalid(invalid: Values, slots: Values, fault: str) -> tuple[int, str] | None:
    if not invalid.any():
        return None
    index = int(np.argmax(invalid))
    return index, f"{slots[index]} {fault}"
