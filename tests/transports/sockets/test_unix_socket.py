"""Listening, connecting, and who may."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bowstring.errors import ClosedError, ConnectionLostError, DeadlineError, InvalidArgumentError, ResourceError
from bowstring.transports.base import RECEIVE, SEND, Channel, MessageReceived, TransportOptions
from bowstring.transports.blocking import BlockingChannel
from bowstring.transports.sockets.unix import UNIX, UnixListener, random_abstract_address
from bowstring_testing.transport_conformance import run_in_thread
from tests.transports.blocking import BlockingListener

pytestmark = pytest.mark.usefixtures("no_descriptor_is_left")
OPTIONS = TransportOptions(timeout_s=10)


def exchange_message(address: str, listener: BlockingListener) -> None:
    with BlockingChannel.dial(UNIX, address, options=OPTIONS) as client, listener.accept() as server:
        client.send([b"hello"])
        assert bytes(server.receive().data) == b"hello"


def test_abstract_names_are_random_and_leave_no_file() -> None:
    with BlockingListener.listen(UNIX, options=OPTIONS) as one, BlockingListener.listen(UNIX, options=OPTIONS) as other:
        assert one.address.startswith("@bowstring-")
        assert one.address != other.address
        exchange_message(one.address, one)
        assert not Path(one.address).exists()
        assert one.address in Path("/proc/net/unix").read_text()
    assert one.address not in Path("/proc/net/unix").read_text()


def test_closing_a_listener_removes_the_file_at_its_path(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with BlockingListener.listen(UNIX, str(path), options=OPTIONS) as listener:
        assert path.stat().st_mode & 0o777 == 0o600
        exchange_message(str(path), listener)
    assert not path.exists()


def test_the_socket_of_a_killed_server_is_replaced_but_not_that_of_a_running_one(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(path)
    dead.close()
    with BlockingListener.listen(UNIX, path, options=OPTIONS) as listener:
        exchange_message(path, listener)
        with pytest.raises(InvalidArgumentError, match="already in use"):
            BlockingListener.listen(UNIX, path)
        with listener.accept() as probe, pytest.raises(ConnectionLostError):
            probe.receive()
        exchange_message(path, listener)


def test_closing_a_listener_leaves_a_socket_that_took_its_path_alone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    first = BlockingListener.listen(UNIX, str(path), options=OPTIONS)
    path.unlink()
    with BlockingListener.listen(UNIX, str(path), options=OPTIONS) as second:
        first.close()
        exchange_message(str(path), second)


def test_a_file_that_is_not_a_socket_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(InvalidArgumentError, match="can't listen there"):
        BlockingListener.listen(UNIX, str(path))
    assert path.read_text() == "data"


@pytest.mark.parametrize("address", ["", "@", "/" + "x" * 107, "@" + "x" * 107, "a\0b"])
def test_addresses_that_are_too_long_are_an_error(address: str) -> None:
    with pytest.raises(InvalidArgumentError, match="address"):
        BlockingListener.listen(UNIX, address)
    with pytest.raises(InvalidArgumentError, match="address"):
        BlockingChannel.dial(UNIX, address)


def test_connecting_without_a_listener_fails_at_once(tmp_path: Path) -> None:
    for address in (random_abstract_address(), str(tmp_path / "none")):
        with pytest.raises(ConnectionLostError, match="nothing is listening there"):
            BlockingChannel.dial(UNIX, address)


def test_accepting_has_a_deadline() -> None:
    with (
        BlockingListener.listen(UNIX, options=OPTIONS) as listener,
        pytest.raises(DeadlineError, match="waiting for a connection"),
    ):
        listener.accept(timeout_s=0.05)


def test_connecting_to_a_full_queue_has_a_deadline() -> None:
    address = random_abstract_address()
    with socket.socket(socket.AF_UNIX) as lazy:
        lazy.bind("\0" + address[1:])
        lazy.listen(0)
        with BlockingChannel.dial(UNIX, address), pytest.raises(DeadlineError, match="connecting"):
            BlockingChannel.dial(UNIX, address, timeout_s=0.05)


def test_a_shortage_does_not_lose_the_connections_that_were_accepted_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create = UnixListener._create_channel

    def fail_after_one(listener: UnixListener, connection: socket.socket) -> Channel:
        monkeypatch.setattr(UnixListener, "_create_channel", fail)
        return create(listener, connection)

    def fail(_listener: UnixListener, connection: socket.socket) -> Channel:
        connection.close()
        raise ResourceError("no descriptors are left")

    with UnixListener() as listener, UNIX.dial(listener.address) as one, UNIX.dial(listener.address):
        monkeypatch.setattr(UnixListener, "_create_channel", fail_after_one)
        (accepted,) = listener.accept()
        with accepted:
            one.submit([b"hello"])
            one.progress(SEND)
            assert [type(event) for event in accepted.progress(RECEIVE)] == [MessageReceived]


def test_closing_a_listener_wakes_threads_that_accept() -> None:
    listener = BlockingListener.listen(UNIX, options=OPTIONS)
    with run_in_thread(listener.accept) as raised:
        time.sleep(0.05)
        listener.close()
    assert [type(error) for error in raised] == [ClosedError]
    with pytest.raises(ClosedError):
        listener.accept()


def test_many_clients_at_once_are_served() -> None:
    count = 40
    with BlockingListener.listen(UNIX, options=OPTIONS) as listener:
        clients: list[BlockingChannel] = []

        def connect() -> None:
            clients.append(BlockingChannel.dial(UNIX, listener.address, options=OPTIONS))

        threads = [threading.Thread(target=connect) for _ in range(count)]
        for thread in threads:
            thread.start()
        servers = [listener.accept() for _ in range(count)]
        for thread in threads:
            thread.join()
        for client in clients:
            client.send([b"x"])
        for end in [*servers, *clients]:
            end.close()
    assert len(servers) == len(clients) == count


AS_OTHER_USER = """
import os, sys
from bowstring.transports.base import TransportOptions
from bowstring.transports.blocking import BlockingChannel
from tests.transports.blocking import BlockingListener
from bowstring.transports.sockets.unix import UNIX
from bowstring.errors import ConnectionLostError
os.setuid(65534)
"""
NEEDS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="requires root, to connect as another user")


@NEEDS_ROOT
def test_a_client_of_another_user_is_refused_and_the_next_is_served() -> None:
    with BlockingListener.listen(UNIX, options=OPTIONS) as listener:
        script = AS_OTHER_USER + "connected = BlockingChannel.dial(UNIX, sys.argv[1])\nprint('connected', flush=True)\n"
        script += "try:\n    connected.receive(timeout_s=10)\nexcept ConnectionLostError as error:\n    print(error)\n"
        other = subprocess.Popen([sys.executable, "-c", script, listener.address], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        with other, other.stdout as output:
            assert output.readline() == "connected\n"
            with pytest.raises(DeadlineError):
                listener.accept(timeout_s=0.2)
            assert "the peer disconnected" in output.read()
        exchange_message(listener.address, listener)


@NEEDS_ROOT
def test_a_server_of_another_user_is_not_trusted() -> None:
    script = (
        AS_OTHER_USER
        + "listener = BlockingListener.listen(UNIX)\nprint(listener.address, flush=True)\nsys.stdin.read()\n"
    )
    other = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    assert other.stdout is not None
    with other:
        address = other.stdout.readline().strip()
        with pytest.raises(ConnectionLostError, match="refused a peer of user 65534"):
            BlockingChannel.dial(UNIX, address, options=OPTIONS)
        with BlockingChannel.dial(UNIX, address, options=TransportOptions(allow_other_users=True)):
            pass
