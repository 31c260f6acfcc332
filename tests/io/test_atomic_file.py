"""Files that appear under their names when they are complete, and of which nothing is left if they never are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import bowstring as bs
from bowstring import errors
from bowstring.io import atomic_file

WRITE_AND_WAIT = (
    "import sys, bowstring as bs\n"
    "batch = bs.record_batch({'a': range(100_000)})\n"
    "with bs.new_file(sys.argv[1], batch.schema) as writer:\n"
    "    for _ in range(100): writer.write(batch)\n"
    "    print('written', flush=True)\n"
    "    sys.stdin.read()\n"
)


@pytest.fixture
def batch() -> bs.RecordBatch:
    return bs.record_batch({"a": [1, 2, 3]})


@pytest.fixture
def without_unnamed_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a file system without unnamed files."""
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)


def has_unnamed_files(folder: Path) -> bool:
    descriptor = atomic_file._open_unnamed_file(str(folder), 0o600)
    if descriptor >= 0:
        os.close(descriptor)
    return descriptor >= 0


@pytest.mark.parametrize("is_there", [False, True], ids=["a new file", "one that replaces another"])
def test_a_writer_that_is_killed_leaves_nothing(tmp_path: Path, is_there: bool) -> None:
    if not has_unnamed_files(tmp_path):
        pytest.skip("the file system does not support O_TMPFILE")
    path = tmp_path / "x.arrow"
    if is_there:
        path.write_bytes(b"as before")
    with subprocess.Popen(
        [sys.executable, "-c", WRITE_AND_WAIT, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("x.arrow", b"as before")] * is_there


def test_a_file_has_no_name_before_it_is_complete(tmp_path: Path, batch: bs.RecordBatch) -> None:
    if not has_unnamed_files(tmp_path):
        pytest.skip("the file system does not support O_TMPFILE")
    with bs.new_file(tmp_path / "x.arrow", batch.schema) as writer:
        writer.write(batch)
        assert list(tmp_path.iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["x.arrow"]
    assert bs.open_file(tmp_path / "x.arrow")[0].equals(batch)


@pytest.mark.usefixtures("without_unnamed_files")
def test_without_unnamed_files_a_temporary_file_in_the_folder_is_used_and_removed(
    tmp_path: Path, batch: bs.RecordBatch
) -> None:
    path = tmp_path / "x.arrow"
    with pytest.raises(RuntimeError), bs.new_file(path, batch.schema) as writer:
        (beside,) = tmp_path.iterdir()
        assert beside.name.startswith(".x.arrow.")
        assert beside.suffix == ".part"
        writer.write(batch)
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with bs.new_file(path, batch.schema) as writer:
        writer.write(batch)
    assert bs.open_file(path)[0].equals(batch)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["日" * 80 + ".arrow", "x" * 249 + ".arrow"])
@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("has_them", [False, True])
def test_a_name_may_have_the_maximum_length_of_the_file_system(
    tmp_path: Path, batch: bs.RecordBatch, name: str, is_there: bool, has_them: bool, request: pytest.FixtureRequest
) -> None:
    if not has_them:
        request.getfixturevalue("without_unnamed_files")
    path = tmp_path / name
    if is_there:
        path.write_bytes(b"as before")
    with bs.new_file(path, batch.schema) as writer:
        writer.write(batch)
    assert bs.open_file(path)[0].equals(batch)
    assert list(tmp_path.iterdir()) == [path]


def test_two_concurrent_writers_of_one_file_succeed_and_the_last_one_wins(
    tmp_path: Path, batch: bs.RecordBatch
) -> None:
    path, other = tmp_path / "x.arrow", bs.record_batch({"b": ["last"]})
    with bs.new_file(path, other.schema) as last:
        with bs.new_file(path, batch.schema) as first:
            first.write(batch)
        assert bs.open_file(path)[0].equals(batch)
        last.write(other)
    assert bs.open_file(path)[0].equals(other)
    assert list(tmp_path.iterdir()) == [path]


def test_an_invalid_target_is_an_error_before_anything_is_written(tmp_path: Path, batch: bs.RecordBatch) -> None:
    with pytest.raises(errors.NotFoundError, match=r"there is no folder .*/missing$"):
        bs.new_file(tmp_path / "missing" / "x.arrow", batch.schema)
    with pytest.raises(errors.ResourceError, match="File name too long"):
        bs.new_file(tmp_path / ("x" * 256), batch.schema)
    with pytest.raises(errors.NotFoundError, match="there is no such file"):
        bs.new_file("/proc/x.arrow", batch.schema)  # a folder in which no file can be created


def test_a_folder_created_at_the_target_in_the_meantime_is_kept(tmp_path: Path, batch: bs.RecordBatch) -> None:
    path = tmp_path / "x.arrow"
    with (
        pytest.raises(errors.InvalidArgumentError, match="is a directory"),
        bs.new_file(path, batch.schema) as writer,
    ):
        writer.write(batch)
        path.mkdir()
    assert list(tmp_path.iterdir()) == [path]
