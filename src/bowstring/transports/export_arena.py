"""Arenas: memory into which a server copies exported regions, for transports that share one memory per listener.

A client reads all of an arena, if its transport can map it, or fetches buffers (RMA).
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from bowstring.errors import BowstringError, InvalidArgumentError, ProtocolError, ResourceError
from bowstring.memory.parallel_copy import copy_bytes
from bowstring.memory.region import Region
from bowstring.transports.base import (
    BufferLocations,
    ExportedRegion,
    Extent,
    FetchEnded,
    MemoryExporter,
    RemoteMemory,
    Uint64Array,
)

_ALIGNMENT_BYTES = 64


@dataclass(slots=True)
class _RegionCopy:
    """The copy of a region in an arena."""

    offset_bytes: int
    size_bytes: int
    num_exports: int = 0
    """The number of channels that export it."""


class ExportArena(ABC):
    """Memory for everything that a listener exports. Blocks are freed, and used again, when no channel exports them."""

    is_mapped_by_clients: ClassVar[bool] = False
    """Whether clients may map it: they can then read it after the end of their connection."""

    def __init__(self, size_bytes: int, address: int, scheme: str) -> None:
        """Use this much memory, whose first byte has this address for peers."""
        self.address = address
        self._scheme = scheme
        self._free: list[tuple[int, int]] = [(0, size_bytes)]
        self._copies: dict[Region, _RegionCopy] = {}
        self._deferred_releases: list[tuple[int | None, tuple[Region, ...]]] = []
        self._lock = threading.Lock()

    @abstractmethod
    def _write_region(self, offset_bytes: int, region: Region) -> None:
        """Copy a region to an offset."""

    def acquire_copy(self, region: Region) -> int:
        """Return the address of a copy of a region, which is made once. Raises `ResourceError` if it does not fit."""
        self._release_deferred()
        with self._lock:
            copy = self._copies.get(region)
            if copy is None:
                copy = _RegionCopy(self._allocate(region.size_bytes), region.size_bytes)
                try:
                    self._write_region(copy.offset_bytes, region)
                except BaseException:
                    self._deallocate(copy)
                    raise
                self._copies[region] = copy
            copy.num_exports += 1
            return self.address + copy.offset_bytes

    def release_copy(self, region: Region) -> None:
        """Undo one `acquire_copy`."""
        with self._lock:
            copy = self._copies[region]
            copy.num_exports -= 1
            if not copy.num_exports:
                del self._copies[region]
                self._deallocate(copy)

    def release_after_exit(self, regions: Iterable[Region], process_id: int | None) -> None:
        """Undo one `acquire_copy` of each region after this process has ended: it may still read the memory."""
        with self._lock:
            self._deferred_releases.append((process_id, tuple(regions)))

    def _release_deferred(self) -> None:
        with self._lock:
            entries = self._deferred_releases
            self._deferred_releases = [entry for entry in entries if _is_process_alive(entry[0])]
        for entry in entries:
            if entry not in self._deferred_releases:
                for region in entry[1]:
                    self.release_copy(region)

    def _allocate(self, size_bytes: int) -> int:
        aligned_bytes = _round_up(size_bytes)
        for index, (offset, free_bytes) in enumerate(self._free):
            if free_bytes >= aligned_bytes:
                self._free[index] = (offset + aligned_bytes, free_bytes - aligned_bytes)
                return offset
        largest_bytes = max((free_bytes for _, free_bytes in self._free), default=0)
        message = f"a region of {size_bytes} bytes does not fit into the arena"
        raise ResourceError(f"{self._scheme}: {message}; {largest_bytes} are free")

    def _deallocate(self, copy: _RegionCopy) -> None:
        self._free = _merge_adjacent([*self._free, (copy.offset_bytes, _round_up(copy.size_bytes))])


class HostArena(ExportArena):
    """An arena in memory of the CPU."""

    def __init__(self, view: memoryview, address: int, scheme: str) -> None:
        """Use the writable memory `view`, whose first byte has this address for peers."""
        super().__init__(view.nbytes, address, scheme)
        self._view = view

    def _write_region(self, offset_bytes: int, region: Region) -> None:
        copy_bytes(region.view(0, region.size_bytes), self._view[offset_bytes : offset_bytes + region.size_bytes])


def _is_process_alive(process_id: int | None) -> bool:
    """Return whether a process may exist; True if its number is not known, as in another namespace."""
    if not process_id:
        return True
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _round_up(size_bytes: int) -> int:
    return max(-(-size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES, _ALIGNMENT_BYTES)


def _merge_adjacent(blocks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge adjacent free blocks."""
    merged: list[tuple[int, int]] = []
    for offset, size_bytes in sorted(blocks):
        if merged and sum(merged[-1]) == offset:
            merged[-1] = merged[-1][0], merged[-1][1] + size_bytes
        else:
            merged.append((offset, size_bytes))
    return merged


class ArenaExporter(MemoryExporter):
    """Exports regions to the peer of one channel, as copies in the arena of its listener."""

    __slots__ = ("_arena", "_regions")

    def __init__(self, arena: ExportArena) -> None:
        self._arena = arena
        self._regions: list[Region] = []

    def export(self, region: Region) -> ExportedRegion:
        """As `MemoryExporter.export`: copies the region, unless another channel exports it. Raises `ResourceError`."""
        address = self._arena.acquire_copy(region)
        self._regions.append(region)
        return ExportedRegion(address, len(self._regions) - 1)

    def retire(self, exported_region: ExportedRegion) -> None:
        """As `MemoryExporter.retire`. The copy stays until the channel is closed: the peer may still read it."""
        if not 0 <= exported_region.index < len(self._regions):
            raise InvalidArgumentError(
                f"region {exported_region.index}: this end has exported {len(self._regions)} regions"
            )

    def check_capacity(self, num_regions: int) -> None:
        """As `MemoryExporter.check_capacity`: any number."""

    def close(self) -> None:
        """Free the exported regions: the channel is closed."""
        for region in self._regions:
            self._arena.release_copy(region)
        self._regions.clear()

    def close_after_peer_exit(self, process_id: int | None) -> None:
        """As `close`, for a peer that may still read the memory until its process ends."""
        self._arena.release_after_exit(self._regions, process_id)
        self._regions.clear()


class Fetch(Protocol):
    """A copy of a peer's memory that was started."""

    @property
    def is_done(self) -> bool:
        """Whether it has ended, successfully or not."""

    @property
    def error(self) -> BowstringError | None:
        """The error with which it ended, or None."""


@dataclass(frozen=True, slots=True)
class CompletedFetch:
    """A copy that was complete when it was started, as from a mapping."""

    is_done: bool = True
    error: BowstringError | None = None


class RemoteArena(RemoteMemory):
    """The arena of a server, as a client reads it; the progress of the channel advances fetches."""

    __slots__ = ("_extent", "_fetches", "_next_token")

    def __init__(self, address: int, size_bytes: int) -> None:
        self._extent = Extent(address, size_bytes, "the server's memory", None)
        self._fetches: dict[int, list[Fetch]] = {}
        self._next_token = 1

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
        """As `RemoteMemory.size_bytes`."""
        return self._extent.size_bytes

    def start_fetch(self, locations: BufferLocations, lengths: Uint64Array, destination: Any) -> int:
        """As `RemoteMemory.start_fetch`: one RMA operation for each buffer that is not empty."""
        fetches, end = [], 0
        addresses = (locations.offsets + np.uint64(locations.extent.start)).tolist()
        whole = memoryview(destination).cast("B")
        for address, length in zip(addresses, lengths.tolist(), strict=True):
            if length:
                fetches.append(self._start_copy(address, whole[end : end + length]))
            end += length
        token = self._next_token
        self._next_token += 1
        self._fetches[token] = fetches
        return token

    @abstractmethod
    def _start_copy(self, address: int, buffer: memoryview) -> Fetch:
        """Start to copy the memory at an address into a buffer."""

    def poll_fetches(self) -> list[FetchEnded]:
        """As `RemoteMemory.poll_fetches`."""
        completed_fetches = []
        for token, fetches in list(self._fetches.items()):
            if all(fetch.is_done for fetch in fetches):
                del self._fetches[token]
                completed_fetches.append(
                    FetchEnded(token, next((fetch.error for fetch in fetches if fetch.error), None))
                )
        return completed_fetches
