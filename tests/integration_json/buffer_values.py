"""Elements of one buffer as JSON («DATA», «VIEWS» and others): reading and writing.

Values under nulls are ignored when reading, and written as zero or an empty string.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from bowstring.datatypes import types as t
from bowstring.errors import InvalidDataError
from bowstring.layouts.base import Values
from bowstring.layouts.binary_view import VIEW
from bowstring.layouts.binary_view_validation import INLINE_BYTES
from bowstring.layouts.expansion_limits import check_expanded_bytes
from bowstring.memory.bitmap import Mask
from tests.integration_json.json_access import convert_values, expect_json_type, read_member

Validity = list[bool] | None
"""Whether each slot is valid, or None if all are."""

_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


# Single values


def _parse_integer(value: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is str and value.isascii() and value.removeprefix("-").isdigit():
        return int(value)
    raise ValueError("expected an integer, as a number or a string")


def _ranged_integer_converter(low: int, high: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        number = _parse_integer(value)
        if not low <= number <= high:
            raise ValueError(f"expected an integer from {low} to {high}")
        return number

    return convert


def _integer_converter(dtype: np.dtype[Any]) -> Callable[[Any], int]:
    bounds = np.iinfo(dtype)
    return _ranged_integer_converter(int(bounds.min), int(bounds.max))


def _float_converter(dtype: np.dtype[Any]) -> Callable[[Any], float]:
    packer = struct.Struct(f"={dtype.char}")  # rounds: the shortest digits of the largest float may slightly exceed it

    def convert(value: Any) -> float:
        if type(value) is not float and type(value) is not int:
            raise ValueError("expected a number")
        number = float(value)
        try:
            packer.pack(number)
        except OverflowError:
            raise ValueError(f"expected a number of up to {float(np.finfo(dtype).max)}") from None
        return number

    return convert


def _parse_boolean(value: Any) -> bool:
    if type(value) in (bool, int) and value in (0, 1):
        return bool(value)
    raise ValueError("expected true, false, 1 or 0")


def from_hex(value: Any) -> bytes:
    """Decode a hexadecimal string. Raises `ValueError`."""
    if type(value) is not str or len(value) % 2 or not _HEX_DIGITS.issuperset(value):
        raise ValueError("expected pairs of hexadecimal digits")
    return bytes.fromhex(value)


def _encode_text(value: Any) -> bytes:
    if type(value) is not str:
        raise ValueError("expected a string")
    return value.encode()


def to_hex(data: bytes) -> str:
    """Encode bytes as upper-case hexadecimal digits."""
    return data.hex().upper()


# Reading


def read_integers(values: list[Any], dtype: np.dtype[Any], what: str, valid: Validity = None) -> Values:
    """Read integers from numbers or strings."""
    return np.array(convert_values(values, valid, _integer_converter(dtype), 0, what), dtype)


def read_booleans(values: list[Any], what: str, valid: Validity = None) -> Mask:
    """Read booleans from 0 and 1 or false and true."""
    return np.array(convert_values(values, valid, _parse_boolean, False, what), np.bool_)


def read_strings(values: list[Any], is_text: bool, what: str, valid: Validity) -> list[bytes]:
    """Read text, or bytes as hexadecimal digits. Nulls become empty strings."""
    return convert_values(values, valid, _encode_text if is_text else from_hex, b"", what)


def _read_decimals(values: list[Any], dtype: np.dtype[Any], valid: Validity) -> Values:
    width = dtype.itemsize
    raw = convert_values(
        values, valid, lambda value: _parse_integer(value).to_bytes(width, "little", signed=True), bytes(width), "DATA"
    )
    return np.frombuffer(b"".join(raw), dtype)


def _read_fixed_size_binary(values: list[Any], dtype: np.dtype[Any], valid: Validity) -> Values:
    width = dtype.itemsize

    def convert(value: Any) -> bytes:
        data = from_hex(value)
        if len(data) != width:
            raise ValueError(f"expected {width} bytes")
        return data

    nulls = 0 if valid is None else valid.count(False)
    check_expanded_bytes(width * len(values), width * (len(values) - nulls))
    raw = convert_values(values, valid, convert, bytes(width) if nulls else b"", "DATA")
    return np.frombuffer(b"".join(raw), dtype) if width else np.empty(len(raw), dtype)


def _read_struct_slots(values: list[Any], dtype: np.dtype[Any], valid: Validity) -> Values:
    names = dtype.names or ()
    converters = [(name, _integer_converter(dtype[name])) for name in names]

    def convert(value: Any) -> tuple[int, ...]:
        if type(value) is not dict or not value.keys() >= set(names):
            raise ValueError(f"expected an object of {', '.join(names)}")
        return tuple(convert_field(value[name]) for name, convert_field in converters)

    return np.array(convert_values(values, valid, convert, (0,) * len(names), "DATA"), dtype)


_READERS: dict[type[t.DataType], Callable[[list[Any], np.dtype[Any], Validity], Values]] = {
    t.Decimal: _read_decimals,
    t.FixedSizeBinary: _read_fixed_size_binary,
}
"""Readers of types whose JSON values differ from those of their NumPy dtype."""


def read_slots(type_: t.DataType, dtype: np.dtype[Any], values: list[Any], valid: Validity) -> Values:
    """Read the slots of the primitive layout. Raises `InvalidDataError` naming the first invalid one."""
    reader = _READERS.get(type(type_))
    if reader is not None:
        return reader(values, dtype, valid)
    if dtype.names:
        return _read_struct_slots(values, dtype, valid)
    if dtype.kind == "f":
        return np.array(convert_values(values, valid, _float_converter(dtype), 0.0, "DATA"), dtype)
    return read_integers(values, dtype, "DATA", valid)


def read_views(values: list[Any], is_text: bool, valid: Validity) -> Values:
    """Read «VIEWS»: objects with SIZE and INLINED, or with SIZE, PREFIX_HEX, BUFFER_INDEX and OFFSET."""
    max_int32 = (1 << 31) - 1

    def convert(value: Any) -> bytes:
        view = expect_json_type(value, dict, "a view")
        size = _ranged_integer_converter(0, max_int32)(read_member(view, "SIZE", int))
        head = size.to_bytes(4, "little")
        if size <= INLINE_BYTES:
            inlined = read_member(view, "INLINED", str)
            data = _encode_text(inlined) if is_text else from_hex(inlined)
            if len(data) != size:
                raise ValueError(f"expected INLINED to have {size} bytes, as in SIZE, found {len(data)}")
            return head + data.ljust(INLINE_BYTES, b"\0")
        prefix = from_hex(read_member(view, "PREFIX_HEX", str))
        if len(prefix) != 4:
            raise ValueError(f"expected PREFIX_HEX to have 4 bytes, found {len(prefix)}")
        numbers = (
            _ranged_integer_converter(0, max_int32)(read_member(view, key, int)) for key in ("BUFFER_INDEX", "OFFSET")
        )
        return head + prefix + b"".join(number.to_bytes(4, "little") for number in numbers)

    return np.frombuffer(b"".join(convert_values(values, valid, convert, bytes(VIEW.itemsize), "VIEWS")), VIEW)


# Writing


def write_integers(values: Values) -> list[Any]:
    """Write integers as numbers, 64-bit integers as strings."""
    numbers: list[Any] = values.tolist()
    return [str(number) for number in numbers] if values.dtype.itemsize == 8 else numbers


def _write_decimals(slots: Values) -> list[Any]:
    return [str(int.from_bytes(part, "little", signed=True)) for part in _slots_to_bytes(slots)]


def _write_fixed_size_binary(slots: Values) -> list[Any]:
    return [to_hex(part) for part in _slots_to_bytes(slots)]


def _slots_to_bytes(slots: Values) -> list[bytes]:
    data, width = slots.tobytes(), slots.dtype.itemsize
    return [data[index * width : (index + 1) * width] for index in range(len(slots))]


_WRITERS: dict[type[t.DataType], Callable[[Values], list[Any]]] = {
    t.Decimal: _write_decimals,
    t.FixedSizeBinary: _write_fixed_size_binary,
}


def write_slots(type_: t.DataType, slots: Values, mask: Mask | None) -> list[Any]:
    """Write the slots of the primitive layout, nulls as zero."""
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
    """Write «VIEWS». Raises `InvalidDataError` for text that is not valid UTF-8."""
    views_json: list[Any] = []
    raw = views.tobytes()
    for index, (size, _, buffer_index, offset) in enumerate(views.tolist()):
        start = index * VIEW.itemsize + 4
        if size > INLINE_BYTES:
            prefix = to_hex(raw[start : start + 4])
            views_json.append({"SIZE": size, "PREFIX_HEX": prefix, "BUFFER_INDEX": buffer_index, "OFFSET": offset})
            continue
        data = raw[start : start + size]
        try:
            views_json.append({"SIZE": size, "INLINED": data.decode() if is_text else to_hex(data)})
        except UnicodeDecodeError as error:
            raise InvalidDataError(f"views[{index}] is not valid UTF-8: {error}") from None
    return views_json
