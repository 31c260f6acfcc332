"""Sources that are read in order and once: pipes, sockets, file objects that can't go back."""

from __future__ import annotations

from collections.abc import Callable

from bowstring.errors import LimitError
from bowstring.memory.buffer import EMPTY, Buffer, allocate


class StreamSource:
    """A source that has to be read in order, into fresh memory: a pipe, a file object, a socket.

    `pull` fills a part of the memory that it is given, and says how much; 0 is the end. Memory grows with what has
    come, not with what was claimed.
    """

    __slots__ = ("_close", "_pull", "name", "position")

    def __init__(self, pull: Callable[[memoryview], int], name: str, close: Callable[[], None] | None = None) -> None:
        self._pull = pull
        self._close = close
        self.name = name
        self.position = 0

    def read(self, size_bytes: int) -> bytes:
        """The next bytes; fewer only at the end."""
        return self.read_buffer(size_bytes).to_bytes() if size_bytes else b""

    def read_some(self, target: memoryview) -> int:
        """Fill a part of `target` with the next bytes; how many there were, 0 at the end."""
        size_bytes = self._pull(target) if target.nbytes else 0
        self.position += size_bytes
        return size_bytes

    def read_buffer(self, size_bytes: int) -> Buffer:
        """The next bytes in fresh memory, aligned to 64 bytes; fewer only at the end."""
        if size_bytes == 0:
            return EMPTY
        try:
            held = allocate(size_bytes)  # the system gives pages when they are written
        except (MemoryError, ValueError, OverflowError):
            raise LimitError(f"{self.name}: no memory for {size_bytes} bytes at byte {self.position}") from None
        view, filled = held.data, 0
        while filled < size_bytes:
            got = self._pull(view[filled:])
            if got == 0:
                break
            filled += got
        self.position += filled
        return Buffer.of(held[:filled])

    def close(self) -> None:
        """Close what belongs to the source; once more does nothing."""
        close, self._close = self._close, None
        if close is not None:
            close()


class PeekedSource:
    """A source that can't be rewound, with the bytes that were taken from its beginning put back."""

    __slots__ = ("_head", "_source", "name", "position")

    def __init__(self, head: bytes, source: StreamSource) -> None:
        self._head = head
        self._source = source
        self.name = source.name
        self.position = source.position - len(head)

    def read(self, size_bytes: int) -> bytes:
        """The next bytes; fewer only at the end."""
        taken, self._head = self._head[:size_bytes], self._head[size_bytes:]
        if len(taken) < size_bytes:
            taken += self._source.read(size_bytes - len(taken))
        self.position += len(taken)
        return taken

    def read_buffer(self, size_bytes: int) -> Buffer:
        """The next bytes in fresh memory; fewer only at the end."""
        if self._head:
            return Buffer.of(self.read(size_bytes))
        held = self._source.read_buffer(size_bytes)
        self.position += held.size
        return held

    def close(self) -> None:
        """Close the source."""
        self._source.close()
