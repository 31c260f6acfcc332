"""The TCP transport: frames over TCP, plain (`tcp`) or with TLS (`tcp+tls`); bodies are sent as bytes.

A plain endpoint listens only at loopback addresses, where every user of the machine can connect to it. Other addresses
need TLS, with client certificates to authenticate clients, or the option `allow_other_hosts`.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from bowstring.errors import ConnectionLostError, InvalidArgumentError
from bowstring.memory.closable import call_on_error
from bowstring.transports.address_scope import network_scope
from bowstring.transports.base import (
    DEFAULT_OPTIONS,
    Channel,
    RemoteMemory,
    Transport,
    TransportOptions,
)
from bowstring.transports.sockets.stream_listener import StreamListener
from bowstring.transports.sockets.tcp_address import format_address, loopback_scope, parse_address, resolve_host
from bowstring.transports.sockets.tcp_channel import TcpChannel, TlsChannel
from bowstring.transports.sockets.tcp_connector import TcpConnector
from bowstring.transports.tls import TlsOptions

if TYPE_CHECKING:
    import ssl

_DEFAULT_ADDRESS = "//127.0.0.1:0"


class TcpListener(StreamListener):
    """Listens at an address of a host; port 0 chooses one. All addresses of the machine: `0.0.0.0` or `[::]`."""

    def __init__(self, address: str, options: TransportOptions, scheme: str, context: ssl.SSLContext | None) -> None:
        host, port = parse_address(address)
        socket_address = resolve_host(host, port)[0]
        if context is None and not socket_address.is_loopback and not options.allow_other_hosts:
            raise InvalidArgumentError(
                f"tcp {address!r}: {socket_address.name[0]} is not a loopback address: "
                "use tcp+tls there, or signed tickets"
            )
        name = f"{scheme} {address!r}"
        super().__init__(socket_address.create_socket(name), address, options, name)
        self._scheme = scheme
        self._context = context
        # Without it, a server could not restart at its port while connections of the last one end.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listen(socket_address.name)
        host = options.advertised_host or (socket.gethostname() if socket_address.is_unspecified else host)
        self.address = format_address(host, self._socket.getsockname()[1])
        self.is_local = socket_address.is_loopback
        self.address_scope = network_scope() if self.is_local else None

    def _create_channel(self, connection: socket.socket) -> Channel:
        channel: TcpChannel
        try:
            address = format_address(*connection.getpeername()[:2])
        except OSError as error:
            connection.close()
            raise ConnectionLostError(f"{self._scheme}: the peer disconnected", error) from error
        if self._context is None:
            channel = TcpChannel(connection, address, self.options)
        else:
            channel = TlsChannel(connection, address, self.options, self._context, None)
        channel.traits = replace(channel.traits, peer_address=address)
        with call_on_error(channel.close):
            try:
                channel.configure_socket()
                if isinstance(channel, TlsChannel):
                    channel.start_server_handshake()
            except OSError as error:
                raise ConnectionLostError(f"{self._scheme} {address}: the peer disconnected", error) from error
        return channel


class TcpTransport(Transport):
    """Connections over TCP, without encryption.

    The options `keep_descriptors` and `allow_other_users` are an `InvalidArgumentError`.
    """

    scheme: ClassVar[str] = "tcp"
    distance: ClassVar[float] = 50
    unsupported_options: ClassVar[tuple[str, ...]] = ("keep_descriptors", "allow_other_users")

    def listen(self, address: str | None = None, options: TransportOptions = DEFAULT_OPTIONS) -> TcpListener:
        """As `Transport.listen`; the default is an unused port at 127.0.0.1.

        Raises `InvalidArgumentError` without a certificate for TLS.
        """
        self.check_options(options)
        context = (options.tls or TlsOptions()).create_server_context() if self.supports_tls else None
        return TcpListener(address or _DEFAULT_ADDRESS, options, self.scheme, context)

    def dial(self, address: str, options: TransportOptions = DEFAULT_OPTIONS) -> TcpChannel:
        """As `Transport.dial`. Blocks while the name of a remote host is resolved.

        An end without a valid certificate for TLS is a `DirectionEnded` event.
        """
        self.check_options(options)
        tls, (host, port) = options.tls or TlsOptions(), parse_address(address)
        context = tls.create_client_context() if self.supports_tls else None
        connector = TcpConnector(resolve_host(host, port), f"{self.scheme} {address}")
        channel = (
            TcpChannel(connector.socket, address, options)
            if context is None
            else TlsChannel(connector.socket, address, options, context, tls.server_name or host)
        )
        channel.start_connecting(connector)
        return channel

    def open_remote_memory(self, channel: Channel, remote_handle: bytes | None) -> RemoteMemory | None:  # noqa: ARG002
        """As `Transport.open_remote_memory`: there is none."""
        return None

    def address_scope(self, address: str) -> str | None:
        """As `Transport.address_scope`: the network namespace of a loopback address. Blocks as `dial`."""
        return loopback_scope(*parse_address(address))


class TlsTransport(TcpTransport):
    """Connections over TCP with TLS, according to `TransportOptions.tls`."""

    scheme: ClassVar[str] = "tcp+tls"
    distance: ClassVar[float] = 60
    supports_tls: ClassVar[bool] = True


TCP = TcpTransport()
TLS = TlsTransport()
