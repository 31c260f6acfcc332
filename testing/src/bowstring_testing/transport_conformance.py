"""Conformance tests for transports: subclass `TransportConformance`, and set its `transport`.

The tests run with pytest. `bowstring.transports.base` documents the contract. `ExportedMemoryConformance` has the tests
of memory that a server exports.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pytest

from bowstring.errors import (
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    InvalidArgumentError,
    LimitError,
    ProtocolError,
)
from bowstring.memory.closable import call_on_error
from bowstring.memory.region import Region
from bowstring.transports.base import (
    RECEIVE,
    SEND,
    Channel,
    DirectionEnded,
    ExportedRegion,
    MemoryExporter,
    MessageOffered,
    MessageReceived,
    RemoteMemory,
    RemoteMemoryUpdated,
    Transport,
    TransportOptions,
    Uint64Array,
)
from bowstring.transports.blocking import BlockingChannel, wait_for_interests
from bowstring_testing.descriptors import assert_descriptors_closed

ChannelPair: TypeAlias = tuple[BlockingChannel, BlockingChannel]
DEFAULT_OPTIONS = TransportOptions(timeout_s=20.0)
# Any tags; `bowstring.sharing` uses others.
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


def connect_pair(transport: Transport, options: TransportOptions = DEFAULT_OPTIONS) -> ChannelPair:
    """Return two connected channels: one that dialed, and one that was accepted."""
    with transport.listen(None, options) as listener:
        own = BlockingChannel.dial(transport, listener.address, options=options)
        with call_on_error(own.close):
            while not (accepted := listener.accept(1)):
                wait_for_interests(listener.interests(), options.timeout_s)
            return own, BlockingChannel(transport, accepted[0])


class ConnectedPairs:
    """Connects pairs of channels for tests. A subclass sets `transport`; see `TransportConformance`."""

    transport: Transport

    def connect_pair(self, options: TransportOptions = DEFAULT_OPTIONS) -> ChannelPair:
        """Return two connected channels: one that dialed, and one that was accepted."""
        return connect_pair(self.transport, options)

    @pytest.fixture
    def channel_pair(self) -> Iterator[ChannelPair]:
        """A pair that is closed after the test, which must not leak descriptors."""
        with assert_descriptors_closed():
            one, other = self.connect_pair()
            with one, other:
                yield one, other


CONTENT = bytes(range(256)) * 40
_MAX_ROUNDS = 2000
"""Of waiting for an event: enough for a loaded machine, but an end for a transport that never reports it."""


class ExportingConnectionPair:
    """A connection whose accepted end exports memory that the dialed end reads."""

    server: Channel
    client: Channel
    exporter: MemoryExporter
    memory: RemoteMemory

    def __init__(self, transport: Transport) -> None:
        with transport.listen(options=DEFAULT_OPTIONS) as listener:
            self.client = transport.dial(listener.address, DEFAULT_OPTIONS)
            accepted: list[Channel] = []
            while not accepted:
                self.client.progress()
                accepted = listener.accept()
            self.server = accepted[0]
            exporter = self.server.exporter
            memory = transport.open_remote_memory(self.client, listener.remote_handle)
        assert exporter is not None
        assert memory is not None
        self.exporter, self.memory = exporter, memory

    def close(self) -> None:
        """Close the connection, and drop what keeps the exported memory alive."""
        self.memory.close()
        self.client.close()
        self.server.close()
        del self.memory, self.exporter, self.client, self.server

    def synchronize(self) -> None:
        """Let the client receive everything that the server has submitted."""
        self.server.submit([b"synchronize"])
        for _ in range(_MAX_ROUNDS):
            self.server.progress()
            for event in self.client.progress():
                if isinstance(event, RemoteMemoryUpdated):
                    self.memory.apply_update(event.update)
                elif isinstance(event, MessageReceived):
                    self.client.grant_credit(1, len(event.data))
                    return
            wait = self.client.next_wait(RECEIVE)
            wait_for_interests(wait.interests, min(0.01, wait.timeout_s))
        raise AssertionError("the message did not arrive")

    def export(self, region: Region) -> ExportedRegion:
        """Export a region, and let the client receive the announcement."""
        exported_region = self.exporter.export(region)
        self.synchronize()
        return exported_region

    def fetch(self, addresses: Uint64Array, lengths: Uint64Array) -> bytes:
        """Fetch buffers of one extent, and wait for the end."""
        destination = bytearray(int(lengths.sum()))
        fetches = self.memory.start_fetch(self.memory.locate_buffers(addresses, lengths), lengths, destination)
        for _ in range(_MAX_ROUNDS):
            if all(fetch.is_done for fetch in fetches):
                assert [fetch.error for fetch in fetches if fetch.error is not None] == []
                return bytes(destination)
            self.server.progress()
            self.client.progress()
            wait = self.client.next_wait(RECEIVE)
            wait_for_interests(wait.interests, min(0.01, wait.timeout_s))
        raise AssertionError("the fetch did not end")


class ExportedMemoryConformance:
    """Tests of memory that one end of a connection exports. A subclass sets `transport`; see `TransportConformance`."""

    transport: Transport
    shares_memory = True

    @pytest.fixture
    def connection(self) -> Iterator[ExportingConnectionPair]:
        """A connection that is closed after the test, which must not leak descriptors."""
        if not self.shares_memory:
            pytest.skip("this transport shares no memory")
        with assert_descriptors_closed():
            connection = ExportingConnectionPair(self.transport)
            yield connection
            connection.close()

    def read_view(self, view: Any, offset_bytes: int, length_bytes: int) -> bytes:
        """Return bytes of a view, which must be read-only. Override it for memory of a device."""
        assert memoryview(view).readonly
        return bytes(view[offset_bytes : offset_bytes + length_bytes])

    def test_buffers_of_exported_memory_are_viewed_or_fetched(self, connection: ExportingConnectionPair) -> None:
        with Region.copy_of([CONTENT]) as region:
            start = connection.export(region).address
        addresses, lengths = (
            _uint64_array(start + 1, 0, start + 300, start + len(CONTENT)),
            _uint64_array(9, 0, 5000, 0),
        )
        located_buffers = connection.memory.locate_buffers(addresses, lengths)
        view = connection.memory.view_extent(located_buffers.extent)
        if view is not None:
            first, _, third, _ = located_buffers.offsets.tolist()
            assert self.read_view(view, first, 9) == CONTENT[1:10]
            assert self.read_view(view, third, 5000) == CONTENT[300:5300]
        assert connection.fetch(addresses, lengths) == CONTENT[1:10] + CONTENT[300:5300]
        assert connection.fetch(_uint64_array(start), _uint64_array(len(CONTENT))) == CONTENT

    def test_every_export_has_its_own_addresses(self, connection: ExportingConnectionPair) -> None:
        with Region.copy_of([b"first "]) as first, Region.copy_of([b"second"]) as second:
            starts = [connection.export(region).address for region in (first, second, first)]
        addresses, lengths = _uint64_array(*starts, 0), _uint64_array(6, 6, 6, 0)
        buffers: dict[int, bytes] = {}
        for indices, located_buffers in connection.memory.group_buffers_by_extent(addresses, lengths):
            assert (located_buffers.offsets + np.uint64(located_buffers.extent.start)).tolist() == addresses[
                indices
            ].tolist()
            for index in indices.tolist():
                buffers[index] = connection.fetch(addresses[index : index + 1], lengths[index : index + 1])
        assert buffers == {0: b"first ", 1: b"second", 2: b"first "}

    def test_addresses_outside_of_exported_memory_are_rejected(self, connection: ExportingConnectionPair) -> None:
        with Region.copy_of([CONTENT]) as region:
            start = connection.export(region).address
        extent = connection.memory.find_extent(start)
        assert extent.size_bytes <= connection.memory.size_bytes
        end = extent.start + extent.size_bytes
        for address, length in [(end, 1), (end - 1, 2), (start, 2**64 - 1), (start + 1, 2**63), (2**64 - 1, 1)]:
            with pytest.raises(ProtocolError, match=r"is not inside|did not send"):
                connection.memory.locate_buffers(_uint64_array(start, address), _uint64_array(1, length))
            with pytest.raises(ProtocolError, match=r"is not inside|did not send"):
                connection.memory.group_buffers_by_extent(_uint64_array(start, address), _uint64_array(1, length))
        assert connection.fetch(_uint64_array(end - 1), _uint64_array(1)) is not None

    def test_views_stay_valid_after_retirement_and_the_end_of_the_connection(
        self, connection: ExportingConnectionPair
    ) -> None:
        with Region.copy_of([CONTENT]) as region:
            exported_region = connection.export(region)
        located_buffers = connection.memory.locate_buffers(
            _uint64_array(exported_region.address), _uint64_array(len(CONTENT))
        )
        view, offset = connection.memory.view_extent(located_buffers.extent), int(located_buffers.offsets[0])
        connection.exporter.retire(exported_region)
        connection.synchronize()
        with Region.copy_of([b"later"]) as region:
            later = connection.export(region)
        assert later.address != exported_region.address
        assert connection.fetch(_uint64_array(later.address), _uint64_array(5)) == b"later"
        connection.memory.close()
        connection.memory.close()
        connection.client.close()
        connection.server.close()
        if view is not None:
            assert self.read_view(view, offset, len(CONTENT)) == CONTENT

    def test_only_exported_memory_can_be_retired(self, connection: ExportingConnectionPair) -> None:
        connection.exporter.check_capacity(1)
        with pytest.raises(InvalidArgumentError, match=r"has (sent|exported) 0 regions"):
            connection.exporter.retire(ExportedRegion(0))
        with Region.copy_of([b"x"]) as region:
            exported_region = connection.export(region)
        for index in (-1, exported_region.index + 1):
            with pytest.raises(InvalidArgumentError, match=r"has (sent|exported) 1 regions"):
                connection.exporter.retire(ExportedRegion(exported_region.address, index))
        connection.exporter.retire(exported_region)


def _uint64_array(*values: int) -> Uint64Array:
    return np.array(values, np.uint64)


_SIZE_LIMITS = (1 << 14, 1 << 15, 3 << 14, 1 << 16, 1 << 18, 1 << 20)
"""The lengths of TLS records and messages that are not offered first, buffers, and the credit in bytes."""


class TransportConformance(ExportedMemoryConformance, ConnectedPairs):
    """The tests of a transport. A subclass sets `transport`; if it shares no memory, also `shares_memory` to False."""

    # Messages

    def test_messages_arrive_in_order_with_their_tags(self, channel_pair: ChannelPair) -> None:
        one, other = channel_pair
        tags = [None, 0, 1, 2**64 - 1, None, 1 << 56 | 7]
        for number, tag in enumerate(tags):
            one.send([b"message ", str(number).encode()], tag=tag)
        for number, tag in enumerate(tags):
            received = other.receive()
            assert (received.tag, bytes(received.data)) == (tag, f"message {number}".encode())

    def test_empty_messages_are_messages(self, channel_pair: ChannelPair) -> None:
        one, other = channel_pair
        one.send([])
        one.send([b"", b""], tag=9)
        assert [(m.tag, bytes(m.data)) for m in (other.receive(), other.receive())] == [(None, b""), (9, b"")]

    def test_a_message_of_many_parts_arrives_whole(self, channel_pair: ChannelPair) -> None:
        one, other = channel_pair
        parts = [bytes([number % 251]) * (number % 97) for number in range(5000)]
        with run_in_thread(lambda: one.send(parts, tag=3)) as raised:
            received = other.receive()
        assert not raised
        assert received.data == b"".join(parts)

    def test_a_large_message_arrives(self, channel_pair: ChannelPair) -> None:
        one, other = channel_pair
        body = os.urandom(1 << 20) * 24 + b"end"
        with run_in_thread(lambda: one.send([memoryview(body)[:100], memoryview(body)[100:]], tag=5)) as raised:
            received = other.receive()
        assert not raised
        assert (received.tag, received.data == body) == (5, True)

    @pytest.mark.parametrize("is_answered", [True, False])
    def test_messages_of_sizes_around_each_limit_arrive(self, channel_pair: ChannelPair, is_answered: bool) -> None:
        """One by one, or together with the next ones."""
        own, other = channel_pair
        sizes = [limit + step for limit in _SIZE_LIMITS for step in (-64, -24, -1, 0, 1, 24, 64)]

        def send_all() -> None:
            for size in sizes:
                own.send((b"a" * (size - 1), b"b"), tag=size)
                if is_answered:
                    own.receive()

        with run_in_thread(send_all) as raised:
            for size in sizes:
                message = other.receive()
                assert (message.tag, bytes(message.data)) == (size, b"a" * (size - 1) + b"b")
                if is_answered:
                    other.send((b"next",))
        assert not raised

    def test_both_directions_work_at_the_same_time(self, channel_pair: ChannelPair) -> None:
        one, other = channel_pair
        count, body = 300, b"x" * 5000

        def exchange(own: BlockingChannel, mark: bytes) -> None:
            def send_all() -> None:
                for number in range(count):
                    own.send([mark, str(number).encode(), b" ", body], tag=number)

            with run_in_thread(send_all) as raised:
                for number in range(count):
                    received = own.receive()
                    assert received.tag == number
                    assert bytes(received.data[1:]).startswith(f"{number} ".encode())
            assert not raised

        with run_in_thread(lambda: exchange(other, b"b")) as raised:
            exchange(one, b"a")
        assert not raised

    def test_messages_of_several_threads_do_not_mix(self, channel_pair: ChannelPair) -> None:
        one, other = channel_pair

        def send_many(mark: bytes) -> None:
            for _ in range(100):
                one.send([mark] * 2000, tag=mark[0])

        with (
            run_in_thread(lambda: send_many(b"a")),
            run_in_thread(lambda: send_many(b"b")),
            run_in_thread(lambda: send_many(b"c")),
        ):
            for _ in range(300):
                received = other.receive()
                assert received.tag is not None
                assert bytes(received.data) == bytes([received.tag]) * 2000

    def test_a_message_beyond_the_limit_is_rejected_and_ends_the_connection(self) -> None:
        one, other = self.connect_pair(TransportOptions(timeout_s=20, max_plain_bytes=100, max_tagged_bytes=200))
        with one, other:
            one.send([b"x" * 200], tag=1)
            assert len(other.receive().data) == 200
            one.send([b"x" * 101])
            with pytest.raises(LimitError, match="101 bytes"):
                other.receive()
            with pytest.raises((ConnectionLostError, ClosedError)):
                other.receive()

    # Deadlines

    def test_receiving_from_a_silent_peer_ends_at_the_deadline_and_can_be_repeated(
        self, channel_pair: ChannelPair
    ) -> None:
        one, other = channel_pair
        begin = time.monotonic()
        with pytest.raises(DeadlineError, match=r"0\.1 s"):
            other.receive(timeout_s=0.1)
        assert time.monotonic() - begin < 5
        one.send([b"late"])
        assert bytes(other.receive().data) == b"late"

    def test_sending_to_a_peer_that_does_not_read_ends_at_the_deadline(self) -> None:
        one, other = self.connect_pair(TransportOptions(timeout_s=0.2))
        with one, other, pytest.raises(DeadlineError):
            for _ in range(10_000):
                one.send([b"x" * 50_000])

    def test_sending_waits_for_the_peer_although_its_messages_have_not_been_received(self) -> None:
        own, other = self.connect_pair(replace(DEFAULT_OPTIONS, credit_messages=2))
        with own, other:
            for _ in range(5):
                other.send((b"not received yet",))
            own.receive()
            with run_in_thread(lambda: own.send((bytes(1 << 24),))) as raised:
                assert len(other.receive().data) == 1 << 24
            assert not raised

    def test_a_call_can_wait_without_a_deadline(self, channel_pair: ChannelPair) -> None:
        one, other = channel_pair
        with run_in_thread(lambda: other.receive(timeout_s=math.inf)) as raised:
            time.sleep(0.02)
            one.send([b"x"], timeout_s=math.inf)
        assert not raised

    # Peers that go away

    def test_messages_sent_before_closing_arrive(self, channel_pair: ChannelPair) -> None:
        one, other = channel_pair
        one.send([b"last words"])
        one.close()
        assert bytes(other.receive().data) == b"last words"
        with pytest.raises(ConnectionLostError):
            other.receive()

    def test_sending_to_a_closed_peer_is_an_error(self, channel_pair: ChannelPair) -> None:
        one, other = channel_pair
        one.close()
        with pytest.raises(ConnectionLostError):
            other.send([b"hello"])

    def test_a_blocked_receiver_fails_when_the_peer_closes(self, channel_pair: ChannelPair) -> None:
        one, other = channel_pair
        with run_in_thread(other.receive) as raised:
            time.sleep(0.05)
            one.close()
        assert [isinstance(error, ConnectionLostError) for error in raised] == [True]

    def test_a_blocked_receiver_fails_when_its_own_end_is_closed(self, channel_pair: ChannelPair) -> None:
        _, other = channel_pair
        with run_in_thread(other.receive) as raised:
            time.sleep(0.05)
            other.close()
        assert [type(error) for error in raised] == [ClosedError]

    def test_a_blocked_sender_fails_when_the_peer_closes(self, channel_pair: ChannelPair) -> None:
        one, other = channel_pair

        def send_much() -> None:
            for _ in range(10_000):
                one.send([b"x" * 50_000])

        with run_in_thread(send_much) as raised:
            time.sleep(0.05)
            other.close()
        assert [isinstance(error, ConnectionLostError) for error in raised] == [True]

    def test_calls_on_a_closed_transport_raise_closed_error(self, channel_pair: ChannelPair) -> None:
        one, _ = channel_pair
        one.close()
        one.close()
        assert one.is_closed
        for call in (one.receive, lambda: one.send([b""])):
            with pytest.raises(ClosedError):
                call()

    # Channels, which never block

    def test_a_long_message_is_offered_and_received_into_its_destination(self) -> None:
        with self._connect_channels() as (one, other):
            length = other.options.eager_bytes + 1
            body = os.urandom(length)
            one.submit([body[:100], body[100:]], 5)
            (offered,) = transfer_until_events(one, other, MessageOffered)
            assert offered[1:] == (5, length)
            assert transfer_until_events(one, other, MessageReceived, rounds=2) == []
            destination = bytearray(length)
            for wrong, description in ((bytearray(1), "1 writable"), (bytes(length), f"{length} read-only")):
                with pytest.raises(InvalidArgumentError, match=f"{length} writable bytes, found {description} bytes"):
                    other.accept_offered_message(offered.token, wrong)
            other.accept_offered_message(offered.token, destination)
            (received,) = transfer_until_events(one, other, MessageReceived)
            assert (received.tag, bytes(destination)) == (5, body)
            assert received.data.obj is destination
            with pytest.raises(InvalidArgumentError, match="not offered"):
                other.accept_offered_message(offered.token)

    def test_a_submitted_message_is_sent_once(self) -> None:
        with self._connect_channels() as (one, other):
            for number in range(5):
                one.submit([b"x" * 10], number)
            assert one.is_sending
            assert one.progress(SEND) == []
            assert not one.is_sending
            assert [event.tag for event in transfer_until_events(one, other, MessageReceived, rounds=3)] == [*range(5)]

    def test_messages_that_are_submitted_together_arrive_one_by_one(self) -> None:
        lengths = [0, 10, 300, 5000, 20, 30_000, 0, 7]
        with self._connect_channels() as (one, other):
            for tag, length in enumerate(lengths):
                one.submit((bytes([tag]) * length, b"!"), tag or None)
            assert one.is_sending
            one.submit([b"next"], 9)
            events = transfer_until_events(one, other, MessageReceived, count=len(lengths) + 1)
            assert [(event.tag, bytes(event.data)) for event in events] == [
                *((tag or None, bytes([tag]) * n + b"!") for tag, n in enumerate(lengths)),
                (9, b"next"),
            ]
            transfer_until_events(one, other, MessageReceived, rounds=3)
            assert not one.is_sending

    def test_no_more_is_received_than_was_granted(self) -> None:
        options = TransportOptions(timeout_s=20, credit_messages=2, credit_bytes=1000)
        with self._connect_channels(options) as (one, other):
            for number in range(6):
                one.submit([bytes(100)], number)
            assert [event.tag for event in transfer_until_events(one, other, MessageReceived, rounds=3)] == [0, 1]
            assert not other.next_wait(RECEIVE).interests
            other.grant_credit(1, 100)
            assert [event.tag for event in transfer_until_events(one, other, MessageReceived, rounds=3)] == [2]
            other.grant_credit(10, 0)
            assert [event.tag for event in transfer_until_events(one, other, MessageReceived, rounds=3)] == [3, 4, 5]
            for number in range(20):
                one.submit([bytes(100)], number)
            assert [event.tag for event in transfer_until_events(one, other, MessageReceived, rounds=3)] == [
                0,
                1,
                2,
                3,
                4,
            ]

    def test_a_closed_peer_is_reported_once(self) -> None:
        with self._connect_channels() as (one, other):
            one.close()
            assert len(transfer_until_events(other, other, DirectionEnded, rounds=5)) == 1
            assert not other.next_wait(RECEIVE).interests

    @contextmanager
    def _connect_channels(self, options: TransportOptions = DEFAULT_OPTIONS) -> Iterator[tuple[Channel, Channel]]:
        with assert_descriptors_closed():
            one, other = self.connect_pair(options)
            with one, other:
                yield one.channel, other.channel


def transfer_until_events(
    one: Channel, other: Channel, kinds: type[Any] | tuple[type[Any], ...], *, count: int = 1, rounds: int = 1000
) -> list[Any]:
    """Let `one` send and `other` receive; return the events of these kinds, once there are `count` of them."""
    events: list[Any] = []
    for _ in range(rounds):
        one.progress(SEND)
        events += [event for event in other.progress(RECEIVE) if isinstance(event, kinds)]
        if len(events) >= count and rounds == 1000:
            break
        wait = other.next_wait(RECEIVE)
        wait_for_interests(wait.interests, min(0.01, wait.timeout_s))
    return events
