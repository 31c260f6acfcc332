"""Many short byte strings or ASCII strings, and None among them, made by one call: they are written as a pickle, which
says before each how long it is.

Unpickling takes no longer than `str.split`, needs no text with marks in it first, and leaves one list that nobody has
to put together or to walk over again for the nulls.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.layouts.gather import scatter
from bowstring.memory.buffer import UINT8, Bytes

if TYPE_CHECKING:
    from bowstring.layouts.base import Indices, Values
    from bowstring.memory.bitmap import Mask

HEADER_BYTES = 2
"""What stands before a value: of which kind it is, and its length in one byte."""
_MOST_BYTES = 255
_NARROW_BYTES = 64
_SHORT_BYTES = 128
_MANY_VALUES = 1 << 10
_MANY_NULLS = 4
_BLOCK_VALUES = 1 << 14
_BLOCK_BYTES = 3 << 19
_ROOM_BYTES = 1 << 25
_BEGIN = np.frombuffer(pickle.PROTO + b"\4" + pickle.MARK, UINT8)
_END = np.frombuffer(pickle.LIST + pickle.STOP, UINT8)
_TEXT, _BYTES, _NONE = np.frombuffer(pickle.SHORT_BINUNICODE + pickle.SHORT_BINBYTES + pickle.NONE, UINT8)


def is_worthwhile(count: int, size_bytes: int, mask: Mask | None) -> bool:
    """Whether so many values, of so many bytes in all, are best made here: where most are None they are not."""
    if count < _MANY_VALUES or size_bytes > _SHORT_BYTES * count:
        return False
    return mask is None or _MANY_NULLS * int(np.count_nonzero(mask)) >= count


def iter_blocks(count: int, size_bytes: int) -> Iterator[slice]:
    """Which of so many values, of so many bytes in all, to take at a time: so many that they stay in the cache."""
    step = min(_BLOCK_VALUES, _BLOCK_BYTES // (2 * size_bytes // max(count, 1) + _NARROW_BYTES))
    for first in range(0, count, step):
        yield slice(first, min(first + step, count))


def width_for(lengths: Indices) -> int:
    """Up to which length, in bytes, the values of a block are written; hardly any is longer."""
    usual = max(2 * int(lengths.sum()) // len(lengths), _NARROW_BYTES)
    return min(int(lengths.max()), usual, _MOST_BYTES)


def decode_strings(
    led: Iterable[tuple[Values, Indices, Mask | None]],
    make: Callable[[Indices], list[Any]],
    extent: tuple[int, int],
    is_text: bool,
) -> list[Any] | None:
    """So many values, of at most so many bytes in all, as the extent says; None altogether for strings beyond ASCII.

    `led` yields `iter_blocks` of values in elements of NumPy's void type, behind `HEADER_BYTES` bytes that are
    overwritten; their lengths; and the mask of those that are not None, or None where all are. `make` makes those at
    some places, which are longer than their elements.
    """
    (count, size_bytes), kind = extent, _TEXT if is_text else _BYTES
    most, longest = size_bytes + HEADER_BYTES * count, HEADER_BYTES + _MOST_BYTES
    room = np.empty(len(_BEGIN) + min(most, _ROOM_BYTES + _BLOCK_VALUES * longest) + longest, UINT8)
    room[: len(_BEGIN)] = _BEGIN
    parts: list[list[Any]] = []
    late: list[Indices] = []
    done, stop = 0, len(_BEGIN)
    for elements, lengths, mask in led:
        rows, valid = elements.view(UINT8).reshape(len(elements), -1), mask
        width = rows.shape[1] - HEADER_BYTES
        if is_text and int(rows.max()) >= 0x80:
            return None
        if int(lengths.max()) > width:
            fits = lengths <= width
            late.append(done + (~fits if mask is None else mask & ~fits).nonzero()[0])
            valid = fits if mask is None else mask & fits
        sizes = _lead(rows, lengths, valid, kind)
        targets = sizes.cumsum()
        targets += stop
        done, stop = done + len(rows), int(targets[-1])
        targets -= sizes
        scatter(room, targets, elements)
        if stop > _ROOM_BYTES or done == count:
            parts.append(_loaded(room, stop))
            stop = len(_BEGIN)
    found = parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))
    for places in late:
        for place, value in zip(places.tolist(), make(places) if places.size else [], strict=True):
            found[place] = value
    return found


def _lead(rows: Bytes, lengths: Indices, valid: Mask | None, kind: np.uint8) -> Indices:
    """Write what stands before each value, and how many bytes it takes with that: None takes one."""
    rows[:, 1] = lengths
    if valid is None:
        rows[:, 0] = kind
        return lengths + HEADER_BYTES
    rows[:, 0] = np.where(valid, kind, _NONE)
    return np.where(valid, lengths + HEADER_BYTES, len(pickle.NONE))


def _loaded(room: Bytes, stop: int) -> list[Any]:
    room[stop : stop + len(_END)] = _END
    found: list[Any] = pickle.loads(room[: stop + len(_END)].data)
    return found
