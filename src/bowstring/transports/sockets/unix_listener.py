"""A listening unix socket, which accepts peers of the same user."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

from bowstring.errors import InvalidArgumentError, translate_os_error
from bowstring.transports.base import DEFAULT_OPTIONS, Channel, TransportOptions
from bowstring.transports.sockets.stream_listener import StreamListener
from bowstring.transports.sockets.tcp_address import is_host_and_port
from bowstring.transports.sockets.unix_channel import UnixChannel
from bowstring.transports.sockets.unix_socket import encode_unix_address, random_abstract_address, unix_address_scope


class UnixListener(StreamListener):
    """Listens at an address, by default a new abstract one. Peers of other users are refused."""

    def __init__(self, address: str | None = None, *, options: TransportOptions = DEFAULT_OPTIONS) -> None:
        """Listen.

        Raises `UnavailableAddressError`, `InvalidArgumentError`, `MissingFileError` and `AccessDeniedError` as the
        folder of a path, `ResourceError` if no descriptors are left.
        """
        address = random_abstract_address() if address is None else address
        if is_host_and_port(address):
            raise InvalidArgumentError(
                f"unix socket address {address!r}: expected a path, or '@' and a name, found a host and a port: "
                "use the scheme tcp or tcp+tls, or './' before a path"
            )
        sockaddr = encode_unix_address(address)
        try:
            listening_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            raise translate_os_error(error, f"unix socket: {error.strerror}") from error
        super().__init__(listening_socket, address, options, f"unix socket {address!r}")
        self._inode: tuple[int, int] | None = None
        self._listen(sockaddr)
        self.address_scope = unix_address_scope(address)

    @classmethod
    def from_socket(cls, listening_socket: socket.socket, options: TransportOptions = DEFAULT_OPTIONS) -> UnixListener:
        """Return a listener for a socket that listens already; it owns the socket."""
        listener = cls.__new__(cls)
        StreamListener.__init__(listener, listening_socket, "", options, "unix socket ''")
        listener._inode = None
        listening_socket.setblocking(False)
        return listener

    def close(self) -> None:
        self.shut_down()
        inode, self._inode = self._inode, None
        if inode is not None:
            try:
                status = os.lstat(self.address)
                # Another process may have removed the path and bound it again.
                if (status.st_dev, status.st_ino) == inode:
                    Path(self.address).unlink()
            except OSError:
                pass
        super().close()

    def _create_channel(self, connection: socket.socket) -> Channel:
        return UnixChannel.from_socket(connection, self.options)

    def _bind(self, sockaddr: bytes) -> None:
        if sockaddr.startswith(b"\0"):
            self._socket.bind(sockaddr)
            return
        try:
            self._socket.bind(sockaddr)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not _is_stale_socket(self.address):
                raise
            Path(self.address).unlink()
            self._socket.bind(sockaddr)
        status = os.lstat(self.address)
        self._inode = (status.st_dev, status.st_ino)
        # Before `listen`: until then no process can connect with the permissions of the umask.
        Path(self.address).chmod(0o666 if self.options.allow_other_users else 0o600)


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
