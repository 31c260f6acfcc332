"""One end of a TCP connection, plain or with TLS: frames, vectored sends, and files sent by the kernel."""

from __future__ import annotations

import fcntl
import math
import os
import re
import socket
import struct
import sys
import termios
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from bowstring.errors import BowstringError, ConnectionLostError, ProtocolError
from bowstring.memory.region import FileRange, Region
from bowstring.transports.base import (
    BOTH_DIRECTIONS,
    DEFAULT_OPTIONS,
    RECEIVE,
    SEND,
    DirectionEnded,
    Event,
    Interest,
    PeerIdentity,
    TransportOptions,
    Wait,
)
from bowstring.transports.sockets.stream_channel import StreamChannel
from bowstring.transports.sockets.tcp_connector import UNREACHABLE_ERRNOS, TcpConnector

if TYPE_CHECKING:
    import ssl

_KEEP_ALIVE_OPTIONS = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))
"""A peer that is unreachable for 30 s is lost, if nothing is being sent to it.

While bytes are being sent, the deadlines of the drivers end the connection; see `TcpChannel.unacknowledged_since`.
TCP_USER_TIMEOUT would replace both, but it also ends the connection of a peer that is alive and does not receive for a
while.
"""
_LAST_ACK_RECEIVED = struct.Struct("=56xI")
"""The field `tcpi_last_ack_recv` of Linux's `struct tcp_info`, in milliseconds."""
_HAS_ACKNOWLEDGEMENT_TIMES = sys.platform == "linux"
_TLS_RECORD_BYTES = 1 << 14  # the most that one record holds (RFC 8446, 5.1)
_SPECIAL = re.compile(r'^[ #]| $|[,+"\\<>;\x00-\x1f\x7f-\x9f\u2028\u2029]')
# OpenSSL encrypts all of it before it returns: some tenths of a millisecond, after which others get their turn.
_TLS_CALL_BYTES = 1 << 18
# Bytes of a file need records, and calls, of their own.
_TLS_MIN_FILE_BYTES = 1 << 16
# Plain integers: the enum flags of the socket module are slow in a loop.
_NO_SIGNAL = int(getattr(socket, "MSG_NOSIGNAL", 0))
_MORE = int(getattr(socket, "MSG_MORE", 0))


class TcpChannel(StreamChannel):
    """One end of a connection; created by `TcpTransport.dial` or `TcpListener.accept`."""

    def __init__(
        self, connection: socket.socket, address: str, options: TransportOptions = DEFAULT_OPTIONS, scheme: str = "tcp"
    ) -> None:
        super().__init__(connection, f"{scheme} {address}", options)
        self._connector: TcpConnector | None = None

    def start_connecting(self, connector: TcpConnector) -> None:
        """Use a connection that is being made. The first frame is a HELLO."""
        self._dial()
        self.is_connected = False
        self._connector = connector

    def configure_socket(self) -> None:
        """Set the options of the connected socket."""
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE_OPTIONS:
            if hasattr(socket, name):
                self._socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def next_wait(self, directions: int = BOTH_DIRECTIONS) -> Wait:
        if self.is_connected or self._lost_directions or self.is_closed:
            return super().next_wait(directions)
        return Wait([Interest(self._socket.fileno(), self._connect_interest)])

    @property
    def unacknowledged_since(self) -> float:
        """As `Channel.unacknowledged_since`: Linux reports it. The kernel itself retransmits for about 15 minutes."""
        if not _HAS_ACKNOWLEDGEMENT_TIMES or not self.is_connected or self.is_closed or not self.bytes_sent:
            return math.inf
        try:
            if not int.from_bytes(fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4)), sys.byteorder):
                return math.inf
            information = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_ACK_RECEIVED.size)
        except (OSError, ValueError):  # another thread has closed it
            return math.inf
        silence_ms: int = _LAST_ACK_RECEIVED.unpack(information)[0]
        return time.monotonic() - silence_ms / 1000

    @property
    def wait_description(self) -> str:
        if not self.queued_bytes and self.unacknowledged_since < math.inf:
            return f"{self._name}: sending, the peer's host does not acknowledge the end"
        return super().wait_description

    @property
    def _connect_interest(self) -> int:
        return SEND

    def _continue_connecting(self) -> bool:
        assert self._connector is not None
        is_connected = self._connector.progress()
        self._socket = self._connector.socket
        if is_connected:
            self.configure_socket()
        return is_connected

    def _read(self, size_bytes: int) -> bytes:
        return self._socket.recv(size_bytes)

    def _write(self, views: list[bytes | memoryview], region: Region | None) -> int:  # noqa: ARG002 - never sent
        # The header of a message whose body is a file shares its first segment.
        flags = _NO_SIGNAL | _MORE if self._queue.is_followed_by_file(len(views)) else _NO_SIGNAL
        return self._socket.sendmsg(views, (), flags)

    def _send(self, events: list[Event]) -> None:
        super()._send(events)
        if not self._queue.queued_bytes and not self._lost_directions & SEND:
            # Nothing else would report that the peer is closed: sending the first message to it succeeds.
            error_number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error_number:
                self._lost_directions |= SEND
                events.append(
                    DirectionEnded(self._translate_socket_error(OSError(error_number, os.strerror(error_number))), SEND)
                )

    def _translate_socket_error(self, error: OSError) -> BowstringError:
        if error.errno in UNREACHABLE_ERRNOS and not self.is_closed:
            return ConnectionLostError(f"{self._name}: the peer is unreachable ({error.strerror})", error)
        return super()._translate_socket_error(error)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}, {'closed' if self.is_closed else 'open'}>"


class TlsChannel(TcpChannel):
    """One end of a connection with TLS. Messages are encrypted, so that the kernel can't send files directly.

    OpenSSL's state is not thread-safe: a lock lets the threads that send and receive take turns.
    """

    def __init__(
        self,
        connection: socket.socket,
        address: str,
        options: TransportOptions,
        context: ssl.SSLContext,
        server_name: str | None,
    ) -> None:
        super().__init__(connection, address, options, "tcp+tls")
        self.traits = replace(self.traits, min_file_bytes=_TLS_MIN_FILE_BYTES)
        self._context = context
        self._server_name = server_name
        """The name in the server's certificate; None at the server."""
        self._lock = threading.Lock()
        self._handshake_direction = 0
        """What the handshake waits for; 0 before it."""
        self._needs_write_to_read = False

    def start_server_handshake(self) -> None:
        """Begin the handshake of an accepted connection."""
        self.is_connected = False
        self._start_handshake()

    def next_wait(self, directions: int = BOTH_DIRECTIONS) -> Wait:
        wait = super().next_wait(directions)
        # TLS may have to send before it can go on to receive, although nothing is queued.
        if self._needs_write_to_read and wait.interests:
            (interest,) = wait.interests
            return wait._replace(interests=[interest._replace(events=interest.events | SEND)])
        return wait

    @property
    def _has_decrypted_bytes(self) -> bool:
        with self._lock:
            return self._tls_socket.pending() > 0

    @property
    def _connect_interest(self) -> int:
        return self._handshake_direction or SEND

    @property
    def _tls_socket(self) -> ssl.SSLSocket:
        return cast("ssl.SSLSocket", self._socket)

    def _start_handshake(self) -> None:
        self._socket = self._context.wrap_socket(
            self._socket,
            server_side=self._server_name is None,
            do_handshake_on_connect=False,
            suppress_ragged_eofs=False,
            server_hostname=self._server_name,
        )
        self._handshake_direction = RECEIVE if self._server_name is None else SEND

    def _continue_connecting(self) -> bool:
        import ssl

        try:
            if not self._handshake_direction:
                if not super()._continue_connecting():
                    return False
                self._start_handshake()
            self._tls_socket.do_handshake()
        except ssl.SSLWantReadError:
            self._handshake_direction = RECEIVE
            return False
        except ssl.SSLWantWriteError:
            self._handshake_direction = SEND
            return False
        except ssl.SSLCertVerificationError as error:
            reason = error.verify_message or error.reason
            raise ConnectionLostError(f"{self._name}: the peer's certificate is not valid: {reason}", error) from error
        except OSError as error:
            if isinstance(error, BowstringError):
                raise
            raise ConnectionLostError(
                f"{self._name}: the TLS handshake failed: {_describe_error(error)}", error
            ) from error
        certificate = self._tls_socket.getpeercert()
        if certificate:
            subject: Any = certificate["subject"]
            self.traits = replace(self.traits, peer=PeerIdentity(name=_format_subject(subject)))
        return True

    def _read(self, size_bytes: int) -> bytes:
        target = bytearray(size_bytes)
        return bytes(memoryview(target)[: self._read_into(memoryview(target))])

    def _read_into(self, target: memoryview) -> int:
        import ssl

        self._needs_write_to_read = False
        try:
            with self._lock:
                return self._tls_socket.recv_into(target)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:  # the answer to a new key
            self._needs_write_to_read = True
            raise BlockingIOError from None

    def _write(self, views: list[bytes | memoryview], region: Region | None) -> int:  # noqa: ARG002 - never sent
        first = memoryview(views[0])
        if len(first) >= _TLS_RECORD_BYTES:
            return self._send_encrypted(first[:_TLS_CALL_BYTES])
        # Small views are joined, because each call makes a record, with its own header, and is a system call.
        record = bytearray()
        for view in views:
            record += view[: _TLS_RECORD_BYTES - len(record)]
            if len(record) == _TLS_RECORD_BYTES:
                break
        return self._send_encrypted(memoryview(record))

    def _write_file(self, file: FileRange) -> int:
        return self._send_encrypted(FileRange(file.region, file.offset_bytes, min(file.nbytes, _TLS_CALL_BYTES)).read())

    def _send_encrypted(self, view: memoryview) -> int:
        """Send bytes. After `BlockingIOError`, the next call has to begin with the same bytes."""
        import ssl

        try:
            with self._lock:
                return self._tls_socket.send(view)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None

    def shut_down(self) -> None:
        try:
            # The `shutdown` of SSLSocket would let later calls read and write unencrypted bytes.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            pass

    def _translate_socket_error(self, error: OSError) -> BowstringError:
        import ssl

        if self.is_closed or not isinstance(error, ssl.SSLError):
            return super()._translate_socket_error(error)
        if isinstance(error, ssl.SSLEOFError):
            return ConnectionLostError(
                f"{self._name}: the peer disconnected {self._parser.position_description}", error
            )
        reason = _describe_error(error)
        _, is_alert, alert = (
            reason.upper().replace(" ", "_").partition("_ALERT_")
        )  # such as TLSV13_ALERT_CERTIFICATE_REQUIRED
        if is_alert:
            reason = alert.lower().replace("_", " ")
            return ConnectionLostError(f"{self._name}: the peer ended the connection: {reason}", error)
        return ProtocolError(f"{self._name}: {reason}")


def _format_subject(subject: Iterable[Iterable[tuple[str, str]]]) -> str:
    """Return a certificate's subject as text, such as `commonName=alice, organizationName=Staff`, with "+" within names
    of several values. Characters of the values are escaped as in RFC 4514, so that different subjects have different
    texts, in one line.
    """
    return ", ".join("+".join(f"{key}={_SPECIAL.sub(_escape, text)}" for key, text in names) for names in subject)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return f"\\{character}" if character.isprintable() else "".join(f"\\{byte:02X}" for byte in character.encode())


def _describe_error(error: OSError) -> str:
    reason: Any = getattr(error, "reason", None)
    return str(reason or error.strerror or error)
