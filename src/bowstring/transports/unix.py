"""The unix transport: a `UnixChannel` with blocking calls and deadlines.

Addresses that begin with "@", the default, are abstract: they exist in the kernel only as long as their process. Any
user of the machine can connect to them or bind the name first, so both sides check the peer's user (SO_PEERCRED) before
anything else. Other addresses are paths, with the file system's permissions; a killed server leaves the socket's file,
which the next listener at the path replaces.
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from bowstring.dissociated.wire import BytesLike
from bowstring.errors import (
    BowstringError,
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    UsageError,
    translate_os_error,
)
from bowstring.memory.region import Region
from bowstring.transports.base import (
    DEFAULT_OPTIONS,
    Allocate,
    Deadline,
    ReceivedMessage,
    Transport,
    TransportOptions,
)
from bowstring.transports.regions import RegionTable
from bowstring.transports.unix_address import connect_socket
from bowstring.transports.unix_channel import UnixChannel

_CLOSING_S = 5.0


class UnixTransport(Transport):
    """One end of a unix socket. Made by `connect`, `UnixListener.accept` or `pair`."""

    scheme: ClassVar[str] = "unix"

    def __init__(self, connection: socket.socket, options: TransportOptions = DEFAULT_OPTIONS) -> None:
        """Wrap a connected socket. If its peer is another user, close it and raise `ConnectionLostError`."""
        super().__init__(options)
        self._channel = UnixChannel(connection, options)
        self._send_lock = threading.Lock()
        self._receive_lock = threading.Lock()
        self._is_closed = False
        self._failure: str | None = None

    @classmethod
    def connect(
        cls, address: str, *, timeout_s: float | None = None, options: TransportOptions = DEFAULT_OPTIONS
    ) -> UnixTransport:
        """Connect to a listener. Raises `ConnectionLostError` if there is no listener, `DeadlineError`."""
        return cls(connect_socket(address, options.deadline(timeout_s)), options)

    @classmethod
    def pair(cls, options: TransportOptions = DEFAULT_OPTIONS) -> tuple[UnixTransport, UnixTransport]:
        """Create two connected ends. Raises `ResourceError` if no descriptors are left."""
        try:
            first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            raise translate_os_error(error, f"unix socket: {error.strerror}") from error
        return cls(first, options), cls(second, options)

    def fileno(self) -> int:
        """The socket's descriptor, to wait for with select; -1 after `close`."""
        return self._channel.fileno()

    @property
    def regions(self) -> RegionTable:
        """The received regions."""
        return self._channel.regions

    @property
    def is_closed(self) -> bool:
        """Whether this end was closed, by `close` or after an error."""
        return self._is_closed or self._failure is not None

    @property
    def has_input(self) -> bool:
        """Whether there is anything to receive: bytes, or the end of the connection."""
        return self._wait(select.POLLIN, Deadline(0.0))

    def send(self, parts: Sequence[BytesLike], *, tag: int | None = None, timeout_s: float | None = None) -> None:
        """As `Transport.send`: one vectored call for up to 1023 parts, nothing joined."""
        deadline = self.options.deadline(timeout_s)
        with self._exclusive(self._send_lock, deadline, "send"):
            position = self._channel.bytes_submitted
            self._channel.submit(parts, tag)
            self._drain(deadline, position)

    def post(self, parts: Sequence[BytesLike], *, tag: int | None = None) -> None:
        """As `Transport.post`."""
        with self._exclusive(self._send_lock, self.options.deadline(None), "post"):
            self._channel.submit((b"".join(parts),), tag)
            self._channel.flush()

    def flush(self, *, timeout_s: float | None = None) -> None:
        """As `Transport.flush`."""
        deadline = self.options.deadline(timeout_s)
        with self._exclusive(self._send_lock, deadline, "flush"):
            self._drain(deadline, None)

    def send_region(self, region: Region, *, timeout_s: float | None = None) -> int:
        """As `Transport.send_region`: passes the descriptor."""
        deadline = self.options.deadline(timeout_s)
        with self._exclusive(self._send_lock, deadline, "send_region"):
            position = self._channel.bytes_submitted
            index = self._channel.submit_region(region)
            self._drain(deadline, position)
            return index

    def retire_region(self, index: int, *, timeout_s: float | None = None) -> None:
        """As `Transport.retire_region`."""
        deadline = self.options.deadline(timeout_s)
        with self._exclusive(self._send_lock, deadline, "retire_region"):
            position = self._channel.bytes_submitted
            self._channel.submit_retirement(index)
            self._drain(deadline, position)

    def receive(self, *, timeout_s: float | None = None, allocate: Allocate | None = None) -> ReceivedMessage:
        """As `Transport.receive`; the bytes are received directly into the message's buffer."""
        deadline = self.options.deadline(timeout_s)
        channel = self._channel
        with self._exclusive(self._receive_lock, deadline, "receive"):
            while True:
                before = channel.bytes_received
                received = channel.receive(allocate)
                if received is not None:
                    return received
                if channel.bytes_received != before:
                    deadline.restart()
                if not self._wait(select.POLLIN, deadline):
                    where = "in the middle of a frame" if channel.is_receiving else "between two messages"
                    raise deadline.error(f"unix socket: receiving, {where}")

    def close(self) -> None:
        """As `Transport.close`; wakes blocked threads."""
        if self._is_closed:
            return
        self._is_closed = self._channel.is_closed = True
        self._channel.shut_down()
        locks = [lock for lock in (self._send_lock, self._receive_lock) if lock.acquire(timeout=_CLOSING_S)]
        self._channel.close()
        for lock in locks:
            lock.release()

    def _drain(self, deadline: Deadline, position: int | None) -> None:
        """Send the queue. On an error, withdraw what was submitted after `position` bytes; if part of it is sent, the
        connection fails.
        """
        channel = self._channel
        try:
            while channel.has_output:
                before = channel.bytes_sent
                is_empty = channel.flush()
                if channel.bytes_sent != before:
                    deadline.restart()
                if not is_empty and not self._wait(select.POLLOUT, deadline):
                    raise deadline.error(f"unix socket: sending, {channel.queued_bytes} bytes before the end")
        except BaseException as error:
            if position is not None and not channel.withdraw(position):
                self._fail(f"in the middle of a message: {error}")
            raise

    @contextmanager
    def _exclusive(self, lock: threading.Lock, deadline: Deadline, what: str) -> Iterator[None]:
        """Hold a lock. An error ends the connection, except for `DeadlineError` and `UsageError`."""
        if not lock.acquire(blocking=False) and not lock.acquire(timeout=deadline.remaining_s()):
            raise deadline.error(f"unix socket: {what} while another thread does the same")
        try:
            if self._is_closed:
                raise ClosedError(f"unix socket: {what} after close")
            if self._failure is not None:
                raise ConnectionLostError(f"unix socket: {what} after the connection ended: {self._failure}")
            try:
                yield
            except (DeadlineError, UsageError):
                raise
            except BowstringError as error:
                self._fail(str(error))
                raise
        finally:
            lock.release()

    def _wait(self, event: int, deadline: Deadline) -> bool:
        """Wait until the socket is ready; return False if the deadline passes first."""
        poll = select.poll()
        poll.register(self._channel.fileno(), event)
        return bool(poll.poll(deadline.remaining_s() * 1000))

    def _fail(self, reason: str) -> None:
        """End the connection; its descriptor stays open until `close`."""
        self._failure = self._failure or reason
        self._channel.shut_down()

    def __del__(self) -> None:
        if hasattr(self, "_is_closed"):
            self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"ended ({self._failure})" if self._failure else "open"
        return f"<UnixTransport {state}, {len(self.regions)} regions received>"
