"""Export and import of array streams: the Arrow C stream interface, and its variant in the C device interface."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bowstring.datatypes.c_schema import read_field
from bowstring.datatypes.field import Field, build_field_block
from bowstring.errors import BowstringError, InvalidArgumentError, InvalidDataError, ResourceError, prefix_errors
from bowstring.interop import c_device
from bowstring.interop.c_array import import_array_struct
from bowstring.layouts.base import ArrayData
from bowstring.layouts.registry import layout_of
from bowstring.memory import c_abi
from bowstring.memory.c_callbacks import make_immortal
from bowstring.memory.closable import Closable

_GetFunction = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
"""int (*)(struct ArrowArrayStream *, struct ArrowSchema or ArrowArray *out)"""
_ErrorFunction = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
"""const char *(*)(struct ArrowArrayStream *)"""


# Export


class _ExportedStream:
    """The state of an exported stream: its field, the remaining blocks, and the last error."""

    __slots__ = ("blocks", "error", "field")

    def __init__(self, field: Field, blocks: Iterator[c_abi.ExportedStructBlock]) -> None:
        self.field = field
        self.blocks = blocks
        self.error: Any = None

    def write_next_block(
        self, next_block: Callable[[], c_abi.ExportedStructBlock | None], out: int, size_bytes: int
    ) -> int:
        """Move the block that `next_block` returns to `out`, or write zeros at the end of the stream. Return an errno
        value, 0 for success.
        """
        try:
            self.error = None
            block = next_block()
            if block is None:
                ctypes.memset(out, 0, size_bytes)
            else:
                ctypes.memmove(out, block.address, size_bytes)
        except BaseException as error:  # noqa: BLE001 - C can't catch exceptions: return a number and a message
            self.error = ctypes.create_string_buffer(f"{type(error).__name__}: {error}".encode().replace(b"\0", b" "))
            return _errno_of(error)
        return 0


def _errno_of(error: BaseException) -> int:
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    if isinstance(error, OSError):
        return error.errno or errno.EIO
    return errno.EINVAL if isinstance(error, ValueError | TypeError) else errno.EIO


def _create_callbacks(
    first_callback_index: int,
    convert: Callable[[c_abi.ExportedStructBlock], c_abi.ExportedStructBlock],
    array_type: Any,
) -> list[int]:
    """Create the callbacks get_schema, get_next and get_last_error and return their addresses.

    `first_callback_index` is the index of the first of them in the stream structure. `convert` converts the block of an
    array to one that starts with an `array_type`.
    """

    def stream_at(address: int) -> _ExportedStream:
        key = ctypes.c_int64.from_address(address + 8 * (first_callback_index + c_abi.STREAM_PRIVATE)).value
        stream: _ExportedStream = c_abi.private_data[key][1]
        return stream

    def get_schema(address: int, out: int) -> int:
        stream = stream_at(address)
        return stream.write_next_block(lambda: build_field_block(stream.field), out, ctypes.sizeof(c_abi.SchemaStruct))

    def get_next(address: int, out: int) -> int:
        stream = stream_at(address)

        def next_block() -> c_abi.ExportedStructBlock | None:
            block = next(stream.blocks, None)
            return None if block is None else convert(block)

        return stream.write_next_block(next_block, out, ctypes.sizeof(array_type))

    def get_last_error(address: int) -> int:
        error = stream_at(address).error
        return 0 if error is None else ctypes.addressof(error)

    functions = (_GetFunction(get_schema), _GetFunction(get_next), _ErrorFunction(get_last_error))
    return [c_abi.function_address(make_immortal(function)) for function in functions]


_CALLBACK_ADDRESSES = _create_callbacks(0, lambda block: block, c_abi.ArrayStruct)
_DEVICE_CALLBACK_ADDRESSES = _create_callbacks(1, c_device.to_device_array, c_abi.DeviceArrayStruct)


def build_stream_block(
    field: Field, blocks: Iterable[c_abi.ExportedStructBlock], is_device_stream: bool = False
) -> c_abi.ExportedStructBlock:
    """Return a block with an ArrowArrayStream structure, or with `is_device_stream` an ArrowDeviceArrayStream on the
    CPU.

    The array blocks are taken from `blocks` one at a time, when the consumer requests the next array.
    """
    with c_abi.ExportedStructBlock() as block:
        key = block.retain(_ExportedStream(field, iter(blocks)))
        if is_device_stream:
            block.append_fields(
                [c_device.CPU_FIELD, *_DEVICE_CALLBACK_ADDRESSES, c_abi.RELEASE_DEVICE_STREAM_ADDRESS, key]
            )
        else:
            block.append_fields([*_CALLBACK_ADDRESSES, c_abi.RELEASE_STREAM_ADDRESS, key])
    return block


# Import


class ImportedArrayStream(Closable):
    """An imported stream of arrays: an iterator.

    The stream is released when it ends, fails, is closed, or is garbage-collected. Its arrays stay valid.
    """

    __slots__ = ("_fields", "_first_callback_index", "_layout", "_lock", "_num_read", "_release", "field")

    def __init__(self, address: int, is_device_stream: bool = False) -> None:
        """Move the ArrowArrayStream structure at an address (`is_device_stream`: ArrowDeviceArrayStream), and read its
        schema.

        Raises `InvalidDataError` or `ResourceError` if the producer fails or its schema is malformed. Raises
        `UnsupportedError`, without moving the structure, for a device whose memory the CPU can't read.
        """
        self._fields: ctypes.Array[ctypes.c_int64] = c_abi.DeviceStreamStruct()
        self._first_callback_index = 1
        if is_device_stream:
            c_device.check_cpu_readable_device(
                ctypes.c_int32.from_address(address).value
            )  # the first field of the structure
        struct_type = c_abi.DeviceStreamStruct if is_device_stream else c_abi.StreamStruct
        self._first_callback_index = 1 if is_device_stream else 0
        release_index = self._first_callback_index + c_abi.STREAM_RELEASE
        self._fields = c_abi.move_struct(address, struct_type, release_index)
        if not self._fields[release_index]:
            raise InvalidArgumentError("the stream was moved or released already")
        self._release = c_abi.ReleaseFunction(self._fields[release_index])
        self._lock = threading.RLock()
        self._num_read = 0
        try:
            self.field = self._read_schema()
            self._layout = layout_of(self.field.type)
        except BowstringError:
            self.close()
            raise

    def _read_schema(self) -> Field:
        out = c_abi.SchemaStruct()
        self._call_callback(c_abi.GET_SCHEMA, out, "the schema")
        release = out[c_abi.SCHEMA_RELEASE]
        if not release:
            raise InvalidDataError("a stream returned a schema that is released already")
        try:
            return read_field(ctypes.addressof(out))
        finally:
            c_abi.ReleaseFunction(release)(ctypes.addressof(out))

    def _call_callback(self, function: int, out: ctypes.Array[ctypes.c_int64], what: str) -> None:
        address = ctypes.addressof(self._fields)
        callback = self._fields[self._first_callback_index + function]
        if not callback:
            raise InvalidDataError(f"a stream can't return {what}: its callback is a null pointer")
        error_number = _GetFunction(callback)(address, ctypes.addressof(out))
        if error_number:
            text = None
            last_error = self._fields[self._first_callback_index + c_abi.GET_LAST_ERROR]
            if last_error:
                text = _ErrorFunction(last_error)(address)
            reason = ctypes.string_at(text).decode("utf-8", "replace") if text else "the producer has no error message"
            error_name = f"{errno.errorcode.get(error_number, 'unknown')}: {os.strerror(error_number)}"
            message = f"a stream failed to return {what}: {reason} (error {error_number}, {error_name})"
            if error_number == errno.ENOMEM:
                raise ResourceError(message)
            raise InvalidDataError(message)

    def __iter__(self) -> Iterator[ArrayData]:
        return self

    def __next__(self) -> ArrayData:
        """Return the next array. Blocks until the producer returns it.

        Raises `InvalidDataError` or `ResourceError` if the producer fails or an array does not match the schema.
        """
        with self._lock:
            if not self._fields[self._first_callback_index + c_abi.STREAM_RELEASE]:
                raise StopIteration
            out = c_abi.DeviceArrayStruct()  # starts with an ArrowArray
            what = f"array {self._num_read}"
            try:
                self._call_callback(c_abi.GET_NEXT, out, what)
                if not out[c_abi.RELEASE]:
                    self._release_stream()
                    raise StopIteration
                with prefix_errors(f"{what} of a stream"):
                    array = import_array_struct(ctypes.addressof(out), self._layout, self._first_callback_index == 1)
            except BowstringError:
                self._release_stream()
                raise
            self._num_read += 1
            return array

    def close(self) -> None:
        """Release the stream; remaining arrays are lost. Calling it again has no effect."""
        with self._lock:
            self._release_stream()

    def _release_stream(self, _addressof: Any = ctypes.addressof) -> None:
        fields, release_index = self._fields, self._first_callback_index + 3
        if fields[release_index]:
            self._release(_addressof(fields))
            fields[release_index] = 0

    def __del__(self) -> None:
        self._release_stream()
