"""Arrays end to end: the buffers of many of them brought together without a step for each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.layouts.gather import copy_stretches
from bowstring.memory import bitmap
from bowstring.memory.bitmap import Mask
from bowstring.memory.buffer import UINT8, Buffer, Bytes, allocate, bytes_between

if TYPE_CHECKING:
    from bowstring.layouts.array import Array
    from bowstring.layouts.base import Indices, Values

_MANY = 32
"""From so many arrays on it is cheaper to copy by addresses than to make a view of each."""


def lengths_of(arrays: Sequence[Array]) -> Indices:
    """The lengths of arrays, shape (len(arrays),)."""
    return np.fromiter([array.length for array in arrays], np.int64, len(arrays))


def joined_values(arrays: Sequence[Array], index: int) -> Values:
    """What `array.values(index)` gives of each array, end to end; copied."""
    spec = arrays[0].layout.buffers[index]
    assert spec.dtype is not None
    if len(arrays) >= _MANY:
        width = spec.dtype.itemsize
        offsets = [array.offset * width for array in arrays]
        sizes = [(array.length + spec.extra) * width for array in arrays]
        held = _end_to_end([array.buffers[index] for array in arrays], offsets, sizes)
        if held is not None:
            return held.view(spec.dtype)
    return np.concatenate([array.values(index) for array in arrays])


def joined_cuts(arrays: Sequence[Array]) -> tuple[Indices, Indices, Indices]:
    """Of arrays with offsets in buffer 1, none of them checked: what lies between those of each slot, end to end; and
    of each array its first and its last offset, 0 where there are no slots.
    """
    slots = lengths_of(arrays)
    offsets = joined_values(arrays, 1).astype(np.int64)
    ends = np.cumsum(slots + 1)
    first, last = offsets[ends - slots - 1], offsets[ends - 1]
    first[slots == 0] = last[slots == 0] = 0
    return np.delete(np.diff(offsets), ends[:-1] - 1), first, last


def joined_bits(arrays: Sequence[Array], index: int) -> Mask:
    """The bits of buffer `index` that belong to the slots of each array, end to end; those of no buffer are 0."""
    if any(array.buffers[index] is None for array in arrays):
        return np.concatenate([_bits(array, index) for array in arrays])
    offsets, lengths = _offsets_of(arrays), lengths_of(arrays)
    starts = offsets >> 3
    sizes = ((offsets + lengths + 7) >> 3) - starts
    held = joined_bytes([array.buffers[index] for array in arrays], starts, sizes)
    bits = np.unpackbits(held, bitorder="little").view(np.bool_)
    first = (np.cumsum(sizes) - sizes) * 8 + (offsets & 7)
    skipped = first - (np.cumsum(lengths) - lengths)
    return bits[np.repeat(skipped, lengths) + np.arange(lengths.sum())] if skipped.any() else bits[: lengths.sum()]


def joined_validity(arrays: Sequence[Array]) -> Buffer | None:
    """The validity bitmap of arrays laid end to end; None where nothing is null."""
    if {type(None)}.issuperset([type(array.buffers[0]) for array in arrays]):
        return None
    may_have_nulls = [array._null_count != 0 and array.buffers[0] is not None for array in arrays]
    if not any(may_have_nulls):
        return None
    mask = joined_bits(list(compress(arrays, may_have_nulls)), 0)
    if mask.all():
        return None
    if len(mask) < (lengths := lengths_of(arrays)).sum():
        whole = np.ones(int(lengths.sum()), np.bool_)
        whole[np.repeat(np.array(may_have_nulls), lengths)] = mask
        mask = whole
    return bitmap.pack(mask)


def joined_bytes(buffers: Sequence[Buffer | None], starts: Indices, sizes: Indices) -> Bytes:
    """`sizes` bytes of each buffer from byte `starts` on, end to end, copied; None is a buffer of no bytes.

    Raises `InvalidDataError` where a buffer does not hold them.
    """
    if len(buffers) >= _MANY and (held := _end_to_end(buffers, starts.tolist(), sizes.tolist())) is not None:
        return held
    pieces = []
    for buffer, start, size in zip(buffers, starts.tolist(), sizes.tolist(), strict=True):
        if size < 0 or (buffer is None and size):
            raise InvalidDataError(f"{size} bytes of {'no buffer' if buffer is None else buffer}")
        if buffer is not None and size:
            pieces.append(buffer.view(UINT8, start, size))
    return np.concatenate(pieces) if pieces else np.empty(0, UINT8)


def _bits(array: Array, index: int) -> Mask:
    buffer = array.buffers[index]
    return np.zeros(array.length, np.bool_) if buffer is None else bitmap.unpack(buffer, array.offset, array.length)


def _offsets_of(arrays: Sequence[Array]) -> Indices:
    return np.fromiter([array.offset for array in arrays], np.int64, len(arrays))


def _end_to_end(buffers: Sequence[Any], starts: list[int], sizes: list[int]) -> Bytes | None:
    """`sizes` bytes of each buffer from byte `starts` on, end to end; None where a buffer does not hold them.

    Whole objects are joined as such: to ask for the address of one takes longer than to copy it where it is small.
    """
    try:
        if not any(starts) and [buffer.size for buffer in buffers] == sizes:
            return np.frombuffer(bytearray().join([buffer.whole for buffer in buffers]), UINT8)
    except (AttributeError, TypeError, ValueError):  # no buffer, a stretch of one, or moments, which share no memory
        pass
    return _together(buffers, np.array(starts, np.int64), np.array(sizes, np.int64))


def _together(buffers: Sequence[Buffer | None], starts: Indices, sizes: Indices) -> Bytes | None:
    """The stretches by their addresses, all of them as parts of the memory that lies around them; None where one is not
    there.
    """
    try:
        addresses = np.fromiter([buffer.address for buffer in buffers], np.int64, len(buffers))  # type: ignore[union-attr]
        held = np.fromiter([buffer.size for buffer in buffers], np.int64, len(buffers))  # type: ignore[union-attr]
    except AttributeError:  # a buffer that is None
        return None
    if ((starts < 0) | (sizes < 0) | (starts > held - sizes)).any():
        return None
    ends = np.cumsum(sizes)
    out = allocate(int(ends[-1]), is_zeroed=False)
    addresses += starts
    first = int(addresses.min())
    around = bytes_between(first, int((addresses + sizes).max()))
    copy_stretches(out, ends - sizes, around, addresses - first, sizes)
    return out
