"""Writers of tensors after an error of their sink."""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import ClosedError, IsDirectoryError, ResourceError
from tests.unfinished_files import find_unfinished

TENSOR = bs.tensors.Tensor.from_numpy(np.zeros(8))


class FullFile(io.BytesIO):
    """A file object that takes the beginning of one part for lack of space, then all others."""

    is_full = False

    def write(self, part: Any) -> int:
        if self.is_full:
            self.is_full = False
            super().write(memoryview(part)[:7])
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(part)


def test_a_failed_writer_accepts_no_more_tensors_and_writes_no_end() -> None:
    sink = FullFile()
    with bs.tensors.new_tensor_stream(sink) as writer:
        writer.write(TENSOR)
        sink.is_full = True
        with pytest.raises(ResourceError, match="No space"):
            writer.write(TENSOR)
        size_bytes = sink.tell()
        with pytest.raises(ClosedError):
            writer.write(TENSOR)
    assert sink.tell() == size_bytes


def test_a_file_that_cannot_be_placed_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.tensors"
    with pytest.raises(IsDirectoryError, match=r"a\.tensors"), bs.tensors.new_tensor_stream(path) as writer:
        writer.write(TENSOR)
        path.mkdir()
    assert find_unfinished(tmp_path) == []
