"""Sources of streams and files: valid, unusual, closed, truncated and faulty objects."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring import errors
from bowstring.ipc.api import open_any
from bowstring.ipc.message import CONTINUATION, FILE_START
from bowstring_testing.descriptors import assert_descriptors_closed
from tests.ipc import samples
from tests.ipc.formats import ENCODERS, EVERY_FORMAT, OPENERS

COMPRESSIONS = pytest.mark.parametrize("compression", [gzip, bz2, lzma], ids=lambda module: module.__name__)


def compress(compression: Any, data: bytes) -> io.BytesIO:
    return io.BytesIO(compression.compress(data))


@EVERY_FORMAT
@COMPRESSIONS
def test_a_decompressing_file_object_is_read_instead_of_its_file(
    format_: str, compression: Any, tmp_path: Path
) -> None:
    batch = samples.batch()
    path = tmp_path / "packed"
    path.write_bytes(compression.compress(ENCODERS[format_](batch, batch)))
    with compression.open(path, "rb") as file:
        assert [part.equals(batch) for part in OPENERS[format_](file)] == [True, True]


@EVERY_FORMAT
@COMPRESSIONS
def test_truncated_compressed_data_is_an_error(format_: str, compression: Any) -> None:
    whole = compress(compression, ENCODERS[format_](samples.batch())).getvalue()
    with pytest.raises(errors.TruncatedError, match="File"):
        list(OPENERS[format_](compression.open(io.BytesIO(whole[: len(whole) // 2]), "rb")))


@EVERY_FORMAT
@COMPRESSIONS
def test_damaged_compressed_data_is_an_error(format_: str, compression: Any) -> None:
    whole = bytearray(compress(compression, ENCODERS[format_](samples.batch())).getvalue())
    whole[len(whole) // 2] ^= 0xFF
    with pytest.raises(errors.BowstringError):
        list(OPENERS[format_](compression.open(io.BytesIO(bytes(whole)), "rb")))


@EVERY_FORMAT
def test_a_text_file_object_without_other_references_is_read_as_bytes(format_: str) -> None:
    batch = samples.batch()
    assert next(iter(OPENERS[format_](io.TextIOWrapper(io.BytesIO(ENCODERS[format_](batch)), "latin-1")))).equals(batch)


@EVERY_FORMAT
def test_a_closed_file_object_is_an_error(format_: str, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(ENCODERS[format_](samples.batch()))
    with path.open("rb") as file:
        pass
    memory = io.BytesIO(path.read_bytes())
    memory.close()
    for closed in (file, memory):
        with pytest.raises(errors.ClosedError, match="closed"):
            OPENERS[format_](closed)


class OverlongFile:
    """Returns more bytes than requested."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def read(self, size_bytes: int = -1) -> bytes:
        return self._data.read()


@EVERY_FORMAT
@pytest.mark.parametrize(
    "source",
    ["a\0b", 987654, -1, True, memoryview(b"abcdef")[::2], [1], 1.5, None],
    ids=["NUL in the name", "no descriptor", "negative", "truth", "strided", "list", "float", "None"],
)
def test_an_object_that_is_not_a_source_is_a_bowstring_error(format_: str, source: Any) -> None:
    with pytest.raises(errors.BowstringError):
        OPENERS[format_](source)


def test_a_file_object_that_returns_too_many_bytes_is_an_error() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="returned"):
        bs.open_stream(OverlongFile(samples.as_stream(samples.batch())))


def test_a_limit_on_bodies_is_a_limit_error() -> None:
    stream = io.BytesIO(samples.as_stream(samples.batch()))
    with pytest.raises(errors.LimitError, match="body"):
        list(bs.open_stream(stream, limits=bs.ipc.ReadLimits(max_body_bytes=8)))


class InterruptedFile:
    """Is interrupted once, in the middle of a message, and would continue after it."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = io.BytesIO(data)
        self._at = at

    def readinto(self, view: memoryview) -> int:
        if self._data.tell() >= self._at >= 0:
            self._at = -1
            self._data.readinto(view)
            raise KeyboardInterrupt
        return self._data.readinto(view)


def test_a_stream_interrupted_within_a_message_can_not_be_continued() -> None:
    data = samples.as_stream(*[samples.batch()] * 3)
    reader = bs.open_stream(InterruptedFile(data, len(data) // 2))
    with pytest.raises(KeyboardInterrupt):
        list(reader)
    with pytest.raises(errors.ClosedError):
        next(reader)


def test_headers_of_a_file_that_shrinks_while_open_are_not_accessed(tmp_path: Path) -> None:
    path = tmp_path / "shrinking.arrow"
    numbers = bs.table({"a": np.arange(200_000)})
    with bs.new_file(path, numbers.schema) as writer:
        writer.write(numbers)
        writer.write(numbers)
    code = (
        "import bowstring as bs, os, sys\n"
        "reader = bs.open_file(sys.argv[1])\n"
        "os.truncate(sys.argv[1], 5000)\n"
        "try:\n    reader[1]\n"
        "except bs.errors.TruncatedError as error:\n    print(error)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, timeout=60, check=False
    )
    assert process.returncode == 0, process.stderr
    assert "5000" in process.stdout


def test_the_dictionaries_of_a_batch_are_read_after_its_reader_was_closed(tmp_path: Path) -> None:
    words = bs.array(["a", "b", "a", None], bs.dictionary(bs.int8(), bs.string()))
    path = tmp_path / "words.arrow"
    whole = bs.table({"w": words})
    with bs.new_file(path, whole.schema) as writer:
        writer.write(whole)
    with bs.open_file(path) as reader:
        batch = reader.read_all()
    assert batch.to_pydict() == {"w": ["a", "b", "a", None]}
    with pytest.raises(errors.ClosedError):
        reader.get_batch(0)
    assert os.path.exists(path)


class EndlessFile:
    """A file object that never ends, and can't go back; how much was taken of it."""

    def __init__(self, start: bytes) -> None:
        self._start, self.num_read_bytes = start, 0

    def read(self, size: int) -> bytes:
        part = self._start[self.num_read_bytes : self.num_read_bytes + size].ljust(size, b"\0")
        self.num_read_bytes += size
        return part


def test_only_the_start_of_an_endless_source_that_is_not_a_file_is_read() -> None:
    for source, message in ((EndlessFile(b""), "other bytes"), (EndlessFile(CONTINUATION), "an Arrow stream")):
        with pytest.raises(errors.FormatMismatchError, match=message):
            bs.open_file(source)
        assert source.num_read_bytes <= 64
    with pytest.raises(errors.FormatMismatchError):
        bs.open_file("/dev/zero")


def test_an_endless_file_is_buffered_up_to_a_limit_that_an_option_raises() -> None:
    source = EndlessFile(FILE_START)
    with pytest.raises(errors.LimitError, match="max_piped_bytes"):
        bs.open_file(source, max_piped_bytes=10_000)
    assert source.num_read_bytes <= 20_000
    data = samples.as_file(samples.batch())

    class Once(io.BytesIO):
        getvalue = None  # type: ignore[assignment]  # a file object like others

        def seekable(self) -> bool:
            return False

    with pytest.raises(errors.LimitError):
        bs.open_file(Once(data), max_piped_bytes=len(data) - 1)
    assert bs.open_file(Once(data), max_piped_bytes=len(data)).num_record_batches == 1


@pytest.mark.parametrize("open_", [bs.open_file, open_any])
def test_a_file_in_a_named_pipe_keeps_no_descriptor(tmp_path: Path, open_: Callable[[Path], Any]) -> None:
    path, data = tmp_path / "pipe", samples.as_file(samples.batch())
    os.mkfifo(path)
    before = len(os.listdir("/proc/self/fd"))
    writer = threading.Thread(target=path.write_bytes, args=(data,))
    writer.start()
    reader = open_(path)
    writer.join(10)
    assert len(os.listdir("/proc/self/fd")) == before
    assert reader[0] == samples.batch()


def test_a_table_of_a_mapped_file_keeps_no_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "file.arrow"
    path.write_bytes(samples.as_file(bs.record_batch({"a": [1, 2, 3]})))
    with assert_descriptors_closed(), bs.open_file(path) as reader:
        table = reader.read_all()
    assert table.to_pydict() == {"a": [1, 2, 3]}


def test_tables_of_small_files_take_no_mapping_each(tmp_path: Path) -> None:
    path = tmp_path / "small.arrow"
    with bs.new_file(path, [("a", "int64")]) as writer:
        writer.write_table(bs.table({"a": np.arange(1000)}))
    before = Path("/proc/self/maps").read_text().count("\n")
    tables = [bs.read_table(path) for _ in range(200)]
    assert all(table["a"].to_pylist() == list(range(1000)) for table in tables)
    assert Path("/proc/self/maps").read_text().count("\n") < before + 100


MAP_WITHOUT_ADDRESSES = """
import resource, sys
import bowstring as bs
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
for open_ in (bs.open_file, lambda path: bs.memory.Region.from_file(path).memory):
    try:
        open_(sys.argv[1])
    except bs.errors.ResourceError as error:
        print(error)
"""


def test_a_file_that_can_not_be_mapped_is_an_error_that_names_the_limit_of_mappings(tmp_path: Path) -> None:
    path = tmp_path / "large.arrow"
    with path.open("wb") as file:
        file.truncate(2 << 30)
    process = subprocess.run(
        [sys.executable, "-c", MAP_WITHOUT_ADDRESSES, path], capture_output=True, text=True, timeout=60, check=True
    )
    for line in process.stdout.splitlines():
        assert str(path) in line
        assert "Cannot allocate memory, or the process has too many mappings (sysctl vm.max_map_count)" in line
    assert process.stdout.count("\n") == 2
