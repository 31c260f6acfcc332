"""Concatenate buffers of many arrays without Python code for each array."""

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
    """Return the lengths of arrays, shape (len(arrays),)."""
    if isinstance(arrays, ArrayBatcher):
        return arrays.array_lengths()
    return np.fromiter([array.length for array in arrays], np.int64, len(arrays))


def buffer_sizes(arrays: Sequence[Array], index: int) -> Indices:
    """Return the sizes of buffer `index` of each array, shape (len(arrays),); 0 for None."""
    if isinstance(arrays, ArrayBatcher):
        return arrays.buffer_sizes(index)
    sizes = [0 if buffer is None else buffer.size for buffer in _buffers_of(arrays, index)]
    return np.fromiter(sizes, np.int64, len(sizes))


def child_arrays(arrays: Sequence[Array], index: int) -> Sequence[Array]:
    """Return child `index` of each array."""
    return arrays.children[index] if isinstance(arrays, ArrayBatcher) else [array.children[index] for array in arrays]


def distinct_dictionaries(arrays: Sequence[Array]) -> tuple[Sequence[Array], Indices]:
    """Return the distinct dictionary objects of arrays, and the index of each array's dictionary among them.

    Raises `InvalidDataError` if an array has no dictionary.
    """
    if isinstance(arrays, ArrayBatcher) and arrays.dictionary_batcher is not None:
        dictionaries = list(arrays.dictionaries.values())
        is_shared = len(dictionaries) == 1
        return dictionaries if is_shared else arrays.dictionary_batcher, np.array(arrays.dictionary_indices, np.int64)
    distinct: dict[int, Array] = {}
    for array in arrays:
        if array.dictionary is None:
            raise InvalidDataError(f"the array of {array.type} has no dictionary")
        distinct[id(array.dictionary)] = array.dictionary
    index_by_id = dict(zip(distinct, range(len(distinct)), strict=True))
    return list(distinct.values()), np.array([index_by_id[id(array.dictionary)] for array in arrays], np.int64)


def concat_values(arrays: Sequence[Array], index: int) -> Values:
    """Concatenate `array.values(index)` of each array; copies."""
    spec = (arrays.layout if isinstance(arrays, ArrayBatcher) else arrays[0].layout).buffers[index]
    assert spec.dtype is not None
    if not spec.dtype.itemsize:  # NumPy copies elements of no bytes one by one
        return np.empty(int(array_lengths(arrays).sum()) + spec.extra * len(arrays), spec.dtype)
    if len(arrays) >= MIN_ARRAYS:
        width = spec.dtype.itemsize
        sizes = (array_lengths(arrays) + spec.extra) * width
        joined = _concat_ranges(arrays, index, _array_offsets(arrays) * width, sizes)
        if joined is not None:
            return joined.view(spec.dtype)
    return np.concatenate([array.values(index) for array in arrays])


def concat_lengths(arrays: Sequence[Array]) -> tuple[Indices, Indices, Indices]:
    """Return the lengths of all values of arrays with offsets in buffer 1, and each array's first and last offset.

    The offsets are not checked. Those of an empty array are 0.
    """
    slots = array_lengths(arrays)
    offsets = concat_values(arrays, 1).astype(np.int64)
    ends = np.cumsum(slots + 1)
    first, last = offsets[ends - slots - 1], offsets[ends - 1]
    first[slots == 0] = last[slots == 0] = 0
    return np.delete(np.diff(offsets), ends[:-1] - 1), first, last


def concat_bits(arrays: Sequence[Array], index: int) -> Mask:
    """Concatenate the bits of buffer `index` for the slots of each array; those of an absent buffer are 0."""
    if not buffer_sizes(arrays, index).all():
        return np.concatenate([_bits(array, index) for array in arrays])
    offsets, lengths = _array_offsets(arrays), array_lengths(arrays)
    starts = offsets >> 3
    sizes = ((offsets + lengths + 7) >> 3) - starts
    packed = concat_bytes(arrays, index, starts, sizes)
    return _unpack_ranges(packed, sizes, offsets & 7, lengths)


def _unpack_ranges(packed: Bytes, sizes: Indices, bit_offsets: Indices, lengths: Indices) -> Mask:
    """Unpack `lengths` bits, from a bit offset on, of each of the concatenated bitmaps of `sizes` bytes."""
    bits = np.unpackbits(packed, bitorder="little").view(np.bool_)
    starts = (np.cumsum(sizes) - sizes) * 8 + bit_offsets
    shifts = starts - (np.cumsum(lengths) - lengths)
    return bits[np.repeat(shifts, lengths) + np.arange(lengths.sum())] if shifts.any() else bits[: lengths.sum()]


def concat_validity(arrays: Sequence[Array]) -> Buffer | None:
    """Concatenate the validity bitmaps of arrays; None if nothing is null."""
    if isinstance(arrays, ArrayBatcher):
        if not any(arrays.sizes[0]):
            return None
        lengths, sizes = array_lengths(arrays), arrays.buffer_sizes(0)
        has_bits = sizes > 0
        if (sizes[has_bits] < (lengths[has_bits] + 7) >> 3).any():
            for array in arrays:
                array.mask()  # raises
        mask = _unpack_ranges(
            arrays.joined_buffer(0), sizes[has_bits], np.zeros_like(sizes[has_bits]), lengths[has_bits]
        )
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
    """Concatenate `sizes` bytes from byte `starts` of buffer `index` of each array; copies.

    Raises `InvalidDataError` if a buffer is too short. An absent buffer has no bytes.
    """
    if len(arrays) >= MIN_ARRAYS and (joined := _concat_ranges(arrays, index, starts, sizes)) is not None:
        return joined
    pieces = []
    for array, start, size in zip(arrays, starts.tolist(), sizes.tolist(), strict=True):
        buffer = array.buffers[index]
        if size < 0 or (buffer is None and size):
            raise InvalidDataError(
                f"expected {size} bytes in buffer {index}, found {'none' if buffer is None else buffer}"
            )
        if buffer is not None and size:
            pieces.append(buffer.view(UINT8, start, size))
    return np.concatenate(pieces) if pieces else np.empty(0, UINT8)


def _buffers_of(arrays: Sequence[Array], index: int) -> list[Buffer | None]:
    return [array.buffers[index] for array in arrays]


def _bits(array: Array, index: int) -> Mask:
    buffer = array.buffers[index]
    return np.zeros(array.length, np.bool_) if buffer is None else bitmap.unpack(buffer, array.offset, array.length)


def _array_offsets(arrays: Sequence[Array]) -> Indices:
    if isinstance(arrays, ArrayBatcher):
        return np.zeros(len(arrays), np.int64)
    return np.fromiter([array.offset for array in arrays], np.int64, len(arrays))


def _concat_ranges(arrays: Sequence[Array], index: int, starts: Indices, sizes: Indices) -> Bytes | None:
    """Concatenate `sizes` bytes from byte `starts` of each buffer; None if one is too short."""
    if not isinstance(arrays, ArrayBatcher):
        return _copy_by_address(_buffers_of(arrays, index), starts, sizes)
    joined, available = arrays.joined_buffer(index), arrays.buffer_sizes(index)
    if ((starts < 0) | (sizes < 0) | (starts > available - sizes)).any():
        return None
    if joined.size == sizes.sum():  # all ranges are whole buffers
        return joined
    ends = np.cumsum(sizes)
    out = allocate(int(ends[-1]), is_zeroed=False)
    copy_ranges(out, ends - sizes, joined, np.cumsum(available) - available + starts, sizes)
    return out


def _copy_by_address(buffers: Sequence[Buffer | None], starts: Indices, sizes: Indices) -> Bytes | None:
    """Concatenate ranges by their addresses, as ranges of the memory that spans all buffers; None if one is missing."""
    try:
        addresses = np.fromiter([buffer.address for buffer in buffers], np.int64, len(buffers))  # type: ignore[union-attr]
        available = np.fromiter([buffer.size for buffer in buffers], np.int64, len(buffers))  # type: ignore[union-attr]
    except AttributeError:  # a buffer that is None
        return None
    if ((starts < 0) | (sizes < 0) | (starts > available - sizes)).any():
        return None
    ends = np.cumsum(sizes)
    out = allocate(int(ends[-1]), is_zeroed=False)
    addresses += starts
    first = int(addresses.min())
    memory = memory_between(first, int((addresses + sizes).max()))
    copy_ranges(out, ends - sizes, memory, addresses - first, sizes)
    return out
