"""Pipes, sockets and devices where a description or a manifest names a file."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

import bowstring as bs
from bowstring.datasets import Dataset, DatasetPart
from bowstring.datasets.manifest import FORMAT, FORMAT_VERSION
from bowstring.errors import BowstringError, InvalidDataError
from tests.cli.command_line import run_command

SERVED = "unix:@nobody?want_data=1&ticket=a"


def describe(path: object, *others: str) -> Dataset:
    """Someone's description of a data set at this path, which does not tell its size."""
    return Dataset("a", bs.schema({"n": "int64"}), [DatasetPart(2, 0, (f"file://{path}", *others))])


@pytest.fixture(params=["pipe", "socket", "/dev/zero", "/dev/null", "/dev/ptmx"])
def special_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "pipe":
        os.mkfifo(tmp_path / "pipe.arrow")
        return tmp_path / "pipe.arrow"
    if request.param == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "socket"))
        return tmp_path / "socket"
    return Path(request.param)


@pytest.mark.timeout(30)  # a reader of the pipe would wait for a writer
def test_a_location_is_a_regular_file(special_file: Path) -> None:
    dataset = describe(special_file)
    for read in (
        dataset.read_all,
        lambda: bs.dataset(dataset.to_json()).read_all(),
        lambda: list(dataset.read_rank(0, 1)),
        lambda: bs.connect(dataset, timeout_s=3),
        lambda: bs.connect(f"file://{special_file}", timeout_s=3),
    ):
        with pytest.raises(InvalidDataError, match="expected a regular file, found a pipe, socket or device"):
            read()
    with pytest.raises(BowstringError):
        describe(special_file, SERVED).read_all()


@pytest.mark.parametrize("name", ["folder", "loop", "a%00b", "x" * 300])
def test_a_location_that_is_not_a_file_is_an_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(BowstringError, match=r"directory|cannot be opened|not a valid path"):
        describe(tmp_path / name).read_all()


@pytest.mark.timeout(30)
def test_a_manifest_is_a_regular_file_and_lists_such(tmp_path: Path) -> None:
    path = tmp_path / "_manifest" / f"{1:020}.json"
    path.parent.mkdir()
    os.mkfifo(path)
    with pytest.raises(InvalidDataError, match=r"json: expected a regular file"):
        bs.read_table(tmp_path)
    path.unlink()
    entry = {"name": "a.arrow", "length_bytes": 0, "rows": 2, "batches": 1, "checksum": "crc32:00000000"}
    schema = {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]}
    record = {"format": FORMAT, "version": FORMAT_VERSION, "schema": schema, "files": [entry], "generation": 1}
    path.write_text(json.dumps({**record, "stream_batches": {}}))
    os.mkfifo(tmp_path / "a.arrow")
    for read in (bs.read_table, bs.dataset):
        with pytest.raises(InvalidDataError, match=r"a\.arrow: expected a regular file"):
            read(tmp_path)
    assert b"a.arrow: expected a regular file" in run_command("validate", tmp_path).stdout
