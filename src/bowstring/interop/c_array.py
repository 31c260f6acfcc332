"""«The ArrowArray structure» of the Arrow C data interface: export and import arrays as C structures without copying.

Both directions follow the layout's declaration: the declared buffers, then the variadic buffers, if any, and one more
buffer with their lengths («Binary view arrays»), the children, and the dictionary.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from bowstring.errors import InvalidArgumentError, InvalidDataError, prefix_errors
from bowstring.interop import c_device
from bowstring.layouts.base import ArrayData, Layout
from bowstring.layouts.fixed_size_list import FixedSizeListLayout
from bowstring.layouts.list_ import MapLayout
from bowstring.memory import c_abi
from bowstring.memory.buffer import ALIGNMENT_BYTES, EMPTY, Buffer, Memory
from bowstring.memory.c_callbacks import make_immortal
from bowstring.memory.device import Device, device_pointer

# Lengths are int64 in the C structure.
_MAX_LENGTH = (1 << 63) - 1
_MAX_BUFFER_BYTES = 1 << 56
"""More than the address space of a process on current processors. Layouts without buffers can have more slots."""

_zero_offsets = make_immortal(np.zeros(8, np.int64))
_ZERO_OFFSETS_ADDRESS: int = _zero_offsets.__array_interface__["data"][0]
"""Where the offsets of an empty array without buffers point: some consumers read the first offset anyway."""


class AbstractRecordBatch(Protocol):
    """Columns of equal length: a record batch or `ColumnarBatch`."""

    @property
    def num_rows(self) -> int:
        """The number of rows."""

    @property
    def columns(self) -> Sequence[ArrayData]:
        """The columns."""


class ColumnarBatch(NamedTuple):
    """The number of rows and the columns of a record batch."""

    num_rows: int
    columns: Sequence[ArrayData]


# Export


def build_array_block(array: ArrayData, device: Device | None = None) -> c_abi.ExportedStructBlock:
    """Return a block with the ArrowArray structure of an array. The array's memory stays alive until the structure is
    released.

    Raises `InvalidDataError` if a buffer is too short or a child is missing, so that no consumer reads out of bounds.
    Raises `InvalidArgumentError` for memory of another device than `device` (None: of the CPU), and for views on a
    device.
    """
    with c_abi.ExportedStructBlock() as block:
        _write_array(block, array, device)
    return block


def build_batch_block(
    num_rows: int, columns: Sequence[ArrayData], device: Device | None = None
) -> c_abi.ExportedStructBlock:
    """Return a block with a record batch as a struct array without nulls («Record batches»).

    Raises as `build_array_block`.
    """
    with c_abi.ExportedStructBlock() as block:
        node = block.append_fields(
            [num_rows, 0, 0, 1, len(columns), 0, 0, 0, c_abi.RELEASE_ARRAY_ADDRESS, block.retain()]
        )
        block.set_pointer(node + c_abi.BUFFERS, block.append_fields([0]))
        _write_children(block, node, columns, device)
    return block


def _write_array(block: c_abi.ExportedStructBlock, array: ArrayData, device: Device | None) -> int:
    if _needs_compaction(array):
        array = array.compact()
    layout, buffers, children, dictionary = array.layout, array.own_buffers, array.children, array.dictionary
    if len(children) != len(layout.children) or (dictionary is None) != (layout.dictionary is None):
        raise InvalidDataError(f"the array of {layout.type} has no dictionary or too few children")
    if array.offset + array.length and device is None:
        layout.check(array)
    shape = (array.length, _exported_null_count(array), array.offset, len(buffers), len(children))
    node = block.append_fields([*shape, 0, 0, 0, c_abi.RELEASE_ARRAY_ADDRESS, block.retain(buffers)])
    if buffers:
        num_slots, num_declared = array.offset + array.length, len(layout.buffers)
        addresses = [
            _declared_buffer_address(layout, index, buffer, num_slots, device)
            for index, buffer in enumerate(buffers[:num_declared])
        ]
        if layout.VARIADIC:
            if device is not None:
                raise InvalidArgumentError(
                    f"can't export {layout.type} on {device}: its lengths of buffers are on the CPU"
                )
            variadic = [EMPTY if buffer is None else buffer for buffer in buffers[num_declared:]]
            lengths = block.append_fields([buffer.size for buffer in variadic] or [0])
            pointers = block.append_fields(
                [*addresses, *(_buffer_address(buffer, None) if buffer.size else 0 for buffer in variadic), 0]
            )
            block.set_pointer(pointers + len(buffers), lengths)
            block.fields[node + c_abi.N_BUFFERS] += 1
        else:
            pointers = block.append_fields(addresses)
        block.set_pointer(node + c_abi.BUFFERS, pointers)
    _write_children(block, node, children, device)
    if dictionary is not None:
        block.set_pointer(node + c_abi.DICTIONARY, _write_array(block, dictionary, device))
    return node


def _needs_compaction(array: ArrayData) -> bool:
    """Whether some consumer rejects the array in its current layout, or reads it wrong."""
    layout = array.layout.storage
    if isinstance(layout, FixedSizeListLayout):
        return True  # polars requires a child of exactly the array's length
    if isinstance(layout, MapLayout):
        return any(entries.offset for entries in array.children)  # pyarrow ignores the offset of the entries
    return array.offset > 0 and not array.length  # pyarrow reports empty view arrays with an offset as too short


def _write_children(block: c_abi.ExportedStructBlock, node: int, children: Any, device: Device | None) -> None:
    if children:
        pointers = block.append_fields([0] * len(children))
        block.set_pointer(node + c_abi.CHILDREN, pointers)
        for i, child in enumerate(children):
            block.set_pointer(pointers + i, _write_array(block, child, device))


def _exported_null_count(array: ArrayData) -> int:
    """Return the null count if it is cached or implied by the layout, else -1 (not computed)."""
    if array.layout.has_validity:
        return 0 if array.own_buffers[0] is None else array.known_null_count
    return 0 if array.layout.buffers or array.layout.children else array.null_count


def _declared_buffer_address(
    layout: Layout, index: int, buffer: Buffer | None, num_slots: int, device: Device | None
) -> int:
    spec, error = layout.buffers[index], layout.buffer_size_error(index, buffer, num_slots) if num_slots else None
    if error is not None:
        raise error
    if buffer is None or not buffer.size:
        return 0 if spec.is_validity or device is not None else _ZERO_OFFSETS_ADDRESS
    if device is None and spec.num_extra and not num_slots:
        return _ZERO_OFFSETS_ADDRESS  # the offset of an empty array is undefined, but some consumers use it
    return _buffer_address(buffer, device)


def _buffer_address(buffer: Buffer, device: Device | None) -> int:
    if device is not None:
        if buffer.device != str(device):
            raise InvalidArgumentError(f"can't export a buffer on {buffer.device} with others on {device}")
        return device_pointer(buffer)
    if buffer.device != "cpu":
        raise InvalidArgumentError(
            f"can't export a buffer on {buffer.device} by the C data interface: use __arrow_c_device_array__ of an "
            "array or record batch, or copy it with to_host()"
        )
    return buffer.address


# Import


class ArrayImporter:
    """Reads one ArrowArray structure, with its children and dictionary, into arrays over its memory.

    All buffers of the structure are slices of one `Memory`, from the lowest to the highest address; the gaps between
    buffers are never accessed. This makes creating a buffer as cheap as creating an object.
    """

    __slots__ = ("_buffers", "_nested_arrays")

    def __init__(self) -> None:
        self._buffers: list[Buffer] = []
        self._nested_arrays: list[ArrayData] = []

    def bind_memory(self, struct: ImportedStruct) -> None:
        """Bind all buffers to one memory that keeps the structure alive, then check the lengths of the children."""
        buffers = self._buffers
        if buffers:
            # Until now, `offset` is the address itself: the memory spans all buffers together, which are known
            # only now.
            start = min([b.offset for b in buffers]) & -ALIGNMENT_BYTES
            stop = max([b.offset + b.size for b in buffers])
            if not c_abi.FIRST_ADDRESS <= start <= stop <= c_abi.LAST_ADDRESS:
                raise InvalidDataError(f"buffers from {start:#x} to {stop:#x}, which are not valid addresses")
            memory = self._create_memory(struct, start, stop - start)
            for buffer in buffers:
                buffer.memory = memory
                buffer.offset -= start
        self._check_child_lengths()

    def _create_memory(self, struct: ImportedStruct, start: int, size_bytes: int) -> Memory:
        return struct.memory(start, size_bytes)

    def _check_child_lengths(self) -> None:
        for array in self._nested_arrays:
            if array.length or array.offset:
                array.layout.check(array)

    def read(self, address: int, layout: Layout) -> ArrayData:
        """Return the array of an ArrowArray structure. Its buffers can be read only after `bind_memory`."""
        fields = c_abi.ArrayStruct.from_address(address)[:]
        length, null_count, offset, n_buffers, n_children, buffer_pointers, _, dictionary, release, _ = fields
        num_declared = len(layout.buffers) + layout.VARIADIC
        if not release:
            raise InvalidDataError("the structure is released already")
        if length < 0 or offset < 0 or length + offset > _MAX_LENGTH or not -1 <= null_count <= length:
            raise InvalidDataError(f"length {length}, offset {offset} and null count {null_count} are inconsistent")
        if n_buffers == 1 and not num_declared:
            n_buffers = 0  # Arrow before 1.0, and polars: a null array with an absent validity bitmap
        is_wrong = n_buffers < num_declared or (n_buffers > num_declared and not layout.VARIADIC)
        if is_wrong or n_children != len(layout.children):
            expected = f"{'at least ' if layout.VARIADIC else ''}{num_declared} buffers"
            raise InvalidDataError(
                f"{layout.type} has {expected} and {len(layout.children)} children, found {n_buffers} and {n_children}"
            )
        buffers = self._read_buffers(buffer_pointers, n_buffers, offset + length, layout) if n_buffers else ()
        if not layout.has_validity:
            null_count = -1
        elif buffers[0] is None:
            if null_count > 0:
                raise InvalidDataError(f"{null_count} of {length} slots are null, but there is no validity bitmap")
            null_count = 0
        if not n_children and not dictionary and layout.dictionary is None:
            return ArrayData(layout, length, buffers, (), None, null_count, offset)
        return self._read_nested(fields, layout, buffers, null_count)

    def _read_nested(
        self, fields: list[int], layout: Layout, buffers: tuple[Buffer | None, ...], null_count: int
    ) -> ArrayData:
        dictionary = fields[c_abi.DICTIONARY]
        if (dictionary == 0) != (layout.dictionary is None):
            raise InvalidDataError(f"{layout.type} has {'an unexpected' if dictionary else 'no'} dictionary")
        addresses = c_abi.read_pointers(fields[c_abi.CHILDREN], fields[c_abi.N_CHILDREN], "children of an array")
        children = []
        for child, child_layout, field in zip(addresses, layout.children, layout.type.fields, strict=True):
            with prefix_errors(field.name or "child"):
                children.append(self.read(child, child_layout))
        values = None
        if layout.dictionary is not None:
            c_abi.check_pointer(dictionary, "a dictionary")
            with prefix_errors("dictionary"):
                values = self.read(dictionary, layout.dictionary)
        array = ArrayData(
            layout, fields[c_abi.LENGTH], buffers, tuple(children), values, null_count, fields[c_abi.OFFSET]
        )
        self._nested_arrays.append(array)
        return array

    def _read_buffers(self, address: int, count: int, num_slots: int, layout: Layout) -> tuple[Buffer | None, ...]:
        addresses = c_abi.read_nullable_pointers(address, count, "buffers")
        buffers: list[Buffer | None] = []
        data_bytes = 0
        for index, spec in enumerate(layout.buffers):
            address, size_bytes = addresses[index], spec.size_bytes(num_slots) if spec.per_slot else data_bytes
            if address and size_bytes:
                if size_bytes > _MAX_BUFFER_BYTES:
                    raise InvalidDataError(
                        f"buffer {index}: {num_slots} slots need {size_bytes} bytes, more than the address space"
                    )
                if spec.num_extra and spec.dtype is not None:
                    data_bytes = self._read_last_offset(address, spec.dtype.itemsize, num_slots) if num_slots else 0
                buffer = Buffer(_ADDRESS_SPACE, address, size_bytes)
                self._buffers.append(buffer)
                buffers.append(buffer)
            elif spec.is_validity:
                buffers.append(None)
            elif size_bytes and num_slots:
                raise InvalidDataError(f"buffer {index} is null, but {num_slots} slots need {size_bytes} bytes")
            else:
                buffers.append(EMPTY)
        if layout.VARIADIC:
            buffers += self._read_variadic_buffers(addresses, len(layout.buffers))
        return tuple(buffers)

    def _read_last_offset(self, address: int, width: int, num_slots: int) -> int:
        last_address = address + num_slots * width
        if not c_abi.FIRST_ADDRESS <= last_address < c_abi.LAST_ADDRESS:
            raise InvalidDataError(f"offsets at {address:#x}, which is not a valid address")
        # The only content that is read before the buffers are bound: the size of the data follows from it. A producer's
        # pointers have to be trusted, here as in any other consumer.
        last = self._read_integer_at(last_address, width)
        if last < 0:
            raise InvalidDataError(f"offsets[{num_slots}] = {last} is negative")
        return last

    def _read_integer_at(self, address: int, width: int) -> int:
        return (_Int32 if width == 4 else _Int64).from_address(address).value

    def _read_variadic_buffers(self, addresses: Sequence[int], num_declared: int) -> list[Buffer]:
        """Return the buffers after the declared ones; the last pointer points to their lengths, 64 bits each."""
        data_addresses = addresses[num_declared:-1]
        lengths = c_abi.read_nullable_pointers(addresses[-1], len(data_addresses), "lengths of variadic buffers")
        buffers = []
        for index, (address, length) in enumerate(zip(data_addresses, lengths, strict=True)):
            if length < 0 or (length and not address):
                raise InvalidDataError(f"variadic buffer {index} of {length} bytes is at address {address:#x}")
            buffers.append(Buffer(_ADDRESS_SPACE, address, length) if length else EMPTY)
        self._buffers += [buffer for buffer in buffers if buffer.size]
        return buffers


_ADDRESS_SPACE = Memory(b"")
"""The whole address space: a placeholder until `bind_memory` replaces it. It is never read."""
_ADDRESS_SPACE.address, _ADDRESS_SPACE.size = 0, 1 << 64


_Int32, _Int64 = ctypes.c_int32, ctypes.c_int64


class ImportedStruct:
    """An ArrowArray structure moved from a producer («Moving an array»). It is released when the last reference to it
    is gone.
    """

    __slots__ = ("__array_interface__", "__weakref__", "_release", "fields")

    def __init__(self, address: int) -> None:
        """Move the structure at an address and mark the original as released."""
        self.fields = c_abi.move_struct(address, c_abi.ArrayStruct, c_abi.RELEASE)
        self._release = c_abi.ReleaseFunction(self.fields[c_abi.RELEASE])
        self.__array_interface__: dict[str, object] = {}

    @property
    def address(self) -> int:
        """The current address of the structure."""
        return ctypes.addressof(self.fields)

    def memory(self, start: int, size_bytes: int) -> Memory:
        """Return `size_bytes` bytes from address `start` as a memory whose views keep the structure alive."""
        self.__array_interface__ = {"data": (start, True), "shape": (size_bytes,), "typestr": "|u1", "version": 3}
        return Memory(np.asarray(self))

    # A default argument, because globals may be gone when the interpreter exits.
    def __del__(self, _addressof: Any = ctypes.addressof) -> None:
        fields = self.fields
        if fields[8]:
            self._release(_addressof(fields))


def import_array_struct(address: int, layout: Layout, is_device_array: bool = False) -> ArrayData:
    """Move a structure and return its array, over the same memory. The structure is released with the last view.

    With `is_device_array` it is an ArrowDeviceArray, which begins with an ArrowArray. Raises `InvalidDataError` or a
    subclass if the structure does not match the layout, `UnsupportedError` if the CPU can't read its memory; the
    structure is released in either case.
    """
    # First: from now on the structure is released, whatever is wrong with it.
    struct = ImportedStruct(address)
    if is_device_array:
        c_device.check_cpu_readable_array(address)
    importer = ArrayImporter()
    array = importer.read(struct.address, layout)
    importer.bind_memory(struct)
    return array
