"""`bowstring tail`, `schema`, `count`, `help`, and the short forms that other tools have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import bowstring as bs
from bowstring.cli.main import main

TABLE = bs.table({"n": range(10), "s": ["x"] * 10})
NAMES = ["t.arrow", "t.arrows", "t.parquet", "t.csv", "t.jsonl"]


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(list(map(str, arguments))) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_the_last_rows_the_schema_and_the_count_of_every_format(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bs.write_table(TABLE, tmp_path / name, max_chunksize=4)
    for count in (0, 1, 2, 3, 6, 7, 10, 11):
        lines = run(capsys, "tail", f"-{count}", "--format", "jsonl", tmp_path / name).splitlines()
        assert [json.loads(line)["n"] for line in lines] == list(range(10))[10 - min(count, 10) :]
    assert run(capsys, "head", "-2", "--format", "csv", "-c", "n", tmp_path / name) == "n\n0\n1\n"
    assert run(capsys, "schema", tmp_path / name) == "n: int64\ns: string\n"
    assert run(capsys, "count", tmp_path / name) == "10\n"


def test_help_and_the_version_have_short_forms(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "-V") == run(capsys, "--version") != ""
    assert run(capsys, "help") == run(capsys, "--help")
    assert run(capsys, "help", "tail") == run(capsys, "tail", "--help")


def test_convert_splits_large_batches(tmp_path: Path) -> None:
    rows = (1 << 16) + 1
    bs.write_table(bs.table({"n": range(rows)}), tmp_path / "rows.arrow")
    bs.write_table(bs.table({"s": ["x" * (33 << 20)] * 2}), tmp_path / "bytes.arrow")
    bs.write_table(bs.table({"n": bs.array([], bs.int64())}), tmp_path / "empty.arrow")
    for name, lengths in (("rows", [rows - 1, 1]), ("bytes", [1, 1]), ("empty", None)):
        assert main(["convert", str(tmp_path / f"{name}.arrow"), str(tmp_path / "x.arrows")]) == 0
        expected = [b.num_rows for b in bs.open_file(tmp_path / f"{name}.arrow")] if lengths is None else lengths
        assert [batch.num_rows for batch in bs.open_stream(tmp_path / "x.arrows")] == expected


def test_a_table_is_printed_under_an_ascii_locale() -> None:
    program = "import bowstring as bs; print(bs.table({'ü': ['ß', 'a']}))"
    process = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert process.stdout.splitlines()[:2] == [b"<bowstring.Table 2 rows x 1 column in 1 batch>", b"+--------+"]
    assert rb'"\xdf"' in process.stdout
