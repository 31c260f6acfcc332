"""Readers of an epoch: every row exactly once and in one order, whatever ranks read it and wherever they stop."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import bowstring as bs
from bowstring.datasets.dataset import Dataset, DatasetPart
from bowstring.datasets.order import RowOrder
from bowstring.datasets.reader import EpochReader
from bowstring.errors import ConnectionLostError, InvalidArgumentError, InvalidDataError, NotFoundError
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.server.server import Server
from tests.transports.certificates import Authority


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


class FileFolder:
    """Arrow files of tables, which have URIs like those of a server."""

    def __init__(self, folder: Path, tables: dict[str, bs.Table]) -> None:
        self._folder = folder
        for name, table in tables.items():
            with bs.new_file(folder / f"{name}.arrow", table.schema, compression="zstd") as writer:
                for batch in table.to_batches():
                    writer.write(batch)

    def uri(self, name: str) -> str:
        return (self._folder / f"{name}.arrow").as_uri()

    def size_bytes(self, name: str) -> int:
        return (self._folder / f"{name}.arrow").stat().st_size


def dataset_of(server: bs.sharing.Server | FileFolder, lengths: dict[str, int]) -> Dataset:
    """Return a data set whose parts are the tables of a server."""
    parts = [
        DatasetPart(
            length,
            server.size_bytes(name) if isinstance(server, FileFolder) else length * 20,
            (server.uri(name),),
        )
        for name, length in lengths.items()
    ]
    return Dataset("rows", bs.schema({"row": "int64", "text": "string"}), parts)


SHAPES = st.lists(st.integers(0, 30), max_size=6)
STOPS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6), st.integers(1, 3)), max_size=6)


def read_with_stops(create_reader: Callable[..., EpochReader], stops: list[tuple[int, int, int]]) -> list[int]:
    """Return the rows of an epoch that is stopped and resumed: by a number of ranks, each after some steps of each of
    its workers, of which there is a number, too.
    """
    state: dict[str, Any] | None = None
    rows: list[int] = []
    for world_size, steps, num_workers in stops:
        ranks = [create_reader(rank=rank, world_size=world_size) for rank in range(world_size)]
        # In the order in which a loop over all ranks receives the batches of their workers.
        workers = [rank.for_worker(worker, num_workers) for worker in range(num_workers) for rank in ranks]
        for worker in workers:
            if state is not None:
                worker.load_state_dict(json.loads(json.dumps(state)))
        iterators = list(map(iter, workers))
        for _ in range(steps):
            received = [next(iterator, None) for iterator in iterators]
            rows += [row for batch in received if batch is not None for row in read_rows(batch)]
            if received[-1] is None:
                return rows
        states = [worker.state_dict() for worker in workers]
        assert all(each == states[0] for each in states), "each worker has read equally many batches"
        state = states[0]
    return rows


@given(SHAPES, st.integers(1, 20), st.none() | st.integers(0, 99), st.integers(1, 64), STOPS, st.integers(1, 5))
def test_ranks_that_stop_and_resume_in_other_numbers_read_each_row_once_and_in_order(
    lengths: list[int],
    batch_rows: int,
    seed: int | None,
    window_rows: int,
    stops: list[tuple[int, int, int]],
    last_world_size: int,
) -> None:
    table = table_of(*lengths)
    create_reader = partial(EpochReader, table, batch_rows, seed=seed, window_rows=window_rows)
    rows = read_with_stops(create_reader, [*stops, (last_world_size, 10_000, 2)])
    assert rows == RowOrder((table.num_rows,), seed, window_rows).rows(0, 0, table.num_rows).tolist()


PART_LENGTHS = (0, 1, 2, 5, 9, 14, 30, 31)


@pytest.fixture(scope="module", params=["unix", "tcp", "file"])
def server_of_parts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[bs.sharing.Server | FileFolder]:
    """Serve a table of each of `PART_LENGTHS`."""
    tables = {str(length): table_of(length) for length in PART_LENGTHS}
    if request.param == "file":
        yield FileFolder(tmp_path_factory.mktemp("parts"), tables)
        return
    with bs.serve(tables, scheme=request.param) as server:
        yield server


@settings(max_examples=30)
@given(
    lengths=st.lists(st.sampled_from(PART_LENGTHS), max_size=6, unique=True),
    batch_rows=st.integers(1, 20),
    seed=st.none() | st.integers(0, 99),
    window_rows=st.integers(1, 64),
    prefetch_bytes=st.integers(0, 2000),
    stops=STOPS,
    last_world_size=st.integers(1, 5),
)
def test_ranks_and_workers_that_stop_and_resume_read_each_row_of_a_data_set_once_and_in_order(
    server_of_parts: bs.sharing.Server | FileFolder,
    lengths: list[int],
    batch_rows: int,
    seed: int | None,
    window_rows: int,
    prefetch_bytes: int,
    stops: list[tuple[int, int, int]],
    last_world_size: int,
) -> None:
    dataset = dataset_of(server_of_parts, {str(length): length for length in lengths})
    create_reader = partial(
        EpochReader, dataset, batch_rows, seed=seed, window_rows=window_rows, prefetch_bytes=prefetch_bytes
    )
    rows = read_with_stops(create_reader, [*stops, (last_world_size, 10_000, 1)])
    values = np.concatenate([np.arange(length) for length in (0, *lengths)])
    order = RowOrder(lengths, seed, window_rows)
    assert rows == values[order.rows(0, 0, order.num_rows)].tolist()


@pytest.mark.parametrize("end", ["keep", "drop", "pad"])
@pytest.mark.parametrize("num_rows", [0, 1, 9, 10, 11, 60, 61, 99])
@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.parametrize("num_workers", [1, 4])
def test_the_end_of_an_epoch_is_kept_dropped_or_padded(
    end: Any, num_rows: int, world_size: int, num_workers: int
) -> None:
    table = table_of(num_rows)
    readers = [EpochReader(table, 10, seed=1, rank=rank, world_size=world_size, end=end) for rank in range(world_size)]
    lengths = [len(reader) for reader in readers]
    batches = []
    for reader in readers:
        workers = [list(reader.for_worker(worker, num_workers)) for worker in range(num_workers)]
        in_turn = [batch for received in zip_longest(*workers) for batch in received if batch is not None]
        batches.append(list(map(read_rows, in_turn)))
    assert lengths == list(map(len, batches))
    order = RowOrder((num_rows,), 1).rows(0, 0, num_rows).tolist()
    rows = [row for received in zip_longest(*batches, fillvalue=[]) for batch in received for row in batch]
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


def test_the_batches_of_a_rank_are_those_of_its_workers_in_turn() -> None:
    reader = EpochReader(table_of(100), 6, seed=5, rank=1, world_size=2)
    workers = [iter(reader.for_worker(worker, 3)) for worker in range(3)]
    whole = list(map(read_rows, reader))
    assert [read_rows(next(workers[index % 3])) for index in range(len(whole))] == whole
    with pytest.raises(InvalidArgumentError, match="worker: expected an integer below 3, found 3"):
        reader.for_worker(3, 3)


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


def test_the_path_of_a_file_or_folder_is_a_source(tmp_path: Path) -> None:
    for index in range(2):
        bs.write_table(bs.table({"x": [index, index + 10]}), tmp_path / f"{index}.arrow")
    for path, values in ((tmp_path, [0, 10, 1, 11]), (tmp_path / "1.arrow", [1, 11])):
        reader = EpochReader(path, batch_rows=3)
        for each in (reader, pickle.loads(pickle.dumps(reader))):
            assert [x for batch in each for x in batch["x"].to_pylist()] == values


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


def test_parts_in_shared_memory_are_mapped_once_and_others_are_read_again() -> None:
    lengths = {"a": 300, "b": 200}
    for scheme in ("unix", "tcp"):
        with bs.serve({name: table_of(length) for name, length in lengths.items()}, scheme=scheme) as server:
            reader = EpochReader(dataset_of(server, lengths), 16, seed=1, columns=["row"])
            assert sum(batch.num_rows for batch in reader) == 500
        if scheme == "unix":
            assert sum(batch.num_rows for batch in reader) == 500
        else:
            with pytest.raises(ConnectionLostError):
                list(reader)


def test_columns_of_a_data_set_are_selected() -> None:
    with bs.serve({"a": table_of(30)}) as server:
        dataset = dataset_of(server, {"a": 30})
        (batch,) = EpochReader(dataset, 30, columns=["text"])
        assert batch.to_pydict() == {"text": [f"row {row}" for row in range(30)]}
        with pytest.raises(NotFoundError, match="price"):
            EpochReader(dataset, 30, columns=["price"])


def test_a_pickled_reader_opens_its_source_again_at_the_same_position() -> None:
    with bs.serve({"a": table_of(50), "b": table_of(40)}) as server:
        for source in (dataset_of(server, {"a": 50, "b": 40}), [server.uri("a"), server.uri("b")], server.uri("a")):
            reader = EpochReader(source, 8, seed=4, rank=1, world_size=2)
            iterator = iter(reader)
            next(iterator)
            resumed = pickle.loads(pickle.dumps(reader))
            assert [read_rows(batch) for batch in resumed] == [read_rows(batch) for batch in iterator]


def test_the_reader_of_a_connected_data_set_is_a_source() -> None:
    with bs.serve({"a": table_of(30)}) as server, bs.connect(server.uri("a")) as connected:
        (batch,) = EpochReader(connected, 30)
    assert read_rows(batch) == list(range(30))


def test_parts_of_other_hosts_are_read_with_tls(authority: Authority) -> None:
    addresses = {"unix": None, "tcp+tls": "127.0.0.1:0"}
    with Server(options=ServerOptions(tls=authority.server()), addresses=addresses) as server:
        server.add("a", table_of(30))
        uris = server.locations("a").uris
        encrypted = [uri for uri in uris if uri.startswith("tcp+tls")]
        for locations in (uris, encrypted):
            dataset = Dataset("rows", table_of(0).schema, [DatasetPart(30, 600, tuple(locations))] * 2)
            reader = EpochReader(dataset, 30, tls=authority.client())
            assert [read_rows(batch) for batch in reader] == [list(range(30))] * 2


def test_parts_that_differ_from_their_description_are_errors() -> None:
    with bs.serve({"a": table_of(30)}) as server:
        dataset = dataset_of(server, {"a": 31})
        with pytest.raises(InvalidDataError, match=r"^unix:@bowstring-\w+.*: expected 31 rows, found 30$"):
            list(EpochReader(dataset, 4))
        other = Dataset("rows", bs.schema({"row": "int32"}), dataset_of(server, {"a": 30}).parts)
        with pytest.raises(InvalidDataError, match="int32"):
            list(EpochReader(other, 4))
    missing = Dataset("rows", dataset.schema, [DatasetPart(0, 0, ()), DatasetPart(7, 0, ())])
    with pytest.raises(NotFoundError, match="data set 'rows': part 1: 7 rows, but no location"):
        list(EpochReader(missing, 4))


_PART_BYTES = 4 << 20
_READ_REMOTE_PARTS = f"""if True:
    import json, sys
    import bowstring as bs
    from bowstring.datasets import Dataset, EpochReader, reader as reader_module
    from tests.peak_memory import peak_bytes, reset_peak
    reader_module._MAX_GATHERED_BYTES = {_PART_BYTES}
    dataset = Dataset.from_json(sys.stdin.read())
    reader = EpochReader(dataset, 100, seed=2, window_rows=1000, prefetch_bytes={_PART_BYTES * 3})
    iterator = iter(reader)
    rows = next(iterator).column("row").to_pylist()
    reset_peak()
    first = peak_bytes()
    for batch in iterator:
        rows += batch.column("row").to_pylist()
    print(json.dumps([sorted(rows) == list(range(reader.order.num_rows)), peak_bytes() - first]))
"""


def test_the_memory_for_a_remote_data_set_is_limited() -> None:
    count, rows = 48, 500
    schema = bs.schema({"row": "int64", "content": "binary"})
    content = bytes(_PART_BYTES // rows)
    tables = {
        str(part): bs.table({"row": list(range(part * rows, (part + 1) * rows)), "content": [content] * rows}, schema)
        for part in range(count)
    }
    with bs.serve(tables, scheme="tcp") as server:
        parts = [DatasetPart(rows, table.nbytes, (server.uri(name),)) for name, table in tables.items()]
        output = subprocess.run(
            [sys.executable, "-c", _READ_REMOTE_PARTS],
            input=Dataset("large", schema, parts).to_json().encode(),
            capture_output=True,
            check=True,
        ).stdout
    is_complete, growth_bytes = json.loads(output)
    assert is_complete
    assert growth_bytes < count * _PART_BYTES // 3


def test_a_forked_process_continues_with_its_own_threads() -> None:
    code = """if True:
        import multiprocessing, sys
        from bowstring.datasets import Dataset, EpochReader
        reader = EpochReader(Dataset.from_json(sys.stdin.read()), 4, seed=2, window_rows=4, prefetch_bytes=10)
        iterator = iter(reader)
        next(iterator)
        def read_next_epoch():
            print(sorted(row for batch in reader for row in batch.column("row").to_pylist()))
        process = multiprocessing.get_context("fork").Process(target=read_next_epoch)
        process.start()
        process.join(60)
        assert process.exitcode == 0, process.exitcode
        next(iterator)
    """
    lengths = {str(length): length for length in PART_LENGTHS}
    with bs.serve({name: table_of(length) for name, length in lengths.items()}, scheme="tcp") as server:
        text = dataset_of(server, lengths).to_json()
        output = subprocess.run(
            [sys.executable, "-c", code], input=text.encode(), capture_output=True, check=True
        ).stdout
    assert len(json.loads(output)) == sum(PART_LENGTHS)


def test_arguments_out_of_range_are_errors() -> None:
    table = table_of(3)
    arguments: list[tuple[str, Any]] = [("rank", 1), ("rank", -1), ("world_size", 0), ("end", "stop"), ("seed", -1)]
    arguments += [("window_rows", 0), ("prefetch_bytes", -1)]
    arguments += [(name, 1.5) for name in ("rank", "world_size", "seed", "window_rows", "prefetch_bytes")]
    for name, value in arguments:
        with pytest.raises(InvalidArgumentError, match=name):
            EpochReader(table, 1, **{name: value})
    for batch_rows in (0, 1.5, "2"):
        with pytest.raises(InvalidArgumentError, match="batch_rows"):
            EpochReader(table, batch_rows)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="worker must be an integer"):
        EpochReader(table, 1).for_worker(0.5, 2)  # type: ignore[arg-type]
    for epoch in (-1, 1 << 63):
        with pytest.raises(InvalidArgumentError, match=f"epoch: expected an integer from 0 to .*, found {epoch}"):
            EpochReader(table, 1).set_epoch(epoch)
        with pytest.raises(InvalidArgumentError, match=f"epoch: expected an integer from 0 to .*, found {epoch}"):
            RowOrder([3], seed=1).rows(epoch, 0, 3)


def test_integers_of_numpy_are_arguments() -> None:
    reader = EpochReader(table_of(9), np.int64(4), seed=np.uint64(1), window_rows=np.int32(5))  # type: ignore[arg-type]
    assert (
        json.loads(json.dumps(reader.state_dict())) == EpochReader(table_of(9), 4, seed=1, window_rows=5).state_dict()
    )


def test_a_state_of_another_order_or_of_no_reader_is_an_error() -> None:
    reader = EpochReader(table_of(30), 4, seed=2)
    state = reader.state_dict()
    others = {"version": 2, "num_rows": "30", "num_parts": True, "parts": "", "row_selection": ["x > 5"]}
    others |= {"batch_rows": 5, "seed": 3, "window_rows": 9, "epoch": -1, "next_batch": 1 << 63}
    assert list(others) == list(state)
    for name, value in others.items():
        with pytest.raises(InvalidDataError, match="other data" if name in ("parts", "row_selection") else name):
            reader.load_state_dict({**state, name: value})
        with pytest.raises(InvalidDataError, match=f"expected '{name}'"):
            reader.load_state_dict({key: other for key, other in state.items() if key != name})
    for name, value in (("epoch", True), ("next_batch", 1.0)):
        with pytest.raises(InvalidDataError, match=f"state: {name}: expected an integer of 0 or more, found {value}"):
            reader.load_state_dict({**state, name: value})
    for other in (None, [1]):
        with pytest.raises(InvalidDataError, match="state: expected a dictionary of state_dict, found"):
            reader.load_state_dict(other)  # type: ignore[arg-type]
    with pytest.raises(InvalidDataError, match="state: version: expected 3, as of this reader, found 2"):
        reader.load_state_dict({"version": 2, "parts": state["parts"]})
    assert reader.state_dict() == state
    assert "30 rows shuffled with seed 2, in batches of 4: rank 0 of 1, at batch 0 of epoch 0" in repr(reader)


def test_a_state_of_other_data_names_their_rows_and_parts(tmp_path: Path) -> None:
    folder = FileFolder(tmp_path, {str(length): table_of(length) for length in (100, 130, 70, 200)})

    def create(*lengths: int) -> EpochReader:
        return EpochReader(dataset_of(folder, {str(length): length for length in lengths}), 4, seed=2)

    state = json.loads(json.dumps(create(130, 70).state_dict()))
    create(130, 70).load_state_dict(state)
    for lengths, difference in (
        ((200,), "200 rows in 2 parts, not 200 rows in 1 part"),
        ((70, 130), "200 rows in 2 parts of other lengths"),
        ((100, 70), "200 rows in 2 parts, not 170 rows in 2 parts"),
    ):
        with pytest.raises(InvalidDataError, match=f"^state: this checkpoint belongs to other data: {difference}$"):
            create(*lengths).load_state_dict(state)
    selected = {**state, "num_rows": 90, "row_selection": ["x > 5"]}
    difference = r"90 rows in 2 parts \(\['x > 5'\]\), not 200 rows in 2 parts"
    with pytest.raises(InvalidDataError, match=difference):
        create(130, 70).load_state_dict(selected)
    many = Dataset("many", bs.schema({"x": "int8"}), [DatasetPart(7, 7, ())] * 10_000)
    assert len(json.dumps(EpochReader(many, 4).state_dict())) < 300
