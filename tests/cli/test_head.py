"""`bowstring head` and `bowstring cat`: rows as tables, JSON lines and CSV."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.arrays.record_batch import RecordBatch
from bowstring.cli.main import main
from bowstring.inspection.formatting import encode_lines, format_csv_line, format_json_line, format_text, iterate_rows
from bowstring.layouts.registry import layout_of
from tests.cli.command_line import run_command, run_with_pipe, terminal_lines, write

NUMBERS = pa.table({"n": range(5000), "text": [f"row {n}" for n in range(5000)]})


def output_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(list(map(str, arguments))) == 0
    return capsys.readouterr().out


def write_every_type(path: Path) -> Path:
    """Two rows: a value of every kind, and a null of every kind."""
    nanoseconds = np.datetime64("2024-05-06T07:08:09.000000001", "ns")
    pairs = {
        "decimal": (bs.decimal128(9, 2), Decimal("1.50")),
        "date": (bs.date32(), date(2024, 5, 6)),
        "time": (bs.time64("us"), time(7, 8, 9)),
        "moment": (bs.timestamp("us", "UTC"), datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)),
        "exact": (bs.timestamp("ns"), nanoseconds),
        "span": (bs.duration("ms"), timedelta(days=-1, seconds=1)),
        "bytes": (bs.binary(), b"\x00\xff"),
        "nan": (bs.float64(), float("nan")),
        "list": (bs.list_(bs.float32()), [1.5, float("-inf"), None]),
        "map": (bs.map_(bs.string(), bs.int8()), [("a", 1)]),
        "struct": (bs.struct([bs.field("x", bs.string())]), {"x": None}),
        "uuid": (bs.datatypes.uuid(), UUID(int=1)),
        "tensor": (bs.datatypes.fixed_shape_tensor(bs.int8(), (2, 2)), np.array([[1, 2], [3, 4]], np.int8)),
        "offset": (bs.datatypes.timestamp_with_offset("ns"), bs.datatypes.TimestampWithOffset(nanoseconds, -90)),
        "interval": (bs.month_day_nano_interval(), (1, 2, 3)),
        "coded": (bs.dictionary(bs.int8(), bs.string()), "a"),
    }
    batch = bs.record_batch({name: bs.array([value, None], kind) for name, (kind, value) in pairs.items()})
    with bs.new_file(path, batch.schema) as writer:
        writer.write(batch)
    return path


def test_the_first_rows_are_a_table_with_names_and_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "data.arrow", NUMBERS, 1000)
    lines = output_of(capsys, "head", "-n", "2", path).splitlines()
    assert [line.split() for line in lines] == [
        ["n", "text"],
        ["int64", "string"],
        ["0", "row", "0"],
        ["1", "row", "1"],
    ]
    assert len(output_of(capsys, "head", path).splitlines()) == 12
    assert len(output_of(capsys, "head", "-n", "0", path).splitlines()) == 2


@pytest.mark.parametrize("name", ["data.arrow", "data.arrows"])
def test_output_to_a_pipe_is_all_rows_as_json_lines(tmp_path: Path, name: str) -> None:
    process = run_with_pipe(write(tmp_path / name, NUMBERS, 700), "cat")
    assert (process.returncode, process.stderr) == (0, b"")
    assert list(map(json.loads, process.stdout.splitlines())) == NUMBERS.to_pylist()


def test_head_reads_no_more_of_a_stream_than_it_shows(tmp_path: Path) -> None:
    path = write(tmp_path / "data.arrows", NUMBERS, 1000)
    path.write_bytes(path.read_bytes()[:-5000])
    process = run_with_pipe(path, "head", "-n", "1500", "--format", "jsonl")
    assert (process.returncode, len(process.stdout.splitlines())) == (0, 1500)
    assert run_with_pipe(path, "cat").returncode == 1


def test_csv_distinguishes_null_from_an_empty_string(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"a, b": ["x", "", None, 'say "y"\n'], "n": [1, None, 3, 4]})
    out = output_of(capsys, "cat", "--format", "csv", write(tmp_path / "data.arrow", table))
    assert out == '"a, b",n\nx,1\n"",\n,3\n"say ""y""\n",4\n'
    assert list(csv.reader(io.StringIO(out)))[4] == ['say "y"\n', "4"]


def test_csv_keeps_leading_and_trailing_spaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "data.arrow", pa.table({"a": [" x", "y\t", "in between"]}))
    assert output_of(capsys, "cat", "--format", "csv", path) == 'a\n" x"\n"y\t"\nin between\n'


def test_columns_are_selected_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "data.arrow", NUMBERS)
    assert output_of(capsys, "head", "-n", "1", "-c", "text", "--format", "csv", path) == "text\nrow 0\n"
    assert main(["head", "-c", "nowhere", str(path)]) == 1
    assert "nowhere" in capsys.readouterr().err


def test_every_type_has_a_json_representation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = output_of(capsys, "cat", "--format", "jsonl", write_every_type(tmp_path / "x.arrow")).splitlines()
    assert json.loads(first) == {
        "decimal": "1.50",
        "date": "2024-05-06",
        "time": "07:08:09",
        "moment": "2024-05-06T07:08:09+00:00",
        "exact": "2024-05-06T07:08:09.000000001",
        "span": "-PT86399S",
        "bytes": "00ff",
        "nan": "NaN",
        "list": [1.5, "-Infinity", None],
        "map": [["a", 1]],
        "struct": {"x": None},
        "uuid": "00000000-0000-0000-0000-000000000001",
        "tensor": [[1, 2], [3, 4]],
        "offset": "2024-05-06T05:38:09.000000001-01:30",
        "interval": {"months": 1, "days": 2, "nanoseconds": 3},
        "coded": "a",
    }
    assert set(json.loads(second).values()) == {None}


def test_nested_values_are_json_in_csv_and_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_every_type(tmp_path / "x.arrow")
    rows = list(csv.DictReader(io.StringIO(output_of(capsys, "cat", "--format", "csv", path))))
    assert rows[0]["list"] == '[1.5, "-Infinity", null]'
    assert set(rows[1].values()) == {""}
    assert '{"x": null}' in output_of(capsys, "head", path)


def test_control_characters_in_names_and_values_are_escaped_in_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "x.arrow", pa.table({"\x1b[2J\u202e": ["[red]\x9b1m\n", "x" * 10_000]}))
    out = output_of(capsys, "head", path)
    assert not set(out) & set("\x1b\x9b\u202e")
    assert "[red]" in out
    assert max(map(len, out.splitlines())) <= 40


def test_columns_with_the_same_name_are_written_as_table_and_csv_but_not_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "x.arrow", pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]))
    assert output_of(capsys, "cat", "--format", "csv", path) == "a,a\n1,2\n"
    assert main(["cat", "--format", "jsonl", str(path)]) == 1
    assert "--format csv" in capsys.readouterr().err


def test_damaged_data_is_one_error_line(tmp_path: Path) -> None:
    path = write(tmp_path / "x.arrow", NUMBERS)
    path.write_bytes(path.read_bytes()[:-20])
    for command in ("head", "cat"):
        process = run_command(command, path)
        assert (process.returncode, process.stdout, process.stderr.count(b"\n")) == (1, b"", 1)


def test_an_invalid_value_is_reported_with_its_batch_and_column(tmp_path: Path) -> None:
    path = write(tmp_path / "x.arrow", pa.table({"id": [1, 2], "word": ["sound", "xxyyzz"]}), 1)
    path.write_bytes(path.read_bytes().replace(b"xxyyzz", b"xx\xffyzz"))
    for command in (["head"], ["cat"], ["cat", "--format", "csv"]):
        process = run_command(*command, path)
        assert (process.returncode, process.stderr.count(b"\n")) == (1, 1)
        assert b"x.arrow: record batch 1, column 'word': values[0] is not valid UTF-8" in process.stderr


def test_every_golden_case_can_be_shown(shared_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = sorted((shared_folder / "corpus" / "golden" / "cpp-21.0.0").glob("*.stream"))
    if not paths:
        pytest.skip("requires golden files of this version in ../shared")
    for path in paths:
        for form in ("table", "csv"):
            assert output_of(capsys, "head", "--format", form, path)


def test_a_narrow_terminal_shows_the_columns_that_fit_and_a_note(tmp_path: Path) -> None:
    table = pa.table({f"column number {n}": ["some text"] for n in range(10)})
    lines = terminal_lines(60, "head", write(tmp_path / "x.arrow", table))
    assert lines[0].split("  ")[0] == "column number 0"
    assert max(map(len, lines)) <= 60
    assert lines[-1] == "and 7 more columns (--all shows them)"


def test_a_terminal_shows_at_most_a_thousand_rows_without_the_option(tmp_path: Path) -> None:
    path = write(tmp_path / "x.arrow", NUMBERS, 1000)
    lines = terminal_lines(60, "cat", "--format", "csv", path)
    assert (len(lines), lines[1000]) == (1002, "999,row 999")
    assert "--all" in lines[-1]
    assert len(terminal_lines(60, "cat", "--format", "csv", "--all", path)) == 5001


def test_escape_sequences_in_values_do_not_reach_a_terminal(tmp_path: Path) -> None:
    path = write(tmp_path / "x.arrow", pa.table({"a": ["\x9b2J\x1b[2J\u202e"]}))
    for form in ("table", "jsonl", "csv"):
        assert not set("".join(terminal_lines(60, "cat", "--format", form, path))) & set("\x1b\x9b\u202e")


@pytest.mark.parametrize(
    "column",
    [{"text": ["x" * 100_000] * 1000}, {f"column {n}": np.arange(1000.0) for n in range(2000)}],
    ids=["long", "wide"],
)
@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_the_first_rows_are_written_before_later_ones_are_converted(column: dict[str, Any], form: str) -> None:
    batch = bs.record_batch(column)
    rows = iterate_rows(batch)
    lines = (
        format_json_line(batch.column_names, row) if form == "jsonl" else format_csv_line(list(map(format_text, row)))
        for row in rows
    )
    tracemalloc.start()
    try:
        assert next(encode_lines(lines))
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


def test_only_the_columns_that_fit_are_converted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = {f"c{n}": ["word"] for n in range(101)} | {"c101": [b"\xff\xff"]}
    path = tmp_path / "data.arrow"
    batch = bs.record_batch(columns)
    mistyped_batch = RecordBatch.from_arrays(
        [*batch.columns[:101], batch.column(101).with_layout(layout_of(bs.string()))], batch.column_names
    )
    with bs.new_file(path, mistyped_batch.schema) as writer:
        writer.write_batch(mistyped_batch)
    for command in ("head", "cat"):
        assert main([command, "--format", "table", str(path)]) == 0
        assert "and 2 more columns (--all shows them)" in capsys.readouterr().err
    assert main(["head", "--all", str(path)]) == 1
    assert "column 'c101'" in capsys.readouterr().err
