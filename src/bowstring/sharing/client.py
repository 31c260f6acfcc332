"""Read data sets of a server («Client Sequence»). Shared memory is not copied."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table
from bowstring.datatypes.schema import Schema
from bowstring.dissociated.uri import StreamURI
from bowstring.errors import (
    AccessDeniedError,
    BowstringError,
    ClosedError,
    ConnectionLostError,
    InvalidArgumentError,
    InvalidDataError,
    NotFoundError,
    ProtocolError,
)
from bowstring.memory.closable import Closable
from bowstring.sharing.connection import Connection, ConnectionOptions, Stream
from bowstring.sharing.recording import Recorder
from bowstring.sharing.uris import Ticket, display_uri, parse_max_tickets, requests_packed_bodies, without_ticket

_REQUEST_BYTES = 1 << 15
"""The maximum size of the names in a request for several data sets."""
_REFUSALS = (NotFoundError, InvalidDataError, AccessDeniedError)
"""The errors if one of several data sets is missing, has another schema, or its ticket is not valid; requests for each
find out which.
"""


@dataclass(frozen=True, slots=True)
class DatasetRequest:
    """A request for data sets of one server."""

    server: StreamURI
    uris: tuple[StreamURI, ...]
    ticket: Ticket

    @classmethod
    def for_dataset(cls, uri: StreamURI, name: str, *, copy: bool) -> DatasetRequest:
        """Return a request for one data set; with `copy`, for bodies as bytes if the server supports that.

        `Connection.request_stream` replaces it if it can copy the server's memory.
        """
        return cls(without_ticket(uri), (uri,), Ticket((name,), requests_packed_bodies(uri, copy)))

    def split_by_dataset(self) -> list[DatasetRequest]:
        """Return a request for each of the data sets."""
        pairs = zip(self.uris, self.ticket.names, strict=True)
        return [DatasetRequest(self.server, (uri,), Ticket((name,), self.ticket.is_packed)) for uri, name in pairs]


def join_adjacent_requests(requests: Iterable[DatasetRequest]) -> Iterator[DatasetRequest]:
    """Join adjacent requests to one server, up to its limits."""
    joined: list[DatasetRequest] = []
    server, size_bytes = None, 0
    for request in requests:
        request_bytes = len(request.ticket.encode())
        is_opaque = any("\0" in one.ticket.names[0] for one in (request, *joined[:1]))
        is_full = (
            len(joined) >= parse_max_tickets(request.uris[0])
            or is_opaque
            or size_bytes + request_bytes > _REQUEST_BYTES
        )
        if joined and (is_full or request.server != server or request.ticket.is_packed != joined[0].ticket.is_packed):
            yield _join_requests(joined)
            joined, size_bytes = [], 0
        server = request.server
        size_bytes += request_bytes
        joined.append(request)
    if joined:
        yield _join_requests(joined)


def _join_requests(requests: Sequence[DatasetRequest]) -> DatasetRequest:
    uris = tuple(request.uris[0] for request in requests)
    return DatasetRequest(
        requests[0].server,
        uris,
        Ticket(tuple(request.ticket.names[0] for request in requests), requests[0].ticket.is_packed),
    )


class DatasetReader(Closable):
    """Record batches of a server; created by `connect`. A context manager; can be read repeatedly.

    Arrays are read-only and stay valid after the data set is closed and the server has ended. The server keeps each
    batch until the client has no array of it, and all of them until `close`. A pickled data set connects again, and so
    does one in a forked child.
    """

    def __init__(
        self,
        requests: Iterable[DatasetRequest],
        schema: Schema | None,
        options: ConnectionOptions,
        recorder: Recorder | None = None,
    ) -> None:
        self._requests = list(requests)
        self._recorder = recorder
        self._options = options
        self._lock = threading.Lock()
        self._idle: dict[StreamURI, list[Connection]] = {}
        self._connections: set[Connection] = set()
        self._first_stream: tuple[Connection, Stream] | None = None
        self._is_closed = False
        if self._requests:
            # The schema is known only to the server, so the first stream is begun here, and its batches are read by the
            # first iteration.
            self._first_stream = self._open_first_stream()
            schema = self._first_stream[1].schema
        if schema is None:
            raise InvalidArgumentError(
                "connect: no URIs, so no schema: pass schema=…, or the published data set itself"
            )
        self.schema = schema
        self.unusable_locations: Mapping[str, str] = {}
        """The URIs of nearer locations, each with the reason why it is not used."""

    @property
    def location(self) -> str | None:
        """The URI of the location that is used; None for several parts."""
        uris = self.uris
        return uris[0] if len(uris) == 1 else None

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
        first_stream = self._take_first_stream()
        while requests:
            request = requests.popleft()
            try:
                connection, stream = first_stream or self._open_stream(request)
            except _REFUSALS:
                if len(request.uris) == 1:
                    raise
                requests.extendleft(reversed(request.split_by_dataset()))
                continue
            first_stream = None
            if stream.schema is not self.schema and stream.schema != self.schema:
                self._close_connection(connection)
                location = display_uri(request.uris[0])
                raise InvalidDataError(f"{location}: expected {self.schema!r}, found {stream.schema!r}")
            is_complete = False
            try:
                for batch in stream:
                    if self._is_closed:
                        raise ClosedError("the data set was closed while it was read")
                    yield with_shared_schema(batch, self.schema)
                is_complete = True
            finally:
                if is_complete:
                    self._return_connection(connection, request.server)
                else:
                    self._close_connection(connection)

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
            self._first_stream = None
        # Without the lock, since closing waits for a thread that reads.
        for connection in connections:
            connection.close()
        if self._recorder is not None:
            self._recorder.close_unless_shared()

    def _open_first_stream(self) -> tuple[Connection, Stream]:
        """Open the first request, or its first data set if the server refuses them together."""
        try:
            return self._open_stream(self._requests[0])
        except _REFUSALS:
            if len(self._requests[0].uris) == 1:
                raise
        self._requests[:1] = self._requests[0].split_by_dataset()
        return self._open_stream(self._requests[0])

    def _take_first_stream(self) -> tuple[Connection, Stream] | None:
        """Return the connection and stream that were opened for the schema, if still usable."""
        with self._lock:
            first_stream, self._first_stream = self._first_stream, None
        return first_stream if first_stream is not None and not first_stream[0].is_closed else None

    def _open_stream(self, request: DatasetRequest) -> tuple[Connection, Stream]:
        with self._lock:
            if self._is_closed:
                raise ClosedError("the data set is closed")
            idle = self._idle.get(request.server, [])
            # Taken out: a connection has one stream at a time, and several threads may read the data set.
            connection = idle.pop() if idle else None
        if connection is not None and not connection.is_closed:
            try:
                return connection, self._request_stream(connection, request)
            except (ConnectionError, ProtocolError):
                # The server may have ended meanwhile, or sent a message without a request: try a new connection.
                self._close_connection(connection)
        try:
            connection = Connection.dial(request.uris[0], self._options, self._recorder)
        except ConnectionLostError as error:
            raise type(error)(f"{request.ticket}: {error}") from error
        with self._lock:
            self._connections.add(connection)
        return connection, self._request_stream(connection, request)

    def _request_stream(self, connection: Connection, request: DatasetRequest) -> Stream:
        try:
            return connection.request_stream(request.ticket)
        except BaseException:
            self._close_connection(connection)
            raise

    def _return_connection(self, connection: Connection, server: StreamURI) -> None:
        """Keep a connection whose stream was read to its end for another one, unless the data set is closed."""
        with self._lock:
            if not self._is_closed:
                self._idle.setdefault(server, []).append(connection)
                return
        self._close_connection(connection)

    def _close_connection(self, connection: Connection) -> None:
        with self._lock:
            self._connections.discard(connection)
        connection.close()

    def __del__(self) -> None:
        for connection in getattr(self, "_connections", ()):
            try:
                # Not `close`: arrays of a data set that was dropped keep their leases.
                connection.close_when_unused()
            except BowstringError:
                pass

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the URIs: unpickling, such as in another process, opens a new connection."""
        if self._is_closed:
            raise ClosedError("the data set is closed")
        return _unpickle_dataset_reader, (self._requests, self.schema, self._options)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.read_all().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else self._describe_parts()
        return f"<bowstring.sharing.DatasetReader {state}>\n{self.schema}"

    def _describe_parts(self) -> str:
        """The number of parts, their schemes, and those that can't be used."""
        uris = self.uris
        text = "1 part" if len(uris) == 1 else f"{len(uris)} parts"
        schemes = dict.fromkeys(uri.partition(":")[0] for uri in uris)
        if schemes:
            text += f" over {', '.join(schemes)}"
        if self.unusable_locations:
            text += f", not {', '.join(uri.partition(':')[0] for uri in self.unusable_locations)}"
        return text


def _unpickle_dataset_reader(
    requests: list[DatasetRequest], schema: Schema, options: ConnectionOptions
) -> DatasetReader:
    """Return the data set that was pickled. Raises as `connect`."""
    return DatasetReader(requests, schema, options)


def with_shared_schema(batch: RecordBatch, schema: Schema) -> RecordBatch:
    """Return a batch with an equal schema, which all batches of a data set share."""
    return batch if batch.schema is schema else RecordBatch(schema, batch.num_rows, batch.lazy_columns, batch.pairs)
