"""Unions up to metadata version 4, which had a validity bitmap of their own. Today nulls are in the children."""

from __future__ import annotations

import numpy as np

from bowstring.errors import InvalidDataError, prefix_errors
from bowstring.layouts.base import ArrayData, find_first_true, to_buffer
from bowstring.layouts.union import UnionLayout
from bowstring.layouts.validation import validate
from bowstring.memory import bitmap
from bowstring.memory.buffer import Buffer


def move_nulls_to_children(union: ArrayData, validity: Buffer) -> ArrayData:
    """Return the union with a null in the child for each null in its own validity bitmap, copied.

    `union` begins at offset 0. Offsets of null slots are ignored, and so are their type ids unless the type has them.
    Raises `InvalidDataError` for children that are invalid or too short, and for unknown ids.
    """
    layout = union.layout.storage
    assert isinstance(layout, UnionLayout)
    if union.length and not layout.ids:
        raise InvalidDataError(f"{union.length} slots of a union of no types")
    for name, child in zip(layout.names, union.children, strict=True):
        with prefix_errors(f"child {name!r}"):
            validate(child, full=True)
    is_null = ~bitmap.unpack(validity, 0, union.length)
    ids = union.buffer_values(0).copy()
    ids[is_null & ~np.isin(ids, layout.ids)] = layout.ids[0] if layout.ids else 0
    union_without_offsets = ArrayData(layout, union.length, (to_buffer(ids),), union.children)
    child_index_per_slot = layout.child_index_per_slot(union_without_offsets)
    offsets = union.buffer_values(1).copy() if layout.is_dense else np.arange(union.length)
    children = []
    for number, child in enumerate(union.children):
        slots = np.flatnonzero(child_index_per_slot == number) if layout.is_dense else np.arange(union.length)
        is_null_here = is_null[slots] & (child_index_per_slot[slots] == number)
        value_indices = offsets[slots].astype(np.int64)
        is_invalid = ~is_null_here & ((value_indices < 0) | (value_indices >= child.length))
        if is_invalid.any():
            at = find_first_true(is_invalid)
            raise InvalidDataError(f"slot {slots[at]} is value {value_indices[at]} of a child of {child.length} values")
        value_indices[is_null_here] = child.length
        padded = child.layout.concat([child, child.layout.nulls(1)]) if is_null_here.any() else child
        children.append(child.layout.take(padded, value_indices))
        if layout.is_dense:
            offsets[slots] = np.arange(len(slots))
    buffers = [to_buffer(ids), to_buffer(offsets)] if layout.is_dense else [to_buffer(ids)]
    return ArrayData(union.layout, union.length, tuple(buffers), tuple(children))
