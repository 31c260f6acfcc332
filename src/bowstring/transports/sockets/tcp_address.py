"""Addresses of TCP sockets: `//HOST:PORT`, as in `tcp://HOST:PORT`, or `HOST:PORT`; IPv6 addresses in brackets.

>>> parse_address("//localhost:5000"), parse_address("[::1]:0")
(('localhost', 5000), ('::1', 0))
>>> format_address("::1", 5000)
'//[::1]:5000'
"""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Any, NamedTuple

from bowstring.errors import ConnectionLostError, InvalidArgumentError, translate_os_error
from bowstring.transports.address_scope import network_scope

_ADDRESS = re.compile(r"(?://)?(?:\[([^\[\]]*)\]|([^:/\[\]@\s]*)):([0-9]{1,5})/?")
_MAX_PORT = 65535


class SocketAddress(NamedTuple):
    """The address of a socket: its family, and the argument of `bind` and `connect`."""

    family: int
    name: Any

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect to it."""
        return is_loopback_host(self.name[0])

    @property
    def is_unspecified(self) -> bool:
        """Whether it means all addresses of the machine."""
        return ipaddress.ip_address(self.name[0].partition("%")[0]).is_unspecified

    def create_socket(self, name: str) -> socket.socket:
        """Create a socket of this family. Raises `ResourceError`, with `name`, if no descriptors are left."""
        try:
            return socket.socket(self.family, socket.SOCK_STREAM)
        except OSError as error:
            raise translate_os_error(error, f"{name}: {error.strerror}") from error


def is_loopback_host(host: str) -> bool:
    """Whether a numeric address is one of the loopback network."""
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback


def is_host_and_port(address: object) -> bool:
    """Whether text has the form of an address. Such a path of a file would be a mistake."""
    return isinstance(address, str) and _ADDRESS.fullmatch(address) is not None


def parse_address(address: object, scheme: str = "tcp") -> tuple[str, int]:
    """Return the host and port. Raises `InvalidArgumentError` for other text."""
    match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    host = (match[1] or match[2]) if match is not None else None
    if match is None or not host or not host.isascii() or not host.isprintable() or int(match[3]) > _MAX_PORT:
        raise InvalidArgumentError(
            f"{scheme} address {address!r}: expected //HOST:PORT, with an IPv6 address in brackets"
        )
    return host, int(match[3])


def format_address(host: str, port: int) -> str:
    """Return the text of an address, as in URIs."""
    return f"//[{host}]:{port}" if ":" in host else f"//{host}:{port}"


def resolve_host(host: str, port: int) -> list[SocketAddress]:
    """Return the socket addresses of a host, the preferred one first. Blocks for a name that is not local.

    Raises `ConnectionLostError` if it has none, `ResourceError` if no descriptors are left.
    """
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a valid name"
        raise ConnectionLostError(f"tcp {format_address(host, port)}: no address of this host: {reason}") from error
    except OSError as error:  # of reading the system's configuration
        raise translate_os_error(error, f"tcp {format_address(host, port)}: {error.strerror}") from error
    return [SocketAddress(family, name) for family, _, _, _, name in infos]


def loopback_scope(host: str, port: int) -> str | None:
    """Return the network's scope if the host is this one, by a loopback address; None otherwise. As `resolve_host`."""
    return network_scope() if all(address.is_loopback for address in resolve_host(host, port)) else None
