"""Vectorized validation of UTF-8 («Variable-size Binary Layout»: strings are UTF-8).

A byte must be a continuation byte if and only if one of the three bytes before it starts a character of that length.
Four lead bytes restrict the second byte. Both are checked for a block of bytes at a time.
"""

from __future__ import annotations

import numpy as np

from bowstring.memory.buffer import UINT8, Bytes

_BLOCK_BYTES = 1 << 17
_BEFORE = 3
"""The number of preceding bytes that determine whether a byte must be a continuation byte."""
_MAX_CONTINUATION = np.int8(-65)
"""As signed integers, continuation bytes are less than or equal to this."""


def is_utf8(data: Bytes) -> bool:
    """Return whether bytes of shape (n,) are valid UTF-8, without surrogates and overlong encodings."""
    room = np.zeros(min(data.size, _BLOCK_BYTES) + 2 * _BEFORE, UINT8)
    stop = _BEFORE
    for first in range(0, data.size, _BLOCK_BYTES):
        some = data[first : first + _BLOCK_BYTES]
        room[:_BEFORE] = room[stop - _BEFORE : stop]
        stop = _BEFORE + some.size
        room[_BEFORE:stop] = some
        if first + some.size == data.size:
            room[stop : stop + _BEFORE] = 0  # not continuation bytes
            stop += _BEFORE
        if not _is_valid(room[:stop]):
            return False
    return True


def _is_valid(data: Bytes) -> bool:
    """Return whether bytes are valid UTF-8, apart from the first three, which belong to the previous block."""
    most = int(data.max())
    if most < 0x80:
        return True
    before, own = data[_BEFORE - 1 : -1], data[_BEFORE:]
    must_continue = before >= 0xC0
    must_continue |= data[_BEFORE - 2 : -2] >= 0xE0
    if most >= 0xF0:
        must_continue |= data[:-_BEFORE] >= 0xF0
    if most > 0xF4 or (must_continue != (own.view(np.int8) <= _MAX_CONTINUATION)).any() or (before - 0xC0 < 2).any():
        return False
    is_low = own < 0xA0
    if ((before == 0xE0) & is_low).any() or ((before == 0xED) > is_low).any():
        return False
    return most < 0xF0 or not (((before == 0xF0) & (own < 0x90)).any() or ((before == 0xF4) & (own >= 0x90)).any())
