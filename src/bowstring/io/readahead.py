"""Read-ahead for remote files: windows that grow while reading is sequential."""

from __future__ import annotations

from collections import deque

from bowstring.io.byte_ranges import MAX_GAP_BYTES, FetchedRanges
from bowstring.memory.buffer import Buffer

_FIRST_WINDOW_BYTES = 1 << 18
MAX_WINDOW_BYTES = 8 << 20
_MAX_WINDOWS = 4


class ReadAheadCache:
    """The last windows that were read ahead, and the size of the next one. Does not fetch."""

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows: deque[tuple[int, Buffer]] = deque(maxlen=_MAX_WINDOWS)

    def next_window_bytes(self, offset: int) -> int:
        """The bytes to fetch from `offset` on: twice the last window if reading continues at its end."""
        if not self._windows:
            return _FIRST_WINDOW_BYTES
        start, last = self._windows[-1]
        is_contiguous = start < offset <= start + last.size + MAX_GAP_BYTES
        return (
            min(2 * last.size, MAX_WINDOW_BYTES)
            if is_contiguous and last.size >= _FIRST_WINDOW_BYTES
            else _FIRST_WINDOW_BYTES
        )

    def add(self, start: int, buffer: Buffer) -> None:
        """Add a window that was fetched; the oldest one is dropped."""
        self._windows.append((start, buffer))

    def find_contiguous(self, offset: int, size_bytes: int) -> Buffer | None:
        """All contiguous bytes from `offset` on; None if they are fewer than `size_bytes`."""
        for window in reversed(tuple(self._windows)):  # another thread may add one
            buffer = FetchedRanges([window]).find_contiguous(offset, size_bytes)
            if buffer is not None:
                return buffer
        return None
