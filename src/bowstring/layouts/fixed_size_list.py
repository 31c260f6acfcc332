"""«Fixed-Size List Layout»: validity, and a child array; slot j has its elements j * N to (j + 1) * N.

>>> import bowstring as bs
>>> array = bs.array([[192, 168, 0, 12], None, [192, 168, 0, 25], [192, 168, 0, 1]], bs.list_(bs.uint8(), 4))
>>> array.children[0].length
16
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.errors import InvalidDataError, TypeMismatchError
from bowstring.layouts.base import (
    VALIDITY,
    ArrayData,
    Indices,
    Layout,
    Values,
    find_first_true,
    pack_validity,
    preview_elements,
    replace_none,
    set_nulls_to_none,
)
from bowstring.layouts.concatenation import concat_validity
from bowstring.layouts.equality import arrays_equal
from bowstring.layouts.expansion_limits import check_expanded_containers, check_expanded_values
from bowstring.layouts.factorize import list_identity_keys
from bowstring.layouts.gather import take_ranges
from bowstring.layouts.interleave import SlotSelection
from bowstring.layouts.list_ import concatenate_numpy_arrays, create_elements, flatten_lists, lists_to_numpy

if TYPE_CHECKING:
    from bowstring.datatypes.types import FixedSizeList


class FixedSizeListLayout(Layout):
    """Lists of one size, contiguous in the child."""

    __slots__ = ("size",)

    CHILD_NAMES = ("item",)

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
        """Return the lists' starts in the child, and their sizes."""
        self.elements(array)
        first = array.offset * self.size
        return first + np.arange(array.length) * self.size, np.full(array.length, self.size)

    def from_pylist(self, values: Sequence[Any]) -> ArrayData:
        # A null has elements, too: a type from a file can declare any number of them.
        count = sum(value is None for value in values)
        check_expanded_values(count * self.size, len(values))
        lists, mask = replace_none(values, self._create_filler(values) if count else ())
        elements, lengths, _ = flatten_lists(lists, self.type)
        if (lengths != self.size).any():
            index = find_first_true(lengths != self.size)
            raise TypeMismatchError(f"value {index} has {lengths[index]} elements, {self.type} has {self.size}")
        return ArrayData(self, len(lists), (pack_validity(mask),), (create_elements(self.children[0], elements),))

    def _create_filler(self, values: Sequence[Any]) -> Any:
        """Return the elements of a null slot: zeros among NumPy arrays of one dtype, otherwise nulls."""
        numpy_elements = concatenate_numpy_arrays(values)
        return (None,) * self.size if numpy_elements is None else np.zeros(self.size, numpy_elements.dtype)

    def value_at(self, array: ArrayData, index: int) -> Any:
        if array.is_null_at(index):
            return None
        self.check(array)
        return array.children[0].slice((array.offset + index) * self.size, self.size).to_pylist()

    def preview_at(self, array: ArrayData, index: int, max_elements: int) -> Any:
        if array.is_null_at(index):
            return None
        self.check(array)
        return preview_elements(array.children[0], (array.offset + index) * self.size, self.size, max_elements)

    def to_pylist(self, array: ArrayData) -> list[Any]:
        check_expanded_containers([array], array.length)
        elements = self.elements(array).to_pylist()
        lists = [elements[i * self.size : (i + 1) * self.size] for i in range(array.length)]
        return set_nulls_to_none(lists, array.validity_mask())

    def to_numpy(self, array: ArrayData, allow_copy: bool) -> Values:
        # With nulls, in the lists or in them, `lists_to_numpy` returns objects: NumPy has no null rows.
        if array.null_count == 0 and (not allow_copy or self.elements(array).null_count == 0):
            elements = self.elements(array).to_numpy(zero_copy_only=not allow_copy)
            return elements.reshape(array.length, self.size, *elements.shape[1:])
        if not allow_copy:
            raise self.would_copy_error()
        return lists_to_numpy(array.compact())

    def compact(self, array: ArrayData) -> ArrayData:
        child = self.elements(array).compact()
        return ArrayData(self, array.length, (array.compact_validity(),), (child,), null_count=array.null_count)

    def take(self, array: ArrayData, indices: Indices) -> ArrayData:
        if len(indices) and (lists := self.interleave(SlotSelection.from_single_array(array, indices))) is not None:
            return lists
        elements = self.elements(array)
        child = take_ranges(elements, indices * self.size, np.full(len(indices), self.size))
        return ArrayData(self, len(indices), (array.take_validity(indices),), (child,))

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
