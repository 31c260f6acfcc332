"""`bowstring.dataset`: data sets of files, folders and served data."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import bowstring as bs
from bowstring.datasets import EpochReader
from bowstring.datasets.manifest import Manifest, ManifestEntry, try_create_manifest
from bowstring.errors import InvalidArgumentError, InvalidDataError, NotFoundError
from bowstring.io.range_source import RangeSource

SCHEMA = bs.schema([("x", "int64")])


def write_numbers(path: Path, *values: int, nullable: bool = True) -> Path:
    schema = bs.schema([bs.field("x", "int64", nullable=nullable)])
    with bs.new_file(path, schema) as writer:
        writer.write_batch(bs.record_batch([bs.array(values, "int64")], schema=schema))
    return path


def test_files_streams_and_urls_are_parts_whose_rows_are_counted(tmp_path: Path) -> None:
    with bs.new_stream(tmp_path / "s.arrows", SCHEMA) as writer:
        for value in range(3):
            writer.write_batch(bs.record_batch({"x": [value]}))
    sources: list[Any] = [str(write_numbers(tmp_path / "ä b#?.arrow", 7, 8)), tmp_path / "s.arrows"]
    described = bs.dataset(sources)
    assert [part.num_rows for part in described.parts] == [2, 3]
    assert described.nbytes == sum(os.stat(source).st_size for source in sources)
    assert described.read_all()["x"].to_pylist() == [7, 8, 0, 1, 2]
    assert bs.dataset(sources[1]).name == "s"
    assert bs.dataset(described) is described
    assert bs.dataset(described.to_json()) == described
    fsspec: Any = pytest.importorskip("fsspec")
    with fsspec.open("memory://sources/a.arrow", "wb") as file:
        file.write(Path(sources[0]).read_bytes())
    assert bs.dataset("memory://sources/a.arrow", name="a").read_all()["x"].to_pylist() == [7, 8]


def test_parts_have_the_lengths_of_lists_by_the_statistics_of_files_or_by_reading_the_rows(tmp_path: Path) -> None:
    batches = [bs.record_batch({"x": [1, 2], "lists": [[1, 2], lists]}) for lists in ([3, 4], None, [])]
    for name, options in (("plain.arrow", None), ("other.arrow", ["x"]), ("full.arrow", ["x", "lists"])):
        with bs.new_file(tmp_path / name, batches[0].schema) as writer:
            if options is not None:
                writer.enable_statistics(options)
            for batch in batches:
                writer.write(batch)
    with bs.new_stream(tmp_path / "stream.arrows", batches[0].schema) as stream:
        stream.write(batches[0])
    lengths = [
        bs.dataset(tmp_path / name).parts[0].list_lengths
        for name in ("plain.arrow", "other.arrow", "full.arrow", "stream.arrows")
    ]
    assert lengths == [(), (), ((1, ((0, 2),)),), ((1, ((2, 2),)),)]
    with bs.serve({"lists": bs.Table.from_batches(batches)}) as server:
        assert bs.dataset(server.uri("lists")).parts[0].list_lengths == ((1, ((0, 2),)),)


def test_names_that_are_not_utf8_are_read_in_any_form(tmp_path: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff%41")
    os.mkdir(folder)
    path = write_numbers(Path(folder, os.fsdecode(b"\xe9.arrow")), 1, 2)
    for source in (str(path), path, [path], folder, Path(folder), f"{folder}/*.arrow"):
        described = bs.dataset(source)
        assert described.parts[0].locations == (f"file://{tmp_path}/%FF%2541/%E9.arrow",)
        assert described.read_all()["x"].to_pylist() == [1, 2]
        assert bs.dataset(json.loads(json.dumps(described.to_json()))) == described
        assert pickle.loads(pickle.dumps(described)) == described
    assert bs.dataset(described.parts[0].locations[0]).parts == described.parts
    for described_or_path in (path, described):
        assert [rows["x"].tolist() for rows in EpochReader(described_or_path, batch_rows=2, seed=None)] == [[1, 2]]


def test_a_folder_is_described_by_its_manifest_or_its_files(tmp_path: Path) -> None:
    first, second, third = (write_numbers(tmp_path / f"{index}.arrow", index) for index in range(3))
    assert bs.dataset(tmp_path).read_all()["x"].to_pylist() == [0, 1, 2]
    entries = [ManifestEntry(path.name, path.stat().st_size, 1, 1) for path in (third, first)]
    schema = {"type": "struct", "fields": []}
    assert try_create_manifest(tmp_path, Manifest(0, {}, ()).replace_all(schema, entries))
    described = bs.dataset(str(tmp_path))
    assert described.name == tmp_path.name
    assert described.read_all()["x"].to_pylist() == [2, 0]
    second.unlink()
    third.unlink()
    with pytest.raises(NotFoundError, match=r"2\.arrow"):
        bs.dataset(tmp_path)


def test_files_with_and_without_nullable_fields_are_one_data_set(tmp_path: Path) -> None:
    write_numbers(tmp_path / "a.arrow", 1, nullable=False)
    assert not bs.dataset(tmp_path).schema.field(0).nullable
    write_numbers(tmp_path / "b.arrow", 2)
    described = bs.dataset(tmp_path)
    assert described.schema.field(0).nullable
    table = described.read_all()
    assert table.schema == described.schema
    assert table["x"].to_pylist() == [1, 2]
    with bs.new_file(tmp_path / "c.arrow", [("x", "int32")]):
        pass
    with pytest.raises(InvalidDataError, match=r"c\.arrow: expected .*int64.*found .*int32"):
        bs.dataset(tmp_path)


def test_served_data_sets_are_parts(tmp_path: Path) -> None:
    tables = {"a": bs.table({"x": [1, 2]}), "b": bs.table({"x": [3]})}
    with bs.serve(tables, addresses={"unix": None, "tcp": "127.0.0.1:0"}) as server:
        described = bs.dataset([server.uri("a"), str(server.locations("b")), str(write_numbers(tmp_path / "f", 4))])
        assert [part.num_rows for part in described.parts] == [2, 1, 1]
        assert [len(part.locations) for part in described.parts] == [1, 2, 1]
        assert described.read_all()["x"].to_pylist() == [1, 2, 3, 4]
        assert bs.dataset(server.locations("a")).num_rows == 2
        with pytest.raises(NotFoundError):
            bs.dataset(server.uri("a").replace("ticket=a", "ticket=missing"))


def test_other_sources_are_an_error(tmp_path: Path) -> None:
    others: tuple[Any, ...] = (3, None, b"path", [])
    for source in others:
        with pytest.raises(InvalidArgumentError, match="dataset: expected"):
            bs.dataset(source)
    with pytest.raises(NotFoundError, match="found no Arrow, Parquet, CSV or JSON files"):
        bs.dataset(tmp_path)
    with pytest.raises(NotFoundError):
        bs.dataset(tmp_path / "missing.arrow")
    (tmp_path / "text.arrow").write_text("not Arrow")
    with pytest.raises(InvalidDataError, match=r"text\.arrow"):
        bs.dataset(tmp_path)


def test_the_uri_of_a_local_file_or_folder_is_its_path(tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "a b.arrow", 1, 2)
    for source in (path.as_uri(), tmp_path.as_uri()):
        described = bs.dataset(source)
        assert described.parts[0].locations == (path.as_uri(),)
        assert (described.num_rows, described.nbytes) == (2, path.stat().st_size)


def test_a_file_of_another_size_than_in_its_manifest_is_an_error(tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "0.arrow", 0)
    manifest = Manifest(0, {}, ()).replace_all({"type": "struct", "fields": []}, [ManifestEntry(path.name, 7, 1, 1)])
    assert try_create_manifest(tmp_path, manifest)
    with pytest.raises(InvalidDataError, match=r"0\.arrow: expected 7 bytes, as in the manifest"):
        bs.dataset(tmp_path)


def test_rows_in_a_store_are_counted_with_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec: Any = pytest.importorskip("fsspec")
    with fsspec.open("memory://sources/many.arrow", "wb") as file, bs.new_file(file, SCHEMA) as writer:
        for value in range(2000):
            writer.write_batch(bs.record_batch({"x": [value] * 500}))
    requests = []
    fetch = RangeSource.fetch

    def count_and_fetch(source: RangeSource, spans: Any) -> Any:
        requests.append(spans)
        return fetch(source, spans)

    monkeypatch.setattr(RangeSource, "fetch", count_and_fetch)
    described = bs.dataset("memory://sources/many.arrow")
    assert described.num_rows == 1_000_000
    assert described.nbytes == fsspec.filesystem("memory").size("/sources/many.arrow")
    assert len(requests) < 20
