"""Rows of CSV and JSON that do not fit: an error with their number, or left out and listed."""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import bowstring as bs
from bowstring.cli.main import main
from bowstring.errors import InvalidArgumentError, InvalidDataError
from tests.cli.command_line import run_command

CSV = b'a,b\n1,x\n2\n3,"y\nz"\nfoo,q\n4,""\n6,,7\n7,\xff\n8,\n'
"""Rows 3, 5, 7 and 8 are invalid if the type of a is int64."""
CSV_ROWS = {"a": [1, 3, 4, 8], "b": ["x", "y\nz", "", None]}
JSON = b'{"a": 1, "b": "x"}\n{"a": 2.5}\n\n{"a": "s"}\n{"a": 4, x\nnonsense\n{"a": 7, "c": [1]}\n'
JSON_ROWS = {"a": [1.0, 2.5, 7.0], "b": ["x", None, None], "c": [None, None, [1]]}


def read(path: Path, **options: Any) -> tuple[dict[str, list[Any]], str]:
    """The rows, and the warning about those that were left out."""
    with pytest.warns(UserWarning, match="skipped") as warnings:
        table = bs.read_table(path, invalid_rows="skip", **options)
    assert warnings[0].filename == __file__
    return table.to_pydict(), str(warnings[0].message)


def convert(path: Path, *options: str) -> dict[str, list[Any]]:
    assert main(["convert", str(path), str(path.with_suffix(".arrow")), "--invalid-rows", "skip", *options]) == 0
    return bs.read_table(path.with_suffix(".arrow")).to_pydict()


def test_rows_of_csv_that_do_not_fit_are_left_out_and_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(CSV)
    rows, warning = read(path, column_types={"a": "int64"})
    assert rows == CSV_ROWS
    listed = {
        f"{path}: row 3: expected 2 columns, found 1: '2'",
        f"{path}: row 5: int64: invalid value 'foo': 'foo,q'",
        f"{path}: row 7: expected 2 columns, found 3: '6,,7'",
        f"{path}: row 8: Invalid UTF8 payload: '7,\ufffd'",
    }
    assert set(warning.removeprefix("skipped 4 invalid rows: ").split("; ")) == listed
    assert convert(path, "--column-type", "a=int64") == CSV_ROWS
    assert set(capsys.readouterr().err.splitlines()[:-2]) == listed
    path.with_name("x.csv.gz").write_bytes(gzip.compress(CSV))
    assert read(path.with_name("x.csv.gz"), column_types={"a": "int64"})[0] == CSV_ROWS


def test_lines_of_json_that_do_not_fit_are_left_out_and_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(JSON)
    rows, warning = read(path)
    assert rows == convert(path) == JSON_ROWS
    assert [f"line {line}: " in warning for line in range(1, 8)] == [False, False, False, True, True, True, False]
    assert capsys.readouterr().err.splitlines()[-2] == "skipped 3 invalid rows"
    path = tmp_path / "x.json"
    path.write_text('[{"a": 1}, {"a": "x"},\n{"a": 3}]')
    rows, warning = read(path)
    assert rows == {"a": [1, 3]}
    assert f'{path}: object 2: Column(/a) changed from number to string: \'{{"a": "x"}}\'' in warning


def test_a_row_that_does_not_fit_is_an_error_with_its_number_and_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content, types, message in (
        ("x.csv", b"a,b\n" + b"1,2\n" * 70_000 + b"3\n", None, "Row #70002: Expected 2 columns, got 1: 3"),
        (
            "x.csv",
            b"a\n" + b"1\n" * 70_000 + b"x\n",
            {"a": "int8"},
            "Row #70002: CSV conversion error to int8",
        ),
        ("x.jsonl", b'{"a": 1}\n' * 70_000 + b'{"a": "x"}\n', None, "line 70,001: Column(/a) changed from number to"),
        ("x.jsonl", b'{"a": 1}\n\n{"a": 2', {"a": "int8"}, "line 3: Missing a comma or '}' after an object member: '{"),
        ("x.json", b'{\n "a": 1\n}\n{\n "a": x\n}\n', None, "JSON parse error: Invalid value. in row 1"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidDataError) as raised:
            bs.read_table(tmp_path / name, column_types=types)
        assert str(raised.value).startswith(f"{tmp_path / name}: ")
        assert message in str(raised.value)
        assert 'bowstring.read_table has column_types, invalid_rows="skip"' in raised.value.__notes__[0]
        options = [f"--column-type=a={kind}" for kind in (types or {}).values()]
        assert main(["convert", str(tmp_path / name), str(tmp_path / "x.arrow"), *options]) == 1
        assert "--invalid-rows skip" in capsys.readouterr().err
        assert not (tmp_path / "x.arrow").exists()


@pytest.mark.parametrize("from_stdin", [False, True])
def test_rows_of_many_blocks_have_the_types_of_the_first_and_their_numbers(tmp_path: Path, from_stdin: bool) -> None:
    rows = [f"{index},{index / 2},x{index}" for index in range(20_000)]
    invalid = {12_345: "x,1,y", 15_000: "1", 15_001: "1,zwei,y", 19_999: "2,3,"[:3]}
    for index, text in invalid.items():
        rows[index] = text
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["n,half,text", *rows]) + "\n")
    arguments = ["--from", "csv", "--invalid-rows", "skip", "--block-size", "4096", tmp_path / "x.arrow"]
    source = "-" if from_stdin else path
    with path.open() as stdin:
        process = run_command("convert", source, *arguments, stdin=stdin if from_stdin else subprocess.DEVNULL)
    assert process.returncode == 0, process.stderr
    lines = process.stderr.decode().splitlines()
    numbers = sorted(int(line.split(": row ")[1].split(":")[0].replace(",", "")) for line in lines[:-2])
    assert numbers == [index + 2 for index in invalid]
    assert lines[-2] == "skipped 4 invalid rows"
    expected = [index for index in range(20_000) if index not in invalid]
    table = bs.read_table(tmp_path / "x.arrow")
    assert table.to_pydict() == {
        "n": expected,
        "half": [index / 2 for index in expected],
        "text": [f"x{index}" for index in expected],
    }


def test_valid_values_are_the_same_whether_rows_are_left_out_or_not(tmp_path: Path) -> None:
    text = (
        'i,f,b,d,t,s,zip\n1,1e3,true,2024-02-29,2024-05-06 07:08:09,"a ""b"", c",08\n'
        ',,,,,,\n-3,nan,0,1999-12-31,2024-05-06T07:08:10,NA,09\nNA,2,False,NA,NA,"NA",NA\n'
    )
    options = ["--null-value", "NA", "--null-value", "", "--column-type", "b=bool"]
    (tmp_path / "x.csv").write_text(text)
    assert main(["convert", str(tmp_path / "x.csv"), str(tmp_path / "error.arrow"), *options]) == 0
    expected = bs.read_table(tmp_path / "error.arrow")
    convert(tmp_path / "x.csv", *options)
    assert bs.read_table(tmp_path / "x.arrow").to_pylist().__repr__() == expected.to_pylist().__repr__()
    assert bs.read_table(tmp_path / "x.arrow").schema == expected.schema
    (tmp_path / "x.csv").write_text(text + "\n1\n")
    convert(tmp_path / "x.csv", *options)
    assert bs.read_table(tmp_path / "x.arrow").schema == expected.schema


def test_text_that_is_null_only_for_other_options_is_invalid_as_a_number(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('a,b\n1,x\n"",y\n,z\nNA,v\n')
    assert convert(tmp_path / "x.csv", "--null-value", "NA", "--column-type", "a=int64") == {
        "a": [1, None],
        "b": ["x", "v"],
    }


@pytest.mark.parametrize("first", [b'{"a": null}\n', b'{"a": 1}\n{"b": [1]}\n', b""])
def test_rows_of_json_with_only_other_lines_between_them_keep_their_types(tmp_path: Path, first: bytes) -> None:
    (tmp_path / "x.jsonl").write_bytes(first + b'nonsense\n{"a": 2, "b": [2]}\n')
    (tmp_path / "valid.jsonl").write_bytes(first + b'{"a": 2, "b": [2]}\n')
    assert read(tmp_path / "x.jsonl")[0] == bs.read_table(tmp_path / "valid.jsonl").to_pydict()
    (tmp_path / "x.jsonl").write_bytes(b"nonsense\n")
    with pytest.raises(InvalidDataError, match="Invalid value"):  # not JSON at all
        bs.read_table(tmp_path / "x.jsonl", invalid_rows="skip")


@pytest.mark.parametrize("from_stdin", [False, True])
@pytest.mark.parametrize(
    ("name", "start", "count", "num_null_rows"),
    [
        ("x.csv", "junk\n", 400, 0),
        ("x.csv", ",\n", 600, 600),
        ("x.jsonl", '{"a" 1}\n', 400, 0),
        ("x.jsonl", '{"a": null, "b": null}\n', 200, 200),
        ("x.json", '{"a": null, "b": null},\n', 200, 200),
    ],
)
def test_types_are_those_of_the_first_values_also_after_the_first_block(
    tmp_path: Path, name: str, start: str, count: int, num_null_rows: int, from_stdin: bool
) -> None:
    is_csv = name == "x.csv"
    rows = [f"{index},x{index}\n" if is_csv else f'{{"a": {index}, "b": "x{index}"}}\n' for index in range(500)]
    text = ("a,b\n" if is_csv else "") + start * count + "".join(rows)
    if name == "x.json":
        text = f"[{start * count}{','.join(rows)}]"
    (tmp_path / name).write_text(text)
    options = ["--from", Path(name).suffix[1:], "--invalid-rows", "skip", "--block-size", "1024"]
    with (tmp_path / name).open() as stdin:
        process = run_command(
            "convert", "-" if from_stdin else tmp_path / name, tmp_path / "x.arrow", *options, stdin=stdin
        )
    assert process.returncode == 0, process.stderr
    assert (b"skipped" in process.stderr) == (not num_null_rows)
    table = bs.read_table(tmp_path / "x.arrow")
    assert table.schema.types == bs.schema({"a": "int64", "b": "string"}).types
    assert table["a"].to_pylist() == [None] * num_null_rows + list(range(500))


def test_columns_of_csv_without_values_in_the_first_blocks_are_text(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n" + ",\n" * 5000 + "1,2\n")
    table = convert(tmp_path / "x.csv", "--block-size", "1024", "--column-type", "b=int8")
    assert table == {"a": [None] * 5000 + ["1"], "b": [None] * 5000 + [2]}
    (tmp_path / "x.csv").write_text("a\n" * 200)
    convert(tmp_path / "x.csv", "--block-size", "1024", "--null-value", "a")
    assert bs.read_table(tmp_path / "x.arrow").schema == bs.schema({"a": "null"})  # all rows were read


def publish(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[bs.Table, str]:
    assert main(["publish", *arguments]) == 0
    out, err = capsys.readouterr()
    try:
        return bs.open_published(out.strip()).read_all(), err
    finally:
        assert main(["unpublish", out.strip()]) == 0
        capsys.readouterr()


def test_publish_has_types_of_columns_and_leaves_rows_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        (tmp_path / f"{number}.csv").write_text(f"a,b\n0{number},x\nfoo,y\n3\n")
    options = ["--invalid-rows", "skip", "--column-type", "a=int16"]
    table, err = publish([str(tmp_path), "--name", "invalid-rows", *options], capsys)
    assert table == bs.table({"a": bs.array([1, 2], "int16"), "b": ["x", "x"]})
    assert "skipped 4 invalid rows\n" in err
    assert f"{tmp_path}/2.csv: row 3: int16: invalid value 'foo': 'foo,y'\n" in err
    assert main(["publish", str(tmp_path), *options[2:]]) == 1


def test_only_the_first_rows_that_were_left_out_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n" + "3\n" * 100 + "4," + "x" * 500 + ",\n")
    assert convert(tmp_path / "x.csv") == {"a": [1], "b": [2]}
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2] == "skipped 101 invalid rows; these are the first"
    assert len(lines) == 7
    assert len(read(tmp_path / "x.csv")[1]) < 1000


def test_the_options_are_for_csv_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("x.arrow", "x.parquet"):
        bs.write_table(bs.table({"a": [1]}), tmp_path / name)
        for options in ({"invalid_rows": "skip"}, {"column_types": {"a": "int8"}}):
            with pytest.raises(InvalidArgumentError, match="types of columns and invalid_rows are for CSV and JSON"):
                bs.read_table(tmp_path / name, **options)
        assert main(["publish", str(tmp_path / name), "--invalid-rows", "skip"]) == 1
        assert main(["convert", str(tmp_path / name), str(tmp_path / "y.csv"), "--invalid-rows", "skip"]) == 2
    invalid: Any = "ignore"
    with pytest.raises(InvalidArgumentError, match="invalid_rows: expected 'error' or 'skip', found 'ignore'"):
        bs.read_table(tmp_path / "x.csv", invalid_rows=invalid)
    capsys.readouterr()
