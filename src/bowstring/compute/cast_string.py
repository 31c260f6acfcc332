"""Casts between strings and byte strings of every layout, and between text and what it spells."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal as PythonDecimal, InvalidOperation
from typing import Any

import numpy as np

from bowstring.compute.cast_numeric import refuse, slots_of
from bowstring.datatypes import types as t
from bowstring.errors import DataTypeError
from bowstring.layouts import text
from bowstring.layouts.array import Array
from bowstring.layouts.base import Indices, Values
from bowstring.layouts.binary import BinaryLayout, offsets_from_lengths
from bowstring.layouts.binary_view import BinaryViewLayout
from bowstring.layouts.gather import range_indices
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.registry import layout_of
from bowstring.layouts.value_codecs.temporal import DAY_S, PER_SECOND
from bowstring.memory.buffer import UINT8


def _flat(array: Array) -> tuple[Indices, Values]:
    """Offsets from 0, 64 bits, and the bytes between them."""
    layout = array.layout
    if isinstance(layout, BinaryViewLayout):
        return layout.flatten(array)
    if isinstance(layout, BinaryLayout):
        offsets = layout.offsets(array).astype(np.int64)
        data = layout.data(array).view(UINT8, int(offsets[0]), int(offsets[-1] - offsets[0]))
        return offsets - offsets[0], data
    width: int = array.type.byte_width  # type: ignore[attr-defined]
    slots = np.ascontiguousarray(array.values(1))
    data = slots.view(UINT8) if width and slots.size else np.zeros(0, UINT8)
    return np.arange(array.length + 1, dtype=np.int64) * width, data


def strings(array: Array, target: Any, safe: bool) -> Array:  # noqa: ARG001 -- what is no UTF-8 is never text
    """Strings and byte strings as each other; bytes become text where they are UTF-8."""
    offsets, data = _flat(array)
    layout, mask = layout_of(target), array.mask()
    lengths = np.diff(offsets)
    if getattr(layout, "is_text", False) and not getattr(array.layout, "is_text", False):
        text.check_utf8(data, offsets, mask)
    if isinstance(layout, BinaryLayout):
        return layout.of(offsets_from_lengths(lengths, layout.offset_type, target), data, mask)
    if isinstance(layout, BinaryViewLayout):
        return layout.of(data, lengths, mask)
    assert isinstance(layout, PrimitiveLayout)
    width = target.byte_width
    odd = lengths != width if mask is None else mask & (lengths != width)
    if odd.any():
        at = int(np.argmax(odd))
        raise DataTypeError(f"value {at}: {array[at]!r} has {lengths[at]} bytes, {target} takes {width}")
    if not width:
        return layout.of(np.zeros(array.length, layout.dtype), mask)
    kept = np.arange(array.length) if mask is None else np.flatnonzero(mask)
    slots = np.zeros((array.length, width), UINT8)
    slots[kept] = data[range_indices(offsets[kept], lengths[kept])].reshape(-1, width)
    return layout.of(slots.reshape(-1).view(layout.dtype), mask)


# What is shown as text


def _floats(array: Array) -> list[str]:
    """As few digits as tell a number from others of its width."""
    slots = array.values(1)
    return list(map(str, slots) if slots.dtype.itemsize < 8 else map(repr, slots.tolist()))


def _moments(array: Array) -> list[str]:
    kind: Any = array.type
    unit = "D" if isinstance(kind, t.Date) and kind.unit == "day" else kind.unit
    shown = array.values(1).astype(np.int64).view(f"M8[{unit}]")
    refuse(array, np.isnat(shown), "is what NumPy takes for no moment, and has no text")
    if isinstance(kind, t.Date):
        return list(np.datetime_as_string(shown, "D").tolist())
    texts = np.datetime_as_string(shown).tolist()
    if isinstance(kind, t.Time):
        return [one.partition("T")[2] for one in texts]
    mark = "Z" if kind.timezone else ""
    return [one.replace("T", " ") + mark for one in texts]


_SHOWN: dict[type[t.DataType], Callable[[Array], list[str]]] = {
    t.Int: lambda a: list(map(str, a.values(1).tolist())),
    t.FloatingPoint: _floats,
    t.Bool: lambda a: ["true" if bit else "false" for bit in slots_of(a).tolist()],
    t.Decimal: lambda a: [format(value, "f") for value in a.to_pylist()],
    t.Date: _moments,
    t.Time: _moments,
    t.Timestamp: _moments,
}


def shown(array: Array, target: Any, safe: bool) -> Array:  # noqa: ARG001 -- every value has a text
    """Values as text: numbers as Python or NumPy shows them, moments in the manner of ISO 8601."""
    kept = array.drop_null()
    words = layout_of(target).build(_SHOWN[type(array.type)](kept))
    return spread(words, array)


def spread(words: Array, array: Array) -> Array:
    """`words`, one for each slot of `array` that is not null, at the places of these."""
    mask = array.mask()
    if mask is None:
        return words
    layout = words.layout
    padded = layout.concat([words, layout.build([None])])
    return layout.take(padded, np.where(mask, np.cumsum(mask) - 1, words.length))


# What is spelled by text


def _whole(word: str, type: Any) -> Any:  # noqa: ARG001
    if not re.fullmatch(r"[+-]?[0-9]{1,40}", word):
        raise ValueError
    return int(word)


def _float(word: str, type: Any) -> Any:  # noqa: ARG001
    if "_" in word or word != word.strip() or not word.isascii():
        raise ValueError
    return float(word)


def _truth(word: str, type: Any) -> Any:  # noqa: ARG001
    return {"true": True, "1": True, "false": False, "0": False}[word.lower()]


def _decimal(word: str, type: Any) -> Any:  # noqa: ARG001
    if "_" in word or word != word.strip() or not word.isascii():
        raise ValueError
    return PythonDecimal(word)


_CLOCK = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
_MOMENT = rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})(?:[ T]{_CLOCK}(Z|[+-][0-9]{{2}}:?[0-9]{{2}})?)?"


def _clock(parts: tuple[Any, ...], unit: str) -> int:
    hours, minutes, seconds = (int(part or 0) for part in parts[:3])
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError
    rest = int((parts[3] or "").ljust(9, "0"))
    units, finer = divmod(rest, 10**9 // PER_SECOND[unit])
    if finer:
        raise ValueError
    return (hours * 3600 + minutes * 60 + seconds) * PER_SECOND[unit] + units


def _time(word: str, type: Any) -> Any:
    found = re.fullmatch(_CLOCK, word)
    if found is None:
        raise ValueError
    return _clock(found.groups(), type.unit)


def _date(word: str, type: Any) -> Any:  # noqa: ARG001
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", word):
        raise ValueError
    return date.fromisoformat(word)


def _timestamp(word: str, type: Any) -> Any:
    found = re.fullmatch(_MOMENT, word)
    if found is None:
        raise ValueError
    day, *clock, zone = found.groups()
    if (zone is None) != (type.timezone is None):
        raise ValueError
    seconds = (date.fromisoformat(day) - date(1970, 1, 1)).days * DAY_S
    if zone not in (None, "Z"):
        offset = datetime.strptime(zone, "%z").tzinfo
        assert isinstance(offset, timezone)
        seconds -= int((offset.utcoffset(None) or timedelta()).total_seconds())
    return seconds * PER_SECOND[type.unit] + _clock(tuple(clock), type.unit)


_PARSED: dict[type[t.DataType], Callable[[str, Any], Any]] = {
    t.Int: _whole,
    t.FloatingPoint: _float,
    t.Bool: _truth,
    t.Decimal: _decimal,
    t.Date: _date,
    t.Time: _time,
    t.Timestamp: _timestamp,
}


def parsed(array: Array, target: Any, safe: bool) -> Array:  # noqa: ARG001 -- no text is nearly a value
    """Text as the values that it spells; raises `DataTypeError` for the first that spells none."""
    parse = _PARSED[type(target)]
    values: list[Any] = []
    for index, word in enumerate(array.to_pylist()):
        try:
            values.append(None if word is None else parse(word, target))
        except (ValueError, KeyError, InvalidOperation):
            raise DataTypeError(f"value {index}: {word!r:.100} is no text of {target}") from None
    return layout_of(target).build(values)
