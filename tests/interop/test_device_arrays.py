"""Arrays on a device: DLPack capsules and structures of the C device interface, which contain only addresses.

NumPy reads and creates capsules of the CPU's memory, for which the same code is used with the CPU as the device.
"""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.arrays.array import Array
from bowstring.errors import BufferExchangeError, InvalidArgumentError, TypeMismatchError, UnsupportedError
from bowstring.interop import c_data
from bowstring.interop.c_device import CPU
from bowstring.interop.device_arrays import device_of, import_device_array, to_host
from bowstring.interop.dlpack_capsule import DLPackTensor, consume_dlpack_capsule, new_dlpack_capsule
from bowstring.layouts.base import ArrayData
from bowstring.layouts.registry import layout_of
from bowstring.memory import c_abi
from bowstring.memory.buffer import EMPTY, Buffer
from bowstring.memory.device import CUDA, Device, DeviceMemory

DEVICE = Device(CUDA, 3)
POINTER = 1 << 44
DTYPES = ["<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"]


class Owner:
    """Something whose end can be observed."""


class DlpackProducer:
    """An object with `__dlpack__`, whose capsule has Bowstring's structures."""

    def __init__(self, tensor: DLPackTensor, device: Device, is_versioned: bool) -> None:
        self.tensor = tensor
        self.device = device
        self.is_versioned = is_versioned

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.type, self.device.id

    def __dlpack__(self, **_: object) -> Any:
        return new_dlpack_capsule(self.tensor, self.is_versioned)


def device_memory(size_bytes: int, pointer: int = POINTER, owner: object = None) -> DeviceMemory:
    return DeviceMemory(DEVICE, pointer, size_bytes, owner)


def move_to_device(array: ArrayData, device: Device = DEVICE) -> Array:
    """An array of the same layout, whose buffers have made-up addresses."""

    def move(buffer: Buffer | None) -> Buffer | None:
        if buffer is None or not buffer.size:
            return buffer
        return Buffer(DeviceMemory(device, POINTER + buffer.memory.address, buffer.size, buffer), 0, buffer.size)

    def walk(part: ArrayData) -> ArrayData:
        buffers, children = tuple(map(move, part.own_buffers)), tuple(map(walk, part.children))
        return ArrayData(part.layout, part.length, buffers, children, None, part.null_count, part.offset)

    return Array.from_array_data(walk(array))


@pytest.mark.parametrize("is_versioned", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_reads_our_capsules(dtype: str, is_versioned: bool) -> None:
    values = np.arange(12, dtype=dtype).reshape(3, 4)
    owner = Owner()
    reference = weakref.ref(owner)
    tensor = DLPackTensor(Device(CPU, 0), values.ctypes.data, values.dtype, values.shape, owner)
    source = DlpackProducer(tensor, Device(CPU, 0), is_versioned)
    array = np.from_dlpack(source)
    assert (array.dtype, array.tolist()) == (values.dtype, values.tolist())
    assert array.ctypes.data == values.ctypes.data
    assert array.flags.writeable is False
    del owner, tensor, source
    gc.collect()
    assert reference() is not None
    del array
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("max_version", [None, (1, 0)])
def test_capsules_of_numpy_are_consumed(dtype: str, max_version: tuple[int, int] | None) -> None:
    values = np.arange(20, dtype=dtype).reshape(4, 5)[1:]
    base = weakref.ref(values.base)
    capsule = values.__dlpack__(max_version=max_version)
    tensor = consume_dlpack_capsule(capsule)
    assert (tensor.device, tensor.pointer, tensor.shape) == (Device(CPU, 0), values.ctypes.data, (3, 5))
    assert tensor.dtype == values.dtype
    with pytest.raises(BufferExchangeError, match="expected a capsule that was not consumed before"):
        consume_dlpack_capsule(capsule)
    del values, capsule
    gc.collect()
    assert base() is not None
    del tensor
    gc.collect()
    assert base() is None


def test_a_capsule_that_is_not_consumed_ends_its_structure() -> None:
    for is_versioned in (False, True):
        owner = Owner()
        reference = weakref.ref(owner)
        capsule = new_dlpack_capsule(DLPackTensor(DEVICE, POINTER, np.dtype("<i4"), (4,), owner), is_versioned)
        del owner
        assert reference() is not None
        del capsule
        assert reference() is None


def test_the_offset_of_a_capsule_is_added_to_its_address() -> None:
    for is_versioned, name in ((False, b"dltensor"), (True, b"dltensor_versioned")):
        capsule = new_dlpack_capsule(DLPackTensor(DEVICE, POINTER, np.dtype("<i4"), (4,), None), is_versioned)
        fields = ctypes.c_int64 * 10
        fields.from_address(c_abi._capsule_pointer(capsule, name))[9 if is_versioned else 5] = 24
        assert consume_dlpack_capsule(capsule).pointer == POINTER + 24


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (np.zeros(4, bool), "type 6 with 8 bits and 1 lanes has no Arrow type"),
        (np.zeros(4, complex), "type 5 with 128 bits"),
        (np.arange(8)[::2], r"shape \(4,\) with strides \(2,\) is not contiguous"),
        (np.arange(6).reshape(2, 3).T, "is not contiguous"),
    ],
)
def test_elements_that_arrow_does_not_have_are_rejected(values: Any, problem: str) -> None:
    capsule = values.__dlpack__()
    with pytest.raises(BufferExchangeError, match=problem):
        consume_dlpack_capsule(capsule)
    assert np.from_dlpack(CapsuleHolder(capsule)).tolist() == values.tolist()  # the capsule was left alone


class CapsuleHolder:
    """An object with `__dlpack__` for one capsule."""

    def __init__(self, capsule: object) -> None:
        self.capsule = capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0

    def __dlpack__(self, **_: object) -> Any:
        return self.capsule


def test_a_column_on_a_device_is_exported_by_dlpack() -> None:
    owner = Owner()
    reference = weakref.ref(owner)
    data = ArrayData(layout_of(bs.int32()), 10, (None, Buffer(device_memory(100, owner=owner), 20, 40)), (), None, 0)
    array = Array.from_array_data(data).slice(2, 5)
    assert array.__dlpack_device__() == (CUDA, 3)
    for options in ({}, {"max_version": (1, 0), "stream": 7, "dl_device": (CUDA, 3), "copy": False}):
        tensor = consume_dlpack_capsule(array.__dlpack__(**options))
        assert (tensor.device, tensor.pointer, tensor.shape) == (DEVICE, POINTER + 28, (5,))
        assert tensor.dtype == np.dtype("<i4")
    del owner, data, array
    gc.collect()
    assert reference() is not None
    del tensor
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize(
    ("array", "options", "problem"),
    [
        (bs.array([1, None]), {}, "int64 with 1 nulls on cuda:3"),
        (bs.array([True, False]), {}, "bool with 0 nulls on cuda:3: expected numbers"),
        (bs.array(["text"]), {}, "string with 0 nulls"),
        (bs.array([1, 2]), {"copy": True}, "shared on cuda:3, not copied"),
        (bs.array([1, 2]), {"dl_device": (CPU, 0)}, r"on cuda:3, not on device \(1, 0\)"),
    ],
)
def test_columns_that_dlpack_does_not_share_are_rejected(array: Array, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(BufferExchangeError, match=problem):
        move_to_device(array).__dlpack__(**options)


COLUMNS = [
    bs.array([1, None, 3]),
    bs.array([1.5, 2.5]),
    bs.array(["one", None, "three"]),
    bs.array([True, None, False]),
    bs.array([[1, 2], None, [3]]),
    bs.array([{"a": 1, "b": "x"}, {"a": None, "b": "y"}]),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_the_c_device_interface_exports_addresses_on_the_device(column: Array) -> None:
    array = move_to_device(column)
    schema, capsule = array.__arrow_c_device_array__()
    assert c_abi.is_capsule(schema, c_abi.SCHEMA_CAPSULE)
    address = c_abi.capsule_pointer(capsule, c_abi.DEVICE_ARRAY_CAPSULE)
    fields = c_abi.DeviceArrayStruct.from_address(address)
    assert list(fields)[c_abi.DEVICE_ID :] == [3, CUDA, 0, 0, 0, 0]
    assert _pointers(address) == _buffer_pointers(array)


def _pointers(address: int) -> list[int]:
    """The pointers of all buffers, depth first."""
    fields = c_abi.ArrayStruct.from_address(address)
    pointers = list((ctypes.c_int64 * fields[c_abi.N_BUFFERS]).from_address(fields[c_abi.BUFFERS]))
    children = list((ctypes.c_int64 * fields[c_abi.N_CHILDREN]).from_address(fields[c_abi.CHILDREN] or address))
    return pointers + [pointer for child in children for pointer in _pointers(child)]


def _buffer_pointers(array: ArrayData) -> list[int]:
    pointers = []
    for buffer in array.own_buffers:
        owner = buffer.memory if buffer is not None else None
        pointers.append(owner.pointer if isinstance(owner, DeviceMemory) else 0)
    return pointers + [pointer for child in array.children for pointer in _buffer_pointers(child)]


def test_a_batch_on_a_device_is_exported() -> None:
    batch = bs.RecordBatch.from_arrays([move_to_device(COLUMNS[0]), move_to_device(COLUMNS[2])], ["number", "text"])
    _, capsule = batch.__arrow_c_device_array__()
    address = c_abi.capsule_pointer(capsule, c_abi.DEVICE_ARRAY_CAPSULE)
    assert list(c_abi.DeviceArrayStruct.from_address(address))[c_abi.DEVICE_ID :][:3] == [3, CUDA, 0]
    assert _pointers(address) == [0, *_buffer_pointers(batch["number"]), *_buffer_pointers(batch["text"])]
    with pytest.raises(UnsupportedError, match="on device CUDA:3, which the CPU can't read"):
        c_data.import_array(batch.__arrow_c_device_array__())


def test_memory_of_several_devices_is_not_exported_together() -> None:
    columns = [move_to_device(COLUMNS[0]), move_to_device(COLUMNS[1].slice(0, 2), Device(CUDA, 4))]
    batch = bs.RecordBatch.from_arrays([columns[0].slice(0, 2), columns[1]], ["x", "y"])
    with pytest.raises(InvalidArgumentError, match="can't export a buffer on cuda:4 with others on cuda:3"):
        batch.__arrow_c_device_array__()
    mixed = bs.RecordBatch.from_arrays([columns[1], COLUMNS[1].slice(0, 2)], ["x", "y"])
    with pytest.raises(InvalidArgumentError, match="can't export a buffer on cpu with others on cuda:4"):
        mixed.__arrow_c_device_array__()


def test_a_device_array_of_the_cpu_s_memory_is_exported_as_before() -> None:
    _, capsule = COLUMNS[2].__arrow_c_device_array__()
    address = c_abi.capsule_pointer(capsule, c_abi.DEVICE_ARRAY_CAPSULE)
    assert list(c_abi.DeviceArrayStruct.from_address(address))[c_abi.DEVICE_ID :] == [-1, CPU, 0, 0, 0, 0]
    assert device_of([COLUMNS[2]]) is None
    assert COLUMNS[2].__dlpack_device__() == (CPU, 0)
    assert to_host(COLUMNS[2]).own_buffers == COLUMNS[2].own_buffers


def test_views_on_a_device_are_not_exported() -> None:
    layout = layout_of(bs.string_view())
    array = Array.from_array_data(ArrayData(layout, 1, (None, Buffer(device_memory(16), 0, 16)), (), None, 0))
    with pytest.raises(InvalidArgumentError, match="can't export string_view on cuda:3"):
        array.__arrow_c_device_array__()


@pytest.mark.parametrize(
    ("source", "error", "problem"),
    [
        (bs.array([1]), UnsupportedError, "expected memory of CUDA, found CPU"),
        (np.arange(3), UnsupportedError, "expected memory of CUDA, found CPU"),
        ([1, 2], TypeMismatchError, "expected an array in memory of a GPU, found list"),
    ],
)
def test_only_arrays_on_a_gpu_are_imported(source: object, error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem):
        import_device_array(source)


def test_columns_are_imported_by_dlpack_without_a_copy() -> None:
    owner = Owner()
    tensor = DLPackTensor(DEVICE, POINTER, np.dtype("<f4"), (6,), owner)
    column = import_device_array(DlpackProducer(tensor, DEVICE, is_versioned=True))
    assert (column.type, column.length, column.null_count) == (bs.float32(), 6, 0)
    assert device_of([column]) == DEVICE
    assert _buffer_pointers(column) == [0, POINTER]
    matrix = DLPackTensor(DEVICE, POINTER, np.dtype("<f4"), (2, 3), owner)
    with pytest.raises(BufferExchangeError, match=r"expected one dimension, found shape \(2, 3\)"):
        import_device_array(DlpackProducer(matrix, DEVICE, is_versioned=False))
    elsewhere = DLPackTensor(Device(CPU, 0), POINTER, np.dtype("<f4"), (6,), owner)
    with pytest.raises(UnsupportedError, match="expected memory of CUDA, found CPU"):
        import_device_array(DlpackProducer(elsewhere, DEVICE, is_versioned=False))


def test_a_producer_s_error_is_reported() -> None:
    class Producer(DlpackProducer):
        def __dlpack__(self, **options: object) -> Any:
            raise BufferError(f"not on stream {options['stream']}")

    tensor = DLPackTensor(DEVICE, POINTER, np.dtype("<f4"), (6,), None)
    with pytest.raises(BufferExchangeError, match="DLPack can't export this Producer: not on stream 1"):
        import_device_array(Producer(tensor, DEVICE, is_versioned=True))


class CudaArrayInterface:
    """An object with only `__cuda_array_interface__`."""

    def __init__(self, **interface: object) -> None:
        self.__cuda_array_interface__ = {"data": (0, False), "shape": (0,), "typestr": "<i4", "version": 3, **interface}


@pytest.mark.parametrize(
    ("interface", "problem"),
    [
        ({"typestr": ">i4"}, "elements of type >i4 have no Arrow type"),
        ({"typestr": "|b1"}, "elements of type |b1 have no Arrow type"),
        ({"typestr": "<c8"}, "have no Arrow type"),
        ({"mask": object()}, "masks are not supported"),
        ({"shape": (4,), "strides": (8,)}, "is not contiguous"),
        ({"shape": (4,), "strides": (2,)}, "is not contiguous"),
        ({"shape": (2, 2)}, "expected one dimension"),
    ],
)
def test_unsupported_cuda_array_interfaces_are_rejected(interface: dict[str, object], problem: str) -> None:
    with pytest.raises(BufferExchangeError, match=problem.replace("|", r"\|")):
        import_device_array(CudaArrayInterface(**interface))


def test_an_empty_column_has_no_address() -> None:
    column = import_device_array(CudaArrayInterface(strides=(4,)))
    assert (column.length, column.type) == (0, bs.int32())
    empty = ArrayData(layout_of(bs.string()), 0, (None, EMPTY, EMPTY), (), None, 0)
    assert device_of([empty]) is None
