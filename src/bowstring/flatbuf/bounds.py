"""The rules that every offset, vector, vtable and table of a flatbuffer must satisfy.

Each function takes integers or NumPy arrays of them, for one place in the flatbuffer or for many, so that the scalar
and the vectorised reader apply the same rules. `size` is the flatbuffer's size in bytes.
"""

from __future__ import annotations

from typing import Any


def is_valid_offset(distance: Any, target: Any, size: int) -> Any:
    """Whether an offset points forward to a target of at least 4 bytes: a vtable distance or a length."""
    # Here and below `&` instead of `and`, for arrays: of int64, so that sums of 32-bit numbers do not wrap around.
    return (distance > 0) & (target + 4 <= size)


def is_valid_vector(start: Any, length: Any, item_bytes: int, size: int) -> Any:
    """Whether the elements of a string or vector, from `start` on, are in the flatbuffer."""
    # A length has 32 bits and an item at most a few dozen bytes: the product is far below 2**63.
    return start + length * item_bytes <= size


def is_valid_vtable(vtable: Any, size: int) -> Any:
    """Whether a vtable begins in the flatbuffer, so that its size and the table's can be read."""
    return (vtable >= 0) & (vtable + 4 <= size)


def is_valid_table(position: Any, table_size: Any, vtable: Any, vtable_size: Any, size: int) -> Any:
    """Whether a table and its vtable end in the flatbuffer, and the vtable has whole entries."""
    # `vtable_size & 1 == 0` compares `vtable_size & 1`: `&` binds more tightly than `==` in Python, unlike in C.
    is_vtable_whole = (vtable_size >= 4) & (vtable_size & 1 == 0) & (vtable + vtable_size <= size)
    return is_vtable_whole & (table_size >= 4) & (position + table_size <= size)


def is_valid_slot(offset: Any, inline_bytes: int, table_size: Any) -> Any:
    """Whether a slot of `inline_bytes` bytes at `offset` from the start of its table is in the table."""
    # The first 4 bytes of a table are the distance to its vtable.
    return (offset >= 4) & (offset + inline_bytes <= table_size)
