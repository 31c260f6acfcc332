"""«Fixed-Size List Layout»: validity, and a child array; slot j has its elements j * N to (j + 1) * N.

>>> import bowstring as bs
>>> array = bs.array([[192, 168, 0, 12], None, [192, 168, 0, 25], [192, 168, 0, 1]], bs.list_(bs.uint8(), 4))
>>> array.children[0].length
16
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bowstring.datatypes.types import FixedSizeList
from bowstring.errors import InvalidDataError, TypeMismatchError
from bowstring.layouts.base import (
    VALIDITY,
    ArrayData,
    Indices,
    Layout,
    Values,
    check_expanded_containers,
    find_first_true,
    pack_validity,
    replace_none,
    set_nulls_to_none,
)
from bowstring.layouts.concatenation import concat_validity
from bowstring.layouts.equality import arrays_equal
from bowstring.layouts.expansion_limits import check_expanded_values
from bowstring.layouts.factorize import list_identity_keys
from bowstring.layouts.interleave import InterleavableLayout, SlotSelection
from bowstring.layouts.list_ import AnyListLayout, concatenate_numpy_arrays, create_elements, flatten_lists
from bowstring.memory.buffer import Buffer


class FixedSizeListLayout(AnyListLayout, InterleavableLayout):
    """Lists of one size, contiguous in the child."""

    __slots__ = ("size",)

    def __init__(self, type: FixedSizeList, values: Layout) -> None:
        super().__init__(type, (VALIDITY,), (values,))
        self.size = type.list_size

    def elements(self, array: ArrayData) -> ArrayData:
        """Return the child, limited to the slots of the array."""
        child = array.children[0]
        # In Python integers: both may come from a header, and their product can exceed 64 bits. After this check,
        # NumPy's products below can't.
        first, count = array.offset * self.size, array.length * self.size
        if first + count > child.length:
            slots = array.offset + array.length
            raise InvalidDataError(
                f"{slots} lists of {self.size} need {first + count} elements, the child has {child.length}"
            )
        return child.slice(first, count)

    def offsets_and_sizes(self, array: ArrayData) -> tuple[Indices, Indices]:
        self.elements(array)
        first = array.offset * self.size
        return first + np.arange(array.length) * self.size, np.full(array.length, self.size)

    def range_at(self, array: ArrayData, index: int) -> tuple[int, int]:
        return (array.offset + index) * self.size, self.size

    def create_array(self, sizes: Values, child: ArrayData, validity: Buffer | None) -> ArrayData:
        return ArrayData(self, len(sizes), (validity,), (child,))

    def from_pylist(self, values: Sequence[Any]) -> ArrayData:
        # A null has elements, too: a type from a file can declare any number of them.
        count = sum(value is None for value in values)
        check_expanded_values(count * self.size, len(values))
        lists, mask = replace_none(values, self._create_filler(values) if count else ())
        elements, lengths, _ = flatten_lists(lists, self.type)
        if (lengths != self.size).any():
            index = find_first_true(lengths != self.size)
            raise TypeMismatchError(f"value {index} has {lengths[index]} elements, {self.type} has {self.size}")
        return self.create_array(lengths, create_elements(self.children[0], elements), pack_validity(mask))

    def _create_filler(self, values: Sequence[Any]) -> Any:
        """Return the elements of a null slot: zeros among NumPy arrays of one dtype, otherwise nulls."""
        numpy_elements = concatenate_numpy_arrays(values)
        return (None,) * self.size if numpy_elements is None else np.zeros(self.size, numpy_elements.dtype)

    def to_pylist(self, array: ArrayData) -> list[Any]:
        check_expanded_containers([array], array.length)
        elements = self.elements(array).to_pylist()
        lists = [elements[i * self.size : (i + 1) * self.size] for i in range(array.length)]
        return set_nulls_to_none(lists, array.validity_mask())

    def view_as_numpy(self, array: ArrayData) -> Values | None:
        elements = self.elements(array)
        view = None if array.null_count else elements.layout.view_as_numpy(elements)
        return None if view is None else view.reshape(array.length, self.size, *view.shape[1:])

    def copy_to_numpy(self, array: ArrayData) -> Values:
        # With nulls, in the lists or in them, the rows are objects: NumPy has no null rows.
        if array.null_count or self.elements(array).null_count:
            return super().copy_to_numpy(array)
        elements = self.elements(array).to_numpy(zero_copy_only=False)
        return elements.reshape(array.length, self.size, *elements.shape[1:])

    def compact(self, array: ArrayData) -> ArrayData:
        child = self.elements(array).compact()
        return ArrayData(self, array.length, (array.compact_validity(),), (child,), null_count=array.null_count)

    def interleave(self, slots: SlotSelection) -> ArrayData | None:
        for array in slots.arrays:
            self.check(array)
        child = slots.take_child_ranges(0, slots.physical_indices * self.size, np.full(len(slots), self.size))
        return None if child is None else ArrayData(self, len(slots), (slots.gather_validity(),), (child,))

    def concat(self, arrays: Sequence[ArrayData]) -> ArrayData:
        child = self.children[0].concat([self.elements(array) for array in arrays])
        return ArrayData(self, sum(a.length for a in arrays), (concat_validity(arrays),), (child,))

    def have_equal_values(self, left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
        return arrays_equal(self.elements(left), self.elements(right), nans_equal)

    def identity_keys(self, array: ArrayData) -> tuple[Values, ...]:
        return (list_identity_keys(self.elements(array), np.arange(array.length + 1) * self.size),)

    def check(self, array: ArrayData) -> None:
        self.elements(array)
