"""Validate and decode UTF-8, for all layouts of strings."""

from __future__ import annotations

import codecs
from io import BytesIO
from typing import Any

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.layouts.base import Indices, Values, set_nulls_to_none
from bowstring.memory.bitmap import Mask
from bowstring.memory.buffer import Bytes

# Bounds the memory of a decoded block, 1 MiB at most, and the bytes read after the first that is not ASCII. A
# multiple of 8, for `is_ascii`.
_BLOCK_BYTES = 1 << 18
# Offsets of a block as int64 take 256 KiB. An array that is mostly ASCII is decoded only in the blocks that are not.
_BLOCK_VALUES = 1 << 15
# Values may be few bytes of a large buffer: reading all of it must not take much longer than reading the values.
_MAX_SPAN_RATIO = 8
HIGH_BITS = 0x8080808080808080  # set in no byte of ASCII text


def is_ascii(data: Values) -> bool:
    """Return whether all bytes are ASCII; reads 256 KB at a time and stops after the first block that is not."""
    aligned_size = data.size // 8 * 8
    words = data[:aligned_size].view(np.uint64)
    step = _BLOCK_BYTES // 8
    for start in range(0, words.size, step):
        if int(np.bitwise_or.reduce(words[start : start + step])) & HIGH_BITS:
            return False
    return not data.size > aligned_size or int(data[aligned_size:].max()) < 128


def decode_values(data: Bytes, offsets: Values, mask: Mask | None, is_text: bool) -> list[Any]:
    """Return the strings or byte strings between consecutive, checked offsets, with None where the mask is False.

    Raises `InvalidDataError` naming the first string that is not valid UTF-8.
    """
    # Consecutive reads give each value as bytes in one call of C, without a slice and its two Python integers.
    read = BytesIO(data[int(offsets[0]) : int(offsets[-1])].data).read
    encoded = map(read, np.diff(offsets).tolist())
    if not is_text:
        return set_nulls_to_none(list(encoded), mask)
    try:
        if mask is None:
            return list(map(bytes.decode, encoded))
        values = zip(encoded, mask.tolist(), strict=True)
        return [value.decode() if is_valid else None for value, is_valid in values]
    except UnicodeDecodeError:
        check_utf8(data, offsets, mask)
        raise


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
        # Offsets at the end of the block are left out: there is no byte there, or one of the next block.
        boundaries = block_offsets[1 : np.searchsorted(block_offsets, stop)] - start
        # The block as a whole is valid, and no value begins within a character: then each value is valid.
        if find_invalid_byte(block) is None and not continuation_byte_mask(block[boundaries]).any():
            continue
        indices = np.arange(count) if mask is None else np.flatnonzero(mask[first : first + count])
        check_utf8_ranges(data, block_offsets[indices], block_offsets[indices + 1], first + indices)


def check_utf8_ranges(data: Values, starts: Indices, stops: Indices, slots: Indices) -> None:
    """Check that the bytes from each start to its stop are UTF-8; raises `InvalidDataError` with the slot of one.

    The cost is proportional to the data, also if values overlap, and no byte outside of them is read. Values that
    overlap or touch are merged into one range. If each value begins at a character boundary, and ends at one or at the
    end of its range, then all values are valid if and only if the ranges are. So each byte is decoded once.
    """
    nonempty = np.flatnonzero(stops > starts)
    if not nonempty.size:
        return
    if nonempty.size < starts.size:
        starts, stops, slots = starts[nonempty], stops[nonempty], slots[nonempty]
    first, last = int(starts.min()), int(stops.max())
    span = data[first:last]
    if is_ascii(span):
        return
    # All bytes together are valid, and no value begins or ends within a character: then each value is valid.
    is_dense = span.size <= _MAX_SPAN_RATIO * int((stops - starts).sum())
    boundaries = np.concatenate((starts, stops[stops < last]))
    if is_dense and not continuation_byte_mask(data[boundaries]).any() and find_invalid_byte(span) is None:
        return
    order = np.argsort(starts, kind="stable")
    starts, stops, slots = starts[order], stops[order], slots[order]
    # The farthest end so far, in the order of the starts: a value that begins beyond it begins a new range.
    max_stops = np.maximum.accumulate(stops)
    firsts = np.concatenate(([0], np.flatnonzero(starts[1:] > max_stops[:-1]) + 1))
    ends = np.append(max_stops[firsts[1:] - 1], max_stops[-1])
    range_ends = np.repeat(ends, np.diff(np.append(firsts, len(starts))))
    invalid = continuation_byte_mask(data[starts])
    for first, last in zip(starts[firsts].tolist(), ends.tolist(), strict=True):
        offset = find_invalid_byte(data[first:last])
        if offset is not None:
            # One invalid byte is enough: whichever values contain it are invalid, and the error names one.
            invalid |= (starts <= first + offset) & (first + offset < stops)
            break
    else:
        invalid |= (stops < range_ends) & continuation_byte_mask(data[np.minimum(stops, len(data) - 1)])
    if invalid.any():
        index = np.flatnonzero(invalid)[np.argmin(slots[invalid])]
        value = data[starts[index] : stops[index]][:40].tobytes()
        raise InvalidDataError(f"values[{slots[index]}] is not valid UTF-8: {value!r}")


def continuation_byte_mask(data: Values) -> Mask:
    """Return which bytes are continuation bytes."""
    mask: Mask = (data & 0xC0) == 0x80
    return mask


def find_invalid_byte(data: Values) -> int | None:
    """Return the offset of the first byte that is not valid UTF-8, or None. Decodes block by block."""
    start = 0
    while start < data.size:
        block = data[start : start + _BLOCK_BYTES]
        try:
            # A character that a block cuts is left to the next block: all but the last call are not final.
            start += codecs.utf_8_decode(block.data, "strict", start + block.size == data.size)[1]
        except UnicodeDecodeError as error:
            return start + error.start
    return None
