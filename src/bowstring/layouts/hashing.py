"""Find equal byte strings by vectorized hashing; equal hashes are verified by comparing the bytes."""

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
"""Random, so that an attacker cannot construct strings with colliding hashes."""
_HALF = np.uint64(32)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""2**64 over the golden ratio: its multiples spread over the upper bits."""


def factorize_bytes(data: Values, offsets: Indices) -> Indices:
    """Return an integer below the number of strings for each string between consecutive offsets.

    Two integers are equal if and only if the strings are. Time is proportional to the bytes, memory to the number of
    strings. Strings of more than 512 bytes are copied.
    """
    starts = offsets[:-1].astype(np.int64)
    lengths = offsets[1:] - starts
    codes = np.arange(len(starts))
    long = lengths > _LONG_BYTES
    own = np.flatnonzero(~long)
    if len(own) < len(starts):
        index_by_value: dict[bytes, int] = {}
        for index in np.flatnonzero(long).tolist():
            value = data[starts[index] : starts[index] + lengths[index]].tobytes()
            codes[index] = index_by_value.setdefault(value, index)
        starts, lengths = starts[own], lengths[own]
    if data.size < _WORD.itemsize:
        data = np.concatenate((data, np.zeros(_WORD.itemsize - data.size, data.dtype)))
    words = np.ndarray((data.size - _WORD.itemsize + 1,), _WORD, data, strides=(1,))
    for of in (_three_words, _all_words):
        firsts = _firsts(_hashes(of, words, starts, lengths))
        if _are_equal(words, starts, lengths, firsts):
            codes[own] = own[firsts]
            return codes
    return rank_bytes(data, offsets)


def _first_words(words: Values, starts: Indices, lengths: Indices) -> Values:
    """Return the first eight bytes of strings, zero-padded."""
    masks = _MASKS.take(lengths, mode="clip")
    if not len(starts) or starts.max() < len(words):
        first_words: Values = words[starts] & masks
        return first_words
    at = np.minimum(starts, len(words) - 1)
    past = np.minimum((starts - at) * 8, 63).astype(_WORD)
    return words[at] >> past & masks


def _three_words(words: Values, starts: Indices, lengths: Indices) -> _Words:
    """Yield the first words of all strings, then a middle and the last word of the longer ones, with their indices."""
    yield slice(None), _first_words(words, starts, lengths)
    more = np.flatnonzero(lengths > _WORD.itemsize)
    own = more if len(more) < len(starts) else slice(None)
    begin, last = starts[own], lengths[own] - _WORD.itemsize
    yield own, words[begin + (last >> 1)]
    yield own, words[begin + last]


def _all_words(words: Values, starts: Indices, lengths: Indices) -> _Words:
    """Yield the first words of all strings, then each next word of the longer ones, with their indices.

    The last word ends at the end of the string.
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
        block = slice(first, first + _BLOCK_STRINGS)
        hashes = lengths[block].astype(_WORD) ^ _SEED
        for own, word in of(words, starts[block], lengths[block]):
            mixed = (hashes[own] ^ word) * _MULTIPLIER
            mixed ^= mixed >> _HALF
            hashes[own] = mixed
        out[block] = hashes
    return out


def _firsts(hashes: Values) -> Indices:
    """Return for each hash the index of its first occurrence.

    A table maps the upper bits of a hash to its first index. Hashes that collide go into a larger table, with other
    bits, in the next round.
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
        candidates = table[places]
        apart = hashes[candidates] != keys
        out[left] = candidates
        if not apart.any():
            return out
        left, keys, mixed = left[apart], keys[apart], mixed[apart]
        bits = min(bits + 4, most)
    _, firsts, numbers = np.unique(keys, return_index=True, return_inverse=True)
    out[left] = left[firsts[numbers]]
    return out


def _are_equal(words: Values, starts: Indices, lengths: Indices, firsts: Indices) -> bool:
    """Return whether each string equals the string at its index in `firsts`."""
    if (lengths != lengths[firsts]).any():
        return False
    others = firsts != np.arange(len(firsts))
    short = lengths <= 3 * _WORD.itemsize
    for of, own in ((_three_words, np.flatnonzero(others & short)), (_all_words, np.flatnonzero(others & ~short))):
        for first in range(0, len(own), _BLOCK_STRINGS):
            block = own[first : first + _BLOCK_STRINGS]
            block_words = of(words, starts[block], lengths[block])
            first_words = of(words, starts[firsts[block]], lengths[block])
            if any((word != other).any() for (_, word), (_, other) in zip(block_words, first_words, strict=True)):
                return False
    return True
