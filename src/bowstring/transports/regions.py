"""Regions that are sent over a connection, numbered from 0 by each side; no index is used twice.

An address in a body has the index of a region in bits 48 to 63, and an offset in it in bits 0 to 47.

>>> encode_region_address(2, 64)
562949953421376
>>> decode_region_address(562949953421376)
(2, 64)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bowstring.errors import LimitError, ProtocolError
from bowstring.memory.closable import call_on_error
from bowstring.memory.region import Region
from bowstring.transports.base import BufferLocations, Extent, RemoteMemory, Uint64Array

# Offsets up to 256 TiB, the address space of a process on x86-64, and 65,536 regions, as many as Linux allows mappings.
_OFFSET_BITS = 48
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
MAX_REGIONS = 1 << (64 - _OFFSET_BITS)


def encode_region_address(index: int, offset_bytes: int) -> int:
    """Return the address of a byte of the region with this index."""
    return index << _OFFSET_BITS | offset_bytes


def decode_region_address(address: int) -> tuple[int, int]:
    """Return the region's index and the offset in it."""
    return address >> _OFFSET_BITS, address & _OFFSET_MASK


@dataclass(frozen=True, slots=True)
class RegionUpdate:
    """The peer sent a region, or retired it (None)."""

    index: int
    region: Region | None


class ReceivedRegions(RemoteMemory):
    """The regions received over a connection, by index."""

    __slots__ = ("_extents", "_limit", "_next_index")

    def __init__(self, limit: int) -> None:
        self._limit = min(limit, MAX_REGIONS)
        self._extents: dict[int, Extent] = {}
        self._next_index = 0

    def add(self, index: int, region: Region) -> None:
        """Add a region. Raises `ProtocolError` unless it has the next index, `LimitError` beyond the limit."""
        # Otherwise a peer could replace a region while a body that has its addresses waits for its metadata.
        if index != self._next_index:
            raise ProtocolError(f"region: expected index {self._next_index}, found {index}")
        if len(self._extents) >= self._limit:
            raise LimitError(f"region {index}: the connection has {len(self._extents)} regions already, the limit")
        self._extents[index] = Extent(encode_region_address(index, 0), region.size_bytes, f"region {index}", region)
        self._next_index += 1

    def pop(self, index: int) -> Region:
        """Remove and return a region; the caller has to close it. Raises `ProtocolError` if there is none with this
        index.
        """
        region = self[index]
        del self._extents[index]
        return region

    def apply_update(self, update: RegionUpdate) -> None:
        """Add or remove a region, whose views stay valid; a region that can't be added is closed."""
        if update.region is None:
            self.pop(update.index).close()
            return
        with call_on_error(update.region.close):  # no other thread has it yet
            self.add(update.index, update.region)

    def close(self) -> None:
        """Close all regions."""
        while self._extents:
            self._extents.popitem()[1].memory.close()

    def __getitem__(self, index: int) -> Region:
        region: Region = self.find_extent(encode_region_address(index, 0)).memory
        return region

    def __iter__(self) -> Iterator[int]:
        return iter(self._extents)

    def __len__(self) -> int:
        return len(self._extents)

    def find_extent(self, address: int) -> Extent:
        index, _ = decode_region_address(address)
        try:
            return self._extents[index]
        except KeyError:
            raise ProtocolError(f"region {index}: the peer did not send such a region, or retired it") from None

    @property
    def size_bytes(self) -> int:
        return sum(extent.size_bytes for extent in self._extents.values())

    def view_extent(self, extent: Extent) -> memoryview:
        """As `RemoteMemory.view_extent`: the mapping, read-only. Raises `TruncatedError` if a file became shorter."""
        # Each time, because the file of a region may become shorter at any time; for a sealed region it costs nothing.
        extent.memory.check_backing_file()
        memory: memoryview = extent.memory.memory
        return memory

    @property
    def can_copy_locally(self) -> bool:
        return True

    def start_fetch(self, locations: BufferLocations, lengths: Uint64Array, destination: Any) -> tuple[()]:
        """As `RemoteMemory.start_fetch`: copies at once. Raises as `Region.copy_into`."""
        region, whole, end = locations.extent.memory, memoryview(destination), 0
        for offset, length in zip(locations.offsets.tolist(), lengths.tolist(), strict=True):
            region.copy_into(offset, whole[end : end + length])
            end += length
        return ()

    def __repr__(self) -> str:
        return f"<ReceivedRegions: {len(self._extents)} regions>"
