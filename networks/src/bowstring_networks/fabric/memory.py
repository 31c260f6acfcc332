"""Memory over libfabric («URI Specification», `remote_handle`: the key of registered memory).

A server copies exported regions into one block of registered memory, from which clients fetch buffers (RMA read). The
parameter `remote_handle` of its URIs is the address, size and key of the registered memory, three 64-bit integers,
little-endian. Addresses are offsets in the registered memory, or addresses of the server's process if the provider
needs them. Providers check the key and the bounds of each fetch.
"""

from __future__ import annotations

import mmap
import secrets
import struct
import threading

from bowstring.errors import InvalidArgumentError, ProtocolError
from bowstring.memory.buffer import Memory
from bowstring.transports.base import Extent
from bowstring_networks.fabric.channel import FabricChannel, FabricFetch
from bowstring_networks.fabric.endpoint import Domain, MemoryRegistration
from bowstring_networks.registered_memory import RegisteredHostMemory, RemoteRegisteredMemory

_HANDLE = struct.Struct("<QQQ")


class RegisteredFabricMemory(RegisteredHostMemory):
    """Memory that peers can read until each `acquire`, and its creation, has a `release`. Thread-safe."""

    def __init__(self, domain: Domain, size_bytes: int) -> None:
        if size_bytes <= 0:
            raise InvalidArgumentError(f"fabric: registered_bytes: expected at least 1, found {size_bytes}")
        mapping = mmap.mmap(-1, size_bytes)
        # The URI has the key for clients; it must be hard to guess.
        self._registration = MemoryRegistration(domain, Memory(mapping), secrets.randbits(8 * domain.max_key_bytes))
        super().__init__(memoryview(mapping), self._registration.base_address, "fabric")
        self.handle = _HANDLE.pack(self.address, size_bytes, self._registration.key)
        """The parameter `remote_handle`."""
        # Channels outlive their listener: each keeps the memory that its peer may fetch.
        self._num_users = 1
        self._users_lock = threading.Lock()

    def acquire(self) -> None:
        """Keep the registered memory open until the matching `release`."""
        with self._users_lock:
            self._num_users += 1

    def release(self) -> None:
        """Undo one `acquire`; the last one ends the peers' access."""
        with self._users_lock:
            self._num_users -= 1
            if not self._num_users:
                self._registration.close()


class RemoteFabricMemory(RemoteRegisteredMemory):
    """The registered memory of a server, as a client reads it. Raises `ProtocolError` for a malformed handle."""

    __slots__ = ("_channel", "_key")

    def __init__(self, channel: FabricChannel, handle: bytes) -> None:
        if len(handle) != _HANDLE.size:
            raise ProtocolError(f"fabric: remote_handle: expected {_HANDLE.size} bytes, found {len(handle)}")
        address, size_bytes, self._key = _HANDLE.unpack(handle)
        if address + size_bytes > 1 << 64:
            raise ProtocolError(f"fabric: remote_handle: {size_bytes} bytes at 0x{address:016x} are not an extent")
        self._channel = channel
        super().__init__(address, size_bytes)

    def view_extent(self, extent: Extent) -> None:  # noqa: ARG002 - of any extent
        """As `RemoteMemory.view_extent`: the memory has to be fetched."""
        return

    def _start_copy(self, address: int, buffer: memoryview) -> FabricFetch:
        return self._channel.fetch(Memory(buffer), address, self._key)

    def close(self) -> None:
        """As `RemoteMemory.close`."""
