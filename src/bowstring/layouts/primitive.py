r"""«Fixed-size Primitive Layout»: a validity bitmap, and a buffer of slots of one width.

>>> import bowstring as bs
>>> array = bs.array([1, None, 2, 4, 8], bs.int32())
>>> array.null_count
1
>>> array.buffers()[0].to_bytes()  # 00011101
b'\x1d'
>>> array.buffer_values(1)[[0, 2, 3, 4]].tolist()
[1, 2, 4, 8]
"""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import Any

import numpy as np

from bowstring.datatypes.types import DataType
from bowstring.errors import InvalidDataError, TypeMismatchError
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
    to_buffer,
)
from bowstring.layouts.concatenation import concat_buffer_values, concat_validity
from bowstring.layouts.equality import bytes_equal, is_true_for_all_blocks
from bowstring.layouts.expansion_limits import check_expanded_slots
from bowstring.layouts.interleave import InterleavableLayout, SlotSelection
from bowstring.layouts.value_codecs.base import ValueCodec, not_none_mask
from bowstring.layouts.value_codecs.numbers import NARROW_FLOATS
from bowstring.memory import bitmap
from bowstring.memory.bitmap import Mask
from bowstring.memory.buffer import EMPTY

_BLOCK_VALUES = 1 << 13
"""The number of values to convert at a time, so that they stay in the processor's cache."""


class PrimitiveLayout(InterleavableLayout):
    """Fixed-width slots, which `codec` converts to and from Python values."""

    __slots__ = ("codec", "dtype")

    def __init__(self, type: DataType, codec: ValueCodec) -> None:
        super().__init__(type, (VALIDITY, BufferSpec(BufferRole.DATA, codec.dtype, is_opaque=codec.IS_OPAQUE)))
        self.codec = codec
        self.dtype = codec.dtype

    def create_array(self, slots: Values, mask: Values | None = None) -> ArrayData:
        """Create an array over slots of the layout's NumPy type, without copying if they are contiguous."""
        return ArrayData(self, len(slots), (pack_validity(mask), to_buffer(slots)))

    def fill_null(self, array: ArrayData, valid: Mask, filler: ArrayData) -> ArrayData:
        slots = array.buffer_values(1).copy()
        slots[~valid] = filler.buffer_values(1)[0]
        return self.create_array(slots)

    def from_pylist(self, values: Sequence[Any]) -> ArrayData:
        return self.from_pylist_of_types(values, set(map(type, values)))

    def from_pylist_of_types(self, values: Sequence[Any], python_types: set[type]) -> ArrayData:
        has_nulls = NoneType in python_types
        valid_values = [value for value in values if value is not None] if has_nulls else values
        try:
            slots = self.codec.encode(valid_values, python_types - {NoneType})
        except (TypeError, ValueError, OverflowError) as error:
            raise self._conversion_error(values, error) from None
        if not has_nulls:
            return self.create_array(slots)
        mask = not_none_mask(values)
        slots_with_nulls = np.zeros(len(values), self.dtype)
        slots_with_nulls[mask] = slots
        return self.create_array(slots_with_nulls, mask)

    def _conversion_error(self, values: Sequence[Any], error: Exception) -> TypeMismatchError:
        for index, value in enumerate(values):
            try:
                self.codec.encode([] if value is None else [value], {type(value)} - {NoneType})
            except (TypeError, ValueError, OverflowError) as reason:
                return TypeMismatchError(
                    f"value {index}: {short_repr(value)} cannot be converted to {self.type}{_describe_reason(reason)}"
                )
        return TypeMismatchError(f"the values cannot be converted to {self.type}{_describe_reason(error)}")

    def from_numpy(self, array: Values, mask: Values | None = None) -> ArrayData:
        """Create an array of NumPy values, without copying if the types are equal."""
        if array.ndim > 1 or array.dtype.kind == "O":
            return super().from_numpy(array, mask)
        if mask is None and self.codec.IS_NUMBER and array.dtype == self.dtype:
            return self.create_array(array)
        if mask is not None and array.dtype.kind == "f":
            array = np.where(mask, array, np.zeros((), array.dtype))  # maybe NaN, which an integer can't be
        try:
            slots, own_mask = self.codec.encode_numpy(array)
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeMismatchError(
                f"NumPy type {array.dtype} cannot be converted to {self.type}{_describe_reason(error)}"
            ) from None
        if mask is not None:
            own_mask = mask if own_mask is None else mask & own_mask
        return self.create_array(slots, own_mask)

    def value_at(self, array: ArrayData, index: int, max_elements: int | None = None) -> Any:
        if array.is_null_at(index):
            return None
        data = array.own_buffers[1]
        if data is None:
            return super().value_at(array, index)
        if self.codec.IS_NUMBER:
            value = data.element(self.dtype, array.offset + index)
            return value if max_elements is None or self.dtype not in NARROW_FLOATS else self.dtype.type(value)
        return self.codec.decode(data.view(self.dtype, array.offset + index, 1))[0]

    def to_pylist(self, array: ArrayData) -> list[Any]:
        slots, mask = array.buffer_values(1), array.validity_mask()
        if mask is not None and not self.codec.IS_NUMBER:  # null slots may contain invalid values
            slots = slots.copy()
            slots[~mask] = np.zeros((), self.dtype)
        return set_nulls_to_none(self.codec.decode(slots), mask)

    def view_as_numpy(self, array: ArrayData) -> Values | None:
        return None if array.null_count else self.codec.view_as_numpy(array.buffer_values(1))

    def copy_to_numpy(self, array: ArrayData) -> Values:
        return self.codec.copy_to_numpy(array.buffer_values(1), array.validity_mask())

    def compact(self, array: ArrayData) -> ArrayData:
        data = array.own_buffers[1]
        width = self.dtype.itemsize
        if data is None or (array.offset == 0 and data.size == array.length * width and array.null_count == 0):
            slots = data
        else:
            slots = array.slice_buffer(1)
        return ArrayData(self, array.length, (array.compact_validity(), slots), null_count=array.null_count)

    def take(self, array: ArrayData, indices: Indices) -> ArrayData:
        slots = array.buffer_values(1)
        check_expanded_slots(len(indices), slots.itemsize, slots.nbytes)
        return ArrayData(self, len(indices), (array.take_validity(indices), to_buffer(slots[indices])))

    def interleave(self, slots: SlotSelection) -> ArrayData:
        return ArrayData(self, len(slots), (slots.gather_validity(), to_buffer(slots.gather_buffer_values(1))))

    def interleave_ranges(self, slots: SlotSelection, lengths: Indices) -> ArrayData | None:
        # As bytes: taking 200,000 lists of 128 int32 on average in random order, each element by an index of its own
        # takes three times as long.
        width = self.dtype.itemsize
        if not width or any(array.null_count for array in slots.arrays):
            return None
        for array in slots.arrays:
            array.slice_buffer(1)  # raises if it is too short
        values = slots.gather_bytes(1, slots.physical_indices * width, lengths * width).view(self.dtype)
        return ArrayData(self, len(values), (None, to_buffer(values)))

    def concat(self, arrays: Sequence[ArrayData]) -> ArrayData:
        slots = concat_buffer_values(arrays, 1)
        return ArrayData(self, len(slots), (concat_validity(arrays), to_buffer(slots)))

    def have_equal_values(self, left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
        left_slots, right_slots = left.buffer_values(1), right.buffer_values(1)
        if self.codec.EQUAL_BY_BYTES:
            return bytes_equal(left_slots, right_slots)
        not_equal_mask = self.codec.not_equal_mask
        return is_true_for_all_blocks(
            lambda first, last: not not_equal_mask(left_slots[first:last], right_slots[first:last], nans_equal).any(),
            left.length,
            self.dtype.itemsize,
        )

    def have_equal_valid_values(self, left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
        left_slots, right_slots, validity = left.buffer_values(1), right.buffer_values(1), left.own_buffers[0] or EMPTY
        not_equal_mask = self.codec.not_equal_mask

        def is_block_equal(first: int, last: int) -> bool:
            differs = not_equal_mask(left_slots[first:last], right_slots[first:last], nans_equal)
            return not differs.any() or not (differs & bitmap.unpack(validity, left.offset + first, last - first)).any()

        return is_true_for_all_blocks(is_block_equal, left.length, self.dtype.itemsize)

    def sort_keys(self, array: ArrayData) -> tuple[Values, ...] | None:
        return self.codec.sort_keys(array.buffer_values(1))

    def identity_keys(self, array: ArrayData) -> tuple[Values, ...]:
        return self.codec.identity_keys(array.buffer_values(1))

    def check_full(self, array: ArrayData) -> None:
        slots, validity = array.buffer_values(1), array.validity
        for first in range(0, array.length if slots.itemsize else 0, _BLOCK_VALUES):
            block = slots[first : first + _BLOCK_VALUES]
            if self.codec.find_invalid_slot(block) is None:
                continue
            valid = np.arange(len(block))
            if validity is not None:  # ignore invalid values under nulls
                valid = np.flatnonzero(bitmap.unpack(validity, array.offset + first, len(block)))
            fault = self.codec.find_invalid_slot(block[valid])
            if fault is not None:
                raise InvalidDataError(f"values[{first + int(valid[fault[0]])}]: {fault[1]} ({self.type})")


def _describe_reason(error: Exception) -> str:
    """Return the reason of a failed conversion. Codecs raise a `ValueError` with one; other errors are Python's."""
    if isinstance(error, ValueError):
        return f": {error}"
    return ": out of range" if isinstance(error, OverflowError) else ""
