"""Validity bitmaps, and boolean values: bits in least-significant-bit order («Validity bitmaps»)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count as count_up
from operator import lshift

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidDataError
from bowstring.memory.buffer import UINT8, Buffer, Bytes

Mask = npt.NDArray[np.bool_]


def size_bytes(length: int) -> int:
    """How many bytes hold `length` bits."""
    return (length + 7) >> 3


def _bytes_of(bitmap: Buffer, offset: int, length: int) -> Bytes:
    """The bytes that hold bits `offset` to `offset + length`."""
    if offset < 0 or length < 0 or size_bytes(offset + length) > bitmap.size:
        raise InvalidDataError(f"a bitmap of {bitmap.size} bytes has no {length} bits from bit {offset} on")
    return bitmap.view(UINT8, offset >> 3, size_bytes(offset + length) - (offset >> 3))


def unpack(bitmap: Buffer, offset: int, length: int) -> Mask:
    """Bits `offset` to `offset + length` as booleans, shape (length,); a copy."""
    skip = offset & 7
    bits = np.unpackbits(_bytes_of(bitmap, offset, length), count=skip + length, bitorder="little")
    return bits[skip:].view(np.bool_)


def pack(mask: npt.NDArray[np.bool_]) -> Buffer:
    """Booleans of shape (length,) as a new bitmap; trailing bits are zero."""
    return Buffer.of(np.packbits(mask, bitorder="little"))


def pack_bools(truths: Sequence[bool]) -> Buffer:
    """As `pack`, quicker for few of Python's booleans."""
    return Buffer.of(sum(map(lshift, truths, count_up())).to_bytes(size_bytes(len(truths)), "little"))


def get(bitmap: Buffer, index: int) -> bool:
    """One bit."""
    return bitmap.element(UINT8, index >> 3) >> (index & 7) & 1 == 1  # type: ignore[no-any-return]


def count(bitmap: Buffer, offset: int, length: int) -> int:
    """How many of the bits `offset` to `offset + length` are set."""
    if length == 0:
        return 0
    held = _bytes_of(bitmap, offset, length)
    total = int(np.bitwise_count(held).sum(dtype=np.int64))
    head, tail = offset & 7, -(offset + length) & 7
    if head:
        total -= (int(held[0]) & ((1 << head) - 1)).bit_count()
    if tail:
        total -= (int(held[-1]) >> (8 - tail)).bit_count()
    return total


def realign(bitmap: Buffer, offset: int, length: int) -> Buffer:
    """A bitmap whose bit 0 is bit `offset` of this one; copies only where `offset` is not a multiple of 8."""
    held = _bytes_of(bitmap, offset, length)
    if offset & 7 == 0:
        return bitmap.slice(offset >> 3, held.size)
    shift = np.uint8(offset & 7)
    out = held >> shift
    out[:-1] |= held[1:] << np.uint8(8 - shift)
    return Buffer.of(out[: size_bytes(length)])


def same(left: Buffer, right: Buffer, length: int) -> bool:
    """Whether the first `length` bits of two bitmaps are the same."""
    mine, theirs = _bytes_of(left, 0, length), _bytes_of(right, 0, length)
    whole = length >> 3
    if not np.array_equal(mine[:whole], theirs[:whole]):
        return False
    return not length & 7 or not (int(mine[whole]) ^ int(theirs[whole])) & ((1 << (length & 7)) - 1)
