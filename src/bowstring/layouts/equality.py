"""Equality of arrays: the same type, length, nulls and values; what lies under a null does not count.

Values that are *stored alike* are equal and have the same form: every NaN is alike, but 0.0 and -0.0 are two.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from bowstring.datatypes.types import FloatingPoint
from bowstring.layouts.factorize import factorize
from bowstring.memory import bitmap
from bowstring.memory.threads import map_in_threads

if TYPE_CHECKING:
    from bowstring.layouts.array import Array
    from bowstring.layouts.base import Layout, Values

_COPIED_BYTES = 1 << 14
"""So few bytes are copied and compared in less time than it takes to find out where they are."""
_BLOCK_BYTES = 1 << 22
_WORTH_THREADS_BYTES = 1 << 24

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def arrays_equal(left: Array, right: Array, nans_equal: bool) -> bool:
    """Whether two arrays are equal. NaN equals nothing unless `nans_equal`; -0.0 equals 0.0."""
    if left.length != right.length or (left.layout is not right.layout and left.type != right.type):
        return False
    if left.length == 0:
        return True
    if left.layout.dictionary is not None and (_has_null_words(left) or _has_null_words(right)):
        return _encoded_equal(left, right, nans_equal)
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


def _has_null_words(array: Array) -> bool:
    words = array.dictionary
    return words is not None and words.layout.identity_mask(words) is not None


def _encoded_equal(left: Array, right: Array, nans_equal: bool) -> bool:
    """As `arrays_equal`, of dictionary-encoded arrays: a slot is null by its index, or by the word it stands for."""
    masks = [array.layout.identity_mask(array) for array in (left, right)]
    mine, theirs = (None if mask is None or mask.all() else mask for mask in masks)
    if mine is None or theirs is None:
        return mine is theirs and left.layout.equal(left, right, nans_equal)
    if not np.array_equal(mine, theirs):
        return False
    kept = np.flatnonzero(mine)
    return not kept.size or left.layout.equal(left.layout.take(left, kept), right.layout.take(right, kept), nans_equal)


def bytes_equal(left: Values, right: Values) -> bool:
    """Whether two contiguous NumPy arrays of one shape (n,) and one type hold the same bytes."""
    size_bytes = left.nbytes
    if size_bytes <= _COPIED_BYTES:
        return left.tobytes() == right.tobytes()
    mine, theirs = (array.__array_interface__["data"][0] for array in (left, right))
    if mine == theirs:
        return True
    if size_bytes < _WORTH_THREADS_BYTES:
        return not _memcmp(mine, theirs, size_bytes)
    return all_blocks(lambda first, last: not _memcmp(mine + first, theirs + first, last - first), size_bytes, 1)


def all_blocks(holds: Callable[[int, int], bool], length: int, width_bytes: int) -> bool:
    """Whether something holds for all of `length` elements: asks for a block after the other, from its first to behind
    its last element, in several threads where blocks are many; soon after one where it does not for no more.

    Elements without bytes are not asked about, however many there are.
    """
    if not width_bytes:
        return True
    step = max(_BLOCK_BYTES // width_bytes, 1)
    if length <= step:
        return holds(0, length)
    firsts = range(0, length, step)
    if length * width_bytes < _WORTH_THREADS_BYTES:
        return all(holds(first, min(first + step, length)) for first in firsts)
    failed: list[int] = []

    def look(first: int) -> None:
        if not failed and not holds(first, min(first + step, length)):
            failed.append(first)

    map_in_threads(look, firsts, [step * width_bytes] * len(firsts))
    return not failed


def has_prefix(array: Array, start: Array) -> bool:
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
    numbers = factorize(left.layout.concat([left, right]))[0]  # only the signs of zeros can differ
    return bool((numbers[: left.length] == numbers[left.length :]).all())


def _has_floats(layout: Layout) -> bool:
    if isinstance(layout.storage.type, FloatingPoint):
        return True
    inside = layout.children if layout.dictionary is None else (*layout.children, layout.dictionary)
    return any(map(_has_floats, inside))
