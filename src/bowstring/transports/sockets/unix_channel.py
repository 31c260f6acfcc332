"""One end of a unix socket: frames, vectored sends, and file descriptors (SCM_RIGHTS).

The socket is a stream socket with Bowstring's own frames (docs/explanation/dissociated.md), because a message of a
sequenced-packet socket has to fit the socket's buffer of some 200 KB; a schema of ten thousand columns does not.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Mapping
from typing import ClassVar

from bowstring.errors import ConnectionLostError, ProtocolError
from bowstring.memory.closable import call_on_error
from bowstring.memory.region import Region
from bowstring.transports.base import (
    BOTH_DIRECTIONS,
    DEFAULT_OPTIONS,
    ChannelTraits,
    Event,
    PeerIdentity,
    RemoteMemoryUpdated,
    TransportOptions,
    Wait,
)
from bowstring.transports.regions import RegionUpdate, RemoteRegionTable
from bowstring.transports.sockets.frames import HELLO_BODY, FrameKind, FrameParser, IncomingFrame
from bowstring.transports.sockets.stream_channel import MEMORY_KINDS, StreamChannel
from bowstring.transports.sockets.unix_socket import CONNECT_RETRY_S, peer_credentials, try_connect

REGION_BODY = struct.Struct("<QQ")
"""The size of a region in bytes; 1 for sealed memory, 0 for an ordinary file."""

# A body is sent in few calls, while the reader runs; the kernel caps it at net.core.wmem_max without an error.
_SOCKET_BUFFER_BYTES = 4 << 20
_DESCRIPTOR_BYTES = 4  # a C int
_RIGHTS_BYTES = socket.CMSG_SPACE(_DESCRIPTOR_BYTES)
# Plain integers: the enum flags of the socket module are slow in a loop.
_CLOSE_ON_EXEC = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))
_NO_SIGNAL = int(getattr(socket, "MSG_NOSIGNAL", 0))
_TRUNCATED = int(socket.MSG_CTRUNC)


class UnixFrameParser(FrameParser):
    """Adds regions, and pairs descriptors with their frames."""

    control_body_bytes: ClassVar[Mapping[FrameKind, int]] = {
        FrameKind.REGION: REGION_BODY.size,
        FrameKind.RETIRE: 0,
        FrameKind.HELLO: HELLO_BODY.size,
    }

    def __init__(self, name: str, options: TransportOptions, tokens: Iterator[int]) -> None:
        super().__init__(name, options, tokens)
        self.descriptors: list[int] = []

    @property
    def has_descriptors(self) -> bool:
        return bool(self.descriptors)

    def parse_frames(self, events: list[Event]) -> bool:
        first_event = len(events)
        needs_more = super().parse_frames(events)
        # One that arrived with the end of the bytes may belong to the next, incomplete header.
        if needs_more and len(self.descriptors) > (self.last_kind is None):
            del events[first_event:]
            kind = FrameKind.PLAIN if self.last_kind is None else self.last_kind
            raise ProtocolError(f"{self.name}: {kind.name} frame with {len(self.descriptors)} descriptors")
        return needs_more

    def close(self) -> None:
        """As `FrameParser.close`; also closes the descriptors."""
        if self.frame is not None and self.frame.descriptor >= 0:
            os.close(self.frame.take_descriptor())
        super().close()
        while self.descriptors:
            os.close(self.descriptors.pop())

    def _take_descriptor(self, kind: FrameKind, num_announced: int) -> int:
        expected = int(kind is FrameKind.REGION)
        if num_announced != expected or (expected and len(self.descriptors) != expected):
            raise ProtocolError(
                f"{self.name}: {kind.name} frame with {len(self.descriptors)} descriptors; {num_announced} announced, "
                f"expected {expected}"
            )
        return self.descriptors.pop() if expected else -1

    def _parse_control_frame(self, frame: IncomingFrame) -> Event:
        region = self._open_region(frame) if frame.kind is FrameKind.REGION else None
        return RemoteMemoryUpdated(RegionUpdate(frame.tag, region), is_retirement=region is None)

    def _open_region(self, frame: IncomingFrame) -> Region:
        size_bytes, flags = REGION_BODY.unpack(frame.body or b"")
        name = f"region {frame.tag}"
        # `attach` owns the descriptor from here on, and closes it if it raises.
        region = Region.attach(frame.take_descriptor(), size_bytes, accept_files=self.options.accept_files, name=name)
        with call_on_error(region.close):
            if flags > 1 or region.is_sealed != bool(flags):
                raise ProtocolError(
                    f"{self.name}: region {frame.tag} has flags {flags}, which do not match its descriptor"
                )
            # A client that reads many regions would otherwise need as many descriptors.
            if not self.options.keep_descriptors:
                region.release_descriptor()
        return region


class UnixChannel(StreamChannel):
    """One end of a connection; created by `dial`, `UnixListener.accept` or `pair`."""

    parser_type = UnixFrameParser
    _parser: UnixFrameParser

    def __init__(self, connection: socket.socket, options: TransportOptions = DEFAULT_OPTIONS) -> None:
        super().__init__(connection, "unix socket", options)
        self.memory = RemoteRegionTable(options.max_regions)
        """The received regions, as the events `RemoteMemoryUpdated` report them."""
        self.num_regions_sent = 0
        self._pending_address: str | None = None

    @classmethod
    def from_socket(cls, connection: socket.socket, options: TransportOptions = DEFAULT_OPTIONS) -> UnixChannel:
        """Wrap a connected socket. If its peer is another user, close it and raise `ConnectionLostError`."""
        channel = cls(connection, options)
        with call_on_error(channel.close):
            channel._check_peer()
        return channel

    @classmethod
    def dial(cls, address: str, options: TransportOptions = DEFAULT_OPTIONS) -> UnixChannel:
        """As `Transport.dial`. The first frame is a HELLO."""
        connection, is_connected = try_connect(address)
        channel = cls(connection, options)
        channel._parser.is_dialer = True
        channel._submit_hello()
        with call_on_error(channel.close):
            if is_connected:
                channel._check_peer()
            else:
                channel._pending_address, channel.is_connected = address, False
        return channel

    def next_wait(self, directions: int = BOTH_DIRECTIONS) -> Wait:
        return super().next_wait(directions) if self.is_connected else Wait([], CONNECT_RETRY_S)

    @property
    def wait_description(self) -> str:
        return super().wait_description if self.is_connected else f"unix socket {self._pending_address!r}: connecting"

    def submit_region(self, index: int, region: Region) -> None:
        """As `RegionSender.submit_region`. The region has to stay open until it is sent."""
        self._answer_hello()
        body = REGION_BODY.pack(region.size_bytes, region.is_sealed)
        self._queue.submit([(FrameKind.REGION, index, (body,))], region)

    def submit_retirement(self, index: int) -> None:
        """As `RegionSender.submit_retirement`."""
        self._answer_hello()
        self._queue.submit([(FrameKind.RETIRE, index, ())])

    def close(self) -> None:
        """As `Channel.close`; also closes the received regions."""
        super().close()
        self.memory.close()

    def _check_peer(self) -> None:
        """Check the peer of the connected socket."""
        process_id, user_id, _ = peer_credentials(self._socket)
        # Checked before the first byte is received. The credentials are those at the time of `connect` or `listen`, so
        # a peer can't change them.
        if user_id not in (os.getuid(), 0) and not self.options.allow_other_users:
            raise ConnectionLostError(f"unix socket: refused a peer of user {user_id}; we are {os.getuid()}")
        self.traits = ChannelTraits(memory_kinds=MEMORY_KINDS, peer=PeerIdentity(user_id, process_id))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)

    def _continue_connecting(self) -> bool:
        """Try to connect again, because the listener's queue was full, for which poll can't wait."""
        assert self._pending_address is not None
        connection, is_connected = try_connect(self._pending_address, self._socket)
        if is_connected:
            self._socket, self._pending_address = connection, None
            self._check_peer()
        return is_connected

    def _read(self, size_bytes: int) -> bytes:
        """Receive bytes of frames and a descriptor."""
        # There is space for one descriptor, or two because of alignment: the kernel closes others, and reports that as
        # truncated. It ends a read after the bytes sent with a descriptor, so these are the last ones.
        received, ancillary, flags, _ = self._socket.recvmsg(size_bytes, _RIGHTS_BYTES, _CLOSE_ON_EXEC)
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                count = len(payload) // _DESCRIPTOR_BYTES
                self._parser.descriptors.extend(struct.unpack_from(f"{count}i", payload))
        # After the descriptors are recorded: the parser closes them with the connection.
        if flags & _TRUNCATED:
            raise ProtocolError(
                "unix socket: more than one descriptor with a frame, or this process can't open more (ulimit -n)"
            )
        return received

    def _write(self, views: list[bytes | memoryview], region: Region | None) -> int:
        rights: list[tuple[int, int, bytes]] = []
        if region is not None:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", region.descriptor))]
        return self._socket.sendmsg(views, rights, _NO_SIGNAL)

    def __repr__(self) -> str:
        return f"<UnixChannel {'closed' if self.is_closed else 'open'}, {len(self.memory)} regions received>"
