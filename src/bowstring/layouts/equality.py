"""Equality of arrays: the same type, length, nulls and values. Memory under nulls is ignored.

*Identical* values are equal and have the same representation: NaN is identical to NaN, but 0.0 and -0.0 differ.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bowstring.datatypes.types import FloatingPoint
from bowstring.layouts.base import ArrayData, Layout, Values
from bowstring.layouts.factorize import factorize
from bowstring.memory import bitmap

_COPIED_BYTES = 1 << 14
"""Up to this size, comparing copies as bytes takes less time than calling NumPy."""
# Bounds the array of booleans of a comparison, and the values that are read after the first difference.
_BLOCK_BYTES = 1 << 22


def arrays_equal(left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
    """Return whether two arrays are equal. NaN differs from NaN unless `nans_equal`; -0.0 equals 0.0."""
    if left.length != right.length or (left.layout is not right.layout and left.type != right.type):
        return False
    if left.length == 0:
        return True
    if left.layout.dictionary is not None and (_has_dictionary_nulls(left) or _has_dictionary_nulls(right)):
        return _dictionary_arrays_equal(left, right, nans_equal)
    layout = left.layout
    if layout.has_validity and left.null_count != right.null_count:
        return False
    validity = left.validity
    if validity is not None and right.validity is not None:
        left_bits = bitmap.realign(validity, left.offset, left.length)
        if not bitmap.is_equal(left_bits, bitmap.realign(right.validity, right.offset, right.length), left.length):
            return False
        if left.null_count == left.length:
            return True
        # usually, equal arrays are equal under nulls, too
        if layout.have_equal_values(left, right, nans_equal):
            return True
        return layout.have_equal_valid_values(left, right, nans_equal)
    return layout.have_equal_values(left, right, nans_equal)


def _has_dictionary_nulls(array: ArrayData) -> bool:
    dictionary = array.dictionary
    return dictionary is not None and dictionary.layout.logical_validity_mask(dictionary, in_unions=False) is not None


def _dictionary_arrays_equal(left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
    """As `arrays_equal`, for dictionary-encoded arrays: a slot is null by its index or by its dictionary value."""
    masks = [array.layout.logical_validity_mask(array, in_unions=False) for array in (left, right)]
    left_mask, right_mask = (None if mask is None or mask.all() else mask for mask in masks)
    if left_mask is None or right_mask is None:
        return left_mask is None and right_mask is None and left.layout.have_equal_values(left, right, nans_equal)
    if not np.array_equal(left_mask, right_mask):
        return False
    indices = np.flatnonzero(left_mask)
    if not indices.size:
        return True
    return left.layout.have_equal_values(left.layout.take(left, indices), right.layout.take(right, indices), nans_equal)


def bytes_equal(left: Values, right: Values) -> bool:
    """Return whether two contiguous NumPy arrays of the same shape (n,) and type have the same bytes."""
    if left.nbytes <= _COPIED_BYTES:
        return left.tobytes() == right.tobytes()
    left, right = left.view(np.uint8), right.view(np.uint8)
    whole = left.size // 8 * 8
    # Compared as integers, so that NaN equals itself and zeros of different signs differ, as bytes do.
    left_words, right_words = left[:whole].view(np.uint64), right[:whole].view(np.uint64)

    def is_block_equal(first: int, last: int) -> bool:
        return bool((left_words[first:last] == right_words[first:last]).all())

    if left[whole:].tobytes() != right[whole:].tobytes():
        return False
    return is_true_for_all_blocks(is_block_equal, len(left_words), 8)


def is_true_for_all_blocks(predicate: Callable[[int, int], bool], length: int, width_bytes: int) -> bool:
    """Return whether `predicate(first, last)` is true for all blocks of `length` elements of `width_bytes` bytes.

    Stops after the first False. Elements of no bytes are not tested.
    """
    if not width_bytes:
        return True
    step = max(_BLOCK_BYTES // width_bytes, 1)
    return all(predicate(first, min(first + step, length)) for first in range(0, length, step))


def has_prefix(array: ArrayData, prefix: ArrayData) -> bool:
    """Return whether an array begins with the slots of `prefix`, an array of the same type.

    Shared memory is not compared, so that the cost is constant if `array` is a longer slice of the same memory.
    """
    if array is prefix:
        return True
    if prefix.length > array.length:
        return False
    return _shares_memory(array, prefix) or _have_identical_values(array.slice(0, prefix.length), prefix)


def _shares_memory(left: ArrayData, right: ArrayData) -> bool:
    """Return whether the slots up to the shorter length share the same memory."""
    if left is right:
        return True
    if left.layout is not right.layout or left.offset != right.offset:
        return False
    if left.dictionary is not None and (
        right.dictionary is None or not _shares_memory(left.dictionary, right.dictionary)
    ):
        return False
    for a, b in zip(left.own_buffers, right.own_buffers, strict=False):
        if a is not b and (a is None or b is None or a.address != b.address):
            return False
    return all(_shares_memory(a, b) for a, b in zip(left.children, right.children, strict=True))


def _have_identical_values(left: ArrayData, right: ArrayData) -> bool:
    if not arrays_equal(left, right, nans_equal=True):
        return False
    if not _has_floats(left.layout):
        return True
    codes = factorize(left.layout.concat([left, right]))[0]  # only the signs of zeros can differ
    return bool((codes[: left.length] == codes[left.length :]).all())


def _has_floats(layout: Layout) -> bool:
    if isinstance(layout.storage.type, FloatingPoint):
        return True
    nested = layout.children if layout.dictionary is None else (*layout.children, layout.dictionary)
    return any(map(_has_floats, nested))
