"""The options of a server."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from bowstring.sharing.recording import RecorderOrPath
from bowstring.transports.tls import TlsOptions


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Deadlines and limits of a server."""

    timeout_s: float = 30.0
    """The time until a client sends a request."""
    stall_s: float = 600.0
    """How long a client may receive nothing although it is sent something, or pause in the middle of a message."""
    max_clients: int = 256
    """The maximum number of clients with a request; others get an error."""
    max_silent: int = 256
    """The maximum number of connections without a request; a new one replaces the oldest."""
    inline_bytes: int = 1 << 14
    """The size up to which a request's data sets are sent as bytes, which takes less time than sharing memory."""
    max_kept_regions: int = 16
    """The number of regions that a client keeps mapped between its requests."""
    max_leases: int = 1 << 26
    """The addresses leased to a client at which its stream pauses, until it frees some."""
    max_leased_bytes: int = 1 << 62
    """The bytes leased to a client at which its stream pauses, until it frees some."""
    max_total_leases: int = 1 << 27
    """The addresses leased to all clients at which streams pause.

    Half of this limit and of the next two is divided equally among `max_clients`: a client may always use its part, and
    one batch, however much others have.
    """
    max_total_leased_bytes: int = 1 << 62
    """The bytes leased to all clients at which streams pause."""
    max_total_queued_bytes: int = 1 << 62
    """The bytes that wait until clients receive them, at which streams pause."""
    tls: TlsOptions | None = None
    """The server's certificate, for the addresses with `tcp+tls`."""
    record: RecorderOrPath | None = None
    """The path of a new file, in which all messages are recorded for `bowstring trace`, or a `Recorder`."""
    ticket_key: bytes | None = field(default=None, repr=False)
    """The key of signed tickets, at least 32 random bytes (`secrets.token_bytes(32)`); with it, a client needs the URI
    from this server to request a data set.
    """
    ticket_lifetime_s: float = math.inf
    """How long a signed ticket is valid after its URI was requested."""
