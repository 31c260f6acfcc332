"""Encode and decode messages («Protocol Description»): prefixes, tags, bodies of addresses, <free_data>.

>>> encode_prefix(MessageType.METADATA, 1).hex(" ")
'01 01 00 00 00'
>>> hex(encode_body_tag(7, BodyType.ADDRESSES))
'0x100000000000007'
>>> decode_body_tag(0x0100_0000_0000_0007)
BodyTag(sequence=7, body_type=<BodyType.ADDRESSES: 1>)
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.dissociated.limits import DEFAULT_LIMITS, ProtocolLimits
from bowstring.errors import InvalidArgumentError, LimitError, ProtocolError

BytesLike: TypeAlias = bytes | bytearray | memoryview
Addresses: TypeAlias = npt.NDArray[np.uint64]

SEQUENCE_MODULUS = 1 << 32  # sequence numbers have 32 bits, and roll over
SEQUENCE_MASK = SEQUENCE_MODULUS - 1
UINT64_MODULUS = 1 << 64  # tags, addresses and lengths have 64 bits
PREFIX_BYTES = 5  # the type and the sequence number of a message of the metadata stream
BODY_TYPE_SHIFT = 56  # the most significant byte of a body's tag is its type
RESERVED_MASK = 0x00FF_FFFF_0000_0000  # bits 32 to 55 of a body's tag, which have to be zero

_PREFIX = struct.Struct("<BI")
_BODY_HEADER = struct.Struct("<QQ")
_UINT64 = np.dtype("<u8")


class MessageType(IntEnum):
    """Byte 0 of a message of the metadata stream."""

    END_OF_STREAM = 0
    METADATA = 1


class BodyType(IntEnum):
    """Bits 56 to 63 of the tag of a body."""

    PACKED = 0
    ADDRESSES = 1


_MESSAGE_TYPES = tuple(MessageType)
_BODY_TYPES = tuple(BodyType)


class BodyTag(NamedTuple):
    """The fields of a body's tag."""

    sequence: int
    body_type: BodyType


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to send: the bytes of `parts` in order, never joined; `tag` is None for a plain message."""

    tag: int | None
    parts: tuple[Any, ...]
    length_bytes: int

    def __repr__(self) -> str:
        kind = "plain" if self.tag is None else f"tag 0x{self.tag:016x}"
        return f"<OutgoingMessage {kind}, {self.length_bytes} bytes in {len(self.parts)} parts>"


@dataclass(frozen=True, slots=True, eq=False)
class PackedBody:
    """A body of type 0: the bytes of the standard IPC format.

    `parts` are opaque to the protocol: bytes, memoryviews, handles of device memory. A received body has one part, the
    object that the transport returned.
    """

    parts: tuple[Any, ...]
    length_bytes: int

    @classmethod
    def from_parts(cls, *parts: BytesLike) -> PackedBody:
        """Create a body of these bytes; nothing is copied."""
        return cls(parts, sum(memoryview(part).nbytes for part in parts))

    def __repr__(self) -> str:
        return f"<PackedBody {self.length_bytes} bytes>"


@dataclass(frozen=True, slots=True, eq=False)
class AddressBody:
    """A body of type 1: the address of each buffer in shared memory.

    `addresses` and `lengths` are little-endian uint64 arrays with one element per buffer, in the order of the IPC
    header. The transport defines the meaning of addresses.
    """

    addresses: Addresses
    lengths: Addresses
    total_bytes: int
    """The announced total, which may include any padding: nothing is allocated or read by it."""
    exact_bytes: int
    """The sum of the lengths."""
    num_leased: int
    """The number of buffers that are not empty: only their addresses are leased."""

    @classmethod
    def from_arrays(cls, addresses: npt.ArrayLike, lengths: npt.ArrayLike) -> AddressBody:
        """Create a body of these buffers.

        Raises `InvalidArgumentError` if the numbers of addresses and lengths differ.
        """
        own_addresses, own_lengths = np.asarray(addresses, _UINT64).ravel(), np.asarray(lengths, _UINT64).ravel()
        if own_addresses.size != own_lengths.size:
            raise InvalidArgumentError(f"{own_addresses.size} addresses, but {own_lengths.size} lengths")
        exact_bytes = _sum_exactly(own_lengths, int(own_lengths.max(initial=0)))
        return cls(own_addresses, own_lengths, exact_bytes, exact_bytes, int(np.count_nonzero(own_lengths)))

    def with_addresses(self, addresses: Addresses) -> AddressBody:
        """Return a body of buffers with the same lengths at other addresses."""
        return AddressBody(addresses, self.lengths, self.total_bytes, self.exact_bytes, self.num_leased)

    @property
    def length_bytes(self) -> int:
        """The total length of the buffers."""
        return self.exact_bytes

    def __repr__(self) -> str:
        return f"<AddressBody {self.addresses.size} buffers, {self.exact_bytes} bytes>"


Body: TypeAlias = PackedBody | AddressBody


def encode_prefix(message_type: MessageType, sequence: int) -> bytes:
    """The five bytes before the header of a message of the metadata stream."""
    return _PREFIX.pack(message_type, sequence)


def decode_prefix(data: BytesLike) -> tuple[MessageType, int]:
    """Return the type and the sequence number at the beginning of a message of the metadata stream.

    Raises `ProtocolError` for an unknown type or fewer than 5 bytes.
    """
    if len(data) < PREFIX_BYTES:
        raise ProtocolError(
            f"metadata message: expected a prefix of {PREFIX_BYTES} bytes, found {len(data)} bytes in all"
        )
    number, sequence = _PREFIX.unpack_from(data)
    if number >= len(_MESSAGE_TYPES):
        raise ProtocolError(
            f"metadata message {sequence}: expected type 0 or 1 in byte 0 of the prefix, found {number}"
        )
    return _MESSAGE_TYPES[number], sequence


def encode_body_tag(sequence: int, body_type: BodyType) -> int:
    """The tag of a body: the sequence number in bits 0 to 31, the type in bits 56 to 63."""
    return body_type << BODY_TYPE_SHIFT | sequence


def decode_body_tag(tag: int) -> BodyTag:
    """The parts of a body's tag. Raises `ProtocolError` for reserved bits, an unknown type, or more than 64 bits."""
    if not 0 <= tag < UINT64_MODULUS:
        raise ProtocolError(f"tag {tag}: expected an unsigned number of 64 bits")
    if tag & RESERVED_MASK:
        raise ProtocolError(f"tag 0x{tag:016x}: expected zeros in the reserved bits 32 to 55")
    body_type = tag >> BODY_TYPE_SHIFT
    if body_type >= len(_BODY_TYPES):
        raise ProtocolError(f"tag 0x{tag:016x}: expected body type 0 or 1 in bits 56 to 63, found {body_type}")
    return BodyTag(tag & SEQUENCE_MASK, _BODY_TYPES[body_type])


def is_error_tag(tag: int) -> bool:
    """Whether a server may tag an error like this: with an unknown body type, and zeros in the reserved bits."""
    return 0 <= tag < UINT64_MODULUS and not tag & RESERVED_MASK and tag >> BODY_TYPE_SHIFT >= len(_BODY_TYPES)


def encode_addresses(body: AddressBody) -> bytes:
    """The total, the number of buffers, then an address and a length for each."""
    words = np.empty(2 + 2 * body.addresses.size, _UINT64)
    words[0] = body.total_bytes
    words[1] = body.addresses.size
    words[2::2] = body.addresses
    words[3::2] = body.lengths
    return words.tobytes()


def decode_addresses(data: BytesLike, limits: ProtocolLimits = DEFAULT_LIMITS) -> AddressBody:
    """Decode a body of type 1; its arrays are views of a copy of `data`.

    The total is at least the sum of the lengths. Raises `ProtocolError` if the counts and lengths contradict each other
    or a buffer ends after 2**64, `LimitError` beyond `limits`.
    """
    length_bytes = len(data)
    if length_bytes < _BODY_HEADER.size:
        raise ProtocolError(f"body of addresses: expected at least {_BODY_HEADER.size} bytes, found {length_bytes}")
    total_bytes, count = _BODY_HEADER.unpack_from(data)
    if length_bytes - _BODY_HEADER.size != count * _BODY_HEADER.size:
        raise ProtocolError(
            f"body of addresses: {count} buffers take {(count + 1) * _BODY_HEADER.size} bytes, found {length_bytes}"
        )
    if count > limits.max_buffers:
        raise LimitError(f"body of addresses: {count} buffers, more than max_buffers = {limits.max_buffers}")
    columns = np.frombuffer(data, _UINT64, offset=_BODY_HEADER.size).reshape(count, 2).T.copy()
    addresses, lengths = columns
    highest, longest = np.maximum.reduce(columns, axis=1, initial=0).tolist()
    exact_bytes = _sum_exactly(lengths, longest)
    if total_bytes < exact_bytes:
        raise ProtocolError(
            f"body of addresses: the {count} buffers have {exact_bytes} bytes, but the total is {total_bytes}"
        )
    if exact_bytes > limits.max_address_body_bytes:
        raise LimitError(
            f"body of addresses: {exact_bytes} bytes, max_address_body_bytes = {limits.max_address_body_bytes}"
        )
    # So that most bodies need no sum for each buffer.
    if highest + longest >= UINT64_MODULUS and bool((addresses + lengths < addresses).any()):
        index = int((addresses + lengths < addresses).argmax())
        raise ProtocolError(
            f"body of addresses, buffer {index}: address {addresses[index]} and length {lengths[index]} exceed 2**64"
        )
    return AddressBody(addresses, lengths, total_bytes, exact_bytes, int(np.count_nonzero(lengths)))


def encode_free_data(addresses: Addresses) -> bytes:
    """The body of a <free_data> message."""
    return np.ascontiguousarray(addresses, _UINT64).tobytes()


def decode_free_data(data: BytesLike, limits: ProtocolLimits = DEFAULT_LIMITS) -> Addresses:
    """The addresses of a <free_data> message. Raises `ProtocolError` unless it holds one or more whole uint64."""
    count, rest = divmod(len(data), _UINT64.itemsize)
    if rest or not count:
        raise ProtocolError(f"<free_data> message: expected one or more integers of 8 bytes, found {len(data)} bytes")
    if count > limits.max_outstanding_addresses:
        raise LimitError(
            f"<free_data> message: {count} addresses, max_outstanding_addresses = {limits.max_outstanding_addresses}"
        )
    return np.frombuffer(bytes(data), _UINT64)


def sequence_distance(start: int, end: int) -> int:
    """The number of messages from `start` to `end`, with the roll-over at 32 bits.

    >>> sequence_distance(0xFFFF_FFFF, 1)
    2
    """
    return (end - start) & SEQUENCE_MASK


def _sum_exactly(lengths: Addresses, longest: int) -> int:
    """The sum of lengths up to `longest`, without overflow at 2**64."""
    if longest * lengths.size < UINT64_MODULUS:
        return int(np.add.reduce(lengths))
    high, low = int((lengths >> np.uint64(32)).sum()), int((lengths & np.uint64(SEQUENCE_MASK)).sum())
    return (high << 32) + low
