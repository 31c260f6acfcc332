"""One connection of a client: streams one after the other, and the leases of all of them («Client Sequence»).

A batch is lent until no array, view or buffer of it is left: each has as its base one NumPy array of its own over the
region, and when that array goes, <free_data> is sent. This happens in whichever thread drops it, possibly in the
middle of our own code, so there is one lock, and who does not get it at once leaves the addresses to whoever holds it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from bowstring.arrays.record_batch import RecordBatch
from bowstring.datatypes.field import Schema
from bowstring.dissociated.client import ClientConnection
from bowstring.dissociated.events import MessageReady
from bowstring.dissociated.limits import DEFAULT_LIMITS
from bowstring.dissociated.pairing import StreamMessage
from bowstring.dissociated.uri import StreamURI
from bowstring.dissociated.wire import AddressBody, PackedBody
from bowstring.errors import (
    BowstringError,
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    InvalidDataError,
    LimitError,
    ProtocolError,
)
from bowstring.ipc.metadata.header import BatchHeader
from bowstring.ipc.stream import Decoder
from bowstring.memory.buffer import EMPTY, Buffer, Memory, allocate
from bowstring.memory.closable import close_on_error
from bowstring.memory.descriptors import check_available
from bowstring.sharing.processes import close_inherited
from bowstring.sharing.uris import Ticket, decode_error, error_tag
from bowstring.transports.base import TransportOptions
from bowstring.transports.regions import OFFSET_BITS
from bowstring.transports.unix import UnixTransport

_FREE_S = 1.0
_MAX_ERROR_BYTES = 1 << 16
_UINT8 = np.dtype(np.uint8)


class Connection:
    """A connection to one server; `stream` may be called again when the last stream was read to its end."""

    def __init__(self, uri: StreamURI, timeout_s: float) -> None:
        self.uri = uri
        self.timeout_s = timeout_s
        self.transport = UnixTransport.connect(
            uri.address,
            timeout_s=timeout_s,
            options=TransportOptions(timeout_s=timeout_s, max_tagged_bytes=DEFAULT_LIMITS.max_packed_body_bytes),
        )
        self.lock = threading.Lock()
        self._freed: deque[tuple[ClientConnection, AddressBody]] = deque()
        self._tokens: dict[int, weakref.ref[Any]] = {}
        self._is_streaming = False
        self._is_released = False
        self.is_closed = False
        _CONNECTIONS.add(self)

    @property
    def num_lent(self) -> int:
        """How many batches (and dictionaries) of this connection are in use still."""
        return len(self._tokens)

    def stream(self, ticket: Ticket) -> Stream:
        """Ask for a data set, and read its schema. Raises what the server tells, and errors of the connection and the
        data.
        """
        self._is_streaming = True
        stream = Stream(self, ticket)
        with close_on_error(self):
            with self.lock:
                self.transport.send_message(stream.protocol.request(ticket.encode()), timeout_s=self.timeout_s)
            stream.read_schema()
        return stream

    def ended(self) -> None:
        """The stream was read to its end: the server reads again what we send."""
        self._is_streaming = False
        self.flush()

    def check_idle(self) -> None:
        """Raise `ConnectionLostError` where the server is gone, or has sent a message without a request."""
        with self.lock:
            if not self.transport.has_input:
                return
            try:
                self.transport.receive(timeout_s=0.0, allocate=_refuse_message)
            except DeadlineError:
                return
            except ProtocolError as error:
                raise ConnectionLostError(f"{self.uri}: {error}") from error

    def lend(self, protocol: ClientConnection, body: AddressBody, memory: memoryview) -> Memory:
        """The region as a memory of its own, which frees the addresses when nothing refers to it any more."""
        token = np.frombuffer(memory, _UINT8) if memory.nbytes else np.empty(0, _UINT8)
        _LENDING.add(self)
        key = id(token)

        def free_body(_: object) -> None:
            self._tokens.pop(key, None)
            self._freed.append((protocol, body))
            self.flush()

        self._tokens[key] = weakref.ref(token, free_body)
        return Memory(token)

    def free(self, protocol: ClientConnection, body: AddressBody) -> None:
        """Free addresses that nothing refers to."""
        self._freed.append((protocol, body))

    def flush(self) -> None:
        """Send what is due, unless somebody else is at it already."""
        while self._freed and not self.is_closed and self.lock.acquire(blocking=False):
            try:
                self._send_freed()
            except DeadlineError:
                return
            except BowstringError:
                self.close()
            finally:
                self.lock.release()
        if self._is_released and not self._tokens:
            self.close()

    def _send_freed(self) -> None:
        """While a stream comes in, the server may be waiting for us to read: then what it does not take at once is sent
        later.
        """
        while self._freed:
            protocol, body = self._freed.popleft()
            message = protocol.free(body)
            if message is not None:
                self.transport.post(message.parts, tag=message.tag)
        if not self._is_streaming:
            self.transport.flush(timeout_s=_FREE_S)

    def release(self) -> None:
        """Close when the last batch is let go of."""
        self._is_released = True
        self.flush()

    def close(self) -> None:
        """Close now: the server lets go of everything, arrays stay valid, because the mappings are our own.
        Idempotent.
        """
        if not self.is_closed:
            self.is_closed = True
            _LENDING.discard(self)
            self.transport.close()
            self._freed.clear()


class Stream:
    """One data set on its way: iterate once."""

    def __init__(self, connection: Connection, ticket: Ticket) -> None:
        self._connection = connection
        self._name = str(ticket)
        self._decoder = Decoder()
        self._headers: deque[BatchHeader] = deque()
        self._ready: deque[StreamMessage] = deque()
        self._error_tag = error_tag(connection.uri)
        self.protocol = ClientConnection(connection.uri.want_data, connection.uri.free_data, has_body=self._has_body)

    @property
    def schema(self) -> Schema:
        """The schema."""
        return self._decoder.schema

    def read_schema(self) -> None:
        """Receive the first message."""
        while not self._decoder.has_schema:
            self._receive()
        self._ready.popleft()

    def __iter__(self) -> Iterator[RecordBatch]:
        try:
            while True:
                while not self._ready:
                    if self.protocol.is_ended:
                        self._connection.ended()
                        return
                    self._receive()
                batch = self._batch(self._ready.popleft())
                if batch is not None:
                    yield batch
        except BowstringError:
            self._connection.close()
            raise

    def _has_body(self, header: Any) -> bool:
        read = self._decoder.begin(bytes(header))
        if read is not None:
            self._headers.append(read)
        return read is not None

    def _check_length(self, tag: int | None, length_bytes: int) -> None:
        """Raise for a message that is not to be received at all."""
        if tag is None or tag != self._error_tag:
            self.protocol.check_length(tag, length_bytes)
        elif length_bytes > _MAX_ERROR_BYTES:
            raise LimitError(f"{self._name}: an error of {length_bytes} bytes, at most {_MAX_ERROR_BYTES} are received")

    def _receive(self) -> None:
        connection = self._connection
        if connection.is_closed:
            raise ClosedError(f"{self._name}: the connection was closed before its end")
        with connection.lock:
            try:
                received = connection.transport.receive(timeout_s=connection.timeout_s, allocate=self._check_length)
                if received.tag is not None and received.tag == self._error_tag:
                    raise decode_error(received.data, self._name)
                for event in self.protocol.receive(received.tag, received.data):
                    if isinstance(event, MessageReady):
                        self._ready.append(event.message)
            except DeadlineError as error:
                raise DeadlineError(f"{self._name}: the server sends nothing: {error}") from None
            except ConnectionLostError as error:
                raise type(error)(f"{self._name}: the server is gone before the end: {error}", error) from None
        connection.flush()

    def _batch(self, message: StreamMessage) -> RecordBatch | None:
        header = self._headers.popleft()
        body = message.body
        try:
            if isinstance(body, PackedBody):
                return self._decoder.finish(header, Buffer.of(body.parts[0]) if body.length_bytes else EMPTY)
            assert isinstance(body, AddressBody)
            if body.addresses.size != header.template.buffer_count:
                count = header.template.buffer_count
                raise ProtocolError(f"expected {count} addresses, as the header's buffers, found {body.addresses.size}")
            return self._at_addresses(header, body)
        except (InvalidDataError, ProtocolError) as error:
            raise type(error)(f"{self._name}, message {message.sequence}: {error}") from error

    def _at_addresses(self, header: BatchHeader, body: AddressBody) -> RecordBatch | None:
        connection = self._connection
        wanted = header.buffers()["length"]
        short = wanted.astype(np.uint64) > body.lengths
        if bool(short.any()):
            worst = int(short.argmax())
            raise ProtocolError(
                f"buffer {worst}: the header says {wanted[worst]} bytes, the address {body.lengths[worst]}"
            )
        if not body.total_bytes:
            connection.free(self.protocol, body)
            return self._decoder.finish(_placed(header, np.zeros(wanted.size, np.int64), 0), EMPTY)
        try:
            located = connection.transport.regions.locate(body.addresses, body.lengths)
        except ProtocolError:
            if np.unique(body.addresses[body.lengths > 0] >> np.uint64(OFFSET_BITS)).size == 1:
                raise
            return self._gathered(header, body)
        memory = connection.lend(self.protocol, body, located.region.memory)
        return self._decoder.finish(_placed(header, located.offsets, memory.size), Buffer(memory, 0, memory.size))

    def _gathered(self, header: BatchHeader, body: AddressBody) -> RecordBatch | None:
        """Buffers of several regions, copied into one body: our servers don't send such bodies."""
        regions = self._connection.transport.regions
        if body.total_bytes > sum(regions[index].size_bytes for index in regions):
            raise LimitError(f"{body.total_bytes} bytes at addresses, more than all regions have")
        padded = (body.lengths.astype(np.int64) + 63) & -64
        ends = np.cumsum(padded)
        check_available(int(ends[-1]), self._name)
        held = allocate(int(ends[-1]))
        starts = ends - padded
        for start, view in zip(starts.tolist(), regions.resolve_all(body.addresses, body.lengths), strict=True):
            held[start : start + view.nbytes] = view
        self._connection.free(self.protocol, body)
        return self._decoder.finish(_placed(header, starts, held.size), Buffer.of(held))


def _refuse_message(_tag: int | None, length_bytes: int) -> None:
    raise ConnectionLostError(f"the server sent a message of {length_bytes} bytes without a request")


def _placed(header: BatchHeader, offsets: Any, body_bytes: int) -> BatchHeader:
    """The header, whose buffers are at these offsets of a body of `body_bytes` from now on; their lengths stay."""
    template = header.template
    if template.buffer_count:
        raw = bytearray(header.raw[:])
        np.frombuffer(raw, "<i8", 2 * template.buffer_count, template.buffers_at)[::2] = offsets
        header.raw = bytes(raw)
    header.body_bytes = body_bytes
    return header


_LENDING: set[Connection] = set()
"""Links that have lent something: they live until all of it is let go of, or they are closed."""
_CONNECTIONS: weakref.WeakSet[Connection] = weakref.WeakSet()


def _close_after_fork() -> None:
    """A connection is the parent's: what a forked child drops is still lent to the parent."""
    for connection in list(_CONNECTIONS):
        connection.is_closed = True
        close_inherited((connection.transport.fileno(),))
    _LENDING.clear()


os.register_at_fork(after_in_child=_close_after_fork)
