"""Parquet in `bowstring convert`."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bowstring as bs
from bowstring.cli.main import main
from tests.cli.command_line import run_command, run_with_pipe, write
from tests.cli.test_convert import TABLE, convert
from tests.ipc.remote_stores import serve_files

REPOSITORY = Path(__file__).parents[2]


def test_every_type_survives_a_round_trip_or_is_rejected_with_its_path(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.cli.parquet_types", str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=REPOSITORY)
    assert process.returncode == 0, process.stdout[-300:] + process.stderr
    outcomes = [json.loads(line) for line in process.stdout.splitlines()]
    refused = {kind: message for kind, status, message, _ in outcomes if status}
    assert [kind for kind, status, _, is_same in outcomes if not (status or is_same)] == []
    for kind, message in refused.items():
        assert message.startswith("bowstring: column 'c'"), (kind, message)
        assert "can't be written as Parquet" in message
        assert message.count("\n") == 1
    path = "column 'c' → item: fixed_size_list<item: binary>[0] can't be written as Parquet"
    assert refused["list<item: fixed_size_list<item: binary>[0]>"] == f"bowstring: {path}\n"
    assert "string" not in refused
    assert "struct<f: list<item: decimal128(30, 4)>>" not in refused


EXTENSIONS: list[tuple[bs.DataType, list[Any]]] = [
    (bs.datatypes.uuid(), [uuid.UUID(int=5), None]),
    (bs.list_(bs.datatypes.uuid()), [[uuid.UUID(int=5), None], None]),
    (bs.struct({"u": bs.datatypes.uuid(), "j": bs.datatypes.json_()}), [{"u": uuid.UUID(int=7), "j": "[1]"}, None]),
    (bs.map_(bs.string(), bs.datatypes.bool8()), [[("a", True)], None]),
    (bs.list_(bs.struct({"u": bs.list_(bs.datatypes.uuid())})), [[{"u": [uuid.UUID(int=7)]}], None]),
    (bs.list_(bs.datatypes.opaque(bs.int32(), "kind", "vendor")), [[1, None], None]),
]


@pytest.mark.parametrize(("kind", "values"), EXTENSIONS, ids=[str(kind) for kind, _ in EXTENSIONS])
def test_nested_extension_types_survive_a_round_trip(tmp_path: Path, kind: bs.DataType, values: list[Any]) -> None:
    batch = bs.RecordBatch.from_arrays([bs.array(values, kind)], ["c"])
    with bs.new_file(tmp_path / "in.arrow", batch.schema) as writer:
        writer.write(batch)
    convert(tmp_path / "in.arrow", tmp_path / "x.parquet")
    convert(tmp_path / "x.parquet", tmp_path / "out.arrow")
    with bs.open_file(tmp_path / "out.arrow") as reader:
        table = reader.read_all()
    assert table.to_pydict() == {"c": values}
    assert "extension" in str(table.schema.field("c").type)


@pytest.mark.parametrize(
    "column",
    [
        bs.array([timedelta(seconds=1), None], bs.duration("ms")),
        bs.array([datetime(2020, 1, 1, tzinfo=UTC), None], bs.timestamp("ms", "Europe/Paris")),
        bs.array(["a", None], bs.string_view()),
        bs.array([{"a": 1}, None]),
        bs.array([None, None]),
    ],
    ids=lambda column: str(column.type),
)
def test_only_dictionaries_of_strings_and_binary_are_kept(tmp_path: Path, column: bs.Array) -> None:
    words = bs.array(["a", None]).dictionary_encode()
    table = bs.table({"c": column.dictionary_encode(), "words": words})
    with bs.new_file(tmp_path / "in.arrow", table.schema) as writer:
        writer.write(table)
    convert(tmp_path / "in.arrow", tmp_path / "x.parquet")
    convert(tmp_path / "x.parquet", tmp_path / "out.arrow")
    with bs.open_file(tmp_path / "out.arrow") as reader:
        assert reader.read_all() == bs.table({"c": column, "words": words})


def test_nested_dictionaries_that_pyarrow_misreads_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = bs.list_(bs.dictionary(bs.int8(), bs.duration("ms")))
    table = bs.table({"c": bs.array([[timedelta(seconds=1)]], kind)})
    with bs.new_file(tmp_path / "in.arrow", table.schema) as writer:
        writer.write(table)
    assert main(["convert", str(tmp_path / "in.arrow"), str(tmp_path / "x.parquet")]) == 1
    assert "column 'c' → item: dictionary<" in capsys.readouterr().err


def test_parquet_is_read_and_written(tmp_path: Path) -> None:
    source = write(tmp_path / "source.arrow", TABLE, 70)
    convert(source, tmp_path / "x.parquet")
    assert pq.read_table(tmp_path / "x.parquet").equals(TABLE)
    convert(tmp_path / "x.parquet", tmp_path / "y.arrow")
    assert pa.ipc.open_file(tmp_path / "y.arrow").read_all().to_pylist() == TABLE.to_pylist()
    piped = run_with_pipe(tmp_path / "x.parquet", "convert", "--from", "parquet", "-", tmp_path / "z.arrow")
    assert piped.returncode == 0, piped.stderr
    assert main(["diff", str(tmp_path / "y.arrow"), str(tmp_path / "z.arrow")]) == 0


def test_parquet_is_detected_from_its_content(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "data")
    convert(tmp_path / "data", tmp_path / "x.arrow")
    assert pa.ipc.open_file(tmp_path / "x.arrow").read_all().num_rows == 300


@pytest.mark.parametrize(
    ("options", "codec"),
    [
        ([], "SNAPPY"),
        (["--compression", "none"], "UNCOMPRESSED"),
        (["--compression", "zstd", "--compression-level", "9"], "ZSTD"),
        (["--compression", "gzip"], "GZIP"),
    ],
)
def test_parquet_is_compressed_by_default(tmp_path: Path, options: list[str], codec: str) -> None:
    convert(write(tmp_path / "source.arrow", TABLE), tmp_path / "x.parquet", *options)
    assert pq.ParquetFile(tmp_path / "x.parquet").metadata.row_group(0).column(0).compression == codec


def test_an_invalid_compression_level_is_one_error_line(tmp_path: Path) -> None:
    source = write(tmp_path / "source.arrow", TABLE)
    process = run_command("convert", source, tmp_path / "x.parquet", "--compression-level", "9")
    assert (process.returncode, process.stderr.count(b"\n")) == (1, 1)
    assert b"snappy" in process.stderr
    assert not (tmp_path / "x.parquet").exists()


def test_only_the_selected_columns_are_read(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "x.parquet")
    convert(tmp_path / "x.parquet", tmp_path / "x.arrow", "-c", "text", "-c", "n")
    assert pa.ipc.open_file(tmp_path / "x.arrow").read_all().equals(TABLE.select(["text", "n"]))


def test_damaged_parquet_is_one_error_line_with_the_file_name(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"s": [f"value {n}" for n in range(5000)]}), path, compression="snappy")
    content = bytearray(path.read_bytes())
    content[200:2000] = bytes(1800)
    path.write_bytes(content)
    process = run_command("convert", path, tmp_path / "target.arrow")
    assert (process.returncode, process.stderr.count(b"\n")) == (1, 1)
    assert b"x.parquet: Corrupt snappy compressed data" in process.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]


def test_parquet_strings_that_are_not_utf_8_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"s": ["abc", "def"]}), path, compression="none", use_dictionary=False)
    path.write_bytes(path.read_bytes().replace(b"def", b"d\xfff"))
    assert main(["convert", str(path), str(tmp_path / "x.arrow")]) == 1
    assert "x.parquet: record batch 0, column 's': values[1] is no" in capsys.readouterr().err.replace(
        " not valid", " no"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]


@pytest.mark.parametrize("supports_ranges", [True, False], ids=["with ranges", "without"])
def test_parquet_is_read_from_a_url(tmp_path: Path, supports_ranges: bool, capsys: pytest.CaptureFixture[str]) -> None:
    moments = pa.array([datetime(2020, 1, 1, tzinfo=UTC)] * 300)
    pq.write_table(TABLE.append_column("t", moments), tmp_path / "x.parquet")
    with serve_files(**{"x.parquet": (tmp_path / "x.parquet").read_bytes()}) as site:
        site.supports_ranges = supports_ranges
        convert(f"{site.url}/x.parquet", tmp_path / "x.arrow")
        assert main(["convert", f"{site.url}/y.parquet", str(tmp_path / "y.arrow")]) == 1
    assert pa.ipc.open_file(tmp_path / "x.arrow").read_all().num_rows == 300
    assert "y.parquet: the server responded with 404" in capsys.readouterr().err
