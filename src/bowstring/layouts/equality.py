"""Equality of arrays: the same type, length, nulls and values; what lies under a null does not count.

Values that are *stored alike* are equal and have the same form: every NaN is alike, but 0.0 and -0.0 are two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from bowstring.datatypes.types import FloatingPoint
from bowstring.memory import bitmap

if TYPE_CHECKING:
    from bowstring.layouts.array import Array
    from bowstring.layouts.base import Layout, Values


_BLOCK_BYTES = 1 << 20


def arrays_equal(left: Array, right: Array, nans_equal: bool) -> bool:
    """Whether two arrays are equal. NaN equals nothing unless `nans_equal`; -0.0 equals 0.0."""
    if left.length != right.length or left.type != right.type:
        return False
    if left.length == 0:
        return True
    if left.layout.has_validity and left.null_count != right.null_count:
        return False
    validity = left.validity
    if validity is not None and right.validity is not None:
        mine = bitmap.realign(validity, left.offset, left.length)
        if not bitmap.same(mine, bitmap.realign(right.validity, right.offset, right.length), left.length):
            return False
        if left.null_count == left.length:
            return True
        return left.layout.equal_where_valid(left, right, nans_equal)
    return left.layout.equal(left, right, nans_equal)


def same(left: Values, right: Values) -> bool:
    """Whether two NumPy arrays of one shape (n,) hold the same elements; looks at a block after the other."""
    return next(differences(left, right, np.not_equal), None) is None


def differences(
    left: Values, right: Values, differ: Callable[[Values, Values], Values]
) -> Iterator[tuple[int, Values]]:
    """The blocks of two NumPy arrays of one shape (n,) that are not the same: where each begins, and which of its
    elements `differ`. Elements without bytes are the same, however many there are.
    """
    width = left.dtype.itemsize
    if not width:
        return
    step = max(_BLOCK_BYTES // width, 1)
    for at in range(0, len(left), step):
        bad = differ(left[at : at + step], right[at : at + step])
        if bad.any():
            yield at, bad


def begins_with(array: Array, start: Array) -> bool:
    """Whether an array of the same type has at least the slots of `start`, and its first ones are stored alike.

    Slots of the same memory are not looked at, so that this costs nothing where `array` is a longer slice of it.
    """
    if array is start:
        return True
    if start.length > array.length:
        return False
    return _share_slots(array, start) or _stored_alike(array.slice(0, start.length), start)


def _share_slots(left: Array, right: Array) -> bool:
    """Whether the slots that both have are the same memory, wherever each of them ends."""
    if left is right:
        return True
    if left.layout is not right.layout or left.offset != right.offset:
        return False
    mine, theirs = left.dictionary, right.dictionary
    if mine is not None and (theirs is None or not _share_slots(mine, theirs)):
        return False
    for ours, other in zip(left.buffers, right.buffers, strict=False):
        if ours is not other and (ours is None or other is None or ours.address != other.address):
            return False
    return all(_share_slots(a, b) for a, b in zip(left.children, right.children, strict=True))


def _stored_alike(left: Array, right: Array) -> bool:
    if not arrays_equal(left, right, nans_equal=True):
        return False
    if not _has_floats(left.layout):
        return True
    if isinstance(left.layout.storage.type, FloatingPoint):
        mask = left.mask()
        signs = np.signbit(left.values(1)), np.signbit(right.values(1))
        zeros = left.values(1) == 0 if mask is None else (left.values(1) == 0) & mask
        return not ((signs[0] != signs[1]) & zeros).any()
    return repr(left.to_pylist()) == repr(right.to_pylist())  # equal, so that only the signs of zeros can differ


def _has_floats(layout: Layout) -> bool:
    if isinstance(layout.storage.type, FloatingPoint):
        return True
    inside = layout.children if layout.dictionary is None else (*layout.children, layout.dictionary)
    return any(map(_has_floats, inside))
