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
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from bowstring.errors import (
    BowstringError,
    InvalidArgumentError,
    InvalidDataError,
    NotFoundError,
    ProtocolError,
    ResourceError,
)
from bowstring.memory.closable import Closable, close_on_error
from bowstring.memory.region import Region
from bowstring.sharing.agent_connections import (
    AgentConnection,
    ConnectionAcceptor,
    ControlConnection,
    TaskConnection,
)
from bowstring.sharing.agent_control import CONTROL_OPTIONS, RemoteAccess
from bowstring.sharing.memory_budget import MemoryBudget, MemoryRequest, MemoryReservation
from bowstring.sharing.processes import ProcessIdentity
from bowstring.sharing.server import Server
from bowstring.sharing.server_options import ServerOptions
from bowstring.sharing.stored_dataset import StoredDataset, index_stored_dataset, merge_into_region
from bowstring.sharing.uris import ERROR_DATA, PUBLISHED_ADDRESS_PREFIX, encode_error_message
from bowstring.transports.base import (
    RECEIVE,
    Interest,
    Listener,
    TransportOptions,
    Wait,
)
from bowstring.transports.event_loop import EventLoop
from bowstring.transports.registry import find_transport
from bowstring.transports.unix_listener import UnixListener

_FIRST_OWNER_S = 60.0
_IDLE_S = 120.0
_TICK_S = 1.0
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
        self._max_descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._server = self._create_server(None)
        self._loop = EventLoop("bowstring-agent")
        self._max_regions = self._max_descriptors // 4
        self._datasets: dict[str, _PublishedDataset] = {}
        # A late attempt must not create a dropped data set again, which nobody would drop.
        self._dropped: dict[str, None] = {}
        self._owners: dict[ProcessIdentity, _OwnerHandler] = {}
        self._drivers: dict[ProcessIdentity, ControlConnection | None] = {}
        """Owners on any host, by their connections; None for one that is silent, which may still run."""
        self._has_had_owner = False
        self._access: RemoteAccess | None = None
        self._control_uri = ""
        self.memory = MemoryBudget()
        self._started_at = self._used_at = time.monotonic()

    def listen(self, listener: Listener) -> None:
        """Accept tasks from now on. The agent owns the listener."""
        max_connections = min(self._max_descriptors // 8, _MAX_CONNECTIONS)
        self._loop.add(ConnectionAcceptor(self._loop, listener, max_connections, partial(TaskConnection, self)))

    def _create_server(self, access: RemoteAccess | None) -> Server:
        """Create the readers' server, for this host and with `access` for others."""
        limit, addresses = self._max_descriptors, {"unix": f"{PUBLISHED_ADDRESS_PREFIX}{secrets.token_hex(8)}"}
        options = ServerOptions(max_clients=min(limit // 4, _MAX_CLIENTS), max_silent=min(limit // 8, _MAX_CONNECTIONS))
        if access is not None:
            addresses[access.scheme] = access.listen_address
            # A ticket is valid as long as its data set, whose lifetime may be extended; names are never used twice.
            lifetime_s = math.inf
            options = replace(options, ticket_key=access.ticket_key, ticket_lifetime_s=lifetime_s, tls=access.tls)
            options = replace(options, advertised_host=access.host)
        return Server(options=options, addresses=addresses)

    def _open_to_other_hosts(self, access: RemoteAccess) -> None:
        """Listen at a network address, too: for readers, and for control connections. Raises as `serve`."""
        server = self._create_server(access)
        with close_on_error(server):
            options = replace(CONTROL_OPTIONS, tls=access.tls, advertised_host=access.host)
            listener = find_transport(access.scheme, access.scheme).listen(access.listen_address, options)
        self._server.close()
        self._server, self._access = server, access
        self._control_uri = f"{access.scheme}:{listener.address}"
        max_connections = min(self._max_descriptors // 16, _MAX_CONNECTIONS)
        create = partial(ControlConnection, self, access.secret)
        self._loop.add(ConnectionAcceptor(self._loop, listener, max_connections, create))

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
            (self._has_had_owner and not self._owners and not self._drivers)
            or (not self._datasets and not self.memory.has_reservations and now - self._used_at > _IDLE_S)
            or (not self._has_had_owner and now - self._started_at > _FIRST_OWNER_S)
        )

    def answer(self, request: memoryview, connection: AgentConnection) -> tuple[bytes, int | None]:
        """Return the reply to a request and its tag."""
        self._used_at = time.monotonic()
        try:
            return json.dumps(self._execute_request(request, connection)).encode(), None
        except BowstringError as error:
            return encode_error_message(error), ERROR_DATA

    def _execute_request(self, data: memoryview, connection: AgentConnection) -> dict[str, Any]:
        operations = _OPERATIONS if isinstance(connection, TaskConnection) else _CONTROL_OPERATIONS
        try:
            request = json.loads(bytes(data))
            operation = operations[request["op"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ProtocolError(f"expected a request, found {bytes(data[:80])!r}") from None
        try:
            if "region" in request:
                # From now on the request owns the region, whose descriptor is closed with its last reference.
                request["region"] = connection.take_region(int(request["region"]))
            return operation(self, {**request, "connection": connection})
        except BowstringError:
            raise
        except Exception as error:  # any error: the agent goes on, for the partitions of others
            raise ProtocolError(f"request {request['op']}: {type(error).__name__} {error}") from error

    def add_owner(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Add an owner. The first one decides whether other hosts have access."""
        owner = _parse_owner(request)
        access = None if request.get("access") is None else RemoteAccess.from_json(request["access"])
        if access is not None and not self._has_had_owner and self._access is None:
            self._open_to_other_hosts(access)
        if (access and access.secret) != (self._access and self._access.secret):
            raise InvalidArgumentError("the host agent has another secret, or none: it runs with another key")
        if owner not in self._owners:
            # A descriptor of the process and not its number, which another process may get.
            descriptor = owner.open_pidfd()
            if descriptor is None:
                raise InvalidArgumentError(
                    f"process {owner.pid} does not run on this host: it can't own the host agent"
                )
            self._owners[owner] = handler = _OwnerHandler(self, owner, descriptor)
            self._loop.add(handler)
            self._has_had_owner = True
        return {"pid": os.getpid(), "control_uri": self._control_uri}

    def add_driver(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Add an owner on any host, until the end of its connection."""
        owner, connection = _parse_owner(request), request["connection"]
        connection.owner = owner
        self._drivers[owner] = connection
        return {}

    def ping(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer: both ends are authenticated then."""
        return {}

    def end_ownership(self, connection: ControlConnection, *, is_silent: bool) -> None:
        """The connection of a driver has ended. A silent one owns the agent until its data sets expire."""
        assert connection.owner is not None
        if self._drivers.get(connection.owner) is not connection:
            return  # the driver has connected again
        if is_silent:
            self._drivers[connection.owner] = None
        else:
            del self._drivers[connection.owner]

    def remove_owner(self, owner: ProcessIdentity) -> None:
        """Remove an owner that has ended."""
        handler = self._owners.pop(owner)
        self._loop.remove(handler)
        handler.close()

    def reserve(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Reserve memory for the partition that the connection writes; `shortage` says why it is refused."""
        needs = MemoryRequest(**request["memory"])
        reservation: MemoryReservation = request["connection"].reservation
        shortage = self.memory.reserve(reservation, needs)
        return {"reserved_bytes": reservation.reserved_bytes, "shortage": shortage}

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
        locations = self._server.issue_locations(_format_ticket(name, index, attempt))
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
        request["connection"].reservation.close()
        if not needs_commit:
            dataset.start_lifetime()
            self._serve_partitions(name, dataset, [(index, attempt)])
        self._reduce_regions()
        return {"locations": locations.uris}

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


_Operation: TypeAlias = Callable[[HostAgent, Mapping[str, Any]], dict[str, Any]]
_CONTROL_OPERATIONS: dict[str, _Operation] = {
    "ping": HostAgent.ping,
    "own": HostAgent.add_driver,
    "commit": HostAgent.commit,
    "drop": HostAgent.drop,
    "status": HostAgent.status,
}
"""Those of any host."""
_OPERATIONS: dict[str, _Operation] = {
    **_CONTROL_OPERATIONS,
    "hello": HostAgent.add_owner,
    "reserve": HostAgent.reserve,
    "put": HostAgent.put,
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


def _parse_owner(request: Mapping[str, Any]) -> ProcessIdentity:
    pid, start_ticks, host = request["owner"]
    return ProcessIdentity(int(pid), int(start_ticks), str(host))


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
