"""Sources whose beginning was looked at, and is read again."""

from __future__ import annotations

from bowstring.ipc.places.sources import PulledSource
from bowstring.memory.buffer import Buffer


class Replayed:
    """A source that can't be rewound, with the bytes that were taken from its beginning put back."""

    __slots__ = ("_head", "_source", "name", "position")

    def __init__(self, head: bytes, source: PulledSource) -> None:
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
