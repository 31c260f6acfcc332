"""`bowstring.read_table` of several files, and the options of stores."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import bowstring as bs
from bowstring.cli.main import main
from bowstring.datasets import EpochReader
from bowstring.errors import InvalidArgumentError, InvalidDataError, IsDirectoryError, MissingFileError
from bowstring.io.store_path import StorePath


def write_days(folder: Path, extension: str = ".arrow") -> Path:
    folder.mkdir(exist_ok=True)
    for day in (1, 2):
        bs.write_table(bs.table({"day": [day, day], "n": [0, day]}), folder / f"{day}{extension}")
    return folder


@pytest.mark.parametrize("extension", [".arrow", ".arrows", ".parquet", ".csv", ".jsonl"])
def test_a_folder_a_glob_and_a_list_are_read_as_one_table(tmp_path: Path, extension: str) -> None:
    folder = write_days(tmp_path / "days", extension)
    files = sorted(folder.iterdir())
    for source in (folder, str(folder), folder.as_uri(), f"{folder}/*{extension}", files, list(map(str, files))):
        assert bs.read_table(source).to_pydict() == {"day": [1, 1, 2, 2], "n": [0, 1, 0, 2]}
        assert bs.read_table(source, ["n"], [("day", "=", 2)]).to_pydict() == {"n": [0, 2]}
    assert bs.feather.read_table(folder) == bs.dataset(folder).read_all()


def test_files_of_a_folder_that_differ_in_nullability_only_are_one_table(tmp_path: Path) -> None:
    write_days(tmp_path)
    strict = bs.schema([bs.field("day", "int64", nullable=False), bs.field("n", "int64")])
    with bs.new_file(tmp_path / "3.arrow", strict) as writer:
        writer.write_batch(bs.record_batch([bs.array([3]), bs.array([3])], schema=strict))
    assert bs.read_table(tmp_path) == bs.dataset(tmp_path).read_all()
    bs.write_table(bs.table({"day": ["4"]}), tmp_path / "4.arrow")
    with pytest.raises(InvalidDataError, match=r"4\.arrow: expected Schema\(day: int64.*found Schema\(day: string\)"):
        bs.read_table(tmp_path)


@pytest.mark.parametrize(
    ("create_type", "values"),
    [
        (lambda field: bs.list_(field("item", "int64")), [[1, 2], [3]]),
        (lambda field: bs.list_(bs.field("item", bs.struct([field("a", "int64")]))), [[{"a": 1}], []]),
        (lambda field: bs.list_(field("item", "int64"), 2), [[1, 2], [3, 4]]),
    ],
)
def test_files_that_differ_in_the_nullability_of_nested_fields_are_one_table(
    tmp_path: Path, create_type: Callable[[Any], Any], values: list[Any]
) -> None:
    for name, nullable in (("a", False), ("b", True)):
        values_type = create_type(partial(bs.field, nullable=nullable))
        bs.write_table(bs.table({"x": bs.array(values, values_type)}), tmp_path / f"{name}.arrow")
    table, data = bs.read_table(tmp_path), bs.dataset(tmp_path)
    assert table["x"].type == data.schema.field("x").type == values_type
    assert table["x"].to_pylist() == data.read_all()["x"].to_pylist() == values * 2
    (batch,) = EpochReader(data, batch_rows=4)
    batch.validate(full=True)
    assert batch.to_pydict() == {"x": values * 2}
    assert main(["convert", str(tmp_path), str(tmp_path / "joined.parquet")]) == 0
    assert bs.read_table(tmp_path / "joined.parquet")["x"].to_pylist() == values * 2


def test_what_has_no_files_is_an_error_of_its_kind(tmp_path: Path) -> None:
    for source, message in (
        (tmp_path, "found no Arrow, Parquet, CSV or JSON files"),
        (tmp_path / "*.arrow", "there is no file with such a name"),
        (tmp_path / "a.arrow", "there is no such file"),
        (f"memory://{tmp_path.name}/a.arrow", "there is no such file"),
    ):
        with pytest.raises(MissingFileError, match=message):
            bs.read_table(source)
    with pytest.raises(InvalidArgumentError, match="at least one path"):
        bs.read_table([])
    with pytest.raises(IsDirectoryError, match=r"is a directory: bowstring\.read_table and bowstring\.dataset read"):
        bs.open_file(tmp_path)


def test_storage_options_are_for_urls_only(tmp_path: Path) -> None:
    path, options = write_days(tmp_path) / "1.arrow", {"anon": True}
    for call in (bs.read_table, bs.open_file, bs.open_stream, bs.dataset):
        with pytest.raises(InvalidArgumentError, match=r"1\.arrow: storage_options are for URLs"):
            call(path, storage_options=options)
    for new in (bs.new_file, bs.new_stream):
        with pytest.raises(InvalidArgumentError, match="storage_options are for URLs"):
            new(path, {"a": "int64"}, storage_options=options)
    with pytest.raises(InvalidArgumentError, match="Table: storage_options are for URLs"):
        bs.read_table(bs.table({}), storage_options=options)


def test_files_of_a_store_with_another_endpoint_are_read_and_written(store_folder: StorePath) -> None:
    url, options = store_folder.url, store_folder.options
    bs.write_table(bs.table({"n": [1, 2]}), f"{url}/a.arrow", storage_options=options)
    with bs.new_file(f"{url}/b.arrow", {"n": "int64"}, storage_options=options) as writer:
        writer.write(bs.record_batch({"n": [3]}))
    with bs.new_stream(f"{url}-others/c.arrows", {"n": "int64"}, storage_options=options) as stream_writer:
        stream_writer.write(bs.record_batch({"n": [4]}))
    bs.write_table(bs.table({"n": [5]}), f"{url}-others/d.csv", storage_options=options)
    for source in (url, f"{url}/*.arrow", [f"{url}/a.arrow", f"{url}/b.arrow"]):
        assert bs.read_table(source, storage_options=options)["n"].to_pylist() == [1, 2, 3]
    assert bs.read_table(f"{url}-others/d.csv", storage_options=options)["n"].to_pylist() == [5]
    assert bs.open_file(f"{url}/a.arrow", storage_options=options).num_rows == 2
    with bs.open_stream(f"{url}-others/c.arrows", storage_options=options) as stream:
        assert stream.read_all()["n"].to_pylist() == [4]
    with pytest.raises(MissingFileError, match=r"/e\.arrow: there is no such file"):
        bs.read_table(f"{url}/e.arrow", storage_options=options)


def test_a_data_set_keeps_the_options_for_its_workers_and_shows_no_secrets(store_folder: StorePath) -> None:
    url, options = store_folder.url, store_folder.options
    for number in (1, 2):
        bs.write_table(bs.table({"n": [number]}), f"{url}/{number}.arrow", storage_options=options)
    dataset = bs.dataset(url, storage_options=options)
    reader = bs.datasets.EpochReader(dataset, batch_rows=2)
    with bs.connect(dataset) as connected:
        values = [dataset, dataset.select("n"), dataset[:2], connected, reader]
        copies = pickle.loads(pickle.dumps(values))
        assert [copy.read_all()["n"].to_pylist() for copy in copies[:4]] == [[1, 2]] * 4
    assert [batch["n"].to_pylist() for batch in copies[4]] == [[1, 2]]
    assert copies[0] == dataset
    texts = [*map(repr, values), *map(str, values), dataset._repr_html_(), dataset.to_json()]
    assert not [text for text in texts if options["secret"] in text]
    described = bs.datasets.Dataset.from_json(dataset.to_json())
    assert described != dataset
    assert bs.dataset(dataset.to_json(), storage_options=options) == dataset == described.with_storage_options(options)


def test_commands_pass_options_to_the_store(store_folder: StorePath, capsys: pytest.CaptureFixture[str]) -> None:
    url, options = store_folder.url, store_folder.options
    arguments = [f"--storage-option={key}={json.dumps(value)}" for key, value in options.items() if key != "secret"]
    arguments.append(f"--storage-option=secret={options['secret']}")  # text that is not JSON

    def run(*command: str) -> Any:
        assert main([*command, *arguments]) == 0
        return capsys.readouterr().out

    bs.write_table(bs.table({"n": [1, 2]}), f"{url}/a.arrow", storage_options=options)
    run("convert", f"{url}/a.arrow", f"{url}/b.csv")
    assert run("cat", f"{url}/b.csv") == '{"n": 1}\n{"n": 2}\n'
    assert run("count", url) == "2\n"
    assert "2 rows in 1 record batch" in run("validate", url)
    run("concat", f"{url}/a.arrow", url, "-o", f"{url}/c.arrow")
    assert run("count", f"{url}/*.arrow") == "6\n"
    assert json.loads(run("vacuum", url, "--json"))["files"] == []
    assert main(["convert", f"{url}/a.arrow", f"{url}/a.arrow", *arguments]) == 1
    assert f"{url}/a.arrow: is both input and output" in capsys.readouterr().err
    assert main(["cat", url, "--storage-option", "my-secret"]) == 2
    assert capsys.readouterr().err.startswith(
        "bowstring: invalid value for '--storage-option': expected KEY=VALUE, such"
    )
