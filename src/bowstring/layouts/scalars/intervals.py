"""Calendar intervals: whole months as Python integers, several units as named tuples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bowstring.datatypes.types import Interval
from bowstring.layouts.scalars.base import Scalars, as_words, words_differ

if TYPE_CHECKING:
    from bowstring.layouts.base import Values
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


class Months(Scalars):
    """Intervals of whole months, as Python integers."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("i4")

    def encode(self, values: Sequence[Any]) -> Values:
        if any(not isinstance(value, (int, np.integer)) or isinstance(value, bool) for value in values):
            raise TypeError("not a whole number of months")
        return np.array(values, self.dtype)

    def decode(self, slots: Values) -> list[Any]:
        return list(slots.tolist())

    def as_numpy(self, slots: Values) -> Values:
        return slots


class CompoundIntervals(Scalars):
    """Intervals of several calendar units, as named tuples; NumPy's structured type of the same fields."""

    __slots__ = ("_make",)

    def __init__(
        self, make: Callable[..., tuple[int, ...]], dtype: list[tuple[str, str]], empty: tuple[int, ...]
    ) -> None:
        super().__init__(np.dtype(dtype), empty)
        self._make = make

    def encode(self, values: Sequence[Any]) -> Values:
        count = len(self.fill)
        if not all(isinstance(value, tuple) and len(value) == count for value in values):
            raise TypeError(f"not a tuple of {count} integers")
        if not all(isinstance(part, int) for value in values for part in value):
            raise TypeError(f"not a tuple of {count} integers")
        return np.array([tuple(value) for value in values], self.dtype)

    def decode(self, slots: Values) -> list[Any]:
        return [self._make(*parts) for parts in slots.tolist()]

    def as_numpy(self, slots: Values) -> Values:
        return slots

    def from_numpy(self, array: Values) -> tuple[Values, Mask | None]:
        return (array, None) if array.dtype == self.dtype else super().from_numpy(array)

    def differ(self, left: Values, right: Values, nans_equal: bool) -> Mask:
        return words_differ(left, right)

    def order(self, slots: Values) -> tuple[Values, ...] | None:
        return None

    def identity(self, slots: Values) -> tuple[Values, ...]:
        return tuple(as_words(slots).T)


def scalars_of(type: Interval) -> Scalars:
    """The meaning of a calendar interval's slots."""
    if type.unit == "year_month":
        return Months()
    if type.unit == "day_time":
        return CompoundIntervals(DayTime, [("days", "<i4"), ("milliseconds", "<i4")], (0, 0))
    return CompoundIntervals(MonthDayNano, [("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")], (0, 0, 0))
