"""`bowstring convert`: between files, streams, Parquet, CSV and JSON lines, and between the forms of Arrow data."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.arrays.array import Array
from bowstring.cli.main import main
from bowstring.layouts.registry import layout_of
from tests.cli.command_line import run_command, run_in_terminal, run_with_pipe, write

TABLE = pa.table(
    {
        "n": pa.array([1, None, 3] * 100, pa.int32()),
        "text": ["a", "", None] * 100,
        "nested": pa.array([[{"x": 1.5}], [], None] * 100),
    }
)


def convert(*arguments: object) -> None:
    assert main(["convert", *map(str, arguments)]) == 0


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--compression", "lz4"],
        ["--compression", "zstd", "--compression-level", "5"],
        ["--alignment", "8"],
        ["--byte-order", "big"],
        ["--legacy-framing", "--metadata-version", "V4"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("ending", [".arrow", ".arrows"])
def test_arrow_data_in_every_encoding_keeps_its_rows(tmp_path: Path, ending: str, options: list[str]) -> None:
    source, target = write(tmp_path / "source.arrows", TABLE, 70), tmp_path / f"target{ending}"
    convert(source, target, *options)
    assert main(["diff", str(source), str(target)]) == 0
    assert main(["validate", str(target)]) == 0
    form = bs.inspection.inspect(target).encoding
    assert form.endianness == ("big" if "big" in options else "little")
    assert form.codecs == (tuple(options[1:2]) if "--compression" in options else ())
    assert form.legacy_framing == ("--legacy-framing" in options)
    opened = pa.ipc.open_file(target) if ending == ".arrow" else pa.ipc.open_stream(target)
    if "big" not in options:  # pyarrow swaps no nested columns
        assert opened.read_all().equals(TABLE)


def test_a_file_keeps_its_footer_metadata_but_not_its_statistics(tmp_path: Path) -> None:
    batch = bs.record_batch({"n": [1, 2, 3]}).with_metadata({"of the batch": "1"})
    source, target = tmp_path / "source.arrow", tmp_path / "target.arrow"
    with bs.new_file(source, batch.schema, metadata={"station": "7", "empty": ""}) as writer:
        writer.enable_statistics(["n"])
        writer.write(batch)
    convert(source, target, "--compression", "zstd")
    with bs.open_file(target) as reader:
        assert reader.metadata == {b"station": b"7", b"empty": b""}
        assert reader[0].custom_metadata == {b"of the batch": b"1"}


def test_batches_are_split_and_combined_to_a_size(tmp_path: Path) -> None:
    source = write(tmp_path / "source.arrow", TABLE, 70)
    convert(source, tmp_path / "target.arrow", "--batch-rows", 128)
    with bs.open_file(tmp_path / "target.arrow") as reader:
        assert [batch.num_rows for batch in reader] == [128, 128, 44]
    assert main(["diff", str(source), str(tmp_path / "target.arrow")]) == 0


def test_a_stream_whose_dictionaries_change_becomes_a_file(tmp_path: Path) -> None:
    parts = [pa.table({"c": pa.array(values).dictionary_encode()}) for values in (["a", "b"], ["z", "a"])]
    table = pa.concat_tables(parts)
    source = write(tmp_path / "source.arrows", table)
    convert(source, tmp_path / "target.arrow")
    assert pa.ipc.open_file(tmp_path / "target.arrow").read_all().to_pylist() == table.to_pylist()
    convert(source, tmp_path / "plain.arrow", "--decode-dictionaries")
    plain = pa.ipc.open_file(tmp_path / "plain.arrow").read_all()
    assert (plain.schema.field("c").type, plain.to_pylist()) == (pa.string(), table.to_pylist())


def test_options_unify_dictionaries_and_select_deltas(tmp_path: Path) -> None:
    words = [["a", "b"], ["a", "b", "c"], ["z", "a"]]
    table = pa.concat_tables([pa.table({"c": pa.array(values).dictionary_encode()}) for values in words])
    source = write(tmp_path / "source.arrows", table)
    for option, expected in (
        (["--unify-dictionaries"], (1, 0)),
        (["--dictionary-deltas", "auto"], (3, 1)),
        (["--dictionary-deltas", "never"], (3, 0)),
    ):
        convert(source, tmp_path / "target.arrows", *option)
        (dictionary,) = bs.inspection.inspect(tmp_path / "target.arrows").dictionaries
        assert (dictionary.batches, dictionary.deltas) == expected
        assert pa.ipc.open_stream((tmp_path / "target.arrows").read_bytes()).read_all().to_pylist() == table.to_pylist()
    convert(source, tmp_path / "target.arrow", "--dictionary-deltas", "never")
    (dictionary,) = bs.inspection.inspect(tmp_path / "target.arrow").dictionaries
    assert (dictionary.batches, dictionary.values) == (1, 4)


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_a_file_name_may_be_invalid_utf_8_and_a_missing_one_is_reported(tmp_path: Path, kind: str) -> None:
    path = tmp_path / os.fsdecode(b"\xff.data")
    convert(write(tmp_path / "source.arrow", TABLE.select(["n"])), path, "--to", kind)
    convert("--from", kind, path, tmp_path / "target.arrow")
    assert pa.ipc.open_file(tmp_path / "target.arrow").read_all()["n"].to_pylist() == TABLE["n"].to_pylist()
    process = run_command("convert", "--from", kind, tmp_path / "missing", tmp_path / "other.arrow")
    assert (process.returncode, process.stderr.count(b"\n")) == (1, 1)
    assert b"missing: there is no such file" in process.stderr


def test_a_pipe_is_converted_into_a_pipe(tmp_path: Path) -> None:
    source = write(tmp_path / "source.arrow", TABLE, 70)
    conversion = run_with_pipe(source, "convert", "--to", "stream", "-", "-")
    assert (conversion.returncode, conversion.stderr) == (0, b"")
    assert pa.ipc.open_stream(conversion.stdout).read_all().equals(TABLE)
    command = [sys.executable, "-m", "bowstring", "convert", "--from", "jsonl", "--to", "file", "-", "-"]
    process = subprocess.run(command, input=b'{"a": 1}\n\n{"b": [true]}\n', capture_output=True, timeout=60, check=True)
    assert pa.ipc.open_file(process.stdout).read_all().to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": [True]}]


def int32s(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


def int64s(*values: int) -> bytes:
    return np.array(values, "<i8").tobytes()


INVALID_BUFFERS = {
    "offsets that fall": (
        int32s(0, 3, 6, 9),
        int32s(0, 1 << 29, 6, 9),
        "column 'words': offsets[2] = 6 is less than offsets[1]",
    ),
    "offsets beyond the end": (
        int32s(0, 3, 6, 9),
        int32s(0, 3, 6, 1 << 30),
        "column 'words': the offsets run from 0 to",
    ),
    "offsets of lists": (
        int32s(0, 1, 2, 3),
        int32s(0, 1, 1 << 28, 3),
        "column 'lists': offsets[3] = 3 is less than offsets[2]",
    ),
    "no UTF-8": (b"def", b"d\xfff", "column 'words': values[1] is not valid UTF-8: b'd\\xfff'"),
    "indices beyond the dictionary": (int32s(1, 1, 0), int32s(1, 9, 0), "column 'codes': indices[1] = 9"),
    "a date amid a day": (
        int64s(86_400_000),
        int64s(86_400_001),
        "column 'dates': values[1]: 86400001 ms is not a whole number of days",
    ),
    "another null count": (int64s(3, 1), int64s(3, 3), "column 'some': the null count is 3, but"),
}


@pytest.fixture(params=INVALID_BUFFERS.values(), ids=list(INVALID_BUFFERS))
def invalid_source(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A file whose second batch is malformed, and the expected message."""
    before, after, message = request.param
    schema = pa.schema(
        {
            "words": pa.string(),
            "lists": pa.list_(pa.int8()),
            "codes": pa.dictionary(pa.int32(), pa.string()),
            "dates": pa.date64(),
            "some": pa.int8(),
        }
    )
    codes = pa.DictionaryArray.from_arrays(pa.array([1, 1, 0], pa.int32()), ["x", "y"])
    dates = pa.array([0, 86_400_000, 0]).view(pa.date64())
    columns = [["abc", "def", "ghi"], [[1], [2], [3]], codes, dates, pa.array([1, None, 3], pa.int8())]
    empty = [
        pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), ["x", "y"])
        if kind == codes.type
        else pa.nulls(0, kind)
        for kind in schema.types
    ]
    path = tmp_path / "x.arrow"
    with pa.ipc.new_file(path, schema) as writer:
        writer.write_batch(pa.record_batch(empty, schema))
        writer.write_batch(pa.record_batch(columns, schema))
    raw = path.read_bytes()
    at = raw.rfind(before)
    assert at >= 0
    path.write_bytes(raw[:at] + after + raw[at + len(before) :])
    return path, message


@pytest.mark.parametrize("ending", ["arrow", "arrows", "parquet", "csv", "jsonl"])
def test_invalid_values_are_rejected_with_their_location_and_the_target_is_kept(
    invalid_source: tuple[Path, str], capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    source, message = invalid_source
    target = source.with_name(f"target.{ending}")
    target.write_text("before", "utf-8")
    columns = ["-c", "words", "-c", "codes", "-c", "dates", "-c", "some"] if ending == "csv" else []
    if "'lists'" in message and columns:
        pytest.skip("CSV does not support lists")
    assert main(["convert", str(source), str(target), *columns]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"bowstring: {source}: record batch 1, {message}")
    hint = "" if ending in ("parquet", "csv") else ", --quick does not validate values"
    assert line.endswith(f"(bowstring validate lists all errors{hint})")
    assert target.read_text("utf-8") == "before"
    assert sorted(path.name for path in source.parent.iterdir()) == [target.name, "x.arrow"]


def test_quick_copies_values_without_validation_but_not_to_pyarrow(
    invalid_source: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    source, message = invalid_source
    target = source.with_name("target.arrow")
    if "the offsets run from" in message:  # the values can't be copied
        assert main(["convert", str(source), str(target), "--quick"]) == 1
        assert "column 'words': offsets[3] = 1073741824 exceeds the data buffer's size of 9" in capsys.readouterr().err
    else:
        convert(source, target, "--quick")
        assert main(["validate", str(target)]) == 1
    assert main(["convert", "--quick", str(source), str(source.with_name("x.parquet"))]) == 1
    assert main(["convert", "--quick", str(source), str(source.with_name("x.csv"))]) == 1


def test_a_truncated_source_leaves_the_target_unchanged(tmp_path: Path) -> None:
    source = write(tmp_path / "source.arrows", TABLE, 70)
    source.write_bytes(source.read_bytes()[:-300])
    for ending in ("arrow", "parquet", "csv", "jsonl"):
        target = tmp_path / f"target.{ending}"
        target.write_text("before", "utf-8")
        assert main(["convert", str(source), str(target)]) == 1
        assert target.read_text("utf-8") == "before"
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize(
    "arguments",
    [
        ["convert", "DATA", "-", "--to", "stream"],
        ["convert", "DATA", "-", "--to", "jsonl"],
        ["anatomy", "DATA", "-o", "-"],
    ],
    ids=" ".join,
)
def test_binary_output_is_not_written_to_a_terminal(tmp_path: Path, arguments: list[str]) -> None:
    path = str(write(tmp_path / "data.arrow", TABLE))
    status, output = run_in_terminal(100, *(path if argument == "DATA" else argument for argument in arguments))
    assert status == 2
    assert "standard output is a terminal" in output
    assert "ARROW" not in output


def test_parquet_from_a_pipe_is_buffered_up_to_a_limit(tmp_path: Path) -> None:
    path, target = tmp_path / "data.parquet", tmp_path / "data.arrow"
    convert(write(tmp_path / "source.arrow", TABLE), path)
    size = path.stat().st_size
    command = ["convert", "-", target, "--from", "parquet", "--max-piped-bytes"]
    refused = run_with_pipe(path, *command, size - 1)
    assert refused.returncode == 1
    assert f"larger than the limit of {size - 1} bytes" in refused.stderr.decode()
    assert not target.exists()
    assert run_with_pipe(path, *command, size).returncode == 0
    assert pa.ipc.open_file(target.read_bytes()).read_all()["n"].to_pylist() == TABLE["n"].to_pylist()


def test_columns_with_the_same_name_can_not_become_json_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, target = tmp_path / "data.arrow", tmp_path / "data.jsonl"
    write(path, pa.table([[1], [2]], names=["a", "a"]))
    assert main(["convert", str(path), str(target)]) == 1
    assert "two columns have the name 'a'" in capsys.readouterr().err
    assert not target.exists()


def test_an_option_that_the_target_format_does_not_have_is_rejected(tmp_path: Path) -> None:
    source = write(tmp_path / "source.arrow", TABLE)
    process = run_command("convert", source, tmp_path / "x.csv", "--byte-order", "big")
    assert (process.returncode, b"--byte-order" in process.stderr) == (2, True)
    assert run_command("convert", source, tmp_path / "x").returncode == 2


# Rows without bytes


@pytest.mark.parametrize(
    "options", [["--to", "csv"], ["--to", "jsonl"], ["--to", "parquet"], ["--to", "stream", "--batch-rows", "10"]]
)
def test_rows_without_bytes_are_expanded_only_up_to_a_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    nulls = Array(layout_of(bs.null()), 1 << 40, ())
    source, target = tmp_path / "nulls.arrow", tmp_path / "out"
    batch = bs.RecordBatch.from_arrays([nulls], ["n"])
    with bs.new_file(source, batch.schema) as writer:
        writer.write_batch(batch)
    assert main(["convert", str(source), str(target), *options]) == 1
    assert f"{1 << 40} rows" in capsys.readouterr().err
    assert not target.exists()
    assert main(["cat", str(source)]) == 1
    assert main(["head", "-n", "2", "--format", "jsonl", str(source)]) == 0
    assert capsys.readouterr().out == '{"n": null}\n' * 2
    convert(source, target, "--to", "stream")
    assert main(["diff", str(source), str(target)]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--compression-level", "3"], "compression_level 3 without compression"),
        (["--compression", "zstd", "--compression-level", "99"], "compression_level of zstd is"),
        (["--compression", "lz4", "--metadata-version", "V4"], "bodies of metadata version V4"),
    ],
)
def test_an_unknown_format_is_a_usage_error(arguments: list[str], message: str, tmp_path: Path) -> None:
    source = write(tmp_path / "x.arrow", TABLE)
    process = run_command("convert", *arguments, source, tmp_path / "y.arrow")
    assert (process.returncode, process.stdout) == (2, b"")
    assert process.stderr.decode().startswith(f"bowstring: {message}")
    assert process.stderr.endswith(b"(bowstring convert --help shows how)\n")
    assert not (tmp_path / "y.arrow").exists()


def test_the_hint_for_another_format_on_a_pipe_names_the_option(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    process = run_with_pipe(path, "convert", "-", tmp_path / "y.arrow")
    assert process.returncode == 1
    assert process.stderr.endswith(b"(use --from parquet, csv, json or jsonl for another format)\n")


def test_standard_output_gets_a_stream_unless_a_format_is_given(tmp_path: Path) -> None:
    write(tmp_path / "x.arrow", pa.table({"a": [1, 2]}))
    assert pa.ipc.open_stream(run_command("convert", tmp_path / "x.arrow", "-").stdout).read_all()["a"].to_pylist() == [
        1,
        2,
    ]
    assert run_command("convert", tmp_path / "x.arrow", "-", "--to", "csv").stdout == b'"a"\n1\n2\n'
