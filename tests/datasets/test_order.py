"""The order of rows: a permutation that depends only on the rows of the parts, the seed and the epoch."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from bowstring.datasets.order import BLOCK_ROWS, RowOrder
from bowstring.errors import InvalidArgumentError

PART_ROWS = st.lists(st.integers(0, 200), max_size=6)


@given(
    PART_ROWS,
    st.none() | st.integers(0, 2**64 - 1),
    st.integers(1, 600),
    st.integers(0, 2**40),
    st.lists(st.integers(0, 500), max_size=5),
)
def test_any_ranges_of_an_epoch_are_those_of_one_permutation(
    part_rows: list[int], seed: int | None, window_rows: int, epoch: int, cuts: list[int]
) -> None:
    order = RowOrder(part_rows, seed, window_rows)
    num_rows = order.num_rows
    whole = order.rows(epoch, 0, num_rows)
    assert sorted(whole.tolist()) == list(range(num_rows))
    edges = sorted({0, num_rows, *(min(cut, num_rows) for cut in cuts)})
    ranges = [order.rows(epoch, start, stop) for start, stop in pairwise(edges)]
    assert np.array_equal(np.concatenate([*ranges, order.rows(epoch, num_rows, num_rows)]), whole)


@given(PART_ROWS, st.none() | st.integers(0, 99), st.integers(1, 600), st.integers(0, 1200), st.integers(0, 1200))
def test_the_parts_of_positions_are_those_of_their_windows(
    part_rows: list[int], seed: int | None, window_rows: int, start: int, stop: int
) -> None:
    order = RowOrder(part_rows, seed, window_rows)
    start, stop = sorted((min(start, order.num_rows), min(stop, order.num_rows)))
    parts = order.parts(1, start, stop).tolist()
    if seed is not None:
        start, stop = start // window_rows * window_rows, -(-stop // window_rows) * window_rows
    rows = order.rows(1, start, min(stop, order.num_rows))
    assert sorted(parts) == np.unique(np.searchsorted(np.cumsum(part_rows), rows, "right")).tolist()
    whole = order.parts(1, 0, order.num_rows).tolist()
    assert sorted(whole) == [part for part, length in enumerate(part_rows) if length]
    assert parts == [part for part in whole if part in parts]


@pytest.mark.parametrize("num_rows", [BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 10 * BLOCK_ROWS + 7])
@pytest.mark.parametrize("window_rows", [1000, BLOCK_ROWS, 3 * BLOCK_ROWS + 1, 1 << 20])
def test_blocks_and_windows_of_all_sizes_are_permuted(num_rows: int, window_rows: int) -> None:
    order = RowOrder((100, num_rows), 7, window_rows)
    rows = order.rows(3, 0, order.num_rows)
    assert np.array_equal(np.sort(rows), np.arange(order.num_rows))
    for start in range(0, order.num_rows, window_rows):
        blocks = np.unique((rows[start : start + window_rows] - 100) // BLOCK_ROWS)
        assert len(blocks) <= window_rows // BLOCK_ROWS + 4, "a window reads few blocks"


def test_parts_and_the_blocks_of_a_part_are_permuted() -> None:
    order = RowOrder([3 * BLOCK_ROWS] * 20, 5, window_rows=BLOCK_ROWS)
    rows = order.rows(0, 0, order.num_rows).reshape(60, BLOCK_ROWS)
    blocks = rows[:, 0] // BLOCK_ROWS
    assert (rows // BLOCK_ROWS == blocks[:, None]).all(), "each window is a block"
    parts = (blocks // 3).reshape(20, 3)
    assert (parts == parts[:, :1]).all()
    assert np.array_equal(np.sort(parts[:, 0]), np.arange(20))
    assert len(np.unique(blocks.reshape(20, 3) % 3, axis=0)) > 3
    assert not np.array_equal(parts[:, 0], np.sort(parts[:, 0]))


def test_orders_of_other_parts_are_other_orders_unless_the_parts_are_empty() -> None:
    order = RowOrder((10, 20), 1)
    assert order == RowOrder((0, 10, 0, 20), 1)
    assert order.rows(0, 0, 30).tolist() == RowOrder((0, 10, 0, 20), 1).rows(0, 0, 30).tolist()
    for part_rows in ((20, 10), (30,), (10, 19), (10, 20, 1)):
        assert order.digest != RowOrder(part_rows, 1).digest


def test_the_order_of_fifty_million_rows_in_ten_thousand_parts_is_small() -> None:
    order = RowOrder([5000] * 10_000, 3)
    tracemalloc.start()
    try:
        rows = order.rows(0, 49_000_000, 49_000_256)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(set(rows.tolist())) == 256
    assert len(np.unique(rows // 5000)) > 100
    assert peak_bytes < 64 << 20


FIRST = [5, 8, 4, 6, 0, 7, 2, 3, 9, 1]
SECOND = [2, 1, 8, 4, 5, 9, 6, 0, 7, 3]
LARGE = [249426, 35800, 634810, 356410, 941044]
DIGEST = "d82bf0f7e6ef6c67aa73cc2827f1bf6c"


def test_the_order_is_the_same_with_every_version_of_numpy() -> None:
    assert RowOrder((10,), 1).rows(0, 0, 10).tolist() == FIRST
    assert RowOrder((10,), 1).rows(1, 0, 10).tolist() == SECOND
    order = RowOrder((700_000, 0, 1, 300_000), 2**64 - 1, 300_000)
    shuffled = order.rows(5, 0, 1_000_001)
    assert order.digest == DIGEST
    assert shuffled[::250_000].tolist() == LARGE
    assert not np.array_equal(shuffled, RowOrder(order.part_rows, 0, 300_000).rows(5, 0, 1_000_001))


def test_a_window_is_in_the_order_of_its_random_numbers() -> None:
    for length in (1, 2, 255, 256, 60_000):
        keys = np.random.Philox(key=[9, 4], counter=[0, 0, 0, 2]).random_raw(length)
        expected = np.argsort(keys >> np.uint64(length.bit_length()), kind="stable")
        assert np.array_equal(RowOrder((length,), 9).rows(4, 0, length), expected)


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_shuffled_rows_are_spread_over_a_window(seed: int) -> None:
    rows = RowOrder((4096,), seed, 4096).rows(0, 0, 4096)
    assert np.count_nonzero(np.diff(rows) == 1) < 20
    assert abs(rows[:2048].mean() - 2047.5) < 150


def test_arguments_out_of_range_are_errors() -> None:
    for arguments in (
        ((2, -1),),
        ((1 << 62, 1 << 62),),
        ((1,), -1),
        ((1,), 2**64),
        ((1,), 0, 0),
        ((1.5,),),
        ((1,), 0.5),
        ((1,), 0, 1.5),
    ):
        with pytest.raises(InvalidArgumentError):
            RowOrder(*arguments)
    for start, stop in ((-1, 1), (2, 1), (0, 4)):
        with pytest.raises(InvalidArgumentError, match="out of range for 3 rows"):
            RowOrder((3,)).rows(0, start, stop)
