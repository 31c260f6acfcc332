"""`bowstring diff`: schema first, then the first rows that differ."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from bowstring.cli.main import main
from tests.cli.command_line import run_command, run_with_pipe, write

TABLE = pa.table({"n": [float("nan"), *map(float, range(999))], "text": [None, *map(str, range(999))]})


def change_values(table: pa.Table, column: str, row: int, value: object) -> pa.Table:
    values = table.column(column).to_pylist()
    values[row] = value
    index = table.column_names.index(column)
    return table.set_column(index, table.field(index), pa.array(values, table.field(index).type))


def output_of(capsys: pytest.CaptureFixture[str], status: int, *arguments: object) -> list[str]:
    assert main(["diff", *map(str, arguments)]) == status
    return capsys.readouterr().out.splitlines()


def test_a_file_and_a_stream_of_the_same_rows_do_not_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left, right = write(tmp_path / "a.arrow", TABLE, 300), write(tmp_path / "b.arrows", TABLE, 77)
    assert output_of(capsys, 0, left, right) == []


def test_different_rows_are_reported_with_both_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = change_values(change_values(TABLE, "n", 500, None), "text", 7, "\x1b[2J")
    left, right = write(tmp_path / "a.arrow", TABLE, 300), write(tmp_path / "b.arrow", other, 450)
    assert output_of(capsys, 1, left, right) == [
        'row 7, column \'text\': "6" | "\\u001b[2J"',
        "row 500, column 'n': 499.0 | null",
    ]
    assert output_of(capsys, 1, "-n", 1, left, right)[1:] == ["… and more (-n shows more rows)"]


def test_schemas_are_compared_before_the_common_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = pa.table({"a": [1, 2], "b": [1, 2], "gone": [1, 2]})
    right = pa.table({"b": pa.array([1, 2], pa.int8()), "a": [1, 3], "new": ["x", "y"]})
    lines = output_of(capsys, 1, write(tmp_path / "a.arrow", left), write(tmp_path / "b.arrow", right))
    assert lines == [
        "schema: column 'b': the type is int64 on the left, int8 on the right",
        "schema: column 'gone' (int64) is only on the left",
        "schema: column 'new' (string) is only on the right",
        "schema: the order of the columns differs",
        "row 1, column 'a': 2 | 3",
    ]


def test_one_side_may_have_more_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left, right = write(tmp_path / "a.arrow", TABLE, 300), write(tmp_path / "b.arrow", TABLE.slice(0, 990), 90)
    assert output_of(capsys, 1, left, right) == ["rows: 1,000 on the left, 990 on the right"]
    assert output_of(capsys, 1, right, left) == ["rows: 990 on the left, 1,000 on the right"]


def test_names_inside_a_type_are_shown_and_count_as_metadata(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left, right = (
        write(tmp_path / f"{name}.arrow", pa.table({"a": pa.array([[1]], pa.list_(pa.field(name, pa.int64())))}))
        for name in ("item", "element")
    )
    (line,) = output_of(capsys, 1, left, right)
    assert line == "schema: column 'a': the type is list<item: int64> on the left, list<element: int64> on the right"
    assert output_of(capsys, 0, "--ignore-metadata", left, right) == []


def test_the_numbers_of_rows_are_reported_after_as_many_differences_as_requested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = change_values(TABLE.slice(0, 990), "n", 500, None)
    left, right = write(tmp_path / "a.arrow", TABLE, 300), write(tmp_path / "b.arrow", other)
    lines = ["row 500, column 'n': 499.0 | null", "rows: 1,000 on the left, 990 on the right"]
    assert output_of(capsys, 1, "-n", 1, left, right) == lines
    document = json.loads("".join(output_of(capsys, 1, "-n", 1, "--json", left, right)))
    assert (document["lengths"], document["more"]) == ({"left": 1000, "right": 990}, False)
    document = json.loads("".join(output_of(capsys, 1, "-n", 0, "--json", left, right)))
    assert (document["lengths"], document["more"]) == (None, True)


def test_metadata_is_compared_unless_an_option_ignores_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = write(tmp_path / "a.arrow", TABLE)
    right = write(tmp_path / "b.arrow", TABLE.replace_schema_metadata({"by": "me"}))
    assert output_of(capsys, 1, left, right) == ["schema: the custom metadata of the schema differs"]
    assert output_of(capsys, 0, "--ignore-metadata", left, right) == []


def test_one_side_may_be_a_pipe(tmp_path: Path, repository: Path) -> None:
    left = write(tmp_path / "a.arrow", TABLE)
    right = write(tmp_path / "b.arrows", change_values(TABLE, "n", 3, 1.5), 10)
    process = run_with_pipe(right, "diff", "--json", left, "-")
    assert (process.returncode, process.stderr) == (1, b"")
    document = json.loads(process.stdout)
    assert (document["equal"], document["schema"], document["right"]) == (False, [], "standard input")
    assert document["rows"] == [{"row": 3, "cells": [{"column": "n", "left": 2.0, "right": 1.5}]}]
    page = (repository / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    assert not {key for key in {*document, "row", "cells"} if f"`{key}`" not in page}


@pytest.mark.thorough
def test_a_damaged_or_missing_file_is_one_error_line(tmp_path: Path) -> None:
    left, right = write(tmp_path / "a.arrow", TABLE), write(tmp_path / "b.arrow", TABLE)
    right.write_bytes(right.read_bytes()[:-9])
    for other in (right, tmp_path / "nothing"):
        process = run_command("diff", left, other)
        assert (process.returncode, process.stdout, process.stderr.count(b"\n")) == (1, b"", 1)
    assert run_command("diff", "-", "-").returncode == 2


def write_invalid(path: Path, before: bytes, after: bytes) -> Path:
    path.write_bytes(path.read_bytes().replace(before, after))
    return path


def test_an_invalid_value_is_reported_with_its_file_batch_column_and_index(tmp_path: Path) -> None:
    left = write(tmp_path / "a.arrow", pa.table({"word": ["sound", "other", "xxyyzz"]}))
    right = write(tmp_path / "b.arrow", pa.table({"word": ["sound", "sound", "xxyyzz"]}))
    write_invalid(right, b"xxyyzz", b"xx\xffyzz")
    process = run_command("diff", left, right)
    assert (process.returncode, process.stdout, process.stderr.count(b"\n")) == (1, b"", 1)
    message = f"bowstring: {right}: record batch 0, column 'word': values[2] is not valid UTF-8"
    assert process.stderr.decode().startswith(message)
    assert b"--quick" in process.stderr
    process = run_command("diff", "--quick", left, right)
    assert (process.returncode, process.stdout, process.stderr.count(b"\n")) == (1, b"", 1)
    assert b"on the right, from row 2 on, column 'word': values[0] is not valid UTF-8" in process.stderr


def test_files_with_the_same_invalid_value_are_not_equal(tmp_path: Path) -> None:
    both = [write(tmp_path / name, pa.table({"word": ["sound", "xxyyzz"]})) for name in ("a.arrow", "b.arrows")]
    for path in both:
        write_invalid(path, b"xxyyzz", b"xx\xffyzz")
    process = run_command("diff", "--json", *both)
    assert (process.returncode, process.stdout) == (1, b"")
    assert f"{both[0]}: record batch 0, column 'word': values[1] is not valid UTF-8" in process.stderr.decode()
    assert run_command("diff", "--quick", *both).returncode == 0


def test_an_invalid_column_that_is_not_compared_is_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = write(tmp_path / "a.arrow", pa.table({"gone": ["xxyyzz", "x"], "n": [1, 2]}))
    right = write(tmp_path / "b.arrow", pa.table({"n": [1, 2]}))
    write_invalid(left, b"xxyyzz", b"xx\xffyzz")
    assert output_of(capsys, 1, left, right) == ["schema: column 'gone' (string) is only on the left"]


def test_without_common_columns_the_rows_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left, right = (
        write(tmp_path / "a.arrow", pa.table({"a": [1, 2]})),
        write(tmp_path / "b.arrow", pa.table({"b": [1]})),
    )
    assert output_of(capsys, 1, left, right)[-1] == "rows: 2 on the left, 1 on the right"


def test_golden_files_and_streams_of_one_case_do_not_differ(
    shared_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = sorted((shared_folder / "corpus" / "golden" / "cpp-21.0.0").glob("*.stream"))
    if not paths:
        pytest.skip("requires golden files of this version in ../shared")
    for stream in paths:
        # Its map has other names inside, which Arrow C++ kept in the file only.
        odd = stream.stem == "generated_map_non_canonical"
        lines = output_of(capsys, int(odd), stream, stream.with_suffix(".arrow_file"))
        assert [line.partition(" differ in ")[2] for line in lines] == ["name or custom metadata"] * odd
