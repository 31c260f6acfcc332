"""The host agent: a process that holds published partitions after the tasks that wrote them have ended.

Tasks hand over sealed memfds, or unnamed files where memory is short (`memory_budget`). The driver commits one attempt
of each partition, and only those can be read, through the same `Server` as `bowstring.serve`. The agent watches its
owners (the driver, or on other hosts the executors), and exits when the last one has ended, or when it has had no data
set for a while. Its memory has no name in any file system: nothing is left when it exits, and readers keep the memory
that they have mapped.

A process may have as few as 1,024 descriptors. So small partitions, and beyond a quarter of the limit the smallest of
any size, are copied together into larger memfds, each for one data set: 10,000 partitions that eight processes read
at once take ten descriptors of the agent and five of each reader. One thread answers all requests, and a
connection without a request is closed after a few seconds.
"""

from __future__ import annotations

import json
import math
import os
import resource
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from bowstring.errors import (
    BowstringError,
    InvalidArgumentError,
    InvalidDataError,
    NotFoundError,
    ProtocolError,
    ResourceError,
)
from bowstring.memory.closable import Closable
from bowstring.memory.region import Region
from bowstring.sharing.memory_budget import MemoryBudget, MemoryRequest, MemoryReservation
from bowstring.sharing.processes import ProcessIdentity
from bowstring.sharing.server import Server
from bowstring.sharing.server_options import ServerOptions
from bowstring.sharing.stored_dataset import StoredDataset, index_stored_dataset, merge_into_region
from bowstring.sharing.uris import ERROR_DATA, PUBLISHED_ADDRESS_PREFIX, encode_error_message
from bowstring.transports.base import (
    BOTH_DIRECTIONS,
    RECEIVE,
    SEND,
    Channel,
    DirectionEnded,
    Interest,
    Listener,
    MessageOffered,
    MessageReceived,
    RemoteMemoryUpdated,
    TransportOptions,
    Wait,
)
from bowstring.transports.event_loop import EventLoop, ListenerHandler
from bowstring.transports.regions import RemoteRegionTable
from bowstring.transports.unix import UNIX
from bowstring.transports.unix_listener import UnixListener

_FIRST_OWNER_S = 60.0
_IDLE_S = 120.0
_TICK_S = 1.0
_FIRST_REQUEST_S = 10.0
_NEXT_REQUEST_S = 120.0
_REQUESTS_PER_TURN = 4
_MAX_DATASETS = 100_000
_MAX_CLIENTS = 4096
_MAX_CONNECTIONS = 1024
_SMALL_BYTES = 256 << 10
"""Partitions up to this size are always packed: mapping one takes a reader longer than copying it."""
_MERGE_BYTES = 256 << 20
"""The most that is packed at once: it takes that much memory twice while it is copied, and half a second."""

TRANSPORT_OPTIONS = TransportOptions(
    max_plain_bytes=1 << 26,
    max_tagged_bytes=0,
    credit_messages=_REQUESTS_PER_TURN,
    max_regions=1,
    keep_descriptors=True,
)
"""One region at a time, whose descriptor is passed on to readers."""

Attempt: TypeAlias = tuple[int, int]
"""The index of a partition, and the ID of the task attempt that wrote it."""


@dataclass(slots=True)
class _PublishedDataset:
    """The attempts of a data set, their regions, and the tickets that can be read."""

    ttl_s: float
    expires_at: float = math.inf
    is_complete: bool = False
    partitions: dict[Attempt, StoredDataset] = field(default_factory=dict)
    regions: dict[Region, list[Attempt]] = field(default_factory=dict)
    tickets: set[str] = field(default_factory=set)

    def start_lifetime(self) -> None:
        """Let the data set expire `ttl_s` from now: after the commit, or after the last attempt that needs none."""
        self.expires_at = time.monotonic() + self.ttl_s

    def add_attempt(self, attempt: Attempt, partition: StoredDataset) -> None:
        """Add an attempt."""
        self.partitions[attempt] = partition
        self.regions.setdefault(partition.region, []).append(attempt)

    def keep_only_attempts(self, attempts: Iterable[Attempt]) -> set[Region]:
        """Remove all other attempts. Return the remaining regions that still contain bytes of removed ones."""
        self.partitions = {attempt: self.partitions[attempt] for attempt in attempts}
        before, self.regions = self.regions, {}
        for attempt, partition in self.partitions.items():
            self.regions.setdefault(partition.region, []).append(attempt)
        return {region for region, remaining in self.regions.items() if len(remaining) < len(before[region])}


class HostAgent(Closable):
    """The data sets of the agent, and the loop that answers requests.

    The readers' server has a loop and thread of its own, so that readers do not wait while partitions are packed.
    """

    def __init__(self) -> None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        options = ServerOptions(max_clients=min(limit // 4, _MAX_CLIENTS), max_silent=min(limit // 8, _MAX_CONNECTIONS))
        self._server = Server(f"{PUBLISHED_ADDRESS_PREFIX}{secrets.token_hex(8)}", options)
        self._loop = EventLoop("bowstring-agent")
        self._max_regions = limit // 4
        self._max_connections = min(limit // 8, _MAX_CONNECTIONS)
        self._datasets: dict[str, _PublishedDataset] = {}
        # A late attempt must not create a dropped data set again, which nobody would drop.
        self._dropped: dict[str, None] = {}
        self._owners: dict[ProcessIdentity, _OwnerHandler] = {}
        self._has_had_owner = False
        self._acceptor: _TaskAcceptor | None = None
        self._connections: dict[_TaskHandler, None] = {}
        self.memory = MemoryBudget()
        self._started_at = self._used_at = time.monotonic()

    def listen(self, listener: Listener) -> None:
        """Accept tasks from now on. The agent owns the listener."""
        self._acceptor = _TaskAcceptor(self, listener)
        self._loop.add(self._acceptor)

    def run(self) -> None:
        """Answer requests until the agent is no longer needed."""
        while not self._is_finished:
            self.step(_TICK_S)
            self._drop_expired()

    def step(self, timeout_s: float) -> int:
        """Wait for connections and requests, and answer some. Return the number of connections that had any."""
        return self._loop.run_turn(timeout_s)

    def close(self) -> None:
        """Drop all data sets, and close all connections. Idempotent."""
        for name in list(self._datasets):
            self._drop_dataset(name)
        self._loop.close()
        self._server.close()

    def _drop_expired(self) -> None:
        """Drop expired data sets."""
        now = time.monotonic()
        for name in [name for name, dataset in self._datasets.items() if dataset.expires_at < now]:
            expired_at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
            ttl_s = self._datasets[name].ttl_s
            self._drop_dataset(name, f"data set {name!r} expired at {expired_at}, {ttl_s:g} s after its commit")

    @property
    def _is_finished(self) -> bool:
        """Whether the agent is no longer needed."""
        now = time.monotonic()
        return (
            (self._has_had_owner and not self._owners)
            or (not self._datasets and not self.memory.has_reservations and now - self._used_at > _IDLE_S)
            or (not self._has_had_owner and now - self._started_at > _FIRST_OWNER_S)
        )

    @property
    def can_accept(self) -> bool:
        """Whether one more connection can be accepted, if necessary in place of one without a request."""
        return len(self._connections) < self._max_connections or self._find_silent_connection() is not None

    def add_connection(self, channel: Channel) -> None:
        """Answer the requests of a task; at the limit, in place of a connection without a request."""
        if len(self._connections) >= self._max_connections:
            self.close_silent_connection()
        connection = _TaskHandler(self, channel)
        self._connections[connection] = None
        self._loop.add(connection)

    def close_silent_connection(self) -> bool:
        """Close the oldest connection without a request; return False if there is none."""
        connection = self._find_silent_connection()
        if connection is not None:
            self.close_connection(connection)
        return connection is not None

    def close_connection(self, connection: _TaskHandler) -> None:
        """Close a connection, after which another one may be accepted."""
        self._connections.pop(connection, None)
        self._loop.remove(connection)
        connection.close()
        if self._acceptor is not None:
            self._loop.notify_handler(self._acceptor, 0)

    def _find_silent_connection(self) -> _TaskHandler | None:
        return next((each for each in self._connections if not each.has_sent_request), None)

    def answer(
        self, request: memoryview, regions: RemoteRegionTable, reservation: MemoryReservation
    ) -> tuple[bytes, int | None]:
        """Return the reply to a request and its tag; `put` takes its region from `regions`, and `reservation` is the
        memory that the connection has reserved for it.
        """
        self._used_at = time.monotonic()
        try:
            return json.dumps(self._execute_request(request, regions, reservation)).encode(), None
        except BowstringError as error:
            return encode_error_message(error), ERROR_DATA

    def _execute_request(
        self, data: memoryview, regions: RemoteRegionTable, reservation: MemoryReservation
    ) -> dict[str, Any]:
        try:
            request = json.loads(bytes(data))
            operation = _OPERATIONS[request["op"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ProtocolError(f"expected a request, found {bytes(data[:80])!r}") from None
        try:
            if "region" in request:
                # From now on the request owns the region, whose descriptor is closed with its last reference.
                request["region"] = regions.pop(int(request["region"]))
            return operation(self, {**request, "reservation": reservation})
        except BowstringError:
            raise
        except Exception as error:  # any error: the agent goes on, for the partitions of others
            raise ProtocolError(f"request {request['op']}: {type(error).__name__} {error}") from error

    def add_owner(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Add an owner."""
        pid, start_ticks, host = request["owner"]
        owner = ProcessIdentity(int(pid), int(start_ticks), str(host))
        if owner not in self._owners:
            # A descriptor of the process and not its number, which another process may get.
            descriptor = owner.open_pidfd()
            if descriptor is None:
                raise InvalidArgumentError(f"process {pid} does not run on this host: it can't own the host agent")
            self._owners[owner] = handler = _OwnerHandler(self, owner, descriptor)
            self._loop.add(handler)
            self._has_had_owner = True
        return {"pid": os.getpid()}

    def remove_owner(self, owner: ProcessIdentity) -> None:
        """Remove an owner that has ended."""
        handler = self._owners.pop(owner)
        self._loop.remove(handler)
        handler.close()

    def reserve(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Reserve memory for the partition that the connection writes; `shortage` says why it is refused."""
        needs = MemoryRequest(**request["memory"])
        shortage = self.memory.reserve(request["reservation"], needs)
        return {"reserved_bytes": request["reservation"].reserved_bytes, "shortage": shortage}

    def put(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Take the memory or the unnamed file of one attempt. It can be read after `commit`."""
        name, ttl_s = str(request["dataset"]), float(request["ttl_s"])
        if not ttl_s >= 0:
            raise InvalidArgumentError(f"data set {name!r}: ttl_s: expected a number of seconds, found {ttl_s}")
        index, attempt = (int(number) for number in request["attempt"])
        needs_commit = bool(request["needs_commit"])
        region = request["region"]
        # Any other file could be truncated by whoever knows its name, which ends processes that have it mapped.
        if not region.is_sealed and not region.is_unnamed_file:
            raise InvalidDataError(f"{region.name}: expected sealed memory or an unnamed file of this user")
        partition = index_stored_dataset(region)
        if partition.num_rows != request["rows"]:
            raise InvalidArgumentError(
                f"partition {index}: expected {request['rows']} rows, found {partition.num_rows}"
            )
        uri = self._server.issue_uri(_format_ticket(name, index, attempt))
        dataset = self._datasets.get(name)
        # Attempts may be late, such as the slower of two speculative copies.
        if name in self._dropped or (dataset is not None and dataset.is_complete):
            raise InvalidArgumentError(f"data set {name!r} is complete or dropped: partitions can't be added")
        if dataset is not None and (index, attempt) in dataset.partitions:
            raise InvalidArgumentError(f"data set {name!r}: partition {index}, attempt {attempt} exists already")
        if dataset is None:
            dataset = self._datasets[name] = _PublishedDataset(ttl_s)
        dataset.add_attempt((index, attempt), partition)
        self.memory.add_region(partition.region)
        request["reservation"].close()
        if not needs_commit:
            dataset.start_lifetime()
            self._serve_partitions(name, dataset, [(index, attempt)])
        self._reduce_regions()
        return {"uri": uri}

    def commit(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Serve the committed attempts, and drop the others."""
        name = str(request["dataset"])
        attempts = {(int(partition), int(attempt)) for partition, attempt in request["attempts"]}
        dataset = self._find_dataset(name)
        missing = [
            partition for partition, attempt in sorted(attempts) if (partition, attempt) not in dataset.partitions
        ]
        if not missing and not dataset.is_complete:
            dataset.is_complete = True
            dataset.start_lifetime()
            # Also regions of which only a part was committed, so that the memory of the rest is freed.
            mixed = dataset.keep_only_attempts(attempts)
            small = {region for region in dataset.regions if region.size_bytes <= _SMALL_BYTES}
            if mixed or len(small) > 1:
                self._compact_regions(name, dataset, mixed | small)
            self._serve_partitions(name, dataset, attempts)
        return {"missing": missing}

    def drop(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Drop a data set."""
        self._find_dataset(str(request["dataset"]))
        self._drop_dataset(str(request["dataset"]))
        return {}

    def status(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        """The data sets, with their partitions, rows, bytes and regions, and the memory of all."""
        datasets = {
            name: {
                "partitions": len(dataset.partitions),
                "rows": sum(partition.num_rows for partition in dataset.partitions.values()),
                "bytes": sum(partition.size_bytes for partition in dataset.partitions.values()),
                "memory_bytes": sum(region.size_bytes for region in dataset.regions if region.is_sealed),
                "spilled_bytes": sum(region.size_bytes for region in dataset.regions if not region.is_sealed),
                "regions": len(dataset.regions),
                "is_complete": dataset.is_complete,
            }
            for name, dataset in self._datasets.items()
        }
        return {"pid": os.getpid(), "datasets": datasets, "memory": self.memory.to_json()}

    def _serve_partitions(self, name: str, dataset: _PublishedDataset, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            ticket = _format_ticket(name, *attempt)
            if ticket not in dataset.tickets:
                self._server.add_stored_dataset(ticket, dataset.partitions[attempt])
                dataset.tickets.add(ticket)

    def _reduce_regions(self) -> None:
        """Pack the smallest half of the largest data set's regions if there are too many descriptors."""
        if sum(len(dataset.regions) for dataset in self._datasets.values()) <= self._max_regions:
            return
        name, dataset = max(self._datasets.items(), key=lambda entry: len(entry[1].regions))
        smallest, size_bytes = list[Region](), 0
        max_regions = max(len(dataset.regions) // 2, 2)
        for region in sorted(dataset.regions, key=lambda region: region.size_bytes)[:max_regions]:
            size_bytes += region.size_bytes
            if size_bytes > _MERGE_BYTES and len(smallest) > 1:
                break
            smallest.append(region)
        if len(smallest) > 1:
            self._compact_regions(name, dataset, smallest)

    def _compact_regions(self, name: str, dataset: _PublishedDataset, regions: Iterable[Region]) -> None:
        """Copy the attempts of some regions into few regions. If memory is short, the regions stay as they are."""
        for group in _group_by_size(regions):
            attempts = [attempt for region in group for attempt in dataset.regions[region]]
            if sum(region.size_bytes for region in group) == dataset.partitions[attempts[0]].size_bytes:
                continue  # nothing would be gained
            try:
                folders = self.memory.choose_merge_folders(group)
                packed = merge_into_region([dataset.partitions[attempt] for attempt in attempts], name, folders)
            except ResourceError:
                return
            self.memory.add_region(packed[0].region)
            for region in group:
                # The server's clients keep a region that they have leases of, and retire it afterwards.
                del dataset.regions[region]
            for attempt, partition in zip(attempts, packed, strict=True):
                dataset.add_attempt(attempt, partition)
                ticket = _format_ticket(name, *attempt)
                if ticket in dataset.tickets:
                    self._server.replace_stored_dataset(ticket, partition)

    def _find_dataset(self, name: str) -> _PublishedDataset:
        dataset = self._datasets.get(name)
        if dataset is None:
            raise NotFoundError(f"the host agent has no data set {name!r}")
        return dataset

    def _drop_dataset(self, name: str, reason: str | None = None) -> None:
        dataset = self._datasets.pop(name)
        self._used_at = time.monotonic()
        self._dropped[name] = None
        if len(self._dropped) > _MAX_DATASETS:
            del self._dropped[next(iter(self._dropped))]
        for ticket in dataset.tickets:
            self._server.remove(ticket, reason)


class _TaskAcceptor(ListenerHandler):
    """Accepts tasks and the driver as long as the agent has room; others wait in the socket's queue."""

    connections_per_turn = 1

    def __init__(self, agent: HostAgent, listener: Listener) -> None:
        super().__init__(listener)
        self._agent = agent

    def next_wait(self) -> Wait:
        return super().next_wait() if self._agent.can_accept else Wait([])

    def handle_events(self, events: int) -> None:
        # Without events, a connection was closed: only what to wait for has changed. Accepting here could replace
        # another connection, whose end would lead here again.
        if events and self._agent.can_accept:
            super().handle_events(events)

    def add_channel(self, channel: Channel) -> None:
        self._agent.add_connection(channel)

    def close_unused_connection(self, error: Exception) -> bool:  # noqa: ARG002 - nobody reads a log of the agent
        return self._agent.close_silent_connection()


class _TaskHandler(Closable):
    """The handler of a connection of a task or the driver: answers its requests in order."""

    def __init__(self, agent: HostAgent, channel: Channel) -> None:
        self._agent = agent
        self._channel = channel
        self._regions = UNIX.open_remote_memory(channel, None)
        self._reservation = MemoryReservation(agent.memory)
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
                    reply, tag = self._agent.answer(event.data, self._regions, self._reservation)
                    channel.submit((reply,), tag)
                    # A client that does not receive the answer is closed then, too.
                    self.has_sent_request = True
                    # A task that writes a partition may compute for long between two requests.
                    self.deadline = math.inf if self._reservation.is_open else time.monotonic() + _NEXT_REQUEST_S
                elif isinstance(event, MessageOffered):
                    channel.accept_offered_message(event.token)
                elif isinstance(event, RemoteMemoryUpdated):
                    self._regions.apply_update(event.update)
                elif isinstance(event, DirectionEnded):
                    raise event.error
            channel.progress(SEND)
        except (BowstringError, OSError):
            self._agent.close_connection(self)

    def handle_deadline(self) -> None:
        self._agent.close_connection(self)

    def close(self) -> None:
        self._reservation.close()
        self._channel.close()


class _OwnerHandler(Closable):
    """The handler of an owner's process, whose descriptor becomes readable when it ends."""

    deadline = math.inf

    def __init__(self, agent: HostAgent, owner: ProcessIdentity, descriptor: int) -> None:
        self._agent = agent
        self._owner = owner
        self._descriptor = descriptor

    def next_wait(self) -> Wait:
        return Wait([Interest(self._descriptor, RECEIVE)])

    def descriptors(self) -> list[int]:
        return [self._descriptor]

    def handle_events(self, _events: int) -> None:
        self._agent.remove_owner(self._owner)

    def handle_deadline(self) -> None:
        pass

    def close(self) -> None:
        os.close(self._descriptor)


_OPERATIONS: dict[str, Callable[[HostAgent, Mapping[str, Any]], dict[str, Any]]] = {
    "hello": HostAgent.add_owner,
    "reserve": HostAgent.reserve,
    "put": HostAgent.put,
    "commit": HostAgent.commit,
    "drop": HostAgent.drop,
    "status": HostAgent.status,
}


def _group_by_size(regions: Iterable[Region]) -> Iterator[list[Region]]:
    """Groups of at most `_MERGE_BYTES`, or of one region, so that no more memory is taken twice at a time. Memory and
    files are separate.
    """
    group, size_bytes = list[Region](), 0
    for region in sorted(regions, key=lambda region: region.is_sealed):
        size_bytes += region.size_bytes
        if group and (size_bytes > _MERGE_BYTES or region.is_sealed != group[0].is_sealed):
            yield group
            group, size_bytes = [], region.size_bytes
        group.append(region)
    if group:
        yield group


def _format_ticket(name: str, partition: int, attempt: int) -> str:
    return f"{name}/{partition}/{attempt}"


def main(descriptor: int) -> None:
    """Run the agent on an inherited listening socket."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    with socket.socket(fileno=descriptor) as listening_socket:
        os.set_inheritable(descriptor, False)
        agent = HostAgent()
        agent.listen(UnixListener.from_socket(listening_socket, TRANSPORT_OPTIONS))
        agent.run()
    os._exit(0)  # the server's thread has nothing to clean up
