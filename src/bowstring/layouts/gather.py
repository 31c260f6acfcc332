"""Gather scattered byte and slot ranges into new memory, and limits on output that is much larger than its input.

Views, runs, dictionary indices and slots without memory let a few bytes represent any number of values. The cost of
checking such an array is proportional to its bytes. The cost of materializing its values is not, so it has a limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bowstring.errors import LimitError
from bowstring.memory.buffer import UINT8, Bytes

if TYPE_CHECKING:
    from bowstring.layouts.array_data import ArrayData
    from bowstring.layouts.base import Indices, Values

MAX_VALUES = 1 << 27
"""The maximum number of values to materialize from an array that has fewer bytes and elements than that.

Set this module attribute to change the limit.
"""
MAX_BYTES = 1 << 31
"""The maximum number of bytes to copy out of fewer bytes; can be set like `MAX_VALUES`."""
_MAX_INT64 = (1 << 63) - 1
_BLOCK_RANGES = 1 << 16
_LONG_BYTES = 512
_FEW_RANGES = 16
_BLOCK_PREFIXES = 1 << 12
_NARROW_BYTES = 64
_WIDE_BYTES = 256


def check_bytes(count: int, available: int) -> None:
    """Raise `LimitError` if copying `count` bytes out of `available` bytes exceeds the limit."""
    if count > max(MAX_BYTES, available):
        raise LimitError(f"copying {count} bytes out of {available} exceeds the limit of {MAX_BYTES} (MAX_BYTES)")


def check_values(count: int, available: int) -> None:
    """Raise `LimitError` if materializing `count` values from `available` values exceeds the limit."""
    if count > max(MAX_VALUES, available):
        raise LimitError(
            f"materializing {count} values from {available} exceeds the limit of {MAX_VALUES} (MAX_VALUES)"
        )


def check_length(array: ArrayData) -> None:
    """Raise `LimitError` if an array has more values than bytes, and more than the limit."""
    check_count(array, array.length)


def check_count(array: ArrayData, count: int) -> None:
    """Raise `LimitError` if `count` values exceed both the size of an array and the limit."""
    if count > MAX_VALUES:
        check_values(count, total_buffer_size(array) * 8)


def total_buffer_size(array: ArrayData) -> int:
    """Return the size in bytes of all buffers of an array, its children and its dictionary."""
    nested = (*array.children, array.dictionary) if array.dictionary is not None else array.children
    return sum(b.size for b in array.buffers if b is not None) + sum(map(total_buffer_size, nested))


def sum_lengths(lengths: Indices) -> int:
    """Return the sum of lengths, also if it exceeds 64 bits."""
    if lengths.size and int(lengths.max()) > _MAX_INT64 // lengths.size:
        return sum(lengths.tolist())
    return int(lengths.sum())


def take_ranges(child: ArrayData, starts: Indices, lengths: Indices) -> ArrayData:
    """Concatenate ranges of slots of `child`, which must be within it, in a new array.

    Raises `LimitError` if there are many more slots than `child` has bytes.
    """
    check_count(child, sum_lengths(lengths))
    return child.layout.take(child, range_indices(starts, lengths))


def range_indices(starts: Indices, lengths: Indices) -> Indices:
    """Concatenate the indices start, start + 1, … of each range."""
    ends = np.cumsum(lengths)
    return np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(starts - ends + lengths, lengths)


def gather(source: Bytes, starts: Indices, lengths: Indices) -> Bytes:
    """Concatenate byte ranges of `source`, which must be within it, in a new array.

    Most ranges are copied with one common width; the excess bytes of each copy are overwritten by the next one. Taking
    300,000 of a million short strings is 1.8 times (in random order) to 2.7 times (in order) faster than with
    `copy_ranges`. Raises `LimitError` if the output is much larger than `source`.
    """
    total = sum_lengths(lengths)
    check_bytes(total, source.size)
    if not total:
        return np.empty(0, UINT8)
    targets, longest = lengths.cumsum() - lengths, int(lengths.max())
    width = min(longest, max(2 * total // len(lengths), _NARROW_BYTES))
    if width > _WIDE_BYTES:
        width = 0
    out = np.empty(total + width, UINT8)
    for first in range(0, len(starts) if width else 0, _BLOCK_PREFIXES):
        block = slice(first, first + _BLOCK_PREFIXES)
        _windows(out, width)[targets[block]] = prefixes(source, starts[block], width)  # assigned in order
    if longest > width:
        long = (lengths > width).nonzero()[0]
        copy_ranges(out, targets[long], source, starts[long], lengths[long])
    return out[:total]


def copy_ranges(out: Bytes, targets: Indices, source: Bytes, starts: Indices, lengths: Indices) -> None:
    """Copy `source[start : start + length]` to `out[target : target + length]` for each range.

    Ranges that are adjacent in both source and target are merged. Memory use is proportional to the number of ranges.
    """
    nonempty = np.flatnonzero(lengths)
    if not nonempty.size:
        return
    targets, starts, lengths = targets[nonempty], starts[nonempty], lengths[nonempty]
    is_separate = (starts[1:] != starts[:-1] + lengths[:-1]) | (targets[1:] != targets[:-1] + lengths[:-1])
    firsts = np.concatenate(([0], np.flatnonzero(is_separate) + 1))
    targets, starts, lengths = targets[firsts], starts[firsts], np.add.reduceat(lengths, firsts)
    for first in range(0, len(firsts), _BLOCK_RANGES):
        block = slice(first, first + _BLOCK_RANGES)
        _copy_block(out, targets[block], source, starts[block], lengths[block])


def _copy_block(out: Bytes, targets: Indices, source: Bytes, starts: Indices, lengths: Indices) -> None:
    """Copy ranges grouped by length.

    Ranges of one length are elements of one NumPy type, unaligned, which a single call copies. Long ranges, and
    lengths with few ranges, are copied one by one.
    """
    capped_lengths = np.minimum(lengths, _LONG_BYTES).astype(np.uint16)
    order, counts = np.argsort(capped_lengths, kind="stable"), np.bincount(capped_lengths)
    remaining, end = [], 0
    for length in np.flatnonzero(counts).tolist():
        group, end = order[end : end + counts[length]], end + int(counts[length])
        if length == _LONG_BYTES or len(group) < _FEW_RANGES:
            remaining.append(group)
            continue
        _windows(out, length)[targets[group]] = _windows(source, length)[starts[group]]
    if remaining:
        group, target_view, source_view = np.concatenate(remaining), out.data, source.data
        ranges = zip(targets[group].tolist(), starts[group].tolist(), lengths[group].tolist(), strict=True)
        for target, start, length in ranges:
            target_view[target : target + length] = source_view[start : start + length]


def prefixes(source: Bytes, starts: Indices, width: int) -> Values:
    """Return `width` bytes (at least one) from each start as elements of a NumPy void type, zero-padded at the end."""
    last = source.size - width
    if starts.max() <= last:
        return _windows(source, width)[starts]
    near_end, first = (starts > last).nonzero()[0], max(last, 0)
    tail = _windows(np.concatenate((source[first:], np.zeros(width, UINT8))), width)
    elements = (tail if last < 0 else _windows(source, width))[np.minimum(starts, first)]
    elements[near_end] = tail[starts[near_end] - first]
    return elements


def _windows(source: Bytes, width: int) -> Values:
    """Return a view with an element of `width` bytes at every byte of the source, which has at least `width` bytes."""
    return np.ndarray(source.size - width + 1, np.dtype((np.void, width)), source, strides=(1,))
