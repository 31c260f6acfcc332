"""Large stretches of memory that are used again: fresh memory comes from the system page by page, which takes longer
than filling it.

A stretch comes back when nobody sees it any more: not before the last array, memoryview or exported structure over any
byte of it is gone. What is kept for the next who asks is bounded, and the system may take its pages when it is short of
memory. What is handed out may hold anything that this process had there before.
"""

from __future__ import annotations

import mmap
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from bowstring.memory.buffer import UINT8, Bytes

LARGE_PAGE_BYTES = 1 << 21
"""Stretches begin at multiples of this, so that the system can give them in large pages."""
MAX_UNUSED_BYTES = 256 << 20
"""How much a process keeps of what it does not use."""

_FLAGS = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
_IN_LARGE_PAGES: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
_MAY_BE_TAKEN: int | None = getattr(mmap, "MADV_FREE", None)


@dataclass(frozen=True, slots=True, eq=False)
class _Stretch:
    """A private mapping, and those of its bytes that begin with a large page, also as NumPy takes them."""

    mapping: mmap.mmap
    start: int
    size_bytes: int
    interface: dict[str, Any]

    @classmethod
    def fresh(cls, size_bytes: int) -> _Stretch:
        """Raises `MemoryError` where there is not so much memory."""
        try:
            mapping = mmap.mmap(-1, size_bytes + LARGE_PAGE_BYTES, **_FLAGS)
        except (OSError, OverflowError):
            raise MemoryError(f"no memory for {size_bytes} bytes") from None
        whole = np.frombuffer(mapping, UINT8)
        start = -whole.__array_interface__["data"][0] % LARGE_PAGE_BYTES
        made = cls(mapping, start, size_bytes, whole[start : start + size_bytes].__array_interface__)
        made.advise(_IN_LARGE_PAGES)
        return made

    def advise(self, advice: int | None) -> None:
        """Tell the system what the bytes are for, if it wants to know."""
        if advice is not None:
            with suppress(OSError):
                self.mapping.madvise(advice, self.start, self.size_bytes)


class _Lease:
    """What an array over a stretch is based on; the stretch goes back when it ends.

    An array is unknown to the garbage collector, and so is that it refers to its lease: a lease that is part of a
    cycle does not end before the array does, whatever other objects of the cycle do with the array in their `__del__`.
    """

    __slots__ = ("__array_interface__", "_pool", "_stretch")

    def __init__(self, stretch: _Stretch, pool: Pool) -> None:
        self.__array_interface__ = stretch.interface
        self._stretch = stretch
        self._pool = pool

    def __del__(self) -> None:
        self._pool._give_back(self._stretch)


class Pool:
    """Keeps up to `max_unused_bytes` that nobody uses; threads may share it, and a forked child begins with nothing."""

    def __init__(self, max_unused_bytes: int = MAX_UNUSED_BYTES) -> None:
        self._most_kept_bytes = max_unused_bytes
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[_Stretch] = []

    @property
    def unused_bytes(self) -> int:
        """How much is kept that nobody uses."""
        return sum(stretch.size_bytes for stretch in self._kept.copy())

    def take(self, size_bytes: int) -> Bytes:
        """Writable memory of `size_bytes` bytes, not filled, that begins with a large page; it comes back by itself.

        Raises `MemoryError` where there is not so much.
        """
        whole = max(-(-size_bytes // LARGE_PAGE_BYTES), 1) * LARGE_PAGE_BYTES
        stretch = self._take_kept(whole)
        if stretch is None:
            try:
                stretch = _Stretch.fresh(whole)
            except MemoryError:
                self.release()
                stretch = _Stretch.fresh(whole)
        return np.asarray(_Lease(stretch, self))[:size_bytes]

    def _take_kept(self, size_bytes: int) -> _Stretch | None:
        with self._lock:
            fits = [kept for kept in self._kept if 0 <= kept.size_bytes - size_bytes <= size_bytes // 4]
            best = min(reversed(fits), key=lambda kept: kept.size_bytes, default=None)
            if best is not None:
                self._kept.remove(best)
            return best

    def _give_back(self, stretch: _Stretch) -> None:
        """Keep a stretch, and of the others those that came last. A lease may end at any moment, in this very class
        too: where the lock is taken, the stretch is let go.
        """
        if stretch.size_bytes > self._most_kept_bytes or not self._lock.acquire(blocking=False):
            return
        try:
            stretch.advise(_MAY_BE_TAKEN)
            self._kept.append(stretch)
            held = self.unused_bytes
            while held > self._most_kept_bytes:
                held -= self._kept.pop(0).size_bytes
        finally:
            self._lock.release()

    def release(self) -> int:
        """Let go of all that is kept; how many bytes that were."""
        with self._lock:
            kept, self._kept = self._kept, []
        return sum(stretch.size_bytes for stretch in kept)


POOL = Pool()
"""The pool of this process."""


def release_unused_memory() -> int:
    """Give memory back to the system that is kept to be used again, up to 256 MiB; how many bytes that were.

    It is kept when compressed batches have been written, or columns of them let go, for the next ones. The system takes
    it by itself when it is short of memory. Memory that somebody still sees stays as it is.
    """
    return POOL.release()
