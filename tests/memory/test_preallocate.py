"""Reserving disk space before writing."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import bowstring as bs
from bowstring.memory.descriptors import preallocate


def test_blocks_are_allocated_before_the_first_write(tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb") as file:
        if not preallocate(file.fileno(), 0, 1 << 22):
            pytest.skip("the file system does not support fallocate")
        status = os.fstat(file.fileno())
    assert status.st_size == 1 << 22
    assert status.st_blocks * 512 >= 1 << 22


def test_a_failed_reservation_returns_false(tmp_path: Path) -> None:
    read, write = os.pipe()
    try:
        assert not preallocate(write, 0, 4096)
    finally:
        os.close(read)
        os.close(write)
    with open(tmp_path / "file", "wb") as file:
        assert not preallocate(file.fileno(), (1 << 63) - (1 << 20), 1 << 19)
        assert os.fstat(file.fileno()).st_size == 0


def test_a_large_file_keeps_no_unused_blocks(tmp_path: Path) -> None:
    path, batch = tmp_path / "file.arrow", bs.record_batch({"a": np.arange(400_000)})
    with bs.new_file(path, batch.schema) as writer:
        for _ in range(12):
            writer.write(batch)
    status = path.stat()
    assert 12 * batch.nbytes < status.st_size < 12 * batch.nbytes + 10_000
    assert status.st_blocks * 512 < status.st_size + (1 << 20)
    assert bs.open_file(path).read_all().num_rows == 12 * 400_000
