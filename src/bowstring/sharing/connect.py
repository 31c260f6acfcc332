"""Connect to data sets: by a URI, by the URIs of several parts, or by several locations of one data set."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from bowstring.datatypes.schema import Schema
from bowstring.errors import BowstringError, UsageError
from bowstring.sharing.client import Dataset, Request, group
from bowstring.sharing.locations import Locations, check_scope, no_location_error, without_query
from bowstring.sharing.recording import Record, Recorder, open_recorder
from bowstring.sharing.uris import Ticket, parse_dataset_uri, requests_packed, without_ticket
from bowstring.transports.base import without_traceback
from bowstring.transports.registry import find_transport
from bowstring.transports.tls import TlsOptions

_LOGGER = logging.getLogger(__name__)
_LOCAL_SCHEMES = ("loopback", "unix")


class HasURIs(Protocol):
    """A data set of several parts, as `bowstring.spark.publish` returns."""

    @property
    def uris(self) -> Sequence[str]:
        """The URIs of the parts, in order."""

    @property
    def schema(self) -> Schema:
        """The schema of all parts."""


Target: TypeAlias = str | Locations | Sequence[str] | HasURIs
"""One URI, several locations, the URIs of several parts with one schema, or an object with `uris` and `schema`."""


@dataclass(frozen=True, slots=True)
class _Options:
    """The arguments of `connect`."""

    ticket: str | bytes | None
    copy: bool
    timeout_s: float
    tls: TlsOptions | None
    recorder: Recorder | None


def connect(
    target: Target,
    ticket: str | bytes | None = None,
    *,
    copy: bool = False,
    timeout_s: float = 30.0,
    tls: TlsOptions | None = None,
    record: Record | None = None,
) -> Dataset:
    """Connect to a data set of another process, and read its schema.

    `target` is a URI; `Locations`, or their text, of which the nearest that works is used; or the URIs of several
    parts, or an object with their `uris`, such as a published data set. `ticket` is the name of the data set, or
    the bytes that another implementation's server expects; the default is that of the URI. With `copy`, bytes are
    copied into this process's memory; otherwise memory is shared and nothing is copied, if the transport can do that.
    `timeout_s` is how long the server may be silent; it applies to each location. `tls` has the certificates for
    `tcp+tls`; other connections to other hosts are then not used. `record` is the path of a new file, in which all
    messages are recorded, or a `Recorder`.

    Raises `NotFoundError` if the server has no such data set, `AccessDeniedError` if the ticket is not valid,
    `ConnectionLostError` if the server does not run, disconnects or has too many clients, `DeadlineError` if it is
    silent, `ProtocolError` for a malformed URI or a violation of the protocol, `UsageError` for other targets and a
    timeout that is not positive. If no location works, the error has the reason for each.
    """
    if not timeout_s > 0:
        raise UsageError(f"connect: timeout_s: expected a positive number of seconds, found {timeout_s!r}")
    options = _Options(ticket, copy, timeout_s, tls, open_recorder(record))
    if isinstance(target, str) and len(target.split()) > 1:
        target = Locations.parse(target)
    if isinstance(target, Locations):
        return _connect_to_nearest(target, options)
    uris: Any = [target] if isinstance(target, str) else getattr(target, "uris", target)
    if isinstance(uris, Mapping):
        raise UsageError(
            "connect: expected one URI or several parts of one data set; choose one of a server's: server.uri(name)"
        )
    if not isinstance(uris, Iterable) or isinstance(uris, bytes):
        raise UsageError(f"connect: expected a URI or an object with `uris`, found {type(target).__name__}")
    return _connect_to_parts(uris, getattr(target, "schema", None), options)


def _connect_to_parts(uris: Iterable[str], schema: Schema | None, options: _Options) -> Dataset:
    requests = []
    for text in uris:
        uri, name = parse_dataset_uri(text, options.ticket)
        requests.append(Request(without_ticket(uri), (uri,), Ticket((name,), requests_packed(uri, options.copy))))
    return Dataset(
        group(requests), schema, options.timeout_s, options.tls, copy=options.copy, recorder=options.recorder
    )


def _connect_to_nearest(locations: Locations, options: _Options) -> Dataset:
    """Try each location, and keep the reasons why nearer ones can't be used."""
    errors: dict[str, BowstringError] = {}
    for uri in locations.nearest_first():
        try:
            dataset = _connect_to_location(uri, options)
        except BowstringError as error:
            _LOGGER.debug("%s: not used: %s", without_query(uri), error)
            errors[uri] = without_traceback(error)
            continue
        _LOGGER.debug("%s: the nearest location that works", without_query(uri))
        dataset.unusable_locations = {uri: str(error) for uri, error in errors.items()}
        return dataset
    raise no_location_error(errors)


def _connect_to_location(text: str, options: _Options) -> Dataset:
    uri, name = parse_dataset_uri(text, options.ticket)
    check_scope(uri)
    tls = options.tls
    if tls is not None and not find_transport(uri.scheme, uri).supports_tls:
        if uri.scheme not in _LOCAL_SCHEMES and uri.parameter("scope") is None:
            raise UsageError(f"{uri.scheme}: not encrypted, but the option tls was set")
        tls = None
    request = Request(without_ticket(uri), (uri,), Ticket((name,), requests_packed(uri, options.copy)))
    return Dataset([request], None, options.timeout_s, tls, copy=options.copy, recorder=options.recorder)
