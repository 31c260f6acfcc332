"""«Variable-size Binary Layout»: validity, offsets and data.

>>> import bowstring as bs
>>> array = bs.array(["joe", None, None, "mark"])
>>> array.buffer_values(1).tolist()
[0, 3, 3, 3, 7]
>>> array.buffers()[2].to_bytes()
b'joemark'
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bowstring.datatypes.types import DataType
from bowstring.layouts import utf8_decoding
from bowstring.layouts.base import ArrayData, BufferRole, BufferSpec, Indices, to_buffer
from bowstring.layouts.byte_strings import ByteStringLayout
from bowstring.layouts.concatenation import buffer_sizes, concat_byte_ranges, concat_validity
from bowstring.layouts.equality import bytes_equal
from bowstring.layouts.interleave import InterleavableLayout, SlotSelection
from bowstring.layouts.variable_size import VariableSizeLayout, offsets_equal, offsets_from_lengths
from bowstring.memory.buffer import EMPTY, UINT8, Buffer, Bytes


class BinaryLayout(VariableSizeLayout, ByteStringLayout, InterleavableLayout):
    """Byte strings or UTF-8 strings with 32- or 64-bit offsets."""

    __slots__ = ("is_text",)

    MAX_OFFSET_NAME = "the data buffer's size of"

    def __init__(self, type: DataType, offset_bits: int, is_text: bool) -> None:
        super().__init__(type, offset_bits, (BufferSpec(BufferRole.DATA, UINT8, per_slot=False),))
        self.is_text = is_text

    def data_buffer(self, array: ArrayData) -> Buffer:
        """Return the data buffer."""
        return array.own_buffers[2] or EMPTY

    def max_valid_offset(self, array: ArrayData) -> int:
        return self.data_buffer(array).size

    def create_array(self, lengths: Indices, data: Bytes, validity: Buffer | None) -> ArrayData:
        offsets = offsets_from_lengths(lengths, self.offset_type, self.type)
        return ArrayData(self, len(lengths), (validity, Buffer.of(offsets), to_buffer(data)))

    def bytes_and_offsets(self, array: ArrayData) -> tuple[Bytes, Indices]:
        offsets = self.offsets(array).astype(np.int64)
        first, last = int(offsets[0]), int(offsets[-1])
        return self.data_buffer(array).view(UINT8, first, last - first), offsets - first if first else offsets

    def bytes_at(self, array: ArrayData, index: int) -> bytes | None:
        start, stop = self.offsets_at(array, index)
        data = self.data_buffer(array)
        return data.view(UINT8, start, stop - start).tobytes() if 0 <= start <= stop <= data.size else None

    def compact(self, array: ArrayData) -> ArrayData:
        first, last, offsets = self.compact_offsets(array)
        data = self.data_buffer(array)
        if last - first != data.size:
            data = data.slice(first, last - first)
        buffers = (array.compact_validity(), offsets, data)
        return ArrayData(self, array.length, buffers, null_count=array.null_count)

    def take(self, array: ArrayData, indices: Indices) -> ArrayData:
        if not len(indices):
            return self.from_pylist([])
        return self.interleave(SlotSelection.from_single_array(array, indices))

    def interleave(self, slots: SlotSelection) -> ArrayData:
        starts, lengths = self.value_ranges(slots)
        return self.create_array(lengths, slots.gather_bytes(2, starts, lengths), slots.gather_validity())

    def concat(self, arrays: Sequence[ArrayData]) -> ArrayData:
        lengths, first, last = self.lengths_and_offset_bounds(arrays, buffer_sizes(arrays, 2))
        return self.create_array(lengths, concat_byte_ranges(arrays, 2, first, last - first), concat_validity(arrays))

    def have_equal_values(self, left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
        left_offsets, right_offsets = self.offsets(left), right.buffer_values(1)
        if not bytes_equal(left_offsets, right_offsets) or left_offsets[-1] > self.data_buffer(right).size:
            right_offsets = self.offsets(right)
            if not offsets_equal(left_offsets, right_offsets):
                return False
        size = int(left_offsets[-1] - left_offsets[0])
        left_bytes = self.data_buffer(left).view(UINT8, int(left_offsets[0]), size)
        return bytes_equal(left_bytes, self.data_buffer(right).view(UINT8, int(right_offsets[0]), size))

    def check_full(self, array: ArrayData) -> None:
        offsets = self.offsets(array)
        if self.is_text:
            utf8_decoding.check_utf8(self.data_buffer(array).bytes, offsets, array.validity_mask())
