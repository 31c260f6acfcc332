"""Batches of tensors in the workers of PyTorch's `DataLoader`; PyTorch is not among the packages of the tests."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.datasets.order import RowOrder
from bowstring.errors import InvalidDataError

torch = pytest.importorskip("torch", reason="requires PyTorch: pip install torch")

from torch.utils.data import DataLoader  # noqa: E402

from bowstring.datasets.torch import EpochDataset, to_tensors  # noqa: E402

NUM_ROWS = 1000


@pytest.fixture(scope="module")
def table() -> bs.Table:
    rows = np.arange(NUM_ROWS)
    return bs.table({"row": rows, "x": rows / 7, "text": [f"row {row}" for row in rows]})


@pytest.fixture(autouse=True)
def _allow_warnings_of_torch() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def load(dataset: EpochDataset, num_workers: int, context: str | None = None) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size=None, num_workers=num_workers, multiprocessing_context=context)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_yield_the_batches_of_a_shared_table_in_order(table: bs.Table, context: str) -> None:
    with bs.share(table) as handle:
        dataset = EpochDataset(handle, 64, seed=3)
        for epoch in range(2):
            dataset.set_epoch(epoch)
            batches = list(load(dataset, 3, context))
            rows = torch.cat([batch["row"] for batch in batches]).tolist()
            assert rows == RowOrder((NUM_ROWS,), 3).rows(epoch, 0, NUM_ROWS).tolist()
            assert batches[0]["text"] == [f"row {row}" for row in rows[:64]]
            assert torch.equal(batches[0]["x"], batches[0]["row"].double() / 7)


def test_two_ranks_that_stop_and_resume_with_other_workers_read_each_row_once(table: bs.Table) -> None:
    order = RowOrder((NUM_ROWS,), 5).rows(0, 0, NUM_ROWS).tolist()
    received: list[list[int]] = []
    state: dict[str, Any] | None = None
    for world_size, num_workers, steps in ((2, 4, 3), (1, 0, 5), (3, 1, 2), (2, 2, 1000)):
        ranks = []
        for rank in range(world_size):
            dataset = EpochDataset(table, 16, seed=5, rank=rank, world_size=world_size)
            if state is not None:
                dataset.load_state_dict(json.loads(json.dumps(state)))
            ranks.append((dataset, iter(load(dataset, num_workers, "fork" if num_workers else None))))
        for _ in range(steps):
            batches = [next(iterator, None) for _, iterator in ranks]
            received += [batch["row"].tolist() for batch in batches if batch is not None]
            if batches[-1] is None:
                break
        states = [dataset.state_dict(steps) for dataset, _ in ranks]
        assert all(each == states[0] for each in states)
        state = states[0]
    assert [row for rows in received for row in rows] == order


def test_stateful_data_loaders_resume_with_the_same_workers(table: bs.Table) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="requires torchdata")

    def create() -> Any:
        dataset = EpochDataset(table, 16, seed=5)
        return stateful.StatefulDataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context="fork")

    whole = [batch["row"].tolist() for batch in create()]
    first = create()
    iterator = iter(first)
    begun = [next(iterator)["row"].tolist() for _ in range(5)]
    second = create()
    second.load_state_dict(first.state_dict())
    assert begun + [batch["row"].tolist() for batch in second] == whole


def test_served_tables_and_selected_columns_are_read(table: bs.Table) -> None:
    with bs.serve({"t": table}) as server:
        (batch,) = EpochDataset(server.uri("t"), NUM_ROWS, columns=["row"])
    assert list(batch) == ["row"]
    assert batch["row"].tolist() == list(range(NUM_ROWS))


def test_columns_become_tensors_or_lists() -> None:
    batch = bs.record_batch(
        {
            "i": bs.array([1, 2], "int8"),
            "f": bs.array([1.5, 2], "float16"),
            "b": [True, False],
            "v": bs.array([[1.0, 2.0], [3.0, 4.0]], bs.list_(bs.float32(), 2)),
            "s": ["a", None],
            "l": [[1], None],
        }
    )
    tensors = to_tensors(batch)
    assert [tensors[name].dtype for name in "ifbv"] == [torch.int8, torch.float16, torch.bool, torch.float32]
    assert tensors["v"].shape == (2, 2)
    assert tensors["b"].tolist() == [True, False]
    assert tensors["s"] == ["a", None]
    assert tensors["l"] == [[1], None]
    for column in ([1, None], bs.array([[1.0, None]], bs.list_(bs.float32(), 2))):
        with pytest.raises(InvalidDataError, match="column 'n': a tensor has no nulls"):
            to_tensors(bs.record_batch({"n": column}))
