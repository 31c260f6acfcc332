"""The Dissociated IPC protocol: a client or a server that a peer sends anything to, in any order.

The bytes are a script. The first says who listens and how; then each step is a byte that says what happens, and a few
that say with what. Messages that came out are in order, each with the body that its header announces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bowstring.dissociated.client import ClientConnection
from bowstring.dissociated.events import AddressesFreed, DataRequested, MessageReady, StreamEnded
from bowstring.dissociated.limits import DEFAULT_LIMITS, Limits
from bowstring.dissociated.server import Role, ServerConnection
from bowstring.dissociated.wire import AddressBody, PackedBody, encode_prefix, encode_tag
from bowstring.errors import ConnectionLostError, LimitError, ProtocolError, UsageError
from fuzz.promises import promise

WANT, FREE = 5, 6
_SMALL = Limits(
    max_ticket_bytes=4, max_metadata_bytes=64, max_packed_body_bytes=100, max_address_body_bytes=1 << 20,
    max_buffers=3, max_unpaired_messages=4, max_unpaired_bytes=300, max_outstanding_addresses=5,
)  # fmt: skip
_NUMBERS = (
    0,
    1,
    2,
    3,
    7,
    8,
    64,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 48,
    (1 << 63),
    (1 << 64) - 1,
)


class Script:
    """The bytes, taken from the front; zeros when they are used up."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def is_left(self) -> bool:
        """Whether there is more."""
        return self._at < len(self._data)

    def byte(self) -> int:
        """The next byte."""
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def bytes(self, count: int) -> bytes:
        """So many bytes, or as many as there are."""
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self) -> int:
        """A number that is likely to hurt, or any small one."""
        value = self.byte()
        return _NUMBERS[value % len(_NUMBERS)] if value >= 128 else value


def check_protocol(data: bytes) -> bool:
    """Play the script; whether the peer kept to the protocol."""
    script = Script(data)
    how = script.byte()
    return (_play_client if how & 1 else _play_server)(script, how)


def _play_client(script: Script, how: int) -> bool:
    first = (1 << 32) - 2 if how & 8 else 0
    client = ClientConnection(
        WANT,
        FREE if how & 2 else None,
        has_body=lambda header: bytes(header[:1]) == b"B",
        limits=_SMALL if how & 4 else DEFAULT_LIMITS,
        in_order=not how & 16,
        first_sequence=first,
    )
    client.request(b"tick")
    listener = _Client(client, first)
    while script.is_left:
        try:
            listener.step(script)
        except (ProtocolError, LimitError) as error:
            promise(bool(str(error)), "an error without words")
            promise(not len(client.leases), "after a violation, addresses are still held")
            _is_deaf(lambda: client.receive_metadata(encode_prefix(1, first) + b"S"))  # type: ignore[arg-type]
            _is_deaf(lambda: client.receive_body(encode_tag(first, 0), b""))  # type: ignore[arg-type]
            return False
        except ConnectionLostError:
            return False
    return client.is_complete


def _is_deaf(send: Callable[[], object]) -> None:
    try:
        send()
    except ProtocolError:
        return
    promise(False, "after a violation, a message is taken")


class _Client:
    def __init__(self, client: ClientConnection, first: int) -> None:
        self._client = client
        self._sent = self._next = first
        self._bodies: list[AddressBody] = []

    def step(self, script: Script) -> None:
        """What happens next."""
        what = script.byte() % 8
        client = self._client
        if what <= 1:
            sequence = self._sequence(script)
            header = (b"B" if what else b"S") + script.bytes(script.byte() % 8)
            self._take(client.receive_metadata(encode_prefix(1, sequence) + header))  # type: ignore[arg-type]
        elif what == 2:
            tag = encode_tag(self._sequence(script), 0)  # type: ignore[arg-type]
            self._take(client.receive_body(tag, script.bytes(script.byte() % 16)))
        elif what == 3:
            self._take(client.receive_body(encode_tag(self._sequence(script), 1), _addresses(script)))  # type: ignore[arg-type]
        elif what == 4:
            self._take(client.receive_metadata(encode_prefix(0, self._sequence(script))))  # type: ignore[arg-type]
        elif what == 5:
            self._take(client.receive(script.number() if script.byte() % 2 else None, script.bytes(script.byte() % 40)))
        elif what == 6:
            self._free(script)
        else:
            client.connection_lost()

    def _sequence(self, script: Script) -> int:
        value = script.byte()
        if value >= 32:
            return (self._next + value % 4 - 1) & 0xFFFFFFFF
        return script.number() & 0xFFFFFFFF

    def _take(self, events: Sequence[object]) -> None:
        for event in events:
            if isinstance(event, MessageReady):
                message = event.message
                promise(message.sequence == self._next, f"message {message.sequence} comes, not {self._next}")
                self._next = (self._next + 1) & 0xFFFFFFFF
                announced = bytes(message.header[:1]) == b"B"
                promise((message.body is not None) == announced, "a message has no body, or one too many")
                if isinstance(message.body, AddressBody):
                    self._bodies.append(message.body)
            elif isinstance(event, StreamEnded):
                promise(event.sequence == self._next, "a stream ends before its last message")

    def _free(self, script: Script) -> None:
        leases = self._client.leases.outstanding
        addresses = np.array([script.number() for _ in range(script.byte() % 4)], "<u8")
        body = self._bodies.pop() if self._bodies and script.byte() % 2 else None
        try:
            sent = self._client.free(addresses if body is None else body)
        except UsageError:
            promise(self._client.leases.outstanding == leases, "addresses are freed that are not held")
            return
        freed = addresses.size if body is None else body.addresses.size
        promise(sent is None or self._client.leases.outstanding == leases - freed, "other addresses are freed")


def _addresses(script: Script) -> bytes:
    count = script.byte() % 6
    words = [script.number() for _ in range(2 * count)]
    total = sum(words[1::2]) if script.byte() % 4 else script.number()
    said = count if script.byte() % 8 else script.number()
    raw = b"".join((word & (1 << 64) - 1).to_bytes(8, "little") for word in (total, said, *words))
    return raw if script.byte() % 8 else raw[: script.byte()]


def _play_server(script: Script, how: int) -> bool:
    role = (Role.BOTH, Role.METADATA, Role.BODIES)[how // 16 % 3]
    server = ServerConnection(WANT, FREE if how & 2 else None, role=role, limits=_SMALL if how & 4 else DEFAULT_LIMITS)
    while script.is_left:
        before = server.leases.outstanding
        try:
            _serve(server, script)
        except UsageError:
            continue  # the server's own application asked for what is out of turn
        except (ProtocolError, LimitError) as error:
            promise(bool(str(error)), "an error without words")
            promise(server.leases.outstanding in (0, before), "after a violation, some leases went")
            return False
    return True


def _serve(server: ServerConnection, script: Script) -> None:
    what = script.byte() % 6
    if what <= 2:
        tag = (WANT, FREE, script.number())[what]
        data = script.bytes(script.byte() % 12) if what != 1 else _freed(script)
        for event in server.receive(tag, data):
            promise(not isinstance(event, DataRequested) or event.ticket == data, "another ticket is asked for")
            promise(not isinstance(event, AddressesFreed) or event.count == len(data) // 8, "other addresses are freed")
    elif what == 3:
        kind = script.byte() % 3
        body = PackedBody.of(b"body") if kind == 1 else None
        if kind == 2:
            count = script.byte() % 4
            body = AddressBody.of([script.number() for _ in range(count)], [1] * count)  # type: ignore[assignment]
        server.send(b"header", body)
    elif what == 4:
        server.end()
    else:
        server.receive(None, script.bytes(script.byte() % 8))


def _freed(script: Script) -> bytes:
    raw = b"".join(script.number().to_bytes(8, "little") for _ in range(script.byte() % 4))
    return raw if script.byte() % 8 else raw + b"x"
