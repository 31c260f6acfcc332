"""«Union Layout»: type ids, offsets if it is dense, and a child array for each type; no validity bitmap.

>>> import bowstring as bs
>>> array = bs.array([1.5, None, 3.5, 5], bs.dense_union([("f", bs.float32()), ("i", bs.int32())]))
>>> array.buffer_values(0).tolist(), array.buffer_values(1).tolist()
([0, 0, 0, 1], [0, 1, 2, 0])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bowstring.datatypes.types import Union
from bowstring.errors import InvalidDataError, TypeMismatchError, prefix_errors
from bowstring.layouts.base import (
    ArrayData,
    BufferRole,
    BufferSpec,
    Indices,
    Layout,
    Values,
    find_first_true,
    short_repr,
    to_buffer,
)
from bowstring.layouts.equality import arrays_equal
from bowstring.layouts.factorize import factorize
from bowstring.layouts.validation import validate
from bowstring.memory.bitmap import Mask

TYPE_IDS = BufferSpec(BufferRole.TYPE_IDS, np.dtype("i1"))
OFFSETS = BufferSpec(BufferRole.OFFSETS, np.dtype("i4"))


class UnionLayout(Layout):
    """Values of one of several types; `value_offsets` returns the index of each slot in its child."""

    __slots__ = ("_child_index_by_id", "ids", "is_dense", "names")

    def __init__(self, type: Union, children: Sequence[Layout]) -> None:
        self.is_dense = type.mode == "dense"
        super().__init__(type, (TYPE_IDS, OFFSETS) if self.is_dense else (TYPE_IDS,), children)
        self.ids = type.type_ids
        self.names = [f.name for f in type.fields]
        # By the type id as an unsigned byte: negative ids find -1, as those that the type does not have.
        self._child_index_by_id = np.full(256, -1, np.int64)
        self._child_index_by_id[list(self.ids)] = range(len(self.ids))

    def child_index_per_slot(self, array: ArrayData) -> Indices:
        """Return the child's index for each slot. Raises `InvalidDataError` for an unknown type id."""
        ids = array.buffer_values(0)
        child_indices = self._child_index_by_id[ids.view(np.uint8)]
        if child_indices.size and child_indices.min() < 0:
            index = find_first_true(child_indices < 0)
            raise InvalidDataError(f"type_ids[{index}] = {ids[index]} is not one of the type's ids {self.ids}")
        return child_indices

    def value_offsets(self, array: ArrayData, child_indices: Indices) -> Indices:
        """Return the index of each slot in its child. Raises `InvalidDataError` if a child is too short."""
        if not self.is_dense:
            self.check(array)
            return np.arange(array.offset, array.offset + array.length)
        offsets = array.buffer_values(1).astype(np.int64)
        lengths = np.array([child.length for child in array.children], np.int64)
        if offsets.size:
            invalid = (offsets < 0) | (offsets >= lengths[child_indices])
            if invalid.any():
                i = find_first_true(invalid)
                name = self.names[child_indices[i]]
                raise InvalidDataError(
                    f"offsets[{i}] = {offsets[i]} is not within child {name!r} of {lengths[child_indices[i]]} values"
                )
        return offsets

    def split_by_child(
        self, array: ArrayData, indices: Indices | slice = slice(None)
    ) -> list[tuple[Indices, ArrayData]]:
        """Return for each child which of the slots at `indices` (by default all) belong to it, and their values."""
        child_indices = self.child_index_per_slot(array)
        value_offsets = self.value_offsets(array, child_indices)[indices]
        parts = []
        for child_index, child in enumerate(array.children):
            slots = np.flatnonzero(child_indices[indices] == child_index)
            parts.append((slots, child.take(value_offsets[slots])))
        return parts

    def logical_validity_mask(self, array: ArrayData, in_unions: bool = True) -> Mask | None:
        if not in_unions:
            return None
        out = np.ones(array.length, np.bool_)
        for slots, child in self.split_by_child(array):
            child_mask = child.layout.logical_validity_mask(child)
            if child_mask is not None:
                out[slots] = child_mask
        return None if out.all() else out

    def _create_array(self, child_indices: Indices, parts: Sequence[tuple[Indices, ArrayData]]) -> ArrayData:
        """Create an array of the index of each slot's child, and for each child its slots and their values."""
        length = len(child_indices)
        ids = to_buffer(np.array(self.ids, np.int8)[child_indices])
        if self.is_dense:  # each child has only its own values, which the offsets locate
            offsets = np.zeros(length, np.int32)
            for slots, _ in parts:
                offsets[slots] = np.arange(len(slots))
            return ArrayData(self, length, (ids, to_buffer(offsets)), tuple(child for _, child in parts))
        children = []  # sparse: each child has the union's length, with nulls in the slots of other children
        for layout, (slots, child) in zip(self.children, parts, strict=True):
            indices = np.full(length, len(child))  # of the null after the child's values
            indices[slots] = np.arange(len(slots))
            children.append(layout.take(layout.concat([child, layout.nulls(1)]), indices) if length else child)
        return ArrayData(self, length, (ids,), tuple(children))

    def child_name(self, index: int) -> str:
        return f"child {self.names[index]!r}"

    def from_pylist(self, values: Sequence[Any]) -> ArrayData:
        indices = [self._find_child_for_value(index, value) for index, value in enumerate(values)]
        child_indices = np.array(indices, np.int64)
        parts = []
        for child_index, layout in enumerate(self.children):
            slots = np.flatnonzero(child_indices == child_index)
            parts.append((slots, layout.from_pylist([values[slot] for slot in slots.tolist()])))
        return self._create_array(child_indices, parts)

    def _find_child_for_value(self, index: int, value: Any) -> int:
        """Return the index of the first child that represents a value exactly.

        If there is none: of the first that converts it to a value of the same Python type, else of the first that
        accepts it. Raises `TypeMismatchError` if no child accepts it.
        """
        same_type_index = accepting_index = -1
        for child_index, layout in enumerate(self.children):
            try:
                child = layout.from_pylist([value])
                validate(child, full=True)
                child_value = child.to_pylist()[0]
            except (TypeMismatchError, InvalidDataError):
                continue
            if type(child_value) is type(value):
                if repr(child_value) == repr(value):
                    return child_index
                same_type_index = child_index if same_type_index < 0 else same_type_index
            accepting_index = child_index if accepting_index < 0 else accepting_index
        if accepting_index < 0:
            raise TypeMismatchError(f"value {index}: {short_repr(value)} does not fit any of the types of {self.type}")
        return same_type_index if same_type_index >= 0 else accepting_index

    def to_pylist(self, array: ArrayData) -> list[Any]:
        out: list[Any] = [None] * array.length
        for slots, child in self.split_by_child(array):
            for slot, value in zip(slots.tolist(), child.to_pylist(), strict=True):
                out[slot] = value
        return out

    def value_at(self, array: ArrayData, index: int, max_elements: int | None = None) -> Any:
        child = next(child for slots, child in self.split_by_child(array.slice(index, 1)) if len(slots))
        return child.layout.value_at(child, 0, max_elements)

    def compact(self, array: ArrayData) -> ArrayData:
        offsets, own_ids = None if not self.is_dense else array.own_buffers[1], array.slice_buffer(0)
        if not self.is_dense:  # the children are cut like the union
            self.check(array)
            children = [child.slice(array.offset, array.length).compact() for child in array.children]
            return ArrayData(self, array.length, (own_ids,), tuple(children))
        if array.offset == 0 and offsets is not None and offsets.size == array.length * 4:
            return ArrayData(self, array.length, (own_ids, offsets), tuple(child.compact() for child in array.children))
        # Each child is cut to the range that the slots use; offsets outside the slots may use more of it.
        child_indices = self.child_index_per_slot(array)
        value_offsets = self.value_offsets(array, child_indices)
        new_offsets = np.zeros(array.length, np.int32)
        children = []
        for child_index, child in enumerate(array.children):
            slots = np.flatnonzero(child_indices == child_index)
            offsets_of_child = value_offsets[slots]
            low, high = (int(offsets_of_child.min()), int(offsets_of_child.max()) + 1) if slots.size else (0, 0)
            new_offsets[slots] = offsets_of_child - low
            children.append(child.slice(low, high - low).compact())
        return ArrayData(self, array.length, (own_ids, to_buffer(new_offsets)), tuple(children))

    def take(self, array: ArrayData, indices: Indices) -> ArrayData:
        return self._create_array(self.child_index_per_slot(array)[indices], self.split_by_child(array, indices))

    def concat(self, arrays: Sequence[ArrayData]) -> ArrayData:
        bases = np.cumsum([0] + [array.length for array in arrays])
        children_of_arrays = [self.split_by_child(array) for array in arrays]
        parts = []
        for layout, children in zip(self.children, zip(*children_of_arrays, strict=True), strict=True):
            slots = np.concatenate([slots + base for (slots, _), base in zip(children, bases, strict=False)])
            parts.append((slots, layout.concat([values for _, values in children])))
        return self._create_array(np.concatenate([self.child_index_per_slot(array) for array in arrays]), parts)

    def have_equal_values(self, left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
        if not np.array_equal(self.child_index_per_slot(left), self.child_index_per_slot(right)):
            return False
        pairs = zip(self.split_by_child(left), self.split_by_child(right), strict=True)
        return all(arrays_equal(left_values, right_values, nans_equal) for (_, left_values), (_, right_values) in pairs)

    def identity_keys(self, array: ArrayData) -> tuple[Values, ...]:
        codes = np.zeros(array.length, np.int64)
        for index, (slots, child) in enumerate(self.split_by_child(array)):
            # Codes of different children differ modulo the number of children, and codes are below the number of slots:
            # no overflow.
            codes[slots] = factorize(child)[0] * len(self.ids) + index
        return (codes,)

    def check(self, array: ArrayData) -> None:
        if self.is_dense:  # `check_full` checks the offsets
            return
        needed = array.offset + array.length
        for name, child in zip(self.names, array.children, strict=True):
            if child.length < needed:
                raise InvalidDataError(f"child {name!r} has {child.length} values, the sparse union has {needed}")

    def check_full(self, array: ArrayData) -> None:
        child_indices = self.child_index_per_slot(array)
        value_offsets = self.value_offsets(array, child_indices)
        for index, name in enumerate(self.names if self.is_dense else ()):
            offsets: Values = value_offsets[child_indices == index]
            falling = offsets[1:] < offsets[:-1]
            if falling.any():
                first = find_first_true(falling)
                with prefix_errors(f"child {name!r}"):
                    raise InvalidDataError(f"its offsets decrease from {offsets[first]} to {offsets[first + 1]}")
