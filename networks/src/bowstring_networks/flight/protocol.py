"""Arrow Flight as the control plane: what its client and server share.

A Flight server describes a data set by a FlightInfo, with a ticket and its locations. Locations with the schemes of our
transports are followed with Dissociated IPC, with the same ticket («URI Specification»); those with the schemes of
Flight are read by DoGet.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from bowstring.errors import (
    AccessDeniedError,
    BowstringError,
    ConnectionLostError,
    DeadlineError,
    InvalidArgumentError,
    InvalidDataError,
    NotFoundError,
    ProtocolError,
    ResourceError,
    UnsupportedError,
    require_package,
)
from bowstring.sharing.uris import decode_error_message, encode_error_message

FLIGHT_SCHEMES = ("grpc", "grpc+tcp", "grpc+tls", "grpc+unix")
TLS_SCHEME = "grpc+tls"
SAME_SERVER = "arrow-flight-reuse-connection://?"
"""The location that means the server of the FlightInfo."""
_ERROR_PREFIX = b"bowstring\n"
# gRPC sends errors as headers, of which it allows 8 KiB by default.
_MAX_TEXT = 1000


def import_flight() -> Any:
    """Return the module `pyarrow.flight`. Raises `MissingExtraError`."""
    with require_package("pyarrow with Flight", "flight", "bowstring-networks"):
        import pyarrow.flight
    return pyarrow.flight


def format_flight_uri(location: str, name: str) -> str:
    """Return the URI of a data set of a Flight server.

    >>> format_flight_uri("grpc://127.0.0.1:5000", "a/b")
    'grpc://127.0.0.1:5000/a%2Fb'
    """
    return f"{location}/{quote(name, safe='')}"


def parse_flight_uri(text: str, ticket: str | bytes | None = None) -> tuple[str, tuple[str, ...]]:
    """Return the location of the server, and the path of the data set's descriptor.

    The path is `ticket`, the parameter `ticket`, or the path of the URI. Raises `InvalidArgumentError`.

    >>> parse_flight_uri("grpc://127.0.0.1:5000/a%2Fb")
    ('grpc://127.0.0.1:5000', ('a/b',))
    """
    prefix = f"URI {text.partition('?')[0]!r}"
    try:
        parts = urlsplit(text)
        parameters = parse_qs(parts.query, strict_parsing=True) if parts.query else {}
        names = [unquote(name, errors="strict") for name in parts.path.split("/")[1:]]
        if ticket is not None:
            names = [ticket.decode() if isinstance(ticket, bytes) else ticket]
    except ValueError as error:
        raise InvalidArgumentError(f"{prefix}: {error}") from error
    if parameters.keys() - {"ticket"}:
        raise InvalidArgumentError(f"{prefix}: expected no other parameter than ticket")
    if ticket is None and (parameters or parts.scheme == "grpc+unix"):
        names = parameters.get("ticket", [])
    if not names or not all(name.isprintable() and name for name in names):
        raise InvalidArgumentError(f"{prefix}: expected a data set, as in grpc://HOST:PORT/NAME")
    return f"{parts.scheme}://{parts.netloc}{parts.path if parts.scheme == 'grpc+unix' else ''}", tuple(names)


def to_flight_error(error: BowstringError) -> Exception:
    """Return the error for a Flight client; ours restores it."""
    flight_error: Exception = import_flight().FlightServerError(str(error), _ERROR_PREFIX + encode_error_message(error))
    return flight_error


def from_flight_error(error: Exception, prefix: str) -> BowstringError:
    """Translate an error of pyarrow. `prefix` is the prefix of its text."""
    extra = getattr(error, "extra_info", None) or b""
    if extra.startswith(_ERROR_PREFIX):
        return decode_error_message(extra.removeprefix(_ERROR_PREFIX), prefix)
    if isinstance(error, BowstringError):
        return error
    text = f"{prefix}: {str(error).partition('. Detail: ')[0].partition('. gRPC client debug')[0][:_MAX_TEXT]}"
    for names, kind in _errors_by_flight_error().items():
        if isinstance(error, names):
            return kind(text)
    return ProtocolError(text)


def is_descriptor_error(error: Exception) -> bool:
    """Whether a server that is not ours may have failed because it expects another kind of descriptor."""
    flight = import_flight()
    if (getattr(error, "extra_info", None) or b"").startswith(_ERROR_PREFIX):
        return False
    is_other = isinstance(
        error,
        flight.FlightTimedOutError
        | flight.FlightUnavailableError
        | flight.FlightUnauthenticatedError
        | flight.FlightUnauthorizedError
        | flight.FlightCancelledError,
    )
    return not is_other


def _errors_by_flight_error() -> dict[Any, type[BowstringError]]:
    import pyarrow as pa

    flight = import_flight()
    return {
        flight.FlightTimedOutError: DeadlineError,
        (flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError): AccessDeniedError,
        flight.FlightError: ConnectionLostError,
        KeyError: NotFoundError,
        NotImplementedError: UnsupportedError,
        MemoryError: ResourceError,
        OSError: ConnectionLostError,
        (ValueError, TypeError): InvalidDataError,
        pa.ArrowException: ConnectionLostError,
    }
