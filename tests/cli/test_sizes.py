"""`bowstring info --sizes`: a line a column, largest first."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.cli.main import main
from tests.cli.command_line import run_command, run_with_pipe, terminal_lines, write

TABLE = pa.table(
    {
        "small": pa.array([1] * 100, pa.int8()),
        "large": pa.array(range(100), pa.int64()),
        "coded": pa.array(["a", "b"] * 50).dictionary_encode(),
        "runs": pa.array(pa.RunEndEncodedArray.from_arrays([100], [7])),
    }
)


def test_columns_are_listed_with_encoding_and_share_largest_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", "--sizes", str(write(tmp_path / "x.arrow", TABLE))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["column", "large", "coded", "small", "runs"]
    assert lines[1].split()[1:4] == ["int64", "plain", "800"]
    assert "dictionary" in lines[2]
    assert "run-end-encoded" in lines[4]
    shares = [float(line.split()[-2]) for line in lines[1:]]
    assert sum(shares) == pytest.approx(100, abs=0.3)


def test_the_json_output_agrees_with_inspect(tmp_path: Path, repository: Path) -> None:
    path = tmp_path / "x.arrows"
    with pa.ipc.new_stream(path, TABLE.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(TABLE)
    process = run_with_pipe(path, "info", "--sizes", "--json")
    assert (process.returncode, process.stderr) == (0, b"")
    document, inspection = json.loads(process.stdout), bs.inspection.inspect(path)
    assert [column["bytes"] for column in document["columns"]] == [c.total_bytes for c in inspection.columns_by_size()]
    assert document["columns"][0]["encoding"].endswith(" + zstd")
    page = (repository / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    assert not {key for key in {*document, *document["columns"][0]} if f"`{key}`" not in page}


def test_the_number_of_columns_is_limited_and_names_are_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write(tmp_path / "x.arrow", pa.table({f"\x1b[2J{n}": [n] for n in range(130)})))
    assert main(["info", "--sizes", path]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.splitlines()[-1] == "… and 30 more columns (--all shows them)"
    assert main(["info", "--sizes", "--all", path]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 131


def test_a_truncated_file_is_one_error_line(tmp_path: Path) -> None:
    path = write(tmp_path / "x.arrow", TABLE)
    path.write_bytes(path.read_bytes()[:-9])
    process = run_command("info", "--sizes", path)
    assert (process.returncode, process.stdout, process.stderr.count(b"\n")) == (1, b"", 1)


def test_a_narrow_terminal_shows_one_line_per_column_with_complete_numbers(tmp_path: Path) -> None:
    table = pa.table({f"a column {n} whose name is too long for this": range(123_456) for n in range(3)})
    lines = terminal_lines(60, "info", "--sizes", write(tmp_path / "x.arrow", table))
    assert len(lines) == 4
    assert max(map(len, lines)) <= 60
    assert all("987,648" in line and "33.3 %" in line for line in lines[1:])


def test_a_narrow_terminal_shows_fewer_but_complete_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "data.arrow", pa.table({"identifier": range(300), "s": ["text"] * 300}))
    for width, titles in (
        (80, "column type encoding bytes size share"),
        (44, "column type encoding size share"),
        (34, "column type size share"),
    ):
        first, *lines = terminal_lines(width, "info", "--sizes", path)
        assert first.split() == titles.split()
        assert max(map(len, [first, *lines])) <= width
        assert [line.rstrip()[-6:] for line in lines] == ["50.0 %", "50.0 %"]
        assert all("KiB" in line for line in lines)
