"""Dictionaries extended by deltas («Dictionary Messages»).

Each delta results in a dictionary that begins with the previous one. Those of numbers, text and bytes are arrays over
the same memory, which has spare capacity: new values are appended after the existing ones, and a full buffer is
replaced by one of twice the size. A thousand deltas thus take time and memory in proportion to their values. Only the
validity bitmap, if there are nulls, is packed anew for each delta, and so are dictionaries of other values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bowstring.arrays.array import Array
from bowstring.errors import InvalidDataError
from bowstring.layouts.base import (
    ArrayData,
    BufferRole,
    BufferSpec,
    Layout,
    Values,
    check_expanded_arrays,
    sum_buffer_sizes,
)
from bowstring.layouts.expansion_limits import check_expanded_values
from bowstring.layouts.variable_size import VariableSizeLayout
from bowstring.memory.bitmap import pack
from bowstring.memory.buffer import EMPTY, UINT8, Buffer, Bytes, Memory, allocate
from bowstring.memory.forks import ProcessLock

# One allocation's alignment; doubling makes any other start irrelevant after a few deltas.
_MIN_BYTES = 64


class DeltaDictionary:
    """A dictionary batch and the deltas after it; each of `parts` has the values of one as its only element.

    Values are read on access, which is thread-safe.
    """

    __slots__ = ("_array", "_lock", "parts")

    def __init__(self, parts: Sequence[Sequence[Array]]) -> None:
        self.parts = list(parts)
        self._lock = ProcessLock()
        self._array: _GrowableArray | None = None

    def concat(self, part_count: int, resolve_inner: Callable[[Array], Array] = lambda values: values) -> Array:
        """Return the values of the first `part_count` parts, after `resolve_inner` has replaced the dictionaries inside
        them; by default the dictionaries inside the last part apply to all. Raises `InvalidDataError` if a part is
        malformed.
        """
        first = self.parts[0][0]
        if part_count == 1:
            return resolve_inner(first)
        if _is_growable(first.layout):
            return self._grow(part_count, first.layout)
        return concat_parts([resolve_inner(part[0]) for part in self.parts[:part_count]])

    def _grow(self, part_count: int, layout: Layout) -> Array:
        """Return the values of the first parts, over shared memory."""
        with self._lock.of_this_process:
            array = self._array or _GrowableArray(layout)
            self._array = None  # after an error, the next call starts over and raises it again
            for part in self.parts[len(array.ends) : part_count]:
                # Before it is appended: invalid offsets would be part of every later dictionary.
                part[0].validate()
                array.append(part[0].compact())
            self._array = array
            return array.get_prefix(part_count)


def concat_parts(parts: Sequence[Array]) -> Array:
    """Return the values of a dictionary batch and its deltas as one array, copied if there are several.

    Raises `InvalidDataError` if a part is malformed, `LimitError` if there are far more values than bytes.
    """
    if len(parts) == 1:
        return parts[0]
    _check_expansion(parts)
    return Array.from_array_data(parts[0].layout.concat(parts))


def _check_expansion(arrays: Sequence[ArrayData]) -> None:
    """Raise `LimitError` if arrays, or their children of any level, have far more values than bytes."""
    check_expanded_arrays(arrays, sum(array.length for array in arrays))
    for children in zip(*[array.children for array in arrays], strict=True):
        _check_expansion(children)


def _is_growable(layout: Layout) -> bool:
    """Whether a layout has, besides validity, only offsets and whole bytes."""
    roles = (BufferRole.OFFSETS, BufferRole.DATA)
    return (
        layout.has_validity
        and not (layout.children or layout.VARIADIC or layout.dictionary)
        and all(spec.role in roles and spec.dtype is not None for spec in layout.buffers[1:])
    )


class _GrowableArray:
    """Concatenated arrays of one layout, in memory with spare capacity."""

    __slots__ = ("_buffers", "_is_valid", "_layout", "_null_counts", "_source_bytes", "ends")

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._source_bytes = 0
        self._is_valid = _GrowableBuffer()
        """Booleans: a bitmap can't be shared, since the next array changes its last byte."""
        self._buffers = [_GrowableBuffer() for _ in layout.buffers[1:]]
        self._null_counts: list[int] = []
        self.ends: list[int] = []
        """The length after each array."""

    def append(self, array: Array) -> None:
        """Add an array that begins at offset 0; after an error this object is unusable."""
        self._source_bytes += sum_buffer_sizes(array)
        length = array.length + (self.ends[-1] if self.ends else 0)
        check_expanded_values(length, 8 * self._source_bytes)
        for index, (spec, buffer) in enumerate(zip(self._layout.buffers[1:], self._buffers, strict=True), 1):
            if spec.role is BufferRole.OFFSETS:
                # The first offset of a later part equals the last one that is there.
                offsets = self._shift_offsets(array, spec)[1 if buffer.size else 0 :]
                buffer.append(np.ascontiguousarray(offsets).view(UINT8))
            else:
                buffer.append(_get_used_bytes(array, index, spec))
        mask = array.validity_mask()
        self._is_valid.append(np.ones(array.length, UINT8) if mask is None else mask.view(UINT8))
        self._null_counts.append(0 if mask is None else mask.size - int(np.count_nonzero(mask)))
        self.ends.append(length)

    def _shift_offsets(self, array: Array, spec: BufferSpec) -> Values:
        """Return the array's offsets, shifted to follow the existing values, which are in the last buffer."""
        layout, base = self._layout.storage, self._buffers[-1].size
        assert isinstance(layout, VariableSizeLayout)
        assert spec.dtype is not None
        offsets = layout.offsets(array)
        # In Python integers: in the offsets' own type this sum could wrap around to a valid offset.
        if base + int(offsets[-1]) > np.iinfo(spec.dtype).max:
            raise InvalidDataError(
                f"a dictionary and its deltas have {base + int(offsets[-1])} bytes in all, too many for the offsets of "
                f"{self._layout.type}"
            )
        shifted: Values = offsets + spec.dtype.type(base)
        return shifted

    def get_prefix(self, part_count: int) -> Array:
        """Return the first arrays as one, which later appends do not change."""
        length, null_count = self.ends[part_count - 1], sum(self._null_counts[:part_count])
        validity = pack(self._is_valid.to_buffer().bytes[:length].view(np.bool_)) if null_count else None
        buffers = (validity, *(buffer.to_buffer() for buffer in self._buffers))
        return Array(self._layout, length, buffers, (), None, null_count)


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

    def to_buffer(self) -> Buffer:
        return Buffer(self._memory, 0, self.size)
