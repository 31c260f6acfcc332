"""Serve data sets to Flight clients: their locations for Dissociated IPC, and the data itself by DoGet."""

from __future__ import annotations

import functools
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from bowstring.arrays.record_batch import RecordBatch
from bowstring.errors import (
    AccessDeniedError,
    BowstringError,
    ConnectionLostError,
    InvalidArgumentError,
    InvalidDataError,
    ProtocolError,
    UnsupportedError,
)
from bowstring.interop.c_data import export_stream
from bowstring.memory.closable import Closable, call_on_error
from bowstring.sharing.server.server import Server
from bowstring.sharing.stored_parts import RegionPart, read_schema_and_batches
from bowstring.sharing.uris import MAX_TICKETS, Ticket, parse_dataset_uri
from bowstring.transports.sockets.tcp_address import format_address, parse_address, resolve_host
from bowstring.transports.tls import TlsOptions
from bowstring_networks.flight.protocol import (
    SAME_SERVER,
    TLS_SCHEME,
    format_flight_uri,
    from_flight_error,
    import_flight,
    to_flight_error,
)
from bowstring_networks.flight.relay import FlightRelay

# As `max_ticket_bytes` of a server of the Dissociated IPC protocol.
_MAX_TICKET_BYTES = 1 << 16
_MAX_MESSAGE_BYTES = 1 << 30
"""The size above which batches are split: gRPC limits messages to 2 GiB."""
# How long clients may still receive when the server closes.
_CLOSE_TIMEOUT_S = 5.0

_Handler = TypeVar("_Handler", bound=Callable[..., Any])


class FlightServer(Closable):
    """A Flight server for the data sets of a `Server`. A context manager.

    `GetFlightInfo` and `ListFlights` return the ticket of a data set and its locations: first the server's, then this
    one, whose `DoGet` sends the data to any Flight client. Descriptors are paths or commands of one name, or of one
    ticket if the server has a key (`ServerOptions.ticket_key`).

    `address` is HOST:PORT; port 0 chooses one. Without `tls`, it has to be a loopback address, where any user of the
    machine can connect. Raises `InvalidArgumentError` for other addresses and those in use, `MissingExtraError` without
    pyarrow.
    """

    def __init__(self, server: Server, address: str = "127.0.0.1:0", *, tls: TlsOptions | None = None) -> None:
        import_flight()
        self._server = server
        self._slots = threading.BoundedSemaphore(server.options.max_clients)
        host, port = parse_address(address)
        socket_address = resolve_host(host, port)[0]
        if tls is None and not socket_address.is_loopback:
            raise InvalidArgumentError(
                f"flight {address!r}: {socket_address.name[0]} is not a loopback address: use tls there"
            )
        if not socket_address.is_loopback:
            server.options.check_ticket_lifetime(f"flight {address!r}")
        if server.options.names_by_certificate is not None:
            raise InvalidArgumentError("flight: names_by_certificate can't be used: pyarrow does not pass certificates")
        # Only this user can open the folder, and nobody finds the socket when it is removed.
        with tempfile.TemporaryDirectory(prefix="bowstring-flight-") as folder:
            path = f"{folder}/grpc"
            try:
                flight = _create_server_class()(self, f"grpc+unix://{path}")
            except _pyarrow_error_types() as error:
                raise InvalidArgumentError(f"flight: can't listen at {path}: {error}") from error
            with call_on_error(flight.shutdown):
                relay = FlightRelay(format_address(host, port), path, server.options, tls)
        self.location = f"{'grpc' if tls is None else TLS_SCHEME}:{relay.address}"
        """The URI of the server."""
        self._shut_down = weakref.finalize(self, _shut_down_server, flight, relay)

    def uri(self, name: str, *, lifetime_s: float | None = None) -> str:
        """The URI of a data set, for `bowstring.connect`. Its path is a signed ticket if the server has a key.

        Raises as `Server.uri`.
        """
        _, ticket = parse_dataset_uri(self._server.uri(name, lifetime_s=lifetime_s))
        return format_flight_uri(self.location, ticket)

    def close(self) -> None:
        """Stop the server. Clients in the middle of a stream are disconnected after 5 seconds. Idempotent."""
        self._shut_down()

    def list_flights(self) -> list[Any]:
        """Return the FlightInfo of each data set. Raises `AccessDeniedError` if the server has a key."""
        if self._server.options.ticket_key is not None:
            raise AccessDeniedError("access denied: a server with a ticket key does not list its data sets")
        return [self.get_flight_info(name) for name in self._server.names]

    def get_flight_info(self, ticket: str, descriptor: Any = None) -> Any:
        """Return the FlightInfo for a ticket, by default the name of a data set, with the descriptor of the request.

        Raises as `Server.find_parts`.
        """
        import pyarrow as pa

        flight = import_flight()
        parts = self._server.find_parts(ticket)
        uris = [*self._server.locations_for_ticket(ticket).uris, SAME_SERVER, self.location]
        endpoint = flight.FlightEndpoint(flight.Ticket(Ticket((ticket,)).encode()), uris)
        schema, _ = read_schema_and_batches(parts[0])
        num_rows = sum(part.num_rows for part in parts)
        size_bytes = sum(message.body_bytes for part in parts for message in part.messages)
        descriptor = descriptor or flight.FlightDescriptor.for_path(ticket.encode())
        return flight.FlightInfo(pa.schema(schema), descriptor, [endpoint], num_rows, size_bytes)

    def do_get(self, ticket: bytes) -> Any:
        """Return the data stream of a ticket, without copying.

        Raises `NotFoundError`, `InvalidDataError`, and `ConnectionLostError` if the server has too many streams.
        """
        import pyarrow as pa

        if len(ticket) > _MAX_TICKET_BYTES:
            raise InvalidArgumentError(f"ticket: expected at most {_MAX_TICKET_BYTES} bytes, found {len(ticket)}")
        names = Ticket.decode(ticket).names
        if len(names) > MAX_TICKETS:
            raise InvalidArgumentError(f"a request for {len(names)} data sets; the maximum is {MAX_TICKETS}")
        parts = [part for name in names for part in self._server.find_parts(name)]
        if any(part.schema != parts[0].schema for part in parts):
            raise InvalidDataError(f"{Ticket(names)}: their schemas differ")
        if not self._slots.acquire(blocking=False):
            limit = self._server.options.max_clients
            raise ConnectionLostError(f"the server has {limit} clients already, its limit")
        stream = _to_pyarrow_batches(parts)
        weakref.finalize(stream, self._slots.release)  # pyarrow drops it at the end of the call, also of a lost client
        schema, _ = read_schema_and_batches(parts[0])
        return import_flight().RecordBatchStream(pa.RecordBatchReader.from_batches(pa.schema(schema), stream))

    def __repr__(self) -> str:
        return f"<FlightServer {f'at {self.location}' if self._shut_down.alive else 'closed'}>"


def _shut_down_server(server: Any, relay: FlightRelay) -> None:
    """Stop pyarrow's server, also at the exit of the interpreter; after a while disconnect the remaining clients.

    pyarrow waits until they have received their streams, and can't be interrupted; not even the process could end.
    """
    thread = threading.Thread(target=server.shutdown, name="bowstring-flight-close", daemon=True)
    thread.start()
    thread.join(_CLOSE_TIMEOUT_S)
    relay.close()
    thread.join(_CLOSE_TIMEOUT_S)


class _RegionPartStream:
    """The batches of a data set for pyarrow, in the server's memory; its schema is converted once for all of them."""

    def __init__(self, part: RegionPart) -> None:
        self._part = part

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        schema, batches = read_schema_and_batches(self._part)
        if any(message.body_bytes > _MAX_MESSAGE_BYTES for message in self._part.messages):
            batches = (piece for batch in batches for piece in _split_batch(batch))
        return export_stream(schema, batches, requested_schema)


def _to_pyarrow_batches(parts: Sequence[RegionPart]) -> Iterator[Any]:
    """Yield the batches of data sets for pyarrow, in the server's memory. Raises `_TextError`."""
    import pyarrow as pa

    errors: tuple[type[Exception], ...] = (BowstringError, *_pyarrow_error_types())
    for part in parts:
        try:
            for batch in pa.RecordBatchReader.from_stream(_RegionPartStream(part)):
                batch.validate()  # offsets of a file could be outside of its buffers
                yield batch
        except errors as error:
            raise _TextError(str(from_flight_error(error, part.region.name))) from None


def _split_batch(batch: RecordBatch) -> Iterator[RecordBatch]:
    """Yield a batch in pieces that fit into a message."""
    count = -(-batch.nbytes // _MAX_MESSAGE_BYTES)
    rows = -(-batch.num_rows // max(count, 1))
    for start in range(0, max(batch.num_rows, 1), max(rows, 1)):
        yield batch.slice(start, rows) if count > 1 else batch


def _pyarrow_error_types() -> tuple[type[Exception], ...]:
    import pyarrow as pa

    return (pa.ArrowException, OSError, ValueError)


class _TextError(Exception):
    """An error that pyarrow reports to the client by its text, where it would add the traceback of others.

    It adds what `traceback` returns, if that does not fail: `traceback` asks each exception for its cause.
    """

    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        raise AttributeError


def _translate_errors(handler: _Handler) -> _Handler:
    """Let a handler raise errors of Flight, whose text is all that the client gets."""

    @functools.wraps(handler)
    def translated(*arguments: Any) -> Any:
        try:
            return handler(*arguments)
        except BowstringError as error:
            raise to_flight_error(error) from None
        except Exception as error:  # noqa: BLE001 - pyarrow would send the traceback
            raise to_flight_error(ProtocolError(f"{handler.__name__}: {type(error).__name__} {error}")) from None

    return translated  # type: ignore[return-value]


@functools.cache
def _create_server_class() -> Any:
    """The class of pyarrow's server with our handlers; defined here, because pyarrow is optional."""
    flight = import_flight()

    base: Any = flight.FlightServerBase

    class PyarrowFlightServer(base):  # type: ignore[misc]
        def __init__(self, owner: FlightServer, location: str) -> None:
            self._owner = weakref.proxy(owner)
            super().__init__(location)

        @_translate_errors
        def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:  # noqa: ARG002 - Flight's signature
            if criteria:
                raise InvalidArgumentError("ListFlights: criteria are not supported")
            return iter(self._owner.list_flights())

        @_translate_errors
        def get_flight_info(self, context: Any, descriptor: Any) -> Any:  # noqa: ARG002
            return self._owner.get_flight_info(_get_ticket_of_descriptor(descriptor), descriptor)

        def get_schema(self, context: Any, descriptor: Any) -> Any:
            try:
                return flight.SchemaResult(self.get_flight_info(context, descriptor).schema)
            except flight.FlightError as error:  # pyarrow handles those of all calls but this
                raise _TextError(str(error)) from None

        @_translate_errors
        def do_get(self, context: Any, ticket: Any) -> Any:  # noqa: ARG002
            return self._owner.do_get(ticket.ticket)

        @_translate_errors
        def list_actions(self, context: Any) -> list[Any]:  # noqa: ARG002
            return []

        @_translate_errors
        def do_action(self, context: Any, action: Any) -> Any:  # noqa: ARG002
            raise UnsupportedError("DoAction: the server has no actions")

        @_translate_errors
        def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:  # noqa: ARG002
            raise UnsupportedError("DoPut: the server accepts no data")

        @_translate_errors
        def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:  # noqa: ARG002
            raise UnsupportedError("DoExchange: the server accepts no data")

    return PyarrowFlightServer


def _get_ticket_of_descriptor(descriptor: Any) -> str:
    """Return the ticket that is the path or command of a descriptor. Raises `InvalidArgumentError` for others."""
    names = (
        [descriptor.command] if descriptor.descriptor_type == import_flight().DescriptorType.CMD else descriptor.path
    )
    if not names or len(names) != 1:
        raise InvalidArgumentError("descriptor: expected a path with one name, or a command with the name")
    ticket: str = names[0].decode("utf-8", "backslashreplace")
    return ticket
