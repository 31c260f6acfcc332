"""Channels over libfabric, where the conformance suite does not test them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from bowstring.transports.base import RECEIVE, SEND, Channel, MessageOffered, MessageReceived, TransportOptions
from bowstring.transports.blocking import wait_for_interests
from bowstring_networks.fabric.channel import FabricChannel
from bowstring_networks.fabric.transport import FabricTransport
from bowstring_testing.transport_conformance import transfer_until_events
from networks.tests.fabric.pairs import FabricPairs, require_libfabric
from tests.transports.forked_children import call_in_forked_child

require_libfabric()


class TcpPairs(FabricPairs):
    transport = FabricTransport()


@pytest.fixture
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[Channel, Channel]]:
    options = getattr(request, "param", TransportOptions())
    one, other = TcpPairs().connect_pair(options)
    with one, other:
        yield one.channel, other.channel


def test_a_long_message_of_many_large_buffers_arrives_whole(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    parts = [os.urandom(5000 + number) for number in range(50)]
    one.submit([*parts, b"end"], 5)
    (offered,) = transfer_until_events(one, other, MessageOffered)
    destination = bytearray(offered.length_bytes)
    other.accept_offered_message(offered.token, destination)
    (received,) = transfer_until_events(one, other, MessageReceived)
    assert received.tag == 5
    assert destination == b"".join([*parts, b"end"])


def test_progress_of_a_long_message_is_visible(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    one.submit([bytes(40 << 20)], 5)
    (offered,) = transfer_until_events(one, other, MessageOffered)
    other.accept_offered_message(offered.token)
    sizes_bytes = {other.bytes_received}
    while not any(isinstance(event, MessageReceived) for event in other.progress(RECEIVE)):
        one.progress(SEND)
        sizes_bytes.add(other.bytes_received)
    assert any(0 < size_bytes < 40 << 20 for size_bytes in sizes_bytes)


@pytest.mark.parametrize("ends", [TransportOptions(credit_messages=1)], indirect=True)
def test_credit_makes_a_descriptor_ready_for_messages_that_have_arrived(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    for number in range(2):
        one.submit([b"x"], number)
    assert [event.tag for event in transfer_until_events(one, other, MessageReceived)] == [0]
    assert transfer_until_events(one, other, MessageReceived, rounds=3) == []
    assert not other.next_wait(RECEIVE).interests
    other.grant_credit(1, 1)
    assert wait_for_interests(other.next_wait(RECEIVE).interests, 20)
    assert [event.tag for event in other.progress(RECEIVE) if isinstance(event, MessageReceived)] == [1]


def test_an_event_of_one_direction_wakes_it_when_the_other_direction_reads_it(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    one.submit([b"x"], 7)
    while not other.bytes_received:
        one.progress()
        if wait_for_interests(other.next_wait(RECEIVE).interests, 0.1):
            other.progress(SEND)
            assert wait_for_interests(other.next_wait(RECEIVE).interests, 20)
            other.progress(RECEIVE)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_closes_a_channel_that_a_thread_of_its_parent_has_locked(ends: tuple[Channel, Channel]) -> None:
    channel, other = ends
    assert isinstance(channel, FabricChannel)
    assert call_in_forked_child(channel.close, [channel._lock, TcpPairs.transport.domains._lock]) == 0
    channel.submit([b"still there"], 5)
    assert [event.tag for event in transfer_until_events(channel, other, MessageReceived)] == [5]
