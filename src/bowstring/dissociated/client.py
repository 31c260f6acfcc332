"""The client's side of a stream («Client Sequence»): messages in; messages to send and events out.

It does no input or output, starts no thread and looks at no clock. The caller passes on each message that a transport
delivers, sends each `Message` that comes back, and tells when a connection is lost. After a peer broke the protocol, an
object takes nothing more. Threads that share one have to take turns.

Metadata and bodies may travel over one connection or two. A client has one object for both, and tells it from which
connection a message came by calling `receive_metadata` (plain messages) or `receive_body` (tagged ones).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from bowstring.dissociated.events import (
    ClientEvent,
    MessageReady,
    StreamComplete,
    StreamEnded,
)
from bowstring.dissociated.leases import Leases
from bowstring.dissociated.limits import DEFAULT_LIMITS, Limits
from bowstring.dissociated.pairing import MessageAssembler, StreamMessage
from bowstring.dissociated.states import (
    CLIENT_BODY_STREAM,
    CLIENT_METADATA_STREAM,
    Move,
    Position,
    State,
)
from bowstring.dissociated.wire import (
    PREFIX_BYTES,
    SEQUENCE_MASK,
    AddressBody,
    Addresses,
    Body,
    BodyType,
    BytesLike,
    Message,
    MessageType,
    PackedBody,
    decode_addresses,
    decode_prefix,
    decode_tag,
    encode_free,
)
from bowstring.errors import BowstringError, ConnectionLostError, LimitError, ProtocolError, UsageError

HasBody: TypeAlias = Callable[[Any], bool]
"""Whether an IPC header announces a body: all that the protocol needs to know of Arrow."""


class ClientConnection:
    """The client's side of one stream.

    `in_order` says that the transport keeps the order of the metadata messages, so that a gap is an error at once;
    without it, gaps may fill until the connection ends. `first_sequence` is for trying the roll-over.
    """

    __slots__ = ("_bodies", "_first_sequence", "_free_data", "_has_body", "_in_order", "_last_sequence", "_limits",
                 "_metadata", "_pairing", "_started", "_want_data", "held")  # fmt: skip

    def __init__(
        self,
        want_data: int,
        free_data: int | None = None,
        *,
        has_body: HasBody,
        limits: Limits = DEFAULT_LIMITS,
        in_order: bool = True,
        first_sequence: int = 0,
    ) -> None:
        self._want_data = want_data
        self._free_data = free_data
        self._has_body = has_body
        self._limits = limits
        self._in_order = in_order
        self._first_sequence = first_sequence
        self._last_sequence = (first_sequence - 1) & SEQUENCE_MASK
        self._started = False
        self._metadata = Position(CLIENT_METADATA_STREAM)
        self._bodies = Position(CLIENT_BODY_STREAM)
        self._pairing = MessageAssembler(limits, start=first_sequence, stream="client stream")
        self.held = Leases("this client", limits)

    @property
    def metadata_state(self) -> State:
        """Where the metadata stream stands."""
        return self._metadata.state

    @property
    def body_state(self) -> State:
        """Where the stream of bodies stands."""
        return self._bodies.state

    @property
    def is_ended(self) -> bool:
        """Whether all messages were given out."""
        return self._metadata.state is State.COMPLETE

    @property
    def is_complete(self) -> bool:
        """Whether, beyond that, every address was freed."""
        return self._bodies.state is State.COMPLETE

    def request(self, ticket: bytes) -> Message:
        """The <want_data> message; to be sent over the metadata connection and, where that is another one, the
        bodies' too.
        """
        if len(ticket) > self._limits.max_ticket_bytes:
            raise UsageError(
                f"ticket: {len(ticket)} bytes, more than max_ticket_bytes = {self._limits.max_ticket_bytes}"
            )
        if not self._metadata.allows(Move.WANT_DATA):
            raise UsageError(
                "client stream: it was asked for already; make another ClientConnection for another stream"
            )
        self._metadata.move(Move.WANT_DATA)
        self._bodies.move(Move.WANT_DATA)
        return Message(self._want_data, (ticket,), len(ticket))

    def check_length(self, tag: int | None, length_bytes: int) -> None:
        """Raise `ProtocolError` or `LimitError` for a message that `receive` would refuse for its tag or length.

        To be called before memory is allocated for the message.
        """
        try:
            if tag is None:
                self._metadata.check(Move.METADATA)
                self._limits.check("metadata message", length_bytes, "max_metadata_bytes")
                return
            self._bodies.check(Move.BODY)
            sequence, body_type = decode_tag(tag)
            if body_type is BodyType.PACKED:
                self._limits.check(f"body {sequence}", length_bytes, "max_packed_body_bytes")
            elif self._free_data is None:
                raise ProtocolError(f"body {sequence}: found addresses, but the URI has no free_data")
            elif length_bytes > 16 * (self._limits.max_buffers + 1):
                limit = self._limits.max_buffers
                raise LimitError(f"body {sequence}: {length_bytes} bytes of addresses, more than max_buffers = {limit}")
        except BowstringError:
            self._fail()
            raise

    def receive(self, tag: int | None, body: Any, length_bytes: int | None = None) -> list[ClientEvent]:
        """Take any message of a connection that carries both; see `receive_metadata` and `receive_body`."""
        return self.receive_metadata(body) if tag is None else self.receive_body(tag, body, length_bytes)

    def receive_metadata(self, data: BytesLike) -> list[ClientEvent]:
        """Take a plain message. The events keep a view of `data`. Raises `ProtocolError` or `LimitError`."""
        self.check_length(None, len(data))
        try:
            message_type, sequence = decode_prefix(data)
            if message_type is MessageType.END_OF_STREAM:
                return self._receive_end(sequence, len(data))
            self._metadata.move(Move.METADATA)
            self._expect_in_order(sequence, "metadata message")
            self._last_sequence = sequence
            header = memoryview(data)[PREFIX_BYTES:]
            needs_body = self._has_body(header)
            if needs_body and not self._started and sequence == self._first_sequence:
                raise ProtocolError("metadata message 0: expected a schema, found a header that announces a body")
            return self._given_out(self._pairing.add_metadata(sequence, header, needs_body))
        except BowstringError:
            self._fail()
            raise

    def receive_body(self, tag: int, body: Any, length_bytes: int | None = None) -> list[ClientEvent]:
        """Take a tagged message; `body` is bytes, or any handle with `length_bytes` where the body is of type 0.

        Raises `ProtocolError` or `LimitError`.
        """
        length_bytes = len(body) if length_bytes is None else length_bytes
        self.check_length(tag, length_bytes)
        try:
            self._bodies.move(Move.BODY)
            sequence, body_type = decode_tag(tag)
            is_packed = body_type is BodyType.PACKED
            content: Body = PackedBody((body,), length_bytes) if is_packed else self._read_addresses(body)
            return self._given_out(self._pairing.add_body(sequence, content))
        except BowstringError:
            self._fail()
            raise

    def free(self, body: AddressBody | Addresses) -> Message | None:
        """The <free_data> message for a body whose memory is needed no longer, or for single addresses of it.

        None where there is nothing to send: no addresses, or a connection that is gone already. `is_complete` tells
        afterwards whether they were the last. Raises `UsageError` for addresses that are not held.
        """
        addresses = body.addresses if isinstance(body, AddressBody) else np.asarray(body, "<u8")
        if not addresses.size or not self._bodies.allows(Move.FREE_DATA) or self._free_data is None:
            return None
        try:
            self.held.free(addresses)
        except ProtocolError as error:
            raise UsageError(str(error)) from None
        self._bodies.move(Move.FREE_DATA)
        self._check_freed()
        data = encode_free(addresses)
        return Message(self._free_data, (data,), len(data))

    def connection_lost(self) -> None:
        """A connection ended. Raises `ConnectionLostError` naming what is missing, unless all messages were given
        out.
        """
        was_ended = self.is_ended
        missing = self._pairing.missing() if not was_ended else ""
        for position in (self._metadata, self._bodies):
            if position.allows(Move.CONNECTION_LOST):
                position.move(Move.CONNECTION_LOST)
        self.held.free_all()
        if not was_ended:
            raise ConnectionLostError(f"the server is gone before {missing} came")

    def _receive_end(self, sequence: int, length_bytes: int) -> list[ClientEvent]:
        if length_bytes != PREFIX_BYTES:
            raise ProtocolError(
                f"end of stream {sequence}: expected exactly {PREFIX_BYTES} bytes, found {length_bytes}"
            )
        self._metadata.move(Move.END_OF_STREAM)
        self._expect_in_order(sequence, "end of stream")
        if not self._started and sequence == self._first_sequence:
            raise ProtocolError("end of stream 0: expected a schema before it")
        self._pairing.add_end(sequence)
        self._last_sequence = (sequence - 1) & SEQUENCE_MASK
        return self._given_out([])

    def _read_addresses(self, data: BytesLike) -> AddressBody:
        body = decode_addresses(data, self._limits)
        self.held.lend(body.addresses, lengths=body.lengths)
        return body

    def _expect_in_order(self, sequence: int, what: str) -> None:
        expected = (self._last_sequence + 1) & SEQUENCE_MASK
        if self._in_order and sequence != expected:
            raise ProtocolError(f"{what}: expected sequence number {expected}, found {sequence}")

    def _given_out(self, messages: list[StreamMessage]) -> list[ClientEvent]:
        events: list[ClientEvent] = [MessageReady(message) for message in messages]
        self._started = self._started or bool(messages)
        if self._pairing.is_complete:
            self._metadata.move(Move.ALL_PAIRED)
            self._bodies.move(Move.ALL_PAIRED)
            events.append(StreamEnded(self._pairing.next_sequence))
            if self._check_freed():
                events.append(StreamComplete())
        return events

    def _check_freed(self) -> bool:
        if self._bodies.state is State.HOLDING and not self.held:
            self._bodies.move(Move.ALL_FREED)
            return True
        return False

    def _fail(self) -> None:
        self._metadata.fail()
        self._bodies.fail()
        self.held.free_all()

    def __repr__(self) -> str:
        metadata, bodies = self._metadata.state.value, self._bodies.state.value
        return f"<ClientConnection: metadata {metadata}, bodies {bodies}, {self.held.outstanding} addresses held>"
