"""Peers that die, and peers that violate the binding."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bowstring.errors import BowstringError, ConnectionLostError, ProtocolError, UnsupportedError
from bowstring.memory.buffer import Memory
from bowstring.transports.base import (
    RECEIVE,
    Channel,
    DirectionEnded,
    Event,
    Listener,
    MessageReceived,
    TransportOptions,
)
from bowstring.transports.blocking import wait_for_interests
from bowstring.transports.sockets.tcp_address import parse_address, resolve_host
from bowstring_networks.fabric import channel
from bowstring_networks.fabric.channel import FabricChannel
from bowstring_networks.fabric.control_socket import ControlSocket, Hello
from bowstring_networks.fabric.endpoint import Domain, Endpoint as LibfabricEndpoint
from bowstring_networks.fabric.frame_link import FRAME_BYTES, NUM_FRAMES, FabricFrameKind, FrameLink
from bowstring_networks.fabric.transport import FabricListener, FabricTransport
from bowstring_testing.descriptors import assert_descriptors_closed
from networks.tests.fabric.pairs import require_libfabric, require_provider
from tests.polling import wait_until
from tests.transports.blocking import BlockingListener

require_libfabric()

OPTIONS = TransportOptions(timeout_s=30)
HEADER = struct.Struct("<B7xQQQQ")
PEER = """
import signal, sys
from bowstring.transports.blocking import BlockingChannel
from bowstring_networks.fabric.transport import FABRIC
channel = BlockingChannel.dial(FABRIC, sys.argv[1])
channel.send([b"hello"])
channel.channel.submit([bytes(1 << 20)], 5)
channel.channel.progress()
signal.pause()
"""


@pytest.fixture
def listener() -> Iterator[FabricListener]:
    with assert_descriptors_closed(), FabricTransport().listen(options=OPTIONS) as endpoint:
        yield endpoint


def progress_until_lost(channel: Channel, events: list[Event]) -> BowstringError:
    """Progress a channel, and collect its events, until it is lost; return the error."""
    while not any(isinstance(event, DirectionEnded) for event in events):
        wait_for_interests(channel.next_wait().interests, 30)
        events += channel.progress()
    return next(event.error for event in events if isinstance(event, DirectionEnded))


def accept(listener: Listener) -> FabricChannel:
    channels: list[Channel] = []
    while not channels:
        wait_for_interests(listener.interests(), 30)
        channels = listener.accept(1)
    assert isinstance(channels[0], FabricChannel)
    return channels[0]


class HostilePeer:
    """A client that sends frames of its own choice."""

    def __init__(self, listener: FabricListener) -> None:
        self.domain = Domain("tcp", "127.0.0.1")
        self.link = FrameLink(LibfabricEndpoint(self.domain), "peer")
        host, port = parse_address(listener.address.removesuffix("/tcp"))
        self.control = ControlSocket(None, resolve_host(host, port), "peer")
        self.control.send(self.link.hello)
        self.control.progress()
        self.server = accept(listener)
        self.events: list[Event] = []
        while self.control.peer_hello is None:
            self.control.progress()
            self.events += self.server.progress()
        self.link.connect(self.control.peer_hello, self.control.peer_host)

    def send(self, frame: bytes) -> None:
        """Send these bytes as a frame."""
        memory = Memory(frame)
        while self.link.endpoint.send(memory, memory.size, self.link._peer) is None:
            self.link.progress()
            self.events += self.server.progress()

    def close(self) -> None:
        self.link.endpoint.close()
        self.domain.close()
        self.control.close()
        self.server.close()


@pytest.fixture
def peer(listener: FabricListener) -> Iterator[HostilePeer]:
    client = HostilePeer(listener)
    yield client
    client.close()


def frame_header(kind: int, number: int = 0, tag: int = 0, size_bytes: int = 0, num_freed: int = 0) -> bytes:
    return HEADER.pack(kind, number, tag, size_bytes, num_freed)


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([b"short"], "a frame has 5 bytes, less than its header"),
        ([frame_header(FabricFrameKind.TAGGED, size_bytes=3) + b"four"], "expected 3 bytes, found 4"),
        ([frame_header(FabricFrameKind.PLAIN, num_freed=1)], "the peer has freed 1 frames, but 0 were sent"),
        ([frame_header(FabricFrameKind.PLAIN)] * 2, "message 0 arrived twice"),
        ([frame_header(FabricFrameKind.READY, 7)], "message 7, which was not announced"),
        ([frame_header(9)], "a frame of the unknown kind 9"),
        (
            [frame_header(FabricFrameKind.PLAIN, number) for number in range(1, NUM_FRAMES + 2)],
            "more than the 32 frames",
        ),
    ],
)
def test_a_frame_that_violates_the_binding_ends_the_connection(
    peer: HostilePeer, frames: list[bytes], message: str
) -> None:
    for frame in frames:
        peer.send(frame)
    error = progress_until_lost(peer.server, peer.events)
    assert isinstance(error, ProtocolError)
    assert message in str(error)


def test_messages_that_are_later_than_the_end_of_the_tcp_connection_arrive(
    peer: HostilePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "_GRACE_S", 30.0)
    peer.control.shut_down()
    while not peer.server._control.has_ended:
        peer.events += peer.server.progress()
    peer.send(frame_header(FabricFrameKind.PLAIN, 0, size_bytes=4) + b"late")
    peer.send(frame_header(FabricFrameKind.END, 1))
    assert isinstance(progress_until_lost(peer.server, peer.events), ConnectionLostError)
    assert [bytes(event.data) for event in peer.events if isinstance(event, MessageReceived)] == [b"late"]


def hello_with_address(family: int, host: str) -> bytes:
    """A HELLO with a socket address."""
    address = struct.pack("=H", family) + struct.pack("!H", 9) + socket.inet_aton(host) + bytes(8)
    return Hello(NUM_FRAMES, FRAME_BYTES, address).encode()


HELLO = Hello(NUM_FRAMES, FRAME_BYTES, bytes(16)).encode()


@pytest.mark.parametrize(
    ("hello", "message"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "expected HELLO of version 1, found b'GET / '"),
        (HELLO[:4] + b"\2" + HELLO[5:], "expected HELLO of version 1"),
        (Hello(0, FRAME_BYTES, b"").encode(), "0 frames"),
        (Hello(1, 63, b"").encode(), "63 bytes"),
        (HELLO + b"more", "found 4 bytes after HELLO"),
        (Hello(NUM_FRAMES, FRAME_BYTES, b"short").encode(), "the peer's address has 5 bytes"),
        (hello_with_address(socket.AF_INET, "127.0.0.2"), "a peer at 127.0.0.1 has an endpoint at 127.0.0.2"),
        (hello_with_address(99, "127.0.0.1"), "the peer's address is not valid"),
    ],
)
def test_a_malformed_hello_is_a_protocol_error(listener: FabricListener, hello: bytes, message: str) -> None:
    host, port = parse_address(listener.address.removesuffix("/tcp"))
    with socket.create_connection((host, port)) as client:
        client.sendall(hello)
        with accept(listener) as server:
            error = progress_until_lost(server, [])
    assert isinstance(error, ProtocolError)
    assert message in str(error)


def test_a_peer_that_disconnects_before_its_hello_is_lost(listener: FabricListener) -> None:
    host, port = parse_address(listener.address.removesuffix("/tcp"))
    with socket.create_connection((host, port)) as client:
        client.sendall(HELLO[:10])
    with accept(listener) as server:
        assert isinstance(progress_until_lost(server, []), ConnectionLostError)


def test_dialing_an_address_without_a_listener_is_reported_as_lost(listener: FabricListener) -> None:
    listener.close()
    with FabricTransport().dial(listener.address) as client:
        assert isinstance(progress_until_lost(client, []), ConnectionLostError)


def test_a_provider_that_is_not_available_is_an_unsupported_error() -> None:
    with pytest.raises(UnsupportedError, match="fabric: unheard_of: not available at 127"):
        FabricTransport().listen("//127.0.0.1:0/unheard_of")


def test_a_killed_peer_is_lost_after_its_messages() -> None:
    transport = FabricTransport()
    with BlockingListener.listen(transport, options=OPTIONS) as listener:
        process = subprocess.Popen([sys.executable, "-c", PEER, listener.address])
        try:
            with listener.accept() as channel:
                assert bytes(channel.receive().data) == b"hello"
                process.send_signal(signal.SIGKILL)
                process.wait(30)
                with pytest.raises(ConnectionLostError):
                    channel.receive()
                with pytest.raises(ConnectionLostError):
                    channel.send([b"late"])
        finally:
            process.kill()
            process.wait(30)


@pytest.mark.parametrize("provider", ["tcp", "sockets"])
def test_an_idle_channel_sleeps(provider: str) -> None:
    require_provider(provider)
    transport = FabricTransport()
    with BlockingListener.listen(transport, f"//127.0.0.1:0/{provider}", options=OPTIONS) as listener:
        client = transport.dial(listener.address)
        server = accept(listener.listener)
        with client, server:

            def is_idle() -> bool:
                for channel in (client, server):
                    channel.progress()
                return not any(wait_for_interests(channel.next_wait().interests, 0.1) for channel in (client, server))

            wait_until(is_idle)
            client.submit([b"x"])
            client.progress()
            assert wait_for_interests(server.next_wait(RECEIVE).interests, 30)
