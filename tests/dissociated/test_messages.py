"""The bytes of the protocol, compared with the specification's text."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bowstring.dissociated.limits import ProtocolLimits
from bowstring.dissociated.messages import (
    AddressBody,
    BodyType,
    MessageType,
    PackedBody,
    decode_addresses,
    decode_body_tag,
    decode_free_data,
    decode_prefix,
    encode_addresses,
    encode_body_tag,
    encode_free_data,
    encode_prefix,
    is_error_tag,
    sequence_distance,
)
from bowstring.errors import InvalidArgumentError, LimitError, ProtocolError

sequences = st.integers(0, 2**32 - 1)
uint64s = st.integers(0, 2**64 - 1)


def encode_uint64s(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def test_the_prefix_is_a_type_and_a_little_endian_sequence_number() -> None:
    assert encode_prefix(MessageType.METADATA, 0x01020304) == bytes([1, 4, 3, 2, 1])
    assert encode_prefix(MessageType.END_OF_STREAM, 2) == bytes([0, 2, 0, 0, 0])


@given(st.sampled_from(MessageType), sequences, st.binary(max_size=5))
def test_a_prefix_round_trips(message_type: MessageType, sequence: int, rest: bytes) -> None:
    assert decode_prefix(encode_prefix(message_type, sequence) + rest) == (message_type, sequence)


@given(st.binary(max_size=6))
def test_any_bytes_are_a_prefix_or_a_protocol_error(data: bytes) -> None:
    if len(data) >= 5 and data[0] <= 1:
        assert decode_prefix(data)[1] == int.from_bytes(data[1:5], "little")
    else:
        with pytest.raises(ProtocolError):
            decode_prefix(data)


def test_the_tag_has_the_sequence_number_below_and_the_type_on_top() -> None:
    assert encode_body_tag(0xFFFFFFFF, BodyType.PACKED) == 0x0000_0000_FFFF_FFFF
    assert encode_body_tag(5, BodyType.ADDRESSES) == 0x0100_0000_0000_0005


@given(uint64s)
def test_any_number_is_a_tag_or_a_protocol_error(tag: int) -> None:
    if tag & 0x00FF_FFFF_0000_0000 or tag >> 56 > 1:
        with pytest.raises(ProtocolError, match=f"0x{tag:016x}"):
            decode_body_tag(tag)
    else:
        assert encode_body_tag(*decode_body_tag(tag)) == tag


@pytest.mark.parametrize("bit", range(32, 56))
def test_every_reserved_bit_has_to_be_zero(bit: int) -> None:
    with pytest.raises(ProtocolError, match="reserved bits 32 to 55"):
        decode_body_tag(1 << bit | 7)


@pytest.mark.parametrize("tag", [-1, 2**64])
def test_a_tag_has_64_bits(tag: int) -> None:
    with pytest.raises(ProtocolError, match="64 bits"):
        decode_body_tag(tag)


def test_a_body_of_addresses_is_total_count_and_pairs() -> None:
    body = AddressBody.from_arrays([100, 200], [7, 9])
    assert encode_addresses(body) == encode_uint64s(16, 2, 100, 7, 200, 9)
    assert body.length_bytes == 16


@given(st.lists(st.tuples(st.integers(0, 2**63), st.integers(0, 2**40)), max_size=20))
def test_a_body_of_addresses_round_trips(pairs: list[tuple[int, int]]) -> None:
    body = AddressBody.from_arrays([a for a, _ in pairs], [b for _, b in pairs])
    decoded = decode_addresses(encode_addresses(body))
    assert list(zip(decoded.addresses.tolist(), decoded.lengths.tolist(), strict=True)) == pairs
    assert decoded.total_bytes == sum(length for _, length in pairs)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "at least 16 bytes, found 0"),
        (encode_uint64s(0), "at least 16 bytes, found 8"),
        (encode_uint64s(0, 1), "1 buffers take 32 bytes, found 16"),
        (encode_uint64s(0, 0, 1), "0 buffers take 16 bytes, found 24"),
        (encode_uint64s(8, 1, 0, 8) + b"x", "found 33"),
        (encode_uint64s(0, 2**60), "buffers take"),
        (encode_uint64s(0, 2**64 - 1), "buffers take"),
        (encode_uint64s(7, 1, 0, 8), "have 8 bytes, but the total is 7"),
        (encode_uint64s(8, 1, 2**64 - 4, 8), r"buffer 0: address .* exceed 2\*\*64"),
        (encode_uint64s(0, 2, 0, 2**63, 0, 2**63), "the total is 0"),
        (encode_uint64s(16, 2, 2**63, 2**63, 0, 16), "but the total is 16"),
        (encode_uint64s(16, 2, 0, 8, 2**64 - 8, 8), r"buffer 1: address .* exceed 2\*\*64"),
    ],
)
def test_an_inconsistent_body_of_addresses_is_an_error(data: bytes, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        decode_addresses(data)


@pytest.mark.parametrize("total", [61, 128, 1 << 20, 2**64 - 1])
def test_a_total_may_have_any_amount_of_padding_but_only_lengths_count(total: int) -> None:
    body = decode_addresses(encode_uint64s(total, 2, 0, 1, 64, 60), ProtocolLimits(max_address_body_bytes=61))
    assert (body.total_bytes, body.exact_bytes, body.length_bytes) == (total, 61, 61)


@pytest.mark.parametrize(
    ("tag", "is_valid"),
    [(0xFF << 56 | 2**32 - 1, True), (2 << 56, True), (2**64, False), (-1, False)]
    + [(body_type << 56 | 3, False) for body_type in (0, 1)]
    + [(0xFF << 56 | 1 << bit, False) for bit in range(32, 56)]
    + [(1 << 40 | 3, False)],
)
def test_a_tag_of_errors_has_another_body_type_and_no_reserved_bits(tag: int, is_valid: bool) -> None:
    assert is_error_tag(tag) == is_valid


def test_buffers_and_bytes_beyond_the_limits_are_an_error() -> None:
    with pytest.raises(LimitError, match="max_buffers = 1"):
        decode_addresses(encode_uint64s(2, 2, 0, 1, 1, 1), ProtocolLimits(max_buffers=1))
    with pytest.raises(LimitError, match="max_address_body_bytes"):
        decode_addresses(encode_uint64s(2**63, 1, 0, 2**63))


@given(st.binary(max_size=80))
def test_any_bytes_are_a_body_of_addresses_or_an_error_of_bowstring(data: bytes) -> None:
    try:
        body = decode_addresses(data)
    except (ProtocolError, LimitError):
        return
    assert body.addresses.size * 16 + 16 == len(data)


def test_free_data_is_an_array_of_integers() -> None:
    assert encode_free_data(np.array([1, 2**64 - 1], np.uint64)) == encode_uint64s(1, 2**64 - 1)
    assert decode_free_data(encode_uint64s(3, 4)).tolist() == [3, 4]


@pytest.mark.parametrize("data", [b"", b"1234567", b"123456789"])
def test_free_data_needs_one_or_more_whole_integers(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="8 bytes"):
        decode_free_data(data)


def test_free_data_is_limited() -> None:
    with pytest.raises(LimitError, match="max_outstanding_addresses = 1"):
        decode_free_data(encode_uint64s(1, 2), ProtocolLimits(max_outstanding_addresses=1))


@given(sequences, st.integers(0, 2**31))
def test_the_distance_rolls_over(start: int, distance: int) -> None:
    assert sequence_distance(start, (start + distance) % 2**32) == distance


def test_different_numbers_of_addresses_and_lengths_are_an_error() -> None:
    with pytest.raises(InvalidArgumentError, match="2 addresses, but 1 lengths"):
        AddressBody.from_arrays([1, 2], [1])


def test_a_packed_body_does_not_join_its_parts() -> None:
    parts = (b"abc", memoryview(b"defg"))
    body = PackedBody.from_parts(*parts)
    assert body.parts[1] is parts[1]
    assert body.length_bytes == 7
