"""Memory of GPUs («URI Specification», `remote_handle` with CUDA IPC: a memory handle; addresses are offsets).

A server copies exported regions, on the device, into one allocation per listener: a URI has one handle, and a handle
gives access to a whole allocation, which would be the memory pool of PyTorch or CuPy. Memory from
`cudaMallocAsync` has no such handle at all. The parameter `remote_handle` is the handle (64 bytes), followed by our own
trailer, the allocation's size and the device's UUID. Without it, as in URIs of other implementations, the driver
reports the size, and the device is `CudaOptions.device`.

The server waits for the device before it sends addresses, so a client's work needs no event. The client waits for its
own work before it frees them.
"""

from __future__ import annotations

import struct
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

from bowstring.errors import ClosedError, InvalidArgumentError, ProtocolError, ResourceError
from bowstring.memory.device import DeviceMemory, DeviceRegion, device_pointer
from bowstring.memory.region import Region
from bowstring.transports.base import Extent, Fetch
from bowstring_networks.cuda import driver
from bowstring_networks.registered_memory import (
    RegisteredMemory,
    RegisteredMemoryExporter,
    RemoteRegisteredMemory,
)

_TRAILER = struct.Struct("<Q16s8s")
_MAGIC = b"bowstrin"
_MAX_BYTES = 1 << 48  # more than any device has

_allocations_lock = threading.Lock()
_allocations: weakref.WeakValueDictionary[bytes, driver.Allocation] = weakref.WeakValueDictionary()
"""The allocations that this process has exported or mapped, by IPC handle: a process can't open its own, and maps
others once."""


@dataclass(frozen=True, slots=True)
class CudaRemoteHandle:
    """The parameter `remote_handle`: an IPC handle, and the size and device of its allocation if they are known."""

    ipc_handle: bytes
    size_bytes: int | None = None
    uuid: bytes | None = None

    def encode(self) -> bytes:
        """Return the bytes for a URI."""
        if self.size_bytes is None or self.uuid is None:
            return self.ipc_handle
        return self.ipc_handle + _TRAILER.pack(self.size_bytes, self.uuid, _MAGIC)

    @classmethod
    def decode(cls, handle: bytes) -> Self:
        """Decode a handle. Raises `ProtocolError` if it is malformed."""
        trailer, expected = handle[driver.HANDLE_BYTES :], driver.HANDLE_BYTES + _TRAILER.size
        if len(handle) == driver.HANDLE_BYTES:
            return cls(handle)
        if len(handle) != expected or not trailer.endswith(_MAGIC):
            raise ProtocolError(
                f"cuda: remote_handle: expected {driver.HANDLE_BYTES} bytes, or {expected} that end with "
                f"{_MAGIC.decode()}, found {len(handle)}"
            )
        size_bytes, uuid, _ = _TRAILER.unpack(trailer)
        if not 0 < size_bytes <= _MAX_BYTES:
            raise ProtocolError(f"cuda: remote_handle: expected a size from 1 to {_MAX_BYTES}, found {size_bytes}")
        return cls(handle[: driver.HANDLE_BYTES], size_bytes, uuid)


class RegisteredCudaMemory(RegisteredMemory):
    """The allocation of a listener. Freed with its last reference: a listener or channel that is not closed."""

    is_mapped_by_clients: ClassVar[bool] = True

    def __init__(self, device: int, size_bytes: int) -> None:
        """Allocate. Raises `InvalidArgumentError` for wrong arguments, and errors of `cuda.driver`."""
        if not 0 < size_bytes <= _MAX_BYTES:
            raise InvalidArgumentError(f"cuda: registered_bytes: expected 1 to {_MAX_BYTES}, found {size_bytes}")
        gpu = driver.get_gpu(device)
        self.allocation = gpu.allocate(size_bytes)
        super().__init__(self.allocation.size_bytes, 0, "cuda")
        ipc_handle = gpu.export_ipc_handle(self.allocation)
        self.handle = CudaRemoteHandle(ipc_handle, self.allocation.size_bytes, gpu.uuid).encode()
        """The parameter `remote_handle`."""
        with _allocations_lock:
            _allocations[ipc_handle] = self.allocation

    def _write_region(self, offset_bytes: int, region: Region) -> None:
        gpu, target = self.allocation.gpu, self.allocation.pointer + offset_bytes
        if not isinstance(region, DeviceRegion):
            gpu.write(target, region.view(0, region.size_bytes))
            return
        if region.device != gpu.device:
            raise ResourceError(f"cuda: {region!r} can't be exported by a server for {gpu.device} (CudaOptions.device)")
        gpu.synchronize()  # the streams that write the buffers
        for start, buffer in region.buffers:
            if buffer.size:
                gpu.copy(target + start, device_pointer(buffer), buffer.size)
        gpu.synchronize()  # the streams of another process do not wait for these copies


class CudaExporter(RegisteredMemoryExporter):
    """Exports regions of a device to the peer of one channel."""

    __slots__ = ()

    def can_export(self, region: Region) -> bool:
        """As `MemoryExporter.can_export`: data sets in memory of the CPU stay there, and are sent as bytes."""
        return region.is_on_device

    def read(self, region: Region, offset_bytes: int, size_bytes: int) -> bytearray:
        """As `MemoryExporter.read`: a copy, with zeros between the buffers of the region."""
        assert isinstance(region, DeviceRegion)
        copy, gpu = bytearray(size_bytes), driver.get_gpu(region.device.id)
        gpu.synchronize()  # the streams that write the buffers
        for start, buffer in region.buffers:
            position = start - offset_bytes
            if 0 <= position < size_bytes and buffer.size:
                gpu.read(device_pointer(buffer), memoryview(copy)[position : position + buffer.size])
        return copy


class RemoteCudaMemory(RemoteRegisteredMemory):
    """The allocation of a server, as a client reads it."""

    __slots__ = ("_gpu", "_memory")

    outlives_connection: ClassVar[bool] = False  # the server fills the memory again

    def __init__(self, handle: bytes, device: int) -> None:
        """Map the allocation. Raises `ProtocolError` for a malformed handle, and errors of `cuda.driver`."""
        decoded = CudaRemoteHandle.decode(handle)
        allocation = _open_allocation(decoded, device)
        size_bytes = allocation.size_bytes if decoded.size_bytes is None else decoded.size_bytes
        if size_bytes > allocation.size_bytes:
            raise ProtocolError(
                f"cuda: remote_handle: {size_bytes} bytes of an allocation that has {allocation.size_bytes}"
            )
        super().__init__(0, size_bytes)
        self._gpu = allocation.gpu
        self._memory: DeviceMemory | None = allocation.as_memory(size_bytes)

    def view_extent(self, extent: Extent) -> DeviceMemory:  # noqa: ARG002 - there is only one
        """As `RemoteMemory.view_extent`: memory of the device, which consumers could write. Raises `ClosedError`."""
        if self._memory is None:
            raise ClosedError("cuda: the server's memory was closed")
        return self._memory

    def call_after_reads(self, call: Callable[[], None]) -> None:
        self._gpu.call_after_queued_work(call)

    def _start_copy(self, address: int, buffer: memoryview) -> Fetch | None:
        memory = self.view_extent(self._extent)
        memory.owner.gpu.read(memory.pointer + address, buffer)
        return None

    def close(self) -> None:
        """As `RemoteMemory.close`; the allocation is unmapped with the last view."""
        self._memory = None


def _open_allocation(handle: CudaRemoteHandle, device: int) -> driver.Allocation:
    with _allocations_lock:
        allocation = _allocations.get(handle.ipc_handle)
        if allocation is None:
            gpu = driver.get_gpu(device) if handle.uuid is None else driver.gpu_of_uuid(handle.uuid)
            allocation = _allocations[handle.ipc_handle] = gpu.open_ipc_handle(handle.ipc_handle)
        return allocation
