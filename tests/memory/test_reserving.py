"""Room on a disk, asked for before it is written to."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from bowstring.memory import descriptors
from bowstring.memory.descriptors import reserve

needs_the_call = pytest.mark.skipif(descriptors._fallocate() is None, reason="this platform has no fallocate")


@needs_the_call
def test_room_is_there_and_the_file_is_no_longer_than_before(tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb") as file:
        reserve(file.fileno(), 0, 1 << 22)
        status = os.fstat(file.fileno())
        assert status.st_size == 0
        if not status.st_blocks:
            pytest.skip("this file system does not reserve")
        assert status.st_blocks * 512 >= 1 << 22


@needs_the_call
def test_a_room_that_no_file_can_have_is_an_error(tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb") as file, pytest.raises(OSError) as caught:
        reserve(file.fileno(), (1 << 63) - (1 << 20), 1 << 19)
    assert caught.value.errno in (errno.EFBIG, errno.ENOSPC)


def test_what_is_no_file_is_left_alone() -> None:
    read, write = os.pipe()
    try:
        reserve(write, 0, 4096)
    finally:
        os.close(read)
        os.close(write)


def test_without_such_a_call_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "_fallocate", lambda: None)
    with open(tmp_path / "file", "wb") as file:
        reserve(file.fileno(), 0, 4096)
        assert os.fstat(file.fileno()).st_blocks == 0
