"""Arrays end to end: the buffers of many of them brought together without a step for each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from bowstring.errors import InvalidDataError
from bowstring.layouts.array_batcher import MIN_ARRAYS, ArrayBatcher
from bowstring.layouts.gather import copy_ranges
from bowstring.memory import bitmap
from bowstring.memory.bitmap import Mask
from bowstring.memory.buffer import UINT8, Buffer, Bytes, allocate, memory_between

if TYPE_CHECKING:
    from bowstring.layouts.array import Array
    from bowstring.layouts.base import Indices, Values


def array_lengths(arrays: Sequence[Array]) -> Indices:
    """The lengths of arrays, shape (len(arrays),)."""
    if isinstance(arrays, ArrayBatcher):
        return arrays.array_lengths()
    return np.fromiter([array.length for array in arrays], np.int64, len(arrays))


def buffer_sizes(arrays: Sequence[Array], index: int) -> Indices:
    """The sizes of the buffers at one position, shape (len(arrays),); 0 where there is none."""
    if isinstance(arrays, ArrayBatcher):
        return arrays.buffer_sizes(index)
    sizes = [0 if buffer is None else buffer.size for buffer in _buffers_of(arrays, index)]
    return np.fromiter(sizes, np.int64, len(sizes))


def child_arrays(arrays: Sequence[Array], index: int) -> Sequence[Array]:
    """The children of arrays at one position."""
    return arrays.children[index] if isinstance(arrays, ArrayBatcher) else [array.children[index] for array in arrays]


def distinct_dictionaries(arrays: Sequence[Array]) -> tuple[Sequence[Array], Indices]:
    """The dictionaries of arrays, all that are different objects, and which of them each array has.

    Raises `InvalidDataError` where an array has none.
    """
    if isinstance(arrays, ArrayBatcher) and arrays.dictionary_batcher is not None:
        held = list(arrays.dictionaries.values())
        return held if len(held) == 1 else arrays.dictionary_batcher, np.array(arrays.dictionary_indices, np.int64)
    distinct: dict[int, Array] = {}
    for array in arrays:
        if array.dictionary is None:
            raise InvalidDataError(f"the array of {array.type} has no dictionary")
        distinct[id(array.dictionary)] = array.dictionary
    number_of = dict(zip(distinct, range(len(distinct)), strict=True))
    return list(distinct.values()), np.array([number_of[id(array.dictionary)] for array in arrays], np.int64)


def concat_values(arrays: Sequence[Array], index: int) -> Values:
    """What `array.values(index)` gives of each array, end to end; copied."""
    spec = (arrays.layout if isinstance(arrays, ArrayBatcher) else arrays[0].layout).buffers[index]
    assert spec.dtype is not None
    if not spec.dtype.itemsize:  # NumPy would copy any number of nothings one by one
        return np.empty(int(array_lengths(arrays).sum()) + spec.extra * len(arrays), spec.dtype)
    if len(arrays) >= MIN_ARRAYS:
        width = spec.dtype.itemsize
        held = _end_to_end(arrays, index, _offsets_of(arrays) * width, (array_lengths(arrays) + spec.extra) * width)
        if held is not None:
            return held.view(spec.dtype)
    return np.concatenate([array.values(index) for array in arrays])


def concat_lengths(arrays: Sequence[Array]) -> tuple[Indices, Indices, Indices]:
    """Of arrays with offsets in buffer 1, none of them checked: what lies between those of each slot, end to end; and
    of each array its first and its last offset, 0 where there are no slots.
    """
    slots = array_lengths(arrays)
    offsets = concat_values(arrays, 1).astype(np.int64)
    ends = np.cumsum(slots + 1)
    first, last = offsets[ends - slots - 1], offsets[ends - 1]
    first[slots == 0] = last[slots == 0] = 0
    return np.delete(np.diff(offsets), ends[:-1] - 1), first, last


def concat_bits(arrays: Sequence[Array], index: int) -> Mask:
    """The bits of buffer `index` that belong to the slots of each array, end to end; those of no buffer are 0."""
    if not buffer_sizes(arrays, index).all():
        return np.concatenate([_bits(array, index) for array in arrays])
    offsets, lengths = _offsets_of(arrays), array_lengths(arrays)
    starts = offsets >> 3
    sizes = ((offsets + lengths + 7) >> 3) - starts
    held = concat_bytes(arrays, index, starts, sizes)
    return _spans(held, sizes, offsets & 7, lengths)


def _spans(data: Bytes, sizes: Indices, skipped: Indices, lengths: Indices) -> Mask:
    """So many bits of each of the stretches of `sizes` bytes, from a bit of its first byte on."""
    bits = np.unpackbits(data, bitorder="little").view(np.bool_)
    first = (np.cumsum(sizes) - sizes) * 8 + skipped
    beyond = first - (np.cumsum(lengths) - lengths)
    return bits[np.repeat(beyond, lengths) + np.arange(lengths.sum())] if beyond.any() else bits[: lengths.sum()]


def concat_validity(arrays: Sequence[Array]) -> Buffer | None:
    """The validity bitmap of arrays laid end to end; None where nothing is null."""
    if isinstance(arrays, ArrayBatcher):
        if not any(arrays.sizes[0]):
            return None
        lengths, sizes = array_lengths(arrays), arrays.buffer_sizes(0)
        has_bits = sizes > 0
        if (sizes[has_bits] < (lengths[has_bits] + 7) >> 3).any():
            for array in arrays:
                array.mask()  # raises
        mask = _spans(arrays.joined_buffer(0), sizes[has_bits], np.zeros_like(sizes[has_bits]), lengths[has_bits])
    else:
        lengths = array_lengths(arrays)
        has_bits = np.array([array.buffers[0] is not None and array._null_count != 0 for array in arrays])
        mask = concat_bits(list(compress(arrays, has_bits)), 0) if has_bits.any() else np.empty(0, np.bool_)
    if mask.all():
        return None
    if len(mask) < lengths.sum():
        whole = np.ones(int(lengths.sum()), np.bool_)
        whole[np.repeat(has_bits, lengths)] = mask
        mask = whole
    return bitmap.pack(mask)


def concat_bytes(arrays: Sequence[Array], index: int, starts: Indices, sizes: Indices) -> Bytes:
    """`sizes` bytes of buffer `index` of each array from byte `starts` on, end to end, copied; None is a buffer of no
    bytes.

    Raises `InvalidDataError` where a buffer does not hold them.
    """
    if len(arrays) >= MIN_ARRAYS and (held := _end_to_end(arrays, index, starts, sizes)) is not None:
        return held
    pieces = []
    for array, start, size in zip(arrays, starts.tolist(), sizes.tolist(), strict=True):
        buffer = array.buffers[index]
        if size < 0 or (buffer is None and size):
            raise InvalidDataError(f"{size} bytes of {'no buffer' if buffer is None else buffer}")
        if buffer is not None and size:
            pieces.append(buffer.view(UINT8, start, size))
    return np.concatenate(pieces) if pieces else np.empty(0, UINT8)


def _buffers_of(arrays: Sequence[Array], index: int) -> list[Buffer | None]:
    return [array.buffers[index] for array in arrays]


def _bits(array: Array, index: int) -> Mask:
    buffer = array.buffers[index]
    return np.zeros(array.length, np.bool_) if buffer is None else bitmap.unpack(buffer, array.offset, array.length)


def _offsets_of(arrays: Sequence[Array]) -> Indices:
    if isinstance(arrays, ArrayBatcher):
        return np.zeros(len(arrays), np.int64)
    return np.fromiter([array.offset for array in arrays], np.int64, len(arrays))


def _end_to_end(arrays: Sequence[Array], index: int, starts: Indices, sizes: Indices) -> Bytes | None:
    """`sizes` bytes of each buffer from byte `starts` on, end to end; None where one does not hold them."""
    if not isinstance(arrays, ArrayBatcher):
        return _together(_buffers_of(arrays, index), starts, sizes)
    data, held = arrays.joined_buffer(index), arrays.buffer_sizes(index)
    if ((starts < 0) | (sizes < 0) | (starts > held - sizes)).any():
        return None
    if data.size == sizes.sum():  # so each size is that of its buffer
        return data
    ends = np.cumsum(sizes)
    out = allocate(int(ends[-1]), is_zeroed=False)
    copy_ranges(out, ends - sizes, data, np.cumsum(held) - held + starts, sizes)
    return out


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
    around = memory_between(first, int((addresses + sizes).max()))
    copy_ranges(out, ends - sizes, around, addresses - first, sizes)
    return out
