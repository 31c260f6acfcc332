"""Drive a session with asyncio: its events are awaited, and leases are freed whenever the loop runs."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from typing import Self

from bowstring.errors import ClosedError
from bowstring.transports.base import RECEIVE, SEND
from bowstring.transports.session import Failed, ProtocolCore, Request, Session, SessionEvent


class AsyncSession:
    """Waits for the events of a session in a running event loop. An async context manager.

    Leases may be released in any thread.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._loop = asyncio.get_running_loop()
        self._events: deque[SessionEvent] = deque()
        self._has_events = asyncio.Event()
        self._readers: set[int] = set()
        self._writers: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        session.wake = self._wake
        self._update()

    def request(self, core: ProtocolCore, request: Request) -> None:
        """As `Session.request`."""
        self.session.request(core, request, time.monotonic())
        self._step()

    async def next_event(self) -> SessionEvent:
        """Wait for the next event."""
        while not self._events:
            self._has_events.clear()
            await self._has_events.wait()
        return self._events.popleft()

    def close(self) -> None:
        """Close the session; a task that waits gets `Failed`. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._watch(set(), set())
        self.session.close()
        self._add([Failed(ClosedError("the session was closed"))])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def _wake(self) -> None:
        """Step soon, called from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._step)

    def _step(self) -> None:
        if not self._is_closed:
            self._add(self.session.step(time.monotonic()))
            self._update()

    def _add(self, events: list[SessionEvent]) -> None:
        if events:
            self._events.extend(events)
            self._has_events.set()

    def _update(self) -> None:
        """Watch the descriptors of the session's interests, and set the timer."""
        interests = self.session.interests()
        self._watch(
            {descriptor for descriptor, events in interests if events & RECEIVE},
            {descriptor for descriptor, events in interests if events & SEND},
        )
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        delay_s = min(self.session.wait_s, self.session.next_deadline() - time.monotonic())
        if delay_s < math.inf and not any(isinstance(event, Failed) for event in self._events):
            self._timer = self._loop.call_later(max(delay_s, 0.0), self._step)

    def _watch(self, readers: set[int], writers: set[int]) -> None:
        for descriptor in self._readers - readers:
            self._loop.remove_reader(descriptor)
        for descriptor in self._writers - writers:
            self._loop.remove_writer(descriptor)
        for descriptor in readers - self._readers:
            self._loop.add_reader(descriptor, self._step)
        for descriptor in writers - self._writers:
            self._loop.add_writer(descriptor, self._step)
        self._readers, self._writers = readers, writers
