"""Copying scattered stretches end to end, and the limits on data that comes out larger than the memory it lies in.

Views, runs, dictionary indices and slots without any memory let a few bytes stand for any number of values. What such
an array costs to check is in proportion to its bytes; what it costs to spell out is not, so spelling out has a limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bowstring.errors import LimitError
from bowstring.memory.buffer import UINT8, Bytes

if TYPE_CHECKING:
    from bowstring.layouts.array import Array
    from bowstring.layouts.base import Indices, Values

MAX_VALUES = 1 << 27
"""The most values that an array is spelled out into where they outnumber the bytes and elements that it holds.

Set this attribute of the module to have another limit.
"""
MAX_BYTES = 1 << 31
"""The most bytes that are copied out of fewer bytes; set as `MAX_VALUES`."""
_MOST = (1 << 63) - 1
_BLOCK_STRETCHES = 1 << 16
_LONG_BYTES = 512
_FEW_STRETCHES = 16
_BLOCK_HEADS = 1 << 12
_NARROW_BYTES = 64
_WIDE_BYTES = 256


def check_bytes(wanted: int, held: int) -> None:
    """Raise `LimitError` where `wanted` bytes are to be copied out of `held` ones, and that is beyond the limit."""
    if wanted > max(MAX_BYTES, held):
        raise LimitError(f"{wanted} bytes are to be copied out of {held}, at most {MAX_BYTES} are allowed (MAX_BYTES)")


def check_values(wanted: int, held: int) -> None:
    """Raise `LimitError` where `wanted` values are to be made out of `held` ones, and that is beyond the limit."""
    if wanted > max(MAX_VALUES, held):
        raise LimitError(f"{wanted} values are to be made out of {held}, at most {MAX_VALUES} are allowed (MAX_VALUES)")


def check_length(array: Array) -> None:
    """Raise `LimitError` where an array has more values than bytes, and these are beyond the limit."""
    check_count(array, array.length)


def check_count(array: Array, count: int) -> None:
    """Raise `LimitError` where more values are to be made of an array than it has bytes, beyond the limit."""
    if count > MAX_VALUES:
        check_values(count, total_buffer_size(array) * 8)


def total_buffer_size(array: Array) -> int:
    """The bytes of all buffers of an array, its children and its dictionary."""
    inside = (*array.children, array.dictionary) if array.dictionary is not None else array.children
    return sum(b.size for b in array.buffers if b is not None) + sum(map(total_buffer_size, inside))


def sum_lengths(lengths: Indices) -> int:
    """The sum of lengths, which may be beyond 64 bits."""
    if lengths.size and int(lengths.max()) > _MOST // lengths.size:
        return sum(lengths.tolist())
    return int(lengths.sum())


def take_ranges(child: Array, starts: Indices, lengths: Indices) -> Array:
    """The slots from each start on, of each length, end to end in a new array; they have to lie within `child`.

    Raises `LimitError` for many more slots than `child` holds bytes.
    """
    check_count(child, sum_lengths(lengths))
    return child.layout.take(child, range_indices(starts, lengths))


def range_indices(starts: Indices, lengths: Indices) -> Indices:
    """start, start + 1, … for each start and length, end to end."""
    ends = np.cumsum(lengths)
    return np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(starts - ends + lengths, lengths)


def gather(data: Bytes, starts: Indices, lengths: Indices) -> Bytes:
    """The bytes from each start on, of each length, end to end in a new array; they have to lie within `data`.

    Raises `LimitError` for a result much larger than `data`.
    """
    check_bytes(sum_lengths(lengths), data.size)
    return gather_with_gap(data, starts, lengths, 0)[0] if len(starts) else np.empty(0, UINT8)


def gather_with_gap(data: Bytes, starts: Indices, lengths: Indices, gap: int) -> tuple[Bytes, Indices]:
    """The same with `gap` bytes of anything behind each, and where each begins; at least one.

    Most are copied in one width, and each over what of the one before was too much.
    """
    targets = lengths + gap
    targets.cumsum(out=targets)
    total, longest = int(targets[-1]), int(lengths.max())
    targets -= lengths
    targets -= gap
    width = max(1, min(longest, max(2 * total // len(lengths), _NARROW_BYTES)))
    if width > _WIDE_BYTES:
        width = 0
    room = np.empty(total + width, UINT8)
    for first in range(0, len(starts) if width else 0, _BLOCK_HEADS):
        own = slice(first, first + _BLOCK_HEADS)
        scatter(room, targets[own], prefixes(data, starts[own], width))
    if longest > width:
        long = (lengths > width).nonzero()[0]
        copy_ranges(room, targets[long], data, starts[long], lengths[long])
    return room[:total], targets


def copy_ranges(out: Bytes, targets: Indices, data: Bytes, sources: Indices, lengths: Indices) -> None:
    """Copy `data[source : source + length]` to `out[target : target + length]` for each of the stretches.

    Neighbours that lie one behind the other on both sides are copied in one piece. The memory it takes is bounded by
    the number of stretches.
    """
    used = np.flatnonzero(lengths)
    if not used.size:
        return
    targets, sources, lengths = targets[used], sources[used], lengths[used]
    apart = (sources[1:] != sources[:-1] + lengths[:-1]) | (targets[1:] != targets[:-1] + lengths[:-1])
    heads = np.concatenate(([0], np.flatnonzero(apart) + 1))
    targets, sources, lengths = targets[heads], sources[heads], np.add.reduceat(lengths, heads)
    for first in range(0, len(heads), _BLOCK_STRETCHES):
        own = slice(first, first + _BLOCK_STRETCHES)
        _copy_block(out, targets[own], data, sources[own], lengths[own])


def _copy_block(out: Bytes, targets: Indices, data: Bytes, sources: Indices, lengths: Indices) -> None:
    """Stretches of one length are elements of one type to NumPy, at any byte: it copies all of them by one call. Where
    they are few or long they are copied one by one.
    """
    kinds = np.minimum(lengths, _LONG_BYTES).astype(np.uint16)
    order, counts = np.argsort(kinds, kind="stable"), np.bincount(kinds)
    alone, past = [], 0
    for length in np.flatnonzero(counts).tolist():
        own, past = order[past : past + counts[length]], past + int(counts[length])
        if length == _LONG_BYTES or len(own) < _FEW_STRETCHES:
            alone.append(own)
            continue
        _windows(out, length)[targets[own]] = _windows(data, length)[sources[own]]
    if alone:
        some, into, source = np.concatenate(alone), out.data, data.data
        for to, at, length in zip(targets[some].tolist(), sources[some].tolist(), lengths[some].tolist(), strict=True):
            into[to : to + length] = source[at : at + length]


def prefixes(data: Bytes, starts: Indices, width: int) -> Values:
    """`width` bytes, at least one, from each start on, as elements of NumPy's void type; zeros beyond the data."""
    last = data.size - width
    if starts.max() <= last:
        return _windows(data, width)[starts]
    near_end, first = (starts > last).nonzero()[0], max(last, 0)
    tail = _windows(np.concatenate((data[first:], np.zeros(width, UINT8))), width)
    found = (tail if last < 0 else _windows(data, width))[np.minimum(starts, first)]
    found[near_end] = tail[starts[near_end] - first]
    return found


def take_windows(values: Values, starts: Indices, width: int) -> Values:
    """`width` values from each start on, shape (starts, width); they have to lie within `values`, which are contiguous.

    Those of a row are one element to NumPy while it copies them, which takes a third of the time of a row of many.
    """
    shape = (len(starts), width)
    if not width:
        return np.empty(shape, values.dtype)
    places, element = len(values) - width + 1, np.dtype((np.void, width * values.itemsize))
    found = np.ndarray(places, element, values, strides=(values.itemsize,))[starts]
    return found.view(values.dtype).reshape(shape)


def scatter(out: Bytes, targets: Indices, elements: Values) -> None:
    """Copy elements of NumPy's void type to rising targets, each over what of the one before reaches beyond its target.

    NumPy assigns one after the other, so that of an element remains what lies before the next one's target.
    """
    _windows(out, elements.itemsize)[targets] = elements


def _windows(data: Bytes, width: int) -> Values:
    """An element of so many bytes at every byte of the data, which holds one at least; shares the memory."""
    return np.ndarray(data.size - width + 1, np.dtype((np.void, width)), data, strides=(1,))
