"""Type checkers find mistakes in the arguments of everyday functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.thorough import thorough

REPOSITORY = Path(__file__).resolve().parent.parent
MISTAKES = {
    "bs.table(5)": "table",
    "bs.record_batch(None)": "record_batch",
    'bs.new_file("a.arrow", bs.schema({"a": "int64"}), compression="snappy")': "new_file",
    'bs.write_table(bs.table({"a": [1]}), "a.arrow", compression="gzp")': "write_table",
    'bs.ipc.IpcWriteOptions(compression="snappy")': "compression",
    'bs.field("a", 5)': "field",
    'bs.timestamp("minutes")': "timestamp",
    "bs.schema(5)": "schema",
    'bs.table({"a": [1]}, schema=5)': "table",
    "bs.struct(5)": "struct",
    "bs.tabel({})": "tabel",
    'bs.table({"a": [1]}).groupby("a")': "groupby",
    "bs.compute.summ([1])": "summ",
    "bs.compute.sum()": "argument",
}
"""Statements with a mistake, and the name in the checker's message."""
FOREIGN = """
class Frame:
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
"""
CORRECT = """
bs.table({"a": [1]})
bs.table([{"a": 1}])
bs.table([[1]], names=["a"])
bs.table([[1]], schema={"a": "int64"})
bs.table([[1]], schema=[("a", bs.int64())])
bs.table(bs.record_batch({"a": [1]}))
bs.table(Frame())
bs.table(bs.table({"a": [1]}).to_reader())
bs.record_batch(bs.table({"a": [1]}))
bs.struct([bs.field("a", "int8"), ("b", "string")])
bs.new_file("a.arrow", bs.schema({"a": "int64"}), compression="zstd")
bs.write_table(Frame(), "a.arrow", "lz4")
"""


CHECKERS = {
    "mypy": ["-m", "mypy", "--no-error-summary"],
    "pyright": ["-m", "basedpyright", "--pythonpath", sys.executable],
}
"""The arguments of Python that run each checker, in its strict mode."""


@pytest.mark.thorough
@pytest.mark.parametrize("checker", ["mypy", *thorough("pyright")])
def test_a_type_checker_finds_each_mistake_and_nothing_else(checker: str, tmp_path: Path) -> None:
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    program = tmp_path / "program.py"
    lines = [
        "import bowstring as bs",
        *FOREIGN.strip().splitlines(),
        *MISTAKES,
        *CORRECT.strip().splitlines(),
    ]
    program.write_text("\n".join(lines) + "\n")
    command = [sys.executable, *CHECKERS[checker], str(program)]
    # mypy has checked the sources before, with the settings of the repository, and reuses its results there.
    folder = REPOSITORY if checker == "mypy" else tmp_path
    output = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=250, check=False).stdout
    reports = [line for line in output.splitlines() if "error:" in line]
    first = lines.index(next(iter(MISTAKES))) + 1
    for number, (statement, name) in enumerate(MISTAKES.items(), first):
        assert any(f":{number}:" in report and name in report for report in reports), (statement, reports)
    expected = {f":{number}:" for number in range(first, first + len(MISTAKES))}
    assert [report for report in reports if not any(number in report for number in expected)] == []
