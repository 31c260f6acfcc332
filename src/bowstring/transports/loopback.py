"""The reference transport: both ends in one process, connected by bounded queues. Each message is copied once."""

from __future__ import annotations

import os
import secrets
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bowstring.dissociated.messages import BytesLike
from bowstring.errors import (
    BowstringError,
    ClosedError,
    ConnectionLostError,
    InvalidArgumentError,
    ProtocolError,
    UnavailableAddressError,
    translate_os_error,
)
from bowstring.memory.closable import close_on_error
from bowstring.memory.region import Region
from bowstring.transports.base import (
    BOTH_DIRECTIONS,
    DEFAULT_OPTIONS,
    RECEIVE,
    SEND,
    Channel,
    ChannelTraits,
    DirectionEnded,
    Event,
    Interest,
    Listener,
    MemoryExporter,
    MessageOffered,
    MessageReceived,
    MessageSent,
    PeerIdentity,
    RemoteMemory,
    RemoteMemoryUpdated,
    Transport,
    TransportOptions,
    Wait,
    as_writable_bytes,
    strip_traceback,
)
from bowstring.transports.credit import Credit
from bowstring.transports.regions import RegionExporter, RegionUpdate, RemoteRegionTable


class _EventDescriptor:
    """A descriptor that can be made readable and unreadable (eventfd)."""

    __slots__ = ("_is_readable", "descriptor")

    def __init__(self, *, is_readable: bool) -> None:
        try:
            self.descriptor = os.eventfd(int(is_readable), os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError as error:
            raise translate_os_error(error, f"loopback: {error.strerror}") from error
        self._is_readable = is_readable

    def set_readable(self, is_readable: bool) -> None:
        if self.descriptor >= 0 and is_readable != self._is_readable:
            self._is_readable = is_readable
            if is_readable:
                os.eventfd_write(self.descriptor, 1)
            else:
                os.eventfd_read(self.descriptor)

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _Message:
    """A message of one direction; a region or retirement has an update instead of bytes."""

    token: int
    tag: int | None
    parts: tuple[BytesLike, ...]
    length_bytes: int
    update: RegionUpdate | None = None

    def join_parts(self) -> bytes:
        """Copy the parts, because they may change once they are sent."""
        return b"".join(self.parts)

    def close(self) -> None:
        if self.update is not None and self.update.region is not None:
            self.update.region.close()


class _MessageQueue:
    """One direction: the messages that were sent and not received. A lock protects it from the other end's thread."""

    def __init__(self, limit: int) -> None:
        self.lock = threading.Lock()
        self.messages: deque[_Message] = deque()
        self.limit = limit
        self.has_sender_ended = False
        """The sender sends no more."""
        self.has_receiver_ended = False
        """The receiver receives no more."""
        self.readable = _EventDescriptor(is_readable=False)
        self.writable = _EventDescriptor(is_readable=True)

    def try_put(self, message: _Message) -> bool:
        """Append a message; False if the queue is full."""
        with self.lock:
            if len(self.messages) >= self.limit:
                return False
            self.messages.append(message)
            self._update_events()
            return True

    def peek(self) -> _Message | None:
        with self.lock:
            return self.messages[0] if self.messages else None

    def pop(self) -> None:
        with self.lock:
            self.messages.popleft()
            self._update_events()

    def end_sending(self) -> None:
        """The sender ends."""
        with self.lock:
            self.has_sender_ended = True
            self._update_events()

    def end_receiving(self) -> None:
        """The receiver ends: the remaining messages are discarded."""
        with self.lock:
            self.has_receiver_ended = True
            while self.messages:
                self.messages.popleft().close()
            self._update_events()

    def close_readable_descriptor(self) -> None:
        with self.lock:
            # The other end may be about to write it: the number must not be that of another file then.
            self.readable.close()

    def close_writable_descriptor(self) -> None:
        with self.lock:
            self.writable.close()

    def _update_events(self) -> None:
        self.readable.set_readable(bool(self.messages) or self.has_sender_ended or self.has_receiver_ended)
        self.writable.set_readable(len(self.messages) < self.limit or self.has_receiver_ended or self.has_sender_ended)


class LoopbackChannel(Channel):
    """One end of a connection; created by `dial`, `LoopbackListener.accept` or `pair`."""

    def __init__(
        self, outbound: _MessageQueue, inbound: _MessageQueue, options: TransportOptions = DEFAULT_OPTIONS
    ) -> None:
        self.options = options
        self.traits = ChannelTraits(peer=PeerIdentity(os.getuid(), os.getpid()))
        self.memory = RemoteRegionTable(options.max_regions)
        """The received regions, as the events `RemoteMemoryUpdated` report them."""
        self.num_regions_sent = 0
        self.bytes_received = self.bytes_sent = 0
        self.is_closed = False
        self._outbound, self._inbound = outbound, inbound
        self._unsent: deque[_Message] = deque()
        self._credit = Credit("loopback", options)
        self._offer: tuple[int, Any] | None = None
        self._next_token = 1
        self._lost_directions = 0
        self._is_half_closed = False

    @property
    def is_sending(self) -> bool:
        return bool(self._unsent)

    @property
    def queued_bytes(self) -> int:
        return sum(message.length_bytes for message in tuple(self._unsent))

    @property
    def is_receiving_message(self) -> bool:
        """As `Channel.is_receiving_message`: messages arrive whole, but an offer may wait."""
        return self._offer is not None

    @property
    def wait_description(self) -> str:
        if self._unsent:
            return f"loopback: sending while {self._outbound.limit} messages wait"
        return "loopback: receiving"

    def submit(self, parts: Sequence[BytesLike], tag: int | None = None) -> int:
        length_bytes = sum(memoryview(part).nbytes for part in parts)
        return self._enqueue(tag, tuple(parts), length_bytes, None)

    def submit_region(self, index: int, region: Region) -> None:
        """As `RegionSender.submit_region`: passes a duplicate of the descriptor."""
        self._enqueue(None, (), 0, RegionUpdate(index, region.duplicate()))

    def submit_retirement(self, index: int) -> None:
        """As `RegionSender.submit_retirement`."""
        self._enqueue(None, (), 0, RegionUpdate(index, None))

    def accept_offered_message(self, token: int, destination: Any = None) -> None:
        message = self._inbound.peek()
        if self._offer is None or self._offer[0] != token or message is None:
            raise InvalidArgumentError(f"loopback: message {token} is not offered")
        buffer = bytearray(message.length_bytes) if destination is None else destination
        self._offer = token, as_writable_bytes(buffer, message.length_bytes)

    def cancel(self, token: int) -> bool:
        if self._offer is not None and self._offer[0] == token:
            self._offer = None
            self._inbound.pop()
            return True
        message = next((message for message in self._unsent if message.token == token), None)
        if message is None:
            return False
        self._unsent.remove(message)
        message.close()
        return True

    def grant_credit(self, num_messages: int, nbytes: int) -> None:
        self._credit.grant_credit(num_messages, nbytes)

    def progress(self, directions: int = BOTH_DIRECTIONS) -> list[Event]:
        events: list[Event] = []
        directions &= ~self._lost_directions
        if directions & SEND:
            self._send(events)
        if directions & RECEIVE:
            try:
                self._receive_events(events)
            except BowstringError as error:
                self._lost_directions |= RECEIVE
                events.append(DirectionEnded(strip_traceback(error), RECEIVE))
        return events

    def next_wait(self, directions: int = BOTH_DIRECTIONS) -> Wait:
        """As `Channel.next_wait`: a descriptor for each direction."""
        interests = []
        directions &= ~self._lost_directions
        if directions & SEND and self._unsent:
            interests.append(Interest(self._outbound.writable.descriptor, RECEIVE))
        if directions & RECEIVE and (self._credit.is_available if self._offer is None else self._offer[1] is not None):
            interests.append(Interest(self._inbound.readable.descriptor, RECEIVE))
        return Wait(interests)

    def descriptors(self) -> list[int]:
        return [] if self.is_closed else [self._outbound.writable.descriptor, self._inbound.readable.descriptor]

    def half_close(self) -> None:
        self._is_half_closed = True
        if not self._unsent:
            self._outbound.end_sending()

    def shut_down(self) -> None:
        self._outbound.end_sending()
        self._inbound.end_receiving()

    def close(self) -> None:
        """As `Channel.close`; also closes the received regions."""
        self.is_closed = True
        self._lost_directions = BOTH_DIRECTIONS
        self.shut_down()
        self._outbound.close_writable_descriptor()
        self._inbound.close_readable_descriptor()
        while self._unsent:
            self._unsent.popleft().close()
        self.memory.close()

    def _enqueue(
        self, tag: int | None, parts: tuple[BytesLike, ...], length_bytes: int, update: RegionUpdate | None
    ) -> int:
        token = self._next_token
        self._next_token += 1
        self._unsent.append(_Message(token, tag, parts, length_bytes, update))
        return token

    def _send(self, events: list[Event]) -> None:
        while self._unsent:
            # Without the lock: both only change to True, and a region that is put meanwhile is closed with its last
            # reference.
            if self._outbound.has_receiver_ended or self._outbound.has_sender_ended:
                self._lost_directions |= SEND
                events.append(DirectionEnded(self._end_error("sending"), SEND))
                return
            message = self._unsent[0]
            # Before it is in the queue, because the other end's thread may take it at once.
            copy = _Message(message.token, message.tag, (message.join_parts(),), message.length_bytes, message.update)
            if not self._outbound.try_put(copy):
                return
            self._unsent.popleft()
            self.bytes_sent += message.length_bytes
            events.append(MessageSent(message.token))
        if self._is_half_closed:
            self._outbound.end_sending()

    def _receive_events(self, events: list[Event]) -> None:
        queue = self._inbound
        while True:
            if queue.has_receiver_ended:
                raise self._end_error("receiving")
            message = queue.peek()
            if message is None:
                if queue.has_sender_ended:
                    raise self._end_error("receiving")
                return
            if message.update is not None:
                queue.pop()
                update = self._get_checked_update(message.update)
                events.append(RemoteMemoryUpdated(update, update.region is None))
                continue
            if self._offer is not None:
                destination = self._offer[1]
                if destination is None:
                    return
                destination[:] = message.join_parts()
                self._offer = None
                self._deliver(message, destination, events)
            elif not self._credit.is_available:
                return
            elif self._credit.exceeds_eager_bytes(message.tag, message.length_bytes):
                self._credit.consume(0)
                # The message stays in the queue until it is delivered, so nothing overtakes it.
                self._offer = self._next_token, None
                self._next_token += 1
                events.append(MessageOffered(self._offer[0], message.tag, message.length_bytes))
                return
            else:
                self._credit.consume(message.length_bytes)
                self._deliver(message, memoryview(message.join_parts()), events)

    def _deliver(self, message: _Message, content: Any, events: list[Event]) -> None:
        self._inbound.pop()
        self.bytes_received += message.length_bytes
        events.append(MessageReceived(message.tag, content))

    def _get_checked_update(self, update: RegionUpdate) -> RegionUpdate:
        region = update.region
        if region is not None:
            with close_on_error(region):
                if not region.is_sealed and not self.options.accept_files:
                    raise ProtocolError(f"region {update.index}: expected sealed memory, received an ordinary file")
                if not self.options.keep_descriptors:
                    region.release_descriptor()
        return update

    def _end_error(self, action: str) -> BowstringError:
        if self.is_closed:
            return ClosedError(f"loopback: closed while {action}")
        return ConnectionLostError("loopback: the peer disconnected")

    def __repr__(self) -> str:
        return f"<LoopbackChannel {'closed' if self.is_closed else 'open'}, {len(self.memory)} regions received>"


class LoopbackListener(Listener):
    """Listens at a name of this process."""

    def __init__(self, address: str, options: TransportOptions) -> None:
        self.address = address
        self.options = options
        self.is_closed = False
        self._pending_channels: deque[LoopbackChannel] = deque()
        self._accept_event = _EventDescriptor(is_readable=False)
        self._lock = threading.Lock()

    def add_pending_channel(self, channel: LoopbackChannel) -> None:
        """Add a connection, to be accepted. If the listener was closed meanwhile, the connection ends."""
        with self._lock:
            if not self.is_closed:
                self._pending_channels.append(channel)
                self._accept_event.set_readable(True)
                return
        channel.close()

    def accept(self, limit: int = 16) -> list[Channel]:
        if self.is_closed:
            raise ClosedError(f"loopback {self.address!r}: the listener is closed")
        with self._lock:
            channels = [self._pending_channels.popleft() for _ in range(min(limit, len(self._pending_channels)))]
            self._accept_event.set_readable(bool(self._pending_channels))
        return list(channels)

    def descriptors(self) -> list[int]:
        return [self._accept_event.descriptor] if self._accept_event.descriptor >= 0 else []

    def interests(self) -> list[Interest]:
        return [] if self.is_closed else [Interest(self._accept_event.descriptor, RECEIVE)]

    def shut_down(self) -> None:
        self.is_closed = True
        if _LISTENERS.get(self.address) is self:
            del _LISTENERS[self.address]
        with self._lock:
            self._accept_event.set_readable(True)

    def close(self) -> None:
        self.shut_down()
        with self._lock:
            self._accept_event.close()
            while self._pending_channels:
                self._pending_channels.popleft().close()


class LoopbackTransport(Transport):
    """Connections within a process."""

    scheme: ClassVar[str] = "loopback"
    is_local: ClassVar[bool] = True
    distance: ClassVar[float] = 0

    def listen(self, address: str | None = None, options: TransportOptions = DEFAULT_OPTIONS) -> LoopbackListener:
        address = secrets.token_hex(8) if address is None else address
        listener = LoopbackListener(address, options)
        if _LISTENERS.setdefault(address, listener) is not listener:
            listener.close()
            raise UnavailableAddressError(f"loopback {address!r}: can't listen there: the name is in use")
        return listener

    def dial(self, address: str, options: TransportOptions = DEFAULT_OPTIONS) -> LoopbackChannel:
        listener = _LISTENERS.get(address)
        if listener is None:
            raise ConnectionLostError(f"loopback {address!r}: nothing is listening there")
        own, other = self.pair(options, listener.options)
        listener.add_pending_channel(other)
        return own

    def open_exporter(self, channel: Channel) -> MemoryExporter:
        """As `Transport.open_exporter`: passes descriptors."""
        assert isinstance(channel, LoopbackChannel)
        return RegionExporter(channel)

    def open_remote_memory(self, channel: Channel, remote_handle: bytes | None) -> RemoteMemory:  # noqa: ARG002 - not needed
        """As `Transport.open_remote_memory`: the received regions."""
        assert isinstance(channel, LoopbackChannel)
        return channel.memory

    @staticmethod
    def pair(
        options: TransportOptions = DEFAULT_OPTIONS, other_options: TransportOptions | None = None
    ) -> tuple[LoopbackChannel, LoopbackChannel]:
        """Create two connected ends, by default with the same options."""
        forward, backward = _MessageQueue(options.queue_messages), _MessageQueue(options.queue_messages)
        other = LoopbackChannel(backward, forward, other_options or options)
        return LoopbackChannel(forward, backward, options), other


LOOPBACK = LoopbackTransport()
_LISTENERS: dict[str, LoopbackListener] = {}
"""The listeners of this process, by address."""
