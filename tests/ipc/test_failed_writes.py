"""Failed writes: full disks, invalid sinks, and writers after an error."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring import errors
from bowstring.arrays.array import Array
from bowstring.errors import ResourceError
from tests.ipc.formats import EVERY_WRITER
from tests.small_disk import run_on_4_mb

TABLE = bs.table({"a": list(range(10))})
WRITE_TO_SMALL_DISK = """
import os, sys
import numpy as np
import bowstring as bs

path, rows = sys.argv[1], int(sys.argv[2])
with bs.new_file(path, bs.schema({"a": bs.int64()})) as writer:
    writer.write(bs.record_batch({"a": np.arange(3)}))
try:
    with bs.new_file(path, bs.schema({"a": bs.int64()})) as writer:
        for _ in range(3):
            writer.write(bs.record_batch({"a": np.arange(rows)}))
except bs.errors.ResourceError as error:
    print(error)
print(bs.open_file(path).read_all().to_pydict(), os.listdir(os.path.dirname(path)))
"""


@pytest.mark.parametrize("rows", [1_000_000, 200_000, 20_000], ids=["at once", "in the second batch", "fits"])
def test_a_file_that_does_not_fit_leaves_only_the_old_file(tmp_path: Path, rows: int) -> None:
    ended = run_on_4_mb(tmp_path, "-c", WRITE_TO_SMALL_DISK, tmp_path / "t.arrow", rows)
    assert ended.returncode == 0, ended.stderr
    if rows == 20_000:
        assert "No space" not in ended.stdout
        assert "19999]} ['t.arrow']" in ended.stdout
    else:
        message, table = ended.stdout.splitlines()
        assert "t.arrow: cannot be written: No space left on device" in message
        assert table == "{'a': [0, 1, 2]} ['t.arrow']"


def test_a_full_disk_at_flush_names_the_file_object() -> None:
    full = open("/dev/full", "wb")  # noqa: SIM115 -- its own end is refused as well
    translate_shortage_errors = pytest.raises(ResourceError, match="/dev/full: cannot be written: No space left")
    with translate_shortage_errors, bs.new_stream(full, TABLE.schema) as writer:
        writer.write_batch(TABLE.to_batches()[0])
    with pytest.raises(OSError, match="No space left"):
        full.close()


class FullFile:
    """A file object that refuses one part for lack of space and accepts all others."""

    def __init__(self) -> None:
        self.data = io.BytesIO()
        self.is_full = False

    def write(self, part: Any) -> int:
        if self.is_full:
            self.is_full = False
            self.data.write(memoryview(part)[:7])
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.data.write(part)


@EVERY_WRITER
def test_a_failed_writer_accepts_no_more_batches_and_writes_no_end(new: Callable[..., Any]) -> None:
    sink = FullFile()
    batch = bs.record_batch({"a": np.arange(100_000)})
    with new(sink, batch.schema) as writer:
        writer.write(batch)
        sink.is_full = True
        with pytest.raises(errors.ResourceError, match="No space"):
            writer.write(batch)
        size_bytes = sink.data.tell()
        with pytest.raises(errors.ClosedError):
            writer.write(batch)
    assert sink.data.tell() == size_bytes


def test_a_dictionary_that_was_not_written_is_written_with_the_next_batch() -> None:
    words = bs.dictionary(bs.int8(), bs.string())
    schema = bs.schema([("w", words), ("s", bs.string())])
    invalid = Array.from_buffers(bs.string(), 2, [None, np.array([0, 9, 1], np.int32), b"x"]).slice(1)
    first, second = bs.array(["a"], words), bs.array(["b"], words)
    sink = io.BytesIO()
    with bs.new_stream(sink, schema) as writer:
        writer.write(bs.record_batch([first, bs.array(["x"])], schema=schema))
        with pytest.raises(errors.InvalidDataError):
            writer.write(bs.record_batch([second, invalid], schema=schema))
        writer.write(bs.record_batch([second, bs.array(["y"])], schema=schema))
    assert bs.open_stream(sink.getvalue()).read_all().to_pydict() == {"w": ["a", "b"], "s": ["x", "y"]}


def closed_file() -> io.BytesIO:
    memory = io.BytesIO()
    memory.close()
    return memory


@EVERY_WRITER
@pytest.mark.parametrize(
    ("sink", "kind"),
    [
        ("a\0b", errors.InvalidArgumentError),
        (987654, errors.ResourceError),
        (True, errors.InvalidArgumentError),
        (None, errors.InvalidArgumentError),
        (io.StringIO(), errors.InvalidArgumentError),
        (closed_file(), errors.ClosedError),
    ],
    ids=["NUL in the name", "no descriptor", "boolean", "None", "text", "closed"],
)
def test_an_invalid_sink_is_rejected(new: Callable[..., Any], sink: Any, kind: type[Exception]) -> None:
    batch = bs.record_batch({"a": [1]})
    with pytest.raises(kind), new(sink, batch.schema) as writer:
        writer.write(batch)
