"""Type checkers find mistakes in the arguments of everyday functions."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

MISTAKES = {
    "bs.table(5)": "table",
    "bs.record_batch(None)": "record_batch",
    'bs.new_file("a.arrow", bs.schema({"a": "int64"}), compression="snappy")': "new_file",
    'bs.write_table(bs.table({"a": [1]}), "a.arrow", compression="gzip")': "write_table",
    'bs.ipc.IpcWriteOptions(compression="snappy")': "IpcWriteOptions",
    'bs.field("a", 5)': "field",
    'bs.timestamp("minutes")': "timestamp",
    "bs.tabel({})": "tabel",
    'bs.table({"a": [1]}).group_by("a")': "group_by",
}
"""Statements with a mistake, and the name in the checker's message."""
FOREIGN = """
class Frame:
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
"""
CORRECT = """
bs.table({"a": [1]}), bs.table([{"a": 1}]), bs.table([[1]], names=["a"]), bs.record_batch(bs.table({"a": [1]}))
bs.table(bs.record_batch({"a": [1]})), bs.table(Frame()), bs.table(bs.table({"a": [1]}).to_reader())
bs.new_file("a.arrow", bs.schema({"a": "int64"}), compression="zstd")
bs.write_table(Frame(), "a.arrow", "lz4")
"""


def run_checker(checker: str, program: Path) -> str:
    flags = (
        ["--strict", "--no-error-summary", "--cache-dir", str(program.parent / "cache")] if checker == "mypy" else []
    )
    command = [sys.executable, "-m", checker, *flags, str(program)]
    return subprocess.run(command, capture_output=True, text=True, cwd=program.parent, timeout=250, check=False).stdout


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_type_checker_finds_each_mistake_and_nothing_else(checker: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed")
    program = tmp_path / "program.py"
    lines = [
        "import bowstring as bs",
        *FOREIGN.strip().splitlines(),
        *MISTAKES,
        *CORRECT.strip().splitlines(),
    ]
    program.write_text("\n".join(lines) + "\n")
    reports = [line for line in run_checker(checker, program).splitlines() if "error:" in line]
    first = lines.index(next(iter(MISTAKES))) + 1
    for number, (statement, name) in enumerate(MISTAKES.items(), first):
        assert any(f":{number}:" in report and name in report for report in reports), (statement, reports)
    expected = {f":{number}:" for number in range(first, first + len(MISTAKES))}
    assert [report for report in reports if not any(number in report for number in expected)] == []
