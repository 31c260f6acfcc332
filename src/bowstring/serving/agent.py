"""The keeper of a host: a process of its own that holds published partitions while the tasks that wrote them are gone.

Tasks hand over sealed memfds; the driver says which attempts count, and only those can be read. Readers come to the
same `Server` that `bowstring.serve` makes. The keeper watches its owners, the driver or else the executors of its
host, and ends when the last of them is gone, when nothing was kept for a while, or when a data set's time is over and
it was the last. Its memory has no name in any file system: however it ends, nothing is left, and readers keep what
they have attached.
"""

from __future__ import annotations

import json
import os
import resource
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bowstring.errors import BowstringError, NotFoundError, ProtocolError, UsageError
from bowstring.serving.addresses import ERROR_DATA, encode_error
from bowstring.serving.processes import Process
from bowstring.serving.server import Server, ServerOptions
from bowstring.serving.storing import Stored, stored
from bowstring.transports.base import TransportOptions
from bowstring.transports.unix import UnixTransport

_FIRST_OWNER_S = 60.0
_IDLE_S = 120.0
_TICK_S = 1.0
_CONTROL_S = 3600.0
_MAX_DATASETS = 100_000


@dataclass(slots=True)
class _Kept:
    """A data set: its attempts, whether the driver said which ones count, and the tickets that can be read."""

    ends_at: float
    is_complete: bool = False
    attempts: dict[tuple[int, int], Stored] = field(default_factory=dict)
    served: set[str] = field(default_factory=set)


class Agent:
    """What the keeper keeps; one thread for each connection, all of them under one lock."""

    def __init__(self) -> None:
        self._server = Server(options=ServerOptions(max_clients=4096))
        self._lock = threading.RLock()
        self._kept: dict[str, _Kept] = {}
        self._over: dict[str, None] = {}
        self._owners: dict[Process, int] = {}
        self._had_owner = False
        self._used_at = time.monotonic()

    def run(self, listener: socket.socket) -> None:
        """Serve until the last owner is gone."""
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        began_at = time.monotonic()
        while True:
            self._wait_for_an_end()
            now = time.monotonic()
            with self._lock:
                for name in [name for name, kept in self._kept.items() if kept.ends_at < now]:
                    self._drop(name)
                if self._kept:
                    self._used_at = now
                is_ownerless = self._had_owner and not self._owners
                if (
                    is_ownerless
                    or now - self._used_at > _IDLE_S
                    or (not self._had_owner and now - began_at > _FIRST_OWNER_S)
                ):
                    return

    def _wait_for_an_end(self) -> None:
        with self._lock:
            watched = dict(self._owners)
        poll = select.poll()
        for descriptor in watched.values():
            poll.register(descriptor, select.POLLIN)
        ended = {descriptor for descriptor, _ in poll.poll(_TICK_S * 1000)}
        with self._lock:
            for owner, descriptor in watched.items():
                if descriptor in ended:
                    del self._owners[owner]
                    os.close(descriptor)

    def _accept(self, listener: socket.socket) -> None:
        options = TransportOptions(
            timeout_s=_CONTROL_S, max_plain_bytes=1 << 26, accept_files=False, keep_descriptors=True
        )
        while True:
            try:
                connected, _ = listener.accept()
                transport = UnixTransport(connected, options)
                threading.Thread(target=self._serve, args=(transport,), daemon=True).start()
            except (OSError, RuntimeError, BowstringError):
                time.sleep(_TICK_S / 10)  # descriptors or threads are short, or it was somebody else

    def _serve(self, transport: UnixTransport) -> None:
        try:
            while True:
                self._used_at = time.monotonic()
                received = transport.receive()
                try:
                    answer = self._answer(received.data, transport)
                except BowstringError as error:
                    transport.send((encode_error(error),), tag=ERROR_DATA)
                else:
                    transport.send((json.dumps(answer).encode(),))
        except BowstringError:
            pass
        finally:
            transport.close()

    def _answer(self, data: memoryview, transport: UnixTransport) -> dict[str, Any]:
        try:
            request = json.loads(bytes(data))
            operation = _OPERATIONS[request["op"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ProtocolError(f"expected a request, found {bytes(data[:80])!r}") from None
        try:
            if "region" in request:
                request["region"] = transport.regions.take(int(request["region"]))
            return operation(self, request)
        except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
            if isinstance(error, BowstringError):
                raise
            raise ProtocolError(f"request {request['op']}: {type(error).__name__} {error}") from None

    def hello(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Take one more owner."""
        pid, started, host = request["owner"]
        owner = Process(int(pid), int(started), str(host))
        with self._lock:
            if owner not in self._owners:
                descriptor = owner.watch()
                if descriptor is None:
                    raise UsageError(f"process {pid} does not run here: it can't own the keeper")
                self._owners[owner] = descriptor
                self._had_owner = True
        return {"pid": os.getpid()}

    def put(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Take the memory of one attempt. It can't be read before `commit` says that it counts."""
        name, ttl_s = str(request["dataset"]), float(request["ttl_s"])
        partition, attempt = (int(number) for number in request["place"])
        needs_commit = bool(request["needs_commit"])
        held = stored(request["region"])
        if held.num_rows != request["rows"]:
            raise UsageError(f"partition {partition}: {request['rows']} rows were announced, {held.num_rows} are there")
        ticket = _ticket(name, partition, attempt)
        uri = self._server.uri_of(ticket)
        with self._lock:
            kept = self._kept.get(name)
            if name in self._over or (kept is not None and kept.is_complete):
                raise UsageError(f"data set {name!r} is complete or dropped: it takes no more partitions")
            if kept is not None and (partition, attempt) in kept.attempts:
                raise UsageError(f"data set {name!r}: partition {partition}, attempt {attempt} is kept already")
            if kept is None:
                kept = self._kept[name] = _Kept(time.monotonic() + ttl_s)
            kept.attempts[partition, attempt] = held
            if not needs_commit:
                self._serve_kept(kept, ticket, held)
        return {"uri": uri}

    def commit(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Let the attempts that count be read, and forget the others."""
        name = str(request["dataset"])
        wanted = {(int(partition), int(attempt)) for partition, attempt in request["attempts"]}
        with self._lock:
            kept = self._find(name)
            missing = [partition for partition, attempt in sorted(wanted) if (partition, attempt) not in kept.attempts]
            if not missing and not kept.is_complete:
                kept.is_complete = True
                kept.attempts = {place: kept.attempts[place] for place in wanted}
                for place, held in kept.attempts.items():
                    self._serve_kept(kept, _ticket(name, *place), held)
        return {"missing": missing}

    def drop(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Forget a data set."""
        with self._lock:
            self._find(str(request["dataset"]))
            self._drop(str(request["dataset"]))
        return {}

    def status(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        """What is kept."""
        with self._lock:
            datasets = {
                name: {
                    "partitions": len(kept.attempts),
                    "rows": sum(held.num_rows for held in kept.attempts.values()),
                    "bytes": sum(held.region.size_bytes for held in kept.attempts.values()),
                    "is_complete": kept.is_complete,
                }
                for name, kept in self._kept.items()
            }
        return {"pid": os.getpid(), "datasets": datasets}

    def _serve_kept(self, kept: _Kept, ticket: str, held: Stored) -> None:
        if ticket not in kept.served:
            self._server.add_stored(ticket, held)
            kept.served.add(ticket)

    def _find(self, name: str) -> _Kept:
        kept = self._kept.get(name)
        if kept is None:
            raise NotFoundError(f"the keeper has no data set {name!r}")
        return kept

    def _drop(self, name: str) -> None:
        kept = self._kept.pop(name)
        self._over[name] = None
        if len(self._over) > _MAX_DATASETS:
            del self._over[next(iter(self._over))]
        for ticket in kept.served:
            self._server.remove(ticket)


_OPERATIONS: dict[str, Callable[[Agent, Mapping[str, Any]], dict[str, Any]]] = {
    "hello": Agent.hello,
    "put": Agent.put,
    "commit": Agent.commit,
    "drop": Agent.drop,
    "status": Agent.status,
}


def _ticket(name: str, partition: int, attempt: int) -> str:
    return f"{name}/{partition}/{attempt}"


def main(descriptor: int) -> None:
    """Be the keeper, at a listening socket that was inherited."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with socket.socket(fileno=descriptor) as listener:
        os.set_inheritable(descriptor, False)
        Agent().run(listener)
    os._exit(0)  # threads that wait for clients have nothing to tidy up
