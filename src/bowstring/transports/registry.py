"""The transports, by the scheme of a URI.

Optional ones, and those of other packages, are entry points of the group `bowstring.transports`, named by their scheme.
They are imported when a URI has this scheme.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from bowstring.errors import InvalidArgumentError, UnmetRequirementError
from bowstring.transports.base import Transport
from bowstring.transports.loopback import LOOPBACK
from bowstring.transports.tcp import TCP, TLS
from bowstring.transports.tls import TlsOptions
from bowstring.transports.unix import UNIX

TRANSPORTS: dict[str, Transport] = {transport.scheme: transport for transport in (UNIX, LOOPBACK, TCP, TLS)}
"""The transports that are imported."""

_GROUP = "bowstring.transports"
_OPTIONAL = {
    "cuda+unix": "bowstring.transports.cuda.transport:CUDA",
    "fabric": "bowstring.transports.fabric.transport:FABRIC",
    "ucx": "bowstring.transports.ucx.transport:UCX",
}
"""As pyproject.toml declares them: a source checkout has no metadata, or that of another version."""


def register_transport(transport: Transport) -> None:
    """Add a transport that is not an entry point. Raises `InvalidArgumentError` if there is one with its scheme."""
    scheme = transport.scheme
    if scheme in _find_entry_points() or TRANSPORTS.setdefault(scheme, transport) is not transport:
        raise InvalidArgumentError(f"there is a transport with the scheme {scheme} already")


def list_schemes() -> list[str]:
    """Return the schemes of all transports, sorted. Imports none of them."""
    return sorted(TRANSPORTS.keys() | _find_entry_points().keys())


def find_transport(scheme: str, uri: object, tls: TlsOptions | None = None) -> Transport:
    """Return the transport of a URI's scheme.

    Raises `InvalidArgumentError` if there is none, or it does not support `tls`, and `UnmetRequirementError` if that of
    another package can't be imported.
    """
    transport = TRANSPORTS.get(scheme) or _import_transport(scheme)
    if transport is None:
        address = str(uri).partition("?")[0]  # its parameters may be secret
        raise InvalidArgumentError(
            f"URI {address!r}: expected the scheme {' or '.join(list_schemes())}, found {scheme}"
        )
    if tls is not None and not transport.supports_tls:
        raise InvalidArgumentError(f"{scheme}: the option tls is not supported: use {TLS.scheme}")
    return transport


@cache
def _find_entry_points() -> dict[str, EntryPoint]:
    """Find the entry points by scheme; that of another package can't replace one of ours."""
    ours = {scheme: EntryPoint(scheme, value, _GROUP) for scheme, value in _OPTIONAL.items()}
    return {entry_point.name: entry_point for entry_point in entry_points(group=_GROUP)} | ours


def _import_transport(scheme: str) -> Transport | None:
    entry_point = _find_entry_points().get(scheme)
    if entry_point is None:
        return None
    try:
        transport = entry_point.load()
    except (ImportError, AttributeError) as error:
        raise UnmetRequirementError(f"{scheme}: {entry_point.value} can't be imported: {error}") from error
    if not isinstance(transport, Transport) or transport.scheme != scheme:
        raise UnmetRequirementError(f"{scheme}: {entry_point.value} is not a transport with this scheme")
    return TRANSPORTS.setdefault(scheme, transport)
