"""Memory over UCX («URI Specification», `remote_handle`: a remote key).

A server copies exported regions into one block of registered memory, which libucp allocates so that processes of the
same machine can map it. Addresses belong to the server's process. The parameter `remote_handle` of its URIs is the
packed key of the registered memory, followed by our own trailer with its address and size, which libucp does not read.

A client maps the registered memory read-only (`ucp_rkey_ptr`), or fetches buffers (RMA get) if it can't be mapped.
Without the trailer, as in URIs of other implementations, the bounds of the memory are not known: buffers are always
fetched, and a wrong address is the server's fault.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from bowstring.errors import ConnectionLostError, ProtocolError, ResourceError
from bowstring.memory.parallel_copy import copy_bytes
from bowstring.transports.base import UNKNOWN_BYTES, Extent, Fetch
from bowstring_networks.registered_memory import RegisteredHostMemory, RemoteRegisteredMemory
from bowstring_networks.ucx.channel import UcxChannel
from bowstring_networks.ucx.context import Context
from bowstring_networks.ucx.ucp import RemoteKey

_TRAILER = struct.Struct("<QQ8s")
_MAGIC = b"bowstrin"


class RegisteredUcxMemory(RegisteredHostMemory):
    """Memory that libucp allocates, and frees with its last reference: a listener or channel that is not closed."""

    is_mapped_by_clients: ClassVar[bool] = True

    def __init__(self, context: Context, size_bytes: int) -> None:
        self._memory = context.allocate(size_bytes)
        super().__init__(self._memory.view, self._memory.address, "ucx")
        self.handle = self._memory.pack_key() + _TRAILER.pack(self.address, size_bytes, _MAGIC)
        """The parameter `remote_handle`."""


class RemoteUcxMemory(RemoteRegisteredMemory):
    """The registered memory of a server, as a client reads it."""

    __slots__ = ("_channel", "_key", "_size_bytes", "_view")

    outlives_connection: ClassVar[bool] = False  # the server fills the memory again

    def __init__(self, channel: UcxChannel, handle: bytes) -> None:
        address, size_bytes, packed_key = 0, UNKNOWN_BYTES, handle
        if len(handle) > _TRAILER.size and handle.endswith(_MAGIC):
            address, size_bytes, _ = _TRAILER.unpack(handle[-_TRAILER.size :])
            packed_key = handle[: -_TRAILER.size]
        if not packed_key or address + size_bytes > UNKNOWN_BYTES:
            raise ProtocolError("ucx: the parameter remote_handle is malformed")
        super().__init__(address, min(size_bytes, UNKNOWN_BYTES - 1))
        self._channel = channel
        self._size_bytes = size_bytes
        self._key: RemoteKey | bytes = packed_key
        self._view: memoryview | None = None

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def view_extent(self, extent: Extent) -> memoryview | None:
        """As `RemoteMemory.view_extent`: a read-only mapping if the server is local and the bounds are known."""
        if self._view is None and self.size_bytes != UNKNOWN_BYTES:
            self._view = self._unpack_key().map(extent.start, extent.size_bytes)
        return self._view

    @property
    def can_copy_locally(self) -> bool:
        """As `RemoteMemory.can_copy_locally`: if the server is on this machine."""
        return self._channel.is_connected and self.view_extent(self._extent) is not None

    def _start_copy(self, address: int, buffer: memoryview) -> Fetch | None:
        view = self.view_extent(self._extent)
        if view is None:
            return self._unpack_key().fetch(address, buffer)
        # libucp may prefer TCP to shared memory for a long RMA operation.
        start = address - self._extent.start
        copy_bytes(view[start : start + buffer.nbytes], buffer)
        return None

    def close(self) -> None:
        if isinstance(self._key, RemoteKey):
            self._key.close()

    def _unpack_key(self) -> RemoteKey:
        # Not in the constructor: libucp unpacks a key for the transports of a connection, which has to exist.
        if isinstance(self._key, bytes):
            try:
                self._key = RemoteKey(self._channel.endpoint, self._key)
            except ResourceError as error:
                # libucp attaches the segment, which may have ended with its process before libucp reports the loss.
                raise ConnectionLostError(f"ucx: the server's memory can't be attached: {error}") from error
        return self._key
