"""Copy bytes between files without reading them into Python: by the kernel, or by several threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from bowstring.errors import TruncatedError
from bowstring.io.memory_source import MemorySource
from bowstring.io.os_errors import translate_io_error
from bowstring.io.range_source import ROUND_BYTES
from bowstring.io.sinks import PathSink, Sink
from bowstring.ipc.record_batch.remote import RemoteBody, fetch_body
from bowstring.memory.buffer import Buffer

_BUFFER_BYTES = 1 << 20
_CHUNK_BYTES = 4 << 20
_MIN_THREADED_BYTES = 1 << 16
_MAX_THREADS = 4
_MAX_PENDING = 64


class Copier:
    """Copies byte ranges of sources to a sink, in order.

    From a mapped file to a path, threads read and write chunks by system calls, which avoids a page fault per page; all
    else goes through the sink. Call `finish` before the sink's `finish`, `abandon` before the sink's `abandon`.
    """

    __slots__ = ("_pending", "_pool", "_sink")

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._pool: ThreadPoolExecutor | None = None
        self._pending: deque[Future[None]] = deque()

    def copy(self, source: MemorySource | None, memory_range: Buffer) -> None:
        """Copy a range of memory; `source` is the source that contains it, if that may be a file. Its descriptor is
        duplicated if needed later.

        Raises `TruncatedError`, here or in `finish`, if the file has become shorter.
        """
        sink, size_bytes = self._sink, memory_range.size
        if source is None or source.descriptor < 0 or size_bytes < _MIN_THREADED_BYTES:
            if size_bytes:
                part = memory_range.bytes.data if source is None else source.read_at(memory_range.offset, size_bytes)
                sink.write([part], size_bytes)
            return
        if not isinstance(sink, PathSink):
            sink.write([memory_range.bytes.data], size_bytes)
            return
        sink.reserve_space(size_bytes)
        target, at = sink.skip(size_bytes)
        for start in range(0, size_bytes, _CHUNK_BYTES):
            size = min(_CHUNK_BYTES, size_bytes - start)
            self._submit(_Chunk(source, memory_range.offset + start, sink.name, target, at + start, size))

    def copy_remote_body(self, body: RemoteBody) -> None:
        """Copy a remote body, one round of requests at a time."""
        for at in range(0, body.size, ROUND_BYTES):
            part = fetch_body(RemoteBody(body.source, body.offset + at, min(ROUND_BYTES, body.size - at)))
            self._sink.write([part.bytes.data], part.size)

    def _submit(self, piece: _Chunk) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(min(os.cpu_count() or 1, _MAX_THREADS), "bowstring-copy")
        self._pending.append(self._pool.submit(piece.copy))
        while len(self._pending) > _MAX_PENDING:
            self._pending.popleft().result()

    def finish(self) -> None:
        """Wait until all is copied; raises the first error."""
        try:
            while self._pending:
                self._pending.popleft().result()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Wait for running copies and cancel the others."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        self._pending.clear()


class _Chunk:
    """A chunk to copy. It has its own descriptor, because the source may be closed before the copy starts."""

    __slots__ = ("_descriptor", "_name", "_offset", "_size", "_target", "_target_name", "_target_offset")

    def __init__(
        self, source: MemorySource, offset: int, target_name: str, target: int, target_offset: int, size_bytes: int
    ) -> None:
        self._descriptor = os.dup(source.descriptor)
        self._name = source.name
        self._offset = offset
        self._target_name = target_name
        self._target = target
        self._target_offset = target_offset
        self._size = size_bytes

    def copy(self) -> None:
        """Copy the chunk."""
        try:
            copy_through(self._descriptor, self._offset, self._target, self._target_offset, self._size)
        except EOFError:
            raise TruncatedError(f"{self._name}: the file was truncated while it was copied") from None
        except OSError as error:
            raise translate_io_error(error, f"{self._name} to {self._target_name}", "copied") from None

    def __del__(self) -> None:
        os.close(self._descriptor)


def copy_through(source: int, offset: int, target: int, target_offset: int, size_bytes: int) -> None:
    """Copy bytes between two files through a small buffer: faster than the kernel's copy page by page.

    Raises `EOFError` if the source ends too early.
    """
    buffer = memoryview(bytearray(min(_BUFFER_BYTES, size_bytes)))
    copied_bytes = 0
    while copied_bytes < size_bytes:
        read_bytes = os.preadv(source, [buffer[: size_bytes - copied_bytes]], offset + copied_bytes)
        if not read_bytes:
            raise EOFError
        _write_all(lambda part, at: os.pwrite(target, part, at), buffer[:read_bytes], target_offset + copied_bytes)
        copied_bytes += read_bytes


def _write_all(write: Callable[[Any, int], int], part: memoryview, at: int) -> None:
    while part:
        written_bytes = write(part, at)
        part, at = part[written_bytes:], at + written_bytes


def clone(source: int, target: int, size_bytes: int) -> None:
    """Copy the first bytes of a file into an empty one, sharing them if the file system can (a reflink).

    Raises `EOFError` if the source ends too early.
    """
    copied_bytes = 0
    while copied_bytes < size_bytes:
        try:
            count = os.copy_file_range(source, target, size_bytes - copied_bytes, copied_bytes, copied_bytes)
        except OSError:  # another file system, or one without this call
            copy_through(source, copied_bytes, target, copied_bytes, size_bytes - copied_bytes)
            return
        if not count:
            raise EOFError
        copied_bytes += count
