"""Comparison of byte strings with each other, sixteen bytes at a time while they are equal.

Most time is for finding the bytes of a string in memory, so two words are read at once. Strings are compared in blocks
whose intermediate arrays stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from bowstring.layouts.base import Indices, Values
from bowstring.layouts.gather import gather_prefixes
from bowstring.layouts.sort_keys import ByteStrings
from bowstring.memory.bitmap import Mask
from bowstring.memory.buffer import UINT8

_Step: TypeAlias = Callable[[Values, Values, Indices, Indices], Values]
"""Compares the next bytes of strings, words of shape (strings, 2), with those of others, given how many are left."""
_WORD = 8
_STEP = 2 * _WORD
# Strings with so long a common prefix are compared faster by memcmp, which Python's bytes use.
_LONG_BYTES = 512
# The NumPy calls of a step take longer than comparing this many by Python.
_FEW_STRINGS = 16
# Two words of both sides take 256 KiB, within the second-level cache.
_BLOCK_STRINGS = 1 << 13
_ONES = np.tri(_STEP + 1, _STEP, -1, UINT8) * UINT8.type(255)
_MASKS = [_ONES[:, start : start + _WORD].copy().view(np.uint64)[:, 0] for start in (0, _WORD)]
"""Words with ones in the bytes before the end of a string of which 0 to 16 are left, and zeros after it."""


def are_bytes_equal(left: ByteStrings, right: ByteStrings) -> Mask:
    """Return which strings equal those of `right`, or its only one; only those of equal length are read."""
    signs = np.array(left[2] != right[2], np.int8)
    _compare_ties(signs, _have_different_words, left, right)
    return signs == 0  # type: ignore[no-any-return]


def compare_bytes(left: ByteStrings, right: ByteStrings) -> Values:
    """Return for each string a number that is negative, 0 or positive if it is less than, equal to or greater than that
    of `right`, or its only one. The shape is (strings,), the type int8.
    """
    signs = np.zeros(len(left[1]), np.int8)
    _compare_ties(signs, _compare_words, left, right)
    return signs


def _compare_ties(signs: Values, step: _Step, left: ByteStrings, right: ByteStrings) -> None:
    """Compare the strings whose sign is 0, until they differ.

    If they are equal for 512 bytes, or only a few are left, Python compares them.
    """
    (data, starts, lengths), (other_data, other_starts, other_lengths) = left, right
    is_single = len(other_starts) != len(starts)
    for first in range(0, len(signs), _BLOCK_STRINGS):
        # int64 indices among all strings, shape (ties,).
        ties, depth = np.flatnonzero(signs[first : first + _BLOCK_STRINGS] == 0) + first, 0
        while len(ties) > _FEW_STRINGS and depth < _LONG_BYTES:
            # A slice of all strings of a block is faster to read than their indices.
            slots = slice(ties[0], ties[0] + len(ties)) if ties[-1] - ties[0] == len(ties) - 1 else ties
            others = slice(None) if is_single else slots
            left_bytes, right_bytes = lengths[slots] - depth, other_lengths[others] - depth
            # Bytes after the end of a string belong to the next one, and are masked by the numbers of bytes left.
            words = _read_words(data, starts[slots], depth), _read_words(other_data, other_starts[others], depth)
            signs[slots] = tie_signs = step(*words, left_bytes, right_bytes)
            depth += _STEP
            ties = ties[(tie_signs == 0) & (left_bytes > _STEP) & (right_bytes > _STEP)]
        for i in ties.tolist():
            j = 0 if is_single else i
            value = data[starts[i] : starts[i] + lengths[i]].tobytes()
            other = other_data[other_starts[j] : other_starts[j] + other_lengths[j]].tobytes()
            signs[i] = (value > other) - (value < other)


def _read_words(data: Values, starts: Indices, depth: int) -> Values:
    words: Values = gather_prefixes(data, starts + depth, _STEP).view(np.uint64).reshape(-1, 2)
    return words


def _have_different_words(words: Values, other_words: Values, num_bytes: Indices, _: Indices) -> Values:
    """Return 1 for strings of the same length that differ."""
    # The order of bytes does not matter for equality, so they need not be swapped as in `_compare_words`.
    differences = words ^ other_words
    first, second = (differences[:, index] & mask.take(num_bytes, mode="clip") for index, mask in enumerate(_MASKS))
    signs: Values = ((first | second) != 0).view(np.int8)
    return signs


def _compare_words(words: Values, other_words: Values, num_bytes: Indices, num_other_bytes: Indices) -> Values:
    """Compare the first words, then the second, then the numbers of bytes: a string that ends here is less
    than one that continues with zeros, and equal so far if both are longer.
    """
    # Capped at one more than a step, so that strings that both continue compare as equal.
    signs = _find_signs(np.minimum(num_bytes, _STEP + 1), np.minimum(num_other_bytes, _STEP + 1))
    for index, weight in ((1, 2), (0, 4)):  # greater than what the later ones add up to
        mask = _MASKS[index]
        ordered, other_ordered = (
            (each[:, index] & mask.take(size, mode="clip")).view(">u8").astype(np.uint64)
            for each, size in ((words, num_bytes), (other_words, num_other_bytes))
        )
        signs += _find_signs(ordered, other_ordered) * np.int8(weight)
    return signs


def _find_signs(left: Values, right: Values) -> Values:
    signs: Values = (left > right).view(np.int8) - (left < right).view(np.int8)
    return signs
