"""`bowstring concat`: several files and streams in one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.cli.main import main
from tests.cli.command_line import run_command, write

TABLE = pa.table({"n": [1, 2, 3], "text": ["a", None, "c"]})


def test_files_and_streams_become_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = [write(tmp_path / "a.arrow", TABLE), write(tmp_path / "b.arrows", TABLE)]
    target = tmp_path / "all.arrow"
    assert main(["concat", *map(str, parts), "-o", str(target)]) == 0
    output = capsys.readouterr().out
    assert output == f"{target}: 6 rows in 2 record batches of 2 sources, {target.stat().st_size:,} bytes\n"
    assert bs.open_file(target).read_all().to_pydict() == pa.concat_tables([TABLE, TABLE]).to_pydict()


def test_the_suffix_selects_the_format_unless_an_option_does(tmp_path: Path) -> None:
    part = str(write(tmp_path / "a.arrow", TABLE))
    assert main(["concat", part, part, "-o", str(tmp_path / "all.arrows")]) == 0
    assert bs.open_stream(tmp_path / "all.arrows").read_all().num_rows == 6
    assert main(["concat", part, "--to", "stream", "-o", str(tmp_path / "one.arrow")]) == 0
    assert bs.open_stream(tmp_path / "one.arrow").read_all().num_rows == 3


def test_the_json_summary_has_the_same_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part, target = str(write(tmp_path / "a.arrow", TABLE)), tmp_path / "all.arrow"
    assert main(["concat", part, part, "-o", str(target), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "format_version": 1,
        "target": str(target),
        "format": "file",
        "sources": 2,
        "record_batches": 2,
        "rows": 6,
        "bytes": target.stat().st_size,
    }


def test_standard_input_and_output_can_be_sources_and_target(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.arrow", TABLE), write(tmp_path / "b.arrows", TABLE)
    with second.open("rb") as opened:
        process = run_command("concat", "-", first, "-o", "-", stdin=opened)
    assert process.returncode == 0, process.stderr
    assert bs.open_file(process.stdout).read_all().num_rows == 6
    assert b"6 rows in 2 record batches" in process.stderr


def test_different_dictionaries_are_unified_in_a_file(tmp_path: Path) -> None:
    parts = [
        write(tmp_path / f"{name}.arrow", pa.table({"d": pa.array(list(name)).dictionary_encode()}))
        for name in ("ab", "cb")
    ]
    assert main(["concat", *map(str, parts), "-o", str(tmp_path / "all.arrow")]) == 0
    assert bs.open_file(tmp_path / "all.arrow").read_all()["d"].to_pylist() == ["a", "b", "c", "b"]


def ordered_dictionary(letters: str) -> pa.Array:
    """The letters, with a dictionary of them in a meaningful order."""
    return pa.DictionaryArray.from_arrays(pa.array(range(len(letters)), pa.int8()), list(letters), ordered=True)


def test_different_ordered_dictionaries_need_a_stream(tmp_path: Path) -> None:
    parts = [write(tmp_path / f"{name}.arrow", pa.table({"d": ordered_dictionary(name)})) for name in ("ab", "ba")]
    process = run_command("concat", *parts, "-o", tmp_path / "all.arrow")
    assert process.returncode == 1
    assert process.stderr.count(b"\n") == 1
    assert b"its ordered dictionary differs" in process.stderr
    assert b"--to stream" in process.stderr
    with subprocess.Popen(
        [sys.executable, "-m", "bowstring", "concat", "--to", "stream", *map(str, parts), "-o", "-"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as stream:
        assert run_command("convert", "-", tmp_path / "all.arrow", stdin=stream.stdout).returncode == 0
    assert bs.open_file(tmp_path / "all.arrow").read_all()["d"].to_pylist() == ["a", "b", "b", "a"]


def test_incompatible_sources_are_one_error_line_and_leave_no_file(tmp_path: Path) -> None:
    parts = [write(tmp_path / "a.arrow", TABLE), write(tmp_path / "b.arrow", TABLE.select(["n"]))]
    process = run_command("concat", *parts, "-o", tmp_path / "all.arrow")
    assert process.returncode == 1
    assert process.stderr.count(b"\n") == 1
    assert b"b.arrow: expected 2 columns as in" in process.stderr
    assert not (tmp_path / "all.arrow").exists()


@pytest.mark.parametrize("arguments", [[], ["a.arrow"], ["-", "-", "-o", "x"], ["a", "-o", "-", "--json"]])
def test_a_usage_error_has_status_2(arguments: list[str]) -> None:
    assert main(["concat", *arguments]) == 2
