"""Offsets, which «Variable-size Binary Layout» and «Variable-size List Layout» have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from bowstring.datatypes.types import DataType
from bowstring.errors import InvalidArgumentError, InvalidDataError
from bowstring.layouts.base import VALIDITY, ArrayData, BufferRole, BufferSpec, Indices, Layout, Values, find_first_true
from bowstring.layouts.concatenation import array_lengths, concat_buffer_values
from bowstring.layouts.equality import bytes_equal, is_true_for_all_blocks
from bowstring.layouts.interleave import SlotSelection
from bowstring.memory.buffer import Buffer


class VariableSizeLayout(Layout):
    """A validity bitmap, and 32- or 64-bit offsets into data or a child."""

    __slots__ = ("offset_type",)

    MAX_OFFSET_NAME: ClassVar[str]
    """The name of `max_valid_offset` in messages."""

    def __init__(
        self, type: DataType, offset_bits: int, buffers: Sequence[BufferSpec] = (), children: Sequence[Layout] = ()
    ) -> None:
        self.offset_type = np.dtype(f"i{offset_bits // 8}")
        offsets = BufferSpec(BufferRole.OFFSETS, self.offset_type, num_extra=1)
        super().__init__(type, (VALIDITY, offsets, *buffers), children)

    @abstractmethod
    def max_valid_offset(self, array: ArrayData) -> int:
        """Return the size of the data or the length of the child, which offsets must not exceed."""

    def offsets(self, array: ArrayData) -> Values:
        """Return the offsets; raises `InvalidDataError` unless they ascend and are between 0 and `max_valid_offset`.

        The buffer of an empty array is ignored; its offset is 0.
        """
        if not array.length:
            return np.zeros(1, self.offset_type)
        offsets, max_valid_offset = array.buffer_values(1), self.max_valid_offset(array)
        if offsets[0] < 0:
            raise InvalidDataError(f"offsets[0] = {offsets[0]} is negative")
        # Compared and not subtracted: a difference of untrusted offsets could wrap around.
        falling = offsets[1:] < offsets[:-1]
        if falling.any():
            i = find_first_true(falling)
            raise InvalidDataError(f"offsets[{i + 1}] = {offsets[i + 1]} is less than offsets[{i}] = {offsets[i]}")
        if offsets[-1] > max_valid_offset:
            i = find_first_true(offsets > max_valid_offset)
            raise InvalidDataError(f"offsets[{i}] = {offsets[i]} exceeds {self.MAX_OFFSET_NAME} {max_valid_offset}")
        return offsets

    def offsets_at(self, array: ArrayData, index: int) -> tuple[int, int]:
        """Return the offsets of the start and the end of a slot's value, unchecked."""
        offsets, slot = array.own_buffers[1], array.offset + index
        if offsets is None:
            return 0, 0
        return offsets.element(self.offset_type, slot), offsets.element(self.offset_type, slot + 1)

    def compact_offsets(self, array: ArrayData) -> tuple[int, int, Buffer]:
        """Return the first and the last offset, and a buffer of the offsets from 0, copied only if necessary."""
        offsets, width = array.buffer_values(1) if array.length else self.offsets(array), self.offset_type.itemsize
        first, last = int(offsets[0]), int(offsets[-1])
        if not 0 <= first <= last <= self.max_valid_offset(array):
            self.offsets(array)  # raises
        buffer, size = array.own_buffers[1], (array.length + 1) * width
        if first or not array.length or buffer is None:
            return first, last, Buffer.of(offsets - offsets[0])
        return first, last, buffer.slice(array.offset * width, size) if buffer.size > size else buffer

    def value_ranges(self, slots: SlotSelection) -> tuple[Indices, Indices]:
        """Return the starts and lengths of the selected slots' values. Raises as `offsets`."""
        max_valid_offsets = np.array([self.max_valid_offset(array) for array in slots.arrays])
        # Two offsets per slot, the start and the end, shape (slots, 2): slots need not be adjacent.
        starts, stops = slots.gather_buffer_values(1, 2).reshape(-1, 2).T.astype(np.int64)
        lengths, exceeds = stops - starts, stops > slots.broadcast_to_slots(max_valid_offsets)
        if starts.min() < 0 or lengths.min() < 0 or exceeds.any():
            invalid = (starts < 0) | (lengths < 0) | exceeds
            self.offsets(slots.arrays[int(slots.array_indices[find_first_true(invalid)])])  # raises
        return starts, lengths

    def lengths_and_offset_bounds(
        self, arrays: Sequence[ArrayData], max_valid_offsets: Indices
    ) -> tuple[Indices, Indices, Indices]:
        """Return the lengths of all values of arrays, and each array's first and last offset.

        `max_valid_offsets` has the `max_valid_offset` of each array. The offsets of an empty array are 0. Raises as
        `offsets`.
        """
        slots = array_lengths(arrays)
        # An array of n slots has n + 1 offsets, from index ends - slots - 1 to ends - 1 of the concatenated ones.
        offsets = concat_buffer_values(arrays, 1).astype(np.int64)
        ends = np.cumsum(slots + 1)
        first, last = offsets[ends - slots - 1], offsets[ends - 1]
        first[slots == 0] = last[slots == 0] = 0
        # Without the differences between the last offset of one array and the first of the next.
        lengths = np.delete(np.diff(offsets), ends[:-1] - 1)
        # Differences of offsets that are not negative can't wrap around. Empty arrays are checked in vain.
        if offsets.min() < 0 or (lengths < 0).any() or (last > max_valid_offsets).any():
            for array in arrays:
                self.offsets(array)  # raises
        return lengths, first, last

    def check(self, array: ArrayData) -> None:
        offsets, limit = array.buffer_values(1), self.max_valid_offset(array)
        if not 0 <= offsets[0] <= offsets[-1] <= limit:
            raise InvalidDataError(
                f"the offsets run from {offsets[0]} to {offsets[-1]}, not within {self.MAX_OFFSET_NAME} {limit}"
            )

    def check_full(self, array: ArrayData) -> None:
        self.offsets(array)


def offsets_from_lengths(lengths: Values, dtype: np.dtype[Any], data_type: DataType) -> Values:
    """Return the offsets for lengths, from 0. Raises `InvalidArgumentError` if they do not fit the offset type."""
    total = int(lengths.sum(dtype=np.int64))
    # `-` binds more tightly than `>>`: these are the bits of a signed number without its sign.
    if total >> 8 * dtype.itemsize - 1:
        raise InvalidArgumentError(
            f"{total} elements are too many for the 32-bit offsets of {data_type}; use the large type"
        )
    offsets = np.zeros(len(lengths) + 1, dtype)
    np.add.accumulate(lengths, dtype=dtype, out=offsets[1:])
    return offsets


def offsets_equal(left: Values, right: Values) -> bool:
    """Return whether two offset arrays are equal relative to their first offset."""
    if left[0] == right[0]:
        return bytes_equal(left, right)
    left_base, right_base = left[0], right[0]

    def is_block_equal(first: int, last: int) -> bool:
        return not (left[first:last] - left_base != right[first:last] - right_base).any()

    return is_true_for_all_blocks(is_block_equal, len(left), left.itemsize)
