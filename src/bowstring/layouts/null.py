"""«Null Layout»: a length, without buffers.

>>> import bowstring as bs
>>> bs.array([None, None]).buffers
()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.errors import DataTypeError
from bowstring.layouts.array import Array
from bowstring.layouts.base import Indices, Layout, Values, short_repr
from bowstring.layouts.gather import check_length
from bowstring.memory.bitmap import Mask

if TYPE_CHECKING:
    from bowstring.datatypes.types import DataType


class NullLayout(Layout):
    """Arrays of nulls only."""

    __slots__ = ()

    def __init__(self, type: DataType) -> None:
        super().__init__(type, ())

    def of(self, length: int) -> Array:
        """Create an array of `length` nulls."""
        return Array(self, length, (), null_count=length)

    def null_count(self, array: Array) -> int:
        return array.length

    def valid_mask(self, array: Array) -> Mask | None:
        check_length(array)
        return np.zeros(array.length, np.bool_) if array.length else None

    def build(self, values: Sequence[Any]) -> Array:
        for index, value in enumerate(values):
            if value is not None:
                raise DataTypeError(f"value {index}: {short_repr(value)} is not null")
        return self.of(len(values))

    def to_pylist(self, array: Array) -> list[Any]:
        return [None] * array.length

    def compact(self, array: Array) -> Array:
        return self.of(array.length)

    def take(self, array: Array, indices: Indices) -> Array:
        return self.of(len(indices))

    def concat(self, arrays: Sequence[Array]) -> Array:
        return self.of(sum(array.length for array in arrays))

    def equal(self, left: Array, right: Array, nans_equal: bool) -> bool:
        return True

    def sort_keys(self, array: Array) -> tuple[Values, ...]:
        return (np.zeros(array.length, np.int8),)
