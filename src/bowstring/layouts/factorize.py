"""Assign integer codes to the distinct values of an array of any layout, null being one value.

Two slots are equal if their values are identical: all NaNs are one value, 0.0 and -0.0 are two, and the slots of a
union, including nulls, must belong to the same child. `Layout.identity_keys` returns NumPy arrays that distinguish the
values of a layout. Nested layouts use the codes of their children.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bowstring.layouts.base import ArrayData, Indices, Values, check_expanded_array
from bowstring.layouts.bytes_equality_codes import bytes_equality_codes
from bowstring.layouts.sort_keys import run_start_mask, stable_argsort
from bowstring.memory.buffer import UINT8

# A table of 512 KiB, which is not cleared and so costs little also for a few slots.
_MIN_TABLE_SIZE = 1 << 16


def identity_keys_with_nulls(array: ArrayData) -> list[Values]:
    """Return NumPy arrays of shape (length,) that are all equal at two slots if and only if the slots are identical.

    Nulls are one value. The list is empty if all slots are identical.
    """
    check_expanded_array(array)
    valid = array.layout.logical_validity_mask(array, in_unions=False)
    values = array if valid is None else array.layout.take(array, np.flatnonzero(valid))
    keys = [scatter_valid(key, valid) for key in values.layout.identity_keys(values)]
    return keys if valid is None else [valid, *keys]


def scatter_valid(key: Values, valid: Values | None) -> Values:
    """Write the keys of the valid slots to their indices, and zeros elsewhere."""
    if valid is None:
        return key
    out = np.zeros(len(valid), key.dtype)
    out[valid] = key
    return out


def factorize(array: ArrayData) -> tuple[Indices, Indices]:
    """Return the code of each slot, in order of first appearance, and the index of each distinct value."""
    return factorize_keys(identity_keys_with_nulls(array), array.length)


def list_identity_keys(elements: ArrayData, offsets: Indices) -> Values:
    """Return a key for each list of elements between consecutive offsets, equal for identical lists."""
    codes = factorize(elements)[0]
    # A list of codes is a byte string, 8 bytes per element, so that lists need no algorithm of their own.
    return bytes_equality_codes(codes.view(UINT8), offsets * codes.itemsize)


def factorize_keys(keys: Sequence[Values], length: int) -> tuple[Indices, Indices]:
    """As `factorize`, for `length` slots with these `identity_keys_with_nulls`."""
    if not keys:
        return np.zeros(length, np.int64), np.zeros(min(length, 1), np.int64)
    integers = _combine_keys(keys)
    if integers is not None:
        return _factorize_integers(integers)
    # Sorted, identical slots are runs; as the sort is stable, each run begins with the first of its slots.
    order = stable_argsort(keys)
    starts = run_start_mask(*(key[order] for key in keys))
    firsts = order[starts]
    appearance = np.argsort(firsts)
    code_by_run = np.empty_like(appearance)
    code_by_run[appearance] = np.arange(len(appearance))
    codes = np.empty(length, np.int64)
    codes[order] = code_by_run[np.cumsum(starts) - 1]
    return codes, firsts[appearance]


def _combine_keys(keys: Sequence[Values]) -> Indices | None:
    """Combine the keys into one non-negative integer per slot for a lookup table; None if the range is too large."""
    *flag_keys, key = keys
    if (
        not key.size
        or key.dtype.kind not in "iu"
        or len(flag_keys) > 1
        or any(flags.dtype != np.bool_ for flags in flag_keys)
    ):
        return None
    low = int(key.min())
    # In Python integers: the range of an int64 key may need 65 bits.
    if int(key.max()) - low >= max(4 * key.size, _MIN_TABLE_SIZE):
        return None
    # Unsigned keys above 2**63 must be shifted before they are cast; the range was bounded above.
    integers = (key - key.dtype.type(low)).astype(np.int64) if key.dtype.kind == "u" else key.astype(np.int64) - low
    for flags in flag_keys:
        # At most one flag: the table has at most twice its size.
        integers = 2 * integers + flags
    return integers


def _factorize_integers(integers: Indices) -> tuple[Indices, Indices]:
    """As `factorize_keys`, for non-negative integers that are indices into a lookup table."""
    # First the table has the first slot of each integer: backwards, because NumPy keeps the last of the values assigned
    # to one entry. Then it has the codes. Entries of integers that do not occur are never read.
    slots = np.arange(len(integers))
    table = np.empty(int(integers.max()) + 1, np.int64)
    table[integers[::-1]] = slots[::-1]
    firsts = np.flatnonzero(table[integers] == slots)
    table[integers[firsts]] = np.arange(len(firsts))
    return table[integers], firsts
