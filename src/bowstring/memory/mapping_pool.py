"""A pool of large memory mappings: page faults of new memory take longer than filling it.

A mapping returns to the pool when the last array, memoryview or exported structure over any of its bytes is deleted.
The pool is bounded, and the kernel may reclaim its pages. Memory from the pool is not cleared.
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
"""Alignment of mappings, which lets the kernel use huge pages."""
POOLED_BYTES = 8 << 20
"""The length from which received messages use the pool: reading 1 GB over TCP again takes less than half the time."""
MAX_UNUSED_BYTES = 1 << 30
"""Maximum unused memory of a process. The kernel takes it back when it is short of memory."""


@dataclass(frozen=True, slots=True, eq=False)
class _PooledMapping:
    """A private mapping, and the range of it that starts at a huge page, also as NumPy's array interface."""

    mapping: mmap.mmap
    start: int
    size_bytes: int
    interface: dict[str, Any]

    @classmethod
    def allocate(cls, size_bytes: int) -> _PooledMapping:
        """Create a mapping. Raises `MemoryError`."""
        try:
            mapping = mmap.mmap(-1, size_bytes + LARGE_PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError):
            raise MemoryError(f"no memory for {size_bytes} bytes") from None
        whole = np.frombuffer(mapping, UINT8)
        start = -whole.__array_interface__["data"][0] % LARGE_PAGE_BYTES
        region = cls(mapping, start, size_bytes, whole[start : start + size_bytes].__array_interface__)
        region.advise(mmap.MADV_HUGEPAGE)
        return region

    def advise(self, advice: int) -> None:
        """Call madvise; a kernel without the advice ignores it."""
        with suppress(OSError):
            self.mapping.madvise(advice, self.start, self.size_bytes)


class _PooledArrayOwner:
    """The base object of an array over a mapping; returns the mapping to the pool when it is deleted.

    The garbage collector does not track arrays or their reference to the owner. In a cycle the owner therefore
    exists at least as long as the array, whatever other objects of the cycle do with the array in their `__del__`.
    """

    __slots__ = ("__array_interface__", "_mapping", "_pool")

    def __init__(self, pooled: _PooledMapping, pool: MappingPool) -> None:
        self.__array_interface__ = pooled.interface
        self._mapping = pooled
        self._pool = pool

    def __del__(self) -> None:
        self._pool._return_mapping(self._mapping)


class MappingPool:
    """Keeps up to `max_unused_bytes` of unused mappings. Thread-safe; a forked child starts with an empty pool."""

    def __init__(self, max_unused_bytes: int = MAX_UNUSED_BYTES) -> None:
        self._max_unused_bytes = max_unused_bytes
        self._reset()
        # The pages would be copied when the child writes them, and another thread may have had the lock.
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._unused: list[_PooledMapping] = []

    @property
    def unused_bytes(self) -> int:
        """The size of all unused mappings."""
        return sum(pooled.size_bytes for pooled in self._unused.copy())

    def allocate(self, size_bytes: int) -> Bytes:
        """Return writable, uninitialized memory of `size_bytes` bytes, aligned to a huge page.

        It returns to the pool automatically. Raises `MemoryError`.
        """
        whole = max(-(-size_bytes // LARGE_PAGE_BYTES), 1) * LARGE_PAGE_BYTES
        pooled = self._take_unused_mapping(whole)
        if pooled is None:
            try:
                pooled = _PooledMapping.allocate(whole)
            except MemoryError:
                self.release_unused()
                pooled = _PooledMapping.allocate(whole)
        return np.asarray(_PooledArrayOwner(pooled, self))[:size_bytes]

    def _take_unused_mapping(self, size_bytes: int) -> _PooledMapping | None:
        with self._lock:
            # Up to a quarter too large: all of a mapping stays resident, also the part that nobody uses.
            fits = [
                candidate for candidate in self._unused if 0 <= candidate.size_bytes - size_bytes <= size_bytes // 4
            ]
            # Of equal sizes the one used last: the kernel takes back the pages of the others first.
            best = min(reversed(fits), key=lambda candidate: candidate.size_bytes, default=None)
            if best is not None:
                self._unused.remove(best)
            return best

    def _return_mapping(self, pooled: _PooledMapping) -> None:
        """Keep a mapping and drop the oldest ones above the limit. An owner can be deleted at any time, even inside
        this class: if the lock is taken, the mapping is dropped.
        """
        if pooled.size_bytes > self._max_unused_bytes or not self._lock.acquire(blocking=False):
            return
        try:
            # Free for the kernel to take, but without page faults if it does not: MADV_DONTNEED would drop the pages at
            # once.
            pooled.advise(mmap.MADV_FREE)
            self._unused.append(pooled)
            unused_bytes = self.unused_bytes
            while unused_bytes > self._max_unused_bytes:
                unused_bytes -= self._unused.pop(0).size_bytes
        finally:
            self._lock.release()

    def release_unused(self) -> int:
        """Release all unused mappings; returns their size in bytes."""
        with self._lock:
            released, self._unused = self._unused, []
        return sum(pooled.size_bytes for pooled in released)


MAPPING_POOL = MappingPool()
"""The pool of this process."""


def release_unused_memory() -> int:
    """Return unused memory of the pool, up to 1 GiB, to the system; returns its size in bytes.

    The pool keeps memory after compressed batches are written or their columns deleted, and memory of long messages
    received over a socket, and reuses it. The kernel reclaims it under memory pressure. Memory in use is not affected.

    >>> bs.memory.release_unused_memory() >= 0
    True
    """
    return MAPPING_POOL.release_unused()
