"""The users of unix sockets, according to the kernel: of peers (SO_PEERCRED) and of all addresses (sock_diag).

Any process can bind any abstract address, connect to it, and leave its queue full: the user of an address is known
without connecting.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from bowstring.errors import ResourceError, translate_os_error

_CREDENTIALS = struct.Struct("iII")
_NUM_USERS = (1 << 32) - 1  # -1 is not a user
# Of linux/netlink.h, linux/sock_diag.h and linux/unix_diag.h: Python has none of them.
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_FLAGS = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_ERROR, _DONE = 2, 3
_BOUND_STATES = 1 << 10 | 1 << 7  # TCP_LISTEN, and TCP_CLOSE for those that do not listen yet
_SHOW = 0x01 | 0x40  # UDIAG_SHOW_NAME | UDIAG_SHOW_UID
_NAME, _USER = 0, 7
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_REQUEST = struct.Struct("=BBHIIIII")  # unix_diag_req
_SOCKET = struct.Struct("=BBBxIII")  # unix_diag_msg
_ATTRIBUTE = struct.Struct("=HH")
_RECEIVE_BYTES = 1 << 16  # the kernel sends less at once
_SOCKETS = "/proc/net/unix"


def _read_overflow_user() -> int | None:
    try:
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except OSError:  # not Linux, or a kernel without user namespaces
        return None


# Read once, because a process that has no free descriptor left has to tell its peers apart, too.
_OVERFLOW_USER = _read_overflow_user()


def peer_credentials(connection: socket.socket) -> tuple[int, int, int]:
    """The peer's process, user and group IDs. Raises `ResourceError` if the platform does not support this."""
    if not hasattr(socket, "SO_PEERCRED"):
        raise ResourceError("unix socket: this platform does not report the credentials of peers (SO_PEERCRED)")
    pid, uid, gid = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid, gid


def is_trusted_user(user_id: int) -> bool:
    """Whether a user ID of the kernel is certainly this process's user or root.

    In a user namespace, the kernel reports one number, the overflow user ID (65534), for all users that the namespace
    does not map: also as this process's own user, if that is not mapped either.
    """
    if user_id not in (os.getuid(), 0):
        return False
    if user_id != _OVERFLOW_USER:
        return True
    try:
        extents = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError as error:
        raise translate_os_error(error, f"unix socket: the peer's user is not known: {error.strerror}") from error
    return sum(int(extent.split()[2]) for extent in extents) >= _NUM_USERS


def list_abstract_addresses(prefix: str) -> dict[str, int | None]:
    """Return the abstract addresses of this network namespace that stream sockets are bound to and that begin with
    `prefix`, and the user who created each socket; None if the kernel does not report the user.

    Raises `ResourceError` if it does not report the addresses.
    """
    try:
        return {address: user for address, user in _iter_diagnosed_addresses() if address.startswith(prefix)}
    except OSError:  # a kernel without sock_diag, or a container that may not use it
        pass
    try:
        with open(_SOCKETS, encoding="utf-8", errors="surrogateescape") as sockets:
            addresses = [line.rstrip("\n").rpartition(" ")[2] for line in sockets]
    except OSError as error:
        raise ResourceError(f"{_SOCKETS}: {error.strerror}: the unix sockets can't be listed", error) from error
    return {address: None for address in addresses if address.startswith(prefix)}


def _iter_diagnosed_addresses() -> Iterator[tuple[str, int | None]]:
    """Yield the abstract addresses of stream sockets, with their users. Raises `OSError` without sock_diag."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as connection:
        request = _REQUEST.pack(socket.AF_UNIX, 0, 0, _BOUND_STATES, 0, _SHOW, 0, 0)
        connection.send(_HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _FLAGS, 0, 0) + request)
        while True:
            messages = connection.recv(_RECEIVE_BYTES)
            while messages:
                length, kind, *_ = _HEADER.unpack_from(messages)
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
                _, socket_type, *_ = _SOCKET.unpack_from(messages, _HEADER.size)
                attributes = _read_attributes(messages[_HEADER.size + _SOCKET.size : length])
                name, user = attributes.get(_NAME, b""), attributes.get(_USER)  # the user since Linux 5.3
                if socket_type == socket.SOCK_STREAM and name.startswith(b"\0"):
                    user_id = None if user is None else int.from_bytes(user, sys.byteorder)
                    yield f"@{os.fsdecode(name[1:])}", user_id
                messages = messages[_align(length) :]


def _read_attributes(encoded: bytes) -> dict[int, bytes]:
    attributes = {}
    while encoded:
        length, kind = _ATTRIBUTE.unpack_from(encoded)
        attributes[kind] = encoded[_ATTRIBUTE.size : length]
        encoded = encoded[_align(length) :]
    return attributes


def _align(length: int) -> int:
    return (length + 3) & ~3
