"""Connect to data sets: by a URI, by the URIs of several parts, or by several locations of one.

A service that finds data sets, such as Flight, is a connector: an entry point of the group `bowstring.connectors`, a
function of the URI's text and `ConnectOptions` that returns a `DatasetReader`: of one of its locations, or of a
subclass that overrides `_read_batches` and `close`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

from bowstring.datatypes.schema import Schema, SchemaLike, as_schema
from bowstring.dissociated.uri import StreamURI
from bowstring.errors import (
    BowstringError,
    ConnectionLostError,
    DeadlineError,
    InvalidArgumentError,
    InvalidDataError,
    NotFoundError,
    check_count,
    check_seconds,
)
from bowstring.io.fsspec_store import with_storage_options
from bowstring.io.local_path import absolute_path, is_file_uri, parse_file_uri
from bowstring.memory.closable import call_on_error
from bowstring.sharing.client.connection import ConnectionOptions
from bowstring.sharing.client.dataset_reader import DatasetReader
from bowstring.sharing.client.lost_parts import check_parts, list_servers
from bowstring.sharing.client.part_requests import FileRequest, PartRequest, PartRequests
from bowstring.sharing.dataset_locations import (
    CONNECTORS,
    DatasetLocations,
    check_same_address_scope,
    find_location_kind,
    hide_secrets,
    is_local_or_encrypted,
    merge_location_errors,
    sort_by_distance,
)
from bowstring.sharing.recording.recorder import Recorder, RecorderOrPath, open_recorder
from bowstring.sharing.uris import (
    Ticket,
    parse_dataset_uri,
    parse_scheme,
    requests_packed_bodies,
    servers_by_role,
    without_ticket,
)
from bowstring.transports.base import strip_traceback
from bowstring.transports.registry import TRANSPORTS
from bowstring.transports.tls import TlsOptions

_LOGGER = logging.getLogger(__name__)


class DatasetLike(Protocol):
    """A data set of several parts, such as `bowstring.datasets.Dataset`.

    If it has `column_indices` that are not None, only these columns of the parts are read, and `schema` is theirs.
    """

    @property
    def parts(self) -> Sequence[Any]:
        """The parts, in order, such as `bowstring.datasets.DatasetPart`: with `locations`, which are URIs of the same
        rows, and `num_rows`, which may be None.
        """

    @property
    def schema(self) -> Schema:
        """The schema of all parts."""


Target: TypeAlias = str | os.PathLike[str] | DatasetLocations | Sequence[str | os.PathLike[str]] | DatasetLike
"""One URI or path of a file, several locations, the URIs or paths of several parts with one schema, or an object with
`parts` and `schema`.
"""


_ENCRYPTED_STORES = frozenset(("file", "https", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl"))
"""The schemes of files of this host and of stores with encrypted connections, unless their own options change that."""


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """The arguments of `connect`."""

    ticket: str | bytes | None
    connection: ConnectionOptions
    recorder: Recorder | None
    requires_encryption: bool
    """Whether connections to other hosts have to be encrypted."""
    allow_file_locations: bool
    """Whether the locations that a server lists may be files and URLs. Those that the caller passed may always be."""
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """The options of a data set for its locations in stores; they may be secret."""


def connect(  # noqa: PLR0913 -- all but two are options
    target: Target,
    ticket: str | bytes | None = None,
    *,
    copy: bool = False,
    timeout_s: float = 30.0,
    tls: TlsOptions | None = None,
    record: RecorderOrPath | None = None,
    allow_other_users: bool = False,
    allow_file_locations: bool = False,
    schema: SchemaLike | None = None,
    prefetch_bytes: int = 0,
) -> DatasetReader:
    """Connect to a data set of another process, and read its schema.

    `target` is a URI; `DatasetLocations` or their text (the nearest that works is used); the URIs of several parts;
    a `Dataset`, such as a published one; or a `Path` of an Arrow file. The URI of a file or of an object of a store
    refers to its rows; local files are mapped. The URI of a Flight server, `grpc://HOST:PORT/NAME`, stands for the
    locations that the server lists, if they are no less secure than itself; the data is requested from itself if none
    works.

    `ticket` is the name of the data set, or the bytes that another implementation's server expects; the default is that
    of the URI. With `copy`, bytes are copied into this process's memory; otherwise memory is shared and nothing is
    copied, if the transport can do that. `timeout_s` limits each wait for the server; it applies to each location.
    `tls` has the certificates for `tcp+tls` and `grpc+tls`; other connections to other hosts are then not used.
    `schema` is the expected schema, required if there are no URIs, as for an empty data set without parts.
    `record` is the path of a new file, in which all messages are recorded, or a `Recorder`; messages of Flight can't
    be. With `prefetch_bytes`, a thread receives up to so many bytes and one batch ahead of a loop over the batches,
    except for parts in shared memory of this host.
    `allow_other_users` permits the server of a unix socket to be a process of another user, other than root.
    `allow_file_locations` permits a Flight server to list files of this host and URLs, which are then read.

    Raises `NotFoundError` if the server has no such data set, `AccessDeniedError` if the ticket is not valid,
    `ConnectionLostError` if the server does not run, disconnects or has too many clients, and with their indices if
    parts of a data set are lost with their servers, `DeadlineError` if it is silent, `InvalidDataError` for another
    schema, `ProtocolError` for a malformed URI or a violation of the protocol, `InvalidArgumentError` for other targets
    and a timeout that is not positive. If no location works, the error has the reason for each.

    >>> with bs.serve({"visits": bs.table({"n": [1, 2, 3]})}, scheme="tcp") as server:
    ...     with bs.connect(server.uri("visits")) as reader:
    ...         [batch.num_rows for batch in reader]
    [3]
    """
    timeout_s = check_seconds("connect: timeout_s", timeout_s)
    check_count("connect: prefetch_bytes", prefetch_bytes)
    connection_options = ConnectionOptions(timeout_s, tls, copy, allow_other_users, prefetch_bytes)
    options = ConnectOptions(ticket, connection_options, open_recorder(record), tls is not None, allow_file_locations)
    if schema is None:
        return _connect_to_target(target, None, options)
    expected = as_schema(schema, "connect: the schema")
    dataset = _connect_to_target(target, expected, options)
    if dataset.schema != expected:
        dataset.close()
        raise InvalidDataError(f"connect: expected {expected!r}, found {dataset.schema!r}")
    return dataset


def _connect_to_target(target: Target, schema: Schema | None, options: ConnectOptions) -> DatasetReader:
    if isinstance(target, str) and len(target.split()) > 1 and all(":" in text for text in target.split()):
        target = DatasetLocations.parse(target)
    if isinstance(target, DatasetLocations):
        uris = sort_by_distance(target.uris)
        options = replace(options, allow_file_locations=True)
        return connect_to_first({uri: partial(connect_to_location, uri, options) for uri in uris})
    if isinstance(target, str) and find_location_kind(target) == "connector":
        dataset: DatasetReader = CONNECTORS.load(parse_scheme(target))(target, options)
        return dataset
    if hasattr(target, "parts") and hasattr(target, "schema"):  # paths have parts, too
        return _connect_to_dataset(target, options)
    texts = [target] if isinstance(target, str | os.PathLike) else _list_uris(target)
    requests = [PartRequests(index, (_create_request(text, options),)) for index, text in enumerate(texts)]
    return DatasetReader(requests, getattr(target, "schema", schema), options.connection, options.recorder)


def _connect_to_dataset(dataset: Any, options: ConnectOptions) -> DatasetReader:
    """Connect to all servers of a data set in parts: an incomplete one is an error, which names the lost parts."""
    getattr(dataset, "uris", ())  # an error if it is closed
    if getattr(dataset, "steps", ()):
        raise InvalidArgumentError(
            f"connect: data set {dataset.name!r} has steps, such as filters, which are not applied here: iterate over "
            f"the data set itself, or call its read_all"
        )
    parts, columns = dataset.parts, getattr(dataset, "column_indices", None)
    options = replace(options, storage_options=getattr(dataset, "storage_options", None))
    checked: dict[StreamURI, BowstringError | None] = {}
    requests = [
        _create_part_requests(index, part, options, checked)
        for index, part in enumerate(parts)
        if part.locations or part.num_rows
    ]
    hosts = {index: getattr(part, "host", None) for index, part in enumerate(parts)}
    check = partial(check_parts, requests, options.connection, getattr(dataset, "name", None), hosts)
    try:
        reader = DatasetReader(requests, dataset.schema, options.connection, options.recorder, columns)
    except (ConnectionLostError, DeadlineError):
        check()
        raise
    # The reader has connected to one of them, unless it begins with a file.
    if len(list_servers(requests)) > (parse_scheme(reader.uris[0]) in TRANSPORTS if requests else 0):
        with call_on_error(reader.close):
            check()
    return reader


def _list_uris(target: object) -> Iterable[str | os.PathLike[str]]:
    """Return the URIs of several parts. Raises `InvalidArgumentError` for other objects."""
    uris: object = getattr(target, "uris", target)
    if isinstance(uris, Mapping):
        raise InvalidArgumentError(
            "connect: expected one URI or several parts of one data set; choose one of a server's: server.uri(name)"
        )
    if not isinstance(uris, Iterable) or isinstance(uris, bytes):
        raise InvalidArgumentError(f"connect: expected a URI or an object with `parts`, found {type(target).__name__}")
    return uris


def _create_part_requests(
    index: int, part: Any, options: ConnectOptions, checked: dict[StreamURI, BowstringError | None]
) -> PartRequests:
    """Return the requests for a part at its locations that this process can use. `checked` is as for
    `_create_usable_request`.
    """
    locations = part.locations
    if not locations:
        raise NotFoundError(f"part {index}: {part.num_rows} rows, but no location")
    if len(locations) == 1:
        request = _create_request(locations[0], options)
        if isinstance(request, FileRequest):
            request = replace(request, length_bytes=getattr(part, "nbytes", None) or None)
        return PartRequests(index, (request,), (), part.num_rows)
    requests, errors = [], []
    for uri in sort_by_distance(locations):
        try:
            requests.append(_create_usable_request(uri, options, checked))
        except BowstringError as error:
            errors.append((uri, strip_traceback(error)))
    if not requests:
        raise merge_location_errors(dict(errors), f"part {index}: no location")
    return PartRequests(index, tuple(requests), tuple(errors), part.num_rows)


def _create_request(uri: str | os.PathLike[str], options: ConnectOptions) -> PartRequest | FileRequest:
    """Return a request for the server or file of a URI, or for the file of a path object. Raises as `connect`."""
    if isinstance(uri, os.PathLike):
        return FileRequest(absolute_path(uri))
    if find_location_kind(uri) == "file":
        is_local = is_file_uri(uri)
        return FileRequest(parse_file_uri(uri) if is_local else with_storage_options(uri, options.storage_options))
    parsed, name = parse_dataset_uri(uri, options.ticket)
    ticket = Ticket((name,), requests_packed_bodies(parsed, options.connection.copy))
    return PartRequest(parsed, without_ticket(parsed), ticket)


def _create_usable_request(
    uri: str, options: ConnectOptions, checked: dict[StreamURI, BowstringError | None]
) -> PartRequest | FileRequest:
    """Return a request for a location, which a server may have listed, if this process can use it. Raises the reason
    otherwise.

    `checked` has the servers that were checked before, with the reason why they can't be used.
    """
    request = _create_request(uri, options)
    if isinstance(request, PartRequest):
        if request.server not in checked:
            checked[request.server] = _find_unusable_reason(request.uri, options)
        if (reason := checked[request.server]) is not None:
            raise reason
    elif options.requires_encryption and parse_scheme(uri) not in _ENCRYPTED_STORES:
        # A chained URL has the scheme of a cache, which may read from anywhere.
        raise InvalidArgumentError(f"{parse_scheme(uri)}: a connection to another host that is not encrypted")
    return request


def connect_to_first(candidates: Mapping[str, Callable[[], DatasetReader]]) -> DatasetReader:
    """Connect to the first location that works, and keep the reasons why those before can't be used.

    Raises the error of a single location as it is.
    """
    errors: dict[str, BowstringError] = {}
    for uri, open_dataset in candidates.items():
        try:
            dataset = open_dataset()
        except BowstringError as error:
            _LOGGER.debug("%s: not used: %s", hide_secrets(uri), error)
            errors[uri] = strip_traceback(error)
            continue
        _LOGGER.debug("%s: the nearest location that works", hide_secrets(uri))
        dataset.unusable_locations = {uri: str(error) for uri, error in errors.items()}
        return dataset
    raise merge_location_errors(errors)


def connect_to_location(text: str, options: ConnectOptions) -> DatasetReader:
    """Connect to the server of one URI, which a server may have listed. Raises as `connect`."""
    request, connection = _create_usable_request(text, options, {}), options.connection
    if isinstance(request, PartRequest):
        connection = connection.for_servers(servers_by_role(request.uri).values())
    elif not options.allow_file_locations:
        # Whoever lists locations could otherwise make this process read its own files, and use its network.
        raise InvalidArgumentError(
            f"{parse_scheme(text)}: a file or URL that a server lists is read only with allow_file_locations=True"
        )
    return DatasetReader([PartRequests(0, (request,))], None, connection, options.recorder)


def _find_unusable_reason(uri: StreamURI, options: ConnectOptions) -> BowstringError | None:
    """Return an error if this process can't use the servers of a URI, or a connection has to be encrypted."""
    try:
        for server in servers_by_role(uri).values():
            check_same_address_scope(server)
            if options.requires_encryption and not is_local_or_encrypted(server):
                raise InvalidArgumentError(f"{server.scheme}: a connection to another host that is not encrypted")
    except BowstringError as error:
        return strip_traceback(error)
    return None
