"""Decode the entries of a recording: which message of the protocol each one is («Protocol Description»)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from bowstring.dissociated.messages import (
    PREFIX_BYTES,
    BodyType,
    MessageType,
    decode_addresses,
    decode_body_tag,
    decode_free_data,
    decode_prefix,
)
from bowstring.dissociated.uri import parse_uri
from bowstring.errors import BowstringError, format_count
from bowstring.flatbuf.tables import read_root
from bowstring.ipc.metadata.header import read_header_kind
from bowstring.sharing.uris import ROLES, Ticket, decode_error_message, parse_error_tag
from bowstring.transports.observer import EventDirection, ObservedEvent, ObservedEventKind

_HEADER_NAMES = {"Schema": "schema", "DictionaryBatch": "dictionary batch", "RecordBatch": "record batch"}


@dataclass(frozen=True, slots=True, kw_only=True)
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
    sequence: int | None = None
    """The sequence number of metadata, bodies and the end of a stream."""
    body_type: int | None = None
    """0 for a body of bytes, 1 for one of addresses."""
    length_bytes: int
    """The length of the message or region."""
    num_addresses: int | None = None
    """The number of buffers in a body of addresses, or of addresses in a <free_data> message."""
    text: str
    """A description for readers."""


@dataclass(frozen=True, slots=True)
class RecordedConnection:
    """A connection: which end was recorded, and the kinds of messages by sender and tag, as its URI defines them."""

    is_client: bool
    kinds_by_tag: dict[tuple[str, int], str]

    @classmethod
    def from_first_entry(cls, entry: ObservedEvent) -> RecordedConnection:
        """Return the connection whose first entry this is."""
        is_client = entry.direction is EventDirection.SENT
        try:
            uri = parse_uri(entry.text)
        except BowstringError:  # a URI without tags
            return cls(is_client, {})
        # A server of `bowstring.serve` derives its role from the tag of the request.
        requests = [uri.want_data] if is_client else [uri.want_data, *ROLES]
        kinds = {} if uri.free_data is None else {("client", uri.free_data): "free_data"}
        kinds |= {("client", tag): "want_data" for tag in requests}
        error_tag = parse_error_tag(uri)
        return cls(is_client, kinds if error_tag is None else {**kinds, ("server", error_tag): "error_data"})


def decode_trace(entries: Iterable[ObservedEvent]) -> Iterator[TraceStep]:
    """Yield the decoded entries of a recording, in order. A message that can't be decoded is `invalid`."""
    connections: dict[int, RecordedConnection] = {}
    for entry in entries:
        if entry.kind is ObservedEventKind.CONNECTION:
            connections[entry.connection] = RecordedConnection.from_first_entry(entry)
        yield decode_entry(entry, connections.get(entry.connection, RecordedConnection(True, {})))


def decode_entry(entry: ObservedEvent, connection: RecordedConnection) -> TraceStep:
    """Return the decoded entry of a connection; `invalid` for a message that can't be decoded."""
    kind, size = entry.kind, format_count(entry.length_bytes, "byte")
    is_own = entry.direction is EventDirection.SENT or kind in (ObservedEventKind.CLOSE, ObservedEventKind.LOSS)
    action = "receiving" if entry.direction is EventDirection.RECEIVED else "sending"
    tag = "plain" if entry.tag is None else f"tag 0x{entry.tag:016x}"
    region = f"region at 0x{entry.address or 0:016x}"
    texts = {
        ObservedEventKind.CONNECTION: f"connects to {entry.text}",
        ObservedEventKind.MESSAGE: f"unknown message, {tag}, {size}",
        ObservedEventKind.OFFER: f"offers a message, {tag}, {size}",
        ObservedEventKind.REGION: f"{region}, {size}, {entry.text}",
        ObservedEventKind.RETIREMENT: f"{region} retired",
        ObservedEventKind.LOSS: f"{action} ends: {entry.text}",
        ObservedEventKind.CLOSE: "closes the connection",
    }
    step = TraceStep(
        time_ns=entry.time_ns,
        connection=entry.connection,
        sender="client" if is_own == connection.is_client else "server",
        kind=kind.value,
        tag=entry.tag,
        length_bytes=entry.length_bytes,
        text=texts[kind],
    )
    if kind is not ObservedEventKind.MESSAGE:
        return step
    try:
        message_kind = None if entry.tag is None else connection.kinds_by_tag.get((step.sender, entry.tag))
        return replace(step, **_decode_message(step.sender, message_kind, entry.tag, entry.view(), size))
    except BowstringError as error:
        return replace(step, kind="invalid", text=f"invalid message, {tag}, {size}: {error}")


def _decode_message(sender: str, kind: str | None, tag: int | None, data: memoryview, size: str) -> dict[str, Any]:
    """Return the fields of the `TraceStep` of a message that its content determines."""
    if kind == "want_data":
        return {"kind": kind, "text": f"want_data, {Ticket.decode(bytes(data))}"}
    if kind == "free_data":
        count = decode_free_data(data).size
        return {"kind": kind, "num_addresses": count, "text": f"free_data, {count:,} addresses"}
    if kind == "error_data":
        error = decode_error_message(data, "error")
        return {"kind": kind, "text": f"{type(error).__name__}: {str(error).removeprefix('error: ')}"}
    if sender == "client":
        return {"kind": "invalid"}
    if tag is None:
        message_type, sequence = decode_prefix(data)
        if message_type is MessageType.END_OF_STREAM:
            return {"kind": "end_of_stream", "sequence": sequence, "text": f"end of stream {sequence}"}
        return {
            "kind": "metadata",
            "sequence": sequence,
            "text": f"metadata {sequence}, {_describe_header(data[PREFIX_BYTES:])}, {size}",
        }
    sequence, body_type = decode_body_tag(tag)
    fields = {"kind": "body", "sequence": sequence, "body_type": int(body_type), "text": f"body {sequence}, {size}"}
    if body_type is BodyType.ADDRESSES:
        body = decode_addresses(data)
        fields["num_addresses"] = count = body.addresses.size
        total = format_count(body.total_bytes, "byte")
        fields["text"] = f"body {sequence}, addresses of {count:,} buffers with {total}"
    return fields


def _describe_header(metadata: memoryview) -> str:
    try:
        return _HEADER_NAMES[read_header_kind(read_root("Message", bytes(metadata), "header"))]
    except BowstringError as error:
        return f"unknown header ({error})"
