"""Serve data sets by name («Server Sequence»), as shared regions or, on request, as bytes.

One thread serves all clients without blocking; it also receives from a client while it streams to it. A client that
violates the protocol loses its connection, without effect on others. The memory for each client is limited.
"""

from __future__ import annotations

import math
import os
import selectors
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bowstring.dissociated.events import DataRequested, StreamComplete
from bowstring.dissociated.limits import Limits
from bowstring.dissociated.server import ServerConnection
from bowstring.dissociated.states import State
from bowstring.dissociated.wire import Body, Message, PackedBody
from bowstring.errors import (
    BowstringError,
    ClosedError,
    ConnectionLostError,
    InvalidDataError,
    NotFoundError,
    UsageError,
)
from bowstring.memory.closable import Closable, close_on_error
from bowstring.memory.region import Region
from bowstring.sharing.processes import close_inherited
from bowstring.sharing.share import Handle
from bowstring.sharing.stored_dataset import Batches, StoredDataset, read_stored_dataset, store_in_parts
from bowstring.sharing.uris import ERROR_DATA, FREE_DATA, MAX_TICKETS, WANT_DATA, Ticket, encode_error, uri_for
from bowstring.transports.base import TransportOptions
from bowstring.transports.event_loop import EventLoop
from bowstring.transports.unix_channel import UnixChannel
from bowstring.transports.unix_listener import UnixListener

Source: TypeAlias = Batches | str | os.PathLike[str] | Region | Handle
"""Batches, the path of an Arrow file, or shared memory."""

_LIMITS = Limits(max_ticket_bytes=1 << 16)
_QUEUE_BYTES = 1 << 18
_MESSAGES_PER_TURN = 64
_ACCEPTS_PER_TURN = 64
_PAUSE_S = 0.2
_REFUSAL_S = 2.0
_NAMES_SHOWN = 5
_MAX_OPEN_FILES = 256
"""The number of data sets above which files are opened for each client, and not kept open."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Deadlines and limits of a server."""

    timeout_s: float = 30.0
    """The time until a client sends a request."""
    stall_s: float = 600.0
    """How long a client may receive nothing of what is sent to it, or pause in the middle of a message."""
    max_clients: int = 256
    """The maximum number of clients with a request; others get an error."""
    max_silent: int = 256
    """The maximum number of connections without a request; a new one replaces the oldest."""


class Server(Closable):
    """Serves data sets to processes of this machine and user; created by `serve`. A context manager.

    After `close`, or the end of the process, clients keep the memory that they have mapped; all other memory is freed.
    """

    def __init__(self, address: str | None = None, options: ServerOptions | None = None) -> None:
        self.options = options or ServerOptions()
        transport = TransportOptions(max_plain_bytes=1 << 16, max_tagged_bytes=_LIMITS.max_free_bytes, max_regions=0)
        self._listener = UnixListener(address, options=transport)
        self._lock = threading.Lock()
        self._datasets: dict[str, tuple[StoredDataset, ...]] = {}
        # Changed by the loop's thread only.
        self._silent: dict[_Session, None] = {}
        self._clients: dict[_Session, None] = {}
        self._is_closed = False
        with close_on_error(self._listener):
            self._loop = EventLoop("bowstring-serve")
        self._loop.add(_Acceptor(self, self._listener))
        _SERVERS.add(self)
        self._loop.start()

    @property
    def address(self) -> str:
        """The address of the server: "@" and an abstract name, or the path of a socket."""
        return self._listener.address

    @property
    def names(self) -> list[str]:
        """The names of the data sets."""
        with self._lock:
            return list(self._datasets)

    @property
    def uris(self) -> dict[str, str]:
        """The URI of each data set by its name."""
        return {name: uri_for(self.address, name) for name in self.names}

    @property
    def num_clients(self) -> int:
        """The number of connected clients."""
        return len(self._silent) + len(self._clients)

    def uri(self, name: str) -> str:
        """The URI of a data set, for `bowstring.connect`. Raises `NotFoundError`, `ClosedError`."""
        self._refuse_closed()
        if name not in self.names:
            raise NotFoundError(f"the server has no data set {name!r}, only {self.names}")
        return uri_for(self.address, name)

    def add(self, name: str, source: Source) -> str:
        """Add a data set and return its URI. Batches are copied once, into memory that all clients share; files and
        regions are not copied.

        Raises `UsageError` if the name exists, and as `serve`.
        """
        self._refuse_closed()
        uri_for(self.address, name)  # check the name before copying
        parts = [read_stored_dataset(region) for region in _regions_of(source, name)]
        if isinstance(source, str | os.PathLike) and len(self._datasets) >= _MAX_OPEN_FILES:
            for part in parts:
                part.region.release_descriptor()
        return self.add_stored(name, *parts)

    def add_stored(self, name: str, *datasets: StoredDataset) -> str:
        """As `add`, for one or more data sets in regions, which become one.

        Raises `InvalidDataError` if their schemas differ.
        """
        if any(part.schema != datasets[0].schema for part in datasets):
            raise InvalidDataError(f"data set {name!r}: its regions have different schemas")
        with self._lock:
            if name in self._datasets:
                raise UsageError(f"the server has a data set {name!r} already")
            self._datasets[name] = datasets
        return self.uri_of(name)

    def replace_stored(self, name: str, *datasets: StoredDataset) -> None:
        """Replace the memory of a data set. Raises `NotFoundError`."""
        with self._lock:
            if name not in self._datasets:
                raise NotFoundError(f"the server has no data set {name!r}")
            self._datasets[name] = datasets

    def uri_of(self, name: str) -> str:
        """The URI of a data set with this name, whether it exists or not."""
        return uri_for(self.address, name)

    def remove(self, name: str) -> None:
        """Remove a data set; its memory is freed when no client uses it. Raises `NotFoundError`."""
        with self._lock:
            if self._datasets.pop(name, None) is None:
                raise NotFoundError(f"the server has no data set {name!r}")

    def close(self) -> None:
        """Close the server, its connections and its thread. Idempotent."""
        self._is_closed = True
        self._loop.close()
        with self._lock:
            self._datasets.clear()

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise ClosedError("the server is closed")

    def _connect(self, channel: UnixChannel) -> None:
        """Add a connection. If there are too many without a request, refuse the oldest of them."""
        if len(self._silent) >= self.options.max_silent:
            self._evict()
        session = _Session(self, channel)
        self._silent[session] = None
        self._loop.add(session)
        self._loop.handle(session, selectors.EVENT_READ)  # its request has mostly arrived already

    def _evict(self) -> bool:
        """Refuse the oldest connection without a request; return False if there is none."""
        session = next(iter(self._silent), None)
        if session is None:
            return False
        limit = self.options.max_silent
        session.refuse(ConnectionLostError(f"the server has {limit} connections without a request, its limit"))
        self._loop.handle(session, selectors.EVENT_WRITE)
        return True

    def _admit(self, session: _Session) -> None:
        """Count a connection with a request as a client. Raises `ConnectionLostError` at the limit."""
        if session in self._clients:
            return
        limit = self.options.max_clients
        if len(self._clients) >= limit:
            raise ConnectionLostError(f"the server has {limit} clients already, its limit")
        del self._silent[session]
        self._clients[session] = None

    def _remove_session(self, session: _Session) -> None:
        """Stop counting a connection, because it ends."""
        self._silent.pop(session, None)
        self._clients.pop(session, None)

    def _disconnect(self, session: _Session) -> None:
        self._loop.remove(session)
        session.close()

    def _find(self, name: str) -> tuple[StoredDataset, ...]:
        with self._lock:
            datasets = self._datasets.get(name)
            if datasets is None:
                raise NotFoundError(f"the server has no data set {name[:200]!r}")
        return datasets

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.names[:_NAMES_SHOWN])) + (", …" if len(self.names) > _NAMES_SHOWN else "")
        state = "closed" if self._is_closed else f"at {self.address}: {names or 'nothing yet'}"
        return f"<bowstring.Server {state}>"


class _Acceptor:
    """The handler of the listening socket."""

    def __init__(self, server: Server, listener: UnixListener) -> None:
        self._server = server
        self._listener = listener
        self.deadline = math.inf

    def fileno(self) -> int:
        return self._listener.fileno()

    @property
    def interest(self) -> int:
        return selectors.EVENT_READ if self.deadline == math.inf else 0

    def handle(self, _events: int) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                channel = self._listener.accept_channel()
            except ClosedError:
                return
            except (BowstringError, OSError):
                if not self._server._evict():  # no descriptors left: retry after clients have ended
                    self.deadline = time.monotonic() + _PAUSE_S
                return
            if channel is None:
                return
            self._server._connect(channel)

    def expire(self) -> None:
        self.deadline = math.inf

    def close(self) -> None:
        self._listener.close()


class _Session:
    """The handler of one client: its requests in order, and the regions that were sent to it."""

    def __init__(self, server: Server, channel: UnixChannel) -> None:
        self._server = server
        self._channel = channel
        self._connection = ServerConnection(WANT_DATA, FREE_DATA, limits=_LIMITS)
        self._region_indices: dict[Region, int] = {}
        self._messages: Iterator[Message | None] = iter(())
        self._is_refused = False
        self._connected_at = self._received_at = self._sent_at = time.monotonic()

    def fileno(self) -> int:
        return self._channel.fileno()

    @property
    def interest(self) -> int:
        if self._is_refused:
            return selectors.EVENT_WRITE
        is_sending = self._channel.has_output or self._connection.state is State.STREAMING
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if is_sending else 0)

    @property
    def deadline(self) -> float:
        options, state = self._server.options, self._connection.state
        if self._is_refused:
            return self._sent_at + _REFUSAL_S
        if state is State.WAITING:
            return self._connected_at + options.timeout_s
        # A client may be silent for any time while it uses memory, but not in the middle of a message.
        deadline = self._received_at + options.stall_s if self._channel.is_receiving else math.inf
        if self._channel.has_output or state is State.STREAMING:
            deadline = min(deadline, self._sent_at + options.stall_s)
        return deadline

    def handle(self, events: int) -> None:
        try:
            if events & selectors.EVENT_READ and not self._is_refused:
                self._receive()
            self._send()
        except BowstringError as error:
            if self._is_refused or isinstance(error, ConnectionLostError | UsageError):
                self._server._disconnect(self)  # lost, or out of region indices: the client reconnects
            else:
                self.refuse(error)

    def expire(self) -> None:
        self._server._disconnect(self)

    def refuse(self, error: BowstringError) -> None:
        """Send an error, then close the connection."""
        self._server._remove_session(self)
        self._is_refused, self._sent_at = True, time.monotonic()
        self._messages = iter(())
        self._connection.connection_lost()
        self._channel.submit((encode_error(error),), ERROR_DATA)

    def close(self) -> None:
        self._server._remove_session(self)
        self._messages = iter(())
        self._connection.connection_lost()
        self._region_indices.clear()
        self._channel.close()

    def _receive(self) -> None:
        before = self._channel.bytes_received
        for _ in range(_MESSAGES_PER_TURN):
            received = self._channel.receive(self._connection.check_length)
            if received is None or self._is_refused:
                break
            for event in self._connection.receive(received.tag, received.data):
                if isinstance(event, DataRequested):
                    self._begin(Ticket.decode(event.ticket))
                elif isinstance(event, StreamComplete):
                    self._retire(list(self._region_indices))
        if self._channel.bytes_received != before:
            self._received_at = time.monotonic()

    def _send(self) -> None:
        channel, before = self._channel, self._channel.bytes_sent
        messages = self._messages if channel.queued_bytes < _QUEUE_BYTES else ()
        for message in messages:
            if message is not None:
                channel.submit(message.parts, message.tag)
            elif not channel.flush():
                break
            if channel.queued_bytes >= _QUEUE_BYTES:
                break
        channel.flush()
        if channel.bytes_sent != before:
            self._sent_at = time.monotonic()
        if self._is_refused and not channel.has_output:
            self._server._disconnect(self)

    def _begin(self, ticket: Ticket) -> None:
        """Start a stream; its messages are created as the client receives them."""
        try:
            self._server._admit(self)
            if len(ticket.names) > MAX_TICKETS:
                raise UsageError(f"a request for {len(ticket.names)} data sets; the maximum is {MAX_TICKETS}")
            parts = [part for name in ticket.names for part in self._server._find(name)]
            for stored_part in parts:
                stored_part.region.check()
            if any(part.schema != parts[0].schema for part in parts):
                raise InvalidDataError(f"{ticket}: their schemas differ")
        except BowstringError as error:
            self.refuse(error)
            return
        self._sent_at = time.monotonic()
        # Without enough region indices the connection ends before the schema, and the client opens another.
        self._channel.sent_regions.check_capacity(len({part.region for part in parts} - self._region_indices.keys()))
        self._messages = self._stream(parts, ticket.packed)

    def _stream(self, parts: Sequence[StoredDataset], is_packed: bool) -> Iterator[Message | None]:
        """Yield the messages of data sets, with bodies as addresses or bytes; None requests a flush."""
        connection = self._connection
        for index, part in enumerate(parts):
            if part.messages and not is_packed and part.region not in self._region_indices:
                self._send_region(part.region)
                if part.region.is_released:  # send the descriptor that was opened for it
                    yield None
            if not index:  # after the region, so that one system call sends both
                yield from connection.send(part.schema)
            for message in part.messages:
                body: Body
                if is_packed:
                    body = PackedBody.of(part.region.view(message.body_offset, message.body_bytes))
                else:
                    body = message.addressed(self._region_indices[part.region])
                yield from connection.send(message.metadata, body, part)
        yield from connection.end()
        # A client keeps a descriptor for each file, to check its size, but not for sealed memory.
        is_complete = connection.state is State.COMPLETE
        self._retire([region for region in self._region_indices if is_complete or not region.is_sealed])

    def _send_region(self, region: Region) -> None:
        opened = region.duplicate() if region.is_released else region
        self._region_indices[region] = self._channel.submit_region(opened)

    def _retire(self, regions: Iterable[Region]) -> None:
        """Let the client close regions that no later message refers to, so that their memory can be freed."""
        for region in regions:
            self._channel.submit_retirement(self._region_indices.pop(region))


def _regions_of(source: Source, name: str) -> tuple[Region, ...]:
    if isinstance(source, Handle):
        return source.regions()
    if isinstance(source, Region):
        return (source.duplicate(),)
    if isinstance(source, str | os.PathLike):
        return (Region.from_file(source),)
    return store_in_parts(source, name)[0]


def serve(sources: Mapping[str, Source], address: str | None = None, options: ServerOptions | None = None) -> Server:
    """Serve data sets to other processes of this machine and user, which read them with `bowstring.connect`.

    A source is a table (of Bowstring or another library), a record batch, record batches or a reader (copied once, into
    memory that all clients share), the path of an Arrow file (its descriptor is sent, nothing is copied), or a `Region`
    or `Handle` of shared memory. `address` is a path for the socket; the default is a new abstract name, which leaves
    no file behind.

    Raises `NotFoundError` if a path does not exist, as `open_file` if it is not an Arrow file, `ResourceError` if
    memory is short, `UsageError` for other sources and addresses in use.
    """
    if not isinstance(sources, Mapping):
        raise UsageError(f"serve: expected {{name: source}}, not {type(sources).__name__}")
    server = Server(address, options)
    with close_on_error(server):
        for name, source in sources.items():
            server.add(name, source)
    return server


_SERVERS: weakref.WeakSet[Server] = weakref.WeakSet()


def _close_after_fork() -> None:
    """Close the sockets in a forked child, which has no thread that could answer."""
    for server in list(_SERVERS):
        close_inherited(server._loop.descriptors)


os.register_at_fork(after_in_child=_close_after_fork)
