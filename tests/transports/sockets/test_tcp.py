from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bowstring.errors import ConnectionLostError, InvalidArgumentError, TruncatedError
from bowstring.memory.region import FileRange, Region
from bowstring.transports.base import BOTH_DIRECTIONS, DirectionEnded, TransportOptions
from bowstring.transports.blocking import BlockingChannel, wait_for_interests
from bowstring.transports.sockets.tcp import TCP, TLS, TcpTransport
from bowstring.transports.tls import TlsOptions
from bowstring_testing.descriptors import assert_descriptors_closed
from bowstring_testing.transport_conformance import (
    DEFAULT_OPTIONS,
    ChannelPair,
    TransportConformance,
    connect_pair,
    run_in_thread,
)
from tests.transports.blocking import BlockingListener
from tests.transports.certificates import Authority
from tests.transports.conformance import StreamConformance


class TestTcp(TransportConformance, StreamConformance):
    transport = TCP
    shares_memory = False


class TestTls(TransportConformance, StreamConformance):
    transport = TLS
    shares_memory = False

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def certificates(cls, tmp_path_factory: pytest.TempPathFactory) -> None:
        authority = Authority.create(tmp_path_factory.mktemp("certificates"))
        cls.server, cls.client = authority.server(), authority.client()

    server: TlsOptions
    client: TlsOptions

    def connect_pair(self, options: TransportOptions = DEFAULT_OPTIONS) -> ChannelPair:
        return connect_tls(replace(options, tls=self.server), replace(options, tls=self.client))


def connect_tls(server: TransportOptions, client: TransportOptions) -> ChannelPair:
    """Return two ends after the handshake, which needs both at the same time."""
    dialed: list[BlockingChannel] = []
    lost: list[DirectionEnded] = []
    with BlockingListener.listen(TLS, options=server) as listener:

        def dial() -> None:
            dialed.append(BlockingChannel.dial(TLS, listener.address, options=client))

        with run_in_thread(dial) as raised:
            accepted = listener.accept()
            channel = accepted.channel
            while not channel.is_connected and channel.next_wait().interests:
                wait_for_interests(channel.next_wait().interests, 20)
                lost += [event for event in channel.progress(BOTH_DIRECTIONS) if isinstance(event, DirectionEnded)]
        if raised or lost:
            for end in (accepted, *dialed):
                end.close()
            raise raised[0] if raised else lost[0].error
    return dialed[0], accepted


# Addresses


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.0.0.2"])
def test_a_listener_at_a_loopback_address_has_the_address_to_dial(host: str) -> None:
    if host == "[::1]" and not has_ipv6():
        pytest.skip("no IPv6 here")
    with BlockingListener.listen(TCP, f"{host}:0", options=DEFAULT_OPTIONS) as listener:
        assert listener.address.startswith(f"//{host}:")
        with BlockingChannel.dial(TCP, listener.address, options=DEFAULT_OPTIONS) as one, listener.accept() as other:
            one.send([b"hello"])
            assert bytes(other.receive().data) == b"hello"


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_a_name_with_several_addresses_is_dialed_at_each() -> None:
    with BlockingListener.listen(TCP, "127.0.0.1:0", options=DEFAULT_OPTIONS) as listener:
        port = listener.address.rpartition(":")[2]
        with BlockingChannel.dial(TCP, f"localhost:{port}", options=DEFAULT_OPTIONS) as one, listener.accept() as other:
            one.send([b"hello"])
            assert bytes(other.receive().data) == b"hello"


@pytest.mark.parametrize("address", ["0.0.0.0:0", "//[::]:0", "192.0.2.1:0"])
def test_addresses_other_than_loopback_need_tls(address: str) -> None:
    with assert_descriptors_closed(), pytest.raises(InvalidArgumentError, match="is not a loopback address"):
        TCP.listen(address)


@pytest.mark.parametrize(
    "address",
    ["", "//", "host", "host:", ":80", "host:x", "host:65536", "::1:80", "[::1]", "a b:1", "h:1/path", "u@h:1"],
)
def test_text_that_is_not_an_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidArgumentError, match="expected //HOST:PORT"):
        TCP.dial(address)


def test_an_address_in_use_is_refused() -> None:
    with BlockingListener.listen(TCP) as listener, pytest.raises(InvalidArgumentError, match="can't listen there"):
        TCP.listen(listener.address)


def test_an_address_without_a_listener_is_an_error() -> None:
    with BlockingListener.listen(TCP) as listener:
        address = listener.address
    with assert_descriptors_closed(), pytest.raises(ConnectionLostError, match="nothing is listening there"):
        BlockingChannel.dial(TCP, address, options=DEFAULT_OPTIONS)


def test_a_name_without_an_address_is_an_error() -> None:
    with pytest.raises(ConnectionLostError, match="no address of this host"):
        TCP.dial("host.invalid:1")


@pytest.mark.parametrize(
    ("transport", "options", "name"),
    [
        (TCP, TransportOptions(keep_descriptors=True), "keep_descriptors"),
        (TCP, TransportOptions(allow_other_users=True), "allow_other_users"),
        (TCP, TransportOptions(tls=TlsOptions()), "tls"),
        (TLS, TransportOptions(keep_descriptors=True), "keep_descriptors"),
    ],
)
def test_an_option_that_is_not_supported_is_named(
    transport: TcpTransport, options: TransportOptions, name: str
) -> None:
    for call in (transport.listen, transport.dial):
        with pytest.raises(InvalidArgumentError, match=f"the option {name} is not supported"):
            call("127.0.0.1:1", options)


# Sockets


@pytest.fixture
def channel_pair() -> Iterator[ChannelPair]:
    with assert_descriptors_closed():
        one, other = connect_pair(TCP, DEFAULT_OPTIONS)
        with one, other:
            yield one, other


def test_keep_alive_probes_end_within_30_seconds(channel_pair: ChannelPair) -> None:
    for end in channel_pair:
        connection: socket.socket = end.channel._socket  # type: ignore[attr-defined]
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
        idle, interval, count = (connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names)
        assert idle + interval * count <= 30


def test_the_connection_is_not_authenticated(channel_pair: ChannelPair) -> None:
    assert [end.channel.traits.peer for end in channel_pair] == [None, None]


def check_range_is_sent(one: BlockingChannel, other: BlockingChannel, path: Path) -> None:
    content = bytes(range(256)) * 20_000
    path.write_bytes(b"before" + content + b"after")
    with Region.from_file(path) as region:
        file = FileRange(region, 6, len(content))
        with run_in_thread(lambda: one.send([b"<", file, b">"], tag=1)) as raised:  # type: ignore[list-item]
            assert bytes(other.receive().data) == b"<" + content + b">"
    assert not raised


def test_a_range_of_a_file_is_sent_between_bytes(channel_pair: ChannelPair, tmp_path: Path) -> None:
    check_range_is_sent(*channel_pair, tmp_path / "file")


def test_a_file_that_became_shorter_ends_the_connection(channel_pair: ChannelPair, tmp_path: Path) -> None:
    one, other = channel_pair
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    with Region.from_file(path) as region:
        path.write_bytes(bytes(50))
        with pytest.raises(TruncatedError, match="100 bytes, its file now has 50"):
            one.send([FileRange(region, 0, 100)], tag=1)  # type: ignore[list-item]
    with pytest.raises(ConnectionLostError, match=r"of 100 bytes|header"):
        other.receive()
