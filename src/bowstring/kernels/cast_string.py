"""Casts between strings and byte strings of every layout, and parsing and formatting of other types."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal as PythonDecimal, InvalidOperation
from typing import Any

import numpy as np

from bowstring.datatypes import types as t
from bowstring.display.printable_text import complete_year
from bowstring.errors import TypeMismatchError
from bowstring.kernels.cast_numeric import raise_if_any_invalid, to_numeric_slots
from bowstring.kernels.nulls import drop_null, insert_nulls
from bowstring.layouts.base import ArrayData, Values
from bowstring.layouts.binary_view import BinaryViewLayout
from bowstring.layouts.byte_strings import ByteStringLayout
from bowstring.layouts.gather import gather_bytes
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.registry import layout_of, primitive_layout
from bowstring.layouts.utf8_decoding import check_utf8
from bowstring.layouts.value_codecs.temporal import SECONDS_PER_DAY, UNITS_PER_SECOND, find_timezone
from bowstring.memory.buffer import UINT8


def cast_strings_and_bytes(array: ArrayData, target: Any, safe: bool) -> ArrayData:  # noqa: ARG001 -- invalid UTF-8 is never accepted
    """Cast between strings and byte strings. Bytes become strings if they are valid UTF-8."""
    source, layout, mask = array.layout, layout_of(target), array.validity_mask()
    if isinstance(source, BinaryViewLayout) and isinstance(layout, BinaryViewLayout):
        array = array.with_layout(layout)
        layout.check_full(array)
        return array
    if isinstance(source, ByteStringLayout):
        data, offsets = source.bytes_and_offsets(array)
    else:
        data, offsets = source.codec.bytes_and_offsets(array.buffer_values(1))  # type: ignore[attr-defined]
    lengths = np.diff(offsets)
    if getattr(layout, "is_text", False) and not getattr(source, "is_text", False):
        check_utf8(data, offsets, mask)
    if isinstance(layout, ByteStringLayout):
        return layout.create_array(lengths, data, array.compact_validity())
    assert isinstance(layout, PrimitiveLayout)
    width = target.byte_width
    invalid = lengths != width if mask is None else mask & (lengths != width)
    if invalid.any():
        index = int(np.argmax(invalid))
        value = array.layout.value_at(array, index)
        raise TypeMismatchError(f"value {index}: {value!r} has {lengths[index]} bytes, expected {width} ({target})")
    if not width:
        return layout.create_array(np.zeros(array.length, layout.dtype), mask)
    valid = np.arange(array.length) if mask is None else np.flatnonzero(mask)
    slots = np.zeros((array.length, width), UINT8)
    slots[valid] = gather_bytes(data, offsets[valid], lengths[valid]).reshape(-1, width)
    return layout.create_array(slots.reshape(-1).view(layout.dtype), mask)


# Formatting

_DATETIME_SECONDS = -62_135_510_400, 253_402_214_400
"""The second day of the year 1 and the last one of 9999: local times within are years that `datetime` knows."""


def _format_floats(array: ArrayData) -> list[str]:
    """Format with the fewest digits that identify a number of its width."""
    # Of narrow floats, NumPy's `str` has the digits that identify them; Python's floats have 64 bits.
    slots = array.buffer_values(1)
    return list(map(str, slots) if slots.dtype.itemsize < 8 else map(repr, slots.tolist()))


def _format_temporal(array: ArrayData) -> list[str]:
    type_: Any = array.type
    unit = "D" if isinstance(type_, t.Date) and type_.unit == "day" else type_.unit
    values = array.buffer_values(1).astype(np.int64).view(f"M8[{unit}]")
    raise_if_any_invalid(array, np.isnat(values), "is NumPy's NaT and can't be formatted")
    if isinstance(type_, t.Date):
        return [complete_year(string) for string in np.datetime_as_string(values, "D").tolist()]
    strings = np.datetime_as_string(values).tolist()
    if isinstance(type_, t.Time):
        return [string.partition("T")[2] for string in strings]
    return [complete_year(string).replace("T", " ") for string in strings]


def _format_timestamps(array: ArrayData) -> list[str]:
    """Format timestamps with a zone as the local time and its offset, such as +0300, as pyarrow does; Z for UTC."""
    type_: Any = array.type
    if type_.timezone in (None, "UTC", "Z"):
        return [text + ("Z" if type_.timezone else "") for text in _format_temporal(array)]
    layout, slots = primitive_layout(type_), array.buffer_values(1)
    units = UNITS_PER_SECOND[type_.unit]
    offsets = _find_utc_offsets(slots // units, find_timezone(type_.timezone))
    local = slots + offsets * units
    # A sum in int64 that wraps around is on the wrong side of the slot.
    raise_if_any_invalid(array, (local < slots) != (offsets < 0), "is not within the range of local times")
    texts = _format_temporal(layout.create_array(local))
    minutes = [divmod(abs(offset) // 60, 60) for offset in offsets.tolist()]
    signs = np.where(offsets < 0, "-", "+").tolist()
    return [f"{text}{sign}{hh:02}{mm:02}" for text, sign, (hh, mm) in zip(texts, signs, minutes, strict=True)]


def _find_utc_offsets(seconds: Values, zone: tzinfo) -> Values:
    """Return how many seconds the local time of a zone is ahead of UTC, for seconds since 1970.

    Before the year 1 and after 9999, which `datetime` does not support, the offset of the nearest year is used.
    """
    distinct, codes = np.unique(np.clip(seconds, *_DATETIME_SECONDS), return_inverse=True)
    offsets = [datetime.fromtimestamp(second, zone).utcoffset() or timedelta() for second in distinct.tolist()]
    offset_seconds: Values = np.array([offset // timedelta(seconds=1) for offset in offsets], np.int64)
    return offset_seconds[codes]


_FORMATTERS: dict[type[t.DataType], Callable[[ArrayData], list[str]]] = {
    t.Int: lambda a: list(map(str, a.buffer_values(1).tolist())),
    t.FloatingPoint: _format_floats,
    t.Bool: lambda a: ["true" if bit else "false" for bit in to_numeric_slots(a).tolist()],
    t.Decimal: lambda a: [format(value, "f") for value in a.to_pylist()],
    t.Date: _format_temporal,
    t.Time: _format_temporal,
    t.Timestamp: _format_timestamps,
}


def format_as_strings(array: ArrayData, target: Any, safe: bool) -> ArrayData:  # noqa: ARG001 -- always exact
    """Format values: numbers like Python and NumPy, dates and times in ISO 8601 with a space."""
    strings = layout_of(target).from_pylist(_FORMATTERS[type(array.type)](drop_null(array)))
    return insert_nulls(strings, array)


# Parsing


_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def _parse_integer(text: str, type: Any) -> Any:  # noqa: ARG001
    # `int` takes quadratic time, and no integer type has 40 digits.
    if not re.fullmatch(r"[+-]?[0-9]{1,40}", text):
        raise ValueError
    return int(text)


def _parse_float_or_decimal(text: str, type: Any) -> Any:
    # Python also accepts underscores, spaces and the digits of other scripts.
    if "_" in text or text != text.strip() or not text.isascii():
        raise ValueError
    return PythonDecimal(text) if isinstance(type, t.Decimal) else float(text)


_SECONDS_PATTERN = r"(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
_TIME_PATTERN = rf"([0-9]{{2}}):([0-9]{{2}}){_SECONDS_PATTERN}"
_ZONE_PATTERN = r"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?"
# More digits than any year that fits 64 bits, as days or seconds.
_DATE_PATTERN = r"-?[0-9]{4,12}-[0-9]{2}-[0-9]{2}"
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_TIMESTAMP_PATTERN = rf"({_DATE_PATTERN})(?:[ T]([0-9]{{2}})(?::([0-9]{{2}}){_SECONDS_PATTERN})?{_ZONE_PATTERN})?"


def _units_since_midnight(parts: tuple[Any, ...], unit: str) -> int:
    hours, minutes, seconds = (int(part or 0) for part in parts[:3])
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError
    rest = int((parts[3] or "").ljust(9, "0"))
    units, finer = divmod(rest, 10**9 // UNITS_PER_SECOND[unit])
    if finer:
        raise ValueError
    return (hours * 3600 + minutes * 60 + seconds) * UNITS_PER_SECOND[unit] + units


def _parse_time(text: str, type: Any) -> Any:
    match = re.fullmatch(_TIME_PATTERN, text)
    if match is None:
        raise ValueError
    return _units_since_midnight(match.groups(), type.unit)


def _parse_date(text: str, type: Any) -> Any:
    if not re.fullmatch(_DATE_PATTERN, text):
        raise ValueError
    return _days_since_1970(text) * (1 if type.unit == "day" else SECONDS_PER_DAY * 1000)


def _days_since_1970(day: str) -> int:
    try:
        return date.fromisoformat(day).toordinal() - _EPOCH_DAY
    except ValueError:  # NumPy takes five times as long, but knows years before 1 and after 9999
        return int(np.datetime64(day, "D").astype(np.int64))


def _parse_timestamp(text: str, type: Any) -> Any:
    match = re.fullmatch(_TIMESTAMP_PATTERN, text)
    if match is None:
        raise ValueError
    day, *clock, zone = match.groups()
    if (zone is None) != (type.timezone is None):
        raise ValueError
    seconds = _days_since_1970(day) * SECONDS_PER_DAY
    if zone not in (None, "Z"):
        offset = datetime.strptime(zone + "00" * (len(zone) == 3), "%z").tzinfo
        assert isinstance(offset, timezone)
        seconds -= int((offset.utcoffset(None) or timedelta()).total_seconds())
    return seconds * UNITS_PER_SECOND[type.unit] + _units_since_midnight(tuple(clock), type.unit)


_PARSERS: dict[type[t.DataType], Callable[[str, Any], Any]] = {
    t.Int: _parse_integer,
    t.FloatingPoint: _parse_float_or_decimal,
    t.Bool: lambda text, _: _BOOLEANS[text.lower()],
    t.Decimal: _parse_float_or_decimal,
    t.Date: _parse_date,
    t.Time: _parse_time,
    t.Timestamp: _parse_timestamp,
}


def parse_strings(array: ArrayData, target: Any, safe: bool) -> ArrayData:  # noqa: ARG001 -- always exact
    """Parse text. Raises `TypeMismatchError` for the first value that can't be parsed."""
    parse = _PARSERS[type(target)]
    values: list[Any] = []
    for index, text in enumerate(array.to_pylist()):
        try:
            values.append(None if text is None else parse(text, target))
        except (ValueError, KeyError, InvalidOperation):
            raise TypeMismatchError(f"value {index}: can't parse {text!r:.100} as {target}") from None
    return layout_of(target).from_pylist(values)
