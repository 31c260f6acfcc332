"""Memory of a device, which the CPU can't read: addresses that are never mapped stand for it."""

from __future__ import annotations

import ctypes
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.arrays.array import Array
from bowstring.errors import InvalidArgumentError
from bowstring.layouts.base import ArrayData
from bowstring.layouts.registry import layout_of
from bowstring.memory.buffer import UINT8, Buffer, view_enclosing_range
from bowstring.memory.device import CUDA, Device, DeviceAddress, DeviceMemory, DeviceRegion, device_pointer

DEVICE = Device(CUDA, 1)
POINTER = 1 << 44
MESSAGE = r"the memory is on cuda:1, which the CPU can't read: copy it with to_host\(\)"
LENGTH = 16


def write(array: Array) -> None:
    table = bs.table({"x": array})
    with bs.new_stream(io.BytesIO(), table.schema) as writer:
        writer.write_table(table)


OPERATIONS: dict[str, Callable[[Array], object]] = {
    "a Python list": lambda array: array.to_pylist(),
    "one value": lambda array: array[3],
    "NumPy": lambda array: array.to_numpy(),
    "__array__": np.asarray,
    "take": lambda array: array.take([1, 2]),
    "sort": lambda array: bs.RecordBatch.from_arrays([array], ["x"]).sort_by("x"),
    "cast": lambda array: array.cast("int64"),
    "concatenation": lambda array: bs.concat_arrays([array, bs.array(range(LENGTH), bs.int32())]),
    "comparison": lambda array: array.equals(bs.array([None, None, *range(2, LENGTH)], bs.int32())),
    "pickling": pickle.dumps,
    "pickling out of band": lambda array: pickle.dumps(array, protocol=5, buffer_callback=lambda _: None),
    "validation": lambda array: array.validate(full=True),
    "the C data interface": lambda array: array.__arrow_c_array__(),
    "the buffer protocol": lambda _: device_array().__buffer__(0),
    "writing a stream": write,
    "sharing": lambda array: bs.share(bs.table({"x": array})),
    "null count": lambda array: array.slice(1, 3).null_count,
}


def device_array(length: int = LENGTH, null_count: int = 0) -> Array:
    memory = DeviceMemory(DEVICE, POINTER, 64 + 4 * length, owner=None)
    validity = Buffer(memory, 0, 8) if null_count else None
    buffers = (validity, Buffer(memory, 64, 4 * length))
    return Array.from_array_data(ArrayData(layout_of(bs.int32()), length, buffers, (), None, null_count))


@pytest.mark.parametrize("use", OPERATIONS.values(), ids=OPERATIONS)
def test_no_use_of_an_array_reads_memory_of_a_device(use: Callable[[Array], object]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"on cuda:1"):
        use(device_array(null_count=2))


def test_the_layout_of_an_array_on_a_device_can_be_read() -> None:
    array = device_array(null_count=2)
    assert (len(array), array.type, array.null_count, array.slice(2, 3).offset) == (LENGTH, bs.int32(), 2, 2)
    assert "int32[16]" in repr(array)
    assert repr(array.own_buffers[1]) == f"<bowstring.memory.Buffer 64 bytes at {POINTER + 64:#x} on cuda:1>"
    assert array.__dlpack_device__() == (CUDA, 1)


@pytest.mark.parametrize(
    "use",
    [
        int,
        float,
        bool,
        np.asarray,
        hex,
        lambda address: address - 1,
        lambda address: 1 + address,
        lambda address: address < 5,
        lambda address: address + np.arange(3),
        lambda address: np.arange(3) + address,
        lambda address: np.fromiter([address], np.int64, 1),
        lambda address: np.array([address], np.int64),
        bytes,
    ],
)
def test_an_address_on_a_device_is_not_a_number(use: Callable[[Any], object]) -> None:
    with pytest.raises((InvalidArgumentError, TypeError), match=r"cuda:1|DeviceAddress"):
        use(DeviceAddress(DEVICE, POINTER))


@pytest.mark.parametrize("read", [ctypes.string_at, ctypes.c_int64.from_address, ctypes.c_void_p])
def test_ctypes_does_not_take_an_address_on_a_device(read: Callable[[Any], object]) -> None:
    with pytest.raises((InvalidArgumentError, TypeError, ctypes.ArgumentError)):
        read(DeviceAddress(DEVICE, POINTER))


def test_addresses_on_a_device_are_compared_and_advanced() -> None:
    address = DeviceAddress(DEVICE, POINTER)
    assert address + 8 == DeviceAddress(DEVICE, POINTER + 8)
    assert address != DeviceAddress(Device(CUDA, 0), POINTER)
    assert address != POINTER
    assert len({address, address + 0, address + np.int64(8)}) == 2


def test_buffers_on_a_device_have_no_bytes() -> None:
    memory = DeviceMemory(DEVICE, POINTER, 64, owner=None)
    buffer = Buffer(memory, 8, 16)
    assert device_pointer(buffer.slice(4)) == POINTER + 12
    for read in (
        lambda: buffer.bytes,
        lambda: buffer.view(UINT8),
        lambda: buffer.view(np.dtype("<i8")),
        lambda: buffer.slice(1, 8).view(np.dtype("<i8")),
        lambda: buffer.element(np.dtype("<i8"), 0),
        lambda: bytes(buffer),
        lambda: view_enclosing_range([buffer, Buffer.of(b"host")]),
        lambda: view_enclosing_range([Buffer.of(b"host"), buffer]),
        lambda: view_enclosing_range([buffer, Buffer(memory.duplicate(), 0, 8)]),
        lambda: buffer == Buffer.of(bytes(16)),
    ):
        with pytest.raises(InvalidArgumentError, match=MESSAGE):
            read()


def test_memory_is_shared_with_its_owner() -> None:
    owner = object()
    memory = DeviceMemory(DEVICE, POINTER, 64, owner)
    other = memory.duplicate()
    assert other is not memory
    assert (other.pointer, len(other), other.owner, other.device) == (POINTER, 64, owner, "cuda:1")


def test_a_region_on_a_device_has_no_bytes_and_no_descriptor() -> None:
    region = DeviceRegion(DEVICE, [], 64, "table")
    assert region.is_on_device
    assert not region.has_descriptor
    assert not region.is_descriptor_released
    region.check_backing_file()
    with pytest.raises(InvalidArgumentError, match=MESSAGE):
        region.view(0, 64)
    region.close()
    assert str(Device(4, 2)) == "device 2 of type 4"
