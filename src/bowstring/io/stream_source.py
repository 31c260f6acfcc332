"""Sources that are read once, sequentially: pipes, sockets and file objects that can't seek."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from threading import Event, Lock

from bowstring.errors import ClosedError, DeadlineError, LimitError, ResourceError, TruncatedError
from bowstring.io.io_errors import translate_io_error
from bowstring.memory.buffer import EMPTY, Buffer, allocate
from bowstring.memory.descriptors import is_same_file

_MIN_POLL_S, _MAX_POLL_S = 0.001, 0.1
"""How often a growing file is read at its end: soon after bytes have arrived, and less often the longer none do."""


class StreamSource:
    """A source that is read sequentially into new memory: a pipe, a file object or a socket.

    `read` fills a part of the given memory and returns the number of bytes; 0 is the end. The operating system commits
    memory as bytes arrive, not for the claimed size.
    """

    __slots__ = ("_close", "_read_into", "_unread", "name", "position")

    def __init__(self, read: Callable[[memoryview], int], name: str, close: Callable[[], None] | None = None) -> None:
        self._read_into = read
        self._close = close
        self._unread = b""
        self.name = name
        self.position = 0

    def read(self, size_bytes: int) -> bytes:
        """The next bytes; fewer only at the end."""
        return self.read_buffer(size_bytes).to_bytes() if size_bytes else b""

    def peek(self, size_bytes: int) -> bytes:
        """The next bytes, which are read again later; fewer only at the end."""
        start = self.read(size_bytes)
        self._unread = start + self._unread
        self.position -= len(start)
        return start

    def read_buffer(self, size_bytes: int) -> Buffer:
        """The next bytes in new memory, aligned to 64 bytes; fewer only at the end."""
        if size_bytes == 0:
            return EMPTY
        try:
            memory = allocate(size_bytes)  # pages are committed when they are written
        except (MemoryError, ValueError, OverflowError):
            raise LimitError(f"{self.name}: no memory for {size_bytes} bytes at byte {self.position}") from None
        view, filled = memory.data, min(len(self._unread), size_bytes)
        view[:filled] = self._unread[:filled]
        self._unread = self._unread[filled:]
        while filled < size_bytes:
            count = self._read_into(view[filled:])
            if count == 0:
                break
            filled += count
        self.position += filled
        return Buffer.of(memory[:filled])

    def close(self) -> None:
        """Close the underlying file, if the source owns it. Closing again has no effect."""
        close, self._close = self._close, None
        if close is not None:
            close()


class GrowingFile:
    """A regular file to which another process appends: `read` waits at its end until there are more bytes.

    It owns the descriptor. `name` is the path in errors. The file is polled, as its writer may be any program on any
    host.
    """

    def __init__(self, descriptor: int, path: str | os.PathLike[str], name: str, timeout_s: float | None) -> None:
        self._descriptor = descriptor
        self._path = path
        self._name = name
        self._timeout_s = timeout_s
        self._is_closed = Event()
        # Held by each call with the descriptor: after another thread has closed it, its number may be another file's.
        self._lock = Lock()

    def read(self, view: memoryview) -> int:
        """Read the next bytes into `view`, and return their number.

        Raises `DeadlineError` if there are none for `timeout_s` seconds, `TruncatedError` if the file has become
        shorter, `ResourceError` if another one is at its path and all bytes were read, `ClosedError` after `close`,
        also in another thread.
        """
        end = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        poll_s = _MIN_POLL_S
        while True:
            with self._lock:
                count = self._try_read(view)
            if count:
                return count
            if end is not None and time.monotonic() >= end:
                raise DeadlineError(f"{self._name}: the file has not grown for {self._timeout_s} s")
            self._is_closed.wait(poll_s if end is None else max(0.0, min(poll_s, end - time.monotonic())))
            poll_s = min(2 * poll_s, _MAX_POLL_S)

    def _try_read(self, view: memoryview) -> int:
        if self._is_closed.is_set():
            raise ClosedError(f"{self._name}: the reader is closed")
        descriptor = self._descriptor
        try:
            count = os.readv(descriptor, [view])
            if count:
                return count
            position, size_bytes = os.lseek(descriptor, 0, os.SEEK_CUR), os.fstat(descriptor).st_size
            is_current = is_same_file(self._path, descriptor)
            count = os.readv(descriptor, [view])  # what was written before the file was replaced
        except OSError as error:
            raise translate_io_error(error, self._name) from None
        if size_bytes < position:
            raise TruncatedError(f"{self._name}: was truncated to {size_bytes} bytes after {position} had been read")
        if not count and not is_current:
            raise ResourceError(f"{self._name}: was replaced or removed while it was followed")
        return count

    def close(self) -> None:
        """Close the descriptor, and end the wait of another thread."""
        self._is_closed.set()
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)

    __del__ = close
