"""The server's side of a stream («Server Sequence»): messages in; messages to send and events out.

It does no input or output, starts no thread and looks at no clock. The caller passes on each message that a transport
delivers, sends each `Message` that comes back, and tells when a connection is lost. After a peer broke the protocol, an
object takes nothing more. Threads that share one have to take turns.

Metadata and bodies may travel over one connection or two. A server has one object a connection, which says with
`Role` what it carries.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from bowstring.dissociated.events import (
    AddressesFreed,
    DataRequested,
    ServerEvent,
    StreamComplete,
)
from bowstring.dissociated.leases import Leases
from bowstring.dissociated.limits import DEFAULT_LIMITS, Limits
from bowstring.dissociated.states import (
    SERVER_STREAM,
    Move,
    Position,
    State,
)
from bowstring.dissociated.wire import (
    PREFIX_BYTES,
    SEQUENCE_MASK,
    AddressBody,
    Body,
    BodyType,
    BytesLike,
    Message,
    MessageType,
    decode_free,
    encode_addresses,
    encode_prefix,
    encode_tag,
)
from bowstring.errors import BowstringError, ProtocolError, UsageError

_SHORT_BYTES = 1 << 16


class Role(Enum):
    """What a server's connection carries."""

    BOTH = "metadata and bodies"
    METADATA = "metadata"
    BODIES = "bodies"


class ServerConnection:
    """The server's side of one connection: streams one after the other, each asked for by <want_data>.

    `first_sequence` is 0 in the protocol; another number is for trying the roll-over.
    """

    __slots__ = (
        "_first_sequence",
        "_free_data",
        "_limits",
        "_num_addresses",
        "_position",
        "_sequence",
        "_started",
        "_want_data",
        "leases",
        "role",
    )

    def __init__(
        self,
        want_data: int,
        free_data: int | None = None,
        *,
        role: Role = Role.BOTH,
        limits: Limits = DEFAULT_LIMITS,
        first_sequence: int = 0,
    ) -> None:
        self._want_data = want_data
        self._free_data = free_data
        self._limits = limits
        self._first_sequence = self._sequence = first_sequence
        self._started = False
        self._num_addresses = 0
        self._position = Position(SERVER_STREAM)
        self.role = role
        self.leases = Leases("the client", limits)

    @property
    def state(self) -> State:
        """Where the stream stands."""
        return self._position.state

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next message."""
        return self._sequence

    def check_length(self, tag: int | None, length_bytes: int) -> None:
        """Raise `ProtocolError` or `LimitError` for a message that `receive` would refuse for its tag or length.

        To be called before memory is allocated for the message.
        """
        try:
            if tag is None:
                raise ProtocolError(
                    f"server: expected a tagged message of the client, found a plain one of {length_bytes} bytes"
                )
            if tag == self._want_data:
                self._position.check(Move.WANT_DATA)
                self._limits.check("<want_data> message", length_bytes, "max_ticket_bytes")
            elif tag == self._free_data:
                self._position.check(Move.FREE_DATA)
                if length_bytes > max(8 * self._num_addresses, _SHORT_BYTES):  # a short one can name what is wrong
                    raise ProtocolError(
                        f"<free_data> message: {length_bytes} bytes, but only {self._num_addresses} addresses were sent"
                    )
                self._limits.check("<free_data> message", length_bytes, "max_free_bytes")
            else:
                free = "none" if self._free_data is None else str(self._free_data)
                raise ProtocolError(
                    f"server: expected the tag {self._want_data} (want_data) or {free} (free_data), found {tag}"
                )
        except BowstringError:
            self._fail()
            raise

    def receive(self, tag: int | None, data: BytesLike) -> list[ServerEvent]:
        """Take a message of the client. Raises `ProtocolError` or `LimitError` for what it may not send."""
        self.check_length(tag, len(data))
        try:
            return self._receive_want_data(data) if tag == self._want_data else self._receive_free_data(data)
        except BowstringError:
            self._fail()
            raise

    def send(self, header: BytesLike, body: Body | None = None, owner: Any = None) -> list[Message]:
        """The messages for the next IPC message: its header, then its body, as far as the role carries them.

        Nothing is copied. The first header has to be the schema's, without a body. `owner` is kept alive until the
        client frees all addresses of an `AddressBody`. Raises `UsageError` for what this stream can't send.
        """
        sequence = self._sequence
        if body is not None and not self._started and self.state is State.STREAMING:
            raise UsageError("server stream: the first message has to be the schema's, which has no body")
        if isinstance(body, AddressBody) and self._free_data is None:
            raise UsageError("server stream: a body of addresses needs a URI with free_data")
        if isinstance(body, AddressBody) and body.total_bytes >> 64:
            raise UsageError(f"server stream: a body of {body.total_bytes} bytes is longer than a message can say")
        self._position.move(Move.METADATA)
        messages: list[Message] = []
        if self.role is not Role.BODIES:
            prefix = encode_prefix(MessageType.METADATA, sequence)
            messages.append(Message(None, (prefix, header), PREFIX_BYTES + len(header)))
        if body is not None and self.role is not Role.METADATA:
            self._position.move(Move.BODY)
            if isinstance(body, AddressBody):
                self.leases.lend(body.addresses, owner, lengths=body.lengths)
                self._num_addresses += body.addresses.size
                encoded = encode_addresses(body)
                messages.append(Message(encode_tag(sequence, BodyType.ADDRESSES), (encoded,), len(encoded)))
            else:
                messages.append(Message(encode_tag(sequence, BodyType.PACKED), body.parts, body.length_bytes))
        self._sequence = (sequence + 1) & SEQUENCE_MASK
        self._started = True
        return messages

    def end(self) -> list[Message]:
        """The messages that end the stream; none on a connection that carries bodies only. See `state` afterwards."""
        if not self._started and self.state is State.STREAMING:
            raise UsageError("server stream: it can't end before its schema was sent")
        self._position.move(Move.END_OF_STREAM)
        messages: list[Message] = []
        if self.role is not Role.BODIES:
            prefix = encode_prefix(MessageType.END_OF_STREAM, self._sequence)
            messages.append(Message(None, (prefix,), PREFIX_BYTES))
        if not self.leases:
            self._position.move(Move.ALL_FREED)
        return messages

    def connection_lost(self) -> int:
        """The client is gone: all leases end. How many addresses were out."""
        if self._position.allows(Move.CONNECTION_LOST):
            self._position.move(Move.CONNECTION_LOST)
        return self.leases.free_all()

    def _receive_want_data(self, data: BytesLike) -> list[ServerEvent]:
        self._position.move(Move.WANT_DATA)
        self._sequence = self._first_sequence
        self._started = False
        return [DataRequested(bytes(data))]

    def _receive_free_data(self, data: BytesLike) -> list[ServerEvent]:
        self._position.move(Move.FREE_DATA)
        addresses = decode_free(data, self._limits)
        self.leases.free(addresses)
        events: list[ServerEvent] = [AddressesFreed(addresses.size, self.leases.outstanding)]
        if not self.leases and self.state is State.HOLDING:
            self._position.move(Move.ALL_FREED)
            events.append(StreamComplete())
        return events

    def _fail(self) -> None:
        self._position.fail()
        self.leases.free_all()

    def __repr__(self) -> str:
        return f"<ServerConnection ({self.role.value}): {self.state.value}, {self.leases.outstanding} addresses out>"
