"""Sources that are read once, sequentially: pipes, sockets and file objects that can't seek."""

from __future__ import annotations

from collections.abc import Callable

from bowstring.errors import LimitError
from bowstring.memory.buffer import EMPTY, Buffer, allocate


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
