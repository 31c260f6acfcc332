"""The Dissociated IPC protocol: a client or a server whose peer sends any messages in any order.

The input is a script. Its first byte selects client or server and their options. Each step is a byte that selects an
action, and a few bytes with its parameters. The messages that the client returns are in order, and each has the body
that its header announces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bowstring.dissociated.client import ClientStream
from bowstring.dissociated.events import AddressesFreed, AllMessagesReceived, DataRequested, StreamMessage
from bowstring.dissociated.limits import DEFAULT_LIMITS, ProtocolLimits
from bowstring.dissociated.messages import AddressBody, PackedBody, encode_body_tag, encode_prefix
from bowstring.dissociated.server import ConnectionRole, ServerConnection
from bowstring.errors import ConnectionLostError, InvalidArgumentError, LimitError, ProtocolError
from fuzz.expectations import expect

WANT, FREE = 5, 6
_SMALL = ProtocolLimits(
    max_ticket_bytes=4, max_metadata_bytes=64, max_packed_body_bytes=100, max_address_body_bytes=1 << 20,
    max_buffers=3, max_pending_messages=4, max_pending_bytes=300, max_outstanding_addresses=5,
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
    """Reads the input from the front; zeros follow its end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def has_bytes(self) -> bool:
        """Whether there are bytes left."""
        return self._at < len(self._data)

    def byte(self) -> int:
        """The next byte."""
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def bytes(self, count: int) -> bytes:
        """The next `count` bytes, or all that are left."""
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self) -> int:
        """An extreme number, or a small one."""
        value = self.byte()
        return _NUMBERS[value % len(_NUMBERS)] if value >= 128 else value


def check_protocol(data: bytes) -> bool:
    """Run the script; return whether the peer follows the protocol."""
    script = Script(data)
    flags = script.byte()
    return (_run_client if flags & 1 else _run_server)(script, flags)


def _run_client(script: Script, flags: int) -> bool:
    first_sequence = (1 << 32) - 2 if flags & 8 else 0
    client = ClientStream(
        WANT,
        FREE if flags & 2 else None,
        has_body=lambda header: bytes(header[:1]) == b"B",
        limits=_SMALL if flags & 4 else DEFAULT_LIMITS,
        in_order=not flags & 16,
        first_sequence=first_sequence,
    )
    client.request(b"tick")
    application = _Client(client, first_sequence)
    while script.has_bytes:
        try:
            application.step(script)
        except (ProtocolError, LimitError) as error:
            expect(bool(str(error)), "the error has no message")
            expect(not len(client.leases), "after a violation, addresses are still leased")
            _expect_rejected(lambda: client.receive_metadata(encode_prefix(1, first_sequence) + b"S"))  # type: ignore[arg-type]
            _expect_rejected(lambda: client.receive_body(encode_body_tag(first_sequence, 0), b""))  # type: ignore[arg-type]
            return False
        except ConnectionLostError:
            return False
    return client.is_complete


def _expect_rejected(send: Callable[[], object]) -> None:
    try:
        send()
    except ProtocolError:
        return
    expect(False, "after a violation, a message is accepted")


class _Client:
    def __init__(self, client: ClientStream, first_sequence: int) -> None:
        self._client = client
        self._sent = self._next = first_sequence
        self._bodies: list[AddressBody] = []

    def step(self, script: Script) -> None:
        """Run the next step."""
        step = script.byte() % 8
        client = self._client
        if step <= 1:
            sequence = self._sequence(script)
            header = (b"B" if step else b"S") + script.bytes(script.byte() % 8)
            self._check_events(client.receive_metadata(encode_prefix(1, sequence) + header))  # type: ignore[arg-type]
        elif step == 2:
            tag = encode_body_tag(self._sequence(script), 0)  # type: ignore[arg-type]
            self._check_events(client.receive_body(tag, script.bytes(script.byte() % 16)))
        elif step == 3:
            self._check_events(client.receive_body(encode_body_tag(self._sequence(script), 1), _addresses(script)))  # type: ignore[arg-type]
        elif step == 4:
            self._check_events(client.receive_metadata(encode_prefix(0, self._sequence(script))))  # type: ignore[arg-type]
        elif step == 5:
            self._check_events(
                client.receive(script.number() if script.byte() % 2 else None, script.bytes(script.byte() % 40))
            )
        elif step == 6:
            self._free(script)
        else:
            client.connection_lost()

    def _sequence(self, script: Script) -> int:
        value = script.byte()
        if value >= 32:
            return (self._next + value % 4 - 1) & 0xFFFFFFFF
        return script.number() & 0xFFFFFFFF

    def _check_events(self, events: Sequence[object]) -> None:
        for event in events:
            if isinstance(event, StreamMessage):
                message = event
                expect(message.sequence == self._next, f"expected message {self._next}, found {message.sequence}")
                self._next = (self._next + 1) & 0xFFFFFFFF
                has_body = bytes(message.header[:1]) == b"B"
                expect((message.body is not None) == has_body, "a message lacks its body or has an unexpected one")
                if isinstance(message.body, AddressBody):
                    self._bodies.append(message.body)
            elif isinstance(event, AllMessagesReceived):
                expect(event.sequence == self._next, "a stream ends before its last message")

    def _free(self, script: Script) -> None:
        leases = self._client.leases.outstanding
        addresses = np.array([script.number() for _ in range(script.byte() % 4)], "<u8")
        body = self._bodies.pop() if self._bodies and script.byte() % 2 else None
        try:
            message = self._client.free(addresses if body is None else body)
        except InvalidArgumentError:
            expect(self._client.leases.outstanding == leases, "addresses are freed that are not leased")
            return
        num_freed = leases - self._client.leases.outstanding
        # The addresses of empty buffers are not leased, and may be freed any number of times.
        most = addresses.size if body is None else body.num_leased
        least = 0
        if body is not None:
            empty_addresses = self._client.leases._empty_addresses
            least = sum(address not in empty_addresses for address in body.addresses[body.lengths > 0].tolist())
        expect(message is None or least <= num_freed <= most, "a wrong number of addresses is freed")


def _addresses(script: Script) -> bytes:
    count = script.byte() % 6
    numbers = [script.number() for _ in range(2 * count)]
    total = sum(numbers[1::2]) if script.byte() % 4 else script.number()
    declared_count = count if script.byte() % 8 else script.number()
    raw = b"".join((number & (1 << 64) - 1).to_bytes(8, "little") for number in (total, declared_count, *numbers))
    return raw if script.byte() % 8 else raw[: script.byte()]


def _run_server(script: Script, flags: int) -> bool:
    role = (ConnectionRole.BOTH, ConnectionRole.METADATA, ConnectionRole.BODIES)[flags // 16 % 3]
    server = ServerConnection({WANT: role}, FREE if flags & 2 else None, limits=_SMALL if flags & 4 else DEFAULT_LIMITS)
    while script.has_bytes:
        outstanding = server.leases.outstanding
        try:
            _serve(server, script)
        except InvalidArgumentError:
            continue  # the server's application called a method at the wrong time
        except (ProtocolError, LimitError) as error:
            expect(bool(str(error)), "the error has no message")
            expect(server.leases.outstanding in (0, outstanding), "after a violation, some leases are missing")
            return False
    return True


def _serve(server: ServerConnection, script: Script) -> None:
    step = script.byte() % 6
    if step <= 2:
        tag = (WANT, FREE, script.number())[step]
        data = script.bytes(script.byte() % 12) if step != 1 else _freed_addresses(script)
        for event in server.receive(tag, data):
            expect(not isinstance(event, DataRequested) or event.ticket == data, "the event has a different ticket")
            expect(not isinstance(event, AddressesFreed) or event.count == len(data) // 8, "a wrong number is freed")
    elif step == 3:
        kind = script.byte() % 3
        body = PackedBody.from_parts(b"body") if kind == 1 else None
        if kind == 2:
            count = script.byte() % 4
            body = AddressBody.from_arrays([script.number() for _ in range(count)], [1] * count)  # type: ignore[assignment]
        server.send(b"header", body)
    elif step == 4:
        server.send_end()
    else:
        server.receive(None, script.bytes(script.byte() % 8))


def _freed_addresses(script: Script) -> bytes:
    raw = b"".join(script.number().to_bytes(8, "little") for _ in range(script.byte() % 4))
    return raw if script.byte() % 8 else raw + b"x"
