"""Serving data sets by name («Server Sequence»): each lies in regions, which are passed, or sent as bytes on
request.

One thread accepts, and one serves each client; a client that misbehaves loses its connection and nothing else. Nothing
that a client does makes the server allocate in proportion to it.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from bowstring.dissociated.events import DataRequested, StreamComplete
from bowstring.dissociated.server import ServerConnection
from bowstring.dissociated.states import State
from bowstring.dissociated.wire import AddressBody, Body, PackedBody
from bowstring.errors import (
    BowstringError,
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    InvalidDataError,
    NotFoundError,
    ProtocolError,
    ResourceError,
    UsageError,
)
from bowstring.memory.closing import Closing, closed_on_failure
from bowstring.memory.region import Region
from bowstring.serving.addresses import ERROR_DATA, FREE_DATA, MAX_TICKETS, WANT_DATA, Ticket, encode_error, uri_for
from bowstring.serving.processes import let_go_of
from bowstring.serving.share import Handle
from bowstring.serving.storing import Batches, Stored, StoredMessage, store_in_parts, stored
from bowstring.transports.base import TransportOptions
from bowstring.transports.regions import address_of
from bowstring.transports.unix import UnixTransport
from bowstring.transports.unix_listener import UnixListener

Source: TypeAlias = Batches | str | os.PathLike[str] | Region | Handle
"""What can be served: batches, the path of an Arrow file, memory that is shared already."""

_POLL_S = 60.0
_JOIN_S = 5.0
_PAUSE_S = 0.2
_REFUSAL_S = 2.0
_REFUSALS = 16
_NAMES_SHOWN = 5
_MAX_OPEN_FILES = 256
"""How many data sets there may be before files are opened for each client, and not for as long as they are served."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Deadlines and limits of a server."""

    timeout_s: float = 30.0
    """How long a client may take to say what it wants."""
    stall_s: float = 600.0
    """How long a client may take nothing of what is sent before it loses its connection."""
    max_clients: int = 256
    """Clients at the same time; the next one is told so and turned away."""


class Server(Closing):
    """Serves data sets to processes of this machine and user; made by `serve`. A context manager.

    `close` ends it: clients keep what they have attached, memory that nobody attached goes. A server lives in threads
    of its process; when the process ends, however it does, nothing is left behind.
    """

    def __init__(self, address: str | None = None, options: ServerOptions | None = None) -> None:
        self.options = options or ServerOptions()
        transport = TransportOptions(timeout_s=self.options.timeout_s, max_plain_bytes=1 << 16, max_regions=0)
        self._listener = UnixListener(address, options=transport)
        self._lock = threading.Lock()
        self._stored: dict[str, tuple[Stored, ...]] = {}
        self._clients: dict[UnixTransport, threading.Thread] = {}
        self._refusals = threading.Semaphore(_REFUSALS)
        self._is_closed = False
        self._thread = threading.Thread(target=self._accept, name="bowstring-serve", daemon=True)
        _SERVERS.add(self)
        self._thread.start()

    @property
    def address(self) -> str:
        """Where the server listens: "@" and an abstract name, or the path of a socket."""
        return self._listener.address

    @property
    def names(self) -> list[str]:
        """The data sets that are served."""
        with self._lock:
            return list(self._stored)

    @property
    def uris(self) -> dict[str, str]:
        """The URI of each data set by its name."""
        return {name: uri_for(self.address, name) for name in self.names}

    @property
    def num_clients(self) -> int:
        """How many clients are connected."""
        with self._lock:
            return len(self._clients)

    def uri(self, name: str) -> str:
        """The URI of a data set, for `bowstring.connect`. Raises `NotFoundError`, `ClosedError`."""
        self._refuse_closed()
        if name not in self.names:
            raise NotFoundError(f"no data set {name!r} is served here; there are {self.names}")
        return uri_for(self.address, name)

    def add(self, name: str, source: Source) -> str:
        """Serve one more data set; its URI. Batches are copied once, into memory that all clients share; files and
        regions are not.

        Raises `UsageError` for a name that is taken, and what `serve` raises.
        """
        self._refuse_closed()
        uri_for(self.address, name)  # a bad name is told before anything is copied
        parts = [stored(region) for region in _regions_of(source, name)]
        if isinstance(source, str | os.PathLike) and len(self._stored) >= _MAX_OPEN_FILES:
            for part in parts:
                part.region.release_descriptor()
        return self.add_stored(name, *parts)

    def add_stored(self, name: str, *held: Stored) -> str:
        """As `add`, of what lies in regions already, at least one.

        Raises `InvalidDataError` where their schemas differ.
        """
        if any(part.schema != held[0].schema for part in held):
            raise InvalidDataError(f"data set {name!r}: its regions have different schemas")
        with self._lock:
            if name in self._stored:
                raise UsageError(f"a data set {name!r} is served here already")
            self._stored[name] = held
        return self.uri_of(name)

    def replace_stored(self, name: str, *held: Stored) -> None:
        """Serve the same data set from other memory from now on. Raises `NotFoundError`."""
        with self._lock:
            if name not in self._stored:
                raise NotFoundError(f"no data set {name!r} is served here")
            self._stored[name] = held

    def uri_of(self, name: str) -> str:
        """The URI that a data set of this name has, or would have."""
        return uri_for(self.address, name)

    def remove(self, name: str) -> None:
        """Serve a data set no longer; its memory goes when the last client that uses it lets go. Raises
        `NotFoundError`.
        """
        with self._lock:
            if self._stored.pop(name, None) is None:
                raise NotFoundError(f"no data set {name!r} is served here")

    def close(self) -> None:
        """End the server, its connections and threads. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._listener.close()
        self._thread.join(_JOIN_S)  # from here on nobody is accepted
        with self._lock:
            clients = dict(self._clients)
            self._stored.clear()
        for transport in clients:
            transport.close()
        for thread in clients.values():
            if thread is not threading.current_thread():
                thread.join(_JOIN_S)

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise ClosedError("the server is closed")

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                transport = self._listener.accept(timeout_s=_POLL_S)
            except DeadlineError:
                continue
            except ClosedError:
                return
            except (BowstringError, OSError):
                time.sleep(_PAUSE_S)  # descriptors are short: some come back when clients go
                continue
            with self._lock:
                is_full = len(self._clients) >= self.options.max_clients
                target = self._turn_away if is_full else self._serve
                thread = threading.Thread(target=target, args=(transport,), name="bowstring-client", daemon=True)
                is_possible = not is_full or self._refusals.acquire(blocking=False)
                is_taken = is_possible and _start(thread)
                if is_taken and not is_full:
                    self._clients[transport] = thread
            if not is_taken:
                transport.close()

    def _turn_away(self, transport: UnixTransport) -> None:
        try:
            transport.receive(timeout_s=_REFUSAL_S)  # what it asks has to be read, or it would not see the answer
            limit = self.options.max_clients
            _refuse(transport, ConnectionLostError(f"the server has {limit} clients already, its limit"))
        except BowstringError:
            pass
        finally:
            transport.close()
            self._refusals.release()

    def _serve(self, transport: UnixTransport) -> None:
        try:
            _Client(transport, self._find, self.options).run()
        except BowstringError:
            pass  # this client is gone, or not worth keeping
        finally:
            transport.close()
            with self._lock:
                self._clients.pop(transport, None)

    def _find(self, name: str) -> tuple[Stored, ...]:
        with self._lock:
            held = self._stored.get(name)
            if held is None:
                raise NotFoundError(f"the server has no data set {name[:200]!r}")
        return held

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.names[:_NAMES_SHOWN])) + (", …" if len(self.names) > _NAMES_SHOWN else "")
        state = "closed" if self._is_closed else f"at {self.address}: {names or 'nothing yet'}"
        return f"<bowstring.Server {state}>"


class _Client:
    """One client: its requests one after the other, and the regions that were passed to it."""

    def __init__(
        self, transport: UnixTransport, find: Callable[[str], tuple[Stored, ...]], options: ServerOptions
    ) -> None:
        self._transport = transport
        self._find = find
        self._options = options
        self._connection = ServerConnection(WANT_DATA, FREE_DATA)
        self._passed: dict[Region, int] = {}

    def run(self) -> None:
        try:
            while True:
                self._receive(self._options.timeout_s if self._connection.state is State.WAITING else None)
        except (ProtocolError, ResourceError) as error:
            _refuse(self._transport, error)
        finally:
            self._connection.connection_lost()

    def _receive(self, timeout_s: float | None) -> None:
        try:
            received = self._transport.receive(timeout_s=_POLL_S if timeout_s is None else timeout_s)
        except DeadlineError:
            if timeout_s is None:
                return  # holding data and silent is what clients do
            raise
        for event in self._connection.receive(received.tag, received.data):
            if isinstance(event, DataRequested):
                self._stream(Ticket.decode(event.ticket))
            elif isinstance(event, StreamComplete):
                self._retire(list(self._passed))

    def _stream(self, ticket: Ticket) -> None:
        try:
            if len(ticket.names) > MAX_TICKETS:
                raise UsageError(
                    f"a request for {len(ticket.names)} data sets; at most {MAX_TICKETS} are served at once"
                )
            parts = [part for name in ticket.names for part in self._find(name)]
            for held in parts:
                held.region.check()
            if any(part.schema != parts[0].schema for part in parts):
                raise InvalidDataError(f"{ticket}: their schemas differ")
        except BowstringError as error:
            _refuse(self._transport, error)
            raise
        # Before the schema: a connection with no number left for a region ends here, and its client opens another.
        indexes = [self._index_of(held.region) if held.messages and not ticket.packed else None for held in parts]
        self._send(parts[0].schema, None, None)
        for held, index in zip(parts, indexes, strict=True):
            self._send_part(held, index)
        for outgoing in self._connection.end():
            self._transport.send_message(outgoing, timeout_s=self._options.stall_s)
        # A client needs a descriptor for each file that was passed, to look at its size, but not for sealed memory.
        is_complete = self._connection.state is State.COMPLETE
        self._retire([region for region in self._passed if is_complete or not region.is_sealed])

    def _send_part(self, held: Stored, index: int | None) -> None:
        """The messages of a region: bodies as addresses where it was passed, else as bytes."""
        for message in held.messages:
            body: Body
            if index is None:
                body = PackedBody.of(held.region.view(message.body_offset, message.body_bytes))
            else:
                body = _addressed(message, held.region, index)
            self._send(message.metadata, body, held)

    def _send(self, metadata: bytes, body: Body | None, owner: Any) -> None:
        for message in self._connection.send(metadata, body, owner):
            self._transport.send_message(message, timeout_s=self._options.stall_s)

    def _index_of(self, region: Region) -> int:
        index = self._passed.get(region)
        if index is None:
            holder = region.duplicate() if region.is_released else region
            index = self._passed[region] = self._transport.send_region(holder, timeout_s=self._options.stall_s)
        return index

    def _retire(self, regions: Iterable[Region]) -> None:
        """No later message refers to them: let the client and us forget them, so that memory can go."""
        for region in regions:
            self._transport.retire_region(self._passed.pop(region), timeout_s=self._options.stall_s)


def _addressed(message: StoredMessage, region: Region, index: int) -> AddressBody:
    """The buffers of a message in the region with this index; empty ones at its end, where no other buffer begins."""
    body = message.addressed(index)
    end = np.uint64(address_of(index, region.size_bytes))
    return AddressBody(np.where(body.lengths > 0, body.addresses, end), body.lengths, body.total_bytes)


def _start(thread: threading.Thread) -> bool:
    try:
        thread.start()
    except RuntimeError:  # the system gives no more threads
        return False
    return True


def _refuse(transport: UnixTransport, error: BowstringError) -> None:
    try:
        transport.send((encode_error(error),), tag=ERROR_DATA, timeout_s=_PAUSE_S)
    except BowstringError:
        pass


def _regions_of(source: Source, name: str) -> tuple[Region, ...]:
    if isinstance(source, Handle):
        return source.regions()
    if isinstance(source, Region):
        return (source.duplicate(),)
    if isinstance(source, str | os.PathLike):
        return (Region.from_file(source),)
    return store_in_parts(source, name)[0]


def serve(sources: Mapping[str, Source], address: str | None = None, options: ServerOptions | None = None) -> Server:
    """Serve data sets to other processes of this machine and user; see `Server`, and `bowstring.connect` for the other
    end.

    A source is a table (of Bowstring or another library), a record batch, record batches or a reader (each copied
    once, now, into memory that all clients share), the path of an Arrow file (its descriptor is passed, nothing is
    copied), or a `Region` or `Handle` of shared memory. `address` is a path for the socket; by default it gets an
    abstract name of its own, which leaves no file behind.

    Raises `NotFoundError` for a path that is not there, other errors of `open_file` for one that is no Arrow file,
    `ResourceError` where memory is short, `UsageError` for other sources and addresses in use.
    """
    if not isinstance(sources, Mapping):
        raise UsageError(f"serve: expected {{name: source}}, not {type(sources).__name__}")
    server = Server(address, options)
    with closed_on_failure(server):
        for name, source in sources.items():
            server.add(name, source)
    return server


_SERVERS: weakref.WeakSet[Server] = weakref.WeakSet()


def _let_go_after_fork() -> None:
    """A forked child has no threads to serve with: without this it would keep addresses that nobody answers at."""
    for server in list(_SERVERS):
        let_go_of((server._listener.fileno(), *(client.fileno() for client in server._clients)))


os.register_at_fork(after_in_child=_let_go_after_fork)
