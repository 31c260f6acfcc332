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

    __slots__ = ("_close", "_read_into", "name", "position")

    def __init__(self, read: Callable[[memoryview], int], name: str, close: Callable[[], None] | None = None) -> None:
        self._read_into = read
        self._close = close
        self.name = name
        self.position = 0

    def read(self, size_bytes: int) -> bytes:
        """The next bytes; fewer only at the end."""
        return self.read_buffer(size_bytes).to_bytes() if size_bytes else b""

    def read_some(self, target: memoryview) -> int:
        """Fill a part of `target` with the next bytes; return their number, 0 at the end."""
        size_bytes = self._read_into(target) if target.nbytes else 0
        self.position += size_bytes
        return size_bytes

    def read_buffer(self, size_bytes: int) -> Buffer:
        """The next bytes in new memory, aligned to 64 bytes; fewer only at the end."""
        if size_bytes == 0:
            return EMPTY
        try:
            memory = allocate(size_bytes)  # pages are committed when they are written
        except (MemoryError, ValueError, OverflowError):
            raise LimitError(f"{self.name}: no memory for {size_bytes} bytes at byte {self.position}") from None
        view, filled = memory.data, 0
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


class PeekedSource:
    """A sequential source with the bytes that were peeked from its beginning put back."""

    __slots__ = ("_head", "_source", "name", "position")

    def __init__(self, head: bytes, source: StreamSource) -> None:
        self._head = head
        self._source = source
        self.name = source.name
        self.position = source.position - len(head)

    def read(self, size_bytes: int) -> bytes:
        """The next bytes; fewer only at the end."""
        chunk, self._head = self._head[:size_bytes], self._head[size_bytes:]
        if len(chunk) < size_bytes:
            chunk += self._source.read(size_bytes - len(chunk))
        self.position += len(chunk)
        return chunk

    def read_buffer(self, size_bytes: int) -> Buffer:
        """The next bytes in new memory; fewer only at the end."""
        if self._head:
            return Buffer.of(self.read(size_bytes))
        buffer = self._source.read_buffer(size_bytes)
        self.position += buffer.size
        return buffer

    def close(self) -> None:
        """Close the source."""
        self._source.close()
