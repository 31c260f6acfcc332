"""Writing that fails half-way: nothing that looks whole comes after it."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring import errors
from bowstring.layouts.array import Array

NEW = pytest.mark.parametrize("new", [bs.new_file, bs.new_stream])


class Full:
    """Has no space for one piece, and then has space again."""

    def __init__(self) -> None:
        self.data = io.BytesIO()
        self.is_full = False

    def write(self, part: Any) -> int:
        if self.is_full:
            self.is_full = False
            self.data.write(memoryview(part)[:7])
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.data.write(part)


@NEW
def test_a_writer_that_failed_takes_no_more_and_writes_no_end(new: Callable[..., Any]) -> None:
    sink = Full()
    batch = bs.record_batch({"a": np.arange(100_000)})
    with new(sink, batch.schema) as writer:
        writer.write(batch)
        sink.is_full = True
        with pytest.raises(errors.ResourceError, match="No space"):
            writer.write(batch)
        written = sink.data.tell()
        with pytest.raises(errors.ClosedError):
            writer.write(batch)
    assert sink.data.tell() == written


def test_a_dictionary_that_was_not_written_is_written_with_the_next_batch() -> None:
    words = bs.dictionary(bs.int8(), bs.string())
    schema = bs.schema([("w", words), ("s", bs.string())])
    broken = Array.from_buffers(bs.string(), 2, [None, np.array([0, 9, 1], np.int32), b"x"]).slice(1)
    first, second = bs.array(["a"], words), bs.array(["b"], words)
    sink = io.BytesIO()
    with bs.new_stream(sink, schema) as writer:
        writer.write(bs.record_batch([first, bs.array(["x"])], schema=schema))
        with pytest.raises(errors.InvalidDataError):
            writer.write(bs.record_batch([second, broken], schema=schema))
        writer.write(bs.record_batch([second, bs.array(["y"])], schema=schema))
    assert bs.open_stream(sink.getvalue()).read_all().to_pydict() == {"w": ["a", "b"], "s": ["x", "y"]}


def closed() -> io.BytesIO:
    memory = io.BytesIO()
    memory.close()
    return memory


@NEW
@pytest.mark.parametrize(
    ("sink", "kind"),
    [
        ("a\0b", errors.UsageError),
        (987654, errors.ResourceError),
        (True, errors.UsageError),
        (None, errors.UsageError),
        (io.StringIO(), errors.UsageError),
        (closed(), errors.ClosedError),
    ],
    ids=["NUL in the name", "no descriptor", "truth", "None", "text", "closed"],
)
def test_what_is_no_sink_is_told(new: Callable[..., Any], sink: Any, kind: type[Exception]) -> None:
    batch = bs.record_batch({"a": [1]})
    with pytest.raises(kind), new(sink, batch.schema) as writer:
        writer.write(batch)
