"""Read data sets of a server («Client Sequence»). Shared memory is not copied."""

from __future__ import annotations

import os
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import TypeAlias

import numpy as np

from bowstring.arrays.record_batch import RecordBatch, filter_batches, with_nullability
from bowstring.arrays.table import Table
from bowstring.datatypes.nullability import as_nullable
from bowstring.datatypes.schema import Schema
from bowstring.display.objects import source_to_html
from bowstring.dissociated.uri import StreamURI
from bowstring.errors import (
    AccessDeniedError,
    BowstringError,
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    InvalidArgumentError,
    InvalidDataError,
    NotFoundError,
    ProtocolError,
    add_location,
    format_count,
    translate_os_error,
)
from bowstring.file_formats import open_batches
from bowstring.io.fsspec_store import is_path
from bowstring.io.store_path import check_regular_file
from bowstring.ipc.api import open_any
from bowstring.ipc.file import FileReader
from bowstring.ipc.remote_file import RemoteFileReader
from bowstring.ipc.stream import StreamReader
from bowstring.kernels.filters import Filters, FiltersLike, parse_filters
from bowstring.memory.closable import Closable, call_on_error
from bowstring.memory.forks import ProcessLock
from bowstring.sharing.client.connection import Connection, ConnectionOptions, Stream
from bowstring.sharing.client.part_requests import (
    FileRequest,
    JointRequest,
    PartRequest,
    PartRequests,
    join_adjacent_requests,
)
from bowstring.sharing.client.read_ahead import ReadAhead
from bowstring.sharing.dataset_locations import is_shared_memory, merge_location_errors
from bowstring.sharing.recording.recorder import Recorder
from bowstring.sharing.uris import servers_by_role, without_ticket
from bowstring.transports.base import strip_traceback

_REFUSALS = (NotFoundError, InvalidDataError, AccessDeniedError)
"""The errors if one of several data sets is missing, has another schema, or its ticket is not valid; requests for each
find out which.
"""
_ALTERNATIVE_ERRORS = (*_REFUSALS, ConnectionLostError, DeadlineError)
"""The errors after which a part is requested at another location."""
_REPLACED = "the file was replaced, or its description is wrong"


class DatasetReader(Closable):
    """Record batches of a server; created by `connect`. A context manager; can be read repeatedly.

    Arrays are read-only and stay valid after the data set is closed and the server has ended. The server keeps each
    batch until the client has no array of it, and all of them until `close`. A pickled data set connects again, and so
    does one in a forked child.

    >>> with bs.serve({"visits": bs.table({"n": [1, 2, 3]})}) as server:
    ...     with bs.connect(server.uri("visits")) as reader:
    ...         reader.schema, reader.read_all([("n", ">", 1)])["n"].to_pylist()
    (Schema(n: int64), [2, 3])
    """

    def __init__(
        self,
        parts: Iterable[PartRequests],
        schema: Schema | None,
        options: ConnectionOptions,
        recorder: Recorder | None = None,
        column_indices: tuple[int, ...] | None = None,
    ) -> None:
        self._parts = tuple(parts)
        self._column_indices = column_indices
        self._recorder = recorder
        self._options = options
        self._lock = ProcessLock()
        self._idle: dict[StreamURI, list[Connection]] = {}
        self._connections: set[Connection] = set()
        self._files: set[_OpenFile] = set()
        self._read_aheads: weakref.WeakSet[ReadAhead] = weakref.WeakSet()
        self._first_stream: tuple[_Opened, _Batches] | None = None
        self._is_closed = False
        # Servers that could not be reached are tried last: thousands of parts need not wait for each of them again.
        self._unreachable: set[StreamURI] = set()
        self._requests = self._plan(self._parts, {})
        if self._requests:
            # The schema is known only to the server, so the first stream is begun here, and its batches are read by the
            # first iteration.
            self._first_stream = self._open_first_stream()
            first = self._first_stream[1]
            schema = schema if schema is not None and _fits(first, schema) else first.schema
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
        """The URIs of the locations that are used, in the order of the parts."""
        return tuple(uri for request in self._requests for uri in request.uris)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def __iter__(self) -> Iterator[RecordBatch]:
        """Iterate over all batches, receiving the batches of other hosts ahead if `connect` got `prefetch_bytes`.

        Raises `ConnectionLostError`, `DeadlineError`, `ClosedError`, `InvalidDataError`.
        """
        prefetch_bytes = self._options.prefetch_bytes
        # A reader of Flight has no such requests.
        if prefetch_bytes and not (self._requests and all(map(_is_in_shared_memory, self._requests))):
            return self._read_ahead(prefetch_bytes)
        return self._read_batches()

    def _read_ahead(self, prefetch_bytes: int) -> Iterator[RecordBatch]:
        """Yield all batches, which a thread receives."""
        ahead = ReadAhead(prefetch_bytes)
        self._read_aheads.add(ahead)
        yield from ahead.iterate(self._read_batches(ahead))

    def locate_batches(self, filters: Sequence[Filters] = ()) -> Iterator[tuple[int, int, RecordBatch]]:
        """Yield each batch that has rows, after the index of its part and the index in the part of its first row.

        Batches of files are not read if they have no rows that match all `filters`, of the columns of the parts, by
        their statistics. Raises `InvalidArgumentError` unless the rows of each part are known, as of a `Dataset`, and
        as iterating.

        >>> with bs.serve({"visits": bs.table({"n": [1, 2, 3]})}) as server:
        ...     with bs.connect(bs.dataset([server.uri("visits")] * 2)) as reader:
        ...         [(part, start, batch.num_rows) for part, start, batch in reader.locate_batches()]
        [(0, 0, 3), (1, 0, 3)]
        """
        if len(self._parts) != len(self.uris) or any(part.num_rows is None for part in self._parts):
            raise InvalidArgumentError("locate_batches: the rows of some parts are not known: connect to a `Dataset`")
        request, ends = None, list[int]()
        for batch_request, start, batch in self._read_requests(candidates=filters):
            if not batch.num_rows:
                continue
            if batch_request is not request:
                request, ends = batch_request, list(accumulate(part.num_rows or 0 for part in batch_request.parts))
            position = bisect_right(ends, start)
            first = ends[position - 1] if position else 0
            if position == len(ends) or start + batch.num_rows > ends[position]:
                part = request.parts[min(position, len(ends) - 1)]
                expected, found = format_count(part.num_rows or 0, "row"), f"{start + batch.num_rows - first:,}"
                raise InvalidDataError(f"part {part.index}: expected {expected}, found at least {found}")
            yield request.parts[position].index, start - first, batch

    def _read_batches(
        self, ahead: ReadAhead | None = None, filters: FiltersLike | None = None
    ) -> Iterator[RecordBatch]:
        """Yield all batches; in the thread of `ahead`, those in shared memory only when the loop needs them.

        Rows of files that do not match `filters` are left out.
        """
        return (batch for _, _, batch in self._read_requests(ahead, filters))

    def _read_requests(
        self,
        ahead: ReadAhead | None = None,
        filters: FiltersLike | None = None,
        candidates: Sequence[Filters] = (),
    ) -> Iterator[tuple[JointRequest, int, RecordBatch]]:
        """Yield batches as `_read_batches`, after their request and the index in it of their first row.

        Batches of files that have no rows for all of `candidates`, by their statistics, are left out.
        """
        requests = deque(self._requests)
        first_stream = self._take_first_stream()
        errors: _LocationErrors = {}
        while requests:
            request = requests.popleft()
            shared_ahead = ahead if ahead is not None and _is_in_shared_memory(request) else None
            if shared_ahead is not None:
                shared_ahead.wait_until_needed()
            try:
                opened, batches = first_stream or self._open_stream(request)
            except _ALTERNATIVE_ERRORS as error:
                requests = deque(self._find_alternatives(request, requests, error, errors))
                continue
            first_stream = None
            if not _fits(batches, self.schema):
                self._close_connection(opened)
                raise InvalidDataError(
                    f"{self._describe_request(request)}: expected {self.schema!r}, found {batches.schema!r}"
                )
            is_complete, num_rows = False, 0
            is_filtered = isinstance(batches, _OpenFile) and (filters is not None or bool(candidates))
            if isinstance(batches, _OpenFile):
                located = batches.locate(candidates) if candidates else _number_rows(batches.read(filters))
            else:
                located = _number_rows(batches)
            if ahead is not None:
                ahead.interrupt = partial(self._close_connection, opened)
            try:
                for start, batch in located:
                    if self._is_closed:
                        raise ClosedError("the data set was closed while it was read")
                    num_rows += batch.num_rows
                    if ahead is not None and isinstance(batches, _SelectedColumns) and batches.received is not None:
                        ahead.batch_bytes = batches.received.nbytes
                    yield request, start, with_nullability(batch, self.schema)
                    if shared_ahead is not None:
                        shared_ahead.wait_until_needed()
                # Some batches are not read with filters.
                if not is_filtered and request.num_rows not in (None, num_rows):
                    raise InvalidDataError(
                        f"{self._describe_request(request)}: expected {request.num_rows} rows, found {num_rows}"
                    )
                is_complete = True
            finally:
                if ahead is not None:
                    ahead.interrupt = ahead.batch_bytes = None
                if is_complete and isinstance(opened, Connection):
                    self._return_connection(opened)
                else:
                    self._close_connection(opened)

    def read_all(self, filters: FiltersLike | None = None) -> Table:
        """Read all batches into a table, without copying, or the rows that match filters, as `Table.filter`.

        Raises as iterating.

        >>> with bs.serve({"visits": bs.table({"n": [1, 2, 3]})}) as server:
        ...     with bs.connect(server.uri("visits")) as reader:
        ...         reader.read_all([("n", ">", 1)])["n"].to_pylist()
        [2, 3]
        """
        return Table(self.schema, self.to_batches(filters))

    def to_batches(self, filters: FiltersLike | None = None) -> list[RecordBatch]:
        """Read all batches, or of each the rows that match filters. Raises as iterating.

        >>> with bs.serve({"visits": bs.table({"n": [1, 2, 3]})}) as server:
        ...     with bs.connect(server.uri("visits")) as reader:
        ...         [batch.num_rows for batch in reader.to_batches()]
        [3]
        """
        if filters is None:
            return list(self._read_batches())
        return list(filter_batches(self._read_batches(filters=filters), parse_filters(filters, self.schema)))

    def close(self) -> None:
        """Close the connections, which ends all leases. Tables and arrays stay valid. Idempotent."""
        with self._lock.of_this_process:
            self._is_closed = True
            opened: list[_Opened] = [*self._connections, *self._files]
            self._connections.clear()
            self._files.clear()
            self._idle.clear()
            self._first_stream = None
        for ahead in list(self._read_aheads):
            ahead.stop()
        # Without the lock, since closing waits for a thread that reads.
        for each in opened:
            each.close()
        if self._recorder is not None:
            self._recorder.close_unless_shared()

    def _open_first_stream(self) -> tuple[_Opened, _Batches]:
        """Open the first request, or an alternative to it."""
        errors: _LocationErrors = {}
        while True:
            try:
                return self._open_stream(self._requests[0])
            except _ALTERNATIVE_ERRORS as error:
                first, *others = self._requests
                self._requests = self._find_alternatives(first, others, error, errors)

    def _plan(self, parts: Iterable[PartRequests], errors: _LocationErrors) -> list[JointRequest]:
        """Choose the nearest location of each part that has not failed, and join adjacent requests."""
        return list(join_adjacent_requests((part, self._choose_request(part, errors)) for part in parts))

    def _choose_request(self, part: PartRequests, errors: _LocationErrors) -> PartRequest | FileRequest:
        failed = errors.get(part.index, {})
        remaining = [request for request in part.requests if request not in failed] if failed else part.requests
        for request in remaining if self._unreachable else ():
            if isinstance(request, FileRequest) or request.server not in self._unreachable:
                return request
        if remaining:
            return remaining[0]
        reasons = dict(part.unusable_locations) | {str(request): error for request, error in failed.items()}
        prefix = "" if len(self._parts) == 1 else f"part {part.index}: "
        if len(reasons) == 1:
            (error,) = reasons.values()
            if not prefix:
                raise error
            raise add_location(error, f"part {part.index}") from error
        raise merge_location_errors(reasons, f"{prefix}no location")

    def _describe_request(self, request: JointRequest) -> str:
        """The indices of the parts, if there are several, and the first URI."""
        uri = request.uris[0]
        first, last = request.parts[0].index, request.parts[-1].index
        if len(self._parts) == 1:
            return uri
        return f"part {first}: {uri}" if first == last else f"parts {first} to {last}: {uri}"

    def _find_alternatives(
        self, request: JointRequest, others: Iterable[JointRequest], error: BowstringError, errors: _LocationErrors
    ) -> list[JointRequest]:
        """Replace a request that failed by one for each of its parts, or by their next locations; return these and
        `others`.

        Raises the error if there is no other location.
        """
        if len(request.parts) > 1 and isinstance(error, _REFUSALS):
            return [*request.split(), *others]
        for part, failed in zip(request.parts, request.requests, strict=True):
            errors.setdefault(part.index, {})[failed] = strip_traceback(error)
        alternatives = self._plan(request.parts, errors)
        failed = request.requests[0]
        if not isinstance(error, ConnectionLostError | DeadlineError) or isinstance(failed, FileRequest):
            return [*alternatives, *others]
        self._unreachable.add(failed.server)
        self._requests = self._plan(self._parts, {})  # for the next iteration
        return [*alternatives, *self._plan((part for other in others for part in other.parts), errors)]

    def _take_first_stream(self) -> tuple[_Opened, _Batches] | None:
        """Return the connection and stream that were opened for the schema, if still usable."""
        with self._lock.of_this_process:
            first_stream, self._first_stream = self._first_stream, None
        return first_stream if first_stream is not None and not first_stream[0].is_closed else None

    def _open_stream(self, request: JointRequest) -> tuple[_Opened, _Batches]:
        first = request.requests[0]
        if isinstance(first, FileRequest):
            file = _OpenFile(first, self._column_indices, request.num_rows)
            with self._lock.of_this_process:
                self._files.add(file)
            return file, file
        with self._lock.of_this_process:
            if self._is_closed:
                raise ClosedError("the data set is closed")
            idle = self._idle.get(first.server, [])
            # Taken out: a connection has one stream at a time, and several threads may read the data set.
            connection = idle.pop() if idle else None
        if connection is not None and not connection.is_closed:
            try:
                return connection, self._request_stream(connection, request)
            except (ConnectionError, ProtocolError):
                # The server may have ended meanwhile, or sent a message without a request: try a new connection.
                self._close_connection(connection)
        options = self._options
        if len(request.parts[0].requests) > 1:
            options = options.for_servers(servers_by_role(first.uri).values())
        try:
            connection = Connection.dial(first.uri, options, self._recorder)
        except ConnectionLostError as error:
            raise add_location(error, str(request.ticket)) from error
        with self._lock.of_this_process:
            self._connections.add(connection)
        return connection, self._request_stream(connection, request)

    def _request_stream(self, connection: Connection, request: JointRequest) -> _Batches:
        with call_on_error(self._close_connection, connection):
            stream = connection.request_stream(request.ticket)
            return stream if self._column_indices is None else _SelectedColumns(stream, self._column_indices)

    def _return_connection(self, connection: Connection) -> None:
        """Keep a connection whose stream was read to its end for another one, unless the data set is closed."""
        with self._lock.of_this_process:
            if not self._is_closed:
                self._idle.setdefault(without_ticket(connection.uri), []).append(connection)
                return
        self._close_connection(connection)

    def _close_connection(self, opened: _Opened) -> None:
        with self._lock.of_this_process:
            if isinstance(opened, Connection):
                self._connections.discard(opened)
            else:
                self._files.discard(opened)
        opened.close()

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
        if type(self)._read_batches is not DatasetReader._read_batches:  # the batches are not those of the URIs
            raise TypeError(f"a {type(self).__name__} can't be pickled: its class does not define how")
        return DatasetReader, (self._parts, self.schema, self._options, None, self._column_indices)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.read_all().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else self._describe_parts()
        return f"<bowstring.sharing.DatasetReader {state}>\n{self.schema}"

    _repr_html_ = source_to_html

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


class _OpenFile(Closable):
    """A file of any format, as a stream of batches; iterate once."""

    def __init__(self, request: FileRequest, column_indices: tuple[int, ...] | None, num_rows: int | None) -> None:
        if is_path(request.url):
            check_regular_file(request.url)
        try:
            self._reader = open_batches(request.url, column_indices)
        except NotFoundError as error:  # a column
            if isinstance(error, OSError):
                raise
            raise InvalidDataError(f"{request}: another schema than described: {error}") from error
        self.schema = self._reader.schema
        self.is_closed = False
        with call_on_error(self._reader.close):
            _check_size(request)
            if num_rows is not None:
                self._check_num_rows(request, num_rows)

    def _check_num_rows(self, request: FileRequest, expected: int) -> None:
        """Raise `InvalidDataError` if a file has other rows than described, by the headers of its batches.

        Here and not only at the end, because filters skip batches, and a reader of the first rows stops early. The
        headers of a stream in a store are between its bodies, so they are counted only as they are read.
        """
        if isinstance(self._reader, FileReader):
            num_rows = self._reader.num_rows
        elif is_path(request.url) and isinstance(self._reader, StreamReader):
            with open_any(request.url) as stream:
                num_rows = sum(batch.num_rows for batch in stream)
        else:
            return
        if num_rows != expected:
            raise InvalidDataError(f"{request}: expected {expected} rows, as described, found {num_rows}: {_REPLACED}")

    def read(self, filters: FiltersLike | None) -> Iterator[RecordBatch]:
        """Yield the batches, or the rows that match filters; batches without any, by their statistics, are not read."""
        reader, batches = self._reader, iter(self._reader)
        if filters is not None and isinstance(reader, FileReader):
            batches = reader.filter_batches(filters)
        elif filters is not None:
            batches = filter_batches(reader, parse_filters(filters, self.schema))
        for batch in batches:
            if isinstance(reader, RemoteFileReader):
                tuple(batch.lazy_columns)  # fetched together, before the file is closed
            yield batch

    def locate(self, filters: Sequence[Filters]) -> Iterator[tuple[int, RecordBatch]]:
        """Yield the batches that may have rows which match all filters, after the indices of their first rows."""
        reader = self._reader
        if not isinstance(reader, FileReader):
            yield from _number_rows(self.read(None))
            return
        candidates = sorted(set.intersection(*(set(reader.find_candidates(each)) for each in filters)))
        ends = np.cumsum(reader.row_counts)
        for index, batch in zip(candidates, reader.iter_batches(candidates), strict=True):
            if isinstance(reader, RemoteFileReader):
                tuple(batch.lazy_columns)  # fetched together, before the file is closed
            yield int(ends[index]) - batch.num_rows, batch

    def close(self) -> None:
        """Close the file; arrays stay valid."""
        self.is_closed = True
        self._reader.close()


def _number_rows(batches: Iterable[RecordBatch]) -> Iterator[tuple[int, RecordBatch]]:
    """Yield each batch after the index of its first row."""
    start = 0
    for batch in batches:
        yield start, batch
        start += batch.num_rows


def _is_in_shared_memory(request: JointRequest) -> bool:
    return isinstance(request.requests[0], PartRequest) and is_shared_memory(request.requests[0].uri.scheme)


def _fits(batches: _Batches, expected: Schema) -> bool:
    """Whether batches have the expected schema. The fields of a file may be more strict: the tasks of a job may write
    files with and without nulls.
    """
    schema = batches.schema
    if schema is expected or schema == expected:
        return True
    return isinstance(batches, _OpenFile) and as_nullable(schema) == expected


def _check_size(request: FileRequest) -> None:
    """Raise `InvalidDataError` if a local file has another size than described."""
    if request.length_bytes is None or not is_path(request.url):
        return
    try:
        size_bytes = os.stat(request.url).st_size
    except OSError as error:
        raise translate_os_error(error, f"{request}: cannot be read: {error.strerror}") from error
    if size_bytes != request.length_bytes:
        expected = f"expected {request.length_bytes} bytes, as described, found {size_bytes}"
        raise InvalidDataError(f"{request}: {expected}: {_REPLACED}")


class _SelectedColumns:
    """Some columns of a stream. If it lacks one, `schema` is the stream's, not the expected one."""

    def __init__(self, stream: Stream, indices: tuple[int, ...]) -> None:
        self._stream = stream
        self._indices = indices
        self.received: RecordBatch | None = None
        """The last batch with all columns, which have one body."""
        self.schema = stream.schema
        if all(index < len(stream.schema) for index in indices):
            self.schema = stream.schema.select(indices)

    def __iter__(self) -> Iterator[RecordBatch]:
        for batch in self._stream:
            self.received = batch
            yield batch.select(self._indices)


_Opened: TypeAlias = Connection | _OpenFile
_Batches: TypeAlias = Stream | _OpenFile | _SelectedColumns
_LocationErrors: TypeAlias = dict[int, dict[PartRequest | FileRequest, BowstringError]]
"""Why locations of a part can't be used, by the index of the part."""
