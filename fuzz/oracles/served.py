"""A stream over the Dissociated protocol, from a server that falsifies addresses and lengths.

The input is a stream. Its messages are sent as by Bowstring's server, with bodies as addresses or packed. The checksum
of the input selects what is falsified: an address, a length, or their number. If nothing is, the client receives what a
reader of the stream reads.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from zlib import crc32

import numpy as np

import bowstring as bs
from bowstring.dissociated.messages import AddressBody, Body, OutgoingMessage, PackedBody
from bowstring.dissociated.server import ConnectionRole, ServerConnection
from bowstring.dissociated.uri import StreamURI
from bowstring.errors import BowstringError, InvalidArgumentError, InvalidDataError
from bowstring.flatbuf.tables import read_root
from bowstring.inspection.validation import Validator
from bowstring.ipc.message import CONTINUATION, is_file_start
from bowstring.ipc.metadata.header import BatchHeader, HeaderReader
from bowstring.memory.region import Region
from bowstring.sharing.client.connection import Connection, Stream
from bowstring.sharing.uris import FREE_DATA, WANT_DATA, Ticket
from bowstring.transports.base import TransportOptions
from bowstring.transports.blocking import BlockingChannel
from bowstring.transports.regions import encode_region_address
from bowstring.transports.session import Session, SessionOptions
from bowstring.transports.sockets.unix import UNIX
from bowstring_testing.transport_conformance import connect_pair, run_in_thread
from fuzz.expectations import LIMITS, expect
from fuzz.oracles.partial_reads import expect_equal, read_batches
from tests.transports.blocking import send_message

_OPTIONS = TransportOptions(timeout_s=1.0)
_MAX_MESSAGES = 200


def check_served(data: bytes) -> bool:
    """Check a served stream."""
    if is_file_start(data):
        return False
    expected = read_batches(lambda: bs.open_stream(data, limits=LIMITS))
    checksum = crc32(data)
    client_end, server_end = connect_pair(UNIX, _OPTIONS)
    session = Session(
        {ConnectionRole.BOTH: client_end.channel},
        client_end.memory,
        now=time.monotonic(),
        options=SessionOptions(input_timeout_s=_OPTIONS.timeout_s),
    )
    batches: list[bs.RecordBatch] = []
    with server_end, session, Region.copy_of([data or b"\0"]) as region, ExitStack() as stack:
        messages, is_falsified = _create_messages(server_end.export(region).index, data, checksum)
        # In a thread, because a socket takes only so much before the client receives; the client may end before that.
        stack.enter_context(run_in_thread(lambda: _send(server_end, messages)))
        stack.callback(session.close)
        connection = Connection(StreamURI("unix", "served", WANT_DATA, FREE_DATA), session)
        stream = Stream(connection, Ticket(("t",)))
        try:
            connection.driver.start_request(stream.protocol, stream.requests)
            stream.read_schema()
            for batch in stream:
                batch.validate(full=True)
                batches.append(batch)
        except BowstringError as error:
            expect(bool(str(error)), "the error has no message")
            expect(not isinstance(error, InvalidArgumentError), f"a hostile server causes a usage error: {error}")
            is_expected = is_falsified or expected[1] is not None or _has_errors(data)
            expect(is_expected, f"valid in memory; served: {error}")
            return False
    if expected[1] is None and not is_falsified:
        expect(len(expected[0]) == len(batches), f"{len(expected[0])} batches in memory, {len(batches)} served")
        expect_equal(expected[0], batches)
    return expected[1] is None


def _send(channel: BlockingChannel, messages: list[OutgoingMessage]) -> None:
    for message in messages:
        send_message(channel, message)


def _has_errors(data: bytes) -> bool:
    """Whether validation reports an error; readers do not read dictionaries that no batch uses."""
    return any(True for _ in Validator(data, limits=LIMITS).faults())


def _create_messages(index: int, data: bytes, checksum: int) -> tuple[list[OutgoingMessage], bool]:
    """Return all messages, with addresses in the region of this index, and whether any is falsified."""
    server = ServerConnection(WANT_DATA, FREE_DATA)
    server.receive(WANT_DATA, b"t")
    headers, is_falsified, outgoing = HeaderReader(LIMITS), False, list[OutgoingMessage]()
    for count, (raw, offset, size) in enumerate(_messages(data)):
        body: Body | None = None
        try:
            header = headers.read(raw, ("message", count))
        except InvalidDataError:
            header = None
        if isinstance(header, BatchHeader):
            if checksum & 1:
                body = PackedBody.from_parts(data[offset : offset + size])
            else:
                body, is_false = _addresses(header, index, offset, checksum >> 1, count)
                is_falsified |= is_false
        try:
            outgoing += server.send(raw, body)
        except InvalidArgumentError:
            return outgoing, True  # a server can't send it: the stream starts with a body, or has 2**64 bytes
    try:
        return [*outgoing, *server.send_end()], is_falsified
    except BowstringError:
        return outgoing, True


def _addresses(header: BatchHeader, index: int, offset: int, checksum: int, count: int) -> tuple[AddressBody, bool]:
    buffers = header.buffers()
    offsets, lengths = buffers["offset"].astype(np.uint64), buffers["length"].astype(np.uint64)
    addresses = offsets + np.uint64(encode_region_address(index, offset))
    mutation = checksum % 12 if checksum // 16 % 4 == count % 4 else 12
    if not len(addresses) or mutation > 6:
        return AddressBody.from_arrays(addresses, lengths), False
    address_index = checksum // 64 % len(addresses)
    if mutation == 0:
        addresses[address_index] += np.uint64(1 << 20)
    elif mutation == 1:
        lengths[address_index] = np.uint64((1 << 62) + checksum % 3)
    elif mutation == 2:
        addresses[address_index] = np.uint64(encode_region_address(index + 1, 0))
    elif mutation == 3:
        lengths[address_index] //= np.uint64(2)
    elif mutation == 4:
        addresses, lengths = addresses[:-1], lengths[:-1]
    elif mutation == 5:
        addresses[address_index] ^= np.uint64(1 << checksum // 64 % 64)
    else:
        addresses[:] = addresses[address_index]
    return AddressBody.from_arrays(addresses, lengths), True


def _messages(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The metadata of each message, and the offset and size of its body."""
    offset = 0
    for _ in range(_MAX_MESSAGES):
        offset += 4 * (data[offset : offset + 4] == CONTINUATION)
        if offset + 4 > len(data):
            return
        length = struct.unpack_from("<i", data, offset)[0]
        offset += 4
        if length <= 0 or offset + length > len(data):
            return
        raw = data[offset : offset + length]
        offset += length
        try:
            size = read_root("Message", raw, "served")["bodyLength"]
        except InvalidDataError:
            size = 0
        yield raw, offset, size
        offset += max(size, 0)
