"""The transports, by the scheme of a URI. Those of other packages are entry points."""

from __future__ import annotations

from bowstring.entry_points import EntryPointGroup
from bowstring.errors import InvalidArgumentError, UnmetRequirementError
from bowstring.transports.base import Transport
from bowstring.transports.sockets.tcp import TCP, TLS
from bowstring.transports.sockets.unix import UNIX
from bowstring.transports.tls import TlsOptions

TRANSPORTS: dict[str, Transport] = {transport.scheme: transport for transport in (UNIX, TCP, TLS)}
"""The transports that are imported."""
TRANSPORT_ENTRY_POINTS = EntryPointGroup("bowstring.transports", {"cuda+unix": "cuda", "fabric": "", "ucx": "ucx"})


def register_transport(transport: Transport) -> None:
    """Add a transport that is not an entry point. Raises `InvalidArgumentError` if there is one with its scheme."""
    scheme = transport.scheme
    if scheme in TRANSPORT_ENTRY_POINTS.names or TRANSPORTS.setdefault(scheme, transport) is not transport:
        raise InvalidArgumentError(f"there is a transport with the scheme {scheme} already")


def list_schemes() -> list[str]:
    """Return the schemes of all transports, sorted. Imports none of them."""
    return sorted(TRANSPORTS.keys() | TRANSPORT_ENTRY_POINTS.names)


def find_transport(scheme: str, uri: object, tls: TlsOptions | None = None) -> Transport:
    """Return the transport of a URI's scheme.

    Raises `InvalidArgumentError` if there is none, or it does not support `tls`, and as `EntryPointGroup.load`.
    """
    transport = TRANSPORTS.get(scheme) or _import_transport(scheme)
    if transport is None:
        address = str(uri).partition("?")[0]  # its parameters may be secret
        raise InvalidArgumentError(
            f"URI {address!r}: expected the scheme {' or '.join(list_schemes())}, found {scheme}"
        )
    transport.check_tls(tls)
    return transport


def _import_transport(scheme: str) -> Transport | None:
    transport = TRANSPORT_ENTRY_POINTS.load(scheme)
    if transport is None:
        return None
    if not isinstance(transport, Transport) or transport.scheme != scheme:
        raise UnmetRequirementError(f"{scheme}: its entry point is not a transport with this scheme: {transport!r}")
    return TRANSPORTS.setdefault(scheme, transport)
