"""UTF-8, checked and decoded for all the layouts of strings."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.layouts.base import put_nulls, spread
from bowstring.layouts.gather import spaced
from bowstring.layouts.utf8 import is_utf8
from bowstring.memory.buffer import Bytes

if TYPE_CHECKING:
    from bowstring.layouts.base import Indices, Values
    from bowstring.memory.bitmap import Mask

_BLOCK_BYTES = 1 << 18
_BLOCK_VALUES = 1 << 15
_SPLIT_VALUES = 1 << 12
_MANY_BYTES = 1 << 15
"""From so many bytes on it is quicker to look at all of them at once than to decode them."""
_SHORT_BYTES = 128
_LONG_BYTES = 1 << 17
_MARKS = (0, 1, 0x1F)
"""Characters that hardly any text has."""


def is_ascii(data: Values) -> bool:
    """Whether no byte has its high bit set; looks at 256 KB at a time and stops at the first that has."""
    whole = data.size // 8 * 8
    words = data[:whole].view(np.uint64)
    high = np.uint64(0x8080808080808080)
    step = _BLOCK_BYTES // 8
    for at in range(0, words.size, step):
        if int(np.bitwise_or.reduce(words[at : at + step]) & high):
            return False
    return not data.size > whole or int(data[whole:].max()) < 128


def slices(data: Bytes, offsets: Values, mask: Mask | None) -> list[str | None]:
    """The strings between consecutive offsets, which rise and lie within the data; None where the mask is not True.

    Raises `InvalidDataError` naming the first value that is no UTF-8.
    """
    try:
        return _slices(data, offsets, mask, _words)
    except UnicodeDecodeError:
        check(data, offsets, mask)
        raise


def byte_slices(data: Bytes, offsets: Values, mask: Mask | None) -> list[bytes | None]:
    """The bytes between consecutive offsets, which rise and lie within the data; None where the mask is not True."""
    return _slices(data, offsets, mask, _byte_strings)


def _slices(
    data: Bytes, offsets: Values, mask: Mask | None, cut: Callable[[Bytes, Indices, Indices], list[Any]]
) -> list[Any]:
    found: list[Any] = []
    if mask is not None and 4 * np.count_nonzero(mask) < 3 * len(mask):
        kept = mask.nonzero()[0]
        starts, stops = offsets[kept].astype(np.int64), offsets[kept + 1]
        for first in range(0, len(kept), _SPLIT_VALUES):
            own = slice(first, first + _SPLIT_VALUES)
            found += cut(data, starts[own], stops[own] - starts[own])
        return spread(found, kept, len(mask))
    for first in range(0, len(offsets) - 1, _SPLIT_VALUES):
        cuts = offsets[first : first + _SPLIT_VALUES + 1].astype(np.int64)
        starts, lengths = cuts[:-1], cuts[1:] - cuts[:-1]
        if mask is None:
            found += cut(data, starts, lengths)
        else:
            valid = mask[first : first + _SPLIT_VALUES]
            found += put_nulls(cut(data, starts, lengths * valid if cut is _words else lengths), valid)
    return found


def _words(data: Bytes, starts: Indices, lengths: Indices) -> list[str]:
    """The strings from each of the rising starts on, of each length in bytes. Raises UnicodeDecodeError.

    They are copied with a mark after each: Python splits there quicker than we can cut. A character that goes on in the
    next value is none, as the mark stands in the middle of it.
    """
    if not len(lengths):
        return []
    if int(lengths.sum()) > _SHORT_BYTES * len(lengths):
        return _long_words(data, starts, lengths)
    room, targets = spaced(data, starts, lengths, 1)
    for mark in _MARKS:
        room[targets[1:] - 1] = mark
        words = str(room[:-1].data, "utf-8").split(chr(mark))
        if len(words) == len(lengths):
            return words
    return _long_words(data, starts, lengths)


def _long_words(data: Bytes, starts: Indices, lengths: Indices) -> list[str]:
    """The same, one by one."""
    found: list[str] = []
    stops = starts + lengths
    step = 1 + _LONG_BYTES * len(starts) // (1 + int(stops[-1] - starts[0]))
    for first in range(0, len(starts), step):
        own, past = starts[first : first + step], stops[first : first + step]
        held = data[own[0] : past[-1]].data
        places = zip((own - own[0]).tolist(), (past - own[0]).tolist(), strict=True)
        try:
            text = str(held, "ascii")
        except UnicodeDecodeError:
            raw = bytes(held)
            found += [raw[start:stop].decode() for start, stop in places]
        else:
            found += [text[start:stop] for start, stop in places]
    return found


def _byte_strings(data: Bytes, starts: Indices, lengths: Indices) -> list[bytes]:
    """The bytes from each of the rising starts on, of each length."""
    if not len(lengths):
        return []
    if (starts[1:] == starts[:-1] + lengths[:-1]).all():
        held = data[starts[0] : starts[-1] + lengths[-1]]
    else:
        held = spaced(data, starts, lengths, 0)[0]
    return list(map(BytesIO(held.tobytes()).read, lengths.tolist()))


def check(data: Values, offsets: Values, mask: Mask | None) -> None:
    """Check that every valid value between consecutive offsets, which rise and lie within the data, is UTF-8; raises
    `InvalidDataError` naming the first that is not.
    """
    for first in range(0, len(offsets) - 1, _BLOCK_VALUES):
        cuts = offsets[first : first + _BLOCK_VALUES + 1].astype(np.int64)
        held = data[cuts[0] : cuts[-1]]
        if is_ascii(held):
            continue
        inner = cuts[1 : np.searchsorted(cuts, cuts[-1])] - cuts[0]
        if fault(held) is None and not continues(held[inner]).any():
            continue
        kept = np.arange(len(cuts) - 1) if mask is None else np.flatnonzero(mask[first : first + len(cuts) - 1])
        check_ranges(data, cuts[kept], cuts[kept + 1], first + kept)


def check_ranges(data: Values, starts: Indices, stops: Indices, numbers: Indices) -> None:
    """Check that the bytes from each start to its stop are UTF-8; raises `InvalidDataError` with the number of one.

    Takes time in proportion to the data, however the values overlap, and looks at no byte outside of them. Values that
    overlap or touch form a stretch. If each value begins with a character and ends before one or with its stretch, then
    all of them are UTF-8 exactly if their stretches are; so each byte is decoded once.
    """
    used = np.flatnonzero(stops > starts)
    if not used.size or is_ascii(data[int(starts[used].min()) : int(stops[used].max())]):
        return
    used = used[np.argsort(starts[used], kind="stable")]
    starts, stops, numbers = starts[used], stops[used], numbers[used]
    reach = np.maximum.accumulate(stops)
    heads = np.concatenate(([0], np.flatnonzero(starts[1:] > reach[:-1]) + 1))
    ends = np.append(reach[heads[1:] - 1], reach[-1])
    end_of = np.repeat(ends, np.diff(np.append(heads, len(starts))))
    bad = continues(data[starts])
    for first, last in zip(starts[heads].tolist(), ends.tolist(), strict=True):
        wrong = fault(data[first:last])
        if wrong is not None:
            bad |= (starts <= first + wrong) & (first + wrong < stops)
            break
    else:
        bad |= (stops < end_of) & continues(data[np.minimum(stops, len(data) - 1)])
    if bad.any():
        at = np.flatnonzero(bad)[np.argmin(numbers[bad])]
        shown = data[starts[at] : stops[at]][:40].tobytes()
        raise InvalidDataError(f"values[{numbers[at]}] is no UTF-8: {shown!r}")


def continues(data: Values) -> Mask:
    """Which bytes continue a character."""
    found: Mask = (data & 0xC0) == 0x80
    return found


def fault(data: Values) -> int | None:
    """The position of the first byte that does not fit UTF-8; decodes a block at a time what is little or wrong."""
    if data.size >= _MANY_BYTES and is_utf8(data):
        return None
    at = 0
    while at < data.size:
        block = data[at : at + _BLOCK_BYTES]
        try:
            at += codecs.utf_8_decode(block.data, "strict", at + block.size == data.size)[1]
        except UnicodeDecodeError as error:
            return at + error.start
    return None
