"""The TCP connection that belongs to each connection over libfabric.

Endpoints of libfabric are connectionless: they have an address, but no peer, and do not report the loss of one. So both
ends open a TCP connection, over which each sends one HELLO with the address of its endpoint. Nothing follows: the
connection lasts as long as both ends do, and its end is also the end of the connection over libfabric.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bowstring.errors import BowstringError, ProtocolError, translate_os_error
from bowstring.memory.closable import Closable
from bowstring.transports.base import RECEIVE, SEND, Interest
from bowstring.transports.sockets.tcp_address import SocketAddress
from bowstring.transports.sockets.tcp_connector import TcpConnector
from bowstring_networks.fabric.endpoint import MAX_ADDRESS_BYTES

_HELLO = struct.Struct("<4sHHII")
_MAGIC = b"BWF1"
_VERSION = 1  # of the HELLO and of the frames; another one is refused
_FRAME_BYTES = range(64, (1 << 20) + 1)
_NUM_FRAMES = range(1, 1 << 16)


class Hello(NamedTuple):
    """The first and only message: the address of the sender's endpoint, and how many frames it can receive."""

    num_frames: int
    frame_bytes: int
    address: bytes

    def encode(self) -> bytes:
        """Return the bytes of the message."""
        fixed = _HELLO.pack(_MAGIC, _VERSION, len(self.address), self.num_frames, self.frame_bytes)
        return fixed + self.address


class ControlSocket(Closable):
    """One end of the TCP connection. No method blocks."""

    def __init__(self, connection: socket.socket | None, addresses: Sequence[SocketAddress], name: str) -> None:
        """Use a connected socket; without one, connect to the first of the addresses that answers."""
        self.name = name
        self.peer_hello: Hello | None = None
        self.has_ended = False
        """Whether the peer has closed its end."""
        self.is_connected = connection is not None
        self._connector: TcpConnector | None = None
        self._input = b""
        self._output = b""
        if connection is None:
            self._connector = TcpConnector(addresses, name)
            self._socket = self._connector.socket
        else:
            self._socket = connection
            self._socket.setblocking(False)
            self._enable_keep_alive()

    @property
    def host(self) -> str:
        """The IP address of this end. Raises `ConnectionLostError`."""
        return self._get_host(self._socket.getsockname)

    @property
    def peer_host(self) -> str:
        """The IP address of the other end. Raises `ConnectionLostError`."""
        return self._get_host(self._socket.getpeername)

    def _get_host(self, get_address: Callable[[], tuple[Any, ...]]) -> str:
        try:
            return str(get_address()[0])
        except OSError as error:
            raise translate_os_error(error, f"{self.name}: {error.strerror}") from error

    @property
    def descriptor(self) -> int:
        """The descriptor, -1 if it is closed."""
        return self._socket.fileno()

    def interests(self) -> list[Interest]:
        """Return what to wait for before the next `progress`; nothing once the peer has ended."""
        if self.has_ended:
            return []
        is_writing = self._output or not self.is_connected
        return [Interest(self.descriptor, RECEIVE | SEND if is_writing else RECEIVE)]

    def send(self, hello: Hello) -> None:
        """Send this end's HELLO with the next `progress`."""
        self._output = hello.encode()

    def progress(self) -> None:
        """Connect, send and receive. Raises `ConnectionLostError`, `ProtocolError`."""
        if self.has_ended or (not self.is_connected and not self._continue_connecting()):
            return
        try:
            if self._output:
                self._output = self._output[self._socket.send(self._output, socket.MSG_NOSIGNAL) :]
            self._receive()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self.has_ended = True
            raise translate_os_error(error, f"{self.name}: {error.strerror}") from error

    def shut_down(self) -> None:
        """End the connection; the descriptor stays open. Idempotent."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> None:
        received = self._socket.recv(_HELLO.size + MAX_ADDRESS_BYTES)
        self._input += received
        if not received:
            self.has_ended = True
        # Also limits `_input`: nothing is received after the HELLO, and no more than its length before.
        elif self.peer_hello is not None:
            raise ProtocolError(f"{self.name}: found {len(received)} bytes after HELLO")
        elif len(self._input) >= _HELLO.size:
            self._receive_hello()

    def _receive_hello(self) -> None:
        magic, version, address_bytes, num_frames, frame_bytes = _HELLO.unpack_from(self._input)
        if magic != _MAGIC or version != _VERSION:
            raise ProtocolError(f"{self.name}: expected HELLO of version {_VERSION}, found {self._input[:6]!r}")
        if address_bytes > MAX_ADDRESS_BYTES or num_frames not in _NUM_FRAMES or frame_bytes not in _FRAME_BYTES:
            numbers = f"{address_bytes} bytes of address, {num_frames} frames of {frame_bytes} bytes"
            raise ProtocolError(f"{self.name}: HELLO has {numbers}")
        address = self._input[_HELLO.size :]
        if len(address) > address_bytes:
            raise ProtocolError(f"{self.name}: found {len(address) - address_bytes} bytes after HELLO")
        if len(address) == address_bytes:
            self.peer_hello = Hello(num_frames, frame_bytes, address)

    def _continue_connecting(self) -> bool:
        """Continue to connect; return whether it is done."""
        assert self._connector is not None
        try:
            self.is_connected = self._connector.progress()
        except BowstringError:
            self.has_ended = True
            raise
        self._socket = self._connector.socket
        if self.is_connected:
            self._enable_keep_alive()
        return self.is_connected

    def _enable_keep_alive(self) -> None:
        # Nothing is sent over the connection, so a host that is gone would never be noticed.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
