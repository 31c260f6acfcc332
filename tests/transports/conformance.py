"""Conformance tests for Bowstring's own transports, beside those that `bowstring_testing` has for any transport.

`StreamConformance` passes streams of the protocol over a pair of channels; `RegionConformance` has the tests of regions
whose descriptors are passed, as over unix sockets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bowstring.dissociated.client import ClientStream
from bowstring.dissociated.events import AddressesFreed, DataRequested, StreamComplete, StreamMessage
from bowstring.dissociated.messages import AddressBody, PackedBody
from bowstring.dissociated.server import ServerConnection
from bowstring.errors import BowstringError, ConnectionLostError, InvalidArgumentError, LimitError, ProtocolError
from bowstring.memory.region import Region
from bowstring.transports.base import ExportedRegion, TransportOptions
from bowstring.transports.regions import MAX_REGIONS, encode_region_address
from bowstring.transports.sockets import unix
from bowstring_testing.descriptors import assert_descriptors_closed
from bowstring_testing.transport_conformance import ChannelPair, ConnectedPairs, run_in_thread
from tests.transports.blocking import retire, send_message
from tests.transports.region_buffers import encode_region_addresses, view_buffer, view_buffers

WANT_DATA, FREE_DATA = 11, 12


class StreamConformance(ConnectedPairs):
    """Tests of streams between a pair of channels."""

    def test_a_stream_with_packed_bodies_arrives(self, channel_pair: ChannelPair) -> None:
        received = transfer_stream(channel_pair, [PackedBody.from_parts(bytes([n]) * 1000, b"tail") for n in range(20)])
        assert [bytes(m.body.parts[0]) for m in received[1:]] == [bytes([n]) * 1000 + b"tail" for n in range(20)]

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
                send_message(other, client.request(b"ticket"))
                one.receive()
                for message in outgoing[:step]:
                    send_message(one, message)
                one.close()
                for _ in range(step):
                    client.receive(*other.receive())
                with pytest.raises(ConnectionLostError):
                    other.receive()
                with pytest.raises(ConnectionLostError, match=f"message {(step + 1) // 2}"):
                    client.connection_lost()


class RegionConformance(ConnectedPairs):
    """Tests of regions between a pair of channels."""

    def test_a_stream_with_addresses_arrives_and_its_memory_is_freed(self, channel_pair: ChannelPair) -> None:
        one, other = channel_pair
        with Region.copy_of([bytes(range(256)) * 16]) as region:
            index = one.export(region).index
        bodies = [
            AddressBody.from_arrays(encode_region_addresses(index, [n * 16, n * 16 + 8]), [8, 3]) for n in range(200)
        ]
        received = transfer_stream(channel_pair, bodies)
        views = [view_buffers(other.memory, m.body.addresses, m.body.lengths) for m in received[1:]]
        whole = bytes(range(256)) * 16
        assert [[bytes(v) for v in pair] for pair in views] == [
            [whole[n * 16 : n * 16 + 8], whole[n * 16 + 8 : n * 16 + 11]] for n in range(200)
        ]

    def test_a_region_is_available_with_the_next_message(self, channel_pair: ChannelPair) -> None:
        one, other = channel_pair
        with Region.copy_of([b"first"]) as first, Region.copy_of([b"second"]) as second:
            indexes = [one.export(first).index, one.export(second).index]
        one.send([b"go"])
        other.receive()
        assert indexes == [0, 1]
        assert bytes(view_buffer(other.memory, encode_region_address(0, 1), 4)) == b"irst"
        view = view_buffer(other.memory, encode_region_address(1, 0), 6)
        assert view.readonly
        other.close()
        assert bytes(view) == b"second"

    def test_a_retired_region_is_removed_but_its_views_stay_valid(self, channel_pair: ChannelPair) -> None:
        one, other = channel_pair
        with Region.copy_of([b"data"]) as region:
            exported_region = one.export(region)
        one.send([b"go"])
        other.receive()
        view = view_buffer(other.memory, exported_region.address, 4)
        retire(one, exported_region)
        one.send([b"go"])
        other.receive()
        with pytest.raises(ProtocolError, match="region 0"):
            view_buffer(other.memory, exported_region.address, 4)
        assert bytes(view) == b"data"

    def test_the_number_of_regions_is_limited_and_only_sent_regions_can_be_retired(
        self, channel_pair: ChannelPair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, other = channel_pair
        monkeypatch.setattr(unix, "MAX_REGIONS", 2)
        with Region.copy_of([b"data"]) as region:
            indexes = [one.export(region).index for _ in range(2)]
            with pytest.raises(InvalidArgumentError, match="has sent 2 regions"):
                one.export(region)
        for index in (-1, 2):
            with pytest.raises(InvalidArgumentError, match=f"region {index}: this end has sent 2 regions"):
                retire(one, ExportedRegion(encode_region_address(index % MAX_REGIONS, 0), index))
        with pytest.raises(InvalidArgumentError, match="this end has sent 0 regions"):
            retire(other, ExportedRegion(0))
        one.send([b"go"])
        other.receive()
        assert list(other.memory) == indexes == [0, 1]

    def test_addresses_outside_a_region_are_rejected(self, channel_pair: ChannelPair) -> None:
        one, other = channel_pair
        with Region.copy_of([b"x" * 100]) as region:
            one.export(region)
        one.send([b"go"])
        other.receive()
        for address, length in [
            (1, 100),
            (101, 0),
            (encode_region_address(1, 0), 1),
            (2**64 - 1, 1),
            (0, 2**63),
            (50, 2**64 - 1),
        ]:
            if length == 0:
                assert bytes(view_buffer(other.memory, address, length)) == b""
                continue
            with pytest.raises(ProtocolError):
                view_buffer(other.memory, address, length)

    def test_a_regular_file_is_passed_without_copying_or_rejected_if_files_are_not_accepted(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "data"
        path.write_bytes(b"from a file")
        for accepts_files in (True, False):
            one, other = self.connect_pair(TransportOptions(timeout_s=20, accept_files=accepts_files))
            with one, other, Region.from_file(path) as region:
                one.export(region)
                one.send([b"go"])
                if accepts_files:
                    other.receive()
                    assert bytes(view_buffer(other.memory, encode_region_address(0, 5), 6)) == b"a file"
                else:
                    with pytest.raises(BowstringError, match="file"):
                        other.receive()

    def test_regions_beyond_the_limit_are_rejected_and_leak_nothing(self) -> None:
        with assert_descriptors_closed():
            one, other = self.connect_pair(TransportOptions(timeout_s=20, max_regions=3))
            with one, other, Region.copy_of([b"x"]) as region:
                for _ in range(4):
                    one.export(region)
                one.send([b"go"])
                with pytest.raises(LimitError):
                    other.receive()

    def test_regions_that_nobody_received_leak_nothing(self) -> None:
        with assert_descriptors_closed():
            one, other = self.connect_pair()
            with Region.copy_of([b"x"]) as region:
                one.export(region)
            one.close()
            other.close()


def transfer_stream(channel_pair: ChannelPair, bodies: list[Any]) -> list[Any]:
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
            send_message(one, message)
        while server.leases:
            closing_events.extend(server.receive(*one.receive()))

    client = ClientStream(WANT_DATA, FREE_DATA, has_body=lambda header: bytes(header) == b"batch")
    messages = []
    with run_in_thread(serve) as raised:
        send_message(other, client.request(b"ticket"))
        while not client.has_all_messages:
            events = client.receive(*other.receive())
            messages += [event for event in events if isinstance(event, StreamMessage)]
        for message in messages:
            if isinstance(message.body, AddressBody):
                free_message = client.free(message.body)
                assert free_message is not None
                send_message(other, free_message)
    assert not raised
    assert client.is_complete
    if any(isinstance(body, AddressBody) for body in bodies):
        assert closing_events[-2:] == [AddressesFreed(2, 0), StreamComplete()]
    return messages
