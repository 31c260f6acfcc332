"""Reading on from some place of a file that is far away: stretches that grow for as long as reading goes on."""

from __future__ import annotations

from collections import deque

from bowstring.io.byte_ranges import GAP_BYTES, FetchedRanges
from bowstring.memory.buffer import Buffer

_FIRST_BYTES = 1 << 18
MAX_WINDOW_BYTES = 8 << 20
_KEPT = 4


class ReadAhead:
    """The last stretches that were read ahead. It fetches nothing itself: it says how much is worth fetching."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: deque[tuple[int, Buffer]] = deque(maxlen=_KEPT)

    def worth(self, offset: int) -> int:
        """How many bytes to fetch from byte `offset` on: twice as many as the last time if that is where it ended."""
        if not self._kept:
            return _FIRST_BYTES
        start, last = self._kept[-1]
        goes_on = start < offset <= start + last.size + GAP_BYTES
        return min(2 * last.size, MAX_WINDOW_BYTES) if goes_on and last.size >= _FIRST_BYTES else _FIRST_BYTES

    def keep(self, start: int, found: Buffer) -> None:
        """Have a stretch that was fetched; the oldest one is let go."""
        self._kept.append((start, found))

    def at(self, offset: int, size_bytes: int) -> Buffer | None:
        """What is here from byte `offset` on, if that is at least `size_bytes`."""
        for piece in reversed(tuple(self._kept)):  # another thread may add one meanwhile
            found = FetchedRanges([piece]).at(offset, size_bytes)
            if found is not None:
                return found
        return None
