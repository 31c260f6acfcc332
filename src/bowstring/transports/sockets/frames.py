"""Frames on a byte stream: the format, the queue of frames to send, and the parser (docs/explanation/dissociated.md).

Nothing here uses a socket; `bowstring.transports.sockets.stream_channel` connects it to one.

One call sends many small frames, and one call receives many. The bytes of a long message are received directly into its
destination.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

from bowstring.errors import InvalidArgumentError, ProtocolError
from bowstring.memory.closable import call_on_error
from bowstring.memory.iovec import IOV_MAX
from bowstring.memory.region import FileRange, Region
from bowstring.transports.base import (
    Credit,
    Event,
    MessageOffered,
    MessageReceived,
    RemoteMemoryUpdated,
    TransportOptions,
    allocate_message,
    as_writable_bytes,
)
from bowstring.transports.regions import RegionUpdate

FRAME_HEADER = struct.Struct("<4sBBHQQ")
"""Magic, kind, number of descriptors, zero, tag or region index, length in bytes of the rest."""
MAGIC = b"BWS1"
HELLO_BODY = struct.Struct("<HH")
"""The lowest and the highest version of the frames that the sender can receive."""
REGION_BODY = struct.Struct("<QQ")
"""The size of a region in bytes; 1 for sealed memory, 0 for an ordinary file."""
VERSION = 1  # of the frames, whose range both ends exchange by HELLO

# Many small messages in one call; longer ones than `eager_bytes` are received into their destination.
RECEIVE_BYTES = 1 << 16
_MAX_JOINED_BYTES = 1 << 12
"""The length up to which the parts of a message are joined: copying them takes less time than a vector of parts."""


class FrameKind(IntEnum):
    """The kind of a frame."""

    PLAIN = 0
    TAGGED = 1
    REGION = 2
    RETIRE = 3
    HELLO = 4


_KINDS = tuple(FrameKind)
_HELLO_BODY_BYTES = {FrameKind.HELLO: HELLO_BODY.size}
_REGION_BODY_BYTES = {FrameKind.REGION: REGION_BODY.size, FrameKind.RETIRE: 0, **_HELLO_BODY_BYTES}
"""The kinds besides PLAIN and TAGGED, and the length of each."""
# Globals: in Python 3.11, an attribute of an enumeration takes ten times as long.
PLAIN, TAGGED = FrameKind.PLAIN, FrameKind.TAGGED

FramePart: TypeAlias = bytes | memoryview | FileRange
"""An entry of a queue: bytes, or bytes of a file."""
_BYTE_LENGTH_TYPES = (bytes, FileRange)
"""The types of parts whose length is in bytes."""


class FrameQueue:
    """The frames to send, as buffers of vectored writes."""

    __slots__ = ("_entries", "queued_bytes")

    def __init__(self) -> None:
        self._entries: deque[tuple[FramePart, Region | None]] = deque()
        self.queued_bytes = 0
        """The number of bytes that have not been sent."""

    def submit(self, kind: FrameKind, tag: int, parts: Sequence[Any], region: Region | None = None) -> None:
        """Queue a frame, with the descriptor of `region` if given."""
        # Small messages are bytes, which need no view.
        views = [part if type(part) in _BYTE_LENGTH_TYPES else memoryview(part).cast("B") for part in parts]
        length_bytes = sum(map(len, views))
        self.queued_bytes += FRAME_HEADER.size + length_bytes
        header = FRAME_HEADER.pack(MAGIC, kind, region is not None, 0, tag, length_bytes)
        if length_bytes <= _MAX_JOINED_BYTES and FileRange not in map(type, views):
            self._entries.append((b"".join((header, *views)), region))
        else:
            self._entries.append((header, region))
            self._entries.extend((view, None) for view in views if view)

    def next_file(self) -> FileRange | None:
        """The range of a file to send next, if any."""
        part = self._entries[0][0]
        return part if isinstance(part, FileRange) else None

    def next_buffers(self) -> tuple[list[bytes | memoryview], Region | None]:
        """The buffers of the next call. A frame with a descriptor starts a new one."""
        views: list[bytes | memoryview] = []
        for part, region in self._entries:
            if isinstance(part, FileRange) or len(views) == IOV_MAX or (views and region is not None):
                break
            views.append(part)
        return views, self._entries[0][1]

    def is_followed_by_file(self, num_parts: int) -> bool:
        """Whether a range of a file follows this number of parts."""
        return num_parts < len(self._entries) and isinstance(self._entries[num_parts][0], FileRange)

    def advance(self, sent_bytes: int) -> None:
        """Remove the first bytes, which were sent."""
        self.queued_bytes -= sent_bytes
        while sent_bytes:
            part, _ = self._entries.popleft()
            length_bytes = len(part)
            if sent_bytes < length_bytes:
                rest = part[sent_bytes:] if isinstance(part, FileRange) else memoryview(part)[sent_bytes:]
                # Without the region: the kernel sends a descriptor with the first byte, so it has been sent.
                self._entries.appendleft((rest, None))
                return
            sent_bytes -= length_bytes

    def clear(self) -> None:
        """Discard everything."""
        self._entries.clear()
        self.queued_bytes = 0


@dataclass(slots=True, eq=False)
class IncomingFrame:
    """A frame whose header has arrived. `body` is None until an offer is accepted."""

    kind: FrameKind
    tag: int
    length_bytes: int
    descriptor: int = -1
    filled_bytes: int = 0
    body: memoryview | None = None
    token: int = 0

    def take_descriptor(self) -> int:
        """Return the descriptor, which the caller has to close."""
        descriptor, self.descriptor = self.descriptor, -1
        return descriptor


class FrameParser:
    """Cuts received bytes into frames, and with `receives_regions` pairs descriptors with those of regions."""

    def __init__(self, name: str, options: TransportOptions, *, receives_regions: bool = False) -> None:
        self.name = name
        self.options = options
        self.frame: IncomingFrame | None = None
        self.credit = Credit(name, options)
        self.is_dialer = self.must_answer_hello = False
        self.has_common_version = True
        self.last_kind: FrameKind | None = None
        """The kind of the last frame whose header was read by `parse_frames`, unless another header is incomplete."""
        self.descriptors: list[int] = []
        """The descriptors that were received and belong to no frame yet."""
        self._control_body_bytes = _REGION_BODY_BYTES if receives_regions else _HELLO_BODY_BYTES
        self._num_offers = 0
        self._buffer = b""
        self._offset = 0

    @property
    def is_between_frames(self) -> bool:
        """Whether the next byte is the first of a frame."""
        return self.frame is None and self._offset == len(self._buffer)

    @property
    def buffered_bytes(self) -> int:
        """The number of received bytes that are not cut yet."""
        return len(self._buffer) - self._offset

    @property
    def can_receive(self) -> bool:
        """Whether more bytes can be received."""
        return self.credit.is_available if self.frame is None else self.frame.body is not None

    @property
    def has_buffered_message(self) -> bool:
        """Whether buffered bytes are enough to deliver or offer a message."""
        if not self.buffered_bytes or not self.can_receive:
            return False
        if self.frame is not None:
            return True
        if self.buffered_bytes < FRAME_HEADER.size:
            return False
        length_bytes: int = FRAME_HEADER.unpack_from(self._buffer, self._offset)[5]
        return self.buffered_bytes >= FRAME_HEADER.size + min(length_bytes, self.options.eager_bytes)

    @property
    def position_description(self) -> str:
        """Where the next byte is, for error messages."""
        frame = self.frame
        if frame is not None:
            return f"after {frame.filled_bytes} of {frame.length_bytes} bytes of a message"
        return "in the middle of a frame's header" if self.buffered_bytes else "between two messages"

    def remaining_destination(self) -> memoryview | None:
        """The memory to receive into directly, if the next bytes belong to an accepted message."""
        frame = self.frame
        if frame is None or self.buffered_bytes or frame.body is None:
            return None
        return frame.body[frame.filled_bytes :]

    def advance(self, received_bytes: int, events: list[Event]) -> None:
        """Record that bytes were received into the destination."""
        assert self.frame is not None
        self.frame.filled_bytes += received_bytes
        if self.frame.filled_bytes == self.frame.length_bytes:
            self._deliver(self.frame, events)

    def feed(self, received: bytes) -> None:
        """Add received bytes."""
        self._buffer, self._offset = self._buffer[self._offset :] + received, 0

    def parse_frames(self, events: list[Event]) -> bool:
        """Cut the received bytes into frames; return whether more bytes are needed."""
        self.last_kind = None
        first_event = len(events)
        while True:
            frame = self.frame
            if frame is None:
                if len(self._buffer) - self._offset < FRAME_HEADER.size:
                    break
                if not self.credit.is_available:
                    return False
                kind, tag, length_bytes, descriptor = self._parse_header()
                self.last_kind = kind
                message_tag = tag if kind is TAGGED else None
                if kind <= TAGGED and self.credit.consume(message_tag, length_bytes):
                    frame = self.frame = IncomingFrame(kind, tag, length_bytes, descriptor)
                    self._num_offers += 1
                    frame.token = self._num_offers
                    events.append(MessageOffered(frame.token, message_tag, length_bytes))
                    return False
                # Short frames are copied once, out of the buffer: a view would keep all of it alive as long as the
                # caller has the message.
                content = self._buffer[self._offset : self._offset + length_bytes]
                filled_bytes = len(content)
                self._offset += filled_bytes
                if filled_bytes == length_bytes and kind <= TAGGED:
                    events.append(MessageReceived(message_tag, memoryview(content)))
                    continue
                frame = self.frame = IncomingFrame(kind, tag, length_bytes, descriptor)
                frame.filled_bytes = filled_bytes
                frame.body = memoryview(bytearray(content).ljust(length_bytes, b"\0"))
            elif frame.body is None:
                return False
            else:
                self._fill_from_buffer(frame, frame.body)
            if frame.filled_bytes < frame.length_bytes:
                break
            self._deliver(frame, events)
        if self.buffered_bytes:
            self.last_kind = None
        # One that arrived with the end of the bytes may belong to the next, incomplete header.
        if len(self.descriptors) > (self.last_kind is None):
            del events[first_event:]
            kind = PLAIN if self.last_kind is None else self.last_kind
            raise ProtocolError(f"{self.name}: {kind.name} frame with {len(self.descriptors)} descriptors")
        return True

    def accept_offered_message(self, token: int, destination: Any) -> None:
        """As `Channel.accept_offered_message`."""
        frame = self.frame
        if frame is None or frame.token != token or frame.body is not None:
            raise InvalidArgumentError(f"{self.name}: message {token} is not offered")
        if destination is None:
            frame.body = allocate_message(frame.length_bytes, f"{self.name}: a message")
        else:
            frame.body = as_writable_bytes(destination, frame.length_bytes)

    def close(self) -> None:
        """Discard the received bytes, and close the descriptors."""
        if self.frame is not None and self.frame.descriptor >= 0:
            os.close(self.frame.take_descriptor())
        self._buffer, self._offset, self.frame = b"", 0, None
        while self.descriptors:
            os.close(self.descriptors.pop())

    def _fill_from_buffer(self, frame: IncomingFrame, body: memoryview) -> None:
        """Move buffered bytes into a frame's body."""
        count = min(self.buffered_bytes, frame.length_bytes - frame.filled_bytes)
        if count:
            body[frame.filled_bytes : frame.filled_bytes + count] = memoryview(self._buffer)[
                self._offset : self._offset + count
            ]
        frame.filled_bytes += count
        self._offset += count

    def _deliver(self, frame: IncomingFrame, events: list[Event]) -> None:
        """Report a complete frame."""
        kind = frame.kind
        if kind <= TAGGED:
            events.append(MessageReceived(frame.tag if kind is TAGGED else None, frame.body))
        elif kind is FrameKind.HELLO:
            self._check_version(frame)
        else:
            events.append(self._parse_control_frame(frame))
        self.frame = None

    def _parse_header(self) -> tuple[FrameKind, int, int, int]:
        """Return the kind, the tag, the length in bytes and the descriptor (or -1) of the next frame."""
        magic, number, descriptors, reserved, tag, length_bytes = FRAME_HEADER.unpack_from(self._buffer, self._offset)
        is_frame = magic == MAGIC and not reserved and number < len(_KINDS)
        if not is_frame or (number > TAGGED and _KINDS[number] not in self._control_body_bytes):
            header = self._buffer[self._offset : self._offset + FRAME_HEADER.size]
            raise ProtocolError(f"{self.name}: expected a frame, found the bytes {header.hex(' ')}")
        self._offset += FRAME_HEADER.size
        kind = _KINDS[number]
        if number > TAGGED:
            if length_bytes != (expected := self._control_body_bytes[kind]):
                raise ProtocolError(f"{self.name}: a {kind.name} frame has {expected} bytes, found {length_bytes}")
            return kind, tag, length_bytes, self._take_descriptor(kind, descriptors)
        if kind is PLAIN and tag:
            raise ProtocolError(f"{self.name}: a plain message with the tag {tag}")
        return kind, tag, length_bytes, self._take_descriptor(kind, descriptors) if descriptors else -1

    def _take_descriptor(self, kind: FrameKind, num_announced: int) -> int:
        """Return the descriptor of a frame, or -1. Raises `ProtocolError` for another number than announced."""
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

    def _check_version(self, frame: IncomingFrame) -> None:
        """Compare the versions. If the peer dialed, the answer precedes the next submitted message."""
        lowest, highest = HELLO_BODY.unpack(frame.body or b"")
        self.must_answer_hello = not self.is_dialer
        self.has_common_version = lowest <= VERSION <= highest
        if not self.has_common_version:
            raise ProtocolError(
                f"{self.name}: the peer receives frames of version {lowest} to {highest}, this end sends {VERSION}"
            )
