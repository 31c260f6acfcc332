"""An event loop: one thread that waits for the descriptors and deadlines of many sessions and of their listeners."""

from __future__ import annotations

import math
import selectors
import socket
import sys
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from bowstring.errors import BowstringError, ClosedError, translate_os_error
from bowstring.memory.closable import Closable
from bowstring.memory.thread_pool import start_checked
from bowstring.transports.base import Channel, Interest, Listener, Wait

# Handlers do not block, so the thread usually ends at once. After this, it closes the handlers itself.
_JOIN_TIMEOUT_S = 5.0
# How late a deadline may be noticed: little for deadlines of seconds, and comparing them costs nothing at 20 times a
# second.
_RESOLUTION_S = 0.05
# Without a pause, the listener stays readable and the loop would spin; a client notices little of this delay.
_PAUSE_S = 0.2


class EventHandler(Protocol):
    """A handler of descriptors. Its methods are called in the loop's thread and must not block."""

    def next_wait(self) -> Wait:
        """What to wait for before the next `handle_events`. Descriptors stay open while the handler is in the loop."""

    def descriptors(self) -> list[int]:
        """All open descriptors."""

    @property
    def deadline(self) -> float:
        """The time to call `handle_deadline`, by `time.monotonic`; `math.inf` for never."""

    def handle_events(self, events: int) -> None:
        """Do a limited amount of work, so that others have their turn. `events` is 0 after the timeout."""

    def handle_deadline(self) -> None:
        """The deadline has passed. It is compared immediately before the call."""

    def close(self) -> None:
        """The loop ends, or a method raised an unexpected error."""


class EventLoop(Closable):
    """A thread that waits for the descriptors of its handlers. Raises `ResourceError` if no descriptors are left.

    Handlers are added and removed in the thread itself, or before `start`; other threads use `call_soon_threadsafe`.
    """

    def __init__(self, name: str) -> None:
        self._handlers: dict[EventHandler, list[Interest]] = {}
        self._timeouts: dict[EventHandler, float] = {}
        """The ends of the handlers' waits, by `time.monotonic`."""
        # Other threads append to it, without a lock because that is atomic, and then call `_wake`.
        self._calls: deque[Callable[[], None]] = deque()
        self._next_expiry = math.inf
        self._is_closed = False
        self._close_lock = threading.Lock()
        """Locked while `close` or the thread decides which of them closes the handlers."""
        self._has_ended = self._closes_at_end = False
        try:
            self._selector = selectors.DefaultSelector()
            self._reader, self._writer = socket.socketpair()
        except OSError as error:
            raise translate_os_error(error, f"event loop: {error.strerror}") from error
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._selector.register(self._reader, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def descriptors(self) -> list[int]:
        """All descriptors of the loop and its handlers; none when they are closed."""
        if self._reader.fileno() < 0:
            return []
        own = [self._reader.fileno(), self._writer.fileno()]
        if hasattr(self._selector, "fileno"):
            own.append(self._selector.fileno())
        return own + [descriptor for handler in list(self._handlers) for descriptor in handler.descriptors()]

    def run_turn(self, max_wait_s: float = math.inf) -> int:
        """Wait, and call each handler that can continue once. Return their number. Not while a thread does the same."""
        turn = self._wait(max_wait_s)
        # Descriptors first, then calls, then deadlines: what has arrived in time counts although this thread was late.
        for handler, events in turn.items():
            if handler in self._handlers:  # not removed by one that was called before
                self.notify_handler(handler, events)
        # Only those that are queued now: an action that queues another one would keep the handlers from their turn.
        for _ in range(len(self._calls)):
            try:
                self._calls.popleft()()
            except Exception:  # noqa: BLE001 - reported as the failure of a thread
                self._report_exception()
        if time.monotonic() >= self._next_expiry:
            self._handle_deadlines()
        return len(turn)

    def start(self) -> None:
        """Start the thread. Raises `ResourceError`."""
        start_checked(self._thread, "event loop")

    def call_soon_threadsafe(self, action: Callable[[], None]) -> None:
        """Call `action` in the loop's thread. Thread-safe."""
        self._calls.append(action)
        self._wake()

    def add(self, handler: EventHandler) -> None:
        """Add a handler."""
        self._handlers[handler] = []
        self._update_registration(handler)

    def notify_handler(self, handler: EventHandler, events: int) -> None:
        """Call a handler as if its descriptor were ready."""
        self._call_handler(handler, partial(handler.handle_events, events))

    def remove(self, handler: EventHandler) -> None:
        """Remove a handler without closing it."""
        for descriptor in dict(self._handlers.pop(handler, [])):
            self._selector.unregister(descriptor)
        self._timeouts.pop(handler, None)

    def close(self) -> None:
        """End the thread, and close all handlers. Idempotent.

        If the thread does not end in time, because a handler blocks it, it closes them itself when it does: until then
        it may use their descriptors, whose numbers would otherwise belong to other files.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._wake()
        # A handler may close the loop in its own thread, and the thread may not have been started.
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_TIMEOUT_S)
            with self._close_lock:
                self._closes_at_end = not self._has_ended
            if self._closes_at_end:
                return
        self._close_handlers()

    def _close_handlers(self) -> None:
        for handler in list(self._handlers):
            handler.close()
        self._handlers.clear()
        self._timeouts.clear()
        self._reader.close()  # first: `descriptors` may be read in a child that another thread forks
        self._selector.close()
        self._writer.close()

    def _run(self) -> None:
        while not self._is_closed:
            self.run_turn()
        with self._close_lock:
            self._has_ended = True
        if self._closes_at_end:
            self._close_handlers()

    def _wait(self, max_wait_s: float) -> dict[EventHandler, int]:
        """Wait for the next turn; return its handlers, each once, so that none waits for several calls of another."""
        turn: dict[EventHandler, int] = {}
        for key, events in self._selector.select(self._timeout_s(max_wait_s)):
            if key.data is None:
                self._reader.recv(1 << 12)
            else:
                # A handler may have a descriptor for each direction.
                turn[key.data] = turn.get(key.data, 0) | events
        if self._timeouts:
            now = time.monotonic()
            for handler, end in self._timeouts.items():
                if end <= now:
                    turn.setdefault(handler, 0)
        return turn

    def _call_handler(self, handler: EventHandler, action: Callable[[], None]) -> None:
        """Call a handler's method. After an unexpected error the handler is closed and the others continue."""
        try:
            action()
        except Exception:  # noqa: BLE001 - reported as the failure of a thread
            self._report_exception()
            self.remove(handler)
            handler.close()
        if handler in self._handlers:
            self._update_registration(handler)

    def _report_exception(self) -> None:
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), self._thread)))

    def _handle_deadlines(self) -> None:
        """Call the handlers whose deadline has passed, and compute the next deadline."""
        now = time.monotonic()
        for handler in list(self._handlers):
            # A handler that was called before may have removed it.
            if handler in self._handlers and handler.deadline <= now:
                self._call_handler(handler, handler.handle_deadline)
        earliest = min((handler.deadline for handler in self._handlers), default=math.inf)
        # Comparing the deadlines of thousands of handlers in every turn would cost more than the turn. A deadline that
        # has become later is noticed here; `_update_registration` records one that has become earlier.
        self._next_expiry = max(earliest, now + _RESOLUTION_S)

    def _update_registration(self, handler: EventHandler) -> None:
        interests, timeout_s = handler.next_wait()
        if interests != self._handlers[handler]:
            previous = dict(self._handlers[handler])
            # At once: a ready descriptor that is not read would end every wait of the loop.
            for descriptor in previous.keys() - dict(interests).keys():
                self._selector.unregister(descriptor)
            # A handler has one interest per descriptor; `dict` turns the pairs into descriptor → events.
            for descriptor, events in dict(interests).items():
                if descriptor not in previous:
                    self._selector.register(descriptor, events, handler)
                elif previous[descriptor] != events:
                    self._selector.modify(descriptor, events, handler)
            self._handlers[handler] = interests
        self._timeouts.pop(handler, None)
        if timeout_s < math.inf:
            self._timeouts[handler] = time.monotonic() + timeout_s
        self._next_expiry = min(self._next_expiry, handler.deadline)

    def _timeout_s(self, max_wait_s: float) -> float | None:
        if self._calls:
            return 0.0
        end = min(self._next_expiry, *self._timeouts.values()) if self._timeouts else self._next_expiry
        timeout_s = min(max(end - time.monotonic(), 0.0), max_wait_s)
        return None if timeout_s == math.inf else timeout_s

    def _wake(self) -> None:
        try:
            self._writer.send(b"\0")
        except OSError:  # the buffer is full: the loop wakes up in any case
            pass


class ListenerHandler(Closable, EventHandler):
    """The handler of a listener: accepts connections, some in each turn; pauses while no descriptors are left."""

    connections_per_turn = 16
    deadline: float = math.inf

    def __init__(self, listener: Listener) -> None:
        self.listener = listener

    def next_wait(self) -> Wait:
        return Wait(self.listener.interests() if self.deadline == math.inf else [])

    def descriptors(self) -> list[int]:
        return self.listener.descriptors()

    def handle_events(self, _events: int) -> None:
        try:
            channels = self.listener.accept(self.connections_per_turn)
        except ClosedError:
            return
        except (BowstringError, OSError) as error:
            if not self.close_unused_connection(error):
                self.deadline = time.monotonic() + _PAUSE_S
            return
        for channel in channels:
            self.add_channel(channel)

    def handle_deadline(self) -> None:
        self.deadline = math.inf

    def close(self) -> None:
        self.listener.close()

    @abstractmethod
    def add_channel(self, channel: Channel) -> None:
        """Use an accepted connection."""

    @abstractmethod
    def close_unused_connection(self, error: Exception) -> bool:
        """Close a connection because of `error`, a shortage; return False if all are in use."""
