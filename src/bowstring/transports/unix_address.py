"""Addresses of unix sockets, connecting to them, and the credentials of peers."""

from __future__ import annotations

import os
import secrets
import socket
import struct
import time

from bowstring.errors import ConnectionLostError, ResourceError, UsageError, translate_os_error
from bowstring.memory.closable import close_on_error
from bowstring.transports.base import Deadline

MAX_ADDRESS_BYTES = 107
_RETRY_S = 0.01
_CREDENTIALS = struct.Struct("iII")


def new_abstract_address() -> str:
    """Return a random abstract address."""
    return f"@bowstring-{secrets.token_hex(16)}"


def socket_name(address: object) -> bytes:
    """Return the kernel's name for an address. Raises `UsageError` if it is not a path or name, empty or too long."""
    try:
        encoded = os.fsencode(address) if isinstance(address, str) else b""
    except UnicodeEncodeError:  # surrogates that stand for no byte
        encoded = b""
    if not encoded or encoded == b"@" or b"\0" in encoded:
        raise UsageError(f"unix socket address {address!r}: expected a path, or '@' and a name")
    if len(encoded) > MAX_ADDRESS_BYTES:
        raise UsageError(f"unix socket address {address!r}: {len(encoded)} bytes, at most {MAX_ADDRESS_BYTES} fit")
    return b"\0" + encoded[1:] if encoded.startswith(b"@") else encoded


def connect_socket(address: str, deadline: Deadline) -> socket.socket:
    """Return a connected socket. Raises `ConnectionLostError` if there is no listener, `DeadlineError` if it does not
    accept, `AccessDeniedError`.
    """
    name = socket_name(address)
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as error:
        raise translate_os_error(error, f"unix socket: {error.strerror}") from error
    with close_on_error(connection):
        connection.setblocking(False)
        while True:
            try:
                connection.connect(name)
                return connection
            except BlockingIOError:  # the listener's queue is full, for which poll can't wait
                if not deadline.remaining_s():
                    raise deadline.error(f"unix socket {address!r}: connecting") from None
            except OSError as error:
                message = f"unix socket {address!r}: nobody answers there ({error.strerror})"
                if isinstance(error, FileNotFoundError):
                    raise ConnectionLostError(message, error, address) from error
                raise translate_os_error(error, message, address) from error
            time.sleep(_RETRY_S)


def peer_uid(connection: socket.socket) -> int:
    """The user ID of the peer when it connected or began to listen."""
    return peer_credentials(connection)[1]


def peer_credentials(connection: socket.socket) -> tuple[int, int, int]:
    """The peer's process, user and group IDs. Raises `ResourceError` if the platform does not support this."""
    if not hasattr(socket, "SO_PEERCRED"):
        raise ResourceError("unix socket: this platform does not tell who the peer is (SO_PEERCRED)")
    pid, uid, gid = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid, gid
