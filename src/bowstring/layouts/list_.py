"""«List Layout»: validity, offsets, and a child array that the offsets divide. Maps are lists of key-value structs.

>>> import bowstring as bs
>>> array = bs.array([[12, -7, 25], None, [0, -127, 127, 50], []], bs.list_(bs.int8()))
>>> array.buffer_values(1).tolist()
[0, 3, 3, 7, 7]
>>> array.children[0].to_pylist()
[12, -7, 25, 0, -127, 127, 50]
"""

from __future__ import annotations

import builtins
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from types import NoneType
from typing import Any

import numpy as np

from bowstring.datatypes.types import DataType, Map
from bowstring.errors import InvalidDataError, TypeMismatchError
from bowstring.layouts.base import (
    ArrayData,
    Indices,
    Layout,
    Values,
    pack_validity,
    replace_none,
    set_nulls_to_none,
    short_repr,
    to_object_array,
)
from bowstring.layouts.concatenation import array_lengths, concat_validity
from bowstring.layouts.equality import arrays_equal
from bowstring.layouts.factorize import list_identity_keys
from bowstring.layouts.gather import take_ranges
from bowstring.layouts.interleave import InterleavableLayout, SlotSelection
from bowstring.layouts.validation import validate
from bowstring.layouts.variable_size import VariableSizeLayout, offsets_equal, offsets_from_lengths
from bowstring.memory.bitmap import Mask
from bowstring.memory.buffer import Buffer


def concatenate_numpy_arrays(values: Sequence[Any]) -> Values | None:
    """Concatenate NumPy arrays of shape (n,) and one dtype of numbers, booleans or times, without the Nones.

    Returns None if there are other values, or no array.
    """
    arrays = [value for value in values if value is not None]
    dtype = getattr(arrays[0], "dtype", None) if arrays else None
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biufmM":
        return None
    if not all(type(array) is np.ndarray and array.ndim == 1 and array.dtype == dtype for array in arrays):
        return None
    return np.concatenate(arrays)


def create_elements(layout: Layout, elements: Sequence[Any] | Values) -> ArrayData:
    """Create the child array of lists from Python values or a NumPy array of shape (n,)."""
    if not isinstance(elements, np.ndarray):
        return layout.from_pylist(elements)
    try:
        return layout.from_numpy(elements)
    except TypeMismatchError:
        return layout.from_pylist(list(elements))  # raises with the first value that does not fit


def flatten_lists(values: Sequence[Any], type: DataType) -> tuple[list[Any] | Values, Indices, Mask | None]:
    """Concatenate lists; return the elements, the lengths, and the mask of valid lists (None if all are valid).

    None has no elements. The elements of NumPy arrays of one dtype are a NumPy array. Raises `TypeMismatchError` naming
    the first value that is not a list.
    """
    elements = mask = None
    if list(map(builtins.type, values)).count(list) < len(values):
        elements = concatenate_numpy_arrays(values)
        values, mask = replace_none(values, ())
        if not {list, tuple}.issuperset(map(builtins.type, values)):
            for index, value in enumerate(values):
                is_list = hasattr(value, "__len__") and getattr(value, "ndim", 1) > 0  # NumPy's may have no dimensions
                if isinstance(value, (str, bytes, bytearray, Mapping)) or not is_list:
                    raise TypeMismatchError(f"value {index}: {short_repr(value)} cannot be converted to {type}")
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    return list(chain.from_iterable(values)) if elements is None else elements, lengths, mask


class AnyListLayout(Layout):
    """Lists of elements of one child: what the layouts of lists have in common."""

    __slots__ = ()

    CHILD_NAMES = ("item",)

    @abstractmethod
    def offsets_and_sizes(self, array: ArrayData) -> tuple[Indices, Indices]:
        """Return the starts of the lists in the child, and their sizes. Raises `InvalidDataError` if one exceeds it."""

    @abstractmethod
    def range_at(self, array: ArrayData, index: int) -> tuple[int, int]:
        """Return the start of one list in the child and its size, unchecked."""

    @abstractmethod
    def create_array(self, sizes: Values, child: ArrayData, validity: Buffer | None) -> ArrayData:
        """Create an array of consecutive lists of these sizes in the child."""

    def from_pylist(self, values: Sequence[Any]) -> ArrayData:
        elements, sizes, mask = flatten_lists(values, self.type)
        return self.create_array(sizes, create_elements(self.children[0], elements), pack_validity(mask))

    def value_at(self, array: ArrayData, index: int, max_elements: int | None = None) -> Any:
        if array.is_null_at(index):
            return None
        start, size = self.range_at(array, index)
        child = array.children[0]
        if not 0 <= start <= start + size <= child.length:
            return super().value_at(array, index)  # raises
        try:
            return self.elements_at(child, start, size, max_elements)
        except InvalidDataError:
            validate(child.slice(start, size), full=True)  # raises with the index in the list
            raise

    def elements_at(self, child: ArrayData, start: int, size: int, max_elements: int | None = None) -> list[Any]:
        """Return elements of a child as Python objects, with `max_elements` as `value_at` does."""
        if max_elements is None:
            return child.slice(start, size).to_pylist()
        return [child.layout.value_at(child, start + index, max_elements) for index in range(min(size, max_elements))]

    def copy_to_numpy(self, array: ArrayData) -> Values:
        """Return an array of objects, shape (length,): a view of the elements of each list, or None."""
        array = array.compact()
        elements = array.children[0].to_numpy(zero_copy_only=False)
        starts, sizes = self.offsets_and_sizes(array)
        size = int(sizes[0]) if sizes.size else 0
        if (starts == np.arange(len(starts)) * size).all() and len(elements) == size * len(starts):
            rows = list(elements.reshape(len(starts), size, *elements.shape[1:]))
        else:
            ranges = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
            rows = [elements[start:stop] for start, stop in ranges]
        return to_object_array(set_nulls_to_none(rows, array.validity_mask()))

    def take(self, array: ArrayData, indices: Indices) -> ArrayData:
        if len(indices) and (lists := SlotSelection.from_single_array(array, indices).interleave()) is not None:
            return lists
        starts, sizes = (part[indices] for part in self.offsets_and_sizes(array))
        return self.create_array(sizes, take_ranges(array.children[0], starts, sizes), array.take_validity(indices))


class ListLayout(VariableSizeLayout, AnyListLayout, InterleavableLayout):
    """Lists with 32- or 64-bit offsets."""

    __slots__ = ()

    MAX_OFFSET_NAME = "the child's length of"

    def __init__(self, type: DataType, offset_bits: int, values: Layout) -> None:
        super().__init__(type, offset_bits, children=(values,))

    def max_valid_offset(self, array: ArrayData) -> int:
        return array.children[0].length

    def offsets_and_sizes(self, array: ArrayData) -> tuple[Indices, Indices]:
        offsets = self.offsets(array).astype(np.int64)
        return offsets[:-1], np.diff(offsets)

    def range_at(self, array: ArrayData, index: int) -> tuple[int, int]:
        start, stop = self.offsets_at(array, index)
        return start, stop - start

    def elements(self, array: ArrayData, offsets: Values) -> ArrayData:
        """Return the child's elements from the first to the last offset."""
        return array.children[0].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))

    def create_array(self, sizes: Values, child: ArrayData, validity: Buffer | None) -> ArrayData:
        offsets = offsets_from_lengths(sizes, self.offset_type, self.type)
        return ArrayData(self, len(sizes), (validity, Buffer.of(offsets)), (child,))

    def to_pylist(self, array: ArrayData) -> list[Any]:
        offsets = self.offsets(array)
        values = self.elements_at(array.children[0], int(offsets[0]), int(offsets[-1] - offsets[0]))
        lists = [values[start:stop] for start, stop in pairwise((offsets - offsets[0]).tolist())]
        return set_nulls_to_none(lists, array.validity_mask())

    def compact(self, array: ArrayData) -> ArrayData:
        first, last, offsets = self.compact_offsets(array)
        child = array.children[0].slice(first, last - first).compact()
        buffers = (array.compact_validity(), offsets)
        return ArrayData(self, array.length, buffers, (child,), null_count=array.null_count)

    def interleave(self, slots: SlotSelection) -> ArrayData | None:
        starts, lengths = self.value_ranges(slots)
        child = slots.take_child_ranges(0, starts, lengths)
        return None if child is None else self.create_array(lengths, child, slots.gather_validity())

    def concat(self, arrays: Sequence[ArrayData]) -> ArrayData:
        children = [array.children[0] for array in arrays]
        counts = array_lengths(children)
        lengths, first, last = self.lengths_and_offset_bounds(arrays, counts)
        if first.any() or (last < counts).any():
            spans = zip(children, first.tolist(), (last - first).tolist(), strict=True)
            children = [child.slice(start, count) for child, start, count in spans]
        return self.create_array(lengths, self.children[0].concat(children), concat_validity(arrays))

    def have_equal_values(self, left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
        left_offsets, right_offsets = self.offsets(left), self.offsets(right)
        if not offsets_equal(left_offsets, right_offsets):
            return False
        return arrays_equal(self.elements(left, left_offsets), self.elements(right, right_offsets), nans_equal)

    def identity_keys(self, array: ArrayData) -> tuple[Values, ...]:
        offsets = self.offsets(array)
        return (list_identity_keys(self.elements(array, offsets), offsets.astype(np.int64) - offsets[0]),)


class MapLayout(ListLayout):
    """Lists of key-value pairs; in Python lists of pairs, built from such lists or from dictionaries."""

    __slots__ = ("_names",)

    CHILD_NAMES = ("entries",)
    CHECKS_CHILD_VALUES = True

    def __init__(self, type: Map, entries: Layout) -> None:
        super().__init__(type, 32, entries)
        self._names = (type.key_field.name, type.item_field.name)

    def from_pylist(self, values: Sequence[Any]) -> ArrayData:
        lists, mask = replace_none(values, ())
        if not {list}.issuperset(map(builtins.type, lists)):
            lists = [value.items() if isinstance(value, Mapping) else value for value in lists]
        pairs, lengths, _ = flatten_lists(lists, self.type)
        if dict in map(builtins.type, pairs):  # entries as `to_pylist` of the entries returns them
            pairs = [tuple(map(pair.get, self._names)) if isinstance(pair, dict) else pair for pair in pairs]
        if not {tuple, list}.issuperset(map(builtins.type, pairs)) or not {2}.issuperset(map(len, pairs)):
            raise self._pair_error(pairs)
        entries, keys, items = self.children[0], [key for key, _ in pairs], [item for _, item in pairs]
        if NoneType in map(builtins.type, keys):
            raise self._pair_error(pairs)
        key_layout, item_layout = entries.children
        columns = (key_layout.from_pylist(keys), item_layout.from_pylist(items))
        return self.create_array(lengths, ArrayData(entries, len(pairs), (None,), columns), pack_validity(mask))

    def elements(self, array: ArrayData, offsets: Values) -> ArrayData:
        # An array of an equal type may have other names for its keys and items.
        return super().elements(array, offsets).with_layout(self.children[0])

    def copy_to_numpy(self, array: ArrayData) -> Values:
        return Layout.copy_to_numpy(self, array)  # lists of pairs

    def _pair_error(self, pairs: Sequence[Any] | Values) -> TypeMismatchError:
        index, pair = next(
            (index, pair)
            for index, pair in enumerate(pairs)
            if type(pair) not in (tuple, list) or len(pair) != 2 or pair[0] is None
        )
        return TypeMismatchError(f"entry {index}: {short_repr(pair)} is not a pair of a key and a value of {self.type}")

    def elements_at(self, child: ArrayData, start: int, size: int, max_elements: int | None = None) -> list[Any]:
        entries, elements_at = child.slice(start, size), super().elements_at
        entries.layout.check(entries)
        keys, items = (elements_at(column, entries.offset, size, max_elements) for column in entries.children)
        return list(zip(keys, items, strict=True))

    def check_full(self, array: ArrayData) -> None:
        super().check_full(array)  # the offsets of null slots, too
        mask = array.validity_mask()
        array = array if mask is None else self.take(array, np.flatnonzero(mask))
        entries = self.elements(array, self.offsets(array))
        if entries.null_count:
            raise InvalidDataError(f"the map has {entries.null_count} null entries; entries must not be null")
        keys = entries.compact().children[0]
        if keys.null_count:
            raise InvalidDataError(f"the map has {keys.null_count} null keys; keys must not be null")
