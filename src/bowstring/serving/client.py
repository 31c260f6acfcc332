"""Batches from a URI («Client Sequence»): `connect` asks a server for a data set; nothing is copied where memory can
be shared.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from bowstring.datatypes.field import Schema
from bowstring.dissociated.uri import StreamURI
from bowstring.errors import BowstringError, ClosedError, ConnectionLostError, InvalidDataError, UsageError
from bowstring.memory.closing import Closing
from bowstring.serving.addresses import Ticket, parse, server_of
from bowstring.serving.links import Link, Stream
from bowstring.tabular.batch import RecordBatch
from bowstring.tabular.table import Table


class HasURIs(Protocol):
    """A data set of several parts, such as `bowstring.spark.publish` gives."""

    @property
    def uris(self) -> Sequence[str]:
        """Where the parts are, in order."""

    @property
    def schema(self) -> Schema:
        """The schema of each."""


Target: TypeAlias = str | Sequence[str] | HasURIs
"""One URI, several whose data sets have one schema, or an object with `uris` and `schema`."""


@dataclass(frozen=True, slots=True)
class Part:
    """One data set of a server."""

    uri: StreamURI
    ticket: Ticket


class Dataset(Closing):
    """Record batches that a server has; made by `connect`. A context manager; can be read again and again.

    Arrays can't be written, and stay valid whatever becomes of the data set or the server. The server's memory is
    lent: each batch until no array of it is left, everything until `close`.
    """

    def __init__(self, parts: Sequence[Part], schema: Schema | None, timeout_s: float) -> None:
        self._parts = tuple(parts)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._idle: dict[StreamURI, list[Link]] = {}
        self._links: set[Link] = set()
        self._opened: tuple[Link, Stream] | None = None
        self._is_closed = False
        if parts:
            self._opened = self._open(self._parts[0])
            schema = self._opened[1].schema
        if schema is None:
            raise UsageError("connect: no URIs, so no schema")
        self.schema = schema

    @property
    def uris(self) -> tuple[str, ...]:
        """The URIs that are read, in order."""
        return tuple(str(part.uri) for part in self._parts)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def __iter__(self) -> Iterator[RecordBatch]:
        """The batches from the first on. Raises `ConnectionLostError`, `DeadlineError`, `ClosedError`, and errors of
        the data.
        """
        for index, part in enumerate(self._parts):
            link, stream = self._take() if index == 0 else self._open(part)
            if stream.schema is not self.schema and stream.schema != self.schema:
                self._end(link, None)
                raise InvalidDataError(f"{part.uri}: expected {self.schema!r}, found {stream.schema!r}")
            is_whole = False
            try:
                for batch in stream:
                    if self._is_closed:
                        raise ClosedError("the data set was closed while it was read")
                    yield _with_schema(batch, self.schema)
                is_whole = True
            finally:
                self._end(link, part if is_whole else None)

    def read_all(self) -> Table:
        """Everything as a table, without copying. Errors as iterating."""
        return Table(self.schema, list(self))

    def to_batches(self) -> list[RecordBatch]:
        """All batches. Errors as iterating."""
        return list(self)

    def close(self) -> None:
        """Give back everything that is lent. Tables and arrays stay valid. Idempotent."""
        with self._lock:
            self._is_closed = True
            links = list(self._links)
            self._links.clear()
            self._idle.clear()
            self._opened = None
        for link in links:
            link.close()

    def _take(self) -> tuple[Link, Stream]:
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None and not opened[0].is_closed:
            return opened
        return self._open(self._parts[0])

    def _open(self, part: Part) -> tuple[Link, Stream]:
        with self._lock:
            if self._is_closed:
                raise ClosedError("the data set is closed")
            idle = self._idle.get(server_of(part.uri), [])
            link = idle.pop() if idle else None
        if link is not None and not link.is_closed:
            try:
                return link, self._streaming(link, part)
            except ConnectionError:
                pass  # the server may have started anew: a fresh connection tells
        try:
            link = Link(part.uri, self._timeout_s)
        except ConnectionLostError as error:
            raise type(error)(f"data set {part.ticket.name!r}: {error}") from error
        with self._lock:
            self._links.add(link)
        return link, self._streaming(link, part)

    def _streaming(self, link: Link, part: Part) -> Stream:
        try:
            return link.stream(part.ticket)
        except BaseException:
            self._end(link, None)
            raise

    def _end(self, link: Link, part: Part | None) -> None:
        """Keep the connection for another stream, where the last was read to its end."""
        with self._lock:
            if part is not None and not self._is_closed:
                self._idle.setdefault(server_of(part.uri), []).append(link)
                return
            self._links.discard(link)
        link.close()

    def __del__(self) -> None:
        for link in getattr(self, "_links", ()):
            try:
                link.release()
            except BowstringError:
                pass

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.read_all().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        parts = "1 part" if len(self._parts) == 1 else f"{len(self._parts)} parts"
        state = "closed" if self._is_closed else parts
        return f"<bowstring.Dataset {state}>\n{self.schema}"


def _with_schema(batch: RecordBatch, schema: Schema) -> RecordBatch:
    return batch if batch.schema is schema else RecordBatch(schema, batch.num_rows, batch.source, batch.pairs)


def connect(target: Target, ticket: str | None = None, *, copy: bool = False, timeout_s: float = 30.0) -> Dataset:
    """Connect to a data set of another process, and read its schema.

    `target` is a URI, or several, or what has `uris` (a published data set, whose partitions become one). `ticket`
    names the data set where the URI does not. With `copy`, the bytes come through the socket into this process's own
    memory; otherwise the memory is shared and nothing is copied. `timeout_s` is how long the server may be silent.

    Raises `NotFoundError` where the server does not know the ticket, `ConnectionLostError` where nobody answers or the
    server goes away, `DeadlineError` where it is silent, `ProtocolError` for what is no URI of ours or what breaks the
    protocol, `UsageError` for anything else than a URI, and for a deadline that is not positive.
    """
    uris: Any = [target] if isinstance(target, str) else getattr(target, "uris", target)
    if isinstance(uris, Mapping):
        raise UsageError(
            "connect: expected one URI or several parts of one data set; choose one of a server's: server.uri(name)"
        )
    if not isinstance(uris, Iterable) or isinstance(uris, bytes):
        raise UsageError(f"connect: expected a URI, or what has `uris`, not {type(target).__name__}")
    if not timeout_s > 0:
        raise UsageError(f"connect: timeout_s: expected a positive number of seconds, found {timeout_s!r}")
    schema = getattr(target, "schema", None)
    parts = []
    for text in uris:
        uri, name = parse(text, ticket)
        parts.append(Part(uri, Ticket(name, copy or uri.free_data is None)))
    return Dataset(parts, schema, timeout_s)
