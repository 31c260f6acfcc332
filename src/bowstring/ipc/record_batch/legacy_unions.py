"""Unions up to metadata version 4: they had a validity bitmap of their own. Today a null is in the child."""

from __future__ import annotations

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.layouts.array import Array
from bowstring.layouts.base import error_context, first_true, to_buffer
from bowstring.layouts.union import UnionLayout
from bowstring.memory import bitmap
from bowstring.memory.buffer import Buffer


def move_nulls_to_children(union: Array, validity: Buffer) -> Array:
    """The union with a null in the child wherever its own validity bitmap has one, copied.

    `union` begins at offset 0. What a null slot's offset says does not count, nor its type id, unless it is one of the
    type's. Raises `InvalidDataError` for children that are not valid, or too short, and for unknown ids.
    """
    layout = union.layout.storage
    assert isinstance(layout, UnionLayout)
    if union.length and not layout.ids:
        raise InvalidDataError(f"{union.length} slots of a union of no types")
    for name, child in zip(layout.names, union.children, strict=True):
        with error_context(f"child {name!r}"):
            child.validate(full=True)
    is_null = ~bitmap.unpack(validity, 0, union.length)
    ids = union.values(0).copy()
    ids[is_null & ~np.isin(ids, layout.ids)] = layout.ids[0] if layout.ids else 0
    members = layout.child_indices(Array(layout, union.length, (to_buffer(ids),), union.children))
    offsets = union.values(1).copy() if layout.is_dense else np.arange(union.length)
    children = []
    for number, child in enumerate(union.children):
        slots = np.flatnonzero(members == number) if layout.is_dense else np.arange(union.length)
        own = is_null[slots] & (members[slots] == number)
        where = offsets[slots].astype(np.int64)
        bad = ~own & ((where < 0) | (where >= child.length))
        if bad.any():
            at = first_true(bad)
            raise InvalidDataError(f"slot {slots[at]} is value {where[at]} of a child of {child.length} values")
        where[own] = child.length
        padded = child.layout.concat([child, child.layout.build([None])]) if own.any() else child
        children.append(child.layout.take(padded, where))
        if layout.is_dense:
            offsets[slots] = np.arange(len(slots))
    buffers = [to_buffer(ids), to_buffer(offsets)] if layout.is_dense else [to_buffer(ids)]
    return Array(union.layout, union.length, tuple(buffers), tuple(children))
