"""A listening unix socket, which accepts peers of the same user."""

from __future__ import annotations

import errno
import os
import select
import socket
import stat
from pathlib import Path

from bowstring.errors import ClosedError, ConnectionLostError, UsageError, translate_os_error
from bowstring.memory.closable import Closable
from bowstring.transports.base import DEFAULT_OPTIONS, TransportOptions
from bowstring.transports.unix import UnixTransport
from bowstring.transports.unix_address import new_abstract_address, socket_name
from bowstring.transports.unix_channel import UnixChannel

_BACKLOG = 128
_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}


class UnixListener(Closable):
    """Listens at an address, by default a new abstract one."""

    __slots__ = ("_inode", "_is_closed", "_socket", "address", "options")

    def __init__(self, address: str | None = None, *, options: TransportOptions = DEFAULT_OPTIONS) -> None:
        """Listen. Raises `UsageError` if the address is in use, `ResourceError` if no descriptors are left."""
        self.address = new_abstract_address() if address is None else address
        self.options = options
        self._is_closed = True
        self._inode: tuple[int, int] | None = None
        name = socket_name(self.address)
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            raise translate_os_error(error, f"unix socket: {error.strerror}") from error
        self._is_closed = False
        try:
            self._bind(name)
            self._socket.listen(_BACKLOG)
            self._socket.setblocking(False)
        except OSError as error:
            self.close()
            raise UsageError(f"unix socket {self.address!r}: can't listen there: {error.strerror}") from error

    def fileno(self) -> int:
        """The listening descriptor, to wait for with select; -1 after `close`."""
        return self._socket.fileno()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def accept(self, *, timeout_s: float | None = None) -> UnixTransport:
        """Wait for the next connection. Peers of other users are refused.

        Raises `DeadlineError`, `ClosedError`, `ResourceError`.
        """
        deadline = self.options.deadline(timeout_s)
        while True:
            connection = self._accept()
            if connection is not None:
                try:
                    return UnixTransport(connection, self.options)
                except ConnectionLostError:
                    continue
            descriptor = self._socket.fileno()
            if descriptor < 0:  # closed by another thread
                raise self._closed_error()
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if not poll.poll(deadline.remaining_s() * 1000):
                raise deadline.error(f"unix socket {self.address!r}: waiting for a connection")

    def accept_channel(self) -> UnixChannel | None:
        """Return the next connection, or None if none is waiting. Peers of other users are refused.

        Raises `ClosedError`, `ResourceError`.
        """
        while (connection := self._accept()) is not None:
            try:
                return UnixChannel(connection, self.options)
            except ConnectionLostError:
                continue
        return None

    def close(self) -> None:
        """Stop listening; accepted connections stay open. A blocked `accept` raises `ClosedError`. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._inode is not None:
            try:
                status = os.lstat(self.address)
                if (status.st_dev, status.st_ino) == self._inode:
                    Path(self.address).unlink()
            except OSError:
                pass
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()

    def _accept(self) -> socket.socket | None:
        """Return the next connection of any user, or None if none is waiting."""
        if self._is_closed:
            raise self._closed_error()
        try:
            return self._socket.accept()[0]
        except (BlockingIOError, ConnectionAbortedError):
            return None
        except OSError as error:
            if error.errno in _SHORTAGES:
                raise translate_os_error(error, f"unix socket {self.address!r}: {error.strerror}") from error
            raise self._closed_error() from error

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"unix socket {self.address!r}: the listener is closed")

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

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True):
            self.close()

    def __repr__(self) -> str:
        return f"<UnixListener {self.address!r}, {'closed' if self._is_closed else 'listening'}>"


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
