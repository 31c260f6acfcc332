"""Batches of tensors in the workers of PyTorch's `DataLoader`; PyTorch is not among the packages of the tests."""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from itertools import chain
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.datasets import Dataset, DatasetPart, EpochReader, RowOrder
from bowstring.errors import InvalidArgumentError, InvalidDataError

torch = pytest.importorskip("torch", reason="requires PyTorch: pip install torch")

from torch.utils.data import DataLoader, DistributedSampler, Subset  # noqa: E402

from bowstring.datasets.torch import (  # noqa: E402
    EpochDataset,
    TableDataset,
    TensorBatch,
    _reduce_batch,
    loader,
    to_tensors,
)

NUM_ROWS = 1000
PART_ROWS = (300, 0, 450, 250)


@pytest.fixture(scope="module")
def table() -> bs.Table:
    rows = np.arange(NUM_ROWS)
    return bs.table({"row": rows, "x": rows / 7, "text": [f"row {row}" for row in rows]})


@pytest.fixture(scope="module", params=["unix", "tcp"])
def dataset(request: pytest.FixtureRequest, table: bs.Table) -> Iterator[Dataset]:
    """A data set in parts, which a server has."""
    starts = np.cumsum((0, *PART_ROWS)).tolist()
    tables = {f"part {part}": table.slice(starts[part], rows) for part, rows in enumerate(PART_ROWS)}
    with bs.serve(tables, scheme=request.param) as server:
        parts = [
            DatasetPart(rows, rows * 30, (server.uri(name),)) for rows, name in zip(PART_ROWS, tables, strict=True)
        ]
        yield Dataset("rows", table.schema, parts)


@pytest.fixture(autouse=True)
def _allow_warnings_of_torch() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def load(dataset: EpochDataset, num_workers: int, context: str | None = None, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size=None, num_workers=num_workers, multiprocessing_context=context, **options)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_yield_the_batches_of_a_data_set_in_order(dataset: Dataset, context: str) -> None:
    epochs = EpochDataset(EpochReader(dataset, 64, seed=3))
    loader = load(epochs, 3, context, persistent_workers=True)
    for epoch in range(2):
        epochs.set_epoch(epoch)
        assert len(loader) == 16
        batches = list(loader)
        rows = torch.cat([batch["row"] for batch in batches]).tolist()
        assert rows == RowOrder(PART_ROWS, 3).rows(epoch, 0, NUM_ROWS).tolist()
        assert batches[0]["text"] == [f"row {row}" for row in rows[:64]]
        assert torch.equal(batches[0]["x"], batches[0]["row"].double() / 7)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_yield_the_batches_of_a_shared_table(table: bs.Table, context: str) -> None:
    with bs.share(table) as handle:
        batches = list(load(EpochDataset(EpochReader(handle, 64)), 2, context))
    assert torch.cat([batch["row"] for batch in batches]).tolist() == list(range(NUM_ROWS))


def test_an_epoch_and_a_number_of_batches_are_integers(table: bs.Table) -> None:
    epochs = EpochDataset(EpochReader(table, 64))
    with pytest.raises(InvalidArgumentError, match="epoch must be an integer"):
        epochs.set_epoch(1.5)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="num_batches must be an integer"):
        epochs.state_dict(0.5)  # type: ignore[arg-type]


def test_ranks_that_stop_and_resume_with_other_workers_read_each_row_once(dataset: Dataset) -> None:
    received: list[list[list[int]]] = [[], []]
    state: dict[str, Any] = {"epoch": 0}
    stops = ((2, 4, 3), (1, 0, 5), (3, 1, 2), (2, 2, 1000), (1, 3, 7), (2, 0, 1000))
    for world_size, num_workers, steps in stops:
        ranks = []
        for rank in range(world_size):
            epochs = EpochDataset(EpochReader(dataset, 16, seed=5, rank=rank, world_size=world_size))
            if "version" in state:
                epochs.load_state_dict(json.loads(json.dumps(state)))
            epochs.set_epoch(state["epoch"])
            ranks.append((epochs, iter(load(epochs, num_workers, "fork" if num_workers else None))))
        for _ in range(steps):
            batches = [next(iterator, None) for _, iterator in ranks]
            received[state["epoch"]] += [batch["row"].tolist() for batch in batches if batch is not None]
            if batches[-1] is None:
                state = {"epoch": state["epoch"] + 1}
                break
        else:
            states = [epochs.state_dict(steps) for epochs, _ in ranks]
            assert all(each == states[0] for each in states)
            state = states[0]
    for epoch in range(2):
        order = RowOrder(PART_ROWS, 5).rows(epoch, 0, NUM_ROWS).tolist()
        assert list(chain.from_iterable(received[epoch])) == order


_RANK = """if True:
    import json, sys, warnings
    warnings.simplefilter("ignore")
    from torch.utils.data import DataLoader
    from bowstring.datasets import Dataset, EpochReader
    from bowstring.datasets.torch import EpochDataset
    text, state, rank, world_size, num_workers = json.load(sys.stdin)
    reader = EpochReader(Dataset.from_json(text), 16, seed=8, rank=rank, world_size=world_size)
    dataset = EpochDataset(reader)
    if state is not None:
        dataset.load_state_dict(state)
    for epoch in range(0 if state is None else state["epoch"], 3):
        dataset.set_epoch(epoch)
        loader = DataLoader(dataset, batch_size=None, num_workers=num_workers)
        for step, batch in enumerate(loader, 1):
            print(json.dumps([epoch, step, dataset.state_dict(step), batch["row"].tolist()]), flush=True)
"""


def read_until_killed(
    dataset: Dataset, state: Any, world_size: int, num_workers: int, last: tuple[int, int] | None
) -> tuple[dict[int, list[int]], Any]:
    """Return the rows of each epoch that ranks, each a process, receive up to an epoch and step, and its state. The
    processes are killed then.
    """
    ranks = []
    try:
        for rank in range(world_size):
            process = subprocess.Popen(
                [sys.executable, "-c", _RANK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
            ranks.append(process)
            assert process.stdin is not None
            process.stdin.write(json.dumps([dataset.to_json(), state, rank, world_size, num_workers]).encode())
            process.stdin.close()
        batches: dict[tuple[int, int, int], list[int]] = {}
        for rank, process in enumerate(ranks):
            assert process.stdout is not None
            for line in process.stdout:
                epoch, step, state, rows = json.loads(line)
                batches[epoch, step, rank] = rows
                if (epoch, step) == last:
                    break
            else:
                assert last is None
    finally:
        for process in ranks:
            # With its workers: one that has just been forked does not notice that its parent is gone.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
    epochs: dict[int, list[int]] = {}
    for epoch, _, _ in sorted(batches):
        epochs.setdefault(epoch, [])
    for key in sorted(batches):
        epochs[key[0]] += batches[key]
    return epochs, state


def test_ranks_killed_at_random_points_read_each_row_of_three_epochs_once_in_one_order(dataset: Dataset) -> None:
    choose = random.Random(4)
    state: Any = None
    rows: dict[int, list[int]] = {0: [], 1: [], 2: []}
    stops = [(2, 4, (0, choose.randint(1, 12))), (1, 2, (1, choose.randint(1, 50))), (3, 1, (1, choose.randint(1, 3)))]
    for world_size, num_workers, last in [*stops, (2, 4, None)]:
        received, state = read_until_killed(dataset, state, world_size, num_workers, last)
        for epoch, epoch_rows in received.items():
            rows[epoch] += epoch_rows
    for epoch in range(3):
        assert rows[epoch] == RowOrder(PART_ROWS, 8).rows(epoch, 0, NUM_ROWS).tolist()


def test_stateful_data_loaders_resume_with_the_same_workers(dataset: Dataset) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="requires torchdata")

    def create(num_workers: int) -> tuple[EpochDataset, Any]:
        epochs = EpochDataset(EpochReader(dataset, 16, seed=5))
        context = "fork" if num_workers else None
        options = {"batch_size": None, "num_workers": num_workers, "multiprocessing_context": context}
        return epochs, stateful.StatefulDataLoader(epochs, **options)

    expected = RowOrder(PART_ROWS, 5).rows(0, 0, NUM_ROWS).tolist()
    for num_workers in (0, 2, 4):
        rows: list[int] = []
        state = None
        for steps in (5, 1, 17, 1000):  # twice in a row and more
            _, loader = create(num_workers)
            if state is not None:
                loader.load_state_dict(state)
            for step, batch in enumerate(loader, 1):
                rows += batch["row"].tolist()
                if step == steps:
                    break
            state = loader.state_dict()
        assert rows == expected


@pytest.mark.parametrize("num_workers", [0, 2])
def test_stateful_data_loaders_resume_at_the_end_of_an_epoch(table: bs.Table, num_workers: int) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="requires torchdata")

    def create() -> Any:
        epochs = EpochDataset(EpochReader(table, 128, seed=5))
        return stateful.StatefulDataLoader(epochs, batch_size=None, num_workers=num_workers)

    loader, resumed = create(), create()
    assert len(list(loader)) == -(-table.num_rows // 128)
    resumed.load_state_dict(loader.state_dict())
    for expected, batch in zip(loader, resumed, strict=True):
        assert torch.equal(expected["row"], batch["row"])


def test_an_iteration_without_a_batch_is_at_the_beginning_of_its_epoch(table: bs.Table) -> None:
    epochs = EpochDataset(EpochReader(table, 128, seed=5))
    list(epochs)
    iterator = iter(epochs)
    assert epochs.state_dict(num_batches=0) == epochs.state_dict()
    assert epochs.state_dict(num_batches=0)["epoch"] == 1
    next(iterator)
    assert epochs.state_dict(num_batches=1) == epochs.state_dict()


def test_stateful_data_loaders_resume_with_other_workers_by_the_state_of_the_data_set(dataset: Dataset) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="requires torchdata")
    rows: list[int] = []
    state = None
    for num_workers, steps in ((4, 5), (0, 9), (3, 20), (2, 1000)):
        epochs = EpochDataset(EpochReader(dataset, 16, seed=5))
        if state is not None:
            epochs.load_state_dict(state)
        loader = stateful.StatefulDataLoader(epochs, batch_size=None, num_workers=num_workers)
        for step, batch in enumerate(loader, 1):
            rows += batch["row"].tolist()
            state = epochs.state_dict(num_batches=step)
            if step == steps:
                break
    assert rows == RowOrder(PART_ROWS, 5).rows(0, 0, NUM_ROWS).tolist()


def test_states_of_other_parts_are_errors(table: bs.Table) -> None:
    state = EpochDataset(EpochReader(table, 16, seed=5)).state_dict()
    with pytest.raises(InvalidDataError, match="state: seed: expected 6, as of this reader, found 5"):
        EpochDataset(EpochReader(table, 16, seed=6)).load_state_dict(state)


def test_batches_can_be_pinned_also_without_a_gpu(dataset: Dataset) -> None:
    for source in (EpochDataset(EpochReader(dataset, 64)), EpochDataset(EpochReader(dataset, 64, seed=1))):
        rows = [batch["row"] for batch in load(source, 2, "fork", pin_memory=True)]
        assert sorted(torch.cat(rows).tolist()) == list(range(NUM_ROWS))
    loader = DataLoader(TableDataset(dataset), batch_size=64, pin_memory=True)
    assert torch.cat([batch["row"] for batch in loader]).tolist() == list(range(NUM_ROWS))


@pytest.mark.parametrize("context", [None, "fork", "spawn"])
def test_samplers_choose_the_rows_of_a_table_data_set(dataset: Dataset, context: str | None) -> None:
    rows_by_index = TableDataset(dataset, columns=["row", "text"])
    assert len(rows_by_index) == NUM_ROWS
    rows: list[int] = []
    for rank in range(2):
        sampler: DistributedSampler[Any] = DistributedSampler(
            rows_by_index, num_replicas=2, rank=rank, shuffle=True, seed=3
        )
        num_workers = 0 if context is None else 2
        loader = DataLoader(
            rows_by_index, batch_size=64, sampler=sampler, num_workers=num_workers, multiprocessing_context=context
        )
        for batch in loader:
            assert list(batch) == ["row", "text"]
            assert batch["text"] == [f"row {row}" for row in batch["row"].tolist()]
            rows += batch["row"].tolist()
    assert rows != sorted(rows)
    assert sorted(rows) == list(range(NUM_ROWS))


def test_rows_of_a_table_data_set_are_dictionaries(table: bs.Table) -> None:
    rows = TableDataset(table)
    assert rows[-1]["row"] == NUM_ROWS - 1
    assert torch.is_tensor(rows[3]["x"])
    assert [row["text"] for row in rows.__getitems__([5, 0])] == ["row 5", "row 0"]
    assert [row["text"] for row in rows.__getitems__([5, 0, 7])[1:]] == ["row 0", "row 7"]
    with pytest.raises(IndexError, match="index 1000 is out of range for length 1000"):
        rows[NUM_ROWS]
    subset = DataLoader(Subset(rows, [4, 2, 9]), batch_size=2)
    assert [batch["row"].tolist() for batch in subset] == [[4, 2], [9]]
    whole = torch.utils.data.ConcatDataset([rows, rows])
    assert next(iter(DataLoader(whole, batch_size=2)))["row"].tolist() == [0, 1]
    reversed_rows = DataLoader(rows, batch_size=2, collate_fn=lambda batch: [row["row"].item() for row in batch][::-1])
    assert next(iter(reversed_rows)) == [1, 0]


def test_served_tables_and_selected_columns_are_read(table: bs.Table) -> None:
    with bs.serve({"t": table}) as server:
        (batch,) = EpochDataset(EpochReader(server.uri("t"), NUM_ROWS, columns=["row"]))
    assert list(batch) == ["row"]
    assert batch["row"].tolist() == list(range(NUM_ROWS))


def test_the_path_of_a_file_is_a_source(tmp_path: Path) -> None:
    bs.write_table(bs.table({"x": [5, 6]}), tmp_path / "t.arrow")
    rows = TableDataset(tmp_path / "t.arrow")
    assert [rows[index]["x"].item() for index in range(len(rows))] == [5, 6]


def test_a_table_without_an_epoch_reader_is_an_error(table: bs.Table) -> None:
    with pytest.raises(InvalidArgumentError, match=r"expected an EpochReader, such as EpochReader\(table.*found Table"):
        EpochDataset(table)  # type: ignore[arg-type]


def test_columns_become_tensors_or_lists() -> None:
    batch = bs.record_batch(
        {
            "i": bs.array([1, 2], "int8"),
            "f": bs.array([1.5, 2], "float16"),
            "b": [True, False],
            "v": bs.array([[1.0, 2.0], [3.0, 4.0]], bs.list_(bs.float32(), 2)),
            "s": ["a", None],
            "l": [[1], [2, 3]],
            "m": [[[1], [2, 3]], None],
        }
    )
    tensors = to_tensors(batch, fill_null={"m": 0})
    assert [tensors[name].dtype for name in "ifbv"] == [torch.int8, torch.float16, torch.bool, torch.float32]
    assert tensors["v"].shape == (2, 2)
    assert tensors["b"].tolist() == [True, False]
    assert tensors["s"] == ["a", None]
    assert tensors["l"].layout == torch.jagged
    assert [row.tolist() for row in tensors["l"].unbind()] == [[1], [2, 3]]
    assert tensors["m"] == [[[1], [2, 3]], []]
    for column in ([1, None], bs.array([[1.0, None]], bs.list_(bs.float32(), 2))):
        with pytest.raises(InvalidDataError, match=r"column .n.: row [01]: found null: use fill_null"):
            to_tensors(bs.record_batch({"n": column}))


def send(batch: Any) -> Any:
    """Return a batch as it is received from another process, by PyTorch's shared memory."""
    return pickle.loads(bytes(ForkingPickler.dumps(batch)))


def test_small_tensors_of_a_batch_are_sent_as_one_tensor() -> None:
    limit = 1 << 17
    columns = {
        "i": torch.tensor([1, 2], dtype=torch.int8),
        "f": torch.tensor([1.5, -0.0], dtype=torch.bfloat16),
        "text": ["a", None],
        "j": torch.tensor([3, 4], dtype=torch.int8),
        "v": torch.tensor([[1, 2], [3, 4]], dtype=torch.int8),
        "e": torch.empty(0, dtype=torch.int8),
        "strided": torch.arange(4, dtype=torch.int8)[::2],
        "small": torch.zeros(limit, dtype=torch.uint8),
        "limit": torch.ones(limit, dtype=torch.uint8),
        "large": torch.ones(limit + 1, dtype=torch.uint8),
        "larger": torch.zeros(limit + 1, dtype=torch.uint8),
        "ragged": torch.nested.nested_tensor_from_jagged(torch.arange(3), torch.tensor([0, 1, 3])),
        "csr": torch.eye(2).to_sparse_csr(),
        "scalar": torch.tensor(5),
        "complex": torch.tensor([[1 + 2j]]),
        "bool": torch.tensor([True, False, True]),
    }
    _, (others, _, large, _, pack), _ = _reduce_batch(TensorBatch(columns))
    assert [name for name, value in others.items() if value is not None] == ["text", "large", "larger", "csr"]
    assert not large
    packed = ["i", "f", "j", "v", "e", "strided", "small", "limit", "scalar", "complex", "bool"]
    assert pack.nbytes == sum(columns[name].nbytes for name in packed) + (3 + 3) * 8
    received = send(TensorBatch(columns))
    assert type(received) is TensorBatch
    assert list(received) == list(columns)
    for name, expected in columns.items():
        found = received[name]
        if not torch.is_tensor(expected):
            assert found == expected
            continue
        assert (found.dtype, found.layout) == (expected.dtype, expected.layout)
        values = (expected.values(), found.values()) if name in ("ragged", "csr") else (expected, found)
        assert torch.equal(*values), name
    assert torch.equal(received["ragged"].offsets(), columns["ragged"].offsets())
    assert torch.signbit(received["f"]).tolist() == [False, True]
    assert send(TensorBatch()) == {}
    parameter = torch.ones(2, requires_grad=True)
    assert send(TensorBatch(a=parameter, b=parameter))["b"].requires_grad
    quantized = [torch.quantize_per_tensor(torch.tensor([1.0]), scale, 0, torch.qint8) for scale in (0.1, 10)]
    for tensors in (quantized, [torch.ones(2)]):
        _, (_, _, _, _, pack), _ = _reduce_batch(TensorBatch(dict(zip("ab", tensors, strict=False))))
        assert pack is None
    conjugated = torch.tensor([1 + 2j]).conj()  # views with a flag, which PyTorch does not send
    received = send(TensorBatch(a=conjugated, b=conjugated.imag))
    assert (received["a"].tolist(), received["b"].tolist()) == ([1 - 2j], [-2])


def test_jagged_tensors_are_received_as_they_were_sent() -> None:
    jagged, offsets = torch.nested.nested_tensor_from_jagged, torch.tensor([0, 1, 3])
    vectors, parameter = torch.arange(12.0).reshape(3, 4), torch.ones(3, requires_grad=True)
    batch = TensorBatch(
        a=jagged(torch.arange(3), offsets),
        b=jagged(torch.arange(3), offsets),
        vectors=jagged(vectors, offsets),
        transposed=jagged(vectors, offsets).transpose(1, 2),
        holes=jagged(torch.arange(3), offsets, lengths=torch.tensor([1, 1])),
        parameter=jagged(parameter, offsets),
        empty=jagged(torch.empty(0), torch.tensor([0, 0])),
        large=jagged(torch.arange(100_000), torch.tensor([0, 100_000])),
    )
    _, (others, indices, tensors, _, _), _ = _reduce_batch(batch)
    assert [name for name, value in others.items() if value is not None] == ["transposed", "holes", "parameter"]
    assert [tensors[index].nbytes for index in indices["large"] if index in tensors] == [800_000]
    received = send(batch)
    assert list(received) == list(batch)
    for name, expected in batch.items():
        found = received[name]
        assert (found.layout, found.dtype, found.requires_grad) == (
            torch.jagged,
            expected.dtype,
            expected.requires_grad,
        )
        assert [row.tolist() for row in found.unbind()] == [row.tolist() for row in expected.unbind()], name
    # Only columns with the same offsets can be added.
    assert [row.tolist() for row in (received["a"] + received["b"]).unbind()] == [[0], [2, 4]]
    received["a"].values().add_(1)
    assert received["b"].values().tolist() == [0, 1, 2]


def test_tensors_that_were_received_are_independent() -> None:
    weight = torch.full((256,), 3.0, requires_grad=True)
    received = send(TensorBatch({f"c{index}": torch.full((256,), float(index)) for index in range(100)}))
    loss = (weight * received["c2"]).sum()
    received["c1"].mul_(weight)  # in place, with a gradient
    received["c3"].add_(1)
    loss.backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [2] * 256
    assert received["c1"].requires_grad
    assert not received["c2"].requires_grad
    assert [received[f"c{index}"][0].item() for index in range(5)] == [0, 3, 2, 4, 4]
    assert received["c2"].untyped_storage().nbytes() == 1024  # kept by a loop that collects labels


class NamedBatch(TensorBatch):
    """A batch of a class of its own, as a transform may return."""


def test_batches_with_attributes_and_of_other_classes_are_sent_and_copied_as_they_are() -> None:
    batch: Any
    for batch in (TensorBatch(a=torch.ones(2), b=torch.zeros(2)), NamedBatch(a=torch.ones(2), b=torch.zeros(2))):
        batch.name = "first"
        for other in (send(batch), pickle.loads(pickle.dumps(batch)), copy.deepcopy(batch), copy.copy(batch)):
            assert (type(other), other.name) == (type(batch), "first")
            assert {name: tensor.tolist() for name, tensor in other.items()} == {"a": [1, 1], "b": [0, 0]}
        assert copy.copy(batch)["a"] is batch["a"]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_many_columns_are_received_from_workers(num_workers: int) -> None:
    rows = np.arange(1_000)
    table = bs.table({f"c{index}": (rows + index).astype(("i4", "f4", "?")[index % 3]) for index in range(700)})
    received = loader(table, 256, num_workers=num_workers)
    for start, batch in zip(range(0, 1_000, 256), received, strict=True):
        assert list(batch) == table.column_names
        for name, tensor in batch.items():
            assert np.array_equal(tensor.numpy(), table[name].to_numpy()[start : start + 256])
            if tensor.dtype != torch.bool:
                tensor.add_(1)
        changed = np.arange(start, min(start + 256, 1_000), dtype="i4")
        assert np.array_equal(batch["c0"].numpy(), changed + 1)
        assert np.array_equal(batch["c3"].numpy(), changed + 4)


def test_nulls_are_replaced_and_marked_on_request() -> None:
    batch = bs.record_batch({"i": [1, None], "b": [None, True], "s": ["a", None], "f": [None, 2.5]})
    tensors = to_tensors(batch, fill_null={"i": 7, "b": False, "f": -1})
    assert [tensors[name].tolist() for name in "ibf"] == [[1, 7], [False, True], [-1, 2.5]]
    assert to_tensors(batch, fill_null=0)["b"].tolist() == [False, True]
    with pytest.raises(InvalidDataError, match="column 'b': row 0: found null"):
        to_tensors(batch, fill_null={"i": 7})
    tensors = to_tensors(batch, validity_suffix="_is_valid", fill_null={"i": 7})
    assert list(tensors) == ["i", "i_is_valid", "b", "b_is_valid", "s", "f", "f_is_valid"]
    assert [tensors[f"{name}_is_valid"].tolist() for name in "ibf"] == [[True, False], [False, True], [False, True]]
    assert [tensors[name].tolist() for name in "ibf"] == [[1, 7], [False, True], [0, 2.5]]
    whole = bs.record_batch([bs.array([1])], schema=bs.schema([bs.field("i", bs.int64(), nullable=False)]))
    assert list(to_tensors(whole, validity_suffix="_is_valid")) == ["i"]
    table = bs.table(batch)
    assert next(iter(EpochDataset(EpochReader(table, 2), fill_null=0)))["i"].tolist() == [1, 0]
    assert next(iter(DataLoader(TableDataset(table, fill_null=0), batch_size=2)))["i"].tolist() == [1, 0]


def test_dir_lists_only_the_names_of_the_module() -> None:
    import bowstring.datasets.torch as module

    names = ["EpochDataset", "TableDataset", "TensorBatch", "TensorRow", "TensorRows", "loader", "to_tensors"]
    assert dir(module) == names
