"""Long work shows a bar on standard error, where that is a terminal."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.command_line import run_command, run_in_terminal, write

TABLE = pa.table({"n": range(100), "text": [f"row {n}" for n in range(100)]})

COMMANDS = {
    "validating": ["validate", "DATA"],
    "comparing": ["diff", "DATA", "DATA"],
    "writing": ["cat", "DATA"],
    "converting": ["convert", "DATA", "TARGET"],
    "concatenating": ["concat", "DATA", "DATA", "-o", "TARGET"],
    "recovering": ["recover", "DATA", "TARGET"],
    "reading": ["anatomy", "DATA", "-o", "TARGET"],
}
TOTALS = {
    "concatenating": "2 of 2 sources",
    "recovering": r"of \d\.\d+ KiB",
    "reading": r"(\d\.\d+ KiB) of \1",
}


@pytest.mark.parametrize("what", COMMANDS)
def test_a_terminal_shows_a_progress_bar(tmp_path: Path, what: str) -> None:
    paths = {"DATA": write(tmp_path / "data.arrow", TABLE, 10), "TARGET": tmp_path / "target.arrow"}
    arguments = [paths.get(word, word) for word in COMMANDS[what]]
    status, shown = run_in_terminal(100, *arguments, stdout_is_terminal=False)
    assert status == 0
    assert what in shown
    assert "━" in shown
    assert re.search(TOTALS.get(what, "10 of 10 record batches"), shown)
    assert "?" not in re.sub(r"\x1b\[\?25[lh]", "", shown)


@pytest.mark.parametrize(
    "command", [["validate", "DATA"], ["cat", "DATA"], ["convert", "DATA", "TARGET"], ["diff", "DATA", "DATA"]]
)
def test_a_stream_in_a_file_has_a_total_in_bytes(tmp_path: Path, command: list[str]) -> None:
    paths = {"DATA": write(tmp_path / "data.arrows", TABLE, 10), "TARGET": tmp_path / "target.arrow"}
    status, shown = run_in_terminal(100, *(paths.get(word, word) for word in command), stdout_is_terminal=False)
    assert status == 0
    size = f"{paths['DATA'].stat().st_size / 1024:.2f} KiB"
    assert f"of {size}" in shown


@pytest.mark.parametrize(
    ("name", "total"),
    [("x.csv", r"KiB of 1\.\d+ KiB"), ("x.parquet", "100 of 100 rows"), ("x.json", r"KiB of 2\.\d+ KiB")],
)
def test_other_formats_have_a_total_and_a_summary_line(tmp_path: Path, name: str, total: str) -> None:
    source, target = write(tmp_path / "data.arrow", TABLE, 10), tmp_path / "target.arrow"
    assert run_command("convert", source, tmp_path / name).returncode == 0
    status, shown = run_in_terminal(100, "convert", tmp_path / name, target)
    assert status == 0
    assert re.search(total, shown)
    assert shown.endswith(f"{target}: 100 rows, 2 columns\r\n")


@pytest.mark.parametrize(
    "command", [["cat", "DATA"], ["convert", "--to", "jsonl", "DATA", "-"]], ids=["cat", "convert"]
)
def test_the_progress_bar_is_not_written_to_a_pipe(tmp_path: Path, command: list[str]) -> None:
    path = write(tmp_path / "data.arrow", TABLE, 10)
    read, written = os.pipe()
    try:
        arguments = [path if word == "DATA" else word for word in command]
        status, shown = run_in_terminal(100, *arguments, stdout_is_terminal=False, stdout=written)
    finally:
        os.close(read)
        os.close(written)
    assert (status, shown) == (0, "")


def test_rows_written_to_a_terminal_have_no_progress_bar(tmp_path: Path) -> None:
    path = write(tmp_path / "data.arrow", TABLE, 10)
    status, shown = run_in_terminal(100, "cat", path)
    assert status == 0
    assert "━" not in shown


def test_without_a_terminal_there_is_no_progress_bar(tmp_path: Path) -> None:
    path = write(tmp_path / "data.arrow", TABLE, 10)
    for command in (["validate", path], ["cat", path], ["diff", path, path]):
        assert run_command(*command).stderr == b""
