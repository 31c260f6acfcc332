"""Byte ranges of a file: requested (spans), or fetched into memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from bowstring.errors import LimitError
from bowstring.memory.buffer import ALIGNMENT_BYTES, EMPTY, Buffer, allocate

MAX_GAP_BYTES = 1 << 16
"""Two ranges with a gap of at most this size are fetched as one."""

Span: TypeAlias = tuple[int, int]
"""A byte range: offset and length in bytes."""


def merge_spans(spans: Iterable[Span], gap_bytes: int = MAX_GAP_BYTES) -> list[Span]:
    """Sort spans and merge those that overlap or have a gap of at most `gap_bytes`; drop empty ones.

    >>> merge_spans([(100, 10), (0, 8), (8, 2)], gap_bytes=16)
    [(0, 10), (100, 10)]
    """
    merged: list[Span] = []
    for start, size_bytes in sorted(spans):
        if size_bytes <= 0:
            continue
        if merged and start - (merged[-1][0] + merged[-1][1]) <= gap_bytes:
            first, length = merged[-1]
            merged[-1] = first, max(length, start + size_bytes - first)
        else:
            merged.append((start, size_bytes))
    return merged


class FetchedRanges:
    """Byte ranges of a file in memory; they do not overlap."""

    __slots__ = ("_buffers", "_starts")

    def __init__(self, ranges: Iterable[tuple[int, Buffer]] = ()) -> None:
        ordered = sorted(ranges, key=lambda byte_range: byte_range[0])
        self._starts = [start for start, _ in ordered]
        self._buffers = [buffer for _, buffer in ordered]

    def find(self, offset: int, size_bytes: int) -> Buffer | None:
        """The bytes at `offset` of the file, not copied; None if they were not fetched."""
        if not size_bytes:
            return EMPTY
        index = bisect_right(self._starts, offset) - 1
        if index < 0:
            return None
        buffer, skip = self._buffers[index], offset - self._starts[index]
        return Buffer(buffer.memory, buffer.offset + skip, size_bytes) if skip + size_bytes <= buffer.size else None

    def read(self, offset: int, size_bytes: int) -> bytes:
        """The bytes at `offset` of the file, which must have been fetched."""
        buffer = self.find(offset, size_bytes)
        assert buffer is not None
        return buffer.to_bytes()

    def find_contiguous(self, offset: int, size_bytes: int) -> Buffer | None:
        """All contiguous bytes from `offset` on, not copied; None if they are fewer than `size_bytes`."""
        index = bisect_right(self._starts, offset) - 1
        if index < 0:
            return None
        contiguous_bytes = self._starts[index] + self._buffers[index].size - offset
        return self.find(offset, contiguous_bytes) if contiguous_bytes >= max(size_bytes, 1) else None

    def __iter__(self) -> Iterator[tuple[int, Buffer]]:
        return zip(self._starts, self._buffers, strict=True)

    def __len__(self) -> int:
        return len(self._starts)


def merge_fetched_ranges(ranges: Iterable[tuple[int, Buffer]]) -> list[tuple[int, Buffer]]:
    """Concatenate ranges that touch or overlap, with a copy; leave others unchanged."""
    joined: list[tuple[int, Buffer]] = []
    for start, buffer in sorted(ranges, key=lambda byte_range: byte_range[0]):
        if joined and start <= joined[-1][0] + joined[-1][1].size:
            first, previous = joined[-1]
            extra_bytes = start + buffer.size - (first + previous.size)
            if extra_bytes > 0:
                memory = allocate_for_range(first, previous.size + extra_bytes, "memory")
                memory[: previous.size] = previous.bytes
                memory[previous.size :] = buffer.bytes[buffer.size - extra_bytes :]
                joined[-1] = first, Buffer.of(memory)
        else:
            joined.append((start, buffer))
    return joined


def allocate_for_range(start: int, size_bytes: int, name: str) -> Any:
    """Allocate writable memory whose address equals the file offset `start` modulo 64."""
    padding = start % ALIGNMENT_BYTES
    try:
        return allocate(size_bytes + padding)[padding:]
    except (MemoryError, ValueError, OverflowError):
        raise LimitError(f"{name}: no memory for {size_bytes} bytes at byte {start}") from None
