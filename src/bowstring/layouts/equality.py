"""Equality of arrays: the same type, length, nulls and values; what lies under a null does not count.

Values that are *stored alike* are equal and have the same form: every NaN is alike, but 0.0 and -0.0 are two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bowstring.datatypes.types import FloatingPoint

if TYPE_CHECKING:
    from bowstring.layouts.array import Array
    from bowstring.layouts.base import Layout


def arrays_equal(left: Array, right: Array, nans_equal: bool) -> bool:
    """Whether two arrays are equal. NaN equals nothing unless `nans_equal`; -0.0 equals 0.0."""
    if left.length != right.length or left.type != right.type:
        return False
    if left.length == 0:
        return True
    if left.layout.has_validity and left.null_count != right.null_count:
        return False
    mine, theirs = left.mask(), right.mask()
    if mine is not None and theirs is not None:
        if not np.array_equal(mine, theirs):
            return False
        kept = np.flatnonzero(mine)
        left, right = left.layout.take(left, kept), right.layout.take(right, kept)
        if left.length == 0:
            return True
    return left.layout.equal(left, right, nans_equal)


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
    if left.layout is not right.layout or left.offset != right.offset or left.dictionary is not right.dictionary:
        return False
    for mine, theirs in zip(left.buffers, right.buffers, strict=False):
        if mine is not theirs and (mine is None or theirs is None or mine.address != theirs.address):
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
