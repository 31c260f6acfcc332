"""Copy slots of several arrays of one layout to a new array, in any order, like arrow-rs' `interleave`.

The elements of all arrays are read by their addresses in one step, instead of a step for each array.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import compress

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.layouts.base import ArrayData, Indices, Layout, Values, check_expanded_arrays
from bowstring.layouts.expansion_limits import check_expanded_bytes, check_expanded_slots
from bowstring.layouts.gather import copy_ranges, gather_bytes, range_indices, sum_lengths
from bowstring.memory import bitmap
from bowstring.memory.bitmap import Mask
from bowstring.memory.buffer import EMPTY, UINT8, Buffer, Bytes, allocate, view_enclosing_range
from bowstring.memory.forks import cached_property

_MAX_RUN_BYTES = (1 << 31) - 1
"""The size of the longest run that is copied as one element: NumPy's elements have no more bytes."""


class InterleavableLayout(Layout):
    """A layout whose slots are gathered from several arrays in one step."""

    __slots__ = ()

    @abstractmethod
    def interleave(self, slots: SlotSelection) -> ArrayData | None:
        """Return the selected slots, copied; None if children or dictionaries do not allow this in one step."""

    def interleave_ranges(self, slots: SlotSelection, lengths: Indices) -> ArrayData | None:
        """Return ranges of these lengths from the selected slots on, copied; None if the layout has no faster way than
        `interleave`. The ranges must be within the arrays.
        """
        return None


class SlotSelection:
    """Runs of slots of several arrays: `run_length` slots of `arrays[array_indices[i]]` from slot `indices[i]`.

    There is at least one run, and every run is within its array.
    """

    def __init__(
        self, arrays: Sequence[ArrayData], array_indices: Indices, indices: Indices, run_length: int = 1
    ) -> None:
        self.arrays = arrays
        self._runs = array_indices, indices, run_length

    def __len__(self) -> int:
        array_indices, _, run_length = self._runs
        return len(array_indices) * run_length

    @cached_property
    def array_indices(self) -> Indices:
        """The index of each slot's array."""
        array_indices, _, run_length = self._runs
        return array_indices if run_length == 1 else np.repeat(array_indices, run_length)

    @cached_property
    def slot_indices(self) -> Indices:
        """The index of each slot in its array."""
        _, indices, run_length = self._runs
        return indices if run_length == 1 else (indices[:, None] + np.arange(run_length)).reshape(-1)

    @classmethod
    def from_single_array(cls, array: ArrayData, indices: Indices) -> SlotSelection:
        """Slots of one array, at least one."""
        return cls([array], np.zeros_like(indices), indices)

    @property
    def layout(self) -> Layout:
        """The layout of all arrays."""
        return self.arrays[0].layout

    def interleave(self) -> ArrayData | None:
        """Return the slots, copied; None if the layout does not support this in one step."""
        layout = self.layout
        return layout.interleave(self) if isinstance(layout, InterleavableLayout) else None

    def broadcast_to_slots(self, array_values: Indices) -> Indices:
        """Broadcast one value per array to one per slot, shape (slots,), or (1,) for a single array."""
        return array_values if len(self.arrays) == 1 else array_values[self.array_indices]

    @property
    def physical_indices(self) -> Indices:
        """Return the indices of the slots in the buffers or children of their arrays."""
        return self.broadcast_to_slots(np.array([array.offset for array in self.arrays], np.int64)) + self.slot_indices

    def with_storage_arrays(self) -> SlotSelection:
        """The same slots of the storage of extension arrays."""
        return SlotSelection([array.storage for array in self.arrays], *self._runs)

    def gather_buffer_values(self, buffer_index: int, count: int = 1) -> Values:
        """Return `count` elements of a buffer from each slot on, concatenated; copied.

        Raises `InvalidDataError` if a buffer is shorter than its array requires, `LimitError` for many more bytes than
        they have.
        """
        spec = self.layout.buffers[buffer_index]
        assert spec.dtype is not None
        width, buffers = spec.dtype.itemsize, []
        if not width:
            return np.empty(len(self) * count, spec.dtype)
        for array in self.arrays:
            source, start = array.own_buffers[buffer_index], array.offset * width
            size = (array.length + spec.num_extra) * width
            # `buffer_values` raises if the buffer is too short, and returns zeros if an empty array has none.
            if source is None or start + size > source.size:
                source, start = Buffer.of(np.ascontiguousarray(array.buffer_values(buffer_index))), 0
            buffers.append(Buffer(source.memory, source.offset + start, size))
        check_expanded_slots(len(self) * count, width, sum(source.size for source in buffers))
        starts, memory = view_enclosing_range(buffers)
        # `count` elements from a slot on are a run of that length, so both cases are copied as runs.
        slots = self if count == 1 else SlotSelection(self.arrays, self.array_indices, self.slot_indices, count)
        array_indices, indices, run_length = slots._runs
        if run_length * width > _MAX_RUN_BYTES:
            array_indices, indices, run_length = slots.array_indices, slots.slot_indices, 1
        if run_length == 1 and not (starts % width).any():
            # The view starts at the lowest address, so that elements at multiples of their width from there have an
            # index in it.
            typed: Values = memory[: memory.size // width * width].view(spec.dtype)
            return typed[self.broadcast_to_slots(starts // width) + indices]  # type: ignore[no-any-return]
        # Unaligned elements, or runs: copy the bytes of each run as one element, from a view that begins at any byte.
        bases = starts if len(self.arrays) == 1 else starts[array_indices]
        # Within the enclosing range, as each run is within its array: no overflow.
        byte_offsets, run_bytes = bases + indices * width, run_length * width
        windows = np.ndarray(memory.size - run_bytes + 1, np.dtype((np.void, run_bytes)), memory, strides=(1,))
        return windows[byte_offsets].view(spec.dtype)  # type: ignore[no-any-return]

    def gather_bits(self, buffer_index: int, has_bits: Sequence[bool] | None = None) -> Mask:
        """Return the slots' bits of a buffer; True for slots of arrays without one, by `has_bits`."""
        if has_bits is not None and not all(has_bits):
            bits = np.ones(len(self), np.bool_)
            with_bits = np.array(has_bits)[self.array_indices].nonzero()[0]
            if with_bits.size:
                renumbered = np.cumsum(has_bits) - 1  # the index of each array among those with bits
                arrays = list(compress(self.arrays, has_bits))
                bits[with_bits] = SlotSelection(
                    arrays, renumbered[self.array_indices[with_bits]], self.slot_indices[with_bits]
                ).gather_bits(buffer_index)
            return bits
        buffers = []
        for array in self.arrays:
            source = array.own_buffers[buffer_index]
            if source is None or source.size < bitmap.size_bytes(array.offset + array.length):
                raise InvalidDataError(
                    f"an array of {array.length} slots has a bitmap of {source.size if source else 0} bytes"
                )
            buffers.append(source)
        starts, memory = view_enclosing_range(buffers)
        bit_indices = self.physical_indices
        # Only the byte of each bit is read, shape (slots,), and not the bitmaps between.
        source_bytes = memory[self.broadcast_to_slots(starts) + (bit_indices >> 3)]
        return (source_bytes >> (bit_indices & 7).astype(UINT8) & 1).view(np.bool_)

    def gather_validity(self) -> Buffer | None:
        """Return the validity bitmap of the slots; None if none is null."""
        has_bits = [array.own_buffers[0] is not None and array.known_null_count != 0 for array in self.arrays]
        if not any(has_bits):
            return None
        mask = self.gather_bits(0, has_bits)
        return None if mask.all() else bitmap.pack(mask)

    def gather_bytes(self, buffer_index: int, starts: Indices, lengths: Indices) -> Bytes:
        """Return `lengths[i]` bytes from byte `starts[i]` on of a buffer of each slot's array, concatenated; copied.

        They must be within the buffers. Raises `LimitError` for many more bytes than these have.
        """
        buffers = [array.own_buffers[buffer_index] or EMPTY for array in self.arrays]
        total = sum_lengths(lengths)
        check_expanded_bytes(total, sum(source.size for source in buffers), len(lengths))
        firsts, memory = view_enclosing_range(buffers)
        if memory is buffers[0].memory.bytes:
            return gather_bytes(memory, self.broadcast_to_slots(firsts) + starts, lengths)
        # A view over several owners may be read only by indexing: see `view_enclosing_range`.
        out = allocate(total, is_zeroed=False)
        copy_ranges(out, np.cumsum(lengths) - lengths, memory, self.broadcast_to_slots(firsts) + starts, lengths)
        return out

    def take_child_ranges(self, child_index: int, starts: Indices, lengths: Indices) -> ArrayData | None:
        """Return `lengths[i]` slots from slot `starts[i]` on of a child of each slot's array, as `interleave`.

        They must be within the children. Raises `LimitError` for many more slots than these have bytes.
        """
        arrays = [array.children[child_index] for array in self.arrays]
        total = sum_lengths(lengths)
        if not total:
            return arrays[0].layout.take(arrays[0], starts[:0])
        check_expanded_arrays(arrays, total)
        run_length, layout = int(lengths[0]), arrays[0].layout
        # Runs of one length, as of fixed-size lists, stay runs down to the buffers; others become single slots here.
        if (lengths == run_length).all():
            return SlotSelection(arrays, self.array_indices, starts, run_length).interleave()
        if isinstance(layout, InterleavableLayout):
            array = layout.interleave_ranges(SlotSelection(arrays, self.array_indices, starts), lengths)
            if array is not None:
                return array
        indices = range_indices(starts, lengths)
        return SlotSelection(arrays, np.repeat(self.array_indices, lengths), indices).interleave()
