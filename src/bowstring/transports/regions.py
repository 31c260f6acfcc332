"""What an address means on transports that share memory: a region's index in bits 48 to 63, an offset below.

Each side numbers the regions that it passes over a connection from 0 on, and uses no number twice.

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
    """The addresses of many bytes of one region, as uint64."""
    return np.asarray(offsets_bytes, np.uint64) | np.uint64(index << OFFSET_BITS)


def split_address(address: int) -> tuple[int, int]:
    """The index of the region and the offset in it."""
    return address >> OFFSET_BITS, address & OFFSET_MASK


class Located(NamedTuple):
    """Buffers of one region: where they begin, in bytes from its first."""

    region: Region
    offsets: Offsets


class RegionTable:
    """The regions that the other side of a connection passed, by index."""

    __slots__ = ("_limit", "_regions", "_seen")

    def __init__(self, limit: int) -> None:
        self._limit = min(limit, MAX_REGIONS)
        self._regions: dict[int, Region] = {}
        self._seen = 0

    def add(self, index: int, region: Region) -> None:
        """Take a region. Raises `ProtocolError` unless it has the next index, `LimitError` beyond the limit."""
        if index != self._seen:
            raise ProtocolError(f"region: expected index {self._seen}, found {index}")
        if len(self._regions) >= self._limit:
            raise LimitError(f"region {index}: the connection has {len(self._regions)} regions already, the limit")
        self._regions[index] = region
        self._seen += 1

    def forget(self, index: int) -> None:
        """Let a region go; views of it stay valid. Raises `ProtocolError` where there is none."""
        self[index].close()
        del self._regions[index]

    def take(self, index: int) -> Region:
        """The region, which from now on belongs to the caller alone, who closes it."""
        region = self[index]
        del self._regions[index]
        return region

    def close(self) -> None:
        """Let all go."""
        while self._regions:
            self._regions.popitem()[1].close()

    def __getitem__(self, index: int) -> Region:
        try:
            return self._regions[index]
        except KeyError:
            raise ProtocolError(f"region {index}: the other side passed no such region, or retired it") from None

    def __iter__(self) -> Iterator[int]:
        return iter(self._regions)

    def __len__(self) -> int:
        return len(self._regions)

    def resolve(self, address: int, length_bytes: int) -> memoryview:
        """The bytes at an address, read-only, not copied. Raises `ProtocolError` where they are not inside a region."""
        located = self.locate(np.array([address], np.uint64), np.array([length_bytes], np.uint64))
        offset = int(located.offsets[0])
        return located.region.memory[offset : offset + length_bytes]

    def locate(self, addresses: Offsets, lengths: Offsets) -> Located:
        """One region and the offsets of all these buffers in it, checked in one step; `addresses` may not be empty.

        An empty buffer may have any address; its offset is 0. Raises `ProtocolError` where a buffer is not inside its
        region, or where they lie in several; `resolve_all` takes those too.
        """
        region = self._regions.get(int(addresses[0]) >> OFFSET_BITS)
        if region is not None:
            offsets, size = addresses - (addresses[0] & _INDEX_BITS), region.size_bytes
            if int(offsets.max()) <= size and int(lengths.max()) <= size and int((offsets + lengths).max()) <= size:
                region.check()
                return Located(region, offsets)
        return self._locate_slowly(addresses, lengths)

    def resolve_all(self, addresses: Offsets, lengths: Offsets) -> list[memoryview]:
        """The bytes of each buffer, wherever it lies, read-only, not copied. Raises `ProtocolError`."""
        views: list[memoryview] = [memoryview(b"")] * addresses.size
        indexes = addresses >> np.uint64(OFFSET_BITS)
        used = lengths > 0
        for index in np.unique(indexes[used]).tolist():
            places = np.flatnonzero(used & (indexes == index))
            region, offsets = self.locate(addresses[places], lengths[places])
            memory = region.memory
            for place, start, length in zip(places.tolist(), offsets.tolist(), lengths[places].tolist(), strict=True):
                views[place] = memory[start : start + length]
        return views

    def _locate_slowly(self, addresses: Offsets, lengths: Offsets) -> Located:
        """As `locate`, for empty buffers elsewhere, and for errors that name the buffer."""
        used = lengths > 0
        index = int(addresses[int(used.argmax())]) >> OFFSET_BITS
        region = self[index]
        offsets = np.where(used, addresses - np.uint64(index << OFFSET_BITS), np.uint64(0))
        # An address of a lower region wraps to a huge offset, one of a higher is huge at once: both fail this check.
        size = np.uint64(region.size_bytes)
        outside = (offsets > size) | (lengths > size - np.minimum(offsets, size))
        if bool(outside.any()):
            worst = int(outside.argmax())
            address, length = int(addresses[worst]), int(lengths[worst])
            raise ProtocolError(
                f"buffer {worst}: address 0x{address:016x} with {length} bytes is not inside region {index}, "
                f"which has {region.size_bytes} bytes"
            )
        region.check()
        return Located(region, offsets)

    def __repr__(self) -> str:
        return f"<RegionTable: {len(self._regions)} regions>"
