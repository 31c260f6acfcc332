"""Decode the entries of a recording: which message of the protocol each one is («Protocol Description»)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from bowstring.dissociated.messages import (
    PREFIX_BYTES,
    BodyType,
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
        yield decode_entry(entry, connections.get(entry.connection, RecordedConnection(True, None)))


def decode_entry(entry: ObservedEvent, connection: RecordedConnection) -> TraceStep:
    """Return the decoded entry of a connection; `invalid` for a message that can't be decoded."""
    kind, size, sender = entry.kind, format_count(entry.length_bytes, "byte"), connection.find_sender(entry)
    action = "receiving" if entry.direction is EventDirection.RECEIVED else "sending"
    texts = {
        ObservedEventKind.CONNECTION: f"connects to {entry.text}",
        ObservedEventKind.MESSAGE: f"unknown message, {_format_tag(entry)}, {size}",
        ObservedEventKind.OFFER: f"offers a message, {_format_tag(entry)}, {size}",
        ObservedEventKind.REGION: f"region at 0x{entry.address or 0:016x}, {size}, {entry.text}",
        ObservedEventKind.RETIREMENT: f"region at 0x{entry.address or 0:016x} retired",
        ObservedEventKind.LOSS: f"{action} ends: {entry.text}",
        ObservedEventKind.CLOSE: "closes the connection",
    }
    step = TraceStep(
        entry.time_ns,
        entry.connection,
        sender,
        kind.value,
        entry.tag,
        None,
        None,
        entry.length_bytes,
        None,
        texts[kind],
    )
    if kind is not ObservedEventKind.MESSAGE:
        return step
    try:
        return _decode_message(step, entry.view(), connection, size)
    except BowstringError as error:
        return replace(step, kind="invalid", text=f"invalid message, {_format_tag(entry)}, {size}: {error}")


def _decode_message(step: TraceStep, data: memoryview, connection: RecordedConnection, size: str) -> TraceStep:
    tag = step.tag
    if step.sender == "client":
        if connection.is_request_tag(tag):
            return replace(step, kind="want_data", text=f"want_data, {Ticket.decode(bytes(data))}")
        if connection.is_free_data_tag(tag):
            count = decode_free_data(data).size
            return replace(step, kind="free_data", num_addresses=count, text=f"free_data, {count:,} addresses")
        return replace(step, kind="invalid")
    if tag is None:
        return _decode_metadata(step, bytes(data), size)
    if connection.is_error_tag(tag):
        error = decode_error_message(data, "error")
        text = f"{type(error).__name__}: {str(error).removeprefix('error: ')}"
        return replace(step, kind="error_data", text=text)
    sequence, body_type = decode_body_tag(tag)
    step = replace(step, kind="body", sequence=sequence, body_type=int(body_type), text=f"body {sequence}, {size}")
    if body_type is BodyType.PACKED:
        return step
    body = decode_addresses(data)
    count = body.addresses.size
    text = f"body {sequence}, addresses of {count:,} buffers with {format_count(body.total_bytes, 'byte')}"
    return replace(step, num_addresses=count, text=text)


def _decode_metadata(step: TraceStep, data: bytes, size: str) -> TraceStep:
    message_type, sequence = decode_prefix(data)
    if message_type is MessageType.END_OF_STREAM:
        return replace(step, kind="end_of_stream", sequence=sequence, text=f"end of stream {sequence}")
    try:
        name = _HEADER_NAMES[read_header_kind(read_root("Message", data[PREFIX_BYTES:], "header"))]
    except BowstringError as error:
        name = f"unknown header ({error})"
    return replace(step, kind="metadata", sequence=sequence, text=f"metadata {sequence}, {name}, {size}")


def _format_tag(entry: ObservedEvent) -> str:
    return "plain" if entry.tag is None else f"tag 0x{entry.tag:016x}"
