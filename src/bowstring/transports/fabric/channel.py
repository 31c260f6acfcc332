"""Channels over libfabric («Requirements»): ordered messages between two endpoints.

A channel has an endpoint of its own, whose address both ends tell each other over a TCP connection (`control_socket`).
Short messages are frames (`link`), long ones are announced by a frame. Their content is received directly into its
destination, in parts of at most 4 MiB: tagged messages, which are sent when the receiver is ready for them.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bowstring.dissociated.wire import BytesLike
from bowstring.errors import BowstringError, ConnectionLostError, LimitError, ProtocolError, UsageError
from bowstring.memory.buffer import Memory, allocate
from bowstring.transports.arena import ArenaExporter
from bowstring.transports.base import (
    BOTH,
    RECEIVE,
    SEND,
    Channel,
    Event,
    Interest,
    Lost,
    Offered,
    Received,
    Sent,
    Traits,
    TransportOptions,
    check_destination,
    without_traceback,
)
from bowstring.transports.fabric.control_socket import ControlSocket
from bowstring.transports.fabric.endpoint import Endpoint, Operation
from bowstring.transports.fabric.link import MAX_NUMBER, Frame, Kind, Link
from bowstring.transports.signals import Signal

_PART_BYTES = 1 << 22
"""The maximum length of a part of a long message."""
_SMALL_BYTES = 1 << 12
"""Smaller buffers are joined, because a part consists of only a few."""
_MAX_STARTED_PARTS = 2
_MAX_ROUNDS = 8
_RETRY_S = 0.001
_GRACE_S = 0.5
"""How long messages may arrive after the end of the TCP connection."""
_LINGER_S = 0.2
"""How long `close` waits until what was sent has left this process."""


@dataclass(frozen=True, slots=True)
class _Message:
    """A submitted message."""

    token: int
    tag: int | None
    parts: Sequence[BytesLike]
    length_bytes: int


class _Content:
    """The content of a long message, which is being sent part by part."""

    __slots__ = ("_next_part", "_num_started", "_number", "_parts", "_started", "message")

    def __init__(self, message: _Message, number: int, num_buffers: int) -> None:
        self.message = message
        self._number = number
        self._parts = _split(message.parts, num_buffers)
        self._next_part = next(self._parts, None)
        self._num_started = 0
        self._started: list[tuple[Operation, int]] = []

    @property
    def is_sent(self) -> bool:
        return self._next_part is None and not self._started

    def progress(self, link: Link) -> int:
        """Start parts; return the number of bytes that were sent."""
        sent_bytes = sum(length_bytes for operation, length_bytes in self._started if operation.is_complete)
        self._started = [entry for entry in self._started if not entry[0].is_complete]
        while self._next_part is not None and len(self._started) < _MAX_STARTED_PARTS:
            operation = link.send_part(self._next_part, self._number, self._num_started)
            if operation is None:
                break
            self._started.append((operation, sum(memory.size for memory in self._next_part)))
            self._num_started += 1
            self._next_part = next(self._parts, None)
        return sent_bytes


class _Sender:
    """The messages that were submitted, and those that are being sent."""

    __slots__ = (
        "_announced",
        "_contents",
        "_next_number",
        "bytes_sent",
        "ends_when_sent",
        "has_ended",
        "queue",
    )

    def __init__(self) -> None:
        self.queue: deque[_Message] = deque()
        self._next_number = 0
        self._announced: dict[int, _Message] = {}
        """Long messages whose receiver is not ready, by number."""
        self._contents: list[_Content] = []
        self.bytes_sent = 0
        self.ends_when_sent = False
        self.has_ended = False
        """Whether the peer was told that no more messages follow."""

    @property
    def is_sending(self) -> bool:
        return bool(self.queue or self._announced or self._contents)

    @property
    def queued_bytes(self) -> int:
        messages = [*self.queue, *self._announced.values(), *(content.message for content in self._contents)]
        return sum(message.length_bytes for message in messages)

    def progress(self, link: Link, events: list[Event]) -> None:
        """Start messages, and report those that were sent."""
        self._start(link, events)
        for content in self._contents:
            self.bytes_sent += content.progress(link)
            if content.is_sent:
                events.append(Sent(content.message.token))
        self._contents = [content for content in self._contents if not content.is_sent]

    def _start(self, link: Link, events: list[Event]) -> None:
        while self.queue and link.can_send and self._next_number < MAX_NUMBER:
            message = self.queue[0]
            is_short = link.is_short(message.length_bytes)
            content = message.parts if is_short else ()
            if not link.send_message(self._next_number, message.tag, message.length_bytes, content):
                return
            self.queue.popleft()
            if is_short:  # a copy is being sent
                self.bytes_sent += message.length_bytes
                events.append(Sent(message.token))
            else:
                self._announced[self._next_number] = message
            self._next_number += 1

    def answer(self, frame: Frame, link: Link) -> None:
        """Process READY and REFUSED. Raises `ProtocolError` for a message that was not announced."""
        message = self._announced.pop(frame.number, None)
        if message is None:
            raise ProtocolError(f"{link.name}: the peer is ready for message {frame.number}, which was not announced")
        if frame.kind == Kind.REFUSED:
            message = _Message(message.token, message.tag, (), 0)
        self._contents.append(_Content(message, frame.number, link.endpoint.domain.num_buffers))

    def end(self, link: Link) -> None:
        """Tell the peer that no more messages follow."""
        if not self.has_ended:
            self.has_ended = True
            link.control(Kind.END, self._next_number)


class _Arrival:
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

    def copy(self, content: memoryview) -> None:
        """Copy the content of a short message."""
        self.destination[:] = content
        self._offset = content.nbytes

    def progress(self, link: Link) -> int:
        """Receive the parts one after the other; return the number of bytes that were received."""
        received_bytes = 0
        while not self.is_complete:
            if self._operation is None:
                memory = Memory(self.destination[self._offset :])
                self._operation = link.receive_part(memory, self._number, self._index)
            if self._operation is None or not self._operation.is_complete or self._operation.error is not None:
                break
            received_bytes += self._operation.length_bytes
            self._offset += self._operation.length_bytes
            self._index += 1
            self._operation = None
        return received_bytes


class _Receiver:
    """The messages that have arrived, the credit for more, and the offer."""

    __slots__ = (
        "_arrival",
        "_credit_bytes",
        "_credit_messages",
        "_frames",
        "_name",
        "_next_number",
        "_next_token",
        "_offer",
        "_options",
        "_total",
        "bytes_received",
        "link",
    )

    def __init__(self, name: str, options: TransportOptions) -> None:
        self._name = name
        self._options = options
        self._credit_messages, self._credit_bytes = options.credit_messages, options.credit_bytes
        self._frames: dict[int, Frame] = {}
        self._next_number = 0
        self._total: int | None = None
        self._next_token = -1
        self._offer: tuple[int, Frame] | None = None
        self._arrival: _Arrival | None = None
        self.link: Link | None = None
        """Where messages arrive, once the endpoint is open."""
        self.bytes_received = 0

    @property
    def has_credit(self) -> bool:
        return self._credit_messages > 0 and self._credit_bytes > 0

    @property
    def is_receiving(self) -> bool:
        return self._arrival is not None or self._offer is not None

    @property
    def is_waiting(self) -> bool:
        """Whether only this end's user can make progress: by credit, or by accepting an offer."""
        return self._offer is not None or (self._next_number in self._frames and not self.has_credit)

    @property
    def has_ended(self) -> bool:
        """Whether the peer has ended, and all its messages were received."""
        return self._next_number == self._total and not self.is_receiving

    def grant(self, messages: int, nbytes: int) -> None:
        self._credit_messages += messages
        self._credit_bytes += nbytes

    def add(self, frame: Frame) -> None:
        """Process a frame of the peer's messages or their end. Raises `ProtocolError`."""
        if frame.kind == Kind.END:
            self._total = frame.number
        elif frame.number < self._next_number or frame.number in self._frames:
            raise ProtocolError(f"{self._name}: message {frame.number} arrived twice")
        else:
            self._frames[frame.number] = frame

    def progress(self, events: list[Event]) -> None:
        """Report messages in order as long as there is credit. Raises `LimitError`."""
        while self._offer is None:
            if self._arrival is not None:
                assert self.link is not None
                self.bytes_received += self._arrival.progress(self.link)
                if not self._arrival.is_complete:
                    return
                events.append(Received(self._arrival.tag, self._arrival.destination))
                self._arrival = None
            if not self.has_credit or self._next_number not in self._frames:
                return
            frame = self._frames.pop(self._next_number)
            self._next_number += 1
            self._take(frame, events)

    def accept_message_into(self, token: int, destination: Any) -> None:
        if self._offer is None or self._offer[0] != token:
            raise UsageError(f"fabric: message {token} is not offered")
        frame = self._offer[1]
        size_bytes = frame.size_bytes
        view = check_destination(allocate(size_bytes) if destination is None else destination, size_bytes)
        self._offer = None
        self._receive(frame, view)

    def discard(self, token: int) -> bool:
        """Discard the offer; return False if there is none with this token."""
        if self._offer is None or self._offer[0] != token:
            return False
        assert self.link is not None
        frame, self._offer = self._offer[1], None
        if frame.content is None:
            self.link.control(Kind.REFUSED, frame.number)
        self.link.free(frame)
        return True

    def _take(self, frame: Frame, events: list[Event]) -> None:
        options = self._options
        limit = options.max_plain_bytes if frame.tag is None else options.max_tagged_bytes
        if frame.size_bytes > limit:
            raise LimitError(f"fabric: a message of {frame.size_bytes} bytes; at most {limit} are received")
        self._credit_messages -= 1
        if frame.size_bytes > options.eager_bytes:
            self._offer = self._next_token, frame
            events.append(Offered(self._next_token, frame.tag, frame.size_bytes))
            self._next_token -= 1  # negative: submitted messages have positive tokens
            return
        self._credit_bytes -= frame.size_bytes
        self._receive(frame, memoryview(bytearray(frame.size_bytes)))

    def _receive(self, frame: Frame, view: memoryview) -> None:
        """Receive the content of a message into a buffer; `progress` reports it."""
        assert self.link is not None
        self._arrival = _Arrival(frame.number, frame.tag, view)
        if frame.content is None:
            self.link.control(Kind.READY, frame.number)
        else:
            self._arrival.copy(frame.content)
            self.bytes_received += frame.size_bytes
        self.link.free(frame)


class Fetch:
    """A fetch from the peer's memory, which `FabricChannel.progress` starts and ends."""

    __slots__ = ("_address", "_key", "_memory", "_operation")

    def __init__(self, memory: Memory, address: int, key: int) -> None:
        self._memory = memory
        self._address = address
        self._key = key
        self._operation: Operation | None = None

    @property
    def is_complete(self) -> bool:
        """Whether it has ended, successfully or not."""
        return self._operation is not None and self._operation.is_complete

    @property
    def error(self) -> BowstringError | None:
        """The error with which it ended, or None."""
        return None if self._operation is None else self._operation.error

    def start(self, link: Link) -> bool:
        """Start it; return False if libfabric's queue is full."""
        self._operation = link.fetch(self._memory, self._address, self._key)
        return self._operation is not None


class FabricChannel(Channel):
    """One end of a connection; created by `FabricTransport.dial` and `FabricEndpoint.accept`. It owns its endpoint."""

    def __init__(
        self,
        control: ControlSocket,
        open_endpoint: Callable[[str], Endpoint],
        close_endpoint: Callable[[Endpoint], None],
        options: TransportOptions,
    ) -> None:
        self.options = options
        self.traits = Traits()
        self.arena: Any = None
        """The memory that the listener exports to its clients, if any; released when the channel is closed."""
        self.exporter: ArenaExporter | None = None
        """The exporter of this channel, if any, which is closed with it."""
        self.is_closed = False
        self._control = control
        self._is_dialer = not control.is_connected
        self._open_endpoint = open_endpoint
        self._close_endpoint = close_endpoint
        self._link: Link | None = None
        self._sender = _Sender()
        self._receiver = _Receiver(control.name, options)
        self._fetches: deque[Fetch] = deque()
        self._signals = {RECEIVE: Signal(), SEND: Signal()}
        self._lock = threading.RLock()
        self._process_id = os.getpid()
        self._next_token = 1
        self._lost_directions = 0
        self._failure: BowstringError | None = None
        self._grace_end = math.inf

    @property
    def is_connected(self) -> bool:  # type: ignore[override]
        """As `Channel.is_connected`: both ends have told their addresses."""
        return self._link is not None and self._link.is_connected

    @property
    def bytes_received(self) -> int:  # type: ignore[override]
        """As `Channel.bytes_received`: counts messages and parts."""
        return self._receiver.bytes_received

    @property
    def bytes_sent(self) -> int:  # type: ignore[override]
        """As `Channel.bytes_sent`: counts messages and parts."""
        return self._sender.bytes_sent

    @property
    def is_sending(self) -> bool:
        """As `Channel.is_sending`."""
        return self._sender.is_sending

    @property
    def queued_bytes(self) -> int:
        """As `Channel.queued_bytes`."""
        return self._sender.queued_bytes

    @property
    def is_receiving(self) -> bool:
        """As `Channel.is_receiving`; also while the ends tell each other their addresses."""
        return self._receiver.is_receiving or not (self.is_connected or self._lost_directions)

    @property
    def wait_description(self) -> str:
        """As `Channel.wait_description`."""
        action = "connecting" if not self.is_connected else "sending" if self.is_sending else "receiving"
        return f"{self._control.name}: {action}"

    @property
    def _is_inherited(self) -> bool:
        """Whether the channel belongs to the parent of this process."""
        return self._process_id != os.getpid()

    def submit(self, parts: Sequence[BytesLike], tag: int | None = None) -> int:
        """As `Channel.submit`. Short messages, and buffers of less than 4 KiB, are copied when they are sent."""
        with self._lock:
            token = self._next_token
            self._next_token += 1
            length_bytes = sum(memoryview(part).nbytes for part in parts)
            self._sender.queue.append(_Message(token, tag, parts, length_bytes))
            self._signals[SEND].set()
            return token

    def accept_message_into(self, token: int, destination: Any = None) -> None:
        """As `Channel.accept_message_into`."""
        with self._lock:
            self._receiver.accept_message_into(token, destination)
            self._signals[RECEIVE].set()

    def cancel(self, token: int) -> bool:
        """As `Channel.cancel`: a message that was announced to the peer can't be cancelled."""
        with self._lock:
            if token < 0:
                self._signals[RECEIVE].set()  # later messages may have waited
                return self._receiver.discard(token)
            message = next((message for message in self._sender.queue if message.token == token), None)
            if message is not None:
                self._sender.queue.remove(message)
            return message is not None

    def grant(self, messages: int, nbytes: int) -> None:
        """As `Channel.grant`."""
        with self._lock:
            had_credit = self._receiver.has_credit
            self._receiver.grant(messages, nbytes)
            if not had_credit:
                self._signals[RECEIVE].set()  # messages that have arrived already

    def progress(self, directions: int = BOTH) -> list[Event]:
        """As `Channel.progress`."""
        events: list[Event] = []
        with self._lock:
            directions &= ~self._lost_directions
            if not directions:
                return events
            for direction, signal in self._signals.items():
                if directions & direction:
                    signal.clear()
            try:
                self._progress(directions, events)
            except BowstringError as error:
                self._lose(BOTH, error, events)
        return events

    def interests(self, directions: int = BOTH) -> list[Interest]:
        """As `Channel.interests`: the TCP connection, the completion queue, and a descriptor for each direction."""
        directions &= ~self._lost_directions
        if not self._sender.is_sending and self.is_connected:
            directions &= ~SEND
        if not (self._receiver.has_credit or self._receiver.is_receiving):
            directions &= ~RECEIVE
        if not directions:
            return []
        signals = [signal for direction, signal in self._signals.items() if directions & direction]
        interests = [Interest(signal.descriptor, RECEIVE) for signal in signals] + self._control.interests()
        if self._link is not None and self._link.endpoint.event_descriptor >= 0:
            interests.append(Interest(self._link.endpoint.event_descriptor, RECEIVE))
        return interests

    def descriptors(self) -> list[int]:
        """As `Channel.descriptors`: those that are known; libfabric has more."""
        if self.is_closed:
            return []
        descriptors = [self._control.descriptor, *(signal.descriptor for signal in self._signals.values())]
        if self._link is not None and self._link.endpoint.event_descriptor >= 0:
            descriptors.append(self._link.endpoint.event_descriptor)
        return descriptors

    def fetch(self, memory: Memory, address: int, key: int) -> Fetch:
        """Start to copy the peer's registered memory into a buffer. `progress` advances it."""
        with self._lock:
            self._fetches.append(fetch := Fetch(memory, address, key))
            self._signals[RECEIVE].set()
            return fetch

    def half_close(self) -> None:
        """As `Channel.half_close`."""
        with self._lock:
            self._sender.ends_when_sent = True
            self._end_if_sent()

    def wake(self) -> None:
        """As `Channel.wake`."""
        for signal in self._signals.values():
            signal.set()

    def shut_down(self) -> None:
        """As `Channel.shut_down`."""
        with self._lock:
            if self._failure is None and not self.is_closed and not self._is_inherited:
                self._failure = ConnectionLostError(f"{self._control.name}: the connection was shut down")
                self._end()
                self._control.shut_down()
        self.wake()

    def close(self) -> None:
        """As `Channel.close`. Waits until what was sent has left this process, for at most 0.2 seconds."""
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
            self._lost_directions = BOTH
            self._sender.queue.clear()
            if not self._is_inherited:
                self._end()
                self._linger()
                self._control.shut_down()
            self._control.close()
            for signal in self._signals.values():
                signal.close()
            if self.exporter is not None:
                self.exporter.close()
            if self.arena is not None:
                self.arena.release()
            self.arena = self.exporter = None
            if self._link is not None:
                self._close_endpoint(self._link.endpoint)

    def _progress(self, directions: int, events: list[Event]) -> None:
        """Process what has happened, until the descriptors will report what happens next, or set the signals."""
        has_changed, delay_s = False, math.inf
        for _ in range(_MAX_ROUNDS):
            has_changed |= self._pump()
            self._process(directions, events)
            link = self._link
            if link is None or link.endpoint.try_wait():
                break
        else:
            delay_s = 0.0 if has_changed else _RETRY_S
        if link is not None and link.endpoint.is_full:
            delay_s = min(delay_s, _RETRY_S)
        remaining_s = self._grace_end - time.monotonic()
        if remaining_s > 0:
            delay_s = min(delay_s, remaining_s)
        if delay_s < math.inf:
            self._set_signals(BOTH, delay_s)
        if has_changed:
            # What happened may be what a thread waits for that drives the other direction.
            self._set_signals(BOTH & ~directions, 0.0)

    def _set_signals(self, directions: int, delay_s: float) -> None:
        for direction, signal in self._signals.items():
            if direction & directions:
                signal.set(delay_s)

    def _pump(self) -> bool:
        """Advance the connection, and take what has arrived; return whether anything happened."""
        self._connect()
        link = self._link
        if link is None:
            return False
        steps = link.endpoint.num_operations_ended
        for frame in link.progress():
            if frame.kind in (Kind.READY, Kind.REFUSED):
                self._sender.answer(frame, link)
            elif frame.kind != Kind.FREED:
                self._receiver.add(frame)
        while self._fetches and link.is_connected and self._fetches[0].start(link):
            self._fetches.popleft()
        return link.endpoint.num_operations_ended != steps

    def _connect(self) -> None:
        """Exchange the addresses. Raises `ConnectionLostError`, `ProtocolError`, and the errors of `Domain`."""
        control = self._control
        control.progress()
        if self._link is None and control.is_connected and (self._is_dialer or control.peer_hello is not None):
            self._link = self._receiver.link = Link(self._open_endpoint(control.host), control.name)
            control.send(self._link.hello)
            control.progress()
        if self._link is not None and control.peer_hello is not None and not self._link.is_connected:
            self._link.connect(control.peer_hello, control.peer_host)
            if self._is_dialer:
                self._link.control(Kind.FREED, 0)  # connects the endpoints
            self._end_if_sent()
        has_ended = control.has_ended or (self._link is not None and self._link.error is not None)
        if has_ended and self._grace_end == math.inf:
            self._grace_end = time.monotonic() + (_GRACE_S if self.is_connected else 0.0)

    def _process(self, directions: int, events: list[Event]) -> None:
        """Process what has happened in these directions."""
        link = self._link
        if directions & ~self._lost_directions & SEND:
            error = self._error()
            if error is not None and self._sender.is_sending:
                self._lose(SEND, error, events)
            elif link is not None and link.is_connected:
                self._sender.progress(link, events)
                self._end_if_sent()
        if directions & ~self._lost_directions & RECEIVE:
            try:
                self._receiver.progress(events)
                self._check_received_all()
            except BowstringError as error:
                self._lose(RECEIVE, error, events)

    def _check_received_all(self) -> None:
        """Raise the error of an ended connection, once everything that arrived was received."""
        if self._receiver.has_ended:
            raise ConnectionLostError(f"{self._control.name}: the peer disconnected")
        if self._failure is not None:
            raise self._failure
        error = self._error()
        if error is not None and time.monotonic() >= self._grace_end and not self._receiver.is_waiting:
            raise error

    def _error(self) -> BowstringError | None:
        """Why the connection has ended, if it has."""
        if self._failure is not None:
            return self._failure
        if self._control.has_ended:
            return ConnectionLostError(f"{self._control.name}: the peer disconnected")
        return self._link.error if self._link is not None else None

    def _end_if_sent(self) -> None:
        """After `half_close`, tell the peer that no more messages follow, once all are sent."""
        link = self._link
        if self._sender.ends_when_sent and not self._sender.is_sending and link is not None and link.is_connected:
            self._sender.end(link)

    def _end(self) -> None:
        """Tell the peer that no more messages follow."""
        link = self._link
        try:
            if link is not None and link.is_connected and not link.endpoint.is_closed:
                self._sender.end(link)
        except BowstringError:
            pass  # the connection has ended already

    def _linger(self) -> None:
        link = self._link
        end = time.monotonic() + _LINGER_S
        try:
            while link is not None and link.is_flushing and link.error is None and time.monotonic() < end:
                link.progress()
                time.sleep(_RETRY_S)
        except BowstringError:
            pass

    def _lose(self, directions: int, error: BowstringError, events: list[Event]) -> None:
        directions &= ~self._lost_directions
        if directions:
            self._lost_directions |= directions
            events.append(Lost(without_traceback(error), directions))

    def __repr__(self) -> str:
        return f"<FabricChannel {'closed' if self.is_closed else 'open'}: {self._control.name}>"


def _split(buffers: Sequence[BytesLike], num_buffers: int) -> Iterator[list[Memory]]:
    """Yield the parts of a long message: at most this many buffers, and 4 MiB. Small buffers are joined."""
    part: list[Memory] = []
    space_bytes = _PART_BYTES
    for piece in _with_joined_small_buffers(buffers):
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


def _with_joined_small_buffers(buffers: Sequence[BytesLike]) -> Iterator[memoryview]:
    small = bytearray()
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        if view.nbytes < _SMALL_BYTES and len(small) < _PART_BYTES:
            small += view
            continue
        if small:
            yield memoryview(small)
            small = bytearray()
        yield view
    if small:
        yield memoryview(small)
