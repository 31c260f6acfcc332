"""Connect a TCP socket without blocking."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence

from bowstring.errors import ConnectionLostError, translate_os_error
from bowstring.transports.tcp_address import SocketAddress

UNREACHABLE = {errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN}
"""The errors of the network between two hosts."""


class TcpConnector:
    """Connects to the first of several addresses that answers.

    Raises `ConnectionLostError` if none does, `ResourceError` if no descriptors are left; then the socket is closed.
    """

    def __init__(self, addresses: Sequence[SocketAddress], name: str) -> None:
        self._addresses = list(addresses)
        self._name = name
        self.socket = self._begin()
        """The socket for the current address, which becomes writable when its connection has succeeded or failed."""

    def progress(self) -> bool:
        """Continue with this address or the next; return whether the socket is connected. Raises as the constructor."""
        number = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not number:
            try:
                peer = self.socket.getpeername()
            except OSError:
                return False
            if peer != self.socket.getsockname():
                return True
            number = errno.ECONNREFUSED  # an unused port that was chosen for this end, too
        self._give_up(self.socket, number)
        self.socket = self._begin()
        return False

    def _begin(self) -> socket.socket:
        """Begin to connect to the next address."""
        while True:
            address = self._addresses.pop(0)
            connection = address.create_socket(self._name)
            try:
                connection.setblocking(False)
                number = connection.connect_ex(address.name)
            except OSError as error:
                connection.close()
                raise translate_os_error(error, f"{self._name}: {error.strerror}") from error
            if number in (0, errno.EINPROGRESS, errno.EINTR):
                return connection
            self._give_up(connection, number)

    def _give_up(self, connection: socket.socket, number: int) -> None:
        """Close the socket for an address. Raises the error if it was the last one."""
        connection.close()
        if not self._addresses:
            error = OSError(number, os.strerror(number))
            message = f"{self._name}: nobody answers there ({error.strerror})"
            if number in UNREACHABLE:
                raise ConnectionLostError(message, error)
            raise translate_os_error(error, message)
