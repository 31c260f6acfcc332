"""Buffers: contiguous memory regions («Terminology» in the columnar format), and who owns them.

A `Memory` is one region with its owner; a `Buffer` is a stretch of one. Slicing a buffer makes another buffer over the
same memory, so a mapped file of a thousand columns has one `Memory`, and a view of a column is a slice of one typed
NumPy array that covers the whole file.
"""

from __future__ import annotations

import builtins
import ctypes
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidDataError, UsageError

Bytes = npt.NDArray[np.uint8]
UINT8 = np.dtype(np.uint8)
ALIGNMENT_BYTES = 64
"""Allocations start at multiples of this many bytes («Buffer Alignment and Padding» recommends it)."""
_OUT_OF_BAND = 5
"""The pickle protocol from which on buffers can be handed over beside the pickle (PEP 574)."""


class Memory:
    """One contiguous, read-only region of memory, kept alive by its owner.

    `owner` is anything with the buffer protocol (bytes, a mapping, a NumPy array); nothing is copied. Views that are
    handed out are read-only NumPy arrays, and each keeps the owner alive.
    """

    __slots__ = ("_array", "_bytes", "_typed", "address", "device", "owner", "size")

    def __init__(self, owner: Any, device: str = "cpu") -> None:
        array = _array_over(owner)
        self.size: int = array.nbytes
        """The length in bytes."""
        self.address: int = _address_of(array)
        """The address of the first byte."""
        self.owner = owner
        self.device = device
        self._array = array
        self._bytes: Bytes | None = None
        self._typed = _UNTYPED

    @property
    def bytes(self) -> Bytes:
        """All bytes; the view of them is made when it is first asked for."""
        held = self._bytes
        if held is None:
            held = self._array.view(np.ndarray).reshape(-1).view(UINT8)
            held.flags.writeable = False
            self._bytes = held
        return held

    def typed(self, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """All whole elements of `dtype` from the first byte on, without copying (possibly unaligned)."""
        array = self._typed.get(dtype)
        if array is None:
            if self._typed is _UNTYPED:
                self._typed = {}
            array = self._typed[dtype] = self.bytes[: self.size // dtype.itemsize * dtype.itemsize].view(dtype)
        return array


_UNTYPED: dict[np.dtype[Any], npt.NDArray[Any]] = {}
"""What a memory has before it is looked at: many small ones never are."""


def _array_over(owner: Any) -> npt.NDArray[Any]:
    """An owner as an array; raises `UsageError` for one whose bytes do not lie end to end or are Python objects."""
    array = owner if isinstance(owner, np.ndarray) else np.frombuffer(owner, UINT8)
    if not array.flags.c_contiguous or array.dtype.hasobject:
        raise UsageError("a buffer needs C-contiguous memory without Python objects: copy the array first")
    return array


def _address_of(array: npt.NDArray[Any]) -> int:
    """The address of an array's first element; of a writable one several times quicker than NumPy says it."""
    if array.flags.writeable:
        try:
            return ctypes.addressof(_Byte.from_buffer(array))  # type: ignore[arg-type]  # it is a buffer
        except ValueError:  # no element, or one of a type that has no buffers
            pass
    address: int = array.__array_interface__["data"][0]
    return address


_Byte = ctypes.c_ubyte


class Buffer:
    """A stretch of `size` bytes of a `Memory`, beginning at byte `offset` of it.

    Immutable and cheap: making one neither copies nor touches bytes. Raises `InvalidDataError` for a stretch that is
    not within its memory.
    """

    __slots__ = ("address", "memory", "offset", "size", "whole")

    address: int
    """The address of the first byte."""
    memory: Memory
    """The memory that this is a stretch of."""

    def __init__(self, memory: Memory, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > memory.size:
            raise InvalidDataError(f"{size} bytes from byte {offset} on are not within a memory of {memory.size} bytes")
        self.memory = memory
        self.offset = offset
        self.size = size
        self.address = memory.address + offset
        self.whole: Any = None
        """What the buffer was made of as its whole, byte strings or an array; None for a stretch."""

    @classmethod
    def of(cls, owner: Any) -> Buffer:
        """The whole of an object with the buffer protocol (a NumPy array has to be C-contiguous), without copying."""
        made = cls.__new__(cls)
        made.offset = 0
        if owner.__class__ is bytes:
            made.whole, made.size = owner, len(owner)
        else:
            made.whole = array = _array_over(owner)
            made.size = array.nbytes
        return made

    if not TYPE_CHECKING:  # or every name would pass for an attribute

        def __getattr__(self, name: str) -> Any:
            """The memory and the address of a whole object, from then on in their slots: they take longer to find out
            than all else here, and many small buffers are never asked.
            """
            if name == "memory":
                self.memory = found = Memory(self.whole)
            elif name == "address":
                self.address = found = self.memory.address
            else:
                raise AttributeError(f"a buffer has no {name!r}")
            return found

    @property
    def device(self) -> str:
        """Where the bytes are: "cpu" for memory that the processor reads."""
        return self.memory.device

    def view(self, dtype: np.dtype[Any], start: int = 0, count: int = -1) -> npt.NDArray[Any]:
        """`count` elements of `dtype` from element `start` on (all whole ones by default), as a read-only NumPy array.

        Never copies. Raises `InvalidDataError` if the buffer is too short.
        """
        itemsize = dtype.itemsize
        if not itemsize:
            return _empty(dtype, max(count, 0))
        if count < 0:
            count = self.size // itemsize - start
        if start < 0 or count < 0 or (start + count) * itemsize > self.size:
            raise InvalidDataError(
                f"a buffer of {self.size} bytes has no {count} elements of {itemsize} bytes from element {start} on"
            )
        memory = self.memory
        first, rest = divmod(self.offset, itemsize)
        if rest:
            return (
                np.frombuffer(memory.bytes, dtype, count, self.offset + start * itemsize) if count else _empty(dtype, 0)
            )
        first += start
        typed = memory._typed.get(dtype)
        if typed is None:
            typed = memory.typed(dtype)
        return typed[first : first + count]

    def element(self, dtype: np.dtype[Any], index: int) -> Any:
        """One element as a Python value, as `ndarray.item` gives it. Raises `InvalidDataError` if the buffer is too
        short.
        """
        typed = self.memory._typed.get(dtype)
        if typed is None or index < 0 or (index + 1) * dtype.itemsize > self.size or self.offset % dtype.itemsize:
            return self.view(dtype, index, 1).item()
        return typed.item(self.offset // dtype.itemsize + index)

    @property
    def bytes(self) -> Bytes:
        """The bytes as a read-only NumPy array of shape (size,), without copying."""
        return self.memory.bytes[self.offset : self.offset + self.size]

    def slice(self, offset: int, size: int | None = None) -> Buffer:
        """The `size` bytes from byte `offset` on (to the end by default), without copying."""
        if size is None:
            size = self.size - offset
        if offset < 0 or size < 0 or offset + size > self.size:
            raise UsageError(f"bytes {offset} to {offset + size} are not within a buffer of {self.size} bytes")
        return Buffer(self.memory, self.offset + offset, size)

    def to_bytes(self) -> builtins.bytes:
        """A copy of the bytes."""
        return self.bytes.tobytes()

    def pickled(self, protocol: int) -> builtins.bytes | PickleBuffer:
        """The bytes to pickle: a copy, or from protocol 5 on a buffer that can travel beside the pickle."""
        return PickleBuffer(self.bytes.data) if protocol >= _OUT_OF_BAND else self.to_bytes()

    def __copy__(self) -> Buffer:
        return self

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Buffer.of, (self.pickled(protocol),)

    def __len__(self) -> int:
        return self.size

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.bytes, dtype=dtype, copy=copy)

    def __buffer__(self, flags: int) -> memoryview:
        """The bytes as `memoryview(buffer)` shows them, from Python 3.12 on; `bytes.data` is the same on any Python."""
        return self.bytes.data

    def __bytes__(self) -> builtins.bytes:
        return self.to_bytes()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Buffer):
            return NotImplemented
        return self.size == other.size and bool(np.array_equal(self.bytes, other.bytes))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<bowstring.Buffer {self.size} bytes at {self.address:#x} on {self.device}>"


def _empty(dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
    array = np.empty(count, dtype)
    array.flags.writeable = False
    return array


def allocate(size_bytes: int, is_zeroed: bool = True) -> Bytes:
    """Writable memory of `size_bytes` bytes that starts at a multiple of 64."""
    raw = (np.zeros if is_zeroed else np.empty)(size_bytes + ALIGNMENT_BYTES, UINT8)
    skip = -_address_of(raw) % ALIGNMENT_BYTES
    return raw[skip : skip + size_bytes]


class _Stretch:
    """What NumPy makes an array of bytes of."""

    __slots__ = ("__array_interface__",)

    def __init__(self, first: int, size_bytes: int) -> None:
        self.__array_interface__ = {"data": (first, True), "shape": (size_bytes,), "typestr": "|u1", "version": 3}


def memory_between(first: int, end: int) -> Bytes:
    """The memory from address `first` to before `end`, read-only, whosever it is: for the one call that reads those
    parts of it whose buffers the caller holds. Reading any other part may end the process.
    """
    return np.asarray(_Stretch(first, end - first))


EMPTY = Buffer.of(b"")
"""A buffer of no bytes."""
