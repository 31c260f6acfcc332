"""Serve data sets by name («Server Sequence»), as shared regions or, on request, as bytes.

One thread serves all clients without blocking; it also receives from a client while it streams to it. A client that
violates the protocol loses its connection, without effect on others. The memory for each client is limited.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import NoReturn

from bowstring.dissociated.events import DataRequested
from bowstring.dissociated.leases import Leases
from bowstring.dissociated.limits import Limits
from bowstring.dissociated.server import EncodedStream, Role, ServerConnection
from bowstring.dissociated.states import State
from bowstring.dissociated.wire import Body, Message, PackedBody
from bowstring.errors import (
    BowstringError,
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    InvalidDataError,
    NotFoundError,
    UsageError,
)
from bowstring.memory.closable import Closable, close_on_error
from bowstring.memory.region import FileRange, Region
from bowstring.sharing.device_tables import DeviceTable
from bowstring.sharing.locations import Locations
from bowstring.sharing.processes import close_inherited
from bowstring.sharing.recording import Record, Recorder, open_recorder
from bowstring.sharing.server_stats import Counters, ServerStats, Traffic
from bowstring.sharing.share import Source, regions_of
from bowstring.sharing.signals import wait_for_signal
from bowstring.sharing.signed_tickets import TicketSigner, hide_signatures
from bowstring.sharing.stored_dataset import StoredDataset, StoredMessage, read_stored_dataset
from bowstring.sharing.uris import ERROR_DATA, FREE_DATA, MAX_TICKETS, ROLES, Ticket, encode_error, uri_for
from bowstring.transports.base import (
    BOTH,
    RECEIVE,
    SEND,
    Channel,
    Endpoint,
    Exported,
    Interest,
    Transport,
    TransportOptions,
)
from bowstring.transports.event_loop import EventLoop
from bowstring.transports.flow_control import Outstanding, TotalLimits
from bowstring.transports.registry import find_transport
from bowstring.transports.session import Failed, Session, SessionOptions
from bowstring.transports.tls import TlsOptions

_LOG = logging.getLogger(__name__)
_LOG.addHandler(logging.NullHandler())  # else Python prints warnings, and clients could block a server that way
_LIMITS = Limits(max_ticket_bytes=1 << 16)
_STEPS_PER_TURN = 4
_ACCEPTS_PER_TURN = 8
_CONNECTIONS_PER_ACCEPT = 8
_MAX_INLINE_MESSAGES = 64
_MAX_ENCODED_BYTES = 1 << 16
_FILE_BYTES = 1 << 16
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
    inline_bytes: int = 1 << 14
    """The size up to which a request's data sets are sent as bytes, which takes less time than sharing memory."""
    max_kept_regions: int = 16
    """The number of regions that a client keeps mapped between its requests."""
    max_leases: int = 1 << 26
    """The addresses leased to a client at which its stream pauses, until it frees some."""
    max_leased_bytes: int = 1 << 62
    """The bytes leased to a client at which its stream pauses, until it frees some."""
    max_total_leases: int = 1 << 27
    """The addresses leased to all clients at which streams pause.

    Half of this limit and of the next two is divided equally among `max_clients`: a client may always use its part, and
    one batch, however much others have.
    """
    max_total_leased_bytes: int = 1 << 62
    """The bytes leased to all clients at which streams pause."""
    max_total_queued_bytes: int = 1 << 62
    """The bytes that wait until clients receive them, at which streams pause."""
    tls: TlsOptions | None = None
    """The server's certificate, for the addresses with `tcp+tls`."""
    record: Record | None = None
    """The path of a new file, in which all messages are recorded for `bowstring trace`, or a `Recorder`."""
    ticket_key: bytes | None = field(default=None, repr=False)
    """The key of signed tickets, at least 32 random bytes (`secrets.token_bytes(32)`); with it, a client needs the URI
    from this server to request a data set.
    """
    ticket_lifetime_s: float = math.inf
    """How long a signed ticket is valid after its URI was requested."""


class Server(Closable):
    """Serves data sets to processes of this machine and user; created by `serve`. A context manager.

    After `close`, or the end of the process, clients keep the memory that they have mapped; all other memory is freed.
    """

    def __init__(
        self,
        address: str | None = None,
        options: ServerOptions | None = None,
        *,
        scheme: str = "unix",
        addresses: Mapping[str, str | None] | None = None,
    ) -> None:
        self.options = options or ServerOptions()
        if addresses is None:
            addresses = {scheme: address}
        elif address is not None or scheme != "unix" or not addresses:
            raise UsageError("serve: expected either an address and a scheme, or a mapping of schemes to addresses")
        self._recorder = open_recorder(self.options.record)
        self._lock = threading.Lock()
        self._datasets: dict[str, tuple[StoredDataset, ...]] = {}
        self._regions: Counter[Region] = Counter()
        self._encoded_streams: dict[tuple[StoredDataset, ...], EncodedStream] = {}
        # Changed by the loop's thread only.
        self._silent: dict[_Client, None] = {}
        self._clients: dict[_Client, None] = {}
        self._connections: dict[Channel, _Client] = {}
        options = self.options
        limits = Outstanding(options.max_total_leases, options.max_total_leased_bytes, options.max_total_queued_bytes)
        self._total_limits = TotalLimits(limits, options.max_clients)
        self._region_bytes = 0
        self._ended_traffic = Traffic()
        self._counters = Counters()
        self._started_at = time.monotonic()
        self._process_id = os.getpid()
        self._is_draining = self._is_closed = False
        self._is_drained = threading.Event()
        with ExitStack() as on_error:
            self._acceptors = [
                on_error.enter_context(_Acceptor(self, transport, transport.listen(address, limits)))
                for transport, address, limits in _transports(addresses, self.options, self._recorder)
            ]
            key, address = self.options.ticket_key, f"{next(iter(addresses))}:{self.address}"
            self._signer = None if key is None else TicketSigner(key, address)
            self._loop = EventLoop("bowstring-serve")
            on_error.pop_all()
        for acceptor in self._acceptors:
            self._loop.add(acceptor)
        _SERVERS.add(self)
        self._loop.start()
        _LOG.info("%s: serving", self._name)

    @property
    def address(self) -> str:
        """The address of the server, or the first of several: "@" and an abstract name, or the path of a socket."""
        return self._acceptors[0].endpoint.address

    @property
    def _name(self) -> str:
        return f"server at {self.address}"

    @property
    def names(self) -> list[str]:
        """The names of the data sets."""
        with self._lock:
            return list(self._datasets)

    @property
    def uris(self) -> dict[str, str]:
        """The URI of each data set at the first address, by its name."""
        return {name: self.uri_of(name) for name in self.names}

    @property
    def num_clients(self) -> int:
        """The number of connected clients."""
        return len(self._silent) + len(self._clients)

    def stats(self) -> ServerStats:
        """Return what the server uses and has done. Takes less than a millisecond for a few hundred clients."""
        with self._lock:
            clients, traffic = list(self._connections.values()), self._ended_traffic
            for client in clients:
                traffic = traffic.plus(client.traffic)
            leases = [client.leases for client in clients]
            leased_addresses = sum(each.outstanding for each in leases)
            leased_bytes = sum(each.outstanding_bytes for each in leases)
            return ServerStats(
                uptime_s=time.monotonic() - self._started_at,
                num_clients=len(self._clients),
                num_silent=len(self._silent),
                num_datasets=len(self._datasets),
                num_regions=len(self._regions),
                region_bytes=self._region_bytes,
                leased_addresses=leased_addresses,
                leased_bytes=leased_bytes,
                queued_bytes=sum(client.queued_bytes for client in clients),
                num_messages=traffic.num_messages,
                bytes_sent=traffic.bytes_sent,
                bytes_received=traffic.bytes_received,
                freed_addresses=traffic.addresses - leased_addresses,
                freed_bytes=traffic.address_bytes - leased_bytes,
                **asdict(self._counters),
            )

    def uri(self, name: str, *, role: Role = Role.BOTH, lifetime_s: float | None = None) -> str:
        """The URI of a data set at the first address; with another role, that of its metadata or of its bodies.

        With `ServerOptions.ticket_key`, the URI is a secret that authorizes its holder to request the data set for
        `lifetime_s` seconds, by default `ServerOptions.ticket_lifetime_s`.

        Raises `NotFoundError`, `ClosedError`, and `UsageError` for a lifetime without a key.
        """
        return self.locations(name, role=role, lifetime_s=lifetime_s).uris[0]

    def locations(self, name: str, *, role: Role = Role.BOTH, lifetime_s: float | None = None) -> Locations:
        """The URIs of a data set at all addresses, of which `bowstring.connect` uses the nearest. As `uri`."""
        self._refuse_closed()
        if name not in self.names:
            raise NotFoundError(f"the server has no data set {name!r}, only {self.names}")
        return self.locations_of(self._sign(name, lifetime_s), role)

    def locations_of(self, ticket: str, role: Role = Role.BOTH) -> Locations:
        """The URIs at all addresses for a ticket, whether it is valid or not."""
        return Locations(tuple(acceptor.uri_of(ticket, role) for acceptor in self._acceptors))

    def add(self, name: str, source: Source | DeviceTable, *, copy: bool | None = None) -> str:
        """Add a data set and return its URI. Batches are copied once, into memory that all clients share; files and
        regions are not copied, unless `copy` is True. With `copy=False`, batches raise `WouldCopyError`. A table of
        `device_table` needs the scheme `cuda+unix`, and is copied on the device when a client reads it.

        Raises `UsageError` if the name exists, and as `serve`.
        """
        self._refuse_closed()
        self._acceptors[0].uri_of(name)  # check the name before copying
        if isinstance(source, DeviceTable):
            return self.add_stored(name, source.store(name))
        parts = [read_stored_dataset(region) for region in regions_of(source, name, copy)[0]]
        if isinstance(source, str | os.PathLike) and not copy and len(self._datasets) >= _MAX_OPEN_FILES:
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
            self._set(name, datasets)
        return self.uri_of(name)

    def replace_stored(self, name: str, *datasets: StoredDataset) -> None:
        """Replace the memory of a data set. Raises `NotFoundError`."""
        with self._lock:
            if name not in self._datasets:
                raise NotFoundError(f"the server has no data set {name!r}")
            self._set(name, datasets)

    def uri_of(self, name: str) -> str:
        """The URI of a data set with this name at the first address, whether it exists or not."""
        return self._acceptors[0].uri_of(self._sign(name))

    def _sign(self, name: str, lifetime_s: float | None = None) -> str:
        """Return the ticket of a data set. Raises `UsageError` for an invalid lifetime, or one without a key."""
        if self._signer is None:
            if lifetime_s is not None:
                raise UsageError("lifetime_s: tickets expire only with ServerOptions.ticket_key")
            return name
        lifetime_s = self.options.ticket_lifetime_s if lifetime_s is None else lifetime_s
        if not lifetime_s > 0:
            raise UsageError(f"lifetime of a ticket: expected a positive number of seconds, found {lifetime_s!r}")
        return self._signer.sign(name, None if lifetime_s == math.inf else math.ceil(time.time() + lifetime_s))

    def remove(self, name: str) -> None:
        """Remove a data set; its memory is freed when no client uses it. Raises `NotFoundError`."""
        with self._lock:
            if name not in self._datasets:
                raise NotFoundError(f"the server has no data set {name!r}")
            self._set(name, ())

    def drain(self, timeout_s: float = 30.0) -> bool:
        """Accept no more connections and requests, wait until all clients have finished, and close.

        Streams are sent to their end, and clients keep the memory leased to them. A client without both is disconnected
        at once. After `timeout_s`, or an exception such as `KeyboardInterrupt`, the other clients are disconnected,
        too. Return whether all have finished before. Call it from any thread; True if the server is closed.
        """
        try:
            if not self._is_closed:
                self._loop.call(self._begin_drain)
                return self._is_drained.wait(timeout_s)
            return True
        finally:
            self.close()

    def serve_forever(self, drain_s: float = 30.0) -> bool:
        """Serve until the process gets SIGTERM or SIGINT, then `drain` for at most `drain_s`. Return as `drain`.

        For the main thread of a program; other threads may change the data sets meanwhile. While the server drains, the
        signals have their previous effects: a second SIGINT usually raises `KeyboardInterrupt`, which closes the
        server. Raises `UsageError` in other threads, `ClosedError`.
        """
        self._refuse_closed()
        wait_for_signal()
        return self.drain(drain_s)

    def close(self) -> None:
        """Close the server, its connections and its thread. Idempotent. Has no effect in a forked child."""
        if not self._is_closed:
            _LOG.info("%s: closing (%d connections)", self._name, self.num_clients)
        self._is_closed = True
        if self._process_id != os.getpid():
            return
        self._loop.close()
        with self._lock:
            self._datasets.clear()
            self._encoded_streams.clear()
            self._regions.clear()
            self._region_bytes = 0
        if self._recorder is not None:
            self._recorder.release()

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise ClosedError("the server is closed")

    def _set(self, name: str, datasets: tuple[StoredDataset, ...]) -> None:
        """Set the memory of a data set; without any, remove it. Clients retire what is no longer served."""
        previous = self._datasets.pop(name, ())
        self._encoded_streams.pop(previous, None)
        if datasets:
            self._datasets[name] = datasets
            self._encode_small(datasets)
        for part in datasets:
            if part.region not in self._regions:
                self._region_bytes += part.region.size_bytes
            self._regions[part.region] += 1
        for part in previous:
            self._regions[part.region] -= 1
            if not self._regions[part.region]:
                del self._regions[part.region]
                self._region_bytes -= part.region.size_bytes
        if previous:
            self._loop.call(self._retire_removed)

    def is_small(self, parts: Sequence[StoredDataset]) -> bool:
        """Whether sending bytes takes less than mapping regions and freeing addresses."""
        if any(part.region.is_on_device for part in parts):
            return False
        nbytes = sum(message.body_bytes for part in parts for message in part.messages[:_MAX_INLINE_MESSAGES])
        is_short = sum(len(part.messages) for part in parts) <= _MAX_INLINE_MESSAGES
        return is_short and nbytes <= self.options.inline_bytes

    def _encode_small(self, datasets: tuple[StoredDataset, ...]) -> None:
        """Encode the messages of a small data set once, instead of for each request. Files may change meanwhile."""
        if not self.is_small(datasets) or not all(part.region.is_sealed for part in datasets):
            return
        batches = ((message, part.region) for part in datasets for message in part.messages)
        bodies = ((message.metadata, _packed_body(region, message)) for message, region in batches)
        stream = EncodedStream.of(datasets[0].schema, bodies)
        if stream.length_bytes <= _MAX_ENCODED_BYTES:
            self._encoded_streams[datasets] = stream

    def encoded_stream(self, parts: Sequence[StoredDataset]) -> EncodedStream | None:
        """Return the messages of a small data set with these parts, if it is in sealed memory."""
        return self._encoded_streams.get(tuple(parts))

    def _is_served(self, region: Region) -> bool:
        with self._lock:
            return region in self._regions

    def _retire_removed(self) -> None:
        for client in list(self._clients):
            client.retire_removed()
            self._loop.handle(client, 0)

    def _resume_client(self, channel: Channel) -> None:
        """Let a client continue although its own descriptor is not ready, unless it is disconnected."""
        client = self._connections.get(channel)
        if client is not None:
            self._loop.handle(client, 0)

    def _connect(self, transport: Transport, channel: Channel) -> None:
        """Add a connection. If there are too many without a request, refuse the oldest of them."""
        if len(self._silent) >= self.options.max_silent:
            self._evict()
        self._counters.num_connections += 1
        client = _Client(self, transport, channel, self._counters.num_connections)
        _LOG.debug("%s: connected", client.name)
        self._silent[client] = None
        self._connections[channel] = client
        self._loop.add(client)
        self._loop.handle(client, RECEIVE)  # its request has mostly arrived already

    def _evict(self) -> bool:
        """Refuse the oldest connection without a request; return False if there is none."""
        client = next(iter(self._silent), None)
        if client is None:
            return False
        limit = self.options.max_silent
        self._counters.num_refused_connections += 1
        client.refuse(ConnectionLostError(f"the server has {limit} connections without a request, its limit"))
        self._loop.handle(client, SEND)
        return True

    def _admit(self, client: _Client) -> None:
        """Count a connection with a request as a client. Raises `ConnectionLostError` at the limit."""
        if self._is_draining:
            raise ConnectionLostError("the server is shutting down")
        if client in self._clients:
            return
        limit = self.options.max_clients
        if len(self._clients) >= limit:
            raise ConnectionLostError(f"the server has {limit} clients already, its limit")
        del self._silent[client]
        self._clients[client] = None
        _LOG.info("%s: accepted", client.name)

    def _remove_client(self, client: _Client) -> None:
        """Stop counting a connection, because it ends."""
        self._silent.pop(client, None)
        self._clients.pop(client, None)
        if self._is_draining and not self._clients:
            self._is_drained.set()

    def _begin_drain(self) -> None:
        """Close the endpoints, and disconnect clients that use nothing."""
        if self._is_draining:
            return
        self._is_draining = True
        _LOG.info("%s: draining (%d clients)", self._name, len(self._clients))
        for acceptor in self._acceptors:
            self._loop.remove(acceptor)
            acceptor.close()
        for client in list(self._silent):
            self._counters.num_refused_connections += 1
            client.refuse(ConnectionLostError("the server is shutting down"))
            self._loop.handle(client, SEND)
        for client in list(self._clients):
            self._loop.handle(client, 0)
        if not self._clients:
            self._is_drained.set()

    def _disconnect(self, client: _Client, reason: object = "finished", *, level: int = logging.INFO) -> None:
        _LOG.log(level, "%s: disconnected: %s", client.name, reason)
        self._loop.remove(client)
        client.close()

    def _forget(self, client: _Client) -> None:
        """Remove a connection that has ended; its traffic remains in `stats`."""
        with self._lock:
            if self._connections.pop(client.channel, None) is not None:
                self._ended_traffic = self._ended_traffic.plus(client.traffic)

    def find_stored(self, ticket: str) -> tuple[StoredDataset, ...]:
        """Return the parts of a data set. Raises `AccessDeniedError`, `NotFoundError`, and errors of replaced files."""
        name = ticket if self._signer is None else self._signer.verify(ticket, time.time())
        with self._lock:
            datasets = self._datasets.get(name)
            if datasets is None:
                raise NotFoundError(f"the server has no data set {hide_signatures(name)[:200]!r}")
        for part in datasets:
            part.region.check()
        return datasets

    def __reduce__(self) -> NoReturn:
        raise TypeError("a server can't be pickled: pass a URI, `server.uri(name)`, or a data set of `connect`")

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.names[:_NAMES_SHOWN])) + (", …" if len(self.names) > _NAMES_SHOWN else "")
        state = "closed" if self._is_closed else f"at {self.address}: {names or 'nothing yet'}"
        return f"<bowstring.sharing.Server {state}>"


def _transports(
    addresses: Mapping[str, str | None], options: ServerOptions, recorder: Recorder | None
) -> Iterator[tuple[Transport, str | None, TransportOptions]]:
    """Yield the transport of each scheme, its address and options. Raises `UsageError` if none supports `tls`."""
    transports = {scheme: find_transport(scheme, f"{scheme}:{address or ''}") for scheme, address in addresses.items()}
    tls = options.tls
    if tls is not None and not any(transport.supports_tls for transport in transports.values()):
        raise UsageError(f"{', '.join(addresses)}: the option tls is not supported: use tcp+tls")
    for scheme, transport in transports.items():
        limits = TransportOptions(
            max_plain_bytes=1 << 16,
            max_tagged_bytes=_LIMITS.max_free_bytes,
            max_regions=0,
            allow_other_hosts=options.ticket_key is not None,
            tls=tls if transport.supports_tls else None,
        )
        yield transport if recorder is None else recorder.observe(transport), addresses[scheme], limits


class _Acceptor(Closable):
    """The handler of an endpoint."""

    def __init__(self, server: Server, transport: Transport, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._server = server
        self._transport = transport
        self.deadline = math.inf

    def uri_of(self, ticket: str, role: Role = Role.BOTH) -> str:
        endpoint = self.endpoint
        return uri_for(endpoint.address, ticket, self._transport.scheme, endpoint.remote_handle, endpoint.scope, role)

    def interests(self) -> list[Interest]:
        return self.endpoint.interests() if self.deadline == math.inf else []

    def descriptors(self) -> list[int]:
        return self.endpoint.descriptors()

    def handle(self, _events: int) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                channels = self.endpoint.accept(_CONNECTIONS_PER_ACCEPT)
            except ClosedError:
                return
            except (BowstringError, OSError) as error:
                if not self._server._evict():  # no descriptors left: retry after clients have ended
                    _LOG.warning("%s: can't accept connections for %g s: %s", self._server._name, _PAUSE_S, error)
                    self.deadline = time.monotonic() + _PAUSE_S
                return
            for channel in channels:
                self._server._connect(self._transport, channel)
            if len(channels) < _CONNECTIONS_PER_ACCEPT:
                break
        for channel in self.endpoint.progress():
            self._server._resume_client(channel)

    def expire(self) -> None:
        self.deadline = math.inf

    def close(self) -> None:
        self.endpoint.close()


class _Client:
    """The handler of one client: its requests in order, and the regions that were sent to it."""

    def __init__(self, server: Server, transport: Transport, channel: Channel, number: int) -> None:
        options, now = server.options, time.monotonic()
        self.channel = channel
        self._number = number
        self._server = server
        self._connection = ServerConnection(ROLES, FREE_DATA, limits=_LIMITS)
        self._exporter = transport.exporter(channel)
        self._session = Session(
            {Role.BOTH: channel},
            transport.open_memory(channel, None),
            now=now,
            core=self._connection,
            options=SessionOptions(
                stall_s=options.stall_s,
                max_leases=options.max_leases,
                max_leased_bytes=options.max_leased_bytes,
                total_limits=server._total_limits,
            ),
        )
        self._session.wake = partial(server._loop.call, partial(server._resume_client, channel))
        self._exports: dict[Region, Exported] = {}
        self._connected_at = now
        self._refused_at: float | None = None

    @property
    def name(self) -> str:
        """The number of the connection, and its peer."""
        peers = [str(peer) for peer in (self.channel.traits.peer, self.channel.traits.peer_address) if peer is not None]
        return f"{self._server._name}, connection {self._number} from {' at '.join(peers) or 'an unknown peer'}"

    @property
    def leases(self) -> Leases:
        return self._connection.leases

    @property
    def queued_bytes(self) -> int:
        return self.channel.queued_bytes

    @property
    def traffic(self) -> Traffic:
        channel, leases = self.channel, self.leases
        return Traffic(
            self._session.num_submitted, channel.bytes_sent, channel.bytes_received, leases.total, leases.total_bytes
        )

    def interests(self) -> list[Interest]:
        return self._session.interests(BOTH if self._refused_at is None else SEND)

    def descriptors(self) -> list[int]:
        return self.channel.descriptors()

    @property
    def deadline(self) -> float:
        if self._refused_at is not None:
            return self._refused_at + _REFUSAL_S
        if self._connection.state is State.WAITING:
            return self._connected_at + self._server.options.timeout_s
        # A client may be silent for any time while it uses memory, but not in the middle of a message.
        return 0.0 if not self._session.wait_s else self._session.next_deadline()

    def handle(self, _events: int) -> None:
        for turn in range(_STEPS_PER_TURN):
            directions = SEND if turn or self._refused_at is not None else BOTH
            for event in self._session.step(time.monotonic(), directions):
                if isinstance(event, DataRequested):
                    self._server._counters.num_requests += 1
                    self._begin(Ticket.decode(event.ticket))
                elif isinstance(event, Failed):
                    self._fail(event.error)
                    return
            if self._refused_at is not None and not self._session.is_sending:
                self._server._disconnect(self, "refused", level=logging.DEBUG)
                return
            if self._session.wait_s:
                break
        if self._server._is_draining and self._is_finished:
            self._server._disconnect(self)

    @property
    def _is_finished(self) -> bool:
        """Whether the client has received its streams and freed its leases."""
        session = self._session
        is_busy = self._refused_at is not None or session.is_streaming or session.is_sending
        return not is_busy and not self._connection.leases

    def expire(self) -> None:
        if not self.deadline:
            self.handle(0)
        elif self._refused_at is not None:
            self._server._disconnect(self, "it does not receive why it is refused", level=logging.DEBUG)
        elif self._connection.state is State.WAITING:
            self._server._disconnect(self, "it sent no request in time", level=logging.DEBUG)
        else:
            self._lose(f"{self.channel.wait_description}: no progress in time")

    def refuse(self, error: BowstringError, reason: str | None = None) -> None:
        """Send an error, then close the connection. `reason` is logged in place of an error with secrets."""
        _LOG.warning("%s: refused: %s", self.name, reason or error)
        self._server._remove_client(self)
        self._refused_at = time.monotonic()
        self._session.refuse(Message(ERROR_DATA, (text := encode_error(error),), len(text)))
        self._connection.connection_lost()

    def retire(self, regions: Iterable[Region]) -> None:
        """Let the client close regions that no later message refers to, so that their memory can be freed."""
        if self._exporter is not None and self._refused_at is None:
            for region in regions:
                exported = self._exports.pop(region, None)
                if exported is not None:
                    self._exporter.retire(exported)

    def retire_removed(self) -> None:
        """Retire the regions that are no longer served, unless a stream may still refer to them."""
        if not self._session.is_streaming:
            self.retire([region for region in self._exports if not self._server._is_served(region)])

    def close(self) -> None:
        self._server._remove_client(self)
        self._connection.connection_lost()
        self._exports.clear()
        self._session.close()
        self._server._forget(self)

    def _fail(self, error: BowstringError) -> None:
        lost = ConnectionLostError | UsageError  # out of region indices: the client reconnects
        if isinstance(error, DeadlineError) and self._refused_at is None:
            self._lose(error)
        elif self._refused_at is not None or isinstance(error, lost):
            is_silent = self._connection.state is State.WAITING
            self._server._disconnect(self, error, level=logging.DEBUG if is_silent else logging.INFO)
        else:
            self._server._counters.num_lost_clients += 1
            self.refuse(error)
            self.handle(0)

    def _lose(self, reason: object) -> None:
        self._server._counters.num_lost_clients += 1
        self._server._disconnect(self, reason, level=logging.WARNING)

    def _begin(self, ticket: Ticket) -> None:
        """Start a stream; its messages are created as the client receives them."""
        try:
            self._server._admit(self)
        except ConnectionLostError as error:
            self._server._counters.num_refused_requests += 1
            self.refuse(error)
            return
        try:
            if len(ticket.names) > MAX_TICKETS:
                raise UsageError(f"a request for {len(ticket.names)} data sets; the maximum is {MAX_TICKETS}")
            parts = [part for name in ticket.names for part in self._server.find_stored(name)]
            if any(part.schema != parts[0].schema for part in parts):
                raise InvalidDataError(f"{ticket}: their schemas differ")
            is_on_device = any(part.region.is_on_device for part in parts)
            if is_on_device and not self._can_export(parts):
                raise UsageError(f"{ticket}: its memory is on a device: connect to its cuda+unix URI")
        except BowstringError as error:
            self._server._counters.num_refused_requests += 1
            self.refuse(error, f"{type(error).__name__} for {ticket.abbreviated}")
            return
        if _LOG.isEnabledFor(logging.DEBUG):  # formatting the names takes as long as the rest of this method
            _LOG.debug("%s: requests %s", self.name, ticket.abbreviated)
        encoded = self._server.encoded_stream(parts) if self._connection.role is Role.BOTH else None
        if encoded is not None:
            self._session.stream(self._stream_encoded(encoded), time.monotonic())
            return
        is_packed = not is_on_device and (ticket.packed or not self._can_export(parts) or self._server.is_small(parts))
        self._session.stream(self._stream(parts, is_packed), time.monotonic())

    def _can_export(self, parts: Sequence[StoredDataset]) -> bool:
        """Whether bodies can be sent as addresses."""
        exporter, role = self._exporter, self._connection.role
        return (
            exporter is not None
            and role is not Role.METADATA
            and all(exporter.can_export(part.region) for part in parts)
        )

    def _stream_encoded(self, encoded: EncodedStream) -> Iterator[Sequence[Message]]:
        """Yield all messages of a small data set at once."""
        yield self._connection.send_stream(encoded)
        self._retire_unneeded()

    def _stream(self, parts: Sequence[StoredDataset], is_packed: bool) -> Iterator[Sequence[Message] | None]:
        """Yield the messages of data sets, with bodies as addresses or bytes; None requests a flush."""
        connection = self._connection
        # Without enough region indices the connection ends before the schema, and the client opens another.
        if self._exporter is not None and not is_packed:
            self._exporter.check_capacity(len({part.region for part in parts} - self._exports.keys()))
        for index, part in enumerate(parts):
            if part.messages and not is_packed and part.region not in self._exports:
                self._export(part.region)
                if part.region.is_released:  # send the descriptor that was opened for it
                    yield None
            if not index:  # after the region, so that one system call sends both
                yield connection.send(part.schema)
            for message in part.messages:
                body: Body
                if is_packed:
                    body = self._packed_body(part.region, message)
                else:
                    body = message.address_body(self._exports[part.region].address)
                yield connection.send(message.metadata, body, part)
        yield connection.end()
        self._retire_unneeded()

    def _packed_body(self, region: Region, message: StoredMessage) -> PackedBody:
        """The bytes of a body; those of a long one in a file are sent by the kernel if the channel can do that."""
        size_bytes = message.body_bytes
        # From a memfd, sendfile takes 1.5 times as long as sending the mapped bytes; from a file, 0.9 times. Pages of
        # an arena could be filled again before the client has received them.
        is_file = region.has_descriptor and region.is_file
        if size_bytes >= _FILE_BYTES and is_file and "file" in self.channel.traits.memory_kinds:
            return PackedBody((FileRange(region, message.body_offset, size_bytes),), size_bytes)
        return _packed_body(region, message)

    def _export(self, region: Region) -> None:
        assert self._exporter is not None
        opened = region.duplicate() if region.is_released else region
        self._exports[region] = self._exporter.export(opened)

    def _retire_unneeded(self) -> None:
        """Keep the regions that were sent last: a client that reads them again has them mapped already."""
        if self._exports:
            self.retire([region for region in self._exports if not self._server._is_served(region)])
            self.retire(list(self._exports)[: -self._server.options.max_kept_regions or None])

    def __repr__(self) -> str:
        return f"<client of a server: {self._connection!r}>"


def _packed_body(region: Region, message: StoredMessage) -> PackedBody:
    return PackedBody.of(region.view(message.body_offset, message.body_bytes))


def serve(
    sources: Mapping[str, Source | DeviceTable],
    address: str | None = None,
    options: ServerOptions | None = None,
    *,
    scheme: str = "unix",
    addresses: Mapping[str, str | None] | None = None,
) -> Server:
    """Serve data sets to other processes of this machine and user, which read them with `bowstring.connect`.

    A source is a table (of Bowstring or another library), a record batch, record batches or a reader (copied once, into
    memory that all clients share), the path of an Arrow file (its descriptor is sent, nothing is copied), a `Region` or
    `Handle` of shared memory, or a table of `bowstring.sharing.device_table`. `address` is a path for the socket; the
    default is a new abstract name, which leaves no file behind.

    With the scheme `tcp`, any process of this machine can connect, and data is sent as bytes; `address` is
    `HOST:PORT`, by default an unused port at 127.0.0.1. Other machines can connect with `tcp+tls`, which needs
    `ServerOptions.tls`, or with `ServerOptions.ticket_key` and without encryption.

    With `addresses`, the server listens at several: a mapping of schemes to addresses, or None for the default. Clients
    that get `Server.locations` of a data set use the nearest: shared memory on this machine, TCP elsewhere.

    Raises `NotFoundError` if a path does not exist, as `open_file` if it is not an Arrow file, `ResourceError` if
    memory is short, `UsageError` for other sources and addresses in use.
    """
    if not isinstance(sources, Mapping):
        raise UsageError(f"serve: expected {{name: source}}, not {type(sources).__name__}")
    server = Server(address, options, scheme=scheme, addresses=addresses)
    with close_on_error(server):
        for name, source in sources.items():
            server.add(name, source)
    return server


_SERVERS: weakref.WeakSet[Server] = weakref.WeakSet()


def _close_after_fork() -> None:
    """Close the servers in a forked child, which has no thread that could answer, without effect on the parent."""
    for server in list(_SERVERS):
        close_inherited(server._loop.descriptors)
        server._is_closed = True
        server._lock = threading.Lock()


os.register_at_fork(after_in_child=_close_after_fork)
