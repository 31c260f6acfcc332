"""The structures of the Arrow C data, C stream and C device interfaces, and the capsules that carry them («PyCapsule
Standard»).

A structure is read and written as an array of 64-bit fields, which is several times as fast as one field at a time.
Everything that an exported structure points to is in one `ExportedStructBlock`, which exists until the structure is
released.
"""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Sequence
from itertools import count
from typing import Any, Self, TypeVar

from bowstring.errors import InvalidArgumentError, InvalidDataError, LimitError, TypeMismatchError, UnsupportedError
from bowstring.memory.c_callbacks import make_callback, make_immortal
from bowstring.memory.forks import ProcessLock


def _find_interpreter_limitation() -> str | None:
    """Return why this interpreter can't use the C data interface, or None."""
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        return "the C data interface requires 64-bit pointers"
    interpreter = ctypes.PYFUNCTYPE(ctypes.c_void_p)
    current = interpreter(("PyInterpreterState_Get", ctypes.pythonapi))()
    if current != interpreter(("PyInterpreterState_Main", ctypes.pythonapi))():
        return (
            "the C data interface requires the main interpreter of a process: ctypes callbacks deadlock in a "
            "subinterpreter"
        )
    return None


_UNSUPPORTED_REASON = _find_interpreter_limitation()

# struct ArrowSchema
FORMAT, NAME, METADATA, FLAGS, SCHEMA_N_CHILDREN, SCHEMA_CHILDREN, SCHEMA_DICTIONARY, SCHEMA_RELEASE, SCHEMA_PRIVATE = (
    range(9)
)
# struct ArrowArray
LENGTH, NULL_COUNT, OFFSET, N_BUFFERS, N_CHILDREN, BUFFERS, CHILDREN, DICTIONARY, RELEASE, PRIVATE = range(10)
# struct ArrowArrayStream
GET_SCHEMA, GET_NEXT, GET_LAST_ERROR, STREAM_RELEASE, STREAM_PRIVATE = range(5)
# struct ArrowDeviceArray: a struct ArrowArray, these fields, and three reserved fields
DEVICE_ID, DEVICE_TYPE, SYNC_EVENT = range(10, 13)
# struct ArrowDeviceArrayStream: a field for the device type, and a struct ArrowArrayStream
DEVICE_STREAM_RELEASE = 1 + STREAM_RELEASE

# Every field of these structures is a pointer or an int64, but for `device_type`, an int32 with padding after it.
SchemaStruct = ctypes.c_int64 * 9
ArrayStruct = ctypes.c_int64 * 10
StreamStruct = ctypes.c_int64 * 5
DeviceArrayStruct = ctypes.c_int64 * 16
DeviceStreamStruct = ctypes.c_int64 * 6

_ADDRESS_ARRAYS = tuple(ctypes.c_int64 * size for size in range(8))

FIRST_ADDRESS, LAST_ADDRESS = 1 << 12, 1 << 62
"""Bounds of valid addresses in a process; the first page is never mapped."""
MAX_POINTERS = 1 << 20
"""Maximum number of children or buffers of one array."""

ReleaseFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
"""void (*)(struct *): releases a structure."""

SCHEMA_CAPSULE = make_immortal(b"arrow_schema")
ARRAY_CAPSULE = make_immortal(b"arrow_array")
STREAM_CAPSULE = make_immortal(b"arrow_array_stream")
DEVICE_ARRAY_CAPSULE = make_immortal(b"arrow_device_array")
DEVICE_STREAM_CAPSULE = make_immortal(b"arrow_device_array_stream")
RELEASE_INDEX = {
    SCHEMA_CAPSULE: SCHEMA_RELEASE,
    ARRAY_CAPSULE: RELEASE,
    STREAM_CAPSULE: STREAM_RELEASE,
    DEVICE_ARRAY_CAPSULE: RELEASE,
    DEVICE_STREAM_CAPSULE: DEVICE_STREAM_RELEASE,
}

_capsule_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_capsule_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
# A destructor receives a capsule whose reference count is 0. As a plain address, it is not reference-counted.
_destroyed_capsule_name = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(("PyCapsule_GetName", ctypes.pythonapi))
_destroyed_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)

private_data: dict[int, Any] = {}
"""The objects that each exported structure keeps alive until its release, by its `private_data` field."""
_capsule_blocks: dict[int, tuple[ExportedStructBlock, int]] = {}
_keys = count(1)


_Struct = TypeVar("_Struct", bound="ctypes.Array[ctypes.c_int64]")


class ExportedStructBlock:
    """The memory of an exported structure and of everything it points to: 64-bit fields, then strings.

    Indices count fields from the start of the block. Fill the block within its context; when the context ends, the
    block gets its address and pointers into the block become absolute.
    """

    __slots__ = ("_field_pointers", "_keys", "_string_pointers", "_strings", "address", "fields")

    def __init__(self) -> None:
        self.fields = array("q")
        self.address = 0
        self._strings = bytearray()
        self._field_pointers: list[int] = []
        self._string_pointers: list[int] = []
        self._keys: list[int] = []

    def append_fields(self, fields: list[int]) -> int:
        """Append fields. Return the index of the first."""
        index = len(self.fields)
        self.fields.extend(fields)
        return index

    def set_pointer(self, index: int, target: int) -> None:
        """Make a field point to the field with the index `target`."""
        self.fields[index] = target * 8
        self._field_pointers.append(index)

    def set_string(self, index: int, string: bytes) -> None:
        """Make a field point to a copy of `string`, which includes its terminating NUL if it needs one."""
        self.fields[index] = len(self._strings)
        self._string_pointers.append(index)
        self._strings += string + bytes(-len(string) % 8)

    def retain(self, *objects: Any) -> int:
        """Keep the block and `objects` alive until the structure with the returned `private_data` is released."""
        key = next(_keys)
        private_data[key] = (self, *objects)
        self._keys.append(key)
        return key

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is not None:
            for key in self._keys:
                del private_data[key]
            return
        fields = self.fields
        strings_offset = len(fields) * 8
        fields.frombytes(self._strings)
        self.address = base = fields.buffer_info()[0]
        for index in self._field_pointers:
            fields[index] += base
        for index in self._string_pointers:
            fields[index] += base + strings_offset


def _create_release_callback(struct_type: Any, release: int, *, has_children: bool) -> int:
    """Return the address of the release callback of a structure, whose `private_data` is the field after `release`.

    Schemas and arrays have their children and dictionary in the fields before.
    """

    # At interpreter exit even builtins are gone, so everything the function uses is bound as a default.
    def release_struct(
        address: int,
        _struct_type: Any = struct_type,
        _private_data: Any = private_data,
        _int64: Any = ctypes.c_int64,
        _range: Any = range,
    ) -> None:
        fields = _struct_type.from_address(address)
        # A consumer may release a structure twice by mistake; a moved structure has no callback either.
        if not fields[release]:
            return
        objects = _private_data.pop(fields[release + 1], None)  # noqa: F841 - keeps the block until the end
        if has_children:
            children = fields[release - 2]
            # Field 4 is `n_children` of both structures. A consumer may have moved a child away, which has no callback
            # then.
            for i in _range(fields[4]):
                child = _int64.from_address(children + 8 * i).value
                if child:
                    release_struct(child)
            if fields[release - 1]:
                release_struct(fields[release - 1])
        fields[release] = 0

    return function_address(make_callback(ReleaseFunction, release_struct))


def function_address(function: Any) -> int:
    """Return the address of a C function."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


RELEASE_SCHEMA_ADDRESS = _create_release_callback(SchemaStruct, SCHEMA_RELEASE, has_children=True)
RELEASE_ARRAY_ADDRESS = _create_release_callback(ArrayStruct, RELEASE, has_children=True)
RELEASE_STREAM_ADDRESS = _create_release_callback(StreamStruct, STREAM_RELEASE, has_children=False)
RELEASE_DEVICE_STREAM_ADDRESS = _create_release_callback(DeviceStreamStruct, DEVICE_STREAM_RELEASE, has_children=False)


# Capsules


def _destroy_capsule(
    capsule: int,
    _name: Any = _destroyed_capsule_name,
    _pointer: Any = _destroyed_capsule_pointer,
    _blocks: Any = _capsule_blocks,
    _function: Any = ReleaseFunction,
) -> None:
    address = _pointer(capsule, _name(capsule))
    # The block outlives the capsule if a consumer moved the structure: `private_data` holds it until the release.
    block, release_index = _blocks.pop(address)
    release = block.fields[release_index]
    if release:
        _function(release)(address)


_destructor = function_address(make_callback(ReleaseFunction, _destroy_capsule))


def new_capsule(name: bytes, block: ExportedStructBlock) -> object:
    """Return a capsule of the structure at the start of a block. It releases the structure unless a consumer moved
    it.

    Raises `UnsupportedError` in a subinterpreter and on 32-bit platforms.
    """
    if _UNSUPPORTED_REASON is not None:
        raise UnsupportedError(_UNSUPPORTED_REASON)
    capsule: object = _capsule_new(block.address, name, _destructor)
    _capsule_blocks[block.address] = (block, RELEASE_INDEX[name])
    return capsule


def move_struct(address: int, struct_type: type[_Struct], release_index: int) -> _Struct:
    """Copy the structure at an address and mark the original as released («Moving an array»).

    If several threads move one structure, one gets it; the others get a released one.
    """
    with _move_lock.of_this_process:
        source = struct_type.from_address(address)
        target = struct_type.from_buffer_copy(source)
        source[release_index] = 0
    return target


_move_lock = ProcessLock()


def is_capsule(value: object, name: bytes) -> bool:
    """Whether an object is a capsule with this name."""
    return bool(_capsule_is_valid(value, name))


def capsule_pointer(capsule: object, name: bytes) -> int:
    """Return the address of the structure in a capsule.

    Raises `TypeMismatchError` if the object is not a capsule with this name, `InvalidArgumentError` if its structure
    was moved or released already, and `UnsupportedError` as `new_capsule`.
    """
    if _UNSUPPORTED_REASON is not None:
        raise UnsupportedError(_UNSUPPORTED_REASON)
    try:
        address: int = _capsule_pointer(capsule, name)
    except ValueError:
        raise TypeMismatchError(f"expected a capsule named {name.decode()!r}, found {capsule!r}") from None
    release = ctypes.c_int64.from_address(address + 8 * RELEASE_INDEX[name]).value
    if not release:
        raise InvalidArgumentError(f"the structure in the capsule {name.decode()!r} was moved or released already")
    return address


def read_nullable_pointers(address: int, count: int, what: str) -> Sequence[int]:
    """Return the `count` pointers at an address; they may be null.

    Raises `InvalidDataError` if the address itself is null or not in the address space, `LimitError` for more than
    `MAX_POINTERS`.
    """
    if not count:
        return ()
    if not address:
        raise InvalidDataError(f"expected {count} {what}, found a null pointer")
    if count > MAX_POINTERS:
        raise LimitError(f"{count} {what} exceed the limit of {MAX_POINTERS}")
    if not FIRST_ADDRESS <= address < LAST_ADDRESS:
        raise InvalidDataError(f"{count} {what} at address {address:#x}, which is not a valid address")
    # An array type for each count that occurs would take longer to create than this copy.
    if count >= len(_ADDRESS_ARRAYS):
        return struct.unpack(f"={count}q", ctypes.string_at(address, 8 * count))
    return _ADDRESS_ARRAYS[count].from_address(address)[:]


def read_pointers(address: int, count: int, what: str) -> Sequence[int]:
    """Return the `count` pointers at an address.

    Raises as `read_nullable_pointers`, and `InvalidDataError` if one of the pointers is null or not in the address
    space.
    """
    pointers = read_nullable_pointers(address, count, what)
    if pointers and (min(pointers) < FIRST_ADDRESS or max(pointers) >= LAST_ADDRESS):
        index = next(i for i, pointer in enumerate(pointers) if not FIRST_ADDRESS <= pointer < LAST_ADDRESS)
        name = f"[{index}] of {count} {what}"
        if not pointers[index]:
            raise InvalidDataError(f"{name} is a null pointer")
        check_pointer(pointers[index], name)
    return pointers


def check_pointer(address: int, what: str) -> None:
    """Raise `InvalidDataError` if an address can't be in the address space of a process."""
    if not FIRST_ADDRESS <= address < LAST_ADDRESS:
        raise InvalidDataError(f"{what} is at {address:#x}, which is not a valid address")
