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
    ties = np.arange(len(starts))
    for depth in range(0, _ROUNDS * _WORD, _WORD):
        if not ties.size:
            return ranks
        left = np.clip(lengths[ties] - depth, 0, _WORD + 1)
        shift = ((_WORD - np.minimum(left, _WORD)) * 8).astype(np.uint64)
        prefixes = words[np.minimum(starts[ties] + depth, len(data))].astype(np.uint64)
        prefixes = np.where(
            left > 0, prefixes >> np.minimum(shift, np.uint64(63)) << np.minimum(shift, np.uint64(63)), np.uint64(0)
        )
        ties = _refine_ranks(ranks, ties, (prefixes, left), left > _WORD)
    if ties.size:
        tails = [data[starts[i] + _ROUNDS * _WORD : starts[i] + lengths[i]].tobytes() for i in ties.tolist()]
        rank_by_tail = {tail: rank for rank, tail in enumerate(sorted(set(tails)))}
        codes = np.fromiter((rank_by_tail[tail] for tail in tails), np.int64, len(tails))
        _refine_ranks(ranks, ties, (codes,), np.zeros(len(ties), np.bool_))
    return ranks


def _refine_ranks(ranks: Indices, members: Indices, keys: tuple[Values, ...], has_more_bytes: Values) -> Indices:
    """Refine the ranks of members of equal rank by `keys`; return those that are still equal and have more bytes."""
    before = ranks[members]
    order = np.lexsort((*reversed(keys), before))
    is_group_start = run_start_mask(before[order])
    is_subgroup_start = is_group_start | run_start_mask(*(key[order] for key in keys))
    indices = np.arange(len(order))
    group, subgroup = (
        np.maximum.accumulate(np.where(edge, indices, 0)) for edge in (is_group_start, is_subgroup_start)
    )
    ranks[members[order]] = before[order] + subgroup - group
    single = is_subgroup_start & np.append(is_subgroup_start[1:], True)
    remaining: Indices = members[order[~single & has_more_bytes[order]]]
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


def run_start_mask(*keys: Values) -> Values:
    """Return which slots differ from the previous one in any of the keys; the first one does."""
    out = np.ones(len(keys[0]), np.bool_)
    np.not_equal(keys[0][1:], keys[0][:-1], out=out[1:])
    for key in keys[1:]:
        out[1:] |= key[1:] != key[:-1]
    return out
