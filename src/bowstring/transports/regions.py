"""Regions that are sent over a connection, numbered from 0 by each side; no index is used twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bowstring.errors import InvalidArgumentError, LimitError, ProtocolError
from bowstring.memory.closable import call_on_error
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
from bowstring.transports.region_addresses import MAX_REGIONS, decode_region_address, encode_region_address


@dataclass(frozen=True, slots=True)
class RegionUpdate:
    """The peer sent a region, or retired it (None)."""

    index: int
    region: Region | None


class RemoteRegionTable(RemoteMemory):
    """The regions received over a connection, by index."""

    __slots__ = ("_extents", "_fetched", "_limit", "_next_index", "_next_token")

    def __init__(self, limit: int) -> None:
        self._limit = min(limit, MAX_REGIONS)
        self._extents: dict[int, Extent] = {}
        self._fetched: list[FetchEnded] = []
        self._next_index = 0
        self._next_token = 0

    def add(self, index: int, region: Region) -> None:
        """Add a region. Raises `ProtocolError` unless it has the next index, `LimitError` beyond the limit."""
        # Otherwise a peer could replace a region while a body that has its addresses waits for its metadata.
        if index != self._next_index:
            raise ProtocolError(f"region: expected index {self._next_index}, found {index}")
        if len(self._extents) >= self._limit:
            raise LimitError(f"region {index}: the connection has {len(self._extents)} regions already, the limit")
        self._extents[index] = Extent(encode_region_address(index, 0), region.size_bytes, f"region {index}", region)
        self._next_index += 1

    def remove(self, index: int) -> None:
        """Remove a region; views of it stay valid. Raises `ProtocolError` if there is none with this index."""
        self.pop(index).close()

    def pop(self, index: int) -> Region:
        """Remove and return a region; the caller has to close it."""
        region = self[index]
        del self._extents[index]
        return region

    def apply_update(self, update: RegionUpdate) -> None:
        """Add or remove a region; a region that can't be added is closed."""
        if update.region is None:
            self.remove(update.index)
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

    def start_fetch(self, locations: BufferLocations, lengths: Uint64Array, destination: Any) -> int:
        """As `RemoteMemory.start_fetch`: copies at once. Raises as `Region.copy_into`."""
        region, whole, end = locations.extent.memory, memoryview(destination), 0
        for offset, length in zip(locations.offsets.tolist(), lengths.tolist(), strict=True):
            region.copy_into(offset, whole[end : end + length])
            end += length
        self._next_token += 1
        self._fetched.append(FetchEnded(self._next_token))
        return self._next_token

    def poll_fetches(self) -> list[FetchEnded]:
        completed_fetches, self._fetched = self._fetched, []
        return completed_fetches

    def view_buffer(self, address: int, length_bytes: int) -> memoryview:
        """Return the bytes at an address, read-only, without a copy. Raises `ProtocolError` outside of regions."""
        (view,) = self.view_buffers(np.array([address], np.uint64), np.array([length_bytes], np.uint64))
        return view

    def view_buffers(self, addresses: Uint64Array, lengths: Uint64Array) -> list[memoryview]:
        """Return the bytes of each buffer of any region, read-only, without copies. Raises `ProtocolError`."""
        views: list[memoryview] = [memoryview(b"")] * addresses.size
        for indices, locations in self.group_buffers_by_extent(addresses, lengths):
            memory = self.view_extent(locations.extent)
            spans = zip(indices.tolist(), locations.offsets.tolist(), lengths[indices].tolist(), strict=True)
            for index, start, length in spans:
                views[index] = memory[start : start + length]
        return views

    def __repr__(self) -> str:
        return f"<RemoteRegionTable: {len(self._extents)} regions>"


class RegionSender(Protocol):
    """A channel that can send regions."""

    num_regions_sent: int
    """The number of regions sent so far, which is the index of the next one."""

    def submit_region(self, index: int, region: Region) -> None:
        """Queue a region with its index."""

    def submit_retirement(self, index: int) -> None:
        """Queue the message that no later one refers to the region."""


class RegionExporter(MemoryExporter):
    """Sends regions over a channel, and numbers them."""

    __slots__ = ("_channel",)

    def __init__(self, channel: RegionSender) -> None:
        self._channel = channel

    def export(self, region: Region) -> ExportedRegion:
        self.check_capacity(1)
        index = self._channel.num_regions_sent
        self._channel.submit_region(index, region)
        self._channel.num_regions_sent += 1
        return ExportedRegion(encode_region_address(index, 0), index)

    def retire(self, exported_region: ExportedRegion) -> None:
        count = self._channel.num_regions_sent
        if not 0 <= exported_region.index < count:
            raise InvalidArgumentError(f"region {exported_region.index}: this end has sent {count} regions")
        self._channel.submit_retirement(exported_region.index)

    def check_capacity(self, num_regions: int) -> None:
        num_sent = self._channel.num_regions_sent
        if num_sent + num_regions > MAX_REGIONS:
            raise InvalidArgumentError(f"this connection has sent {num_sent} regions: open another one")
