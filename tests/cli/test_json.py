"""JSON lines and JSON arrays in `bowstring convert`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.cli.main import main
from bowstring.layouts import expansion_limits
from tests.cli.command_line import run_command, run_with_pipe, write
from tests.cli.test_convert import TABLE, convert
from tests.ipc.remote_stores import serve_files


def read(path: Path) -> pa.Table:
    return pa.ipc.open_file(path).read_all()


def convert_text(path: Path, text: str | bytes, *options: object) -> pa.Table:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    convert(path, path.with_name("x.arrow"), *options)
    return read(path.with_name("x.arrow"))


@pytest.mark.parametrize("kind", ["jsonl", "json"])
def test_json_is_read_and_written(tmp_path: Path, kind: str) -> None:
    convert(write(tmp_path / "source.arrow", TABLE, 70), tmp_path / f"x.{kind}")
    convert(tmp_path / f"x.{kind}", tmp_path / "y.arrow")
    assert read(tmp_path / "y.arrow").to_pylist() == TABLE.to_pylist()


def test_json_is_an_array_of_objects(tmp_path: Path) -> None:
    convert(write(tmp_path / "source.arrow", TABLE, 70), tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text()) == TABLE.to_pylist()
    convert(write(tmp_path / "empty.arrow", TABLE.slice(0, 0)), tmp_path / "empty.json")
    assert json.loads((tmp_path / "empty.json").read_text()) == []


@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x.ndjson"])
@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}\n\n{"a": null, "b": [true]}\n',
        '[{"a": 1},\n {"a": null,\n  "b": [true]}]\n',
        '\ufeff [{"a":1},{"b":[true]}]',
    ],
    ids=["lines", "array", "array with a mark"],
)
def test_json_lines_and_arrays_are_distinguished_by_the_first_character(tmp_path: Path, name: str, text: str) -> None:
    table = convert_text(tmp_path / name, text)
    assert table.to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": [True]}]


def test_objects_without_a_key_are_rows(tmp_path: Path) -> None:
    assert convert_text(tmp_path / "x.jsonl", "{}\n{}\n").num_rows == 2
    assert convert_text(tmp_path / "x.json", "[{}, {}]").num_rows == 2


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([[None, 1], [2]], "list<item: int64>"),
        ([[None, None], None], "list<item: null>"),
        (
            [[{"x": [None, None, 1.5], "y": [None, None]}]],
            "list<item: struct<x: list<item: double>, y: list<item: null>>>",
        ),
    ],
    ids=str,
)
def test_lists_may_start_with_nulls(tmp_path: Path, values: list[Any], type_: str) -> None:
    table = convert_text(tmp_path / "x.jsonl", "".join(json.dumps({"a": value}) + "\n" for value in values))
    assert (str(table["a"].type), table["a"].to_pylist()) == (type_, values)


@pytest.mark.parametrize("text", ["", "\n\n", "[]", " [ ] \n"])
def test_without_objects_a_table_has_no_rows(tmp_path: Path, text: str) -> None:
    assert convert_text(tmp_path / "x.json", text).shape == (0, 0)


def test_brackets_in_strings_are_not_nested_values(tmp_path: Path) -> None:
    rows = [{"a": "[" * 200, "b": '"[' * 100, "c": "\\"}, {"a": "", "b": "]", "c": '\\"{' * 100}]
    assert convert_text(tmp_path / "x.jsonl", "".join(json.dumps(row) + "\n" for row in rows)).to_pylist() == rows


def test_an_array_is_parsed_in_blocks(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"n": n, "s": 'a "]" [{\\ ü\n' * (n % 40)} for n in range(2000)]
    table = convert_text(tmp_path / "x.json", json.dumps(rows, indent=1, ensure_ascii=False), "--block-size", 2048)
    assert table.to_pylist() == rows
    assert len(table["n"].chunks) > 5


def test_an_error_suggests_a_type_that_the_first_block_does_not_show(tmp_path: Path) -> None:
    text = '{"a": null}\n' * 200 + '{"a": 1.5, "late": "x"}\n'
    types = ["--column-type", "a=float64", "--column-type", "late=string"]
    table = convert_text(tmp_path / "x.jsonl", text, "--block-size", 1024, *types, "-c", "late", "-c", "a")
    assert table.schema.names == ["late", "a"]
    assert table.to_pylist()[-1] == {"late": "x", "a": 1.5}


@pytest.mark.parametrize("name", ["x.json", "x.jsonl"])
def test_special_floats_are_read_into_columns_of_floats(tmp_path: Path, name: str) -> None:
    floats = [float("nan"), 1.5, None, float("inf"), float("-inf")]
    table = pa.table({'ä "\\': floats, "s": ["NaN", '"a": "NaN"', None, "Infinity", ""]})
    convert(write(tmp_path / "source.arrow", table), tmp_path / name)
    convert(tmp_path / name, tmp_path / "read.arrow", "--column-type", 'ä "\\=double')
    assert repr(read(tmp_path / "read.arrow").to_pylist()) == repr(table.to_pylist())


@pytest.mark.parametrize("end", ["", "\n", '\n{"a": "y"}', '\n{"a": "y"}\n'])
@pytest.mark.parametrize(("excess_bytes", "status"), [(-1, 0), (0, 0), (1, 1)])
@pytest.mark.parametrize("start", ["", '{"a": "z"}\n', '{"a": "z"}\n' * 200])
def test_a_line_may_be_as_long_as_a_block(tmp_path: Path, start: str, end: str, excess_bytes: int, status: int) -> None:
    line = f'{{"a": "{"x" * (1024 + excess_bytes - 9)}"}}'
    (tmp_path / "x.jsonl").write_text(f"{start}{line}{end}")
    arguments = ["convert", str(tmp_path / "x.jsonl"), str(tmp_path / "x.arrow"), "--block-size", "1024"]
    assert main(arguments) == status
    if not status:
        texts = [json.loads(each)["a"] for each in f"{start}{line}{end}".splitlines()]
        assert bs.read_table(tmp_path / "x.arrow")["a"].to_pylist() == texts


INVALID_JSON: dict[str, tuple[str | bytes, str]] = {
    "another type": ('{"a": 1}\n{"a": "x"}\n', 'line 2: Column(/a) changed from number to string: \'{"a": "x"}\''),
    "a row that is not an object": (
        '{"a": 1}\n[1]\n',
        "line 2: Column() changed from object to array: '[1]'",
    ),
    "a row that is cut off": ('{"a": 1}\n{"a":', "line 2: Invalid value: '{\"a\":'"),
    "values nested too deep": (
        '{"a":' + "[" * 100_000 + "]" * 100_000 + "}\n",
        "values are nested deeper than 64 levels",
    ),
    "values nested too deep behind brackets in strings": (
        '{"]]]]": ' * 70 + "1" + "}" * 70 + "\n",
        "values are nested deeper than 64 levels",
    ),
    "values nested too deep in several lines": (
        '{"a":\n' + "[\n" * 100_000 + "]\n" * 100_000 + "}\n",
        "values are nested deeper than 64 levels",
    ),
    "an array of values nested too deep": (
        '[{"a":' + "[" * 500 + "]" * 500 + "}]",
        "values are nested deeper than 64 levels",
    ),
    "an array of values that Python can't decode": (
        '[{"a":' + "[" * 100_000 + "]" * 100_000 + "}]",
        "values are nested too deep",
    ),
    "an array that is cut off": (
        '[{"a": 1}, {"a": 2}',
        "after 2 objects of the array: expected an object or the end of the array, found ''",
    ),
    "an array with an object that is cut off": (
        '[{"a": 1}, {"a"',
        "after 1 objects of the array: Expecting ':' delimiter, found ', {\"a\"'",
    ),
    "an array without commas": (
        '[{"a": 1} {"a": 2}]',
        "after 1 objects of the array: expected an object or the end of the array, found ' {\"a\": 2}]'",
    ),
    "an array with a comma too many": (
        '[{"a": 1},]',
        "after 1 objects of the array: expected an object or the end of the array, found ',]'",
    ),
    "an array of numbers": (
        "[1, 2]",
        "after 0 objects of the array: expected an object or the end of the array, found '[1, 2]'",
    ),
    "more than an array": (
        '[{"a": 1}] {}',
        "after 1 objects of the array: expected an object or the end of the array, found '] {}'",
    ),
    "CSV": ("a,b\n1,2\n", "JSON parse error: Invalid value. in row 0"),
    "bytes that are not UTF-8 in an array": (b'[{"a": "\xff"}]', "'utf-8' codec can't decode byte 0xff"),
    "another type in a later block": (
        '{"a": 1}\n' * 1000 + '{"a": "x"}\n',
        'line 1,001: Column(/a) changed from number to string: \'{"a": "x"}\'',
    ),
    "another key in a later block": (
        '{"a": 1}\n' * 1000 + '{"b": 1}\n',
        "line 1,001: unexpected field: '{\"b\": 1}'",
    ),
    "a line that is larger than a block": (
        '{"a": "' + "x" * 5000 + '"}\n',
        "a line is larger than a block of 1024 bytes",
    ),
}


@pytest.mark.parametrize("what", INVALID_JSON)
def test_invalid_json_is_one_error_line_with_its_location(
    tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, message = INVALID_JSON[what]
    (tmp_path / "x.json").write_bytes(text.encode() if isinstance(text, str) else text)
    arguments = ["convert", str(tmp_path / "x.json"), str(tmp_path / "target.arrow")]
    arguments += ["--block-size", "1024"] if "block" in what else []
    if "nested" in what:  # they overflow the stack of pyarrow
        process = run_command(*arguments)
        status, error = process.returncode, process.stderr.decode()
    else:
        status, error = main(arguments), capsys.readouterr().err
    assert status == 1
    assert error.startswith(f"bowstring: {tmp_path}/x.json: {message}")
    assert error.count("\n") == 1
    assert not (tmp_path / "target.arrow").exists()


def test_strings_that_are_not_utf_8_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'{"a": "\xff"}\n')
    assert main(["convert", str(tmp_path / "x.jsonl"), str(tmp_path / "x.arrow")]) == 1
    assert "record batch 0, column 'a': values[0] is no" in capsys.readouterr().err


def test_objects_with_many_different_keys_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, target = tmp_path / "data.jsonl", tmp_path / "data.arrow"
    lines = [f'{{"k{number}" : 1}}\n' for number in range(100)]
    assert convert_text(path, "".join(lines)).shape == (100, 100)
    monkeypatch.setattr(expansion_limits, "MAX_VALUES", 99 * 99)
    nested = (f'{{"inside": {line[:-1]}}}\n' for line in lines)
    escaped = (f'{{"\\u006b{number}": 1}}\n' for number in range(100))
    for text in ("".join(lines), "".join(nested), "".join(escaped), "".join(map(str.rstrip, lines))):
        path.write_text(text)
        assert main(["convert", str(path), str(target)]) == 1
        assert "data.jsonl: 100 objects with 10" in capsys.readouterr().err
    strings = "".join(json.dumps({"a": line}) + "\n" for line in lines)
    assert convert_text(path, strings).shape == (100, 1)


@pytest.mark.parametrize("supports_ranges", [True, False], ids=["with ranges", "without"])
def test_json_is_read_from_a_url(tmp_path: Path, supports_ranges: bool) -> None:
    with serve_files(**{"x.jsonl": b'{"a": 1}\n', "x.json.gz": gzip.compress(b'[{"a": 1}]')}) as site:
        site.supports_ranges = supports_ranges
        convert(f"{site.url}/x.jsonl", tmp_path / "x.arrow")
        convert(f"{site.url}/x.json.gz", tmp_path / "y.arrow")
    assert read(tmp_path / "x.arrow").to_pydict() == read(tmp_path / "y.arrow").to_pydict() == {"a": [1]}


def test_json_is_read_from_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('[{"a": 1}]')
    process = run_with_pipe(tmp_path / "x", "convert", "--from", "json", "--to", "jsonl", "-", "-")
    assert (process.returncode, process.stdout, process.stderr) == (0, b'{"a": 1}\n', b"")
