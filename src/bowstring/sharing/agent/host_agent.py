"""The host agent: a process that holds published partitions after the tasks that wrote them have ended.

Tasks send sealed memfds, or unnamed files where memory is short (`memory_budget`). The driver commits one attempt
of each partition, and only those can be read, through the same `Server` as `bowstring.serve`. The agent watches its
owners (the driver, or on other hosts the executors). When the last one has ended, it drops all data sets but detached
ones, and exits when it has none; also when it has had none for a while. Its memory has no name in any file system:
nothing is left when it exits, and readers keep the memory that they have mapped.

One thread answers all requests: of tasks, over the agent's unix socket, and of drivers on other hosts,
which have none before their messages are authenticated (`control`). A connection without a request is closed
after a few seconds, and first of all if there are too many.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any, TypeAlias

from bowstring.errors import BowstringError, InvalidArgumentError, ProtocolError, ResourceError
from bowstring.memory.closable import Closable, call_on_error
from bowstring.memory.region import Region
from bowstring.sharing.agent.agent_datasets import AgentDatasets, Attempt, index_partition
from bowstring.sharing.agent.control import CONTROL_OPTIONS, NONCE_BYTES, ControlSession, RemoteAccess, check_nonce
from bowstring.sharing.agent.memory_budget import MemoryBudget, MemoryRequest, MemoryReservation
from bowstring.sharing.agent.messages import decode_message, encode_message
from bowstring.sharing.agent.publications import Publication
from bowstring.sharing.processes import ProcessIdentity, list_inherited_limits, redirect_to_devnull
from bowstring.sharing.server.accepted_connections import AcceptedConnections
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.server.server import Server
from bowstring.sharing.uris import ERROR_DATA, PUBLISHED_ADDRESS_PREFIX, encode_error_message
from bowstring.transports.base import (
    BOTH_DIRECTIONS,
    SEND,
    Channel,
    DirectionEnded,
    Listener,
    MessageOffered,
    MessageReceived,
    RemoteMemoryUpdated,
    TransportOptions,
    Wait,
)
from bowstring.transports.event_loop import EventHandler, EventLoop, ListenerHandler
from bowstring.transports.registry import find_transport
from bowstring.transports.sockets.tcp_connector import UNREACHABLE_ERRNOS
from bowstring.transports.sockets.unix import UNIX, UnixListener

_FIRST_OWNER_S = 60.0
"""A process that starts an agent may die before it owns it, or be slow to."""
_IDLE_S = 120.0
"""Less would start agents again and again for processes that publish now and then."""
# How late the agent may notice that a data set has expired, an owner has ended, or it is no longer needed.
_TICK_S = 1.0
# A task requests as soon as it has connected: a connection that is silent for longer is not one.
_FIRST_REQUEST_S = 10.0
# Between two requests a task writes a batch, which on a busy host takes a while.
_NEXT_REQUEST_S = 120.0
# Packing partitions takes up to 0.2 s, and other tasks wait meanwhile.
_REQUESTS_PER_TURN = 4
# Or a quarter of the descriptors that the process may have, if that is less.
_MAX_CLIENTS = 4096
# Tasks that run at the same time on one host, with much to spare; or an eighth of the descriptors.
_MAX_CONNECTIONS = 1024
# It is kept for each data set that has ended, and in the errors of its readers.
_MAX_REASON = 300
TRANSPORT_OPTIONS = TransportOptions(
    max_plain_bytes=1 << 26,
    max_tagged_bytes=0,
    credit_messages=_REQUESTS_PER_TURN,
    max_regions=1,
    keep_descriptors=True,
)
"""One region at a time, whose descriptor is passed on to readers."""


class HostAgent(Closable):
    """The data sets of the agent, and the loop that answers requests.

    The readers' server has a loop and thread of its own, so that readers do not wait while partitions are packed.
    """

    def __init__(self) -> None:
        # Regions, readers, tasks and drivers have fixed shares of them, so that none can take the others' descriptors.
        self._max_descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._server = self._create_server(None)
        self._loop = EventLoop("bowstring-agent")
        self._owners: set[ProcessIdentity] = set()
        self._owners_checked_at = -math.inf
        self._drivers: dict[ProcessIdentity, set[AgentConnection]] = {}
        """The connections of owners on any host; none of one that is silent, which may still run."""
        self._has_had_owner = False
        self._access: RemoteAccess | None = None
        self._control_uri = ""
        self.memory = MemoryBudget()
        self.datasets = AgentDatasets(self._server, self.memory, max_regions=self._max_descriptors // 4)
        self._used_at = time.monotonic()

    def listen(self, listener: Listener) -> None:
        """Accept tasks from now on. The agent owns the listener."""
        max_connections = min(self._max_descriptors // 8, _MAX_CONNECTIONS)
        self._loop.add(_ConnectionAcceptor(self._loop, listener, max_connections, partial(AgentConnection, self)))

    def _create_server(self, access: RemoteAccess | None) -> Server:
        """Create the readers' server, for this host and with `access` for others."""
        limit, addresses = self._max_descriptors, {"unix": f"{PUBLISHED_ADDRESS_PREFIX}{secrets.token_hex(8)}"}
        options = ServerOptions(max_clients=min(limit // 4, _MAX_CLIENTS), max_silent=min(limit // 8, _MAX_CONNECTIONS))
        if access is not None:
            addresses[access.scheme] = access.listen_address
            # A ticket is valid as long as its data set, whose lifetime may be renewed; names are never used twice.
            lifetime_s = math.inf
            options = replace(options, ticket_key=access.ticket_key, ticket_lifetime_s=lifetime_s, tls=access.tls)
            options = replace(options, advertised_host=access.host)
        return Server(options=options, addresses=addresses)

    def _open_to_other_hosts(self, access: RemoteAccess) -> None:
        """Listen at a network address, too: for readers, and for control connections. Raises as `serve`."""
        server = self._create_server(access)
        with call_on_error(server.close):
            options = replace(CONTROL_OPTIONS, tls=access.tls, advertised_host=access.host)
            listener = find_transport(access.scheme, access.scheme).listen(access.listen_address, options)
        # The previous server has no data sets, since this is the first request of the first owner.
        self._server.close()
        self._server = self.datasets.server = server
        self._access = access
        self._control_uri = f"{access.scheme}:{listener.address}"
        max_connections = min(self._max_descriptors // 16, _MAX_CONNECTIONS)
        create = partial(AgentConnection, self, secret=access.secret)
        self._loop.add(_ConnectionAcceptor(self._loop, listener, max_connections, create))

    def run(self) -> None:
        """Answer requests until the agent is no longer needed."""
        while not self._is_finished:
            self.step(_TICK_S)
            if self.datasets.drop_expired():
                self._used_at = time.monotonic()
            if time.monotonic() >= self._owners_checked_at + _TICK_S:  # of a JVM, the kernel takes a millisecond
                self._owners_checked_at = time.monotonic()
                with contextlib.suppress(ResourceError):  # they may still run
                    self._owners = {owner for owner in self._owners if owner.is_alive()}
            if self._has_had_owner and not self._has_owner:
                self.datasets.drop_attached()
            self.datasets.record(_TICK_S)
        self.datasets.record(0)

    def step(self, timeout_s: float) -> int:
        """Wait for connections and requests, and answer some. Return the number of connections that had any."""
        return self._loop.run_turn(timeout_s)

    def close(self) -> None:
        """Drop all data sets, and close all connections. Idempotent."""
        self.datasets.close()
        self._loop.close()
        self._server.close()

    @property
    def _has_owner(self) -> bool:
        return bool(self._owners or self._drivers)

    @property
    def _is_finished(self) -> bool:
        """Whether the agent is no longer needed."""
        now = time.monotonic()
        return (
            (not self.datasets and self._has_had_owner and not self._has_owner)
            or (not self.datasets and not self.memory.has_reservations and now - self._used_at > _IDLE_S)
            or (not self.datasets and not self._has_had_owner and now - self._used_at > _FIRST_OWNER_S)
        )

    def answer(self, request: memoryview, connection: AgentConnection) -> tuple[bytes, int | None]:
        """Return the reply to a request and its tag."""
        try:
            return encode_message(self._execute_request(request, connection)), None
        except BowstringError as error:
            return encode_error_message(error), ERROR_DATA

    def _execute_request(self, data: memoryview, connection: AgentConnection) -> dict[str, Any]:
        operations = _OPERATIONS if connection.is_local else _CONTROL_OPERATIONS
        try:
            request = decode_message(data, "request")
            operation_name = request["op"]
            operation = operations[operation_name]
        except (KeyError, TypeError):
            raise ProtocolError(f"expected a request, found {bytes(data[:80])!r}") from None
        try:
            if "region" in request:
                # From now on the request owns the region, whose descriptor is closed with its last reference.
                request["region"] = connection.take_region(int(request["region"]))
            # Without the fields that a client of a later version may send.
            fields = {name: request[name] for name in request.keys() & _FIELD_NAMES[operation_name]}
            reply = operation(self, connection, **fields) or {}
            # Processes that look for data sets ask all agents, which would not end if that counted. Requests that fail
            # do not count either, such as the requests of tasks whose driver has ended.
            if operation_name not in _QUERIES:
                self._used_at = time.monotonic()
            return reply
        except BowstringError:
            raise
        except Exception as error:  # any error: the agent continues, for other data sets
            raise ProtocolError(f"request {operation_name}: {type(error).__name__} {error}") from error

    # The requests. Their fields are the arguments; what fails with values of other types is an error of the request.

    def add_owner(
        self, _: AgentConnection, owner: Sequence[Any], access: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Add an owner. The first one decides whether other hosts have access."""
        process = ProcessIdentity(*owner)
        remote_access = None if access is None else RemoteAccess.from_json(access)
        if remote_access is not None and not self._has_had_owner and self._access is None:
            self._open_to_other_hosts(remote_access)
        if (remote_access and remote_access.secret) != (self._access and self._access.secret):
            raise InvalidArgumentError("the host agent has another secret, or none: it runs with another key")
        if not process.is_alive():
            raise InvalidArgumentError(f"process {process.pid} does not run on this host: it can't own the host agent")
        self._owners.add(process)
        self._has_had_owner = True
        return {"pid": os.getpid(), "control_uri": self._control_uri, "limits": list_inherited_limits()}

    def add_driver(self, connection: AgentConnection, owner: Sequence[Any]) -> None:
        """Add an owner on any host, until the end of its last connection."""
        process = ProcessIdentity(*owner)
        # It replaces its connections itself, and its threads may do so in any order.
        self._drivers.setdefault(process, set()).add(connection)
        connection.owner = process

    def reserve(self, connection: AgentConnection, memory: Mapping[str, Any]) -> dict[str, Any]:
        """Reserve memory for the partition that the connection writes; `shortage` is the reason if it is refused."""
        shortage = self.memory.reserve(connection.reservation, MemoryRequest(**memory))
        return {"reserved_bytes": connection.reservation.reserved_bytes, "shortage": shortage}

    def put(  # noqa: PLR0913 -- the fields of a request
        self,
        connection: AgentConnection,
        dataset: str,
        attempt: Sequence[int],
        region: Region,
        num_rows: int,
        ttl_s: float,
        *,
        needs_commit: bool,
        is_detached: bool,
        is_temporary: bool,
    ) -> dict[str, Any]:
        """Take the memory or the unnamed file of one attempt."""
        # All who list the data sets get these values.
        dataset, (index, attempt_id) = str(dataset), map(int, attempt)
        partition = index_partition(region, num_rows)
        locations = self.datasets.put(
            dataset, (index, attempt_id), partition, ttl_s=ttl_s, needs_commit=needs_commit, is_detached=is_detached
        )
        connection.reservation.close()
        if is_temporary:
            connection.unpublished.add(dataset)
        return {"locations": locations.uris}

    def find_missing(self, _: AgentConnection, dataset: str, attempts: Sequence[Attempt]) -> dict[str, Any]:
        """The partitions whose attempts are not there."""
        return {"missing": self.datasets.find_missing(dataset, {(index, attempt) for index, attempt in attempts})}

    def commit(
        self, _: AgentConnection, dataset: str, attempts: Sequence[Attempt], ttl_s: float | None = None
    ) -> dict[str, Any]:
        """Serve the committed attempts, and drop the others."""
        return {"missing": self.datasets.commit(dataset, {(index, attempt) for index, attempt in attempts}, ttl_s)}

    def publish(self, _: AgentConnection, dataset: str, publication: object, description: bytes) -> dict[str, Any]:
        """Publish a committed data set, or update what was published."""
        return {"expires_at": self.datasets.publish(dataset, Publication.from_json(publication, description))}

    def find_published(self, _: AgentConnection, name: str) -> dict[str, Any]:
        """A published data set by ID or name, with its description, and the access to the agents of other hosts."""
        # The peer has the secret already or is a process of this user, which may change all that the agent has.
        access = None if self._access is None else self._access.to_json()
        return {**self.datasets.find_published(name), "access": access}

    def drop(self, _: AgentConnection, dataset: str, reason: str, *, is_replaced: bool) -> None:
        """Drop a data set; a replaced one a few seconds later."""
        drop = self.datasets.replace if is_replaced else self.datasets.drop
        drop(dataset, reason[:_MAX_REASON])

    def status(self, _: AgentConnection) -> dict[str, Any]:
        """The process, and what is in its memory."""
        return {"pid": os.getpid(), "datasets": self.datasets.to_json(), "memory": self.memory.to_json()}

    def end_ownership(self, connection: AgentConnection, *, is_silent: bool) -> None:
        """The connection of a driver has ended. A silent one owns the agent until its data sets expire."""
        assert connection.owner is not None
        connections = self._drivers.get(connection.owner, set())
        connections.discard(connection)
        if not connections and not is_silent:
            self._drivers.pop(connection.owner, None)


class AgentConnection(Closable, EventHandler):
    """The handler of a connection: answers its requests in order. Closed after a while without one.

    It is one of a task or of the driver of this host and user, or with `secret` one of a process on any host, which has
    to have the secret. Both can become owners of the agent.
    """

    deadline: float = math.inf

    def __init__(
        self, agent: HostAgent, acceptor: _ConnectionAcceptor, channel: Channel, *, secret: bytes | None = None
    ) -> None:
        self._agent = agent
        self._acceptor = acceptor
        self._channel = channel
        self._secret = secret
        self._session: ControlSession | None = None
        self._regions = UNIX.open_remote_memory(channel, None) if secret is None else None
        self.reservation = MemoryReservation(agent.memory)
        """The memory that the client has reserved for the partition that it writes."""
        self.unpublished: set[str] = set()
        """The data sets that end with the connection unless they are published."""
        self.owner: ProcessIdentity | None = None
        """The driver whose end ends the connection, if it is an owner."""
        self.deadline = time.monotonic() + _FIRST_REQUEST_S

    @property
    def is_local(self) -> bool:
        """Whether the client is a process of this host and user."""
        return self._secret is None

    @property
    def has_sent_request(self) -> bool:
        """Whether a request was answered."""
        return self in self._acceptor.connections.active

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
                    # No memory is allocated for one that is not authenticated.
                    if not (self.is_local or self.has_sent_request):
                        raise ProtocolError(f"a message of {event.length_bytes} bytes before the first request")
                    channel.accept_offered_message(event.token)
                elif isinstance(event, RemoteMemoryUpdated):
                    if self._regions is None:
                        raise ProtocolError("memory of another host")
                    self._regions.apply_update(event.update)
                elif isinstance(event, DirectionEnded):
                    raise event.error
            channel.progress(SEND)
        except (BowstringError, OSError) as error:
            self._end(error)

    def handle_deadline(self) -> None:
        self._acceptor.close_connection(self)

    def take_region(self, index: int) -> Region:
        """Return a region that the client has sent, which no other request gets. Raises `ProtocolError`."""
        if self._regions is None:
            raise ProtocolError(f"region {index}: memory of another host")
        return self._regions.pop(index)

    def close(self) -> None:
        self._acceptor.connections.remove(self)
        self.reservation.close()
        self._agent.datasets.drop_unpublished(self.unpublished)
        self.unpublished = set()
        self._channel.close()

    def _handle_message(self, message: memoryview) -> None:
        """Answer a request, or the greeting before the first one of another host."""
        if self._secret is not None and self._session is None:
            nonce = secrets.token_bytes(NONCE_BYTES)
            self._session = ControlSession(self._secret, check_nonce(message), nonce, is_agent=True)
            self._channel.submit((nonce,))
            return
        if self._session is not None:
            message = self._session.verify(message)
        reply, tag = self._agent.answer(message, self)
        self._channel.submit((reply,) if self._session is None else self._session.sign(reply, tag), tag)
        # A client that does not receive the answer is closed then, too.
        self._acceptor.connections.activate(self)
        # A task that writes a partition may compute for long between two requests, and an owner requests nothing.
        is_in_use = self.reservation.is_open or self.owner is not None
        self.deadline = math.inf if is_in_use else time.monotonic() + _NEXT_REQUEST_S

    def _end(self, error: Exception) -> None:
        if self.owner is not None:
            # The system of a driver's host ends its connections with its process. Without any sign of that host, or
            # after bytes that are not the driver's, it may still run.
            is_lost = isinstance(error, ConnectionError) and getattr(error, "errno", None) not in UNREACHABLE_ERRNOS
            self._agent.end_ownership(self, is_silent=not is_lost)
        self._acceptor.close_connection(self)


class _ConnectionAcceptor(ListenerHandler):
    """Accepts connections of a listener up to a limit; others wait in the socket's queue."""

    connections_per_turn = 1

    def __init__(
        self,
        loop: EventLoop,
        listener: Listener,
        max_connections: int,
        create: Callable[[_ConnectionAcceptor, Channel], AgentConnection],
    ) -> None:
        super().__init__(listener)
        self._loop = loop
        self._max_connections = max_connections
        self._create = create
        self.connections = AcceptedConnections(self.close_connection)

    @property
    def _can_accept(self) -> bool:
        """Whether one more connection can be accepted, if necessary in place of one without a request."""
        return len(self.connections) < self._max_connections or bool(self.connections.silent)

    def next_wait(self) -> Wait:
        return super().next_wait() if self._can_accept else Wait([])

    def handle_events(self, events: int) -> None:
        # Without events, a connection was closed: only what to wait for has changed. Accepting here could replace
        # another connection, whose end would lead here again.
        if events and self._can_accept:
            super().handle_events(events)

    def add_channel(self, channel: Channel) -> None:
        if len(self.connections) >= self._max_connections:
            self.connections.end_oldest_silent()
        connection = self._create(self, channel)
        self.connections.add(connection)
        self._loop.add(connection)

    def close_unused_connection(self, error: Exception) -> bool:  # noqa: ARG002 - the agent has no log
        return self.connections.end_oldest_silent()

    def close_connection(self, connection: AgentConnection) -> None:
        """Close a connection, after which another one may be accepted."""
        self._loop.remove(connection)
        connection.close()
        self._loop.notify_handler(self, 0)


_Operation: TypeAlias = Callable[..., dict[str, Any] | None]
"""Gets the agent, the connection and the fields of the request; returns the reply, None for an empty one."""
_CONTROL_OPERATIONS: dict[str, _Operation] = {
    "ping": lambda _agent, _connection: None,
    "use": lambda _agent, _connection: {"limits": list_inherited_limits()},  # the agent waits for what is published
    "own": HostAgent.add_driver,
    "find_missing": HostAgent.find_missing,
    "reopen": lambda agent, _connection, dataset: agent.datasets.reopen(dataset),
    "commit": HostAgent.commit,
    "publish": HostAgent.publish,
    "renew": lambda agent, _connection, dataset, ttl_s: {"expires_at": agent.datasets.renew(dataset, ttl_s)},
    "find": HostAgent.find_published,
    "list": lambda agent, _connection, name: {"datasets": agent.datasets.list_published(name)},
    "drop": HostAgent.drop,
    "status": HostAgent.status,
}
"""The requests that any host may send."""
_QUERIES = {"ping", "find_missing", "find", "list", "status"}
"""The requests that do not keep the agent running."""
_OPERATIONS: dict[str, _Operation] = {
    **_CONTROL_OPERATIONS,
    "hello": HostAgent.add_owner,
    "reserve": HostAgent.reserve,
    "put": HostAgent.put,
}
_FIELD_NAMES = {name: signature(operation).parameters.keys() for name, operation in _OPERATIONS.items()}


def main(descriptor: int, ready_descriptor: int = -1) -> None:
    """Run the agent on an inherited listening socket. When it is ready, write a byte to the other descriptor, if any:
    until then, the process that starts the agent reads its standard error.
    """
    with socket.socket(fileno=descriptor) as listening_socket:
        os.set_inheritable(descriptor, False)
        agent = HostAgent()
        agent.listen(UnixListener.from_socket(listening_socket, TRANSPORT_OPTIONS))
        if ready_descriptor >= 0:
            redirect_to_devnull([2])
            with contextlib.suppress(BrokenPipeError):  # it has stopped waiting
                os.write(ready_descriptor, b"1")
            os.close(ready_descriptor)
        agent.run()
    os._exit(0)  # the server's thread has nothing to clean up
