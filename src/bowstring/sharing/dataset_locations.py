"""The locations of a data set: several URIs of the same data, of which a client uses the nearest that works.

The transports declare how near they are (`Transport.distance`): memory of the same host is nearest. A URI with the
parameter `scope` is used only in processes for which its address is the server's: an abstract unix address or
127.0.0.1 may be another server's elsewhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from bowstring.dissociated.uri import StreamURI
from bowstring.entry_points import EntryPointGroup
from bowstring.errors import (
    AccessDeniedError,
    BowstringError,
    ConnectionLostError,
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
)
from bowstring.io.fsspec_store import is_store_scheme
from bowstring.redaction import redact
from bowstring.sharing.uris import parse_scheme
from bowstring.transports.registry import TRANSPORTS, find_transport

# Each may be tried in turn; a server has one location for each of its addresses.
MAX_LOCATIONS = 64
_FILE_DISTANCE = 25.0
"""Further away than memory of the host, nearer than the network."""
_URI = re.compile(r"[^\s]+")


LocationKind: TypeAlias = Literal["server", "connector", "file", "path"]
CONNECTORS = EntryPointGroup(
    "bowstring.connectors", dict.fromkeys(("grpc", "grpc+tcp", "grpc+tls", "grpc+unix"), "flight")
)


def find_location_kind(location: object) -> LocationKind:
    """Return what a text refers to: the data set of a "server", or of several if it is a text of `DatasetLocations`; a
    data set that a "connector" finds; the rows of a "file", which is the `file:` URI or the URL of one. All else, such
    as a local path or another object, is a "path".

    Raises `MissingExtraError` or `UnmetRequirementError` if the connector can't be imported.
    """
    if not isinstance(location, str) or ":" not in location:
        return "path"
    scheme = parse_scheme(location)
    if scheme in TRANSPORTS or "want_data=" in location:
        return "server"
    if scheme == "file":
        return "file"
    if CONNECTORS.load(scheme) is not None:
        return "connector"
    return "file" if "://" in location and is_store_scheme(scheme) else "path"


@dataclass(frozen=True, slots=True, weakref_slot=True, repr=False)
class DatasetLocations:
    """Several URIs of one data set, from `Server.locations`; `bowstring.connect` uses the nearest that works.

    `str` is their text, separated by spaces, which `connect` and `parse` accept. Raises `InvalidArgumentError` for
    other values.

    >>> table = bs.table({"n": [1, 2, 3]})
    >>> with bs.serve({"visits": table}, addresses={"unix": None, "tcp": "127.0.0.1:0"}) as server:
    ...     locations = server.locations("visits")
    ...     with bs.connect(str(locations)) as reader:
    ...         reader.location.partition(":")[0], reader.read_all() == table
    ('unix', True)
    """

    uris: tuple[str, ...]
    """The URIs, in any order."""

    def __post_init__(self) -> None:
        uris: Any = self.uris
        if not isinstance(uris, tuple) or not 0 < len(uris) <= MAX_LOCATIONS:
            actual = len(uris) if isinstance(uris, tuple) else type(uris).__name__
            raise InvalidArgumentError(f"locations: expected a tuple of 1 to {MAX_LOCATIONS} URIs, found {actual}")
        for uri in uris:
            if not isinstance(uri, str) or not _URI.fullmatch(uri):
                raise InvalidArgumentError("locations: expected URIs without spaces")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the locations of a text with URIs, separated by spaces."""
        return cls(tuple(text.split()))

    def __str__(self) -> str:
        return " ".join(self.uris)

    def __repr__(self) -> str:
        return f"<bowstring.sharing.DatasetLocations {', '.join(map(hide_secrets, self.uris))}>"


def sort_by_distance(uris: Iterable[str]) -> list[str]:
    """Return URIs in the order in which they are tried."""
    return sorted(uris, key=_find_distance)


def check_same_address_scope(uri: StreamURI) -> None:
    """Raise `ConnectionLostError` if the address of a URI belongs to another host, network or directory."""
    scope = uri.get_parameter("scope")
    if scope is not None and scope != find_transport(uri.scheme, uri).address_scope(uri.address):
        raise ConnectionLostError(f"{uri.scheme}:{uri.address} is an address of another host, network or directory")


def is_shared_memory(uri: str) -> bool:
    """Return whether the data of a URI is mapped, not transferred."""
    try:
        return find_transport(parse_scheme(uri), uri).is_local
    except BowstringError:  # not the scheme of a transport, but of a file, for example
        return False


def is_local_or_encrypted(uri: StreamURI) -> bool:
    """Return whether a connection to a URI's server stays within this host, or is encrypted."""
    transport = find_transport(uri.scheme, uri)
    if transport.is_local or transport.supports_tls:
        return True
    scope = uri.get_parameter("scope")
    return scope is not None and scope == transport.address_scope(uri.address)


def merge_location_errors(errors: Mapping[str, BowstringError], subject: str = "no location") -> BowstringError:
    """Return the error if no location works: the error of a single location, or one with the reason for each.

    `NotFoundError` if a server lacks the data set, `AccessDeniedError` if one denies access, `DeadlineError` if all are
    silent, else `ConnectionLostError`.
    """
    if len(errors) == 1:
        return next(iter(errors.values()))
    reasons = "; ".join(f"{hide_secrets(uri)}: {error}" for uri, error in errors.items())
    text = f"{subject} of the data set can be used: {reasons}"
    for kind in (NotFoundError, AccessDeniedError):
        if any(isinstance(error, kind) for error in errors.values()):
            return kind(text)
    if all(isinstance(error, DeadlineError) for error in errors.values()):
        return DeadlineError(text)
    return ConnectionLostError(text)


def hide_secrets(uri: str) -> str:
    """Return the scheme and address of a URI; its parameters may be secret."""
    return redact(uri.partition("?")[0])


def _find_distance(uri: str) -> float:
    """Return the distance of a URI's transport; without one, the URI is tried last, which reports the error."""
    scheme = parse_scheme(uri)
    if scheme == "file":
        return _FILE_DISTANCE
    try:
        return find_transport(scheme, uri).distance
    except BowstringError:
        return math.inf
