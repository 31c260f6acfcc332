"""«The ArrowArray structure» of the Arrow C data interface: arrays as C structures, and back, without copying.

Both ways are one walk over the layouts' declaration: buffers as they are declared, then for a layout with variadic buffers these
and one more buffer of their lengths («Binary view arrays»), the children, the dictionary.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np

from bowstring.errors import InvalidDataError, LimitError, UsageError
from bowstring.exchange import abi
from bowstring.layouts.array import Array
from bowstring.layouts.base import BufferSpec, Layout, Role, place
from bowstring.memory.buffer import ALIGNMENT_BYTES, EMPTY, Buffer, Memory

MAX_VARIADIC_BUFFERS = 1 << 20
"""The most data buffers of one array of views that are read."""
_MAX_SLOTS = 1 << 56
_ADDRESSES = 1 << 62

_zeros = abi.immortal(np.zeros(8, np.int64))
_ZEROS = _zeros.__array_interface__["data"][0]
"""Where the offsets of an array without slots and buffers point: readers look for a first offset all the same."""


# Out


def array_block(array: Array) -> abi.Block:
    """An array as an ArrowArray structure with all that it points to; its memory stays until the structure is released.

    Raises `UsageError` for memory that the processor does not read.
    """
    block = abi.Block()
    _write(block, array)
    return block.finish()


def batch_block(num_rows: int, columns: list[Array]) -> abi.Block:
    """A record batch as the structure of a struct array without nulls («Record batches»)."""
    block = abi.Block()
    node = block.add([num_rows, 0, 0, 1, len(columns), 0, 0, 0, abi.ARRAY_RELEASER, abi.keep(block)])
    block.at(node + abi.BUFFERS, block.add([0]))
    _write_children(block, node, columns)
    return block.finish()


def _write(block: abi.Block, array: Array) -> int:
    layout, buffers, children = array.layout, array.buffers, array.children
    node = block.add(
        [array.length, _null_count(array), array.offset, len(buffers), len(children), 0, 0, 0]
        + [abi.ARRAY_RELEASER, abi.keep(block, buffers)]
    )
    if buffers:
        slots = array.offset + array.length
        declared = [_address(buffer, spec, slots) for buffer, spec in zip(buffers, layout.buffers, strict=False)]
        variadic = [b for b in buffers[len(layout.buffers) :] if b is not None]
        pointers = block.add(declared + [_address(b) for b in variadic])
        block.at(node + abi.BUFFERS, pointers)
        if layout.VARIADIC:
            lengths = block.add([0])
            block.at(lengths, block.add([b.size for b in variadic] or [0]))
            block.words[node + abi.N_BUFFERS] += 1
    _write_children(block, node, children)
    if array.dictionary is not None:
        block.at(node + abi.DICTIONARY, _write(block, array.dictionary))
    return node


def _write_children(block: abi.Block, node: int, children: Any) -> None:
    if children:
        pointers = block.add([0] * len(children))
        block.at(node + abi.CHILDREN, pointers)
        for i, child in enumerate(children):
            block.at(pointers + i, _write(block, child))


def _null_count(array: Array) -> int:
    """The null count where it is known or implied, else -1: the consumer counts if it wants to know."""
    if array.layout.has_validity:
        return 0 if array.buffers[0] is None else array._null_count
    return 0 if array.layout.buffers or array.layout.children else array.null_count


def _address(buffer: Buffer | None, spec: BufferSpec | None = None, slots: int = 0) -> int:
    if buffer is None or (buffer.size == 0 and slots == 0):
        return 0 if spec is None or spec.role is Role.VALIDITY else _ZEROS
    if buffer.device != "cpu":
        raise UsageError(
            f"a buffer on {buffer.device} cannot go through the C data interface: copy it to the cpu first"
        )
    return buffer.address


# In


class Import:
    """One ArrowArray structure that was taken over, and the arrays over its memory.

    All buffers of the structure are stretches of one `Memory`, which begins at the first and ends with the last of them: what lies
    between them is never looked at. Making a buffer is then as cheap as making an object.
    """

    __slots__ = ("_buffers",)

    def __init__(self) -> None:
        self._buffers: list[Buffer] = []

    def settle(self, held: Held) -> None:
        """Give the buffers that were read their memory, which keeps the structure until the last of them is gone."""
        buffers = self._buffers
        if not buffers:
            return
        start = min([b.offset for b in buffers]) & -ALIGNMENT_BYTES
        stop = max([b.offset + b.size for b in buffers])
        if not 0 < start <= stop <= _ADDRESSES:
            raise InvalidDataError(f"buffers from address {start:#x} to {stop:#x} are no memory of this process")
        memory = held.memory(start, stop - start)
        for buffer in buffers:
            buffer.memory = memory
            buffer.offset -= start

    def read(self, address: int, layout: Layout) -> Array:
        """The array that an ArrowArray structure describes; its buffers wait for `settle`."""
        words = abi.ArrayWords.from_address(address)[:]
        length, nulls, offset, n_buffers, n_children, buffers, children, dictionary, release, _ = words
        if not release:
            raise InvalidDataError("the structure is released already")
        if not (0 <= length <= _MAX_SLOTS and 0 <= offset <= _MAX_SLOTS and -1 <= nulls <= length):
            raise InvalidDataError(f"length {length}, offset {offset} and null count {nulls} do not go together")
        declared = len(layout.buffers)
        if (n_buffers < declared + 1 if layout.VARIADIC else n_buffers != declared) or n_children != len(
            layout.children
        ):
            raise InvalidDataError(
                f"{layout.type} has {declared} buffers and {len(layout.children)} children, not {n_buffers} and {n_children}"
            )
        if (dictionary == 0) != (layout.dictionary is None):
            raise InvalidDataError(f"{layout.type} {'comes with a' if dictionary else 'has no'} dictionary")
        held = self._buffers_of(buffers, n_buffers, offset + length, layout) if n_buffers else ()
        if not layout.has_validity:
            nulls = -1
        elif held[0] is None:
            if nulls > 0:
                raise InvalidDataError(f"{nulls} of {length} slots are null, but there is no validity bitmap")
            nulls = 0
        if not children and not dictionary:
            return Array(layout, length, held, (), None, nulls, offset)
        addresses = abi.pointers(children, n_children, "children of an array")
        kids = []
        for child, kind, field in zip(addresses, layout.children, layout.type.fields, strict=True):
            try:
                kids.append(self.read(child, kind))
            except InvalidDataError as error:
                raise type(error)(f"{field.name or 'child'}: {error}") from None
        values = None
        if layout.dictionary is not None:
            with place("dictionary"):
                values = self.read(dictionary, layout.dictionary)
        return Array(layout, length, held, tuple(kids), values, nulls, offset)

    def _buffers_of(self, buffers: int, size: int, slots: int, layout: Layout) -> tuple[Buffer | None, ...]:
        if not buffers:
            raise InvalidDataError(f"an array of {layout.type} has a null pointer instead of {size} buffers")
        specs = layout.buffers
        lengths: tuple[int, ...] = ()
        if layout.VARIADIC:
            lengths = _variadic_lengths(buffers, size, len(specs))
        held: list[Buffer | None] = []
        end = 0
        for at, spec in enumerate(specs):
            address = _Pointer.from_address(buffers + 8 * at).value or 0
            size_bytes = spec.size_bytes(slots) if spec.per_slot else end
            if spec.role is Role.OFFSETS and spec.extra and address:
                end = _last_offset(address, spec, slots)
            if address and size_bytes:
                held.append(self._buffer(address, size_bytes))
            elif spec.role is Role.VALIDITY:
                held.append(None)
            elif size_bytes and slots:
                raise InvalidDataError(
                    f"buffer {at} ({spec.role.value}) is null, but holds {size_bytes} bytes of {slots} slots"
                )
            else:
                held.append(EMPTY)
        for at, length in enumerate(lengths, len(specs)):
            address = _Pointer.from_address(buffers + 8 * at).value or 0
            if length < 0 or (length and not address):
                raise InvalidDataError(f"variadic buffer {at - len(specs)} of {length} bytes is at {address:#x}")
            held.append(self._buffer(address, length) if length else EMPTY)
        return tuple(held)

    def _buffer(self, address: int, size: int) -> Buffer:
        buffer = Buffer(_NOWHERE, address, size)
        self._buffers.append(buffer)
        return buffer


_Pointer = ctypes.c_void_p
_NOWHERE = EMPTY.memory


def _last_offset(address: int, spec: BufferSpec, slots: int) -> int:
    assert spec.dtype is not None
    width = spec.dtype.itemsize
    last = (ctypes.c_int32 if width == 4 else ctypes.c_int64).from_address(address + slots * width).value
    if last < 0:
        raise InvalidDataError(f"offsets[{slots}] = {last} is negative")
    return last


def _variadic_lengths(buffers: int, size: int, declared: int) -> tuple[int, ...]:
    variadic = size - declared - 1
    if variadic > MAX_VARIADIC_BUFFERS:
        raise LimitError(f"an array of views with {variadic} data buffers (at most {MAX_VARIADIC_BUFFERS} are read)")
    address = _Pointer.from_address(buffers + 8 * (size - 1)).value
    if not variadic:
        return ()
    if not address:
        raise InvalidDataError(f"the lengths of {variadic} variadic buffers are a null pointer")
    return struct.unpack(f"={variadic}q", ctypes.string_at(address, 8 * variadic))


class Held:
    """An ArrowArray structure that is ours: moved here («Moving an array»), and released once, when nobody holds it any more."""

    __slots__ = ("__array_interface__", "__weakref__", "_release", "words")

    def __init__(self, address: int) -> None:
        """Move the structure at an address; what is there is marked released."""
        self.words = abi.ArrayWords.from_buffer_copy(abi.ArrayWords.from_address(address))
        abi.ArrayWords.from_address(address)[abi.RELEASE] = 0
        self._release = abi.ReleaseFunction(self.words[abi.RELEASE])
        self.__array_interface__: dict[str, object] = {}

    @property
    def address(self) -> int:
        """Where the structure is now."""
        return ctypes.addressof(self.words)

    def memory(self, start: int, size: int) -> Memory:
        """`size` bytes from an address on, whose views keep the structure."""
        self.__array_interface__ = {"data": (start, True), "shape": (size,), "typestr": "|u1", "version": 3}
        return Memory(np.asarray(self))

    def __del__(self, _addressof: Any = ctypes.addressof) -> None:
        words = self.words
        if words[8]:
            self._release(_addressof(words))


def take_array(address: int, layout: Layout) -> Array:
    """The array that a structure describes, over its memory; the structure is moved, and released with the last view of it.

    Raises `InvalidDataError` or one of its kinds for a structure that does not fit the layout; it is released then, too.
    """
    held = Held(address)
    taken = Import()
    array = taken.read(held.address, layout)
    taken.settle(held)
    return array
