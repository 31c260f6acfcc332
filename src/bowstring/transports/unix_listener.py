"""A listening unix socket, which accepts peers of the same user."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

from bowstring.errors import translate_os_error
from bowstring.transports.base import DEFAULT_OPTIONS, Channel, TransportOptions
from bowstring.transports.stream_channel import StreamEndpoint
from bowstring.transports.unix_address import address_scope, new_abstract_address, socket_name
from bowstring.transports.unix_channel import UnixChannel


class UnixEndpoint(StreamEndpoint):
    """Listens at an address, by default a new abstract one. Peers of other users are refused."""

    def __init__(self, address: str | None = None, *, options: TransportOptions = DEFAULT_OPTIONS) -> None:
        """Listen. Raises `UsageError` if the address is in use, `ResourceError` if no descriptors are left."""
        address = new_abstract_address() if address is None else address
        name = socket_name(address)
        try:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            raise translate_os_error(error, f"unix socket: {error.strerror}") from error
        super().__init__(listener, address, options, f"unix socket {address!r}")
        self._inode: tuple[int, int] | None = None
        self._listen(name)
        self.scope = address_scope(address)

    @classmethod
    def inherit(cls, listener: socket.socket, options: TransportOptions = DEFAULT_OPTIONS) -> UnixEndpoint:
        """Return an endpoint of a socket that listens already; it owns the socket."""
        endpoint = cls.__new__(cls)
        StreamEndpoint.__init__(endpoint, listener, "", options, "unix socket ''")
        endpoint._inode = None
        listener.setblocking(False)
        return endpoint

    def close(self) -> None:
        """As `Endpoint.close`."""
        self.shut_down()
        inode, self._inode = self._inode, None
        if inode is not None:
            try:
                status = os.lstat(self.address)
                if (status.st_dev, status.st_ino) == inode:
                    Path(self.address).unlink()
            except OSError:
                pass
        super().close()

    def _wrap(self, connection: socket.socket) -> Channel:
        return UnixChannel.wrap(connection, self.options)

    def _bind(self, name: bytes) -> None:
        if name.startswith(b"\0"):
            self._socket.bind(name)
            return
        try:
            self._socket.bind(name)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not _is_stale_socket(self.address):
                raise
            Path(self.address).unlink()
            self._socket.bind(name)
        status = os.lstat(self.address)
        self._inode = (status.st_dev, status.st_ino)
        Path(self.address).chmod(0o600)


def _is_stale_socket(path: str) -> bool:
    """Whether `path` is the socket of a process that has ended."""
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
