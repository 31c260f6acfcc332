"""The transport `fabric`: URIs such as `fabric://127.0.0.1:31337/tcp?want_data=1`, with the name of a provider.

By default it listens at a port of 127.0.0.1. It needs the system library libfabric. libfabric neither
authenticates nor encrypts: use it among processes and hosts that trust each other.

By default bodies are sent as bytes. `FabricOptions.shares_memory` lets a server export memory, which clients fetch.
"""

from __future__ import annotations

import os
import re
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from typing import ClassVar

from bowstring.display.objects import repr_options
from bowstring.errors import InvalidArgumentError
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
from bowstring.transports.sockets.tcp_address import (
    SocketAddress,
    format_address,
    loopback_scope,
    parse_address,
    resolve_host,
)
from bowstring_networks.fabric import libfabric
from bowstring_networks.fabric.channel import FabricChannel
from bowstring_networks.fabric.control_socket import ControlSocket
from bowstring_networks.fabric.endpoint import Domain, DomainPool, Endpoint, reject_faulty_provider
from bowstring_networks.fabric.memory import RegisteredFabricMemory, RemoteFabricMemory

_DEFAULT_ADDRESS = "//127.0.0.1:0"
_ADDRESS = re.compile(r"((?://)?[^/]+)/?([A-Za-z0-9_]+(?:;[A-Za-z0-9_]+)*)?")


@dataclass(frozen=True, slots=True)
class FabricOptions:
    """How this process uses libfabric."""

    provider: str = "tcp"
    """The provider for addresses without one, as `fi_info` lists them."""
    library: str | os.PathLike[str] | None = None
    """The path of libfabric; None for the system's."""
    shares_memory: bool = False
    """Whether servers export memory: every client can then read all that a listener exports. Only for trusted ones."""
    registered_bytes: int = 1 << 30
    """The size of the memory that a listener exports; pages are allocated when they are used. What does not fit is
    sent as bytes.
    """

    __repr__ = repr_options


class FabricListener(StreamListener):
    """Listens at a TCP port. Each accepted channel has its own endpoint of libfabric."""

    def __init__(self, transport: FabricTransport, address: str, options: TransportOptions) -> None:
        host, port, self._provider = parse_fabric_address(address, transport.settings.provider)
        socket_address = resolve_host(host, port)[0]
        name = f"fabric {address!r}"
        self._transport = transport
        self._registered_memory: RegisteredFabricMemory | None = None
        # In use while the endpoint is open; an error if the provider is not available.
        self._domain: Domain | None = transport.acquire_domain(self._provider, socket_address.name[0])
        with ExitStack() as on_error:
            on_error.callback(self._release_resources)
            super().__init__(socket_address.create_socket(name), address, options, name)
            on_error.callback(self._socket.close)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listen(socket_address.name)
            if transport.settings.shares_memory:
                self._register_memory(socket_address)
            on_error.pop_all()
        host = socket.gethostname() if socket_address.is_unspecified else host
        self.address = f"{format_address(host, self._socket.getsockname()[1])}/{self._provider}"
        self.is_local = socket_address.is_loopback
        self.address_scope = network_scope() if self.is_local else None

    def close(self) -> None:
        super().close()
        self._release_resources()

    def _register_memory(self, socket_address: SocketAddress) -> None:
        """Create the registered memory, which is registered with one interface."""
        if socket_address.is_unspecified:
            raise InvalidArgumentError(
                f"{self._name}: expected the address of one interface, because shares_memory is set"
            )
        assert self._domain is not None
        self._registered_memory = RegisteredFabricMemory(self._domain, self._transport.settings.registered_bytes)
        self.remote_handle = self._registered_memory.handle

    def _release_resources(self) -> None:
        registered_memory, self._registered_memory = self._registered_memory, None
        if registered_memory is not None:
            registered_memory.release()
        domain, self._domain = self._domain, None
        if domain is not None:
            self._transport.domains.release(domain)

    def _create_channel(self, connection: socket.socket) -> Channel:
        with call_on_error(connection.close):
            control = ControlSocket(connection, (), self._name)
            channel = self._transport.create_channel(control, self._provider, self.options)
        if self._registered_memory is not None:
            # The channel's own use: the listener may be closed before it.
            self._registered_memory.acquire()
            channel.registered_memory = self._registered_memory
        return channel


class FabricTransport(Transport):
    """Connections over libfabric.

    The options `keep_descriptors`, `allow_other_users` and `tls` are an `InvalidArgumentError`.
    """

    scheme: ClassVar[str] = "fabric"
    distance: ClassVar[float] = 40
    unsupported_options: ClassVar[tuple[str, ...]] = ("keep_descriptors", "allow_other_users", "tls")

    def __init__(self, settings: FabricOptions | None = None) -> None:
        self.settings = settings or FabricOptions()
        self.domains = DomainPool()

    def configure(self, settings: FabricOptions) -> None:
        """Change the options of this process. Raises `InvalidArgumentError` if there are connections or listeners."""
        if self.domains.has_users:
            raise InvalidArgumentError("fabric: options can't be changed while there are connections")
        self.settings = settings

    def acquire_domain(self, provider: str, host: str) -> Domain:
        """Return the domain of a provider at a local IP address; `domains.release` follows. Raises as `Domain`."""
        return self.domains.acquire(provider, host.partition("%")[0], self.settings.library)

    def create_channel(self, control: ControlSocket, provider: str, options: TransportOptions) -> FabricChannel:
        """Create a channel over a TCP connection. Its endpoint is at the same interface."""

        def open_endpoint(host: str) -> Endpoint:
            domain = self.acquire_domain(provider, host)
            with call_on_error(self.domains.release, domain):
                return Endpoint(domain)

        def close_endpoint(endpoint: Endpoint) -> None:
            endpoint.close()
            self.domains.release(endpoint.domain)

        return FabricChannel(control, open_endpoint, close_endpoint, options)

    def listen(self, address: str | None = None, options: TransportOptions = DEFAULT_OPTIONS) -> FabricListener:
        """As `Transport.listen`, at `//host:port/provider`; by default at a free port of 127.0.0.1.

        Raises `UnmetRequirementError` without libfabric, `UnsupportedError` if the provider is not available.
        """
        self.check_options(options)
        return FabricListener(self, address or _DEFAULT_ADDRESS, options)

    def dial(self, address: str, options: TransportOptions = DEFAULT_OPTIONS) -> FabricChannel:
        """As `Transport.dial`. Raises as `listen`; blocks while the name of a remote host is resolved."""
        self.check_options(options)
        host, port, provider = parse_fabric_address(address, self.settings.provider)
        reject_faulty_provider(provider)
        libfabric.load(self.settings.library)
        control = ControlSocket(None, resolve_host(host, port), f"fabric {address!r}")
        with call_on_error(control.close):
            return self.create_channel(control, provider, options)

    def open_remote_memory(self, channel: Channel, remote_handle: bytes | None) -> RemoteMemory | None:
        """As `Transport.open_remote_memory`: none without a key in the URI."""
        assert isinstance(channel, FabricChannel)
        return None if remote_handle is None else RemoteFabricMemory(channel, remote_handle)

    def address_scope(self, address: str) -> str | None:
        """As `Transport.address_scope`: the network namespace of a loopback address."""
        host, port, _ = parse_fabric_address(address, self.settings.provider)
        return loopback_scope(host, port)


def parse_fabric_address(address: str, default_provider: str) -> tuple[str, int, str]:
    """Return the host, port and provider of `//host:port/provider` or `//host:port`. Raises `InvalidArgumentError`.

    >>> parse_fabric_address("//[::1]:31337/tcp;ofi_rxm", "net")
    ('::1', 31337, 'tcp;ofi_rxm')
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise InvalidArgumentError(f"fabric {address!r}: expected an address such as //127.0.0.1:31337/tcp")
    return *parse_address(match[1], "fabric"), match[2] or default_provider


FABRIC = FabricTransport()
