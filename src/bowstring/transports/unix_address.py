"""Where unix sockets are: abstract names and paths, listening, connecting, and who is at the other end."""

from __future__ import annotations

import errno
import os
import secrets
import select
import socket
import stat
import struct
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from bowstring.errors import ClosedError, ConnectionLostError, ResourceError, UsageError
from bowstring.transports.base import DEFAULT_OPTIONS, Deadline, TransportOptions

if TYPE_CHECKING:
    from bowstring.transports.unix import UnixTransport

MAX_ADDRESS_BYTES = 107
_BACKLOG = 128
_RETRY_S = 0.01
_CREDENTIALS = struct.Struct("iII")
_SHORT = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}


def new_abstract_address() -> str:
    """An abstract address that nobody used before."""
    return f"@bowstring-{secrets.token_hex(16)}"


def runtime_directory() -> Path:
    """A directory for sockets that only this user can enter: below XDG_RUNTIME_DIR, else in the temporary directory.

    Made where it is missing. Raises `ResourceError` where somebody else owns it or can enter it.
    """
    base = os.environ.get("XDG_RUNTIME_DIR")
    directory = Path(base, "bowstring") if base else Path(tempfile.gettempdir(), f"bowstring-{os.getuid()}")
    directory.mkdir(mode=0o700, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ResourceError(errno.EPERM, f"{directory}: expected a directory that only user {os.getuid()} can enter")
    return directory


def socket_name(address: str) -> bytes:
    """What the kernel calls an address. Raises `UsageError` where it is empty or too long."""
    encoded = os.fsencode(address)
    if not encoded or encoded == b"@" or b"\0" in encoded:
        raise UsageError(f"unix socket address {address!r}: expected a path, or '@' and a name")
    if len(encoded) > MAX_ADDRESS_BYTES:
        raise UsageError(f"unix socket address {address!r}: {len(encoded)} bytes, at most {MAX_ADDRESS_BYTES} fit")
    return b"\0" + encoded[1:] if encoded.startswith(b"@") else encoded


def connect_socket(address: str, deadline: Deadline) -> socket.socket:
    """A connected socket. Raises `ConnectionLostError` where nobody listens, `DeadlineError` where nobody accepts."""
    name = socket_name(address)
    try:
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as error:
        raise ResourceError(error.errno, f"unix socket: {error.strerror}") from error
    try:
        connected.setblocking(False)
        while True:
            try:
                connected.connect(name)
                return connected
            except BlockingIOError:  # the listener's queue is full, and there is nothing to wait for with poll
                if not deadline.remaining_s():
                    raise deadline.error(f"unix socket {address!r}: connecting") from None
                time.sleep(_RETRY_S)
    except OSError as error:
        connected.close()
        if isinstance(error, ConnectionLostError):
            raise
        raise ConnectionLostError(f"unix socket {address!r}: nobody answers there ({error.strerror})") from error
    except BaseException:
        connected.close()
        raise


def peer_uid(connected: socket.socket) -> int:
    """The user of the process at the other end, as it was when it connected or began to listen."""
    return peer_credentials(connected)[1]


def peer_credentials(connected: socket.socket) -> tuple[int, int, int]:
    """Process, user and group of the other end. Raises `ResourceError` where the platform can't tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        raise ResourceError(errno.ENOSYS, "unix socket: this platform does not tell who the peer is (SO_PEERCRED)")
    pid, uid, gid = _CREDENTIALS.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid, gid


class UnixListener:
    """Waits for connections at an address; a new abstract one, where none is given."""

    __slots__ = ("_inode", "_is_closed", "_socket", "address", "options")

    def __init__(self, address: str | None = None, *, options: TransportOptions = DEFAULT_OPTIONS) -> None:
        """Listen. Raises `UsageError` for an address that is in use, `ResourceError` where descriptors are short."""
        self.address = new_abstract_address() if address is None else address
        self.options = options
        self._is_closed = True
        self._inode: tuple[int, int] | None = None
        name = socket_name(self.address)
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            raise ResourceError(error.errno, f"unix socket: {error.strerror}") from error
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
        """The next connection. Peers of another user are turned away, and the waiting goes on.

        Raises `DeadlineError` where nobody came in time, `ClosedError`, `ResourceError`.
        """
        from bowstring.transports.unix import UnixTransport

        deadline = Deadline(self.options.timeout_s if timeout_s is None else timeout_s)
        while not self._is_closed:
            try:
                connected, _ = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                poll = select.poll()
                poll.register(self._socket, select.POLLIN)
                if not poll.poll(deadline.remaining_s() * 1000):
                    raise deadline.error(f"unix socket {self.address!r}: waiting for a connection") from None
            except OSError as error:
                if error.errno in _SHORT:
                    raise ResourceError(error.errno, f"unix socket {self.address!r}: {error.strerror}") from error
                break
            else:
                try:
                    return UnixTransport(connected, self.options)
                except ConnectionLostError:
                    continue
        raise ClosedError(f"unix socket {self.address!r}: it does not listen any more")

    def close(self) -> None:
        """Stop listening; connections go on. Who waits in `accept` in another thread gets a `ClosedError`.
        Idempotent.
        """
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

    def _bind(self, name: bytes) -> None:
        if name.startswith(b"\0"):
            self._socket.bind(name)
            return
        try:
            self._socket.bind(name)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not _is_left_behind(self.address):
                raise
            Path(self.address).unlink()
            self._socket.bind(name)
        status = os.lstat(self.address)
        self._inode = (status.st_dev, status.st_ino)
        Path(self.address).chmod(0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True):
            self.close()

    def __repr__(self) -> str:
        return f"<UnixListener {self.address!r}, {'closed' if self._is_closed else 'listening'}>"


def _is_left_behind(path: str) -> bool:
    """Whether a socket's file lies there whose process is gone."""
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
