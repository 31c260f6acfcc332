"""Numbers about a running server, for its operators."""

from __future__ import annotations

from dataclasses import dataclass

from bowstring.display.objects import report_to_html


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ServerStats:
    """The state of a server (`num_clients` to `queued_bytes`), and its counters since it started.

    >>> with bs.serve({"visits": bs.table({"n": [1]})}) as server:
    ...     with bs.connect(server.uri("visits")) as reader:
    ...         _ = reader.read_all()
    ...         stats = server.stats()
    >>> stats.num_clients, stats.num_requests
    (1, 1)
    """

    uptime_s: float
    num_clients: int
    """The connections that have sent a request."""
    num_silent: int
    """The connections without a request."""
    num_datasets: int
    num_regions: int
    """The regions of the data sets: shared memory and files."""
    region_bytes: int
    """The size of these regions. Clients may use others, of data sets that were removed."""
    leased_addresses: int
    """The addresses that clients have not freed."""
    leased_bytes: int
    queued_bytes: int
    """The bytes of messages that wait until their client receives."""
    num_connections: int
    """The accepted connections."""
    num_refused_connections: int
    """The connections that ended without a request because of a limit or the end of the server."""
    num_lost_clients: int
    """The connections that ended with a deadline or a violation of the protocol."""
    num_requests: int
    num_refused_requests: int
    """The requests that were answered by an error."""
    num_messages: int
    """The messages of streams that were submitted."""
    bytes_sent: int
    bytes_received: int
    freed_addresses: int
    """The addresses that clients have freed, or whose clients have disconnected."""
    freed_bytes: int

    _repr_html_ = report_to_html


@dataclass(slots=True)
class ServerCounters:
    """The counters of `ServerStats` that are not sums over the connections."""

    num_connections: int = 0
    num_refused_connections: int = 0
    num_lost_clients: int = 0
    num_requests: int = 0
    num_refused_requests: int = 0
