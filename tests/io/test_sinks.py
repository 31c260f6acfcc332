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


def test_a_binary_file_object_may_have_a_buffer_of_its_own() -> None:
    """fsspec's files of object stores do."""

    class BufferedFile(io.BytesIO):
        def __init__(self) -> None:
            super().__init__()
            self.buffer = io.BytesIO()

    file = BufferedFile()
    with bs.new_file(file, bs.schema({"a": "int64"})) as writer:
        writer.write(bs.table({"a": [1, 2]}))
    assert file.buffer.getvalue() == b""
    assert bs.open_file(file.getvalue()).read_all().num_rows == 2
