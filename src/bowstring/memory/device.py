"""Memory of a device, such as a GPU, which the CPU can't read.

A `DeviceMemory` has an address, but no bytes, and the address is not a number. Code for the CPU therefore raises
`InvalidArgumentError` instead of reading there, which would crash the process. The driver of the devices copies to the
CPU.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from bowstring.entry_points import EntryPointGroup
from bowstring.errors import InvalidArgumentError
from bowstring.memory.buffer import Buffer, Bytes, Memory
from bowstring.memory.region import Region

CUDA = 2
"""ARROW_DEVICE_CUDA, the same value as kDLCUDA of DLPack."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device, identified as in DLPack and in the Arrow C device interface."""

    type: int
    id: int

    def __str__(self) -> str:
        return f"cuda:{self.id}" if self.type == CUDA else f"device {self.id} of type {self.type}"

    def access_error(self) -> InvalidArgumentError:
        """Return the error for code that would read the device's memory with the CPU."""
        return InvalidArgumentError(f"the memory is on {self}, which the CPU can't read: copy it with to_host()")


class DeviceAddress:
    """An address in a device's memory: `pointer` is the number. Used as a number, it raises `InvalidArgumentError`."""

    __slots__ = ("device", "pointer")

    def __init__(self, device: Device, pointer: int) -> None:
        self.device = device
        self.pointer = pointer

    def __add__(self, offset_bytes: Any) -> DeviceAddress:
        try:
            return DeviceAddress(self.device, self.pointer + operator.index(offset_bytes))
        except TypeError:
            raise self.device.access_error() from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceAddress) and (self.device, self.pointer) == (other.device, other.pointer)

    def __hash__(self) -> int:
        return hash((self.device, self.pointer))

    def __format__(self, specification: str) -> str:
        return format(self.pointer, specification)

    def _raise_access_error(self, *_: object, **__: object) -> NoReturn:
        raise self.device.access_error()

    __int__ = __index__ = __float__ = __bool__ = __array__ = _raise_access_error
    __radd__ = __sub__ = __rsub__ = __lt__ = __le__ = __gt__ = __ge__ = _raise_access_error
    __array_ufunc__ = None  # so that NumPy calls __radd__


class DeviceMemory(Memory):
    """A contiguous region of a device's memory, kept alive by its owner."""

    __slots__ = ("__weakref__", "location")

    def __init__(self, device: Device, pointer: int, size_bytes: int, owner: Any) -> None:
        self.location = device
        self.device = str(device)
        self.size = size_bytes
        self.address = DeviceAddress(device, pointer)  # type: ignore[assignment]  # so that the CPU can't read there
        self.owner = owner
        self._bytes = None
        self._typed = {}

    @property
    def pointer(self) -> int:
        """The number of the first byte's address."""
        address: Any = self.address
        pointer: int = address.pointer
        return pointer

    @property
    def bytes(self) -> Bytes:
        """Raise `InvalidArgumentError`."""
        raise self.location.access_error()

    def view(self, dtype: np.dtype[Any]) -> npt.NDArray[Any]:  # noqa: ARG002 - as `Memory.view`
        """Raise `InvalidArgumentError`."""
        raise self.location.access_error()

    def duplicate(self) -> DeviceMemory:
        """Return another object for the same memory, with its own references."""
        return DeviceMemory(self.location, self.pointer, self.size, self.owner)

    def __len__(self) -> int:
        return self.size


class Gpu(Protocol):
    """A device of CUDA."""

    device: Device

    def synchronize(self) -> None:
        """Wait until it has finished all work, of any library and stream."""


class CudaDriver(Protocol):
    """The driver of CUDA, a module of another package. Its functions raise `UnmetRequirementError` without a GPU."""

    def count_gpus(self) -> int:
        """Return the number of devices that this process may use."""

    def get_gpu(self, ordinal: int) -> Gpu:
        """Return a device by its number in this process. Raises `InvalidArgumentError` if there is none."""

    def gpu_of_address(self, pointer: int) -> Gpu:
        """Return the device of an address. Raises `InvalidArgumentError` if it is not one of CUDA."""

    def copy_to_host(self, memory: DeviceMemory, offset_bytes: int, size_bytes: int) -> bytearray:
        """Return a copy of bytes of a device's memory."""


_DRIVERS = EntryPointGroup("bowstring.devices", {"cuda": "cuda"})


def load_cuda_driver() -> CudaDriver:
    """Return the driver of CUDA, the entry point `cuda` of the group `bowstring.devices`. Raises as its `load`."""
    driver: CudaDriver = _DRIVERS.load("cuda")
    return driver


def device_pointer(buffer: Buffer) -> int:
    """Return the number of the address of a buffer in a device's memory."""
    memory = buffer.memory
    assert isinstance(memory, DeviceMemory)
    return memory.pointer + buffer.offset


class DeviceRegion(Region):
    """Buffers of one device, to be exported together; nothing is copied until then.

    Each buffer has an offset in the region; the bytes between buffers are undefined.
    """

    __slots__ = ("buffers", "device")

    is_on_device: ClassVar[bool] = True

    def __init__(self, device: Device, buffers: Sequence[tuple[int, Buffer]], size_bytes: int, name: str) -> None:
        super().__init__(-1, size_bytes, name, is_sealed=True)
        self.device = device
        self.buffers = tuple(buffers)

    @property
    def memory(self) -> memoryview:
        """Raise `InvalidArgumentError`."""
        raise self.device.access_error()

    def __repr__(self) -> str:
        return f"<DeviceRegion {self.name!r}: {self.size_bytes} bytes on {self.device}>"
