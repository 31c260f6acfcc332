"""The shortest and the longest list of a column, at each level of nesting, from the offsets alone.

A column is dense if both are equal at every level. ML vectors (`bowstring.kernels.ml_vectors`) count as lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import TypeAlias

import numpy as np

from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import DataType
from bowstring.datatypes.types import BaseList
from bowstring.kernels.lists import offsets_and_sizes
from bowstring.kernels.ml_vectors import is_vector, vector_sizes
from bowstring.layouts.base import ArrayData, Indices, check_expanded_array
from bowstring.memory.bitmap import Mask

ListLengthBounds: TypeAlias = tuple[tuple[int, int], ...]
"""The lengths of the shortest and the longest list that are not null, for each level, outermost first."""
ListLengths: TypeAlias = tuple[tuple[int, ListLengthBounds], ...]
"""The bounds of columns by their index, in ascending order."""
NO_LISTS = (2**63 - 1, -1)
"""The bounds of a level without lists: neutral in `merge_list_length_bounds`."""
# Bounds the memory of offsets and lengths as 64-bit integers, and keeps them in the processor's caches.
_BLOCK_ROWS = 1 << 16


def count_list_levels(data_type: DataType) -> int:
    """Return how many levels of lists a type has, 0 if it is not a list.

    Extension types count as their storage. Lists in structs, maps, dictionaries and runs do not count.
    """
    if isinstance(data_type, ExtensionType):
        return count_list_levels(data_type.storage_type)
    if isinstance(data_type, BaseList):
        return 1 + count_list_levels(data_type.value_type)
    return int(is_vector(data_type))


def list_length_bounds(array: ArrayData) -> ListLengthBounds | None:
    """Return the bounds of the lengths of lists of any layout, `NO_LISTS` for a level without any; None for a column of
    another type.

    Null lists, and the lists in them, are ignored. Raises `InvalidDataError` if offsets are malformed.
    """
    num_levels = count_list_levels(array.type)
    if not num_levels:
        return None
    check_expanded_array(array)
    blocks = (array.slice(start, _BLOCK_ROWS) for start in range(0, array.length, _BLOCK_ROWS))
    return reduce(
        merge_list_length_bounds, (_find_bounds(block, num_levels) for block in blocks), (NO_LISTS,) * num_levels
    )


def _find_bounds(array: ArrayData, num_levels: int) -> ListLengthBounds:
    bounds = []
    is_element: Mask | None = None  # which slots are in lists of the level above; None for all
    for level in range(num_levels):
        array = array.storage
        valid = array.validity_mask()
        if is_element is not None:
            valid = is_element if valid is None else valid & is_element
        starts, sizes = _find_lists(array)
        if valid is not None:
            starts, sizes = starts[valid], sizes[valid]
        bounds.append((int(sizes.min()), int(sizes.max())) if sizes.size else NO_LISTS)
        if level < num_levels - 1:
            array, is_element = _select_elements(array.children[0], starts, sizes)
            check_expanded_array(array)
    return tuple(bounds)


def _find_lists(array: ArrayData) -> tuple[Indices, Indices]:
    """Return the starts of lists in their child, and their sizes; of vectors, which have no level below, only sizes."""
    if is_vector(array.type):
        sizes = vector_sizes(array)
        return np.zeros_like(sizes), sizes
    return offsets_and_sizes(array)


def _select_elements(child: ArrayData, starts: Indices, sizes: Indices) -> tuple[ArrayData, Mask | None]:
    """Return the child of some lists, or a part of it, and which of its slots are in the lists; None for all."""
    if not sizes.size:
        return child.slice(0, 0), None
    ends = starts + sizes
    if (starts[1:] == ends[:-1]).all():
        return child.slice(int(starts[0]), int(ends[-1] - starts[0])), None
    # Lists of views may share elements. Within a list, more lists have begun than ended.
    first, last = int(starts.min()), int(ends.max())
    child, starts, ends = child.slice(first, last - first), starts - first, ends - first
    check_expanded_array(child)
    changes = np.bincount(starts, minlength=child.length + 1) - np.bincount(ends, minlength=child.length + 1)
    return child, np.cumsum(changes[:-1]) > 0


def merge_list_length_bounds(left: ListLengthBounds, right: ListLengthBounds) -> ListLengthBounds:
    """Return the bounds of the lists of two columns of one type."""
    pairs = zip(left, right, strict=True)
    return tuple((min(first[0], second[0]), max(first[1], second[1])) for first, second in pairs)


class ListLengthCollector:
    """Merges the bounds of the lists in batches with columns of these types."""

    def __init__(self, types: Iterable[DataType]) -> None:
        levels = enumerate(map(count_list_levels, types))
        self._bounds: dict[int, ListLengthBounds] = {index: (NO_LISTS,) * count for index, count in levels if count}

    @property
    def list_lengths(self) -> ListLengths:
        """The bounds of the list columns of all batches so far."""
        return tuple(self._bounds.items())

    def add(self, get_column: Callable[[int], ArrayData]) -> None:
        """Add a batch, whose columns `get_column` returns by index. Raises as `list_length_bounds`."""
        for index, bounds in self._bounds.items():
            self._bounds[index] = merge_list_length_bounds(bounds, list_length_bounds(get_column(index)) or bounds)
