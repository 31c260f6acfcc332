"""The transports, by the scheme of a URI."""

from __future__ import annotations

from bowstring.errors import InvalidArgumentError
from bowstring.transports.base import Transport
from bowstring.transports.cuda.transport import CUDA
from bowstring.transports.fabric.transport import FABRIC
from bowstring.transports.loopback import LOOPBACK
from bowstring.transports.tcp import TCP, TLS
from bowstring.transports.tls import TlsOptions
from bowstring.transports.ucx.transport import UCX
from bowstring.transports.unix import UNIX

TRANSPORTS: dict[str, Transport] = {
    transport.scheme: transport for transport in (UNIX, LOOPBACK, TCP, TLS, UCX, FABRIC, CUDA)
}
"""Add a transport here, or with `register_transport` from outside of Bowstring."""


def register_transport(transport: Transport) -> None:
    """Add a transport. Raises `InvalidArgumentError` if there is one with its scheme."""
    if TRANSPORTS.setdefault(transport.scheme, transport) is not transport:
        raise InvalidArgumentError(f"there is a transport with the scheme {transport.scheme} already")


def find_transport(scheme: str, uri: object, tls: TlsOptions | None = None) -> Transport:
    """Return the transport of a URI's scheme.

    Raises `InvalidArgumentError` if there is none, or it does not support `tls`.
    """
    transport = TRANSPORTS.get(scheme)
    if transport is None:
        expected = " or ".join(sorted(TRANSPORTS))
        address = str(uri).partition("?")[0]  # its parameters may be secret
        raise InvalidArgumentError(f"URI {address!r}: expected the scheme {expected}, found {scheme}")
    if tls is not None and not transport.supports_tls:
        raise InvalidArgumentError(f"{scheme}: the option tls is not supported: use {TLS.scheme}")
    return transport
