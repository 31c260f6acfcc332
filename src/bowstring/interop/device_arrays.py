"""Arrays in memory of a device: import from other libraries, export by DLPack, copies to the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np

from bowstring.datatypes.c_schema import read_field
from bowstring.datatypes.field import Field
from bowstring.datatypes.types import FloatingPoint, Int
from bowstring.errors import BufferExchangeError, TypeMismatchError, UnsupportedError
from bowstring.interop.c_array import ArrayImporter, ImportedStruct
from bowstring.interop.c_device import format_device
from bowstring.interop.dlpack_capsule import DLPackTensor, check_contiguous, consume_dlpack_capsule, new_dlpack_capsule
from bowstring.layouts.base import ArrayData, Layout
from bowstring.layouts.registry import layout_of
from bowstring.layouts.type_inference import type_of_numpy_array
from bowstring.memory import c_abi
from bowstring.memory.buffer import Buffer, Memory
from bowstring.memory.device import CUDA, Device, DeviceMemory, device_pointer, load_cuda_driver

_LEGACY_DEFAULT_STREAM = 1  # «Array API, __dlpack__»: of CUDA, whose 0 is ambiguous


def device_of(arrays: Iterable[ArrayData]) -> Device | None:
    """Return the device of the first buffer that is on one, None if all memory is the CPU's."""
    for array in arrays:
        for buffer in array.own_buffers:
            if buffer is not None and buffer.whole is None and isinstance(buffer.memory, DeviceMemory):
                return buffer.memory.location
        nested = array.children if array.dictionary is None else (*array.children, array.dictionary)
        device = device_of(nested) if nested else None
        if device is not None:
            return device
    return None


def to_host(array: ArrayData) -> ArrayData:
    """Copy the buffers that are on a device to the CPU's memory; an array without any shares all of its memory."""
    dictionary = None if array.dictionary is None else to_host(array.dictionary)
    children, buffers = tuple(map(to_host, array.children)), tuple(map(_buffer_to_host, array.own_buffers))
    return ArrayData(array.layout, array.length, buffers, children, dictionary, array.known_null_count, array.offset)


def _buffer_to_host(buffer: Buffer | None) -> Buffer | None:
    if buffer is None or not isinstance(buffer.memory, DeviceMemory):
        return buffer
    return Buffer.of(load_cuda_driver().copy_to_host(buffer.memory, buffer.offset, buffer.size))


# DLPack


def device_array_to_dlpack(array: ArrayData, device: Device, options: dict[str, Any]) -> object:
    """Return a DLPack capsule of numbers without nulls on a device; never copies.

    `options` are as in the array API standard. The elements are complete, so any `stream` may read them. Consumers
    must not write to them; capsules before DLPack 1.0 can't be marked as read-only. Raises `BufferExchangeError` for
    other arrays, `copy=True` and another `dl_device`.
    """
    if not isinstance(array.type, Int | FloatingPoint) or array.null_count:
        raise BufferExchangeError(f"DLPack: {array.type} with {array.null_count} nulls on {device}: expected numbers")
    if options.get("copy"):
        raise BufferExchangeError(f"DLPack: the elements are shared on {device}, not copied: copy them after import")
    requested, max_version = options.get("dl_device"), options.get("max_version")
    if requested is not None and (int(requested[0]), int(requested[1])) != (device.type, device.id):
        raise BufferExchangeError(f"DLPack: the elements are on {device}, not on device {tuple(requested)}")
    dtype, values = array.layout.buffers[1].dtype, array.own_buffers[1]
    assert dtype is not None
    assert values is not None
    pointer = device_pointer(values) + array.offset * dtype.itemsize
    tensor = DLPackTensor(device, pointer, dtype, (array.length,), values)
    return new_dlpack_capsule(tensor, is_versioned=max_version is not None and max_version[0] >= 1)


# Import


def import_device_array(source: Any) -> ArrayData:
    """Import an array in CUDA memory of another library, without copying: from an object with
    `__arrow_c_device_array__` (cuDF), or one dimension of numbers with `__dlpack__` or `__cuda_array_interface__`
    (CuPy, PyTorch, JAX, Numba).

    Raises `TypeMismatchError` for other objects, `UnsupportedError` for memory of another device, `BufferExchangeError`
    for elements that are not contiguous or have no Arrow type.
    """
    if hasattr(source, "__arrow_c_device_array__"):
        return import_field_and_device_array(source)[1]
    if hasattr(source, "__dlpack__"):
        return _array_from_tensor(_tensor_from_dlpack(source))
    if hasattr(source, "__cuda_array_interface__"):
        return _array_from_tensor(_tensor_from_cuda_interface(source))
    raise TypeMismatchError(f"expected an array in memory of a GPU, found {type(source).__name__}")


def _tensor_from_dlpack(source: Any) -> DLPackTensor:
    device_type, device_id = map(int, source.__dlpack_device__())
    _check_cuda_device(device_type, device_id)
    try:
        try:
            capsule = source.__dlpack__(stream=_LEGACY_DEFAULT_STREAM, max_version=(1, 0))
        except TypeError:  # producers before DLPack 1.0
            capsule = source.__dlpack__(stream=_LEGACY_DEFAULT_STREAM)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise BufferExchangeError(f"DLPack can't export this {type(source).__name__}: {error}") from error
    tensor = consume_dlpack_capsule(capsule)
    _check_cuda_device(tensor.device.type, tensor.device.id)
    return tensor


def _tensor_from_cuda_interface(source: Any) -> DLPackTensor:
    """Read the CUDA array interface (of Numba), version 2 or 3."""
    interface = source.__cuda_array_interface__
    pointer, dtype, shape = int(interface["data"][0]), np.dtype(interface["typestr"]), tuple(interface["shape"])
    what = "__cuda_array_interface__"
    if interface.get("mask") is not None:
        raise BufferExchangeError(f"{what}: masks are not supported")
    if dtype.kind not in "iuf" or dtype.itemsize > 8 or not dtype.isnative:
        raise BufferExchangeError(f"{what}: elements of type {dtype.str} have no Arrow type")
    strides = interface.get("strides")
    if strides is not None:
        check_contiguous(shape, tuple(stride / dtype.itemsize for stride in strides), what)
    device = load_cuda_driver().gpu_of_address(pointer).device if pointer else Device(CUDA, 0)
    return DLPackTensor(device, pointer, dtype, shape, source)


def _array_from_tensor(tensor: DLPackTensor) -> ArrayData:
    if len(tensor.shape) != 1:
        raise BufferExchangeError(f"expected one dimension, found shape {tensor.shape}")
    (length,), dtype = tensor.shape, tensor.dtype
    layout = layout_of(type_of_numpy_array(np.empty(0, dtype)))
    memory = DeviceMemory(tensor.device, tensor.pointer, length * dtype.itemsize, tensor.owner)
    return ArrayData(layout, length, (None, Buffer(memory, 0, memory.size)), (), None, 0)


def import_field_and_device_array(source: Any) -> tuple[Field, ArrayData]:
    """Import an array by `__arrow_c_device_array__`, and its field. Waits for the device.

    Raises as `import_device_array`, and `InvalidDataError` for a malformed structure.
    """
    schema_capsule, array_capsule = source.__arrow_c_device_array__()
    address = c_abi.capsule_pointer(array_capsule, c_abi.DEVICE_ARRAY_CAPSULE)
    device_type = ctypes.c_int32.from_address(address + 8 * c_abi.DEVICE_TYPE).value
    device_id = ctypes.c_int64.from_address(address + 8 * c_abi.DEVICE_ID).value
    _check_cuda_device(device_type, device_id)
    field = read_field(c_abi.capsule_pointer(schema_capsule, c_abi.SCHEMA_CAPSULE))
    device = Device(CUDA, device_id)
    load_cuda_driver().get_gpu(device_id).synchronize()  # instead of `sync_event`, which is on this device
    struct = ImportedStruct(address)
    importer = _DeviceArrayImporter(device)
    array = importer.read(struct.address, layout_of(field.type))
    importer.bind_memory(struct)
    return field, array


class _DeviceArrayImporter(ArrayImporter):
    """Reads a structure whose buffers are on a device: copies only the last offsets, which are lengths of buffers."""

    __slots__ = ("_device",)

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._device = device

    def read(self, address: int, layout: Layout) -> ArrayData:
        if layout.VARIADIC:
            raise UnsupportedError(f"{layout.type} on {self._device}: convert views to string or binary first")
        return super().read(address, layout)

    def _read_integer_at(self, address: int, width: int) -> int:
        memory = DeviceMemory(self._device, address, width, None)
        return int.from_bytes(load_cuda_driver().copy_to_host(memory, 0, width), "little", signed=True)

    def bind_memory(self, struct: ImportedStruct) -> None:
        super().bind_memory(struct)
        for buffer in self._buffers:
            buffer.address = buffer.memory.address + buffer.offset  # not a number

    def _create_memory(self, struct: ImportedStruct, start: int, size_bytes: int) -> Memory:
        return DeviceMemory(self._device, start, size_bytes, struct)

    def _check_child_lengths(self) -> None:
        """Check nothing: that would read the offsets."""


def _check_cuda_device(device_type: int, device_id: int) -> None:
    if device_type != CUDA:
        raise UnsupportedError(f"expected memory of CUDA, found {format_device(device_type, device_id)}")
