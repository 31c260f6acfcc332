"""Connect a TCP socket without blocking."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence

from bowstring.errors import ConnectionLostError, translate_os_error
from bowstring.transports.sockets.tcp_address import SocketAddress

UNREACHABLE_ERRNOS = {errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN}
"""The errors of the network between two hosts."""


class TcpConnector:
    """Connects to the first of several addresses that answers.

    Raises `ConnectionLostError` if none does, `ResourceError` if no descriptors are left; then the socket is closed.
    """

    def __init__(self, addresses: Sequence[SocketAddress], name: str) -> None:
        self._addresses = list(addresses)
        self._name = name
        self.socket = self._connect_next()
        """The socket for the current address, which becomes writable when its connection has succeeded or failed."""

    def progress(self) -> bool:
        """Continue with this address or the next; return whether the socket is connected. Raises as the constructor."""
        error_number = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not error_number:
            try:
                peer = self.socket.getpeername()
            except OSError:
                return False
            if peer != self.socket.getsockname():
                return True
            error_number = errno.ECONNREFUSED  # an unused port that was chosen for this end, too
        self._close_failed_socket(self.socket, error_number)
        self.socket = self._connect_next()
        return False

    def _connect_next(self) -> socket.socket:
        """Begin to connect to the next address."""
        while True:
            address = self._addresses.pop(0)
            connection = address.create_socket(self._name)
            try:
                connection.setblocking(False)
                error_number = connection.connect_ex(address.name)
            except OSError as error:
                connection.close()
                raise translate_os_error(error, f"{self._name}: {error.strerror}") from error
            if error_number in (0, errno.EINPROGRESS, errno.EINTR):
                return connection
            self._close_failed_socket(connection, error_number)

    def _close_failed_socket(self, connection: socket.socket, error_number: int) -> None:
        """Close the socket for an address. Raises the error if it was the last one."""
        connection.close()
        if not self._addresses:
            error = OSError(error_number, os.strerror(error_number))
            message = f"{self._name}: nothing is listening there ({error.strerror})"
            if error_number in UNREACHABLE_ERRNOS:
                raise ConnectionLostError(message, error)
            raise translate_os_error(error, message)
