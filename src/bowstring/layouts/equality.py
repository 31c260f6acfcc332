"""Equality of arrays: the same type, length, nulls and values; what lies under a null does not count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from bowstring.layouts.array import Array


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
