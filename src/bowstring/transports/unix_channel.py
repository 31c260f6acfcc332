"""One end of a unix socket that never blocks: frames, messages by scatter-gather, and descriptors passed with them.

A stream socket with frames of our own, because a datagram of a sequenced-packet socket has to fit the socket's buffer
(some 200 KB), and a schema of ten thousand columns or a body does not. docs/dissociated.md describes the frames.

What is submitted waits in a queue until `flush` finds room in the socket; `receive` returns a message when all of it
has arrived. Who waits, and for how long, is up to the caller: `UnixTransport` waits with a deadline, an event loop
serves other connections meanwhile. One thread may flush while another receives.
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
from bowstring.transports.base import DEFAULT_OPTIONS, Allocate, Received, RegionIndexes, TransportOptions, allocated
from bowstring.transports.regions import RegionTable
from bowstring.transports.unix_address import peer_uid

FRAME = struct.Struct("<4sBBHQQ")
"""Magic, kind, number of descriptors, zero, tag or region index, length in bytes of what follows."""
MAGIC = b"BWS1"
REGION = struct.Struct("<QQ")
"""The size of a passed region in bytes; 1 for sealed memory or 0 for an ordinary file."""

_LAZY_BYTES = 1 << 16
_HUGE_BYTES = 8 << 20
_SOCKET_BUFFER_BYTES = 4 << 20
_CALLS_PER_FLUSH = 16
_DESCRIPTOR_BYTES = 4
_RIGHTS_BYTES = socket.CMSG_SPACE(_DESCRIPTOR_BYTES)
# As plain numbers: the flags of the socket module are enumerations, and slow in a loop.
_CLOSE_ON_EXEC = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))
_NO_SIGNAL = int(getattr(socket, "MSG_NOSIGNAL", 0))
_TRUNCATED = int(socket.MSG_CTRUNC)
_NOT_CONNECTED = {errno.ENOTCONN, errno.EBADF}


class Kind(IntEnum):
    """What a frame carries."""

    PLAIN = 0
    TAGGED = 1
    REGION = 2
    RETIRE = 3


_KINDS = tuple(Kind)
_EXACT_BYTES = {Kind.REGION: REGION.size, Kind.RETIRE: 0}


class _Inbound:
    """The frame that is arriving."""

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


class UnixChannel(Closable):
    """One end of a connection; nothing here waits.

    After an error of `receive` nothing more is received, but what was submitted can still be sent.
    """

    def __init__(self, connected: socket.socket, options: TransportOptions = DEFAULT_OPTIONS) -> None:
        """Take a connected socket; it is closed where its peer is refused (`ConnectionLostError`)."""
        self.options = options
        self.regions = RegionTable(options.max_regions)
        """The regions that the peer passed."""
        self.passed = RegionIndexes()
        """The regions that this end passed."""
        self.bytes_received = 0
        self.bytes_sent = 0
        self.bytes_submitted = 0
        self._socket = connected
        self._inbound = _Inbound()
        self._outbound: deque[tuple[memoryview, Region | None]] = deque()
        self.is_closed = False
        connected.setblocking(False)
        with close_on_error(self):
            uid = peer_uid(connected)
            if uid not in (os.getuid(), 0) and not options.allow_other_users:
                raise ConnectionLostError(f"unix socket: refused a peer of user {uid}; we are {os.getuid()}")
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)

    def fileno(self) -> int:
        """The socket's descriptor, to wait for with select; -1 after `close`."""
        return self._socket.fileno()

    @property
    def has_output(self) -> bool:
        """Whether something that was submitted has not been sent."""
        return bool(self._outbound)

    @property
    def queued_bytes(self) -> int:
        """How much of what was submitted has not been sent."""
        return self.bytes_submitted - self.bytes_sent

    @property
    def is_receiving(self) -> bool:
        """Whether a part of a frame has arrived."""
        return self._inbound.filled > 0 or self._inbound.body is not None

    def submit(self, parts: Sequence[BytesLike], tag: int | None = None) -> None:
        """Queue one message, plain or with a tag. Not copied: the bytes of `parts` must not change until sent."""
        self._submit(Kind.PLAIN if tag is None else Kind.TAGGED, tag or 0, parts)

    def submit_region(self, region: Region) -> int:
        """Queue a region for the peer; its index. The region has to stay open until it is sent. Raises `UsageError`."""
        index = self.passed.next()
        self._submit(Kind.REGION, index, (REGION.pack(region.size_bytes, region.is_sealed),), region)
        self.passed.count += 1
        return index

    def submit_retirement(self, index: int) -> None:
        """Queue that no later message refers to a region. Raises `UsageError` for one that was not passed."""
        self.passed.check(index)
        self._submit(Kind.RETIRE, index, ())

    def withdraw(self, position: int) -> bool:
        """Take back what was submitted since `bytes_submitted` was `position`; False if a part of it is sent."""
        if self.bytes_sent > position:
            return False
        while self.bytes_submitted > position:
            view, region = self._outbound.pop()
            self.bytes_submitted -= view.nbytes
            self.passed.count -= region is not None
        return True

    def flush(self) -> bool:
        """Send what the socket takes now, some megabytes at the most; whether nothing is left.

        Raises `ConnectionLostError`, `ClosedError`, `ResourceError`.
        """
        for _ in range(_CALLS_PER_FLUSH):
            if not self._outbound:
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
        return not self._outbound

    def receive(self, allocate: Allocate | None = None) -> Received | None:
        """The next message, None if not all of it has arrived. Regions that arrive before it are put into `regions`.

        The bytes go straight to their destination. Raises what `Transport.receive` raises, without deadlines.
        """
        try:
            while self._receive_frame(allocate):
                frame, self._inbound = self._inbound, _Inbound()
                if frame.kind is Kind.REGION:
                    self._take_region(frame)
                elif frame.kind is Kind.RETIRE:
                    self.regions.forget(frame.tag)
                else:
                    content = frame.body if frame.body is not None else memoryview(b"")
                    return Received(frame.tag if frame.kind is Kind.TAGGED else None, content)
        except BowstringError:
            self._inbound.close()
            raise
        return None

    def shut_down(self) -> None:
        """End the connection in both directions: whoever waits for this socket is woken up."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        """Close the socket, and let go of the received regions. What was not sent is not sent any more. Idempotent."""
        self.is_closed = True
        self._socket.close()
        self._outbound.clear()
        self._inbound.close()
        self.regions.close()

    def _submit(self, kind: Kind, tag: int, parts: Sequence[BytesLike], region: Region | None = None) -> None:
        views = [view for part in parts if (view := memoryview(part).cast("B")).nbytes]
        length_bytes = sum(view.nbytes for view in views)
        head = memoryview(FRAME.pack(MAGIC, kind, region is not None, 0, tag, length_bytes))
        self._outbound.append((head, region))
        self._outbound.extend((view, None) for view in views)
        self.bytes_submitted += FRAME.size + length_bytes

    def _next_views(self) -> tuple[list[memoryview], Region | None]:
        """What one call can send: a frame with a descriptor begins a call of its own."""
        views: list[memoryview] = []
        for view, region in self._outbound:
            if len(views) == IOV_MAX or (views and region is not None):
                break
            views.append(view)
        return views, self._outbound[0][1]

    def _advance(self, count: int) -> None:
        self.bytes_sent += count
        while count:
            view, _ = self._outbound.popleft()
            if count < view.nbytes:
                self._outbound.appendleft((view[count:], None))
                return
            count -= view.nbytes

    def _receive_frame(self, allocate: Allocate | None) -> bool:
        """Receive what has arrived of one frame; whether it is all of it."""
        frame = self._inbound
        if frame.body is None:
            while frame.filled < FRAME.size:
                if not self._receive_head(frame):
                    return False
            self._read_head(frame)
            frame.body = self._destination(frame, allocate)
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

    def _receive_head(self, frame: _Inbound) -> bool:
        """Receive some more of the frame's head, and the descriptors that come with it; whether there was any."""
        try:
            head, ancillary, flags, _ = self._socket.recvmsg(FRAME.size - frame.filled, _RIGHTS_BYTES, _CLOSE_ON_EXEC)
        except BlockingIOError:
            return False
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
        if not head:
            raise self._end_of_input("between two messages" if not frame.filled else "in the middle of a frame's head")
        frame.head[frame.filled : frame.filled + len(head)] = head
        frame.filled += len(head)
        self.bytes_received += len(head)
        return True

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
        length_bytes = frame.length_bytes
        if frame.kind in (Kind.PLAIN, Kind.TAGGED):
            given = allocated(allocate, frame.tag if frame.kind is Kind.TAGGED else None, length_bytes)
            if given is not None:
                return given
        if length_bytes < _LAZY_BYTES:
            return memoryview(bytearray(length_bytes))
        check_available(length_bytes, "unix socket: a message")
        try:
            # Its pages come into being as bytes arrive, whatever length the peer announced.
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

    def _take_region(self, frame: _Inbound) -> None:
        size_bytes, flags = REGION.unpack(frame.body or b"")
        descriptor = frame.descriptors.pop()
        name = f"region {frame.tag}"
        region = Region.attach(descriptor, size_bytes, accept_files=self.options.accept_files, name=name)
        with close_on_error(region):
            if flags > 1 or region.is_sealed != bool(flags):
                raise ProtocolError(f"unix socket: region {frame.tag} has flags {flags}, its descriptor says otherwise")
            self.regions.add(frame.tag, region)
        if not self.options.keep_descriptors:
            region.release_descriptor()

    def _end_of_input(self, where: str) -> BowstringError:
        if self.is_closed:
            return ClosedError("unix socket: closed while receiving")
        return ConnectionLostError(f"unix socket: the peer is gone {where}")

    def _socket_error(self, error: OSError) -> BowstringError:
        if self.is_closed:
            return ClosedError("unix socket: closed by another thread")
        if error.errno in _NOT_CONNECTED:
            return ConnectionLostError("unix socket: the peer is gone", error)
        reason = "the peer is gone" if isinstance(error, ConnectionError) else error.strerror
        return translate_os_error(error, f"unix socket: {reason}")

    def __del__(self) -> None:
        if hasattr(self, "_inbound"):
            self.close()

    def __repr__(self) -> str:
        return f"<UnixChannel {'closed' if self.is_closed else 'open'}, {len(self.regions)} regions received>"
