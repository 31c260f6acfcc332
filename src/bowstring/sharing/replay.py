"""Play a recording against a client or a server, and compare what comes back with the recording.

`ReplayServer` listens, and sends the recorded messages of the server; `replay_client` connects to a server and sends
those of the client. Each message of one's own is sent after the recorded earlier messages of the peer have arrived,
except for <free_data>, which a client sends when it likes.

What may differ is not compared: times, addresses, the regions that buffers are in, padding, the encoding of headers,
how <free_data> messages are divided, and the texts of errors. Bodies of addresses are compared by the bytes of their
buffers, if the recording has the regions' contents.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from bowstring.datatypes.schema import Schema
from bowstring.dissociated.uri import StreamURI, parse_uri
from bowstring.dissociated.wire import (
    PREFIX_BYTES,
    SEQUENCE_MASK,
    AddressBody,
    Addresses,
    BodyType,
    decode_addresses,
    decode_free,
    encode_addresses,
    encode_free,
    encode_tag,
)
from bowstring.errors import BowstringError, ConnectionLostError, ProtocolError, UsageError
from bowstring.ipc.limits import DEFAULT_LIMITS
from bowstring.ipc.metadata.header import BatchHeader, HeaderReader
from bowstring.ipc.stream import Decoder
from bowstring.memory.closable import Closable
from bowstring.memory.region import Region
from bowstring.sharing.trace import RecordedConnection, Step, describe, trace
from bowstring.transports.base import Exported, TransportOptions
from bowstring.transports.blocking import BlockingChannel, BlockingListener, ReceivedMessage
from bowstring.transports.observation import Entry, EntryKind
from bowstring.transports.regions import RegionTable
from bowstring.transports.registry import find_transport

_ADDRESS_BODY = int(BodyType.ADDRESSES)
_MAX_BYTES = 1 << 36

Key: TypeAlias = tuple[int, str, int | None]
"""A message of a server: the index of its stream on the connection, its kind, and its sequence number."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A message that differs from the recorded one."""

    connection: int
    expected: str
    """The recorded message."""
    found: str

    def __str__(self) -> str:
        return f"connection {self.connection}: expected {self.expected}, found {self.found}"


@dataclass(slots=True)
class _PlayedRegion:
    """A recorded region, and where it was exported again."""

    start: int
    size_bytes: int
    content: memoryview | None
    exported: Exported | None = None


@dataclass(frozen=True, slots=True)
class _Received:
    """A message of the server, and its buffers if it is a body of addresses."""

    tag: int | None
    data: memoryview
    buffers: list[memoryview] | None


@dataclass(slots=True)
class _PlayedConnection:
    """One recorded connection, and the channel over which it is played."""

    recorded: RecordedConnection
    channel: BlockingChannel
    regions: list[_PlayedRegion] = field(default_factory=list)
    expected: dict[Key, list[Entry]] = field(default_factory=dict)
    received: dict[Key, list[_Received]] = field(default_factory=dict)
    requests: list[Entry] = field(default_factory=list)
    expected_frees: Counter[int] = field(default_factory=Counter)
    frees: Counter[int] = field(default_factory=Counter)
    lent: Counter[int] = field(default_factory=Counter)
    unleased: set[int] = field(default_factory=set)
    """The addresses of empty buffers, which may be freed any number of times."""
    num_streams: int = 0
    expects_end: bool = False
    is_ended: bool = False

    def region_of(self, address: int) -> _PlayedRegion | None:
        """The recorded region of an address; the end of a region belongs to it unless another one begins there."""
        inside = [each for each in self.regions if each.start <= address < each.start + max(each.size_bytes, 1)]
        ending = [each for each in self.regions if each.start + each.size_bytes == address]
        return next(reversed(inside or ending), None)


class _Player:
    """Plays one side of a recording. `open_channel` opens the connection with this index."""

    def __init__(self, entries: Iterable[Entry], side: str, open_channel: Callable[[int], BlockingChannel]) -> None:
        self.entries = list(entries)
        self.steps = list(trace(self.entries))
        self.side = side
        self._peer = "client" if side == "server" else "server"
        self.differences: list[Difference] = []
        self._open_channel = open_channel
        self._connections: dict[int, _PlayedConnection] = {}

    def play(self) -> None:
        """Play all entries, then compare."""
        try:
            for entry, step in zip(self.entries, self.steps, strict=True):
                self._play(entry, step)
            for index, played in self._connections.items():
                self._finish(index, played)
                self._compare(index, played)
        finally:
            for played in self._connections.values():
                played.channel.close()

    def _play(self, entry: Entry, step: Step) -> None:
        if entry.kind is EntryKind.CONNECTION:
            channel = self._open_channel(entry.connection)
            self._connections[entry.connection] = _PlayedConnection(RecordedConnection.of(entry), channel)
            return
        played = self._connections[entry.connection]
        if played.is_ended:
            return
        try:
            if entry.kind in (EntryKind.CLOSE, EntryKind.LOSS):
                self._end(played, entry, step)
            elif step.sender == self.side:
                self._send(played, entry, step)
            else:
                self._expect(played, entry, step)
        except BowstringError as error:
            if isinstance(error, UsageError):
                raise
            played.is_ended = True
            self._differ(entry.connection, step.text, f"{type(error).__name__}: {error}")

    def _end(self, played: _PlayedConnection, entry: Entry, step: Step) -> None:
        is_peer = entry.kind is EntryKind.LOSS
        if (step.sender == self.side) != is_peer:
            played.is_ended = True
            if self.side == "server":
                self._receive_frees(played)
            played.channel.close()
        else:
            played.expects_end = True

    def _send(self, played: _PlayedConnection, entry: Entry, step: Step) -> None:
        channel = played.channel
        if entry.kind is EntryKind.REGION:
            region = self._add_region(played, entry)
            if region.content is None:
                raise UsageError("the recording has no contents of regions, and can't be played by a server")
            with Region.copy_of([region.content]) as memory:
                region.exported = channel.export(memory)
        elif entry.kind is EntryKind.RETIREMENT:
            retired = played.region_of(entry.address or 0)
            if retired is not None and retired.exported is not None:
                channel.retire(retired.exported)
        elif entry.kind is EntryKind.MESSAGE:
            played.num_streams += step.kind == "want_data"
            channel.send([self._translate(played, entry, step)], tag=entry.tag)

    def _translate(self, played: _PlayedConnection, entry: Entry, step: Step) -> bytes | memoryview:
        """Return the bytes of a message with the addresses of this connection."""
        if step.kind == "free_data":
            return encode_free(self._own_addresses(played, decode_free(entry.view())))
        if step.kind == "body" and step.body_type == _ADDRESS_BODY:
            body = decode_addresses(entry.view())
            own_addresses = np.array([self._exported_address(played, each) for each in body.addresses.tolist()], "<u8")
            for address, length in zip(own_addresses.tolist(), body.lengths.tolist(), strict=True):
                if length:
                    played.lent[address] += 1
                else:
                    played.unleased.add(address)
            return encode_addresses(AddressBody(own_addresses, body.lengths, body.total_bytes))
        return entry.view()

    def _exported_address(self, played: _PlayedConnection, address: int) -> int:
        region = played.region_of(address)
        if region is None or region.exported is None:  # a violation, which is played unchanged
            return address
        return region.exported.address + address - region.start

    def _own_addresses(self, played: _PlayedConnection, addresses: Addresses) -> Addresses:
        """Return the received addresses for recorded ones: all those of a body, or some."""
        own: dict[int, int] = {}
        for key, messages in played.received.items():
            if key[1] != f"body {_ADDRESS_BODY}":
                continue
            for entry, message in zip(played.expected.get(key, []), messages, strict=False):
                recorded, received = decode_addresses(entry.view()), decode_addresses(message.data)
                if np.array_equal(recorded.addresses, addresses):
                    return received.addresses
                own.update(zip(recorded.addresses.tolist(), received.addresses.tolist(), strict=False))
        return np.array([own.get(address, address) for address in addresses.tolist()], "<u8")

    def _expect(self, played: _PlayedConnection, entry: Entry, step: Step) -> None:
        if entry.kind is EntryKind.REGION:
            self._add_region(played, entry)
        elif entry.kind is not EntryKind.MESSAGE:
            return
        elif self.side == "client":
            key = _key(played, entry.tag, bytes(entry.view()[:5]))
            played.expected.setdefault(key, []).append(entry)
            message = played.channel.receive()
            received = _Received(message.tag, message.data, _resolve(played.channel, message))
            played.received.setdefault(_key(played, message.tag, bytes(message.data[:5])), []).append(received)
        elif step.kind == "free_data":
            addresses = decode_free(entry.view()).tolist()
            played.expected_frees.update(self._exported_address(played, address) for address in addresses)
        else:
            self._receive_request(played, entry, step)

    def _receive_request(self, played: _PlayedConnection, entry: Entry, step: Step) -> None:
        while True:
            message = played.channel.receive()
            if not self._take_frees(played, message):
                break
        played.num_streams += 1
        if (message.tag, bytes(message.data)) != (entry.tag, entry.read()):
            self._differ(entry.connection, step.text, describe(played.recorded, "client", message.tag, message.data))

    def _take_frees(self, played: _PlayedConnection, message: ReceivedMessage) -> bool:
        if not played.recorded.is_free_data(message.tag):
            return False
        played.frees.update(decode_free(message.data).tolist())
        return True

    def _receive_frees(self, played: _PlayedConnection) -> None:
        """Receive until the client has freed what the recorded one frees."""
        while played.expected_frees - played.frees:
            message = played.channel.receive()
            if not self._take_frees(played, message):
                found = describe(played.recorded, self._peer, message.tag, message.data)
                raise ProtocolError(f"expected <free_data> messages, found {found}")

    def _finish(self, index: int, played: _PlayedConnection) -> None:
        """Receive what is still expected, and the end of the connection."""
        if played.is_ended:
            return
        try:
            if self.side == "server":
                self._receive_frees(played)
            while played.expects_end or played.channel.has_input:
                message = played.channel.receive()
                if self.side == "server":
                    is_allowed = self._take_frees(played, message)
                else:
                    is_allowed = played.expects_end and played.recorded.is_error(message.tag)
                if not is_allowed:
                    found = describe(played.recorded, self._peer, message.tag, message.data)
                    self._differ(index, "no more messages", found)
        except BowstringError as error:
            if not (played.expects_end and isinstance(error, ConnectionLostError)):
                self._differ(index, "the end of the recording", f"{type(error).__name__}: {error}")

    def _compare(self, index: int, played: _PlayedConnection) -> None:
        for address in played.frees - played.lent:
            if address not in played.unleased:
                self._differ(index, "leased addresses to be freed", f"0x{address:016x}, which is not leased")
        missing = played.expected_frees - played.frees
        for address in played.unleased:
            del missing[address]
        if missing:
            self._differ(index, f"{missing.total()} more addresses to be freed", "the end")
        for key in [*played.expected, *(key for key in played.received if key not in played.expected)]:
            pairs = played.expected.get(key, []), played.received.get(key, [])
            if len(pairs[0]) != len(pairs[1]):
                name, nothing = f"{key[1]} of number {key[2]}", "no such message"
                self._differ(index, *((name, nothing) if len(pairs[0]) > len(pairs[1]) else (nothing, name)))
            for entry, message in zip(*pairs, strict=False):
                problem = self._compare_message(played, key, entry, message)
                if problem is not None:
                    self._differ(index, *problem)

    def _compare_message(
        self, played: _PlayedConnection, key: Key, entry: Entry, message: _Received
    ) -> tuple[str, str] | None:
        if message.buffers is None:
            recorded_data = entry.view()
            if recorded_data == message.data:
                return None
            if entry.tag is None:
                is_equal = _has_equal_header(recorded_data, message.data)
            elif played.recorded.is_error(entry.tag):
                is_equal = _first_line(recorded_data) == _first_line(message.data)
            else:
                headers = (key[0], "metadata", key[2])
                own = [_buffers(each.view(), recorded_data) for each in played.expected.get(headers, [])]
                is_equal = bool(own) and own == [
                    _buffers(each.data, message.data) for each in played.received.get(headers, [])
                ]
            return None if is_equal else (describe(played.recorded, "server", entry.tag, recorded_data), "other bytes")
        sequence = (entry.tag or 0) & SEQUENCE_MASK
        recorded, lengths = decode_addresses(entry.view()), [len(buffer) for buffer in message.buffers]
        if recorded.lengths.tolist() != lengths:
            return f"body {sequence}, buffers of {recorded.lengths.tolist()} bytes", str(lengths)
        for index, (address, buffer) in enumerate(zip(recorded.addresses.tolist(), message.buffers, strict=True)):
            region = played.region_of(address)
            if region is not None and region.content is not None:
                start = address - region.start
                if region.content[start : start + len(buffer)] != buffer:
                    return f"body {sequence}, buffer {index}", "other bytes"
        return None

    def _add_region(self, played: _PlayedConnection, entry: Entry) -> _PlayedRegion:
        region = _PlayedRegion(entry.address or 0, entry.length_bytes, entry.view() if entry.parts else None)
        played.regions.append(region)
        return region

    def _differ(self, connection: int, expected: str, found: str) -> None:
        self.differences.append(Difference(connection, expected, found))


class ReplayServer(Closable):
    """Plays the server's side of a recording to the clients that connect, in a thread. A context manager.

    The clients have to connect in the recorded order, and request the same tickets. Raises `UsageError` if the
    transport can't export the recorded memory.
    """

    def __init__(
        self, entries: Iterable[Entry], *, scheme: str = "unix", address: str | None = None, timeout_s: float = 30.0
    ) -> None:
        self._scheme = scheme
        self._timeout_s = timeout_s
        self._listener = BlockingListener.listen(find_transport(scheme, scheme), address, options=_options(timeout_s))
        self._player = _Player(entries, "server", lambda _index: self._listener.accept())
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._play, name="bowstring-replay", daemon=True)
        self._thread.start()

    def uri(self, ticket: str, connection: int = 0) -> str:
        """Return the URI of a data set, with the tags that were recorded for a connection."""
        texts = {entry.connection: entry.text for entry in self._player.entries if entry.kind is EntryKind.CONNECTION}
        uri = _with_address(texts[connection], self._scheme, self._listener.address)
        return str(replace(uri, parameters=(*uri.parameters, ("ticket", ticket))))

    def finish(self) -> list[Difference]:
        """Wait until the recording is played to its end; return what the clients did otherwise."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._player.differences

    def close(self) -> None:
        """Stop listening; a recording that is being played is abandoned when its clients disconnect."""
        self._listener.close()

    def _play(self) -> None:
        try:
            self._player.play()
        except BaseException as error:  # noqa: BLE001 - raised by `finish`
            self._error = error


def replay_client(entries: Iterable[Entry], uri: str, *, timeout_s: float = 30.0) -> list[Difference]:
    """Play the client's side of a recording to the server at a URI; return what the server did otherwise.

    All connections are made to this server; the tags and tickets are those of the recording. Raises
    `ConnectionLostError`, `DeadlineError` and `UsageError` if it can't be connected.
    """
    server = parse_uri(uri)
    transport = find_transport(server.scheme, uri)

    def connect(_index: int) -> BlockingChannel:
        channel = BlockingChannel.dial(transport, server.address, options=_options(timeout_s))
        if server.remote_handle is not None:
            channel.memory = transport.open_memory(channel.channel, server.remote_handle)
        return channel

    player = _Player(entries, "client", connect)
    player.play()
    return player.differences


def _options(timeout_s: float) -> TransportOptions:
    return TransportOptions(timeout_s=timeout_s, max_plain_bytes=_MAX_BYTES, max_tagged_bytes=_MAX_BYTES)


def _with_address(text: str, scheme: str, address: str) -> StreamURI:
    return replace(parse_uri(text), scheme=scheme, address=address, remote_handle=None)


def _key(played: _PlayedConnection, tag: int | None, prefix: bytes) -> Key:
    if tag is None:
        kind = "end of stream" if prefix[:1] == b"\0" else "metadata"
        return played.num_streams, kind, int.from_bytes(prefix[1:5], "little")
    is_body = encode_tag(tag & SEQUENCE_MASK, BodyType.PACKED) == tag & ~(1 << 56)
    return played.num_streams, f"body {tag >> 56}" if is_body else f"tag 0x{tag:016x}", tag & SEQUENCE_MASK


def _read_header(data: memoryview) -> BatchHeader | Schema | None:
    """Return the header of a metadata message; None if it is malformed."""
    raw = bytes(data[PREFIX_BYTES:])
    try:
        header = HeaderReader(DEFAULT_LIMITS).read(raw, 0, "header")
        if isinstance(header, BatchHeader):
            return header
        decoder = Decoder()
        decoder.decode_header(raw)
        return decoder.schema
    except BowstringError:
        return None


def _has_equal_header(recorded: memoryview, received: memoryview) -> bool:
    """Whether two metadata messages mean the same, except for the offsets of buffers."""
    one, other = _read_header(recorded), _read_header(received)
    if isinstance(one, Schema) and isinstance(other, Schema):
        return one.equals(other, check_metadata=True)
    if isinstance(one, BatchHeader) and isinstance(other, BatchHeader):
        return _meaning(one) == _meaning(other)
    return False


def _meaning(header: BatchHeader) -> tuple[object, ...]:
    template = header.template
    lengths = header.buffers()["length"].tolist()
    constants = template.kind, template.compression, template.pairs, template.dictionary_id, template.is_delta
    return *constants, header.length, header.nodes().tolist(), lengths, header.variadic_counts()


def _buffers(header: memoryview, body: memoryview) -> list[bytes] | None:
    """Return the buffers in a body of bytes, without padding; None if the header is malformed."""
    batch = _read_header(header)
    if not isinstance(batch, BatchHeader):
        return None
    return [bytes(body[start : start + length]) for start, length in batch.buffers().tolist()]


def _first_line(data: memoryview) -> bytes:
    return bytes(data).partition(b"\n")[0]


def _resolve(channel: BlockingChannel, message: ReceivedMessage) -> list[memoryview] | None:
    """Return the buffers of a body of addresses; None for other messages, and memory that has to be fetched."""
    if message.tag is None or message.tag >> 56 != _ADDRESS_BODY or not isinstance(channel.memory, RegionTable):
        return None
    body = decode_addresses(message.data)
    return channel.memory.resolve_all(body.addresses, body.lengths)
