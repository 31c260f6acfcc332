"""Integers, floating-point numbers, and fixed-size binary values."""

from __future__ import annotations

from array import array as machine_array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bowstring.datatypes.types import FixedSizeBinary, FloatingPoint, Int
from bowstring.layouts.hashing import factorize_bytes
from bowstring.layouts.sort_keys import rank_bytes
from bowstring.layouts.value_codecs.base import ValueCodec, is_bytes

if TYPE_CHECKING:
    from bowstring.layouts.base import Values
    from bowstring.memory.bitmap import Mask


def _check_kinds(kinds: set[type]) -> None:
    if bool in kinds:
        raise TypeError("a boolean is not a number")


class IntegerCodec(ValueCodec):
    """Python integers; NumPy integers of the same width."""

    __slots__ = ("_code",)

    IS_NUMBER: ClassVar[bool] = True

    def __init__(self, type: Int) -> None:
        super().__init__(str(type))
        code = {8: "b", 16: "h", 32: "i", 64: "q"}[type.bit_width]
        self._code = code if type.is_signed else code.upper()

    def encode(self, values: Sequence[Any], kinds: set[type]) -> Values:
        _check_kinds(kinds)
        return np.frombuffer(machine_array(self._code, values), self.dtype)

    def as_numpy_copy(self, slots: Values, mask: Mask | None) -> Values:
        if mask is None:
            return slots.copy()
        out = slots.astype(np.float64)
        out[~mask] = np.nan
        return out

    def from_numpy(self, array: Values) -> tuple[Values, Mask | None]:
        if array.dtype == self.dtype:
            return array, None
        if array.dtype.kind not in "iu":
            raise TypeError(f"NumPy's {array.dtype} is not an integer type")
        if array.size and not np.can_cast(array.dtype, self.dtype):
            limits = np.iinfo(self.dtype)
            for value in (int(array.min()), int(array.max())):
                if not limits.min <= value <= limits.max:
                    raise OverflowError(f"{value} does not fit")
        return array.astype(self.dtype), None


class FloatCodec(ValueCodec):
    """Python floats, rounded to the width, and exactly representable integers; NumPy floats of the same width."""

    __slots__ = ("_max_exact_integer",)

    IS_NUMBER: ClassVar[bool] = True
    EQUAL_BY_BYTES: ClassVar[bool] = False

    def __init__(self, type: FloatingPoint) -> None:
        super().__init__(f"f{type.bit_width // 8}")
        self._max_exact_integer = 1 << (np.finfo(self.dtype).nmant + 1)

    def encode(self, values: Sequence[Any], kinds: set[type]) -> Values:
        _check_kinds(kinds)
        with np.errstate(over="ignore"):
            slots = np.frombuffer(machine_array("d", values), np.float64).astype(self.dtype, copy=False)
        if kinds != {float} and (np.abs(slots) >= self._max_exact_integer).any():
            for value, slot in zip(values, slots.tolist(), strict=True):
                if isinstance(value, (int, np.integer)) and int(value) != slot:
                    raise OverflowError(f"the integer {value} is not exactly representable")
        return slots

    def as_numpy_copy(self, slots: Values, mask: Mask | None) -> Values:
        out = slots.copy()
        if mask is not None:
            out[~mask] = np.nan
        return out

    def from_numpy(self, array: Values) -> tuple[Values, Mask | None]:
        if array.dtype.kind not in "iuf":
            raise TypeError(f"NumPy's {array.dtype} is not a number type")
        with np.errstate(over="ignore"):
            slots = array.astype(self.dtype, copy=False)
        if array.dtype.kind != "f" and array.size:
            limit = self._max_exact_integer
            if (int(array.min()) < -limit or int(array.max()) > limit) and slots.tolist() != array.tolist():
                raise OverflowError("an integer is not exactly representable")
        return slots, None

    def not_equal(self, left: Values, right: Values, nans_equal: bool) -> Mask:
        mask: Mask = left != right
        if nans_equal and mask.any():
            mask &= ~(np.isnan(left) & np.isnan(right))
        return mask

    def identity_keys(self, slots: Values) -> tuple[Values, ...]:
        bits = slots.view(f"u{self.dtype.itemsize}")
        nan = np.array(np.nan, self.dtype).view(bits.dtype)
        return (np.where(np.isnan(slots), nan, bits),)


class FixedSizeBinaryCodec(ValueCodec):
    """Byte strings of one width; NumPy's void type, because NumPy's byte strings drop trailing zeros."""

    __slots__ = ()

    IS_OPAQUE: ClassVar[bool] = True

    def __init__(self, type: FixedSizeBinary) -> None:
        super().__init__(np.dtype((np.void, type.byte_width)))

    def encode(self, values: Sequence[Any], kinds: set[type]) -> Values:
        width = self.dtype.itemsize
        are_bytes = {bytes}.issuperset(kinds) or all(map(is_bytes, values))
        if not are_bytes or not {width}.issuperset(map(len, values)):
            raise ValueError(f"not a byte string of {width} bytes")
        return np.frombuffer(b"".join(values), self.dtype) if width else np.zeros(len(values), self.dtype)

    def decode(self, slots: Values) -> list[Any]:
        width = self.dtype.itemsize
        data = slots.tobytes()
        return [data[i : i + width] for i in range(0, len(data), width)] if width else [b""] * len(slots)

    def from_numpy(self, array: Values) -> tuple[Values, Mask | None]:
        if array.dtype.kind in "SV" and array.dtype.itemsize == self.dtype.itemsize:
            return array.view(self.dtype), None
        return super().from_numpy(array)

    def sort_keys(self, slots: Values) -> tuple[Values, ...]:
        return (rank_bytes(*self.flatten(slots)),)

    def identity_keys(self, slots: Values) -> tuple[Values, ...]:
        return (factorize_bytes(*self.flatten(slots)),)

    def flatten(self, slots: Values) -> tuple[Values, Values]:
        """Return the bytes of all values end to end, and int64 offsets into them, starting at 0."""
        width = self.dtype.itemsize
        data = np.ascontiguousarray(slots).view(np.uint8) if width else np.zeros(0, np.uint8)
        return data, np.arange(len(slots) + 1, dtype=np.int64) * width
