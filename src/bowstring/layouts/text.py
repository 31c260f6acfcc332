"""UTF-8, checked and decoded for all the layouts of strings."""

from __future__ import annotations

import codecs
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bowstring.errors import InvalidDataError

if TYPE_CHECKING:
    from bowstring.layouts.base import Indices, Values
    from bowstring.memory.bitmap import Mask

_BLOCK_BYTES = 1 << 15


def is_ascii(data: Values) -> bool:
    """Whether no byte has its high bit set; looks at 32 KB at a time and stops at the first that has."""
    whole = data.size // 8 * 8
    words = data[:whole].view(np.uint64)
    high = np.uint64(0x8080808080808080)
    for at in range(0, words.size, _BLOCK_BYTES):
        if int(np.bitwise_or.reduce(words[at : at + _BLOCK_BYTES]) & high):
            return False
    return not data.size > whole or int(data[whole:].max()) < 128


def slices(data: Values, offsets: Indices) -> list[str]:
    """The strings between consecutive offsets; raises `InvalidDataError` naming the first that is no UTF-8."""
    at = offsets.tolist()
    raw = data.tobytes()
    if raw.isascii():
        text = raw.decode("ascii")
        return [text[start:stop] for start, stop in pairwise(at)]
    try:
        return [raw[start:stop].decode() for start, stop in pairwise(at)]
    except UnicodeDecodeError:
        check(data, offsets, None)
        raise


def check(data: Values, offsets: Indices, mask: Mask | None) -> None:
    """Check that every valid value between consecutive offsets is UTF-8; raises `InvalidDataError` naming the first
    that is not.
    """
    kept = np.arange(len(offsets) - 1) if mask is None else np.flatnonzero(mask)
    check_ranges(data, offsets[kept], offsets[kept + 1], kept)


def check_ranges(data: Values, starts: Indices, stops: Indices, numbers: Indices) -> None:
    """Check that the bytes from each start to its stop are UTF-8; raises `InvalidDataError` with the number of the
    first that are not.

    Takes time in proportion to the data, however the values overlap: the whole is decoded once, into stretches of
    UTF-8, and a value is sound if it lies within one of them and neither begins nor ends within a character.
    """
    if not data.size or is_ascii(data):
        return
    continues = np.append((data & 0xC0) == 0x80, False)
    bad = (stops > starts) & (continues[starts] | continues[stops])
    edges = _stretches(data)
    if len(edges) != 2:
        bad |= (stops > starts) & (np.searchsorted(edges, starts, "right") != np.searchsorted(edges, stops, "left"))
        bad |= (stops > starts) & (np.searchsorted(edges, starts, "right") % 2 == 0)
    if bad.any():
        at = int(np.argmax(bad))
        raise InvalidDataError(f"values[{numbers[at]}] is no UTF-8: {data[starts[at] : stops[at]][:40].tobytes()!r}")


def _stretches(data: Values) -> Indices:
    """Where stretches of UTF-8 begin and end, in turn."""
    raw = data.data
    edges: list[int] = []
    at = 0
    while at < len(raw):
        try:
            codecs.utf_8_decode(raw[at:], "strict", True)
        except UnicodeDecodeError as error:
            if error.start:
                edges += (at, at + error.start)
            at += error.end
        else:
            edges += (at, len(raw))
            break
    return np.array(edges, np.int64)
