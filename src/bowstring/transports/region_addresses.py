"""Addresses in bodies: the index of a region in bits 48 to 63, an offset in it in bits 0 to 47.

>>> encode_region_address(2, 64)
562949953421376
>>> decode_region_address(562949953421376)
(2, 64)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# Offsets up to 256 TiB, the address space of a process on x86-64, and 65,536 regions, as many as Linux allows mappings.
OFFSET_BITS = 48
OFFSET_MASK = (1 << OFFSET_BITS) - 1
MAX_REGIONS = 1 << (64 - OFFSET_BITS)


def encode_region_address(index: int, offset_bytes: int) -> int:
    """Return the address of a byte of the region with this index."""
    return index << OFFSET_BITS | offset_bytes


def encode_region_addresses(index: int, offsets_bytes: npt.ArrayLike) -> npt.NDArray[np.uint64]:
    """Return the addresses of these offsets in one region as uint64."""
    return np.asarray(offsets_bytes, np.uint64) | np.uint64(index << OFFSET_BITS)


def decode_region_address(address: int) -> tuple[int, int]:
    """Return the region's index and the offset in it."""
    return address >> OFFSET_BITS, address & OFFSET_MASK
