"""Whether bytes are UTF-8, told for many of them at once («Variable-size Binary Layout»: strings are UTF-8).

A byte has to continue a character exactly where one of the three bytes before it begins a character that is so long;
and four first bytes leave no free choice of the second one. Both are compared for a block of bytes at a time.
"""

from __future__ import annotations

import numpy as np

from bowstring.memory.buffer import UINT8, Bytes

_BLOCK_BYTES = 1 << 17
_BEFORE = 3
"""So many bytes before a byte say whether it continues a character."""
_LAST_CONTINUING = np.int8(-65)
"""Of signed bytes, those up to this one continue a character."""


def is_utf8(data: Bytes) -> bool:
    """Whether bytes of shape (n,) are UTF-8 as a whole: no surrogates, no character in more bytes than it needs."""
    room = np.zeros(min(data.size, _BLOCK_BYTES) + 2 * _BEFORE, UINT8)
    stop = _BEFORE
    for first in range(0, data.size, _BLOCK_BYTES):
        some = data[first : first + _BLOCK_BYTES]
        room[:_BEFORE] = room[stop - _BEFORE : stop]
        stop = _BEFORE + some.size
        room[_BEFORE:stop] = some
        if first + some.size == data.size:
            room[stop : stop + _BEFORE] = 0  # which continue nothing
            stop += _BEFORE
        if not _is_sound(room[:stop]):
            return False
    return True


def _is_sound(data: Bytes) -> bool:
    """Whether bytes are UTF-8 as far as they go; the first three were looked at with those before them."""
    most = int(data.max())
    if most < 0x80:
        return True
    before, own = data[_BEFORE - 1 : -1], data[_BEFORE:]
    wanted = before >= 0xC0
    wanted |= data[_BEFORE - 2 : -2] >= 0xE0
    if most >= 0xF0:
        wanted |= data[:-_BEFORE] >= 0xF0
    if most > 0xF4 or (wanted != (own.view(np.int8) <= _LAST_CONTINUING)).any() or (before - 0xC0 < 2).any():
        return False
    is_low = own < 0xA0
    if ((before == 0xE0) & is_low).any() or ((before == 0xED) > is_low).any():
        return False
    return most < 0xF0 or not (((before == 0xF0) & (own < 0x90)).any() or ((before == 0xF4) & (own >= 0x90)).any())
