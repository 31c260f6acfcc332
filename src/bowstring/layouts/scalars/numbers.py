"""Integers, floating-point numbers, and fixed-size binary values."""

from __future__ import annotations

from array import array as machine_array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bowstring.datatypes.types import FixedSizeBinary, FloatingPoint, Int
from bowstring.layouts.hashing import byte_identities
from bowstring.layouts.python_conversion import are_all, few_numbers, packed_numbers, plain_floats
from bowstring.layouts.scalars.base import Scalars, is_bytes, words_differ
from bowstring.layouts.sort_keys import byte_ranks

if TYPE_CHECKING:
    from bowstring.layouts.base import Values
    from bowstring.memory.bitmap import Mask


_DOUBLE = np.dtype(np.float64)
_MOST_JOINED_BYTES = 1 << 12
"""The width may come from outside, and slots are made before the first value is looked at."""


def number_kinds(values: Sequence[Any]) -> set[type]:
    """The Python types of some numbers; raises TypeError where a truth value stands among them."""
    kinds = set(map(type, values))
    if bool in kinds:
        raise TypeError("a truth value is no number")
    return kinds


class Integers(Scalars):
    """Python integers; NumPy integers of the same width."""

    __slots__ = ("_code",)

    IS_NUMBER: ClassVar[bool] = True

    def __init__(self, type: Int) -> None:
        super().__init__(f"{'i' if type.is_signed else 'u'}{type.bit_width // 8}")
        code = {8: "b", 16: "h", 32: "i", 64: "q"}[type.bit_width]
        self._code = code if type.is_signed else code.upper()

    def plain(self, values: list[Any]) -> Values | None:
        return packed_numbers(values, self.dtype)

    def plain_exact(self, values: list[Any]) -> Values | None:
        return self.plain(values) if are_all(values, int) else None

    def plain_few(self, values: Sequence[Any]) -> bytes | None:
        return few_numbers(values, int, self.dtype)

    def encode(self, values: Sequence[Any]) -> Values:
        number_kinds(values)
        return np.frombuffer(machine_array(self._code, values), self.dtype)

    def decode(self, slots: Values) -> list[Any]:
        numbers: list[Any] = slots.tolist()
        return numbers

    def as_numpy(self, slots: Values) -> Values:
        return slots

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
            raise TypeError(f"NumPy's {array.dtype} is no integer type")
        if array.size and not np.can_cast(array.dtype, self.dtype):
            limits = np.iinfo(self.dtype)
            for value in (int(array.min()), int(array.max())):
                if not limits.min <= value <= limits.max:
                    raise OverflowError(f"{value} does not fit")
        return array.astype(self.dtype), None


class Floats(Scalars):
    """Python floats, rounded to the width, and integers that need no rounding; NumPy floats of the same width."""

    __slots__ = ("_exact",)
    """Integers up to here have a form."""

    IS_NUMBER: ClassVar[bool] = True
    BYTES_DECIDE: ClassVar[bool] = False

    def __init__(self, type: FloatingPoint) -> None:
        super().__init__(f"f{type.bit_width // 8}", fill=0.0)
        self._exact = 1 << (np.finfo(self.dtype).nmant + 1)

    def plain(self, values: list[Any]) -> Values | None:
        numbers = packed_numbers(values, _DOUBLE)
        if numbers is None:
            return None
        slots = self._rounded(numbers)
        return None if (np.abs(slots) >= self._exact).any() and not are_all(values, float) else slots

    def plain_exact(self, values: list[Any]) -> Values | None:
        numbers = plain_floats(values)
        return None if numbers is None else self._rounded(numbers)

    def _rounded(self, numbers: Values) -> Values:
        with np.errstate(over="ignore"):
            return numbers.astype(self.dtype, copy=False)

    def plain_few(self, values: Sequence[Any]) -> bytes | None:
        return few_numbers(values, float, self.dtype)

    def encode(self, values: Sequence[Any]) -> Values:
        kinds = number_kinds(values)
        slots = self._rounded(np.frombuffer(machine_array("d", values), _DOUBLE))
        if kinds != {float} and (np.abs(slots) >= self._exact).any():
            for value, slot in zip(values, slots.tolist(), strict=True):
                if isinstance(value, (int, np.integer)) and int(value) != slot:
                    raise OverflowError(f"the integer {value} has no exact form")
        return slots

    def decode(self, slots: Values) -> list[Any]:
        numbers: list[Any] = slots.tolist()
        return numbers

    def as_numpy(self, slots: Values) -> Values:
        return slots

    def as_numpy_copy(self, slots: Values, mask: Mask | None) -> Values:
        out = slots.copy()
        if mask is not None:
            out[~mask] = np.nan
        return out

    def from_numpy(self, array: Values) -> tuple[Values, Mask | None]:
        if array.dtype.kind not in "iuf":
            raise TypeError(f"NumPy's {array.dtype} is no number")
        with np.errstate(over="ignore"):
            slots = array.astype(self.dtype, copy=False)
        if array.dtype.kind != "f" and array.size:
            exact = self._exact
            if (int(array.min()) < -exact or int(array.max()) > exact) and slots.tolist() != array.tolist():
                raise OverflowError("an integer has no exact form")
        return slots, None

    def differ(self, left: Values, right: Values, nans_equal: bool) -> Mask:
        apart: Mask = left != right
        if nans_equal and apart.any():
            apart &= ~(np.isnan(left) & np.isnan(right))
        return apart

    def identity(self, slots: Values) -> tuple[Values, ...]:
        bits = slots.view(f"u{self.dtype.itemsize}")
        nan = np.array(np.nan, self.dtype).view(bits.dtype)
        return (np.where(np.isnan(slots), nan, bits),)


class FixedBytes(Scalars):
    """Byte strings of one width; NumPy's void type of that width, since its byte strings lose trailing zeros."""

    __slots__ = ()

    IS_OPAQUE: ClassVar[bool] = True

    def __init__(self, type: FixedSizeBinary) -> None:
        super().__init__(np.dtype((np.void, type.byte_width)))

    @property
    def fill(self) -> bytes:
        """Zeros, made when they are wanted: the width may come from outside."""
        return bytes(self.dtype.itemsize)

    def plain(self, values: list[Any]) -> Values | None:
        width = self.dtype.itemsize
        if not 0 < width <= _MOST_JOINED_BYTES or not are_all(values, bytes):
            return None
        return np.frombuffer(b"".join(values), self.dtype) if {width}.issuperset(map(len, values)) else None

    def encode(self, values: Sequence[Any]) -> Values:
        width = self.dtype.itemsize
        if not all(is_bytes(value) and len(value) == width for value in values):
            raise ValueError(f"not a byte string of {width} bytes")
        return np.frombuffer(b"".join(values), self.dtype) if width else np.zeros(len(values), self.dtype)

    def decode(self, slots: Values) -> list[Any]:
        width = self.dtype.itemsize
        data = slots.tobytes()
        return [data[at : at + width] for at in range(0, len(data), width)] if width else [b""] * len(slots)

    def as_numpy(self, slots: Values) -> Values:
        return slots

    def from_numpy(self, array: Values) -> tuple[Values, Mask | None]:
        if array.dtype.kind in "SV" and array.dtype.itemsize == self.dtype.itemsize:
            return array.view(self.dtype), None
        return super().from_numpy(array)

    def differ(self, left: Values, right: Values, nans_equal: bool) -> Mask:
        return words_differ(left, right)

    def order(self, slots: Values) -> tuple[Values, ...]:
        return (byte_ranks(*self._bytes_and_cuts(slots)),)

    def identity(self, slots: Values) -> tuple[Values, ...]:
        return (byte_identities(*self._bytes_and_cuts(slots)),)

    def _bytes_and_cuts(self, slots: Values) -> tuple[Values, Values]:
        width = self.dtype.itemsize
        data = np.ascontiguousarray(slots).view(np.uint8) if width else np.zeros(0, np.uint8)
        return data, np.arange(len(slots) + 1, dtype=np.int64) * width
