"""Validation of views («Variable-size Binary View Layout»): length, location, prefix, padding and UTF-8.

Views are checked in blocks, as pairs of 64-bit words: the length and four bytes; then eight more bytes, or the index of
a data buffer and an offset into it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.layouts import utf8_decoding
from bowstring.layouts.base import ArrayData, Indices, Values, find_first_true
from bowstring.memory.buffer import EMPTY, UINT8, Bytes

INLINE_BYTES = 12
"""Values of up to this length are stored in the view."""

# 256 KiB of views: they are read several times while they are in the cache.
_BLOCK_VIEWS = 1 << 14
# Views may refer to few bytes of a large buffer: reading all of it must not take much longer than reading the values.
_MAX_SPAN_RATIO = 8
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

    def split_by_buffer(self, buffer_sizes: Sequence[int]) -> Iterator[tuple[int, _LongViews]]:
        """Yield the index of each data buffer and the views that refer to it, after checking that they are within it.

        `buffer_sizes` are the sizes of the data buffers in bytes.
        """
        if not len(self.buffer_indices):
            return
        first = int(self.buffer_indices[0])
        if (self.buffer_indices == first).all():
            self._check_locations(first, buffer_sizes)
            yield first, self
            return
        # Stable, so that the first view of a group is the first invalid one to name.
        order = np.argsort(self.buffer_indices, kind="stable")
        for group in np.split(order, np.flatnonzero(np.diff(self.buffer_indices[order])) + 1):
            views = _LongViews(*(column[group] for column in self))
            buffer_index = int(views.buffer_indices[0])
            views._check_locations(buffer_index, buffer_sizes)
            yield buffer_index, views

    def _check_locations(self, buffer_index: int, buffer_sizes: Sequence[int]) -> None:
        """Check that views of one data buffer are within it."""
        if not 0 <= buffer_index < len(buffer_sizes):
            raise InvalidDataError(
                f"views[{self.slots[0]}] points to data buffer {buffer_index} of {len(buffer_sizes)}"
            )
        size = buffer_sizes[buffer_index]
        if self.starts.min() < 0 or self.stops.max() > size:
            i = find_first_true((self.starts < 0) | (self.stops > size))
            raise InvalidDataError(
                f"views[{self.slots[i]}] points to bytes {self.starts[i]} to {self.stops[i]} of a data buffer of "
                f"{size} bytes"
            )


def check_views(array: ArrayData, is_text: bool) -> None:
    """Check every valid view of an array, and with `is_text` that the values are UTF-8.

    Raises `InvalidDataError` naming the first invalid view of a block.
    """
    buffers = [(buffer or EMPTY).bytes for buffer in array.own_buffers[2:]]
    buffer_sizes = [buffer.size for buffer in buffers]
    text_ranges: dict[int, _TextRange] = {}
    for first, words, lengths in _iter_view_blocks(array, _BLOCK_VIEWS):
        long = _select_long_views(words, lengths, first)
        if len(long.slots) < len(words):
            _check_inline_views(words, lengths, first, is_text)
        for buffer_index, views in long.split_by_buffer(buffer_sizes):
            data = buffers[buffer_index]
            _check_prefixes(views, data)
            if is_text and not _is_dense_ascii(data, views):
                text_ranges.setdefault(buffer_index, _TextRange(data)).extend(views)
    # Only now value by value, which finds the invalid one, or that all are valid and only the bytes between are not.
    if not all(text_range.is_valid_utf8() for text_range in text_ranges.values()):
        for first, words, lengths in _iter_view_blocks(array, array.length):
            for buffer_index, views in _select_long_views(words, lengths, first).split_by_buffer(buffer_sizes):
                utf8_decoding.check_utf8_ranges(buffers[buffer_index], views.starts, views.stops, views.slots)


def read_checked_views(array: ArrayData) -> Values:
    """Return all views as 64-bit integers, shape (n, 2), empty for null slots, after checking their data buffers."""
    buffer_sizes = [0 if buffer is None else buffer.size for buffer in array.own_buffers[2:]]
    for first, words, lengths in _iter_view_blocks(array, array.length):
        for _ in _select_long_views(words, lengths, first).split_by_buffer(buffer_sizes):
            pass
        return words
    return np.empty((0, 2), _WORD)


def _iter_view_blocks(array: ArrayData, size: int) -> Iterator[tuple[int, Values, Values]]:
    """Yield blocks of `size` views: the index of the first, the words of shape (n, 2), and the lengths.

    Views of null slots are empty.
    """
    views, mask = array.buffer_values(1), array.validity_mask()
    for first in range(0, array.length, size or 1):
        words = views[first : first + size].view(_WORD).reshape(-1, 2)
        if mask is not None:
            words = words.copy()
            words[np.flatnonzero(~mask[first : first + size])] = 0
        lengths = words.view(_INT32)[:, 0].copy()
        if lengths.min() < 0:
            index = find_first_true(lengths < 0)
            raise InvalidDataError(f"views[{first + index}] has the negative length {lengths[index]}")
        yield first, words, lengths


def _select_long_views(words: Values, lengths: Values, first: int) -> _LongViews:
    """Select the views of a block whose values are longer than `INLINE_BYTES`."""
    indices = np.flatnonzero(lengths > INLINE_BYTES)
    if len(indices) < len(words):
        words, lengths = words.take(indices, axis=0), lengths.take(indices)
    fields = words.view(_INT32)
    starts = fields[:, 3].astype(np.int64)
    return _LongViews(indices + first, words.view(_PREFIX_WORD)[:, 1], fields[:, 2], starts, starts + lengths)


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
    if (
        utf8_decoding.continuation_byte_mask(values[::INLINE_BYTES]).any()
        or utf8_decoding.find_invalid_byte(values) is not None
    ):
        starts = np.arange(len(indices)) * INLINE_BYTES
        utf8_decoding.check_utf8_ranges(values, starts, starts + INLINE_BYTES, first + indices)


def _is_dense_ascii(data: Bytes, long: _LongViews) -> bool:
    """Whether the values fill a large part of a range of the data, which is ASCII."""
    span = data[int(long.starts.min()) : int(long.stops.max())]
    return span.size <= _MAX_SPAN_RATIO * int((long.stops - long.starts).sum()) and utf8_decoding.is_ascii(span)


class _TextRange:
    """The range of a data buffer from its first to its last string."""

    __slots__ = ("data", "first", "last", "splits_characters", "total_bytes")

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.first, self.last, self.total_bytes = data.size, 0, 0
        self.splits_characters = False

    def extend(self, views: _LongViews) -> None:
        """Extend the range to the strings of these views."""
        starts, stops = views.starts, views.stops
        self.first = min(self.first, int(starts.min()))
        self.last = max(self.last, int(stops.max()))
        self.total_bytes += int((stops - starts).sum())
        if not self.splits_characters:
            inner_stops = stops[stops < self.data.size]
            boundaries = self.data[np.concatenate((starts, inner_stops))]
            self.splits_characters = bool(utf8_decoding.continuation_byte_mask(boundaries).any())

    def is_valid_utf8(self) -> bool:
        """Whether the range is UTF-8 and no string begins or ends within a character.

        If False, the strings can still be valid. The range is not read if strings are a small part of it.
        """
        span = self.data[self.first : self.last]
        if utf8_decoding.is_ascii(span):
            return True
        return (
            not self.splits_characters
            and span.size <= _MAX_SPAN_RATIO * self.total_bytes
            and utf8_decoding.find_invalid_byte(span) is None
        )
