"""UTF-8, checked and decoded for all the layouts of strings."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from io import BytesIO, StringIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.memory.buffer import UINT8

if TYPE_CHECKING:
    from bowstring.layouts.base import Indices, Values
    from bowstring.memory.bitmap import Mask

_BLOCK_BYTES = 1 << 18
_BLOCK_VALUES = 1 << 15
_SPLIT_VALUES = 1 << 13
_SHORT_BYTES = 256
_MARKS = 32


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


def slices(data: Values, offsets: Values, mask: Mask | None) -> list[str | None]:
    """The strings between consecutive offsets, which rise and lie within the data; None where the mask is not True.

    Raises `InvalidDataError` naming the first value that is no UTF-8, be it null or not.
    """
    found: list[str | None] = []
    try:
        for held, cuts, valid in _blocks(data, offsets, mask):
            found += _words(held, cuts)
            _put_nulls(found, valid)
    except UnicodeDecodeError:
        check(data, offsets, None)
        raise
    return found


def _words(held: Values, cuts: Indices) -> Iterable[str]:
    """The strings of a block. Raises UnicodeDecodeError."""
    raw = held.tobytes()
    if held.size <= _SHORT_BYTES * len(cuts):
        if raw.isascii():
            return map(StringIO(raw.decode("ascii")).read, np.diff(cuts).tolist())
        mark = next((mark for mark in range(_MARKS) if mark not in raw), None)  # an ASCII control character
        if mark is not None:
            return str(_marked(held, cuts, mark).data, "utf-8").split(chr(mark))
    return [raw[start:stop].decode() for start, stop in pairwise(cuts.tolist())]


def byte_slices(data: Values, offsets: Values, mask: Mask | None) -> list[bytes | None]:
    """The bytes between consecutive offsets, which rise and lie within the data; None where the mask is not True."""
    found: list[bytes | None] = []
    for held, cuts, valid in _blocks(data, offsets, mask):
        found += map(BytesIO(held.tobytes()).read, np.diff(cuts).tolist())
        _put_nulls(found, valid)
    return found


def _put_nulls(values: list[Any], valid: Mask | None) -> None:
    """Put None in the place of those last values that are not valid."""
    if valid is not None:
        for at in (np.flatnonzero(~valid) + (len(values) - len(valid))).tolist():
            values[at] = None


def _blocks(data: Values, offsets: Values, mask: Mask | None) -> Iterator[tuple[Values, Indices, Mask | None]]:
    """The data of some values after the other, the offsets into it from 0 on, and which values are valid."""
    for first in range(0, len(offsets) - 1, _SPLIT_VALUES):
        cuts = offsets[first : first + _SPLIT_VALUES + 1].astype(np.int64)
        valid = None if mask is None else mask[first : first + _SPLIT_VALUES]
        yield data[cuts[0] : cuts[-1]], cuts - cuts[0], valid


def _marked(held: Values, cuts: Indices, mark: int) -> Values:
    """The bytes with a mark between one value and the next: Python splits there quicker than we can cut.

    A character that goes on in the next value is none, as the mark stands in the middle of it.
    """
    places = cuts[1:-1] + np.arange(len(cuts) - 2)
    own = np.ones(held.size + len(places), np.bool_)
    own[places] = False
    marked = np.full(len(own), mark, UINT8)
    marked[own] = held
    return marked


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
    """The position of the first byte that does not fit UTF-8; decodes a block at a time."""
    at = 0
    while at < data.size:
        block = data[at : at + _BLOCK_BYTES]
        try:
            at += codecs.utf_8_decode(block.data, "strict", at + block.size == data.size)[1]
        except UnicodeDecodeError as error:
            return at + error.start
    return None
