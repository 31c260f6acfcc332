"""Registered memory, into which a server copies exported regions: one block for each listener.

A client reads all of the registered memory, if its transport can map it, or fetches buffers (RMA). So a block is filled
again only when no client may read it: each has freed its addresses, or has disconnected. A client that this end has
disconnected may have the registered memory mapped for any time. Its connection is therefore kept, half-closed, until
the other end closes it; the kernel does that for a killed process. A region for which there is no space is sent as
bytes (`ResourceError`).
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from bowstring.errors import InvalidArgumentError, ProtocolError, ResourceError
from bowstring.memory.buffer import ALIGNMENT_BYTES
from bowstring.memory.closable import call_on_error
from bowstring.memory.region import Region
from bowstring.transports.base import (
    BufferLocations,
    ExportedRegion,
    Extent,
    Fetch,
    MemoryExporter,
    RemoteMemory,
    Uint64Array,
)


@dataclass(slots=True, eq=False)
class _RegionCopy:
    """A block of registered memory with the copy of a region."""

    offset_bytes: int
    size_bytes: int
    region: weakref.ref[Region]
    num_exports: int = 0
    """How many channels export it, or have exported it to a peer that may still read it."""


class DisconnectedPeer(Protocol):
    """The peer of a channel that this end has closed. It may still read a mapping of the registered memory."""

    def has_left(self) -> bool:
        """Whether it has closed its end, or its process has ended. Does not wait."""

    def close_connection(self) -> None:
        """Close the rest of the connection, which was open only to notice that the peer leaves."""


class RegisteredMemory(ABC):
    """Memory for what a listener exports.

    A block that no peer may read any more keeps its copy until its space is needed, so that a region is not copied
    again for each client. Only sealed regions keep it: others, such as files, may have changed.
    """

    is_mapped_by_clients: ClassVar[bool] = False
    """Whether clients may map it: they can then read it after the end of their connection."""

    def __init__(self, size_bytes: int, address: int, scheme: str) -> None:
        """Use this much memory, whose first byte has this address for peers."""
        self.address = address
        self._scheme = scheme
        self._size_bytes = size_bytes
        self._free: list[tuple[int, int]] = [(0, size_bytes)]
        # Weak: a region that is no longer served must not be kept for its copy, which stays as long as peers read it.
        self._copies: weakref.WeakKeyDictionary[Region, _RegionCopy] = weakref.WeakKeyDictionary()
        self._unused: dict[_RegionCopy, None] = {}
        """The copies without readers, the least recently used first."""
        self._disconnected: list[tuple[DisconnectedPeer, list[_RegionCopy]]] = []
        self._is_closed = False
        self._lock = threading.Lock()

    @abstractmethod
    def _write_region(self, offset_bytes: int, region: Region) -> None:
        """Copy a region to an offset."""

    def acquire_copy(self, region: Region) -> _RegionCopy:
        """Return a copy of a region, which stays until the matching `release_copy`.

        Raises `ResourceError` if there is no space for it beside the copies that peers may read.
        """
        self._release_departed()
        with self._lock:
            copy = self._copies.get(region)
            if copy is None:
                copy = self._copies[region] = self._create_copy(region)
            self._unused.pop(copy, None)
            # Under the lock, with the look-up: another thread could otherwise remove the copy between them.
            copy.num_exports += 1
            return copy

    def release_copy(self, copy: _RegionCopy) -> None:
        """Undo one `acquire_copy`."""
        with self._lock:
            copy.num_exports -= 1
            if not copy.num_exports:
                region = copy.region()
                if region is not None and region.is_sealed:
                    self._unused[copy] = None
                else:
                    self._remove_copy(copy)

    def release_when_left(self, copies: list[_RegionCopy], peer: DisconnectedPeer) -> bool:
        """Release copies when a peer has left, and close its connection then.

        Return False, and do nothing, if the copies can be released at once: clients can't read them without a
        connection, or no block is filled again.
        """
        if not self.is_mapped_by_clients or not copies or self._is_closed:
            return False
        self._release_departed()
        with self._lock:
            self._disconnected.append((peer, copies))
        return True

    def close(self) -> None:
        """Forget the disconnected peers: the listener is closed, and no block is filled for a new client."""
        with self._lock:
            self._is_closed = True
            entries, self._disconnected = self._disconnected, []
        for peer, _ in entries:
            peer.close_connection()

    def _release_departed(self) -> None:
        """Release the copies of disconnected peers that have left meanwhile."""
        # Without the lock: an entry that is added at the same time is found the next time.
        if not self._disconnected:
            return
        with self._lock:
            # Called with the lock, although it takes the lock of the peer's channel: see `MessageChannel._lock`.
            departed = [entry for entry in self._disconnected if entry[0].has_left()]
            self._disconnected = [entry for entry in self._disconnected if entry not in departed]
        for peer, copies in departed:
            peer.close_connection()
            for copy in copies:
                self.release_copy(copy)

    def _create_copy(self, region: Region) -> _RegionCopy:
        copy = _RegionCopy(self._allocate(region.size_bytes), region.size_bytes, weakref.ref(region))
        with call_on_error(self._deallocate, copy):
            self._write_region(copy.offset_bytes, region)
        return copy

    def _allocate(self, size_bytes: int) -> int:
        """Return the offset of a free block, after removing copies without readers if necessary."""
        aligned_bytes = _round_up(size_bytes)
        while (offset := self._take_free_block(aligned_bytes)) is None:
            available_bytes = sum(free_bytes for _, free_bytes in self._free)
            available_bytes += sum(_round_up(copy.size_bytes) for copy in self._unused)
            # Copies are not moved together: peers have their addresses.
            if aligned_bytes > available_bytes or not self._unused:
                raise ResourceError(
                    f"{self._scheme}: a region of {size_bytes} bytes does not fit into the registered memory; "
                    f"{available_bytes} of {self._size_bytes} are free"
                )
            self._remove_copy(next(iter(self._unused)))
        return offset

    def _take_free_block(self, aligned_bytes: int) -> int | None:
        # First fit: the list is short, because free neighbours are merged.
        for index, (offset, free_bytes) in enumerate(self._free):
            if free_bytes >= aligned_bytes:
                self._free[index] = (offset + aligned_bytes, free_bytes - aligned_bytes)
                return offset
        return None

    def _remove_copy(self, copy: _RegionCopy) -> None:
        self._unused.pop(copy, None)
        region = copy.region()
        if region is not None:
            del self._copies[region]
        self._deallocate(copy)

    def _deallocate(self, copy: _RegionCopy) -> None:
        self._free = _merge_adjacent([*self._free, (copy.offset_bytes, _round_up(copy.size_bytes))])


class RegisteredHostMemory(RegisteredMemory):
    """Registered memory of the CPU."""

    def __init__(self, view: memoryview, address: int, scheme: str) -> None:
        """Use the writable memory `view`, whose first byte has this address for peers."""
        super().__init__(view.nbytes, address, scheme)
        self._view = view

    def _write_region(self, offset_bytes: int, region: Region) -> None:
        region.copy_into(0, self._view[offset_bytes : offset_bytes + region.size_bytes])


def _round_up(size_bytes: int) -> int:
    return max(-(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES, ALIGNMENT_BYTES)


def _merge_adjacent(blocks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge adjacent free blocks."""
    merged: list[tuple[int, int]] = []
    for offset, size_bytes in sorted(blocks):
        if merged and sum(merged[-1]) == offset:
            merged[-1] = merged[-1][0], merged[-1][1] + size_bytes
        else:
            merged.append((offset, size_bytes))
    return merged


class RegisteredMemoryExporter(MemoryExporter):
    """Exports regions to the peer of one channel, as copies in the registered memory of its listener."""

    __slots__ = ("_copies", "_num_exported", "_registered_memory", "_retired")

    keeps_exports: ClassVar[bool] = False  # copies are kept for all channels while there is space

    def __init__(self, registered_memory: RegisteredMemory) -> None:
        self._registered_memory = registered_memory
        self._copies: dict[int, _RegionCopy] = {}
        """The copies that the peer may read, by the index of their export."""
        self._retired: dict[int, weakref.ref[ExportedRegion]] = {}
        self._num_exported = 0

    def export(self, region: Region) -> ExportedRegion:
        """As `MemoryExporter.export`: copies the region, unless there is a copy already. Raises `ResourceError`."""
        self.reclaim()
        copy = self._registered_memory.acquire_copy(region)
        exported_region = ExportedRegion(self._registered_memory.address + copy.offset_bytes, self._num_exported)
        self._copies[self._num_exported] = copy
        self._num_exported += 1
        return exported_region

    def retire(self, exported_region: ExportedRegion) -> None:
        if not 0 <= exported_region.index < self._num_exported:
            raise InvalidArgumentError(
                f"region {exported_region.index}: this end has exported {self._num_exported} regions"
            )
        # Not released here: bodies that were sent before may have its addresses. Each lease refers to the
        # `ExportedRegion`, so the memory is free when the last reference is gone.
        if exported_region.index in self._copies:
            self._retired[exported_region.index] = weakref.ref(exported_region)

    def reclaim(self) -> None:
        for index in [index for index, reference in self._retired.items() if reference() is None]:
            del self._retired[index]
            self._registered_memory.release_copy(self._copies.pop(index))

    def check_capacity(self, num_regions: int) -> None:
        """As `MemoryExporter.check_capacity`: any number."""

    def close(self, peer: DisconnectedPeer | None = None) -> bool:
        """Free the exported memory; if a peer may still read it, when it has left. Return whether that is so.

        `RegisteredMemory` then closes the peer's connection.
        """
        copies = list(self._copies.values())
        self._copies.clear()
        self._retired.clear()
        if peer is not None and self._registered_memory.release_when_left(copies, peer):
            return True
        for copy in copies:
            self._registered_memory.release_copy(copy)
        return False


class RemoteRegisteredMemory(RemoteMemory):
    """The registered memory of a server, as a client reads it; the progress of the channel advances fetches."""

    __slots__ = ("_extent",)

    def __init__(self, address: int, size_bytes: int) -> None:
        self._extent = Extent(address, size_bytes, "the server's memory", None)

    def find_extent(self, address: int) -> Extent:
        """As `RemoteMemory.find_extent`: all of the memory."""
        extent = self._extent
        if not extent.start <= address <= extent.start + extent.size_bytes:
            raise ProtocolError(
                f"address 0x{address:016x} is not inside {extent.name}, which has {extent.size_bytes} bytes "
                f"at 0x{extent.start:016x}"
            )
        return extent

    @property
    def size_bytes(self) -> int:
        return self._extent.size_bytes

    def start_fetch(self, locations: BufferLocations, lengths: Uint64Array, destination: Any) -> list[Fetch]:
        """As `RemoteMemory.start_fetch`: one RMA operation for each buffer that is not empty."""
        fetches, end = list[Fetch](), 0
        addresses = (locations.offsets + np.uint64(locations.extent.start)).tolist()
        whole = memoryview(destination).cast("B")
        for address, length in zip(addresses, lengths.tolist(), strict=True):
            if length and (fetch := self._start_copy(address, whole[end : end + length])) is not None:
                fetches.append(fetch)
            end += length
        return fetches

    @abstractmethod
    def _start_copy(self, address: int, buffer: memoryview) -> Fetch | None:
        """Start to copy the memory at an address into a buffer; return None if it is copied at once."""
