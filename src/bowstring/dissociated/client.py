"""The client's side of a stream («Client Sequence»): messages in, events and messages to send out.

A `ClientStream` does no I/O and uses no threads and no clock. The caller passes it each received message, sends
each returned `OutgoingMessage`, and reports a lost connection. After a protocol violation it accepts no more messages.
It is not thread-safe.

Metadata and bodies may use one connection or two, to one server or two, but one `ClientStream`: call
`receive_metadata` for plain messages and `receive_body` for tagged ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from bowstring.dissociated.events import (
    AllMessagesReceived,
    ClientEvent,
    RequestRefused,
    StreamComplete,
    StreamMessage,
)
from bowstring.dissociated.leases import LeaseTable
from bowstring.dissociated.limits import DEFAULT_LIMITS, ProtocolLimits
from bowstring.dissociated.message_assembler import MessageAssembler
from bowstring.dissociated.messages import (
    PREFIX_BYTES,
    SEQUENCE_MASK,
    AddressBody,
    Addresses,
    Body,
    BodyTag,
    BodyType,
    BytesLike,
    MessageType,
    OutgoingMessage,
    PackedBody,
    decode_addresses,
    decode_body_tag,
    decode_prefix,
    encode_free_data,
    is_error_tag,
)
from bowstring.dissociated.server import ConnectionRole
from bowstring.dissociated.states import (
    CLIENT_BODY_STREAM,
    CLIENT_METADATA_STREAM,
    StateMachine,
    StreamAction,
    StreamState,
)
from bowstring.errors import BowstringError, ConnectionLostError, InvalidArgumentError, LimitError, ProtocolError

HasBody: TypeAlias = Callable[[memoryview], bool]
"""Whether an IPC header has a body; the only use of Arrow's metadata in the protocol."""

# Globals: in Python 3.11, an attribute of an enumeration takes ten times as long.
_WANT_DATA, _METADATA, _BODY = StreamAction.WANT_DATA, StreamAction.METADATA, StreamAction.BODY
_END_OF_STREAM, _ALL_PAIRED, _ALL_FREED = StreamAction.END_OF_STREAM, StreamAction.ALL_PAIRED, StreamAction.ALL_FREED
_ENDING, _LEASED = StreamState.ENDING, StreamState.LEASED
_END_MESSAGE, _PACKED = MessageType.END_OF_STREAM, BodyType.PACKED


class ClientStream:
    """The client's side of one stream.

    `want_data` is the tag of the request, or the tags of the requests for `ConnectionRole.METADATA` and
    `ConnectionRole.BODIES`. With `in_order`, a gap in the sequence numbers of the metadata messages is an error;
    otherwise messages may arrive in any order. A message with the tag `error_data`, which no body may
    have, is an error of the server. `first_sequence` is for tests of the roll-over. Raises `InvalidArgumentError` if a
    body may have the tag `error_data` or it has reserved bits.
    """

    __slots__ = (
        "_assembler",
        "_bodies",
        "_error_data",
        "_first_sequence",
        "_free_data",
        "_has_body",
        "_has_schema",
        "_in_order",
        "_last_sequence",
        "_limits",
        "_metadata",
        "_want_data",
        "leases",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 -- all but two are options
        self,
        want_data: int | Mapping[ConnectionRole, int],
        free_data: int | None = None,
        *,
        has_body: HasBody,
        error_data: int | None = None,
        limits: ProtocolLimits = DEFAULT_LIMITS,
        in_order: bool = True,
        first_sequence: int = 0,
    ) -> None:
        if error_data is not None and not is_error_tag(error_data):
            raise InvalidArgumentError(
                f"error_data: expected zeros in bits 32 to 55 and more than 1 in bits 56 to 63, found {error_data:#x}"
            )
        self._want_data = {ConnectionRole.BOTH: want_data} if isinstance(want_data, int) else dict(want_data)
        self._free_data = free_data
        self._has_body = has_body
        self._error_data = error_data
        self._limits = limits
        self._in_order = in_order
        self._first_sequence = first_sequence
        self._last_sequence = (first_sequence - 1) & SEQUENCE_MASK
        self._has_schema = False
        self._metadata = StateMachine(CLIENT_METADATA_STREAM)
        self._bodies = StateMachine(CLIENT_BODY_STREAM)
        self._assembler = MessageAssembler(limits, start=first_sequence)
        self.leases = LeaseTable("this client", limits)

    @property
    def has_all_messages(self) -> bool:
        """Whether all messages were delivered."""
        return self._metadata.state is StreamState.COMPLETE

    @property
    def is_complete(self) -> bool:
        """Whether all messages were delivered and all addresses freed."""
        return self._bodies.state is StreamState.COMPLETE

    @property
    def expects_input(self) -> bool:
        """Whether the server has to send something."""
        return self._metadata.state in (StreamState.STREAMING, StreamState.ENDING)

    @property
    def has_unpaired_messages(self) -> bool:
        """Whether received messages wait for their counterpart or for an earlier message."""
        return self._assembler.num_pending > 0

    def expects_input_for(self, role: ConnectionRole) -> bool:
        """Whether the server has to send something over the connection with this role.

        Whether the server sends bodies is not known before their metadata is received.
        """
        if role is ConnectionRole.BOTH or not self.expects_input:
            return self.expects_input
        return (
            self._assembler.has_missing_body if role is ConnectionRole.BODIES else not self._assembler.has_all_metadata
        )

    def request(self, ticket: bytes, role: ConnectionRole = ConnectionRole.BOTH) -> OutgoingMessage:
        """Return the <want_data> message for the connection with this role; by default, for all connections.

        Raises `InvalidArgumentError` if it was requested already, or there is no tag for this role.
        """
        if len(ticket) > self._limits.max_ticket_bytes:
            raise InvalidArgumentError(
                f"ticket: {len(ticket)} bytes, more than max_ticket_bytes = {self._limits.max_ticket_bytes}"
            )
        if role not in self._want_data:
            roles = " or ".join(str(role) for role in self._want_data)
            raise InvalidArgumentError(f"client stream: want_data has tags for {roles}, not for {role}")
        streams = [] if role is ConnectionRole.BODIES else [self._metadata]
        if role is not ConnectionRole.METADATA:
            streams.append(self._bodies)
        for stream in streams:
            # All are checked before any changes: a refused request leaves both machines as they were.
            if not stream.allows(_WANT_DATA):
                raise InvalidArgumentError(
                    "client stream: the request was made already; use another ClientStream for another stream"
                )
        for stream in streams:
            stream.apply(_WANT_DATA)
        return OutgoingMessage(self._want_data[role], (ticket,), len(ticket))

    def check_tag_and_length(self, tag: int | None, length_bytes: int) -> None:
        """Raise `ProtocolError` or `LimitError` if `receive` would refuse a message for its tag or length.

        Call it before allocating memory for the message.
        """
        try:
            if tag is None:
                # Without changing the state: the message has not arrived.
                self._metadata.next_state(_METADATA)
                self._limits.check_length("metadata message", length_bytes, "max_metadata_bytes")
            elif tag == self._error_data:
                self._limits.check_length("error message", length_bytes, "max_error_bytes")
            else:
                self._bodies.next_state(_BODY)
                self._check_body(decode_body_tag(tag), length_bytes)
        except BowstringError:
            self._record_violation()
            raise

    def _check_body(self, tag: BodyTag, length_bytes: int) -> None:
        """Raise `ProtocolError` or `LimitError` for a body that must not be received."""
        sequence, body_type = tag
        if body_type is _PACKED:
            self._limits.check_length(f"body {sequence}", length_bytes, "max_packed_body_bytes")
        elif self._free_data is None:
            raise ProtocolError(f"body {sequence}: found addresses, but the URI has no free_data")
        elif length_bytes > 16 * (self._limits.max_buffers + 1):
            limit = self._limits.max_buffers
            raise LimitError(f"body {sequence}: {length_bytes} bytes of addresses, more than max_buffers = {limit}")

    def receive(self, tag: int | None, body: Any, length_bytes: int | None = None) -> list[ClientEvent]:
        """Process a plain or tagged message; see `receive_metadata` and `receive_body`."""
        if tag is None:
            return self.receive_metadata(body)
        if tag == self._error_data:
            self.check_tag_and_length(tag, len(body))
            return [RequestRefused(bytes(body))]
        return self.receive_body(tag, body, length_bytes)

    def receive_metadata(self, data: BytesLike) -> list[ClientEvent]:
        """Process a plain message. The events refer to `data`. Raises `ProtocolError` or `LimitError`."""
        try:
            self._limits.check_length("metadata message", len(data), "max_metadata_bytes")
            message_type, sequence = decode_prefix(data)
            if message_type is _END_MESSAGE:
                return self._receive_end(sequence, len(data))
            self._metadata.apply(_METADATA)
            self._check_order(sequence, "metadata message")
            self._last_sequence = sequence
            header = memoryview(data)[PREFIX_BYTES:]
            # Decodes the header, so it is called in the order of the messages on an ordered connection.
            needs_body = self._has_body(header)
            if needs_body and not self._has_schema and sequence == self._first_sequence:
                raise ProtocolError("metadata message 0: expected a schema, found a header with a body")
            return self._create_events(self._assembler.add_metadata(sequence, header, needs_body))
        except BowstringError:
            self._record_violation()
            raise

    def receive_body(self, tag: int, body: Any, length_bytes: int | None = None) -> list[ClientEvent]:
        """Process a tagged message. A body of type 0 may be any object with its `length_bytes`, not only bytes.

        Raises `ProtocolError` or `LimitError`.
        """
        length_bytes = len(body) if length_bytes is None else length_bytes
        try:
            # The state before the fields: a body after the end of the stream is a violation, whatever it has.
            self._bodies.apply(_BODY)
            sequence, body_type = fields = decode_body_tag(tag)
            self._check_body(fields, length_bytes)
            is_packed = body_type is _PACKED
            content: Body = PackedBody((body,), length_bytes) if is_packed else self._lease_addresses(body)
            return self._create_events(self._assembler.add_body(sequence, content))
        except BowstringError:
            self._record_violation()
            raise

    def free(self, *bodies: AddressBody | Addresses) -> OutgoingMessage | None:
        """Return one <free_data> message for bodies, or for some of their addresses.

        None if there are no addresses or the connection is closed. Raises `InvalidArgumentError` for addresses that are
        not leased.
        """
        parts = [body.addresses if isinstance(body, AddressBody) else np.asarray(body, "<u8") for body in bodies]
        addresses = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, "<u8"), *parts])
        # A finalizer may free a body after its connection has ended, which has ended the lease already.
        if not addresses.size or not self._bodies.allows(StreamAction.FREE_DATA) or self._free_data is None:
            return None
        try:
            self.leases.free(addresses)
        except ProtocolError as error:
            raise InvalidArgumentError(str(error)) from None
        self._bodies.apply(StreamAction.FREE_DATA)
        self._complete_if_freed()
        data = encode_free_data(addresses)
        return OutgoingMessage(self._free_data, (data,), len(data))

    def connection_lost(self) -> None:
        """Record that a connection ended. Raises `ConnectionLostError` unless all messages were delivered."""
        has_all_messages = self.has_all_messages
        missing = self._assembler.describe_missing_messages() if not has_all_messages else ""
        for machine in (self._metadata, self._bodies):
            if machine.allows(StreamAction.CONNECTION_LOST):
                machine.apply(StreamAction.CONNECTION_LOST)
        self.leases.free_all()
        if not has_all_messages:
            raise ConnectionLostError(f"the server disconnected before it sent {missing}")

    def _receive_end(self, sequence: int, length_bytes: int) -> list[ClientEvent]:
        if length_bytes != PREFIX_BYTES:
            raise ProtocolError(
                f"end of stream {sequence}: expected exactly {PREFIX_BYTES} bytes, found {length_bytes}"
            )
        self._metadata.apply(_END_OF_STREAM)
        self._check_order(sequence, "end of stream")
        if not self._has_schema and sequence == self._first_sequence:
            raise ProtocolError("end of stream 0: expected a schema before it")
        self._assembler.add_end(sequence)
        # The end has the number after the last message, and takes none itself.
        self._last_sequence = (sequence - 1) & SEQUENCE_MASK
        return self._create_events([])

    def _lease_addresses(self, data: BytesLike) -> AddressBody:
        body = decode_addresses(data, self._limits)
        self.leases.lease_body(body)
        return body

    def _check_order(self, sequence: int, kind: str) -> None:
        expected = (self._last_sequence + 1) & SEQUENCE_MASK
        if self._in_order and sequence != expected:
            raise ProtocolError(f"{kind}: expected sequence number {expected}, found {sequence}")

    def _create_events(self, messages: list[StreamMessage]) -> list[ClientEvent]:
        events: list[ClientEvent] = [*messages]
        if messages:
            self._has_schema = True
        if self._metadata.state is _ENDING and self._assembler.is_complete:
            self._metadata.apply(_ALL_PAIRED)
            self._bodies.apply(_ALL_PAIRED)
            events.append(AllMessagesReceived(self._assembler.next_sequence))
            if self._complete_if_freed():
                events.append(StreamComplete())
        return events

    def _complete_if_freed(self) -> bool:
        if self._bodies.state is _LEASED and not self.leases:
            self._bodies.apply(_ALL_FREED)
            return True
        return False

    def _record_violation(self) -> None:
        self._metadata.record_violation()
        self._bodies.record_violation()
        self.leases.free_all()

    def __repr__(self) -> str:
        metadata, bodies = self._metadata.state.value, self._bodies.state.value
        return f"<ClientStream: metadata {metadata}, bodies {bodies}, {self.leases.outstanding} addresses leased>"
