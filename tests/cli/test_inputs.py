"""Every command with every kind of input: a file, a glob, a folder with and without a manifest, a URL."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

import bowstring as bs
from bowstring.cli.main import main
from bowstring.datasets.manifest import Manifest, ManifestEntry, data_file_name, try_create_manifest
from bowstring.errors import NotFoundError
from tests.cli.command_line import read_uri, running_server
from tests.ipc.remote_stores import serve_files

LZ4_MAGIC = b"\x04\x22\x4d\x18"
ROWS = {"n": list(range(10)), "s": [None, *"abcdefghi"]}
TABLE = bs.table(ROWS)
KINDS = ["file", "parquet", "csv", "glob", "glob of folders", "folder", "parquet folder", "manifest", "url", "store"]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    base = tmp_path_factory.mktemp("inputs")
    for name in ("all.arrow", "all.parquet", "all.csv"):
        bs.write_table(TABLE, base / name)
    halves = [TABLE.slice(0, 4), TABLE.slice(4)]
    for folder, suffix in (("plain", ".arrow"), ("pq", ".parquet"), ("day=1", ".arrow"), ("day=2", ".arrow")):
        (base / folder).mkdir()
        parts = halves if "=" not in folder else [halves[int(folder[-1]) - 1]]
        for number, half in enumerate(parts):
            bs.write_table(half, base / folder / f"{number}{suffix}")
    spark = base / "spark"
    entries = []
    for number, half in enumerate(halves):
        name = data_file_name("0123456789abcdef" * 2, number, 0)
        spark.mkdir(exist_ok=True)
        bs.write_table(half, spark / name)
        content = (spark / name).read_bytes()
        entries.append(ManifestEntry(name, len(content), half.num_rows, 1, f"crc32:{zlib.crc32(content):08x}"))
    assert try_create_manifest(spark, Manifest(0, {}, ()).replace_all({"type": "struct", "fields": []}, entries))
    bs.write_table(TABLE, spark / "not listed.arrow")
    store = fsspec.filesystem("memory")
    for number, half in enumerate(halves):
        bs.write_table(half, f"memory://inputs/{number}.arrow")
    with serve_files(**{"all.arrow": (base / "all.arrow").read_bytes()}) as site:
        yield {
            "file": f"{base}/all.arrow",
            "parquet": f"{base}/all.parquet",
            "csv": f"{base}/all.csv",
            "glob": f"{base}/plain/*.arrow",
            "glob of folders": f"{base}/day=*",
            "folder": f"{base}/plain",
            "parquet folder": f"{base}/pq",
            "manifest": str(spark),
            "url": f"{site.url}/all.arrow",
            "store": "memory://inputs",
        }
    store.rm("/inputs", recursive=True)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert main(list(map(str, arguments))) == 0, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.mark.parametrize("kind", KINDS)
def test_every_command_reads_every_kind_of_input(
    kind: str, inputs: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, expected = inputs[kind], TABLE.to_pylist()
    assert list(map(json.loads, run(capsys, "cat", source).splitlines())) == expected
    assert list(map(json.loads, run(capsys, "head", "-n", 6, "--format", "jsonl", source).splitlines())) == expected[:6]
    assert run(capsys, "diff", "--ignore-metadata", source, inputs["file"]) == ""
    run(capsys, "convert", source, tmp_path / "copy.arrow")
    assert bs.read_table(tmp_path / "copy.arrow") == TABLE
    document = json.loads(run(capsys, "info", "--json", source))
    assert sum(file["rows"] for file in document.get("files", [document])) == 10
    document = json.loads(run(capsys, "info", "--sizes", "--json", source))
    assert (document["rows"], {column["name"] for column in document["columns"]}) == (10, {"n", "s"})
    assert sum(column["share"] for column in document["columns"]) == pytest.approx(1)
    if kind not in ("parquet", "csv", "parquet folder"):  # these are for Arrow data only
        run(capsys, "validate", source)
        run(capsys, "concat", source, "-o", tmp_path / "joined.arrow")
        assert bs.read_table(tmp_path / "joined.arrow") == TABLE
    dataset_id = run(capsys, "publish", source, "--name", "inputs", "--ttl", "60s").strip()
    with bs.open_published(dataset_id) as published:
        assert published.read_all() == TABLE
    run(capsys, "unpublish", dataset_id)
    if kind != "store":  # which is in the memory of this process
        with running_server(source, "--name", "x") as server, bs.connect(read_uri(server)) as reader:
            assert reader.read_all() == TABLE
    assert bs.dataset(source).read_all() == TABLE


def test_files_of_several_formats_or_schemas_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bs.write_table(TABLE, tmp_path / "a.parquet")
    bs.write_table(TABLE.select(["n"]), tmp_path / "b.csv")
    assert main(["cat", str(tmp_path)]) == 1
    assert "has files of several formats (csv, parquet)" in capsys.readouterr().err
    bs.write_table(TABLE.select(["n"]), tmp_path / "b.parquet")
    assert main(["cat", f"{tmp_path}/*.parquet"]) == 1
    assert "b.parquet: expected Schema(n: int64, s: string), as in" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".arrow", ".arrows", ".parquet", ".csv", ".jsonl"])
def test_nothing_is_written_if_a_later_file_has_another_schema(
    tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        table = bs.table({"a": [number], "b": [number if number < 2 else "x"]})
        bs.write_table(table, tmp_path / f"{number}{suffix}")
    for arguments in (["cat"], ["convert", "--to", "jsonl"], ["publish"]):
        assert main([*arguments, str(tmp_path), *(["-"] if arguments[0] == "convert" else [])]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert f"2{suffix}: expected Schema(a: int64, b: int64), as in {tmp_path}/0{suffix}" in err
    assert run(capsys, "cat", "-c", "a", tmp_path).count("\n") == 3
    assert "b" in run(capsys, "schema", tmp_path)  # reads the first file only
    assert run(capsys, "head", "-n", 1, "--format", "jsonl", tmp_path) == '{"a": 0, "b": 0}\n'


def test_invalid_rows_of_a_folder_are_counted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(2):
        (tmp_path / f"{number}.csv").write_text("a,b\n1,2\n3\n")
    assert main(["convert", "--invalid-rows", "skip", "--to", "jsonl", str(tmp_path), "-"]) == 0
    assert "skipped 2 invalid rows" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [*KINDS, "stream", "jsonl"])
def test_an_unknown_column_is_an_error_with_the_input(
    kind: str, inputs: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = inputs.get(kind, str(tmp_path / f"all.{'arrows' if kind == 'stream' else kind}"))
    if kind not in inputs:
        bs.write_table(TABLE, source)
    for arguments in (
        ["head", source],
        ["tail", source],
        ["cat", source],
        ["convert", source, str(tmp_path / "copy.arrow")],
        ["publish", source],
        *([["cat", "--follow", source]] if kind == "stream" else []),
    ):
        assert main([*arguments, "-c", "nope"]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"bowstring: {source}: ")
        assert "column" in error
        assert "'nope'" in error
    assert main(["cat", "-c", "nope", f"{tmp_path}/none.arrow"]) == 1
    assert capsys.readouterr().err == f"bowstring: {tmp_path}/none.arrow: there is no such file\n"


@pytest.mark.parametrize("name", ["x.arrow", "x.arrows", "x.parquet", "x.csv"])
def test_the_error_of_a_repeated_column_names_what_the_command_can_do(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bs.write_table(bs.Table.from_arrays([[1], [2], [3]], names=["a", "b", "a"]), tmp_path / name)
    assert main(["cat", "-c", "a", str(tmp_path / name)]) == 1
    message = "2 columns are called 'a' (at [0, 2]) (without --columns, all columns are read)"
    assert capsys.readouterr().err == f"bowstring: {tmp_path / name}: {message}\n"
    assert run(capsys, "cat", "-c", "b", "--format", "csv", tmp_path / name).splitlines() == ["b", "2"]
    assert run(capsys, "cat", "--format", "csv", tmp_path / name).splitlines() == ["a,b,a", "1,2,3"]
    with pytest.raises(NotFoundError, match="2 columns are called 'a'") as raised:
        bs.read_table(tmp_path / name, columns=["a"])
    assert raised.value.__notes__ == ["select one by index"]
    assert bs.read_table(tmp_path / name, columns=[2])[0].to_pylist() == [3]


@pytest.mark.parametrize("name", ["none*.arrow", "folder"])
def test_an_input_without_files_is_an_error(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folder").mkdir()
    for command in ("cat", "head", "info", "publish", "serve", "convert"):
        assert main([command, str(tmp_path / name), *(["x.arrow"] if command == "convert" else [])]) == 1
        assert capsys.readouterr().err.startswith(f"bowstring: {tmp_path / name}: ")


def test_the_output_is_not_a_file_of_the_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.arrow", "b.arrow"):
        bs.write_table(TABLE, tmp_path / name)
    assert main(["convert", str(tmp_path), str(tmp_path / "b.arrow")]) == 1
    assert "b.arrow: is both input and output" in capsys.readouterr().err


def test_a_damaged_column_of_a_folder_ends_only_commands_that_read_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(2):
        table = bs.table({"a": list(range(1000)), "b": [0] * 1000})
        bs.write_table(table, tmp_path / f"{number}.arrow", compression="lz4")
    content = bytearray((tmp_path / "1.arrow").read_bytes())
    content[content.rindex(LZ4_MAGIC)] ^= 1
    (tmp_path / "1.arrow").write_bytes(content)
    for source in (str(tmp_path), f"{tmp_path}/*.arrow"):
        assert main(["count", source]) == 0
        assert capsys.readouterr().out == "2000\n"
        assert main(["tail", "-n", "1", "-c", "a", source]) == 0
        assert "999" in capsys.readouterr().out
        assert main(["tail", "-n", "1", source]) == 1
        assert "column 'b'" in capsys.readouterr().err
