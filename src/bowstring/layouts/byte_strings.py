"""Byte strings and UTF-8 strings, with offsets or with views: what both layouts have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from bowstring.datatypes.types import DataType
from bowstring.errors import TypeMismatchError
from bowstring.layouts import utf8_decoding
from bowstring.layouts.base import ArrayData, Indices, Layout, Values, pack_validity, replace_none, short_repr
from bowstring.layouts.factorize import byte_string_codes
from bowstring.layouts.sort_keys import rank_bytes
from bowstring.layouts.value_codecs.base import is_bytes_like
from bowstring.memory.bitmap import Mask
from bowstring.memory.buffer import UINT8, Buffer, Bytes


class ByteStringLayout(Layout):
    """Byte strings, or UTF-8 strings if `is_text`."""

    __slots__ = ()

    is_text: bool

    @abstractmethod
    def create_array(self, lengths: Indices, data: Bytes, validity: Buffer | None) -> ArrayData:
        """Create an array of consecutive values of these lengths in bytes."""

    @abstractmethod
    def bytes_and_offsets(self, array: ArrayData) -> tuple[Bytes, Indices]:
        """Return the bytes of all values end to end, and int64 offsets into them, starting at 0."""

    @abstractmethod
    def bytes_at(self, array: ArrayData, index: int) -> bytes | None:
        """Return the bytes of one slot; None if they are not within the buffers."""

    def find_values_and_indices(self, array: ArrayData) -> tuple[ArrayData, Indices] | None:
        """Return an array of the distinct values, and the index of each slot in it, if values share bytes; else None.

        Without sharing, such values may take far more memory than the array. Null slots are empty values.
        """
        return None

    def from_pylist(self, values: Sequence[Any]) -> ArrayData:
        data, lengths, mask = _encode_values(values, self.is_text, self.type)
        return self.create_array(lengths, np.frombuffer(data, UINT8), pack_validity(mask))

    def value_at(self, array: ArrayData, index: int, max_elements: int | None = None) -> Any:
        if array.is_null_at(index):
            return None
        value = self.bytes_at(array, index)
        if value is not None:
            try:
                return value.decode() if self.is_text else value
            except UnicodeDecodeError:
                pass
        return super().value_at(array, index)  # raises

    def to_pylist(self, array: ArrayData) -> list[Any]:
        return utf8_decoding.decode_values(*self.bytes_and_offsets(array), array.validity_mask(), self.is_text)

    def sort_keys(self, array: ArrayData) -> tuple[Values, ...]:
        return (rank_bytes(*self.bytes_and_offsets(array)),)

    def identity_keys(self, array: ArrayData) -> tuple[Values, ...]:
        return (byte_string_codes(*self.bytes_and_offsets(array)),)


def _encode_values(values: Sequence[Any], is_text: bool, data_type: DataType) -> tuple[bytes, Indices, Mask | None]:
    """Concatenate strings or byte strings; return the bytes, the lengths in bytes, and the mask of valid values.

    Text becomes bytes in UTF-8, and such bytes text. The mask is None if all values are valid. Raises
    `TypeMismatchError` naming the first value that does not fit `data_type`.
    """
    encode = _encode_strings if is_text else _encode_bytes
    mask = None
    try:
        try:
            data, lengths = encode(values)
            _check_lengths(data, lengths)
        except TypeError:  # a null, text as bytes, or an error
            strings, mask = replace_none(values, "" if is_text else b"")
            other = (bytes, bytearray) if is_text else str
            # The types first: most columns have nulls only, and a test of each value takes longer than to encode it.
            if any(issubclass(kind, other) for kind in set(map(type, strings))):
                strings = [_transcode(value) if isinstance(value, other) else value for value in strings]
            data, lengths = encode(strings)
            _check_lengths(data, lengths)
    except (TypeError, UnicodeError):
        raise _conversion_error(values, is_text, data_type) from None
    return data, lengths, mask


def _check_lengths(data: bytes, lengths: Indices) -> None:
    """Raise `TypeError` if values have another number of bytes: memoryviews of wider elements, and NumPy's `str_`."""
    if int(lengths.sum()) != len(data):
        raise TypeError


def _transcode(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value.decode()


def _encode_strings(values: Sequence[str]) -> tuple[bytes, Indices]:
    if all(map(str.isascii, values)):
        return "".join(values).encode(), np.fromiter(map(len, values), np.int64, len(values))
    return _encode_bytes(list(map(str.encode, values)))


def _encode_bytes(values: Sequence[bytes]) -> tuple[bytes, Indices]:
    return b"".join(values), np.fromiter(map(len, values), np.int64, len(values))


def _conversion_error(values: Sequence[Any], is_text: bool, type: DataType) -> TypeMismatchError:
    """The error for the first value that does not fit."""
    reasons = ((index, _misfit_reason(value, is_text)) for index, value in enumerate(values))
    index, reason = next((pair for pair in reasons if pair[1]), (0, ""))
    return TypeMismatchError(f"value {index}: {short_repr(values[index])} cannot be converted to {type}{reason}")


def _misfit_reason(value: Any, is_text: bool) -> str:
    """Why a value is not a string or a byte string, to follow a message; "" if it is, or None."""
    try:
        if isinstance(value, str):
            value.encode()
        elif is_text and is_bytes_like(value):
            value.decode()
        elif value is not None and not is_bytes_like(value):
            return f": {type(value).__name__} is neither text nor bytes"
    except (AttributeError, UnicodeError) as error:
        return f": {error}"
    return ""
