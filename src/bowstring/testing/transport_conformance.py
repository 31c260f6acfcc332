"""What every transport promises, as tests: subclass `TransportConformance` and say how to make a connected pair.

The class needs pytest only to be collected and run; `bowstring.transports.base` says in words what is tested here.
"""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

import hashlib
import math
import os
import time
from pathlib import Path

import pytest

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
from bowstring.testing.protocol_conformance import Ends, ProtocolConformance, in_thread
from bowstring.transports import base
from bowstring.transports.base import Transport, TransportOptions
from bowstring.transports.regions import address_of


class TransportConformance(ProtocolConformance):
    """The suite. A subclass makes pairs; one whose transport shares no memory sets `shares_memory` to False."""

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
        with pytest.raises(UsageError, match=f"expected 5 writable bytes, found {found} bytes"):
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

    def test_a_call_may_wait_as_long_as_it_takes(self, ends: Ends) -> None:
        one, other = ends
        with in_thread(lambda: other.receive(timeout_s=math.inf)) as raised:
            time.sleep(0.02)
            one.send([b"x"], timeout_s=math.inf)
        assert not raised

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
        assert [isinstance(error, ConnectionLostError) for error in raised] == [True]

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
        assert [isinstance(error, ConnectionLostError) for error in raised] == [True]

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

    def test_only_what_was_passed_is_retired_and_no_more_is_passed_than_addresses_can_tell_apart(
        self, ends: Ends, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._needs_regions()
        one, other = ends
        monkeypatch.setattr(base, "MAX_REGIONS", 2)
        with Region.copy_of([b"data"]) as region:
            indexes = [one.send_region(region) for _ in range(2)]
            with pytest.raises(UsageError, match="has sent 2 regions"):
                one.send_region(region)
        for index in (-1, 2):
            with pytest.raises(UsageError, match=f"region {index}: this end has sent 2 regions"):
                one.retire_region(index)
        with pytest.raises(UsageError, match="this end has sent 0 regions"):
            other.retire_region(0)
        one.send([b"go"])
        other.receive()
        assert list(other.regions) == indexes == [0, 1]

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
