"""The order of byte strings, as numbers: eight bytes at a time, for as long as strings are alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bowstring.layouts.base import Indices, Values

_WORD = 8
_ROUNDS = 8


def rank_bytes(data: Values, offsets: Indices) -> Indices:
    """For each string between consecutive offsets how many strings are less; equal strings have equal ranks.

    Compares bytes, which for UTF-8 is the order of code points. Takes memory in proportion to the number of strings;
    those that agree in their first 64 bytes are compared as Python's byte strings.
    """
    starts = offsets[:-1].astype(np.int64)
    lengths = offsets[1:] - starts
    padded = np.zeros(len(data) + _WORD, np.uint8)
    padded[: len(data)] = data
    words = np.ndarray((len(data) + 1,), np.dtype(">u8"), padded.data, 0, (1,))
    ranks = np.zeros(len(starts), np.int64)
    alike = np.arange(len(starts))
    for depth in range(0, _ROUNDS * _WORD, _WORD):
        if not alike.size:
            return ranks
        left = np.clip(lengths[alike] - depth, 0, _WORD + 1)
        shift = ((_WORD - np.minimum(left, _WORD)) * 8).astype(np.uint64)
        own = words[np.minimum(starts[alike] + depth, len(data))].astype(np.uint64)
        own = np.where(
            left > 0, own >> np.minimum(shift, np.uint64(63)) << np.minimum(shift, np.uint64(63)), np.uint64(0)
        )
        alike = _refine(ranks, alike, (own, left), left > _WORD)
    if alike.size:
        tails = [data[starts[i] + _ROUNDS * _WORD : starts[i] + lengths[i]].tobytes() for i in alike.tolist()]
        numbers = {tail: number for number, tail in enumerate(sorted(set(tails)))}
        codes = np.fromiter((numbers[tail] for tail in tails), np.int64, len(tails))
        _refine(ranks, alike, (codes,), np.zeros(len(alike), np.bool_))
    return ranks


def _refine(ranks: Indices, members: Indices, keys: tuple[Values, ...], goes_on: Values) -> Indices:
    """Tell the members of equal rank apart by `keys`; those that are still alike and go on, in their order."""
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
    unsettled: Indices = members[order[~single & goes_on[order]]]
    return unsettled


def stable_argsort(keys: Sequence[Values]) -> Indices:
    """The positions that put rows in order, by NumPy keys, at least one, the most significant first."""
    key = keys[0]
    if len(keys) > 1:
        return np.lexsort(keys[::-1])
    if key.dtype.kind in "iu" and key.dtype.itemsize > 2 and key.size:
        low = key.min()
        if int(key.max()) - int(low) < 1 << 16:  # NumPy sorts 16 bits in linear time
            key = (key - low).astype(np.uint16)
    return np.argsort(key, kind="stable")


def differs_from_previous(values: Values) -> Values:
    """Which values are not the one before; the first is not."""
    out = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=out[1:])
    return out
