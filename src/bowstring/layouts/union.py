"""«Union Layout»: type ids, offsets where it is dense, and a child array for each type; no validity of its own.

>>> import bowstring as bs
>>> array = bs.array([1.5, None, 3.5, 5], bs.dense_union([("f", bs.float32()), ("i", bs.int32())]))
>>> array.values(0).tolist(), array.values(1).tolist()
([0, 0, 0, 1], [0, 1, 2, 0])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.errors import DataTypeError, InvalidDataError
from bowstring.layouts.array import Array
from bowstring.layouts.base import (
    BufferSpec,
    Indices,
    Layout,
    Role,
    Values,
    error_context,
    first_true,
    short_repr,
    to_buffer,
)
from bowstring.layouts.equality import arrays_equal
from bowstring.layouts.factorize import factorize
from bowstring.memory.bitmap import Mask

if TYPE_CHECKING:
    from bowstring.datatypes.types import Union

TYPE_IDS = BufferSpec(Role.TYPE_IDS, np.dtype("i1"))
OFFSETS = BufferSpec(Role.OFFSETS, np.dtype("i4"))


class UnionLayout(Layout):
    """Values of one of several types; `child_slots` leads from a slot to its place in its child."""

    __slots__ = ("_child_of", "ids", "is_dense", "names")

    def __init__(self, type: Union, children: Sequence[Layout]) -> None:
        self.is_dense = type.mode == "dense"
        super().__init__(type, (TYPE_IDS, OFFSETS) if self.is_dense else (TYPE_IDS,), children)
        self.ids = type.type_ids
        self.names = [f.name for f in type.fields]
        self._child_of = np.full(256, -1, np.int64)
        self._child_of[list(self.ids)] = range(len(self.ids))

    def child_indices(self, array: Array) -> Indices:
        """Which child each slot belongs to; raises `InvalidDataError` for an unknown type id."""
        ids = array.values(0)
        child_indices = self._child_of[ids.view(np.uint8)]
        if child_indices.size and child_indices.min() < 0:
            at = first_true(child_indices < 0)
            raise InvalidDataError(f"type_ids[{at}] = {ids[at]} is none of the type's ids {self.ids}")
        return child_indices

    def child_slots(self, array: Array, child_indices: Indices) -> Indices:
        """Where each slot's value lies in its child; raises `InvalidDataError` for an offset beyond it."""
        if not self.is_dense:
            return np.arange(array.offset, array.offset + array.length)
        offsets = array.values(1).astype(np.int64)
        lengths = np.array([child.length for child in array.children], np.int64)
        if offsets.size:
            bad = (offsets < 0) | (offsets >= lengths[child_indices])
            if bad.any():
                at = first_true(bad)
                name = self.names[child_indices[at]]
                raise InvalidDataError(
                    f"offsets[{at}] = {offsets[at]} is not within child {name!r} of {lengths[child_indices[at]]} values"
                )
        return offsets

    def split_by_child(self, array: Array) -> list[tuple[Indices, Array]]:
        """For each child: the slots that belong to it, and their values."""
        child_indices = self.child_indices(array)
        child_slots = self.child_slots(array, child_indices)
        parts = []
        for number, child in enumerate(array.children):
            slots = np.flatnonzero(child_indices == number)
            parts.append((slots, child.take(child_slots[slots])))
        return parts

    def valid_mask(self, array: Array) -> Mask | None:
        out = np.ones(array.length, np.bool_)
        for slots, child in self.split_by_child(array):
            held = child.layout.valid_mask(child)
            if held is not None:
                out[slots] = held
        return None if out.all() else out

    def identity_mask(self, array: Array) -> Mask | None:
        return None

    def _assemble(self, child_indices: Indices, parts: Sequence[tuple[Indices, Array]]) -> Array:
        ids = to_buffer(np.array(self.ids, np.int8)[child_indices])
        if self.is_dense:
            offsets = np.zeros(len(child_indices), np.int32)
            for slots, _ in parts:
                offsets[slots] = np.arange(len(slots))
            return Array(self, len(child_indices), (ids, to_buffer(offsets)), tuple(child for _, child in parts))
        children = []
        for layout, (slots, child) in zip(self.children, parts, strict=True):
            if not len(child_indices):
                children.append(child)
                continue
            padded = layout.concat([child, layout.build([None])])
            where = np.full(len(child_indices), len(child))
            where[slots] = np.arange(len(slots))
            children.append(layout.take(padded, where))
        return Array(self, len(child_indices), (ids,), tuple(children))

    def child_name(self, index: int) -> str:
        return f"child {self.names[index]!r}"

    def build(self, values: Sequence[Any]) -> Array:
        child_indices = np.fromiter(
            (self._member_for(i, value) for i, value in enumerate(values)), np.int64, len(values)
        )
        parts = []
        for number, layout in enumerate(self.children):
            slots = np.flatnonzero(child_indices == number)
            parts.append((slots, layout.build([values[slot] for slot in slots.tolist()])))
        return self._assemble(child_indices, parts)

    def _member_for(self, index: int, value: Any) -> int:
        """The first child that gives the value back as it is, else the first that does so by its Python type, else the
        first that takes it.
        """
        fallback = alike = -1
        for number, layout in enumerate(self.children):
            try:
                made = layout.build([value])
                made.validate(full=True)
                back = made.to_pylist()[0]
            except (DataTypeError, InvalidDataError):
                continue
            if type(back) is type(value):
                if repr(back) == repr(value):
                    return number
                alike = number if alike < 0 else alike
            fallback = number if fallback < 0 else fallback
        if fallback < 0:
            raise DataTypeError(f"value {index}: {short_repr(value)} is of none of the types of {self.type}")
        return alike if alike >= 0 else fallback

    def to_pylist(self, array: Array) -> list[Any]:
        out: list[Any] = [None] * array.length
        for slots, child in self.split_by_child(array):
            for slot, value in zip(slots.tolist(), child.to_pylist(), strict=True):
                out[slot] = value
        return out

    def compact(self, array: Array) -> Array:
        first, last = array.offset, array.offset + array.length
        ids = array.buffers[0]
        own = ids and ids.slice(first, array.length)
        if not self.is_dense:
            return Array(
                self, array.length, (own,), tuple(c.slice(first, array.length).compact() for c in array.children)
            )
        offsets = array.buffers[1]
        if first == 0 and offsets is not None and offsets.size == last * 4:
            return Array(self, array.length, (own, offsets), tuple(child.compact() for child in array.children))
        child_indices = self.child_indices(array)
        child_slots = self.child_slots(array, child_indices)
        moved = np.zeros(array.length, np.int32)
        children = []
        for number, child in enumerate(array.children):
            slots = np.flatnonzero(child_indices == number)
            used = child_slots[slots]
            low, high = (int(used.min()), int(used.max()) + 1) if used.size else (0, 0)
            moved[slots] = used - low
            children.append(child.slice(low, high - low).compact())
        return Array(self, array.length, (own, to_buffer(moved)), tuple(children))

    def take(self, array: Array, indices: Indices) -> Array:
        child_indices = self.child_indices(array)
        child_slots = self.child_slots(array, child_indices)
        taken, where = child_indices[indices], child_slots[indices]
        parts = []
        for number, child in enumerate(array.children):
            slots = np.flatnonzero(taken == number)
            parts.append((slots, child.take(where[slots])))
        return self._assemble(taken, parts)

    def concat(self, arrays: Sequence[Array]) -> Array:
        bases = np.cumsum([0] + [array.length for array in arrays])
        split = [self.split_by_child(array) for array in arrays]
        parts = []
        for number, layout in enumerate(self.children):
            slots = np.concatenate([part[number][0] + base for part, base in zip(split, bases, strict=False)])
            parts.append((slots, layout.concat([part[number][1] for part in split])))
        return self._assemble(np.concatenate([self.child_indices(array) for array in arrays]), parts)

    def equal(self, left: Array, right: Array, nans_equal: bool) -> bool:
        if not np.array_equal(self.child_indices(left), self.child_indices(right)):
            return False
        pairs = zip(self.split_by_child(left), self.split_by_child(right), strict=True)
        return all(arrays_equal(mine, theirs, nans_equal) for (_, mine), (_, theirs) in pairs)

    def identity_keys(self, array: Array) -> tuple[Values, ...]:
        codes = np.zeros(array.length, np.int64)
        for number, (slots, child) in enumerate(self.split_by_child(array)):
            codes[slots] = factorize(child)[0] * len(self.ids) + number
        return (codes,)

    def check(self, array: Array) -> None:
        if self.is_dense:
            return
        needed = array.offset + array.length
        for name, child in zip(self.names, array.children, strict=True):
            if child.length < needed:
                raise InvalidDataError(f"child {name!r} has {child.length} values, the sparse union has {needed}")

    def check_full(self, array: Array) -> None:
        child_indices = self.child_indices(array)
        child_slots = self.child_slots(array, child_indices)
        if not self.is_dense:
            return
        for number, name in enumerate(self.names):
            own: Values = child_slots[child_indices == number]
            if (own[1:] < own[:-1]).any():
                with error_context(f"child {name!r}"):
                    at = first_true(own[1:] < own[:-1])
                    raise InvalidDataError(f"the offsets into it fall from {own[at]} to {own[at + 1]}")
