"""UTF-8, checked and decoded for all the layouts of strings."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.layouts import string_pickling
from bowstring.layouts.base import decode_in_blocks
from bowstring.layouts.gather import gather_with_gap, prefixes
from bowstring.layouts.utf8_validation import is_utf8
from bowstring.memory.buffer import UINT8, Bytes

if TYPE_CHECKING:
    from bowstring.layouts.base import Indices, Values
    from bowstring.memory.bitmap import Mask

_BLOCK_BYTES = 1 << 18
_BLOCK_VALUES = 1 << 15
BLOCK_STRINGS = 1 << 14
_MANY_BYTES = 1 << 15
_SAMPLES = 1 << 10
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


def decode_strings(data: Bytes, offsets: Values, mask: Mask | None) -> list[str | None]:
    """The strings between consecutive offsets, which rise and lie within the data; None where the mask is not True.

    Raises `InvalidDataError` naming the first value that is no UTF-8.
    """

    def make(where: slice | Indices) -> list[str]:
        starts, lengths = _spans(offsets, where)
        if mask is not None:
            lengths *= mask[where]
        return _strings(data, starts, lengths)

    try:
        found = _short_slices(data, offsets, mask, make, is_text=True)
        return decode_in_blocks(len(offsets) - 1, mask, make, BLOCK_STRINGS) if found is None else found
    except UnicodeDecodeError:
        check_utf8(data, offsets, mask)
        raise


def decode_binary(data: Bytes, offsets: Values, mask: Mask | None) -> list[bytes | None]:
    """The bytes between consecutive offsets, which rise and lie within the data; None where the mask is not True."""

    def make(where: slice | Indices) -> list[bytes]:
        return slice_byte_strings(data, *_spans(offsets, where))

    found = _short_slices(data, offsets, mask, make, is_text=False)
    return decode_in_blocks(len(offsets) - 1, mask, make, BLOCK_STRINGS) if found is None else found


def _short_slices(
    data: Bytes, offsets: Values, mask: Mask | None, make: Callable[[Indices], list[Any]], is_text: bool
) -> list[Any] | None:
    """The values where they are many and short, and strings ASCII; those that are long are made otherwise."""
    count, size_bytes = len(offsets) - 1, int(offsets[-1]) - int(offsets[0])
    if not string_pickling.is_worthwhile(count, size_bytes, mask):
        return None
    return string_pickling.decode_strings(_led(data, offsets, mask), make, (count, size_bytes), is_text)


def _led(data: Bytes, offsets: Values, mask: Mask | None) -> Iterator[tuple[Values, Indices, Mask | None]]:
    """The values as `unpickled` wants them."""
    for own in string_pickling.iter_blocks(len(offsets) - 1, int(offsets[-1]) - int(offsets[0])):
        starts, lengths = _spans(offsets, own)
        held = data
        if starts[0] < string_pickling.HEADER_BYTES:
            held = np.concatenate((np.zeros(string_pickling.HEADER_BYTES, UINT8), data[: starts[-1] + lengths[-1]]))
            starts += string_pickling.HEADER_BYTES
        starts -= string_pickling.HEADER_BYTES
        elements = prefixes(held, starts, string_pickling.HEADER_BYTES + string_pickling.width_for(lengths))
        yield elements, lengths, None if mask is None else mask[own]


def _spans(offsets: Values, where: slice | Indices) -> tuple[Indices, Indices]:
    """Where the values begin, and their lengths."""
    starts = offsets[:-1][where].astype(np.int64)
    return starts, offsets[1:][where] - starts


def _strings(data: Bytes, starts: Indices, lengths: Indices) -> list[str]:
    """The strings from each of the rising starts on, of each length in bytes. Raises UnicodeDecodeError."""
    if int(lengths.sum()) > _SHORT_BYTES * len(lengths):
        return decode_long_strings(data, starts, lengths)
    return split_strings(*gather_with_gap(data, starts, lengths, 1), lengths)


def split_strings(room: Bytes, starts: Indices, lengths: Indices) -> list[str]:
    """The strings that lie end to end in `room` with one byte of anything behind each. Raises UnicodeDecodeError.

    Marks are put there: Python splits at them quicker than we can cut. A character that goes on in the next value is
    none, as the mark stands in the middle of it.
    """
    if len(room) > (_SHORT_BYTES + 1) * len(starts):
        return decode_long_strings(room, starts, lengths)
    for mark in _MARKS:
        room[starts[1:] - 1] = mark
        words = str(room[:-1].data, "utf-8").split(chr(mark))
        if len(words) == len(starts):
            return words
    return decode_long_strings(room, starts, lengths)


def decode_long_strings(data: Bytes, starts: Indices, lengths: Indices) -> list[str]:
    """The strings from each of the rising starts on, of each length in bytes, one by one. Raises UnicodeDecodeError."""
    found: list[str] = []
    for held, stops in _pieces(data, starts, lengths):
        start = 0
        try:
            text = str(held.data, "ascii")
        except UnicodeDecodeError:
            raw = held.tobytes()
            found += [raw[start : (start := stop)].decode() for stop in stops.tolist()]
        else:
            found += [text[start : (start := stop)] for stop in stops.tolist()]
    return found


def _pieces(data: Bytes, starts: Indices, lengths: Indices) -> Iterator[tuple[Bytes, Indices]]:
    """The bytes from each of the rising starts on, of each length, end to end, some values at a time, and where the
    values end in them.
    """
    step = 1 + _LONG_BYTES * len(starts) // (1 + int(lengths.sum()))
    for first in range(0, len(starts), step):
        own, sizes = starts[first : first + step], lengths[first : first + step]
        stops = sizes.cumsum()
        if own[-1] + sizes[-1] - own[0] == stops[-1]:
            yield data[own[0] : own[0] + stops[-1]], stops
        else:
            yield gather_with_gap(data, own, sizes, 0)[0], stops


def slice_byte_strings(data: Bytes, starts: Indices, lengths: Indices) -> list[bytes]:
    """The bytes from each of the rising starts on, of each length, one by one."""
    found: list[bytes] = []
    for held, stops in _pieces(data, starts, lengths):
        found += map(BytesIO(held.data).read, np.diff(stops, prepend=0).tolist())
    return found


def check_utf8(data: Values, offsets: Values, mask: Mask | None) -> None:
    """Check that every valid value between consecutive offsets, which rise and lie within the data, is UTF-8; raises
    `InvalidDataError` naming the first that is not.
    """
    for first in range(0, len(offsets) - 1, _BLOCK_VALUES):
        cuts = offsets[first : first + _BLOCK_VALUES + 1].astype(np.int64)
        held = data[cuts[0] : cuts[-1]]
        if is_ascii(held):
            continue
        inner = cuts[1 : np.searchsorted(cuts, cuts[-1])] - cuts[0]
        if find_invalid_byte(held) is None and not is_continuation(held[inner]).any():
            continue
        kept = np.arange(len(cuts) - 1) if mask is None else np.flatnonzero(mask[first : first + len(cuts) - 1])
        check_utf8_ranges(data, cuts[kept], cuts[kept + 1], first + kept)


def check_utf8_ranges(data: Values, starts: Indices, stops: Indices, numbers: Indices) -> None:
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
    bad = is_continuation(data[starts])
    for first, last in zip(starts[heads].tolist(), ends.tolist(), strict=True):
        wrong = find_invalid_byte(data[first:last])
        if wrong is not None:
            bad |= (starts <= first + wrong) & (first + wrong < stops)
            break
    else:
        bad |= (stops < end_of) & is_continuation(data[np.minimum(stops, len(data) - 1)])
    if bad.any():
        at = np.flatnonzero(bad)[np.argmin(numbers[bad])]
        shown = data[starts[at] : stops[at]][:40].tobytes()
        raise InvalidDataError(f"values[{numbers[at]}] is no UTF-8: {shown!r}")


def is_continuation(data: Values) -> Mask:
    """Which bytes continue a character."""
    found: Mask = (data & 0xC0) == 0x80
    return found


def _is_mostly_ascii(data: Values) -> bool:
    """Whether most of some bytes out of many are ASCII."""
    some = data[:: data.size // _SAMPLES]
    return bool(2 * np.count_nonzero(some & 0x80) < len(some))


def find_invalid_byte(data: Values) -> int | None:
    """The position of the first byte that does not fit UTF-8.

    Decodes a block at a time, which takes least where most is ASCII, or little; looks at other data all at once.
    """
    if data.size >= _MANY_BYTES and not _is_mostly_ascii(data) and is_utf8(data):
        return None
    at = 0
    while at < data.size:
        block = data[at : at + _BLOCK_BYTES]
        try:
            at += codecs.utf_8_decode(block.data, "strict", at + block.size == data.size)[1]
        except UnicodeDecodeError as error:
            return at + error.start
    return None
