"""The interface that the primitive layout uses to convert slots."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.memory.bitmap import Mask

Values: TypeAlias = npt.NDArray[Any]


class ValueCodec(ABC):
    """Converts between slots of NumPy type `dtype` and the values of one data type.

    Arrays passed in have shape (n,), contain no nulls, and are never modified.
    """

    __slots__ = ("dtype",)

    IS_OPAQUE: ClassVar[bool] = False
    """Whether slots are byte strings, which have no byte order."""
    IS_NUMBER: ClassVar[bool] = False
    """Whether NumPy's numbers are the values."""
    EQUAL_BY_BYTES: ClassVar[bool] = True
    """Whether two values are equal exactly if their bytes are."""

    def __init__(self, dtype: Any) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)

    @abstractmethod
    def encode(self, values: Sequence[Any], python_types: set[type]) -> Values:
        """Convert Python values, whose types are `python_types`, to slots.

        Raises TypeError, ValueError or OverflowError if a value is not exactly representable.
        """

    def decode(self, slots: Values) -> list[Any]:
        """Convert slots to Python values."""
        values: list[Any] = slots.tolist()
        return values

    def view_as_numpy(self, slots: Values) -> Values | None:
        """View slots as NumPy's type for these values, without copying; None if NumPy has none."""
        return slots

    def copy_to_numpy(self, slots: Values, mask: Mask | None) -> Values:
        """Copy slots to NumPy's type for these values; null slots (False in the mask) become NaN, NaT or None."""
        out = np.fromiter(self.decode(slots), np.dtype(object), len(slots))
        if mask is not None:
            out[~mask] = None
        return out

    def encode_numpy(self, array: Values) -> tuple[Values, Mask | None]:
        """Convert a NumPy array of shape (n,) to slots and a validity mask (None if all are valid).

        Does not copy if the types are the same. Raises TypeError, ValueError or OverflowError if a value is not exactly
        representable.
        """
        values = array.tolist()
        return self.encode(values, set(map(type, values))), None

    def not_equal_mask(self, left: Values, right: Values, nans_equal: bool) -> Mask:
        """Compare slot by slot; returns a mask of shape (n,). By default slots are equal if their bytes are."""
        mask = np.zeros(len(left), np.bool_)
        for left_column, right_column in zip(view_as_words(left).T, view_as_words(right).T, strict=True):
            mask |= left_column != right_column
        return mask

    def sort_keys(self, slots: Values) -> tuple[Values, ...] | None:
        """NumPy arrays of shape (n,) that sort like the values, most significant first; None if there is no order."""
        return (slots,)

    def identity_keys(self, slots: Values) -> tuple[Values, ...]:
        """NumPy arrays of shape (n,) that are equal exactly if the stored values are; all NaN are equal.

        By default the arrays of `sort_keys`.
        """
        keys = self.sort_keys(slots)
        assert keys is not None
        return keys

    def find_invalid_slot(self, slots: Values) -> tuple[int, str] | None:
        """Return the index of the first invalid slot and a description of the fault, or None."""
        return None


def not_none_mask(values: Sequence[Any]) -> Mask:
    """Return which Python values are not None, shape (len(values),)."""
    return np.frombuffer(bytes([value is not None for value in values]), np.bool_)


def is_bytes_like(value: Any) -> bool:
    """Whether a Python value is a byte string."""
    return isinstance(value, (bytes, bytearray)) or (isinstance(value, memoryview) and value.nbytes == len(value))


def view_as_words(slots: Values) -> Values:
    """View slots as unsigned integers of at most 64 bits, shape (n, words)."""
    width = slots.dtype.itemsize
    word = np.dtype(f"<u{min(width, 8)}") if width in (1, 2, 4) or width % 8 == 0 else np.dtype("u1")
    return np.ascontiguousarray(slots).view(word).reshape(len(slots), width // word.itemsize)
