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
from tests.cli.running import run_command, write

TABLE = pa.table({"n": [1, 2, 3], "text": ["a", None, "c"]})


def test_files_and_streams_become_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = [write(tmp_path / "a.arrow", TABLE), write(tmp_path / "b.arrows", TABLE)]
    target = tmp_path / "all.arrow"
    assert main(["concat", *map(str, parts), "-o", str(target)]) == 0
    told = capsys.readouterr().out
    assert told == f"{target}: 6 rows in 2 record batches of 2 sources, {target.stat().st_size:,} bytes\n"
    assert bs.open_file(target).read_all().to_pydict() == pa.concat_tables([TABLE, TABLE]).to_pydict()


def test_the_ending_says_what_is_written_unless_it_is_said(tmp_path: Path) -> None:
    part = str(write(tmp_path / "a.arrow", TABLE))
    assert main(["concat", part, part, "-o", str(tmp_path / "all.arrows")]) == 0
    assert bs.open_stream(tmp_path / "all.arrows").read_all().num_rows == 6
    assert main(["concat", part, "--to", "stream", "-o", str(tmp_path / "one.arrow")]) == 0
    assert bs.open_stream(tmp_path / "one.arrow").read_all().num_rows == 3


def test_the_result_as_json_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_standard_input_and_output_take_part(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.arrow", TABLE), write(tmp_path / "b.arrows", TABLE)
    with second.open("rb") as opened:
        done = run_command("concat", "-", first, "-o", "-", stdin=opened)
    assert done.returncode == 0, done.stderr
    assert bs.open_file(done.stdout).read_all().num_rows == 6
    assert b"6 rows in 2 record batches" in done.stderr


def test_dictionaries_that_differ_are_united_in_a_file(tmp_path: Path) -> None:
    parts = [
        write(tmp_path / f"{name}.arrow", pa.table({"d": pa.array(list(name)).dictionary_encode()}))
        for name in ("ab", "cb")
    ]
    assert main(["concat", *map(str, parts), "-o", str(tmp_path / "all.arrow")]) == 0
    assert bs.open_file(tmp_path / "all.arrow").read_all()["d"].to_pylist() == ["a", "b", "c", "b"]


def ordered(letters: str) -> pa.Array:
    """The letters, with a dictionary of them in a meaningful order."""
    return pa.DictionaryArray.from_arrays(pa.array(range(len(letters)), pa.int8()), list(letters), ordered=True)


def test_dictionaries_that_differ_and_have_an_order_go_through_a_stream(tmp_path: Path) -> None:
    parts = [write(tmp_path / f"{name}.arrow", pa.table({"d": ordered(name)})) for name in ("ab", "ba")]
    done = run_command("concat", *parts, "-o", tmp_path / "all.arrow")
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert b"its ordered dictionary differs" in done.stderr
    assert b"--to stream" in done.stderr
    with subprocess.Popen(
        [sys.executable, "-m", "bowstring", "concat", "--to", "stream", *map(str, parts), "-o", "-"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as stream:
        assert run_command("convert", "-", tmp_path / "all.arrow", stdin=stream.stdout).returncode == 0
    assert bs.open_file(tmp_path / "all.arrow").read_all()["d"].to_pylist() == ["a", "b", "b", "a"]


def test_what_does_not_go_together_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    parts = [write(tmp_path / "a.arrow", TABLE), write(tmp_path / "b.arrow", TABLE.select(["n"]))]
    done = run_command("concat", *parts, "-o", tmp_path / "all.arrow")
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert b"b.arrow: expected 2 columns as in" in done.stderr
    assert not (tmp_path / "all.arrow").exists()


@pytest.mark.parametrize("arguments", [[], ["a.arrow"], ["-", "-", "-o", "x"], ["a", "-o", "-", "--json"]])
def test_a_wrong_call_is_status_2(arguments: list[str]) -> None:
    assert main(["concat", *arguments]) == 2
