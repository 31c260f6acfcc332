"""One end of a non-blocking unix socket: frames, vectored sends, and file descriptors (SCM_RIGHTS).

The socket is a stream socket with Bowstring's own frames (docs/dissociated.md), because a message of a sequenced-packet
socket has to fit the socket's buffer of some 200 KB; a schema of ten thousand columns does not.

Submitted messages are queued until `flush` can send them; `receive` returns a message once it has arrived completely.
The caller does the waiting: `UnixTransport` waits with a deadline, `EventLoop` for many channels. One thread may flush
while another receives.
"""

from __future__ import annotations

import errno
import mmap
import os
import socket
import struct
from collections import deque
from collections.abc import Sequence
from enum import IntEnum

from bowstring.dissociated.wire import BytesLike
from bowstring.errors import (
    BowstringError,
    ClosedError,
    ConnectionLostError,
    LimitError,
    ProtocolError,
    ResourceError,
    translate_os_error,
)
from bowstring.memory.closable import Closable, close_on_error
from bowstring.memory.descriptors import IOV_MAX, check_available
from bowstring.memory.region import Region
from bowstring.transports.base import (
    DEFAULT_OPTIONS,
    Allocate,
    ReceivedMessage,
    RegionCounter,
    TransportOptions,
    call_allocate,
)
from bowstring.transports.regions import RegionTable
from bowstring.transports.unix_address import peer_uid

FRAME = struct.Struct("<4sBBHQQ")
"""Magic, kind, number of descriptors, zero, tag or region index, length in bytes of what follows."""
MAGIC = b"BWS1"
REGION = struct.Struct("<QQ")
"""The size of a region in bytes; 1 for sealed memory, 0 for an ordinary file."""

_LAZY_BYTES = 1 << 16
_HUGE_BYTES = 8 << 20
_SOCKET_BUFFER_BYTES = 4 << 20
_CALLS_PER_FLUSH = 16
_DESCRIPTOR_BYTES = 4
_RIGHTS_BYTES = socket.CMSG_SPACE(_DESCRIPTOR_BYTES)
# Plain integers: the enum flags of the socket module are slow in a loop.
_CLOSE_ON_EXEC = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))
_NO_SIGNAL = int(getattr(socket, "MSG_NOSIGNAL", 0))
_TRUNCATED = int(socket.MSG_CTRUNC)
_NOT_CONNECTED = {errno.ENOTCONN, errno.EBADF}


class Kind(IntEnum):
    """The kind of a frame."""

    PLAIN = 0
    TAGGED = 1
    REGION = 2
    RETIRE = 3


_KINDS = tuple(Kind)
_LENGTHS_BYTES = {Kind.REGION: REGION.size, Kind.RETIRE: 0}


class _IncomingFrame:
    """A frame that has arrived in part."""

    __slots__ = ("body", "descriptors", "filled", "header", "kind", "length_bytes", "tag")

    def __init__(self) -> None:
        self.header = bytearray(FRAME.size)
        self.filled = 0
        self.descriptors: list[int] = []
        self.kind = Kind.PLAIN
        self.tag = 0
        self.length_bytes = 0
        self.body: memoryview | None = None

    def close(self) -> None:
        while self.descriptors:
            os.close(self.descriptors.pop())


class UnixChannel(Closable):
    """One end of a connection; no method blocks.

    After an error of `receive` nothing more can be received, but queued messages can still be sent.
    """

    def __init__(self, connection: socket.socket, options: TransportOptions = DEFAULT_OPTIONS) -> None:
        """Wrap a connected socket. If its peer is another user, close it and raise `ConnectionLostError`."""
        self.options = options
        self.regions = RegionTable(options.max_regions)
        """The received regions."""
        self.sent_regions = RegionCounter()
        """The regions sent by this end."""
        self.bytes_received = 0
        self.bytes_sent = 0
        self.bytes_submitted = 0
        self._socket = connection
        self._incoming = _IncomingFrame()
        self._outgoing: deque[tuple[memoryview, Region | None]] = deque()
        self.is_closed = False
        connection.setblocking(False)
        with close_on_error(self):
            uid = peer_uid(connection)
            if uid not in (os.getuid(), 0) and not options.allow_other_users:
                raise ConnectionLostError(f"unix socket: refused a peer of user {uid}; we are {os.getuid()}")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)

    def fileno(self) -> int:
        """The socket's descriptor, to wait for with select; -1 after `close`."""
        return self._socket.fileno()

    @property
    def has_output(self) -> bool:
        """Whether submitted bytes have not been sent."""
        return bool(self._outgoing)

    @property
    def queued_bytes(self) -> int:
        """The number of submitted bytes that have not been sent."""
        return self.bytes_submitted - self.bytes_sent

    @property
    def is_receiving(self) -> bool:
        """Whether a part of a frame has arrived."""
        return self._incoming.filled > 0 or self._incoming.body is not None

    def submit(self, parts: Sequence[BytesLike], tag: int | None = None) -> None:
        """Queue a plain or tagged message. Nothing is copied: `parts` must not change until they are sent."""
        self._submit(Kind.PLAIN if tag is None else Kind.TAGGED, tag or 0, parts)

    def submit_region(self, region: Region) -> int:
        """Queue a region and return its index. It has to stay open until it is sent. Raises `UsageError`."""
        index = self.sent_regions.next()
        self._submit(Kind.REGION, index, (REGION.pack(region.size_bytes, region.is_sealed),), region)
        self.sent_regions.count += 1
        return index

    def submit_retirement(self, index: int) -> None:
        """Queue a RETIRE frame: no later message refers to the region. Raises `UsageError` if it was not sent."""
        self.sent_regions.check(index)
        self._submit(Kind.RETIRE, index, ())

    def withdraw(self, position: int) -> bool:
        """Remove from the queue what was submitted after `position` bytes; False if part of it is sent."""
        if self.bytes_sent > position:
            return False
        while self.bytes_submitted > position:
            view, region = self._outgoing.pop()
            self.bytes_submitted -= view.nbytes
            self.sent_regions.count -= region is not None
        return True

    def flush(self) -> bool:
        """Send without blocking, at most some megabytes. Return whether the queue is empty.

        Raises `ConnectionLostError`, `ClosedError`, `ResourceError`.
        """
        for _ in range(_CALLS_PER_FLUSH):
            if not self._outgoing:
                break
            views, region = self._next_views()
            rights: list[tuple[int, int, bytes]] = []
            if region is not None:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", region.descriptor))]
            try:
                count = self._socket.sendmsg(views, rights, _NO_SIGNAL)
            except BlockingIOError:
                return False
            except OSError as error:
                raise self._socket_error(error) from error
            self._advance(count)
        return not self._outgoing

    def receive(self, allocate: Allocate | None = None) -> ReceivedMessage | None:
        """Return the next message, or None if it has not arrived completely. Adds received regions to `regions`.

        The bytes are received directly into the message's buffer. Raises as `Transport.receive`, without deadlines.
        """
        try:
            while self._receive_frame(allocate):
                frame, self._incoming = self._incoming, _IncomingFrame()
                if frame.kind is Kind.REGION:
                    self._receive_region(frame)
                elif frame.kind is Kind.RETIRE:
                    self.regions.forget(frame.tag)
                else:
                    content = frame.body if frame.body is not None else memoryview(b"")
                    return ReceivedMessage(frame.tag if frame.kind is Kind.TAGGED else None, content)
        except BowstringError:
            self._incoming.close()
            raise
        return None

    def shut_down(self) -> None:
        """Shut down both directions; this wakes threads that wait for the socket."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        """Close the socket and the received regions; queued messages are discarded. Idempotent."""
        self.is_closed = True
        self._socket.close()
        self._outgoing.clear()
        self._incoming.close()
        self.regions.close()

    def _submit(self, kind: Kind, tag: int, parts: Sequence[BytesLike], region: Region | None = None) -> None:
        views = [view for part in parts if (view := memoryview(part).cast("B")).nbytes]
        length_bytes = sum(view.nbytes for view in views)
        header = memoryview(FRAME.pack(MAGIC, kind, region is not None, 0, tag, length_bytes))
        self._outgoing.append((header, region))
        self._outgoing.extend((view, None) for view in views)
        self.bytes_submitted += FRAME.size + length_bytes

    def _next_views(self) -> tuple[list[memoryview], Region | None]:
        """The buffers of the next `sendmsg`; a frame with a descriptor starts a new call."""
        views: list[memoryview] = []
        for view, region in self._outgoing:
            if len(views) == IOV_MAX or (views and region is not None):
                break
            views.append(view)
        return views, self._outgoing[0][1]

    def _advance(self, count: int) -> None:
        self.bytes_sent += count
        while count:
            view, _ = self._outgoing.popleft()
            if count < view.nbytes:
                self._outgoing.appendleft((view[count:], None))
                return
            count -= view.nbytes

    def _receive_frame(self, allocate: Allocate | None) -> bool:
        """Receive the available bytes of a frame; return whether it is complete."""
        frame = self._incoming
        if frame.body is None:
            while frame.filled < FRAME.size:
                if not self._receive_header(frame):
                    return False
            self._parse_header(frame)
            frame.body = self._allocate_body(frame, allocate)
            frame.filled = 0
        while frame.filled < frame.length_bytes:
            try:
                count = self._socket.recv_into(frame.body[frame.filled :])
            except BlockingIOError:
                return False
            except OSError as error:
                raise self._socket_error(error) from error
            if not count:
                raise self._end_of_input(f"after {frame.filled} of {frame.length_bytes} bytes of a message")
            frame.filled += count
            self.bytes_received += count
        return True

    def _receive_header(self, frame: _IncomingFrame) -> bool:
        """Receive more bytes of the header and its descriptors; return False if none are available."""
        try:
            header, ancillary, flags, _ = self._socket.recvmsg(FRAME.size - frame.filled, _RIGHTS_BYTES, _CLOSE_ON_EXEC)
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._socket_error(error) from error
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                count = len(payload) // _DESCRIPTOR_BYTES
                frame.descriptors.extend(struct.unpack_from(f"{count}i", payload))
        if flags & _TRUNCATED:
            raise ProtocolError(
                "unix socket: more than one descriptor with a frame, or this process can't open more (ulimit -n)"
            )
        if not header:
            raise self._end_of_input(
                "between two messages" if not frame.filled else "in the middle of a frame's header"
            )
        frame.header[frame.filled : frame.filled + len(header)] = header
        frame.filled += len(header)
        self.bytes_received += len(header)
        return True

    def _parse_header(self, frame: _IncomingFrame) -> None:
        magic, kind, descriptors, reserved, frame.tag, frame.length_bytes = FRAME.unpack(frame.header)
        if magic != MAGIC or reserved or kind >= len(_KINDS):
            raise ProtocolError(f"unix socket: expected a frame, found the bytes {frame.header.hex(' ')}")
        frame.kind = _KINDS[kind]
        expected = int(frame.kind is Kind.REGION)
        if descriptors != expected or len(frame.descriptors) != expected:
            num_descriptors = len(frame.descriptors)
            raise ProtocolError(
                f"unix socket: {frame.kind.name} frame with {num_descriptors} descriptors; {descriptors} announced, "
                f"expected {expected}"
            )
        expected_length = _LENGTHS_BYTES.get(frame.kind)
        if expected_length is not None and frame.length_bytes != expected_length:
            raise ProtocolError(
                f"unix socket: a {frame.kind.name} frame has {expected_length} bytes, found {frame.length_bytes}"
            )
        if frame.kind is Kind.PLAIN and frame.tag:
            raise ProtocolError(f"unix socket: a plain message with the tag {frame.tag}")
        options = self.options
        limit = options.max_tagged_bytes if frame.kind is Kind.TAGGED else options.max_plain_bytes
        if frame.length_bytes > limit:
            raise LimitError(f"unix socket: a message of {frame.length_bytes} bytes; at most {limit} are received")

    def _allocate_body(self, frame: _IncomingFrame, allocate: Allocate | None) -> memoryview:
        length_bytes = frame.length_bytes
        if frame.kind in (Kind.PLAIN, Kind.TAGGED):
            buffer = call_allocate(allocate, frame.tag if frame.kind is Kind.TAGGED else None, length_bytes)
            if buffer is not None:
                return buffer
        if length_bytes < _LAZY_BYTES:
            return memoryview(bytearray(length_bytes))
        check_available(length_bytes, "unix socket: a message")
        try:
            # Pages are allocated as bytes arrive, whatever length the peer announced.
            mapping = mmap.mmap(-1, length_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError, ValueError) as error:
            cause = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
            raise ResourceError(f"no memory for a message of {length_bytes} bytes: {error}", cause) from error
        if length_bytes >= _HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
            try:
                mapping.madvise(mmap.MADV_HUGEPAGE)
            except OSError:
                pass
        return memoryview(mapping)

    def _receive_region(self, frame: _IncomingFrame) -> None:
        size_bytes, flags = REGION.unpack(frame.body or b"")
        descriptor = frame.descriptors.pop()
        name = f"region {frame.tag}"
        region = Region.attach(descriptor, size_bytes, accept_files=self.options.accept_files, name=name)
        with close_on_error(region):
            if flags > 1 or region.is_sealed != bool(flags):
                raise ProtocolError(
                    f"unix socket: region {frame.tag} has flags {flags}, which do not match its descriptor"
                )
            self.regions.add(frame.tag, region)
        if not self.options.keep_descriptors:
            region.release_descriptor()

    def _end_of_input(self, where: str) -> BowstringError:
        if self.is_closed:
            return ClosedError("unix socket: closed while receiving")
        return ConnectionLostError(f"unix socket: the peer disconnected {where}")

    def _socket_error(self, error: OSError) -> BowstringError:
        if self.is_closed:
            return ClosedError("unix socket: closed by another thread")
        if error.errno in _NOT_CONNECTED:
            return ConnectionLostError("unix socket: the peer disconnected", error)
        reason = "the peer disconnected" if isinstance(error, ConnectionError) else error.strerror
        return translate_os_error(error, f"unix socket: {reason}")

    def __del__(self) -> None:
        if hasattr(self, "_incoming"):
            self.close()

    def __repr__(self) -> str:
        return f"<UnixChannel {'closed' if self.is_closed else 'open'}, {len(self.regions)} regions received>"
