"""The sizes of the buffers of arrays, whole ones also of a slice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bowstring.layouts.base import ArrayData


def total_buffer_size(arrays: Iterable[ArrayData]) -> int:
    """Return the size of the buffers of arrays at every depth in bytes; shared buffers count once."""
    # By address, because `Buffer`s of the same memory are different objects, one for each array that is imported.
    sizes: dict[tuple[int, int], int] = {}
    remaining = list(arrays)
    while remaining:
        array = remaining.pop()
        sizes |= {(b.address, b.size): b.size for b in array.own_buffers if b is not None}
        remaining += [*array.children, *([] if array.dictionary is None else [array.dictionary])]
    return sum(sizes.values())


def sum_buffer_sizes(array: ArrayData, *, with_dictionaries: bool = True) -> int:
    """Return the sum of the sizes of an array's buffers at every depth in bytes.

    Shared buffers count each time: to find them takes about as long again. Without dictionaries, the sum is the
    memory for the slots.
    """
    size = sum([0 if buffer is None else buffer.size for buffer in array.own_buffers])
    for child in array.children:
        size += sum_buffer_sizes(child, with_dictionaries=with_dictionaries)
    if with_dictionaries and array.dictionary is not None:
        size += sum_buffer_sizes(array.dictionary)
    return size
