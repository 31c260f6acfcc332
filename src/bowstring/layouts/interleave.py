"""Slots of several arrays of one layout in a new array, in any order, as arrow-rs' `interleave` has it.

The elements of all arrays are read by their addresses in one step, instead of a step for each array.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.layouts import gather
from bowstring.memory import bitmap
from bowstring.memory.bitmap import Mask
from bowstring.memory.buffer import EMPTY, UINT8, Buffer, Bytes, allocate, memory_between

if TYPE_CHECKING:
    from bowstring.layouts.array import Array
    from bowstring.layouts.base import Indices, Values


_LONGEST_RUN = 1 << 20


class SlotSelection:
    """Slots selected from several arrays: for each i, `run` slots of `arrays[array_indices[i]]` from slot `indices[i]`.

    There is at least one run, and every run lies within its array.
    """

    def __init__(self, arrays: Sequence[Array], array_indices: Indices, indices: Indices, run: int = 1) -> None:
        self.arrays = arrays
        self._runs = array_indices, indices, run

    def __len__(self) -> int:
        numbers, _, run = self._runs
        return len(numbers) * run

    @cached_property
    def array_indices(self) -> Indices:
        """The number of the array of each slot."""
        numbers, _, run = self._runs
        return numbers if run == 1 else np.repeat(numbers, run)

    @cached_property
    def indices(self) -> Indices:
        """The index of each slot in its array."""
        _, indices, run = self._runs
        return indices if run == 1 else (indices[:, None] + np.arange(run)).reshape(-1)

    @classmethod
    def of(cls, array: Array, indices: Indices) -> SlotSelection:
        """Slots of one array, at least one."""
        return cls([array], np.zeros_like(indices), indices)

    def per_slot(self, values: Indices) -> Indices:
        """For each slot the value of its array, of shape (slots,) or where there is one array (1,)."""
        return values if len(self.arrays) == 1 else values[self.array_indices]

    @property
    def buffer_slots(self) -> Indices:
        """Where the slots are in the buffers or children of their arrays."""
        return self.per_slot(np.array([array.offset for array in self.arrays], np.int64)) + self.indices

    def storage(self) -> SlotSelection:
        """The same slots of the storage of extension arrays."""
        return SlotSelection([array.storage for array in self.arrays], *self._runs)

    def gather_elements(self, buffer: int, count: int = 1) -> Values:
        """The `count` elements of a buffer from each slot on, end to end; copied.

        Raises `InvalidDataError` where a buffer is shorter than its array says.
        """
        spec = self.arrays[0].layout.buffers[buffer]
        assert spec.dtype is not None
        width, buffers = spec.dtype.itemsize, []
        if not width:
            return np.empty(len(self) * count, spec.dtype)
        for array in self.arrays:
            own, start, size = array.buffers[buffer], array.offset * width, (array.length + spec.extra) * width
            if own is None or start + size > own.size:
                own, start = Buffer.of(np.ascontiguousarray(array.values(buffer))), 0
            buffers.append(Buffer(own.memory, own.offset + start, size))
        starts, around = _around(buffers)
        slots = self if count == 1 else SlotSelection(self.arrays, self.array_indices, self.indices, count)
        numbers, indices, run = slots._runs
        if run == 1 and not (starts % width).any():
            typed: Values = around[: around.size // width * width].view(spec.dtype)
            return typed[self.per_slot(starts // width) + indices]  # type: ignore[no-any-return]
        bases = starts if len(self.arrays) == 1 else starts[numbers]
        places, run_bytes = bases + indices * width, run * width
        windows = np.ndarray(around.size - run_bytes + 1, np.dtype((np.void, run_bytes)), around, strides=(1,))
        return windows[places].view(spec.dtype)  # type: ignore[no-any-return]

    def bits(self, buffer: int, has_bits: Sequence[bool] | None = None) -> Mask:
        """The bits of a buffer that belong to the slots; True for slots of arrays that have none, by `has_bits`."""
        if has_bits is not None and not all(has_bits):
            bits = np.ones(len(self), np.bool_)
            chosen = np.array(has_bits)[self.array_indices].nonzero()[0]
            if chosen.size:
                renumbered = np.cumsum(has_bits) - 1
                arrays = list(compress(self.arrays, has_bits))
                bits[chosen] = SlotSelection(arrays, renumbered[self.array_indices[chosen]], self.indices[chosen]).bits(
                    buffer
                )
            return bits
        buffers = []
        for array in self.arrays:
            own = array.buffers[buffer]
            if own is None or own.size < bitmap.size_bytes(array.offset + array.length):
                raise InvalidDataError(
                    f"an array of {array.length} slots has a bitmap of {own.size if own else 0} bytes"
                )
            buffers.append(own)
        starts, around = _around(buffers)
        places = self.buffer_slots
        return (around[self.per_slot(starts) + (places >> 3)] >> (places & 7).astype(UINT8) & 1).view(np.bool_)

    def validity(self) -> Buffer | None:
        """The validity bitmap of the slots; None where none is null."""
        has_bits = [array.buffers[0] is not None and array._null_count != 0 for array in self.arrays]
        if not any(has_bits):
            return None
        mask = self.bits(0, has_bits)
        return None if mask.all() else bitmap.pack(mask)

    def gather_bytes(self, buffer: int, starts: Indices, lengths: Indices) -> Bytes:
        """Of each slot's array `lengths[i]` bytes of a buffer from byte `starts[i]` on, end to end; copied.

        They have to lie within the buffers. Raises `LimitError` for many more bytes than these have.
        """
        buffers = [array.buffers[buffer] or EMPTY for array in self.arrays]
        total = gather.sum_lengths(lengths)
        gather.check_bytes(total, sum(own.size for own in buffers))
        firsts, around = _around(buffers)
        if around is buffers[0].memory.bytes:
            return gather.gather(around, self.per_slot(firsts) + starts, lengths)
        out = allocate(total, is_zeroed=False)
        gather.copy_ranges(out, np.cumsum(lengths) - lengths, around, self.per_slot(firsts) + starts, lengths)
        return out

    def take_child(self, child: int, starts: Indices, lengths: Indices) -> Array | None:
        """Of each slot's array `lengths[i]` slots of a child from slot `starts[i]` on, end to end, as `interleave`.

        They have to lie within the children. Raises `LimitError` for many more slots than these have bytes.
        """
        arrays = [array.children[child] for array in self.arrays]
        total = gather.sum_lengths(lengths)
        if not total:
            return arrays[0].layout.take(arrays[0], starts[:0])
        if total > gather.MAX_VALUES:
            gather.check_values(total, sum(map(gather.total_buffer_size, arrays)) * 8)
        run = int(lengths[0])
        if run <= _LONGEST_RUN and (lengths == run).all():
            slots = SlotSelection(arrays, self.array_indices, starts, run)
        else:
            slots = SlotSelection(arrays, np.repeat(self.array_indices, lengths), gather.range_indices(starts, lengths))
        return arrays[0].layout.interleave(slots)


def _around(buffers: Sequence[Buffer]) -> tuple[Indices, Bytes]:
    """The bytes of the memory that all buffers are in, and where they begin in it.

    Where they are in several memories, these bytes are those between the first and the last of them, and no others than
    those of the buffers may be read: by indexing only, as what NumPy has to copy before it takes from it, as in
    `ndarray.take`, ends the process.
    """
    memory = buffers[0].memory
    if all(own.memory is memory for own in buffers):
        return np.array([own.offset for own in buffers], np.int64), memory.bytes
    first = min(own.address for own in buffers)
    end = max(own.address + own.size for own in buffers)
    return np.array([own.address - first for own in buffers], np.int64), memory_between(first, end)
