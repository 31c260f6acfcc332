"""Arenas: shared memory that is filled again after its readers have ended («Shared memory» in the goals of the
Dissociated IPC protocol).

The pages of new memory take longer to allocate than to fill, so an `Arena` keeps the pages of earlier regions. Its
blocks are memfds of a fixed size that only the arena's own mapping can write: the seal `F_SEAL_FUTURE_WRITE` rejects
other writes and mappings.

**A block is filled again only if no reader is left.** Each region of a block has its own open file description with a
shared lock (flock). Descriptors that are sent, inherited or duplicated, and mappings of them, belong to the same
description; a process that opens the memory by a `SharedTableHandle` locks its own one. The kernel releases a lock with
the last descriptor and mapping, also of a killed process. Before the arena fills a block it locks it exclusively.
So readers need not report that they have ended, and a reader that never ends keeps its memory.

The arena's process could still write what others read. `Region.is_sealed` is therefore False, as for files, and
receivers accept blocks only if they accept files.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
import weakref
from dataclasses import dataclass

import numpy as np

from bowstring.errors import ClosedError, InvalidArgumentError, ResourceError
from bowstring.memory.available_memory import check_available_memory
from bowstring.memory.buffer import UINT8, Bytes
from bowstring.memory.closable import Closable, call_in_forked_children, call_on_error
from bowstring.memory.descriptors import (
    lock_for_reading,
    map_writable,
    new_memfd,
    reopen_read_only,
    seal_for_arena,
    translate_shortage_errors,
)
from bowstring.memory.forks import ProcessLock, process_token
from bowstring.memory.region import Region, UnsealedRegion

# The kernel can't reclaim this memory, unlike the mapping pool's, so it is bounded on large machines, too.
MAX_UNUSED_BYTES = 1 << 30
"""The default for the maximum of an arena's unused memory."""
# A large step is a huge page. Small regions get less, or a region of one row would take 2 MiB.
_LARGE_STEP_BYTES, _SMALL_STEP_BYTES = 1 << 21, 1 << 16
"""Sizes of blocks are multiples of these, so that regions of almost equal sizes can use the same block."""
# Less would leave blocks unused that fit almost; more would let small regions keep the blocks of large ones.
_MAX_RATIO = 2
"""The maximum size of a block, in sizes of the region."""


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """A memfd and the only mapping that can write it."""

    descriptor: int
    mapping: mmap.mmap
    size_bytes: int
    process: object

    @classmethod
    def allocate(cls, region_bytes: int, name: str) -> _Block:
        """Allocate a block for a region of this size, with all its pages. Raises `ResourceError`."""
        step_bytes = _SMALL_STEP_BYTES if region_bytes < _LARGE_STEP_BYTES else _LARGE_STEP_BYTES
        size_bytes = max(-(-region_bytes // step_bytes), 1) * step_bytes
        check_available_memory(size_bytes, name)
        descriptor = new_memfd(name)
        with call_on_error(os.close, descriptor):
            with translate_shortage_errors(f"reserve {size_bytes} bytes for", name):
                os.posix_fallocate(descriptor, 0, size_bytes)
                mapping = map_writable(descriptor, size_bytes)
            seal_for_arena(descriptor)
        return cls(descriptor, mapping, size_bytes, process_token())

    def try_lock(self) -> bool:
        """Lock the block exclusively; return False if a region of it is open or mapped in any process."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def open_region(self, size_bytes: int, name: str) -> Region:
        """Return a region of the first `size_bytes` bytes, and unlock the block. Raises `ResourceError`.

        The time of modification distinguishes its content from earlier regions.
        """
        # Opened again and not duplicated: a lock belongs to an open file description, and each region needs its own.
        reader = reopen_read_only(self.descriptor, name)
        # Later than the earlier regions' even if the clock was set back, or stands still.
        modified_ns = max(time.time_ns(), os.fstat(reader).st_mtime_ns + 1)
        os.utime(self.descriptor, ns=(modified_ns, modified_ns))
        # Only now: a process that has the handle of an earlier region could lock the block, and compares the time then.
        # Nothing else locks it exclusively, because the arena does not list a block that is being filled.
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        lock_for_reading(reader, name)
        return Region(reader, size_bytes, name, is_sealed=False)


class ArenaRegionBuilder(UnsealedRegion):
    """Memory of an arena, written in place through `memory` and then sealed; created by `Arena.create_builder`.

    Until they are written, its bytes belong to earlier regions.
    """

    __slots__ = ("_arena", "_block", "_memory")

    def __init__(self, arena: Arena, block: _Block, size_bytes: int, name: str) -> None:
        super().__init__(name, size_bytes)
        self._arena = arena
        self._block = block
        self._descriptor = block.descriptor
        self._memory: Bytes | None = None

    @property
    def memory(self) -> memoryview:
        """All bytes, writable until `seal` or `close`."""
        self.fileno()
        if self._memory is None:
            self._memory = np.frombuffer(self._block.mapping, UINT8, self.size_bytes)
        return self._memory.data

    def seal(self) -> Region:
        """End writing until all readers have ended; return the `Region`.

        Raises `InvalidArgumentError` while writable views exist, `ResourceError` if descriptors are exhausted; `memory`
        stays writable then, and can be sealed later.
        """
        self.fileno()
        if self._has_views():
            raise InvalidArgumentError(f"region {self.name!r} can't be sealed while writable views of it exist")
        np.frombuffer(self._block.mapping, UINT8)[self.size_bytes :] = 0  # readers can map the whole block
        region = self._block.open_region(self.size_bytes, self.name)
        self.close()
        return region

    def close(self) -> None:
        """Return the memory to the arena, or drop it if writable views exist. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        if self._has_views():
            # The views can still write the block, so no later region may be in it.
            os.close(descriptor)
        else:
            self._arena._return_block(self._block)

    def _has_views(self) -> bool:
        """Whether arrays or memoryviews over `memory` exist. They refer to the array that `memory` is a view of."""
        if self._memory is None:
            return False
        reference = weakref.ref(self._memory)
        self._memory = None
        self._memory = reference()
        return self._memory is not None


class Arena(Closable):
    """Shared memory that is filled again when no process has it open or mapped; for `bowstring.share`.

    Up to `max_unused_bytes` of memory without readers are kept for the next region; `release_unused` frees them. The
    arena belongs to the process that created it, and is empty in a forked child. Thread-safe. Raises
    `InvalidArgumentError` for a negative size.

    >>> table = bs.table({"n": [1, 2]})
    >>> with bs.memory.Arena() as arena:
    ...     for _ in range(3):
    ...         with bs.share(table, arena=arena) as handle:  # in the memory of the previous handle
    ...             assert bs.attach(handle) == table
    """

    def __init__(self, max_unused_bytes: int = MAX_UNUSED_BYTES) -> None:
        if max_unused_bytes < 0:
            raise InvalidArgumentError(f"arena: expected max_unused_bytes of 0 or more, not {max_unused_bytes}")
        self._max_unused_bytes = max_unused_bytes
        self._lock = ProcessLock()
        self._blocks: list[_Block] = []
        self._is_closed = False
        _ARENAS.add(self)

    @property
    def nbytes(self) -> int:
        """The size in bytes of the memory that is being read or unused."""
        with self._lock.of_this_process:
            return sum(block.size_bytes for block in self._blocks)

    def create_builder(self, size_bytes: int, name: str = "arena") -> ArenaRegionBuilder:
        """Return memory of `size_bytes` bytes, to be written in place and then sealed: unused one, if there is enough.

        Raises `ClosedError`, and `ResourceError` if memory or descriptors are exhausted.
        """
        if size_bytes < 0:
            raise InvalidArgumentError(f"region {name!r}: expected a size of 0 or more bytes, not {size_bytes}")
        block = self._take_unused_block(size_bytes)
        if block is None:
            try:
                block = _Block.allocate(size_bytes, name)
            except ResourceError:
                if not self.release_unused():
                    raise
                block = _Block.allocate(size_bytes, name)
        return ArenaRegionBuilder(self, block, size_bytes, name)

    def release_unused(self) -> int:
        """Free all memory without readers; return its size in bytes."""
        with self._lock.of_this_process:
            return self._drop_unused(self._unused_blocks(), 0)

    def close(self) -> None:
        """Free all memory without readers, and the rest with its last reader. Idempotent."""
        with self._lock.of_this_process:
            self._is_closed = True
            blocks, self._blocks = self._blocks, []
        for block in blocks:
            os.close(block.descriptor)

    def _take_unused_block(self, size_bytes: int) -> _Block | None:
        """Return the smallest unused block that is large enough but not much larger, and drop those above the limit."""
        max_bytes = max(size_bytes * _MAX_RATIO, _SMALL_STEP_BYTES)
        with self._lock.of_this_process:
            if self._is_closed:
                raise ClosedError("the arena is closed")
            unused = self._unused_blocks()
            fits = [block for block in unused if size_bytes <= block.size_bytes <= max_bytes]
            best = min(fits, key=lambda block: block.size_bytes, default=None)
            if best is not None:
                unused.remove(best)
                # While it is filled, the block is in no list: nothing drops or locks it until the builder returns it.
                self._blocks.remove(best)
            self._drop_unused(unused, self._max_unused_bytes)
            return best

    def _unused_blocks(self) -> list[_Block]:
        """The blocks without readers, in the order in which they were filled. They stay locked."""
        return [block for block in self._blocks if block.try_lock()]

    def _drop_unused(self, unused: list[_Block], max_bytes: int) -> int:
        """Drop the first unused blocks until the rest has at most `max_bytes`; return the size of the dropped ones."""
        total = unused_bytes = sum(block.size_bytes for block in unused)
        for block in unused:
            if unused_bytes <= max_bytes:
                break
            self._blocks.remove(block)
            os.close(block.descriptor)
            unused_bytes -= block.size_bytes
        return total - unused_bytes

    def _return_block(self, block: _Block) -> None:
        """Add a block that was filled or discarded; a forked child drops its parent's blocks."""
        with self._lock.of_this_process:
            # A child shares the parent's mapping: what it would write in it, readers of the parent's regions would
            # read.
            if not self._is_closed and block.process is process_token():
                self._blocks.append(block)
                return
        os.close(block.descriptor)

    def _close_in_child(self) -> None:
        """Drop the parent's blocks in a forked child. Their locks stay with the parent."""
        was_closed = self._is_closed
        self.close()
        self._is_closed = was_closed

    def __del__(self) -> None:
        if hasattr(self, "_is_closed"):
            self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.nbytes} bytes"
        return f"<bowstring.memory.Arena {state}>"


_ARENAS: weakref.WeakSet[Arena] = weakref.WeakSet()
call_in_forked_children(Arena._close_in_child, _ARENAS)
