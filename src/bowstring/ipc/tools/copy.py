"""Bytes of one file into another that never come here: the kernel moves them, or several threads do."""

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

_AT_ONCE = 1 << 20
_PIECE = 4 << 20
_WORTH_A_CALL = 1 << 16
_MOST_THREADS = 4
_MOST_UNDER_WAY = 64


class Copier:
    """Copies stretches of sources into a sink, in order.

    From a mapped file to a path threads read and write in pieces, by calls and so without a page fault for each page;
    all else goes through the sink. `finish` has to be called before the sink's, `abandon` before the sink's.
    """

    __slots__ = ("_pool", "_sink", "_under_way")

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: deque[Future[None]] = deque()

    def copy(self, source: MemorySource | None, held: Buffer) -> None:
        """Copy a stretch of memory; `source` is where it lies, if that may be a file. Its descriptor is duplicated
        where it is needed for longer.

        Raises `TruncatedError` where the file is no longer that long, now or in `finish`.
        """
        sink, size_bytes = self._sink, held.size
        if source is None or source.descriptor < 0 or size_bytes < _WORTH_A_CALL:
            if size_bytes:
                part = held.bytes.data if source is None else source.read_at(held.offset, size_bytes)
                sink.write([part], size_bytes)
            return
        if not isinstance(sink, PathSink):
            sink.write([held.bytes.data], size_bytes)
            return
        sink.reserve_space(size_bytes)
        target, at = sink.skip(size_bytes)
        for start in range(0, size_bytes, _PIECE):
            size = min(_PIECE, size_bytes - start)
            self._begin(_Piece(source, held.offset + start, sink.name, target, at + start, size))

    def copy_far(self, body: RemoteBody) -> None:
        """Copy a body that is elsewhere, as much at a time as one round brings."""
        for at in range(0, body.size, ROUND_BYTES):
            part = fetch_body(RemoteBody(body.source, body.offset + at, min(ROUND_BYTES, body.size - at)))
            self._sink.write([part.bytes.data], part.size)

    def _begin(self, piece: _Piece) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_THREADS), "bowstring-copy")
        self._under_way.append(self._pool.submit(piece.copy))
        while len(self._under_way) > _MOST_UNDER_WAY:
            self._under_way.popleft().result()

    def finish(self) -> None:
        """Wait until all is there; raises the first error."""
        try:
            while self._under_way:
                self._under_way.popleft().result()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let what is under way end, and begin nothing more."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        self._under_way.clear()


class _Piece:
    """One piece to be copied. It holds a descriptor of its own, as the source may be closed before its turn comes."""

    __slots__ = ("_from", "_name", "_offset", "_size", "_target", "_target_name", "_to")

    def __init__(
        self, source: MemorySource, offset: int, target_name: str, target: int, to: int, size_bytes: int
    ) -> None:
        self._from = os.dup(source.descriptor)
        self._name = source.name
        self._offset = offset
        self._target_name = target_name
        self._target = target
        self._to = to
        self._size = size_bytes

    def copy(self) -> None:
        """Copy it."""
        try:
            copy_through(self._from, self._offset, self._target, self._to, self._size)
        except EOFError:
            raise TruncatedError(f"{self._name}: the file was cut while it was copied") from None
        except OSError as error:
            raise translate_io_error(error, f"{self._name} to {self._target_name}", "copied") from None

    def __del__(self) -> None:
        os.close(self._from)


def copy_through(source: int, offset: int, target: int, to: int, size_bytes: int) -> None:
    """Copy bytes between two files by a small piece of memory: faster than what the kernel does page by page.

    Raises `EOFError` where the source ends too early.
    """
    held = memoryview(bytearray(min(_AT_ONCE, size_bytes)))
    done = 0
    while done < size_bytes:
        got = os.preadv(source, [held[: size_bytes - done]], offset + done)
        if not got:
            raise EOFError
        _whole(lambda part, at: os.pwrite(target, part, at), held[:got], to + done)
        done += got


def _whole(write: Callable[[Any, int], int], part: memoryview, at: int) -> None:
    while part:
        sent = write(part, at)
        part, at = part[sent:], at + sent


def clone(source: int, target: int, size_bytes: int) -> None:
    """The first bytes of one file into an empty one, shared by both where the file system can (a reflink).

    Raises `EOFError` where the source ends too early.
    """
    done = 0
    while done < size_bytes:
        try:
            got = os.copy_file_range(source, target, size_bytes - done, done, done)
        except OSError:  # another file system, or one that knows no such call
            copy_through(source, done, target, done, size_bytes - done)
            return
        if not got:
            raise EOFError
        done += got
