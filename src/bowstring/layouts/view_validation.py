"""Every view of a byte string, checked («Variable-size Binary View Layout»): length, place, prefix, padding and text.

Views are two words, as which they are looked at a block at a time: the length and four bytes more; and either eight
more, or the number of a data buffer and an offset into it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.layouts import text
from bowstring.layouts.base import first_true
from bowstring.layouts.binary_view import INLINE_BYTES
from bowstring.memory.buffer import EMPTY, UINT8

if TYPE_CHECKING:
    from bowstring.layouts.array import Array
    from bowstring.layouts.base import Indices, Values
    from bowstring.memory.buffer import Bytes

_BLOCK_VIEWS = 1 << 14
_SPARSE = 8
_WORD = np.dtype("<u8")
_NUMBER = np.dtype("<i4")
_PREFIX = np.dtype("<u4")
_HIGH_BITS = 0x8080808080808080


class _Long(NamedTuple):
    """Views of values that are too long to lie within them: their slots, and what they say."""

    slots: Indices
    prefixes: Values
    numbers: Values
    starts: Indices
    stops: Indices

    def by_buffer(self) -> Iterator[tuple[int, _Long]]:
        """Each data buffer that they point to, by its number, and those that do."""
        if not len(self.numbers):
            return
        first = int(self.numbers[0])
        if (self.numbers == first).all():
            yield first, self
            return
        order = np.argsort(self.numbers, kind="stable")
        for own in np.split(order, np.flatnonzero(np.diff(self.numbers[order])) + 1):
            yield int(self.numbers[own[0]]), _Long(*(column[own] for column in self))


def check_views(array: Array, is_text: bool) -> None:
    """Check every valid view of an array of them, and with `is_text` that the values are UTF-8; raises
    `InvalidDataError` naming the first view of some block that is wrong.
    """
    buffers = [(buffer or EMPTY).bytes for buffer in array.buffers[2:]]
    used: dict[int, _Used] = {}
    for first, words, lengths in _blocks(array, _BLOCK_VIEWS):
        long = _long(words, lengths, first)
        if len(long.slots) < len(words):
            _check_inline(words, lengths, first, is_text)
        for number, own in long.by_buffer():
            if not 0 <= number < len(buffers):
                raise InvalidDataError(f"views[{own.slots[0]}] points to data buffer {number} of {len(buffers)}")
            data = buffers[number]
            _check_long(own, data)
            if is_text and not _is_dense_ascii(data, own):
                used.setdefault(number, _Used(data)).add(own)
    if not all(data.is_surely_text() for data in used.values()):
        for first, words, lengths in _blocks(array, array.length):
            for number, own in _long(words, lengths, first).by_buffer():
                text.check_utf8_ranges(buffers[number], own.starts, own.stops, own.slots)


def _blocks(array: Array, size: int) -> Iterator[tuple[int, Values, Values]]:
    """Blocks of so many views: the number of the first one, their words of shape (n, 2), and their lengths; those of
    null slots are empty.
    """
    views, mask = array.values(1), array.mask()
    for first in range(0, array.length, size):
        words = views[first : first + size].view(_WORD).reshape(-1, 2)
        if mask is not None:
            words = words.copy()
            words[np.flatnonzero(~mask[first : first + size])] = 0
        lengths = words.view(_NUMBER)[:, 0].copy()
        if lengths.min() < 0:
            at = first_true(lengths < 0)
            raise InvalidDataError(f"views[{first + at}] has the negative length {lengths[at]}")
        yield first, words, lengths


def _long(words: Values, lengths: Values, first: int) -> _Long:
    """Those of a block that are too long to lie within their view."""
    own = np.flatnonzero(lengths > INLINE_BYTES)
    if len(own) < len(words):
        words, lengths = words.take(own, axis=0), lengths.take(own)
    numbers = words.view(_NUMBER)
    starts = numbers[:, 3].astype(np.int64)
    return _Long(own + first, words.view(_PREFIX)[:, 1], numbers[:, 2], starts, starts + lengths)


def _check_long(long: _Long, data: Bytes) -> None:
    """Check places and prefixes of views that point to a data buffer."""
    if long.starts.min() < 0 or long.stops.max() > data.size:
        at = first_true((long.starts < 0) | (long.stops > data.size))
        raise InvalidDataError(
            f"views[{long.slots[at]}] points to bytes {long.starts[at]} to {long.stops[at]} of a data buffer of "
            f"{data.size} bytes"
        )
    heads = np.ndarray((data.size - 3,), _PREFIX, data, strides=(1,))[long.starts]
    bad = heads != long.prefixes
    if bad.any():
        at = first_true(bad)
        prefix, head = long.prefixes[at].tobytes(), heads[at].tobytes()
        raise InvalidDataError(f"views[{long.slots[at]}] has the prefix {prefix!r}, its data begins with {head!r}")


def _check_inline(words: Values, lengths: Values, first: int, is_text: bool) -> None:
    own = np.flatnonzero(lengths <= INLINE_BYTES)
    if len(own) < len(words):
        words, lengths = words.take(own, axis=0), lengths.take(own)
    left, right = words.T
    bits = lengths.astype(_WORD) * 8
    stray = (left >> np.minimum(bits + 32, 64)) | (right >> (np.maximum(bits, 32) - 32))  # NumPy shifts out all 64
    if stray.any():
        raise InvalidDataError(f"views[{first + own[first_true(stray != 0)]}] is inline, but not padded with zeros")
    seen = int(np.bitwise_or.reduce(left)) >> 32 << 32 | int(np.bitwise_or.reduce(right))
    if not is_text or not seen & _HIGH_BITS:
        return
    inside = words.view(UINT8)[:, 4:].reshape(-1)
    if text.is_continuation(inside[::INLINE_BYTES]).any() or text.find_invalid_byte(inside) is not None:
        starts = np.arange(len(own)) * INLINE_BYTES
        text.check_utf8_ranges(inside, starts, starts + INLINE_BYTES, first + own)


def _is_dense_ascii(data: Bytes, long: _Long) -> bool:
    """Whether values are ASCII with all that lies between them, which is not much more."""
    span = data[int(long.starts.min()) : int(long.stops.max())]
    return span.size <= _SPARSE * int((long.stops - long.starts).sum()) and text.is_ascii(span)


class _Used:
    """What strings use of a data buffer."""

    __slots__ = ("data", "first", "has_cuts_in_characters", "last", "total_bytes")

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.first, self.last, self.total_bytes = data.size, 0, 0
        self.has_cuts_in_characters = False

    def add(self, long: _Long) -> None:
        """More strings."""
        starts, stops = long.starts, long.stops
        self.first = min(self.first, int(starts.min()))
        self.last = max(self.last, int(stops.max()))
        self.total_bytes += int((stops - starts).sum())
        if not self.has_cuts_in_characters:
            behind = np.minimum(stops, self.data.size - 1)
            cuts = text.is_continuation(self.data[starts]) | (
                text.is_continuation(self.data[behind]) & (behind == stops)
            )
            self.has_cuts_in_characters = bool(cuts.any())

    def is_surely_text(self) -> bool:
        """Whether all that lies between the first and the last of the strings is UTF-8, and no string ends within a
        character; if not, they may be UTF-8 still. A few strings out of much data are not worth looking at it.
        """
        span = self.data[self.first : self.last]
        if text.is_ascii(span):
            return True
        return (
            not self.has_cuts_in_characters
            and span.size <= _SPARSE * self.total_bytes
            and text.find_invalid_byte(span) is None
        )
