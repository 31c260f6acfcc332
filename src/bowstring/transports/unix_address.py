"""Where unix sockets are: abstract names and paths, connecting, and who is at the other end."""

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
    """An abstract address that nobody used before."""
    return f"@bowstring-{secrets.token_hex(16)}"


def socket_name(address: object) -> bytes:
    """What the kernel calls an address. Raises `UsageError` where it is no path or name, empty or too long."""
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
    """A connected socket. Raises `ConnectionLostError` where nobody listens, `DeadlineError` where nobody accepts,
    `AccessDeniedError`.
    """
    name = socket_name(address)
    try:
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as error:
        raise translate_os_error(error, f"unix socket: {error.strerror}") from error
    with close_on_error(connected):
        connected.setblocking(False)
        while True:
            try:
                connected.connect(name)
                return connected
            except BlockingIOError:  # the listener's queue is full, and there is nothing to wait for with poll
                if not deadline.remaining_s():
                    raise deadline.error(f"unix socket {address!r}: connecting") from None
            except OSError as error:
                message = f"unix socket {address!r}: nobody answers there ({error.strerror})"
                if isinstance(error, FileNotFoundError):
                    raise ConnectionLostError(message, error, address) from error
                raise translate_os_error(error, message, address) from error
            time.sleep(_RETRY_S)


def peer_uid(connected: socket.socket) -> int:
    """The user of the process at the other end, as it was when it connected or began to listen."""
    return peer_credentials(connected)[1]


def peer_credentials(connected: socket.socket) -> tuple[int, int, int]:
    """Process, user and group of the other end. Raises `ResourceError` where the platform can't tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        raise ResourceError("unix socket: this platform does not tell who the peer is (SO_PEERCRED)")
    pid, uid, gid = _CREDENTIALS.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid, gid
