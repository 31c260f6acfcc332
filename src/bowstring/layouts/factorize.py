"""Assign integer codes to the distinct values of an array of any layout, null being one value, and to byte strings.

Two slots are equal if their values are identical: all NaNs are one value, 0.0 and -0.0 are two, and the slots of a
union, including nulls, must belong to the same child. `Layout.identity_keys` returns NumPy arrays that distinguish the
values of a layout. Nested layouts use the codes of their children. Byte strings are found equal by hashes, which NumPy
computes for all strings at once; equal hashes are verified by comparing the bytes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import NoneType
from typing import Any

import numpy as np

from bowstring.errors import TypeMismatchError
from bowstring.layouts.base import ArrayData, Indices, Layout, Values, check_expanded_array
from bowstring.layouts.sort_keys import rank_bytes, run_start_mask, stable_argsort
from bowstring.memory.buffer import UINT8

# A table of 512 KiB, which is not cleared and so costs little also for a few slots.
_MIN_TABLE_SIZE = 1 << 16
_MANY_BYTES = 1 << 24
_WORD = np.dtype("<u8")
# By number of bytes, 0 to 8: little-endian words have the first bytes of a string in their lower bits.
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(_WORD.itemsize + 1)], _WORD)
# Python hashes longer strings in less time than NumPy their words.
_LONG_BYTES = 128
# Words and hashes of a block take 128 KiB each and stay in the cache.
_BLOCK_STRINGS = 1 << 14
# Strings left after this have equal hashes under all mixtures so far, or were built to: sorting bounds the time.
_ROUNDS = 16
_SEED = np.uint64(secrets.randbits(64))
"""Random, so that hashes are not known in advance. Strings with equal hashes can still be constructed."""
_HALF = np.uint64(32)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""2**64 over the golden ratio: its multiples spread over the upper bits."""


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


def encode_values(values: Sequence[Any], layout: Layout, encode: Callable[[ArrayData], ArrayData]) -> ArrayData:
    """Return what `encode`, which finds equal values, makes of an array of Python values.

    Raises as `Layout.from_pylist`.
    """
    # Repeated strings of many bytes in all are stored once, before they are encoded: they may not fit 32-bit offsets.
    if set(map(type, values)) - {NoneType} in ({str}, {bytes}) and sum(map(len, filter(None, values))) >= _MANY_BYTES:
        index_by_value = {value: index for index, value in enumerate(dict.fromkeys(values))}
        with suppress(TypeMismatchError):  # raised below, with the index of the value
            encoded = encode(layout.from_pylist(list(index_by_value)))
            return encoded.take(np.fromiter(map(index_by_value.__getitem__, values), np.int64, len(values)))
    return encode(layout.from_pylist(values))


def list_identity_keys(elements: ArrayData, offsets: Indices) -> Values:
    """Return a key for each list of elements between consecutive offsets, equal for identical lists."""
    codes = factorize(elements)[0]
    # A list of codes is a byte string, 8 bytes per element, so that lists need no algorithm of their own.
    return byte_string_codes(codes.view(UINT8), offsets * codes.itemsize)


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


# Byte strings


def byte_string_codes(data: Values, offsets: Indices) -> Indices:
    """Return an integer below the number of strings for each string between consecutive offsets.

    Two integers are equal if and only if the strings are. Time is proportional to the bytes, memory to the number of
    strings. Strings of more than 128 bytes are copied. `dictionary_encode` of 500,000 strings of up to 90 bytes takes
    1.6 to 2.5 times as long with a `dict`, unless only a few values are distinct.
    """
    starts = offsets[:-1].astype(np.int64)
    lengths = offsets[1:] - starts
    codes = np.arange(len(starts))
    long = lengths > _LONG_BYTES
    short = np.flatnonzero(~long)
    if len(short) < len(starts):
        index_by_value: dict[bytes, int] = {}
        for index in np.flatnonzero(long).tolist():
            value = data[starts[index] : starts[index] + lengths[index]].tobytes()
            codes[index] = index_by_value.setdefault(value, index)
        starts, lengths = starts[short], lengths[short]
    words = _view_words(data)
    firsts = _find_first_occurrences(_hash_strings(words, starts, lengths))
    # A collision of the hashes is next to impossible unless strings were built for it, and leads to the sort.
    if not _are_equal_to_first_occurrences(words, starts, lengths, firsts):
        return rank_bytes(data, offsets)
    codes[short] = short[firsts]
    return codes


def _mix(hashes: Values) -> Values:
    """Return other integers, as different as the hashes."""
    mixed = hashes * _MULTIPLIER
    # Multiplication moves information to the upper bits only; the shift brings it back to the lower ones.
    return mixed ^ mixed >> _HALF


def _view_words(data: Values) -> Values:
    """Return the eight bytes from each byte on, at least once, as integers."""
    if data.size < _WORD.itemsize:
        data = np.concatenate((data, np.zeros(_WORD.itemsize - data.size, data.dtype)))
    # Strides of 1: word i is bytes i to i + 8, unaligned, and nothing is copied.
    return np.ndarray((data.size - _WORD.itemsize + 1,), _WORD, data, strides=(1,))


def _read_first_words(words: Values, starts: Indices, lengths: Indices) -> Values:
    """Return the first eight bytes of strings, zero-padded."""
    masks = _MASKS.take(lengths, mode="clip")
    if not len(starts) or starts.max() < len(words):
        first_words: Values = words[starts] & masks
        return first_words
    at = np.minimum(starts, len(words) - 1)
    # The last word has the string in its upper bytes. 63 stands for 64, which only empty strings need: their mask is 0.
    excess_bits = np.minimum((starts - at) * 8, 63).astype(_WORD)
    return words[at] >> excess_bits & masks


def _iter_words(words: Values, starts: Indices, lengths: Indices) -> Iterator[tuple[Indices | slice, Values]]:
    """Yield the first word of each string, then each next word of the longer ones, with their indices.

    The last word ends at the end of the string.
    """
    yield slice(None), _read_first_words(words, starts, lengths)
    depth = _WORD.itemsize
    indices = np.flatnonzero(lengths > depth)
    while indices.size:
        yield indices, words[starts[indices] + np.minimum(depth, lengths[indices] - _WORD.itemsize)]
        depth += _WORD.itemsize
        indices = indices[lengths[indices] > depth]


def _hash_strings(words: Values, starts: Indices, lengths: Indices) -> Values:
    out = np.empty(len(starts), _WORD)
    for first in range(0, len(starts), _BLOCK_STRINGS):
        block = slice(first, first + _BLOCK_STRINGS)
        hashes = lengths[block].astype(_WORD) ^ _SEED
        for indices, word in _iter_words(words, starts[block], lengths[block]):
            hashes[indices] = _mix(hashes[indices] ^ word)
        out[block] = hashes
    return out


def _find_first_occurrences(hashes: Values) -> Indices:
    """Return for each hash the index of its first occurrence.

    A table maps the upper bits of a hash to its first index. Hashes that collide go into another one, by other bits, in
    the next round. `np.unique` takes 1.3 to 1.5 times as long.
    """
    out = np.arange(len(hashes))
    remaining, keys, mixed = out.copy(), hashes, hashes
    bits = (2 * len(hashes)).bit_length()
    for _ in range(_ROUNDS):
        mixed = _mix(mixed)
        slots = (mixed >> np.uint64(64 - bits)).astype(np.intp)
        table = np.empty(1 << bits, np.int64)
        # Backwards, because NumPy keeps the last of the values assigned to one entry, and the first index is wanted.
        table[slots[::-1]] = remaining[::-1]
        candidates = table[slots]
        # The candidate has the same upper bits and another hash: both can't be found in this table.
        collides = hashes[candidates] != keys
        out[remaining] = candidates
        if not collides.any():
            return out
        remaining, keys, mixed = remaining[collides], keys[collides], mixed[collides]
    _, firsts, numbers = np.unique(keys, return_index=True, return_inverse=True)
    out[remaining] = remaining[firsts[numbers]]
    return out


def _are_equal_to_first_occurrences(words: Values, starts: Indices, lengths: Indices, firsts: Indices) -> bool:
    """Return whether each string equals the string at its index in `firsts`."""
    if (lengths != lengths[firsts]).any():
        return False
    indices = np.flatnonzero(firsts != np.arange(len(firsts)))
    for first in range(0, len(indices), _BLOCK_STRINGS):
        block = indices[first : first + _BLOCK_STRINGS]
        block_words = _iter_words(words, starts[block], lengths[block])
        first_words = _iter_words(words, starts[firsts[block]], lengths[block])
        if any((word != other).any() for (_, word), (_, other) in zip(block_words, first_words, strict=True)):
            return False
    return True
