r"""«Fixed-size Primitive Layout», bit-packed: boolean values of one bit.

>>> import bowstring as bs
>>> bs.array([True, False, None, True]).buffers()[1].to_bytes()
b'\t'
"""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import Any

import numpy as np

from bowstring.datatypes.types import DataType
from bowstring.errors import TypeMismatchError
from bowstring.layouts.base import (
    VALIDITY,
    ArrayData,
    BufferRole,
    BufferSpec,
    Indices,
    Values,
    pack_validity,
    set_nulls_to_none,
    short_repr,
)
from bowstring.layouts.concatenation import concat_bits, concat_validity
from bowstring.layouts.interleave import InterleavableLayout, SlotSelection
from bowstring.layouts.value_codecs.base import not_none_mask
from bowstring.memory import bitmap


class BooleanLayout(InterleavableLayout):
    """A validity bitmap and a bitmap of values."""

    __slots__ = ()

    def __init__(self, type: DataType) -> None:
        super().__init__(type, (VALIDITY, BufferSpec(BufferRole.DATA)))

    def create_array(self, values: Values, mask: Values | None = None) -> ArrayData:
        """Create an array of NumPy booleans, packed."""
        return ArrayData(self, len(values), (pack_validity(mask), bitmap.pack(values)))

    def unpack_values(self, array: ArrayData) -> Values:
        """Return the values as NumPy booleans, copied."""
        data = array.own_buffers[1]
        return np.zeros(array.length, np.bool_) if data is None else bitmap.unpack(data, array.offset, array.length)

    def from_pylist(self, values: Sequence[Any]) -> ArrayData:
        return self.from_pylist_of_types(values, set(map(type, values)))

    def from_pylist_of_types(self, values: Sequence[Any], python_types: set[type]) -> ArrayData:
        if not {bool, np.bool_, NoneType}.issuperset(python_types):
            index = next(i for i, v in enumerate(values) if type(v) not in (bool, np.bool_, NoneType))
            raise TypeMismatchError(f"value {index}: {short_repr(values[index])} cannot be converted to bool")
        mask = not_none_mask(values) if NoneType in python_types else None
        return self.create_array(np.fromiter(values, np.bool_, len(values)), mask)

    def from_numpy(self, array: Values, mask: Values | None = None) -> ArrayData:
        if array.ndim == 1 and array.dtype.kind in "biu":
            return self.create_array(array.astype(np.bool_, copy=False), mask)
        return super().from_numpy(array, mask)

    def value_at(self, array: ArrayData, index: int, max_elements: int | None = None) -> Any:
        data = array.own_buffers[1]
        if data is None:
            return super().value_at(array, index)
        return None if array.is_null_at(index) else bitmap.get(data, array.offset + index)

    def to_pylist(self, array: ArrayData) -> list[Any]:
        return set_nulls_to_none(self.unpack_values(array).tolist(), array.validity_mask())

    def copy_to_numpy(self, array: ArrayData) -> Values:
        return self.unpack_values(array) if array.null_count == 0 else super().copy_to_numpy(array)

    def compact(self, array: ArrayData) -> ArrayData:
        data = array.own_buffers[1]
        bits = data if data is None else bitmap.realign_zero_padded(data, array.offset, array.length)
        return ArrayData(self, array.length, (array.compact_validity(), bits), null_count=array.null_count)

    def take(self, array: ArrayData, indices: Indices) -> ArrayData:
        bits = bitmap.pack(self.unpack_values(array)[indices])
        return ArrayData(self, len(indices), (array.take_validity(indices), bits))

    def interleave(self, slots: SlotSelection) -> ArrayData:
        return ArrayData(self, len(slots), (slots.gather_validity(), bitmap.pack(slots.gather_bits(1))))

    def concat(self, arrays: Sequence[ArrayData]) -> ArrayData:
        values = concat_bits(arrays, 1)
        return ArrayData(self, len(values), (concat_validity(arrays), bitmap.pack(values)))

    def have_equal_values(self, left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
        left_bits, right_bits = left.own_buffers[1], right.own_buffers[1]
        if left_bits is None or right_bits is None:
            return bool(np.array_equal(self.unpack_values(left), self.unpack_values(right)))
        left_bits = bitmap.realign(left_bits, left.offset, left.length)
        return bitmap.is_equal(left_bits, bitmap.realign(right_bits, right.offset, right.length), left.length)

    def have_equal_valid_values(self, left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
        return not ((self.unpack_values(left) != self.unpack_values(right)) & left.validity_mask()).any()

    def sort_keys(self, array: ArrayData) -> tuple[Values, ...]:
        return (self.unpack_values(array),)
