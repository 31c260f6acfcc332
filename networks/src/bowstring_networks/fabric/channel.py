"""Channels over libfabric («Requirements»): ordered messages between two endpoints.

A channel has an endpoint of its own; both ends exchange their addresses over a TCP connection (`control_socket`).
Short messages are frames (`frame_link`), long ones are announced by a frame. Their content is received directly into
its destination, in parts of at most 4 MiB: tagged messages, which are sent when the receiver is ready for them.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from bowstring.dissociated.messages import BytesLike
from bowstring.errors import BowstringError, ConnectionLostError, ProtocolError
from bowstring.memory.buffer import Memory
from bowstring.transports.base import RECEIVE, ChannelTraits, Event, Interest, MessageReceived, TransportOptions
from bowstring_networks.fabric.control_socket import ControlSocket
from bowstring_networks.fabric.endpoint import Endpoint, Operation
from bowstring_networks.fabric.frame_link import MAX_MESSAGE_NUMBER, FabricFrameKind, Frame, FrameLink
from bowstring_networks.message_channel import (
    MAX_SEND_WAIT_S,
    RETRY_S,
    MessageChannel,
    MessageReceiver,
    MessageSender,
    SubmittedMessage,
    join_small_parts,
)

_PART_BYTES = 1 << 22
"""The maximum length of a part of a long message."""
_SMALL_BYTES = 1 << 12
"""Smaller buffers are joined, because a part consists of only a few."""
# The next part is on the way while the previous one is acknowledged; more would only take memory of the provider.
_MAX_STARTED_PARTS = 2
_GRACE_S = 0.5
"""How long messages may arrive after the end of the TCP connection."""


class _OutgoingLongMessage:
    """The content of a long message, which is being sent part by part."""

    __slots__ = ("_next_part", "_num_started", "_number", "_parts", "_started", "message")

    def __init__(self, message: SubmittedMessage, number: int, num_buffers: int) -> None:
        self.message = message
        self._number = number
        self._parts = _split_into_parts(message.parts, num_buffers)
        self._next_part = next(self._parts, None)
        self._num_started = 0
        self._started: list[tuple[Operation, int]] = []

    @property
    def is_sent(self) -> bool:
        return self._next_part is None and not self._started

    def progress(self, link: FrameLink) -> int:
        """Start parts; return the number of bytes that were sent."""
        # Also of an operation that failed: `MessageChannel._send` raises the error of the link before it calls this.
        sent_bytes = sum(length_bytes for operation, length_bytes in self._started if operation.is_done)
        self._started = [entry for entry in self._started if not entry[0].is_done]
        while self._next_part is not None and len(self._started) < _MAX_STARTED_PARTS:
            operation = link.send_part(self._next_part, self._number, self._num_started)
            if operation is None:
                break
            self._started.append((operation, sum(memory.size for memory in self._next_part)))
            self._num_started += 1
            self._next_part = next(self._parts, None)
        return sent_bytes


class _Sender(MessageSender):
    """Sends messages over a link."""

    def __init__(self) -> None:
        super().__init__()
        self.link: FrameLink | None = None
        """Where messages are sent, once the endpoint is open."""
        self._next_number = 0
        self._announced: dict[int, SubmittedMessage] = {}
        """Long messages whose receiver is not ready, by number."""
        self._contents: list[_OutgoingLongMessage] = []

    @property
    def is_connected(self) -> bool:
        return self.link is not None and self.link.is_connected and not self.link.endpoint.is_closed

    def progress(self) -> None:
        assert self.link is not None
        self._start_messages(self.link)
        for content in self._contents:
            self.bytes_sent += content.progress(self.link)
            if content.is_sent:
                self.started_messages.remove(content.message)
        self._contents = [content for content in self._contents if not content.is_sent]

    def _start_messages(self, link: FrameLink) -> None:
        while self.queue and link.can_send and self._next_number < MAX_MESSAGE_NUMBER:
            # Taken from the queue only after its frame was accepted, so that frames have the order of the messages.
            message = self.queue[0]
            fits_in_frame = link.fits_in_frame(message.length_bytes)
            content = message.parts if fits_in_frame else ()
            if not link.send_message_frame(self._next_number, message.tag, message.length_bytes, content):
                return
            self.queue.popleft()
            if fits_in_frame:  # a copy is being sent
                self.bytes_sent += message.length_bytes
            else:
                self.started_messages.add(message)
                self._announced[self._next_number] = message
            self._next_number += 1

    def start_content(self, frame: Frame, link: FrameLink) -> None:
        """Send the content of an announced message.

        Raises `ProtocolError` for a message that was not announced.
        """
        message = self._announced.pop(frame.number, None)
        if message is None:
            raise ProtocolError(f"{link.name}: the peer is ready for message {frame.number}, which was not announced")
        self._contents.append(_OutgoingLongMessage(message, frame.number, link.endpoint.domain.num_buffers))

    def send_end(self) -> None:
        assert self.link is not None
        self.link.send_control_frame(FabricFrameKind.END, self._next_number)


class _IncomingMessage:
    """A long message whose content arrives in `destination`."""

    __slots__ = ("_index", "_number", "_offset", "_operation", "destination", "tag")

    def __init__(self, number: int, tag: int | None, destination: memoryview) -> None:
        self.tag = tag
        self.destination = destination
        self._number = number
        self._offset = self._index = 0
        self._operation: Operation | None = None

    @property
    def is_complete(self) -> bool:
        return self._offset == self.destination.nbytes

    def copy_content(self, content: memoryview) -> None:
        """Copy the content of a short message."""
        self.destination[:] = content
        self._offset = content.nbytes

    def progress(self, link: FrameLink) -> int:
        """Receive the parts one after the other; return the number of bytes that were received."""
        received_bytes = 0
        while not self.is_complete:
            if self._operation is None:
                memory = Memory(self.destination[self._offset :])
                self._operation = link.receive_part(memory, self._number, self._index)
            if self._operation is None or not self._operation.is_done or self._operation.error is not None:
                break
            received_bytes += self._operation.length_bytes
            self._offset += self._operation.length_bytes
            self._index += 1
            self._operation = None
        return received_bytes


class _Receiver(MessageReceiver[Frame, _IncomingMessage]):
    """Receives messages from a link, in order: at most one is offered, or arrives."""

    def __init__(self, name: str, options: TransportOptions) -> None:
        super().__init__(name, options)
        self.link: FrameLink | None = None
        """Where messages arrive, once the endpoint is open."""
        self._frames: dict[int, Frame] = {}

    @property
    def is_paused(self) -> bool:
        """Whether only this end's user can make progress: by credit, or by accepting an offer."""
        return bool(self.offers) or (self.num_taken in self._frames and not self.credit.is_available)

    def add_frame(self, frame: Frame) -> None:
        """Process a frame of the peer's messages or their end. Raises `ProtocolError`."""
        if frame.kind == FabricFrameKind.END:
            self.num_sent_by_peer = frame.number
        elif frame.number < self.num_taken or frame.number in self._frames:
            raise ProtocolError(f"{self._name}: message {frame.number} arrived twice")
        else:
            # At most as many as there are buffers: a peer that skips a number can't make this end keep more.
            self._frames[frame.number] = frame

    def progress(self, events: list[Event]) -> None:
        while not self.offers:
            for arrival in self.arrivals:
                assert self.link is not None
                self.bytes_received += arrival.progress(self.link)
                if not arrival.is_complete:
                    return
                events.append(MessageReceived(arrival.tag, arrival.destination))
            self.arrivals.clear()
            if not self.credit.is_available or self.num_taken not in self._frames:
                return
            self.offer_or_receive(self._frames.pop(self.num_taken), events)

    def receive_into(self, message: Frame, destination: memoryview) -> None:
        assert self.link is not None
        arrival = _IncomingMessage(message.number, message.tag, destination)
        self.arrivals.append(arrival)
        if message.content is None:
            self.link.send_control_frame(FabricFrameKind.READY, message.number)
        else:
            arrival.copy_content(message.content)
            self.bytes_received += message.length_bytes
        self.link.recycle_frame(message)


class FabricFetch:
    """A fetch from the peer's memory, which `FabricChannel.progress` starts and ends."""

    __slots__ = ("_address", "_key", "_memory", "_operation")

    def __init__(self, memory: Memory, address: int, key: int) -> None:
        self._memory = memory
        self._address = address
        self._key = key
        self._operation: Operation | None = None

    @property
    def is_done(self) -> bool:
        """Whether it has ended, successfully or not."""
        return self._operation is not None and self._operation.is_done

    @property
    def error(self) -> BowstringError | None:
        """The error with which it ended, or None."""
        return None if self._operation is None else self._operation.error

    def start(self, link: FrameLink) -> bool:
        """Start it; return False if libfabric's queue is full."""
        self._operation = link.fetch(self._memory, self._address, self._key)
        return self._operation is not None


class FabricChannel(MessageChannel):
    """One end of a connection; created by `FabricTransport.dial` and `FabricListener.accept`. It owns its endpoint."""

    _sender: _Sender
    _receiver: _Receiver

    def __init__(
        self,
        control: ControlSocket,
        open_endpoint: Callable[[str], Endpoint],
        close_endpoint: Callable[[Endpoint], None],
        options: TransportOptions,
    ) -> None:
        super().__init__(control.name, options, ChannelTraits(), _Sender(), _Receiver(control.name, options))
        self._control = control
        self._is_dialer = not control.is_connected
        self._open_endpoint = open_endpoint
        self._close_endpoint = close_endpoint
        self._link: FrameLink | None = None
        self._fetches: deque[FabricFetch] = deque()
        self._grace_end = math.inf

    @property
    def is_connected(self) -> bool:  # type: ignore[override]
        """As `Channel.is_connected`: both ends have exchanged addresses."""
        return self._link is not None and self._link.is_connected

    def fetch(self, memory: Memory, address: int, key: int) -> FabricFetch:
        """Start to copy the peer's registered memory into a buffer. `progress` advances it."""
        with self._lock:
            self._fetches.append(fetch := FabricFetch(memory, address, key))
            self._timers[RECEIVE].set()
            return fetch

    @property
    def _progress_count(self) -> int:
        return 0 if self._link is None else self._link.endpoint.num_operations_ended

    def _progress_library(self) -> None:
        self._exchange_addresses()
        link = self._link
        if link is None:
            return
        for frame in link.progress():
            if frame.kind == FabricFrameKind.READY:
                self._sender.start_content(frame, link)
            elif frame.kind != FabricFrameKind.FREED:
                self._receiver.add_frame(frame)
        while self._fetches and link.is_connected and self._fetches[0].start(link):
            self._fetches.popleft()

    def _exchange_addresses(self) -> None:
        """Exchange the addresses. Raises `ConnectionLostError`, `ProtocolError`, and the errors of `Domain`."""
        control = self._control
        control.progress()
        # An end that was dialed opens its endpoint after the peer's HELLO: a client that sends none takes no memory.
        if self._link is None and control.is_connected and (self._is_dialer or control.peer_hello is not None):
            self._link = FrameLink(self._open_endpoint(control.host), control.name)
            self._sender.link = self._receiver.link = self._link
            control.send(self._link.hello)
            control.progress()
        if self._link is not None and control.peer_hello is not None and not self._link.is_connected:
            self._link.connect(control.peer_hello, control.peer_host)
            if self._is_dialer:
                self._link.send_control_frame(FabricFrameKind.FREED, 0)  # connects the endpoints
        # The TCP connection and the messages take different ways: messages that were sent before its end may arrive
        # after it.
        if self._grace_end == math.inf and self._connection_error is not None:
            self._grace_end = time.monotonic() + (_GRACE_S if self.is_connected else 0.0)

    def _arm(self) -> bool:
        return self._link is None or self._link.endpoint.try_wait()

    @property
    def _poll_delay_s(self) -> float:
        delay_s = RETRY_S if self._link is not None and self._link.endpoint.is_full else math.inf
        remaining_s = self._grace_end - time.monotonic()
        return min(delay_s, remaining_s) if remaining_s > 0 else delay_s

    @property
    def _connection_error(self) -> BowstringError | None:
        if self._control.has_ended:
            return ConnectionLostError(f"{self._name}: the peer disconnected")
        return self._link.error if self._link is not None else None

    @property
    def _has_no_more_input(self) -> bool:
        is_over = time.monotonic() >= self._grace_end and not self._receiver.is_paused
        return is_over or self._failure is not None

    def _connection_interests(self) -> list[Interest]:
        interests = self._control.interests()
        if self._link is not None and self._link.endpoint.event_descriptor >= 0:
            interests.append(Interest(self._link.endpoint.event_descriptor, RECEIVE))
        return interests

    def _connection_descriptors(self) -> list[int]:
        descriptors = [self._control.descriptor]
        if self._link is not None and self._link.endpoint.event_descriptor >= 0:
            descriptors.append(self._link.endpoint.event_descriptor)
        return descriptors

    def _shut_down_connection(self) -> None:
        self._control.shut_down()

    def _close_connection(self) -> None:
        if self._is_inherited:
            self._control.close()
            return
        self._wait_for_sends()
        self._control.shut_down()
        self._control.close()
        if self.registered_memory is not None:
            self.registered_memory.release()
        if self._link is not None:
            self._close_endpoint(self._link.endpoint)

    def _wait_for_sends(self) -> None:
        link = self._link
        end = time.monotonic() + MAX_SEND_WAIT_S
        try:
            while link is not None and link.has_unsent_frames and link.error is None and time.monotonic() < end:
                link.progress()
                time.sleep(RETRY_S)
        except BowstringError:
            pass


def _split_into_parts(buffers: Sequence[BytesLike], num_buffers: int) -> Iterator[list[Memory]]:
    """Yield the parts of a long message: at most this many buffers, and 4 MiB. Small buffers are joined."""
    part: list[Memory] = []
    space_bytes = _PART_BYTES
    for piece in join_small_parts(buffers, _SMALL_BYTES):
        start = 0
        while start < piece.nbytes:
            size_bytes = min(piece.nbytes - start, space_bytes)
            part.append(Memory(piece[start : start + size_bytes]))
            start += size_bytes
            space_bytes -= size_bytes
            if len(part) == num_buffers or not space_bytes:
                yield part
                part, space_bytes = [], _PART_BYTES
    if part:
        yield part
