"""Drive channels with blocking calls and deadlines, which count from the last progress.

A `BlockingSession` waits for the events of a `Session`. A `BlockingChannel` sends and receives single messages.
"""

from __future__ import annotations

import math
import os
import select
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from bowstring.dissociated.messages import BytesLike
from bowstring.errors import (
    BowstringError,
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    InvalidArgumentError,
)
from bowstring.memory.closable import Closable, call_on_error
from bowstring.memory.region import Region
from bowstring.transports.base import (
    BOTH_DIRECTIONS,
    DEFAULT_OPTIONS,
    RECEIVE,
    SEND,
    Channel,
    Deadline,
    DirectionEnded,
    Event,
    ExportedRegion,
    Interest,
    MessageOffered,
    MessageReceived,
    RemoteMemoryUpdated,
    Transport,
    TransportOptions,
    check_message_length,
)
from bowstring.transports.session import ProtocolCore, RequestMessages, Session, SessionEvent, SessionFailed

# Longer than a step of another thread takes; only a finalizer in the thread that has the lock waits for all of it.
_CLOSE_TIMEOUT_S = 5.0
# A server that does not read for so long gets the addresses with the next request; a finalizer must not wait longer.
_FREE_TIMEOUT_S = 1.0
_BUSY_WAIT_S = 2e-4
"""How long a session waits for the first message after a request without sleeping: most servers reply sooner, and
waking a thread takes about a third of the time of a small request.
"""
_MAX_WAIT_S = 1.0
"""How long a session waits before it looks for output of other threads that the transport did not take at once."""


class Poll:
    """Waits for descriptors; they stay registered as long as the interests are the same."""

    __slots__ = ("_interests", "_poll")

    def __init__(self) -> None:
        self._poll = select.poll()
        self._interests: list[Interest] = []

    def wait(self, interests: list[Interest], timeout_s: float, busy_s: float = 0.0) -> bool:
        """As `wait_for_interests`; for `busy_s`, other threads may run, but this one does not sleep."""
        if interests != self._interests:
            self._poll = poll = select.poll()
            self._interests = interests
            for descriptor, events in interests:
                poll.register(
                    descriptor, (select.POLLIN if events & RECEIVE else 0) | (select.POLLOUT if events & SEND else 0)
                )
        if busy_s > 0:
            end = time.monotonic() + busy_s
            # Yields to other threads of this host, which may include the server, instead of spinning on the processor
            # that it needs.
            while not self._poll.poll(0):
                if time.monotonic() >= end:
                    break
                _yield_processor()
            else:
                return True
        # Rounded up: a wait of less than a millisecond must not become a busy loop.
        return bool(self._poll.poll(None if timeout_s == math.inf else math.ceil(timeout_s * 1000)))


_yield_processor: Callable[[], object] = getattr(os, "sched_yield", partial(time.sleep, 0))


def wait_for_interests(interests: list[Interest], timeout_s: float) -> bool:
    """Wait until a descriptor is ready; return False if `timeout_s` passes first. `math.inf` waits for any time."""
    return Poll().wait(interests, timeout_s)


def dial(
    transport: Transport, address: str, options: TransportOptions = DEFAULT_OPTIONS, timeout_s: float | None = None
) -> Channel:
    """Return a connected channel. Raises as `Transport.dial`, and `DeadlineError`."""
    deadline = options.start_deadline(timeout_s)
    channel = transport.dial(address, options)
    with call_on_error(channel.close):
        # No thread or loop exists yet that could finish a dial that takes several steps, as TCP and TLS do.
        while not channel.is_connected:
            if not deadline.remaining_s():
                raise deadline.deadline_error(channel.wait_description)
            wait = channel.next_wait(SEND)
            wait_for_interests(wait.interests, min(deadline.remaining_s(), wait.timeout_s))
            for event in channel.progress(SEND):
                # A peer that has refused the certificate of this end has sent why: that is received after a request.
                if isinstance(event, DirectionEnded) and not (channel.is_connected and event.directions == SEND):
                    raise event.error
    return channel


class BlockingSession(Closable):
    """Waits for the events of a session. Makes no progress while its caller computes, except for released leases.

    One thread waits for events. A lease may be released in any thread and in the middle of any code, so a thread that
    does not get the lock at once leaves it to the thread that has it.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.lock = threading.Lock()
        self.is_closed = False
        self._events: deque[SessionEvent] = deque()
        self._failure: SessionFailed | None = None
        self._poll = Poll()
        self._is_answer_due = False
        """Whether nothing was received since the last request."""
        weak_self = weakref.ref(self)  # no cycle: a connection that is dropped ends at once
        session.wake = lambda: None if (driver := weak_self()) is None else driver.flush()

    def start_request(self, core: ProtocolCore, request: RequestMessages) -> None:
        """As `Session.start_request`; sends as much as the transport accepts at once."""
        with self.lock:
            self._events.clear()  # those after the end of an earlier stream
            self.session.start_request(core, request, time.monotonic())
            # `next_event` checks for the reply first: it may wait without sleeping.
            self._step(SEND)
        self._is_answer_due = True

    def next_event(self) -> SessionEvent:
        """Wait for the next event; after the end of the session, return `SessionFailed` every time.

        Deadlines do not count the time between calls.
        """
        if not self._events:
            self.session.restart_deadlines(time.monotonic())
        while not self._events:
            if self._failure is not None:
                return self._failure
            # Without the lock, so that `flush` in another thread can send meanwhile.
            self._wait()
            with self.lock:
                self._step()
            # A lease that was released during the step found the lock taken, so no other thread sends it.
            self.flush()
        return self._events.popleft()

    def flush(self) -> None:
        """Send the released addresses. If another thread has the lock, that thread sends them."""
        session = self.session
        # Never waits for the lock: a finalizer may run in the thread that has it. Checked again after every release,
        # since a lease may be released between the step and the release of the lock.
        while session.has_leases_to_free and not self.is_closed and self.lock.acquire(blocking=False):
            try:
                self._step(SEND)
                # During a stream the server may wait for this end to receive, so nothing blocks. After a connection
                # was lost, there is nothing to wait for.
                while session.core is None and session.is_sending and (interests := session.next_wait(SEND).interests):
                    if not wait_for_interests(interests, _FREE_TIMEOUT_S):
                        break
                    self._step(SEND)
                for channel in session.channels.values():
                    channel.wake()  # another thread may wait for what this one received
            finally:
                self.lock.release()

    def close(self) -> None:
        """Close the session. May be called from any thread; another that waits gets `SessionFailed`. Idempotent."""
        if not self.is_closed:
            self.is_closed = True
            # Before the lock: a thread that waits in `poll` without it, or sends with it, returns.
            for channel in self.session.channels.values():
                channel.shut_down()
            # With a limit, because a finalizer may close the session in the thread that has the lock.
            is_locked = self.lock.acquire(timeout=_CLOSE_TIMEOUT_S)
            self.session.close()
            self._failure = SessionFailed(ClosedError("the connection was closed"))
            self._events.append(self._failure)
            if is_locked:
                self.lock.release()

    def _step(self, directions: int = BOTH_DIRECTIONS) -> None:
        events = self.session.step(time.monotonic(), directions)
        self._events.extend(events)
        if self.session.is_failed and events and isinstance(events[-1], SessionFailed):
            self._failure = events[-1]

    def _wait(self) -> None:
        """Wait until the session can continue. Without interests its channels are lost: the next step reports it."""
        wait = self.session.next_wait()
        timeout_s = min(max(self.session.next_deadline() - time.monotonic(), 0.0), wait.timeout_s, _MAX_WAIT_S)
        if timeout_s > 0 and wait.interests:
            self._poll.wait(wait.interests, timeout_s, _BUSY_WAIT_S if self._is_answer_due else 0.0)
        self._is_answer_due = False


class BlockingChannel(Closable):
    """A channel with blocking calls. One thread may send while another receives; other threads take turns.

    Every call fails with `DeadlineError` if nothing is sent or received for `timeout_s`, by default the
    options', however long a whole message takes; `math.inf` waits for any time. `receive` can be called again after a
    `DeadlineError`. After another error of the connection, and if a message or region could not be sent, all calls
    raise `ConnectionLostError`.
    """

    def __init__(self, transport: Transport, channel: Channel) -> None:
        self.channel = channel
        self.exporter = channel.exporter
        self.memory: Any = transport.open_remote_memory(channel, None)
        """The memory that the peer exported, as of the last received message."""
        # Events that a call did not process: it returns one message, or fails at its deadline.
        self._inbox: deque[Event] = deque()
        # One for each direction, as a channel allows one thread for each. Never both, except in `close`, which takes
        # them in this order.
        self._send_lock = threading.Lock()
        self._receive_lock = threading.Lock()
        self._is_closed = False
        self._failure: str | None = None

    @classmethod
    def dial(
        cls,
        transport: Transport,
        address: str,
        *,
        timeout_s: float | None = None,
        options: TransportOptions = DEFAULT_OPTIONS,
    ) -> BlockingChannel:
        """Connect to a listener. Raises as `Transport.dial`, and `DeadlineError`."""
        return cls(transport, dial(transport, address, options, timeout_s))

    @property
    def is_closed(self) -> bool:
        """Whether this end was closed, by `close` or after an error."""
        return self._is_closed or self._failure is not None

    def send(self, parts: Sequence[BytesLike], *, tag: int | None = None, timeout_s: float | None = None) -> None:
        """Send one message, the bytes of `parts` in order, plain or tagged. They may change afterwards.

        Raises `ConnectionLostError`, `DeadlineError`, `ClosedError`.
        """
        with self._lock(self._send_lock, timeout_s, "send") as deadline:
            self.channel.submit(parts, tag)
            self._send_queued(deadline)

    def export(self, region: Region, *, timeout_s: float | None = None) -> ExportedRegion:
        """Export a region; it may be closed afterwards.

        Raises as `send`, and `InvalidArgumentError` as `MemoryExporter`.
        """
        with self._lock(self._send_lock, timeout_s, "export") as deadline:
            if self.exporter is None:
                raise InvalidArgumentError("this transport can't export memory")
            exported_region = self.exporter.export(region)
            self._send_queued(deadline)
            return exported_region

    def receive(self, *, timeout_s: float | None = None, max_bytes: float = math.inf) -> MessageReceived:
        """Receive the next message. `memory` has the memory that the peer exported before it.

        Raises `ConnectionLostError`, `DeadlineError`, `ProtocolError`, `ResourceError`, `ClosedError`, and `LimitError`
        for a message of more than `max_bytes`, before memory is allocated for it.
        """
        channel = self.channel
        with self._lock(self._receive_lock, timeout_s, "receive") as deadline:
            while True:
                while self._inbox:
                    message = self._handle_event(self._inbox.popleft(), max_bytes)
                    if message is not None:
                        return message
                previous_bytes = channel.bytes_received
                self._inbox.extend(channel.progress(RECEIVE))
                if channel.bytes_received != previous_bytes:
                    deadline.restart()
                if not self._inbox and not self._wait(RECEIVE, deadline):
                    raise deadline.deadline_error(channel.wait_description)
                self._check_open("receive")

    def close(self) -> None:
        """Close the connection. May be called from any thread: blocked calls raise `ClosedError`. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self.channel.shut_down()
        locks = [lock for lock in (self._send_lock, self._receive_lock) if lock.acquire(timeout=_CLOSE_TIMEOUT_S)]
        self.channel.close()
        self._inbox.clear()
        if self.memory is not None:
            self.memory.close()
        for lock in locks:
            lock.release()

    def _handle_event(self, event: Event, max_bytes: float) -> MessageReceived | None:
        """Process an event of receiving; return the message, if any."""
        if isinstance(event, MessageReceived):
            check_message_length(len(event.data), max_bytes, "receive")
            self.channel.grant_credit(1, self.channel.options.credit_bytes_of(len(event.data)))
            return event
        if isinstance(event, MessageOffered):
            check_message_length(event.length_bytes, max_bytes, "receive")
            self.channel.accept_offered_message(event.token)
        elif isinstance(event, RemoteMemoryUpdated):
            self.memory.apply_update(event.update)
        else:
            self._raise_if_ended([event])
        return None

    def _raise_if_ended(self, events: Sequence[Event]) -> None:
        """Raise the error of a lost connection."""
        for event in events:
            if isinstance(event, DirectionEnded):
                self._check_open("the call was ended")
                raise event.error

    def _send_queued(self, deadline: Deadline) -> None:
        """Send the queue. After any error the connection fails: the peer must not wait for the rest of a message."""
        channel = self.channel
        try:
            while True:
                previous_bytes = channel.bytes_sent
                self._raise_if_ended(channel.progress(SEND))
                if not channel.is_sending:
                    return
                if channel.bytes_sent != previous_bytes:
                    deadline.restart()
                if not self._wait(SEND, deadline):
                    raise deadline.deadline_error(channel.wait_description)
                self._check_open("send")
        except BaseException as error:
            self._fail(f"in the middle of a message: {error}")
            raise

    @contextmanager
    def _lock(self, lock: threading.Lock, timeout_s: float | None, action: str) -> Iterator[Deadline]:
        """Lock a direction during a call, whose deadline begins.

        An error ends the connection, except for `DeadlineError` and `InvalidArgumentError`.
        """
        deadline = self.channel.options.start_deadline(timeout_s)
        if not lock.acquire(timeout=deadline.remaining_s()):
            raise deadline.deadline_error(f"{action} while another thread does the same")
        try:
            self._check_open(action)
            try:
                yield deadline
            except BowstringError as error:
                if not isinstance(error, DeadlineError | InvalidArgumentError):
                    self._fail(str(error))
                raise
        finally:
            lock.release()

    def _check_open(self, action: str) -> None:
        if self._is_closed:
            raise ClosedError(f"{action}: the channel was closed")
        if self._failure is not None:
            raise ConnectionLostError(f"{action} after the connection ended: {self._failure}")

    def _wait(self, directions: int, deadline: Deadline) -> bool:
        """Wait until the channel can progress; return False if the deadline passes first."""
        wait, remaining_s = self.channel.next_wait(directions), deadline.remaining_s()
        return wait_for_interests(wait.interests, min(remaining_s, wait.timeout_s)) or wait.timeout_s <= remaining_s

    def _fail(self, reason: str) -> None:
        """End the connection; its descriptors stay open until `close`."""
        self._failure = self._failure or reason
        self.channel.shut_down()

    def __del__(self) -> None:
        if hasattr(self, "_is_closed"):
            self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"ended ({self._failure})" if self._failure else "open"
        return f"<BlockingChannel {state}: {self.channel!r}>"
