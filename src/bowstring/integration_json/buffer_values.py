"""«DATA» and its relatives: the elements of one buffer as JSON, both ways.

What is under a null does not count: it is not looked at when it is read, and written as zero or nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from bowstring.datatypes import types as t
from bowstring.errors import InvalidDataError
from bowstring.integration_json.dataset import converted, expect, member
from bowstring.layouts.base import Values
from bowstring.layouts.binary_view import INLINE_BYTES, VIEW
from bowstring.layouts.gather import check_bytes
from bowstring.memory.bitmap import Mask

Valid = list[bool] | None
"""Which slots are valid; None where all are."""

_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


# Single values


def _whole(item: Any) -> int:
    if type(item) is int:
        return item
    if type(item) is str and item.isascii() and item.removeprefix("-").isdigit():
        return int(item)
    raise ValueError("expected an integer, or one as a string")


def _within(low: int, high: int) -> Callable[[Any], int]:
    def convert(item: Any) -> int:
        number = _whole(item)
        if not low <= number <= high:
            raise ValueError(f"expected an integer from {low} to {high}")
        return number

    return convert


def _integer(dtype: np.dtype[Any]) -> Callable[[Any], int]:
    bounds = np.iinfo(dtype)
    return _within(int(bounds.min), int(bounds.max))


def _real(dtype: np.dtype[Any]) -> Callable[[Any], float]:
    rounded = struct.Struct(f"={dtype.char}")  # the shortest digits of the largest number may stand for one beyond it

    def convert(item: Any) -> float:
        if type(item) is not float and type(item) is not int:
            raise ValueError("expected a number")
        number = float(item)
        try:
            rounded.pack(number)
        except OverflowError:
            raise ValueError(f"expected a number of up to {float(np.finfo(dtype).max)}") from None
        return number

    return convert


def _truth(item: Any) -> bool:
    if type(item) in (bool, int) and item in (0, 1):
        return bool(item)
    raise ValueError("expected true, false, 1 or 0")


def from_hex(item: Any) -> bytes:
    """The bytes of a hexadecimal string; raises `ValueError`."""
    if type(item) is not str or len(item) % 2 or not _HEX_DIGITS.issuperset(item):
        raise ValueError("expected pairs of hexadecimal digits")
    return bytes.fromhex(item)


def _text(item: Any) -> bytes:
    if type(item) is not str:
        raise ValueError("expected a string")
    return item.encode()


def to_hex(data: bytes) -> str:
    """Bytes as upper-case hexadecimal digits."""
    return data.hex().upper()


# Buffers of slots: read


def read_integers(items: list[Any], dtype: np.dtype[Any], what: str, valid: Valid = None) -> Values:
    """Integers, given as numbers or strings."""
    return np.array(converted(items, valid, _integer(dtype), 0, what), dtype)


def read_truths(items: list[Any], what: str, valid: Valid = None) -> Mask:
    """Truth values, given as 0 and 1 or true and false."""
    return np.array(converted(items, valid, _truth, False, what), np.bool_)


def read_strings(items: list[Any], is_text: bool, what: str, valid: Valid) -> list[bytes]:
    """Strings, or byte strings as hexadecimal digits; those that are not valid are empty."""
    return converted(items, valid, _text if is_text else from_hex, b"", what)


def _read_decimals(items: list[Any], dtype: np.dtype[Any], valid: Valid) -> Values:
    width = dtype.itemsize
    raw = converted(
        items, valid, lambda item: _whole(item).to_bytes(width, "little", signed=True), bytes(width), "DATA"
    )
    return np.frombuffer(b"".join(raw), dtype)


def _read_fixed(items: list[Any], dtype: np.dtype[Any], valid: Valid) -> Values:
    width = dtype.itemsize

    def convert(item: Any) -> bytes:
        data = from_hex(item)
        if len(data) != width:
            raise ValueError(f"expected {width} bytes")
        return data

    nulls = 0 if valid is None else valid.count(False)
    check_bytes(width * len(items), width * (len(items) - nulls))
    raw = converted(items, valid, convert, bytes(width) if nulls else b"", "DATA")
    return np.frombuffer(b"".join(raw), dtype) if width else np.empty(len(raw), dtype)


def _read_compound(items: list[Any], dtype: np.dtype[Any], valid: Valid) -> Values:
    names = dtype.names or ()
    parts = [(name, _integer(dtype[name])) for name in names]

    def convert(item: Any) -> tuple[int, ...]:
        if type(item) is not dict or not item.keys() >= set(names):
            raise ValueError(f"expected an object of {', '.join(names)}")
        return tuple(integer(item[name]) for name, integer in parts)

    return np.array(converted(items, valid, convert, (0,) * len(names), "DATA"), dtype)


_READERS: dict[type[t.DataType], Callable[[list[Any], np.dtype[Any], Valid], Values]] = {
    t.Decimal: _read_decimals,
    t.FixedSizeBinary: _read_fixed,
}
"""Types whose slots are not seen as what NumPy takes them for."""


def read_slots(type_: t.DataType, dtype: np.dtype[Any], items: list[Any], valid: Valid) -> Values:
    """The slots of the primitive layout; raises `InvalidDataError` naming the first that does not fit."""
    reader = _READERS.get(type(type_))
    if reader is not None:
        return reader(items, dtype, valid)
    if dtype.names:
        return _read_compound(items, dtype, valid)
    if dtype.kind == "f":
        return np.array(converted(items, valid, _real(dtype), 0.0, "DATA"), dtype)
    return read_integers(items, dtype, "DATA", valid)


def read_views(items: list[Any], is_text: bool, valid: Valid) -> Values:
    """«VIEWS»: objects of SIZE and INLINED, or of SIZE, PREFIX_HEX, BUFFER_INDEX and OFFSET."""
    most = (1 << 31) - 1

    def convert(item: Any) -> bytes:
        view = expect(item, dict, "a view")
        size = _within(0, most)(member(view, "SIZE", int))
        head = size.to_bytes(4, "little")
        if size <= INLINE_BYTES:
            inlined = member(view, "INLINED", str)
            data = _text(inlined) if is_text else from_hex(inlined)
            if len(data) != size:
                raise ValueError(f"INLINED has {len(data)} bytes, SIZE says {size}")
            return head + data.ljust(INLINE_BYTES, b"\0")
        prefix = from_hex(member(view, "PREFIX_HEX", str))
        if len(prefix) != 4:
            raise ValueError(f"expected PREFIX_HEX to have 4 bytes, not {len(prefix)}")
        numbers = (_within(0, most)(member(view, key, int)) for key in ("BUFFER_INDEX", "OFFSET"))
        return head + prefix + b"".join(number.to_bytes(4, "little") for number in numbers)

    return np.frombuffer(b"".join(converted(items, valid, convert, bytes(VIEW.itemsize), "VIEWS")), VIEW)


# Buffers of slots: written


def write_integers(values: Values) -> list[Any]:
    """Integers as numbers, those of 64 bits as strings."""
    numbers: list[Any] = values.tolist()
    return [str(number) for number in numbers] if values.dtype.itemsize == 8 else numbers


def _write_decimals(slots: Values) -> list[Any]:
    return [str(int.from_bytes(part, "little", signed=True)) for part in _parts(slots)]


def _write_fixed(slots: Values) -> list[Any]:
    return [to_hex(part) for part in _parts(slots)]


def _parts(slots: Values) -> list[bytes]:
    data, width = slots.tobytes(), slots.dtype.itemsize
    return [data[at * width : (at + 1) * width] for at in range(len(slots))]


_WRITERS: dict[type[t.DataType], Callable[[Values], list[Any]]] = {
    t.Decimal: _write_decimals,
    t.FixedSizeBinary: _write_fixed,
}


def write_slots(type_: t.DataType, slots: Values, mask: Mask | None) -> list[Any]:
    """The slots of the primitive layout; null ones as zero."""
    if mask is not None:
        slots = slots.copy()
        slots[~mask] = np.zeros((), slots.dtype)
    writer = _WRITERS.get(type(type_))
    if writer is not None:
        return writer(slots)
    if slots.dtype.names:
        return [dict(zip(slots.dtype.names, row, strict=True)) for row in slots.tolist()]
    return slots.tolist() if slots.dtype.kind == "f" else write_integers(slots)


def write_views(views: Values, is_text: bool) -> list[Any]:
    """«VIEWS»; raises `InvalidDataError` for text that is not UTF-8."""
    out: list[Any] = []
    raw = views.tobytes()
    for at, (size, _, number, offset) in enumerate(views.tolist()):
        start = at * VIEW.itemsize + 4
        if size > INLINE_BYTES:
            prefix = to_hex(raw[start : start + 4])
            out.append({"SIZE": size, "PREFIX_HEX": prefix, "BUFFER_INDEX": number, "OFFSET": offset})
            continue
        data = raw[start : start + size]
        try:
            out.append({"SIZE": size, "INLINED": data.decode() if is_text else to_hex(data)})
        except UnicodeDecodeError as error:
            raise InvalidDataError(f"views[{at}] is not UTF-8: {error}") from None
    return out
