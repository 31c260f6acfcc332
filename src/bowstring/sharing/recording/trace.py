"""Decode the entries of a recording: which message of the protocol each one is («Protocol Description»)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bowstring.dissociated.messages import (
    PREFIX_BYTES,
    BodyType,
    BytesLike,
    MessageType,
    decode_addresses,
    decode_body_tag,
    decode_free_data,
    decode_prefix,
)
from bowstring.dissociated.uri import StreamURI, parse_uri
from bowstring.errors import BowstringError, format_count
from bowstring.flatbuf.tables import read_root
from bowstring.ipc.metadata.header import read_header_kind
from bowstring.sharing.uris import ROLES, Ticket, decode_error_message, parse_error_tag
from bowstring.transports.observer import EventDirection, ObservedEvent, ObservedEventKind

_HEADER_NAMES = {"Schema": "schema", "DictionaryBatch": "dictionary batch", "RecordBatch": "record batch"}


@dataclass(frozen=True, slots=True)
class TraceStep:
    """A decoded entry."""

    time_ns: int
    """Nanoseconds since the beginning of the recording."""
    connection: int
    """The index of the connection."""
    sender: str
    """`client` or `server`: who sent the message, or whose end was closed or lost."""
    kind: str
    """`want_data`, `free_data`, `metadata`, `end_of_stream`, `body`, `error_data`, `invalid`, or the kind of entry."""
    tag: int | None
    sequence: int | None
    """The sequence number of metadata, bodies and the end of a stream."""
    body_type: int | None
    """0 for a body of bytes, 1 for one of addresses."""
    length_bytes: int
    """The length of the message or region."""
    num_addresses: int | None
    """The number of buffers in a body of addresses, or of addresses in a <free_data> message."""
    text: str
    """A description for readers."""


@dataclass(frozen=True, slots=True)
class _MessageContent:
    """The content of a message."""

    kind: str
    text: str
    sequence: int | None = None
    body_type: int | None = None
    num_addresses: int | None = None


@dataclass(frozen=True, slots=True)
class RecordedConnection:
    """A connection: which end was recorded, and the tags of its messages."""

    is_client: bool
    uri: StreamURI | None

    @classmethod
    def from_first_entry(cls, entry: ObservedEvent) -> RecordedConnection:
        """Return the connection whose first entry this is."""
        try:
            uri = parse_uri(entry.text)
        except BowstringError:  # a URI without tags
            uri = None
        return cls(entry.direction is EventDirection.SENT, uri)

    def find_sender(self, entry: ObservedEvent) -> str:
        """Return who acts: `client` or `server`."""
        is_own = entry.direction is EventDirection.SENT or entry.kind in (
            ObservedEventKind.CLOSE,
            ObservedEventKind.LOSS,
        )
        return "client" if is_own == self.is_client else "server"

    def is_free_data_tag(self, tag: int | None) -> bool:
        """Whether it is the tag of a <free_data> message."""
        return self.uri is not None and tag is not None and tag == self.uri.free_data

    def is_error_tag(self, tag: int | None) -> bool:
        """Whether it is the tag of the server's error messages."""
        return self.uri is not None and tag is not None and tag == parse_error_tag(self.uri)

    def is_request_tag(self, tag: int | None) -> bool:
        """Whether it is the tag of a <want_data> message."""
        # A server of `bowstring.serve` derives its role from the tag.
        return self.uri is not None and (tag == self.uri.want_data or (not self.is_client and tag in ROLES))


def decode_trace(entries: Iterable[ObservedEvent]) -> Iterator[TraceStep]:
    """Yield the decoded entries of a recording, in order. A message that can't be decoded is `invalid`."""
    connections: dict[int, RecordedConnection] = {}
    for entry in entries:
        if entry.kind is ObservedEventKind.CONNECTION:
            connections[entry.connection] = RecordedConnection.from_first_entry(entry)
        connection = connections.get(entry.connection, RecordedConnection(True, None))
        sender = connection.find_sender(entry)
        content = _decode_entry(entry, sender, connection)
        yield TraceStep(
            entry.time_ns,
            entry.connection,
            sender,
            content.kind,
            entry.tag,
            content.sequence,
            content.body_type,
            entry.length_bytes,
            content.num_addresses,
            content.text,
        )


def describe_message(connection: RecordedConnection, sender: str, tag: int | None, data: BytesLike) -> str:
    """Return the description of a message of the `client` or the `server`."""
    is_sent = (sender == "client") == connection.is_client
    direction = EventDirection.SENT if is_sent else EventDirection.RECEIVED
    entry = ObservedEvent(0, 0, direction, ObservedEventKind.MESSAGE, 0, tag, None, len(data), (data,))
    return _decode_entry(entry, sender, connection).text


def _decode_entry(entry: ObservedEvent, sender: str, connection: RecordedConnection) -> _MessageContent:
    kind, size = entry.kind, format_count(entry.length_bytes, "byte")
    if kind is ObservedEventKind.MESSAGE:
        try:
            return _decode_message(entry, sender, connection, size)
        except BowstringError as error:
            return _MessageContent("invalid", f"invalid message, {_format_tag(entry)}, {size}: {error}")
    action = "receiving" if entry.direction is EventDirection.RECEIVED else "sending"
    texts = {
        ObservedEventKind.CONNECTION: f"connects to {entry.text}",
        ObservedEventKind.DEPARTURE: f"message sent, {_format_tag(entry)}, {size}",
        ObservedEventKind.OFFER: f"offers a message, {_format_tag(entry)}, {size}",
        ObservedEventKind.CANCELLATION: f"message cancelled, {_format_tag(entry)}, {size}",
        ObservedEventKind.REGION: f"region at 0x{entry.address or 0:016x}, {size}, {entry.text}",
        ObservedEventKind.RETIREMENT: f"region at 0x{entry.address or 0:016x} retired",
        ObservedEventKind.LOSS: f"{action} ends: {entry.text}",
        ObservedEventKind.CLOSE: "closes the connection",
    }
    return _MessageContent(kind.value, texts[kind])


def _decode_message(entry: ObservedEvent, sender: str, connection: RecordedConnection, size: str) -> _MessageContent:
    data = entry.view()
    if sender == "client":
        if connection.is_request_tag(entry.tag):
            return _MessageContent("want_data", f"want_data, {Ticket.decode(bytes(data))}")
        if connection.is_free_data_tag(entry.tag):
            count = decode_free_data(data).size
            return _MessageContent("free_data", f"free_data, {count:,} addresses", num_addresses=count)
        return _MessageContent("invalid", f"unknown message, {_format_tag(entry)}, {size}")
    if entry.tag is None:
        return _decode_metadata(bytes(data), size)
    if connection.is_error_tag(entry.tag):
        error = decode_error_message(data, "error")
        return _MessageContent("error_data", f"{type(error).__name__}: {str(error).removeprefix('error: ')}")
    sequence, body_type = decode_body_tag(entry.tag)
    if body_type is BodyType.PACKED:
        return _MessageContent("body", f"body {sequence}, {size}", sequence, int(body_type))
    body = decode_addresses(data)
    count = body.addresses.size
    text = f"body {sequence}, addresses of {count:,} buffers with {format_count(body.total_bytes, 'byte')}"
    return _MessageContent("body", text, sequence, int(body_type), count)


def _decode_metadata(data: bytes, size: str) -> _MessageContent:
    message_type, sequence = decode_prefix(data)
    if message_type is MessageType.END_OF_STREAM:
        return _MessageContent("end_of_stream", f"end of stream {sequence}", sequence)
    try:
        name = _HEADER_NAMES[read_header_kind(read_root("Message", data[PREFIX_BYTES:], "header"))]
    except BowstringError as error:
        name = f"unknown header ({error})"
    return _MessageContent("metadata", f"metadata {sequence}, {name}, {size}", sequence)


def _format_tag(entry: ObservedEvent) -> str:
    return "plain" if entry.tag is None else f"tag 0x{entry.tag:016x}"
