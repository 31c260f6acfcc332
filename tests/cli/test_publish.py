"""`bowstring publish`: the rows of a file, found by name in other processes."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import bowstring as bs
from bowstring.cli.main import main
from bowstring.datasets import PublishedDataset
from tests.cli.command_line import run_command, run_in_terminal, run_with_pipe, write

TABLE = pa.table({"n": range(1000), "s": ["x", "y"] * 500})


@contextmanager
def unpublished(name: str) -> Iterator[PublishedDataset]:
    """A published data set, which ends with the block."""
    try:
        with bs.open_published(name) as dataset:
            yield dataset
    finally:
        bs.unpublish(name)


@pytest.mark.parametrize("name", ["t.arrow", "t.arrows", "t.parquet", "t.csv", "t.jsonl"])
def test_a_file_of_any_format_is_found_by_name(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    dataset_name = f"published-{secrets.token_hex(4)}"
    assert main(["convert", str(write(tmp_path / "source.arrow", TABLE, 100)), str(tmp_path / name)]) == 0
    capsys.readouterr()
    assert main(["publish", str(tmp_path / name), "--name", dataset_name, "--ttl", "2h"]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("published 1,000 rows, ")
    assert err.endswith(f", expires in 120 min: bowstring fetch {dataset_name} reads them\n")
    with unpublished(dataset_name) as dataset, bs.connect(dataset) as reader:
        assert f"{dataset.id}\n" == out
        assert pa.table(reader) == TABLE
        assert dataset.expires_at is not None
        assert 7000 < (dataset.expires_at - datetime.now(UTC)).total_seconds() <= 7200


def test_the_data_outlives_the_command_under_the_name_of_the_file(tmp_path: Path) -> None:
    stem = f"file-{secrets.token_hex(4)}"
    process = run_command("publish", write(tmp_path / f"{stem}.arrow", TABLE), "-c", "s", "--json")
    document = json.loads(process.stdout)
    assert (document["name"], document["rows"], process.stderr) == (stem, 1000, b"")
    with unpublished(stem) as dataset:
        assert (dataset.id, dataset.nbytes) == (document["id"], document["bytes"])
        assert dataset.schema.names == ["s"]


def test_characters_of_a_file_name_that_a_name_can_not_have_are_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = secrets.token_hex(4)
    assert main(["publish", str(write(tmp_path / f"my data (1) {token}.arrow", TABLE))]) == 0
    bs.unpublish(f"my-data-1-{token}")
    assert main(["publish", str(write(tmp_path / "x.arrow", TABLE)), "--name", "my data"]) == 1
    assert "name: expected 1 to 200 letters, digits, '_', '-' and '.', found 'my data'" in capsys.readouterr().err


@pytest.mark.parametrize(("pattern", "name"), [("*.arrow", "data"), ("part-*.arrow", "part"), ("日本.arrow", "data")])
def test_the_name_of_a_glob_can_be_fetched(
    tmp_path: Path, pattern: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in ("part-1.arrow", "part-2.arrow", "日本.arrow"):
        write(tmp_path / file, TABLE)
    assert main(["publish", "--json", f"{tmp_path}/{pattern}"]) == 0
    document = json.loads(capsys.readouterr().out)
    bs.unpublish(document["id"])
    assert document["name"] == name


def test_nothing_remains_if_the_id_can_not_be_written(tmp_path: Path) -> None:
    path = write(tmp_path / f"full-{secrets.token_hex(4)}.arrow", TABLE)
    with open("/dev/full", "wb") as full:
        process = subprocess.run(
            [sys.executable, "-m", "bowstring", "publish", str(path)],
            stdout=full, stderr=subprocess.PIPE, timeout=60, check=False,
        )  # fmt: skip
    assert process.stderr == b"bowstring: standard output: cannot be written: No space left on device\n"
    assert process.returncode == 1
    assert path.stem not in {summary.name for summary in bs.published()}


def test_a_pipe_without_rows_keeps_its_schema(tmp_path: Path) -> None:
    name = f"empty-{secrets.token_hex(4)}"
    process = run_with_pipe(write(tmp_path / "empty.arrows", TABLE.slice(0, 0)), "publish", "--name", name)
    assert process.returncode == 0, process.stderr
    with unpublished(name) as dataset, bs.connect(dataset) as reader:
        assert pa.table(reader).schema == TABLE.schema


@pytest.mark.parametrize("ttl", ["0", "-1", "soon", "2 weeks"])
def test_a_lifetime_is_a_positive_duration(ttl: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", "gone.arrow", f"--ttl={ttl}"]) == 2
    assert f"expected a duration such as 90s, 10min, 2h or 1d, found '{ttl}'" in capsys.readouterr().err


def test_an_error_publishes_nothing(tmp_path: Path) -> None:
    path = tmp_path / f"damaged-{secrets.token_hex(4)}.csv"
    path.write_text("a,b\n1,2\n3\n")
    process = run_command("publish", path)
    assert (process.returncode, process.stdout) == (1, b"")
    assert process.stderr.startswith(f"bowstring: {path}: CSV parse error: Row #3: ".encode())
    assert path.stem not in {summary.name for summary in bs.published()}


def test_progress_has_a_total_for_every_step(tmp_path: Path) -> None:
    path = write(tmp_path / f"progress-{secrets.token_hex(4)}.arrows", TABLE, 100)
    status, shown = run_in_terminal(100, "publish", path, stdout_is_terminal=False)
    assert status == 0
    assert f"{path.stat().st_size / 1024:.1f} KiB of {path.stat().st_size / 1024:.1f} KiB" in shown
    status, shown = run_in_terminal(100, "fetch", path.stem, tmp_path / "target.arrow", stdout_is_terminal=False)
    bs.unpublish(path.stem)
    assert status == 0
    assert "1,000 of 1,000 rows" in shown


def test_the_data_sets_of_a_name_are_replaced_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / f"replaced-{secrets.token_hex(4)}.arrow", TABLE)
    for options in ([], [], ["--replace"]):
        assert main(["publish", str(path), *options]) == 0
    first, second, third = capsys.readouterr().out.split()
    assert [summary.id for summary in bs.published() if summary.name == path.stem] == [third]
    assert main(["unpublish", third]) == 0
    assert capsys.readouterr().err == f"{third}: unpublished\n"
    for older in (first, second):
        assert main(["unpublish", older]) == 1
        assert f"data set '{older}' was replaced by '{third}' at " in capsys.readouterr().err
