"""A stream over the Dissociated protocol, whose server says of messages and buffers what it likes.

The bytes are a stream. What it holds goes out as a server of ours would send it, bodies as addresses or packed, and
what the checksum of the bytes chooses is wrong: an address, a length, how many there are. Where nothing is, the client
gets what a reader of the bytes does.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from collections.abc import Iterator
from zlib import crc32

import numpy as np

import bowstring as bs
from bowstring.dissociated.server import ServerConnection
from bowstring.dissociated.uri import StreamURI
from bowstring.dissociated.wire import AddressBody, Body, PackedBody
from bowstring.errors import BowstringError, InvalidDataError, UsageError
from bowstring.flatbuf.reader import Message
from bowstring.flatbuf.tables import SPECS
from bowstring.inspection.validation import Validator
from bowstring.ipc.message import CONTINUATION, is_file_start
from bowstring.ipc.metadata.header import BatchHeader, HeaderReader
from bowstring.memory.region import Region
from bowstring.sharing.connection import Connection, Stream
from bowstring.sharing.uris import FREE_DATA, WANT_DATA, Ticket
from bowstring.transports.base import TransportOptions
from bowstring.transports.loopback import LoopbackTransport
from bowstring.transports.regions import address_of
from fuzz.oracles.pieces import equal, read
from fuzz.promises import LIMITS, promise

_OPTIONS = TransportOptions(timeout_s=1.0, queue_messages=1 << 12)
_MOST_MESSAGES = 200


def check_served(data: bytes) -> bool:
    """The oracle of streams that are served."""
    if is_file_start(data):
        return False
    near = read(lambda: bs.open_stream(data, limits=LIMITS))
    chosen = crc32(data)
    server_end, client_end = LoopbackTransport.pair(_OPTIONS)
    batches: list[bs.RecordBatch] = []
    with server_end, client_end, Region.copy_of([data or b"\0"]) as region:
        lies = _serve(server_end, region, data, chosen)
        connection = _connection_over(client_end)
        stream = Stream(connection, Ticket(("t",)))
        try:
            connection.transport.send_message(stream.protocol.request(b"t"))
            stream.read_schema()
            for batch in stream:
                batch.validate(full=True)
                batches.append(batch)
        except BowstringError as error:
            promise(bool(str(error)), "an error without words")
            promise(not isinstance(error, UsageError), f"a hostile server raises what is the caller's fault: {error}")
            is_told = lies or near[1] is not None or _has_faults(data)
            promise(is_told, f"sound in memory; served: {error}")
            return False
    if near[1] is None and not lies:
        promise(len(near[0]) == len(batches), f"{len(near[0])} batches in memory, {len(batches)} served")
        equal(near[0], batches)
    return near[1] is None


def _has_faults(data: bytes) -> bool:
    """Whether anything is wrong, also with dictionaries that no batch uses: in memory nobody looks at them."""
    return any(True for _ in Validator(data, limits=LIMITS).faults())


def _connection_over(transport: LoopbackTransport) -> Connection:
    """A link over one end of a pair, in the place of a socket."""
    connection = object.__new__(Connection)
    connection.uri, connection.timeout_s = StreamURI("unix", "@loopback", WANT_DATA, FREE_DATA), 1.0
    connection.transport, connection.lock = transport, threading.Lock()  # type: ignore[assignment]  # as good as a socket
    connection._freed, connection._tokens = deque(), {}
    connection._is_streaming = connection._is_released = connection.is_closed = False
    return connection


def _serve(transport: LoopbackTransport, region: Region, data: bytes, chosen: int) -> bool:
    """Send everything, and tell whether anything of it is a lie."""
    server = ServerConnection(WANT_DATA, FREE_DATA)
    server.receive(WANT_DATA, b"t")
    index = transport.send_region(region)
    headers, lies = HeaderReader(LIMITS), False
    for count, (raw, at, size) in enumerate(_messages(data)):
        body: Body | None = None
        try:
            header = headers.read(raw, 0, ("message", count))
        except InvalidDataError:
            header = None
        if isinstance(header, BatchHeader):
            if chosen & 1:
                body = PackedBody.of(data[at : at + size])
            else:
                body, is_lie = _addresses(header, index, at, chosen >> 1, count)
                lies |= is_lie
        try:
            messages = server.send(raw, body)
        except UsageError:
            return True  # a stream that begins with a body, or buffers of 2**64 bytes: no server can send that
        for message in messages:
            transport.send_message(message)
    try:
        for message in server.end():
            transport.send_message(message)
    except BowstringError:
        return True
    return lies


def _addresses(header: BatchHeader, index: int, at: int, chosen: int, count: int) -> tuple[AddressBody, bool]:
    buffers = header.buffers()
    offsets, lengths = buffers["offset"].astype(np.uint64), buffers["length"].astype(np.uint64)
    addresses = offsets + np.uint64(address_of(index, at))
    lie = chosen % 12 if chosen // 16 % 4 == count % 4 else 12
    if not len(addresses) or lie > 6:
        return AddressBody.of(addresses, lengths), False
    one = chosen // 64 % len(addresses)
    if lie == 0:
        addresses[one] += np.uint64(1 << 20)
    elif lie == 1:
        lengths[one] = np.uint64((1 << 62) + chosen % 3)
    elif lie == 2:
        addresses[one] = np.uint64(address_of(index + 1, 0))
    elif lie == 3:
        lengths[one] //= np.uint64(2)
    elif lie == 4:
        addresses, lengths = addresses[:-1], lengths[:-1]
    elif lie == 5:
        addresses[one] ^= np.uint64(1 << chosen // 64 % 64)
    else:
        addresses[:] = addresses[one]
    return AddressBody.of(addresses, lengths), True


def _messages(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The metadata of each message, where its body begins, and its length."""
    at = 0
    for _ in range(_MOST_MESSAGES):
        at += 4 * (data[at : at + 4] == CONTINUATION)
        if at + 4 > len(data):
            return
        length = struct.unpack_from("<i", data, at)[0]
        at += 4
        if length <= 0 or at + length > len(data):
            return
        raw = data[at : at + length]
        at += length
        try:
            size = Message(raw, SPECS, "served").root("Message")["bodyLength"]
        except InvalidDataError:
            size = 0
        yield raw, at, size
        at += max(size, 0)
