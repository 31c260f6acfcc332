"""Peers on a unix socket that send what they may not: a clean error each, no hang, no descriptor or memory taken."""

from __future__ import annotations

import array
import fcntl
import os
import random
import resource
import socket
import struct
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings, strategies as st

from bowstring.errors import (
    BowstringError,
    ConnectionLostError,
    DeadlineError,
    LimitError,
    ProtocolError,
    ResourceError,
)
from bowstring.memory.region import Region
from bowstring.transports.base import SEND, TransportOptions
from bowstring.transports.blocking import BlockingChannel
from bowstring.transports.sockets.unix import UNIX, UnixChannel, encode_unix_address, random_abstract_address
from bowstring_testing.descriptors import count_open_descriptors
from bowstring_testing.transport_conformance import connect_pair, run_in_thread
from tests.peak_memory import peak_bytes, reset_peak
from tests.transports.blocking import retire

pytestmark = pytest.mark.usefixtures("no_descriptor_is_left")
OPTIONS = TransportOptions(timeout_s=10)


def frame(kind: int, tag: int = 0, content: bytes = b"", descriptors: int = 0, magic: bytes = b"BWS1") -> bytes:
    return struct.pack("<4sBBHQQ", magic, kind, descriptors, 0, tag, len(content)) + content


def region_frame(index: int = 0, size: int = 7, flags: int = 1) -> bytes:
    return frame(2, index, struct.pack("<QQ", size, flags), 1)


def send(peer: socket.socket, data: bytes, descriptors: list[int] | None = None) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    peer.sendmsg([data], rights)


@pytest.fixture
def peer() -> Iterator[tuple[socket.socket, BlockingChannel]]:
    """A hostile peer's bare socket, and our end."""
    hostile, connection = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with hostile, BlockingChannel(UNIX, UnixChannel.from_socket(connection, OPTIONS)) as transport:
        yield hostile, transport


Peer = tuple[socket.socket, BlockingChannel]


def test_the_frames_are_those_of_the_documentation(peer: Peer) -> None:
    hostile, transport = peer
    transport.send([b"ab", b"c"], tag=0x0102030405060708)
    assert hostile.recv(100) == b"BWS1\x01\0\0\0" + bytes(range(8, 0, -1)) + b"\x03\0\0\0\0\0\0\0abc"
    with Region.copy_of([b"content"]) as region:
        exported = transport.export(region)
        data, rights, _, _ = hostile.recvmsg(100, 1000)
        assert data == b"BWS1\x02\x01\0\0" + bytes(8) + b"\x10\0\0\0\0\0\0\0" + struct.pack("<QQ", 7, 1)
        (descriptor,) = struct.unpack("i", rights[0][2])
        assert os.pread(descriptor, 100, 0) == b"content"
        os.close(descriptor)
    retire(transport, exported)
    assert hostile.recv(100) == b"BWS1\x03\0\0\0" + bytes(16)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (frame(0, magic=b"HTTP"), "expected a frame"),
        (frame(5), "expected a frame"),
        (frame(255), "expected a frame"),
        (b"BWS1\0\0\x01\0" + bytes(16), "expected a frame"),
        (frame(0, tag=5, content=b"x"), "plain message with the tag 5"),
        (frame(0, descriptors=1), "0 descriptors; 1 announced"),
        (region_frame(), "0 descriptors; 1 announced"),
        (frame(2, 0, b"short", 1), "REGION frame has 16 bytes"),
        (frame(3, 0, b"x"), "RETIRE frame has 0 bytes"),
        (frame(3, 0), "region 0: the peer did not send such a region"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "expected a frame"),
    ],
)
def test_a_malformed_frame_ends_the_connection(peer: Peer, data: bytes, message: str) -> None:
    hostile, transport = peer
    send(hostile, data)
    with pytest.raises(ProtocolError, match=message):
        transport.receive()
    assert transport.is_closed
    for call in (transport.receive, lambda: transport.send([b""])):
        with pytest.raises(ConnectionLostError, match="after the connection ended"):
            call()


@pytest.mark.parametrize("length", range(0, 24 + 5, 3))
def test_a_peer_that_disconnects_in_the_middle_of_a_frame_is_lost(peer: Peer, length: int) -> None:
    hostile, transport = peer
    send(hostile, frame(1, 7, b"12345")[:length])
    hostile.close()
    with pytest.raises(ConnectionLostError, match="the peer disconnected"):
        transport.receive()


def test_a_frame_that_arrives_byte_by_byte_with_deadlines_between_is_whole(peer: Peer) -> None:
    hostile, transport = peer
    for byte in frame(1, 7, b"12345")[:-1]:
        send(hostile, bytes([byte]))
        with pytest.raises(DeadlineError):
            transport.receive(timeout_s=0)
    send(hostile, b"5")
    received = transport.receive()
    assert (received.tag, bytes(received.data)) == (7, b"12345")


def test_a_length_beyond_the_limits_is_an_error_at_once(peer: Peer) -> None:
    hostile, transport = peer
    send(hostile, struct.pack("<4sBBHQQ", b"BWS1", 1, 0, 0, 5, 2**63))
    with pytest.raises(LimitError, match=f"{2**63} bytes"):
        transport.receive()


def test_an_announced_length_takes_no_memory_before_its_bytes_arrive() -> None:
    hostile, connection = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with hostile, BlockingChannel(UNIX, UnixChannel.from_socket(connection, OPTIONS)) as transport:
        send(hostile, struct.pack("<4sBBHQQ", b"BWS1", 1, 0, 0, 5, 4 << 30) + b"only this")
        reset_peak()
        before = peak_bytes()
        with pytest.raises((DeadlineError, BowstringError)):
            transport.receive(timeout_s=0.1)
        assert peak_bytes() - before < 100 << 20


def memfd(sealed: bool = True) -> int:
    descriptor = os.memfd_create("hostile", 2)
    os.write(descriptor, b"content")
    if sealed:
        fcntl.fcntl(descriptor, 1033, 2 | 4 | 8)
    return descriptor


def pipe_end() -> int:
    reader, writer = os.pipe()
    os.close(writer)
    return reader


def path_descriptor() -> int:
    """A descriptor of a file that has no name any more, through which nothing can be read."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"content")
        file.flush()
        return os.open(file.name, os.O_PATH)


def unmappable_file() -> int:
    try:
        return os.open("/sys/kernel/uevent_seqnum", os.O_RDONLY)
    except OSError:
        pytest.skip("requires /sys")


@pytest.mark.parametrize(
    ("make", "data", "message"),
    [
        (lambda: memfd(sealed=False), region_frame(), "still write or shrink"),
        (memfd, region_frame(size=8), "expected 8 bytes, received 7"),
        (memfd, region_frame(size=2**64 - 1), "bytes, received"),
        (memfd, region_frame(index=1), "expected index 0, found 1"),
        (memfd, region_frame(index=2**64 - 1), "expected index 0"),
        (memfd, region_frame(flags=0), "flags 0, which do not match"),
        (memfd, region_frame(flags=3), "flags 3"),
        (pipe_end, region_frame(), "a pipe"),
        (lambda: os.open("/dev/zero", os.O_RDONLY), region_frame(flags=0), "a device"),
        (path_descriptor, region_frame(flags=0), "a file that can be mapped: Bad file descriptor"),
        (unmappable_file, region_frame(size=4096, flags=0), "a file that can be mapped: No such device"),
        (memfd, frame(0, content=b"x"), "PLAIN frame with 1 descriptors"),
        (memfd, frame(1, content=b"x", descriptors=1), "TAGGED frame with 1 descriptors"),
        (memfd, b"garbage of at least 24 bytes, with a descriptor", "expected a frame"),
    ],
)
def test_an_invalid_region_is_an_error_and_closed(
    peer: Peer, make: Callable[[], int], data: bytes, message: str
) -> None:
    hostile, transport = peer
    descriptor = make()
    send(hostile, data, [descriptor])
    os.close(descriptor)
    with pytest.raises(BowstringError, match=message):
        transport.receive()
    assert transport.is_closed


@pytest.mark.parametrize("count", [2, 3, 253])
def test_surplus_descriptors_are_an_error_and_closed(peer: Peer, count: int) -> None:
    hostile, transport = peer
    descriptor = memfd()
    send(hostile, region_frame(), [descriptor] * count)
    os.close(descriptor)
    with pytest.raises(ProtocolError, match="descriptor"):
        transport.receive()
    transport.close()


@pytest.mark.parametrize(
    ("data", "count", "message"),
    [
        (region_frame(), 1, "a descriptor, of which none is received"),
        (region_frame(), 2, "a descriptor, of which none is received"),
        (frame(0, content=b"x"), 1, "a descriptor, of which none is received"),
        (region_frame(), 0, "expected a frame, found the bytes"),
        (frame(3), 0, "expected a frame, found the bytes"),
    ],
)
def test_an_end_without_regions_takes_no_descriptor(
    monkeypatch: pytest.MonkeyPatch, data: bytes, count: int, message: str
) -> None:
    monkeypatch.setattr(Region, "attach", None)
    hostile, connection = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    options = TransportOptions(timeout_s=5, max_regions=0)
    with hostile, BlockingChannel(UNIX, UnixChannel.from_socket(connection, options)) as transport:
        descriptor = memfd()
        send(hostile, data, [descriptor] * count)
        os.close(descriptor)
        with pytest.raises(ProtocolError, match=message):
            transport.receive()


@pytest.mark.parametrize("is_apart", [True, False])
def test_descriptors_in_a_body_are_closed(peer: Peer, is_apart: bool) -> None:
    hostile, transport = peer
    before = count_open_descriptors()
    data = frame(1, 5, b"12345")
    send(hostile, data[:26])
    if is_apart:
        with pytest.raises(DeadlineError):
            transport.receive(timeout_s=0)
    descriptor = memfd()
    send(hostile, data[26:], [descriptor])
    os.close(descriptor)
    if is_apart:
        assert bytes(transport.receive().data) == b"12345"
    else:  # received together with the header, to which it may belong
        with pytest.raises(ProtocolError, match="TAGGED frame with 1 descriptors"):
            transport.receive()
    assert count_open_descriptors() == before


def test_a_second_descriptor_in_a_frame_header_is_an_error(peer: Peer) -> None:
    hostile, transport = peer
    descriptor = memfd()
    for byte in region_frame()[:24]:
        send(hostile, bytes([byte]), [descriptor])
    os.close(descriptor)
    with pytest.raises(ProtocolError, match="descriptor"):
        transport.receive()


def test_a_region_received_without_free_descriptors_is_an_error(peer: Peer) -> None:
    hostile, transport = peer
    descriptor = memfd()
    send(hostile, region_frame(), [descriptor])
    os.close(descriptor)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptor, hard))
    try:
        with pytest.raises(BowstringError, match="can't open more"):
            transport.receive()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_pair_created_without_free_descriptors_is_an_error() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(ResourceError, match="unix socket: Too many open files"):
            connect_pair(UNIX)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def receive_until_error(*pieces: tuple[bytes, bool]) -> None:
    """Receive what a hostile peer sends, some of it with a descriptor, until an error of ours."""
    before = count_open_descriptors()
    hostile, connection = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with hostile, BlockingChannel(UNIX, UnixChannel.from_socket(connection, OPTIONS)) as transport:
        descriptor = memfd()
        for data, with_descriptor in pieces:
            if data:
                send(hostile, data, [descriptor] if with_descriptor else None)
        os.close(descriptor)
        hostile.shutdown(socket.SHUT_WR)
        with pytest.raises(BowstringError):
            while True:
                transport.receive()
    assert count_open_descriptors() == before


@settings(max_examples=60)
@given(
    st.lists(
        st.builds(
            frame, st.integers(0, 5), st.sampled_from([0, 0, 1, 2**64 - 1]), st.binary(max_size=20), st.integers(0, 1)
        )
        | st.binary(max_size=40),
        max_size=5,
    ),
    st.booleans(),
)
def test_any_bytes_are_messages_or_errors_of_bowstring(frames: list[bytes], with_descriptor: bool) -> None:
    receive_until_error((b"".join(frames), with_descriptor))


def test_a_stream_with_flipped_bits_is_messages_or_errors_of_bowstring() -> None:
    good = frame(0, 0, b"plain message") + frame(1, 1 << 56 | 3, b"tagged") + region_frame() + frame(3, 0) + frame(0)
    cut = good.index(region_frame())
    source = random.Random(5)
    for _ in range(300):
        data = bytearray(good)
        index = source.randrange(len(data))
        data[index] ^= 1 << source.randrange(8)
        receive_until_error((bytes(data[:cut]), False), (bytes(data[cut:]), True))


def test_a_body_is_not_copied_on_the_sending_side() -> None:
    one, other = connect_pair(UNIX, TransportOptions(timeout_s=0.1))
    body = memoryview(bytes(8 << 20))
    with one, other:
        tracemalloc.start()
        try:
            with pytest.raises(DeadlineError):
                one.send([body])
            assert tracemalloc.get_traced_memory()[1] < 100_000
        finally:
            tracemalloc.stop()
        assert one.is_closed


@pytest.mark.thorough
def test_a_steady_slow_transfer_may_take_longer_than_the_deadline(peer: Peer) -> None:
    hostile, transport = peer
    hostile.settimeout(20)
    body, step_bytes = bytes(32 << 20), 1 << 20
    data = frame(1, 5, body)

    def send_slowly() -> None:
        for start in range(0, len(data), step_bytes):
            time.sleep(0.05)
            hostile.sendall(data[start : start + step_bytes])

    begin = time.monotonic()
    with run_in_thread(send_slowly) as raised:
        assert transport.receive(timeout_s=1.0).data == body
    assert not raised
    assert time.monotonic() - begin > 1.0, "the transfer is too fast for this test"

    def receive_slowly() -> None:
        num_remaining = len(data)
        while num_remaining:
            time.sleep(0.05)
            num_remaining -= len(hostile.recv(min(num_remaining, step_bytes), socket.MSG_WAITALL))

    with run_in_thread(receive_slowly) as raised:
        begin = time.monotonic()
        transport.send([body], tag=5, timeout_s=1.0)
        assert time.monotonic() - begin > 1.0, "the transfer is too fast for this test"
    assert not raised


def test_a_transfer_that_stalls_ends_at_the_deadline(peer: Peer) -> None:
    hostile, transport = peer
    send(hostile, frame(1, 5, bytes(1000))[:500])
    with pytest.raises(DeadlineError, match="in the middle of a frame: nothing within"):
        transport.receive(timeout_s=0.1)
    send(hostile, bytes(524))
    assert len(transport.receive().data) == 1000
    with pytest.raises(DeadlineError, match="bytes before the end: nothing within"):
        transport.send([bytes(8 << 20)], timeout_s=0.1)
    assert transport.is_closed


def test_messages_submitted_to_a_peer_that_does_not_read_are_sent_later(peer: Peer) -> None:
    hostile, transport = peer
    hostile.settimeout(20)
    transport.channel.submit([b"x" * (8 << 20)], 7)
    transport.channel.progress(SEND)
    assert transport.channel.is_sending
    received = bytearray()
    with run_in_thread(lambda: transport.send([b"last"])) as raised:
        while len(received) < (8 << 20) + 24 + 24 + 4:
            received += hostile.recv(1 << 20)
    assert not raised
    assert received == frame(1, 7, b"x" * (8 << 20)) + frame(0, 0, b"last")


HELLO = struct.pack("<HH", 1, 1)


def test_a_hello_is_answered_before_the_next_message(peer: Peer) -> None:
    hostile, transport = peer
    send(hostile, frame(4, 0, HELLO) + frame(1, 7, b"request"))
    assert bytes(transport.receive().data) == b"request"
    transport.send([b"reply"])
    transport.send([b"more"])
    assert hostile.recv(200) == frame(4, 0, HELLO) + frame(0, 0, b"reply") + frame(0, 0, b"more")


def test_a_dialed_channel_says_hello_first_and_needs_no_answer() -> None:
    address = random_abstract_address()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(encode_unix_address(address))
        listener.listen()
        with BlockingChannel.dial(UNIX, address, options=OPTIONS) as transport:
            transport.send([b"request"], tag=7)
            hostile, _ = listener.accept()
            with hostile:
                assert hostile.recv(200) == frame(4, 0, HELLO) + frame(1, 7, b"request")
                send(hostile, frame(0, 0, b"reply"))
                assert bytes(transport.receive().data) == b"reply"


def test_a_peer_that_also_supports_later_versions_is_accepted(peer: Peer) -> None:
    hostile, transport = peer
    send(hostile, frame(4, 0, struct.pack("<HH", 1, 9)) + frame(0, 0, b"x"))
    assert bytes(transport.receive().data) == b"x"


def test_a_peer_without_a_common_version_is_an_error(peer: Peer) -> None:
    hostile, transport = peer
    send(hostile, frame(4, 0, struct.pack("<HH", 2, 9)))
    with pytest.raises(ProtocolError, match="receives frames of version 2 to 9, this end sends 1"):
        transport.receive()
