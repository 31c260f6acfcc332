"""DLPack capsules of memory on a device: `DLManagedTensor`, and `DLManagedTensorVersioned` of DLPack 1.0.

NumPy creates and reads the capsules of memory of the CPU. A structure is an array of 64-bit fields, as in the C
data interface (`bowstring.memory.c_abi`).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from bowstring.errors import BufferExchangeError
from bowstring.memory import c_abi
from bowstring.memory.c_callbacks import make_callback, make_immortal
from bowstring.memory.device import Device

# struct DLTensor: the address, the device, the number of dimensions and the type of the elements, …
_SHAPE, _STRIDES, _BYTE_OFFSET, _NUM_TENSOR_FIELDS = 3, 4, 5, 6
_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY
_VERSION = 1  # the major version, 1: 0 had no version and no flags
_MAX_DIMENSIONS = 64  # NumPy's limit
_TYPE_CODES = {"i": 0, "u": 1, "f": 2}
_KINDS_BY_CODE = {code: kind for kind, code in _TYPE_CODES.items()}


@dataclass(frozen=True, slots=True)
class _CapsuleFormat:
    """The capsules of one of the two structures: their names, and the indices of the structure's fields."""

    name: bytes
    consumed_name: bytes
    tensor_index: int
    context_index: int
    deleter_index: int


_UNVERSIONED = _CapsuleFormat(make_immortal(b"dltensor"), make_immortal(b"used_dltensor"), 0, 6, 7)
_VERSIONED = _CapsuleFormat(make_immortal(b"dltensor_versioned"), make_immortal(b"used_dltensor_versioned"), 4, 1, 2)

_capsule_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)


@dataclass(frozen=True, slots=True)
class DLPackTensor:
    """Contiguous numbers on a device, and the owner of their memory."""

    device: Device
    pointer: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    owner: Any


def _create_deleter(capsule_format: _CapsuleFormat) -> Any:
    # At interpreter exit, only defaults are left.
    def delete(
        address: int,
        _context_offset: int = 8 * capsule_format.context_index,
        _int64: Any = ctypes.c_int64,
        _owners: Any = c_abi.private_data,
    ) -> None:
        _owners.pop(_int64.from_address(address + _context_offset).value, None)

    return make_callback(c_abi.ReleaseFunction, delete)


_DELETERS = {capsule_format.name: _create_deleter(capsule_format) for capsule_format in (_UNVERSIONED, _VERSIONED)}


def _destroy_capsule(
    capsule: int,
    _name_of: Any = c_abi._destroyed_capsule_name,
    _pointer_of: Any = c_abi._destroyed_capsule_pointer,
    _string_at: Any = ctypes.string_at,
    _deleters: Any = _DELETERS,
) -> None:
    """Delete the structure of a capsule, unless a consumer renamed the capsule."""
    name = _name_of(capsule)
    delete = _deleters.get(_string_at(name))
    if delete is not None:
        delete(_pointer_of(capsule, name))


_DESTRUCTOR = c_abi.function_address(make_callback(c_abi.ReleaseFunction, _destroy_capsule))


def new_dlpack_capsule(tensor: DLPackTensor, is_versioned: bool) -> object:
    """Return a capsule over the same memory, marked as read-only if it is versioned."""
    capsule_format = _VERSIONED if is_versioned else _UNVERSIONED
    dtype, shape = tensor.dtype, tensor.shape
    element_type = _TYPE_CODES[dtype.kind] | dtype.itemsize * 8 << 8 | 1 << 16
    device = tensor.device.type | tensor.device.id << 32
    strides = [int(np.prod(shape[index + 1 :], dtype=np.int64)) for index in range(len(shape))]
    with c_abi.ExportedStructBlock() as block:
        key = block.retain(tensor.owner)
        manager = [key, c_abi.function_address(_DELETERS[capsule_format.name])]
        if is_versioned:
            block.append_fields([_VERSION, *manager, _READ_ONLY])
        start = block.append_fields([tensor.pointer, device, len(shape) | element_type << 32, 0, 0, 0])
        if not is_versioned:
            block.append_fields(manager)
        block.set_pointer(start + _SHAPE, block.append_fields([*shape, 0]))
        block.set_pointer(start + _STRIDES, block.append_fields([*strides, 0]))
    capsule: object = c_abi._capsule_new(block.address, capsule_format.name, _DESTRUCTOR)
    return capsule


def consume_dlpack_capsule(capsule: object) -> DLPackTensor:
    """Take over the structure in a capsule; its deleter is called when the tensor's owner is garbage-collected.

    Raises `BufferExchangeError` for another object, and for elements that are not contiguous or have no Arrow type.
    """
    capsule_format = next(
        (candidate for candidate in (_VERSIONED, _UNVERSIONED) if c_abi.is_capsule(capsule, candidate.name)), None
    )
    if capsule_format is None:
        raise BufferExchangeError(f"DLPack: expected a capsule that was not consumed before, found {capsule!r}")
    address = c_abi._capsule_pointer(capsule, capsule_format.name)
    fields = (ctypes.c_int64 * (capsule_format.tensor_index + _NUM_TENSOR_FIELDS)).from_address(address)[:]
    if capsule_format is _VERSIONED and fields[0] & 0xFFFFFFFF != _VERSION:
        raise BufferExchangeError(f"DLPack: expected version {_VERSION}, found {fields[0] & 0xFFFFFFFF}")
    pointer, device, element, shape_at, strides_at, byte_offset = fields[capsule_format.tensor_index :]
    count, dtype = element & 0xFFFFFFFF, _dtype_of(element >> 32 & 0xFFFFFFFF)
    if count > _MAX_DIMENSIONS:
        raise BufferExchangeError(f"DLPack: {count} dimensions")
    shape = _read_int64s(shape_at, count)
    if strides_at:
        check_contiguous(shape, _read_int64s(strides_at, count), "DLPack")
    owner = _ManagedTensorOwner(address, ctypes.c_int64.from_address(address + 8 * capsule_format.deleter_index).value)
    _capsule_set_name(capsule, capsule_format.consumed_name)
    return DLPackTensor(Device(device & 0xFFFFFFFF, device >> 32), pointer + byte_offset, dtype, shape, owner)


def check_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], what: str) -> None:
    """Raise `BufferExchangeError` unless elements with these strides, in elements, are contiguous in C order."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size > 1 and stride != expected:
            raise BufferExchangeError(f"{what}: shape {shape} with strides {strides} is not contiguous: copy it first")
        expected *= size


def _dtype_of(element: int) -> np.dtype[Any]:
    code, bits, lanes = element & 0xFF, element >> 8 & 0xFF, element >> 16
    kind = _KINDS_BY_CODE.get(code)
    if kind is None or bits not in (8, 16, 32, 64) or lanes != 1 or (kind == "f" and bits == 8):
        raise BufferExchangeError(f"DLPack: type {code} with {bits} bits and {lanes} lanes has no Arrow type")
    return np.dtype(f"<{kind}{bits // 8}")


def _read_int64s(address: int, count: int) -> tuple[int, ...]:
    return tuple((ctypes.c_int64 * count).from_address(address)) if count else ()


class _ManagedTensorOwner:
    """The owner of a consumed structure: calls its deleter when it is garbage-collected."""

    __slots__ = ("_address", "_deleter")

    def __init__(self, address: int, deleter: int) -> None:
        self._address = address
        self._deleter = c_abi.ReleaseFunction(deleter) if deleter else None

    def __del__(self) -> None:
        if self._deleter is not None:
            self._deleter(self._address)
