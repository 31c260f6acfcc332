"""Sort keys: ranks of byte strings, eight bytes at a time while strings are equal, and stable sorting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bowstring.layouts.base import Indices, Values

_WORD = 8
_ROUNDS = 8


def rank_bytes(data: Values, offsets: Indices) -> Indices:
    """Return for each string between consecutive offsets the number of smaller strings.

    Compares bytes, which for UTF-8 is the order of code points. Memory use is proportional to the number of strings.
    Strings with equal first 64 bytes are compared as Python byte strings.
    """
    starts = offsets[:-1].astype(np.int64)
    lengths = offsets[1:] - starts
    padded = np.zeros(len(data) + _WORD, np.uint8)
    padded[: len(data)] = data
    words = np.ndarray((len(data) + 1,), np.dtype(">u8"), padded.data, 0, (1,))
    ranks = np.zeros(len(starts), np.int64)
    tied = np.arange(len(starts))
    for depth in range(0, _ROUNDS * _WORD, _WORD):
        if not tied.size:
            return ranks
        left = np.clip(lengths[tied] - depth, 0, _WORD + 1)
        shift = ((_WORD - np.minimum(left, _WORD)) * 8).astype(np.uint64)
        own = words[np.minimum(starts[tied] + depth, len(data))].astype(np.uint64)
        own = np.where(
            left > 0, own >> np.minimum(shift, np.uint64(63)) << np.minimum(shift, np.uint64(63)), np.uint64(0)
        )
        tied = _refine(ranks, tied, (own, left), left > _WORD)
    if tied.size:
        tails = [data[starts[i] + _ROUNDS * _WORD : starts[i] + lengths[i]].tobytes() for i in tied.tolist()]
        numbers = {tail: number for number, tail in enumerate(sorted(set(tails)))}
        codes = np.fromiter((numbers[tail] for tail in tails), np.int64, len(tails))
        _refine(ranks, tied, (codes,), np.zeros(len(tied), np.bool_))
    return ranks


def _refine(ranks: Indices, members: Indices, keys: tuple[Values, ...], goes_on: Values) -> Indices:
    """Refine the ranks of members of equal rank by `keys`; return those that are still equal and have more bytes."""
    before = ranks[members]
    order = np.lexsort((*reversed(keys), before))
    apart = differs_from_previous(before[order])
    finer = apart.copy()
    for key in keys:
        finer |= differs_from_previous(key[order])
    places = np.arange(len(order))
    group, subgroup = (np.maximum.accumulate(np.where(edge, places, 0)) for edge in (apart, finer))
    ranks[members[order]] = before[order] + subgroup - group
    single = finer & np.append(finer[1:], True)
    remaining: Indices = members[order[~single & goes_on[order]]]
    return remaining


def stable_argsort(keys: Sequence[Values]) -> Indices:
    """Return the indices that sort rows by one or more NumPy keys, the most significant first; the sort is stable."""
    key = keys[0]
    if len(keys) > 1:
        return np.lexsort(keys[::-1])
    if key.dtype.kind in "iu" and key.dtype.itemsize > 2 and key.size:
        low = key.min()
        if int(key.max()) - int(low) < 1 << 16:  # NumPy sorts 16 bits in linear time
            key = (key - low).astype(np.uint16)
    return np.argsort(key, kind="stable")


def differs_from_previous(values: Values) -> Values:
    """Return which values differ from the previous one; the first one does."""
    out = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=out[1:])
    return out
