"""Validation of views («Variable-size Binary View Layout»): length, location, prefix, padding and UTF-8.

Views are pairs of 64-bit words: the length and four bytes; then eight more bytes, or the index of a data buffer and an
offset into it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.layouts import utf8_decoding
from bowstring.layouts.base import ArrayData, Indices, Values, find_first_true
from bowstring.memory.buffer import EMPTY, UINT8, Bytes

INLINE_BYTES = 12
"""Values of up to this length are stored in the view."""
# 256 KiB of views: they are read several times while they are in the cache, in 0.4 to 0.6 of the time.
_BLOCK_VIEWS = 1 << 14
_WORD = np.dtype("<u8")
_INT32 = np.dtype("<i4")
_PREFIX_WORD = np.dtype("<u4")


class _LongViews(NamedTuple):
    """Views of values that are longer than `INLINE_BYTES`, and their slots."""

    slots: Indices
    prefixes: Values
    buffer_indices: Values
    starts: Indices
    stops: Indices


def check_views(array: ArrayData, is_text: bool) -> None:
    """Check every valid view of an array, and with `is_text` that the values are UTF-8.

    Raises `InvalidDataError` naming an invalid view.
    """
    buffers = [(buffer or EMPTY).bytes for buffer in array.own_buffers[2:]]
    words, lengths = _read_views(array)
    for first in range(0, len(words), _BLOCK_VIEWS):
        block = slice(first, first + _BLOCK_VIEWS)
        _check_inline_views(words[block], lengths[block], first, is_text)
    for buffer_index, views in _iter_long_views(words, lengths, [buffer.size for buffer in buffers]):
        data = buffers[buffer_index]
        _check_prefixes(views, data)
        if is_text:
            utf8_decoding.check_utf8_ranges(data, views.starts, views.stops, views.slots)


def read_checked_views(array: ArrayData) -> Values:
    """Return all views as 64-bit integers, shape (n, 2), empty for null slots, after checking their data buffers."""
    words, lengths = _read_views(array)
    for _ in _iter_long_views(
        words, lengths, [0 if buffer is None else buffer.size for buffer in array.own_buffers[2:]]
    ):
        pass
    return words


def _read_views(array: ArrayData) -> tuple[Values, Values]:
    """Return the words of all views, shape (n, 2), and their lengths. Views of null slots are empty."""
    words, mask = array.buffer_values(1).view(_WORD).reshape(-1, 2), array.validity_mask()
    if mask is not None:
        words = words.copy()
        words[np.flatnonzero(~mask)] = 0
    lengths = words.view(_INT32)[:, 0].copy()
    if lengths.size and lengths.min() < 0:
        index = find_first_true(lengths < 0)
        raise InvalidDataError(f"views[{index}] has the negative length {lengths[index]}")
    return words, lengths


def _iter_long_views(words: Values, lengths: Values, buffer_sizes: Sequence[int]) -> Iterator[tuple[int, _LongViews]]:
    """Yield the index of each data buffer in use, and the views of values that are longer than `INLINE_BYTES` and in
    it, after checking that they are within its size in bytes.
    """
    slots = np.flatnonzero(lengths > INLINE_BYTES)
    if not slots.size:
        return
    if len(slots) < len(words):
        words, lengths = words.take(slots, axis=0), lengths.take(slots)
    fields = words.view(_INT32)
    starts = fields[:, 3].astype(np.int64)
    long = _LongViews(slots, words.view(_PREFIX_WORD)[:, 1], fields[:, 2], starts, starts + lengths)
    steps = np.diff(long.buffer_indices)
    if (steps < 0).any():
        # Stable, so that the first view of a group is the first invalid one to name.
        order = np.argsort(long.buffer_indices, kind="stable")
        long = _LongViews(*(column[order] for column in long))
        steps = np.diff(long.buffer_indices)
    # One by one: each view of a malformed array may point to another buffer, of which the first is reported. A step
    # between such indices can overflow, which only splits a group.
    for first, last in pairwise([0, *(np.flatnonzero(steps) + 1).tolist(), len(slots)]):
        views = _LongViews(*(column[first:last] for column in long))
        buffer_index = int(views.buffer_indices[0])
        if not 0 <= buffer_index < len(buffer_sizes):
            raise InvalidDataError(
                f"views[{views.slots[0]}] points to data buffer {buffer_index} of {len(buffer_sizes)}"
            )
        size = buffer_sizes[buffer_index]
        if views.starts.min() < 0 or views.stops.max() > size:
            i = find_first_true((views.starts < 0) | (views.stops > size))
            raise InvalidDataError(
                f"views[{views.slots[i]}] points to bytes {views.starts[i]} to {views.stops[i]} of a data buffer of "
                f"{size} bytes"
            )
        yield buffer_index, views


def _check_prefixes(long: _LongViews, data: Bytes) -> None:
    """Check the prefixes of views that refer to one data buffer."""
    # A long value has at least 13 bytes and is within the data, so that four bytes can be read at each start.
    first_words = np.ndarray((data.size - 3,), _PREFIX_WORD, data, strides=(1,))[long.starts]
    differs = first_words != long.prefixes
    if differs.any():
        index = find_first_true(differs)
        prefix, start = long.prefixes[index].tobytes(), first_words[index].tobytes()
        raise InvalidDataError(f"views[{long.slots[index]}] has the prefix {prefix!r}, its data begins with {start!r}")


def _check_inline_views(words: Values, lengths: Values, first: int, is_text: bool) -> None:
    indices = np.flatnonzero(lengths <= INLINE_BYTES)
    if not indices.size:
        return
    if len(indices) < len(words):
        words, lengths = words.take(indices, axis=0), lengths.take(indices)
    left, right = words.T
    # The value begins after 32 bits of the first word: bits + 32 of it are used, and bits - 32 of the second.
    bits = lengths.astype(_WORD) * 8
    padding = (left >> np.minimum(bits + 32, 64)) | (right >> (np.maximum(bits, 32) - 32))  # NumPy shifts out all 64
    if padding.any():
        raise InvalidDataError(
            f"views[{first + indices[find_first_true(padding != 0)]}] is inline, but not padded with zeros"
        )
    # Without the lengths, in the lower half: one OR over all bytes shows whether any is not ASCII.
    all_bits = int(np.bitwise_or.reduce(left)) >> 32 << 32 | int(np.bitwise_or.reduce(right))
    if not is_text or not all_bits & utf8_decoding.HIGH_BITS:
        return
    # Twelve bytes per view, zero-padded: zeros are valid UTF-8, so all values are decoded as one text.
    values = words.view(UINT8)[:, 4:].reshape(-1)
    starts = np.arange(len(indices)) * INLINE_BYTES
    utf8_decoding.check_utf8_ranges(values, starts, starts + INLINE_BYTES, first + indices)
