"""The order in which an epoch visits the rows of a data set.

The order depends only on the rows of the parts, the seed and the epoch, and not on the readers. Readers that number
rows themselves repeat or skip some as soon as the number of ranks or workers changes; here the order is defined first,
and readers divide it.

Any part of the order can be computed alone, in the time that its windows take: the order of parts and blocks from one
draw of random numbers for each, the order of rows within a window from one for each row of the window.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidArgumentError, check_count
from bowstring.layouts.indexing import to_integer

RowIndices: TypeAlias = npt.NDArray[np.int64]

BLOCK_ROWS = 1 << 16
"""Rows that stay together until they are in a window, so that a window reads some ranges, not single rows."""
# A permutation of 8 MiB, and 16 blocks of different places in the data: fewer would leave neighbours together.
DEFAULT_WINDOW_ROWS = 1 << 20
# A batch may be in two windows; with more readers in a process, the order is computed again.
_CACHED_WINDOWS = 2
_PARTS, _BLOCKS, _FIRST_WINDOW = 0, 1, 2
"""The numbers of the streams of random numbers."""
# No attacker is expected: 128 bits exclude equal digests of different divisions by chance.
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True, weakref_slot=True)
class RowOrder:
    """The order of the rows of parts: as they are, or shuffled with a seed from 0 to 2**64 - 1.

    A table is one part, `(num_rows,)`. A row's index counts the rows of the parts before its own. A shuffled order
    permutes the parts, the blocks of 65,536 rows within each part, and then the rows within each window of
    `window_rows`. So the rows of a part are in adjacent windows. Larger windows shuffle better; smaller ones read fewer
    parts and blocks at once. Parts without rows do not matter. Raises `InvalidArgumentError` for numbers that are not
    integers or out of range.

    >>> bs.datasets.RowOrder([6, 4], seed=7).num_rows
    10
    """

    part_rows: Sequence[int] = field(compare=False, repr=False)
    seed: int | None = None
    window_rows: int = DEFAULT_WINDOW_ROWS
    num_rows: int = field(init=False)
    digest: str = field(init=False)
    """A digest of `part_rows`, which is equal for equal parts only."""

    def __post_init__(self) -> None:
        part_rows = tuple(to_integer("part_rows", rows) for rows in self.part_rows)
        window_rows = check_count("window_rows", self.window_rows, 1)
        seed = None if self.seed is None else to_integer("seed", self.seed)
        if min(part_rows, default=0) < 0 or sum(part_rows) >= 1 << 63:
            raise InvalidArgumentError("part_rows: expected numbers from 0, and fewer than 2**63 rows in all")
        if seed is not None and not 0 <= seed < 1 << 64:
            raise InvalidArgumentError(f"seed: expected an integer from 0 to 2**64 - 1, found {seed}")
        # Little-endian on every machine, since a state may be loaded on another; parts without rows do not change the
        # order.
        content = _nonzero_part_rows(self).astype("<i8").tobytes()
        for name, value in (
            ("part_rows", part_rows),
            ("seed", seed),
            ("window_rows", window_rows),
            ("num_rows", sum(part_rows)),
            ("digest", hashlib.sha256(content).hexdigest()[: 2 * _DIGEST_BYTES]),
        ):
            object.__setattr__(self, name, value)

    def rows(self, epoch: int, start: int, stop: int) -> RowIndices:
        """Return the indices of the rows at positions `start` to `stop` of an epoch, shape (stop - start,).

        Raises `InvalidArgumentError` if the positions or the epoch are out of range.
        """
        self._check_range(epoch, start, stop)
        if self.seed is None:
            return np.arange(start, stop)
        windows = range(start // self.window_rows, -(-stop // self.window_rows))
        arrays = [
            _shuffle_window(self, epoch, window)[
                max(start - window * self.window_rows, 0) : stop - window * self.window_rows
            ]
            for window in windows
        ]
        # Not one permutation of all rows, which takes 8 bytes a row in every reader and reads rows from anywhere:
        # windows need only their own part of the order, and a reader can begin at any position without computing those
        # before.
        return np.concatenate(arrays) if arrays else np.empty(0, np.int64)

    def parts(self, epoch: int, start: int, stop: int) -> RowIndices:
        """Return the indices of the parts whose rows are at positions `start` to `stop` of an epoch, in its order.

        A shuffled order counts whole windows. Raises as `rows`.
        """
        self._check_range(epoch, start, stop)
        if self.seed is not None:
            start = start // self.window_rows * self.window_rows
            stop = min(-(-stop // self.window_rows) * self.window_rows, self.num_rows)
        if start == stop:
            return np.empty(0, np.int64)
        parts, ends = _permute_parts(self, epoch)
        first, last = np.searchsorted(ends, start, "right"), np.searchsorted(ends, stop, "left")
        return np.flatnonzero(self.part_rows)[parts[first : last + 1]]

    def _check_range(self, epoch: int, start: int, stop: int) -> None:
        check_epoch(epoch)
        if not 0 <= start <= stop <= self.num_rows:
            raise InvalidArgumentError(f"positions {start} to {stop} are out of range for {self.num_rows} rows")


def check_epoch(epoch: int) -> int:
    """Return the number of an epoch. Raises `InvalidArgumentError` unless it is an integer from 0 to 2**63 - 1."""
    epoch = to_integer("epoch", epoch)
    if not 0 <= epoch < 1 << 63:
        raise InvalidArgumentError(f"epoch: expected an integer from 0 to 2**63 - 1, found {epoch}")
    return epoch


@lru_cache(_CACHED_WINDOWS)
def _shuffle_window(order: RowOrder, epoch: int, window: int) -> RowIndices:
    """Return the row indices of a window in shuffled order; cached, because batches are read one after the other."""
    starts, ends = _permute_blocks(order, epoch)
    first = window * order.window_rows
    last = min(first + order.window_rows, order.num_rows)
    blocks = slice(int(np.searchsorted(ends, first, "right")), int(np.searchsorted(ends, last, "left")) + 1)
    starts, ends = starts[blocks], ends[blocks]
    positions = np.concatenate(([first], ends[:-1]))
    rows = np.arange(first, last) + np.repeat(starts, np.minimum(ends, last) - positions)
    return rows[_random_order(order, epoch, _FIRST_WINDOW + window, len(rows))]


@lru_cache(_CACHED_WINDOWS)
def _permute_blocks(order: RowOrder, epoch: int) -> tuple[RowIndices, RowIndices]:
    """Return, for the blocks in shuffled order, by how much the index of a row exceeds its position before windows are
    shuffled, and the position where the block ends.
    """
    parts, _ = _permute_parts(order, epoch)
    lengths = _nonzero_part_rows(order)
    part_starts = (np.cumsum(lengths) - lengths)[parts]
    lengths = lengths[parts]
    block_counts = -(-lengths // BLOCK_ROWS)
    parts_of_blocks = np.repeat(np.arange(len(parts)), block_counts)
    index_in_part = np.arange(len(parts_of_blocks)) - np.repeat(np.cumsum(block_counts) - block_counts, block_counts)
    # Sorted by part, then by random number: stable sorts from the last key to the first.
    shuffled = _random_order(order, epoch, _BLOCKS, len(parts_of_blocks))
    shuffled = shuffled[np.argsort(parts_of_blocks[shuffled], kind="stable")]
    offsets = index_in_part[shuffled] * BLOCK_ROWS
    block_lengths = np.minimum(lengths[parts_of_blocks] - offsets, BLOCK_ROWS)
    ends = np.cumsum(block_lengths)
    return part_starts[parts_of_blocks] + offsets - (ends - block_lengths), ends


@lru_cache(_CACHED_WINDOWS)
def _permute_parts(order: RowOrder, epoch: int) -> tuple[RowIndices, RowIndices]:
    """Return the permutation of the parts with rows, and the position where each ends."""
    # Parts without rows are not counted: equal orders, which share the cache, may have them in other places.
    lengths = _nonzero_part_rows(order)
    parts = np.arange(len(lengths)) if order.seed is None else _random_order(order, epoch, _PARTS, len(lengths))
    return parts, np.cumsum(lengths[parts])


def _nonzero_part_rows(order: RowOrder) -> RowIndices:
    lengths = np.array(order.part_rows, np.int64)
    return lengths[lengths > 0]


def _random_order(order: RowOrder, epoch: int, stream: int, length: int) -> RowIndices:
    assert order.seed is not None
    # Sorting numbers with their indices takes a fraction of the time of `argsort`.
    keys = draw_distinct_numbers(order.seed, epoch, stream, length)
    keys.sort()
    keys &= _index_bits(length)
    return keys.view(np.int64)


def draw_distinct_numbers(seed: int, key: int, stream: int, length: int) -> npt.NDArray[np.uint64]:
    """Return random numbers, shape (length,), whose lowest bits are their indices, so no two are equal.

    Of a million numbers, 44 bits are random. They are the same in all versions of NumPy.
    """
    # Raw numbers, because NumPy keeps the output of a bit generator in all versions, but not the results of
    # `permutation`. The highest word of Philox' counter numbers the stream: no two streams of a key share a number.
    counter = np.array([0, 0, 0, stream], np.uint64)
    numbers = np.random.Philox(key=np.array([seed, key], np.uint64), counter=counter).random_raw(length)
    index_bits = _index_bits(length)
    numbers &= ~index_bits
    numbers |= np.arange(length, dtype=np.uint64)
    return numbers


def _index_bits(length: int) -> np.uint64:
    return np.uint64((1 << length.bit_length()) - 1)
