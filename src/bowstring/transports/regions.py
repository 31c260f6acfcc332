"""Addresses on transports with shared memory: a region's index in bits 48 to 63, an offset in bits 0 to 47.

Each side numbers the regions that it sends over a connection from 0, and uses no number twice.

>>> address_of(2, 64)
562949953421376
>>> split_address(562949953421376)
(2, 64)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bowstring.errors import LimitError, ProtocolError
from bowstring.memory.region import Region

OFFSET_BITS = 48
OFFSET_MASK = (1 << OFFSET_BITS) - 1
MAX_REGIONS = 1 << (64 - OFFSET_BITS)
_INDEX_BITS = np.uint64((MAX_REGIONS - 1) << OFFSET_BITS)

Offsets = npt.NDArray[np.uint64]


def address_of(index: int, offset_bytes: int) -> int:
    """The address of a byte of the region with this index."""
    return index << OFFSET_BITS | offset_bytes


def addresses_of(index: int, offsets_bytes: npt.ArrayLike) -> Offsets:
    """The addresses of these offsets of one region, as uint64."""
    return np.asarray(offsets_bytes, np.uint64) | np.uint64(index << OFFSET_BITS)


def split_address(address: int) -> tuple[int, int]:
    """The index of the region and the offset in it."""
    return address >> OFFSET_BITS, address & OFFSET_MASK


class BufferOffsets(NamedTuple):
    """A region, and the offsets in bytes of buffers in it."""

    region: Region
    offsets: Offsets


class RegionTable:
    """The regions received over a connection, by index."""

    __slots__ = ("_limit", "_next_index", "_regions")

    def __init__(self, limit: int) -> None:
        self._limit = min(limit, MAX_REGIONS)
        self._regions: dict[int, Region] = {}
        self._next_index = 0

    def add(self, index: int, region: Region) -> None:
        """Add a region. Raises `ProtocolError` unless it has the next index, `LimitError` beyond the limit."""
        if index != self._next_index:
            raise ProtocolError(f"region: expected index {self._next_index}, found {index}")
        if len(self._regions) >= self._limit:
            raise LimitError(f"region {index}: the connection has {len(self._regions)} regions already, the limit")
        self._regions[index] = region
        self._next_index += 1

    def forget(self, index: int) -> None:
        """Remove a region; views of it stay valid. Raises `ProtocolError` if there is none with this index."""
        self[index].close()
        del self._regions[index]

    def take(self, index: int) -> Region:
        """Remove and return a region; the caller has to close it."""
        region = self[index]
        del self._regions[index]
        return region

    def close(self) -> None:
        """Close all regions."""
        while self._regions:
            self._regions.popitem()[1].close()

    def __getitem__(self, index: int) -> Region:
        try:
            return self._regions[index]
        except KeyError:
            raise ProtocolError(f"region {index}: the peer did not send such a region, or retired it") from None

    def __iter__(self) -> Iterator[int]:
        return iter(self._regions)

    def __len__(self) -> int:
        return len(self._regions)

    def resolve(self, address: int, length_bytes: int) -> memoryview:
        """Return the bytes at an address, read-only, without a copy. Raises `ProtocolError` outside of regions."""
        buffers = self.locate(np.array([address], np.uint64), np.array([length_bytes], np.uint64))
        offset = int(buffers.offsets[0])
        return buffers.region.memory[offset : offset + length_bytes]

    def locate(self, addresses: Offsets, lengths: Offsets) -> BufferOffsets:
        """Return the region of these buffers and their offsets in it; `addresses` must not be empty.

        An empty buffer may have any address; its offset is 0. Raises `ProtocolError` if a buffer is outside of its
        region, or if there are several regions, which `resolve_all` supports.
        """
        region = self._regions.get(int(addresses[0]) >> OFFSET_BITS)
        if region is not None:
            offsets, size = addresses - (addresses[0] & _INDEX_BITS), region.size_bytes
            if int(offsets.max()) <= size and int(lengths.max()) <= size and int((offsets + lengths).max()) <= size:
                region.check()
                return BufferOffsets(region, offsets)
        return self._locate_checked(addresses, lengths)

    def resolve_all(self, addresses: Offsets, lengths: Offsets) -> list[memoryview]:
        """Return the bytes of each buffer of any region, read-only, without copies. Raises `ProtocolError`."""
        views: list[memoryview] = [memoryview(b"")] * addresses.size
        region_indices = addresses >> np.uint64(OFFSET_BITS)
        is_nonempty = lengths > 0
        for region_index in np.unique(region_indices[is_nonempty]).tolist():
            indices = np.flatnonzero(is_nonempty & (region_indices == region_index))
            region, offsets = self.locate(addresses[indices], lengths[indices])
            memory = region.memory
            for position, start, length in zip(
                indices.tolist(), offsets.tolist(), lengths[indices].tolist(), strict=True
            ):
                views[position] = memory[start : start + length]
        return views

    def _locate_checked(self, addresses: Offsets, lengths: Offsets) -> BufferOffsets:
        """As `locate`, for empty buffers with other addresses, and for errors, which name the buffer."""
        is_nonempty = lengths > 0
        index = int(addresses[int(is_nonempty.argmax())]) >> OFFSET_BITS
        region = self[index]
        offsets = np.where(is_nonempty, addresses - np.uint64(index << OFFSET_BITS), np.uint64(0))
        # An address of a lower region wraps to a huge offset, one of a higher region has a huge offset: both fail here.
        size = np.uint64(region.size_bytes)
        is_outside = (offsets > size) | (lengths > size - np.minimum(offsets, size))
        if bool(is_outside.any()):
            index_outside = int(is_outside.argmax())
            address, length = int(addresses[index_outside]), int(lengths[index_outside])
            raise ProtocolError(
                f"buffer {index_outside}: address 0x{address:016x} with {length} bytes is not inside region {index}, "
                f"which has {region.size_bytes} bytes"
            )
        region.check()
        return BufferOffsets(region, offsets)

    def __repr__(self) -> str:
        return f"<RegionTable: {len(self._regions)} regions>"
