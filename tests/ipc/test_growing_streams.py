"""Streams that are read while they are written: delivery of each batch, killed writers and followers."""

from __future__ import annotations

import io
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import (
    ClosedError,
    DeadlineError,
    InvalidArgumentError,
    MissingFileError,
    ResourceError,
    TruncatedError,
)

_WORDS = bs.dictionary(bs.int8(), bs.string())
_SCHEMA = bs.schema({"n": bs.int64(), "word": _WORDS})
# Rows of 9 bytes: on both sides of the 32 KiB that are gathered, of the buffers of 1 MiB, and of reserved disk space.
_ROWS = [3, 3_600, 3_700, 116_000, 117_000, 470_000]


def _create_batch(rows: int, word: str = "a") -> bs.RecordBatch:
    return bs.record_batch([np.arange(rows), bs.array([word], _WORDS).take(np.zeros(rows, np.int64))], schema=_SCHEMA)


def _flush_and_read(file: Any, read: Callable[[], bytes]) -> bytes:
    file.flush()
    return read()


def _read_prefix(content: bytes) -> list[int]:
    """The number of rows of each complete batch."""
    rows: list[int] = []
    with suppress(TruncatedError):
        for batch in bs.open_stream(content):
            rows.append(batch.num_rows)  # noqa: PERF401 -- the last one may raise an error
    return rows


@dataclass
class Target:
    """A sink, and a function that returns what has arrived there."""

    sink: Any
    read: Callable[[], bytes]


class _WriteOnly:
    """A file object with nothing but `write`."""

    def __init__(self) -> None:
        self.content = bytearray()

    def write(self, data: Any) -> None:
        self.content += data


@contextmanager
def _receiving(descriptor: int) -> Iterator[Callable[[], bytes]]:
    """A thread that reads a pipe or a socket, and a function that returns what has arrived."""
    content, lock = bytearray(), threading.Lock()

    def receive() -> None:
        is_open = True
        while is_open:
            select.select([descriptor], [], [])
            with lock:
                chunk = os.read(descriptor, 1 << 16)
                content.extend(chunk)
            is_open = bool(chunk)

    def read() -> bytes:
        while True:
            with lock:
                if not select.select([descriptor], [], [], 0)[0]:
                    return bytes(content)
            time.sleep(0.001)

    thread = threading.Thread(target=receive)
    thread.start()
    yield read
    thread.join()
    os.close(descriptor)


def _read_store() -> bytes:
    content: bytes = fsspec.filesystem("memory").cat_file("/stream.arrows")
    return content


@contextmanager
def _open_target(kind: str, folder: Path) -> Iterator[Target]:
    path = folder / "stream.arrows"
    if kind == "path":
        yield Target(path, path.read_bytes)
    elif kind == "local URL":
        yield Target(f"file://{path}", path.read_bytes)
    elif kind == "store":
        yield Target("memory://stream.arrows", _read_store)
    elif kind == "descriptor of a file":
        with path.open("wb") as file:
            yield Target(file.fileno(), path.read_bytes)
    elif kind in ("raw file", "buffered file"):
        with path.open("wb", buffering=0 if kind == "raw file" else -1) as file:
            yield Target(file, partial(_flush_and_read, file, path.read_bytes))
    elif kind == "BytesIO":
        memory = io.BytesIO()
        yield Target(memory, memory.getvalue)
    elif kind == "file object":
        file_object = _WriteOnly()
        yield Target(file_object, lambda: bytes(file_object.content))
    elif kind == "named pipe":
        os.mkfifo(path)
        reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(reading, True)
        keep_open = os.open(path, os.O_WRONLY)
        with _receiving(reading) as read:
            yield Target(path, read)
            os.close(keep_open)
    elif kind in ("pipe", "unbuffered pipe"):
        reading, writing = os.pipe()
        with _receiving(reading) as read, os.fdopen(writing, "wb", buffering=0) as file:
            yield Target(writing if kind == "pipe" else file, read)
    else:
        one, other = socket.socketpair()
        with _receiving(other.detach()) as read, one:
            if kind == "socket":
                yield Target(one, read)
            else:
                with one.makefile("wb", buffering=0 if kind == "unbuffered socket file" else -1) as file:
                    yield Target(file, partial(_flush_and_read, file, read))


_KINDS = (
    "path",
    "local URL",
    "store",
    "descriptor of a file",
    "raw file",
    "buffered file",
    "BytesIO",
    "file object",
    "named pipe",
    "pipe",
    "unbuffered pipe",
    "socket",
    "socket file",
    "unbuffered socket file",
)


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("rows", _ROWS)
def test_each_batch_has_arrived_when_it_is_written(kind: str, rows: int, tmp_path: Path) -> None:
    with _open_target(kind, tmp_path) as target, bs.new_stream(target.sink, _SCHEMA) as writer:
        for count, word in enumerate("abc", 1):
            writer.write(_create_batch(rows, word))
            assert _read_prefix(target.read()) == [rows] * count


@pytest.mark.parametrize("kind", _KINDS)
def test_small_batches_are_gathered_on_request(kind: str, tmp_path: Path) -> None:
    with _open_target(kind, tmp_path) as target:
        writer = bs.new_stream(target.sink, _SCHEMA, buffer_bytes=5_000)
        num_written, received = 0, b""
        while not received:
            num_written += 1
            writer.write(_create_batch(3, "abc"[num_written % 3]))
            with suppress(FileNotFoundError):  # a path appears with the first bytes
                received = target.read()
        assert num_written > 5
        assert len(received) >= 5_000
        writer.write(_create_batch(3))
        assert target.read() == received
        writer.flush()
        assert _read_prefix(target.read()) == [3] * (num_written + 1)
        writer.write(_create_batch(3))
        writer.close()
        assert _read_prefix(target.read()) == [3] * (num_written + 2)


def test_flush_flushes_the_file_object(tmp_path: Path) -> None:
    with (tmp_path / "log.arrows").open("wb") as file:
        writer = bs.new_stream(file, _SCHEMA)
        writer.write(_create_batch(3))
        assert (tmp_path / "log.arrows").stat().st_size == 0
        writer.flush()
        assert _read_prefix((tmp_path / "log.arrows").read_bytes()) == [3]
        writer.close()
        with pytest.raises(ClosedError):
            writer.flush()


def test_flush_of_a_coalescing_writer_flushes_through() -> None:
    sink = io.BytesIO()
    with bs.ipc.CoalescingWriter(bs.new_stream(sink, _SCHEMA, buffer_bytes=1 << 20)) as writer:
        writer.write(_create_batch(3))
        writer.write_pydict({"n": [1], "word": ["a"]})
        writer.flush()
        assert _read_prefix(sink.getvalue()) == [4]


def test_a_raw_file_that_would_block_receives_everything() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    filler_bytes = os.write(writing, bytes(1 << 20))
    with os.fdopen(writing, "wb", buffering=0) as file:

        def write() -> None:
            with bs.new_stream(file, _SCHEMA) as writer:
                writer.write(_create_batch(100_000))

        thread = threading.Thread(target=write)
        thread.start()
        thread.join(0.05)  # until the pipe is full
        with _receiving(reading) as read:
            thread.join()
            assert _read_prefix(read()[filler_bytes:]) == [100_000]
            file.close()


def test_a_path_keeps_the_old_file_until_the_first_batch(tmp_path: Path) -> None:
    path = tmp_path / "log.arrows"
    with bs.new_stream(path, _SCHEMA) as writer:
        writer.write(_create_batch(470_000))
    old = bs.open_stream(path)
    path.chmod(0o600)
    with suppress(ZeroDivisionError), bs.new_stream(path, _SCHEMA):
        raise ZeroDivisionError
    assert _read_prefix(path.read_bytes()) == [470_000]
    with pytest.raises(ZeroDivisionError), bs.new_stream(path, _SCHEMA) as writer:
        writer.write(_create_batch(3))
        assert path.stat().st_mode & 0o777 == 0o600
        raise ZeroDivisionError
    assert _read_prefix(path.read_bytes()) == [3]
    assert os.listdir(tmp_path) == [path.name]
    assert old.read_all()["n"][-1] == 469_999  # it keeps its data


def test_flush_makes_an_empty_stream_appear(tmp_path: Path) -> None:
    plain = bs.schema({"n": bs.int64()})
    with bs.new_stream(tmp_path / "log.arrows", plain) as writer:
        writer.flush()
        assert bs.open_stream(tmp_path / "log.arrows").schema == plain


@pytest.mark.parametrize("kind", ["path", "store"])
def test_an_atomic_stream_appears_when_it_is_complete(kind: str, tmp_path: Path) -> None:
    with _open_target(kind, tmp_path) as target:
        with bs.new_stream(target.sink, _SCHEMA, atomic=True) as writer:
            writer.write(_create_batch(470_000))
            writer.flush()
            with suppress(FileNotFoundError):
                assert _read_prefix(target.read()) != [470_000]
        assert _read_prefix(target.read()) == [470_000]
        with suppress(ZeroDivisionError), bs.new_stream(target.sink, _SCHEMA, atomic=True) as writer:
            writer.write(_create_batch(3))
            raise ZeroDivisionError
        assert _read_prefix(target.read()) == [470_000]


_WRITE = """
import sys, time
import bowstring as bs
path, count, rows, pause_s, ends = sys.argv[1], *map(float, sys.argv[2:])
writer = bs.new_stream(path, {"n": "int64", "text": "string"})
for number in range(int(count)):
    writer.write(bs.record_batch({"n": [number] * int(rows), "text": ["x"] * int(rows)}))
    print(number, flush=True)
    time.sleep(pause_s)
if ends:
    writer.close()
else:
    sys.stdin.read()
"""


@contextmanager
def _writer_process(path: Path, count: int, rows: int, pause_s: float, ends: bool) -> Iterator[subprocess.Popen[bytes]]:
    arguments = [str(path), str(count), str(rows), str(pause_s), str(int(ends))]
    with subprocess.Popen(
        [sys.executable, "-c", _WRITE, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


@pytest.mark.parametrize("rows", [3, 5_000])
def test_what_a_killed_process_has_written_is_readable(rows: int, tmp_path: Path) -> None:
    path = tmp_path / "log.arrows"
    with _writer_process(path, 200, rows, 0, ends=False) as process:
        assert process.stdout is not None
        while process.stdout.readline() != b"199\n":
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert [batch["n"][0] for batch in bs.open_stream(path)] == list(range(200))
    report = bs.ipc.recover(path, tmp_path / "saved.arrows")
    assert (report.rows, report.record_batches) == (200 * rows, 200)


@pytest.mark.parametrize("rows", [3, 5_000])
def test_a_follower_reads_batches_of_another_process_until_the_end(rows: int, tmp_path: Path) -> None:
    path = tmp_path / "log.arrows"
    with _writer_process(path, 30, rows, 0.01, ends=True), bs.open_stream(path, follow=True) as reader:
        assert [batch["n"].to_pylist() for batch in reader] == [[number] * rows for number in range(30)]


def test_a_follower_selects_columns_and_reads_a_complete_stream(tmp_path: Path) -> None:
    path = tmp_path / "log.arrows"
    with bs.new_stream(path, _SCHEMA) as writer:
        writer.write(_create_batch(3))
    for source in (path, str(path), f"file://{path}"):
        with bs.open_stream(source, ["n"], follow=True) as reader:
            assert reader.read_all().to_pydict() == {"n": [0, 1, 2]}


def test_a_follower_waits_for_the_schema_and_within_a_message(tmp_path: Path) -> None:
    path, sink = tmp_path / "log.arrows", io.BytesIO()
    with bs.new_stream(sink, _SCHEMA) as writer:
        writer.write(_create_batch(3))
    content = sink.getvalue()
    path.touch()

    def write() -> None:
        with path.open("ab", buffering=0) as file:
            for start in range(0, len(content), 20):
                file.write(content[start : start + 20])
                time.sleep(0.001)

    thread = threading.Thread(target=write)
    thread.start()
    with bs.open_stream(path, follow=True) as reader:
        assert [batch.num_rows for batch in reader] == [3]
    thread.join()


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[tuple[Path, bs.ipc.StreamReader]]:
    """A stream of one batch without an end, and a follower that has read the batch."""
    path = tmp_path / "log.arrows"
    writer = bs.new_stream(path, _SCHEMA)
    writer.write(_create_batch(3))
    with bs.open_stream(path, follow=True) as reader:
        assert next(reader).num_rows == 3
        yield path, reader
    writer.close()


def test_a_follower_reports_a_replaced_file(followed: tuple[Path, bs.ipc.StreamReader]) -> None:
    path, reader = followed
    with bs.new_stream(path, _SCHEMA) as writer:
        writer.write(_create_batch(5))
        with pytest.raises(ResourceError, match="was replaced or removed"):
            next(reader)


def test_a_follower_waits_for_a_file_whose_path_looks_like_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "a:b@c.arrows"  # errors contain a:…@c.arrows
    with bs.new_stream(path, _SCHEMA) as writer:
        writer.write(_create_batch(3))
        with bs.open_stream(path, follow=True, timeout_s=0.2) as reader:
            assert next(reader).num_rows == 3
            with pytest.raises(DeadlineError, match=r"/a:…@c\.arrows: the file has not grown"):
                next(reader)


def test_a_follower_reports_a_removed_file(followed: tuple[Path, bs.ipc.StreamReader]) -> None:
    path, reader = followed
    path.unlink()
    with pytest.raises(ResourceError, match="was replaced or removed"):
        next(reader)


def test_a_follower_reports_a_truncated_file(followed: tuple[Path, bs.ipc.StreamReader]) -> None:
    path, reader = followed
    os.truncate(path, 8)
    with pytest.raises(TruncatedError, match=r"was truncated to 8 bytes after \d+ had been read"):
        next(reader)


def test_closing_a_follower_ends_the_wait_of_another_thread(followed: tuple[Path, bs.ipc.StreamReader]) -> None:
    timer = threading.Timer(0.05, followed[1].close)
    timer.start()
    with pytest.raises(ClosedError):
        next(followed[1])
    timer.join()


def test_a_follower_has_a_deadline(followed: tuple[Path, bs.ipc.StreamReader]) -> None:
    with bs.open_stream(followed[0], follow=True, timeout_s=0.05) as reader:
        next(reader)
        with pytest.raises(DeadlineError, match=r"has not grown for 0\.05 s"):
            next(reader)


def test_only_a_file_can_be_followed(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="expects the path of a local file, not BytesIO"):
        bs.open_stream(io.BytesIO(), follow=True)
    with pytest.raises(InvalidArgumentError, match="only for follow=True"):
        bs.open_stream(io.BytesIO(), timeout_s=3)
    with pytest.raises(MissingFileError):
        bs.open_stream(tmp_path / "missing", follow=True)
