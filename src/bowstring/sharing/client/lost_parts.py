"""Find the parts of a data set that can't be read because their servers have ended, before any is read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from bowstring.dissociated.uri import StreamURI
from bowstring.errors import BowstringError, ConnectionLostError
from bowstring.memory.thread_pool import map_in_new_threads
from bowstring.sharing.client.connection import Connection, ConnectionOptions
from bowstring.sharing.client.part_requests import FileRequest, PartRequest, PartRequests
from bowstring.sharing.uris import servers_by_role
from bowstring.transports.base import strip_traceback

_MAX_THREADS = 16  # connecting waits for the network, and not for processors
_MAX_INDICES = 20  # that an error lists for each host


def list_servers(parts: Iterable[PartRequests], failed: Collection[StreamURI] = ()) -> dict[StreamURI, StreamURI]:
    """Return the servers of the nearest locations that have not failed, each with the URI of one part."""
    servers: dict[StreamURI, StreamURI] = {}
    for part in parts:
        for request in part.requests:
            if isinstance(request, FileRequest):
                break
            if request.server not in failed:
                servers[request.server] = request.uri
                break
    return servers


def check_parts(
    parts: Sequence[PartRequests], options: ConnectionOptions, name: str | None, hosts: Mapping[int, str | None]
) -> None:
    """Connect to the nearest server of each part, 16 at a time, and only if that fails to the next. Raises
    `ConnectionLostError`, with the lost parts by their hosts, if there are parts none of whose servers can be reached.
    Files are not opened.
    """
    reasons: dict[StreamURI, BowstringError | None] = {}
    failed: set[StreamURI] = set()
    while servers := {server: uri for server, uri in list_servers(parts, failed).items() if server not in reasons}:
        outcomes = map_in_new_threads(lambda uri: _find_reason(uri, options), servers.values(), _MAX_THREADS)
        reasons.update(zip(servers, outcomes, strict=True))
        failed = {server for server, reason in reasons.items() if reason is not None}
    lost: dict[str | None, list[int]] = {}
    host_reasons: dict[str | None, BowstringError] = {}
    for part in parts:
        errors = [reasons.get(request.server) for request in part.requests if isinstance(request, PartRequest)]
        part_reasons = [error for error in errors if error is not None]
        if len(part_reasons) == len(part.requests):
            host = hosts.get(part.index)
            lost.setdefault(host, []).append(part.index)
            host_reasons[host] = part_reasons[-1]
    texts = []
    for host, indices in lost.items():
        location = "" if host is None else f" on host {host}"
        texts.append(f"{_describe_indices(indices)}{location} can't be reached: {host_reasons[host]}")
    if texts:
        raise ConnectionLostError(f"data set {name}: {'; '.join(texts)}")


def _describe_indices(indices: Sequence[int]) -> str:
    texts = list(map(str, indices[:_MAX_INDICES]))
    if len(indices) > _MAX_INDICES:
        texts.append(f"{len(indices) - _MAX_INDICES:,} more")
    return f"part {texts[0]}" if len(texts) == 1 else f"parts {', '.join(texts[:-1])} and {texts[-1]}"


def _find_reason(uri: StreamURI, options: ConnectionOptions) -> BowstringError | None:
    """Return an error if the server can't be reached."""
    try:
        Connection.dial(uri, options.for_servers(servers_by_role(uri).values())).close()
    except BowstringError as error:
        return strip_traceback(error)
    return None
