"""What every transport promises, as tests: subclass `TransportConformance` and say how to make a connected pair.

The class needs pytest only to be collected and run; `bowstring.transports.base` says in words what is tested here.
"""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from bowstring.dissociated.connection import ClientConnection, ServerConnection
from bowstring.dissociated.events import AddressesFreed, DataRequested, MessageReady, StreamComplete
from bowstring.dissociated.wire import AddressBody, PackedBody
from bowstring.errors import (
    BowstringError,
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    LimitError,
    ProtocolError,
    UsageError,
)
from bowstring.memory.region import Region
from bowstring.testing.descriptors import no_descriptor_left
from bowstring.transports.base import Transport, TransportOptions
from bowstring.transports.regions import address_of, addresses_of

Ends: TypeAlias = tuple[Transport, Transport]
QUICK = TransportOptions(timeout_s=20.0)
WANT_DATA, FREE_DATA = 11, 12


@contextmanager
def in_thread(action: Callable[[], Any]) -> Iterator[list[BaseException]]:
    """Run `action` beside the block; what it raised stands in the list after the block, which waits for it."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield raised
    finally:
        thread.join(30)
        assert not thread.is_alive(), "a call hangs beyond its deadline"


class TransportConformance(ABC):
    """The suite. A subclass makes pairs; one whose transport shares no memory sets `shares_memory` to False."""

    shares_memory = True

    @abstractmethod
    def connected(self, options: TransportOptions = QUICK) -> Ends:
        """Two connected ends."""

    @pytest.fixture
    def ends(self) -> Iterator[Ends]:
        """A pair that is closed after the test, which may leave no descriptor behind."""
        with no_descriptor_left():
            one, other = self.connected()
            with one, other:
                yield one, other

    # Messages

    def test_messages_arrive_in_order_with_their_tags(self, ends: Ends) -> None:
        one, other = ends
        tags = [None, 0, 1, 2**64 - 1, None, 1 << 56 | 7]
        for number, tag in enumerate(tags):
            one.send([b"message ", str(number).encode()], tag=tag)
        for number, tag in enumerate(tags):
            received = other.receive()
            assert (received.tag, bytes(received.data)) == (tag, f"message {number}".encode())

    def test_empty_messages_are_messages(self, ends: Ends) -> None:
        one, other = ends
        one.send([])
        one.send([b"", b""], tag=9)
        assert [(m.tag, bytes(m.data)) for m in (other.receive(), other.receive())] == [(None, b""), (9, b"")]

    def test_a_message_of_many_parts_arrives_whole(self, ends: Ends) -> None:
        one, other = ends
        parts = [bytes([number % 251]) * (number % 97) for number in range(5000)]
        with in_thread(lambda: one.send(parts, tag=3)) as raised:
            received = other.receive()
        assert not raised
        assert received.data == b"".join(parts)

    def test_a_big_message_arrives_whole_in_the_place_that_was_allocated(self, ends: Ends) -> None:
        one, other = ends
        body = os.urandom(1 << 20) * 24 + b"end"
        place = bytearray(len(body))
        asked: list[tuple[int | None, int]] = []

        def allocate(tag: int | None, length_bytes: int) -> bytearray:
            asked.append((tag, length_bytes))
            return place

        with in_thread(lambda: one.send([memoryview(body)[:100], memoryview(body)[100:]], tag=5)) as raised:
            received = other.receive(allocate=allocate)
        assert not raised
        assert asked == [(5, len(body))]
        assert hashlib.sha256(place).digest() == hashlib.sha256(body).digest()
        assert received.data.obj is place

    @pytest.mark.parametrize(
        ("place", "found"), [(bytearray(4), "4 writable"), (bytearray(6), "6 writable"), (bytes(5), "5 read-only")]
    )
    def test_a_place_that_does_not_take_the_message_is_the_caller_s_fault(
        self, ends: Ends, place: bytes | bytearray, found: str
    ) -> None:
        one, other = ends
        one.send([b"12345"], tag=5)
        with pytest.raises(UsageError, match=f"expected 5 writable bytes, found {found} ones"):
            other.receive(allocate=lambda _tag, _length: place)

    def test_both_directions_work_at_the_same_time(self, ends: Ends) -> None:
        one, other = ends
        count, body = 300, b"x" * 5000

        def talk(own: Transport, mark: bytes) -> None:
            def speak() -> None:
                for number in range(count):
                    own.send([mark, str(number).encode(), b" ", body], tag=number)

            with in_thread(speak) as raised:
                for number in range(count):
                    received = own.receive()
                    assert received.tag == number
                    assert bytes(received.data[1:]).startswith(f"{number} ".encode())
            assert not raised

        with in_thread(lambda: talk(other, b"b")) as raised:
            talk(one, b"a")
        assert not raised

    def test_messages_of_several_threads_do_not_mix(self, ends: Ends) -> None:
        one, other = ends

        def shout(mark: bytes) -> None:
            for _ in range(100):
                one.send([mark] * 2000, tag=mark[0])

        with in_thread(lambda: shout(b"a")), in_thread(lambda: shout(b"b")), in_thread(lambda: shout(b"c")):
            for _ in range(300):
                received = other.receive()
                assert received.tag is not None
                assert bytes(received.data) == bytes([received.tag]) * 2000

    def test_a_message_beyond_the_limit_is_refused_and_ends_the_connection(self) -> None:
        one, other = self.connected(TransportOptions(timeout_s=20, max_plain_bytes=100, max_tagged_bytes=200))
        with one, other:
            one.send([b"x" * 200], tag=1)
            assert len(other.receive().data) == 200
            one.send([b"x" * 101])
            with pytest.raises(LimitError, match="101 bytes"):
                other.receive()
            with pytest.raises((ConnectionLostError, ClosedError)):
                other.receive()

    # Deadlines

    def test_receiving_from_a_silent_peer_ends_at_the_deadline_and_can_go_on(self, ends: Ends) -> None:
        one, other = ends
        begin = time.monotonic()
        with pytest.raises(DeadlineError, match=r"0\.1 s"):
            other.receive(timeout_s=0.1)
        assert time.monotonic() - begin < 5
        one.send([b"late"])
        assert bytes(other.receive().data) == b"late"

    def test_sending_to_a_peer_that_does_not_read_ends_at_the_deadline(self) -> None:
        one, other = self.connected(TransportOptions(timeout_s=0.2, queue_messages=4))
        with one, other, pytest.raises(DeadlineError):
            for _ in range(10_000):
                one.send([b"x" * 50_000])

    # Peers that go away

    def test_what_was_sent_before_the_end_arrives_and_then_the_peer_is_gone(self, ends: Ends) -> None:
        one, other = ends
        one.send([b"last words"])
        one.close()
        assert bytes(other.receive().data) == b"last words"
        with pytest.raises(ConnectionLostError):
            other.receive()

    def test_sending_to_a_peer_that_is_gone_is_an_error(self, ends: Ends) -> None:
        one, other = ends
        one.close()
        with pytest.raises(ConnectionLostError):
            other.send([b"hello"])

    def test_a_blocked_receiver_learns_that_the_peer_is_gone(self, ends: Ends) -> None:
        one, other = ends
        with in_thread(other.receive) as raised:
            time.sleep(0.05)
            one.close()
        assert [type(error) for error in raised] == [ConnectionLostError]

    def test_a_blocked_receiver_is_woken_by_closing_its_own_end(self, ends: Ends) -> None:
        _, other = ends
        with in_thread(other.receive) as raised:
            time.sleep(0.05)
            other.close()
        assert [type(error) for error in raised] == [ClosedError]

    def test_a_blocked_sender_learns_that_the_peer_is_gone(self, ends: Ends) -> None:
        one, other = ends
        with in_thread(lambda: [one.send([b"x" * 50_000]) for _ in range(10_000)]) as raised:
            time.sleep(0.05)
            other.close()
        assert [type(error) for error in raised] == [ConnectionLostError]

    def test_a_closed_end_says_so(self, ends: Ends) -> None:
        one, _ = ends
        one.close()
        one.close()
        assert one.is_closed
        for call in (one.receive, lambda: one.send([b""])):
            with pytest.raises(ClosedError):
                call()

    # Regions

    def test_a_region_is_there_when_the_next_message_arrives(self, ends: Ends) -> None:
        self._needs_regions()
        one, other = ends
        with Region.copy_of([b"first"]) as first, Region.copy_of([b"second"]) as second:
            indexes = [one.send_region(first), one.send_region(second)]
        one.send([b"go"])
        other.receive()
        assert indexes == [0, 1]
        assert bytes(other.regions.resolve(address_of(0, 1), 4)) == b"irst"
        view = other.regions.resolve(address_of(1, 0), 6)
        assert view.readonly
        other.close()
        assert bytes(view) == b"second"

    def test_a_retired_region_is_forgotten_but_its_views_stay(self, ends: Ends) -> None:
        self._needs_regions()
        one, other = ends
        with Region.copy_of([b"data"]) as region:
            index = one.send_region(region)
        one.send([b"go"])
        other.receive()
        view = other.regions.resolve(address_of(index, 0), 4)
        one.retire_region(index)
        one.send([b"go"])
        other.receive()
        with pytest.raises(ProtocolError, match="region 0"):
            other.regions.resolve(address_of(index, 0), 4)
        assert bytes(view) == b"data"

    def test_addresses_outside_a_region_are_refused(self, ends: Ends) -> None:
        self._needs_regions()
        one, other = ends
        with Region.copy_of([b"x" * 100]) as region:
            one.send_region(region)
        one.send([b"go"])
        other.receive()
        for address, length in [(1, 100), (101, 0), (address_of(1, 0), 1), (2**64 - 1, 1), (0, 2**63), (50, 2**64 - 1)]:
            if length == 0:
                assert bytes(other.regions.resolve(address, length)) == b""
                continue
            with pytest.raises(ProtocolError):
                other.regions.resolve(address, length)

    def test_an_ordinary_file_is_passed_without_copying_or_refused_where_files_are_not_accepted(
        self, tmp_path: Path
    ) -> None:
        self._needs_regions()
        path = tmp_path / "data"
        path.write_bytes(b"from a file")
        for accepts in (True, False):
            one, other = self.connected(TransportOptions(timeout_s=20, accept_files=accepts))
            with one, other, Region.from_file(path) as region:
                one.send_region(region)
                one.send([b"go"])
                if accepts:
                    other.receive()
                    assert bytes(other.regions.resolve(address_of(0, 5), 6)) == b"a file"
                else:
                    with pytest.raises(BowstringError, match="file"):
                        other.receive()

    def test_regions_beyond_the_limit_are_refused_and_leak_nothing(self) -> None:
        self._needs_regions()
        with no_descriptor_left():
            one, other = self.connected(TransportOptions(timeout_s=20, max_regions=3))
            with one, other, Region.copy_of([b"x"]) as region:
                for _ in range(4):
                    one.send_region(region)
                one.send([b"go"])
                with pytest.raises(LimitError):
                    other.receive()

    def test_regions_that_nobody_received_leak_nothing(self) -> None:
        self._needs_regions()
        with no_descriptor_left():
            one, other = self.connected()
            with Region.copy_of([b"x"]) as region:
                one.send_region(region)
            one.close()
            other.close()

    # The whole protocol

    def test_a_stream_with_packed_bodies_travels(self, ends: Ends) -> None:
        received = self._stream(ends, [PackedBody.of(bytes([n]) * 1000, b"tail") for n in range(20)])
        assert [bytes(m.body.parts[0]) for m in received[1:]] == [bytes([n]) * 1000 + b"tail" for n in range(20)]

    def test_a_stream_with_addresses_travels_and_its_memory_is_freed(self, ends: Ends) -> None:
        self._needs_regions()
        one, other = ends
        with Region.copy_of([bytes(range(256)) * 16]) as region:
            index = one.send_region(region)
        bodies = [AddressBody.of(addresses_of(index, [n * 16, n * 16 + 8]), [8, 3]) for n in range(200)]
        received = self._stream(ends, bodies)
        views = [other.regions.resolve_all(m.body.addresses, m.body.lengths) for m in received[1:]]
        whole = bytes(range(256)) * 16
        assert [[bytes(v) for v in pair] for pair in views] == [
            [whole[n * 16 : n * 16 + 8], whole[n * 16 + 8 : n * 16 + 11]] for n in range(200)
        ]

    def test_a_server_that_is_gone_at_any_step_is_an_error_that_names_what_is_missing(self) -> None:
        server = ServerConnection(WANT_DATA, FREE_DATA)
        server.receive(WANT_DATA, b"ticket")
        outgoing = server.send(b"schema")
        for number in range(3):
            outgoing += server.send(b"batch", PackedBody.of(bytes([number]) * 100))
        outgoing += server.end()
        for step in range(len(outgoing)):
            one, other = self.connected()
            client = ClientConnection(WANT_DATA, FREE_DATA, has_body=lambda header: bytes(header) == b"batch")
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

    def test_a_call_may_wait_as_long_as_it_takes(self, ends: Ends) -> None:
        one, other = ends
        with in_thread(lambda: other.receive(timeout_s=math.inf)) as raised:
            time.sleep(0.02)
            one.send([b"x"], timeout_s=math.inf)
        assert not raised

    def _stream(self, ends: Ends, bodies: list[Any]) -> list[Any]:
        """Send a schema and these bodies, free all addresses; the messages as the client saw them."""
        one, other = ends
        ended: list[Any] = []

        def serve() -> None:
            server = ServerConnection(WANT_DATA, FREE_DATA)
            assert server.receive(*one.receive()) == [DataRequested(b"ticket")]
            outgoing = server.send(b"schema")
            for body in bodies:
                outgoing += server.send(b"batch", body)
            for message in [*outgoing, *server.end()]:
                one.send_message(message)
            while server.leases:
                ended.extend(server.receive(*one.receive()))

        client = ClientConnection(WANT_DATA, FREE_DATA, has_body=lambda header: bytes(header) == b"batch")
        messages = []
        with in_thread(serve) as raised:
            other.send_message(client.request(b"ticket"))
            while not client.is_ended:
                events = client.receive(*other.receive())
                messages += [event.message for event in events if isinstance(event, MessageReady)]
            for message in messages:
                if isinstance(message.body, AddressBody):
                    freed = client.free(message.body)
                    assert freed is not None
                    other.send_message(freed)
        assert not raised
        assert client.is_complete
        if any(isinstance(body, AddressBody) for body in bodies):
            assert ended[-2:] == [AddressesFreed(2, 0), StreamComplete()]
        return messages

    def _needs_regions(self) -> None:
        if not self.shares_memory:
            pytest.skip("this transport shares no memory")
