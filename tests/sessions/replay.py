"""Play a recording against a client or a server, and compare its messages with the recording.

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
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from bowstring.datatypes.schema import Schema
from bowstring.dissociated.messages import (
    BODY_TYPE_SHIFT,
    PREFIX_BYTES,
    SEQUENCE_MASK,
    Addresses,
    BodyType,
    BytesLike,
    decode_addresses,
    decode_free_data,
    encode_addresses,
    encode_free_data,
)
from bowstring.dissociated.uri import StreamURI, parse_uri
from bowstring.errors import BowstringError, ConnectionLostError, InvalidArgumentError, ProtocolError
from bowstring.ipc.limits import DEFAULT_LIMITS
from bowstring.ipc.metadata.header import BatchHeader, HeaderReader
from bowstring.ipc.stream import Decoder
from bowstring.memory.closable import Closable
from bowstring.memory.region import Region
from bowstring.sharing.recording.trace import RecordedConnection, TraceStep, decode_entry, decode_trace
from bowstring.transports.base import ExportedRegion, MessageReceived, TransportOptions
from bowstring.transports.blocking import BlockingChannel
from bowstring.transports.observer import EventDirection, ObservedEvent, ObservedEventKind
from bowstring.transports.regions import ReceivedRegions
from bowstring.transports.registry import find_transport
from tests.transports.blocking import BlockingListener, has_input, retire
from tests.transports.region_buffers import view_buffers

_ADDRESS_BODY = int(BodyType.ADDRESSES)
_MAX_BYTES = 1 << 36

MessageKey: TypeAlias = tuple[int, str, int | None]
"""A message of a server: the index of its stream on the connection, its kind, and its sequence number."""


@dataclass(frozen=True, slots=True)
class MessageDifference:
    """A message that differs from the recorded one."""

    connection: int
    """The index of the connection."""
    recorded_message: str
    actual_message: str

    def __str__(self) -> str:
        return f"connection {self.connection}: expected {self.recorded_message}, found {self.actual_message}"


@dataclass(slots=True)
class _RecordedRegion:
    """A recorded region, and where it was exported again."""

    start: int
    size_bytes: int
    content: memoryview | None
    exported: ExportedRegion | None = None


@dataclass(frozen=True, slots=True)
class _ActualMessage:
    """A message of the server that is tested, and its buffers if it is a body of addresses."""

    tag: int | None
    data: memoryview
    buffers: list[memoryview] | None


class _ConnectionReplay:
    """Replays the client's or the server's side of one connection."""

    def __init__(
        self, entry: ObservedEvent, side: str, channel: BlockingChannel, differences: list[MessageDifference]
    ) -> None:
        self.channel = channel
        self._index = entry.connection
        self._recording = RecordedConnection.from_first_entry(entry)
        self._side = side
        self._peer = "client" if side == "server" else "server"
        self._differences = differences
        self._regions: list[_RecordedRegion] = []
        # Compared at the end by their keys, because metadata and bodies may overtake each other.
        self._recorded_messages: dict[MessageKey, list[ObservedEvent]] = {}
        self._actual_messages: dict[MessageKey, list[_ActualMessage]] = {}
        self._recorded_frees: Counter[int] = Counter()
        self._actual_frees: Counter[int] = Counter()
        self._leases: Counter[int] = Counter()
        self._empty_addresses: set[int] = set()
        """The addresses of empty buffers, which may be freed any number of times."""
        self._num_streams = 0
        self._peer_closes = False
        self._is_ended = False

    def play_entry(self, entry: ObservedEvent, step: TraceStep) -> None:
        """Send a message of this side, or receive one of the peer.

        Raises `InvalidArgumentError` if it can't be sent.
        """
        if self._is_ended:
            return
        try:
            if entry.kind in (ObservedEventKind.CLOSE, ObservedEventKind.LOSS):
                self._close(entry, step)
            elif step.sender == self._side:
                self._send(entry, step)
            else:
                self._receive(entry, step)
        except InvalidArgumentError:
            raise
        except BowstringError as error:
            self._is_ended = True
            self._add_difference(step.text, f"{type(error).__name__}: {error}")

    def finish(self) -> None:
        """Receive the rest, and the end of the connection; then compare."""
        try:
            if not self._is_ended:
                self._receive_remaining_messages()
        except BowstringError as error:
            if not (self._peer_closes and isinstance(error, ConnectionLostError)):
                self._add_difference("the end of the recording", f"{type(error).__name__}: {error}")
        self._compare_frees()
        self._compare_messages()

    def _close(self, entry: ObservedEvent, step: TraceStep) -> None:
        if (step.sender == self._side) != (entry.kind is ObservedEventKind.LOSS):
            self._is_ended = True
            if self._side == "server":
                self._receive_frees()
            self.channel.close()
        else:
            self._peer_closes = True

    def _send(self, entry: ObservedEvent, step: TraceStep) -> None:
        if entry.kind is ObservedEventKind.REGION:
            region = self._add_region(entry)
            if region.content is None:
                raise InvalidArgumentError("the recording has no contents of regions, and can't be played by a server")
            with Region.copy_of([region.content]) as memory:
                region.exported = self.channel.export(memory)
        elif entry.kind is ObservedEventKind.RETIREMENT:
            old_region = self._find_region_at(entry.address or 0)
            if old_region is not None and old_region.exported is not None:
                retire(self.channel, old_region.exported)
        elif entry.kind is ObservedEventKind.MESSAGE:
            self._num_streams += step.kind == "want_data"
            self.channel.send([self._translate_addresses(entry, step)], tag=entry.tag)

    def _receive(self, entry: ObservedEvent, step: TraceStep) -> None:
        if entry.kind is ObservedEventKind.REGION:
            self._add_region(entry)
        elif entry.kind is not ObservedEventKind.MESSAGE:
            return
        elif self._side == "client":
            self._recorded_messages.setdefault(self._message_key(entry.tag, entry.view()), []).append(entry)
            message = self.channel.receive()
            actual_message = _ActualMessage(message.tag, message.data, _view_body_buffers(self.channel, message))
            self._actual_messages.setdefault(self._message_key(message.tag, message.data), []).append(actual_message)
        elif step.kind == "free_data":
            self._recorded_frees.update(map(self._translate_address, decode_free_data(entry.view()).tolist()))
        else:
            self._receive_request(entry, step)

    def _receive_request(self, entry: ObservedEvent, step: TraceStep) -> None:
        message = self.channel.receive()
        # When a client frees addresses depends on its garbage collector: frees are counted, not expected at one place.
        while self._try_count_frees(message):
            message = self.channel.receive()
        self._num_streams += 1
        if (message.tag, bytes(message.data)) != (entry.tag, entry.to_bytes()):
            self._add_difference(step.text, self._describe_message(message))

    def _receive_frees(self) -> None:
        """Receive until the client has freed the same addresses as the recorded one."""
        while self._count_missing_frees():
            message = self.channel.receive()
            if not self._try_count_frees(message):
                raise ProtocolError(f"expected <free_data> messages, found {self._describe_message(message)}")

    def _receive_remaining_messages(self) -> None:
        if self._side == "server":
            self._receive_frees()
        while self._peer_closes or has_input(self.channel):
            message = self.channel.receive()
            if self._side == "server":
                is_allowed = self._try_count_frees(message)
            else:
                is_allowed = self._peer_closes and ("server", message.tag) in self._recording.kinds_by_tag
            if not is_allowed:
                self._add_difference("no more messages", self._describe_message(message))

    def _try_count_frees(self, message: MessageReceived) -> bool:
        """Count the addresses of a <free_data> message; return False for another message."""
        if message.tag is None or self._recording.kinds_by_tag.get(("client", message.tag)) != "free_data":
            return False
        self._actual_frees.update(decode_free_data(message.data).tolist())
        return True

    def _count_missing_frees(self) -> Counter[int]:
        missing_frees = self._recorded_frees - self._actual_frees
        for address in self._empty_addresses:
            del missing_frees[address]
        return missing_frees

    # Addresses

    def _add_region(self, entry: ObservedEvent) -> _RecordedRegion:
        region = _RecordedRegion(entry.address or 0, entry.length_bytes, entry.view() if entry.parts else None)
        self._regions.append(region)
        return region

    def _find_region_at(self, address: int) -> _RecordedRegion | None:
        """Return the recorded region of an address. Its end belongs to it, too, unless another region begins there."""
        inside = [each for each in self._regions if each.start <= address < each.start + max(each.size_bytes, 1)]
        before = [each for each in self._regions if each.start + each.size_bytes == address]
        return next(reversed(inside or before), None)

    def _translate_addresses(self, entry: ObservedEvent, step: TraceStep) -> bytes | memoryview:
        """Return the bytes of a message with the addresses of this connection."""
        if step.kind == "free_data":
            return encode_free_data(self._find_actual_addresses(decode_free_data(entry.view())))
        if step.kind == "body" and step.body_type == _ADDRESS_BODY:
            body = decode_addresses(entry.view())
            addresses = np.array([self._translate_address(each) for each in body.addresses.tolist()], "<u8")
            self._leases.update(addresses[body.lengths > 0].tolist())
            self._empty_addresses.update(addresses[body.lengths == 0].tolist())
            return encode_addresses(body.with_addresses(addresses))
        return entry.view()

    def _translate_address(self, address: int) -> int:
        region = self._find_region_at(address)
        if region is None or region.exported is None:  # a violation, which is played unchanged
            return address
        return region.exported.address + address - region.start

    def _find_actual_addresses(self, addresses: Addresses) -> Addresses:
        """Return the addresses that the server sent instead of recorded ones: all those of a body, or some."""
        by_recorded_address: dict[int, int] = {}
        for key, messages in self._actual_messages.items():
            if key[1] != f"body {_ADDRESS_BODY}":
                continue
            for entry, message in zip(self._recorded_messages.get(key, []), messages, strict=False):
                recorded_body, actual_body = decode_addresses(entry.view()), decode_addresses(message.data)
                if np.array_equal(recorded_body.addresses, addresses):
                    return actual_body.addresses
                pairs = zip(recorded_body.addresses.tolist(), actual_body.addresses.tolist(), strict=False)
                by_recorded_address.update(pairs)
        return np.array([by_recorded_address.get(address, address) for address in addresses.tolist()], "<u8")

    # Comparison

    def _compare_frees(self) -> None:
        for address in self._actual_frees - self._leases:
            if address not in self._empty_addresses:
                self._add_difference("leased addresses to be freed", f"0x{address:016x}, which is not leased")
        missing_frees = self._count_missing_frees()
        if missing_frees:
            self._add_difference(f"{missing_frees.total()} more addresses to be freed", "the end")

    def _compare_messages(self) -> None:
        for key in {**self._recorded_messages, **self._actual_messages}:
            entries, messages = self._recorded_messages.get(key, []), self._actual_messages.get(key, [])
            name = f"{key[1]} of number {key[2]}"
            if len(entries) > len(messages):
                self._add_difference(name, "no such message")
            elif len(entries) < len(messages):
                self._add_difference("no such message", name)
            for entry, message in zip(entries, messages, strict=False):
                if message.buffers is not None:
                    self._compare_buffers(entry, message.buffers)
                elif not self._is_same_message(key, entry, message):
                    recorded_message = describe_message(self._recording, "server", entry.tag, entry.view())
                    self._add_difference(recorded_message, "other bytes")

    def _is_same_message(self, key: MessageKey, entry: ObservedEvent, message: _ActualMessage) -> bool:
        """Whether a message means the same as the recorded one."""
        recorded_data = entry.view()
        if recorded_data == message.data:
            return True
        if entry.tag is None:
            return _has_equal_header(recorded_data, message.data)
        if ("server", entry.tag) in self._recording.kinds_by_tag:
            return _error_kind(recorded_data) == _error_kind(message.data)
        header_key = (key[0], "metadata", key[2])
        entries, headers = self._recorded_messages.get(header_key, []), self._actual_messages.get(header_key, [])
        recorded_buffers = [_unpadded_buffers(each.view(), recorded_data) for each in entries]
        return bool(entries) and recorded_buffers == [_unpadded_buffers(each.data, message.data) for each in headers]

    def _compare_buffers(self, entry: ObservedEvent, buffers: list[memoryview]) -> None:
        body, name = decode_addresses(entry.view()), f"body {(entry.tag or 0) & SEQUENCE_MASK}"
        recorded_lengths, lengths = body.lengths.tolist(), [len(buffer) for buffer in buffers]
        if recorded_lengths != lengths:
            self._add_difference(f"{name}, buffers of {recorded_lengths} bytes", str(lengths))
            return
        for index, (address, buffer) in enumerate(zip(body.addresses.tolist(), buffers, strict=True)):
            region = self._find_region_at(address)
            if region is not None and region.content is not None:
                start = address - region.start
                if region.content[start : start + len(buffer)] != buffer:
                    self._add_difference(f"{name}, buffer {index}", "other bytes")

    def _message_key(self, tag: int | None, data: BytesLike) -> MessageKey:
        if tag is None:
            kind = "end of stream" if bytes(data[:1]) == b"\0" else "metadata"
            return self._num_streams, kind, int.from_bytes(data[1:PREFIX_BYTES], "little")
        is_body = tag & ~(1 << BODY_TYPE_SHIFT) == tag & SEQUENCE_MASK
        kind = f"body {tag >> BODY_TYPE_SHIFT}" if is_body else f"tag 0x{tag:016x}"
        return self._num_streams, kind, tag & SEQUENCE_MASK

    def _describe_message(self, message: MessageReceived) -> str:
        return describe_message(self._recording, self._peer, message.tag, message.data)

    def _add_difference(self, recorded_message: str, actual_message: str) -> None:
        self._differences.append(MessageDifference(self._index, recorded_message, actual_message))


class _RecordingPlayer:
    """Plays one side of a recording. `open_channel` opens the next connection."""

    def __init__(
        self, entries: Iterable[ObservedEvent], side: str, open_channel: Callable[[], BlockingChannel]
    ) -> None:
        self.entries = list(entries)
        self.differences: list[MessageDifference] = []
        self._steps = list(decode_trace(self.entries))
        self._side = side
        self._open_channel = open_channel

    def play(self) -> None:
        """Play all entries, then compare."""
        replays: dict[int, _ConnectionReplay] = {}
        try:
            for entry, step in zip(self.entries, self._steps, strict=True):
                if entry.kind is ObservedEventKind.CONNECTION:
                    channel = self._open_channel()
                    replays[entry.connection] = _ConnectionReplay(entry, self._side, channel, self.differences)
                elif entry.connection in replays:
                    replays[entry.connection].play_entry(entry, step)
                else:
                    raise InvalidArgumentError(f"the recording has no beginning of connection {entry.connection}")
            for player in replays.values():
                player.finish()
        finally:
            for player in replays.values():
                player.channel.close()


class ReplayServer(Closable):
    """Plays the server's side of a recording to the clients that connect, in a thread. A context manager.

    The clients have to connect in the recorded order, and request the same tickets. Raises `InvalidArgumentError` if
    the transport can't export the recorded memory.
    """

    def __init__(
        self,
        entries: Iterable[ObservedEvent],
        *,
        scheme: str = "unix",
        address: str | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        self._scheme = scheme
        self._timeout_s = timeout_s
        self._listener = BlockingListener.listen(
            find_transport(scheme, scheme), address, options=_transport_options(timeout_s)
        )
        self._player = _RecordingPlayer(entries, "server", self._listener.accept)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._play, name="bowstring-replay", daemon=True)
        self._thread.start()

    def uri(self, ticket: str, connection: int = 0) -> str:
        """Return the URI of a data set, with the tags that were recorded for a connection."""
        texts = {
            entry.connection: entry.text for entry in self._player.entries if entry.kind is ObservedEventKind.CONNECTION
        }
        uri = _replace_uri_address(texts[connection], self._scheme, self._listener.address)
        return str(replace(uri, parameters=(*uri.parameters, ("ticket", ticket))))

    def wait_for_differences(self) -> list[MessageDifference]:
        """Wait until the recording is played to its end; return the differences of the clients."""
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
        except BaseException as error:  # noqa: BLE001 - raised by `wait_for_differences`
            self._error = error


def replay_client(entries: Iterable[ObservedEvent], uri: str, *, timeout_s: float = 30.0) -> list[MessageDifference]:
    """Play the client's side of a recording to the server at a URI; return the differences of the server.

    All connections are made to this server; the tags and tickets are those of the recording. Raises
    `ConnectionLostError`, `DeadlineError` and `InvalidArgumentError` if it can't be connected.
    """
    server = parse_uri(uri)
    transport = find_transport(server.scheme, uri)

    def connect() -> BlockingChannel:
        channel = BlockingChannel.dial(transport, server.address, options=_transport_options(timeout_s))
        if server.remote_handle is not None:
            channel.memory = transport.open_remote_memory(channel.channel, server.remote_handle)
        return channel

    player = _RecordingPlayer(entries, "client", connect)
    player.play()
    return player.differences


def _transport_options(timeout_s: float) -> TransportOptions:
    return TransportOptions(timeout_s=timeout_s, max_plain_bytes=_MAX_BYTES, max_tagged_bytes=_MAX_BYTES)


def _replace_uri_address(text: str, scheme: str, address: str) -> StreamURI:
    return replace(parse_uri(text), scheme=scheme, address=address, remote_handle=None)


def _read_header(data: memoryview) -> BatchHeader | Schema | None:
    """Return the header of a metadata message; None if it is malformed."""
    raw = bytes(data[PREFIX_BYTES:])
    try:
        header = HeaderReader(DEFAULT_LIMITS).read(raw, ("header",))
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
        return _header_comparison_key(one) == _header_comparison_key(other)
    return False


def _header_comparison_key(header: BatchHeader) -> tuple[object, ...]:
    template = header.template
    lengths = header.buffers()["length"].tolist()
    constants = template.kind, template.compression, template.pairs, template.dictionary_id, template.is_delta
    return *constants, header.length, header.nodes().tolist(), lengths, header.variadic_counts()


def _unpadded_buffers(header: memoryview, body: memoryview) -> list[bytes] | None:
    """Return the buffers in a body of bytes, without padding; None if the header is malformed."""
    batch = _read_header(header)
    if not isinstance(batch, BatchHeader):
        return None
    return [bytes(body[start : start + length]) for start, length in batch.buffers().tolist()]


def _error_kind(data: memoryview) -> bytes:
    return bytes(data).partition(b"\n")[0]


def _view_body_buffers(channel: BlockingChannel, message: MessageReceived) -> list[memoryview] | None:
    """Return the buffers of a body of addresses; None for other messages, and memory that has to be fetched."""
    if message.tag is None or message.tag >> 56 != _ADDRESS_BODY or not isinstance(channel.memory, ReceivedRegions):
        return None
    body = decode_addresses(message.data)
    return view_buffers(channel.memory, body.addresses, body.lengths)


def describe_message(connection: RecordedConnection, sender: str, tag: int | None, data: BytesLike) -> str:
    """Return the description of a message of the `client` or the `server`."""
    is_sent = (sender == "client") == connection.is_client
    direction = EventDirection.SENT if is_sent else EventDirection.RECEIVED
    entry = ObservedEvent(0, 0, direction, ObservedEventKind.MESSAGE, 0, tag, None, len(data), (data,))
    return decode_entry(entry, connection).text
