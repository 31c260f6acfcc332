"""Find data sets by Flight: their locations by GetFlightInfo, or the data itself by DoGet."""

from __future__ import annotations

import atexit
import math
import queue
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bowstring.arrays.record_batch import RecordBatch, as_batch, with_nullability
from bowstring.datatypes.schema import Schema, schema as as_schema
from bowstring.errors import (
    BowstringError,
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    InvalidArgumentError,
    InvalidDataError,
    LimitError,
)
from bowstring.kernels.filters import FiltersLike
from bowstring.sharing.client.connect import ConnectOptions, connect_to_first, connect_to_location
from bowstring.sharing.client.connection import ConnectionOptions
from bowstring.sharing.client.dataset_reader import DatasetReader
from bowstring.sharing.client.read_ahead import ReadAhead
from bowstring.sharing.dataset_locations import MAX_LOCATIONS, merge_location_errors, sort_by_distance
from bowstring.sharing.uris import join_role_uris, parse_dataset_uri, parse_scheme
from bowstring.transports.base import strip_traceback
from bowstring.transports.tls import TlsOptions
from bowstring_networks.flight.protocol import (
    FLIGHT_SCHEMES,
    SAME_SERVER,
    TLS_SCHEME,
    from_flight_error,
    import_flight,
    is_descriptor_error,
    parse_flight_uri,
)

# gRPC's default of 4 MiB is too little for `_MAX_ENDPOINTS` endpoints of some 250 bytes each.
_MAX_INFO_BYTES = 16 << 20
# Each becomes a part with its locations.
_MAX_ENDPOINTS = 1 << 16
# One batch is received while another is used.
_PREFETCHED_BATCHES = 2
# At exit. A call that is cancelled ends at once, unless pyarrow decompresses a batch, in which the exit would crash it.
_JOIN_TIMEOUT_S = 30.0


def connect_through_flight(text: str, options: ConnectOptions) -> DatasetReader:
    """Ask a Flight server for a data set, and read it from the nearest location, or else by DoGet.

    Raises as `connect`.
    """
    connector = FlightConnector(options.connection.timeout_s, options.connection.tls)
    location, endpoints, schema = fetch_endpoints(text, options.ticket, connector)
    is_encrypted = options.requires_encryption or parse_scheme(location) == TLS_SCHEME
    candidates: dict[str, Callable[[], DatasetReader]] = {}
    if len(endpoints) == 1:
        stream_options = replace(options, ticket=endpoints[0].ticket, requires_encryption=is_encrypted)
        for uri in _list_stream_uris(endpoints[0]):
            candidates[uri] = partial(connect_to_location, uri, stream_options)
    if options.recorder is None:
        candidates[location] = partial(FlightDatasetReader, location, endpoints, schema, connector)
    elif not candidates:
        raise InvalidArgumentError(f"record: {location} has only locations of Flight, whose messages can't be recorded")
    return connect_to_first(candidates)


def _list_stream_uris(endpoint: FlightEndpoint) -> list[str]:
    """Return the URIs for Dissociated IPC of an endpoint, the nearest first.

    Two locations with different tags of <want_data> may be the servers of the metadata and of the bodies, in this
    order, as in the published reference implementation. At one address they can't be anything else.
    """
    uris = endpoint.dissociated_uris
    nearest = sort_by_distance(uris)
    if len(uris) != 2:
        return nearest
    try:
        metadata, bodies = (parse_dataset_uri(uri, endpoint.ticket)[0] for uri in uris)
    except BowstringError:
        return nearest
    if metadata.want_data == bodies.want_data:
        return nearest
    pair = join_role_uris(metadata, bodies, endpoint.ticket)
    is_one_server = (metadata.scheme, metadata.address) == (bodies.scheme, bodies.address)
    return [pair] if is_one_server else [pair, *nearest]


@dataclass(frozen=True, slots=True)
class FlightConnector:
    """Connects to Flight servers, with these options."""

    timeout_s: float
    tls: TlsOptions | None

    def connect(self, location: str, generic_options: Sequence[tuple[str, int]] = ()) -> Any:
        """Return a client of pyarrow; it connects with its first call. Raises `InvalidArgumentError`."""
        arguments: dict[str, Any] = {}
        scheme = parse_scheme(location)
        if self.tls is not None and scheme != TLS_SCHEME:
            raise InvalidArgumentError(f"{scheme}: the option tls is not supported: use {TLS_SCHEME}")
        if self.tls is not None:
            tls = self.tls
            arguments = {
                "tls_root_certs": tls.read_pem("authorities"),
                "cert_chain": tls.read_pem("certificate"),
                "private_key": tls.read_pem("key"),
                "override_hostname": tls.server_name,
            }
        flight = import_flight()
        try:
            return flight.FlightClient(location, generic_options=list(generic_options), **arguments)
        except ValueError as error:
            raise InvalidArgumentError(f"{location}: {error}") from error
        except flight.FlightError as error:
            raise from_flight_error(error, location) from error

    def get_flight_info(self, location: str, path: tuple[str, ...]) -> Any:
        """Return the FlightInfo of a data set. Raises `ConnectionLostError`, `DeadlineError`, `NotFoundError`.

        The descriptor is the path; if the server has no flight of a path of one name, the command of this name, as the
        published reference implementation of Dissociated IPC expects.
        """
        flight = import_flight()
        call = flight.FlightCallOptions(timeout=None if self.timeout_s == math.inf else self.timeout_s)
        descriptors = [flight.FlightDescriptor.for_path(*path)]
        if len(path) == 1:
            descriptors.append(flight.FlightDescriptor.for_command(path[0]))
        errors: list[Exception] = []
        with self.connect(location, [("grpc.max_receive_message_length", _MAX_INFO_BYTES)]) as client:
            for descriptor in descriptors:
                try:
                    return client.get_flight_info(descriptor, call)
                except Exception as error:  # noqa: BLE001 - the first one is raised
                    errors.append(error)
                    if not is_descriptor_error(error):
                        break
        name = "/".join(path)
        raise from_flight_error(errors[0], f"{location}, data set {name!r}") from errors[0]


@dataclass(frozen=True, slots=True)
class FlightEndpoint:
    """An endpoint of a FlightInfo: a ticket, and the URIs of the servers that accept it."""

    ticket: bytes
    uris: tuple[str, ...]

    def flight_locations(self, server: str) -> list[str]:
        """The Flight servers to try. `server`, which returned the FlightInfo, is the only or first one if it accepts
        the ticket, else the last one.
        """
        others = [uri for uri in self.uris if parse_scheme(uri) in FLIGHT_SCHEMES and uri != server]
        return [*others, server] if others and SAME_SERVER not in self.uris else [server, *others]

    @property
    def dissociated_uris(self) -> list[str]:
        """The locations for Dissociated IPC, and locations with unknown schemes."""
        return [uri for uri in self.uris if uri != SAME_SERVER and parse_scheme(uri) not in FLIGHT_SCHEMES]


def fetch_endpoints(
    text: str, ticket: str | bytes | None, connector: FlightConnector
) -> tuple[str, list[FlightEndpoint], Schema | None]:
    """Return the location of the Flight server of a URI, and the endpoints of the data set; without any, its schema.

    Raises `ConnectionLostError`, `DeadlineError`, `NotFoundError`, `LimitError`, `InvalidDataError`,
    `InvalidArgumentError`.
    """
    location, path = parse_flight_uri(text, ticket)
    info = connector.get_flight_info(location, path)
    try:
        flight_endpoints = info.endpoints  # once, because each access copies all tickets
        schema = None if flight_endpoints else as_schema(info.schema)
        if len(flight_endpoints) > _MAX_ENDPOINTS:
            raise LimitError(f"{location}: expected at most {_MAX_ENDPOINTS} endpoints, found {len(flight_endpoints)}")
        endpoints = []
        for endpoint in flight_endpoints:
            uris = [uri.uri.decode("utf-8", "backslashreplace") for uri in endpoint.locations[: MAX_LOCATIONS + 1]]
            if len(uris) > MAX_LOCATIONS:
                raise LimitError(f"{location}: expected at most {MAX_LOCATIONS} locations of an endpoint, found more")
            endpoints.append(FlightEndpoint(endpoint.ticket.ticket, tuple(uris)))
    except BowstringError:
        raise
    except Exception as error:
        raise InvalidDataError(f"{location}: the FlightInfo is malformed: {error}") from error
    return location, endpoints, schema


class FlightDatasetReader(DatasetReader):
    """A data set that is read by DoGet, one endpoint after the other; the bytes are copied over the network."""

    def __init__(
        self, location: str, endpoints: list[FlightEndpoint], schema: Schema | None, connector: FlightConnector
    ) -> None:
        self._location = location
        self._endpoints = endpoints
        self._connector = connector
        self._streams: weakref.WeakSet[_FlightStream] = weakref.WeakSet()
        self._first_call: _FlightStream | None = None
        if schema is None:
            self._first_call = self._do_get(endpoints[0])
            schema = self._first_call.schema
        super().__init__([], schema, ConnectionOptions(connector.timeout_s))

    @property
    def uris(self) -> tuple[str, ...]:
        """The Flight servers of the endpoints, in order."""
        return tuple(endpoint.flight_locations(self._location)[0] for endpoint in self._endpoints)

    def _read_batches(
        self, ahead: ReadAhead | None = None, filters: FiltersLike | None = None
    ) -> Iterator[RecordBatch]:
        del filters  # there are no files
        first_call, self._first_call = self._first_call, None
        for endpoint in self._endpoints:
            if self.is_closed:
                raise ClosedError("the data set is closed")
            stream, first_call = first_call or self._do_get(endpoint), None
            if stream.schema != self.schema:
                stream.cancel()
                raise InvalidDataError(f"{self._location}: expected {self.schema!r}, found {stream.schema!r}")
            if ahead is not None:
                ahead.interrupt = stream.cancel
            try:
                for batch in stream:
                    if self.is_closed:
                        raise ClosedError("the data set was closed while it was read")
                    yield with_nullability(batch, self.schema)
            finally:
                stream.cancel()

    def close(self) -> None:
        super().close()
        for stream in list(self._streams):
            stream.cancel()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the endpoints: unpickling, such as in another process, calls DoGet again."""
        if self.is_closed:
            raise ClosedError("the data set is closed")
        return FlightDatasetReader, (
            self._location,
            self._endpoints,
            None if self._endpoints else self.schema,
            self._connector,
        )

    def _do_get(self, endpoint: FlightEndpoint) -> _FlightStream:
        """Call DoGet at the first location that works."""
        errors: dict[str, BowstringError] = {}
        for location in endpoint.flight_locations(self._location):
            try:
                if parse_scheme(self._location) == TLS_SCHEME != parse_scheme(location):
                    raise ConnectionLostError(f"{location}: not encrypted, but {self._location} is")
                stream = _FlightStream(
                    self._connector.connect(location), endpoint.ticket, location, self._connector.timeout_s
                )
                self._streams.add(stream)
                return stream
            except BowstringError as error:
                errors[location] = strip_traceback(error)
        raise merge_location_errors(errors)


class _FlightStream:
    """A call of DoGet. A thread reads it, so that waiting for the server has a deadline."""

    def __init__(self, client: Any, ticket: bytes, location: str, timeout_s: float) -> None:
        self._location = location
        self._timeout_s = None if timeout_s == math.inf else timeout_s
        self._call = _DoGetCall(client, ticket, location)
        self._call.start()
        self.schema: Schema = self._receive_message()

    def __iter__(self) -> Iterator[RecordBatch]:
        while (batch := self._receive_message()) is not None:
            yield batch

    def cancel(self) -> None:
        """End the call, and let the thread end. A thread that waits for a batch gets `ClosedError`. Idempotent."""
        self._call.cancel()

    def _receive_message(self) -> Any:
        """Return the schema, then the batches, then None. Raises errors of the call."""
        try:
            message = self._call.messages.get(timeout=self._timeout_s)
        except queue.Empty:
            self.cancel()
            raise DeadlineError(f"{self._location}: the server sends nothing for {self._timeout_s:g} s") from None
        self._call.requests.put(None)
        if isinstance(message, BowstringError):
            raise message
        return message

    def __del__(self) -> None:
        if hasattr(self, "_call"):
            self.cancel()


class _DoGetCall:
    """The state that the thread and the reader of a call share. Its queues can be used while garbage is collected."""

    def __init__(self, client: Any, ticket: bytes, location: str) -> None:
        self.messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        """The schema and the batches, then None, or an error."""
        self.requests: queue.SimpleQueue[None] = queue.SimpleQueue()
        """An entry for each batch that may be read."""
        for _ in range(_PREFETCHED_BATCHES):
            self.requests.put(None)
        self._client = client
        self._ticket = ticket
        self._location = location
        self._reader: Any = None
        self._is_cancelled = False
        self.thread = threading.Thread(target=self._run, name="bowstring-flight", daemon=True)

    def start(self) -> None:
        """Start the thread, which calls DoGet, and puts the batches into the queue."""
        _CALLS.add(self)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._read()
        finally:
            _CALLS.discard(self)

    def _read(self) -> None:
        with self._client, ExitStack() as stack:
            try:
                self._reader = self._client.do_get(import_flight().Ticket(self._ticket))
                stack.callback(self._reader.cancel)
                self.messages.put(as_schema(self._reader.schema))
                while self.requests.get() is None and not self._is_cancelled:
                    batch = self._reader.read_chunk().data
                    if batch is not None:
                        batch.validate()  # offsets could be outside of the buffers
                        self.messages.put(as_batch(batch))
            except StopIteration:
                self.messages.put(None)
            except Exception as error:  # noqa: BLE001 - raised by the reader of the queue
                self.messages.put(strip_traceback(from_flight_error(error, self._location)))

    def cancel(self) -> None:
        """End the call and the thread."""
        self._is_cancelled = True
        self.messages.put(ClosedError(f"{self._location}: the call was cancelled"))
        self.requests.put(None)
        if self._reader is not None:
            self._reader.cancel()


_CALLS: set[_DoGetCall] = set()
"""Those whose threads run, also after the error of a deadline: pyarrow can't interrupt what it decompresses."""


def _cancel_calls() -> None:
    """End all calls: pyarrow's threads must not outlive the interpreter."""
    calls = list(_CALLS)
    for call in calls:
        call.cancel()
    for call in calls:
        call.thread.join(_JOIN_TIMEOUT_S)


atexit.register(_cancel_calls)
