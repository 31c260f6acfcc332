"""One connection of a client: its streams in order, and their leases («Client Sequence»).

A batch is leased until no array, view or buffer of it is left. All of them have one NumPy array over the region as
their base; when it is garbage-collected, <free_data> is sent. That may happen in any thread and in the middle of any
code, so a thread that does not get the lock at once leaves the addresses to the thread that has it.
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
    """A connection to one server; `stream` may be called again after the last stream was read to its end."""

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
    def num_leased(self) -> int:
        """The number of batches and dictionaries of this connection in use."""
        return len(self._tokens)

    def stream(self, ticket: Ticket) -> Stream:
        """Request a data set, and read its schema. Raises the server's error, and errors of the connection and data."""
        self._is_streaming = True
        stream = Stream(self, ticket)
        with close_on_error(self):
            with self.lock:
                self.transport.send_message(stream.protocol.request(ticket.encode()), timeout_s=self.timeout_s)
            stream.read_schema()
        return stream

    def end_stream(self) -> None:
        """Record that the stream was read to its end, so that the server receives without waiting for this client."""
        self._is_streaming = False
        self.flush()

    def check_idle(self) -> None:
        """Raise `ConnectionLostError` if the server has disconnected or sent a message without a request."""
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
        """Return the region as a `Memory` that frees the addresses when it is garbage-collected."""
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
        """Free the addresses of a body that was copied or is empty."""
        self._freed.append((protocol, body))

    def flush(self) -> None:
        """Send queued <free_data> messages, unless another thread has the lock."""
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
        """Send without blocking during a stream, because the server may wait for this client to receive."""
        while self._freed:
            protocol, body = self._freed.popleft()
            message = protocol.free(body)
            if message is not None:
                self.transport.post(message.parts, tag=message.tag)
        if not self._is_streaming:
            self.transport.flush(timeout_s=_FREE_S)

    def release(self) -> None:
        """Close when no batch is in use."""
        self._is_released = True
        self.flush()

    def close(self) -> None:
        """Close now, which ends all leases. Arrays stay valid: the mappings are this process's own. Idempotent."""
        if not self.is_closed:
            self.is_closed = True
            _LENDING.discard(self)
            self.transport.close()
            self._freed.clear()


class Stream:
    """A data set that is being received: iterate once."""

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
                        self._connection.end_stream()
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
        """Raise an error for a message that must not be received."""
        if tag is None or tag != self._error_tag:
            self.protocol.check_length(tag, length_bytes)
        elif length_bytes > _MAX_ERROR_BYTES:
            raise LimitError(
                f"{self._name}: an error message of {length_bytes} bytes; the maximum is {_MAX_ERROR_BYTES}"
            )

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
                raise type(error)(f"{self._name}: the server disconnected before the end: {error}", error) from None
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
            return self._read_addresses(header, body)
        except (InvalidDataError, ProtocolError) as error:
            raise type(error)(f"{self._name}, message {message.sequence}: {error}") from error

    def _read_addresses(self, header: BatchHeader, body: AddressBody) -> RecordBatch | None:
        connection = self._connection
        lengths = header.buffers()["length"]
        is_short = lengths.astype(np.uint64) > body.lengths
        if bool(is_short.any()):
            index = int(is_short.argmax())
            raise ProtocolError(
                f"buffer {index}: the header has {lengths[index]} bytes, the address {body.lengths[index]}"
            )
        if not body.total_bytes:
            connection.free(self.protocol, body)
            return self._decoder.finish(_with_offsets(header, np.zeros(lengths.size, np.int64), 0), EMPTY)
        try:
            located = connection.transport.regions.locate(body.addresses, body.lengths)
        except ProtocolError:
            if np.unique(body.addresses[body.lengths > 0] >> np.uint64(OFFSET_BITS)).size == 1:
                raise
            return self._gather(header, body)
        memory = connection.lend(self.protocol, body, located.region.memory)
        return self._decoder.finish(_with_offsets(header, located.offsets, memory.size), Buffer(memory, 0, memory.size))

    def _gather(self, header: BatchHeader, body: AddressBody) -> RecordBatch | None:
        """Copy buffers of several regions into one body; only other implementations send such bodies."""
        regions = self._connection.transport.regions
        if body.total_bytes > sum(regions[index].size_bytes for index in regions):
            raise LimitError(f"{body.total_bytes} bytes at addresses, more than all regions have")
        padded = (body.lengths.astype(np.int64) + 63) & -64
        ends = np.cumsum(padded)
        check_available(int(ends[-1]), self._name)
        gathered = allocate(int(ends[-1]))
        starts = ends - padded
        for start, view in zip(starts.tolist(), regions.resolve_all(body.addresses, body.lengths), strict=True):
            gathered[start : start + view.nbytes] = view
        self._connection.free(self.protocol, body)
        return self._decoder.finish(_with_offsets(header, starts, gathered.size), Buffer.of(gathered))


def _refuse_message(_tag: int | None, length_bytes: int) -> None:
    raise ConnectionLostError(f"the server sent a message of {length_bytes} bytes without a request")


def _with_offsets(header: BatchHeader, offsets: Any, body_bytes: int) -> BatchHeader:
    """Set the offsets of the header's buffers in a body of `body_bytes`, and return it; lengths stay the same."""
    template = header.template
    if template.buffer_count:
        raw = bytearray(header.raw[:])
        np.frombuffer(raw, "<i8", 2 * template.buffer_count, template.buffers_at)[::2] = offsets
        header.raw = bytes(raw)
    header.body_bytes = body_bytes
    return header


_LENDING: set[Connection] = set()
"""Connections with leases, kept alive until these end or the connection is closed."""
_CONNECTIONS: weakref.WeakSet[Connection] = weakref.WeakSet()


def _close_after_fork() -> None:
    """Close the sockets in a forked child: leases belong to the parent."""
    for connection in list(_CONNECTIONS):
        connection.is_closed = True
        close_inherited((connection.transport.fileno(),))
    _LENDING.clear()


os.register_at_fork(after_in_child=_close_after_fork)
