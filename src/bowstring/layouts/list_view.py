"""«ListView Layout»: validity, offsets and sizes in any order, and a child array that the lists may share.

>>> import bowstring as bs
>>> child = bs.array([0, -127, 127, 50, 12, -7, 25], bs.int8())
>>> offsets, sizes = np.array([4, 7, 0, 0, 3], np.int32), np.array([3, 0, 4, 0, 2], np.int32)
>>> views = bs.Array.from_buffers(bs.list_view(bs.int8()), 5, [bytes([0b11101]), offsets, sizes], [child])
>>> views.to_pylist()
[[12, -7, 25], None, [0, -127, 127, 50], [], [50, 12]]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.layouts.array import Array
from bowstring.layouts.base import (
    VALIDITY,
    BufferSpec,
    Indices,
    Layout,
    Role,
    Values,
    compact_validity,
    decode_with_nulls,
    first_true,
    is_null_at,
    pack_validity,
    take_validity,
    to_buffer,
)
from bowstring.layouts.binary import offsets_from_lengths
from bowstring.layouts.concatenation import concat_validity
from bowstring.layouts.equality import arrays_equal
from bowstring.layouts.factorize import list_identity
from bowstring.layouts.gather import check_values, sum_lengths, take_ranges
from bowstring.layouts.list_ import flatten_lists, numbers_to_lists
from bowstring.memory.buffer import Buffer

if TYPE_CHECKING:
    from bowstring.datatypes.types import DataType


class ListViewLayout(Layout):
    """Lists that are each an offset into the child and a size."""

    __slots__ = ("offset_type",)

    CHILD_NAMES = ("item",)

    def __init__(self, type: DataType, offset_bits: int, values: Layout) -> None:
        self.offset_type = np.dtype(f"i{offset_bits // 8}")
        specs = (VALIDITY, BufferSpec(Role.OFFSETS, self.offset_type), BufferSpec(Role.SIZES, self.offset_type))
        super().__init__(type, specs, (values,))

    def list_ranges(self, array: Array) -> tuple[Indices, Indices]:
        """Offsets and sizes as 64-bit integers, every one checked to lie within the child, null slots too."""
        starts, sizes = array.values(1).astype(np.int64), array.values(2).astype(np.int64)
        count = array.children[0].length
        bad = (starts < 0) | (sizes < 0) | (sizes > count - starts)
        if bad.any():
            at = first_true(bad)
            raise InvalidDataError(
                f"offsets[{at}] = {starts[at]} and sizes[{at}] = {sizes[at]} exceed the child's length of {count}"
            )
        return starts, sizes

    def of(self, lengths: Values, child: Array, validity: Buffer | None) -> Array:
        """An array of lists of so many elements each, which lie end to end in the child."""
        return self._of(offsets_from_lengths(lengths, self.offset_type, self.type)[:-1], lengths, child, validity)

    def _of(self, starts: Values, sizes: Values, child: Array, validity: Buffer | None) -> Array:
        held = [to_buffer(np.asarray(part, self.offset_type)) for part in (starts, sizes)]
        return Array(self, len(sizes), (validity, *held), (child,))

    def build(self, values: Sequence[Any]) -> Array:
        elements, lengths, mask = flatten_lists(values, self.type)
        return self.of(lengths, self.children[0].build(elements), pack_validity(mask))

    def value_at(self, array: Array, index: int) -> Any:
        if is_null_at(array, index):
            return None
        at, child = array.offset + index, array.children[0]
        start, size = (part.element(self.offset_type, at) if part else 0 for part in array.buffers[1:])
        if 0 <= start <= start + size <= child.length:
            return child.slice(start, size).to_pylist()
        return super().value_at(array, index)  # raises

    def to_pylist(self, array: Array) -> list[Any]:
        return decode_with_nulls(array, self._lists)

    def _lists(self, array: Array) -> list[Any]:
        starts, sizes = self.list_ranges(array)
        if not sizes.size:
            return []
        check_values(sum_lengths(sizes), array.children[0].length)
        first, last = int(starts.min()), int((starts + sizes).max())
        elements = array.children[0].slice(first, last - first)
        found = numbers_to_lists(elements, starts - first, sizes)
        if found is not None:
            return found
        values = elements.to_pylist()
        return [values[at : at + size] for at, size in zip((starts - first).tolist(), sizes.tolist(), strict=True)]

    def compact(self, array: Array) -> Array:
        starts, sizes = self.list_ranges(array)
        child = array.children[0]
        first, last = (int(starts.min()), int((starts + sizes).max())) if sizes.size else (0, 0)
        width = self.offset_type.itemsize
        offsets, lengths = (b and b.slice(array.offset * width, array.length * width) for b in array.buffers[1:])
        if first:
            offsets = to_buffer((starts - first).astype(self.offset_type))
        child = child.slice(first, last - first).compact()
        buffers = (compact_validity(array), offsets, lengths)
        return Array(self, array.length, buffers, (child,), null_count=array.null_count)

    def take(self, array: Array, indices: Indices) -> Array:
        starts, sizes = (part[indices] for part in self.list_ranges(array))
        return self.of(sizes, take_ranges(array.children[0], starts, sizes), take_validity(array, indices))

    def concat(self, arrays: Sequence[Array]) -> Array:
        views = [self.list_ranges(array) for array in arrays]
        bases = np.cumsum([0] + [array.children[0].length for array in arrays])
        offsets_from_lengths(np.diff(bases), self.offset_type, self.type)
        starts = np.concatenate([view[0] + base for view, base in zip(views, bases[:-1], strict=True)])
        child = self.children[0].concat([array.children[0] for array in arrays])
        return self._of(starts, np.concatenate([view[1] for view in views]), child, concat_validity(arrays))

    def equal(self, left: Array, right: Array, nans_equal: bool) -> bool:
        (starts, sizes), (other_starts, other_sizes) = self.list_ranges(left), self.list_ranges(right)
        if not np.array_equal(sizes, other_sizes):
            return False
        elements = take_ranges(left.children[0], starts, sizes)
        return arrays_equal(elements, take_ranges(right.children[0], other_starts, sizes), nans_equal)

    def identity_keys(self, array: Array) -> tuple[Values, ...]:
        starts, sizes = self.list_ranges(array)
        elements = take_ranges(array.children[0], starts, sizes)
        return (list_identity(elements, np.append(0, np.cumsum(sizes))),)

    def check_full(self, array: Array) -> None:
        self.list_ranges(array)
