"""Users of peers and addresses, in user namespaces and without them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from bowstring.transports.sockets import unix_users
from bowstring.transports.sockets.unix import encode_unix_address, random_abstract_address
from bowstring.transports.sockets.unix_users import list_abstract_addresses
from tests.sharing.python_process import PythonProcess, needs_user_namespaces

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="requires root, to be several users")

IS_TRUSTED = """
import ctypes, os
from bowstring.transports.sockets.unix_users import is_trusted_user
if is_isolated:
    assert ctypes.CDLL(None).unshare(0x10000000) == 0  # CLONE_NEWUSER
send(None)
receive()
if user is not None:
    os.setuid(user)
send([os.getuid(), is_trusted_user(os.getuid()), is_trusted_user(0), is_trusted_user(65533)])
"""


@needs_user_namespaces
@pytest.mark.parametrize(
    ("extents", "user", "found"),
    [
        (None, 65534, [65534, True, True, False]),
        (None, 65533, [65533, True, True, True]),
        ("", None, [65534, False, True, False]),
        ("0 0 65536", 65534, [65534, False, True, False]),
        ("0 0 65536", 65533, [65533, True, True, True]),
        ("0 1 1", None, [65534, False, True, False]),
        ("0 0 1", None, [0, True, True, False]),
        ("0 0 4294967295", 65534, [65534, True, True, False]),
        ("0 0 65534\n65534 65534 4294901761", 65534, [65534, True, True, False]),
    ],
)
def test_the_overflow_user_is_trusted_only_if_the_namespace_maps_all_users(
    extents: str | None, user: int | None, found: list[object]
) -> None:
    with PythonProcess(IS_TRUSTED, is_isolated=extents is not None, user=user) as process:
        process.receive()
        if extents:
            Path(f"/proc/{process.process.pid}/uid_map").write_text(extents)
        process.send(None)
        assert process.receive() == found


BIND_AS_OTHER_USER = """
import os, socket
os.setuid(65533)
stream, datagrams = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
stream.bind(address + b"-of-others")
datagrams.bind(address + b"-of-datagrams")
send(None)
receive()
"""


@needs_root
@pytest.mark.parametrize("protocol", [unix_users._NETLINK_SOCK_DIAG, 31], ids=["sock_diag", "no sock_diag"])
def test_bound_addresses_are_listed_with_the_users_of_their_sockets(
    protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_users, "_NETLINK_SOCK_DIAG", protocol)  # 31 is unknown: the kernel refuses the socket
    address = random_abstract_address()
    name = encode_unix_address(address)
    with (
        PythonProcess(BIND_AS_OTHER_USER, address=name) as other,
        socket.socket(socket.AF_UNIX) as own,
        socket.socket(socket.AF_UNIX) as client,
    ):
        other.receive()
        own.bind(name + b"-own\xff")
        own.listen(0)
        client.connect(name + b"-own\xff")
        with own.accept()[0]:
            users = list_abstract_addresses(address)
    own_address = f"{address}-own\udcff"
    if protocol == 31:
        assert users == {own_address: None, f"{address}-of-others": None, f"{address}-of-datagrams": None}
    else:
        assert users == {own_address: 0, f"{address}-of-others": 65533}
    assert list_abstract_addresses(address) == {}


def test_hundreds_of_addresses_are_listed_completely() -> None:
    address = random_abstract_address()
    sockets = [socket.socket(socket.AF_UNIX) for _ in range(600)]
    for number, each in enumerate(sockets):
        each.bind(encode_unix_address(f"{address}-{number}"))
    assert list_abstract_addresses(address) == {f"{address}-{number}": os.getuid() for number in range(600)}
    for each in sockets:
        each.close()
