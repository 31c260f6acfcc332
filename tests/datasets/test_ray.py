"""Data sets for Ray Data; Ray is not among the packages of the tests."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.datasets import Dataset, DatasetPart

ray = pytest.importorskip("ray", reason="requires Ray: pip install 'ray[data]'")

import bowstring.datasets.ray  # noqa: E402
from bowstring.datasets.ray import read  # noqa: E402

SCHEMA = bs.schema({"row": "int64", "text": "string"})


@pytest.fixture(scope="module", autouse=True)
def _ray() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def dataset() -> Iterator[Dataset]:
    lengths = {"a": 100, "b": 0, "c": 250, "d": 50}
    first, tables = 0, {}
    for name, length in lengths.items():
        rows = np.arange(first, first + length)
        tables[name] = bs.table({"row": rows, "text": [f"row {row}" for row in rows]}, SCHEMA)
        first += length
    hosts = {"a": socket.gethostname(), "b": None, "c": "elsewhere.invalid", "d": None}
    with bs.serve(tables) as server:
        parts = [DatasetPart(length, length * 20, (server.uri(name),), hosts[name]) for name, length in lengths.items()]
        yield Dataset("rows", SCHEMA, parts)


@pytest.mark.filterwarnings("ignore")
def test_each_part_is_a_read_task(dataset: Dataset) -> None:
    rows = read(dataset)
    assert rows.count() == 400
    assert rows.schema().names == ["row", "text"]
    table = bs.concat_tables(ray.get(rows.to_arrow_refs()))
    assert sorted(table["row"].to_pylist()) == list(range(400))
    assert table["text"].to_pylist() == [f"row {row}" for row in table["row"].to_pylist()]
    assert read(dataset.select(["row"])).schema().names == ["row"]
    assert read(dataset.select(["row"])).sum("row") == sum(range(400))


@pytest.mark.filterwarnings("ignore")
def test_a_part_is_read_on_the_node_of_its_host(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[Any] = []
    read_datasource = ray.data.read_datasource

    def record_options(source: Any, **arguments: Any) -> Any:
        options.append((arguments["override_num_blocks"], arguments.get("label_selector")))
        return read_datasource(source, **arguments)

    monkeypatch.setattr(ray.data, "read_datasource", record_options)
    assert sorted(row["row"] for row in read(dataset).take_all()) == list(range(400))
    (near_count, near), (other_count, other) = options
    assert (near_count, other_count) == (1, 2)
    assert near == {"ray.io/node-id": ray.nodes()[0]["NodeID"]}
    assert other is None


@pytest.mark.filterwarnings("ignore")
def test_a_part_is_read_elsewhere_if_its_node_is_lost(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    (node,) = ray.nodes()
    monkeypatch.setattr(ray, "nodes", lambda: [node | {"NodeID": "ab" * 28}])
    assert sorted(row["row"] for row in read(dataset).take_all()) == list(range(400))


def test_nothing_is_read_by_what_ray_has_deprecated(dataset: Dataset) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read(dataset)
    assert [each for each in caught if each.filename == bowstring.datasets.ray.__file__] == []


@pytest.mark.filterwarnings("ignore")
def test_a_data_set_without_rows_has_its_schema(dataset: Dataset) -> None:
    rows = read(Dataset("none", SCHEMA, [DatasetPart(0, 0, ())]))
    assert rows.count() == 0
    assert rows.schema().names == ["row", "text"]


@pytest.mark.filterwarnings("ignore")
def test_a_missing_part_is_an_error_of_its_task(dataset: Dataset) -> None:
    missing = Dataset("rows", SCHEMA, [DatasetPart(5, 100, ())])
    with pytest.raises(Exception, match="part 0: 5 rows, but no location"):
        read(missing).take_all()
