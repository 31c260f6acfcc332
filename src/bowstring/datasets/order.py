"""The order in which an epoch visits the rows of a data set.

The order depends on the numbers of rows, the seed and the epoch only, never on who reads. Readers that number rows
themselves repeat or skip some as soon as the number of ranks or workers changes; here the order comes first, and
readers divide it.

Any part of the order can be computed alone, in the time that its windows take: the order of blocks from one draw of
random numbers for each block, the order of rows within a window from one for each row of the window.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidArgumentError

RowIndices: TypeAlias = npt.NDArray[np.int64]

BLOCK_ROWS = 1 << 16
"""Rows that stay together until they are in a window, so that a window reads some ranges, not single rows."""
DEFAULT_WINDOW_ROWS = 1 << 20
_CACHED_WINDOWS = 2
_BLOCKS = 0
"""The number of the stream of random numbers for blocks; those of the windows follow."""


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The order of `num_rows` rows: as they are, or shuffled with a seed from 0 to 2**64 - 1.

    A shuffled order permutes blocks of 65,536 rows, and then the rows within each window of `window_rows`. Larger
    windows shuffle better; smaller ones read fewer blocks at once. Raises `InvalidArgumentError` for numbers out of
    range.
    """

    num_rows: int
    seed: int | None = None
    window_rows: int = DEFAULT_WINDOW_ROWS

    def __post_init__(self) -> None:
        if self.num_rows < 0:
            raise InvalidArgumentError(f"num_rows: expected 0 or more, found {self.num_rows}")
        if self.window_rows < 1:
            raise InvalidArgumentError(f"window_rows: expected 1 or more, found {self.window_rows}")
        if self.seed is not None and not 0 <= self.seed < 1 << 64:
            raise InvalidArgumentError(f"seed: expected an integer from 0 to 2**64 - 1, found {self.seed}")

    def rows(self, epoch: int, start: int, stop: int) -> RowIndices:
        """Return the indices of the rows at positions `start` to `stop` of an epoch, shape (stop - start,).

        Raises `InvalidArgumentError` if the positions are out of range.
        """
        if not 0 <= start <= stop <= self.num_rows:
            raise InvalidArgumentError(f"positions {start} to {stop} are out of range for {self.num_rows} rows")
        if self.seed is None:
            return np.arange(start, stop)
        windows = range(start // self.window_rows, -(-stop // self.window_rows))
        parts = [
            _shuffle_window(self, epoch, window)[
                max(start - window * self.window_rows, 0) : stop - window * self.window_rows
            ]
            for window in windows
        ]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)


@lru_cache(_CACHED_WINDOWS)
def _shuffle_window(order: RowOrder, epoch: int, window: int) -> RowIndices:
    """Return the row indices of a window in shuffled order; cached, because batches are read one after the other."""
    starts, positions = _shuffle_blocks(order, epoch)
    first = window * order.window_rows
    rows = np.arange(first, min(first + order.window_rows, order.num_rows))
    blocks = np.searchsorted(positions, rows, "right") - 1
    rows += starts[blocks] - positions[blocks]
    return rows[_random_permutation(order, epoch, 1 + window, len(rows))]


@lru_cache(_CACHED_WINDOWS)
def _shuffle_blocks(order: RowOrder, epoch: int) -> tuple[RowIndices, RowIndices]:
    """Return the first row of each block in shuffled order, and its position before windows are shuffled."""
    starts = np.arange(0, order.num_rows, BLOCK_ROWS)
    lengths = np.minimum(order.num_rows - starts, BLOCK_ROWS)
    permutation = _random_permutation(order, epoch, _BLOCKS, len(starts))
    positions = np.cumsum(lengths[permutation]) - lengths[permutation]
    return starts[permutation], positions


def _random_permutation(order: RowOrder, epoch: int, stream: int, length: int) -> RowIndices:
    # Raw numbers, because NumPy keeps the output of a bit generator in all versions, but not that of `permutation`. The
    # highest word of Philox' counter numbers the stream: no two streams of an epoch share a number.
    assert order.seed is not None
    key, counter = np.array([order.seed, epoch], np.uint64), np.array([0, 0, 0, stream], np.uint64)
    bits = np.random.Philox(key=key, counter=counter)
    return np.argsort(bits.random_raw(length), kind="stable")
