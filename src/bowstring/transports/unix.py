"""Unix sockets with descriptors passed: messages by scatter-gather, memory by passing sealed memfds or open files.

A stream socket with frames of our own, because a datagram of a sequenced-packet socket has to fit the socket's buffer
(some 200 KB), and a schema of ten thousand columns or a body does not. docs/dissociated.md describes the frames.

Addresses that begin with "@" are abstract: they live in the kernel and vanish with their process, so a killed server
leaves nothing behind; that is the default. Any user of the machine can see and try them, and could take a name first,
so both sides compare the other's user (SO_PEERCRED) before anything else. Other addresses are paths, for those who
want the file system's permissions on top; a killed server leaves the socket's file, which the next one at the same
path replaces.
"""

from __future__ import annotations

import errno
import mmap
import os
import select
import socket
import struct
import threading
from collections.abc import Sequence
from enum import IntEnum
from typing import ClassVar

from bowstring.dissociated.wire import BytesLike
from bowstring.errors import (
    BowstringError,
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    LimitError,
    ProtocolError,
    ResourceError,
    translate_os_error,
)
from bowstring.memory.closing import closed_on_failure
from bowstring.memory.descriptors import IOV_MAX
from bowstring.memory.region import Region
from bowstring.transports.base import (
    DEFAULT_OPTIONS,
    Allocate,
    Deadline,
    Received,
    Transport,
    TransportOptions,
    allocated,
)
from bowstring.transports.unix_address import connect_socket, peer_uid

FRAME = struct.Struct("<4sBBHQQ")
"""Magic, kind, number of descriptors, zero, tag or region index, length in bytes of what follows."""
MAGIC = b"BWS1"
REGION = struct.Struct("<QQ")
"""The size of a passed region in bytes; 1 for sealed memory or 0 for an ordinary file."""

_LAZY_BYTES = 1 << 20
_SOCKET_BUFFER_BYTES = 4 << 20
_CLOSING_S = 5.0
_DESCRIPTOR_BYTES = 4
_RIGHTS_BYTES = socket.CMSG_SPACE(_DESCRIPTOR_BYTES)
# As plain numbers: the flags of the socket module are enumerations, and slow in a loop.
_CLOSE_ON_EXEC = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))
_NO_SIGNAL = int(getattr(socket, "MSG_NOSIGNAL", 0))
_TRUNCATED = int(socket.MSG_CTRUNC)
_GONE = {errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.ESHUTDOWN, errno.EBADF}


class Kind(IntEnum):
    """What a frame carries."""

    PLAIN = 0
    TAGGED = 1
    REGION = 2
    RETIRE = 3


_KINDS = tuple(Kind)
_EXACT_BYTES = {Kind.REGION: REGION.size, Kind.RETIRE: 0}


class _Inbound:
    """The frame that is arriving; kept between calls, so that a deadline in its middle loses nothing."""

    __slots__ = ("body", "descriptors", "filled", "head", "kind", "length_bytes", "tag")

    def __init__(self) -> None:
        self.head = bytearray(FRAME.size)
        self.filled = 0
        self.descriptors: list[int] = []
        self.kind = Kind.PLAIN
        self.tag = 0
        self.length_bytes = 0
        self.body: memoryview | None = None

    def close(self) -> None:
        while self.descriptors:
            os.close(self.descriptors.pop())


class UnixTransport(Transport):
    """One end of a unix socket. Made by `connect`, `UnixListener.accept` or `pair`."""

    scheme: ClassVar[str] = "unix"

    def __init__(self, connected: socket.socket, options: TransportOptions = DEFAULT_OPTIONS) -> None:
        """Take a connected socket; it is closed where its peer is refused (`ConnectionLostError`)."""
        super().__init__(options)
        self._socket = connected
        self._send_lock = threading.Lock()
        self._receive_lock = threading.Lock()
        self._inbound = _Inbound()
        self._is_closed = False
        self._lost: str | None = None
        connected.setblocking(False)
        with closed_on_failure(self):
            uid = peer_uid(connected)
            if uid not in (os.getuid(), 0) and not options.allow_other_users:
                raise ConnectionLostError(f"unix socket: refused a peer of user {uid}; we are {os.getuid()}")
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)

    @classmethod
    def connect(
        cls, address: str, *, timeout_s: float | None = None, options: TransportOptions = DEFAULT_OPTIONS
    ) -> UnixTransport:
        """Connect to a listener. Raises `ConnectionLostError` where nobody listens, `DeadlineError`."""
        return cls(connect_socket(address, options.deadline(timeout_s)), options)

    @classmethod
    def pair(cls, options: TransportOptions = DEFAULT_OPTIONS) -> tuple[UnixTransport, UnixTransport]:
        """Two connected ends. Raises `ResourceError` where descriptors are short."""
        try:
            one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            raise translate_os_error(error, f"unix socket: {error.strerror}") from error
        return cls(one, options), cls(other, options)

    def fileno(self) -> int:
        """The socket's descriptor, to wait for with select; -1 after `close`."""
        return self._socket.fileno()

    @property
    def is_closed(self) -> bool:
        """Whether this end was closed, by `close` or after an error."""
        return self._is_closed or self._lost is not None

    def send(self, parts: Sequence[BytesLike], *, tag: int | None = None, timeout_s: float | None = None) -> None:
        """As `Transport.send`: one vectored call for up to 1023 parts, nothing joined."""
        kind = Kind.PLAIN if tag is None else Kind.TAGGED
        self._send_frame(kind, tag or 0, parts, self.options.deadline(timeout_s))

    def send_region(self, region: Region, *, timeout_s: float | None = None) -> int:
        """As `Transport.send_region`: passes the descriptor."""
        deadline = self.options.deadline(timeout_s)
        self._take(self._send_lock, deadline, "send_region")
        try:
            index = self._next_region()
            body = REGION.pack(region.size_bytes, region.is_sealed)
            self._send_locked(Kind.REGION, index, (body,), deadline, region.descriptor)
            self._regions_sent += 1
            return index
        finally:
            self._send_lock.release()

    def retire_region(self, index: int, *, timeout_s: float | None = None) -> None:
        """As `Transport.retire_region`."""
        self._check_passed(index)
        self._send_frame(Kind.RETIRE, index, (), self.options.deadline(timeout_s))

    def receive(self, *, timeout_s: float | None = None, allocate: Allocate | None = None) -> Received:
        """As `Transport.receive`; the bytes go straight to their destination."""
        deadline = self.options.deadline(timeout_s)
        self._take(self._receive_lock, deadline, "receive")
        try:
            while True:
                frame = self._receive_frame(deadline, allocate)
                self._inbound = _Inbound()
                if frame.kind is Kind.REGION:
                    self._take_region(frame)
                elif frame.kind is Kind.RETIRE:
                    self.regions.forget(frame.tag)
                else:
                    data = frame.body if frame.body is not None else memoryview(b"")
                    return Received(frame.tag if frame.kind is Kind.TAGGED else None, data)
        except DeadlineError:
            raise
        except BowstringError as error:
            self._fail(str(error))
            raise
        finally:
            self._receive_lock.release()

    def close(self) -> None:
        """As `Transport.close`; whoever is blocked in another thread is woken up."""
        if self._is_closed:
            return
        self._is_closed = True
        self._shut_down()
        held = [lock for lock in (self._send_lock, self._receive_lock) if lock.acquire(timeout=_CLOSING_S)]
        self._socket.close()
        self._inbound.close()
        self.regions.close()
        for lock in held:
            lock.release()

    def _send_frame(self, kind: Kind, tag: int, parts: Sequence[BytesLike], deadline: Deadline) -> None:
        self._take(self._send_lock, deadline, "send")
        try:
            self._send_locked(kind, tag, parts, deadline)
        finally:
            self._send_lock.release()

    def _send_locked(
        self, kind: Kind, tag: int, parts: Sequence[BytesLike], deadline: Deadline, descriptor: int | None = None
    ) -> None:
        views = [view for part in parts if (view := memoryview(part).cast("B")).nbytes]
        total = sum(view.nbytes for view in views)
        views.insert(0, memoryview(FRAME.pack(MAGIC, kind, descriptor is not None, 0, tag, total)))
        ancillary = [] if descriptor is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", descriptor))]
        first, has_begun = 0, False
        while first < len(views):
            try:
                done = self._socket.sendmsg(views[first : first + IOV_MAX], ancillary, _NO_SIGNAL)
            except BlockingIOError:
                if self._wait(select.POLLOUT, deadline):
                    continue
                if has_begun:
                    self._fail("a deadline passed in the middle of a message")
                raise deadline.error(f"unix socket: sending {total} bytes") from None
            except OSError as error:
                raise self._socket_error(error) from error
            has_begun, ancillary = True, []
            while first < len(views) and done >= views[first].nbytes:
                done -= views[first].nbytes
                first += 1
            if done:
                views[first] = views[first][done:]

    def _receive_frame(self, deadline: Deadline, allocate: Allocate | None) -> _Inbound:
        frame = self._inbound
        if frame.body is None:
            while frame.filled < FRAME.size:
                self._receive_head(frame, deadline)
            self._read_head(frame)
            frame.body = self._destination(frame, allocate)
            frame.filled = 0
        while frame.filled < frame.length_bytes:
            try:
                count = self._socket.recv_into(frame.body[frame.filled :])
            except BlockingIOError:
                self._wait_to_receive(deadline, frame)
                continue
            except OSError as error:
                raise self._socket_error(error) from error
            if not count:
                raise self._end_of_input(f"after {frame.filled} of {frame.length_bytes} bytes of a message")
            frame.filled += count
        return frame

    def _receive_head(self, frame: _Inbound, deadline: Deadline) -> None:
        """Receive some more of the frame's head, and the descriptors that come with it."""
        try:
            data, ancillary, flags, _ = self._socket.recvmsg(FRAME.size - frame.filled, _RIGHTS_BYTES, _CLOSE_ON_EXEC)
        except BlockingIOError:
            self._wait_to_receive(deadline, frame)
            return
        except OSError as error:
            raise self._socket_error(error) from error
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                whole = len(payload) // _DESCRIPTOR_BYTES
                frame.descriptors.extend(struct.unpack_from(f"{whole}i", payload))
        if flags & _TRUNCATED:
            raise ProtocolError(
                "unix socket: a peer passed more descriptors than one, or this process can't open any more (ulimit -n)"
            )
        if not data:
            raise self._end_of_input("between two messages" if not frame.filled else "in the middle of a frame's head")
        frame.head[frame.filled : frame.filled + len(data)] = data
        frame.filled += len(data)

    def _read_head(self, frame: _Inbound) -> None:
        magic, kind, descriptors, reserved, frame.tag, frame.length_bytes = FRAME.unpack(frame.head)
        if magic != MAGIC or reserved or kind >= len(_KINDS):
            raise ProtocolError(f"unix socket: expected a frame, found the bytes {frame.head.hex(' ')}")
        frame.kind = _KINDS[kind]
        expected = int(frame.kind is Kind.REGION)
        if descriptors != expected or len(frame.descriptors) != expected:
            found = len(frame.descriptors)
            raise ProtocolError(
                f"unix: {frame.kind.name} frame with {found} descriptors; {descriptors} announced, not {expected}"
            )
        exact = _EXACT_BYTES.get(frame.kind)
        if exact is not None and frame.length_bytes != exact:
            raise ProtocolError(f"unix socket: a {frame.kind.name} frame has {exact} bytes, found {frame.length_bytes}")
        if frame.kind is Kind.PLAIN and frame.tag:
            raise ProtocolError(f"unix socket: a plain message with the tag {frame.tag}")
        options = self.options
        limit = options.max_tagged_bytes if frame.kind is Kind.TAGGED else options.max_plain_bytes
        if frame.length_bytes > limit:
            raise LimitError(f"unix socket: a message of {frame.length_bytes} bytes; at most {limit} are received")

    def _destination(self, frame: _Inbound, allocate: Allocate | None) -> memoryview:
        length = frame.length_bytes
        if frame.kind in (Kind.PLAIN, Kind.TAGGED):
            given = allocated(allocate, frame.tag if frame.kind is Kind.TAGGED else None, length)
            if given is not None:
                return given
        if length < _LAZY_BYTES:
            return memoryview(bytearray(length))
        try:
            # Its pages come into being as bytes arrive, whatever length the peer announced.
            mapping = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError, ValueError) as error:
            cause = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
            raise ResourceError(f"no memory for a message of {length} bytes: {error}", cause) from error
        if hasattr(mmap, "MADV_HUGEPAGE"):
            try:
                mapping.madvise(mmap.MADV_HUGEPAGE)
            except OSError:
                pass
        return memoryview(mapping)

    def _take_region(self, frame: _Inbound) -> None:
        size_bytes, flags = REGION.unpack(frame.body or b"")
        descriptor = frame.descriptors.pop()
        name = f"region {frame.tag}"
        region = Region.attach(descriptor, size_bytes, accept_files=self.options.accept_files, name=name)
        with closed_on_failure(region):
            if flags > 1 or region.is_sealed != bool(flags):
                raise ProtocolError(f"unix socket: region {frame.tag} has flags {flags}, its descriptor says otherwise")
            self.regions.add(frame.tag, region)
        if not self.options.keep_descriptors:
            region.release_descriptor()

    def _take(self, lock: threading.Lock, deadline: Deadline, what: str) -> None:
        """Take a lock, which the caller releases. Raises where the connection is of no use any more."""
        if not lock.acquire(blocking=False) and not lock.acquire(timeout=deadline.remaining_s()):
            raise deadline.error(f"unix socket: {what} while another thread does the same")
        if self._is_closed:
            lock.release()
            raise ClosedError(f"unix socket: {what} after close")
        if self._lost is not None:
            lock.release()
            raise ConnectionLostError(f"unix socket: {what} after the connection ended: {self._lost}")

    def _wait(self, event: int, deadline: Deadline) -> bool:
        """Wait until the socket is ready; whether it is, rather than the deadline past."""
        poll = select.poll()
        poll.register(self._socket, event)
        return bool(poll.poll(deadline.remaining_s() * 1000))

    def _wait_to_receive(self, deadline: Deadline, frame: _Inbound) -> None:
        if not self._wait(select.POLLIN, deadline):
            where = f"{frame.filled} bytes into a frame" if frame.filled else "between two messages"
            raise deadline.error(f"unix socket: receiving, {where}")

    def _end_of_input(self, where: str) -> BowstringError:
        if self._is_closed:
            return ClosedError("unix socket: closed while receiving")
        return ConnectionLostError(f"unix socket: the peer is gone {where}")

    def _socket_error(self, error: OSError) -> BowstringError:
        if self._is_closed:
            return ClosedError("unix socket: closed by another thread")
        if error.errno in _GONE:
            self._fail("the peer is gone")
            return translate_os_error(error, "unix socket: the peer is gone")
        self._fail(str(error))
        return translate_os_error(error, f"unix socket: {error.strerror}")

    def _fail(self, reason: str) -> None:
        """The connection is of no use any more; its descriptor stays until `close`."""
        self._lost = self._lost or reason
        self._inbound.close()
        self._shut_down()

    def _shut_down(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def __del__(self) -> None:
        if hasattr(self, "_inbound"):
            self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"ended ({self._lost})" if self._lost else "open"
        return f"<UnixTransport {state}, {len(self.regions)} regions received>"
