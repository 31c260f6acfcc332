"""«The ArrowArray structure» of the Arrow C data interface: arrays as C structures, and back, without copying.

Both ways are one walk over the layouts' declaration: buffers as they are declared, then for a layout with variadic
buffers these and one more buffer of their lengths («Binary view arrays»), the children, the dictionary.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from bowstring.errors import InvalidDataError, UsageError
from bowstring.interop import c_abi, c_device
from bowstring.interop.c_callbacks import immortal
from bowstring.layouts.array import Array
from bowstring.layouts.base import BufferSpec, Layout, Role, error_context
from bowstring.layouts.fixed_size_list import FixedSizeListLayout
from bowstring.layouts.list_ import MapLayout
from bowstring.memory.buffer import ALIGNMENT_BYTES, EMPTY, Buffer, Memory

_MAX_SLOTS = (1 << 63) - 1
_MAX_BUFFER_BYTES = 1 << 56
"""No processor of today gives a process more; a layout without buffers may well have more slots."""

_zeros = immortal(np.zeros(8, np.int64))
_ZEROS: int = _zeros.__array_interface__["data"][0]
"""Where the offsets of an array without slots and buffers point: readers look for a first offset all the same."""


# Out


def array_block(array: Array) -> c_abi.Block:
    """An array as an ArrowArray structure with all that it points to; its memory stays until the structure is released.

    Raises `InvalidDataError` for an array whose structure is not sound: a consumer would read beyond its memory. Raises
    `UsageError` for memory that the processor does not read.
    """
    with c_abi.Block() as block:
        _write(block, array)
    return block


def batch_block(num_rows: int, columns: list[Array]) -> c_abi.Block:
    """A record batch as the structure of a struct array without nulls («Record batches»); errors as `array_block`."""
    with c_abi.Block() as block:
        node = block.add([num_rows, 0, 0, 1, len(columns), 0, 0, 0, c_abi.ARRAY_RELEASER, block.keep()])
        block.at(node + c_abi.BUFFERS, block.add([0]))
        _write_children(block, node, columns)
    return block


def _write(block: c_abi.Block, array: Array) -> int:
    if _is_misread(array):
        array = array.compact()
    layout, buffers, children, dictionary = array.layout, array.buffers, array.children, array.dictionary
    if len(children) != len(layout.children) or (dictionary is None) != (layout.dictionary is None):
        raise InvalidDataError(f"the array of {layout.type} lacks children or a dictionary")
    if array.offset + array.length:
        layout.check(array)
    shape = (array.length, _null_count(array), array.offset, len(buffers), len(children))
    node = block.add([*shape, 0, 0, 0, c_abi.ARRAY_RELEASER, block.keep(buffers)])
    if buffers:
        slots, specs = array.offset + array.length, layout.buffers
        addresses = [_address(buffer, spec, slots) for buffer, spec in zip(buffers, specs, strict=False)]
        if layout.VARIADIC:
            variadic = [EMPTY if buffer is None else buffer for buffer in buffers[len(specs) :]]
            lengths = block.add([buffer.size for buffer in variadic] or [0])
            pointers = block.add([*addresses, *(_address(buffer) for buffer in variadic), 0])
            block.at(pointers + len(buffers), lengths)
            block.words[node + c_abi.N_BUFFERS] += 1
        else:
            pointers = block.add(addresses)
        block.at(node + c_abi.BUFFERS, pointers)
    _write_children(block, node, children)
    if dictionary is not None:
        block.at(node + c_abi.DICTIONARY, _write(block, dictionary))
    return node


def _is_misread(array: Array) -> bool:
    """Whether it lies as some peer is known to refuse or, worse, to read wrong."""
    layout = array.layout.storage
    if isinstance(layout, FixedSizeListLayout):
        return True  # polars takes only those whose child is no longer than they are
    if isinstance(layout, MapLayout):
        return any(entries.offset for entries in array.children)  # pyarrow reads entries from their slot 0 on
    return array.offset > 0 and not array.length  # pyarrow finds views too short that begin at an offset


def _write_children(block: c_abi.Block, node: int, children: Any) -> None:
    if children:
        pointers = block.add([0] * len(children))
        block.at(node + c_abi.CHILDREN, pointers)
        for i, child in enumerate(children):
            block.at(pointers + i, _write(block, child))


def _null_count(array: Array) -> int:
    """The null count where it is known or implied, else -1: the consumer counts if it wants to know."""
    if array.layout.has_validity:
        return 0 if array.buffers[0] is None else array._null_count
    return 0 if array.layout.buffers or array.layout.children else array.null_count


def _address(buffer: Buffer | None, spec: BufferSpec | None = None, slots: int = 0) -> int:
    size_bytes = 0 if buffer is None else buffer.size
    if spec is not None and slots and (buffer is not None or spec.role is not Role.VALIDITY):
        needed = spec.size_bytes(slots)
        if size_bytes < needed:
            name = spec.role.value
            raise InvalidDataError(f"the {name} buffer has {size_bytes} bytes, but {slots} slots need {needed}")
    if not size_bytes or buffer is None:
        return 0 if spec is None or spec.role is Role.VALIDITY else _ZEROS
    if spec is not None and spec.extra and not slots:
        return _ZEROS  # what an offset says where there are no slots does not count, but a consumer may believe it
    if buffer.device != "cpu":
        raise UsageError(f"the C data interface has no place for a buffer on {buffer.device}: copy it to the cpu first")
    return buffer.address


# In


class Import:
    """One ArrowArray structure that was taken over, and the arrays over its memory.

    All buffers of the structure are stretches of one `Memory`, which begins at the first and ends with the last of
    them: what lies between them is never looked at. Making a buffer is then as cheap as making an object.
    """

    __slots__ = ("_buffers", "_nested")

    def __init__(self) -> None:
        self._buffers: list[Buffer] = []
        self._nested: list[Array] = []

    def settle(self, held: Held) -> None:
        """Give the buffers that were read their memory, which keeps the structure until the last of them is gone; then
        check that children are long enough.
        """
        buffers = self._buffers
        if buffers:
            start = min([b.offset for b in buffers]) & -ALIGNMENT_BYTES
            stop = max([b.offset + b.size for b in buffers])
            if not c_abi.FIRST_ADDRESS <= start <= stop <= c_abi.LAST_ADDRESS:
                raise InvalidDataError(f"buffers from address {start:#x} to {stop:#x} are no memory of this process")
            memory = held.memory(start, stop - start)
            for buffer in buffers:
                buffer.memory = memory
                buffer.offset -= start
        for array in self._nested:
            if array.length or array.offset:
                array.layout.check(array)

    def read(self, address: int, layout: Layout) -> Array:
        """The array that an ArrowArray structure describes; its buffers wait for `settle`."""
        words = c_abi.ArrayWords.from_address(address)[:]
        length, nulls, offset, n_buffers, n_children, buffers, _, dictionary, release, _ = words
        plan = _plan(layout)
        if not release:
            raise InvalidDataError("the structure is released already")
        if length < 0 or offset < 0 or length + offset > _MAX_SLOTS or not -1 <= nulls <= length:
            raise InvalidDataError(f"length {length}, offset {offset} and null count {nulls} do not go together")
        if n_buffers == 1 and not plan.buffers:
            n_buffers = 0  # as Arrow had it before 1.0, and polars still has it: a null array with an absent bitmap
        if n_children != plan.children or (
            n_buffers != plan.buffers and (not plan.variadic or n_buffers < plan.buffers)
        ):
            least = f"at least {plan.buffers}" if plan.variadic else str(plan.buffers)
            expected = f"{layout.type} has {least} buffers and {plan.children} children"
            raise InvalidDataError(f"{expected}, not {n_buffers} and {n_children}")
        held = self._buffers_of(buffers, n_buffers, offset + length, plan) if n_buffers else ()
        if not plan.validity:
            nulls = -1
        elif held[0] is None:
            if nulls > 0:
                raise InvalidDataError(f"{nulls} of {length} slots are null, but there is no validity bitmap")
            nulls = 0
        if not n_children and not dictionary and layout.dictionary is None:
            return Array(layout, length, held, (), None, nulls, offset)
        return self._read_nested(words, layout, held, nulls)

    def _read_nested(self, words: list[int], layout: Layout, held: tuple[Buffer | None, ...], nulls: int) -> Array:
        dictionary = words[c_abi.DICTIONARY]
        if (dictionary == 0) != (layout.dictionary is None):
            raise InvalidDataError(f"{layout.type} {'comes with a' if dictionary else 'has no'} dictionary")
        addresses = c_abi.pointers(words[c_abi.CHILDREN], words[c_abi.N_CHILDREN], "children of an array")
        children = []
        for child, kind, field in zip(addresses, layout.children, layout.type.fields, strict=True):
            try:
                children.append(self.read(child, kind))
            except InvalidDataError as error:
                raise type(error)(f"{field.name or 'child'}: {error}") from None
        values = None
        if layout.dictionary is not None:
            c_abi.check_pointer(dictionary, "a dictionary")
            with error_context("dictionary"):
                values = self.read(dictionary, layout.dictionary)
        array = Array(layout, words[c_abi.LENGTH], held, tuple(children), values, nulls, words[c_abi.OFFSET])
        self._nested.append(array)
        return array

    def _buffers_of(self, buffers: int, size: int, slots: int, plan: _Plan) -> tuple[Buffer | None, ...]:
        addresses = c_abi.addresses(buffers, size, "buffers")
        waiting = self._buffers
        held: list[Buffer | None] = []
        end = at = 0
        for width, extra, per_slot, may_be_absent in plan.steps:
            address = addresses[at]
            needed = end if not per_slot else (slots + 7) >> 3 if width < 0 else (slots + extra) * width
            if address and needed:
                if needed > _MAX_BUFFER_BYTES:
                    raise InvalidDataError(f"buffer {at} of {slots} slots has {needed} bytes: no process has so many")
                if extra:
                    end = _last_offset(address, width, slots) if slots else 0
                buffer = Buffer(_NOWHERE, address, needed)
                waiting.append(buffer)
                held.append(buffer)
            elif may_be_absent:
                held.append(None)
            elif needed and slots:
                raise InvalidDataError(f"buffer {at} is null, but {slots} slots need {needed} bytes of it")
            else:
                held.append(EMPTY)
            at += 1
        if plan.variadic:
            held += self._variadic(addresses, at)
        return tuple(held)

    def _variadic(self, addresses: Sequence[int], declared: int) -> list[Buffer]:
        """The buffers behind the declared ones; the last pointer leads to their lengths, 64 bits each."""
        of_data = addresses[declared:-1]
        lengths = c_abi.addresses(addresses[-1], len(of_data), "lengths of variadic buffers")
        found = []
        for at, (address, length) in enumerate(zip(of_data, lengths, strict=True)):
            if length < 0 or (length and not address):
                raise InvalidDataError(f"variadic buffer {at} of {length} bytes is at address {address:#x}")
            found.append(Buffer(_NOWHERE, address, length) if length else EMPTY)
        self._buffers += [buffer for buffer in found if buffer.size]
        return found


_NOWHERE = Memory(b"")
"""Stands for the whole address space until `settle` knows which part of it is meant; nothing reads it."""
_NOWHERE.address, _NOWHERE.size = 0, 1 << 64


@dataclass(frozen=True, slots=True)
class _Plan:
    """What reading an array asks of its layout, looked up once; a step is a buffer's element width (-1: bits), extra
    elements, whether it has an element for each slot, and whether it may be absent.
    """

    buffers: int
    children: int
    variadic: bool
    validity: bool
    steps: tuple[tuple[int, int, bool, bool], ...]


@lru_cache(maxsize=4096)
def _plan(layout: Layout) -> _Plan:
    steps = tuple(
        (-1 if s.dtype is None else s.dtype.itemsize, s.extra, s.per_slot, s.role is Role.VALIDITY)
        for s in layout.buffers
    )
    buffers = len(steps) + (1 if layout.VARIADIC else 0)
    return _Plan(buffers, len(layout.children), layout.VARIADIC, layout.has_validity, steps)


def _last_offset(address: int, width: int, slots: int) -> int:
    at = address + slots * width
    if not c_abi.FIRST_ADDRESS <= at < c_abi.LAST_ADDRESS:
        raise InvalidDataError(f"offsets at address {address:#x} are no memory of this process")
    last = (_Int32 if width == 4 else _Int64).from_address(at).value
    if last < 0:
        raise InvalidDataError(f"offsets[{slots}] = {last} is negative")
    return last


_Int32, _Int64 = ctypes.c_int32, ctypes.c_int64


class Held:
    """An ArrowArray structure that was moved to us («Moving an array»); released once, when nobody holds it any
    more.
    """

    __slots__ = ("__array_interface__", "__weakref__", "_release", "words")

    def __init__(self, address: int) -> None:
        """Move the structure at an address; what is there is marked released."""
        self.words = c_abi.moved(address, c_abi.ArrayWords, c_abi.RELEASE)
        self._release = c_abi.ReleaseFunction(self.words[c_abi.RELEASE])
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


def take_array(address: int, layout: Layout, on_device: bool = False) -> Array:
    """The array that a structure describes, over its memory; the structure is moved, and released with its last view.

    With `on_device` it is an ArrowDeviceArray, which begins as an ArrowArray. Raises `InvalidDataError` or one of its
    kinds for a structure that does not fit the layout, or whose memory the processor does not read; it is released
    then, too.
    """
    held = Held(address)
    if on_device:
        c_device.check_array(address)
    taken = Import()
    array = taken.read(held.address, layout)
    taken.settle(held)
    return array
