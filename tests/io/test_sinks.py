"""Sinks over file objects that misbehave."""

from __future__ import annotations

import io
from typing import Any

import pytest

import bowstring as bs
from bowstring.errors import ResourceError


class FullFile(io.RawIOBase):
    """A file object that accepts a few bytes and then none."""

    def __init__(self) -> None:
        super().__init__()
        self._accepted = 100

    def writable(self) -> bool:
        return True

    def write(self, part: Any) -> int:
        accepted = min(self._accepted, memoryview(part).nbytes)
        self._accepted -= accepted
        return accepted


def test_a_file_object_that_accepts_no_more_bytes_is_an_error() -> None:
    batch = bs.record_batch({"n": list(range(1000))})
    with (
        pytest.raises(ResourceError, match=r"FullFile: write\(\) returned 0 with \d+ bytes remaining"),
        bs.new_stream(FullFile(), batch.schema) as writer,
    ):
        writer.write(batch)
