"""`bowstring recover`: the intact batches of a damaged file, and a report of the others."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.cli.main import main
from tests.cli.command_line import run_command, run_with_pipe, write

TABLE = pa.concat_tables([pa.table({"n": [1, 2, 3], "text": ["aa", "bb", "cc"]})] * 3)


def test_an_intact_file_is_reported_as_intact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, target = write(tmp_path / "in.arrow", TABLE, 3), tmp_path / "out.arrow"
    assert main(["recover", str(path), str(target)]) == 0
    assert capsys.readouterr().out == f"{path}: an intact file; 9 rows in 3 record batches are in {target}\n"
    assert bs.open_file(target).read_all().to_pydict() == TABLE.to_pydict()


def test_a_missing_footer_is_reported_and_loses_no_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, target = write(tmp_path / "in.arrow", TABLE, 3), tmp_path / "out.arrow"
    path.write_bytes(path.read_bytes()[:-20])
    assert main(["recover", str(path), str(target)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "no footer and no custom metadata of the file: expected b'ARROW1'" in lines[0]
    assert lines[1] == f"{path}: a damaged file; 9 rows in 3 record batches are in {target}"


def write_damaged(path: Path) -> Path:
    """A file whose second batch contains text that is not valid UTF-8."""
    raw = bytearray(write(path, TABLE, 3).read_bytes())
    at = raw.index(b"aabbcc", raw.index(b"aabbcc") + 1)
    raw[at] = 0xFF
    path.write_bytes(raw)
    return path


def test_dropped_ranges_are_reported_with_bytes_rows_and_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, target = write_damaged(tmp_path / "in.arrow"), tmp_path / "out.arrow"
    assert main(["recover", "--damaged-columns", "drop", str(path), str(target)]) == 1
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{path}: dropped bytes ")
    assert ": record batch of 3 rows: column 'text': values[0] is not valid UTF-8" in first
    assert last.endswith(f"a damaged file; 6 rows in 2 record batches are in {target}")
    assert bs.open_file(target).read_all().num_rows == 6
    assert main(["recover", "--quick", str(path), str(target)]) == 0


def test_a_damaged_column_is_null_and_the_others_are_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, target = write_damaged(tmp_path / "in.arrow"), tmp_path / "out.arrow"
    assert main(["recover", str(path), str(target)]) == 1
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{path}: record batch 1: column 'text' is null in 3 rows: values[0] is not valid UTF-8")
    assert last.endswith(f"a damaged file; 9 rows in 3 record batches are in {target}")
    saved = bs.read_table(target)
    assert saved["n"].to_pylist() == [1, 2, 3] * 3
    assert saved["text"].to_pylist() == ["aa", "bb", "cc", None, None, None, "aa", "bb", "cc"]
    assert main(["recover", "--json", str(path), str(target)]) == 1
    (damaged,) = json.loads(capsys.readouterr().out)["damaged_columns"]
    assert 0 < damaged.pop("start") < path.stat().st_size
    assert damaged.pop("reason").startswith("values[0] is not valid UTF-8")
    assert damaged == {"record_batch": 1, "column": 1, "name": "text", "rows": 3}


def test_the_json_report_has_the_documented_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, target = write_damaged(tmp_path / "in.arrow"), tmp_path / "out.arrow"
    assert main(["recover", "--json", "--damaged-columns", "drop", str(path), str(target)]) == 1
    document = json.loads(capsys.readouterr().out)
    (lost,) = document.pop("dropped")
    assert (lost["kind"], lost["rows"]) == ("record batch", 3)
    assert 0 < lost["start"] < lost["stop"] < path.stat().st_size
    assert "text" in lost["reason"]
    assert document == {
        "format_version": 1,
        "source": str(path),
        "target": str(target),
        "format": "file",
        "intact": False,
        "record_batches": 2,
        "dictionary_batches": 0,
        "rows": 6,
        "footer_problem": None,
        "dropped_count": 1,
        "damaged_column_count": 0,
        "damaged_columns": [],
    }


def test_a_stream_is_recovered_from_pipe_to_pipe(tmp_path: Path) -> None:
    path = write(tmp_path / "in.arrows", TABLE, 3)
    path.write_bytes(path.read_bytes()[:-100])
    process = run_with_pipe(path, "recover", "-", "-")
    assert process.returncode == 1
    assert bs.open_stream(process.stdout).read_all().num_rows == 6
    assert b"6 rows in 2 record batches are in -" in process.stderr


def test_data_without_intact_batches_is_one_error_line_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "no.arrow"
    path.write_bytes(b"ARROW1\0\0" + bytes(500))
    process = run_command("recover", path, tmp_path / "out.arrow")
    assert process.returncode == 1
    assert process.stderr.count(b"\n") == 1
    assert b"nothing can be recovered: no schema at the beginning" in process.stderr
    assert not (tmp_path / "out.arrow").exists()


@pytest.mark.parametrize("size", [20, 5000])
def test_the_error_for_a_text_file_mentions_text(tmp_path: Path, size: int, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hello.txt"
    path.write_bytes((b"hello world\n" * size)[:size])
    assert main(["recover", str(path), str(tmp_path / "out.arrow")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"bowstring: {path}: expected an Arrow file or stream, found text, perhaps CSV")
    assert "metadata" not in line


def test_the_files_of_a_folder_or_glob_are_recovered_into_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    for name in ("day=1", "day=2", "_staging"):
        (source / name).mkdir(parents=True)
        write_damaged(source / name / "part.arrow")
    write(source / "intact.arrow", TABLE, 3)
    assert main(["recover", str(source), str(tmp_path / "folder")]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 5
    found = sorted(str(path.relative_to(tmp_path / "folder")) for path in (tmp_path / "folder").rglob("*.arrow"))
    assert found == ["day=1/part.arrow", "day=2/part.arrow", "intact.arrow"]
    assert main(["recover", "--json", f"{source}/day=*/part.arrow", str(tmp_path / "glob")]) == 1
    assert [file["rows"] for file in json.loads(capsys.readouterr().out)["files"]] == [9, 9]
    assert bs.read_table(tmp_path / "glob" / "day=2" / "part.arrow").num_rows == 9
    (source / "a-text.arrow").write_text("city,people\n" * 10)
    (source / "zero.arrow").touch()
    assert main(["recover", "--json", str(source), str(tmp_path / "rest")]) == 1
    out, err = capsys.readouterr()
    assert [file.get("rows") for file in json.loads(out)["files"]] == [None, 9, 9, 9, None]
    assert [line.partition(": expected")[0] for line in err.splitlines()] == [
        f"bowstring: {source}/a-text.arrow",
        f"bowstring: {source}/zero.arrow",
    ]
    (tmp_path / "empty").mkdir()
    assert main(["recover", str(tmp_path / "empty"), str(tmp_path / "none")]) == 1
    assert "found no Arrow files" in capsys.readouterr().err
