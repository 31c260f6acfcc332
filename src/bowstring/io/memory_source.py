"""Sources in memory: bytes and memory-mapped files."""

from __future__ import annotations

import os
from collections.abc import Sequence

from bowstring.errors import TruncatedError
from bowstring.io.byte_ranges import FetchedRanges, Span, merge_spans
from bowstring.io.io_errors import translate_io_error
from bowstring.memory.buffer import Buffer, Memory

# Copying a header takes less time than the views and slices of the mapping that reading it would create.
_MAX_COPIED_BYTES = 1 << 13
# The fields of a header that every reader needs are in its first bytes, before its nodes and buffers.
_HEAD_BYTES = 512


class MemorySource:
    """Bytes or a memory-mapped file, for random access and sequential reading; buffers are not copied.

    With the `descriptor` of a mapped file, small ranges are read through it, which is cheaper than a page fault. The
    source owns the descriptor.
    """

    __slots__ = ("_view", "descriptor", "is_closed", "memory", "name", "position", "size")

    def __init__(self, memory: Memory, name: str, descriptor: int = -1) -> None:
        self.memory = memory
        self.name = name
        self.size = memory.size
        self.position = 0
        self.descriptor = descriptor
        """The descriptor of the file behind the memory, -1 for none."""
        self.is_closed = False
        """Whether the source was closed; existing buffers stay valid."""
        self._view = memory.bytes.data

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """The bytes at `offset`; the caller has checked the bounds."""
        descriptor = self.descriptor
        if descriptor >= 0:
            chunk = self._pread(descriptor, offset, size_bytes)
            if chunk is not None:
                return chunk
        return bytes(self._view[offset : offset + size_bytes])

    def _pread(self, descriptor: int, offset: int, size_bytes: int) -> bytes | None:
        """The bytes, read through the descriptor; None if another thread closed it, as it may be reused by now."""
        try:
            chunk = os.pread(descriptor, size_bytes, offset)
            current_size = self.size if len(chunk) == size_bytes else os.fstat(descriptor).st_size
        except OSError as error:
            if self.descriptor < 0:
                return None
            raise translate_io_error(error, self.name) from None
        if self.descriptor < 0:
            return None
        if len(chunk) == size_bytes:
            return chunk
        if current_size < offset + size_bytes:  # reading the mapping there would raise SIGBUS
            raise TruncatedError(
                f"{self.name}: expected {size_bytes} bytes at byte {offset}, but the file was "
                f"truncated to {current_size} bytes after it was opened"
            )
        return None

    def read_lazily(self, offset: int, size_bytes: int) -> bytes | memoryview | LazyBytes:
        """The bytes at `offset`; many bytes are read lazily. The caller has checked the bounds."""
        if size_bytes <= _MAX_COPIED_BYTES:
            return self.read_at(offset, size_bytes)
        if self.descriptor >= 0:
            return LazyBytes(self, offset, size_bytes)
        return self._view[offset : offset + size_bytes]

    def fetch(self, spans: Sequence[Span], gap_bytes: int = 0) -> FetchedRanges:  # noqa: ARG002 -- a request costs nothing here
        """The bytes of all spans, copied; the caller has checked the bounds."""
        return FetchedRanges((start, Buffer.of(self.read_at(start, size))) for start, size in merge_spans(spans, 0))

    def prefetch(self, spans: Sequence[Span]) -> None:
        """Do nothing: all bytes are in memory."""

    def read(self, size_bytes: int) -> bytes:
        """The next bytes; fewer only at the end."""
        size_bytes = min(size_bytes, self.size - self.position)
        chunk = self.read_at(self.position, size_bytes)
        self.position += size_bytes
        return chunk

    def peek(self, size_bytes: int) -> bytes:
        """The next bytes, which are read again later; fewer only at the end."""
        return self.read_at(self.position, min(size_bytes, self.size - self.position))

    def read_buffer(self, size_bytes: int) -> Buffer:
        """The next bytes, not copied; fewer only at the end."""
        size_bytes = min(size_bytes, self.size - self.position)
        self.position += size_bytes
        return Buffer(self.memory, self.position - size_bytes, size_bytes)

    def close(self) -> None:
        """Close the descriptor; the mapping ends with its last reference."""
        descriptor, self.descriptor, self.is_closed = self.descriptor, -1, True
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if getattr(self, "descriptor", -1) >= 0:
            self.close()


class LazyBytes:
    """The bytes of a large header in a file, read lazily, as mostly few are needed. Slicing returns bytes."""

    __slots__ = ("_head", "_offset", "_size", "_source")

    def __init__(self, source: MemorySource, offset: int, size_bytes: int) -> None:
        self._source = source
        self._offset = offset
        self._size = size_bytes
        self._head = source.read_at(offset, min(size_bytes, _HEAD_BYTES))

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: slice) -> bytes:
        start, stop, _ = key.indices(self._size)
        if stop > len(self._head):
            return self._source.read_at(self._offset + start, max(stop - start, 0))
        return self._head[start:stop]
