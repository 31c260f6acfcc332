"""The Arrow C stream interface, and that of the C device interface: a schema and a pull-style iterator of arrays, out
and in.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from bowstring.datatypes.field import Field
from bowstring.errors import BowstringError, InvalidDataError, ResourceError, UsageError
from bowstring.interop import c_abi, c_device
from bowstring.interop.c_array import take_array
from bowstring.interop.c_callbacks import immortal
from bowstring.interop.c_schema import read_field, schema_block
from bowstring.layouts.array import Array
from bowstring.layouts.base import error_context
from bowstring.layouts.registry import layout_of

_GetFunction = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
"""int (*)(struct ArrowArrayStream *, struct ArrowSchema or ArrowArray *out)"""
_ErrorFunction = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
"""const char *(*)(struct ArrowArrayStream *)"""


# Out


class _Producer:
    """What an exported stream holds: its field, what is still to come, and the last error."""

    __slots__ = ("blocks", "error", "field")

    def __init__(self, field: Field, blocks: Iterator[c_abi.Block]) -> None:
        self.field = field
        self.blocks = blocks
        self.error: Any = None

    def attempt(self, action: Callable[[], c_abi.Block | None], out: int, size_bytes: int) -> int:
        """Move what `action` makes to `out` (zeros for nothing: the end of the stream); an error number, 0 for none."""
        try:
            self.error = None
            block = action()
            if block is None:
                ctypes.memset(out, 0, size_bytes)
            else:
                ctypes.memmove(out, block.address, size_bytes)
        except BaseException as error:  # noqa: BLE001 - C has nothing to catch it with: it travels as number and text
            self.error = ctypes.create_string_buffer(f"{type(error).__name__}: {error}".encode().replace(b"\0", b" "))
            return _error_number(error)
        return 0


def _error_number(error: BaseException) -> int:
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    if isinstance(error, OSError):
        return error.errno or errno.EIO
    return errno.EINVAL if isinstance(error, ValueError | TypeError) else errno.EIO


def _callbacks(first: int, wrap: Callable[[c_abi.Block], c_abi.Block], array_words: Any) -> list[int]:
    """The addresses of get_schema, get_next and get_last_error for streams with `first` words before these, whose
    arrays go out `wrap`ped into structures of `array_words`.
    """

    def producer_of(address: int) -> _Producer:
        key = ctypes.c_int64.from_address(address + 8 * (first + c_abi.STREAM_PRIVATE)).value
        producer: _Producer = c_abi.live[key][1]
        return producer

    def get_schema(address: int, out: int) -> int:
        producer = producer_of(address)
        return producer.attempt(lambda: schema_block(producer.field), out, ctypes.sizeof(c_abi.SchemaWords))

    def get_next(address: int, out: int) -> int:
        producer = producer_of(address)

        def step() -> c_abi.Block | None:
            block = next(producer.blocks, None)
            return None if block is None else wrap(block)

        return producer.attempt(step, out, ctypes.sizeof(array_words))

    def get_last_error(address: int) -> int:
        error = producer_of(address).error
        return 0 if error is None else ctypes.addressof(error)

    functions = (_GetFunction(get_schema), _GetFunction(get_next), _ErrorFunction(get_last_error))
    return [c_abi.address_of(immortal(function)) for function in functions]


_FUNCTIONS = _callbacks(0, lambda block: block, c_abi.ArrayWords)
_DEVICE_FUNCTIONS = _callbacks(1, c_device.on_cpu, c_abi.DeviceArrayWords)


def stream_block(field: Field, blocks: Iterable[c_abi.Block], on_device: bool = False) -> c_abi.Block:
    """A stream of arrays, each given as its block when the consumer asks for it, as an ArrowArrayStream structure, or
    with `on_device` as an ArrowDeviceArrayStream of the CPU.
    """
    with c_abi.Block() as block:
        key = block.keep(_Producer(field, iter(blocks)))
        if on_device:
            block.add([c_device.CPU_WORD, *_DEVICE_FUNCTIONS, c_abi.DEVICE_STREAM_RELEASER, key])
        else:
            block.add([*_FUNCTIONS, c_abi.STREAM_RELEASER, key])
    return block


# In


class ArrayStream:
    """Somebody's stream of arrays, taken over: iterating gives them one by one.

    The stream is released when it ends, fails, is closed, or is dropped. Arrays that came out of it stay valid.
    """

    __slots__ = ("_first", "_layout", "_lock", "_number", "_release", "_words", "field")

    def __init__(self, address: int, on_device: bool = False) -> None:
        """Move the ArrowArrayStream structure at an address (`on_device`: ArrowDeviceArrayStream), and read its schema.

        Raises `InvalidDataError` or `ResourceError` where the producer fails or its schema is not well formed, and
        `UnsupportedError`, leaving the structure where it is, for a device whose memory the processor does not read.
        """
        self._words: ctypes.Array[ctypes.c_int64] = c_abi.DeviceStreamWords()
        self._first = 1
        if on_device:
            c_device.check_stream(address)
        words_type = c_abi.DeviceStreamWords if on_device else c_abi.StreamWords
        self._first = 1 if on_device else 0
        at = self._first + c_abi.STREAM_RELEASE
        self._words = c_abi.moved(address, words_type, at)
        if not self._words[at]:
            raise UsageError("the stream was taken already")
        self._release = c_abi.ReleaseFunction(self._words[at])
        self._lock = threading.RLock()
        self._number = 0
        try:
            self.field = self._read_schema()
            self._layout = layout_of(self.field.type)
        except BowstringError:
            self.close()
            raise

    def _read_schema(self) -> Field:
        out = c_abi.SchemaWords()
        self._call(c_abi.GET_SCHEMA, out, "the schema")
        release = out[c_abi.SCHEMA_RELEASE]
        if not release:
            raise InvalidDataError("a stream gave a schema that is released already")
        try:
            return read_field(ctypes.addressof(out))
        finally:
            c_abi.ReleaseFunction(release)(ctypes.addressof(out))

    def _call(self, function: int, out: ctypes.Array[ctypes.c_int64], what: str) -> None:
        address = ctypes.addressof(self._words)
        callback = self._words[self._first + function]
        if not callback:
            raise InvalidDataError(f"a stream has a null pointer where it should give {what}")
        number = _GetFunction(callback)(address, ctypes.addressof(out))
        if number:
            text = None
            last_error = self._words[self._first + c_abi.GET_LAST_ERROR]
            if last_error:
                text = _ErrorFunction(last_error)(address)
            said = ctypes.string_at(text).decode("utf-8", "replace") if text else "the producer says no more"
            message = f"a stream failed to give {what}: {said} (error {number}, {_named(number)})"
            if number == errno.ENOMEM:
                raise ResourceError(message)
            raise InvalidDataError(message)

    def __iter__(self) -> Iterator[Array]:
        return self

    def __next__(self) -> Array:
        """The next array; its first access may block for as long as the producer does.

        Raises `InvalidDataError` or `ResourceError` where the producer fails or an array does not fit the schema.
        """
        with self._lock:
            if not self._words[self._first + c_abi.STREAM_RELEASE]:
                raise StopIteration
            out = c_abi.DeviceArrayWords()  # which begins as an ArrowArray
            what = f"array {self._number}"
            try:
                self._call(c_abi.GET_NEXT, out, what)
                if not out[c_abi.RELEASE]:
                    self._close()
                    raise StopIteration
                with error_context(f"{what} of a stream"):
                    array = take_array(ctypes.addressof(out), self._layout, self._first == 1)
            except BowstringError:
                self._close()
                raise
            self._number += 1
            return array

    def close(self) -> None:
        """Release the stream; what it has not given yet is lost. Nothing happens the second time."""
        with self._lock:
            self._close()

    def _close(self, _addressof: Any = ctypes.addressof) -> None:
        words, release = self._words, self._first + 3
        if words[release]:
            self._release(_addressof(words))
            words[release] = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._close()


def _named(number: int) -> str:
    return f"{errno.errorcode.get(number, 'unnamed')}: {os.strerror(number)}"
