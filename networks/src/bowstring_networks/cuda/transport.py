"""The transport `cuda+unix`: URIs such as `cuda+unix:@bowstring-…?want_data=1&free_data=2&remote_handle=…`.

Data sets stay on the GPU; a client maps them by CUDA IPC, which works between processes of one machine. So messages use
a unix socket, with the checks of its transport: only processes of the same user connect.

CUDA maps memory writable. A client can therefore change what others read, and a server what its clients read while they
read it. Both ends have to allow it with `CudaOptions.shares_memory`. The extra `cuda` is needed, and a GPU.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar

from bowstring.display.objects import repr_options
from bowstring.errors import ConnectionLostError, InvalidArgumentError
from bowstring.transports.base import (
    BOTH_DIRECTIONS,
    DEFAULT_OPTIONS,
    RECEIVE,
    Channel,
    DirectionEnded,
    Event,
    Transport,
    TransportOptions,
)
from bowstring.transports.sockets.unix import UnixChannel, UnixListener, unix_address_scope
from bowstring_networks.cuda.memory import CudaExporter, RegisteredCudaMemory, RemoteCudaMemory
from bowstring_networks.registered_memory import DisconnectedPeer

# What a peer has sent is read only to see the end after it; this much at a time does not block the caller.
_DISCARDED_BYTES, _MAX_DISCARDS = 1 << 16, 64


@dataclass(frozen=True, slots=True)
class CudaOptions:
    """How this process uses CUDA."""

    shares_memory: bool = False
    """Whether servers export memory, and clients map it. Only for peers that are trusted: see above."""
    device: int = 0
    """The number of the device whose memory a server exports."""
    registered_bytes: int = 1 << 28
    """The size of the memory that a listener allocates on the device. What does not fit is sent as bytes."""

    __repr__ = repr_options


class CudaChannel(UnixChannel):
    """One end of a connection. The server's end frees exported memory when its peer can't read it any more."""

    exporter: CudaExporter | None = None

    def __init__(self, connection: socket.socket, options: TransportOptions = DEFAULT_OPTIONS) -> None:
        super().__init__(connection, options)
        self._has_peer_left = False

    def progress(self, directions: int = BOTH_DIRECTIONS) -> list[Event]:
        events = super().progress(directions)
        for event in events:
            if isinstance(event, DirectionEnded) and event.directions & RECEIVE:
                self._has_peer_left = isinstance(event.error, ConnectionLostError)
        return events

    def close(self) -> None:
        """As `Channel.close`. Memory that a connected peer may still read is kept until it disconnects."""
        exporter, self.exporter = self.exporter, None
        if exporter is not None:
            try:
                peer = None if self._has_peer_left else DisconnectedUnixPeer(self._socket.dup())
            except OSError:  # no descriptor is left for waiting: the blocks stay until the listener is freed
                exporter = None
        super().close()
        if exporter is not None and not exporter.close(peer) and peer is not None:
            peer.close_connection()


class DisconnectedUnixPeer(DisconnectedPeer):
    """A `DisconnectedPeer` at the other end of a unix socket, which is open for receiving only.

    What it sends is discarded. The kernel reports the end when it closes its last descriptor of the socket.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.setblocking(False)
        with suppress(OSError):  # it has left already
            connection.shutdown(socket.SHUT_WR)

    def has_left(self) -> bool:
        try:
            for _ in range(_MAX_DISCARDS):
                if not self._connection.recv(_DISCARDED_BYTES):
                    return True
        except BlockingIOError:
            return False
        except OSError:
            return True
        return False

    def close_connection(self) -> None:
        self._connection.close()


class CudaListener(UnixListener):
    """Listens at an address, and allocates the memory that its channels export."""

    def __init__(self, address: str | None, options: TransportOptions, settings: CudaOptions) -> None:
        # First, because clients can connect as soon as the socket listens.
        registered_memory = RegisteredCudaMemory(settings.device, settings.registered_bytes)
        super().__init__(address, options=options)
        self._registered_memory: RegisteredCudaMemory | None = registered_memory
        self.remote_handle = registered_memory.handle

    def close(self) -> None:
        """As `Listener.close`; channels that were accepted keep the exported memory."""
        super().close()
        registered_memory, self._registered_memory = self._registered_memory, None
        if registered_memory is not None:
            registered_memory.close()

    def _create_channel(self, connection: socket.socket) -> Channel:
        channel = CudaChannel.from_socket(connection, self.options)
        assert isinstance(channel, CudaChannel)
        assert self._registered_memory is not None
        channel.exporter = CudaExporter(self._registered_memory)
        return channel


class CudaTransport(Transport):
    """Connections between processes of this machine and user that share memory of a GPU."""

    scheme: ClassVar[str] = "cuda+unix"
    is_local: ClassVar[bool] = True
    distance: ClassVar[float] = 20
    identifies_users: ClassVar[bool] = True

    def __init__(self, settings: CudaOptions | None = None) -> None:
        self.settings = settings or CudaOptions()

    def configure(self, settings: CudaOptions) -> None:
        """Change the options of this process, for later connections and listeners."""
        self.settings = settings

    def listen(self, address: str | None = None, options: TransportOptions = DEFAULT_OPTIONS) -> CudaListener:
        """As `Transport.listen`; the default is a new abstract address.

        Raises `InvalidArgumentError` unless `CudaOptions.shares_memory` is set, and errors of `cuda.driver`.
        """
        return CudaListener(address, _refuse_regions(options), self._get_checked_settings())

    def dial(self, address: str, options: TransportOptions = DEFAULT_OPTIONS) -> UnixChannel:
        """As `Transport.dial`. Raises `InvalidArgumentError` unless `CudaOptions.shares_memory` is set."""
        self._get_checked_settings()
        return CudaChannel.dial(address, _refuse_regions(options))

    def open_remote_memory(self, channel: Channel, remote_handle: bytes | None) -> RemoteCudaMemory | None:  # noqa: ARG002
        """As `Transport.open_remote_memory`. Raises errors of `cuda.driver`."""
        return None if remote_handle is None else RemoteCudaMemory(remote_handle, self._get_checked_settings().device)

    def address_scope(self, address: str) -> str | None:
        """As `Transport.address_scope`; the scope of the unix socket."""
        return unix_address_scope(address)

    def _get_checked_settings(self) -> CudaOptions:
        if not self.settings.shares_memory:
            raise InvalidArgumentError(
                "cuda+unix: CUDA maps memory writable, so peers have to be trusted: allow it with "
                "CUDA.configure(CudaOptions(shares_memory=True)) of bowstring_networks.cuda"
            )
        return self.settings


def _refuse_regions(options: TransportOptions) -> TransportOptions:
    return replace(options, max_regions=0)


CUDA = CudaTransport()
