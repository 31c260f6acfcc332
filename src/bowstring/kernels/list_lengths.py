"""The shortest and the longest list of a column, at each level of nesting, from the offsets alone.

A column is dense if both are equal at every level. ML vectors (`bowstring.kernels.ml_vectors`) count as lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from bowstring.datatypes.base import DataType
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.nested import BaseList
from bowstring.kernels.lists import offsets_and_sizes
from bowstring.kernels.ml_vectors import is_vector, vector_sizes
from bowstring.layouts.base import ArrayData, Indices
from bowstring.layouts.expansion_limits import check_expanded_array
from bowstring.memory.bitmap import Mask

ListLengthBounds: TypeAlias = tuple[tuple[int, int], ...]
"""The lengths of the shortest and the longest list that are not null, for each level, outermost first."""
ListLengths: TypeAlias = tuple[tuple[int, ListLengthBounds], ...]
"""The bounds of columns by their index, in ascending order."""
NO_LISTS = (2**63 - 1, -1)
"""The bounds of a level without lists: neutral in `merge_list_length_bounds`."""


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
    bounds = []
    is_element: Mask | None = None  # which slots are in lists of the level above; None for all
    for level in range(num_levels):
        array = array.storage
        check_expanded_array(array)
        valid = array.validity_mask()
        if is_element is not None:
            valid = is_element if valid is None else valid & is_element
        starts, sizes = _find_lists(array)
        if valid is not None:
            starts, sizes = starts[valid], sizes[valid]
        bounds.append((int(sizes.min()), int(sizes.max())) if sizes.size else NO_LISTS)
        if level < num_levels - 1:
            array, is_element = _select_elements(array.children[0], starts, sizes)
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
    check_expanded_array(child)
    changes = np.bincount(starts, minlength=child.length + 1) - np.bincount(ends, minlength=child.length + 1)
    return child, np.cumsum(changes[:-1]) > 0


def merge_list_length_bounds(left: ListLengthBounds, right: ListLengthBounds) -> ListLengthBounds:
    """Return the bounds of the lists of two columns of one type."""
    pairs = zip(left, right, strict=True)
    return tuple((min(first[0], second[0]), max(first[1], second[1])) for first, second in pairs)


def find_list_lengths(columns: Sequence[ArrayData]) -> ListLengths:
    """Return the bounds of all columns that are lists. Raises as `list_length_bounds`."""
    bounds = enumerate(map(list_length_bounds, columns))
    return tuple((index, each) for index, each in bounds if each is not None)


def merge_list_lengths(left: ListLengths, right: ListLengths) -> ListLengths:
    """Return the bounds of the columns that both parts have recorded."""
    others = dict(right)
    return tuple((index, merge_list_length_bounds(each, others[index])) for index, each in left if index in others)
