"""Find the parts of a data set that can't be read because their servers have ended, before any is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from bowstring.dissociated.uri import StreamURI
from bowstring.errors import BowstringError, ConnectionLostError
from bowstring.sharing.connection import Connection, ConnectionOptions
from bowstring.sharing.part_requests import PartRequest, PartRequests
from bowstring.sharing.uris import servers_by_role
from bowstring.transports.base import strip_traceback
from bowstring.transports.registry import find_transport

_MAX_THREADS = 16
_MAX_INDICES = 20


def list_servers(parts: Sequence[PartRequests]) -> dict[StreamURI, StreamURI]:
    """Return the servers of all locations, each with the URI of one part."""
    requests = [request for part in parts for request in part.requests]
    return {request.server: request.uri for request in requests if isinstance(request, PartRequest)}


def check_parts(
    parts: Sequence[PartRequests], options: ConnectionOptions, name: str | None, hosts: Mapping[int, str | None]
) -> None:
    """Connect to all servers, 16 at a time. Raises `ConnectionLostError`, with the lost parts by their hosts, if there
    are parts none of whose servers can be reached. Files are not opened.
    """
    servers = list_servers(parts)
    with ThreadPoolExecutor(_MAX_THREADS, "bowstring-connect") as pool:
        reasons = dict(zip(servers, pool.map(lambda uri: _find_reason(uri, options), servers.values()), strict=True))
    lost: dict[str | None, list[int]] = {}
    host_reasons: dict[str | None, BowstringError] = {}
    for part in parts:
        errors = [reasons[request.server] for request in part.requests if isinstance(request, PartRequest)]
        part_reasons = [error for error in errors if error is not None]
        if len(part_reasons) == len(part.requests):
            host = hosts.get(part.index)
            lost.setdefault(host, []).append(part.index)
            host_reasons[host] = part_reasons[-1]
    texts = []
    for host, indices in lost.items():
        more = ", …" if len(indices) > _MAX_INDICES else ""
        location = "" if host is None else f" of host {host}"
        texts.append(f"{', '.join(map(str, indices[:_MAX_INDICES]))}{more}{location}: {host_reasons[host]}")
    if texts:
        raise ConnectionLostError(f"data set {name}: lost, or not within reach, are parts {'; parts '.join(texts)}")


def _find_reason(uri: StreamURI, options: ConnectionOptions) -> BowstringError | None:
    """Return an error if the server can't be reached."""
    if not any(find_transport(server.scheme, server).supports_tls for server in servers_by_role(uri).values()):
        options = replace(options, tls=None)
    try:
        Connection.dial(uri, options).close()
    except BowstringError as error:
        return strip_traceback(error)
    return None
