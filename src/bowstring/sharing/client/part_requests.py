"""Requests for the parts of a data set: one location is chosen for each part, and adjacent parts of one server are
requested together, in one stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bowstring.dissociated.uri import StreamURI
from bowstring.errors import BowstringError
from bowstring.io.store_path import StorePath
from bowstring.redaction import redact
from bowstring.sharing.uris import (
    Ticket,
    parse_max_tickets,
)

_REQUEST_BYTES = 1 << 15
"""The maximum size of the names in a request for several data sets."""


@dataclass(frozen=True, slots=True)
class FileRequest:
    """A part that is a file of any format."""

    url: str | StorePath
    """A path, or a URL of a store; with options of the store, the path in it."""
    length_bytes: int | None = None
    """The size that a local file has, if known."""

    def __str__(self) -> str:
        return redact(str(self.url))


@dataclass(frozen=True, slots=True)
class PartRequest:
    """A part of a data set of one server."""

    uri: StreamURI
    server: StreamURI
    """The URI of the server, which is equal for parts that one connection can request."""
    ticket: Ticket
    """With `copy`, it requests bodies as bytes, unless `Connection.request_stream` can copy the server's memory."""

    def __str__(self) -> str:
        return redact(str(self.uri))


@dataclass(frozen=True, slots=True)
class PartRequests:
    """One part of a data set, and the requests to its locations, which have the same rows."""

    index: int
    requests: tuple[PartRequest | FileRequest, ...]
    """The nearest first."""
    unusable_locations: tuple[tuple[str, BowstringError], ...] = ()
    """The URIs of locations that can't be used by this process, with the reason."""
    num_rows: int | None = None
    """The rows that the part has, if known."""


@dataclass(frozen=True, slots=True)
class JointRequest:
    """A request for adjacent parts, in one stream: of one server, or a single file."""

    parts: tuple[PartRequests, ...]
    requests: tuple[PartRequest | FileRequest, ...]
    """The chosen one of each part."""

    @property
    def uris(self) -> list[str]:
        """The URIs of the chosen locations."""
        return [str(request) for request in self.requests]

    @property
    def num_rows(self) -> int | None:
        """The rows of all parts; None if not known of each."""
        counts = [part.num_rows for part in self.parts if part.num_rows is not None]
        return sum(counts) if len(counts) == len(self.parts) else None

    def __str__(self) -> str:
        more = f" and {len(self.requests) - 1} more" if len(self.requests) > 1 else ""
        return f"{self.requests[0]}{more}"

    def split(self) -> list[JointRequest]:
        """Return a request for each part."""
        return [JointRequest((part,), (request,)) for part, request in zip(self.parts, self.requests, strict=True)]

    @property
    def ticket(self) -> Ticket:
        """The ticket of all parts."""
        tickets = [request.ticket for request in self.requests if isinstance(request, PartRequest)]
        return Ticket(tuple(name for ticket in tickets for name in ticket.names), tickets[0].is_packed)


def join_adjacent_requests(
    chosen: Iterable[tuple[PartRequests, PartRequest | FileRequest]],
) -> Iterator[JointRequest]:
    """Join requests of adjacent parts to one server, up to its limits."""
    joined: list[tuple[PartRequests, PartRequest | FileRequest]] = []
    server, size_bytes = None, 0
    for part, request in chosen:
        if isinstance(request, FileRequest):
            if joined:
                yield _join(joined)
            yield _join([(part, request)])
            joined, server, size_bytes = [], None, 0
            continue
        request_bytes = len(request.ticket.encode())
        first = joined[0][1] if joined else request
        assert isinstance(first, PartRequest)
        # Zero bytes separate the names of a request for several, so a ticket that contains one is requested alone.
        is_opaque = any("\0" in one.ticket.names[0] for one in (request, first))
        is_full = (
            len(joined) >= parse_max_tickets(request.uri) or is_opaque or size_bytes + request_bytes > _REQUEST_BYTES
        )
        if joined and (is_full or request.server != server or request.ticket.is_packed != first.ticket.is_packed):
            yield _join(joined)
            joined, size_bytes = [], 0
        server = request.server
        size_bytes += request_bytes
        joined.append((part, request))
    if joined:
        yield _join(joined)


def _join(chosen: Sequence[tuple[PartRequests, PartRequest | FileRequest]]) -> JointRequest:
    return JointRequest(tuple(part for part, _ in chosen), tuple(request for _, request in chosen))
