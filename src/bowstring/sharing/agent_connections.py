"""The connections of a host agent: those of tasks, over its unix socket, and those of drivers on other hosts.

All are handled by the agent's loop. A connection without a request is closed after a few seconds, and first of all if
there are too many; one of another host has no request before its messages are authenticated (`agent_control`).
"""

from __future__ import annotations

import math
import secrets
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Protocol

from bowstring.errors import BowstringError, ProtocolError
from bowstring.memory.closable import Closable
from bowstring.memory.region import Region
from bowstring.sharing.agent_control import NONCE_BYTES, ControlSession, check_nonce
from bowstring.sharing.memory_budget import MemoryBudget, MemoryReservation
from bowstring.sharing.processes import ProcessIdentity
from bowstring.transports.base import (
    BOTH_DIRECTIONS,
    SEND,
    Channel,
    DirectionEnded,
    Listener,
    MessageOffered,
    MessageReceived,
    RemoteMemoryUpdated,
    Wait,
)
from bowstring.transports.event_loop import EventHandler, EventLoop, ListenerHandler
from bowstring.transports.tcp_connector import UNREACHABLE_ERRNOS
from bowstring.transports.unix import UNIX

_FIRST_REQUEST_S = 10.0
_NEXT_REQUEST_S = 120.0


class Agent(Protocol):
    """What the connections need of the agent."""

    memory: MemoryBudget

    def answer(self, request: memoryview, connection: AgentConnection) -> tuple[bytes, int | None]:
        """Return the reply to a request and its tag."""

    def drop_unpublished(self, datasets: Iterable[str]) -> None:
        """A connection has ended; drop what it has not published of these data sets."""

    def end_ownership(self, connection: ControlConnection, *, is_silent: bool) -> None:
        """A connection whose owner is a driver has ended; with `is_silent`, the driver may still run."""


class AgentConnection(Closable, EventHandler):
    """The handler of a connection: answers its requests in order."""

    deadline: float = math.inf

    def __init__(self, channel: Channel, close_connection: Callable[[AgentConnection], None]) -> None:
        self._channel = channel
        self._close_connection = close_connection
        self.has_sent_request = False
        self.deadline = time.monotonic() + _FIRST_REQUEST_S

    @property
    def _directions(self) -> int:
        # A client that does not receive its answers gets no more of them: they would fill the agent's memory.
        return SEND if self._channel.is_sending else BOTH_DIRECTIONS

    def next_wait(self) -> Wait:
        return self._channel.next_wait(self._directions)

    def descriptors(self) -> list[int]:
        return self._channel.descriptors()

    def handle_events(self, _events: int) -> None:
        channel = self._channel
        try:
            for event in channel.progress(self._directions):
                if isinstance(event, MessageReceived):
                    channel.grant_credit(1, channel.options.credit_bytes_of(len(event.data)))
                    self._handle_message(event.data)
                elif isinstance(event, MessageOffered):
                    self._accept_offered_message(event)
                elif isinstance(event, RemoteMemoryUpdated):
                    self._update_memory(event)
                elif isinstance(event, DirectionEnded):
                    raise event.error
            channel.progress(SEND)
        except (BowstringError, OSError) as error:
            self._end(error)

    def handle_deadline(self) -> None:
        self._close_connection(self)

    def close(self) -> None:
        self._channel.close()

    @abstractmethod
    def take_region(self, index: int) -> Region:
        """Return a region that the client has sent, which no other request gets. Raises `ProtocolError`."""

    @abstractmethod
    def _handle_message(self, message: memoryview) -> None:
        """Answer a message."""

    def _accept_offered_message(self, offer: MessageOffered) -> None:
        self._channel.accept_offered_message(offer.token)

    def _update_memory(self, event: RemoteMemoryUpdated) -> None:  # noqa: ARG002 - for connections of the same host
        raise ProtocolError("memory of another host")

    def _end(self, error: Exception) -> None:  # noqa: ARG002 - the agent has no log
        self._close_connection(self)


class TaskConnection(AgentConnection):
    """A connection of a task or of the driver of this host and user."""

    def __init__(self, agent: Agent, channel: Channel, close_connection: Callable[[AgentConnection], None]) -> None:
        super().__init__(channel, close_connection)
        self._agent = agent
        self._regions = UNIX.open_remote_memory(channel, None)
        self.reservation = MemoryReservation(agent.memory)
        """The memory that the client has reserved for the partition that it writes."""

        self.unpublished: set[str] = set()
        """The data sets that end with the connection unless they are published."""

    def take_region(self, index: int) -> Region:
        return self._regions.pop(index)

    def close(self) -> None:
        self.reservation.close()
        self._agent.drop_unpublished(self.unpublished)
        self.unpublished = set()
        super().close()

    def _handle_message(self, message: memoryview) -> None:
        reply, tag = self._agent.answer(message, self)
        self._channel.submit((reply,), tag)
        # A client that does not receive the answer is closed then, too.
        self.has_sent_request = True
        # A task that writes a partition may compute for long between two requests.
        self.deadline = math.inf if self.reservation.is_open else time.monotonic() + _NEXT_REQUEST_S

    def _update_memory(self, event: RemoteMemoryUpdated) -> None:
        self._regions.apply_update(event.update)


class ControlConnection(AgentConnection):
    """A connection of a process with the agent's secret, on any host. It can become an owner of the agent."""

    def __init__(
        self, agent: Agent, secret: bytes, channel: Channel, close_connection: Callable[[AgentConnection], None]
    ) -> None:
        super().__init__(channel, close_connection)
        self._agent = agent
        self._secret = secret
        self._session: ControlSession | None = None
        self.owner: ProcessIdentity | None = None
        """The driver whose end ends the connection, if it is an owner."""

    def take_region(self, index: int) -> Region:
        raise ProtocolError(f"region {index}: memory of another host")

    def _handle_message(self, message: memoryview) -> None:
        if self._session is None:
            nonce = secrets.token_bytes(NONCE_BYTES)
            self._session = ControlSession(self._secret, check_nonce(message), nonce, is_agent=True)
            self._channel.submit((nonce,))
            return
        reply, tag = self._agent.answer(self._session.verify(message), self)
        self._channel.submit(self._session.sign(reply, tag), tag)
        self.has_sent_request = True
        self.deadline = math.inf if self.owner is not None else time.monotonic() + _NEXT_REQUEST_S

    def _accept_offered_message(self, offer: MessageOffered) -> None:
        if not self.has_sent_request:
            raise ProtocolError(f"a message of {offer.length_bytes} bytes before the first request")
        super()._accept_offered_message(offer)

    def _end(self, error: Exception) -> None:
        if self.owner is not None:
            # The system of a driver's host ends its connections with its process. Without any sign of that host, or
            # after bytes that are not the driver's, it may still run.
            is_lost = isinstance(error, ConnectionError) and getattr(error, "errno", None) not in UNREACHABLE_ERRNOS
            self._agent.end_ownership(self, is_silent=not is_lost)
        super()._end(error)


class ConnectionAcceptor(ListenerHandler):
    """Accepts connections of a listener up to a limit; others wait in the socket's queue."""

    connections_per_turn = 1

    def __init__(
        self,
        loop: EventLoop,
        listener: Listener,
        max_connections: int,
        create: Callable[[Channel, Callable[[AgentConnection], None]], AgentConnection],
    ) -> None:
        super().__init__(listener)
        self._loop = loop
        self._max_connections = max_connections
        self._create = create
        self._connections: dict[AgentConnection, None] = {}

    def next_wait(self) -> Wait:
        return super().next_wait() if self._can_accept else Wait([])

    def handle_events(self, events: int) -> None:
        # Without events, a connection was closed: only what to wait for has changed. Accepting here could replace
        # another connection, whose end would lead here again.
        if events and self._can_accept:
            super().handle_events(events)

    def add_channel(self, channel: Channel) -> None:
        if len(self._connections) >= self._max_connections:
            self._close_silent_connection()
        connection = self._create(channel, self.close_connection)
        self._connections[connection] = None
        self._loop.add(connection)

    def close_unused_connection(self, error: Exception) -> bool:  # noqa: ARG002 - the agent has no log
        return self._close_silent_connection()

    def close_connection(self, connection: AgentConnection) -> None:
        """Close a connection, after which another one may be accepted."""
        self._connections.pop(connection, None)
        self._loop.remove(connection)
        connection.close()
        self._loop.notify_handler(self, 0)

    @property
    def _can_accept(self) -> bool:
        """Whether one more connection can be accepted, if necessary in place of one without a request."""
        return len(self._connections) < self._max_connections or self._find_silent_connection() is not None

    def _close_silent_connection(self) -> bool:
        """Close the oldest connection without a request; return False if there is none."""
        connection = self._find_silent_connection()
        if connection is not None:
            self.close_connection(connection)
        return connection is not None

    def _find_silent_connection(self) -> AgentConnection | None:
        return next((each for each in self._connections if not each.has_sent_request), None)
