"""The contract between the primitive layout and the meaning of its slots."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from bowstring.layouts.base import Values
    from bowstring.memory.bitmap import Mask


class Scalars(ABC):
    """How slots of NumPy type `dtype` stand for the values of one data type.

    Arrays that are passed in have shape (n,), hold no nulls, and are never written to.
    """

    __slots__ = ("_fill", "dtype")

    IS_OPAQUE: ClassVar[bool] = False
    """Whether slots are strings of bytes, which have no byte order."""
    IS_NUMBER: ClassVar[bool] = False
    """Whether values are the numbers that NumPy takes slots for."""
    BYTES_DECIDE: ClassVar[bool] = True
    """Whether slots hold equal values exactly where they hold the same bytes."""

    def __init__(self, dtype: Any, fill: Any = 0) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self._fill = fill

    @property
    def fill(self) -> Any:
        """A Python value to stand in null slots."""
        return self._fill

    @abstractmethod
    def encode(self, values: Sequence[Any]) -> Values:
        """Python values as slots; raises TypeError, ValueError or OverflowError for one that does not fit exactly."""

    def plain(self, values: list[Any]) -> Values | None:
        """As `encode` for values that are neither None nor truth values, but in the quickest way, and None where that
        does not do: for values of other Python types than their own, and such as do not fit.
        """
        return None

    def plain_exact(self, values: list[Any]) -> Values | None:
        """As `plain`, but None also where values, None too, are not of exactly the one Python type of the data type."""
        return self.plain(values)

    def plain_few(self, values: Sequence[Any]) -> bytes | None:
        """As `plain_exact`, quicker for few values: their slots as bytes."""
        return None

    @abstractmethod
    def decode(self, slots: Values) -> list[Any]:
        """Slots as Python values."""

    def as_numpy(self, slots: Values) -> Values | None:
        """The slots as NumPy shows such values, sharing their memory; None if it has no such form."""
        return None

    def as_numpy_copy(self, slots: Values, mask: Mask | None) -> Values:
        """The slots as NumPy shows such values, copied; null slots (False in the mask) as NaN, NaT or None."""
        out = np.fromiter(self.decode(slots), np.dtype(object), len(slots))
        if mask is not None:
            out[~mask] = None
        return out

    def from_numpy(self, array: Values) -> tuple[Values, Mask | None]:
        """A NumPy array of shape (n,) as slots, without copying where the types are the same, and which of them are
        valid.

        Raises TypeError, ValueError or OverflowError where some value does not fit exactly.
        """
        return self.encode(array.tolist()), None

    def differ(self, left: Values, right: Values, nans_equal: bool) -> Mask:
        """Which slots do not have equal values, shape (n,)."""
        apart: Mask = left != right
        return apart

    def order(self, slots: Values) -> tuple[Values, ...] | None:
        """NumPy arrays of shape (n,), the most significant first, that compare as the values do; None if none do."""
        return (slots,)

    def identity(self, slots: Values) -> tuple[Values, ...]:
        """NumPy arrays of shape (n,) that are equal where the values are stored alike (every NaN alike); by default
        those of `order`.
        """
        found = self.order(slots)
        assert found is not None
        return found

    def check(self, slots: Values) -> tuple[int, str] | None:
        """The first slot that holds no legal value and what is wrong with it, or None."""
        return None


def is_bytes(value: Any) -> bool:
    """Whether a Python value is a string of bytes."""
    return isinstance(value, (bytes, bytearray)) or (isinstance(value, memoryview) and value.nbytes == len(value))


def as_words(slots: Values) -> Values:
    """Slots of 2**n bytes as unsigned integers of at most 64 bits, shape (n, words)."""
    width = slots.dtype.itemsize
    word = np.dtype(f"<u{min(width, 8)}") if width in (1, 2, 4) or width % 8 == 0 else np.dtype("u1")
    return np.ascontiguousarray(slots).view(word).reshape(len(slots), width // word.itemsize)


def words_differ(left: Values, right: Values) -> Mask:
    """Which slots are not the same bytes, shape (n,)."""
    apart: Mask = (as_words(left) != as_words(right)).any(axis=1)
    return apart
