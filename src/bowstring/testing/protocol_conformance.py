"""Conformance tests for the protocol over a pair of connected transports."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest

from bowstring.dissociated.client import ClientStream
from bowstring.dissociated.events import AddressesFreed, DataRequested, StreamComplete, StreamMessage
from bowstring.dissociated.messages import AddressBody, PackedBody
from bowstring.dissociated.server import ServerConnection
from bowstring.errors import ConnectionLostError
from bowstring.memory.region import Region
from bowstring.testing.descriptors import assert_descriptors_closed
from bowstring.transports.base import Transport, TransportOptions
from bowstring.transports.blocking import BlockingChannel
from bowstring.transports.region_addresses import encode_region_addresses

ChannelPair: TypeAlias = tuple[BlockingChannel, BlockingChannel]
DEFAULT_OPTIONS = TransportOptions(timeout_s=20.0)
WANT_DATA, FREE_DATA = 11, 12


@contextmanager
def run_in_thread(action: Callable[[], Any]) -> Iterator[list[BaseException]]:
    """Run `action` in a thread during the block. The list contains the error that it raised, if any."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - the test checks it
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield raised
    finally:
        thread.join(30)
        assert not thread.is_alive(), "a call hangs beyond its deadline"


class ProtocolConformance:
    """Tests of streams between a pair of channels. A subclass sets `transport`; see `TransportConformance`."""

    transport: Transport
    shares_memory = True

    def connect_pair(self, options: TransportOptions = DEFAULT_OPTIONS) -> ChannelPair:
        """Return two connected channels: one that dialed, and one that was accepted."""
        return BlockingChannel.pair(self.transport, options)

    @pytest.fixture
    def channel_pair(self) -> Iterator[ChannelPair]:
        """A pair that is closed after the test, which must not leak descriptors."""
        with assert_descriptors_closed():
            one, other = self.connect_pair()
            with one, other:
                yield one, other

    def test_a_stream_with_packed_bodies_arrives(self, channel_pair: ChannelPair) -> None:
        received = self._transfer_stream(
            channel_pair, [PackedBody.from_parts(bytes([n]) * 1000, b"tail") for n in range(20)]
        )
        assert [bytes(m.body.parts[0]) for m in received[1:]] == [bytes([n]) * 1000 + b"tail" for n in range(20)]

    def test_a_stream_with_addresses_arrives_and_its_memory_is_freed(self, channel_pair: ChannelPair) -> None:
        self._skip_without_regions()
        one, other = channel_pair
        with Region.copy_of([bytes(range(256)) * 16]) as region:
            index = one.export(region).index
        bodies = [
            AddressBody.from_arrays(encode_region_addresses(index, [n * 16, n * 16 + 8]), [8, 3]) for n in range(200)
        ]
        received = self._transfer_stream(channel_pair, bodies)
        views = [other.memory.view_buffers(m.body.addresses, m.body.lengths) for m in received[1:]]
        whole = bytes(range(256)) * 16
        assert [[bytes(v) for v in pair] for pair in views] == [
            [whole[n * 16 : n * 16 + 8], whole[n * 16 + 8 : n * 16 + 11]] for n in range(200)
        ]

    def test_a_server_that_disconnects_at_any_step_is_an_error_naming_the_missing_message(self) -> None:
        server = ServerConnection(WANT_DATA, FREE_DATA)
        server.receive(WANT_DATA, b"ticket")
        outgoing = server.send(b"schema")
        for number in range(3):
            outgoing += server.send(b"batch", PackedBody.from_parts(bytes([number]) * 100))
        outgoing += server.send_end()
        for step in range(len(outgoing)):
            one, other = self.connect_pair()
            client = ClientStream(WANT_DATA, FREE_DATA, has_body=lambda header: bytes(header) == b"batch")
            with one, other:
                other.send_message(client.request(b"ticket"))
                one.receive()
                for message in outgoing[:step]:
                    one.send_message(message)
                one.close()
                for _ in range(step):
                    client.receive(*other.receive())
                with pytest.raises(ConnectionLostError):
                    other.receive()
                with pytest.raises(ConnectionLostError, match=f"message {(step + 1) // 2}"):
                    client.connection_lost()

    def _transfer_stream(self, channel_pair: ChannelPair, bodies: list[Any]) -> list[Any]:
        """Send a schema and these bodies, and free all addresses; return the messages that the client received."""
        one, other = channel_pair
        closing_events: list[Any] = []

        def serve() -> None:
            server = ServerConnection(WANT_DATA, FREE_DATA)
            assert server.receive(*one.receive()) == [DataRequested(b"ticket")]
            outgoing = server.send(b"schema")
            for body in bodies:
                outgoing += server.send(b"batch", body)
            for message in [*outgoing, *server.send_end()]:
                one.send_message(message)
            while server.leases:
                closing_events.extend(server.receive(*one.receive()))

        client = ClientStream(WANT_DATA, FREE_DATA, has_body=lambda header: bytes(header) == b"batch")
        messages = []
        with run_in_thread(serve) as raised:
            other.send_message(client.request(b"ticket"))
            while not client.has_all_messages:
                events = client.receive(*other.receive())
                messages += [event for event in events if isinstance(event, StreamMessage)]
            for message in messages:
                if isinstance(message.body, AddressBody):
                    free_message = client.free(message.body)
                    assert free_message is not None
                    other.send_message(free_message)
        assert not raised
        assert client.is_complete
        if any(isinstance(body, AddressBody) for body in bodies):
            assert closing_events[-2:] == [AddressesFreed(2, 0), StreamComplete()]
        return messages

    def _skip_without_regions(self) -> None:
        if not self.shares_memory:
            pytest.skip("this transport shares no memory")
