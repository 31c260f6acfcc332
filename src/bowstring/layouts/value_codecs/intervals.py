"""Calendar intervals: months as Python integers, compound intervals as named tuples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np

from bowstring.datatypes.types import Int, Interval
from bowstring.layouts.value_codecs.base import ValueCodec, Values, view_as_words
from bowstring.layouts.value_codecs.numbers import IntegerCodec
from bowstring.memory.bitmap import Mask


class DayTime(NamedTuple):
    """A calendar interval of days and milliseconds, each with its own sign."""

    days: int
    milliseconds: int


class MonthDayNano(NamedTuple):
    """A calendar interval of months, days and nanoseconds, each with its own sign."""

    months: int
    days: int
    nanoseconds: int


class CompoundIntervalCodec(ValueCodec):
    """Intervals of several units, as named tuples; in NumPy, structured arrays with the same fields."""

    __slots__ = ("_value_class",)

    def __init__(self, value_class: Callable[..., tuple[int, ...]], dtype: list[tuple[str, str]]) -> None:
        super().__init__(np.dtype(dtype))
        self._value_class = value_class

    def encode(self, values: Sequence[Any], python_types: set[type]) -> Values:
        values = [self._from_timedelta(value) if isinstance(value, timedelta) else value for value in values]
        num_units = len(self.dtype.names or ())
        if not all(isinstance(value, tuple) and len(value) == num_units for value in values):
            raise ValueError(f"not a tuple of {num_units} integers")
        if not all(isinstance(unit, int) for value in values for unit in value):
            raise ValueError(f"not a tuple of {num_units} integers")
        return np.array([tuple(value) for value in values], self.dtype)

    def _from_timedelta(self, value: timedelta) -> tuple[int, ...]:
        """Return the days and the rest of a timedelta, in nanoseconds or in whole milliseconds."""
        nanoseconds = (value.seconds * 10**6 + value.microseconds) * 1000 + getattr(value, "nanoseconds", 0)
        if self._value_class is MonthDayNano:
            return MonthDayNano(0, value.days, nanoseconds)
        milliseconds, rest = divmod(nanoseconds, 10**6)
        if rest:
            raise ValueError("finer than milliseconds")
        return DayTime(value.days, milliseconds)

    def decode(self, slots: Values) -> list[Any]:
        return [self._value_class(*units) for units in slots.tolist()]

    def encode_numpy(self, array: Values) -> tuple[Values, Mask | None]:
        return (array, None) if array.dtype == self.dtype else super().encode_numpy(array)

    def sort_keys(self, slots: Values) -> tuple[Values, ...] | None:
        return None

    def identity_keys(self, slots: Values) -> tuple[Values, ...]:
        return tuple(view_as_words(slots).T)


def create_interval_codec(type: Interval) -> ValueCodec:
    """Return the codec of a calendar interval type."""
    if type.unit == "year_month":
        return IntegerCodec(Int(32))
    if type.unit == "day_time":
        return CompoundIntervalCodec(DayTime, [("days", "<i4"), ("milliseconds", "<i4")])
    return CompoundIntervalCodec(MonthDayNano, [("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
