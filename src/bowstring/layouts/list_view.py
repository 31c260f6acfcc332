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
from typing import Any

import numpy as np

from bowstring.datatypes.types import DataType
from bowstring.errors import InvalidDataError
from bowstring.layouts.base import (
    VALIDITY,
    ArrayData,
    BufferRole,
    BufferSpec,
    Indices,
    Layout,
    Values,
    find_first_true,
    set_nulls_to_none,
    to_buffer,
)
from bowstring.layouts.concatenation import concat_validity
from bowstring.layouts.equality import arrays_equal
from bowstring.layouts.expansion_limits import check_expanded_values
from bowstring.layouts.factorize import list_identity_keys
from bowstring.layouts.gather import sum_lengths, take_ranges
from bowstring.layouts.list_ import AnyListLayout
from bowstring.layouts.variable_size import offsets_from_lengths
from bowstring.memory.buffer import Buffer


class ListViewLayout(AnyListLayout):
    """Lists with an offset into the child and a size each."""

    __slots__ = ("offset_type",)

    def __init__(self, type: DataType, offset_bits: int, values: Layout) -> None:
        self.offset_type = np.dtype(f"i{offset_bits // 8}")
        specs = (
            VALIDITY,
            BufferSpec(BufferRole.OFFSETS, self.offset_type),
            BufferSpec(BufferRole.SIZES, self.offset_type),
        )
        super().__init__(type, specs, (values,))

    def offsets_and_sizes(self, array: ArrayData) -> tuple[Indices, Indices]:
        """Return offsets and sizes as int64, checked to be within the child, also in null slots."""
        starts, sizes = array.buffer_values(1).astype(np.int64), array.buffer_values(2).astype(np.int64)
        count = array.children[0].length
        # As a difference: the sum of two untrusted int64 could wrap around. With `starts < 0` it may, but is invalid
        # anyway.
        invalid = (starts < 0) | (sizes < 0) | (sizes > count - starts)
        if invalid.any():
            i = find_first_true(invalid)
            raise InvalidDataError(
                f"offsets[{i}] = {starts[i]} and sizes[{i}] = {sizes[i]} exceed the child's length of {count}"
            )
        return starts, sizes

    def create_array(self, sizes: Values, child: ArrayData, validity: Buffer | None) -> ArrayData:
        """Create an array of lists of these sizes, which are contiguous in the child."""
        return self._create_from_ranges(
            offsets_from_lengths(sizes, self.offset_type, self.type)[:-1], sizes, child, validity
        )

    def _create_from_ranges(
        self, starts: Values, sizes: Values, child: ArrayData, validity: Buffer | None
    ) -> ArrayData:
        windows = [to_buffer(np.asarray(part, self.offset_type)) for part in (starts, sizes)]
        return ArrayData(self, len(sizes), (validity, *windows), (child,))

    def range_at(self, array: ArrayData, index: int) -> tuple[int, int]:
        start, size = (
            part.element(self.offset_type, array.offset + index) if part else 0 for part in array.own_buffers[1:]
        )
        return start, size

    def to_pylist(self, array: ArrayData) -> list[Any]:
        starts, sizes = self.offsets_and_sizes(array)
        if not sizes.size:
            return []
        check_expanded_values(sum_lengths(sizes), array.children[0].length)
        first, last = int(starts.min()), int((starts + sizes).max())
        elements = array.children[0].slice(first, last - first)
        values = elements.to_pylist()
        ranges = zip((starts - first).tolist(), sizes.tolist(), strict=True)
        return set_nulls_to_none([values[start : start + size] for start, size in ranges], array.validity_mask())

    def compact(self, array: ArrayData) -> ArrayData:
        starts, sizes = self.offsets_and_sizes(array)
        child = array.children[0]
        first, last = (int(starts.min()), int((starts + sizes).max())) if sizes.size else (0, 0)
        offsets = to_buffer((starts - first).astype(self.offset_type)) if first else array.slice_buffer(1)
        child = child.slice(first, last - first).compact()
        buffers = (array.compact_validity(), offsets, array.slice_buffer(2))
        return ArrayData(self, array.length, buffers, (child,), null_count=array.null_count)

    def concat(self, arrays: Sequence[ArrayData]) -> ArrayData:
        views = [self.offsets_and_sizes(array) for array in arrays]
        bases = np.cumsum([0] + [array.children[0].length for array in arrays])
        offsets_from_lengths(np.diff(bases), self.offset_type, self.type)
        # Starts move by the lengths of the children before, which stay whole: lists may share their elements.
        starts = np.concatenate([view[0] + base for view, base in zip(views, bases[:-1], strict=True)])
        child = self.children[0].concat([array.children[0] for array in arrays])
        return self._create_from_ranges(
            starts, np.concatenate([view[1] for view in views]), child, concat_validity(arrays)
        )

    def have_equal_values(self, left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
        (starts, sizes), (other_starts, other_sizes) = self.offsets_and_sizes(left), self.offsets_and_sizes(right)
        mask = left.validity_mask()
        if mask is not None:
            sizes, other_sizes = sizes * mask, other_sizes * mask
        if not np.array_equal(sizes, other_sizes):
            return False
        elements = take_ranges(left.children[0], starts, sizes)
        return arrays_equal(elements, take_ranges(right.children[0], other_starts, sizes), nans_equal)

    def have_equal_valid_values(self, left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
        return False  # `have_equal_values` ignores nulls

    def identity_keys(self, array: ArrayData) -> tuple[Values, ...]:
        starts, sizes = self.offsets_and_sizes(array)
        elements = take_ranges(array.children[0], starts, sizes)
        return (list_identity_keys(elements, np.append(0, np.cumsum(sizes))),)

    def check_full(self, array: ArrayData) -> None:
        self.offsets_and_sizes(array)
