"""Commands that read Parquet, CSV and JSON as they read Arrow data."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bowstring as bs
from bowstring.cli.main import main
from tests.cli.command_line import run_command, run_with_pipe, write

TABLE = pa.table({"n": [1, None, 3], "text, with comma": ["a", "b", None], "x": [0.5, 1.5, 2.5]})
NAMES = ["t.arrow", "t.arrows", "t.parquet", "t.csv", "t.tsv", "t.json", "t.jsonl"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("formats")
    write(folder / "t.arrow", TABLE, 2)
    for name in NAMES[1:]:
        assert main(["convert", str(folder / "t.arrow"), str(folder / name)]) == 0
    return folder


def output_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    capsys.readouterr()
    assert main(list(map(str, arguments))) == 0, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_head_cat_and_diff_read_every_format(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.loads(line) for line in output_of(capsys, "cat", folder / name).splitlines()]
    assert rows == TABLE.to_pylist()
    lines = output_of(capsys, "head", "-n", 2, "--format", "jsonl", "-c", "x,n", folder / name).splitlines()
    assert list(map(json.loads, lines)) == [{"x": 0.5, "n": 1}, {"x": 1.5, "n": None}]
    assert output_of(capsys, "diff", folder / "t.arrow", folder / name) == ""


@pytest.mark.parametrize("name", NAMES[2:])
def test_diff_names_the_rows_that_differ_between_formats(
    folder: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write(tmp_path / "other.arrow", TABLE.set_column(0, "n", pa.array([1, 2, 3])))
    assert main(["diff", str(folder / name), str(other)]) == 1
    assert capsys.readouterr().out == "row 1, column 'n': null | 2\n"


@pytest.mark.parametrize(
    ("command", "name"),
    [("cat", "t.arrow"), ("head", "t.arrows"), ("head", "t.parquet"), ("info", "t.json"), ("schema", "t.jsonl")],
)
def test_standard_input_is_detected_by_content(folder: Path, command: str, name: str) -> None:
    process = run_with_pipe(folder / name, command, "-")
    assert (process.returncode, process.stderr) == (0, b"")
    assert b"text, with comma" in process.stdout


@pytest.mark.parametrize("source", ["t.arrow", "t.arrows", "t.parquet"])
@pytest.mark.parametrize("name", ["x.csv", "x.json", "x.arrow", "x.parquet", "x"])
def test_the_content_of_binary_formats_counts_more_than_the_extension(
    folder: Path, tmp_path: Path, source: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes((folder / source).read_bytes())
    assert output_of(capsys, "diff", folder / "t.arrow", tmp_path / name) == ""


def test_csv_may_begin_with_the_names_of_other_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for header in ("ARROW1,x", "PAR1,x"):
        (tmp_path / "x.csv").write_text(f"{header}\n1,2\n")
        assert output_of(capsys, "cat", "--format", "csv", tmp_path / "x.csv") == f"{header}\n1,2\n"


def test_csv_on_standard_input_needs_the_option_from(folder: Path) -> None:
    process = run_with_pipe(folder / "t.csv", "head", "--from", "csv")
    assert (process.returncode, process.stderr) == (0, b"")
    assert b"text, with comma" in process.stdout
    process = run_with_pipe(folder / "t.csv", "head")
    assert process.returncode == 1
    assert process.stderr.endswith(b"(use --from parquet, csv, json or jsonl for another format)\n")


def test_names_are_a_list_and_those_with_commas_are_in_quotes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options in (["-c", 'x,"text, with comma"'], ["-c", "x", "--column", '"text, with comma"']):
        rows = output_of(capsys, "cat", "--format", "csv", *options, folder / "t.arrow")
        assert rows.splitlines()[:2] == ['x,"text, with comma"', "0.5,a"]
    assert main(["convert", str(folder / "t.csv"), str(tmp_path / "t.arrow"), "--columns", "x,n"]) == 0
    assert pa.ipc.open_file(tmp_path / "t.arrow").schema.names == ["x", "n"]
    assert main(["head", "-c", "y,x", str(folder / "t.csv")]) == 1
    assert "there is no column 'y'" in capsys.readouterr().err


def test_hints_name_the_command_that_has_the_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.csv").write_bytes(b"a,b\n1,\xff\n")
    for command in ("head", "cat", "info"):
        assert main([command, str(tmp_path / "x.csv")]) == 1
        assert (
            "x.csv: column 'b' is not valid UTF-8 (bowstring convert has --column-type, --encoding"
            in capsys.readouterr().err
        )


@pytest.mark.parametrize("command", ["head", "cat", "schema", "count", "info", "diff", "serve", "publish"])
def test_the_error_of_an_option_that_convert_has_names_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for option, hint in (("--delimiter", ": bowstring convert has it"), ("--xyz", "")):
        assert main([command, option, ";", "x.csv"]) == 2
        assert capsys.readouterr().err == (
            f"bowstring: no such option '{option}'{hint} (bowstring {command} --help shows how)\n"
        )


def test_the_hint_of_diff_is_about_diff(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with bs.new_file(tmp_path / "x.arrow", {"s": "string"}) as writer:
        writer.write(bs.record_batch({"s": ["abcdef"]}))
    content = (tmp_path / "x.arrow").read_bytes()
    (tmp_path / "x.arrow").write_bytes(content.replace(b"abcdef", b"abc\xffef"))
    assert main(["diff", str(tmp_path / "x.arrow"), str(tmp_path / "x.arrow")]) == 1
    assert "(bowstring validate lists all errors, --quick compares without validation)\n" in capsys.readouterr().err


def test_sizes_of_parquet_are_those_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"nested": [{"a": 1, "b": [1, 2]}] * 1000, "n": range(1000), "s": ["x", None] * 500})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=400, use_dictionary=["s"], compression="zstd")
    document = json.loads(output_of(capsys, "info", "--sizes", "--json", tmp_path / "t.parquet"))
    metadata = pq.read_metadata(tmp_path / "t.parquet")
    chunks = [metadata.row_group(group).column(leaf) for group in range(3) for leaf in range(4)]
    assert document["bytes"] == sum(chunk.total_compressed_size for chunk in chunks)
    columns = {column["name"]: column for column in document["columns"]}
    assert columns["s"]["bytes"] == sum(c.total_compressed_size for c in chunks if c.path_in_schema == "s")
    assert [columns[name]["encoding"] for name in "sn"] == ["dictionary + zstd", "plain + zstd"]
    assert [columns[name]["null_count"] for name in ("s", "n", "nested")] == [500, 0, None]
    assert (document["rows"], sum(column["share"] for column in document["columns"])) == (1000, pytest.approx(1))


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_sizes_of_text_are_those_as_arrow(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(output_of(capsys, "info", "--sizes", "--json", folder / name))
    table = bs.open_file(folder / "t.arrow").read_all()
    sizes = {column["name"]: column["bytes"] for column in document["columns"]}
    assert sizes["x"] == table["x"].nbytes == 24
    assert {column["name"]: column["null_count"] for column in document["columns"]} == {
        "n": 1,
        "text, with comma": 1,
        "x": 0,
    }


@pytest.mark.parametrize(("name", "format_name"), [("t.parquet", "Parquet"), ("t.csv", "CSV"), ("t.json", "JSON")])
def test_info_shows_columns_and_schema_of_every_format(
    folder: Path, name: str, format_name: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = output_of(capsys, "info", folder / name)
    size = (folder / name).stat().st_size
    assert text.startswith(
        f"{folder / name}: {format_name}, {size / 1024:.2f} KiB"
        if size > 1024
        else f"{folder / name}: {format_name}, {size} bytes"
    )
    assert "  rows" in text
    assert "Columns by size" in text
    document = json.loads(output_of(capsys, "info", "--json", folder / name))
    assert (document["rows"], document["bytes"]["total"], document["format"]) == (3, size, format_name.lower())
    assert [field["name"] for field in document["schema"]["fields"]] == TABLE.column_names
    page = (repository / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    assert not {key for key in document if f"`{key}`" not in page}


def test_head_ends_before_a_large_source_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    path.write_text("[" + ",\n".join(f'{{"n": {n}, "s": "{"x" * 50}"}}' for n in range(400_000)) + "]")
    process = run_command("head", "-n", "1", "--format", "jsonl", "-c", "n", path)
    assert (process.returncode, process.stdout, process.stderr) == (0, b'{"n": 0}\n', b"")
