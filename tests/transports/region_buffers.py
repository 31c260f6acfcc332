"""Addresses and buffers of regions that a peer has sent."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bowstring.transports.base import RemoteMemory, Uint64Array
from bowstring.transports.regions import encode_region_address


def encode_region_addresses(index: int, offsets_bytes: npt.ArrayLike) -> Uint64Array:
    """Return the addresses of these offsets in one region."""
    return np.asarray(offsets_bytes, np.uint64) | np.uint64(encode_region_address(index, 0))


def view_buffer(memory: RemoteMemory, address: int, length_bytes: int) -> memoryview:
    """Return the bytes at an address, read-only, without a copy. Raises `ProtocolError` outside of regions."""
    (view,) = view_buffers(memory, np.array([address], np.uint64), np.array([length_bytes], np.uint64))
    return view


def view_buffers(memory: RemoteMemory, addresses: Uint64Array, lengths: Uint64Array) -> list[memoryview]:
    """Return the bytes of each buffer of any region, read-only, without copies. Raises `ProtocolError`."""
    views: list[memoryview] = [memoryview(b"")] * addresses.size
    for indices, locations in memory.group_buffers_by_extent(addresses, lengths):
        whole = memory.view_extent(locations.extent)
        assert whole is not None
        spans = zip(indices.tolist(), locations.offsets.tolist(), lengths[indices].tolist(), strict=True)
        for index, start, length in spans:
            views[index] = whole[start : start + length]
    return views
