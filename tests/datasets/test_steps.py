"""Steps of data sets: select, cast, filter, split and map, applied to the rows of the parts when they are read."""

from __future__ import annotations

import itertools
import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import bowstring as bs
from bowstring.arrays.record_batch import RecordBatch
from bowstring.datasets import Dataset, DatasetPart, EpochReader
from bowstring.datasets.dataset import create_plan
from bowstring.datasets.part_tables import PartTables
from bowstring.errors import InvalidArgumentError, InvalidDataError, NotFoundError, TypeMismatchError

SCHEMA = bs.schema([("x", "int64"), ("text", "string"), ("pair", bs.list_(bs.float32()))])
Row = dict[str, Any]
Steps = list[tuple[str, Any]]


def create_rows(start: int, num_rows: int) -> list[Row]:
    """Rows of which some values are null."""
    return [
        {
            "x": None if number % 7 == 3 else number,
            "text": None if number % 5 == 4 else str(number % 11),
            "pair": [number, number / 2],
        }
        for number in range(start, start + num_rows)
    ]


def create_batch(rows: list[Row]) -> bs.RecordBatch:
    return bs.record_batch({name: [row[name] for row in rows] for name in SCHEMA.names}, schema=SCHEMA)


def write_parts(folder: Path, part_batches: list[list[list[Row]]]) -> Dataset:
    """Write each part into a file with statistics."""
    parts = []
    for index, batches in enumerate(part_batches):
        path = folder / f"{index}.arrow"
        with bs.new_file(path, SCHEMA) as writer:
            writer.enable_statistics(["x", "text"])
            for rows in batches:
                writer.write(create_batch(rows))
        parts.append(DatasetPart(sum(map(len, batches)), path.stat().st_size, (f"file://{path}",)))
    return Dataset("numbers", SCHEMA, parts)


def serve_parts(part_batches: list[list[list[Row]]], scheme: str) -> tuple[Any, Dataset]:
    tables = {str(i): bs.Table(SCHEMA, map(create_batch, batches)) for i, batches in enumerate(part_batches)}
    server = bs.serve(tables, address="127.0.0.1:0", scheme="tcp") if scheme == "tcp" else bs.serve(tables)
    parts = [DatasetPart(table.num_rows, table.nbytes, (server.uri(name),)) for name, table in tables.items()]
    return server, Dataset("numbers", SCHEMA, parts)


PART_BATCHES: list[list[list[Row]]] = [
    [create_rows(0, 10), [], create_rows(10, 3)],
    [],
    [create_rows(13, 1)],
    [create_rows(20 * i, 20) for i in range(1, 6)],
    [[]],
    [create_rows(200, 9)],
]
PARTS = [[row for rows in batches for row in rows] for batches in PART_BATCHES]


@pytest.fixture(scope="module", params=["unix", "tcp", "file", "store"])
def numbers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    """The same parts in shared memory, on a server over TCP, in files and in a store."""
    if request.param in ("unix", "tcp"):
        server, dataset = serve_parts(PART_BATCHES, request.param)
        with server:
            yield dataset
        return
    dataset = write_parts(tmp_path_factory.mktemp("parts"), PART_BATCHES)
    if request.param == "store":
        urls = []
        for index, part in enumerate(dataset.parts):
            urls.append(f"memory://steps/{index}.arrow")
            with bs.new_file(urls[-1], SCHEMA) as writer:
                writer.enable_statistics(["x", "text"])
                for batch in dataset.with_parts([part]):
                    writer.write(batch)
        parts = [DatasetPart(part.num_rows, 0, (url,)) for part, url in zip(dataset.parts, urls, strict=True)]
        dataset = dataset.with_parts(parts)
    yield dataset


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_parts(tmp_path_factory.mktemp("files"), PART_BATCHES)


def negate(batch: RecordBatch) -> Any:
    """Return the columns with another one, of which each row depends on that row alone."""
    columns = {name: batch[index] for index, name in enumerate(batch.schema.names) if name != "minus"}
    values = batch["x"].to_pylist()
    minus = bs.array([None if value is None else -int(value) for value in values], "int64")
    return bs.record_batch({**columns, "minus": minus})


def apply(dataset: Dataset, steps: Steps) -> Dataset:
    for name, argument in steps:
        if name == "select":
            dataset = dataset.select([column for column in argument if column in dataset.schema.names])
        elif name == "cast":
            dataset = dataset.cast({argument[0]: argument[1]})
        elif name == "filter":
            dataset = dataset.filter(argument)
        elif name == "map":
            dataset = dataset.map(negate)
        else:
            dataset = dataset.split({"a": 0.5, "b": 0.25}, seed=argument[1])[argument[0]]
    return dataset


def refer(rows: list[Row], steps: Steps) -> list[Row]:
    """Apply steps, without splits, to one row after the other."""
    for name, argument in steps:
        if name == "select":
            rows = [{column: row[column] for column in argument if column in row} for row in rows]
        elif name == "cast":
            convert: Callable[[Any], Any] = {"string": str, "float64": float, "int32": int}[argument[1]]
            rows = [row | {c: None if (v := row[c]) is None else convert(v) for c in argument[:1]} for row in rows]
        elif name == "filter":
            rows = [row for row in rows if any(all(_matches(row, *one) for one in group) for group in argument)]
        elif name == "map":
            rows = [row | {"minus": None if row["x"] is None else -int(row["x"])} for row in rows]
    return rows


def _matches(row: Row, column: str, operator: str, value: Any = None) -> bool:
    if operator == "is null":
        return row[column] is None
    if row[column] is None:
        return False
    return bool(row[column] > value if operator == ">" else row[column] < value)


def is_possible(steps: Steps) -> bool:
    """Whether the columns that steps need have types with which they work."""
    columns, types = ["x", "text", "pair"], {"x": "int64", "text": "string"}
    for name, argument in steps:
        if name == "select":
            columns = [column for column in argument if column in columns]
        elif name == "cast":
            if argument[0] not in columns:
                return False
            types[argument[0]] = argument[1]
        elif name == "filter":
            for column, _, *value in itertools.chain(*argument):
                is_text = types.get(column) == "string"
                if column not in columns or (value and is_text != isinstance(value[0], str)):
                    return False
        elif name == "map":
            if "x" not in columns:
                return False
            columns = [column for column in columns if column != "minus"] + ["minus"]
            types["minus"] = "int64"
    return True


_FILTERS = [
    [[("x", ">", 30)]],
    [[("x", "<", 12)], [("x", ">", 90), ("text", "is null")]],
    [[("text", ">", "4")]],
    [[("text", "is null")]],
    [[("text", ">", 4)]],
    [[("minus", "<", -20)]],
    [[("x", ">", 10_000)]],
]
single_steps = st.one_of(
    st.tuples(st.just("select"), st.permutations(["x", "text", "pair", "minus"]).map(lambda names: names[:3])),
    st.tuples(
        st.just("cast"),
        st.sampled_from([("x", "float64"), ("x", "int32"), ("text", "float64"), ("text", "int32"), ("minus", "int32")]),
    ),
    st.tuples(st.just("filter"), st.sampled_from(_FILTERS)),
    st.tuples(st.just("map"), st.none()),
)
step_lists = st.lists(single_steps, max_size=5).filter(is_possible)


@settings(deadline=None)
@given(step_lists, st.integers(1, 40), st.sampled_from([None, 7]))
def test_any_steps_give_the_rows_of_each_row_alone(
    numbers: Dataset, steps: Steps, batch_rows: int, seed: int | None
) -> None:
    dataset, expected = apply(numbers, steps), [refer(rows, steps) for rows in PARTS]
    rows = list(itertools.chain(*expected))
    assert list(dataset.head(3).to_pylist()) == rows[:3]
    assert dataset.part_rows == tuple(map(len, expected))
    assert dataset.read_all().to_pylist() == rows
    assert dataset.read_rows(len(rows) // 3, len(rows) // 2).to_pylist() == rows[len(rows) // 3 : len(rows) // 2]
    reader = EpochReader(dataset, batch_rows, seed=seed)
    read = [row for batch in reader for row in batch.to_pylist()]
    ordered = [rows[index] for index in reader.order.rows(0, 0, len(rows)).tolist()]
    assert read == ordered


@settings(deadline=None)
@given(step_lists, step_lists, st.integers(0, 3), st.integers(1, 30))
def test_splits_between_any_steps_are_disjoint_and_complete(
    files: Dataset, before: Steps, after: Steps, seed: int, batch_rows: int
) -> None:
    if not is_possible([*before, *after]):
        return
    whole = apply(files, [*before, *after]).read_all().to_pylist()
    splits = apply(files, before).split({"a": 0.6, "b": 0.3, "c": 0.1}, seed)
    split_rows = []
    for split in splits.values():
        rows = apply(split, after)
        table = rows.read_all()
        assert table.num_rows == rows.num_rows
        reader = EpochReader(rows, batch_rows, seed=seed)
        batches = [row for batch in reader for row in batch.to_pylist()]
        assert batches == [table.to_pylist()[i] for i in reader.order.rows(0, 0, rows.num_rows).tolist()]
        split_rows += table.to_pylist()
    assert sorted(map(repr, split_rows)) == sorted(map(repr, whole))


def test_everything_that_reads_a_data_set_applies_its_steps(numbers: Dataset) -> None:
    steps: Steps = [("filter", [[("x", ">", 30)]]), ("cast", ("text", "int32")), ("select", ["text", "x"])]
    dataset, rows = apply(numbers, steps), list(itertools.chain(*(refer(part, steps) for part in PARTS)))
    assert dataset.schema == bs.schema([("text", "int32"), ("x", "int64")])
    assert [row for batch in dataset for row in batch.to_pylist()] == rows
    assert bs.table(dataset).to_pylist() == rows
    assert [row for rank in range(3) for row in dataset.read_rank(rank, 3).to_pylist()] == rows
    assert dataset.to_pandas()["x"].tolist() == [row["x"] for row in rows]
    assert dataset.read_all([("text", "==", 3)]).to_pylist() == [row for row in rows if row["text"] == 3]
    assert dataset[3:4].read_all().to_pylist() == refer(PARTS[3], steps)
    assert dataset.with_parts(dataset.parts[-1:]).read_all().to_pylist() == refer(PARTS[-1], steps)
    assert EpochReader(dataset, 5, columns=["x"]).order.num_rows == len(rows)


def test_shared_memory_stays_where_it_is_until_rows_are_taken() -> None:
    server, dataset = serve_parts(PART_BATCHES, "unix")
    with server:
        filtered = dataset.filter([("x", ">", 30)]).cast({"pair": bs.list_(bs.float32(), 2)})
        tables = PartTables(filtered, "pair", prefetch_bytes=0)
        selection = tables.select(np.arange(len(PARTS)), np.empty(0, np.int64))
        assert all(part.is_mapped for part in selection._opened)
        # These are the rows of the parts as they are stored.
        assert [part.table.num_rows for part in selection._opened] == [part.num_rows for part in dataset.parts]
        assert selection._table.schema.names == ["pair"]
        assert selection._table.schema.types == [bs.list_(bs.float32())]
        assert selection.take(np.array([1, 0])).to_pydict() == {"pair": [[33.0, 16.5], [32.0, 16.0]]}


def test_batches_without_matching_rows_by_their_statistics_are_not_read(
    tmp_path: Path, batches_read: list[int]
) -> None:
    dataset = write_parts(tmp_path, [[create_rows(20 * i, 20) for i in range(5)], [create_rows(100, 9)]])
    between = dataset.select(["text", "x"]).filter([("x", ">", 45)]).filter([("x", "<", 55)])
    expected = [number for number in range(46, 55) if number % 7 != 3]
    for steps, is_skipped in (
        (between, True),
        (between.cast({"x": "int32"}), True),
        (between.split({"a": 1}, seed=7)["a"], True),
        (dataset.split({"a": 1}, seed=7)["a"].filter([("x", ">", 45), ("x", "<", 55)]), True),
        (dataset.cast({"x": "int32"}).filter([("x", ">", 45), ("x", "<", 55)]), False),
    ):
        batches_read.clear()
        assert steps.read_all()["x"].to_pylist() == expected
        assert batches_read == ([2] if is_skipped else [0, 1, 2, 3, 4, 0])
        assert steps.num_rows == len(expected)
        batches_read.clear()
        reader = EpochReader(pickle.loads(pickle.dumps(steps)), batch_rows=100)
        assert batches_read == []  # the rows were counted before
        assert [x for batch in reader for x in batch["x"].to_pylist()] == expected
        # The other part has no rows, so it is not opened.
        assert batches_read == ([2] if is_skipped else [0, 1, 2, 3, 4])


def test_a_filter_with_a_duration_of_numpy_keeps_its_unit(tmp_path: Path) -> None:
    bs.write_table(bs.table({"wait": bs.array([1, 2, 3], "duration[s]")}), tmp_path / "waits.arrow")
    waits = bs.dataset(tmp_path / "waits.arrow")
    two = np.timedelta64(2_000_000_000, "ns")
    assert waits.filter([("wait", ">=", two)]).num_rows == 2
    assert pickle.loads(pickle.dumps(waits.filter([("wait", "in", [two])]))).num_rows == 1


def test_rows_are_counted_once_with_the_columns_of_the_filters(files: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    filtered = files.cast({"pair": bs.list_(bs.float64())}).filter([("x", ">", 30)]).map(negate)
    assert repr(filtered).startswith("<bowstring.datasets.Dataset numbers: up to 123 rows, ")
    num_rows = filtered.num_rows
    assert repr(filtered).startswith(f"<bowstring.datasets.Dataset numbers: {num_rows} rows, ")
    copy = pickle.loads(pickle.dumps(filtered))
    assert copy == filtered
    assert create_plan(filtered, ()).column_indices == (0,)
    assert create_plan(filtered.select("text").filter([("text", ">", "3")]), ()).column_indices == (0, 1, 2)  # of `map`
    # These know it without reading; a new filter has to read.
    monkeypatch.setattr("bowstring.datasets.dataset.connect", None)
    assert copy.num_rows == copy.select("x").num_rows == copy.cast({"x": "string"}).num_rows == num_rows
    assert copy[2:].num_rows == sum(filtered.part_rows[2:])
    assert sum(split.num_rows for split in copy.split({"a": 0.3, "b": 0.7}, seed=1).values()) == num_rows
    assert EpochReader(copy, batch_rows=4, columns="x").order.num_rows == num_rows
    with pytest.raises(TypeError):
        copy.filter([("x", ">", 30)]).num_rows  # noqa: B018


def test_a_pickle_is_small_and_a_split_of_thousands_of_parts_is_that_of_each_part() -> None:
    parts = [DatasetPart(10, 0, (f"file:///{index}.arrow",)) for index in range(5000)]
    dataset = Dataset("many", SCHEMA, parts)
    plain = len(pickle.dumps(dataset))
    view = dataset.filter([("x", ">", 3)]).select(["x"]).cast({"x": "float32"}).map(negate, schema={"minus": "int64"})
    assert len(pickle.dumps(view)) < plain + 3000
    train, valid = dataset.split({"train": 0.75, "valid": 0.25}, seed=3).values()
    # 7 or 8 rows of each part: 7.5 on average.
    assert set(train.part_rows) == {7, 8}
    assert abs(train.num_rows - 37_500) < 200
    assert [a + b for a, b in zip(train.part_rows, valid.part_rows, strict=True)] == [10] * 5000
    assert train[4000:].part_rows == train.part_rows[4000:]


def test_a_split_of_parts_of_one_row_has_its_fraction_of_them() -> None:
    dataset = Dataset("many", SCHEMA, [DatasetPart(1, 0, (f"file:///{index}.arrow",)) for index in range(4000)])
    splits = dataset.split({"train": 0.9, "valid": 0.05}, seed=11)
    assert abs(splits["train"].num_rows - 3600) < 80
    assert abs(splits["valid"].num_rows - 200) < 60


def test_a_split_is_the_same_in_all_versions_and_differs_by_seed_and_part(files: Dataset) -> None:
    part = files.parts[3]
    twice = files.with_parts([part, part]).select("pair")
    rows = [
        [int(pair[0]) for pair in each.read_all()["pair"].to_pylist()] for each in twice.split({"a": 0.1}, 7).values()
    ]
    assert rows == [[20, 21, 43, 47, 53, 68, 93, 96, 99, 108, 20, 35, 39, 40, 41, 46, 52, 97, 100, 116]]
    other = twice.split({"a": 0.1}, 8)["a"].read_all()["pair"].to_pylist()
    assert [int(pair[0]) for pair in other] != rows[0]
    assert rows[0][:10] != rows[0][10:]


def test_equal_fractions_that_are_rounded_are_complete(files: Dataset) -> None:
    for fractions in (
        {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3},
        {"a": 0.7, "b": 0.2, "c": 0.1},
        {str(i): 0.1 for i in range(10)},
    ):
        splits = files.split(fractions, seed=0).values()
        assert sum(split.num_rows for split in splits) == files.num_rows


def test_filters_after_a_split_leave_its_rows_the_same_although_batches_are_not_read(files: Dataset) -> None:
    for dataset in (files, files.filter([("text", ">", "1")]), files.split({"a": 0.7}, seed=1)["a"]):
        split = dataset.split({"a": 0.5}, seed=7)["a"]
        expected = [x for x in split.read_all()["x"].to_pylist() if x is not None and x > 85]
        assert 5 < len(expected) < 30
        assert split.filter([("x", ">", 85)]).read_all()["x"].to_pylist() == expected


def test_a_part_of_a_split_stays_the_same_in_slices(files: Dataset) -> None:
    train = files.split({"train": 0.8}, seed=5)["train"]
    whole = train.read_all().to_pylist()
    slices = [train[index : index + 1] for index in range(len(train.parts))]
    assert [row for each in slices for row in each.read_all().to_pylist()] == whole
    assert [row for part in train.parts for row in train.with_parts([part]).read_all().to_pylist()] == whole
    again = train.filter([("x", ">", 30)]).split({"a": 0.5}, seed=1)["a"]
    assert [
        row for i in range(len(again.parts)) for row in again[i:][:1].read_all().to_pylist()
    ] == again.read_all().to_pylist()
    for parts in ([DatasetPart(1, 0, ("file:///other.arrow",))], [files.parts[0]] * 2):
        others = files.with_parts(parts).split({"a": 0.5}, seed=1)["a"] if len(parts) == 2 else train
        with pytest.raises(InvalidArgumentError, match=r"with_parts: a split needs some of its own parts"):
            others.with_parts(parts)


def test_steps_that_choose_rows_are_described(files: Dataset) -> None:
    train = files.filter([("x", ">", 5)]).map(negate).split({"train": 0.9, "valid": 0.1}, seed=7)["train"]
    last = train.filter([[("text", "in", set("hgfedcba"))], [("x", "is null")]])
    assert PartTables(last.select("x"), None, 0).row_selection == (
        "filter [('x', '>', 5)]",
        "split 'train' of {'train': 0.9, 'valid': 0.1}, seed 7",
        "filter [[('text', 'in', ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'])], [('x', 'is null')]]",
    )
    assert PartTables(bs.table({"x": [1]}), None, 0).row_selection == ()
    long, same, other = (
        PartTables(files.filter([("x", "in", [*map(np.int64, range(1000)), last])]), None, 0).row_selection[0]
        for last in (1000, np.int32(1000), 1001)
    )
    assert long == same != other
    assert len(long) < 300
    seed: Any = np.int64(7)
    assert files.split({"a": np.float64(0.5)}, seed) == files.split({"a": 0.5}, seed=7)


def test_steps_that_change_rows_keep_checkpoints_valid(files: Dataset) -> None:
    filtered = files.filter([("x", ">", 5)])
    reader = EpochReader(filtered, batch_rows=10, seed=7)
    next(iter(reader))
    changed = EpochReader(filtered.map(negate).cast({"x": "float32"}).select(["minus"]), batch_rows=10, seed=7)
    changed.load_state_dict(reader.state_dict())
    reader.load_state_dict(reader.state_dict())
    expected = [None if x is None else -x for batch in reader for x in batch["x"].to_pylist()]
    assert [x for batch in changed for x in batch["minus"].to_pylist()] == expected


@pytest.mark.parametrize("num_workers", [0, 2])
def test_pytorch_gets_rows_by_index_and_in_epochs(num_workers: int) -> None:
    data = pytest.importorskip("torch.utils.data")
    from bowstring.datasets.torch import EpochDataset, TableDataset

    server, dataset = serve_parts(PART_BATCHES, "unix")
    with server:
        train = dataset.filter([("x", ">", 5)]).split({"train": 0.7}, seed=7)["train"].map(negate)
        expected = train.read_all()["minus"].to_pylist()
        rows = TableDataset(train, columns=["minus"])
        assert [int(rows[index]["minus"]) for index in range(len(rows))] == expected
        reader = EpochReader(train, batch_rows=16, columns=["minus"])
        for loader in (
            data.DataLoader(rows, batch_size=16, num_workers=num_workers),
            data.DataLoader(EpochDataset(reader), batch_size=None, num_workers=num_workers),
        ):
            assert [minus for batch in loader for minus in batch["minus"].tolist()] == expected


def _read_in_worker(dataset: Dataset, queue: Any) -> None:
    queue.put([batch.to_pylist() for batch in EpochReader(dataset, batch_rows=16, seed=7)])


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_workers_read_the_same_rows(method: str) -> None:
    server, dataset = serve_parts(PART_BATCHES, "unix")
    with server:
        train = dataset.filter([("x", ">", 5)]).split({"train": 0.7}, seed=7)["train"].map(negate)
        context: Any = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=_read_in_worker, args=(train, queue))
        process.start()
        read = queue.get(timeout=120)
        process.join()
        assert read == [batch.to_pylist() for batch in EpochReader(train, batch_rows=16, seed=7)]


def test_data_sets_that_are_published_own_the_memory_and_their_steps_do_not(token: str) -> None:
    table = bs.Table(SCHEMA, [create_batch(create_rows(0, 30))])
    with bs.publish(table, name="numbers") as published:
        view = published.filter([("x", ">", 5)])
        assert type(view) is Dataset
        with bs.publish(view.select("x"), name="large") as again:
            assert again.read_all() == view.select("x").read_all()
        assert view.num_rows == sum(1 for row in create_rows(0, 30) if (row["x"] or 0) > 5)
    with pytest.raises(NotFoundError):
        view.read_all()


def test_invalid_values_are_reported_with_part_and_row(numbers: Dataset) -> None:
    late = numbers.filter([("x", ">", 30)])
    cast = late.cast({"x": "int8"})
    message = r"^data set 'numbers': part 5, row (\d): column 'x': value 0: 20\1 does not fit int8$"
    for read in (
        cast.read_all,
        lambda: list(EpochReader(cast, batch_rows=1000, seed=7)),
        lambda: list(EpochReader(cast, batch_rows=1000)),
        lambda: numbers.cast({"x": "int8"}).filter([("x", ">", 30)]).num_rows,
    ):
        with pytest.raises(TypeMismatchError, match=message):
            read()


def test_a_function_that_changes_the_number_of_rows_is_an_error(numbers: Dataset) -> None:
    mapped = numbers.map(lambda batch: batch.filter([("x", "is not null")]))
    for read in (mapped.read_all, lambda: list(EpochReader(mapped, batch_rows=1000, seed=7))):
        with pytest.raises(
            InvalidDataError, match=r"data set 'numbers': part \d, row \d+: map with .*: expected 1 row, .*found 0"
        ):
            read()
    unique = numbers.map(lambda batch: bs.table(batch).slice(0, 1).to_batches()[0] if batch.num_rows else batch)
    with pytest.raises(
        InvalidDataError,
        match=r"part 0, row 0 and 9 more: map .*: expected 10 rows, .* found 1",
    ):
        unique.read_all()


def test_errors_of_a_function_have_the_row_as_a_note(numbers: Dataset) -> None:
    def divide(batch: RecordBatch) -> Any:
        return {"y": [1 / (x - 25) if x is not None else None for x in batch["x"].to_pylist()]}

    mapped = numbers.map(divide, schema={"y": "float64"})
    for read in (mapped.read_all, lambda: list(EpochReader(mapped, batch_rows=1000, seed=7))):
        with pytest.raises(ZeroDivisionError) as caught:
            read()
        assert caught.value.__notes__ == ["data set 'numbers': part 3, row 5: in a function of Dataset.map"]


def test_a_function_returns_what_a_record_batch_accepts_in_the_stated_types(files: Dataset) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    for function in (
        lambda batch: {"y": batch["x"].to_pylist()} if batch.num_rows else batch.select(["x"]).rename_columns(["y"]),
        lambda batch: pa.record_batch({"y": pc.add(pa.array(batch["x"]), 0)}),
        lambda batch: batch.select(["x"]).rename_columns(["y"]),
    ):
        for schema, type_ in ((None, "int64"), ({"y": "int32"}, "int32")):
            mapped = files.map(function, schema)
            assert mapped.schema == bs.schema({"y": type_})
            assert mapped.read_all()["y"].to_pylist() == files.read_all()["x"].to_pylist()
    wrong = files.map(lambda _: 5, schema={"y": "int64"})
    with pytest.raises(
        InvalidDataError, match=r"part 0, row 0: map with .*: expected Schema\(y: int64\), as stated by schema="
    ):
        wrong.read_all()


def test_invalid_steps_are_errors_at_once(files: Dataset) -> None:
    function: Any = "function"
    fractions: Any
    for call, error, message in (
        (lambda: files.filter([("texd", ">", 5)]), NotFoundError, "'texd'.*did you mean 'text'"),
        (lambda: files.filter([]), InvalidArgumentError, "filters: expected a list of tuples"),
        (lambda: files.select("texd"), NotFoundError, "did you mean 'text'"),
        (lambda: files.map(negate).select("texd"), NotFoundError, "did you mean 'text'"),
        (lambda: files.cast({"texd": "int8"}), NotFoundError, "did you mean 'text'"),
        (lambda: files.cast(bs.schema({"x": "int8"})), InvalidArgumentError, "the columns are"),
        (
            lambda: files.cast({"x": bs.list_("int8")}),
            TypeMismatchError,
            "data set 'numbers': column 'x': can't cast int64 to list",
        ),
        (lambda: files.map(function), InvalidArgumentError, "map: expected a function of a record batch"),
        (lambda: files.map(lambda _: 5), InvalidArgumentError, "failed for an empty batch.*pass schema=…"),
        (lambda: files.map(lambda _: {"y": [1]}), InvalidArgumentError, "returned 1 row for an empty batch"),
        (lambda: bs.connect(files.map(negate)), InvalidArgumentError, "call its read_all"),
        (files.map(negate).to_json, InvalidArgumentError, r"no steps \(map with negate\): pickle the data set"),
    ):
        with pytest.raises(error, match=message):
            call()
    invalid: Any = (0, -0.1, True, "0.5", None, float("nan"), float("inf"))
    for fractions in ({}, [0.5], {1: 0.5}, *({"a": fraction} for fraction in invalid)):
        with pytest.raises(InvalidArgumentError, match="split: expected"):
            files.split(fractions, seed=1)
    with pytest.raises(InvalidArgumentError, match=r"split: expected fractions of 1 or less in all, found 1\.1"):
        files.split({"a": 0.6, "b": 0.5}, seed=1)
    for seed in (-1, 1 << 64):
        with pytest.raises(InvalidArgumentError, match=r"split: seed: expected an integer from 0 to 2\*\*64 - 1"):
            files.split({"a": 0.6}, seed=seed)


def test_a_function_that_cannot_be_pickled_is_an_error_when_it_is_pickled(
    files: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    for name in ("cloudpickle", "dill", "pyspark.cloudpickle", "ray.cloudpickle"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    mapped = files.map(lambda batch: batch)
    assert mapped.num_rows == files.num_rows
    with pytest.raises(InvalidArgumentError, match="can't be pickled: define the function in a module"):
        pickle.dumps(mapped)
    assert pickle.loads(pickle.dumps(files.map(negate))).read_all() == files.map(negate).read_all()


def test_data_that_has_changed_since_it_was_counted_is_an_error(tmp_path: Path) -> None:
    batches = [[create_rows(0, 20)]]
    filtered = write_parts(tmp_path, batches).filter([("x", ">", 5)])
    assert filtered.num_rows == sum(1 for row in batches[0][0] if (row["x"] or 0) > 5)
    write_parts(tmp_path, [[create_rows(1, 20)]])
    with pytest.raises(InvalidDataError, match=r"data set 'numbers': part 0: expected 12 rows, found 13"):
        list(EpochReader(filtered, batch_rows=4, seed=1))


def test_a_part_with_other_rows_than_described_is_an_error() -> None:
    server, dataset = serve_parts([[create_rows(0, 2)], [create_rows(2, 1)]], "unix")
    with server:
        parts = [DatasetPart(rows, 0, part.locations) for rows, part in zip((1, 2), dataset.parts, strict=True)]
        with pytest.raises(InvalidDataError, match="part 0: expected 1 row, found at least 2"):
            dataset.with_parts(parts).filter([("x", ">", 0)]).read_all()
