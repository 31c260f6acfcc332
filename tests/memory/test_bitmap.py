"""Validity bitmaps: any bits at any offset, compared with reading them one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bowstring.errors import InvalidDataError
from bowstring.memory import bitmap
from bowstring.memory.buffer import Buffer


def bit(data: bytes, index: int) -> bool:
    """«is_valid[j] -> bitmap[j / 8] & (1 << (j % 8))»."""
    return bool(data[index // 8] & (1 << (index % 8)))


@st.composite
def bit_ranges(draw: st.DrawFn) -> tuple[bytes, int, int]:
    """Draw bytes and an offset and length of bits within them."""
    data = draw(st.binary(max_size=24))
    offset = draw(st.integers(0, len(data) * 8))
    return data, offset, draw(st.integers(0, len(data) * 8 - offset))


@given(mask=st.lists(st.booleans(), max_size=70))
def test_packed_bits_are_least_significant_first_and_padded_with_zeros(mask: list[bool]) -> None:
    packed = bitmap.pack(np.array(mask, np.bool_))
    assert packed.size == bitmap.size_bytes(len(mask))
    assert [bit(packed.to_bytes(), i) for i in range(packed.size * 8)] == mask + [False] * (-len(mask) % 8)
    assert bitmap.unpack(packed, 0, len(mask)).tolist() == mask


@given(bit_range=bit_ranges())
def test_any_range_is_unpacked_counted_and_realigned(bit_range: tuple[bytes, int, int]) -> None:
    data, offset, length = bit_range
    buffer = Buffer.of(data)
    expected = [bit(data, offset + i) for i in range(length)]
    assert bitmap.unpack(buffer, offset, length).tolist() == expected
    assert bitmap.count_set_bits(buffer, offset, length) == sum(expected)
    assert [bitmap.get(buffer, offset + i) for i in range(length)] == expected
    moved = bitmap.realign(buffer, offset, length)
    assert moved.size == bitmap.size_bytes(length)
    assert bitmap.unpack(moved, 0, length).tolist() == expected


@given(bit_range=bit_ranges())
def test_a_zero_padded_bitmap_has_no_bits_of_other_slots(bit_range: tuple[bytes, int, int]) -> None:
    data, offset, length = bit_range
    padded = bitmap.realign_zero_padded(Buffer.of(data), offset, length)
    assert padded.size == bitmap.size_bytes(length)
    assert bitmap.unpack(padded, 0, padded.size * 8).tolist() == [
        number < length and bit(data, offset + number) for number in range(padded.size * 8)
    ]


def test_realigning_with_zero_padding_copies_only_within_a_byte_or_to_clear_bits() -> None:
    buffer = Buffer.of(b"\x01" * 8)
    assert bitmap.realign_zero_padded(buffer, 16, 9).address == buffer.address + 2
    assert bitmap.realign_zero_padded(Buffer.of(b"\x03" * 8), 16, 9).to_bytes() == b"\x03\x01"


def test_realigning_copies_only_within_a_byte() -> None:
    buffer = Buffer.of(bytes(range(8)))
    assert bitmap.realign(buffer, 16, 9).address == buffer.address + 2
    assert bitmap.realign(buffer, 17, 9).memory is not buffer.memory


def test_bits_are_counted_in_large_bitmaps() -> None:
    data = np.full(3_000_001, 0x55, np.uint8)
    assert bitmap.count_set_bits(Buffer.of(data), 3, 24_000_000) == 12_000_000


@pytest.mark.parametrize(("offset", "length"), [(0, 17), (9, 8), (-1, 2), (0, -1), (1 << 62, 1)])
def test_bits_beyond_the_bytes_are_rejected(offset: int, length: int) -> None:
    buffer = Buffer.of(b"\xff\xff")
    for attempt in (bitmap.unpack, bitmap.count_set_bits, bitmap.realign):
        with pytest.raises(InvalidDataError, match="bitmap of 2 bytes"):
            attempt(buffer, offset, length)
    with pytest.raises(InvalidDataError):
        bitmap.get(buffer, 16)
