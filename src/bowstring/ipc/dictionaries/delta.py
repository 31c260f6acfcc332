"""Dictionaries that grow by deltas («Dictionary Messages»), each value copied a constant number of times.

Each delta makes a dictionary that begins as the one before did. Here all of them are arrays over the same memory, which
has room for more: what comes is written behind what arrays show already, and where the room ends, twice as much is
taken. A thousand deltas so cost and hold what their values do, not what a thousand dictionaries would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.layouts.array import Array
from bowstring.layouts.base import BufferSpec, Layout, Role
from bowstring.layouts.binary import check_offsets
from bowstring.layouts.gather import check_values, total_buffer_size
from bowstring.memory.buffer import EMPTY, UINT8, Buffer, Bytes, Memory, allocate

_LEAST_BYTES = 64
_UNDERSTOOD = (Role.VALIDITY, Role.OFFSETS, Role.DATA)


class DeltaDictionary:
    """A dictionary batch and the deltas after it; `parts` hold their values, the only item of each.

    Values are read when a dictionary is asked for. Several threads may ask.
    """

    __slots__ = ("_ends", "_grown", "_lock", "parts")

    def __init__(self, parts: Sequence[Sequence[Array]]) -> None:
        self.parts = list(parts)
        self._lock = Lock()
        self._grown: _GrowableArray | None = None
        self._ends: list[int] = []

    def joined(self, count: int, resolve: Callable[[Array], Array] = lambda values: values) -> Array:
        """The values of the first `count` parts, after `resolve` has given them the dictionaries inside them; by
        default the last part's are those of all. Raises `InvalidDataError` where a part is malformed.
        """
        first = self.parts[0][0]
        if count == 1:
            return resolve(first)
        if not _can_grow(first.layout):
            return concat_parts([resolve(part[0]) for part in self.parts[:count]])
        with self._lock:
            grown = self._grown or _GrowableArray(first.layout)
            self._grown = None  # where a part is malformed, the next to ask begins anew and is told so again
            ends = self._ends if grown.length else []
            for part in self.parts[len(ends) : count]:
                part[0].validate()
                grown.append(part[0].compact())
                ends.append(grown.length)
            self._grown, self._ends = grown, ends
            values = grown.array().slice(0, ends[count - 1])
            return resolve(values.compact() if first.layout.children else values)


def concat_parts(parts: Sequence[Array]) -> Array:
    """The values of a dictionary batch and its deltas as one array, copied where there are several.

    Raises `InvalidDataError` where a part is malformed, `LimitError` where there would be far more values than bytes.
    """
    if len(parts) == 1:
        return parts[0]
    check_values(sum(part.length for part in parts), 8 * sum(map(total_buffer_size, parts)))
    return parts[0].layout.concat(parts)


def _can_grow(layout: Layout) -> bool:
    if layout.VARIADIC or any(spec.role not in _UNDERSTOOD for spec in layout.buffers):
        return False
    if layout.children and not layout.buffers:  # runs: how long one is, the next array would say
        return False
    return all(map(_can_grow, layout.children)) and (layout.dictionary is None or _can_grow(layout.dictionary))


class _GrowableArray:
    """Arrays of one layout end to end, in memory that has room for more; the last one's dictionary is that of all."""

    __slots__ = ("_buffers", "_children", "_dictionary", "_held_bytes", "_layout", "length")

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.length = 0
        self._held_bytes = 0
        self._buffers: list[_GrowableBuffer | None] = [
            None if s.role is Role.VALIDITY else _GrowableBuffer() for s in layout.buffers
        ]
        self._children = [_GrowableArray(child) for child in layout.children]
        self._dictionary: Array | None = None

    def append(self, array: Array) -> None:
        """Add an array that begins at offset 0; where it is malformed, what is here is of no use any more."""
        self._held_bytes += total_buffer_size(array)
        check_values(self.length + array.length, 8 * self._held_bytes)
        offsets = self._offsets(array)
        for child, own in zip(self._children, array.children, strict=True):
            child.append(own.compact())
        for number, spec in enumerate(self._layout.buffers):
            if spec.role is Role.VALIDITY:
                self._append_validity(array)
                continue
            room = self._buffers[number]
            assert room is not None
            if spec.role is Role.OFFSETS:
                assert offsets is not None
                room.append((offsets[1:] if room.size else offsets).view(UINT8))
            elif spec.dtype is None:
                held = array.buffers[number]
                bits = np.unpackbits((held or EMPTY).bytes, count=array.length, bitorder="little")
                room.append_bits(bits, self.length)
            else:
                room.append(_bytes(array, number, spec))
        self._dictionary = array.dictionary
        self.length += array.length

    def _offsets(self, array: Array) -> Any:
        """The array's offsets as they go on behind those that are there."""
        for number, spec in enumerate(self._layout.buffers):
            if spec.role is Role.OFFSETS:
                if self._children:
                    offsets = check_offsets(array, array.children[0].length, "the child's length of")
                    base = self._children[0].length
                else:
                    offsets = check_offsets(array, (array.buffers[2] or EMPTY).size, "the data buffer's size of")
                    data = self._buffers[2]
                    assert data is not None
                    base = data.size
                assert spec.dtype is not None
                if base + int(offsets[-1]) > np.iinfo(spec.dtype).max:
                    raise InvalidDataError(
                        f"a dictionary and its deltas have {base + int(offsets[-1])} elements in all, too many for the "
                        f"offsets in buffer {number} of {self._layout.type}"
                    )
                return np.ascontiguousarray(offsets + spec.dtype.type(base))
        return None

    def _append_validity(self, array: Array) -> None:
        validity, room = array.buffers[0], self._buffers[0]
        if room is None:
            if array.null_count == 0:
                return
            room = self._buffers[0] = _GrowableBuffer()
            room.append_bits(np.ones(self.length, UINT8), 0)
        if validity is None or array.null_count == 0:
            bits = np.ones(array.length, UINT8)
        else:
            bits = np.unpackbits(validity.bytes, count=array.length, bitorder="little")
        room.append_bits(bits, self.length)

    def array(self) -> Array:
        """All of it; what is appended later does not change it."""
        return Array(
            self._layout,
            self.length,
            tuple(None if room is None else room.buffer() for room in self._buffers),
            tuple(child.array() for child in self._children),
            self._dictionary,
            0 if self._layout.has_validity and self._buffers[0] is None else -1,
        )


def _bytes(array: Array, number: int, spec: BufferSpec) -> Bytes:
    held = array.buffers[number] or EMPTY
    if not spec.per_slot:
        return held.bytes
    size = spec.size_bytes(array.length)
    if held.size < size:
        raise InvalidDataError(f"a dictionary's {spec.role.value} have {held.size} bytes, expected {size}")
    return held.bytes[:size]


class _GrowableBuffer:
    """Bytes with room for more behind them."""

    __slots__ = ("_held", "_memory", "size")

    def __init__(self) -> None:
        self._held = allocate(_LEAST_BYTES)
        self._memory = Memory(self._held)
        self.size = 0

    def _reserve(self, size: int) -> None:
        if size > len(self._held):
            wider = allocate(max(size, 2 * len(self._held)))
            wider[: self.size] = self._held[: self.size]
            self._held, self._memory = wider, Memory(wider)

    def append(self, data: Bytes) -> None:
        end = self.size + data.size
        self._reserve(end)
        self._held[self.size : end] = data
        self.size = end

    def append_bits(self, bits: Bytes, count: int) -> None:
        """Add bits behind the `count` ones that are there."""
        first = count >> 3
        if count & 7:
            head = np.unpackbits(self._held[first : first + 1], count=count & 7, bitorder="little")
            bits = np.concatenate((head, bits))
        self.size = first
        self.append(np.packbits(bits, bitorder="little"))

    def buffer(self) -> Buffer:
        return Buffer(self._memory, 0, self.size)
