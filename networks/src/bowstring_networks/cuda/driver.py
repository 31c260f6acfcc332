"""Memory of NVIDIA GPUs, through the CUDA driver API of the package `cuda-bindings` (extra `cuda`).

Every call uses the primary context of a device, which the CUDA runtime, and so PyTorch, CuPy and cuDF, use as well. A
thread's own current context is restored after each call.

Errors: `MissingExtraError` if the package is not installed, `UnmetRequirementError` without a usable GPU,
`ResourceError` for others, with CUDA's name of the error.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from typing import Any

import numpy as np

from bowstring.errors import (
    InvalidArgumentError,
    ResourceError,
    UnmetRequirementError,
    require_package,
)
from bowstring.memory.device import CUDA, Device, DeviceMemory
from bowstring.memory.forks import process_token
from bowstring_networks.cuda.finalizer_thread import FinalizerThread

HANDLE_BYTES = 64
"""The size of an IPC handle (`CU_IPC_HANDLE_SIZE`)."""
ALLOCATION_BYTES = 2 << 20
"""Smaller allocations share a block with others, and an IPC handle exports the whole block."""

_NOT_INITIALIZED = 3  # CUDA_ERROR_NOT_INITIALIZED
_UNUSABLE = frozenset((_NOT_INITIALIZED, 4, 34, 46, 100, 802, 803, 804, 999))
"""CUresult: not (or no longer) initialized, stub library, devices unavailable, none, or none that fits the driver."""
_LAZY_ENABLE_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, the only flag that the driver accepts
_BLOCKING_EVENT = 3
"""`CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING`"""
_RELAXED_CAPTURE = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_FINALIZER_THREAD = FinalizerThread()


def _load_driver() -> Any:
    with require_package("cuda-bindings", "cuda", "bowstring-networks"):
        from cuda.bindings import driver
    return driver


def _call_driver(function: str, *arguments: Any) -> Any:
    """Call a function of the driver API. Return its value, a tuple if it has several, or None."""
    try:
        status, *values = getattr(_load_driver(), function)(*arguments)
    except RuntimeError as error:  # the driver is not installed, or too old for the function
        raise UnmetRequirementError(f"no usable CUDA device: {function}: {error}") from None
    if int(status) in _UNUSABLE:
        hint = "; a child that is forked while CUDA is in use can't use it: start it with spawn"
        is_forked = int(status) == _NOT_INITIALIZED  # `cuInit` was called before, in this process or its parent
        raise UnmetRequirementError(f"no usable CUDA device: {function}: {status.name}{hint if is_forked else ''}")
    if int(status):
        raise ResourceError(f"cuda: {function}: {status.name}")
    return values[0] if len(values) == 1 else tuple(values) or None


class Gpu:
    """A device, and its primary context, which is created on first use and kept until the process ends."""

    def __init__(self, ordinal: int) -> None:
        self.device = Device(CUDA, ordinal)
        self._handle = _call_driver("cuDeviceGet", ordinal)
        self.uuid = bytes(_call_driver("cuDeviceGetUuid", self._handle).bytes)
        self._context: Any = None
        self._lock = threading.Lock()
        self._process = process_token()

    def call_driver(self, function: str, *arguments: Any) -> Any:
        """As `_call_driver`, in the context of this device."""
        with self._current_context():
            return _call_driver(function, *arguments)

    @contextmanager
    def _current_context(self) -> Iterator[None]:
        if self._context is None:  # finalizers, which may run while a thread has the lock, find a context
            with self._lock:
                if self._context is None:
                    self._context = _call_driver("cuDevicePrimaryCtxRetain", self._handle)
        _call_driver("cuCtxPushCurrent", self._context)
        try:
            yield
        finally:
            _call_driver("cuCtxPopCurrent")

    def synchronize(self) -> None:
        """Wait until the device has finished all work in the primary context, of any library and stream."""
        self.call_driver("cuCtxSynchronize")

    def wait_for_queued_work(self) -> None:
        """As `synchronize`, by an event, if the driver is of CUDA 12.5 or later. For `FinalizerThread`.

        An event of the whole context includes streams that are being captured, which fails and ends their capture; see
        `pause_frees`. The relaxed mode permits the other calls during a capture.
        """
        with self._current_context():
            _call_driver("cuThreadExchangeStreamCaptureMode", _load_driver().CUstreamCaptureMode(_RELAXED_CAPTURE))
            event = _call_driver("cuEventCreate", _BLOCKING_EVENT)
            try:
                try:
                    _call_driver("cuCtxRecordEvent", self._context, event)
                except UnmetRequirementError:
                    _call_driver("cuCtxSynchronize")
                else:
                    _call_driver("cuEventSynchronize", event)
            finally:
                _call_driver("cuEventDestroy", event)

    def call_after_queued_work(self, call: Callable[[], None]) -> None:
        """Make a call in another thread when the work that is queued now is finished; for finalizers.

        Nothing is done in a forked child, which can't use CUDA.
        """
        if self._process is process_token():
            _FINALIZER_THREAD.add(self.wait_for_queued_work, call)

    def free_after_queued_work(self, function: str, pointer: int) -> None:
        """Free or unmap memory when the queued work, which may use it, is finished; as `call_after_queued_work`."""
        self.call_after_queued_work(partial(self.call_driver, function, pointer))

    def allocate(self, size_bytes: int) -> Allocation:
        """Allocate memory, filled with zeros, that no other allocation shares a block with."""
        size_bytes = max(-(-size_bytes // ALLOCATION_BYTES), 1) * ALLOCATION_BYTES
        allocation = Allocation(self, int(self.call_driver("cuMemAlloc", size_bytes)), size_bytes, "cuMemFree")
        self.call_driver("cuMemsetD8", allocation.pointer, 0, size_bytes)
        return allocation

    def export_ipc_handle(self, allocation: Allocation) -> bytes:
        """Return the IPC handle of memory from `allocate`."""
        base, _ = self.call_driver("cuMemGetAddressRange", allocation.pointer)
        if int(base) != allocation.pointer:  # a client would count its addresses from there
            raise ResourceError(f"cuda: the allocation begins at {int(base):#x}, expected {allocation.pointer:#x}")
        handle = self.call_driver("cuIpcGetMemHandle", allocation.pointer)
        return ctypes.string_at(handle.getPtr(), HANDLE_BYTES)

    def open_ipc_handle(self, handle: bytes) -> Allocation:
        """Map the memory of another process's IPC handle, writable, as CUDA always does.

        Its size is the one that the driver reports, not the one in the handle.
        """
        opaque = _load_driver().CUipcMemHandle()
        ctypes.memmove(opaque.getPtr(), handle, HANDLE_BYTES)
        pointer = int(self.call_driver("cuIpcOpenMemHandle", opaque, _LAZY_ENABLE_PEER_ACCESS))
        mapping = Allocation(self, pointer, 0, "cuIpcCloseMemHandle")
        base, size_bytes = self.call_driver("cuMemGetAddressRange", pointer)
        mapping.size_bytes = int(base) + size_bytes - pointer
        return mapping

    def copy(self, target: int, source: int, size_bytes: int) -> None:
        """Copy between two addresses on this device; returns before the copy is complete: call `synchronize`."""
        self.call_driver("cuMemcpyDtoD", target, source, size_bytes)

    def read(self, pointer: int, destination: Any) -> None:
        """Fill a writable buffer of the CPU from an address on this device."""
        array = np.frombuffer(destination, np.uint8)
        if array.size:
            self.call_driver("cuMemcpyDtoH", array.__array_interface__["data"][0], pointer, array.nbytes)

    def write(self, pointer: int, source: Any) -> None:
        """Copy a buffer of the CPU to an address on this device."""
        array = np.frombuffer(source, np.uint8)
        if array.size:
            self.call_driver("cuMemcpyHtoD", pointer, array.__array_interface__["data"][0], array.nbytes)
            self.synchronize()  # otherwise small copies may still be under way


class Allocation:
    """Memory that this process allocated or mapped; freed or unmapped with the last reference."""

    __slots__ = ("__weakref__", "gpu", "pointer", "size_bytes")

    def __init__(self, gpu: Gpu, pointer: int, size_bytes: int, release_function: str) -> None:
        self.gpu = gpu
        self.pointer = pointer
        self.size_bytes = size_bytes
        _FINALIZER_THREAD.start()
        # Not at exit: the driver may be gone by then, and frees everything with the process.
        weakref.finalize(self, gpu.free_after_queued_work, release_function, pointer).atexit = False

    def as_memory(self, size_bytes: int) -> DeviceMemory:
        """Return the first bytes as a `DeviceMemory`, which keeps the allocation."""
        return DeviceMemory(self.gpu.device, self.pointer, size_bytes, self)


def count_gpus() -> int:
    """Return the number of devices that this process may use."""
    _call_driver("cuInit", 0)
    count: int = _call_driver("cuDeviceGetCount")
    return count


def get_gpu(ordinal: int) -> Gpu:
    """Return a device by its number in this process. Raises `InvalidArgumentError` if there is none."""
    count = count_gpus()
    if not 0 <= ordinal < count:
        raise InvalidArgumentError(f"cuda: device {ordinal}: this process has {count}, numbered from 0")
    return _cached_gpu(ordinal)


@cache
def _cached_gpu(ordinal: int) -> Gpu:
    return Gpu(ordinal)


def gpu_of_uuid(uuid: bytes) -> Gpu:
    """Return the device with a UUID: numbers may differ between processes. Raises `ResourceError` if there is none."""
    for device in map(get_gpu, range(count_gpus())):
        if device.uuid == uuid:
            return device
    raise ResourceError(f"cuda: this process can't use the device with the UUID {uuid.hex()} (CUDA_VISIBLE_DEVICES)")


def gpu_of_address(pointer: int) -> Gpu:
    """Return the device of an address. Raises `InvalidArgumentError` if it is not one of CUDA."""
    count_gpus()
    attribute = _load_driver().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    try:
        ordinal: int = _call_driver("cuPointerGetAttribute", attribute, pointer)
    except ResourceError as error:
        raise InvalidArgumentError(f"cuda: {pointer:#x} is not an address of CUDA: {error}") from None
    return get_gpu(ordinal)


def pause_frees() -> AbstractContextManager[None]:
    """Return a context manager in which no memory of a GPU is freed: capture CUDA graphs inside.

    Memory whose last array is dropped meanwhile is freed afterwards.
    """
    return _FINALIZER_THREAD.pause()


def copy_to_host(memory: DeviceMemory, offset_bytes: int, size_bytes: int) -> bytearray:
    """Return a copy of bytes of a GPU's memory."""
    copy = bytearray(size_bytes)
    get_gpu(memory.location.id).read(memory.pointer + offset_bytes, copy)
    return copy
