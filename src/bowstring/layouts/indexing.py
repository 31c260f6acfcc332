"""Check and convert indices, slices and lengths, for arrays, chunked arrays and tables."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidArgumentError, UnsupportedError

Indices: TypeAlias = npt.NDArray[np.int64]


def to_integer(name: str, value: Any) -> int:
    """Convert a value to a Python integer; raises `InvalidArgumentError` if it is not an integer."""
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidArgumentError(f"{name} must be an integer, not {value!r:.60}") from None


def normalize_index(index: Any, length: int) -> int:
    """Return the non-negative form of an index, which may count from the end; raises `IndexError` if out of range."""
    integer = to_integer("an index", index)
    if not -length <= integer < length:
        raise IndexError(f"index {integer} is out of range for length {length}")
    return integer % length


def clip_slice(offset: Any, length: Any, size: int) -> tuple[int, int]:
    """Return the offset and length of a slice, clipped to `size` slots; a length of None means all remaining slots.

    Raises `InvalidArgumentError` for negative numbers.
    """
    offset = to_integer("a slice's offset", offset)
    length = size if length is None else to_integer("a slice's length", length)
    if offset < 0 or length < 0:
        raise InvalidArgumentError(
            f"a slice's offset and length must not be negative: offset {offset}, length {length}"
        )
    offset = min(offset, size)
    return offset, min(length, size - offset)


def split_slice_by_chunk(starts: Sequence[int], offset: int, length: int) -> Iterator[tuple[int, int, int]]:
    """Split a slice of a chunked array: yield the chunk index, the offset in the chunk and the length of each part.

    `starts` are the offsets of the chunks, followed by the total length.
    """
    chunk, stop = bisect_right(starts, offset) - 1, offset + length
    while offset < stop:
        end = min(starts[chunk + 1], stop)
        if offset < end:
            yield chunk, offset - starts[chunk], end - offset
            offset = end
        chunk += 1


def resolve_chunks(starts: Sequence[int], indices: Indices) -> tuple[list[int], Indices, Indices]:
    """Resolve indices into a chunked array, whose chunks begin at `starts`, followed by the total length.

    Returns the sorted indices of the chunks in use; for each index its chunk's index among these; and the index within
    that chunk.
    """
    if len(starts) == 2 and len(indices):
        return [0], np.zeros(len(indices), np.int64), indices
    edges = np.array(starts)
    # "right": an index where several chunks start is in the last of these, since the others are empty.
    chunks = np.searchsorted(edges, indices, "right") - 1
    used_chunks = np.flatnonzero(np.bincount(chunks, minlength=len(starts) - 1))
    indices_in_chunk = indices - edges[chunks]
    if len(used_chunks) < len(starts) - 1:
        chunks = np.searchsorted(used_chunks, chunks)
    return used_chunks.tolist(), chunks, indices_in_chunk


def chunk_starts(lengths: Iterable[int]) -> list[int]:
    """Return the offsets of chunks of these lengths, followed by the total length.

    Raises `UnsupportedError` if the total is 2**63 or more, which Python and NumPy do not support.
    """
    starts = [0, *accumulate(lengths)]
    if starts[-1] >= 1 << 63:
        raise UnsupportedError(f"an array or a table must have fewer than 2**63 values, not {starts[-1]}")
    return starts


def as_indices(indices: object, length: int) -> Indices:
    """Convert indices to 64-bit integers; raises `InvalidArgumentError` if one is out of range or not an integer."""
    try:
        values = np.asarray(indices)
    except ValueError as error:  # nested sequences of several lengths
        raise InvalidArgumentError(
            f"take: indices must be a sequence of integers, not {indices!r:.100}: {error}"
        ) from None
    if values.ndim != 1 or (values.size and values.dtype.kind not in "iu"):
        raise InvalidArgumentError(f"take: indices must be a sequence of integers, not {indices!r:.100}")
    if values.size and not (values.min() >= 0 and values.max() < length):
        index = values[int(np.argmax((values < 0) | (values >= length)))]
        raise InvalidArgumentError(f"take: index {index} is out of range for an array of length {length}")
    return values.astype(np.int64, copy=False)
