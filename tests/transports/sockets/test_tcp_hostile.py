"""Peers that send over TCP what they may not: a clean error each, no hang, no memory taken."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, settings, strategies as st

from bowstring.errors import BowstringError, ConnectionLostError, DeadlineError, LimitError, ProtocolError
from bowstring.transports.base import RECEIVE, TransportOptions
from bowstring.transports.blocking import BlockingChannel
from bowstring.transports.sockets.tcp import TCP
from bowstring_testing.descriptors import assert_descriptors_closed
from tests.peak_memory import peak_bytes, reset_peak
from tests.polling import wait_until
from tests.transports.blocking import BlockingListener

OPTIONS = TransportOptions(timeout_s=10)
HELLO = 4


def frame(kind: int, tag: int = 0, content: bytes = b"", descriptors: int = 0, magic: bytes = b"BWS1") -> bytes:
    return struct.pack("<4sBBHQQ", magic, kind, descriptors, 0, tag, len(content)) + content


def connect_raw(options: TransportOptions = OPTIONS) -> tuple[socket.socket, BlockingChannel]:
    """Return a hostile peer's bare socket, and our end."""
    with BlockingListener.listen(TCP, options=options) as listener:
        host, _, port = listener.address.removeprefix("//").rpartition(":")
        hostile = socket.create_connection((host, int(port)))
        return hostile, listener.accept()


Peer = tuple[socket.socket, BlockingChannel]


@pytest.fixture
def peer() -> Iterator[Peer]:
    with assert_descriptors_closed():
        hostile, channel = connect_raw()
        with hostile, channel:
            yield hostile, channel


def test_the_frames_are_those_of_the_documentation(peer: Peer) -> None:
    hostile, channel = peer
    channel.send([b"ab", b"c"], tag=0x0102030405060708)
    assert hostile.recv(100) == b"BWS1\x01\0\0\0" + bytes(range(8, 0, -1)) + b"\x03\0\0\0\0\0\0\0abc"


def test_an_end_that_says_hello_gets_an_answer_before_the_first_message(peer: Peer) -> None:
    hostile, channel = peer
    hostile.sendall(frame(HELLO, content=struct.pack("<HH", 1, 7)) + frame(0, content=b"x"))
    channel.receive()
    channel.send([b"y"])
    assert hostile.recv(100) == frame(HELLO, content=struct.pack("<HH", 1, 1)) + frame(0, content=b"y")


def test_receiving_the_end_of_the_peer_sends_nothing(peer: Peer) -> None:
    """Another thread may be sending at the same time."""
    hostile, blocking = peer
    channel = blocking.channel
    channel.submit([b"x"])
    hostile.shutdown(socket.SHUT_WR)
    assert wait_until(lambda: channel.progress(RECEIVE))
    assert channel.bytes_sent == 0
    assert channel.is_sending


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (frame(0, magic=b"HTTP"), "expected a frame"),
        (frame(0, magic=b"BWS2"), "expected a frame"),
        (frame(5), "expected a frame"),
        (frame(255), "expected a frame"),
        (frame(2, 0, struct.pack("<QQ", 7, 1)), "expected a frame"),
        (frame(2, 0, struct.pack("<QQ", 7, 1), 1), "expected a frame"),
        (frame(3, 0), "expected a frame"),
        (frame(1, descriptors=1), "0 descriptors; 1 announced"),
        (b"BWS1\0\0\x01\0" + bytes(16), "expected a frame"),
        (frame(0, tag=5, content=b"x"), "plain message with the tag 5"),
        (frame(HELLO, content=b"x"), "HELLO frame has 4 bytes, found 1"),
        (frame(HELLO, content=struct.pack("<HH", 2, 3)), "version 2 to 3, this end sends 1"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "expected a frame"),
        (b"\x16\x03\x01\x02\x00" + bytes(512), "expected a frame"),
    ],
)
def test_a_malformed_frame_ends_the_connection(peer: Peer, content: bytes, message: str) -> None:
    hostile, channel = peer
    hostile.sendall(content)
    with pytest.raises(ProtocolError, match=message):
        channel.receive()
    for call in (channel.receive, lambda: channel.send([b""])):
        with pytest.raises(ConnectionLostError, match="after the connection ended"):
            call()


@pytest.mark.parametrize("length", range(0, 24 + 5, 3))
def test_a_peer_that_disconnects_in_the_middle_of_a_frame_is_lost(peer: Peer, length: int) -> None:
    hostile, channel = peer
    hostile.sendall(frame(1, 7, b"12345")[:length])
    hostile.close()
    with pytest.raises(ConnectionLostError, match="the peer disconnected"):
        channel.receive()


def test_a_peer_that_resets_the_connection_is_lost(peer: Peer) -> None:
    hostile, channel = peer
    hostile.sendall(frame(1, 7, b"12345")[:-1])
    hostile.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    hostile.close()
    with pytest.raises(ConnectionLostError, match="the peer disconnected"):
        channel.receive()


def test_a_frame_that_arrives_byte_by_byte_with_deadlines_between_is_whole(peer: Peer) -> None:
    hostile, channel = peer
    for byte in frame(1, 7, b"12345")[:-1]:
        hostile.sendall(bytes([byte]))
        with pytest.raises(DeadlineError):
            channel.receive(timeout_s=0)
    hostile.sendall(b"5")
    received = channel.receive()
    assert (received.tag, bytes(received.data)) == (7, b"12345")


@pytest.mark.parametrize(("kind", "tag"), [(0, 0), (1, 5)])
def test_a_length_beyond_the_limits_is_an_error_at_once(peer: Peer, kind: int, tag: int) -> None:
    hostile, channel = peer
    hostile.sendall(struct.pack("<4sBBHQQ", b"BWS1", kind, 0, 0, tag, 2**63))
    with pytest.raises(LimitError, match=f"{2**63} bytes"):
        channel.receive()


def test_an_announced_length_takes_no_memory_before_its_bytes_arrive() -> None:
    hostile, channel = connect_raw(TransportOptions(timeout_s=10, max_tagged_bytes=1 << 40))
    with hostile, channel:
        hostile.sendall(struct.pack("<4sBBHQQ", b"BWS1", 1, 0, 0, 5, 4 << 30) + b"only this")
        reset_peak()
        before = peak_bytes()
        with pytest.raises(BowstringError):
            channel.receive(timeout_s=0.1)
        assert peak_bytes() - before < 100 << 20


def receive_until_error(content: bytes) -> None:
    """Receive what a hostile peer sends, until an error of ours."""
    hostile, channel = connect_raw()
    with hostile, channel:
        hostile.sendall(content)
        hostile.shutdown(socket.SHUT_WR)
        with pytest.raises(BowstringError):
            while True:
                channel.receive()


@settings(max_examples=60)
@given(
    st.lists(
        st.builds(
            frame, st.integers(0, 5), st.sampled_from([0, 0, 1, 2**64 - 1]), st.binary(max_size=20), st.integers(0, 1)
        )
        | st.binary(max_size=40),
        max_size=5,
    )
)
def test_any_bytes_are_messages_or_errors_of_bowstring(frames: list[bytes]) -> None:
    receive_until_error(b"".join(frames))


def test_a_stream_with_flipped_bits_is_messages_or_errors_of_bowstring() -> None:
    hello = frame(HELLO, content=struct.pack("<HH", 1, 1))
    good = hello + frame(0, 0, b"plain message") + frame(1, 1 << 56 | 3, b"tagged") + frame(0)
    source = random.Random(5)
    with assert_descriptors_closed():
        for _ in range(200):
            damaged = bytearray(good)
            damaged[source.randrange(len(damaged))] ^= 1 << source.randrange(8)
            receive_until_error(bytes(damaged))
