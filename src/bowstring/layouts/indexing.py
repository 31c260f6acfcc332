"""Which slots are meant: indices, positions and spans as callers give them, checked against a length."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.errors import UsageError
from bowstring.layouts.base import Indices, Values

if TYPE_CHECKING:
    from bowstring.layouts.array import Array


def to_integer(what: str, number: Any) -> int:
    """A number as Python's integer; raises `UsageError` for one that is not whole, and for anything else."""
    try:
        return operator.index(number)
    except TypeError:
        raise UsageError(f"{what} is a whole number, not {number!r:.60}") from None


def normalize_index(index: Any, length: int) -> int:
    """An index, from the end where it is negative, as one from 0 on; raises `IndexError` outside of `length` slots."""
    found = to_integer("an index", index)
    if not -length <= found < length:
        raise IndexError(f"index {found} is not within {length} values")
    return found % length


def clip_slice(offset: Any, length: Any, size: int) -> tuple[int, int]:
    """Where a slice of `size` slots begins, and its length, cut to what there is (to the end where it is None).

    Raises `UsageError` for negative numbers.
    """
    offset = to_integer("a slice's offset", offset)
    length = size if length is None else to_integer("a slice's length", length)
    if offset < 0 or length < 0:
        raise UsageError(f"a slice begins at 0 or later and is not negative: offset {offset}, length {length}")
    offset = min(offset, size)
    return offset, min(length, size - offset)


def split_slice(starts: Sequence[int], offset: int, length: int) -> Iterator[tuple[int, int, int]]:
    """The parts of a span that several chunks hold: the number of each chunk, the first of its slots, how many.

    `starts` are the first slots of the chunks, and the end of the last one.
    """
    number, stop = bisect_right(starts, offset) - 1, offset + length
    while offset < stop:
        end = min(starts[number + 1], stop)
        if offset < end:
            yield number, offset - starts[number], end - offset
            offset = end
        number += 1


def resolve_chunks(starts: Sequence[int], indices: Indices) -> tuple[list[int], Indices, Indices]:
    """Indices into several chunks, which begin at `starts`, the end of the last one included: the numbers of the chunks
    that are needed, rising; for each index which of these it is in; and its index there.
    """
    edges = np.array(starts)
    numbers = np.searchsorted(edges, indices, "right") - 1
    used = np.flatnonzero(np.bincount(numbers, minlength=len(starts) - 1))
    own = indices - edges[numbers]
    if len(used) < len(starts) - 1:
        numbers = np.searchsorted(used, numbers)
    return used.tolist(), numbers, own


def chunk_starts(lengths: Iterable[int]) -> list[int]:
    """Where parts of some lengths begin that lie end to end, and where the last one ends.

    Raises `UsageError` where that is 2**63 or more: Python and NumPy have no such lengths.
    """
    starts = [0, *accumulate(lengths)]
    if starts[-1] >= 1 << 63:
        raise UsageError(f"an array or a table has less than 2**63 values, not {starts[-1]}")
    return starts


def check_indices(indices: Sequence[int] | Values | Array, length: int) -> Indices:
    """Indices as 64-bit integers, each checked to lie within `length` slots; raises `UsageError`."""
    try:
        wanted = np.asarray(indices)
    except ValueError as error:  # lists of several lengths
        raise UsageError(f"take: indices are a sequence of integers, not {indices!r:.100}: {error}") from None
    if wanted.ndim != 1 or (wanted.size and wanted.dtype.kind not in "iu"):
        raise UsageError(f"take: indices are a sequence of integers, not {indices!r:.100}")
    if wanted.size and not (wanted.min() >= 0 and wanted.max() < length):
        raise UsageError(f"take: indices from {wanted.min()} to {wanted.max()} of an array of {length} values")
    return wanted.astype(np.int64, copy=False)
