"""The options of a server."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields

from bowstring.display.objects import repr_options
from bowstring.errors import AccessDeniedError, InvalidArgumentError, check_count, check_seconds
from bowstring.memory.available_memory import available_memory_bytes
from bowstring.sharing.recording.recorder import RecorderOrPath
from bowstring.transports.base import PeerIdentity, Transport
from bowstring.transports.tls import TlsOptions
from bowstring.transports.total_limits import OutstandingAmounts

UNLIMITED_BYTES = 1 << 62
"""More than any memory, and less than 2**63, also with a few sizes added."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ServerOptions:
    """Deadlines and limits of a server.

    >>> import secrets
    >>> options = bs.sharing.ServerOptions(max_clients=10, ticket_key=secrets.token_bytes(32))
    >>> with bs.serve({"visits": bs.table({"n": [1]})}, options=options) as server:
    ...     uri = server.uri("visits", lifetime_s=60)
    ...     with bs.connect(uri) as reader:
    ...         reader.read_all()["n"].to_pylist()
    [1]
    """

    timeout_s: float = 30.0
    """The time until a client sends a request."""
    stall_s: float = 600.0
    """How long a client may receive nothing although it is sent something, or pause in the middle of a message."""
    max_clients: int = 256
    """The maximum number of clients with a request; others get an error."""
    max_silent: int = 256
    """The maximum number of connections without a request; a new one replaces the oldest."""
    inline_bytes: int = 1 << 14
    """The size up to which a request's data sets are sent as bytes, which takes less time than sharing memory.

    In larger data sets, batches of less than this and 8 KiB are sent as bytes, too.
    """
    max_kept_regions: int = 16
    """The number of regions that a client keeps mapped between its requests."""
    max_leases: int = 1 << 26
    """The addresses leased to a client at which its stream pauses, until it frees some."""
    max_leased_bytes: int = UNLIMITED_BYTES
    """The bytes leased to a client at which its stream pauses, until it frees some."""
    max_total_leases: int = 1 << 27
    """The addresses leased to all clients at which streams pause.

    Half of this limit and of the next two is divided equally among `max_clients`: a client may always use its part, and
    one batch, however much others have.
    """
    max_total_leased_bytes: int | None = None
    """The bytes leased to all clients at which streams pause. Clients that read the same data lease the same memory.

    So the default is twice the memory that is available when the server starts, for each of `max_clients`: a client may
    always lease as much as fits into memory.
    """
    max_total_queued_bytes: int | None = None
    """The bytes that wait until clients receive them, at which streams pause; by default a quarter of the memory that
    is available when the server starts.
    """
    allow_other_users: bool = False
    """Whether processes of other users of this host may connect to a unix socket; `connect` needs the same option."""
    advertised_host: str | None = None
    """The host in the URIs of `tcp` and `tcp+tls`, if clients reach the server by another than it listens at."""
    tls: TlsOptions | None = None
    """The server's certificate, for the addresses with `tcp+tls`."""
    names_by_certificate: Mapping[str, Collection[str]] | None = None
    """The names of the data sets that a client's certificate opens, by the certificate's subject as in the server's
    log, such as `commonName=alice, organizationName=Acme\\, Inc.`, where special characters of values are escaped as in
    RFC 4514; other certificates open none. Needs `TlsOptions.authorities`. Processes that the kernel identifies, at
    unix sockets, may request all data sets.
    """
    record: RecorderOrPath | None = None
    """The path of a new file, in which all messages are recorded for `bowstring trace`, or a `Recorder`."""
    ticket_key: bytes | None = field(default=None, repr=False)
    """The key of signed tickets, at least 32 random bytes (`secrets.token_bytes(32)`); with it, a client needs the URI
    from this server to request a data set.
    """
    ticket_lifetime_s: float | None = None
    """How long a signed ticket is valid after its URI was requested. Required where other hosts can connect, such as
    `math.inf`; otherwise the default is for ever.
    """

    __repr__ = repr_options

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None and each.default is None:
                continue
            if each.name.endswith("_s"):
                check_seconds(each.name, value)
            elif each.name.startswith("max_") or each.name.endswith("_bytes"):
                check_count(each.name, value)

    def derive_total_limits(self) -> OutstandingAmounts:
        """Return the limits of all clients together, with defaults that depend on the available memory."""
        leased_bytes, queued_bytes = self.max_total_leased_bytes, self.max_total_queued_bytes
        available_bytes = available_memory_bytes()
        if leased_bytes is None:
            leased_bytes = UNLIMITED_BYTES if available_bytes is None else 2 * self.max_clients * available_bytes
        if queued_bytes is None:
            queued_bytes = UNLIMITED_BYTES if available_bytes is None else available_bytes // 4
        return OutstandingAmounts(self.max_total_leases, leased_bytes, queued_bytes)

    def check_ticket_lifetime(self, address: str) -> None:
        """Raise `InvalidArgumentError` unless tickets that other hosts may learn, at this address, have a lifetime."""
        if self.ticket_key is not None and self.ticket_lifetime_s is None:
            raise InvalidArgumentError(
                f"{address}: other hosts can connect there: ticket_key requires ticket_lifetime_s, in seconds"
            )

    def check_certificate_names(self, transport: Transport) -> None:
        """Raise `InvalidArgumentError` if clients of a transport could evade `names_by_certificate`."""
        if self.names_by_certificate is None:
            return
        if self.tls is None or self.tls.authorities is None:
            raise InvalidArgumentError("names_by_certificate: the option tls with authorities is required")
        for subject, names in self.names_by_certificate.items():
            if isinstance(names, str):
                raise InvalidArgumentError(
                    f"names_by_certificate: {subject!r}: expected several names, found {names!r}"
                )
        if not (transport.identifies_users or transport.supports_tls):
            raise InvalidArgumentError(
                f"{transport.scheme}: names_by_certificate: the transport does not identify clients"
            )

    def check_access(self, name: str, peer: PeerIdentity | None) -> None:
        """Raise `AccessDeniedError` unless the certificate of a peer, if any, opens a data set."""
        if self.names_by_certificate is None or (peer is not None and peer.user_id is not None):
            return
        subject = None if peer is None else peer.name
        if subject is None or name not in self.names_by_certificate.get(subject, ()):
            raise AccessDeniedError("access denied: the client's certificate does not open this data set")
