"""The order of rows: a permutation that depends only on the number of rows, the seed and the epoch."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from bowstring.datasets.order import BLOCK_ROWS, RowOrder
from bowstring.errors import InvalidArgumentError


@given(
    st.integers(0, 500),
    st.none() | st.integers(0, 2**64 - 1),
    st.integers(1, 600),
    st.integers(0, 2**40),
    st.lists(st.integers(0, 500), max_size=5),
)
def test_any_ranges_of_an_epoch_are_those_of_one_permutation(
    num_rows: int, seed: int | None, window_rows: int, epoch: int, cuts: list[int]
) -> None:
    order = RowOrder(num_rows, seed, window_rows)
    whole = order.rows(epoch, 0, num_rows)
    assert sorted(whole.tolist()) == list(range(num_rows))
    edges = sorted({0, num_rows, *(min(cut, num_rows) for cut in cuts)})
    parts = [order.rows(epoch, start, stop) for start, stop in pairwise(edges)]
    assert np.array_equal(np.concatenate([*parts, order.rows(epoch, num_rows, num_rows)]), whole)


@pytest.mark.parametrize("num_rows", [BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 10 * BLOCK_ROWS + 7])
@pytest.mark.parametrize("window_rows", [1000, BLOCK_ROWS, 3 * BLOCK_ROWS + 1, 1 << 20])
def test_blocks_and_windows_of_all_sizes_are_permuted(num_rows: int, window_rows: int) -> None:
    order = RowOrder(num_rows, 7, window_rows)
    rows = order.rows(3, 0, num_rows)
    assert np.array_equal(np.sort(rows), np.arange(num_rows))
    for start in range(0, num_rows, window_rows):
        blocks = np.unique(rows[start : start + window_rows] // BLOCK_ROWS)
        assert len(blocks) <= window_rows // BLOCK_ROWS + 2, "a window reads few blocks"


FIRST = [4, 0, 5, 6, 2, 7, 8, 3, 9, 1]
SECOND = [0, 3, 6, 8, 2, 5, 1, 7, 9, 4]
LARGE = [807082, 24112, 683255, 304035]


def test_the_order_is_the_same_with_every_version_of_numpy() -> None:
    assert RowOrder(10, 1).rows(0, 0, 10).tolist() == FIRST
    assert RowOrder(10, 1).rows(1, 0, 10).tolist() == SECOND
    shuffled = RowOrder(1_000_000, 2**64 - 1, 300_000).rows(5, 0, 1_000_000)
    assert shuffled[::250_000].tolist() == LARGE
    assert not np.array_equal(shuffled, RowOrder(1_000_000, 0, 300_000).rows(5, 0, 1_000_000))


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_shuffled_rows_are_spread_over_a_window(seed: int) -> None:
    rows = RowOrder(4096, seed, 4096).rows(0, 0, 4096)
    assert np.count_nonzero(np.diff(rows) == 1) < 20
    assert abs(rows[:2048].mean() - 2047.5) < 150


def test_arguments_out_of_range_are_errors() -> None:
    for arguments in ((-1,), (1, -1), (1, 2**64), (1, 0, 0)):
        with pytest.raises(InvalidArgumentError):
            RowOrder(*arguments)
    for start, stop in ((-1, 1), (2, 1), (0, 4)):
        with pytest.raises(InvalidArgumentError, match="out of range for 3 rows"):
            RowOrder(3).rows(0, start, stop)
