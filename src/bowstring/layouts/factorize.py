"""Which slots of an array hold the same, told by numbers: for every layout, null being one value.

Two slots hold the same where these are stored alike: every NaN is one value, 0.0 and -0.0 are two, and of a union the
same child has to hold them, nulls too. Each layout says by which NumPy arrays its values are told apart
(`Layout.identity`); what has children, by the numbers of what these hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bowstring.layouts.base import Indices, Values
from bowstring.layouts.gather import check_length
from bowstring.layouts.hashing import factorize_bytes
from bowstring.layouts.sort_keys import differs_from_previous, stable_argsort
from bowstring.memory.buffer import UINT8

if TYPE_CHECKING:
    from bowstring.layouts.array import Array

_FEW_PLACES = 1 << 16


def identity_keys(array: Array) -> list[Values]:
    """NumPy arrays of shape (length,) that are all equal at two slots exactly where these hold the same, null included;
    none where all slots do.
    """
    check_length(array)
    valid = array.layout.identity_mask(array)
    kept = array if valid is None else array.layout.take(array, np.flatnonzero(valid))
    parts = (scatter_valid(part, valid) for part in kept.layout.identity_keys(kept))
    return [*parts] if valid is None else [valid, *parts]


def scatter_valid(part: Values, valid: Values | None) -> Values:
    """What belongs to the valid slots at their places, zeros at the others."""
    if valid is None:
        return part
    out = np.zeros(len(valid), part.dtype)
    out[valid] = part
    return out


def factorize(array: Array) -> tuple[Indices, Indices]:
    """For each slot the number of its value, counted as values first appear, and where each of them first does."""
    return factorize_keys(identity_keys(array), array.length)


def list_identity(elements: Array, offsets: Indices) -> Values:
    """A number for each list that consecutive offsets cut out of the elements, equal where lists hold the same."""
    codes = factorize(elements)[0]
    return factorize_bytes(codes.view(UINT8), offsets * codes.itemsize)


def factorize_keys(keys: Sequence[Values], length: int) -> tuple[Indices, Indices]:
    """As `factorize`, for `length` slots whose `identity_keys` are given."""
    if not keys:
        return np.zeros(length, np.int64), np.zeros(min(length, 1), np.int64)
    places = _places(keys)
    if places is not None:
        return _grouped_places(places)
    order = stable_argsort(keys)
    starts = find_run_starts([key[order] for key in keys])
    firsts = order[starts]
    appearance = np.argsort(firsts)
    number = np.empty_like(appearance)
    number[appearance] = np.arange(len(appearance))
    codes = np.empty(length, np.int64)
    codes[order] = number[np.cumsum(starts) - 1]
    return codes, firsts[appearance]


def _places(keys: Sequence[Values]) -> Indices | None:
    """One integer for each slot in the place of its keys, from 0 on and below a few times their number; None where that
    cannot be said at a glance.
    """
    *marks, key = keys
    if not key.size or key.dtype.kind not in "iu" or len(marks) > 1 or any(mark.dtype != np.bool_ for mark in marks):
        return None
    low = int(key.min())
    if int(key.max()) - low >= max(4 * key.size, _FEW_PLACES):
        return None
    places = (key - key.dtype.type(low)).astype(np.int64) if key.dtype.kind == "u" else key.astype(np.int64) - low
    for mark in marks:
        places = 2 * places + mark
    return places


def _grouped_places(places: Indices) -> tuple[Indices, Indices]:
    """As `factorize_keys`, where values are places in a table."""
    slots = np.arange(len(places))
    table = np.empty(int(places.max()) + 1, np.int64)
    table[places[::-1]] = slots[::-1]
    firsts = np.flatnonzero(table[places] == slots)
    table[places[firsts]] = np.arange(len(firsts))
    return table[places], firsts


def find_run_starts(keys: Sequence[Values]) -> Values:
    """Which slots differ from the one before by any of the keys, at least one; the first does."""
    found = differs_from_previous(keys[0])
    for key in keys[1:]:
        found |= differs_from_previous(key)
    return found
