"""Buffers: contiguous memory regions («Terminology» in the columnar format), and their owners.

A `Memory` is a region with its owner, a `Buffer` a range of one. Slicing a buffer returns a buffer over the same
memory. A mapped file of a thousand columns has one `Memory`, and a view of a column is a slice of one typed NumPy array
over the whole file.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidArgumentError, InvalidDataError, format_count

Bytes = npt.NDArray[np.uint8]
UINT8 = np.dtype(np.uint8)
ALIGNMENT_BYTES = 64
"""Alignment of allocations in bytes, as recommended by «Buffer Alignment and Padding»."""
_OUT_OF_BAND = 5
"""The first pickle protocol with out-of-band buffers (PEP 574)."""


class Memory:
    """A contiguous, read-only region of memory, kept alive by its owner.

    `owner` is an object with the buffer protocol (bytes, a mapping, a NumPy array); nothing is copied. Views are
    read-only NumPy arrays, and each keeps the owner alive.
    """

    __slots__ = ("_array", "_bytes", "_typed", "address", "device", "owner", "size")

    def __init__(self, owner: Any) -> None:
        array = _as_array(owner)
        self.size: int = array.nbytes
        """The length in bytes."""
        self.address: int = array.__array_interface__["data"][0]
        """The address of the first byte."""
        self.owner = owner
        self.device = "cpu"
        self._array = array
        self._bytes: Bytes | None = None
        self._typed: dict[np.dtype[Any], npt.NDArray[Any]] = {}

    @property
    def bytes(self) -> Bytes:
        """All bytes as a NumPy array, created on first access."""
        view = self._bytes
        if view is None:
            view = self._array.view(np.ndarray).reshape(-1).view(UINT8)
            view.flags.writeable = False
            self._bytes = view
        return view

    def view(self, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """View all whole elements of `dtype`, without copying (possibly unaligned)."""
        array = self._typed.get(dtype)
        if array is None:
            array = self._typed[dtype] = self.bytes[: self.size // dtype.itemsize * dtype.itemsize].view(dtype)
        return array


def _as_array(owner: Any) -> npt.NDArray[Any]:
    """Return the owner as an array.

    Raises `InvalidArgumentError` if it is not C-contiguous or contains Python objects.
    """
    array = owner if isinstance(owner, np.ndarray) else np.frombuffer(owner, UINT8)
    if not array.flags.c_contiguous or array.dtype.hasobject:
        raise InvalidArgumentError("expected C-contiguous memory without Python objects: copy the array first")
    return array


class Buffer:
    """`size` bytes of a `Memory`, starting at byte `offset`.

    Immutable and cheap: creating one does not access the bytes. Raises `InvalidDataError` if the range is not within
    the memory.

    >>> buffer = bs.memory.Buffer.of(b"abcdef")
    >>> buffer.size, bytes(buffer)
    (6, b'abcdef')
    """

    __slots__ = ("__weakref__", "address", "memory", "offset", "size", "whole")

    address: int
    """The address of the first byte."""
    memory: Memory
    """The memory that contains the bytes."""

    def __init__(self, memory: Memory, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > memory.size:
            raise InvalidDataError(
                f"bytes {offset} to {offset + size} are out of range for a memory of {memory.size} bytes"
            )
        self.memory = memory
        self.offset = offset
        self.size = size
        self.address = memory.address + offset
        self.whole: Any = None
        """The owner if the buffer covers all of it: bytes or an array; otherwise None."""

    @classmethod
    def of(cls, owner: Any) -> Buffer:
        """Wrap an object with the buffer protocol (NumPy arrays must be C-contiguous), without copying.

        >>> import numpy as np
        >>> bs.memory.Buffer.of(np.arange(3)).size
        24
        """
        buffer = cls.__new__(cls)
        buffer.offset = 0
        if owner.__class__ is bytes:
            buffer.whole, buffer.size = owner, len(owner)
        else:
            buffer.whole = array = _as_array(owner)
            buffer.size = array.nbytes
        return buffer

    if not TYPE_CHECKING:  # otherwise type checkers accept every attribute

        def __getattr__(self, name: str) -> Any:
            """Create the memory or the address of a whole object on first access: that takes most of the time of
            creating a buffer, and many small buffers never need it.
            """
            # Without a lock: two threads may each create one, of the same bytes.
            if name == "memory":
                self.memory = attribute = Memory(self.whole)
            elif name == "address":
                self.address = attribute = self.memory.address
            else:
                raise AttributeError(f"a buffer has no {name!r}")
            return attribute

    @property
    def device(self) -> str:
        """The device of the memory, such as "cpu"."""
        return self.memory.device

    def view(self, dtype: np.dtype[Any], start: int = 0, count: int = -1) -> npt.NDArray[Any]:
        """View `count` elements of `dtype` from element `start` (default: all) as a read-only NumPy array.

        Never copies. Raises `InvalidDataError` if the buffer is too short.
        """
        itemsize = dtype.itemsize
        if not itemsize:
            return _empty_array(dtype, max(count, 0))
        if count < 0:
            count = self.size // itemsize - start
        if start < 0 or count < 0 or (start + count) * itemsize > self.size:
            raise InvalidDataError(
                f"elements {start} to {start + count} of {itemsize} bytes are out of range for a buffer of "
                f"{self.size} bytes"
            )
        memory = self.memory
        first, rest = divmod(self.offset, itemsize)
        # NumPy can view an unaligned range, but not as a slice of the typed array, which begins at a multiple of the
        # item size.
        if rest:
            return (
                np.frombuffer(memory.bytes, dtype, count, self.offset + start * itemsize)
                if count
                else _empty_array(dtype, 0)
            )
        first += start
        typed = memory._typed.get(dtype)
        if typed is None:
            typed = memory.view(dtype)
        return typed[first : first + count]

    def element(self, dtype: np.dtype[Any], index: int) -> Any:
        """Return one element as a Python value, like `ndarray.item`. Raises `InvalidDataError` if the buffer is too
        short.
        """
        typed = self.memory._typed.get(dtype)
        # Any doubt goes to `view`, which checks the range and raises; this is the common case, without a new array.
        if typed is None or index < 0 or (index + 1) * dtype.itemsize > self.size or self.offset % dtype.itemsize:
            return self.view(dtype, index, 1).item()
        return typed.item(self.offset // dtype.itemsize + index)

    @property
    def bytes(self) -> Bytes:
        """The bytes as a read-only NumPy array of shape (size,), without copying."""
        return self.memory.bytes[self.offset : self.offset + self.size]

    def slice(self, offset: int, size: int | None = None) -> Buffer:
        """Return `size` bytes from byte `offset` (default: to the end), without copying."""
        if size is None:
            size = self.size - offset
        if offset < 0 or size < 0 or offset + size > self.size:
            raise InvalidArgumentError(
                f"bytes {offset} to {offset + size} are out of range for a buffer of {self.size} bytes"
            )
        return Buffer(self.memory, self.offset + offset, size)

    def to_bytes(self) -> builtins.bytes:
        """Copy the bytes."""
        return self.bytes.tobytes()

    def as_picklable(self, protocol: int) -> builtins.bytes | PickleBuffer:
        """Return the bytes to pickle: a copy, or an out-of-band buffer from protocol 5 on."""
        return PickleBuffer(self.bytes.data) if protocol >= _OUT_OF_BAND else self.to_bytes()

    def __copy__(self) -> Buffer:
        return self

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Buffer.of, (self.as_picklable(protocol),)

    def __len__(self) -> int:
        return self.size

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.bytes, dtype=dtype, copy=copy)

    def __buffer__(self, flags: int) -> memoryview:
        """`memoryview(buffer)` from Python 3.12 on; `buffer.bytes.data` works on any version."""
        return self.bytes.data

    def __bytes__(self) -> builtins.bytes:
        return self.to_bytes()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Buffer):
            return NotImplemented
        return self.size == other.size and bool(np.array_equal(self.bytes, other.bytes))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<bowstring.memory.Buffer {format_count(self.size, 'byte')} at {self.address:#x} on {self.device}>"


def _empty_array(dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
    array = np.empty(count, dtype)
    array.flags.writeable = False
    return array


def allocate(size_bytes: int, is_zeroed: bool = True) -> Bytes:
    """Allocate `size_bytes` bytes of writable memory, aligned to 64 bytes."""
    raw = (np.zeros if is_zeroed else np.empty)(size_bytes + ALIGNMENT_BYTES, UINT8)
    skip = -raw.__array_interface__["data"][0] % ALIGNMENT_BYTES
    return raw[skip : skip + size_bytes]


class _ArrayInterface:
    """Makes NumPy create an array of bytes at an address."""

    __slots__ = ("__array_interface__",)

    def __init__(self, first: int, size_bytes: int) -> None:
        self.__array_interface__ = {"data": (first, True), "shape": (size_bytes,), "typestr": "|u1", "version": 3}


def view_enclosing_range(buffers: Sequence[Buffer]) -> tuple[npt.NDArray[np.int64], Bytes]:
    """View the memory from the first to the last byte of buffers as one array; return their offsets and the array.

    This lets one NumPy call read from many buffers. Taking 1,000 slots from 10 chunks is 5 to 10 times faster than
    taking them chunk by chunk, and concatenating 1,000 arrays of 10 slots 2 to 4 times faster than creating a view of
    each. The caller must read only bytes of the buffers, and by indexing: any other address can crash the process, as
    can functions that copy the array first, such as `ndarray.take`. The array does not keep the buffers alive.
    """
    memory = buffers[0].memory
    if all(buffer.memory is memory for buffer in buffers):
        return np.array([buffer.offset for buffer in buffers], np.int64), memory.bytes
    addresses = np.array([buffer.address for buffer in buffers], np.int64)
    sizes = np.array([buffer.size for buffer in buffers], np.int64)
    # The range may be longer than all memory, from one mapping to another: an array over it costs nothing until it is
    # read.
    first, end = int(addresses.min()), int((addresses + sizes).max())
    return addresses - first, np.asarray(_ArrayInterface(first, end - first))


EMPTY = Buffer.of(b"")
"""An empty buffer."""
