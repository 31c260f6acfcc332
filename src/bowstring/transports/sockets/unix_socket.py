"""Addresses of unix sockets, connecting to them, and the credentials of peers."""

from __future__ import annotations

import os
import secrets
import socket
import struct

from bowstring.errors import ConnectionLostError, InvalidArgumentError, ResourceError, translate_os_error
from bowstring.memory.closable import call_on_error
from bowstring.transports.address_scope import directory_scope, network_scope

MAX_ADDRESS_BYTES = 107  # `sun_path` has 108, one of them for the null at the beginning or end
# poll does not report when a listener's queue has room again, which takes a server one turn.
CONNECT_RETRY_S = 0.01
_CREDENTIALS = struct.Struct("iII")


def random_abstract_address() -> str:
    """Return a random abstract address."""
    return f"@bowstring-{secrets.token_hex(16)}"


def encode_unix_address(address: object) -> bytes:
    """Return the kernel's name for an address.

    Raises `InvalidArgumentError` if it is not a path or name, empty or too long.
    """
    try:
        encoded = os.fsencode(address) if isinstance(address, str) else b""
    except UnicodeEncodeError:  # surrogates that stand for no byte
        encoded = b""
    if not encoded or encoded == b"@" or b"\0" in encoded:
        raise InvalidArgumentError(f"unix socket address {address!r}: expected a path, or '@' and a name")
    if len(encoded) > MAX_ADDRESS_BYTES:
        raise InvalidArgumentError(
            f"unix socket address {address!r}: {len(encoded)} bytes, at most {MAX_ADDRESS_BYTES} fit"
        )
    return b"\0" + encoded[1:] if encoded.startswith(b"@") else encoded


def unix_address_scope(address: str) -> str | None:
    """Return the scope of an address: the network namespace of an abstract one, the directory of a path."""
    return network_scope() if address.startswith("@") else directory_scope(address)


def try_connect(address: str, connection: socket.socket | None = None) -> tuple[socket.socket, bool]:
    """Return a non-blocking socket, and whether it is connected; if not, because the listener's queue is full, call it
    again with the socket after `CONNECT_RETRY_S`.

    Raises `ConnectionLostError` if there is no listener, `AccessDeniedError`, `InvalidArgumentError`; the socket is
    then closed.
    """
    name = encode_unix_address(address)
    if connection is None:
        try:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            raise translate_os_error(error, f"unix socket: {error.strerror}") from error
    with call_on_error(connection.close):
        connection.setblocking(False)
        try:
            connection.connect(name)
        except BlockingIOError:  # poll can't wait for it
            return connection, False
        except OSError as error:
            message = f"unix socket {address!r}: nothing is listening there ({error.strerror})"
            if isinstance(error, FileNotFoundError):
                raise ConnectionLostError(message, error, address) from error
            raise translate_os_error(error, message, address) from error
    return connection, True


def peer_credentials(connection: socket.socket) -> tuple[int, int, int]:
    """The peer's process, user and group IDs. Raises `ResourceError` if the platform does not support this."""
    if not hasattr(socket, "SO_PEERCRED"):
        raise ResourceError("unix socket: this platform does not report the credentials of peers (SO_PEERCRED)")
    pid, uid, gid = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid, gid
