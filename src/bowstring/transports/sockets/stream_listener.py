"""Listeners on stream sockets: the base of TCP and unix listeners."""

from __future__ import annotations

import errno
import logging
import socket
from abc import abstractmethod
from typing import Any

from bowstring.errors import ClosedError, ConnectionLostError, ResourceError, translate_os_error
from bowstring.transports.base import RECEIVE, Channel, Interest, Listener, TransportOptions

_LOG = logging.getLogger(__name__)
_LOG.addHandler(logging.NullHandler())  # as in bowstring.sharing.server.server
# The clients that may connect during one turn of the loop. Others do a little later: of TCP by retransmission, of unix
# sockets after EAGAIN.
BACKLOG = 128
# In a call of `accept`: a refusal takes some 30 µs.
_MAX_ATTEMPTS = 16
_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}


class StreamListener(Listener):
    """A listening socket."""

    def __init__(self, listening_socket: socket.socket, address: str, options: TransportOptions, name: str) -> None:
        self.address = address
        self.options = options
        self.is_closed = False
        self._name = name
        self._socket = listening_socket

    def descriptors(self) -> list[int]:
        return [self._socket.fileno()] if self._socket.fileno() >= 0 else []

    def accept(self, limit: int = 16) -> list[Channel]:
        channels: list[Channel] = []
        # Refusing those who connect again and again without a limit would keep the caller from all others.
        for _ in range(_MAX_ATTEMPTS):
            if len(channels) == limit:
                break
            try:
                connection = self._accept_socket()
                if connection is None:
                    break
                channels.append(self._create_channel(connection))
            except ConnectionLostError as error:
                _LOG.warning("%s: refused a connection: %s", self._name, error)
            except ResourceError:
                if channels:  # the next call reports it, if it lasts
                    break
                raise
        return channels

    def interests(self) -> list[Interest]:
        return [] if self.is_closed else [Interest(self._socket.fileno(), RECEIVE)]

    def shut_down(self) -> None:
        self.is_closed = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        self.shut_down()
        self._socket.close()

    @abstractmethod
    def _create_channel(self, connection: socket.socket) -> Channel:
        """Return the channel of a new connection. Raises `ConnectionLostError` to refuse it."""

    def _listen(self, sockaddr: Any) -> None:
        """Bind the socket and listen.

        Raises `UnavailableAddressError`; for a path, also `MissingFileError` and `AccessDeniedError`.
        """
        try:
            self._bind(sockaddr)
            self._socket.listen(BACKLOG)
            self._socket.setblocking(False)
        except OSError as error:
            self.close()
            raise translate_os_error(error, f"{self._name}: can't listen there: {error.strerror}") from error

    def _bind(self, sockaddr: Any) -> None:
        self._socket.bind(sockaddr)

    def _accept_socket(self) -> socket.socket | None:
        """Return the next connection of any peer, or None if none is waiting."""
        if self.is_closed:
            raise self._closed_error()
        try:
            return self._socket.accept()[0]
        except (BlockingIOError, ConnectionAbortedError):
            return None
        except OSError as error:
            if error.errno in _SHORTAGES:
                raise translate_os_error(error, f"{self._name}: {error.strerror}") from error
            raise self._closed_error() from error

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"{self._name}: the listener is closed")

    def __del__(self) -> None:
        if not getattr(self, "is_closed", True):
            self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address!r}, {'closed' if self.is_closed else 'listening'}>"
