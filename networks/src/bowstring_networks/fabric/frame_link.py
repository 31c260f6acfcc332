"""Frames between two endpoints of libfabric, with flow control.

A frame is a message without a tag: a header, and the content of a short message. Its receiver has posted a buffer for
it: no more frames with messages are sent than the peer can receive, and every header contains the number of frames
that its sender has freed. Frames without a message are few, and are not counted.

A frame has the number of its message in this direction, so frames may arrive in any order. The content of a long
message follows as tagged messages, when its receiver is ready: parts with the tags `number << 20 | index`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from bowstring.errors import BowstringError, ProtocolError
from bowstring.memory.buffer import Memory
from bowstring_networks.fabric.control_socket import Hello
from bowstring_networks.fabric.endpoint import TAG_BITS, Endpoint, Operation

_HEADER = struct.Struct("<B7xQQQQ")
# Most headers of batches fit a frame; longer messages are announced and sent in parts.
FRAME_BYTES = 4096
# The frames that a peer may send before it hears of free ones: 128 KiB of memory per connection.
NUM_FRAMES = 32
# For frames without a message, which are not counted.
_SPARE_FRAMES = 8
# 2**20 parts of 4 MiB are messages of 4 TiB; 40 bits are left for the number of a message.
_PART_INDEX_BITS = 20
MAX_MESSAGE_NUMBER = (1 << TAG_BITS - _PART_INDEX_BITS) - 1
"""The maximum number of a message."""


class FabricFrameKind(IntEnum):
    """The kind of a frame."""

    PLAIN = 0
    """A plain message of `size` bytes: its content, or the announcement of a longer one."""
    TAGGED = 1
    """A tagged message of `size` bytes, with `tag`."""
    READY = 2
    """The receiver of the long message `number` is ready for its content."""
    FREED = 3
    """Only the number of freed frames."""
    END = 4
    """`number` messages were sent, and no more follow."""


class Frame(NamedTuple):
    """A received frame, whose content is in a buffer until `FrameLink.recycle_frame`."""

    kind: int
    number: int
    tag: int | None
    length_bytes: int
    content: memoryview | None
    """The content of a message; None for the announcement of a long one, and for frames without a message."""
    buffer: Memory


class FrameLink:
    """Sends and receives frames, and the content of long messages, between an endpoint and its only peer."""

    def __init__(self, endpoint: Endpoint, name: str) -> None:
        self.endpoint = endpoint
        self.name = name
        self.hello = Hello(NUM_FRAMES, FRAME_BYTES, endpoint.address)
        self.is_connected = False
        """Whether the peer's HELLO was received."""
        self._peer = 0
        self._peer_frame_bytes = 0
        self._num_free = 0
        """The number of frames with messages that the peer can receive."""
        # Counts since the beginning, not differences: a frame that overtakes another must not free something twice.
        self._num_sent = self._num_freed_by_peer = 0
        self._num_received = self._num_freed = self._num_reported = 0
        self.error: BowstringError | None = None
        """The error of the first operation that failed: messages may be lost."""
        self._control_frames: deque[tuple[FabricFrameKind, int]] = deque()
        self._sends_in_progress: set[Operation] = set()
        self._posted_buffers: dict[Operation, Memory] = {}
        self._unposted_buffers = [Memory(bytearray(FRAME_BYTES)) for _ in range(NUM_FRAMES + _SPARE_FRAMES)]
        self._post_receives()

    @property
    def can_send(self) -> bool:
        """Whether the peer can receive a message."""
        return self.is_connected and self._num_sent - self._num_freed_by_peer < self._num_free

    @property
    def has_unsent_frames(self) -> bool:
        """Whether frames have not left this process."""
        return bool(self._control_frames or self._sends_in_progress)

    def connect(self, hello: Hello, host: str) -> None:
        """Use the address of the peer, which is at `host`. Raises `ProtocolError` as `Endpoint.add_peer`."""
        self._peer = self.endpoint.add_peer(hello.address, host)
        self._peer_frame_bytes = min(hello.frame_bytes, FRAME_BYTES)
        self._num_free = hello.num_frames
        self.is_connected = True

    def fits_in_frame(self, size_bytes: int) -> bool:
        """Whether a message of this size fits into a frame."""
        return size_bytes <= self._peer_frame_bytes - _HEADER.size

    def send_message_frame(self, number: int, tag: int | None, size_bytes: int, content: Sequence[Any]) -> bool:
        """Send a copy of a short message, or announce a long one. False: try again after `progress`."""
        kind = FabricFrameKind.PLAIN if tag is None else FabricFrameKind.TAGGED
        is_started = self._send_frame(kind, number, tag or 0, size_bytes, content)
        self._num_sent += is_started
        return is_started

    def send_part(self, buffers: Sequence[Memory], number: int, index: int) -> Operation | None:
        """Send a part of the content of a long message. None: try again after `progress`."""
        return self.endpoint.send_tagged(buffers, self._peer, number << _PART_INDEX_BITS | index)

    def receive_part(self, memory: Memory, number: int, index: int) -> Operation | None:
        """Receive a part of the content of a long message. None: try again after `progress`."""
        return self.endpoint.receive_tagged(memory, number << _PART_INDEX_BITS | index)

    def fetch(self, memory: Memory, address: int, key: int) -> Operation | None:
        """Copy the peer's registered memory into a buffer. None: try again after `progress`."""
        return self.endpoint.fetch(memory, self._peer, address, key)

    def send_control_frame(self, kind: FabricFrameKind, number: int) -> None:
        """Send a frame without a message, at once or with the next `progress` that can send it."""
        self._control_frames.append((kind, number))
        self._send_control_frames()

    def recycle_frame(self, frame: Frame) -> None:
        """Use the buffer of a frame again. The content must not be used any more."""
        self._unposted_buffers.append(frame.buffer)
        self._num_freed += 1
        # Only for a peer to which this end sends nothing else: every header has the number.
        if self._num_freed - self._num_reported >= NUM_FRAMES // 2:
            self._num_reported = self._num_freed
            self.send_control_frame(FabricFrameKind.FREED, 0)

    def progress(self) -> list[Frame]:
        """Return the frames that have arrived. Raises `ProtocolError`, `ClosedError`, `ConnectionLostError`."""
        frames = []
        for operation in self.endpoint.progress():
            self._sends_in_progress.discard(operation)
            buffer = self._posted_buffers.pop(operation, None)
            if operation.error is not None:
                self.error = self.error or operation.error
            elif buffer is not None:
                frames.append(self._parse_frame(buffer, operation.length_bytes))
        self._send_control_frames()
        self._post_receives()
        return frames

    def _send_frame(
        self, kind: FabricFrameKind, number: int, tag: int, size_bytes: int, content: Sequence[Any]
    ) -> bool:
        header = _HEADER.pack(kind, number, tag, size_bytes, self._num_freed)
        # A copy, which is cheap for 4 KiB: the caller's parts are free at once.
        memory = Memory(b"".join((header, *content)))
        operation = self.endpoint.send(memory, memory.size, self._peer)
        if operation is None:
            return False
        self._sends_in_progress.add(operation)
        self._num_reported = self._num_freed
        return True

    def _send_control_frames(self) -> None:
        """Send frames without a message, until libfabric's queue is full."""
        while self._control_frames and self.is_connected:
            kind, number = self._control_frames[0]
            if not self._send_frame(kind, number, 0, 0, ()):
                return
            self._control_frames.popleft()

    def _post_receives(self) -> None:
        """Receive into the buffers that are free."""
        while self._unposted_buffers and (operation := self.endpoint.receive(self._unposted_buffers[-1])) is not None:
            self._posted_buffers[operation] = self._unposted_buffers.pop()

    def _parse_frame(self, buffer: Memory, size_bytes: int) -> Frame:
        if size_bytes < _HEADER.size:
            raise ProtocolError(f"{self.name}: a frame has {size_bytes} bytes, less than its header")
        view = memoryview(buffer.owner)[:size_bytes]
        kind, number, tag, length_bytes, num_freed = _HEADER.unpack_from(view)
        if num_freed > self._num_sent:
            raise ProtocolError(f"{self.name}: the peer has freed {num_freed} frames, but {self._num_sent} were sent")
        self._num_freed_by_peer = max(self._num_freed_by_peer, num_freed)
        if kind > FabricFrameKind.END:
            raise ProtocolError(f"{self.name}: found a frame of the unknown kind {kind}")
        if kind > FabricFrameKind.TAGGED:
            self._unposted_buffers.append(buffer)
            return Frame(kind, number, None, 0, None, buffer)
        self._num_received += 1
        if self._num_received - self._num_freed > NUM_FRAMES:
            raise ProtocolError(f"{self.name}: the peer sent more than the {NUM_FRAMES} frames that there is space for")
        tag = tag if kind == FabricFrameKind.TAGGED else None
        content = view[_HEADER.size :]
        if not content and length_bytes:
            return Frame(kind, number, tag, length_bytes, None, buffer)
        if len(content) != length_bytes:
            raise ProtocolError(f"{self.name}: frame {number}: expected {length_bytes} bytes, found {len(content)}")
        return Frame(kind, number, tag, length_bytes, content, buffer)
