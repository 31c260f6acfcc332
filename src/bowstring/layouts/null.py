"""«Null Layout»: a length, without buffers.

>>> import bowstring as bs
>>> bs.array([None, None]).own_buffers
()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bowstring.datatypes.types import DataType
from bowstring.errors import TypeMismatchError
from bowstring.layouts.base import ArrayData, Indices, Layout, Values, check_expanded_array, short_repr
from bowstring.memory.bitmap import Mask


class NullLayout(Layout):
    """Arrays of nulls only."""

    __slots__ = ()

    def __init__(self, type: DataType) -> None:
        super().__init__(type, ())

    def nulls(self, length: int) -> ArrayData:
        return ArrayData(self, length, (), null_count=length)

    def count_nulls(self, array: ArrayData) -> int:
        return array.length

    def logical_validity_mask(self, array: ArrayData, in_unions: bool = True) -> Mask | None:
        check_expanded_array(array)
        return np.zeros(array.length, np.bool_) if array.length else None

    def from_pylist(self, values: Sequence[Any]) -> ArrayData:
        for index, value in enumerate(values):
            if value is not None:
                raise TypeMismatchError(f"value {index}: {short_repr(value)} is not null")
        return self.nulls(len(values))

    def to_pylist(self, array: ArrayData) -> list[Any]:
        return [None] * array.length

    def compact(self, array: ArrayData) -> ArrayData:
        return self.nulls(array.length)

    def take(self, array: ArrayData, indices: Indices) -> ArrayData:
        return self.nulls(len(indices))

    def concat(self, arrays: Sequence[ArrayData]) -> ArrayData:
        return self.nulls(sum(array.length for array in arrays))

    def have_equal_values(self, left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
        return True

    def sort_keys(self, array: ArrayData) -> tuple[Values, ...]:
        return (np.zeros(array.length, np.int8),)
