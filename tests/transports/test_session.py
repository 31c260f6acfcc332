"""Sessions over one or two channels, with each driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from bowstring.dissociated.events import AddressesFreed, AllMessagesReceived, StreamComplete, StreamMessage
from bowstring.dissociated.messages import AddressBody, Body, OutgoingMessage, PackedBody
from bowstring.dissociated.server import ConnectionRole
from bowstring.errors import ConnectionLostError, DeadlineError, ProtocolError
from bowstring.memory.region import Region
from bowstring.transports.address_bodies import MessageLocated
from bowstring.transports.base import RECEIVE, ExportedRegion, Transport
from bowstring.transports.blocking import BlockingSession
from bowstring.transports.regions import encode_region_address
from bowstring.transports.session import Session, SessionFailed, SessionOptions
from bowstring_testing.transport_conformance import run_in_thread
from tests.polling import wait_until
from tests.transports.served_session import Served, client_core, served

pytestmark = pytest.mark.usefixtures("no_descriptor_is_left")


def has_freed(server: Served, count: int) -> bool:
    return sum(event.count for event in server.events if isinstance(event, AddressesFreed)) == count


def start_request(driver: BlockingSession) -> None:
    core = client_core()
    driver.start_request(core, core.request(b"ticket"))


def start_request_of_two(metadata: Served, bodies: Served) -> BlockingSession:
    """Request the data of two servers, of which each sends one part."""
    channels = {ConnectionRole.METADATA: metadata.client_channel, ConnectionRole.BODIES: bodies.client_channel}
    driver = BlockingSession(Session(channels, bodies.client_memory, now=0.0))
    start_request(driver)
    return driver


def receive_all(driver: BlockingSession) -> list[Any]:
    """The messages until the end of the stream."""
    messages = []
    while not isinstance(event := driver.next_event(), AllMessagesReceived):
        assert not isinstance(event, SessionFailed), event
        messages.append(event)
    return messages


def poll_events(driver: BlockingSession) -> list[Any]:
    """What happened so far."""
    driver._step()
    events = list(driver._events)
    driver._events.clear()
    return events


def test_addresses_are_located_and_a_lease_released_in_any_thread_is_freed(transport: Transport) -> None:
    with served(transport) as server, Region.copy_of([b"some bytes"]) as region:
        driver = BlockingSession(Session({ConnectionRole.BOTH: server.client_channel}, server.client_memory, now=0.0))
        start_request(driver)
        server.stream(region, [AddressBody.from_arrays([0, 5], [4, 5]), PackedBody.from_parts(b"packed")])
        schema, located, packed = receive_all(driver)
        assert bytes(schema.header) == b"schema"
        assert isinstance(located, MessageLocated)
        assert [bytes(located.memory[o : o + n]) for o, n in zip(located.offsets.tolist(), (4, 5), strict=True)] == [
            b"some",
            b"bytes",
        ]
        assert isinstance(packed, StreamMessage)
        assert located.lease is not None
        thread = threading.Thread(target=driver.session.release_lease, args=(located.lease,))
        thread.start()
        thread.join(10)
        server.step_until(lambda: StreamComplete() in server.events)
        assert AddressesFreed(2, 0) in server.events
        driver.close()


@pytest.mark.parametrize("total", [10, 2**64 - 1])
def test_buffers_of_several_regions_are_copied_in_order_and_freed(transport: Transport, total: int) -> None:
    with served(transport) as server, Region.copy_of([b"first"]) as first, Region.copy_of([b"second"]) as second:
        driver = BlockingSession(Session({ConnectionRole.BOTH: server.client_channel}, server.client_memory, now=0.0))
        start_request(driver)
        assert server.exporter is not None
        server.step_until(lambda: bool(server.events))
        server.exporter.export(first)
        body = AddressBody.from_arrays([0, encode_region_address(1, 1), 9], [5, 5, 0])
        server.stream(second, [replace(body, total_bytes=total), PackedBody.from_parts(b"after")])
        _, located, after = receive_all(driver)
        assert located.lease is None
        assert [bytes(located.memory[o : o + 5]) for o in located.offsets.tolist()[:2]] == [b"first", b"econd"]
        assert isinstance(after, StreamMessage)
        server.step_until(lambda: StreamComplete() in server.events)
        driver.close()


def test_bodies_are_copied_when_the_caller_takes_them(transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bowstring.transports.address_bodies._MAX_COPYING_BYTES", 1)  # one body at a time
    with served(transport) as server, Region.copy_of([b"0123456789"]) as region:
        session = Session(
            {ConnectionRole.BOTH: server.client_channel},
            server.client_memory,
            now=0.0,
            options=SessionOptions(copies_memory=True),
        )
        driver, core = BlockingSession(session), client_core()
        driver.start_request(core, core.request(b"ticket"))
        server.stream(region, [AddressBody.from_arrays([n], [2]) for n in range(5)])
        assert server.exporter is not None
        server.exporter.retire(ExportedRegion(0))  # the region that all bodies refer to
        server.step()
        assert isinstance(driver.next_event(), StreamMessage)  # the schema
        for index in range(5):
            located = driver.next_event()
            assert isinstance(located, MessageLocated)
            assert (bytes(located.memory[located.offsets[0] :][:2]), located.lease) == (
                b"%d%d" % (index, index + 1),
                None,
            )
            assert core.leases.outstanding <= 5 - index
            assert core.leases.outstanding >= 4 - index
        assert isinstance(driver.next_event(), AllMessagesReceived)
        server.step_until(lambda: StreamComplete() in server.events)
        driver.close()


def test_a_copy_has_only_the_memory_around_its_buffers(transport: Transport) -> None:
    with served(transport) as server, Region.copy_of([bytes(range(250)) * 400]) as region:
        options = SessionOptions(copies_memory=True)
        channels = {ConnectionRole.BOTH: server.client_channel}
        driver = BlockingSession(Session(channels, server.client_memory, now=0.0, options=options))
        start_request(driver)
        server.stream(
            region,
            [AddressBody.from_arrays([1000, 0, 1510], [500, 0, 8]), AddressBody.from_arrays([70, 90_000], [5, 60])],
        )
        _, together, apart = receive_all(driver)
        assert together.memory.nbytes == 1518 - 960
        assert together.offsets.tolist() == [40, 0, 550]
        assert apart.memory.nbytes == 128
        copied = [bytes(apart.memory[start:][:5]) for start in apart.offsets.tolist()]
        assert copied == [bytes(range(70, 75)), bytes(range(5))]
        assert bytes(together.memory[550:558]) == bytes(range(10, 18))
        server.step_until(lambda: StreamComplete() in server.events)
        driver.close()


def test_metadata_and_bodies_are_two_channels_of_one_session(transport: Transport) -> None:
    with (
        served(transport, ConnectionRole.METADATA) as metadata,
        served(transport, ConnectionRole.BODIES) as bodies,
        Region.copy_of([b"0123456789"]) as region,
    ):
        driver = start_request_of_two(metadata, bodies)
        content: list[Body] = [AddressBody.from_arrays([n], [2]) for n in range(5)]
        bodies.stream(region, content)
        assert bodies.exporter is not None
        bodies.exporter.retire(ExportedRegion(0))  # the region that all bodies refer to
        bodies.step()
        for _ in range(5):
            assert poll_events(driver) == []  # bodies wait for their metadata
        metadata.stream(None, content)
        located = receive_all(driver)[1:]
        assert [bytes(each.memory[each.offsets[0] :][:2]) for each in located] == [b"01", b"12", b"23", b"34", b"45"]
        for each in located:
            driver.session.release_lease(each.lease)
        bodies.step_until(lambda: StreamComplete() in bodies.events)
        driver.close()


@pytest.mark.parametrize("closes_first", [ConnectionRole.METADATA, ConnectionRole.BODIES])
def test_a_server_of_one_part_may_disconnect_once_it_has_sent_all(
    transport: Transport, closes_first: ConnectionRole
) -> None:
    with served(transport, ConnectionRole.METADATA) as metadata, served(transport, ConnectionRole.BODIES) as bodies:
        driver = start_request_of_two(metadata, bodies)
        content: list[Body] = [PackedBody.from_parts(bytes([number])) for number in range(5)]
        servers = {ConnectionRole.METADATA: metadata, ConnectionRole.BODIES: bodies}
        first = servers.pop(closes_first)
        first.stream(None, content)
        first.step_until(lambda: not first.session.is_sending)
        first.session.close()
        events: list[Any] = []

        def has_lost_the_first() -> bool:
            events.extend(poll_events(driver))
            return closes_first in driver.session._lost_channels

        assert wait_until(has_lost_the_first)
        (last,) = servers.values()
        last.stream(None, content)
        events += receive_all(driver)
        assert [bytes(event.body.parts[0]) for event in events[1:]] == [bytes([n]) for n in range(5)]
        driver.close()


@pytest.mark.parametrize("role", [ConnectionRole.METADATA, ConnectionRole.BODIES])
def test_a_server_of_one_part_that_disconnects_too_early_is_an_error(
    transport: Transport, role: ConnectionRole
) -> None:
    with served(transport, ConnectionRole.METADATA) as metadata, served(transport, ConnectionRole.BODIES) as bodies:
        driver = start_request_of_two(metadata, bodies)
        servers = {ConnectionRole.METADATA: metadata, ConnectionRole.BODIES: bodies}
        early = servers.pop(role)
        early.step_until(lambda: bool(early.events))
        early.session.close()
        (other,) = servers.values()
        other.stream(None, [PackedBody.from_parts(b"body")])
        events = [driver.next_event()]
        while not isinstance(events[-1], SessionFailed):
            events.append(driver.next_event())
        assert isinstance(events[-1].error, ConnectionLostError)
        driver.close()


def test_a_lost_connection_among_pending_events_is_reported_to_every_later_wait(transport: Transport) -> None:
    with served(transport) as server:
        driver = BlockingSession(Session({ConnectionRole.BOTH: server.client_channel}, now=0.0))
        start_request(driver)
        server.step_until(lambda: bool(server.events))
        server.session.close()
        events: list[Any] = []

        def has_events() -> bool:
            events.extend(poll_events(driver))
            return bool(events)

        assert wait_until(has_events)
        assert [type(event) for event in events] == [SessionFailed]
        with run_in_thread(lambda: events.extend(driver.next_event() for _ in range(2))) as raised:
            assert wait_until(lambda: len(events) == 3)
        assert not raised
        assert events[1:] == events[:1] * 2
        driver.close()


def test_a_stream_pauses_at_the_leased_bytes_until_some_are_freed(transport: Transport) -> None:
    with served(transport, max_leased_bytes=4) as server, Region.copy_of([bytes(100)]) as region:
        driver = BlockingSession(Session({ConnectionRole.BOTH: server.client_channel}, server.client_memory, now=0.0))
        start_request(driver)
        server.stream(region, [AddressBody.from_arrays([n], [2]) for n in range(6)])
        located: list[MessageLocated] = []
        for expected in (2, 4, 6):
            while len(located) < expected:
                event = driver.next_event()
                located += [event] if isinstance(event, MessageLocated) else []
            for _ in range(3):
                server.step()
                located += [event for event in poll_events(driver) if isinstance(event, MessageLocated)]
            assert len(located) == expected
            for each in located[-2:]:
                assert each.lease is not None
                driver.session.release_lease(each.lease)
            server.step_until(partial(has_freed, server, expected))
        driver.close()


def test_a_step_that_only_receives_sends_nothing_and_checks_no_deadline(transport: Transport) -> None:
    with served(transport) as server:
        options = SessionOptions(stall_s=1.0)
        session = Session({ConnectionRole.BOTH: server.client_channel}, server.client_memory, now=0.0, options=options)
        core = client_core()
        session.start_request(core, core.request(b"ticket"), 0.0)
        was_sending = session.is_sending
        assert session.step(100.0, RECEIVE) == []
        assert session.is_sending == was_sending
        session.close()


def test_the_first_messages_of_a_stream_are_sent_before_the_last_are_created(transport: Transport) -> None:
    with served(transport) as server:
        session = Session({ConnectionRole.BOTH: server.client_channel}, server.client_memory, now=0.0)
        core = client_core()
        session.start_request(core, core.request(b"ticket"), 0.0)
        session.step(0.0)
        server.step_until(lambda: bool(server.events))
        bytes_sent: list[int] = []

        def messages() -> Iterator[Sequence[OutgoingMessage]]:
            for number in range(100):
                bytes_sent.append(server.other.channel.bytes_sent)
                yield (
                    server.core.send(b"schema")
                    if number == 0
                    else server.core.send(b"batch", PackedBody.from_parts(b"x"))
                )
            yield server.core.send_end()

        server.session.start_stream(messages(), time.monotonic())
        server.step()
        assert len(bytes_sent) == 100
        assert bytes_sent[10] > 0
        assert len(set(bytes_sent)) < 10  # later messages are sent together
        session.close()


def test_a_step_ends_with_a_long_message_however_much_the_server_has_sent(transport: Transport) -> None:
    body = bytes(1 << 20)
    with served(transport) as server:
        session = Session({ConnectionRole.BOTH: server.client_channel}, server.client_memory, now=0.0)
        core = client_core()
        session.start_request(core, core.request(b"ticket"), 0.0)
        session.step(0.0)
        server.stream(None, [PackedBody.from_parts(body) for _ in range(8)])
        server.session.options = SessionOptions(max_queued_bytes=1 << 24)
        thread = threading.Thread(target=server.step_until, args=(lambda: not server.session.is_sending,))
        thread.start()
        steps: list[list[Any]] = []

        def is_at_end() -> bool:
            steps.append([event for event in session.step(1.0) if isinstance(event, StreamMessage)])
            return core.is_complete

        assert wait_until(is_at_end)
        thread.join(10)
        bodies = [sum(isinstance(event.body, PackedBody) for event in events) for events in steps]
        assert sum(bodies) == 8
        assert max(bodies) == 1
        session.close()


def test_a_session_returns_the_credit_that_messages_took_and_no_more(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted: list[tuple[int, int]] = []
    with served(transport) as server:
        channel = server.client_channel
        grant_credit = channel.grant_credit

        def record_and_grant(num_messages: int, nbytes: int) -> None:
            granted.append((num_messages, nbytes))
            grant_credit(num_messages, nbytes)

        monkeypatch.setattr(channel, "grant_credit", record_and_grant)
        session = Session({ConnectionRole.BOTH: channel}, server.client_memory, now=0.0)
        core = client_core()
        session.start_request(core, core.request(b"ticket"), 0.0)
        session.step(0.0)
        # The last body that is not offered, and the first that is: the latter takes the credit of a message only.
        bodies = [channel.options.eager_bytes, channel.options.eager_bytes + 1]
        server.stream(None, [PackedBody.from_parts(bytes(length)) for length in bodies])

        def is_at_end() -> bool:
            server.step()
            session.step(1.0)
            return core.is_complete

        assert wait_until(is_at_end)
        assert sum(num_messages for num_messages, _ in granted) == 6
        assert bodies[0] < sum(nbytes for _, nbytes in granted) < sum(bodies)
        session.close()


def test_addresses_outside_the_memory_end_the_session(transport: Transport) -> None:
    with served(transport) as server, Region.copy_of([b"some bytes"]) as region:
        driver = BlockingSession(Session({ConnectionRole.BOTH: server.client_channel}, server.client_memory, now=0.0))
        start_request(driver)
        server.stream(region, [AddressBody.from_arrays([0, 5], [4, 6])])
        assert isinstance(driver.next_event(), StreamMessage)
        failed = driver.next_event()
        assert isinstance(failed, SessionFailed)
        assert isinstance(failed.error, ProtocolError)
        assert "message 1: buffer 1: address 0x0000000000000005 with 6 bytes" in str(failed.error)
        driver.close()


def test_the_time_between_calls_does_not_count_as_silence_of_the_server(transport: Transport) -> None:
    with served(transport, max_leased_bytes=2) as server, Region.copy_of([bytes(100)]) as region:
        options = SessionOptions(input_timeout_s=0.5)
        driver = BlockingSession(
            Session({ConnectionRole.BOTH: server.client_channel}, server.client_memory, now=0.0, options=options)
        )
        start_request(driver)
        server.stream(region, [AddressBody.from_arrays([n], [2]) for n in range(2)])
        assert isinstance(driver.next_event(), StreamMessage)
        first = driver.next_event()
        assert isinstance(first, MessageLocated)
        assert first.lease is not None
        time.sleep(1.0)  # the server waits for the lease, and the client computes
        driver.session.release_lease(first.lease)
        thread = threading.Thread(target=server.step_until, args=(partial(has_freed, server, 1),))
        thread.start()
        assert isinstance(driver.next_event(), MessageLocated)
        thread.join(20)
        driver.close()


def test_leases_released_together_are_freed_by_one_message(transport: Transport) -> None:
    with served(transport) as server, Region.copy_of([bytes(100)]) as region:
        session = Session({ConnectionRole.BOTH: server.client_channel}, server.client_memory, now=0.0)
        driver = BlockingSession(session)
        start_request(driver)
        server.stream(region, [AddressBody.from_arrays([n, n + 50], [2, 3]) for n in range(6)])
        located = receive_all(driver)[1:]
        with driver.lock:  # no thread can send meanwhile
            for each in located:
                session.release_lease(each.lease)
        driver.flush()
        server.step_until(lambda: StreamComplete() in server.events)
        assert [event for event in server.events if isinstance(event, AddressesFreed)] == [AddressesFreed(12, 0)]
        driver.close()


def test_a_deadline_counts_from_the_last_progress(transport: Transport) -> None:
    with served(transport) as server:
        options = SessionOptions(input_timeout_s=5.0)
        session = Session({ConnectionRole.BOTH: server.client_channel}, now=100.0, options=options)
        assert session.next_deadline() == float("inf")
        core = client_core()
        session.start_request(core, core.request(b"ticket"), 200.0)
        assert session.next_deadline() == 205.0
        session.step(203.0)
        server.stream(None, [])
        assert wait_until(lambda: bool(session.step(204.0)))
        assert session.next_deadline() in (209.0, float("inf"))
        session.close()


def test_a_silent_server_is_a_deadline_error_and_a_closed_one_a_lost_connection(transport: Transport) -> None:
    with served(transport) as server:
        options = SessionOptions(input_timeout_s=0.05)
        driver = BlockingSession(Session({ConnectionRole.BOTH: server.client_channel}, now=0.0, options=options))
        start_request(driver)
        silent = driver.next_event()
        assert isinstance(silent, SessionFailed)
        assert isinstance(silent.error, DeadlineError)
        server.other.close()
        lost = driver.next_event()
        assert isinstance(lost, SessionFailed)
        assert isinstance(lost.error, ConnectionLostError | DeadlineError)
        driver.close()


def test_leases_released_after_the_server_has_disconnected_wait_for_nothing(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bowstring.transports.blocking._FREE_TIMEOUT_S", 10_000.0)
    with served(transport) as server, Region.copy_of([b"some bytes"]) as region:
        driver = BlockingSession(Session({ConnectionRole.BOTH: server.client_channel}, server.client_memory, now=0.0))
        start_request(driver)
        server.stream(region, [AddressBody.from_arrays([start], [1]) for start in range(3)])
        leases = [event.lease for event in receive_all(driver) if isinstance(event, MessageLocated)]
        driver.session.core = None
        server.session.close()
        for lease in leases:
            assert lease is not None
            driver.session.release_lease(lease)
        driver.close()
