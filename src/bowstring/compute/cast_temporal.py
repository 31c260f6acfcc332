"""Casts between moments, times of day and durations of other units, and the integers that count them."""

from __future__ import annotations

from typing import Any

import numpy as np

from bowstring.compute.cast_numeric import integers, made, refuse
from bowstring.datatypes.types import DataType, Date, Duration, Int, Time
from bowstring.errors import DataTypeError
from bowstring.layouts.array import Array
from bowstring.layouts.base import Values
from bowstring.layouts.registry import primitive_layout
from bowstring.layouts.value_codecs.temporal import DAY_S, PER_SECOND

_DAY_MS = DAY_S * 1000
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1, "day": DAY_S * 10**9}


def _converted(array: Array, slots: Values, units: tuple[str, str], target: Any, safe: bool) -> Array:
    """Slots that count one unit as slots of the target, which counts the other."""
    old, new = (_NANOSECONDS[unit] for unit in units)
    wide = slots.astype(np.int64)
    dtype = primitive_layout(target).dtype
    if old >= new:
        factor = old // new
        limit = ((1 << 63) - 1) // factor
        if safe:
            refuse(array, (wide > limit) | (wide < -limit), f"does not fit {target}")
        wide = wide * np.int64(factor)
    else:
        unit = new // old
        whole = wide // unit
        if isinstance(target, Duration):  # as of numbers, what is cut off does not change the sign
            whole += (whole * unit != wide) & (wide < 0)
        if safe:
            refuse(array, whole * unit != wide, f"is finer than {target}")
        wide = whole
    if safe and dtype.itemsize == 4:
        limits = np.iinfo(np.int32)
        refuse(array, (wide < limits.min) | (wide > limits.max), f"does not fit {target}")
    return made(target, wide.astype(dtype), array)


def _is_local(type: Any) -> bool:
    return (getattr(type, "timezone", None) or "UTC") not in ("UTC", "Etc/UTC", "Z")


def moments(array: Array, target: Any, safe: bool) -> Array:
    """Dates and timestamps as each other; a zone says only how a moment is shown.

    To a date, `safe=False` cuts off the time of day.
    """
    source: Any = array.type
    if type(source) is not type(target) and (_is_local(source) or _is_local(target)):
        raise DataTypeError(f"{source} is not cast to {target}: days begin elsewhere in its zone")
    out = _converted(array, array.values(1), (source.unit, target.unit), target, safe)
    return _in_whole_days(array, out.values(1), target, safe) if target == Date("ms") else out


def _in_whole_days(array: Array, slots: Values, target: Any, safe: bool) -> Array:
    """Milliseconds as dates, which are whole days of them; the time of day is cut off or refused."""
    rests = slots % _DAY_MS
    if safe:
        refuse(array, rests != 0, "is no whole day")
    refuse(array, slots < np.iinfo(np.int64).min + rests, f"does not fit {target}")
    return made(target, slots - rests, array)


def spans(array: Array, target: Any, safe: bool) -> Array:
    """Times of day or durations in another unit."""
    source: Any = array.type
    return _converted(array, array.values(1), (source.unit, target.unit), target, safe)


def time_of_day(array: Array, target: Time, safe: bool) -> Array:
    """What timestamps show beside their date."""
    source: Any = array.type
    if _is_local(source):
        raise DataTypeError(f"{source} is not cast to {target}: days begin elsewhere in its zone")
    day = DAY_S * 10**9 // _NANOSECONDS[source.unit]
    return _converted(array, array.values(1) % day, (source.unit, target.unit), target, safe)


def counts(array: Array, target: Int, safe: bool) -> Array:
    """The numbers of units since midnight or 1970."""
    return made(target, integers(array, array.values(1), target, safe), array)


def from_counts(array: Array, target: DataType, safe: bool) -> Array:
    """Integers as numbers of units. What is not a time of day is refused, safe or not."""
    width = primitive_layout(target).dtype.itemsize * 8
    slots = integers(array, array.values(1), Int(width), safe)
    if target == Date("ms"):
        return _in_whole_days(array, slots, target, safe)
    if isinstance(target, Time):
        refuse(array, (slots < 0) | (slots >= DAY_S * PER_SECOND[target.unit]), f"is not a time of day ({target})")
    return made(target, slots, array)
