"""Tests and lengths of strings and byte strings; null for null.

Values that share bytes, in dictionaries, runs and views, are examined once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bowstring.compute.operands import combine_validity, map_operands, map_valid_values
from bowstring.datatypes import types as t
from bowstring.errors import TypeMismatchError
from bowstring.kernels.comparison import get_byte_strings
from bowstring.kernels.nulls import create_boolean_array, insert_nulls, set_nulls
from bowstring.layouts.base import ArrayData, Indices, Values, pack_validity
from bowstring.layouts.byte_comparison import are_bytes_equal
from bowstring.layouts.byte_strings import ByteStringLayout
from bowstring.layouts.primitive import PrimitiveLayout
from bowstring.layouts.registry import primitive_layout
from bowstring.layouts.sort_keys import ByteStrings
from bowstring.memory.bitmap import Mask

_CONTINUATION_MASK, _CONTINUATION = 0xC0, 0x80
_FIRST_NON_ASCII = 0x80
_ASCII = bytes(range(_FIRST_NON_ASCII)).decode()


def starts_with(strings: Any, pattern: str | bytes, *, ignore_case: bool = False) -> Any:
    """Return whether strings start with a pattern, which is plain text. Raises `TypeMismatchError` for other types.

    >>> import bowstring as bs
    >>> bs.compute.starts_with(["Riga", "Lima", None], "Ri").to_pylist()
    [True, False, None]
    """
    return _match("starts_with", _is_prefix, strings, pattern, ignore_case)


def ends_with(strings: Any, pattern: str | bytes, *, ignore_case: bool = False) -> Any:
    """Return whether strings end with a pattern; as `starts_with`.

    >>> bs.compute.ends_with(["a.csv", "b.txt", None], ".csv")
    <bowstring.Array bool[3]>
    [true, false, null]
    """
    return _match("ends_with", _is_suffix, strings, pattern, ignore_case)


def match_substring(strings: Any, pattern: str | bytes, *, ignore_case: bool = False) -> Any:
    """Return whether strings contain a pattern; as `starts_with`.

    >>> bs.compute.match_substring(["Riga", "Lima", None], "im")
    <bowstring.Array bool[3]>
    [false, true, null]
    """
    return _match("match_substring", _is_substring, strings, pattern, ignore_case)


def utf8_length(strings: Any) -> Any:
    """Return the number of code points of strings, as int32, of large strings as int64.

    >>> import bowstring as bs
    >>> bs.compute.utf8_length(["Rīga", None]).to_pylist()
    [4, None]
    """
    return map_operands(partial(_map_strings, "utf8_length", (t.BaseString,), _count_code_points), strings)


def binary_length(strings: Any) -> Any:
    """Return the number of bytes of strings or byte strings, as int32, of large ones as int64.

    >>> bs.compute.binary_length(["é", "abc", None])
    <bowstring.Array int32[3]>
    [2, 3, null]
    """
    types = t.BaseString, t.BaseBinary
    return map_operands(partial(_map_strings, "binary_length", types, _count_bytes), strings)


def utf8_upper(strings: Any) -> Any:
    """Return strings in upper case, code point by code point: "ß" stays as it is.

    >>> import bowstring as bs
    >>> bs.compute.utf8_upper(["Rīga", None]).to_pylist()
    ['RĪGA', None]
    """
    return map_operands(partial(_map_strings, "utf8_upper", (t.BaseString,), partial(_map_case, str.upper)), strings)


def utf8_lower(strings: Any) -> Any:
    """Return strings in lower case; as `utf8_upper`.

    >>> bs.compute.utf8_lower(["RĪGA", None])
    <bowstring.Array string[2]>
    ["rīga", null]
    """
    return map_operands(partial(_map_strings, "utf8_lower", (t.BaseString,), partial(_map_case, str.lower)), strings)


def _map_strings(
    name: str, types: tuple[type[t.DataType], ...], function: Callable[[ArrayData], ArrayData], array: ArrayData
) -> ArrayData:
    """Apply a function of plain strings, null for null, to distinct values if they share bytes."""

    def map_plain(values: ArrayData) -> ArrayData:
        layout = values.layout
        if isinstance(layout, ByteStringLayout | PrimitiveLayout) and isinstance(values.type, types):
            shared = layout.find_shared_values(values) if isinstance(layout, ByteStringLayout) else None
            if shared is None:
                return function(values)
            distinct, codes = shared
            mapped = function(distinct)
            mapped, valid = mapped.layout.take(mapped, codes), values.validity_mask()
            return mapped if valid is None else set_nulls(mapped, ~valid)
        raise TypeMismatchError(f"{name}: expected strings, found {array.type}")

    return map_valid_values(map_plain, array)


def _match(
    name: str, test: Callable[[ByteStrings, bytes], Mask], strings: Any, pattern: str | bytes, ignore_case: bool
) -> Any:
    if not isinstance(pattern, str | bytes):
        raise TypeMismatchError(f"{name}: expected a string as pattern, found {pattern!r:.100}")
    if ignore_case:
        strings = utf8_lower(strings)
        text = pattern if isinstance(pattern, str) else pattern.decode()
        pattern = utf8_lower(text).as_py()
    value = pattern.encode() if isinstance(pattern, str) else pattern

    def match_plain(array: ArrayData) -> ArrayData:
        return create_boolean_array(test(get_byte_strings(array), value), combine_validity(array))

    return map_operands(partial(_map_strings, name, (t.BaseString, t.BaseBinary), match_plain), strings)


def _are_equal_to(strings: ByteStrings, value: bytes) -> Mask:
    return are_bytes_equal(strings, (np.frombuffer(value, np.uint8), np.zeros(1, np.int64), np.array([len(value)])))


def _is_prefix(strings: ByteStrings, value: bytes) -> Mask:
    data, starts, lengths = strings
    return _are_equal_to((data, starts, np.minimum(lengths, len(value))), value)


def _is_suffix(strings: ByteStrings, value: bytes) -> Mask:
    data, starts, lengths = strings
    sizes = np.minimum(lengths, len(value))
    return _are_equal_to((data, starts + lengths - sizes, sizes), value)


def _is_substring(strings: ByteStrings, value: bytes) -> Mask:
    data, starts, lengths = strings
    if not value:
        return np.ones(len(starts), np.bool_)
    if len(value) > data.size:
        return np.zeros(len(starts), np.bool_)
    first_and_last = (data[: data.size - len(value) + 1] == value[0]) & (data[len(value) - 1 :] == value[-1])
    occurrences = np.flatnonzero(first_and_last)
    occurrences = occurrences[_are_equal_to((data, occurrences, np.full(len(occurrences), len(value))), value)]
    # The first occurrence from the start of each string on has to end within it.
    nearest = np.append(occurrences, data.size)[np.searchsorted(occurrences, starts)]
    mask: Mask = nearest + len(value) <= starts + lengths
    return mask


def _count_bytes(array: ArrayData) -> ArrayData:
    return _create_lengths(array, get_byte_strings(array)[2])


def _count_code_points(array: ArrayData) -> ArrayData:
    data, starts, lengths = get_byte_strings(array)
    return _create_lengths(array, np.diff(_code_point_offsets(data, np.append(starts, starts[-1:] + lengths[-1:]))))


def _create_lengths(array: ArrayData, lengths: Indices) -> ArrayData:
    is_large = isinstance(array.type, t.LargeUtf8 | t.LargeBinary)
    layout = primitive_layout(t.int64() if is_large else t.int32())
    return layout.create_array(lengths.astype(layout.dtype), combine_validity(array))


def _code_point_offsets(data: Values, offsets: Indices) -> Indices:
    """Return the number of code points before each offset."""
    if not len(offsets) or not (data & _FIRST_NON_ASCII).any():
        return offsets
    is_start = (data & _CONTINUATION_MASK) != _CONTINUATION
    return np.append(0, np.cumsum(is_start))[offsets]


def _map_case(function: Callable[[str], str], array: ArrayData) -> ArrayData:
    layout, valid = array.layout, array.validity_mask()
    assert isinstance(layout, ByteStringLayout)
    data, offsets = layout.bytes_and_offsets(array)
    is_other = data >= _FIRST_NON_ASCII
    try:
        others = data[is_other].tobytes().decode()
        mapping = {ord(each): mapped for each in {*_ASCII, *others} if len(mapped := function(each)) == 1}
        if all(len(chr(each).encode()) == len(mapped.encode()) for each, mapped in mapping.items()):
            table = np.frombuffer(_ASCII.translate(mapping).encode(), np.uint8)
            mapped_bytes = table.take(data, mode="clip")
            mapped_bytes[is_other] = np.frombuffer(others.translate(mapping).encode(), np.uint8)
            return layout.create_array(np.diff(offsets), mapped_bytes, pack_validity(valid))
        text = data.tobytes().decode()
    except UnicodeDecodeError:
        if valid is not None:  # bytes of null slots may be invalid
            return insert_nulls(_map_case(function, layout.take(array, np.flatnonzero(valid))), array)
        array.validate(full=True)  # raises
        raise
    mapped_bytes = np.frombuffer(text.translate(mapping).encode(), np.uint8)
    starts = np.append(np.flatnonzero((mapped_bytes & _CONTINUATION_MASK) != _CONTINUATION), mapped_bytes.size)
    return layout.create_array(np.diff(starts[_code_point_offsets(data, offsets)]), mapped_bytes, pack_validity(valid))
