"""Integers and floating-point numbers."""

from __future__ import annotations

from array import array as machine_array
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np

from bowstring.datatypes.types import FloatingPoint, Int
from bowstring.layouts.value_codecs.base import ValueCodec, Values
from bowstring.memory.bitmap import Mask

NARROW_FLOATS = frozenset({np.dtype(np.float16), np.dtype(np.float32)})
"""The types whose values Python's floats show with more digits than identify them."""
_NOT_NUMBERS = frozenset({bool, np.bool_, np.datetime64, np.timedelta64})
"""Types that Python converts to numbers."""
_MAX_DIGITS = 20
"""The digits of the largest integer of 64 bits."""


def _check_types(python_types: set[type]) -> None:
    """Raise TypeError if a type is one that Python would convert, but that is not a number."""
    for python_type in _NOT_NUMBERS & python_types:
        raise ValueError(f"{python_type.__name__} is not a number type")


def _to_exact_integer(value: Any) -> Any:
    """Return a whole number as an integer, and anything but a float or a decimal unchanged."""
    if not isinstance(value, (float, np.floating, Decimal)):
        return value
    if isinstance(value, Decimal) and value and value.adjusted() >= _MAX_DIGITS:
        raise OverflowError  # as `array.array` would, without the integer, which may have millions of digits
    integer = int(value or 0)  # infinities and NaN raise
    if value != integer:
        raise ValueError("not a whole number")
    return integer


class IntegerCodec(ValueCodec):
    """Python integers, and floats and decimals that are whole numbers; NumPy integers of the same width."""

    __slots__ = ("_code",)

    IS_NUMBER: ClassVar[bool] = True

    def __init__(self, type: Int) -> None:
        super().__init__(str(type))
        code = {8: "b", 16: "h", 32: "i", 64: "q"}[type.bit_width]
        self._code = code if type.is_signed else code.upper()

    def encode(self, values: Sequence[Any], python_types: set[type]) -> Values:
        _check_types(python_types)
        if any(issubclass(python_type, (float, np.floating, Decimal)) for python_type in python_types):
            values = [_to_exact_integer(value) for value in values]
        # `array.array` takes only integers, and rejects values that do not fit; NumPy would truncate floats.
        return np.frombuffer(machine_array(self._code, values), self.dtype)

    def copy_to_numpy(self, slots: Values, mask: Mask | None) -> Values:
        if mask is None:
            return slots.copy()
        out = slots.astype(np.float64)
        out[~mask] = np.nan
        return out

    def encode_numpy(self, array: Values) -> tuple[Values, Mask | None]:
        if array.dtype == self.dtype:
            return array, None
        limits = np.iinfo(self.dtype)
        if array.dtype.kind == "f" and array.size:
            # Compared in Python, exactly; NaN is not within any limits.
            is_within = limits.min <= float(array.min()) <= float(array.max()) < limits.max + 1
            if not is_within or (array != np.trunc(array)).any():
                raise ValueError("a value is not a whole number, or does not fit")
        elif array.dtype.kind not in "iuf":
            raise ValueError(f"NumPy's {array.dtype} is not an integer type")
        elif array.size and not np.can_cast(array.dtype, self.dtype):
            for value in (int(array.min()), int(array.max())):
                if not limits.min <= value <= limits.max:
                    raise ValueError(f"{value} does not fit")
        return array.astype(self.dtype), None


class FloatCodec(ValueCodec):
    """Python floats, rounded to the width, and exactly representable integers; NumPy floats of the same width."""

    __slots__ = ("_max_exact_integer",)

    IS_NUMBER: ClassVar[bool] = True
    EQUAL_BY_BYTES: ClassVar[bool] = False

    def __init__(self, type: FloatingPoint) -> None:
        super().__init__(f"f{type.bit_width // 8}")
        # The mantissa has one bit more than it stores: up to here, every integer is exact.
        self._max_exact_integer = 1 << (np.finfo(self.dtype).nmant + 1)

    def encode(self, values: Sequence[Any], python_types: set[type]) -> Values:
        _check_types(python_types)
        with np.errstate(over="ignore"):
            slots = np.frombuffer(machine_array("d", values), np.float64).astype(self.dtype, copy=False)
        # Rounding is expected of floats, not of integers.
        if python_types != {float} and (np.abs(slots) >= self._max_exact_integer).any():
            for value, slot in zip(values, slots.tolist(), strict=True):
                if isinstance(value, (int, np.integer)) and int(value) != slot:
                    raise ValueError(f"the integer {value} is not exactly representable")
        return slots

    def copy_to_numpy(self, slots: Values, mask: Mask | None) -> Values:
        out = slots.copy()
        if mask is not None:
            out[~mask] = np.nan
        return out

    def encode_numpy(self, array: Values) -> tuple[Values, Mask | None]:
        if array.dtype.kind not in "iuf":
            raise ValueError(f"NumPy's {array.dtype} is not a number type")
        with np.errstate(over="ignore"):
            slots = array.astype(self.dtype, copy=False)
        if array.dtype.kind != "f" and array.size:
            limit = self._max_exact_integer
            # Compared in Python: NumPy would convert the integers to floats, with the same loss.
            if (int(array.min()) < -limit or int(array.max()) > limit) and slots.tolist() != array.tolist():
                raise ValueError("an integer is not exactly representable")
        return slots, None

    def not_equal_mask(self, left: Values, right: Values, nans_equal: bool) -> Mask:
        mask: Mask = left != right
        if nans_equal and mask.any():
            mask &= ~(np.isnan(left) & np.isnan(right))
        return mask

    def identity_keys(self, slots: Values) -> tuple[Values, ...]:
        # By their bits, 0.0 and -0.0 differ; the many NaNs become one.
        bits = slots.view(f"u{self.dtype.itemsize}")
        nan = np.array(np.nan, self.dtype).view(bits.dtype)
        return (np.where(np.isnan(slots), nan, bits),)
