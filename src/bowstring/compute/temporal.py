"""Parts of dates, timestamps and times of day, as int64; null for null.

Timestamps with a time zone have to be in UTC.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bowstring.compute.operands import combine_validity, map_operands, map_valid_values
from bowstring.datatypes import types as t
from bowstring.errors import TypeMismatchError
from bowstring.layouts.base import ArrayData, Values
from bowstring.layouts.registry import primitive_layout
from bowstring.layouts.value_codecs.temporal import SECONDS_PER_DAY, UNITS_PER_SECOND

_UTC = ("UTC", "Etc/UTC", "+00:00")
_FIRST_YEAR = 1970


def year(values: Any) -> Any:
    """Return the year of dates and timestamps. Raises `TypeMismatchError` for other types and time zones.

    >>> import datetime
    >>> bs.compute.year([datetime.date(2024, 2, 29), None])
    <bowstring.Array int64[2]>
    [2024, null]
    """
    return _map_dates("year", values)


def month(values: Any) -> Any:
    """Return the month of dates and timestamps, from 1 on; as `year`.

    >>> import datetime
    >>> bs.compute.month(datetime.date(2024, 2, 29))
    <bowstring.Scalar int64: 2>
    """
    return _map_dates("month", values)


def day(values: Any) -> Any:
    """Return the day of the month of dates and timestamps, from 1 on; as `year`.

    >>> import datetime
    >>> bs.compute.day(datetime.date(2024, 2, 29))
    <bowstring.Scalar int64: 29>
    """
    return _map_dates("day", values)


def day_of_week(values: Any) -> Any:
    """Return the day of the week of dates and timestamps: 0 for Monday; as `year`.

    >>> import datetime
    >>> bs.compute.day_of_week(datetime.date(2024, 2, 29))
    <bowstring.Scalar int64: 3>
    """
    return _map_dates("day_of_week", values)


def hour(values: Any) -> Any:
    """Return the hour of timestamps and times of day. Raises `TypeMismatchError` for other types and time zones.

    >>> import datetime
    >>> bs.compute.hour([datetime.time(12, 30, 59), None])
    <bowstring.Array int64[2]>
    [12, null]
    """
    return _map_times("hour", 3600, 24, values)


def minute(values: Any) -> Any:
    """Return the minute of timestamps and times of day; as `hour`.

    >>> import datetime
    >>> bs.compute.minute(datetime.time(12, 30, 59))
    <bowstring.Scalar int64: 30>
    """
    return _map_times("minute", 60, 60, values)


def second(values: Any) -> Any:
    """Return the second of timestamps and times of day, without its fraction; as `hour`.

    >>> import datetime
    >>> bs.compute.second(datetime.time(12, 30, 59))
    <bowstring.Scalar int64: 59>
    """
    return _map_times("second", 1, 60, values)


def _map_dates(name: str, values: Any) -> Any:
    def map_array(array: ArrayData) -> ArrayData:
        _check_type(name, array.type, t.Date | t.Timestamp)
        days = array.buffer_values(1).astype(np.int64)
        if array.type != t.date32():
            days //= SECONDS_PER_DAY * _get_units_per_second(array.type)
        return primitive_layout(t.int64()).create_array(_get_part_of_date(name, days), combine_validity(array))

    return map_operands(partial(map_valid_values, map_array), values)


def _get_part_of_date(name: str, days: Values) -> Values:
    """Return a part of dates that are given as days since 1970-01-01, a Thursday."""
    if name == "day_of_week":
        return (days + 3) % 7
    dates = days.view("M8[D]")
    if name == "year":
        return dates.astype("M8[Y]").view(np.int64) + _FIRST_YEAR
    months = dates.astype("M8[M]")
    return (months.view(np.int64) % 12 if name == "month" else (dates - months).view(np.int64)) + 1


def _map_times(name: str, unit_s: int, modulus: int, values: Any) -> Any:
    def map_array(array: ArrayData) -> ArrayData:
        _check_type(name, array.type, t.Time | t.Timestamp)
        seconds = array.buffer_values(1).astype(np.int64) // _get_units_per_second(array.type)
        return primitive_layout(t.int64()).create_array(seconds // unit_s % modulus, combine_validity(array))

    return map_operands(partial(map_valid_values, map_array), values)


def _check_type(name: str, type_: t.DataType, supported: Any) -> None:
    if not isinstance(type_, supported):
        raise TypeMismatchError(f"{name}: {type_} is not supported")
    timezone = getattr(type_, "timezone", None)
    if timezone is not None and timezone not in _UTC:
        raise TypeMismatchError(f"{name}: expected timestamps in UTC or without a time zone, found {timezone}")


def _get_units_per_second(type_: Any) -> int:
    return UNITS_PER_SECOND[type_.unit]
