"""Bitmaps of validity and boolean values, least significant bit first («Validity bitmaps»)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidDataError
from bowstring.memory.buffer import UINT8, Buffer, Bytes

Mask = npt.NDArray[np.bool_]


def size_bytes(length: int) -> int:
    """Return the number of bytes for `length` bits."""
    return (length + 7) >> 3


def _covering_bytes(bitmap: Buffer, offset: int, length: int) -> Bytes:
    """Return the bytes that contain bits `offset` to `offset + length`."""
    if offset < 0 or length < 0 or size_bytes(offset + length) > bitmap.size:
        raise InvalidDataError(
            f"bits {offset} to {offset + length} are out of range for a bitmap of {bitmap.size} bytes"
        )
    return bitmap.view(UINT8, offset >> 3, size_bytes(offset + length) - (offset >> 3))


def unpack(bitmap: Buffer, offset: int, length: int) -> Mask:
    """Copy bits `offset` to `offset + length` to booleans, shape (length,)."""
    skip = offset & 7
    bits = np.unpackbits(_covering_bytes(bitmap, offset, length), count=skip + length, bitorder="little")
    return bits[skip:].view(np.bool_)


def pack(mask: npt.NDArray[np.bool_]) -> Buffer:
    """Pack booleans of shape (length,) into a new bitmap; trailing bits are zero."""
    return Buffer.of(np.packbits(mask, bitorder="little"))


def get(bitmap: Buffer, index: int) -> bool:
    """Return one bit."""
    return bitmap.element(UINT8, index >> 3) >> (index & 7) & 1 == 1  # type: ignore[no-any-return]


def count_set_bits(bitmap: Buffer, offset: int, length: int) -> int:
    """Count the set bits from `offset` to `offset + length`."""
    if length == 0:
        return 0
    bitmap_bytes = _covering_bytes(bitmap, offset, length)
    # Counting whole bytes and subtracting the bits of other slots in the first and last byte needs no copy of the
    # bitmap.
    total = int(np.bitwise_count(bitmap_bytes).sum(dtype=np.int64))
    head, tail = offset & 7, -(offset + length) & 7
    # If all bits are in one byte, both subtractions apply to it, and to different bits.
    if head:
        total -= (int(bitmap_bytes[0]) & ((1 << head) - 1)).bit_count()
    if tail:
        total -= (int(bitmap_bytes[-1]) >> (8 - tail)).bit_count()
    return total


def realign(bitmap: Buffer, offset: int, length: int) -> Buffer:
    """Return a bitmap that starts at bit `offset`; copies only if `offset` is not a multiple of 8."""
    bitmap_bytes = _covering_bytes(bitmap, offset, length)
    if offset & 7 == 0:
        return bitmap.slice(offset >> 3, bitmap_bytes.size)
    shift = np.uint8(offset & 7)
    out = bitmap_bytes >> shift
    # The upper bits of each byte come from the next one; uint8 shifts drop the rest. The last byte has no next one, and
    # its upper bits, zero now, are beyond `length`.
    out[:-1] |= bitmap_bytes[1:] << np.uint8(8 - shift)
    return Buffer.of(out[: size_bytes(length)])


def realign_zero_padded(bitmap: Buffer, offset: int, length: int) -> Buffer:
    """Return a bitmap of `length` bits from bit `offset` on, without bits of other slots: later bits are zero.

    Copies only if `offset` is not a multiple of 8, or to clear bits.
    """
    aligned = realign(bitmap, offset, length)
    # `aligned` ends in the byte of the last slot, and bits of later slots are in that byte only.
    if not length & 7 or not aligned.element(UINT8, aligned.size - 1) >> (length & 7):
        return aligned
    out = aligned.bytes.copy()
    out[-1] &= (1 << (length & 7)) - 1
    return Buffer.of(out)


def is_equal(left: Buffer, right: Buffer, length: int) -> bool:
    """Whether the first `length` bits of two bitmaps are equal."""
    left_bytes, right_bytes = _covering_bytes(left, 0, length), _covering_bytes(right, 0, length)
    num_whole_bytes = length >> 3
    if not np.array_equal(left_bytes[:num_whole_bytes], right_bytes[:num_whole_bytes]):
        return False
    return not length & 7 or not (int(left_bytes[num_whole_bytes]) ^ int(right_bytes[num_whole_bytes])) & (
        (1 << (length & 7)) - 1
    )
