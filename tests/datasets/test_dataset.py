"""The description of a data set: sizes, JSON, pickles, and reading its parts."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

import bowstring as bs
from bowstring.datasets import Dataset, DatasetPart
from bowstring.errors import InvalidDataError, NotFoundError
from bowstring.kernels.list_lengths import NO_LISTS


@pytest.fixture
def served() -> Iterator[Dataset]:
    """A data set of two parts, and the server that it is served by."""
    with bs.serve({"a": bs.table({"x": [1, 2]}), "b": bs.table({"x": [3]})}) as server:
        parts = [DatasetPart(rows, 64, (server.uri(name),), "host") for name, rows in (("a", 2), ("b", 1))]
        yield Dataset("numbers", bs.schema([("x", "int64")]), parts)


def test_a_description_has_the_rows_and_bytes_of_its_parts_and_is_read_by_its_own_methods(served: Dataset) -> None:
    assert (served.num_rows, served.nbytes) == (3, 128)
    assert served.read_all().to_pydict() == {"x": [1, 2, 3]}
    assert served.to_pandas()["x"].tolist() == [1, 2, 3]
    assert bs.table(served).num_rows == 3
    with bs.connect(served) as reader:
        assert reader.read_all().num_rows == 3
    assert repr(served).startswith("<bowstring.datasets.Dataset numbers: 3 rows, 128 bytes in 2 parts>")


def test_filters_select_rows_and_may_name_columns_that_are_not_selected() -> None:
    table = bs.table({"x": [1, 2, 3], "y": ["a", "b", "a"]})
    with bs.serve({"a": table}) as server:
        dataset = Dataset("numbers", table.schema, [DatasetPart(3, 64, (server.uri("a"),), "host")])
        assert dataset.read_all([("x", ">", 1)]) == table.slice(1)
        assert dataset.select(["x"]).read_all([("y", "==", "a")]).to_pydict() == {"x": [1, 3]}
        with bs.connect(dataset) as reader:
            assert reader.read_all([[("x", "==", 1)], [("y", "==", "b")]]) == table.slice(0, 2)


def test_filters_read_only_those_batches_of_files_that_may_match(tmp_path: Path, batches_read: list[int]) -> None:
    batches = [bs.record_batch({"x": [number] * 3, "y": [f"{number}"] * 3}) for number in range(5)]
    for path in (tmp_path / "a.arrow", "memory://filtered/b.arrow"):
        with bs.new_file(path, batches[0].schema) as writer:
            writer.enable_statistics()
            for batch in batches:
                writer.write(batch)
    with bs.new_stream(tmp_path / "c.arrows", batches[0].schema) as stream:
        stream.write(batches[3])
    dataset = bs.dataset([tmp_path / "a.arrow", "memory://filtered/b.arrow", tmp_path / "c.arrows"])
    batches_read.clear()
    assert dataset.select(["y"]).read_all([("x", "==", 3)]).to_pydict() == {"y": ["3"] * 9}
    assert batches_read == [3, 3]
    with pytest.raises(NotFoundError, match="no column is called 'z'"):
        dataset.read_all([("z", "==", 3)])


def test_a_description_survives_json_and_pickling(served: Dataset) -> None:
    for copy in (Dataset.from_json(served.to_json()), pickle.loads(pickle.dumps(served))):
        assert copy == served
        assert hash(copy) == hash(served)
        assert copy.read_all() == served.read_all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "expected 'bowstring-dataset'"),
        ({"version": 2}, "version 1, found"),
        ({"name": 3}, "name: expected str"),
        ({"schema": "AAAA"}, "schema: expected the Base64 text of an IPC stream"),
        ({"schema": "é"}, "schema: expected the Base64 text of an IPC stream"),
        ({"parts": {}}, "parts: expected list"),
        ({"parts": [3]}, "rows: expected int"),
        ({"parts": [{"rows": True, "bytes": 0, "locations": []}]}, "rows: expected int"),
        ({"parts": [{"rows": -1, "bytes": 0, "locations": []}]}, "expected a part's rows"),
        ({"parts": [{"rows": 1, "bytes": 0, "locations": [3]}]}, "locations: expected a list of str"),
        ({"parts": [{"rows": 1, "bytes": 0, "locations": [], "host": 3}]}, "expected a part's rows"),
    ],
)
def test_malformed_json_is_invalid_data(served: Dataset, change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidDataError, match=message):
        Dataset.from_json(json.dumps({**json.loads(served.to_json()), **change}))


LISTS = bs.schema({"n": bs.int64(), "lists": bs.list_("int8"), "nested": bs.list_(bs.list_("int8"), 3)})


def test_the_lengths_of_lists_survive_json_and_pickling_and_may_be_absent() -> None:
    lengths = ((1, (NO_LISTS,)), (2, ((3, 3), (0, 5))))
    dataset = Dataset("lists", LISTS, [DatasetPart(0, 0, ()), DatasetPart(0, 0, (), None, lengths)])
    for copy in (Dataset.from_json(dataset.to_json()), pickle.loads(pickle.dumps(dataset))):
        assert copy == dataset
        assert hash(copy) == hash(dataset)
        assert copy.parts[1].list_lengths == lengths
    description = json.loads(dataset.to_json())
    del description["parts"][1]["list_lengths"]
    assert Dataset.from_json(json.dumps(description)).parts == (DatasetPart(0, 0, ()),) * 2


@pytest.mark.parametrize(
    "lengths",
    [
        3, None, {"1": [[1, 1]]}, "ab", [3], [[1]], [[1, []]], [[1, [1, 2]]], [[1, [[1]]]], [[1, [[2, 1]]]],
        [[1, [[-1, 1]]]], [[1, [[1, 1 << 63]]]], [[1, [[1, 1.0]]]], [[1, [[False, True]]]], [[0, [[1, 1]]]],
        [[3, [[1, 1]]]], [[-2, [[1, 1]]]], [["1", [[1, 1]]]], [[2, [[3, 3]]]], [[1, [[1, 1], [1, 1]]]],
        [[1, [[1, 1]]], [1, [[1, 1]]]], [[2, [[3, 3], [1, 1]]], [1, [[1, 1]]]], [[[], [[1, 1]]]],
    ],
)  # fmt: skip
def test_malformed_lengths_of_lists_are_invalid_data(lengths: object) -> None:
    part = {"rows": 0, "bytes": 0, "locations": [], "list_lengths": lengths}
    description = {**json.loads(Dataset("lists", LISTS, []).to_json()), "parts": [part]}
    with pytest.raises(InvalidDataError, match="list_lengths: expected list columns of the schema and their bounds"):
        Dataset.from_json(json.dumps(description))


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, b"\xff"])
def test_other_texts_are_invalid_data(text: str | bytes) -> None:
    with pytest.raises(InvalidDataError, match="data set: "):
        Dataset.from_json(text)
