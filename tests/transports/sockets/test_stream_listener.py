"""Listeners whose peers connect only to be refused."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable

import pytest

from bowstring.transports.base import Listener, Transport
from bowstring.transports.sockets.tcp import TCP
from bowstring.transports.sockets.tcp_address import parse_address
from bowstring.transports.sockets.unix import UNIX, encode_unix_address
from tests.sharing.python_process import run_python

pytestmark = pytest.mark.usefixtures("no_descriptor_is_left")

CONNECT_AS_OTHER_USER = """
import os, socket
os.setuid(65533)
connections = [socket.socket(socket.AF_UNIX) for _ in range(count)]
for connection in connections:
    connection.connect(address)
send(None)
"""


def connect_as_other_user(listener: Listener, count: int) -> None:
    if os.getuid() != 0:
        pytest.skip("requires root, to connect as another user")
    run_python(CONNECT_AS_OTHER_USER, address=encode_unix_address(listener.address), count=count)


def connect_and_reset(listener: Listener, count: int) -> None:
    for _ in range(count):
        with socket.create_connection(parse_address(listener.address)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize(("transport", "flood"), [(UNIX, connect_as_other_user), (TCP, connect_and_reset)])
def test_a_call_of_accept_ends_however_many_connections_it_refuses(
    transport: Transport, flood: Callable[[Listener, int], None]
) -> None:
    with transport.listen() as listener:
        flood(listener, 40)
        with transport.dial(listener.address):
            accepted = [listener.accept() for _ in range(3)]
            assert [len(channels) for channels in accepted] == [0, 0, 1]
            accepted[-1][0].close()
