"""Parts of a data set: some columns, some parts, some rows, and the rows of a rank."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import bowstring as bs
from bowstring.datasets import Dataset, DatasetPart
from bowstring.errors import InvalidArgumentError, InvalidDataError, NotFoundError
from bowstring.sharing.client.connection import Connection

SCHEMA = bs.schema([("x", "int64"), ("name", "string"), ("y", "float64")])
PART_ROWS = (3, 0, 1, 8, 2)


def create_table(start: int, num_rows: int) -> bs.Table:
    numbers = range(start, start + num_rows)
    columns = {"x": list(numbers), "name": [f"row {number}" for number in numbers], "y": [n / 2 for n in numbers]}
    return bs.table(columns, schema=SCHEMA)


@pytest.fixture(scope="module")
def whole() -> bs.Table:
    return create_table(0, sum(PART_ROWS))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    """Parts in shared memory, on a server over tcp, in a file and in a stream; an empty part without a location."""
    folder, start, tables = tmp_path_factory.mktemp("parts"), 0, []
    for num_rows in PART_ROWS:
        tables.append(create_table(start, num_rows))
        start += num_rows
    with bs.new_file(folder / "3.arrow", SCHEMA) as file:
        for offset in range(0, 8, 3):
            file.write_table(tables[3].slice(offset, 3))
    with bs.new_stream(folder / "4.arrows", SCHEMA) as stream:
        stream.write_table(tables[4])
    with bs.serve({"0": tables[0]}) as unix, bs.serve({"2": tables[2]}, address="127.0.0.1:0", scheme="tcp") as tcp:
        locations = [(unix.uri("0"),), (), (tcp.uri("2"),), (f"file:{folder}/3.arrow",), (f"file://{folder}/4.arrows",)]
        parts = [DatasetPart(n, 0, uris) for n, uris in zip(PART_ROWS, locations, strict=True)]
        yield Dataset("mixed", SCHEMA, parts)


@pytest.mark.parametrize("columns", [["y", "x"], [2, 0], "name", ["x", "x"], []])
def test_only_the_selected_columns_are_read(dataset: Dataset, whole: bs.Table, columns: Any) -> None:
    selected = dataset.select(columns)
    assert selected.schema == whole.select(columns).schema
    assert (selected.num_rows, selected.nbytes) == (dataset.num_rows, dataset.nbytes)
    for copy in (selected, Dataset.from_json(selected.to_json()), pickle.loads(pickle.dumps(selected))):
        assert copy == selected
        assert copy.read_all() == whole.select(columns)
    with bs.connect(selected) as reader:
        assert pickle.loads(pickle.dumps(reader)).read_all() == whole.select(columns)


def test_columns_are_selected_from_selected_columns(dataset: Dataset, whole: bs.Table) -> None:
    assert dataset.select(["y", "name"]).select([1]).read_all() == whole.select(["name"])
    assert dataset.select("x") != dataset.select("y")
    with pytest.raises(NotFoundError):
        dataset.select(["y"]).select("x")


def test_a_part_without_the_selected_columns_is_an_error(dataset: Dataset, tmp_path: Path) -> None:
    narrow = bs.table({"x": [1]})
    with bs.new_file(tmp_path / "narrow.arrow", narrow.schema) as file:
        file.write_table(narrow)
    with bs.serve({"t": narrow}) as server:
        for uri in (server.uri("t"), f"file:{tmp_path}/narrow.arrow"):
            parts = [dataset.parts[0], DatasetPart(1, 0, (uri,))]
            with pytest.raises(InvalidDataError):
                Dataset("mixed", SCHEMA, parts).select("y").read_all()


@pytest.mark.parametrize("columns", [[3], [-1], [True], "0", [0.0], {}])
def test_json_with_unknown_columns_is_invalid_data(dataset: Dataset, columns: object) -> None:
    import json

    description = json.loads(dataset.to_json())
    with pytest.raises(InvalidDataError, match="columns: expected indices below 3"):
        Dataset.from_json(json.dumps({**description, "columns": columns}))


def test_a_slice_is_the_data_set_of_these_parts(dataset: Dataset, whole: bs.Table) -> None:
    assert dataset[2:4].read_all() == whole.slice(3, 9)
    assert dataset.select("x")[-1:].read_all() == whole.select("x").slice(12, 2)
    assert dataset[5:].read_all() == whole.slice(0, 0)
    index: Any = 1
    with pytest.raises(InvalidArgumentError, match="expected a slice of parts"):
        dataset[index]


def test_any_rows_are_read_from_the_parts_that_have_them(dataset: Dataset, whole: bs.Table) -> None:
    for start in range(15):
        for stop in range(start, 15):
            assert dataset.read_rows(start, stop) == whole.slice(start, stop - start)
    assert dataset.head() == whole.slice(0, 5)
    assert dataset.head(100) == whole
    for start, stop in ((3, 2), (0, 15)):
        with pytest.raises(InvalidArgumentError, match="out of range for 14 rows"):
            dataset.read_rows(start, stop)
    with pytest.raises(InvalidArgumentError, match="start: expected an integer of 0 or more, found -1"):
        dataset.read_rows(-1, 3)


def test_parts_that_are_not_needed_are_not_connected_to(
    dataset: Dataset, whole: bs.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreachable = ("unix:@bowstring-nobody?want_data=1&free_data=2&ticket=t",)
    parts = [part if index == 3 else replace(part, locations=unreachable) for index, part in enumerate(dataset.parts)]
    monkeypatch.setattr(Connection, "dial", None)
    assert dataset.with_parts(parts).read_rows(4, 12) == whole.slice(4, 8)


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=6),
    st.integers(1, 12),
)
def test_the_rows_of_all_ranks_are_those_of_the_data_set(batch_rows: list[list[int]], world_size: int) -> None:
    start, tables = 0, []
    for lengths in batch_rows:
        batches = []
        for length in lengths:
            batches += create_table(start, length).to_batches()
            start += length
        tables.append(bs.Table(SCHEMA, batches))
    with bs.serve({str(index): table for index, table in enumerate(tables)}) as server:
        parts = [DatasetPart(t.num_rows, 24 * t.num_rows, (server.uri(str(i)),)) for i, t in enumerate(tables)]
        dataset = Dataset("ranks", SCHEMA, parts)
        ranks = [dataset.read_rank(rank, world_size) for rank in range(world_size)]
    assert [x for rank in ranks for x in rank["x"].to_pylist()] == list(range(start))
    assert {rank.num_rows for rank in ranks} <= {start // world_size, -(-start // world_size)}


def test_a_rank_out_of_range_is_an_error(dataset: Dataset) -> None:
    for rank, world_size, problem in (
        (2, 2, "below the world_size"),
        (-1, 2, "of 0 or more"),
        (0, 0, "below the world"),
    ):
        with pytest.raises(InvalidArgumentError, match=f"rank: expected an integer {problem}"):
            dataset.read_rank(rank, world_size)


def test_a_part_with_rows_but_no_location_is_an_error(dataset: Dataset) -> None:
    lost = dataset.with_parts([dataset.parts[0], replace(dataset.parts[2], locations=())])
    with pytest.raises(NotFoundError, match="part 1: 1 rows, but no location"):
        lost.read_all()
    assert lost.head(3).num_rows == 3


def test_notebooks_show_the_first_parts(dataset: Dataset) -> None:
    parts = [DatasetPart(1000, 8000, ("unix:@a?ticket=t", "tcp:1"), "<host>"), *dataset.parts * 40]
    text = Dataset("a & b", SCHEMA, parts)._repr_html_()
    assert "<caption>a &amp; b: 1,560 rows × 3 columns, 8,000 bytes in 201 parts</caption>" in text
    assert "<td>0</td><td>&lt;host&gt;</td><td>1,000</td><td>8,000</td><td>unix</td>" in text
    assert text.count("<tr>") == 102
    assert "ticket" not in text
