"""One connection of a client: its streams in order, and their leases («Client Sequence»).

A batch is leased until no array, view or buffer of it is left. All of them have one NumPy array over the region as
their base; when it is garbage-collected, in any thread, the lease is released, and <free_data> is sent.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bowstring.arrays.record_batch import RecordBatch
from bowstring.datatypes.schema import Schema
from bowstring.dissociated.client import ClientStream
from bowstring.dissociated.events import AllMessagesReceived, RequestRefused, StreamMessage
from bowstring.dissociated.limits import DEFAULT_LIMITS
from bowstring.dissociated.messages import AddressBody, Addresses, BytesLike, PackedBody
from bowstring.dissociated.server import ConnectionRole
from bowstring.dissociated.uri import StreamURI
from bowstring.errors import (
    BowstringError,
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    InvalidArgumentError,
    InvalidDataError,
    ProtocolError,
    add_location,
)
from bowstring.ipc.metadata.header import BatchHeader
from bowstring.ipc.stream import Decoder
from bowstring.memory.buffer import EMPTY, Buffer, Memory
from bowstring.memory.closable import call_in_forked_children, call_on_error
from bowstring.memory.device import DeviceMemory
from bowstring.sharing.dataset_locations import is_local_or_encrypted
from bowstring.sharing.processes import redirect_to_devnull
from bowstring.sharing.recording.recorder import Recorder
from bowstring.sharing.uris import (
    PUBLISHED_ADDRESS_PREFIX,
    Ticket,
    decode_error_message,
    parse_error_tag,
    servers_by_role,
)
from bowstring.transports.address_bodies import Lease, MessageLocated
from bowstring.transports.base import Channel, TransportOptions
from bowstring.transports.blocking import BlockingSession, dial
from bowstring.transports.observer import EventDirection
from bowstring.transports.registry import find_transport
from bowstring.transports.session import Session, SessionFailed, SessionOptions
from bowstring.transports.tls import TlsOptions

_UINT8 = np.dtype(np.uint8)
_MESSAGES = (StreamMessage, MessageLocated)


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How a client connects and reads; see `bowstring.connect`."""

    timeout_s: float = 30.0
    tls: TlsOptions | None = None
    copy: bool = False
    allow_other_users: bool = False
    prefetch_bytes: int = 0

    def for_servers(self, servers: Iterable[StreamURI]) -> ConnectionOptions:
        """Return the options without `tls` if none of the servers of a location has TLS: another location may."""
        has_tls = any(find_transport(server.scheme, server).supports_tls for server in servers)
        return self if has_tls else replace(self, tls=None)


class Connection:
    """A connection to one server, or two connections to the servers of the metadata and of the bodies.

    `request_stream` may be called again after the last stream was read to its end.
    """

    def __init__(self, uri: StreamURI, session: Session) -> None:
        self.uri = uri
        self.servers = servers_by_role(uri)
        tags = (parse_error_tag(server) for server in self.servers.values())
        self.error_data = next((tag for tag in tags if tag is not None), None)
        self.want_data = {role: server.want_data for role, server in self.servers.items()}
        self.is_ordered = session.channel_for(ConnectionRole.METADATA).traits.is_ordered
        self.decoder = Decoder()
        """Decodes one stream after the other."""
        self.driver = BlockingSession(session)
        self._leased_memories: dict[object, weakref.ref[Any]] = {}
        self._is_closing = False
        _CONNECTIONS.add(self)

    @classmethod
    def dial(cls, uri: StreamURI, options: ConnectionOptions, recorder: Recorder | None = None) -> Connection:
        """Connect to the servers of a URI.

        Raises `ConnectionLostError`, `DeadlineError`, and `InvalidArgumentError` for a scheme without a transport, or
        if only one of two servers has TLS.
        """
        servers, tls, timeout_s = servers_by_role(uri), options.tls, options.timeout_s
        transports = {role: find_transport(server.scheme, server) for role, server in servers.items()}
        if tls is not None and not any(transport.supports_tls for transport in transports.values()):
            find_transport(uri.scheme, uri, tls)
        if tls is None or not tls.allow_unencrypted:
            _check_uniform_encryption(servers)
        limits = TransportOptions(timeout_s=timeout_s, max_tagged_bytes=DEFAULT_LIMITS.max_packed_body_bytes)
        channels: dict[ConnectionRole, Channel] = {}
        with ExitStack() as on_error:
            for role, transport in transports.items():
                channel_options = replace(
                    limits,
                    tls=tls if transport.supports_tls else None,
                    allow_other_users=options.allow_other_users and transport.identifies_users,
                )
                try:
                    channels[role] = on_error.enter_context(dial(transport, servers[role].address, channel_options))
                except ConnectionLostError as error:
                    explanation = _explain_lost_connection(servers[role], error)
                    if explanation is error:  # a cause of itself would be an endless chain
                        raise
                    raise explanation from error
            memory = transport.open_remote_memory(channels[role], servers[role].remote_handle)
            observers = {}
            if recorder is not None:
                observers = {role: recorder.observe(server, EventDirection.SENT) for role, server in servers.items()}
            on_error.pop_all()
        session_options = SessionOptions(input_timeout_s=timeout_s, stall_s=timeout_s, copies_memory=options.copy)
        session = Session(channels, memory, now=time.monotonic(), options=session_options, observers=observers)
        return cls(uri, session)

    @property
    def is_closed(self) -> bool:
        """Whether the connection was closed, by `close` or after an error."""
        return self.driver.is_closed

    def request_stream(self, ticket: Ticket) -> Stream:
        """Request a data set, and read its schema. Raises the server's error, and errors of the connection and data.

        A request for bytes becomes one for addresses if the client copies and can do that itself.
        """
        memory, options = self.driver.session.memory, self.driver.session.options
        *_, body_server = self.servers.values()
        can_free = body_server.free_data is not None
        if ticket.is_packed and options.copies_memory and can_free and memory is not None and memory.can_copy_locally:
            ticket = replace(ticket, is_packed=False)
        stream = Stream(self, ticket)
        with call_on_error(self.close):
            self.driver.start_request(stream.protocol, stream.requests)
            stream.read_schema()
        return stream

    def detach_stream(self) -> None:
        """Detach the stream, which was read to its end, and send the addresses that were freed meanwhile."""
        # Without a core, `flush` may wait until the addresses are sent: no stream is left that the server could be
        # sending.
        self.driver.session.core = None
        self.driver.flush()

    def wrap_leased_memory(self, lease: Lease, memory: Any) -> Memory:
        """Return the memory as a `Memory` that frees the addresses when it is garbage-collected."""
        is_on_device = isinstance(memory, DeviceMemory)
        base: Any = memory.duplicate() if is_on_device else np.frombuffer(memory, _UINT8)
        remote_memory = self.driver.session.memory
        assert remote_memory is not None
        # A caller may drop the connection and keep its batches.
        _LEASING_CONNECTIONS.add(self)
        key = object()  # the id of `base` may be used again before `free_body` is called

        def free_body() -> None:
            self._leased_memories.pop(key, None)
            self.driver.session.release_lease(lease)
            if self._is_closing and not self._leased_memories:
                self.close()

        # The callback is called only as long as the reference exists, so it is kept here. It may run in any thread and
        # in the middle of any code: `release_lease` never waits for a lock.
        self._leased_memories[key] = weakref.ref(base, lambda _: remote_memory.call_after_reads(free_body))
        return base if is_on_device else Memory(base)

    def close_when_unused(self) -> None:
        """Close when no batch is in use."""
        self._is_closing = True
        self.driver.flush()
        if not self._leased_memories:
            self.close()

    def close(self) -> None:
        """Close now, which ends all leases. Arrays stay valid: the mappings are this process's own. Idempotent.

        As `close_when_unused` if arrays would not stay valid.
        """
        memory = self.driver.session.memory
        if self._leased_memories and memory is not None and not memory.outlives_connection:
            self.close_when_unused()
            return
        _LEASING_CONNECTIONS.discard(self)
        self.driver.close()


def _check_uniform_encryption(servers: Mapping[ConnectionRole, StreamURI]) -> None:
    """Raise `InvalidArgumentError` if only one of two servers has TLS and the other one is remote."""
    if not any(find_transport(server.scheme, server).supports_tls for server in servers.values()):
        return
    for role, server in servers.items():
        if not is_local_or_encrypted(server):
            raise InvalidArgumentError(
                f"{server.scheme}: the connection to the server of the {role.value} is not encrypted, but the other "
                "one is: use tcp+tls, or TlsOptions(allow_unencrypted=True)"
            )


class Stream:
    """A data set that is being received: iterate once."""

    def __init__(self, connection: Connection, ticket: Ticket) -> None:
        self._connection = connection
        self._ticket = ticket
        self._decoder = connection.decoder
        self._decoder.reset()
        # In the order of the messages. On an ordered connection they are decoded when they arrive, often before their
        # bodies.
        self._headers: deque[BatchHeader] = deque()
        *_, body_server = connection.servers.values()
        self.protocol = ClientStream(
            connection.want_data,
            body_server.free_data,
            has_body=self._decode_header if connection.is_ordered else self._has_body,
            error_data=connection.error_data,
            in_order=connection.is_ordered,
        )
        tickets = {ConnectionRole.BOTH: ticket}
        if ConnectionRole.BODIES in connection.servers:
            body_ticket = replace(ticket, names=(body_server.get_parameter("ticket") or "",))
            tickets = {ConnectionRole.METADATA: replace(ticket, is_packed=False), ConnectionRole.BODIES: body_ticket}
        self.requests = {role: self.protocol.request(each.encode(), role) for role, each in tickets.items()}
        """The request for the channel of each role."""

    def read_schema(self) -> None:
        """Receive the first message, and set `schema`."""
        self._receive_message()
        self.schema: Schema = self._decoder.schema

    def __iter__(self) -> Iterator[RecordBatch]:
        try:
            while (message := self._receive_message()) is not None:
                batch = self._decode_batch(message)
                if batch is not None:
                    yield batch
            # From now on only batches use the dictionaries, whose addresses are freed with the last of them.
            self._decoder.reset()
            self._connection.detach_stream()
        except BowstringError:
            self._connection.close()
            raise

    def _has_body(self, header: memoryview) -> bool:
        return self._decoder.has_body(bytes(header))

    def _decode_header(self, header: BytesLike) -> bool:
        """Decode the header of the next message in order; return whether it has a body."""
        batch_header = self._decoder.decode_header(bytes(header))
        if batch_header is not None:
            self._headers.append(batch_header)
        return batch_header is not None

    def _receive_message(self) -> StreamMessage | MessageLocated | None:
        """Wait for the next message; None at the end of the stream. Raises `ClosedError` if it was closed meanwhile."""
        connection = self._connection
        if connection.is_closed:
            raise ClosedError(f"{self._ticket}: the connection was closed before its end")
        while True:
            event = connection.driver.next_event()
            if isinstance(event, _MESSAGES):
                if not connection.is_ordered:
                    message = event.message if isinstance(event, MessageLocated) else event
                    self._decode_header(message.header)
                return event
            if isinstance(event, AllMessagesReceived):
                return None
            if isinstance(event, RequestRefused):
                raise decode_error_message(event.error_data, str(self._ticket))
            if isinstance(event, SessionFailed):
                raise self._add_ticket_to_error(event.error) from event.error

    def _add_ticket_to_error(self, error: BowstringError) -> BowstringError:
        """Add the name of the data set to an error of the session."""
        if isinstance(error, DeadlineError):
            return add_location(error, f"{self._ticket}: the server sends nothing")
        if isinstance(error, ConnectionLostError):
            lost = add_location(error, f"{self._ticket}: the server disconnected before the end")
            return _explain_lost_connection(self._connection.uri, lost)
        if isinstance(error, ProtocolError | InvalidDataError):
            return add_location(error, str(self._ticket), ", ")
        return error

    def _decode_batch(self, event: StreamMessage | MessageLocated) -> RecordBatch | None:
        header = self._headers.popleft()
        try:
            if isinstance(event, MessageLocated):
                return self._decode_located_batch(header, event)
            body = event.body
            assert isinstance(body, PackedBody)
            return self._decoder.decode_body(header, Buffer.of(body.parts[0]) if body.length_bytes else EMPTY)
        except (InvalidDataError, ProtocolError) as error:
            message = event.message if isinstance(event, MessageLocated) else event
            raise add_location(error, f"{self._ticket}, message {message.sequence}") from error

    def _decode_located_batch(self, header: BatchHeader, event: MessageLocated) -> RecordBatch | None:
        body = event.message.body
        assert isinstance(body, AddressBody)
        count = header.template.buffer_count
        if body.addresses.size != count:
            raise ProtocolError(f"expected {count} addresses, as the header's buffers, found {body.addresses.size}")
        _move_buffers(header, event.offsets, body.lengths)
        # From now on the body is the whole extent: the reader checks that each buffer is inside.
        header.body_bytes = len(event.memory)
        if event.lease is None:
            buffer = Buffer.of(event.memory) if header.body_bytes else EMPTY
        else:
            buffer = Buffer(self._connection.wrap_leased_memory(event.lease, event.memory), 0, header.body_bytes)
        return self._decoder.decode_body(header, buffer)


def _move_buffers(header: BatchHeader, offsets: npt.NDArray[Any], body_lengths: Addresses) -> None:
    """Set the offsets of the header's buffers in the body; lengths stay the same.

    Raises `ProtocolError` if a buffer of the header is longer than the body's.
    """
    template = header.template
    if not template.buffer_count:
        return
    raw = bytearray(header.raw[:])
    numbers = np.frombuffer(raw, np.uint64, 2 * template.buffer_count, template.buffers_at)
    lengths = numbers[1::2]
    if lengths.tobytes() != body_lengths.tobytes():  # seldom; comparing the numbers takes ten times as long
        is_short = lengths > body_lengths  # as a negative length is
        if bool(is_short.any()):
            index = int(is_short.argmax())
            length, body_length = lengths.astype(np.int64)[index], body_lengths[index]
            raise ProtocolError(f"buffer {index}: the header has {length} bytes, the address {body_length}")
    numbers[::2] = offsets
    header.raw = bytes(raw)


_LEASING_CONNECTIONS: set[Connection] = set()
"""Connections with leases, kept alive until these end or the connection is closed."""
_CONNECTIONS: weakref.WeakSet[Connection] = weakref.WeakSet()


def _close_in_child(connection: Connection) -> None:
    """Close the sockets of a connection in a forked child: leases belong to the parent."""
    connection.driver.is_closed = True
    # Not `shut_down`, which would end the connection of the parent, too.
    for channel in connection.driver.session.channels.values():
        redirect_to_devnull(channel.descriptors())


call_in_forked_children(_close_in_child, _CONNECTIONS)
os.register_at_fork(after_in_child=_LEASING_CONNECTIONS.clear)


def _explain_lost_connection(uri: StreamURI, error: ConnectionLostError) -> ConnectionLostError:
    """Return an error for published data that no longer exists, if its host agent has ended."""
    if not uri.address.startswith(PUBLISHED_ADDRESS_PREFIX):
        return error
    try:
        dial(find_transport(uri.scheme, uri), uri.address, TransportOptions()).close()
    except ConnectionLostError:
        return ConnectionLostError(
            f"the published data no longer exists, because its host agent or the process that published it has ended: "
            f"publish it again ({error})",
            error,
        )
    return error
