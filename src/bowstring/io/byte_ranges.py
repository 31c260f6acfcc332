"""Stretches of a file that are here, or are asked for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from bowstring.errors import LimitError
from bowstring.memory.buffer import ALIGNMENT_BYTES, EMPTY, Buffer, allocate

GAP_BYTES = 1 << 16
"""Two ranges are fetched as one where no more bytes than these lie between them."""

Span: TypeAlias = tuple[int, int]
"""A stretch of a file: its first byte and its length in bytes."""


def merge_spans(spans: Iterable[Span], gap_bytes: int = GAP_BYTES) -> list[Span]:
    """Spans in order, neighbours in one where the gap between them is small or they overlap; empty ones are left out.

    >>> merged([(100, 10), (0, 8), (8, 2)], gap_bytes=16)
    [(0, 10), (100, 10)]
    """
    out: list[Span] = []
    for start, size_bytes in sorted(spans):
        if size_bytes <= 0:
            continue
        if out and start - (out[-1][0] + out[-1][1]) <= gap_bytes:
            first, held = out[-1]
            out[-1] = first, max(held, start + size_bytes - first)
        else:
            out.append((start, size_bytes))
    return out


class FetchedRanges:
    """Stretches of a file that are here; they do not overlap."""

    __slots__ = ("_buffers", "_starts")

    def __init__(self, held: Iterable[tuple[int, Buffer]] = ()) -> None:
        ordered = sorted(held, key=lambda piece: piece[0])
        self._starts = [start for start, _ in ordered]
        self._buffers = [buffer for _, buffer in ordered]

    def find(self, offset: int, size_bytes: int) -> Buffer | None:
        """The bytes from byte `offset` of the file on, not copied; None where they are not here."""
        if not size_bytes:
            return EMPTY
        at = bisect_right(self._starts, offset) - 1
        if at < 0:
            return None
        buffer, skip = self._buffers[at], offset - self._starts[at]
        return Buffer(buffer.memory, buffer.offset + skip, size_bytes) if skip + size_bytes <= buffer.size else None

    def read(self, offset: int, size_bytes: int) -> bytes:
        """The bytes from byte `offset` of the file on, which are here."""
        found = self.find(offset, size_bytes)
        assert found is not None
        return found.to_bytes()

    def at(self, offset: int, size_bytes: int) -> Buffer | None:
        """What is here from byte `offset` of the file on, not copied, if that is at least `size_bytes`."""
        reach = self.reach(offset)
        return self.find(offset, reach) if reach and reach >= size_bytes else None

    def reach(self, offset: int) -> int:
        """How many bytes are here from byte `offset` of the file on."""
        at = bisect_right(self._starts, offset) - 1
        return max(self._starts[at] + self._buffers[at].size - offset, 0) if at >= 0 else 0

    def __iter__(self) -> Iterator[tuple[int, Buffer]]:
        return zip(self._starts, self._buffers, strict=True)

    def __len__(self) -> int:
        return len(self._starts)


def join_buffers(held: Iterable[tuple[int, Buffer]]) -> list[tuple[int, Buffer]]:
    """Pieces that touch or overlap as one; those that lie apart as they are."""
    out: list[tuple[int, Buffer]] = []
    for start, buffer in sorted(held, key=lambda piece: piece[0]):
        if out and start <= out[-1][0] + out[-1][1].size:
            first, before = out[-1]
            more = start + buffer.size - (first + before.size)
            if more > 0:
                whole = allocate_for_range(first, before.size + more, "memory")
                whole[: before.size] = before.bytes
                whole[before.size :] = buffer.bytes[buffer.size - more :]
                out[-1] = first, Buffer.of(whole)
        else:
            out.append((start, buffer))
    return out


def allocate_for_range(start: int, size_bytes: int, name: str) -> Any:
    """Writable memory whose first byte lies as byte `start` of a file does, modulo 64."""
    skip = start % ALIGNMENT_BYTES
    try:
        return allocate(size_bytes + skip)[skip:]
    except (MemoryError, ValueError, OverflowError):
        raise LimitError(f"{name}: no memory for {size_bytes} bytes at byte {start}") from None
