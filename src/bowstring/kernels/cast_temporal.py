"""Casts between dates, times, timestamps and durations, and between them and integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from bowstring.datatypes.field import Field
from bowstring.datatypes.types import DataType, Date, Duration, Int, Interval, Struct, Time
from bowstring.errors import TypeMismatchError
from bowstring.kernels.cast_numeric import build_with_validity, cast_slots_to_integers, raise_if_any_invalid
from bowstring.layouts.base import ArrayData, Values
from bowstring.layouts.registry import layout_of_class, primitive_layout
from bowstring.layouts.struct_ import StructLayout
from bowstring.layouts.value_codecs.temporal import SECONDS_PER_DAY, UNITS_PER_SECOND

INTERVAL_FIELDS = Struct((Field("months", Int(32)), Field("days", Int(32)), Field("time", Duration("ns"))))
"""The fields of all calendar intervals."""
_MILLISECONDS_PER_DAY = SECONDS_PER_DAY * 1000
NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1, "day": SECONDS_PER_DAY * 10**9}
"""The length of each unit."""


def _convert_units(array: ArrayData, slots: Values, units: tuple[str, str], target: Any, safe: bool) -> ArrayData:
    """Convert slots from the first unit to the second, the target's."""
    old, new = (NANOSECONDS[unit] for unit in units)
    wide = slots.astype(np.int64)
    dtype = primitive_layout(target).dtype
    if old >= new:
        factor = old // new
        # Compared before multiplying, where the product would wrap around.
        limit = ((1 << 63) - 1) // factor
        if safe:
            raise_if_any_invalid(array, (wide > limit) | (wide < -limit), f"does not fit {target}")
        wide = wide * np.int64(factor)
    else:
        unit = new // old
        # Rounds down, as times before 1970 belong to the day and second that they are in.
        whole = wide // unit
        if type(target) is type(array.type):  # towards zero, as in pyarrow; the day of a timestamp begins before it
            whole += (whole * unit != wide) & (wide < 0)
        if safe:
            raise_if_any_invalid(array, whole * unit != wide, f"is finer than {target}")
        wide = whole
    if safe and dtype.itemsize == 4:
        limits = np.iinfo(np.int32)
        raise_if_any_invalid(array, (wide < limits.min) | (wide > limits.max), f"does not fit {target}")
    return build_with_validity(target, wide.astype(dtype), array)


def _has_non_utc_timezone(type: Any) -> bool:
    return (getattr(type, "timezone", None) or "UTC") not in ("UTC", "Etc/UTC", "Z")


def cast_dates_and_timestamps(array: ArrayData, target: Any, safe: bool) -> ArrayData:
    """Cast between dates and timestamps. A time zone does not change the stored value.

    With `safe=False` a cast to a date drops the time of day.
    """
    source: Any = array.type
    if type(source) is not type(target) and (_has_non_utc_timezone(source) or _has_non_utc_timezone(target)):
        raise TypeMismatchError(f"can't cast {source} to {target}: days differ between its time zone and UTC")
    out = _convert_units(array, array.buffer_values(1), (source.unit, target.unit), target, safe)
    return _build_dates(array, out.buffer_values(1), target, safe) if target == Date("ms") else out


def _build_dates(array: ArrayData, slots: Values, target: Any, safe: bool) -> ArrayData:
    """Build dates from milliseconds. A time of day is dropped, or raises `TypeMismatchError` if `safe`."""
    time_of_day = slots % _MILLISECONDS_PER_DAY
    if safe:
        raise_if_any_invalid(array, time_of_day != 0, "is not a whole number of days")
    # The first day of the range is not whole: subtracting its time of day would wrap around.
    raise_if_any_invalid(array, slots < np.iinfo(np.int64).min + time_of_day, f"does not fit {target}")
    return build_with_validity(target, slots - time_of_day, array)


def cast_times_and_durations(array: ArrayData, target: Any, safe: bool) -> ArrayData:
    """Cast times of day or durations to another unit."""
    source: Any = array.type
    return _convert_units(array, array.buffer_values(1), (source.unit, target.unit), target, safe)


def cast_to_time_of_day(array: ArrayData, target: Time, safe: bool) -> ArrayData:
    """Cast timestamps to their time of day."""
    source: Any = array.type
    if _has_non_utc_timezone(source):
        raise TypeMismatchError(f"can't cast {source} to {target}: days differ between its time zone and UTC")
    day = SECONDS_PER_DAY * 10**9 // NANOSECONDS[source.unit]
    return _convert_units(array, array.buffer_values(1) % day, (source.unit, target.unit), target, safe)


def cast_temporal_to_integers(array: ArrayData, target: Int, safe: bool) -> ArrayData:
    """Cast to the number of units since midnight or 1970."""
    return build_with_validity(target, cast_slots_to_integers(array, array.buffer_values(1), target, safe), array)


def cast_months_to_integers(array: ArrayData, target: Int, safe: bool) -> ArrayData:
    """Cast calendar intervals of whole months to integers."""
    if array.type != Interval("year_month"):
        raise TypeMismatchError(f"can't cast {array.type} to {target}: it has several fields")
    return cast_temporal_to_integers(array, target, safe)


def split_intervals(array: ArrayData) -> ArrayData:
    """Return calendar intervals as structs of `months`, `days` and the duration `time`; fields they lack are 0."""
    slots = array.buffer_values(1)
    fields = slots.dtype.names or ()
    numbers = {"months": slots} if not fields else {name: slots[name] for name in fields}
    if "milliseconds" in numbers:
        numbers["nanoseconds"] = numbers["milliseconds"] * np.int64(1_000_000)
    columns = []
    for name, child in zip(("months", "days", "nanoseconds"), INTERVAL_FIELDS.fields, strict=True):
        layout = primitive_layout(child.type)
        columns.append(layout.create_array(numbers.get(name, np.zeros(array.length)).astype(layout.dtype)))
    layout_of_fields = layout_of_class(INTERVAL_FIELDS, StructLayout)
    return layout_of_fields.create_array(columns, array.length, array.validity_mask())


def cast_integers_to_temporal(array: ArrayData, target: DataType, safe: bool) -> ArrayData:
    """Cast integers, which count units. Raises `TypeMismatchError` for an invalid time of day, even if not `safe`."""
    width = primitive_layout(target).dtype.itemsize * 8
    slots = cast_slots_to_integers(array, array.buffer_values(1), Int(width), safe)
    if target == Date("ms"):
        return _build_dates(array, slots, target, safe)
    if isinstance(target, Time):
        raise_if_any_invalid(
            array,
            (slots < 0) | (slots >= SECONDS_PER_DAY * UNITS_PER_SECOND[target.unit]),
            f"is not a time of day ({target})",
        )
    return build_with_validity(target, slots, array)
