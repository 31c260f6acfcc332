"""Long work shows a bar on standard error, where that is a terminal."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.running import run_command, terminal, write

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


@pytest.mark.parametrize("what", COMMANDS)
def test_a_terminal_is_shown_how_far_the_work_is(tmp_path: Path, what: str) -> None:
    paths = {"DATA": write(tmp_path / "data.arrow", TABLE, 10), "TARGET": tmp_path / "target.arrow"}
    arguments = [paths.get(word, word) for word in COMMANDS[what]]
    status, shown = terminal(100, *arguments, stdout_is_terminal=False)
    assert status == 0
    assert what in shown
    assert "━" in shown


def test_rows_on_a_terminal_have_no_bar_among_them(tmp_path: Path) -> None:
    path = write(tmp_path / "data.arrow", TABLE, 10)
    status, shown = terminal(100, "cat", path)
    assert status == 0
    assert "━" not in shown


def test_elsewhere_there_is_none(tmp_path: Path) -> None:
    path = write(tmp_path / "data.arrow", TABLE, 10)
    for command in (["validate", path], ["cat", path], ["diff", path, path]):
        assert run_command(*command).stderr == b""
