"""The server's side of a stream («Server Sequence»): messages in; messages to send and events out.

A `ServerConnection` does no I/O and uses no threads and no clock. The caller passes it each received message, sends
each returned `OutgoingMessage`, and reports a lost connection. After a protocol violation it accepts no more messages.
It is not thread-safe.

Metadata and bodies may use one connection or two. A server has one `ServerConnection` per connection, and its
`ConnectionRole` is the kind of messages that it carries; it may follow from the tag of the request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from bowstring.dissociated.events import (
    AddressesFreed,
    DataRequested,
    ServerEvent,
    StreamComplete,
)
from bowstring.dissociated.leases import LeaseTable
from bowstring.dissociated.limits import DEFAULT_LIMITS, ProtocolLimits
from bowstring.dissociated.messages import (
    PREFIX_BYTES,
    SEQUENCE_MASK,
    AddressBody,
    Body,
    BodyType,
    BytesLike,
    MessageType,
    OutgoingMessage,
    PackedBody,
    decode_free_data,
    encode_addresses,
    encode_body_tag,
    encode_prefix,
)
from bowstring.dissociated.states import (
    SERVER_STREAM,
    StateMachine,
    StreamAction,
    StreamState,
)
from bowstring.errors import BowstringError, InvalidArgumentError, ProtocolError

# Messages up to this length are received in any case, for an error that names the address; longer ones would let a
# client make the server allocate memory that no address justifies.
_SHORT_BYTES = 1 << 16


class ConnectionRole(Enum):
    """The messages that a server's connection carries."""

    BOTH = "metadata and bodies"
    METADATA = "metadata"
    BODIES = "bodies"

    __hash__ = object.__hash__  # in C; `Enum.__hash__` is a Python function that takes most of a look-up


class ServerConnection:
    """The server's side of one connection: a stream per <want_data> message, one after the other.

    `want_data` is the tag of requests for metadata and bodies, or the role of the connection by the tag of the request.
    `first_sequence` is 0 in the protocol; other values are for tests of the roll-over.
    """

    __slots__ = (
        "_first_sequence",
        "_free_data",
        "_has_sent_schema",
        "_limits",
        "_num_addresses",
        "_roles",
        "_sequence",
        "_state_machine",
        "leases",
        "role",
    )

    def __init__(
        self,
        want_data: int | Mapping[int, ConnectionRole],
        free_data: int | None = None,
        *,
        limits: ProtocolLimits = DEFAULT_LIMITS,
        first_sequence: int = 0,
    ) -> None:
        self._roles = {want_data: ConnectionRole.BOTH} if isinstance(want_data, int) else dict(want_data)
        if not self._roles or free_data in self._roles:
            raise InvalidArgumentError(
                f"server: expected want_data tags other than free_data = {free_data}, found {want_data!r}"
            )
        self._free_data = free_data
        self._limits = limits
        self._first_sequence = self._sequence = first_sequence
        self._has_sent_schema = False
        self._num_addresses = 0
        self._state_machine = StateMachine(SERVER_STREAM)
        self.role = next(iter(self._roles.values()))
        """The messages that this connection carries, according to the last request."""
        self.leases = LeaseTable("the client", limits)

    @property
    def state(self) -> StreamState:
        """The state of the stream."""
        return self._state_machine.state

    @property
    def expects_input(self) -> bool:
        """Whether the client has to send something: a request."""
        return self.state is StreamState.WAITING

    @property
    def has_unpaired_messages(self) -> bool:
        """Whether received messages wait for others: never."""
        return False

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next message."""
        return self._sequence

    def check_tag_and_length(self, tag: int | None, length_bytes: int) -> None:
        """Raise `ProtocolError` or `LimitError` if `receive` would refuse a message for its tag or length.

        Call it before allocating memory for the message.
        """
        try:
            if tag is None:
                raise ProtocolError(
                    f"server: expected a tagged message of the client, found a plain one of {length_bytes} bytes"
                )
            if tag in self._roles:
                self._state_machine.next_state(StreamAction.WANT_DATA)
                self._limits.check_length("<want_data> message", length_bytes, "max_ticket_bytes")
            elif tag == self._free_data:
                self._state_machine.next_state(StreamAction.FREE_DATA)
                # All addresses that were sent, freed or not: an upper limit before memory is allocated.
                # `LeaseTable.free` checks each.
                if length_bytes > max(
                    8 * self._num_addresses, _SHORT_BYTES
                ):  # the error for a short one names the address
                    raise ProtocolError(
                        f"<free_data> message: {length_bytes} bytes, but only {self._num_addresses} addresses were sent"
                    )
                self._limits.check_length("<free_data> message", length_bytes, "max_free_bytes")
            else:
                free = "none" if self._free_data is None else str(self._free_data)
                want = " or ".join(map(str, self._roles))
                raise ProtocolError(f"server: expected the tag {want} (want_data) or {free} (free_data), found {tag}")
        except BowstringError:
            self._record_violation()
            raise

    def receive(self, tag: int | None, data: BytesLike) -> list[ServerEvent]:
        """Process a message of the client. Raises `ProtocolError` or `LimitError`."""
        self.check_tag_and_length(tag, len(data))
        try:
            if tag in self._roles:
                return self._receive_want_data(self._roles[tag], data)
            return self._receive_free_data(data)
        except BowstringError:
            self._record_violation()
            raise

    def send(self, header: BytesLike, body: Body | None = None, owner: object = None) -> list[OutgoingMessage]:
        """Return the messages for the next IPC message: its header and its body, as far as the role includes them.

        Nothing is copied. The first header has to be the schema's, without a body. `owner` is kept alive until the
        client frees all addresses of an `AddressBody`. Raises `InvalidArgumentError` for a body that can't be sent.
        """
        sequence = self._sequence
        if body is not None and not self._has_sent_schema and self.state is StreamState.STREAMING:
            raise InvalidArgumentError("server stream: the first message has to be the schema's, which has no body")
        if isinstance(body, AddressBody) and self._free_data is None:
            raise InvalidArgumentError("server stream: a body of addresses needs a URI with free_data")
        if isinstance(body, AddressBody) and body.total_bytes >> 64:
            raise InvalidArgumentError(f"server stream: a body of {body.total_bytes} bytes exceeds the 64-bit total")
        self._state_machine.apply(StreamAction.METADATA)
        messages: list[OutgoingMessage] = []
        if self.role is not ConnectionRole.BODIES:
            prefix = encode_prefix(MessageType.METADATA, sequence)
            messages.append(OutgoingMessage(None, (prefix, header), PREFIX_BYTES + len(header)))
        if body is not None and self.role is not ConnectionRole.METADATA:
            self._state_machine.apply(StreamAction.BODY)
            if isinstance(body, AddressBody):
                self.leases.lease_body(body, owner)
                self._num_addresses += body.addresses.size
                encoded = encode_addresses(body)
                messages.append(
                    OutgoingMessage(encode_body_tag(sequence, BodyType.ADDRESSES), (encoded,), len(encoded))
                )
            else:
                messages.append(
                    OutgoingMessage(encode_body_tag(sequence, BodyType.PACKED), body.parts, body.length_bytes)
                )
        self._sequence = (sequence + 1) & SEQUENCE_MASK
        self._has_sent_schema = True
        return messages

    def send_stream(self, stream: EncodedStream) -> Sequence[OutgoingMessage]:
        """Return the messages of a whole stream.

        Raises `InvalidArgumentError` after `send`, or if the role is not `ConnectionRole.BOTH`.
        """
        # Its messages were encoded with sequence numbers from 0, for both kinds.
        if self._has_sent_schema or self._first_sequence or self.role is not ConnectionRole.BOTH:
            raise InvalidArgumentError("server stream: a whole stream needs a new request for metadata and bodies")
        self._state_machine.apply(StreamAction.METADATA)
        self._has_sent_schema = True
        self._sequence = stream.next_sequence
        self._end_stream()
        return stream.messages

    def send_end(self) -> list[OutgoingMessage]:
        """Return the messages that end the stream; none on a connection for bodies only."""
        if not self._has_sent_schema and self.state is StreamState.STREAMING:
            raise InvalidArgumentError("server stream: send the schema before the end")
        self._end_stream()
        if self.role is ConnectionRole.BODIES:
            return []
        return [OutgoingMessage(None, (encode_prefix(MessageType.END_OF_STREAM, self._sequence),), PREFIX_BYTES)]

    def _end_stream(self) -> None:
        self._state_machine.apply(StreamAction.END_OF_STREAM)
        if not self.leases:
            self._state_machine.apply(StreamAction.ALL_FREED)

    def connection_lost(self) -> int:
        """End all leases, because the connection ended; return their number."""
        if self._state_machine.allows(StreamAction.CONNECTION_LOST):
            self._state_machine.apply(StreamAction.CONNECTION_LOST)
        return self.leases.free_all()

    def _receive_want_data(self, role: ConnectionRole, data: BytesLike) -> list[ServerEvent]:
        self._state_machine.apply(StreamAction.WANT_DATA)
        # A client may use the connection for several streams, one after the other; sequence numbers begin again.
        self.role = role
        self._sequence = self._first_sequence
        self._has_sent_schema = False
        # A copy, because the bytes belong to the transport.
        return [DataRequested(bytes(data))]

    def _receive_free_data(self, data: BytesLike) -> list[ServerEvent]:
        self._state_machine.apply(StreamAction.FREE_DATA)
        addresses = decode_free_data(data, self._limits)
        self.leases.free(addresses)
        events: list[ServerEvent] = [AddressesFreed(addresses.size, self.leases.outstanding)]
        if not self.leases and self.state is StreamState.LEASED:
            self._state_machine.apply(StreamAction.ALL_FREED)
            events.append(StreamComplete())
        return events

    def _record_violation(self) -> None:
        self._state_machine.record_violation()
        self.leases.free_all()

    def __repr__(self) -> str:
        return f"<ServerConnection ({self.role.value}): {self.state.value}, {self.leases.outstanding} addresses leased>"


@dataclass(frozen=True, slots=True)
class EncodedStream:
    """All messages of a stream that is sent often, with bodies as bytes; see `ServerConnection.send_stream`."""

    messages: tuple[OutgoingMessage, ...]
    next_sequence: int
    """The sequence number of the end."""

    @classmethod
    def encode(cls, schema: BytesLike, batches: Iterable[tuple[BytesLike, PackedBody]]) -> EncodedStream:
        """Encode a schema, then headers and bodies. Everything is copied."""
        connection = ServerConnection(want_data=0)
        connection.receive(0, b"")
        messages = connection.send(schema)
        for header, body in batches:
            messages += connection.send(header, body)
        messages += connection.send_end()
        joined = (OutgoingMessage(each.tag, (b"".join(each.parts),), each.length_bytes) for each in messages)
        return cls(tuple(joined), connection.next_sequence)

    @property
    def length_bytes(self) -> int:
        """The length of all messages."""
        return sum(message.length_bytes for message in self.messages)
