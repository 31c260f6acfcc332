"""Read data sets of a server («Client Sequence»): `connect` and `Dataset`. Shared memory is not copied."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table
from bowstring.datatypes.schema import Schema
from bowstring.dissociated.uri import StreamURI
from bowstring.errors import (
    BowstringError,
    ClosedError,
    ConnectionLostError,
    InvalidDataError,
    NotFoundError,
    UsageError,
)
from bowstring.memory.closable import Closable
from bowstring.sharing.connection import Connection, Stream
from bowstring.sharing.uris import Ticket, max_tickets, parse_dataset_uri, without_ticket
from bowstring.transports.tls import TlsOptions


class HasURIs(Protocol):
    """A data set of several parts, as `bowstring.spark.publish` returns."""

    @property
    def uris(self) -> Sequence[str]:
        """The URIs of the parts, in order."""

    @property
    def schema(self) -> Schema:
        """The schema of all parts."""


Target: TypeAlias = str | Sequence[str] | HasURIs
"""One URI, several whose data sets have one schema, or an object with `uris` and `schema`."""

_REQUEST_BYTES = 1 << 15
"""The maximum size of the names in a request for several data sets."""
_REFUSALS = (NotFoundError, InvalidDataError)
"""The errors if one of several data sets is missing or has another schema; requests for each find out which."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for data sets of one server."""

    server: StreamURI
    uris: tuple[StreamURI, ...]
    ticket: Ticket

    def split(self) -> list[Request]:
        """Return a request for each of the data sets."""
        pairs = zip(self.uris, self.ticket.names, strict=True)
        return [Request(self.server, (uri,), Ticket((name,), self.ticket.packed)) for uri, name in pairs]


def group(requests: Iterable[Request]) -> Iterator[Request]:
    """Join adjacent requests to one server, up to its limits."""
    joined: list[Request] = []
    server, size_bytes = None, 0
    for request in requests:
        request_bytes = len(request.ticket.encode())
        is_full = len(joined) >= max_tickets(request.uris[0]) or size_bytes + request_bytes > _REQUEST_BYTES
        if joined and (is_full or request.server != server or request.ticket.packed != joined[0].ticket.packed):
            yield _joined(joined)
            joined, size_bytes = [], 0
        server = request.server
        size_bytes += request_bytes
        joined.append(request)
    if joined:
        yield _joined(joined)


def _joined(requests: Sequence[Request]) -> Request:
    uris = tuple(request.uris[0] for request in requests)
    return Request(
        requests[0].server,
        uris,
        Ticket(tuple(request.ticket.names[0] for request in requests), requests[0].ticket.packed),
    )


class Dataset(Closable):
    """Record batches of a server; created by `connect`. A context manager; can be read repeatedly.

    Arrays are read-only and stay valid after the data set is closed and the server has ended. The server keeps each
    batch until the client has no array of it, and all of them until `close`.
    """

    def __init__(
        self,
        requests: Iterable[Request],
        schema: Schema | None,
        timeout_s: float,
        tls: TlsOptions | None = None,
    ) -> None:
        self._requests = list(requests)
        self._timeout_s = timeout_s
        self._tls = tls
        self._lock = threading.Lock()
        self._idle: dict[StreamURI, list[Connection]] = {}
        self._connections: set[Connection] = set()
        self._opened: tuple[Connection, Stream] | None = None
        self._is_closed = False
        if self._requests:
            self._opened = self._open_first()
            schema = self._opened[1].schema
        if schema is None:
            raise UsageError("connect: no URIs, so no schema")
        self.schema = schema

    @property
    def uris(self) -> tuple[str, ...]:
        """The URIs of the parts, in order."""
        return tuple(str(uri) for request in self._requests for uri in request.uris)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def __iter__(self) -> Iterator[RecordBatch]:
        """Iterate over all batches.

        Raises `ConnectionLostError`, `DeadlineError`, `ClosedError`, `InvalidDataError`.
        """
        requests = deque(self._requests)
        opened = self._take_first()
        while requests:
            request = requests.popleft()
            try:
                connection, stream = opened or self._open(request)
            except _REFUSALS:
                if len(request.uris) == 1:
                    raise
                requests.extendleft(reversed(request.split()))
                continue
            opened = None
            if stream.schema is not self.schema and stream.schema != self.schema:
                self._end(connection, None)
                raise InvalidDataError(f"{request.uris[0]}: expected {self.schema!r}, found {stream.schema!r}")
            is_whole = False
            try:
                for batch in stream:
                    if self._is_closed:
                        raise ClosedError("the data set was closed while it was read")
                    yield _with_schema(batch, self.schema)
                is_whole = True
            finally:
                self._end(connection, request if is_whole else None)

    def read_all(self) -> Table:
        """Read all batches into a table, without copying. Raises as iterating."""
        return Table(self.schema, list(self))

    def to_batches(self) -> list[RecordBatch]:
        """Read all batches. Raises as iterating."""
        return list(self)

    def close(self) -> None:
        """Close the connections, which ends all leases. Tables and arrays stay valid. Idempotent."""
        with self._lock:
            self._is_closed = True
            connections = list(self._connections)
            self._connections.clear()
            self._idle.clear()
            self._opened = None
        for connection in connections:
            connection.close()

    def _open_first(self) -> tuple[Connection, Stream]:
        """Open the first request, or its first data set if the server refuses them together."""
        try:
            return self._open(self._requests[0])
        except _REFUSALS:
            if len(self._requests[0].uris) == 1:
                raise
        self._requests[:1] = self._requests[0].split()
        return self._open(self._requests[0])

    def _take_first(self) -> tuple[Connection, Stream] | None:
        """Return the connection and stream that were opened for the schema, if still usable."""
        with self._lock:
            opened, self._opened = self._opened, None
        return opened if opened is not None and not opened[0].is_closed else None

    def _open(self, request: Request) -> tuple[Connection, Stream]:
        with self._lock:
            if self._is_closed:
                raise ClosedError("the data set is closed")
            idle = self._idle.get(request.server, [])
            connection = idle.pop() if idle else None
        if connection is not None and not connection.is_closed:
            try:
                connection.check_idle()
                return connection, self._streaming(connection, request)
            except ConnectionError:
                self._end(connection, None)  # the server may have restarted: try a new connection
        try:
            connection = Connection(request.uris[0], self._timeout_s, self._tls)
        except ConnectionLostError as error:
            raise type(error)(f"{request.ticket}: {error}") from error
        with self._lock:
            self._connections.add(connection)
        return connection, self._streaming(connection, request)

    def _streaming(self, connection: Connection, request: Request) -> Stream:
        try:
            return connection.stream(request.ticket)
        except BaseException:
            self._end(connection, None)
            raise

    def _end(self, connection: Connection, request: Request | None) -> None:
        """Keep the connection for another stream if the last one was read to its end, else close it."""
        with self._lock:
            if request is not None and not self._is_closed:
                self._idle.setdefault(request.server, []).append(connection)
                return
            self._connections.discard(connection)
        connection.close()

    def __del__(self) -> None:
        for connection in getattr(self, "_connections", ()):
            try:
                connection.release()
            except BowstringError:
                pass

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.read_all().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        count = sum(len(request.uris) for request in self._requests)
        parts = "1 part" if count == 1 else f"{count} parts"
        state = "closed" if self._is_closed else parts
        return f"<bowstring.sharing.Dataset {state}>\n{self.schema}"


def _with_schema(batch: RecordBatch, schema: Schema) -> RecordBatch:
    return batch if batch.schema is schema else RecordBatch(schema, batch.num_rows, batch.source, batch.pairs)


def connect(
    target: Target,
    ticket: str | None = None,
    *,
    copy: bool = False,
    timeout_s: float = 30.0,
    tls: TlsOptions | None = None,
) -> Dataset:
    """Connect to a data set of another process, and read its schema.

    `target` is one or more URIs, or an object with `uris`, such as a published data set. `ticket` is the name of the
    data set, by default that of the URI. With `copy`, bytes are sent through the socket into this process's memory;
    otherwise memory is shared and nothing is copied, if the transport can do that. `timeout_s` is how long the server
    may be silent. `tls` has the certificates for `tcp+tls`.

    Raises `NotFoundError` if the server has no such data set, `ConnectionLostError` if it does not run, disconnects or
    has too many clients, `DeadlineError` if it is silent, `ProtocolError` for a malformed URI or a violation of the
    protocol, `UsageError` for other targets and a timeout that is not positive.
    """
    uris: Any = [target] if isinstance(target, str) else getattr(target, "uris", target)
    if isinstance(uris, Mapping):
        raise UsageError(
            "connect: expected one URI or several parts of one data set; choose one of a server's: server.uri(name)"
        )
    if not isinstance(uris, Iterable) or isinstance(uris, bytes):
        raise UsageError(f"connect: expected a URI or an object with `uris`, found {type(target).__name__}")
    if not timeout_s > 0:
        raise UsageError(f"connect: timeout_s: expected a positive number of seconds, found {timeout_s!r}")
    schema = getattr(target, "schema", None)
    requests = []
    for text in uris:
        uri, name = parse_dataset_uri(text, ticket)
        requests.append(Request(without_ticket(uri), (uri,), Ticket((name,), copy or uri.free_data is None)))
    return Dataset(group(requests), schema, timeout_s, tls)
