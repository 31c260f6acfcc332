"""Readers of an epoch: every row exactly once and in one order, whatever ranks read it and wherever they stop."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

import bowstring as bs
from bowstring.datasets.order import RowOrder
from bowstring.datasets.reader import EpochReader
from bowstring.errors import InvalidArgumentError, InvalidDataError


def table_of(*lengths: int) -> bs.Table:
    """Return a table of record batches of these lengths, whose rows are numbered."""
    schema, first, batches = bs.schema({"row": "int64", "text": "string"}), 0, []
    for length in lengths:
        rows = np.arange(first, first + length)
        batches.append(bs.record_batch({"row": rows, "text": [f"row {row}" for row in rows]}, schema))
        first += length
    return bs.Table(schema, batches)


def read_rows(batch: bs.RecordBatch) -> list[int]:
    rows: list[int] = batch.column("row").to_pylist()
    assert batch.column("text").to_pylist() == [f"row {row}" for row in rows]
    return rows


SHAPES = st.lists(st.integers(0, 30), max_size=6)
STOPS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6)), max_size=6)


@given(SHAPES, st.integers(1, 20), st.none() | st.integers(0, 99), st.integers(1, 64), STOPS, st.integers(1, 5))
def test_ranks_that_stop_and_resume_in_other_numbers_read_each_row_once_and_in_order(
    lengths: list[int],
    batch_rows: int,
    seed: int | None,
    window_rows: int,
    stops: list[tuple[int, int]],
    last_world_size: int,
) -> None:
    table = table_of(*lengths)
    state: dict[str, Any] | None = None
    rows: list[int] = []
    for world_size, steps in [*stops, (last_world_size, 10_000)]:
        readers = [
            EpochReader(table, batch_rows, seed=seed, window_rows=window_rows, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        for reader in readers:
            if state is not None:
                reader.load_state_dict(json.loads(json.dumps(state)))
        epoch = readers[0].epoch
        iterators = list(map(iter, readers))
        for _ in range(steps):
            received = [next(iterator, None) for iterator in iterators]
            rows += [row for batch in received if batch is not None for row in read_rows(batch)]
            if received[-1] is None:
                break
        states = [reader.state_dict() for reader in readers]
        if epoch == 0 and any(each["epoch"] for each in states):
            break
        assert all(each == states[0] for each in states), "each rank has read equally many batches"
        state = states[0]
    assert rows == RowOrder((table.num_rows,), seed, window_rows).rows(0, 0, table.num_rows).tolist()


@pytest.mark.parametrize("end", ["keep", "drop", "pad"])
@pytest.mark.parametrize("num_rows", [0, 1, 9, 10, 11, 60, 61, 99])
@pytest.mark.parametrize("world_size", [1, 3])
def test_the_end_of_an_epoch_is_kept_dropped_or_padded(end: Any, num_rows: int, world_size: int) -> None:
    table = table_of(num_rows)
    readers = [EpochReader(table, 10, seed=1, rank=rank, world_size=world_size, end=end) for rank in range(world_size)]
    lengths = [len(reader) for reader in readers]
    batches = [list(map(read_rows, reader)) for reader in readers]
    assert lengths == list(map(len, batches))
    order = RowOrder((num_rows,), 1).rows(0, 0, num_rows).tolist()
    in_turn = zip_longest(*batches, fillvalue=[])
    rows = [row for received in in_turn for batch in received for row in batch]
    if end == "keep":
        assert rows == order
        return
    assert len(set(lengths)) == 1
    assert all(len(batch) == 10 for rank in batches for batch in rank)
    expected = order * (2 + 10 * world_size // max(num_rows, 1)) if end == "pad" else order
    assert rows == expected[: len(rows)]
    assert (len(rows) >= num_rows) if end == "pad" else (num_rows - len(rows) < 10 * world_size)


def test_epochs_follow_each_other_in_different_orders() -> None:
    reader = EpochReader(table_of(40), 7, seed=3)
    epochs = [[row for batch in reader for row in read_rows(batch)] for _ in range(3)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(40))] * 3
    assert len(set(map(tuple, epochs))) == 3
    assert reader.state_dict()["epoch"] == 3
    later = EpochReader(table_of(40), 7, seed=3)
    later.load_state_dict({**reader.state_dict(), "epoch": 1})
    assert [row for batch in later for row in read_rows(batch)] == epochs[1]


def test_workers_of_a_rank_are_ranks_whose_batches_alternate() -> None:
    table = table_of(100)
    (whole,) = [list(map(read_rows, EpochReader(table, 6, seed=5, rank=1, world_size=2)))]
    workers = [iter(EpochReader(table, 6, seed=5, rank=1 + worker * 2, world_size=6)) for worker in range(3)]
    assert [read_rows(next(workers[index % 3])) for index in range(len(whole))] == whole


def test_batches_in_order_share_the_memory_of_the_table() -> None:
    table = table_of(100)
    first = next(iter(EpochReader(table, 10))).column("row")
    assert np.shares_memory(first.to_numpy(), table.column("row").chunk(0).to_numpy())


def test_thousands_of_record_batches_are_read_in_any_order() -> None:
    table = table_of(*[3] * 5000)
    for seed in (None, 1):
        rows = [row for batch in EpochReader(table, 256, seed=seed) for row in batch.column("row").to_pylist()]
        assert sorted(rows) == list(range(15_000))
        assert (rows == sorted(rows)) == (seed is None)


def test_tables_of_other_libraries_are_read() -> None:
    (batch,) = EpochReader(pa.table({"row": [1, 2]}), 4)
    assert batch.to_pydict() == {"row": [1, 2]}


def test_processes_that_attach_a_shared_table_divide_an_epoch() -> None:
    code = """if True:
        import pickle, sys
        import bowstring as bs
        from bowstring.datasets import EpochReader
        handle, rank = pickle.load(sys.stdin.buffer)
        reader = EpochReader(bs.attach(handle), 16, seed=9, rank=rank, world_size=2)
        print([row for batch in reader for row in batch.column("row").to_pylist()])
    """
    with bs.share(table_of(60, 40)) as handle:
        outputs = [
            subprocess.run(
                [sys.executable, "-c", code], input=pickle.dumps((handle, rank)), capture_output=True, check=True
            ).stdout
            for rank in range(2)
        ]
    rows = [json.loads(output) for output in outputs]
    assert sorted(rows[0] + rows[1]) == list(range(100))
    assert rows[0][:16] == RowOrder((100,), 9).rows(0, 0, 16).tolist()


def test_arguments_out_of_range_are_errors() -> None:
    table = table_of(3)
    for options in ({"rank": 1}, {"rank": -1}, {"world_size": 0}, {"end": "stop"}, {"seed": -1}, {"window_rows": 0}):
        with pytest.raises(InvalidArgumentError, match=next(iter(options)).replace("world_size", "rank")):
            EpochReader(table, 1, **options)
    with pytest.raises(InvalidArgumentError, match="batch_rows"):
        EpochReader(table, 0)


def test_a_state_of_another_order_or_of_no_reader_is_an_error() -> None:
    reader = EpochReader(table_of(30), 4, seed=2)
    state = reader.state_dict()
    others = {"version": 1, "num_rows": 31, "parts": "", "batch_rows": 5, "seed": 3, "window_rows": 9, "epoch": -1}
    others["next_batch"] = 1 << 63
    for name, value in others.items():
        with pytest.raises(InvalidDataError, match=name.replace("next_batch", "batch")):
            reader.load_state_dict({**state, name: value})
        with pytest.raises(InvalidDataError, match=f"expected '{name}'"):
            reader.load_state_dict({key: other for key, other in state.items() if key != name})
    assert reader.state_dict() == state
    assert "30 rows shuffled with seed 2, in batches of 4: rank 0 of 1, at batch 0 of epoch 0" in repr(reader)
