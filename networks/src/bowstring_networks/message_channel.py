"""Channels over a library that sends whole messages, such as UCX and libfabric.

A `MessageChannel` has what they share: the queue, credit, offers, the descriptors that wake a driver, and the end of a
connection. A transport supplies a `MessageSender` and a `MessageReceiver`, which start the operations of its library,
and the progress of the library.

Both directions depend on the same progress, so a lock makes the threads that send and receive take turns.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from bowstring.dissociated.messages import BytesLike
from bowstring.errors import BowstringError, ClosedError, ConnectionLostError, InvalidArgumentError
from bowstring.memory.forks import process_token
from bowstring.transports.base import (
    BOTH_DIRECTIONS,
    RECEIVE,
    SEND,
    Channel,
    ChannelTraits,
    Credit,
    DirectionEnded,
    Event,
    Interest,
    MessageOffered,
    TransportOptions,
    Wait,
    allocate_message,
    as_writable_bytes,
    strip_traceback,
)
from bowstring_networks.registered_memory import RegisteredMemoryExporter
from bowstring_networks.timer import Timer

RETRY_S = 0.001
"""The time after which a library that can't report when it can continue is called again."""
MAX_SEND_WAIT_S = 0.2
"""How long `MessageChannel.close` waits for messages that are still being sent."""
# Arming fails if something arrived during `advance`. A peer that keeps sending must not keep this call from returning:
# the timer continues.
_MAX_ROUNDS = 8
_MAX_JOINED_BYTES = 1 << 22
"""Of the parts that are joined: a message of many small parts is not copied as a whole."""


def advance_until_armed(advance: Callable[[], object], arm: Callable[[], bool]) -> bool:
    """Advance until `arm` succeeds, so that a descriptor will report what happens next.

    Return False if there is still more to do after a while, or if no descriptor reports it.
    """
    for _ in range(_MAX_ROUNDS):
        advance()
        if arm():
            return True
    return False


def join_small_parts(parts: Sequence[BytesLike], small_bytes: int) -> Iterator[memoryview]:
    """Yield the parts of a message that are not empty. Runs of parts up to `small_bytes` are joined, because a library
    needs longer for each part than for copying so few bytes.
    """
    small = bytearray()
    for part in parts:
        view = memoryview(part).cast("B")
        if view.nbytes <= small_bytes and len(small) < _MAX_JOINED_BYTES:
            small += view
            continue
        if small:
            yield memoryview(small)
            small = bytearray()
        yield view
    if small:
        yield memoryview(small)


@dataclass(frozen=True, slots=True, eq=False)
class SubmittedMessage:
    """A message to send."""

    tag: int | None
    parts: Sequence[BytesLike]
    length_bytes: int


class MessageSender(ABC):
    """The messages that were submitted and not sent."""

    def __init__(self) -> None:
        self.queue: deque[SubmittedMessage] = deque()
        self.started_messages: set[SubmittedMessage] = set()
        """The messages that have left the queue, and not this process."""
        self.bytes_sent = 0
        self._has_ended = False

    @property
    def is_sending(self) -> bool:
        """Whether a message has not been sent."""
        return bool(self.queue or self.started_messages)

    @property
    def queued_bytes(self) -> int:
        """The total length of the messages that have not been sent."""
        return sum(message.length_bytes for message in (*self.queue, *self.started_messages))

    @abstractmethod
    def progress(self) -> None:
        """Start messages, and remove those that were sent. Raises the error of one that failed."""

    def send_end_once(self) -> None:
        """Tell the peer that no more messages follow, once, if there is a connection."""
        if not self._has_ended and self.is_connected:
            self._has_ended = True
            self.send_end()

    @property
    @abstractmethod
    def is_connected(self) -> bool:
        """Whether messages can be started."""

    @abstractmethod
    def send_end(self) -> None:
        """Send the peer the end of the messages."""


class AnnouncedMessage(Protocol):
    """A message of the peer, as the library announces it."""

    @property
    def tag(self) -> int | None:
        """Its tag; None for a plain message."""

    @property
    def length_bytes(self) -> int:
        """Its length."""


M = TypeVar("M", bound=AnnouncedMessage)
A = TypeVar("A")


class MessageReceiver(ABC, Generic[M, A]):
    """The messages that have arrived, the credit for more, and the offers."""

    def __init__(self, name: str, options: TransportOptions) -> None:
        self.credit = Credit(name, options)
        self.offers: dict[int, M] = {}
        """The offered messages, by token."""
        self.arrivals: list[A] = []
        """The messages whose bytes arrive."""
        self.num_taken = 0
        """The number of messages that were offered or received."""
        self.num_sent_by_peer: int | None = None
        """The number of all messages, once the peer has ended: the end may overtake messages."""
        self.bytes_received = 0
        self._name = name
        self._num_offers = 0

    @property
    def is_receiving_message(self) -> bool:
        """Whether a message is offered, or arrives."""
        return bool(self.arrivals or self.offers)

    @property
    def has_ended(self) -> bool:
        """Whether the peer has ended, and all its messages were received."""
        return self.num_taken == self.num_sent_by_peer and not self.is_receiving_message

    @abstractmethod
    def progress(self, events: list[Event]) -> None:
        """Take messages as long as there is credit, and report those that have arrived.

        Raises `LimitError`, `ProtocolError`, and the error of a message that failed.
        """

    def offer_or_receive(self, message: M, events: list[Event]) -> None:
        """Offer a message, or receive it if it is short. Raises `LimitError`."""
        if self.credit.consume(message.tag, message.length_bytes):
            self._num_offers += 1
            self.offers[self._num_offers] = message
            events.append(MessageOffered(self._num_offers, message.tag, message.length_bytes))
        else:
            self.receive_eagerly(message, events)
        self.num_taken += 1

    def receive_eagerly(self, message: M, events: list[Event]) -> None:  # noqa: ARG002 - for messages that have arrived
        """Receive a short message."""
        self.receive_into(message, memoryview(bytearray(message.length_bytes)))

    @abstractmethod
    def receive_into(self, message: M, destination: memoryview) -> None:
        """Receive a message; `progress` reports it when it has arrived."""

    def accept_offered_message(self, token: int, destination: Any) -> None:
        """As `Channel.accept_offered_message`."""
        message = self.offers.get(token)
        if message is None:
            raise InvalidArgumentError(f"{self._name}: message {token} is not offered")
        length_bytes = message.length_bytes
        if destination is None:
            destination = allocate_message(length_bytes, f"{self._name}: a message")
        view = as_writable_bytes(destination, length_bytes)
        del self.offers[token]
        self.receive_into(message, view)


class MessageChannel(Channel):
    """One end of a connection. A subclass makes the library progress, and reports why a connection has ended."""

    def __init__(
        self,
        name: str,
        options: TransportOptions,
        traits: ChannelTraits,
        sender: MessageSender,
        receiver: MessageReceiver[Any, Any],
    ) -> None:
        self.options = options
        self.traits = traits
        self.registered_memory: Any = None
        """The memory that the listener exports to its clients, if any."""
        self.is_closed = False
        self._exporter: RegisteredMemoryExporter | None = None
        self._name = name
        self._sender = sender
        self._receiver = receiver
        # One for each direction, besides the library's descriptor: a thread that progresses takes the event that
        # another thread waits for, and then has to wake it.
        self._timers = {RECEIVE: Timer(), SEND: Timer()}
        # Taken before the lock of `RegisteredMemory`, which takes them in the other order only for channels that are
        # closed. These do not take its lock any more.
        self._lock = threading.RLock()
        self._process = process_token()
        self._lost_directions = 0
        self._failure: BowstringError | None = None

    @property
    def bytes_received(self) -> int:  # type: ignore[override]
        """As `Channel.bytes_received`: counts whole messages, or the parts of long ones."""
        return self._receiver.bytes_received

    @property
    def bytes_sent(self) -> int:  # type: ignore[override]
        """As `Channel.bytes_sent`: counts whole messages, or the parts of long ones."""
        return self._sender.bytes_sent

    @property
    def is_sending(self) -> bool:
        return self._sender.is_sending

    @property
    def queued_bytes(self) -> int:
        return self._sender.queued_bytes

    @property
    def is_receiving_message(self) -> bool:
        """As `Channel.is_receiving_message`; also while the ends connect."""
        return self._receiver.is_receiving_message or not (self.is_connected or self._lost_directions)

    @property
    def wait_description(self) -> str:
        action = "connecting" if not self.is_connected else "sending" if self.is_sending else "receiving"
        return f"{self._name}: {action}"

    @property
    def exporter(self) -> RegisteredMemoryExporter | None:  # type: ignore[override]
        """The exporter of the listener's registered memory, if it has one. It is closed with the channel."""
        if self._exporter is None and self.registered_memory is not None:
            self._exporter = RegisteredMemoryExporter(self.registered_memory)
        return self._exporter

    def submit(self, parts: Sequence[BytesLike], tag: int | None = None) -> None:
        length_bytes = sum(memoryview(part).nbytes for part in parts)
        with self._lock:
            # Otherwise the timer is set already, or the library reports when it can send more.
            if not self._sender.queue:
                self._timers[SEND].set()
            self._sender.queue.append(SubmittedMessage(tag, parts, length_bytes))

    def accept_offered_message(self, token: int, destination: Any = None) -> None:
        with self._lock:
            self._receiver.accept_offered_message(token, destination)
            self._timers[RECEIVE].set()

    def grant_credit(self, num_messages: int, nbytes: int) -> None:
        with self._lock:
            had_credit = self._receiver.credit.is_available
            self._receiver.credit.grant(num_messages, nbytes)
            if not had_credit:
                self._timers[RECEIVE].set()  # messages that have arrived already

    def progress(self, directions: int = BOTH_DIRECTIONS) -> list[Event]:
        events: list[Event] = []
        with self._lock:
            directions &= ~self._lost_directions
            if not directions:
                return events
            # Before the progress: what another thread adds meanwhile sets the timer again.
            for direction, timer in self._timers.items():
                if directions & direction:
                    timer.clear()
            try:
                self._progress_until_armed(directions, events)
            except BowstringError as error:
                self._report_end(BOTH_DIRECTIONS, error, events)
        return events

    def next_wait(self, directions: int = BOTH_DIRECTIONS) -> Wait:
        """As `Channel.next_wait`: a descriptor for each direction, and the connection's."""
        directions &= ~self._lost_directions
        if not self._sender.is_sending and self.is_connected:
            directions &= ~SEND
        if not (self._receiver.credit.is_available or self._receiver.is_receiving_message):
            directions &= ~RECEIVE
        if not directions:
            return Wait([])
        timers = [timer for direction, timer in self._timers.items() if directions & direction]
        return Wait([*(Interest(timer.descriptor, RECEIVE) for timer in timers), *self._connection_interests()])

    def descriptors(self) -> list[int]:
        """As `Channel.descriptors`: those that are known; the library has more."""
        if self.is_closed:
            return []
        return [*(timer.descriptor for timer in self._timers.values()), *self._connection_descriptors()]

    def wake(self) -> None:
        self._set_timers(BOTH_DIRECTIONS, 0.0)

    def shut_down(self) -> None:
        with self._lock:
            if self._failure is None and not self.is_closed and not self._is_inherited:
                self._failure = ConnectionLostError(f"{self._name}: the connection was shut down")
                self._send_end()
                self._shut_down_connection()
        self.wake()

    def close(self) -> None:
        """As `Channel.close`. Waits up to 0.2 seconds for messages that are still being sent."""
        if self._is_inherited:
            self._close_inherited()
            return
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
            self._lost_directions = BOTH_DIRECTIONS
            self._sender.queue.clear()
            has_peer_left = self._receiver.has_ended or self._connection_error is not None
            self._send_end()
            for timer in self._timers.values():
                timer.close()
            exporter, self._exporter = self._exporter, None
            # A peer that may still read the registered memory keeps the connection until it has left;
            # `RegisteredMemory` closes it then.
            if exporter is None or has_peer_left or not exporter.close(self):
                self.close_connection()
            if exporter is not None:
                exporter.close()

    def _close_inherited(self) -> None:
        """Close the descriptors in a forked child.

        A thread of the parent may have locked the channel, its registered memory or the library during the fork, so no
        lock is taken. The memory and the library's objects belong to the parent.
        """
        if not self.is_closed:
            self.is_closed = True
            self._lost_directions = BOTH_DIRECTIONS
            self._exporter = self.registered_memory = None
            for timer in self._timers.values():
                timer.close()
            self._close_connection()

    def has_left(self) -> bool:
        """As `DisconnectedPeer.has_left`, after `close`."""
        with self._lock:
            try:
                self._progress_library()
                return self._has_peer_ended or self._connection_error is not None
            except ClosedError:
                return True

    def close_connection(self) -> None:
        """As `DisconnectedPeer.close_connection`."""
        with self._lock:
            self._close_connection()
            self.registered_memory = None

    @property
    def _is_inherited(self) -> bool:
        """Whether the channel belongs to the parent of this process."""
        return self._process is not process_token()

    @property
    @abstractmethod
    def _progress_count(self) -> int:
        """How often the library found something to do."""

    @abstractmethod
    def _progress_library(self) -> None:
        """Let the library progress, and take what has arrived."""

    @abstractmethod
    def _arm(self) -> bool:
        """Prepare the library's descriptor for what happens next; False if there is more to do already."""

    @property
    def _poll_delay_s(self) -> float:
        """The time after which to progress, although no descriptor reports it; `math.inf` for none."""
        return math.inf

    @property
    @abstractmethod
    def _connection_error(self) -> BowstringError | None:
        """Why the connection has ended, if it has."""

    @property
    @abstractmethod
    def _has_no_more_input(self) -> bool:
        """Whether no message can arrive any more, once the connection has ended."""

    @property
    def _has_peer_ended(self) -> bool:
        """Whether the peer has sent its last message, although earlier ones may not be received."""
        return self._receiver.has_ended

    @abstractmethod
    def _connection_interests(self) -> list[Interest]:
        """The descriptors to wait for, besides the descriptors of the directions."""

    @abstractmethod
    def _connection_descriptors(self) -> list[int]:
        """The open descriptors of the connection."""

    @abstractmethod
    def _shut_down_connection(self) -> None:
        """End the connection; descriptors stay open."""

    @abstractmethod
    def _close_connection(self) -> None:
        """Wait for messages that are still being sent, then release the resources of the connection."""

    def _progress_until_armed(self, directions: int, events: list[Event]) -> None:
        """Collect what has happened, until the descriptors will report what happens next, or set the timers."""

        def advance() -> None:
            self._progress_library()
            self._collect_events(directions, events)

        previous_count = self._progress_count
        is_armed = advance_until_armed(advance, self._arm)
        has_changed = self._progress_count != previous_count
        delay_s = math.inf if is_armed else 0.0 if has_changed else RETRY_S
        delay_s = min(delay_s, self._poll_delay_s)
        if delay_s < math.inf:
            self._set_timers(BOTH_DIRECTIONS, delay_s)
        if has_changed:
            # A thread that drives the other direction may wait for this event.
            self._set_timers(BOTH_DIRECTIONS & ~directions, 0.0)

    def _collect_events(self, directions: int, events: list[Event]) -> None:
        """Collect the events of these directions."""
        if directions & ~self._lost_directions & SEND:
            try:
                self._send()
            except BowstringError as error:
                self._report_end(SEND, error, events)
        if directions & ~self._lost_directions & RECEIVE:
            try:
                self._receive_events(events)
            except BowstringError as error:
                self._report_end(RECEIVE, error, events)

    def _send(self) -> None:
        sender, error = self._sender, self._error
        # With nothing to send, only receiving reports the error, after the messages that arrived before it.
        if error is not None and (sender.is_sending or not self.is_connected):
            raise error
        if sender.is_connected:
            sender.progress()

    def _receive_events(self, events: list[Event]) -> None:
        """Receive; raise the error of an ended connection, once everything that arrived was received."""
        self._receiver.progress(events)
        if self._receiver.has_ended:
            raise ConnectionLostError(f"{self._name}: the peer disconnected")
        error = self._error
        if error is not None and self._has_no_more_input:
            raise error

    @property
    def _error(self) -> BowstringError | None:
        return self._failure or self._connection_error

    def _send_end(self) -> None:
        """Tell the peer that no more messages follow."""
        try:
            self._sender.send_end_once()
        except BowstringError:
            pass  # the connection has ended already

    def _set_timers(self, directions: int, delay_s: float) -> None:
        for direction, timer in self._timers.items():
            if direction & directions:
                timer.set(delay_s)

    def _report_end(self, directions: int, error: BowstringError, events: list[Event]) -> None:
        directions &= ~self._lost_directions
        if directions:
            self._lost_directions |= directions
            events.append(DirectionEnded(strip_traceback(error), directions))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'closed' if self.is_closed else 'open'}: {self._name}>"
