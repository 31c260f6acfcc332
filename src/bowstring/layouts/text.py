"""Validate and decode UTF-8, for all layouts of strings."""

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
_SEPARATORS = (0, 1, 0x1F)
"""Characters that are rare in text."""


def is_ascii(data: Values) -> bool:
    """Return whether all bytes are ASCII; reads 256 KB at a time and stops after the first block that is not."""
    aligned_size = data.size // 8 * 8
    words = data[:aligned_size].view(np.uint64)
    high = np.uint64(0x8080808080808080)
    step = _BLOCK_BYTES // 8
    for at in range(0, words.size, step):
        if int(np.bitwise_or.reduce(words[at : at + step]) & high):
            return False
    return not data.size > aligned_size or int(data[aligned_size:].max()) < 128


def decode_strings(data: Bytes, offsets: Values, mask: Mask | None) -> list[str | None]:
    """Return the strings between consecutive, checked offsets, with None where the mask is False.

    Raises `InvalidDataError` naming the first value that is not valid UTF-8.
    """

    def decode(selection: slice | Indices) -> list[str]:
        starts, lengths = _ranges(offsets, selection)
        if mask is not None:
            lengths *= mask[selection]
        return _strings(data, starts, lengths)

    try:
        values = _decode_short_values(data, offsets, mask, decode, is_text=True)
        return decode_in_blocks(len(offsets) - 1, mask, decode, BLOCK_STRINGS) if values is None else values
    except UnicodeDecodeError:
        check_utf8(data, offsets, mask)
        raise


def decode_binary(data: Bytes, offsets: Values, mask: Mask | None) -> list[bytes | None]:
    """Return the byte strings between consecutive, checked offsets, with None where the mask is False."""

    def decode(selection: slice | Indices) -> list[bytes]:
        return slice_byte_strings(data, *_ranges(offsets, selection))

    values = _decode_short_values(data, offsets, mask, decode, is_text=False)
    return decode_in_blocks(len(offsets) - 1, mask, decode, BLOCK_STRINGS) if values is None else values


def _decode_short_values(
    data: Bytes, offsets: Values, mask: Mask | None, decode: Callable[[Indices], list[Any]], is_text: bool
) -> list[Any] | None:
    """Decode values by unpickling if they are many, short and ASCII, long ones by `decode`; None otherwise."""
    count, size_bytes = len(offsets) - 1, int(offsets[-1]) - int(offsets[0])
    if not string_pickling.is_worthwhile(count, size_bytes, mask):
        return None
    return string_pickling.decode_strings(_pickle_blocks(data, offsets, mask), decode, (count, size_bytes), is_text)


def _pickle_blocks(data: Bytes, offsets: Values, mask: Mask | None) -> Iterator[tuple[Values, Indices, Mask | None]]:
    """Yield blocks of values for `string_pickling.decode_strings`."""
    for block in string_pickling.iter_blocks(len(offsets) - 1, int(offsets[-1]) - int(offsets[0])):
        starts, lengths = _ranges(offsets, block)
        source = data
        if starts[0] < string_pickling.HEADER_BYTES:
            source = np.concatenate((np.zeros(string_pickling.HEADER_BYTES, UINT8), data[: starts[-1] + lengths[-1]]))
            starts += string_pickling.HEADER_BYTES
        starts -= string_pickling.HEADER_BYTES
        elements = prefixes(source, starts, string_pickling.HEADER_BYTES + string_pickling.width_for(lengths))
        yield elements, lengths, None if mask is None else mask[block]


def _ranges(offsets: Values, selection: slice | Indices) -> tuple[Indices, Indices]:
    """Return the starts and lengths of values."""
    starts = offsets[:-1][selection].astype(np.int64)
    return starts, offsets[1:][selection] - starts


def _strings(data: Bytes, starts: Indices, lengths: Indices) -> list[str]:
    """Decode the strings at rising starts, of these lengths in bytes. Raises UnicodeDecodeError."""
    if int(lengths.sum()) > _SHORT_BYTES * len(lengths):
        return decode_long_strings(data, starts, lengths)
    return split_strings(*gather_with_gap(data, starts, lengths, 1), lengths)


def split_strings(joined: Bytes, starts: Indices, lengths: Indices) -> list[str]:
    """Decode consecutive strings in `joined` with one arbitrary byte after each. Raises UnicodeDecodeError.

    That byte is overwritten by a separator, because `str.split` is faster than slicing. A character that continues in
    the next value is invalid, because the separator interrupts it.
    """
    if len(joined) > (_SHORT_BYTES + 1) * len(starts):
        return decode_long_strings(joined, starts, lengths)
    for separator in _SEPARATORS:
        joined[starts[1:] - 1] = separator
        strings = str(joined[:-1].data, "utf-8").split(chr(separator))
        if len(strings) == len(starts):
            return strings
    return decode_long_strings(joined, starts, lengths)


def decode_long_strings(data: Bytes, starts: Indices, lengths: Indices) -> list[str]:
    """Decode the strings at rising starts, of these lengths in bytes, one by one. Raises UnicodeDecodeError."""
    strings: list[str] = []
    for joined, stops in _join_ranges(data, starts, lengths):
        start = 0
        try:
            text = str(joined.data, "ascii")
        except UnicodeDecodeError:
            encoded = joined.tobytes()
            strings += [encoded[start : (start := stop)].decode() for stop in stops.tolist()]
        else:
            strings += [text[start : (start := stop)] for stop in stops.tolist()]
    return strings


def _join_ranges(data: Bytes, starts: Indices, lengths: Indices) -> Iterator[tuple[Bytes, Indices]]:
    """Concatenate the values at rising starts in groups; yield the bytes of a group and the ends of its values."""
    step = 1 + _LONG_BYTES * len(starts) // (1 + int(lengths.sum()))
    for first in range(0, len(starts), step):
        group_starts, sizes = starts[first : first + step], lengths[first : first + step]
        stops = sizes.cumsum()
        start = group_starts[0]
        if group_starts[-1] + sizes[-1] - start == stops[-1]:
            yield data[start : start + stops[-1]], stops
        else:
            yield gather_with_gap(data, group_starts, sizes, 0)[0], stops


def slice_byte_strings(data: Bytes, starts: Indices, lengths: Indices) -> list[bytes]:
    """Return the byte strings at rising starts, of these lengths, one by one."""
    values: list[bytes] = []
    for joined, stops in _join_ranges(data, starts, lengths):
        values += map(BytesIO(joined.data).read, np.diff(stops, prepend=0).tolist())
    return values


def check_utf8(data: Values, offsets: Values, mask: Mask | None) -> None:
    """Check that every valid value between consecutive, checked offsets is UTF-8.

    Raises `InvalidDataError` naming the first value that is not.
    """
    for first in range(0, len(offsets) - 1, _BLOCK_VALUES):
        block_offsets = offsets[first : first + _BLOCK_VALUES + 1].astype(np.int64)
        start, stop, count = block_offsets[0], block_offsets[-1], len(block_offsets) - 1
        block = data[start:stop]
        if is_ascii(block):
            continue
        boundaries = block_offsets[1 : np.searchsorted(block_offsets, stop)] - start
        if find_invalid_byte(block) is None and not is_continuation(block[boundaries]).any():
            continue
        indices = np.arange(count) if mask is None else np.flatnonzero(mask[first : first + count])
        check_utf8_ranges(data, block_offsets[indices], block_offsets[indices + 1], first + indices)


def check_utf8_ranges(data: Values, starts: Indices, stops: Indices, slots: Indices) -> None:
    """Check that the bytes from each start to its stop are UTF-8; raises `InvalidDataError` with the slot of one.

    The cost is proportional to the data, also if values overlap, and no byte outside of them is read. Values that
    overlap or touch are merged into one range. If each value begins at a character boundary, and ends at one or at the
    end of its range, then all values are valid if and only if the ranges are. So each byte is decoded once.
    """
    used = np.flatnonzero(stops > starts)
    if not used.size or is_ascii(data[int(starts[used].min()) : int(stops[used].max())]):
        return
    used = used[np.argsort(starts[used], kind="stable")]
    starts, stops, slots = starts[used], stops[used], slots[used]
    reach = np.maximum.accumulate(stops)
    firsts = np.concatenate(([0], np.flatnonzero(starts[1:] > reach[:-1]) + 1))
    ends = np.append(reach[firsts[1:] - 1], reach[-1])
    end_of = np.repeat(ends, np.diff(np.append(firsts, len(starts))))
    bad = is_continuation(data[starts])
    for first, last in zip(starts[firsts].tolist(), ends.tolist(), strict=True):
        offset = find_invalid_byte(data[first:last])
        if offset is not None:
            bad |= (starts <= first + offset) & (first + offset < stops)
            break
    else:
        bad |= (stops < end_of) & is_continuation(data[np.minimum(stops, len(data) - 1)])
    if bad.any():
        at = np.flatnonzero(bad)[np.argmin(slots[bad])]
        value = data[starts[at] : stops[at]][:40].tobytes()
        raise InvalidDataError(f"values[{slots[at]}] is not valid UTF-8: {value!r}")


def is_continuation(data: Values) -> Mask:
    """Return which bytes are continuation bytes."""
    mask: Mask = (data & 0xC0) == 0x80
    return mask


def _is_mostly_ascii(data: Values) -> bool:
    """Return whether most bytes of a sample are ASCII."""
    sample = data[:: data.size // _SAMPLES]
    return bool(2 * np.count_nonzero(sample & 0x80) < len(sample))


def find_invalid_byte(data: Values) -> int | None:
    """Return the offset of the first byte that is not valid UTF-8, or None.

    Decodes small or mostly ASCII data block by block, and first tests other data as a whole, because that is faster.
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
