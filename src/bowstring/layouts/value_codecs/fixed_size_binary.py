"""Fixed-size binary values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from bowstring.datatypes.types import FixedSizeBinary
from bowstring.layouts.factorize import byte_string_codes
from bowstring.layouts.sort_keys import rank_bytes
from bowstring.layouts.value_codecs.base import ValueCodec, Values, is_bytes_like
from bowstring.memory.bitmap import Mask


class FixedSizeBinaryCodec(ValueCodec):
    """Byte strings of one width; NumPy's void type, because NumPy's byte strings drop trailing zeros."""

    __slots__ = ()

    IS_OPAQUE: ClassVar[bool] = True

    def __init__(self, type: FixedSizeBinary) -> None:
        super().__init__(np.dtype((np.void, type.byte_width)))

    def encode(self, values: Sequence[Any], python_types: set[type]) -> Values:
        width = self.dtype.itemsize
        if str in python_types:
            values = [value.encode() if isinstance(value, str) else value for value in values]
            python_types = (python_types - {str}) | {bytes}
        are_bytes = {bytes}.issuperset(python_types) or all(map(is_bytes_like, values))
        if not are_bytes or not {width}.issuperset(map(len, values)):
            raise ValueError(f"not a byte string of {width} bytes")
        return np.frombuffer(b"".join(values), self.dtype) if width else np.zeros(len(values), self.dtype)

    def decode(self, slots: Values) -> list[Any]:
        width = self.dtype.itemsize
        data = slots.tobytes()
        return [data[i : i + width] for i in range(0, len(data), width)] if width else [b""] * len(slots)

    def encode_numpy(self, array: Values) -> tuple[Values, Mask | None]:
        if array.dtype.kind in "SV" and array.dtype.itemsize == self.dtype.itemsize:
            return array.view(self.dtype), None
        return super().encode_numpy(array)

    def sort_keys(self, slots: Values) -> tuple[Values, ...]:
        return (rank_bytes(*self.bytes_and_offsets(slots)),)

    def identity_keys(self, slots: Values) -> tuple[Values, ...]:
        return (byte_string_codes(*self.bytes_and_offsets(slots)),)

    def bytes_and_offsets(self, slots: Values) -> tuple[Values, Values]:
        """Return the bytes of all values end to end, and int64 offsets into them, starting at 0."""
        width = self.dtype.itemsize
        data = np.ascontiguousarray(slots).view(np.uint8) if width else np.zeros(0, np.uint8)
        return data, np.arange(len(slots) + 1, dtype=np.int64) * width
