"""Dictionaries extended by deltas («Dictionary Messages»); each value is copied a constant number of times.

Each delta results in a dictionary that begins with the previous one. All of them are arrays over the same memory, which
has spare capacity: new values are appended after the existing ones, and a full buffer is replaced by one of twice the
size. A thousand deltas thus take time and memory in proportion to their values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import numpy as np

from bowstring.arrays.array import Array
from bowstring.errors import InvalidDataError
from bowstring.layouts.base import BufferRole, BufferSpec, Layout, check_expanded_arrays, sum_buffer_sizes
from bowstring.layouts.expansion_limits import check_expanded_values
from bowstring.layouts.extension import ExtensionLayout
from bowstring.layouts.variable_size import VariableSizeLayout
from bowstring.memory.buffer import EMPTY, UINT8, Buffer, Bytes, Memory, allocate

# One allocation's alignment; doubling makes any other start irrelevant after a few deltas.
_MIN_BYTES = 64
_GROWABLE_ROLES = (BufferRole.VALIDITY, BufferRole.OFFSETS, BufferRole.DATA)


class DeltaDictionary:
    """A dictionary batch and the deltas after it; each of `parts` has the values of one as its only element.

    Values are read on access, which is thread-safe.
    """

    __slots__ = ("_array", "_ends", "_lock", "parts")

    def __init__(self, parts: Sequence[Sequence[Array]]) -> None:
        self.parts = list(parts)
        self._lock = Lock()
        self._array: _GrowableArray | None = None
        self._ends: list[int] = []

    def concat(self, part_count: int, resolve_inner: Callable[[Array], Array] = lambda values: values) -> Array:
        """Return the values of the first `part_count` parts, after `resolve_inner` has replaced the dictionaries inside
        them; by default the dictionaries inside the last part apply to all. Raises `InvalidDataError` if a part is
        malformed.
        """
        first = self.parts[0][0]
        if part_count == 1:
            return resolve_inner(first)
        if not _is_growable(first.layout):
            return concat_parts([resolve_inner(part[0]) for part in self.parts[:part_count]])
        # `resolve_inner` locks inner dictionaries while this one is locked. The order is the same in all threads, from
        # outer to inner ones: the values of one id have one type, which can't contain itself.
        with self._lock:
            array = self._array or _GrowableArray(first.layout)
            self._array = None  # after an error, the next call starts over and raises it again
            ends = self._ends if array.length else []
            for part in self.parts[len(ends) : part_count]:
                # Before it is appended: invalid offsets would be part of every later dictionary.
                part[0].validate()
                array.append(part[0].compact())
                ends.append(array.length)
            self._array, self._ends = array, ends
            values = array.to_array().slice(0, ends[part_count - 1])
            return resolve_inner(values.compact() if first.layout.children else values)


def concat_parts(parts: Sequence[Array]) -> Array:
    """Return the values of a dictionary batch and its deltas as one array, copied if there are several.

    Raises `InvalidDataError` if a part is malformed, `LimitError` if there are far more values than bytes.
    """
    if len(parts) == 1:
        return parts[0]
    check_expanded_arrays(parts, sum(part.length for part in parts))
    return Array.from_array_data(parts[0].layout.concat(parts))


def _is_growable(layout: Layout) -> bool:
    if layout.VARIADIC or any(spec.role not in _GROWABLE_ROLES for spec in layout.buffers):
        return False
    if layout.children and not layout.buffers:  # the length of a run depends on the next array
        return False
    return all(map(_is_growable, layout.children)) and (layout.dictionary is None or _is_growable(layout.dictionary))


class _GrowableArray:
    """Concatenated arrays of one layout, in memory with spare capacity; the last array's dictionary applies to all."""

    __slots__ = ("_buffers", "_children", "_dictionary", "_layout", "_source_bytes", "length")

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.length = 0
        self._source_bytes = 0
        self._buffers: list[_GrowableBuffer | None] = [
            None if s.is_validity else _GrowableBuffer() for s in layout.buffers
        ]
        self._children = [_GrowableArray(child) for child in layout.children]
        self._dictionary: Array | None = None

    def append(self, array: Array) -> None:
        """Add an array that begins at offset 0; after an error this object is unusable."""
        self._source_bytes += sum_buffer_sizes(array)
        check_expanded_values(self.length + array.length, 8 * self._source_bytes)
        offsets = self._shift_offsets(array)
        for child, child_array in zip(self._children, array.children, strict=True):
            child.append(child_array.compact())
        for index, spec in enumerate(self._layout.buffers):
            if spec.is_validity:
                self._append_validity(array)
                continue
            buffer = self._buffers[index]
            assert buffer is not None
            if spec.role is BufferRole.OFFSETS:
                assert offsets is not None
                # The first offset of a later part equals the last one that is there.
                buffer.append((offsets[1:] if buffer.size else offsets).view(UINT8))
            elif spec.dtype is None:
                bitmap = array.own_buffers[index]
                bits = np.unpackbits((bitmap or EMPTY).bytes, count=array.length, bitorder="little")
                buffer.append_bits(bits, self.length)
            else:
                buffer.append(_get_used_bytes(array, index, spec))
        self._dictionary = array.dictionary
        self.length += array.length

    def _shift_offsets(self, array: Array) -> Any:
        """Return the array's offsets, shifted to follow the existing ones."""
        for index, spec in enumerate(self._layout.buffers):
            if spec.role is BufferRole.OFFSETS:
                layout = self._layout
                while isinstance(layout, ExtensionLayout):
                    layout = layout.storage
                assert isinstance(layout, VariableSizeLayout)
                offsets = layout.offsets(array)
                if self._children:
                    base = self._children[0].length
                else:
                    data = self._buffers[2]
                    assert data is not None
                    base = data.size
                assert spec.dtype is not None
                # In Python integers: in the offsets' own type this sum could wrap around to a valid offset.
                if base + int(offsets[-1]) > np.iinfo(spec.dtype).max:
                    raise InvalidDataError(
                        f"a dictionary and its deltas have {base + int(offsets[-1])} elements in all, too many for the "
                        f"offsets in buffer {index} of {self._layout.type}"
                    )
                return np.ascontiguousarray(offsets + spec.dtype.type(base))
        return None

    def _append_validity(self, array: Array) -> None:
        validity, buffer = array.own_buffers[0], self._buffers[0]
        if buffer is None:
            if array.null_count == 0:
                return
            buffer = self._buffers[0] = _GrowableBuffer()
            buffer.append_bits(np.ones(self.length, UINT8), 0)
        if validity is None or array.null_count == 0:
            bits = np.ones(array.length, UINT8)
        else:
            bits = np.unpackbits(validity.bytes, count=array.length, bitorder="little")
        buffer.append_bits(bits, self.length)

    def to_array(self) -> Array:
        """Return all of it as an array, which later appends do not change."""
        return Array(
            self._layout,
            self.length,
            tuple(None if buffer is None else buffer.to_buffer() for buffer in self._buffers),
            tuple(child.to_array() for child in self._children),
            self._dictionary,
            0 if self._layout.has_validity and self._buffers[0] is None else -1,
        )


def _get_used_bytes(array: Array, buffer_index: int, spec: BufferSpec) -> Bytes:
    buffer = array.own_buffers[buffer_index] or EMPTY
    if not spec.per_slot:
        return buffer.bytes
    size = spec.size_bytes(array.length)
    if buffer.size < size:
        raise InvalidDataError(f"a dictionary's {spec.role.value} have {buffer.size} bytes, expected {size}")
    return buffer.bytes[:size]


class _GrowableBuffer:
    """Bytes with spare capacity after them."""

    __slots__ = ("_bytes_with_capacity", "_memory", "size")

    def __init__(self) -> None:
        self._bytes_with_capacity = allocate(_MIN_BYTES)
        self._memory = Memory(self._bytes_with_capacity)
        self.size = 0

    def _reserve(self, size: int) -> None:
        if size > len(self._bytes_with_capacity):
            # Earlier arrays keep the previous memory, which is not changed any more.
            larger = allocate(max(size, 2 * len(self._bytes_with_capacity)))
            larger[: self.size] = self._bytes_with_capacity[: self.size]
            self._bytes_with_capacity, self._memory = larger, Memory(larger)

    def append(self, added_bytes: Bytes) -> None:
        end = self.size + added_bytes.size
        self._reserve(end)
        self._bytes_with_capacity[self.size : end] = added_bytes
        self.size = end

    def append_bits(self, bits: Bytes, count: int) -> None:
        """Append bits after the first `count` ones."""
        first = count >> 3
        if count & 7:
            # Bits after `count` in the last byte are padding of an earlier append, and are replaced.
            last_bits = np.unpackbits(self._bytes_with_capacity[first : first + 1], count=count & 7, bitorder="little")
            bits = np.concatenate((last_bits, bits))
        # Earlier arrays may refer to the last byte: writing it again does not change their bits.
        self.size = first
        self.append(np.packbits(bits, bitorder="little"))

    def to_buffer(self) -> Buffer:
        return Buffer(self._memory, 0, self.size)
