"""Listening, connecting, and who may."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bowstring.errors import ClosedError, ConnectionLostError, DeadlineError, UsageError
from bowstring.testing.descriptors import no_descriptor_left
from bowstring.testing.protocol_conformance import in_thread
from bowstring.transports.base import TransportOptions
from bowstring.transports.unix import UnixTransport
from bowstring.transports.unix_address import new_abstract_address
from bowstring.transports.unix_listener import UnixListener

OPTIONS = TransportOptions(timeout_s=10)


@pytest.fixture(autouse=True)
def no_descriptor_is_left() -> Iterator[None]:
    with no_descriptor_left():
        yield


def greet(address: str, listener: UnixListener) -> None:
    with UnixTransport.connect(address, options=OPTIONS) as client, listener.accept() as server:
        client.send([b"hello"])
        assert bytes(server.receive().data) == b"hello"


def test_abstract_names_are_random_and_leave_no_file() -> None:
    with UnixListener(options=OPTIONS) as one, UnixListener(options=OPTIONS) as other:
        assert one.address.startswith("@bowstring-")
        assert one.address != other.address
        greet(one.address, one)
        assert not Path(one.address).exists()
        assert one.address in Path("/proc/net/unix").read_text()
    assert one.address not in Path("/proc/net/unix").read_text()


def test_a_path_works_and_its_file_goes_with_the_listener(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with UnixListener(str(path), options=OPTIONS) as listener:
        assert path.stat().st_mode & 0o777 == 0o600
        greet(str(path), listener)
    assert not path.exists()


def test_the_file_of_a_killed_server_is_replaced_but_not_that_of_a_living_one(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(path)
    dead.close()
    with UnixListener(path, options=OPTIONS) as listener:
        greet(path, listener)
        with pytest.raises(UsageError, match="already in use"):
            UnixListener(path)
        with listener.accept() as probe, pytest.raises(ConnectionLostError):
            probe.receive()
        greet(path, listener)


def test_closing_a_listener_leaves_a_socket_that_took_its_path_alone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    first = UnixListener(str(path), options=OPTIONS)
    path.unlink()
    with UnixListener(str(path), options=OPTIONS) as second:
        first.close()
        greet(str(path), second)


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(UsageError, match="can't listen there"):
        UnixListener(str(path))
    assert path.read_text() == "data"


@pytest.mark.parametrize("address", ["", "@", "/" + "x" * 107, "@" + "x" * 107, "a\0b"])
def test_addresses_that_don_t_fit_are_refused(address: str) -> None:
    with pytest.raises(UsageError, match="address"):
        UnixListener(address)
    with pytest.raises(UsageError, match="address"):
        UnixTransport.connect(address)


def test_where_nobody_listens_connecting_fails_at_once(tmp_path: Path) -> None:
    for address in (new_abstract_address(), str(tmp_path / "none")):
        with pytest.raises(ConnectionLostError, match="nobody answers there"):
            UnixTransport.connect(address)


def test_accepting_has_a_deadline() -> None:
    with UnixListener(options=OPTIONS) as listener, pytest.raises(DeadlineError, match="waiting for a connection"):
        listener.accept(timeout_s=0.05)


def test_connecting_to_a_full_queue_has_a_deadline() -> None:
    address = new_abstract_address()
    with socket.socket(socket.AF_UNIX) as lazy:
        lazy.bind("\0" + address[1:])
        lazy.listen(0)
        with UnixTransport.connect(address), pytest.raises(DeadlineError, match="connecting"):
            UnixTransport.connect(address, timeout_s=0.05)


def test_closing_a_listener_wakes_who_waits_for_a_connection() -> None:
    listener = UnixListener(options=OPTIONS)
    with in_thread(listener.accept) as raised:
        time.sleep(0.05)
        listener.close()
    assert [type(error) for error in raised] == [ClosedError]
    with pytest.raises(ClosedError):
        listener.accept()


def test_many_clients_at_once_are_served() -> None:
    count = 40
    with UnixListener(options=OPTIONS) as listener:
        clients: list[UnixTransport] = []

        def connect() -> None:
            clients.append(UnixTransport.connect(listener.address, options=OPTIONS))

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


OTHER_USER = """
import os, sys
from bowstring.transports.base import TransportOptions
from bowstring.transports.unix import UnixTransport
from bowstring.transports.unix_listener import UnixListener
from bowstring.errors import ConnectionLostError
os.setuid(65534)
"""
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user to try this")


@as_root
def test_a_client_of_another_user_is_turned_away_and_the_next_is_served() -> None:
    with UnixListener(options=OPTIONS) as listener:
        script = OTHER_USER + "connected = UnixTransport.connect(sys.argv[1])\nprint('connected', flush=True)\n"
        script += "try:\n    connected.receive(timeout_s=10)\nexcept ConnectionLostError as error:\n    print(error)\n"
        other = subprocess.Popen([sys.executable, "-c", script, listener.address], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        with other, other.stdout as output:
            assert output.readline() == "connected\n"
            with pytest.raises(DeadlineError):
                listener.accept(timeout_s=0.2)
            assert "the peer disconnected" in output.read()
        greet(listener.address, listener)


@as_root
def test_a_server_of_another_user_is_not_trusted() -> None:
    script = OTHER_USER + "listener = UnixListener()\nprint(listener.address, flush=True)\nsys.stdin.read()\n"
    other = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    assert other.stdout is not None
    with other:
        address = other.stdout.readline().strip()
        with pytest.raises(ConnectionLostError, match="refused a peer of user 65534"):
            UnixTransport.connect(address, options=OPTIONS)
        with UnixTransport.connect(address, options=TransportOptions(allow_other_users=True)):
            pass
