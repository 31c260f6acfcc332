"""TLS over TCP: who is accepted, and what a peer without TLS or with other certificates gets."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from bowstring.errors import BowstringError, ConnectionLostError, InvalidArgumentError, MissingFileError
from bowstring.memory.region import FileRange, Region
from bowstring.transports.base import RECEIVE, PeerIdentity, TransportOptions
from bowstring.transports.blocking import BlockingChannel
from bowstring.transports.sockets.tcp import TCP, TLS
from bowstring.transports.tls import TlsOptions
from bowstring_testing.descriptors import assert_descriptors_closed
from bowstring_testing.transport_conformance import run_in_thread
from tests.polling import wait_until
from tests.transports.blocking import BlockingListener
from tests.transports.certificates import Authority
from tests.transports.sockets.test_tcp import connect_tls

OPTIONS = TransportOptions(timeout_s=20)


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("other"))


def connect(server: TlsOptions, client: TlsOptions) -> tuple[BlockingChannel, BlockingChannel]:
    return connect_tls(replace(OPTIONS, tls=server), replace(OPTIONS, tls=client))


def test_a_client_has_the_name_in_the_certificate_of_its_server(authority: Authority) -> None:
    one, other = connect(authority.server(), authority.client())
    with one, other:
        assert one.channel.traits.peer == PeerIdentity(name="commonName=127.0.0.1")
        assert other.channel.traits.peer is None


def test_a_server_that_requires_certificates_has_the_name_of_its_client(authority: Authority) -> None:
    one, other = connect(authority.server(checks_clients=True), authority.client("alice"))
    with one, other:
        one.send([b"hello"])
        assert bytes(other.receive().data) == b"hello"
        assert other.channel.traits.peer == PeerIdentity(name="commonName=alice")


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("/CN=alice/O=Staff", "commonName=alice, organizationName=Staff"),
        ("/CN=alice+O=Staff", "commonName=alice+organizationName=Staff"),
        ("/CN=alice, organizationName=Staff", r"commonName=alice\, organizationName=Staff"),
        (r"/CN=alice\+organizationName=Staff", r"commonName=alice\+organizationName=Staff"),
        (r"/CN=alice\\, organizationName=Staff", r"commonName=alice\\\, organizationName=Staff"),
        ('/CN=#é<>"; ', r"commonName=\#é\<\>\"\;\ "),
        ("/CN=a\nb\u0085", r"commonName=a\0Ab\C2\85"),
    ],
)
def test_different_subjects_of_certificates_are_different_names(authority: Authority, subject: str, name: str) -> None:
    one, other = connect(authority.server(checks_clients=True), authority.client("alice", subject))
    with one, other:
        one.send([b"hello"])
        other.receive()
        assert other.channel.traits.peer == PeerIdentity(name=name)


def test_a_server_of_another_authority_is_refused(authority: Authority, other_authority: Authority) -> None:
    with (
        assert_descriptors_closed(),
        pytest.raises(ConnectionLostError, match="certificate is not valid: unable to get"),
    ):
        connect(other_authority.server(), authority.client())


def test_a_server_without_a_certificate_of_its_host_is_refused(authority: Authority) -> None:
    with assert_descriptors_closed(), pytest.raises(ConnectionLostError, match=r"certificate is not valid: .*mismatch"):
        connect(authority.server("example.com"), authority.client())
    one, other = connect(authority.server("example.com"), replace(authority.client(), server_name="example.com"))
    one.close()
    other.close()


@pytest.mark.parametrize("is_other", [False, True], ids=["none", "of another authority"])
def test_a_client_without_a_valid_certificate_is_refused(
    authority: Authority, other_authority: Authority, is_other: bool
) -> None:
    client = authority.client()
    if is_other:
        certificate, key = other_authority.issue("mallory")
        client = replace(client, certificate=certificate, key=key)
    with assert_descriptors_closed(), pytest.raises(ConnectionLostError, match=r"(?i)certificate"):
        connect(authority.server(checks_clients=True), client)


def test_a_client_without_tls_is_refused(authority: Authority) -> None:
    options = replace(OPTIONS, tls=authority.server())
    with (
        assert_descriptors_closed(),
        BlockingListener.listen(TLS, options=options) as listener,
        BlockingChannel.dial(TCP, listener.address, options=OPTIONS) as one,
        listener.accept() as other,
    ):
        one.send([b"hello"])
        with pytest.raises(ConnectionLostError, match="the TLS handshake failed"):
            other.receive()
        other.close()
        with pytest.raises(BowstringError):
            one.receive()


def test_a_server_without_tls_is_refused(authority: Authority) -> None:
    with BlockingListener.listen(TCP, options=OPTIONS) as listener:

        def dial() -> None:
            BlockingChannel.dial(TLS, listener.address, options=replace(OPTIONS, tls=authority.client()))

        with run_in_thread(dial) as raised, listener.accept() as other:
            with pytest.raises(BowstringError, match="expected a frame"):
                other.receive()
            other.close()
    assert [isinstance(error, ConnectionLostError) for error in raised] == [True]


@pytest.mark.parametrize("content", [b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00" + bytes(512), bytes(100)])
def test_a_peer_that_breaks_off_the_handshake_is_lost(authority: Authority, content: bytes) -> None:
    with (
        assert_descriptors_closed(),
        BlockingListener.listen(TLS, options=replace(OPTIONS, tls=authority.server())) as own,
    ):
        host, _, port = own.address.removeprefix("//").rpartition(":")
        with socket.create_connection((host, int(port))) as hostile, own.accept() as channel:
            hostile.sendall(content)
            hostile.shutdown(socket.SHUT_WR)
            with pytest.raises(ConnectionLostError, match="the TLS handshake failed"):
                channel.receive()


def test_changed_bytes_end_the_connection(authority: Authority) -> None:
    one, other = connect(authority.server(), authority.client())
    with one, other:
        socket.socket.send(one.channel._socket, b"\x17\x03\x03\x00\x20" + bytes(32))  # type: ignore[attr-defined]
        with pytest.raises(BowstringError, match="tcp\\+tls"):
            other.receive()


def test_a_half_closed_connection_receives_the_reply(authority: Authority) -> None:
    one, other = connect(authority.server(), authority.client())
    with one, other:
        one.send([b"request"])
        socket.socket.shutdown(one.channel._socket, socket.SHUT_WR)  # type: ignore[attr-defined]
        assert bytes(other.receive().data) == b"request"
        assert wait_until(lambda: other.channel.progress(RECEIVE) or not other.channel.next_wait(RECEIVE).interests)
        other.channel.submit([b"reply"])
        other.channel.progress()
        assert bytes(one.receive().data) == b"reply"


def test_a_range_of_a_file_is_encrypted(authority: Authority, tmp_path: Path) -> None:
    one, other = connect(authority.server(), authority.client())
    content = bytes(range(256)) * 20_000
    (tmp_path / "file").write_bytes(b"before" + content + b"after")
    with one, other, Region.from_file(tmp_path / "file") as region:
        file = FileRange(region, 6, len(content))
        with run_in_thread(lambda: one.send([b"<", file, b">"], tag=1)) as raised:  # type: ignore[list-item]
            assert bytes(other.receive().data) == b"<" + content + b">"
        assert not raised


def test_options_that_are_not_valid_are_named(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    with pytest.raises(InvalidArgumentError, match="a server needs the option certificate"):
        TLS.listen()
    for name, options in {
        "certificate": TlsOptions(tmp_path / "text"),
        "authorities": replace(authority.server(), authorities=tmp_path / "text"),
    }.items():
        with assert_descriptors_closed(), pytest.raises(InvalidArgumentError, match=f"tls: {name} .*text"):
            TLS.listen(options=replace(OPTIONS, tls=options))
    with pytest.raises(MissingFileError, match=r"tls: certificate .*missing"):
        TLS.listen(options=replace(OPTIONS, tls=TlsOptions(tmp_path / "missing")))
