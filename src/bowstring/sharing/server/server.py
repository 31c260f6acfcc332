"""Serve data sets by name («Server Sequence»), as shared regions or, on request, as bytes.

One thread serves all clients without blocking; it also receives from a client while it streams to it. A client that
violates the protocol loses its connection, without effect on others. The memory for each client is limited.
"""

from __future__ import annotations

import math
import os
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import NoReturn

from bowstring.dissociated.server import ConnectionRole
from bowstring.errors import (
    BowstringError,
    ClosedError,
    InvalidArgumentError,
    InvalidDataError,
    NotFoundError,
    check_seconds,
)
from bowstring.memory.closable import Closable, call_in_forked_children, call_on_error
from bowstring.memory.forks import process_token
from bowstring.sharing.dataset_locations import DatasetLocations
from bowstring.sharing.device_tables import DeviceTable
from bowstring.sharing.processes import redirect_to_devnull
from bowstring.sharing.recording.recorder import open_recorder
from bowstring.sharing.server.clients import LIMITS, LOG, ServedClients
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.server.served_datasets import ServedDatasets
from bowstring.sharing.server.signals import catch_signals
from bowstring.sharing.server.stats import ServerStats
from bowstring.sharing.share import TableSource, to_regions
from bowstring.sharing.signed_tickets import TicketSigner
from bowstring.sharing.stored_parts import RegionPart, index_part
from bowstring.sharing.uris import create_server_uri, format_dataset_uri
from bowstring.transports.base import (
    Channel,
    Listener,
    PeerIdentity,
    Transport,
    TransportOptions,
)
from bowstring.transports.event_loop import EventLoop, ListenerHandler
from bowstring.transports.observer import EventDirection
from bowstring.transports.registry import find_transport

_MESSAGES_PER_TURN = 64
"""The messages of a client that are received before others have their turn: each takes some 10 µs."""
_NAMES_SHOWN = 5  # data sets that a text lists by name
_MAX_OPEN_FILES = 256
"""The number of data sets above which files are opened for each client, and not kept open."""


class Server(Closable):
    """Serves data sets to processes of this machine and user; created by `serve`. A context manager.

    After `close`, or the end of the process, clients keep the memory that they have mapped; all other memory is freed.

    >>> with bs.serve({"a": bs.table({"n": [1]}), "b": bs.table({"n": [2]})}) as server:
    ...     server.names, server.uri("a").partition(":")[0]
    (['a', 'b'], 'unix')
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
            raise InvalidArgumentError(
                "serve: expected either an address and a scheme, or a mapping of schemes to addresses"
            )
        self._recorder = open_recorder(self.options.record)
        self._started_at = time.monotonic()
        self._process = process_token()
        self._is_closed = False
        with ExitStack() as on_error:
            self._acceptors = [
                on_error.enter_context(_Acceptor(self, transport, transport.listen(address, limits)))
                for transport, address, limits in _select_transports(addresses, self.options)
            ]
            for acceptor in self._acceptors:
                if not acceptor.listener.is_local:
                    self.options.check_ticket_lifetime(f"{acceptor.transport.scheme}:{acceptor.listener.address}")
            key, address = self.options.ticket_key, f"{next(iter(addresses))}:{self.address}"
            self._signer = None if key is None else TicketSigner(key, address)
            self._datasets = ServedDatasets(self.options, self._signer)
            self._loop = on_error.enter_context(EventLoop("bowstring-serve"))
            self._clients = ServedClients(self.options, self._datasets, self._loop, self._description)
            for acceptor in self._acceptors:
                self._loop.add(acceptor)
            self._loop.start()
            on_error.pop_all()
        _SERVERS.add(self)
        LOG.info("%s: serving", self._description)

    @property
    def address(self) -> str:
        """The address of the server, or the first of several: "@" and an abstract name, or the path of a socket."""
        return self._acceptors[0].listener.address

    @property
    def _description(self) -> str:
        return f"server at {self.address}"

    @property
    def names(self) -> list[str]:
        """The names of the data sets."""
        return self._datasets.names

    @property
    def uris(self) -> dict[str, str]:
        """The URI of each data set at the first address, by its name."""
        return {name: self.issue_locations(name).uris[0] for name in self.names}

    @property
    def num_clients(self) -> int:
        """The number of connected clients."""
        return len(self._clients.accepted)

    def stats(self) -> ServerStats:
        """Return the usage and the counters of the server. Takes less than a millisecond for a few hundred clients.

        >>> with bs.serve({"visits": bs.table({"n": [1, 2]})}) as server:
        ...     server.stats().num_datasets
        1
        """
        uptime_s = time.monotonic() - self._started_at
        return ServerStats(uptime_s=uptime_s, **self._datasets.stats(), **self._clients.connection_stats())

    def list_requests(self) -> list[tuple[object, tuple[str, ...]]]:
        """Return the names of each connected client's last request, with the identity of its process."""
        return self._clients.list_requests()

    def uri(self, name: str, *, role: ConnectionRole = ConnectionRole.BOTH, lifetime_s: float | None = None) -> str:
        """The URI of a data set at the first address; with another role, of its metadata or its bodies only.

        With `ServerOptions.ticket_key`, the URI is a secret that authorizes its holder to request the data set for
        `lifetime_s` seconds, by default `ServerOptions.ticket_lifetime_s`.

        Raises `NotFoundError`, `ClosedError`, and `InvalidArgumentError` for a lifetime without a key.

        >>> with bs.serve({"visits": bs.table({"n": [1]})}, scheme="tcp") as server:
        ...     server.uri("visits").partition(":")[0]
        'tcp'
        """
        return self.locations(name, role=role, lifetime_s=lifetime_s).uris[0]

    def locations(
        self, name: str, *, role: ConnectionRole = ConnectionRole.BOTH, lifetime_s: float | None = None
    ) -> DatasetLocations:
        """The URIs of a data set at all addresses, of which `bowstring.connect` uses the nearest. As `uri`.

        >>> with bs.serve({"visits": bs.table({"n": [1]})}, addresses={"unix": None, "tcp": None}) as server:
        ...     len(server.locations("visits").uris)
        2
        """
        self._check_open()
        if name not in self.names:
            raise NotFoundError(f"the server has no data set {name!r}, only {self.names}")
        return self.locations_for_ticket(self._issue_ticket(name, lifetime_s), role)

    def issue_locations(self, name: str) -> DatasetLocations:
        """The URIs at all addresses of a data set with this name, whether it exists or not."""
        return self.locations_for_ticket(self._issue_ticket(name))

    def locations_for_ticket(self, ticket: str, role: ConnectionRole = ConnectionRole.BOTH) -> DatasetLocations:
        """The URIs at all addresses for a ticket, whether it is valid or not."""
        return DatasetLocations(tuple(acceptor.uri_for_ticket(ticket, role) for acceptor in self._acceptors))

    def add(self, name: str, source: TableSource | DeviceTable, *, copy: bool | None = None) -> str:
        """Add a data set and return its URI. Batches are copied once, into memory that all clients share; files and
        regions are not copied, unless `copy` is True. With `copy=False`, batches raise `WouldCopyError`. A table of
        `device_table` needs the scheme `cuda+unix`, and is copied on the device when a client reads it.

        Raises `InvalidArgumentError` if the name exists, and as `serve`.

        >>> with bs.serve({}) as server:
        ...     uri = server.add("visits", bs.table({"n": [1, 2]}))
        ...     with bs.connect(uri) as reader:
        ...         reader.read_all()["n"].to_pylist()
        [1, 2]
        """
        self._check_open()
        self._acceptors[0].uri_for_ticket(name)  # check the name before copying
        if isinstance(source, DeviceTable):
            return self.add_parts(name, *source.to_parts(name))
        parts = [index_part(region) for region in to_regions(source, name, copy).regions]
        # Further files are opened again for each client that does not have them, so that any number can be served.
        if isinstance(source, str | os.PathLike) and not copy and len(self.names) >= _MAX_OPEN_FILES:
            for part in parts:
                part.region.release_descriptor()
        return self.add_parts(name, *parts)

    def add_parts(self, name: str, *parts: RegionPart) -> str:
        """As `add`, for the parts of a data set.

        Raises `InvalidDataError` if their schemas differ.
        """
        if any(part.schema != parts[0].schema for part in parts):
            raise InvalidDataError(f"data set {name!r}: its regions have different schemas")
        self._datasets.add(name, parts)
        return self.issue_locations(name).uris[0]

    def replace_parts(self, name: str, *parts: RegionPart) -> None:
        """Replace the memory of a data set. Raises `NotFoundError`."""
        self._datasets.replace(name, parts)
        self._loop.call_soon_threadsafe(self._clients.retire_removed_regions)

    def _issue_ticket(self, name: str, lifetime_s: float | None = None) -> str:
        """Return the ticket of a data set.

        Raises `InvalidArgumentError` for an invalid lifetime, or one without a key.
        """
        if self._signer is None:
            if lifetime_s is not None:
                raise InvalidArgumentError("lifetime_s: tickets expire only with ServerOptions.ticket_key")
            return name
        if lifetime_s is None:
            lifetime_s = math.inf if self.options.ticket_lifetime_s is None else self.options.ticket_lifetime_s
        lifetime_s = check_seconds("lifetime_s", lifetime_s)
        return self._signer.sign(name, None if lifetime_s == math.inf else math.ceil(time.time() + lifetime_s))

    def remove(self, name: str, reason: str | None = None) -> None:
        """Remove a data set; its memory is freed when no client uses it. Clients that ask for it later get `reason`.

        Raises `NotFoundError`.

        >>> with bs.serve({"a": bs.table({"n": [1]}), "b": bs.table({"n": [2]})}) as server:
        ...     server.remove("a")
        ...     server.names
        ['b']
        """
        self._datasets.replace(name, (), reason)
        # In the loop's thread: a client may be sending the regions at this moment.
        self._loop.call_soon_threadsafe(self._clients.retire_removed_regions)

    def drain(self, timeout_s: float = 30.0) -> bool:
        """Accept no more connections and requests, wait until all clients have finished, and close.

        Streams are sent to their end, and clients keep the memory leased to them. A client without both is disconnected
        at once. After `timeout_s`, or an exception such as `KeyboardInterrupt`, the other clients are disconnected,
        too. Return whether all have finished before. Call it from any thread; True if the server is closed.

        >>> with bs.serve({"visits": bs.table({"n": [1, 2]})}) as server:
        ...     server.drain(timeout_s=1)  # True: no client is left
        True
        """
        timeout_s = check_seconds("timeout_s", timeout_s, allow_zero=True)
        try:
            if not self._is_closed:
                self._loop.call_soon_threadsafe(self._start_draining)
                return self._clients.is_drained.wait(timeout_s)
            return True
        finally:
            self.close()

    def serve_forever(self, drain_s: float = 30.0) -> bool:
        """Serve until the process gets SIGTERM or SIGINT, then `drain` for at most `drain_s`. Return as `drain`.

        For the main thread of a program; other threads may change the data sets meanwhile. While the server drains, the
        signals have their previous effects: a second SIGINT usually raises `KeyboardInterrupt`, which closes the
        server. Raises `InvalidArgumentError` in other threads, `ClosedError`.
        """
        self._check_open()
        check_seconds("drain_s", drain_s, allow_zero=True)
        with catch_signals() as wait_for_signal:
            wait_for_signal()
        return self.drain(drain_s)

    def close(self) -> None:
        """Close the server, its connections and its thread. Idempotent. Has no effect in a forked child."""
        if not self._is_closed:
            LOG.info("%s: closing (%d connections)", self._description, self.num_clients)
        self._is_closed = True
        # The thread, the sockets and the locks belong to the parent.
        if self._process is not process_token():
            return
        self._loop.close()
        self._datasets.clear()
        if self._recorder is not None:
            self._recorder.close_unless_shared()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the server is closed")

    def _start_draining(self) -> None:
        """Close the listeners, and disconnect clients that use nothing."""
        if self._clients.is_draining:
            return
        LOG.info("%s: draining (%d clients)", self._description, len(self._clients.accepted.active))
        for acceptor in self._acceptors:
            self._loop.remove(acceptor)
            acceptor.close()
        self._clients.start_draining()

    def find_parts(self, ticket: str, peer: PeerIdentity | None = None) -> tuple[RegionPart, ...]:
        """Return the parts of a data set. Raises `AccessDeniedError`, `NotFoundError`, and errors of replaced files."""
        return self._datasets.find_parts(ticket, peer)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a server can't be pickled: pass a URI, `server.uri(name)`, or a data set of `connect`")

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.names[:_NAMES_SHOWN])) + (", …" if len(self.names) > _NAMES_SHOWN else "")
        state = "closed" if self._is_closed else f"at {self.address}: {names or 'nothing yet'}"
        return f"<bowstring.sharing.Server {state}>"


def _select_transports(
    addresses: Mapping[str, str | None], options: ServerOptions
) -> Iterator[tuple[Transport, str | None, TransportOptions]]:
    """Yield the transport of each scheme, its address and options.

    Raises `InvalidArgumentError` if none supports `tls`.
    """
    transports = {scheme: find_transport(scheme, f"{scheme}:{address or ''}") for scheme, address in addresses.items()}
    tls = options.tls
    if tls is not None and not any(transport.supports_tls for transport in transports.values()):
        raise InvalidArgumentError(f"{', '.join(addresses)}: the option tls is not supported: use tcp+tls")
    if options.allow_other_users and not any(transport.identifies_users for transport in transports.values()):
        raise InvalidArgumentError(f"{', '.join(addresses)}: the option allow_other_users is not supported: use unix")
    for scheme, transport in transports.items():
        options.check_certificate_names(transport)
        limits = TransportOptions(
            max_plain_bytes=1 << 16,
            max_tagged_bytes=LIMITS.max_free_bytes,
            credit_messages=_MESSAGES_PER_TURN,
            max_regions=0,
            allow_other_users=options.allow_other_users and transport.identifies_users,
            allow_other_hosts=options.ticket_key is not None,
            advertised_host=None if transport.is_local else options.advertised_host,
            tls=tls if transport.supports_tls else None,
        )
        yield transport, addresses[scheme], limits


class _Acceptor(ListenerHandler):
    """The handler of a listener."""

    def __init__(self, server: Server, transport: Transport, listener: Listener) -> None:
        super().__init__(listener)
        self._server = server
        self.transport = transport

    def uri_for_ticket(self, ticket: str, role: ConnectionRole = ConnectionRole.BOTH) -> str:
        listener, scheme = self.listener, self.transport.scheme
        server = create_server_uri(listener.address, scheme, listener.remote_handle, listener.address_scope, role)
        return format_dataset_uri(server, ticket)

    def add_channel(self, channel: Channel) -> None:
        recorder, observer = self._server._recorder, None
        if recorder is not None:
            uri = create_server_uri(self.listener.address, self.transport.scheme)
            try:
                observer = recorder.observe(uri, EventDirection.RECEIVED)
            except BowstringError as error:
                LOG.warning("%s: refused a connection: %s", self._server._description, error)
                channel.close()
                return
        self._server._clients.add_connection(self.transport, channel, observer)

    def close_unused_connection(self, error: Exception) -> bool:
        is_closed = self._server._clients.accepted.end_oldest_silent()
        if not is_closed:
            LOG.warning("%s: can't accept connections for a while: %s", self._server._description, error)
        return is_closed


def serve(
    sources: Mapping[str, TableSource | DeviceTable],
    address: str | None = None,
    options: ServerOptions | None = None,
    *,
    scheme: str = "unix",
    addresses: Mapping[str, str | None] | None = None,
) -> Server:
    """Serve data sets to other processes of this machine and user, which read them with `bowstring.connect`.

    A source is a table (of Bowstring or another library), a record batch, record batches or a reader (copied once, into
    memory that all clients share), the path of an Arrow file (its descriptor is sent, nothing is copied), a `Region` or
    `SharedTableHandle` of shared memory, or a table of `bowstring.sharing.device_table`. `address` is a path for the
    socket; the default is a new abstract name, which leaves no file behind.

    With the scheme `tcp`, any process of this machine can connect, and data is sent as bytes; `address` is
    `HOST:PORT`, by default an unused port at 127.0.0.1. Other machines can connect with `tcp+tls`, which needs
    `ServerOptions.tls`, or with `ServerOptions.ticket_key` and without encryption.

    With `addresses`, the server listens at several: a mapping of schemes to addresses, or None for the default. Clients
    that get `Server.locations` of a data set use the nearest: shared memory on this machine, TCP elsewhere.

    Raises `NotFoundError` if a path does not exist, as `open_file` if it is not an Arrow file, `ResourceError` if
    memory is short, `UnavailableAddressError` for an address in use, `InvalidArgumentError` for other sources.

    >>> with bs.serve({"visits": bs.table({"n": [1, 2, 3]})}) as server:
    ...     with bs.connect(server.uri("visits")) as reader:  # usually in another process
    ...         table = reader.read_all()
    >>> table["n"].to_pylist()  # valid after the server is closed
    [1, 2, 3]
    """
    if not isinstance(sources, Mapping):
        raise InvalidArgumentError(f"serve: expected {{name: source}}, not {type(sources).__name__}")
    server = Server(address, options, scheme=scheme, addresses=addresses)
    with call_on_error(server.close):
        for name, source in sources.items():
            server.add(name, source)
    return server


_SERVERS: weakref.WeakSet[Server] = weakref.WeakSet()


def _close_in_child(server: Server) -> None:
    """Close a server in a forked child, which has no thread that could answer, without effect on the parent."""
    server._is_closed = True
    redirect_to_devnull(server._loop.descriptors)


call_in_forked_children(_close_in_child, _SERVERS)
