"""Copy rows of one width from several arrays, in any order, as NumPy's `take` does from one matrix."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from bowstring.layouts.base import Indices, Values
from bowstring.layouts.indexing import chunk_starts
from bowstring.memory.buffer import Buffer, view_enclosing_range


class FixedWidthRows:
    """The rows of NumPy arrays of shape (rows, …), which have one type and the same shape but for the number of rows.

    A batch of rows is copied at once, into memory that is its own and writable. Arrow arrays are not created, which
    takes longer than copying 256 rows of 64 numbers.
    """

    def __init__(self, arrays: Sequence[Values]) -> None:
        self._first = arrays[0]
        self._arrays = [array for array in arrays if len(array)]  # kept alive: the view of all of them does not
        self._starts = np.array(chunk_starts(map(len, self._arrays)), np.int64)
        self.row_bytes = self._first.itemsize * prod(self._first.shape[1:])
        self._windows: Values | None = None
        if len(self._arrays) > 1 and self.row_bytes:
            bases, memory = view_enclosing_range([Buffer.of(array) for array in self._arrays])
            # An element of the size of a row at every byte; only elements that begin at a row are read.
            count = memory.size - self.row_bytes + 1
            self._windows = np.ndarray(count, np.dtype((np.void, self.row_bytes)), memory, strides=(1,))
            self._shifts = bases - self._starts[:-1] * self.row_bytes

    def take(self, rows: Indices) -> Values:
        """Copy rows by their index in all arrays, shape (rows, …)."""
        if not self.row_bytes:
            return np.empty((len(rows), *self._first.shape[1:]), self._first.dtype)
        if self._windows is None:
            return (self._arrays[0] if self._arrays else self._first).take(rows, axis=0)
        arrays = np.searchsorted(self._starts, rows, "right") - 1
        values: Values = self._windows[rows * self.row_bytes + self._shifts[arrays]]
        return values.view(self._first.dtype).reshape(len(rows), *self._first.shape[1:])
