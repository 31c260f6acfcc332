"""Elements and lengths of lists of any layout."""

from __future__ import annotations

from bowstring.datatypes.factories import int32, int64
from bowstring.datatypes.types import LargeList, LargeListView
from bowstring.layouts.base import ArrayData, Values
from bowstring.layouts.gather import take_ranges
from bowstring.layouts.list_ import AnyListLayout
from bowstring.layouts.registry import primitive_layout


def flatten(array: ArrayData) -> ArrayData:
    """Return the elements of all lists that are not null, one list after the other; copied if they are not contiguous.

    Raises `LimitError` if lists of views share elements so that there are many more of them than the child has bytes.
    """
    starts, sizes = offsets_and_sizes(array)
    valid = array.validity_mask()
    if valid is not None:
        starts, sizes = starts[valid], sizes[valid]
    child = array.children[0]
    if not sizes.size:
        return child.slice(0, 0)
    if (starts[1:] == starts[:-1] + sizes[:-1]).all():
        return child.slice(int(starts[0]), int(sizes.sum()))
    return take_ranges(child, starts, sizes)


def value_lengths(array: ArrayData) -> ArrayData:
    """Return the number of elements of each list, null for null; int32, for large lists int64."""
    _, sizes = offsets_and_sizes(array)
    layout = primitive_layout(int64() if isinstance(array.type, LargeList | LargeListView) else int32())
    return layout.create_array(sizes.astype(layout.dtype), array.validity_mask())


def offsets_and_sizes(array: ArrayData) -> tuple[Values, Values]:
    """Return the start of each list in the child and its size, of null lists too. Raises `InvalidDataError`."""
    layout = array.layout
    assert isinstance(layout, AnyListLayout)
    return layout.offsets_and_sizes(array)
