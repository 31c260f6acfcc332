"""Which byte strings are the same, told by hashes of all of them at once; what these say is looked up in the bytes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from bowstring.layouts.base import Indices, Values
from bowstring.layouts.sort_keys import rank_bytes

_Words: TypeAlias = Iterator[tuple[Indices | slice, Values]]
_WORD = np.dtype("<u8")
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(_WORD.itemsize + 1)], _WORD)
_LONG_BYTES = 512
_BLOCK_STRINGS = 1 << 14
_FEWEST_BITS = 12
_ROUNDS = 16
_SEED = np.uint64(secrets.randbits(64))
"""Unknown outside, so that nobody can prepare strings whose hashes collide."""
_HALF = np.uint64(32)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""2**64 over the golden ratio: its multiples spread over the upper bits."""


def factorize_bytes(data: Values, offsets: Indices) -> Indices:
    """A number for each string between consecutive offsets, less than how many there are, equal for two strings exactly
    where their bytes are.

    Takes time in proportion to the bytes, and memory in proportion to the number of strings; those of more than 512
    bytes are copied.
    """
    starts = offsets[:-1].astype(np.int64)
    lengths = offsets[1:] - starts
    found = np.arange(len(starts))
    long = lengths > _LONG_BYTES
    own = np.flatnonzero(~long)
    if len(own) < len(starts):
        seen: dict[bytes, int] = {}
        for place in np.flatnonzero(long).tolist():
            value = data[starts[place] : starts[place] + lengths[place]].tobytes()
            found[place] = seen.setdefault(value, place)
        starts, lengths = starts[own], lengths[own]
    if data.size < _WORD.itemsize:
        data = np.concatenate((data, np.zeros(_WORD.itemsize - data.size, data.dtype)))
    words = np.ndarray((data.size - _WORD.itemsize + 1,), _WORD, data, strides=(1,))
    for of in (_three_words, _all_words):
        firsts = _firsts(_hashes(of, words, starts, lengths))
        if _are_same(words, starts, lengths, firsts):
            found[own] = own[firsts]
            return found
    return rank_bytes(data, offsets)


def _first_words(words: Values, starts: Indices, lengths: Indices) -> Values:
    """The first eight bytes of strings, zeros where they are shorter."""
    masks = _MASKS.take(lengths, mode="clip")
    if not len(starts) or starts.max() < len(words):
        found: Values = words[starts] & masks
        return found
    at = np.minimum(starts, len(words) - 1)
    past = np.minimum((starts - at) * 8, 63).astype(_WORD)
    return words[at] >> past & masks


def _three_words(words: Values, starts: Indices, lengths: Indices) -> _Words:
    """The first words of all strings, then one of the middle and the last of those that have more, by their places."""
    yield slice(None), _first_words(words, starts, lengths)
    more = np.flatnonzero(lengths > _WORD.itemsize)
    own = more if len(more) < len(starts) else slice(None)
    begin, last = starts[own], lengths[own] - _WORD.itemsize
    yield own, words[begin + (last >> 1)]
    yield own, words[begin + last]


def _all_words(words: Values, starts: Indices, lengths: Indices) -> _Words:
    """The first words of all strings, then the next ones of those that have any, by their places; the last one of these
    ends where the string does.
    """
    yield slice(None), _first_words(words, starts, lengths)
    depth = _WORD.itemsize
    own = np.flatnonzero(lengths > depth)
    while own.size:
        yield own, words[starts[own] + np.minimum(depth, lengths[own] - _WORD.itemsize)]
        depth += _WORD.itemsize
        own = own[lengths[own] > depth]


def _hashes(
    of: Callable[[Values, Indices, Indices], _Words], words: Values, starts: Indices, lengths: Indices
) -> Values:
    out = np.empty(len(starts), _WORD)
    for first in range(0, len(starts), _BLOCK_STRINGS):
        held = slice(first, first + _BLOCK_STRINGS)
        hashes = lengths[held].astype(_WORD) ^ _SEED
        for own, word in of(words, starts[held], lengths[held]):
            mixed = (hashes[own] ^ word) * _MULTIPLIER
            mixed ^= mixed >> _HALF
            hashes[own] = mixed
        out[held] = hashes
    return out


def _firsts(hashes: Values) -> Indices:
    """For each hash the place of the first one that is the same: what stands first at its place in a table, or if that
    is another one, in a larger table, where the others have other places.
    """
    out = np.arange(len(hashes))
    left, keys, mixed = out.copy(), hashes, hashes
    most = max(_FEWEST_BITS, (2 * len(hashes)).bit_length())
    sample = hashes[: 1 << _FEWEST_BITS]
    bits = _FEWEST_BITS if len(np.unique(sample)) * 4 < len(sample) else most
    for _ in range(_ROUNDS):
        mixed = mixed * _MULTIPLIER
        mixed ^= mixed >> _HALF
        places = (mixed >> np.uint64(64 - bits)).astype(np.intp)
        table = np.empty(1 << bits, np.int64)
        table[places[::-1]] = left[::-1]
        held = table[places]
        apart = hashes[held] != keys
        out[left] = held
        if not apart.any():
            return out
        left, keys, mixed = left[apart], keys[apart], mixed[apart]
        bits = min(bits + 4, most)
    _, firsts, numbers = np.unique(keys, return_index=True, return_inverse=True)
    out[left] = left[firsts[numbers]]
    return out


def _are_same(words: Values, starts: Indices, lengths: Indices, firsts: Indices) -> bool:
    """Whether each string has the bytes of the one that is named for it."""
    if (lengths != lengths[firsts]).any():
        return False
    others = firsts != np.arange(len(firsts))
    short = lengths <= 3 * _WORD.itemsize
    for of, own in ((_three_words, np.flatnonzero(others & short)), (_all_words, np.flatnonzero(others & ~short))):
        for first in range(0, len(own), _BLOCK_STRINGS):
            held = own[first : first + _BLOCK_STRINGS]
            mine = of(words, starts[held], lengths[held])
            theirs = of(words, starts[firsts[held]], lengths[held])
            if any((word != other).any() for (_, word), (_, other) in zip(mine, theirs, strict=True)):
                return False
    return True
