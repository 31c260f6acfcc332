"""The unix transport: frames over a unix socket, and memory as passed descriptors.

Addresses that begin with "@", the default, are abstract: they exist in the kernel only as long as their process. Any
user of the machine can connect to them or bind the name first, so both sides check the peer's user (SO_PEERCRED) before
anything else. Other addresses are paths, with the file system's permissions; a killed server leaves the socket's file,
which the next listener at the path replaces.
"""

from __future__ import annotations

from typing import ClassVar

from bowstring.transports.base import (
    DEFAULT_OPTIONS,
    Channel,
    MemoryExporter,
    Transport,
    TransportOptions,
)
from bowstring.transports.regions import RegionExporter, RemoteRegionTable
from bowstring.transports.sockets.unix_channel import UnixChannel
from bowstring.transports.sockets.unix_listener import UnixListener
from bowstring.transports.sockets.unix_socket import unix_address_scope


class UnixTransport(Transport):
    """Connections between processes of this machine and user."""

    scheme: ClassVar[str] = "unix"
    is_local: ClassVar[bool] = True
    distance: ClassVar[float] = 10
    identifies_users: ClassVar[bool] = True

    def listen(self, address: str | None = None, options: TransportOptions = DEFAULT_OPTIONS) -> UnixListener:
        """As `Transport.listen`; the default is a new abstract address."""
        return UnixListener(address, options=options)

    def dial(self, address: str, options: TransportOptions = DEFAULT_OPTIONS) -> UnixChannel:
        return UnixChannel.dial(address, options)

    def open_exporter(self, channel: Channel) -> MemoryExporter:
        """As `Transport.open_exporter`: passes descriptors."""
        assert isinstance(channel, UnixChannel)
        return RegionExporter(channel)

    def open_remote_memory(self, channel: Channel, remote_handle: bytes | None) -> RemoteRegionTable:  # noqa: ARG002 - not needed
        """As `Transport.open_remote_memory`: the received regions."""
        assert isinstance(channel, UnixChannel)
        return channel.memory

    def address_scope(self, address: str) -> str | None:
        """As `Transport.address_scope`: the network namespace of an abstract address, the directory of a path."""
        return unix_address_scope(address)


UNIX = UnixTransport()
