"""Annotated sessions of the protocol, so that implementations in any language can test themselves.

`python -m bowstring.testing.recorded_sessions DIRECTORY` writes each session to a JSON file. It has the tags of the
messages and the `entries` in their order, as the client sends and receives them:

* `sender`: `client` or `server`; `connection`: 0, or 1 for the second connection of the client;
* `kind`: `message`; `region`, memory of the server at `address` with the content `body`; or `close`, the end of the
  connection by this sender;
* `tag`: hexadecimal, null for a plain message; `body`: hexadecimal; `note`: an explanation.

What a client has to do with the messages of the server is in `rows`, the rows of all record batches, or `error`, the
kind of error that it has to detect, after which it closes its connections. A server has to answer the messages of the
client like the recorded one; addresses may differ, and it may send a message with the tag `error_data` before it
closes a connection. `sides` lists who is tested by the session. Metadata are flatbuffers of Bowstring; those of others
may be other bytes of the same meaning. The sequence numbers of a stream begin at 0, and at `first_sequence` in a
session that tests the roll-over: only a client that can be set to begin there can use it.

Sessions have the messages of the protocol, without the frames of a transport. Those with compressed bodies are left out
if the package of the codec is not installed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bowstring.arrays.construction import array
from bowstring.arrays.record_batch import record_batch
from bowstring.arrays.table import Table
from bowstring.datatypes.schema import schema
from bowstring.dissociated.messages import (
    SEQUENCE_MASK,
    AddressBody,
    BodyType,
    MessageType,
    encode_addresses,
    encode_body_tag,
    encode_free_data,
    encode_prefix,
)
from bowstring.dissociated.uri import StreamURI
from bowstring.errors import MissingExtraError
from bowstring.ipc.metadata.header import DICTIONARY_BATCH, BatchHeader
from bowstring.ipc.stream import Decoder, EncodedMessage, Encoder
from bowstring.ipc.write_options import DEFAULT_WRITE_OPTIONS, IpcWriteOptions
from bowstring.sharing.uris import ERROR_DATA, FREE_DATA, WANT_BODIES, WANT_DATA, WANT_METADATA
from bowstring.transports.observed_transport import EventDirection, ObservedEvent, ObservedEventKind

TICKET = b"numbers"
SCHEMA = schema({"n": "int32"})
TABLE = Table(SCHEMA, [record_batch({"n": values}, SCHEMA) for values in ([1, 2, 3], [4, None, 6])])
"""The data set `numbers`, which a server under test has to serve."""

_BOTH_SIDES, _CLIENT, _SERVER = ("client", "server"), ("client",), ("server",)
_COMPRESSED_SCHEMA = schema({"n": "int32", "m": "int8"})
_PACKED, _ADDRESSES = BodyType.PACKED, BodyType.ADDRESSES


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """A message, a region, or the end of a connection; see the module."""

    sender: str
    kind: str
    note: str
    tag: int | None = None
    body: bytes = b""
    address: int | None = None
    connection: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the entry with bytes and tags in hexadecimal."""
        return {
            "sender": self.sender,
            "connection": self.connection,
            "kind": self.kind,
            "tag": None if self.tag is None else f"0x{self.tag:016x}",
            "address": self.address,
            "body": self.body.hex(),
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """A session between a client and a server, and what either has to do."""

    name: str
    purpose: str
    entries: tuple[SessionEntry, ...]
    sides: tuple[str, ...] = _BOTH_SIDES
    """The sides that the session tests."""
    rows: tuple[dict[str, Any], ...] | None = None
    """The rows that the client reads; None if it has to detect an error."""
    error: str | None = None
    """The class of `bowstring.errors` of the error that the client has to detect."""
    want_data: tuple[int, ...] = (WANT_DATA,)
    """The tag for each connection."""
    free_data: int | None = FREE_DATA
    is_ordered: bool = True
    """Whether metadata messages arrive in order. A client of an ordered transport may reject other sessions."""
    first_sequence: int = 0
    """The sequence number of the schema; a session that does not begin at 0 is for clients that can be set to it."""

    @property
    def num_connections(self) -> int:
        """The number of connections, which the client opens in the order of their indices."""
        return 1 + max(entry.connection for entry in self.entries)

    @property
    def has_addresses(self) -> bool:
        """Whether a body consists of addresses: the server has to export memory."""
        return any(entry.kind == "region" for entry in self.entries)

    def to_json(self) -> dict[str, Any]:
        """Return the session as the object of a JSON file."""
        return {
            "format_version": 1,
            "name": self.name,
            "purpose": self.purpose,
            "sides": list(self.sides),
            "is_ordered": self.is_ordered,
            "first_sequence": self.first_sequence,
            "want_data": [f"0x{tag:016x}" for tag in self.want_data],
            "free_data": None if self.free_data is None else f"0x{self.free_data:016x}",
            "error_data": f"0x{ERROR_DATA:016x}",
            "rows": self.rows,
            "error": self.error,
            "entries": [entry.to_json() for entry in self.entries],
        }

    def to_recording(self) -> list[ObservedEvent]:
        """Return the session as a recording of its client, for `bowstring.sharing.replay`."""
        entries: list[ObservedEvent] = []
        for connection in range(self.num_connections):
            tag = self.want_data[min(connection, len(self.want_data) - 1)]
            uri = StreamURI("session", "", tag, self.free_data, None, (("error_data", str(ERROR_DATA)),))
            entries.append(
                ObservedEvent(0, connection, EventDirection.SENT, ObservedEventKind.CONNECTION, 0, text=str(uri))
            )
        if len(self.want_data) == 1:  # a later connection begins after the end of an earlier one
            entries = entries[:1]
        for entry in self.entries:
            if all(entry.connection != other.connection for other in entries):
                entries.append(replace(entries[0], connection=entry.connection))
            direction = EventDirection.SENT if entry.sender == "client" else EventDirection.RECEIVED
            kind, length_bytes = ObservedEventKind(entry.kind), len(entry.body)
            if entry.kind == "close" and entry.sender == "server":
                kind = ObservedEventKind.LOSS
            parts, address = (entry.body,), entry.address
            entries.append(
                ObservedEvent(0, entry.connection, direction, kind, 0, entry.tag, address, length_bytes, parts)
            )
        return entries


# Messages


def _want_data_entry(tag: int = WANT_DATA, ticket: bytes = TICKET, connection: int = 0) -> SessionEntry:
    return SessionEntry("client", "message", "want_data with the ticket", tag, ticket, connection=connection)


def _metadata_entry(sequence: int, header: bytes, note: str, *, type_: int = MessageType.METADATA) -> SessionEntry:
    body = encode_prefix(MessageType(type_), sequence) + header
    return SessionEntry("server", "message", f"metadata {sequence}: {note}", None, body)


def _body_entry(sequence: int, body: bytes, note: str = "", connection: int = 0) -> SessionEntry:
    text = f"body {sequence}: the bytes of all buffers, padded{note}"
    return SessionEntry("server", "message", text, encode_body_tag(sequence, _PACKED), body, connection=connection)


def _address_body_entry(sequence: int, body: AddressBody, connection: int = 0) -> SessionEntry:
    text = f"body {sequence}: total size, number of buffers, address and length of each"
    tag = encode_body_tag(sequence, _ADDRESSES)
    return SessionEntry("server", "message", text, tag, encode_addresses(body), connection=connection)


def _free_data_entry(body: AddressBody, connection: int = 0) -> SessionEntry:
    text = "free_data: the addresses are not needed any more; clients may send more or fewer messages, at other times"
    return SessionEntry("client", "message", text, FREE_DATA, encode_free_data(body.addresses), connection=connection)


def _end_of_stream_entry(sequence: int) -> SessionEntry:
    body = encode_prefix(MessageType.END_OF_STREAM, sequence)
    return SessionEntry("server", "message", "end of stream: the number that the next message would have", None, body)


def _close_entry(sender: str, connection: int = 0) -> SessionEntry:
    return SessionEntry(sender, "close", f"the {sender} closes the connection", connection=connection)


# Data


@dataclass(frozen=True, slots=True)
class _TableMessages:
    """The IPC messages of a table."""

    schema: bytes
    headers: tuple[bytes, ...]
    notes: tuple[str, ...]
    """An explanation of each header."""
    bodies: tuple[bytes, ...]
    addresses: tuple[AddressBody, ...]
    """The addresses of the buffers of each body in a region with all bodies."""

    @classmethod
    def from_table(cls, table: Table, options: IpcWriteOptions = DEFAULT_WRITE_OPTIONS) -> _TableMessages:
        encoder, decoder = Encoder(table.schema, options=options), Decoder()
        schema_message = encoder.encode_schema_message()
        decoder.decode_header(schema_message.metadata)
        encoded: list[EncodedMessage] = []
        for batch in table.to_batches():
            encoded += encoder.encode_batch(batch)
        addresses, notes, start = [], [], 0
        end = sum(message.body_bytes for message in encoded)
        for message in encoded:
            header = decoder.decode_header(message.metadata)
            assert isinstance(header, BatchHeader)
            buffers = header.buffers()
            offsets = np.where(buffers["length"], buffers["offset"] + start, end)
            addresses.append(AddressBody.from_arrays(offsets, buffers["length"]))
            notes.append(_describe_header(header))
            start += message.body_bytes
        bodies = tuple(b"".join(message.parts) for message in encoded)
        metadata = tuple(each.metadata for each in encoded)
        return cls(schema_message.metadata, metadata, tuple(notes), bodies, tuple(addresses))

    def region_entry(self, connection: int = 0) -> SessionEntry:
        """Return the entry of the region with all bodies."""
        body = b"".join(self.bodies)
        note = "the server exports memory with all bodies; the region's index is in bits 48 to 63 of an address"
        return SessionEntry("server", "region", note, None, body, 0, connection)


def _describe_header(header: BatchHeader) -> str:
    template = header.template
    note = "header of a batch"
    if template.kind == DICTIONARY_BATCH:
        note = f"header of dictionary {template.dictionary_id}"
        if template.is_delta:
            note += ", a delta: its values follow those of the earlier message with this id"
    return note if template.compression is None else f"{note}; each buffer is compressed with {template.compression}"


def _table_rows(table: Table) -> tuple[dict[str, Any], ...]:
    return tuple(table.to_pylist())


@cache
def _encode_numbers_table() -> _TableMessages:
    return _TableMessages.from_table(TABLE)


def _stream_entries(
    bodies: Sequence[SessionEntry], messages: _TableMessages | None = None, first: int = 0
) -> list[SessionEntry]:
    """Return the messages of a stream, in which each body follows its metadata."""
    messages = messages or _encode_numbers_table()
    entries = [_metadata_entry(first, messages.schema, "schema")]
    for index, (header, note, body) in enumerate(zip(messages.headers, messages.notes, bodies, strict=True), 1):
        entries += [_metadata_entry(_sequence_number(first, index), header, note), body]
    return [*entries, _end_of_stream_entry(_sequence_number(first, len(bodies) + 1))]


def _packed_body_entries(messages: _TableMessages | None = None, first: int = 0) -> list[SessionEntry]:
    bodies = (messages or _encode_numbers_table()).bodies
    return [_body_entry(_sequence_number(first, index), body) for index, body in enumerate(bodies, 1)]


def _sequence_number(first: int, index: int) -> int:
    return (first + index) & SEQUENCE_MASK


def _valid_sessions() -> Iterator[RecordedSession]:
    numbers, packed = _encode_numbers_table(), _packed_body_entries()
    one, two = numbers.addresses
    address_bodies = [_address_body_entry(1, one), _address_body_entry(2, two)]
    free_entries = [_free_data_entry(one), _free_data_entry(two)]
    stream = _stream_entries(packed)
    *metadata, end = (entry for entry in stream if entry.tag is None)
    streams = (
        ("bytes", _BOTH_SIDES, "Bodies of bytes (type 0).", stream),
        (
            "addresses",
            _BOTH_SIDES,
            "Bodies of addresses (type 1), which the client frees. One of the buffers is empty: it need not be freed.",
            [numbers.region_entry(), *_stream_entries(address_bodies), *free_entries],
        ),
        (
            "both-body-types",
            _CLIENT,
            "A body of bytes and one of addresses in one stream.",
            [numbers.region_entry(), *_stream_entries([packed[0], address_bodies[1]]), free_entries[1]],
        ),
        (
            "bodies-first",
            _CLIENT,
            "Bodies arrive before their metadata, and the second one before the first.",
            [packed[1], packed[0], *metadata, end],
        ),
        ("metadata-first", _CLIENT, "The end of the stream arrives before the bodies.", [*metadata, end, *packed]),
        (
            "out-of-order",
            _CLIENT,
            "Metadata arrive in another order, the end of the stream first. The client orders them by sequence number.",
            [end, metadata[2], packed[0], metadata[0], packed[1], metadata[1]],
        ),
        (
            "two-streams",
            _SERVER,
            "A second request over the same connection: sequence numbers start at 0 again.",
            [*stream, _want_data_entry(), *stream],
        ),
    )
    for name, sides, purpose, entries in streams:
        session = RecordedSession(
            name, purpose, (_want_data_entry(), *entries, _close_entry("client")), sides, _table_rows(TABLE)
        )
        yield replace(session, is_ordered=name != "out-of-order")
    yield _create_reading_session("no-batches", "A stream with a schema only.", Table(SCHEMA, []))
    yield _create_reading_session(
        "roll-over",
        "The sequence number after 0xffffffff is 0: that of the second batch.",
        TABLE,
        first=SEQUENCE_MASK - 1,
    )
    yield from _two_connection_sessions()


def _create_reading_session(
    name: str, purpose: str, table: Table, options: IpcWriteOptions = DEFAULT_WRITE_OPTIONS, first: int = 0
) -> RecordedSession:
    """Return a session in which a client reads a table with bodies of bytes."""
    messages = _TableMessages.from_table(table, options)
    stream = _stream_entries(_packed_body_entries(messages, first), messages, first)
    entries = (_want_data_entry(), *stream, _close_entry("client"))
    return RecordedSession(name, purpose, entries, _CLIENT, _table_rows(table), first_sequence=first)


def _dictionary_table(*dictionaries: list[str]) -> Table:
    """Return a table with one batch for each dictionary, which has each of its values once."""
    batches = [record_batch({"city": array(values).dictionary_encode()}) for values in dictionaries]
    return Table.from_batches(batches)


def _dictionary_sessions() -> Iterator[RecordedSession]:
    growing = _dictionary_table(["Oslo", "Rome"], ["Oslo", "Rome", "Bern"])
    yield _create_reading_session(
        "dictionary-delta", "A dictionary before the first batch, and a delta before the second one.", growing
    )
    yield _create_reading_session(
        "dictionary-replacement",
        "The second dictionary has the id of the first one and replaces it; the first batch keeps its values.",
        _dictionary_table(["Oslo", "Rome"], ["Bern", "Rome"]),
    )
    messages = _TableMessages.from_table(growing)
    bodies = [_address_body_entry(sequence, body) for sequence, body in enumerate(messages.addresses, 1)]
    stream = [messages.region_entry(), *_stream_entries(bodies, messages)]
    free_entries = [
        _free_data_entry(body) for body, note in zip(messages.addresses, messages.notes, strict=True) if "batch" in note
    ]
    yield RecordedSession(
        "dictionary-addresses",
        "As dictionary-delta, with bodies of addresses. A client may keep those of dictionaries until it disconnects.",
        (_want_data_entry(), *stream, *free_entries, _close_entry("client")),
        _CLIENT,
        _table_rows(growing),
    )


def _compressed_sessions() -> Iterator[RecordedSession]:
    table = Table.from_batches([record_batch({"n": [5] * 100 + [None], "m": list(range(101))}, _COMPRESSED_SCHEMA)])
    for codec in ("lz4", "zstd"):
        try:
            options = IpcWriteOptions(compression=codec)
        except MissingExtraError:
            continue
        purpose = f"Buffers compressed with {codec}; one that does not shrink has the length -1 and is not compressed."
        yield _create_reading_session(f"compressed-{codec}", purpose, table, options)


def _two_connection_sessions() -> Iterator[RecordedSession]:
    numbers, rows = _encode_numbers_table(), _table_rows(TABLE)
    tags = (WANT_METADATA, WANT_BODIES)
    one, two = numbers.addresses
    requests = _want_data_entry(WANT_METADATA), _want_data_entry(WANT_BODIES, connection=1)
    metadata = [entry for entry in _stream_entries(_packed_body_entries()) if entry.tag is None]
    bodies = [replace(body, connection=1) for body in _packed_body_entries()]
    address_bodies = numbers.region_entry(1), _address_body_entry(1, one, 1), _address_body_entry(2, two, 1)
    free_entries = _free_data_entry(one, 1), _free_data_entry(two, 1)
    closes = _close_entry("client"), _close_entry("client", 1)
    yield RecordedSession(
        "two-connections-bytes",
        "Metadata over one connection, bodies over another. The server tells them apart by the tag of the request.",
        (*requests, *metadata, *bodies, *closes),
        rows=rows,
        want_data=tags,
    )
    yield RecordedSession(
        "two-connections-addresses",
        "As two-connections-bytes, with addresses, which arrive before the metadata.",
        (*requests, *address_bodies, *metadata, *free_entries, *closes),
        rows=rows,
        want_data=tags,
    )


def _interrupted_sessions() -> Iterator[RecordedSession]:
    numbers = _encode_numbers_table()
    packed = _packed_body_entries()
    refusal = b"not-found\nthe server has no data set 'absent'"
    yield RecordedSession(
        "refused",
        "The server has no such data set: it sends a message with the tag error_data of its URI, and closes.",
        (
            _want_data_entry(ticket=b"absent"),
            SessionEntry("server", "message", "error_data: a kind of error, a line feed, a text", ERROR_DATA, refusal),
            _close_entry("server"),
        ),
        error="NotFoundError",
    )
    yield RecordedSession(
        "refused-without-a-reason",
        "The server closes the connection instead of sending a stream.",
        (_want_data_entry(ticket=b"absent"), _close_entry("server")),
        _CLIENT,
        error="ConnectionLostError",
    )
    stream = _stream_entries(packed)
    for number, note in ((1, "after the schema"), (2, "before a body"), (5, "before the end of the stream")):
        yield RecordedSession(
            f"server-ends-after-{number}",
            f"The server closes the connection {note}: no stream is complete without its end.",
            (_want_data_entry(), *stream[:number], _close_entry("server")),
            _CLIENT,
            error="ConnectionLostError",
        )
    one = numbers.addresses[0]
    yield RecordedSession(
        "cancelled",
        "The client closes the connection without freeing addresses: the server frees them all.",
        (
            _want_data_entry(),
            numbers.region_entry(),
            *_stream_entries([_address_body_entry(1, one), _address_body_entry(2, numbers.addresses[1])]),
            _close_entry("client"),
            _want_data_entry(connection=1),
            *(replace(entry, connection=1) for entry in [numbers.region_entry(), *_address_stream_entries()]),
            *(_free_data_entry(body, 1) for body in numbers.addresses),
            _close_entry("client", 1),
        ),
        _SERVER,
        _table_rows(TABLE),
    )


def _address_stream_entries() -> list[SessionEntry]:
    return _stream_entries(
        [_address_body_entry(sequence, body) for sequence, body in enumerate(_encode_numbers_table().addresses, 1)]
    )


def _server_violation_sessions() -> Iterator[RecordedSession]:
    """Yield sessions in which the last message of the server violates the protocol."""
    numbers, packed = _encode_numbers_table(), _packed_body_entries()
    metadata = [entry for entry in _stream_entries(packed) if entry.tag is None]
    first_entries = [metadata[0], metadata[1]]
    addresses = numbers.addresses[0]

    def message(note: str, tag: int | None, body: bytes) -> SessionEntry:
        return SessionEntry("server", "message", note, tag, body)

    def address_stream(
        note: str, words: Sequence[int], tag: int = encode_body_tag(1, _ADDRESSES)
    ) -> list[SessionEntry]:
        return [numbers.region_entry(), *first_entries, message(note, tag, np.array(words, "<u8").tobytes())]

    pairs = np.stack([addresses.addresses, addresses.lengths], 1).ravel().tolist()
    total, num_buffers = addresses.total_bytes, addresses.addresses.size
    outside = [total, num_buffers, *pairs[:-2], 1 << 20, pairs[-1]]
    yield from _violation_sessions(
        {
            "short-prefix": [message("four bytes", None, b"\1\0\0\0")],
            "message-type": [message("message type 2 in byte 0", None, b"\2" + bytes(4) + numbers.schema)],
            "end-length": [metadata[0], message("an end of stream with 6 bytes", None, bytes((0, 1, 0, 0, 0, 0)))],
            "no-schema": [_metadata_entry(0, numbers.headers[0], "a batch, but the first message is a schema")],
            "end-without-schema": [_end_of_stream_entry(0)],
            "gap": [metadata[0], metadata[2]],
            "repeated-metadata": [metadata[0], metadata[0]],
            "second-schema": [metadata[0], _metadata_entry(1, numbers.schema, "a second schema")],
            "wrong-end": [metadata[0], _end_of_stream_entry(2)],
            "repeated-body": [*first_entries, packed[0], packed[0]],
            "body-of-schema": [_body_entry(0, b"", ", but a schema has no body"), metadata[0]],
            "reserved-bits": [*first_entries, message("bit 40 of the tag is set", 1 << 40 | 1, numbers.bodies[0])],
            "body-type": [*first_entries, message("body type 2", 2 << 56 | 1, numbers.bodies[0])],
            "address-outside": address_stream("the last address is outside of the region", outside),
            "address-overflow": address_stream("address and length exceed 2**64", [8, 1, (1 << 64) - 4, 8]),
            "address-count": address_stream("three buffers are announced, but there are two", [total, 3, *pairs]),
            "address-total": address_stream(
                "the total is less than the sum of the lengths", [total - 1, num_buffers, *pairs]
            ),
            "address-half": [*first_entries, message("12 bytes", encode_body_tag(1, _ADDRESSES), bytes(12))],
            "address-buffers": address_stream("the header has two buffers", [pairs[3], 1, *pairs[2:4]]),
        }
    )
    without = [numbers.region_entry(), *first_entries, _address_body_entry(1, addresses)]
    (session,) = _violation_sessions({"no-free-data": without})
    yield replace(session, purpose="Addresses, but the URI has no free_data.", free_data=None)


def _violation_sessions(violations: dict[str, list[SessionEntry]]) -> Iterator[RecordedSession]:
    for name, entries in violations.items():
        yield RecordedSession(
            f"violation-{name}",
            f"A violation by the server: {entries[-1].note}.",
            (_want_data_entry(), *entries, _close_entry("client")),
            _CLIENT,
            error="InvalidDataError" if name in ("no-schema", "second-schema") else "ProtocolError",
        )


def _client_violation_sessions() -> Iterator[RecordedSession]:
    """Yield sessions in which the last message of the client violates the protocol."""
    numbers = _encode_numbers_table()
    stream = [_want_data_entry(), numbers.region_entry(), *_address_stream_entries()]
    one = numbers.addresses[0].addresses
    twice = np.concatenate([one[-1:], one[-1:]])
    leases = {
        "free-unleased": ("an address that no body had", np.array([1 << 40], "<u8").tobytes()),
        "free-twice": ("one address twice, but only one body had it", twice.tobytes()),
        "free-nothing": ("no address", b""),
        "free-half": ("12 bytes, but an address has 8", bytes(12)),
    }
    violations = {
        "plain": [SessionEntry("client", "message", "a plain message", None, TICKET)],
        "tag": [SessionEntry("client", "message", "neither want_data nor free_data", 77, TICKET)],
        "free-first": [SessionEntry("client", "message", "free_data before a request", FREE_DATA, one.tobytes())],
        **{
            name: [*stream, SessionEntry("client", "message", f"free_data: {note}", FREE_DATA, body)]
            for name, (note, body) in leases.items()
        },
    }
    for name, entries in violations.items():
        yield RecordedSession(
            f"violation-client-{name}",
            f"A violation by the client, after which the server closes the connection: {entries[-1].note}.",
            (*entries, _close_entry("server")),
            _SERVER,
        )


@cache
def recorded_sessions() -> tuple[RecordedSession, ...]:
    """Return all sessions."""
    return (
        *_valid_sessions(),
        *_dictionary_sessions(),
        *_compressed_sessions(),
        *_interrupted_sessions(),
        *_server_violation_sessions(),
        *_client_violation_sessions(),
    )


def write_sessions(directory: Path) -> list[Path]:
    """Write each session to a JSON file in a directory, which is created; return the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for session in recorded_sessions():
        paths.append(directory / f"{session.name}.json")
        paths[-1].write_text(json.dumps(session.to_json(), indent=1) + "\n", encoding="utf-8")
    return paths


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m bowstring.testing.recorded_sessions DIRECTORY")
    print(f"{len(write_sessions(Path(sys.argv[1])))} sessions")  # noqa: T201 - the output of the command
