"""Memory over libfabric («URI Specification», `remote_handle`: the key of registered memory).

A server copies what it exports into one arena, from which clients fetch buffers (RMA read). The parameter
`remote_handle` of its URIs is the address, size and key of the arena, three 64-bit integers, little-endian. Addresses
are offsets in the arena, or those of the server's process if the provider needs them. Providers check the key and the
bounds of each fetch.
"""

from __future__ import annotations

import mmap
import secrets
import struct
import threading

import numpy as np

from bowstring.errors import BowstringError, ProtocolError, UsageError
from bowstring.memory.buffer import Memory
from bowstring.transports.arena import Arena
from bowstring.transports.base import Extent, Fetched, Located, Offsets, RemoteMemory
from bowstring.transports.fabric.channel import FabricChannel, Fetch
from bowstring.transports.fabric.endpoint import Domain, RegisteredMemory

_HANDLE = struct.Struct("<QQQ")


class FabricArena(Arena):
    """An arena that peers can read, until each `acquire`, and the one of its creation, has a `release`. Thread-safe."""

    def __init__(self, domain: Domain, size_bytes: int) -> None:
        if size_bytes <= 0:
            raise UsageError(f"fabric: arena_bytes: expected at least 1, found {size_bytes}")
        mapping = mmap.mmap(-1, size_bytes)
        # Clients learn the key from the URI; it must not be guessed.
        self._registration = RegisteredMemory(domain, Memory(mapping), secrets.randbits(8 * domain.max_key_bytes))
        super().__init__(memoryview(mapping), self._registration.base_address, "fabric")
        self.handle = _HANDLE.pack(self.address, size_bytes, self._registration.key)
        """The parameter `remote_handle`."""
        self._num_users = 1
        self._users_lock = threading.Lock()

    def acquire(self) -> None:
        """Keep the arena open until the matching `release`."""
        with self._users_lock:
            self._num_users += 1

    def release(self) -> None:
        """Undo one `acquire`; the last one ends the peers' access."""
        with self._users_lock:
            self._num_users -= 1
            if not self._num_users:
                self._registration.close()


class FabricMemory(RemoteMemory):
    """The arena of a server, as a client reads it. Raises `ProtocolError` for a malformed handle."""

    __slots__ = ("_channel", "_extent", "_fetches", "_key", "_next_token")

    def __init__(self, channel: FabricChannel, handle: bytes) -> None:
        if len(handle) != _HANDLE.size:
            raise ProtocolError(f"fabric: remote_handle: expected {_HANDLE.size} bytes, found {len(handle)}")
        address, size_bytes, self._key = _HANDLE.unpack(handle)
        if address + size_bytes > 1 << 64:
            raise ProtocolError(f"fabric: remote_handle: {size_bytes} bytes at 0x{address:016x} are not an extent")
        self._channel = channel
        self._extent = Extent(address, size_bytes, "the server's memory", None)
        self._fetches: dict[int, list[Fetch]] = {}
        self._next_token = 1

    def extent(self, address: int) -> Extent:
        """As `RemoteMemory.extent`: all of the memory."""
        extent = self._extent
        if not extent.start <= address <= extent.start + extent.size_bytes:
            raise ProtocolError(
                f"address 0x{address:016x} is not inside {extent.name}, which has {extent.size_bytes} bytes "
                f"at 0x{extent.start:016x}"
            )
        return extent

    @property
    def size_bytes(self) -> int:
        """As `RemoteMemory.size_bytes`."""
        return self._extent.size_bytes

    def view(self, extent: Extent) -> None:  # noqa: ARG002 - of any extent
        """As `RemoteMemory.view`: the memory has to be fetched."""
        return

    def fetch(self, located: Located, lengths: Offsets, destination: object) -> int:
        """As `RemoteMemory.fetch`: RMA reads."""
        fetches, end = [], 0
        addresses = (located.offsets + np.uint64(located.extent.start)).tolist()
        whole = memoryview(destination).cast("B")  # type: ignore[arg-type]
        for address, length in zip(addresses, lengths.tolist(), strict=True):
            if length:
                fetches.append(self._channel.fetch(Memory(whole[end : end + length]), address, self._key))
            end += length
        token = self._next_token
        self._next_token += 1
        self._fetches[token] = fetches
        return token

    def progress(self) -> list[Fetched]:
        """As `RemoteMemory.progress`; the channel's progress fetches."""
        fetched = []
        for token, fetches in list(self._fetches.items()):
            if all(fetch.is_complete for fetch in fetches):
                del self._fetches[token]
                errors: list[BowstringError | None] = [fetch.error for fetch in fetches if fetch.error]
                fetched.append(Fetched(token, errors[0] if errors else None))
        return fetched

    def close(self) -> None:
        """As `RemoteMemory.close`."""
