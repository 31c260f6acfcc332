"""Drive a session with asyncio: its events are awaited, and leases are freed whenever the loop runs."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from typing import Self

from bowstring.errors import ClosedError
from bowstring.transports.base import BOTH_DIRECTIONS, RECEIVE, SEND
from bowstring.transports.session import ProtocolCore, RequestMessages, Session, SessionEvent, SessionFailed


class AsyncSession:
    """Waits for the events of a session in a running event loop. An async context manager.

    Nothing is received while an event waits for `next_event`, so a slow task slows down the peer. Leases may be
    released in any thread.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._loop = asyncio.get_running_loop()
        self._events: deque[SessionEvent] = deque()
        self._new_events = asyncio.Event()
        self._readers: set[int] = set()
        self._writers: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._failure: SessionFailed | None = None
        # Several tasks may wait, each for an event of its own; deadlines count while at least one does.
        self._num_waiting = 0
        session.wake = self._wake
        self._update_watches()

    def start_request(self, core: ProtocolCore, request: RequestMessages) -> None:
        """As `Session.start_request`."""
        self.session.start_request(core, request, time.monotonic())
        self._step()

    async def next_event(self) -> SessionEvent:
        """Wait for the next event; after the end of the session, return `SessionFailed` every time.

        Deadlines count only the time in which a task waits.
        """
        while not self._events:
            if self._failure is not None:
                return self._failure
            await self._wait_for_events()
        event = self._events.popleft()
        if not self._events and not self._is_closed:
            self._update_watches()
        return event

    def close(self) -> None:
        """Close the session; a task that waits gets `SessionFailed`. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._cancel_timer()
        # Before the session closes them: asyncio would otherwise watch a number that may be another file's.
        self._watch_descriptors(set(), set())
        self.session.close()
        self._add_events([SessionFailed(ClosedError("the session was closed"))])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def _wait_for_events(self) -> None:
        if not self._num_waiting:
            self.session.restart_deadlines(time.monotonic())
        self._num_waiting += 1
        self._new_events.clear()
        self._update_watches()
        try:
            await self._new_events.wait()
        finally:
            self._num_waiting -= 1

    def _wake(self) -> None:
        """Step soon, called from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._step)
        except RuntimeError:  # the event loop is closed
            pass

    @property
    def _step_directions(self) -> int:
        return SEND if self._events else BOTH_DIRECTIONS

    def _step(self) -> None:
        if not self._is_closed:
            now = time.monotonic()
            if not self._num_waiting:
                self.session.restart_deadlines(now)
            self._add_events(self.session.step(now, self._step_directions))
            self._update_watches()

    def _add_events(self, events: list[SessionEvent]) -> None:
        if events:
            self._events.extend(events)
            self._new_events.set()
            if isinstance(events[-1], SessionFailed) and (self.session.is_failed or self._is_closed):
                self._failure = events[-1]

    def _update_watches(self) -> None:
        """Watch the descriptors of the session's interests, and set the timer."""
        wait = self.session.next_wait(self._step_directions)
        self._watch_descriptors(
            {descriptor for descriptor, events in wait.interests if events & RECEIVE},
            {descriptor for descriptor, events in wait.interests if events & SEND},
        )
        self._cancel_timer()
        delay_s = min(wait.timeout_s, self.session.next_deadline() - time.monotonic())
        if delay_s < math.inf and not self._events and self._failure is None:
            self._timer = self._loop.call_later(max(delay_s, 0.0), self._step)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch_descriptors(self, readers: set[int], writers: set[int]) -> None:
        # First, because a descriptor that is ready and not read would call `_step` in every turn of the loop.
        for descriptor in self._readers - readers:
            self._loop.remove_reader(descriptor)
        for descriptor in self._writers - writers:
            self._loop.remove_writer(descriptor)
        for descriptor in readers - self._readers:
            self._loop.add_reader(descriptor, self._step)
        for descriptor in writers - self._writers:
            self._loop.add_writer(descriptor, self._step)
        self._readers, self._writers = readers, writers
