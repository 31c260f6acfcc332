"""«Run-End Encoded Layout»: no buffers; a child of strictly increasing run ends, and a child of the runs' values.

>>> import bowstring as bs
>>> array = bs.array([1.0, 1.0, 1.0, 1.0, None, None, 2.0], bs.run_end_encoded(bs.int32(), bs.float32()))
>>> array.children[0].to_pylist(), array.children[1].to_pylist()
([4, 6, 7], [1.0, None, 2.0])
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from bowstring.datatypes.types import RunEndEncoded
from bowstring.errors import InvalidArgumentError, InvalidDataError
from bowstring.layouts.base import ArrayData, Indices, Layout, Values, check_expanded_array, find_first_true, to_buffer
from bowstring.layouts.equality import arrays_equal
from bowstring.layouts.expansion_limits import check_expanded_slots
from bowstring.layouts.factorize import encode_values, identity_keys_with_nulls
from bowstring.layouts.sort_keys import run_start_mask
from bowstring.memory.bitmap import Mask


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

    def run_ends_and_bounds(self, array: ArrayData) -> tuple[Indices, int, int]:
        """Return the checked run ends as int64, the index of the slots' first run and that after their last run."""
        if not (array.length or array.offset):  # the runs of an empty array are ignored
            return np.empty(0, np.int64), 0, 0
        ends = self._checked_run_ends(array)
        end = array.offset + array.length
        if array.length == 0:
            return ends, 0, 0
        if not ends.size or ends[-1] < end:
            raise InvalidDataError(f"the last run ends at {ends[-1] if ends.size else 0}, before slot {end}")
        # A run ends before its end: the run of a slot is the first whose end is greater.
        first = int(np.searchsorted(ends, array.offset, "right"))
        stop = int(np.searchsorted(ends, end - 1, "right")) + 1
        if stop > array.children[1].length:
            raise InvalidDataError(f"there are {array.children[1].length} values for at least {stop} runs")
        return ends, first, stop

    def _checked_run_ends(self, array: ArrayData) -> Indices:
        """Return all run ends as int64, checked to be positive and strictly ascending."""
        ends_array = array.children[0]
        if ends_array.null_count:
            raise InvalidDataError(f"{ends_array.null_count} run ends are null")
        ends = ends_array.buffer_values(1).astype(np.int64)
        if ends.size and ends[0] < 1:
            raise InvalidDataError(f"run_ends[0] = {ends[0]} is not positive")
        not_ascending = ends[1:] <= ends[:-1]
        if not_ascending.any():
            index = find_first_true(not_ascending)
            raise InvalidDataError(
                f"run_ends[{index + 1}] = {ends[index + 1]} is not greater than run_ends[{index}] = {ends[index]}"
            )
        return ends

    def create_array(self, ends: Indices, values: ArrayData, length: int) -> ArrayData:
        """Create an array of runs, which end before the slots `ends`, with their values."""
        if length > np.iinfo(self._end_type).max:
            raise InvalidArgumentError(f"{length} slots are too many for the run ends of {self.type}")
        run_ends = ArrayData(self.children[0], len(ends), (None, to_buffer(ends.astype(self._end_type))))
        return ArrayData(self, length, (), (run_ends, values))

    def logical_validity_mask(self, array: ArrayData, in_unions: bool = True) -> Mask | None:
        lengths, values = self.run_lengths_and_values(array)
        value_mask = values.layout.logical_validity_mask(values, in_unions)
        if value_mask is None:
            return None
        check_expanded_array(array)
        return np.repeat(value_mask, lengths)

    def from_pylist(self, values: Sequence[Any]) -> ArrayData:
        return encode_values(values, self.children[1], self.encode)

    def encode(self, array: ArrayData) -> ArrayData:
        """Encode an array of the values' type as runs of equal values.

        Raises `InvalidArgumentError` if it is too long for the run ends.
        """
        keys = identity_keys_with_nulls(array)
        starts = np.flatnonzero(run_start_mask(*keys)) if keys else np.zeros(min(array.length, 1), np.int64)
        ends = np.append(starts[1:], array.length)[: len(starts)]
        return self.create_array(ends, array.layout.take(array, starts), array.length)

    def run_lengths_and_values(self, array: ArrayData) -> tuple[Indices, ArrayData]:
        """Return the number of the array's slots in each run, and the runs' values."""
        ends, first, stop = self.run_ends_and_bounds(array)
        # Ends relative to the slice, so that the first and the last run count only their slots in it.
        clipped_ends = np.minimum(ends[first:stop] - array.offset, array.length)
        return np.diff(clipped_ends, prepend=0), array.children[1].slice(first, stop - first)

    def value_at(self, array: ArrayData, index: int, max_elements: int | None = None) -> Any:
        (ends_array, values), slot = array.children, array.offset + index
        ends = ends_array.buffer_values(1)
        run = bisect_right(ends, slot)
        is_valid_run = run < min(len(ends), values.length) and (ends[run - 1] if run else 0) <= slot < ends[run]
        if not is_valid_run or ends_array.null_count:
            return super().value_at(array, index)  # raises
        return values.layout.value_at(values, run, max_elements)

    def to_pylist(self, array: ArrayData) -> list[Any]:
        lengths, values = self.run_lengths_and_values(array)
        out: list[Any] = []
        for length, value in zip(lengths.tolist(), values.to_pylist(), strict=True):
            out.extend([value] * length)
        return out

    def copy_to_numpy(self, array: ArrayData) -> Values:
        lengths, values = self.run_lengths_and_values(array)
        array_values = values.to_numpy(zero_copy_only=False)
        check_expanded_slots(array.length, array_values[:1].nbytes, array_values.nbytes)
        return np.repeat(array_values, lengths, axis=0)

    def compact(self, array: ArrayData) -> ArrayData:
        ends, first, stop = self.run_ends_and_bounds(array)
        if (array.offset, first, stop) == (0, 0, array.children[0].length) and (not stop or ends[-1] == array.length):
            return ArrayData(self, array.length, (), tuple(child.compact() for child in array.children))
        lengths, values = self.run_lengths_and_values(array)
        return self.create_array(np.cumsum(lengths), values.compact(), array.length)

    def take(self, array: ArrayData, indices: Indices) -> ArrayData:
        ends, _, _ = self.run_ends_and_bounds(array)
        runs = np.searchsorted(ends, indices + array.offset, "right")
        # Adjacent slots of one run stay one run; equal values of different runs are not merged, as they are not
        # compared.
        last = np.append(np.flatnonzero(runs[1:] != runs[:-1]), len(runs) - 1) if runs.size else runs
        values = array.children[1]
        return self.create_array(last + 1, values.layout.take(values, runs[last]), len(indices))

    def concat(self, arrays: Sequence[ArrayData]) -> ArrayData:
        parts = [self.run_lengths_and_values(array) for array in arrays]
        ends = np.cumsum(np.concatenate([lengths for lengths, _ in parts]))
        values = self.children[1].concat([values for _, values in parts])
        return self.create_array(ends, values, sum(array.length for array in arrays))

    def have_equal_values(self, left: ArrayData, right: ArrayData, nans_equal: bool) -> bool:
        left_lengths, left_values = self.run_lengths_and_values(left)
        right_lengths, right_values = self.run_lengths_and_values(right)
        left_ends, right_ends = np.cumsum(left_lengths), np.cumsum(right_lengths)
        # Between two of these ends both arrays have one value: each pair of runs that overlap is compared once.
        ends = np.union1d(left_ends, right_ends)
        left_runs, right_runs = np.searchsorted(left_ends, ends), np.searchsorted(right_ends, ends)
        return arrays_equal(left_values.take(left_runs), right_values.take(right_runs), nans_equal)

    def sort_keys(self, array: ArrayData) -> tuple[Values, ...] | None:
        lengths, values = self.run_lengths_and_values(array)
        value_keys = values.layout.sort_keys(values)
        return value_keys and tuple(np.repeat(part, lengths) for part in value_keys)

    def identity_keys(self, array: ArrayData) -> tuple[Values, ...]:
        lengths, values = self.run_lengths_and_values(array)
        return tuple(np.repeat(part, lengths) for part in values.layout.identity_keys(values))

    def check(self, array: ArrayData) -> None:
        ends, values = array.children
        if ends.length > values.length:
            raise InvalidDataError(f"{ends.length} run ends have only {values.length} values")

    def check_full(self, array: ArrayData) -> None:
        self._checked_run_ends(array)
        self.run_ends_and_bounds(array)
