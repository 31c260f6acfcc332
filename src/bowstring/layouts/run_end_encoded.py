"""«Run-End Encoded Layout»: no buffers; a child of run ends, strictly rising, and a child of the runs' values.

>>> import bowstring as bs
>>> array = bs.array([1.0, 1.0, 1.0, 1.0, None, None, 2.0], bs.run_end_encoded(bs.int32(), bs.float32()))
>>> array.children[0].to_pylist(), array.children[1].to_pylist()
([4, 6, 7], [1.0, None, 2.0])
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.errors import InvalidDataError, UsageError, WouldCopyError
from bowstring.layouts.array import Array
from bowstring.layouts.base import Indices, Layout, Values, first_true, to_buffer
from bowstring.layouts.dictionary import hashable_key
from bowstring.layouts.equality import arrays_equal
from bowstring.layouts.gather import check_length
from bowstring.memory.bitmap import Mask

if TYPE_CHECKING:
    from bowstring.datatypes.types import RunEndEncoded


class RunEndEncodedLayout(Layout):
    """Runs of equal values."""

    __slots__ = ("_end_type",)

    CHILD_NAMES = ("run ends", "values")
    CHECKS_CHILD_VALUES = True

    def __init__(self, type: RunEndEncoded, run_ends: Layout, values: Layout) -> None:
        super().__init__(type, (), (run_ends, values))
        dtype = run_ends.buffers[1].dtype
        assert dtype is not None
        self._end_type = dtype

    def run_bounds(self, array: Array) -> tuple[Indices, int, int]:
        """The run ends as 64-bit integers, checked, and the numbers of the first and past the last run of the slots."""
        if not (array.length or array.offset):  # as validation has it: what an empty array's buffers say does not count
            return np.empty(0, np.int64), 0, 0
        ends_array = array.children[0]
        if ends_array.null_count:
            raise InvalidDataError(f"{ends_array.null_count} run ends are null")
        ends = ends_array.values(1).astype(np.int64)
        if ends.size and ends[0] < 1:
            raise InvalidDataError(f"run_ends[0] = {ends[0]} is not positive")
        level = ends[1:] <= ends[:-1]
        if level.any():
            at = first_true(level)
            raise InvalidDataError(
                f"run_ends[{at + 1}] = {ends[at + 1]} is not greater than run_ends[{at}] = {ends[at]}"
            )
        stop = array.offset + array.length
        if array.length == 0:
            return ends, 0, 0
        if not ends.size or ends[-1] < stop:
            raise InvalidDataError(f"the last run ends at {ends[-1] if ends.size else 0}, before slot {stop}")
        first = int(np.searchsorted(ends, array.offset, "right"))
        past = int(np.searchsorted(ends, stop - 1, "right")) + 1
        if past > array.children[1].length:
            raise InvalidDataError(f"there are {array.children[1].length} values for at least {past} runs")
        return ends, first, past

    def of(self, ends: Indices, values: Array, length: int) -> Array:
        """An array of runs that end before the slots `ends`, and their values."""
        if length > np.iinfo(self._end_type).max:
            raise UsageError(f"{length} slots are too many for the run ends of {self.type}")
        stored = Array(self.children[0], len(ends), (None, to_buffer(ends.astype(self._end_type))))
        return Array(self, length, (), (stored, values))

    def valid_mask(self, array: Array) -> Mask | None:
        return self._mask(array, self.children[1].valid_mask)

    def identity_mask(self, array: Array) -> Mask | None:
        return self._mask(array, self.children[1].identity_mask)

    def _mask(self, array: Array, mask_of: Callable[[Array], Mask | None]) -> Mask | None:
        """What `mask_of` says of the runs' values, for each slot."""
        lengths, values = self.run_lengths(array)
        held = mask_of(values)
        if held is None:
            return None
        check_length(array)
        return np.repeat(held, lengths)

    def build(self, values: Sequence[Any]) -> Array:
        runs = [list(run) for _, run in groupby(values, key=hashable_key)]
        ends = np.cumsum([len(run) for run in runs], dtype=np.int64)
        return self.of(ends, self.children[1].build([run[0] for run in runs]), len(values))

    def run_lengths(self, array: Array) -> tuple[Indices, Array]:
        """How many of the array's slots each run takes up, and the runs' values."""
        ends, first, past = self.run_bounds(array)
        cut = np.minimum(ends[first:past] - array.offset, array.length)
        return np.diff(cut, prepend=0), array.children[1].slice(first, past - first)

    def value_at(self, array: Array, index: int) -> Any:
        (ends_array, values), slot = array.children, array.offset + index
        ends = ends_array.values(1)
        run = bisect_right(ends, slot)
        is_there = run < min(len(ends), values.length) and (ends[run - 1] if run else 0) <= slot < ends[run]
        if not is_there or ends_array.null_count:
            return super().value_at(array, index)  # raises
        return values.layout.value_at(values, run)

    def to_pylist(self, array: Array) -> list[Any]:
        lengths, values = self.run_lengths(array)
        out: list[Any] = []
        for length, value in zip(lengths.tolist(), values.to_pylist(), strict=True):
            out.extend([value] * length)
        return out

    def to_numpy(self, array: Array, allow_copy: bool) -> Values:
        if not allow_copy:
            raise WouldCopyError(f"{self.type} has to be decoded for NumPy: allow the copy with zero_copy_only=False")
        lengths, values = self.run_lengths(array)
        return np.repeat(values.layout.to_numpy(values, True), lengths, axis=0)

    def compact(self, array: Array) -> Array:
        ends, first, past = self.run_bounds(array)
        if array.offset == 0 and first == 0 and past == len(ends) and (past == 0 or ends[-1] == array.length):
            return Array(self, array.length, (), tuple(child.compact() for child in array.children))
        lengths, values = self.run_lengths(array)
        return self.of(np.cumsum(lengths), values.compact(), array.length)

    def take(self, array: Array, indices: Indices) -> Array:
        ends, _, _ = self.run_bounds(array)
        runs = np.searchsorted(ends, indices + array.offset, "right")
        last = np.append(np.flatnonzero(runs[1:] != runs[:-1]), len(runs) - 1) if runs.size else runs
        values = array.children[1]
        return self.of(last + 1, values.layout.take(values, runs[last]), len(indices))

    def concat(self, arrays: Sequence[Array]) -> Array:
        parts = [self.run_lengths(array) for array in arrays]
        ends = np.cumsum(np.concatenate([lengths for lengths, _ in parts]))
        values = self.children[1].concat([values for _, values in parts])
        return self.of(ends, values, sum(array.length for array in arrays))

    def equal(self, left: Array, right: Array, nans_equal: bool) -> bool:
        (mine, my_values), (theirs, their_values) = self.run_lengths(left), self.run_lengths(right)
        mine, theirs = np.cumsum(mine), np.cumsum(theirs)
        edges = np.union1d(mine, theirs)
        a = my_values.take(np.searchsorted(mine, edges, "left"))
        b = their_values.take(np.searchsorted(theirs, edges, "left"))
        return arrays_equal(a, b, nans_equal)

    def sort_keys(self, array: Array) -> tuple[Values, ...] | None:
        lengths, values = self.run_lengths(array)
        found = values.layout.sort_keys(values)
        return found and tuple(np.repeat(part, lengths) for part in found)

    def identity_keys(self, array: Array) -> tuple[Values, ...]:
        lengths, values = self.run_lengths(array)
        return tuple(np.repeat(part, lengths) for part in values.layout.identity_keys(values))

    def check(self, array: Array) -> None:
        ends, values = array.children
        if ends.length > values.length:
            raise InvalidDataError(f"{ends.length} run ends have only {values.length} values")

    def check_full(self, array: Array) -> None:
        self.run_bounds(array)
