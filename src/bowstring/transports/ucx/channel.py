"""Channels over UCX: plain messages are active messages, tagged ones are tagged («Requirements»).

A channel has a worker of its own, because libucp reports the tag of a tagged message, but not its sender. A plain
message is an active message with number 0 and no header, as the published reference implementation sends it. libucp
announces active messages in the order in which they were sent, so plain messages are received in that order: none is
taken while the bytes of an earlier one arrive. Plain and tagged messages overtake each other, and so do tagged ones.

Active message 1 is our own: the sender has ended, after this many plain and tagged messages (two 64-bit integers,
little-endian). Other implementations ignore it, and send none: from them, the end of the connection is what libucp
reports.
"""

from __future__ import annotations

import math
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bowstring.dissociated.wire import BytesLike
from bowstring.errors import (
    BowstringError,
    ClosedError,
    ConnectionLostError,
    LimitError,
    ProtocolError,
    UsageError,
)
from bowstring.memory.buffer import allocate
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
from bowstring.transports.signals import Signal
from bowstring.transports.ucx.ucp import ActiveMessage, Endpoint, Request, TaggedMessage, Worker

PLAIN_ID, END_ID = 0, 1
ACTIVE_MESSAGE_IDS = (PLAIN_ID, END_ID)
_END = struct.Struct("<QQ")
_MAX_STARTED = 64
"""The number of messages that libucp sends at the same time."""
_MAX_ROUNDS = 8
_RETRY_S = 0.001
_LINGER_S = 0.2
"""How long `close` waits until what was sent has left this process."""


def arm(worker: Worker, process: Callable[[], None], signals: Iterable[Signal]) -> None:
    """Progress a worker and `process` what has happened, until its descriptor will report what happens next.

    If there is still more to do after a while, set the signals instead. libucp can't report when there is space again
    in shared memory that a peer reads from: that is looked at every millisecond.
    """
    for _ in range(_MAX_ROUNDS):
        steps = worker.num_steps
        worker.progress()
        process()
        if worker.arm():
            return
    for signal in signals:
        signal.set(_RETRY_S if worker.num_steps == steps else 0.0)


@dataclass(frozen=True, slots=True)
class _Message:
    """A submitted message."""

    token: int
    tag: int | None
    parts: Sequence[BytesLike]
    length_bytes: int


class _Sender:
    """The messages that were submitted, and those of them that libucp is sending."""

    __slots__ = ("bytes_sent", "counts", "ends_when_sent", "has_ended", "queue", "started")

    def __init__(self) -> None:
        self.queue: deque[_Message] = deque()
        self.started: list[tuple[_Message, Request]] = []
        self.counts = [0, 0]
        """The numbers of plain and tagged messages that were started."""
        self.bytes_sent = 0
        self.ends_when_sent = False
        self.has_ended = False
        """Whether the peer was told that no more messages follow."""

    @property
    def is_sending(self) -> bool:
        return bool(self.queue or self.started)

    @property
    def queued_bytes(self) -> int:
        started = sum(message.length_bytes for message, _ in tuple(self.started))
        return started + sum(message.length_bytes for message in tuple(self.queue))

    def progress(self, endpoint: Endpoint, events: list[Event]) -> None:
        """Start messages, and report those that were sent. Raises the error of one that failed."""
        while True:
            while self.queue and len(self.started) < _MAX_STARTED:
                message = self.queue.popleft()
                self.started.append((message, self._start(endpoint, message)))
            pending = []
            for message, request in self.started:
                if not request.is_complete:
                    pending.append((message, request))
                elif (error := request.error) is not None:
                    raise error
                else:
                    self.bytes_sent += message.length_bytes
                    events.append(Sent(message.token))
            self.started = pending
            if not self.queue or len(pending) >= _MAX_STARTED:
                break
        if self.ends_when_sent and not pending:
            self.end(endpoint)

    def end(self, endpoint: Endpoint) -> None:
        """Tell the peer that no more messages follow."""
        if not self.has_ended and endpoint.handle:
            self.has_ended = True
            endpoint.send_active_message([_END.pack(*self.counts)], END_ID, flags=0)

    def _start(self, endpoint: Endpoint, message: _Message) -> Request:
        self.counts[message.tag is not None] += 1
        if message.tag is None:
            return endpoint.send_active_message(message.parts, PLAIN_ID, flags=0)
        return endpoint.send_tagged(message.parts, message.tag)


class _Arrival(NamedTuple):
    """A message whose bytes arrive in `destination`; complete if `request` is None."""

    tag: int | None
    destination: Any
    request: Request | None


class _Receiver:
    """The messages that have arrived, the credit for more, and the offers."""

    __slots__ = (
        "_arrivals",
        "_counts",
        "_credit_bytes",
        "_credit_messages",
        "_next_token",
        "_offers",
        "_options",
        "_total",
        "bytes_received",
    )

    def __init__(self, options: TransportOptions) -> None:
        self._options = options
        self._credit_messages, self._credit_bytes = options.credit_messages, options.credit_bytes
        self._offers: dict[int, ActiveMessage | TaggedMessage] = {}
        self._arrivals: list[_Arrival] = []
        self._counts = (0, 0)
        self._total: tuple[int, int] | None = None
        self._next_token = -1
        self.bytes_received = 0

    @property
    def has_credit(self) -> bool:
        return self._credit_messages > 0 and self._credit_bytes > 0

    @property
    def is_receiving(self) -> bool:
        return bool(self._arrivals or self._offers)

    @property
    def has_ended(self) -> bool:
        """Whether the peer has ended, and all its messages were received."""
        return self._counts == self._total and not self.is_receiving

    @property
    def _awaits_plain(self) -> bool:
        """Whether the bytes of a plain message have not arrived."""
        if any(arrival.tag is None for arrival in self._arrivals):
            return True
        return any(isinstance(message, ActiveMessage) for message in self._offers.values())

    def grant(self, messages: int, nbytes: int) -> None:
        self._credit_messages += messages
        self._credit_bytes += nbytes

    def progress(self, worker: Worker, events: list[Event]) -> None:
        """Take messages as long as there is credit, and report those that have arrived.

        Raises `LimitError`, `ProtocolError`, and the error of a message that failed.
        """
        while True:
            self._take_available(worker, events)
            if not self._deliver_arrived(events) or not worker.active_messages:
                return

    def _take_available(self, worker: Worker, events: list[Event]) -> None:
        active_messages = worker.active_messages
        while active_messages and (active_messages[0].id == END_ID or (self.has_credit and not self._awaits_plain)):
            active_message = active_messages.popleft()
            if active_message.id == END_ID:
                self._receive_end(active_message)
            else:
                self._take(None, active_message, events)
        while self.has_credit and (tagged_message := worker.probe()) is not None:
            self._take(tagged_message.tag, tagged_message, events)

    def _deliver_arrived(self, events: list[Event]) -> bool:
        """Report the messages that have arrived; return whether there were any."""
        num_events, pending = len(events), []
        for arrival in self._arrivals:
            if arrival.request is not None and not arrival.request.is_complete:
                pending.append(arrival)
            elif arrival.request is not None and (error := arrival.request.error) is not None:
                raise error
            else:
                self._deliver(arrival.tag, arrival.destination, events)
        self._arrivals = pending
        return len(events) > num_events

    def accept_message_into(self, token: int, destination: Any) -> None:
        message = self._offers.get(token)
        if message is None:
            raise UsageError(f"ucx: message {token} is not offered")
        length_bytes = message.length_bytes
        buffer = check_destination(allocate(length_bytes) if destination is None else destination, length_bytes)
        del self._offers[token]
        if isinstance(message, TaggedMessage):
            self._arrivals.append(_Arrival(message.tag, buffer, message.receive_into(buffer)))
        elif message.payload is None:
            self._arrivals.append(_Arrival(None, buffer, message.receive_into(buffer)))
        else:
            buffer[:] = message.payload
            self._arrivals.append(_Arrival(None, buffer, None))

    def discard(self, token: int) -> bool:
        """Discard an offer; return False if there is none."""
        message = self._offers.pop(token, None)
        if message is not None:
            message.discard()
        return message is not None

    def _take(self, tag: int | None, message: ActiveMessage | TaggedMessage, events: list[Event]) -> None:
        length_bytes, options = message.length_bytes, self._options
        limit = options.max_plain_bytes if tag is None else options.max_tagged_bytes
        if length_bytes > limit:
            message.discard()
            raise LimitError(f"ucx: a message of {length_bytes} bytes; at most {limit} are received")
        self._counts = (self._counts[0] + (tag is None), self._counts[1] + (tag is not None))
        self._credit_messages -= 1
        if length_bytes > options.eager_bytes:
            self._offers[self._next_token] = message
            events.append(Offered(self._next_token, tag, length_bytes))
            self._next_token -= 1  # negative: submitted messages have positive tokens
            return
        self._credit_bytes -= length_bytes
        if isinstance(message, ActiveMessage) and message.payload is not None:
            self._deliver(None, memoryview(message.payload), events)
            return
        buffer = memoryview(bytearray(length_bytes))
        self._arrivals.append(_Arrival(tag, buffer, message.receive_into(buffer)))

    def _deliver(self, tag: int | None, content: memoryview, events: list[Event]) -> None:
        self.bytes_received += content.nbytes
        events.append(Received(tag, content))

    def _receive_end(self, message: ActiveMessage) -> None:
        if message.payload is None or len(message.payload) != _END.size:
            message.discard()
            raise ProtocolError(f"ucx: the end of the connection has {message.length_bytes} bytes, not {_END.size}")
        self._total = _END.unpack(message.payload)


class UcxChannel(Channel):
    """One end of a connection; created by `UcxTransport.dial` and `UcxEndpoint.accept`. It owns the worker."""

    def __init__(
        self,
        endpoint: Endpoint,
        options: TransportOptions,
        on_close: Callable[[], None],
        *,
        arena: Any = None,
    ) -> None:
        self.options = options
        self.traits = Traits(is_ordered=False)
        self.arena = arena
        """The memory that the listener exports to its clients, if any."""
        self.exporter: Any = None
        """The exporter of this channel, if any, which is closed with it."""
        self.endpoint = endpoint
        self.is_closed = False
        self._worker = endpoint.worker
        self._on_close = on_close
        self._sender = _Sender()
        self._receiver = _Receiver(options)
        self._signals = {RECEIVE: Signal(), SEND: Signal()}
        self._next_token = 1
        self._lost_directions = 0
        self._failure: BowstringError | None = None
        arm(self._worker, _do_nothing, self._signals.values())

    @property
    def bytes_received(self) -> int:  # type: ignore[override]
        """As `Channel.bytes_received`: counts whole messages."""
        return self._receiver.bytes_received

    @property
    def bytes_sent(self) -> int:  # type: ignore[override]
        """As `Channel.bytes_sent`: counts whole messages."""
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
        """As `Channel.is_receiving`."""
        return self._receiver.is_receiving

    @property
    def wait_description(self) -> str:
        """As `Channel.wait_description`."""
        return f"ucx: {self.endpoint.name}: {'sending' if self.is_sending else 'receiving'}"

    @property
    def wait_s(self) -> float:
        """As `Channel.wait_s`."""
        return math.inf

    def submit(self, parts: Sequence[BytesLike], tag: int | None = None) -> int:
        """As `Channel.submit`."""
        token = self._next_token
        self._next_token += 1
        length_bytes = sum(memoryview(part).nbytes for part in parts)
        if not self._sender.queue:
            self._signals[SEND].set()
        self._sender.queue.append(_Message(token, tag, parts, length_bytes))
        return token

    def accept_message_into(self, token: int, destination: Any = None) -> None:
        """As `Channel.accept_message_into`."""
        self._receiver.accept_message_into(token, destination)
        self._signals[RECEIVE].set()

    def cancel(self, token: int) -> bool:
        """As `Channel.cancel`: a message that libucp has begun to send can't be cancelled."""
        if token < 0:
            self._signals[RECEIVE].set()  # later messages may have waited
            return self._receiver.discard(token)
        message = next((message for message in self._sender.queue if message.token == token), None)
        if message is not None:
            self._sender.queue.remove(message)
        return message is not None

    def grant(self, messages: int, nbytes: int) -> None:
        """As `Channel.grant`."""
        had_credit = self._receiver.has_credit
        self._receiver.grant(messages, nbytes)
        if not had_credit:
            self._signals[RECEIVE].set()  # messages that libucp has received already

    def progress(self, directions: int = BOTH) -> list[Event]:
        """As `Channel.progress`."""
        events: list[Event] = []
        directions &= ~self._lost_directions
        if not directions:
            return events
        steps = self._worker.num_steps
        for direction, signal in self._signals.items():
            if directions & direction:
                signal.clear()
        try:
            arm(self._worker, lambda: self._process(directions, events), self._signals.values())
        except BowstringError as error:
            self._lose(directions, error, events)
        if directions != BOTH and self._worker.num_steps != steps:
            # What happened may be what a thread waits for that drives the other direction.
            self._signals[BOTH & ~directions].set()
        return events

    def interests(self, directions: int = BOTH) -> list[Interest]:
        """As `Channel.interests`: the worker's descriptor, and one for each direction."""
        directions &= ~self._lost_directions
        if not self._sender.is_sending:
            directions &= ~SEND
        if not (self._receiver.has_credit or self._receiver.is_receiving):
            directions &= ~RECEIVE
        signals = [signal for direction, signal in self._signals.items() if directions & direction]
        interests = [Interest(signal.descriptor, RECEIVE) for signal in signals]
        return [*interests, Interest(self._worker.event_descriptor, RECEIVE)] if signals else []

    def descriptors(self) -> list[int]:
        """As `Channel.descriptors`: those that are known; libucp has more."""
        if self.is_closed:
            return []
        return [self._worker.event_descriptor, *(signal.descriptor for signal in self._signals.values())]

    def half_close(self) -> None:
        """As `Channel.half_close`."""
        self._sender.ends_when_sent = True
        if not self._sender.is_sending:
            self._say_end()

    def wake(self) -> None:
        """As `Channel.wake`."""
        for signal in self._signals.values():
            signal.set()

    def shut_down(self) -> None:
        """As `Channel.shut_down`."""
        if self._failure is None:
            self._failure = ConnectionLostError(f"ucx: {self.endpoint.name}: the connection was shut down")
            self._say_end()
        self.wake()

    def close(self) -> None:
        """As `Channel.close`. Waits until what was sent has left this process, for at most 0.2 seconds."""
        if self.is_closed:
            return
        self.is_closed = True
        self._lost_directions = BOTH
        if self._worker.is_inherited:
            return
        self._sender.queue.clear()
        self._say_end()
        try:
            self._linger()
            self._worker.close()
        except ClosedError:
            pass
        for signal in self._signals.values():
            signal.close()
        if self.exporter is not None:
            self.exporter.close()
        self.arena = self.exporter = None
        self._on_close()

    def _say_end(self) -> None:
        try:
            self._sender.end(self.endpoint)
            self._worker.progress()
        except BowstringError:
            pass  # the connection has ended already

    def _linger(self) -> None:
        if self._sender.started or self.endpoint.status < 0:
            return
        request = self.endpoint.close(is_forced=False)
        end = time.monotonic() + _LINGER_S
        while request is not None and not request.is_complete and (remaining_s := end - time.monotonic()) > 0:
            self._worker.progress()
            if not request.is_complete:
                self._worker.wait(remaining_s)

    def _process(self, directions: int, events: list[Event]) -> None:
        """Process what has happened in these directions."""
        if directions & ~self._lost_directions & SEND:
            try:
                self._check_connected()
                self._sender.progress(self.endpoint, events)
            except BowstringError as error:
                self._lose(SEND, error, events)
        if directions & ~self._lost_directions & RECEIVE:
            try:
                self._receiver.progress(self._worker, events)
                self._check_received_all()
            except BowstringError as error:
                self._lose(RECEIVE, error, events)

    def _check_connected(self) -> None:
        if self._sender.is_sending and (error := self._error()) is not None:
            raise error

    def _check_received_all(self) -> None:
        """Raise the error of an ended connection, once everything that arrived was received."""
        if self._receiver.has_ended:
            raise ConnectionLostError(f"ucx: {self.endpoint.name}: the peer disconnected")
        error = self._error()
        if error is not None and not self._worker.active_messages and not self._receiver.is_receiving:
            raise error

    def _error(self) -> BowstringError | None:
        return self.endpoint.error if self._failure is None else self._failure

    def _lose(self, directions: int, error: BowstringError, events: list[Event]) -> None:
        directions &= ~self._lost_directions
        if directions:
            self._lost_directions |= directions
            events.append(Lost(without_traceback(error), directions))

    def __repr__(self) -> str:
        return f"<UcxChannel {'closed' if self.is_closed else 'open'}: {self.endpoint.name}>"


def _do_nothing() -> None:
    pass
