"""The C data and C stream interfaces: structures of a producer that violates the specification.

The input is a script. Its first byte selects the array, the second how it is imported. Each further step changes a
length, a count, a pointer, a format, a name, metadata, or the content of a buffer. All buffers are in one arena,
followed by zeros: an invalid pointer can't be detected, so arrays that reach beyond the arena are not checked.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from typing import Any
from zlib import crc32

import bowstring as bs
from bowstring.arrays.array import Array
from bowstring.datatypes import c_schema
from bowstring.datatypes.extension import METADATA_KEY, NAME_KEY
from bowstring.datatypes.types import Dictionary
from bowstring.errors import BowstringError, InvalidArgumentError, InvalidDataError
from bowstring.interop import c_array, c_stream
from bowstring.layouts.base import ArrayData
from bowstring.layouts.registry import layout_of
from bowstring.layouts.validation import validate
from bowstring.memory import c_abi
from bowstring.memory.buffer import UINT8
from fuzz.expectations import ALLOWED_ERRORS, expect
from fuzz.oracles.batches import check_batch_statistics
from fuzz.oracles.protocol import Script
from tests.cases import CASES

c_schema.MAX_FIELDS = 5000
_STRIDE = 4 << 20
_MAX_BUFFERS = 40
_ARENA = mmap.mmap(-1, _STRIDE * (_MAX_BUFFERS + 8), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
"""Private memory: shared memory would be common to all workers forked from the process that imports this module."""
_BASE = ctypes.addressof(ctypes.c_char.from_buffer(_ARENA))
_COUNTS = (0, 1, 2, 3, 5, 8, 64, 1 << 10, 1 << 17, -1, -2, -(1 << 63), 1 << 59, 1 << 62, (1 << 63) - 1)
_SMALL_NUMBERS = (0, 1, 2, 3, 4, 5, 9, 64, 1000, 1 << 16, -1, -2, -(1 << 31), -(1 << 63))
_INVALID_ADDRESSES = (0, 8, 1 << 62, -64, -(1 << 63))
_FORMATS = (
    b"n", b"b", b"c", b"l", b"L", b"e", b"g", b"z", b"Z", b"u", b"U", b"vz", b"vu", b"w:3", b"w:0", b"w:-1", b"d:5,2",
    b"d:70,2,256", b"d:0,0", b"tdD", b"tdm", b"tts", b"ttn", b"tsu:UTC", b"tss:", b"tDn", b"tiM", b"tiD", b"tin", b"+l",
    b"+L", b"+vl", b"+vL", b"+w:2", b"+w:0", b"+w:2147483648", b"+s", b"+m", b"+r", b"+us:0,1", b"+ud:0,1", b"+ud:0,0",
    b"+us:", b"+ud:5,200", b"", b"\xff", b"w:99999999999999999999", b"+",
)  # fmt: skip
_NAMES = (b"", b"\xff\xfe", b"c", "é".encode(), b"x" * 300)


def _pairs(*pairs: tuple[bytes, bytes]) -> bytes:
    texts = [text for pair in pairs for text in pair]
    return len(pairs).to_bytes(4, "little") + b"".join(len(text).to_bytes(4, "little") + text for text in texts)


_METADATA = (
    b"", _pairs(), _pairs((b"k", b"v"), (b"k", b"")), _pairs((NAME_KEY, b"arrow.uuid")), _pairs((NAME_KEY, b"\xff")),
    _pairs((NAME_KEY, b"arrow.fixed_shape_tensor"), (METADATA_KEY, b'{"shape":[2,1e999]}')),
    _pairs((NAME_KEY, b"arrow.bool8"), (METADATA_KEY, b"x")), _pairs((NAME_KEY, b"arrow.json")), b"\xff" * 4,
    b"\x01\0\0\0\xff\xff\xff\xff", b"\0\0\0\x7f",
)  # fmt: skip


class CStructures:
    """The C structures of an array and its field, which a script changes."""

    def __init__(self, array: Array) -> None:
        self.arrays: list[Any] = []
        self.schemas: list[Any] = []
        self.released = 0
        self._references: list[Any] = []
        self._sizes: list[int] = []
        self._release_schema = c_abi.ReleaseFunction(lambda address: self._release(address, c_abi.SCHEMA_RELEASE))
        self._release_array = c_abi.ReleaseFunction(lambda address: self._release(address, c_abi.RELEASE))
        self.array = self._array(array)
        self.schema = self._schema(bs.Field("c", array.type))

    def _release(self, address: int, slot: int) -> None:
        self.released += slot == c_abi.RELEASE
        ctypes.c_int64.from_address(address + 8 * slot).value = 0

    def _row(self, values: list[int]) -> Any:
        block = (ctypes.c_int64 * max(len(values), 1))(*values)
        self._references.append(block)
        return block

    def _pointers(self, values: list[int]) -> int:
        return ctypes.addressof(self._row(values)) if values else 0

    def text(self, text: bytes) -> int:
        """The address of a NUL-terminated copy."""
        self._references.append(ctypes.create_string_buffer(text))
        return ctypes.addressof(self._references[-1])

    def _place_buffer(self, data: bytes | None) -> int:
        if data is None or len(self._sizes) >= _MAX_BUFFERS:
            return 0
        offset = _STRIDE * (1 + len(self._sizes))
        self._sizes.append(len(data))
        _ARENA[offset : offset + len(data)] = data
        return _BASE + offset

    def _array(self, array: Array) -> int:
        layout, buffers = array.layout, array.own_buffers
        contents = [None if buffer is None else buffer.view(UINT8).tobytes() for buffer in buffers]
        addresses = [self._place_buffer(data) for data in contents]
        if layout.VARIADIC:
            lengths = [len(data or b"") for data in contents[len(layout.buffers) :]]
            addresses.append(self._place_buffer(b"".join(length.to_bytes(8, "little") for length in lengths)))
        children = [self._array(child) for child in array.children]
        dictionary = 0 if array.dictionary is None else self._array(array.dictionary)
        nulls = array.null_count if layout.has_validity else 0 if layout.buffers or layout.children else array.length
        release = c_abi.function_address(self._release_array)
        fields = [array.length, nulls, array.offset, len(addresses), len(children), self._pointers(addresses)]
        self.arrays.append(self._row([*fields, self._pointers(children), dictionary, release, 0]))
        return ctypes.addressof(self.arrays[-1])

    def _schema(self, field: bs.Field) -> int:
        type_, dictionary = field.type, 0
        if isinstance(type_, Dictionary):
            dictionary, type_ = self._schema(bs.Field("", type_.value_type)), type_.index_type
        children = [self._schema(child) for child in type_.fields]
        release = c_abi.function_address(self._release_schema)
        texts = [self.text(type_.c_format()), self.text(field.name.encode()), 0]
        self.schemas.append(self._row([*texts, 2, len(children), self._pointers(children), dictionary, release, 0]))
        return ctypes.addressof(self.schemas[-1])

    def apply_step(self, script: Script) -> None:
        """Apply one step of a script."""
        step = script.byte() % 9
        array = self.arrays[script.byte() % len(self.arrays)]
        schema = self.schemas[script.byte() % len(self.schemas)]
        pick, value = script.byte(), script.byte()
        if step == 0:
            array[pick % 3] = _COUNTS[value % len(_COUNTS)]
        elif step == 1:
            self._set_count(array, c_abi.N_BUFFERS if pick % 2 else c_abi.N_CHILDREN, value)
        elif step == 2:
            self._set_pointer(
                array[c_abi.BUFFERS], array[c_abi.N_BUFFERS], pick, _INVALID_ADDRESSES[value % len(_INVALID_ADDRESSES)]
            )
        elif step == 3:
            self._set_pointer(array[c_abi.CHILDREN], array[c_abi.N_CHILDREN], pick, _choose_address(self.arrays, value))
        elif step == 4:
            address, field_count = schema[c_abi.SCHEMA_CHILDREN], schema[c_abi.SCHEMA_N_CHILDREN]
            self._set_pointer(address, field_count, pick, _choose_address(self.schemas, value))
        elif step == 5:
            owner, others = ((array, self.arrays), (schema, self.schemas))[pick % 2]
            owner[c_abi.DICTIONARY if pick % 2 == 0 else c_abi.SCHEMA_DICTIONARY] = _choose_address(others, value)
        elif step == 6:
            self._set_text(schema, pick, value)
        elif step == 7:
            pointers = (
                (array, c_abi.RELEASE),
                (schema, c_abi.SCHEMA_RELEASE),
                (array, c_abi.BUFFERS),
                (array, c_abi.CHILDREN),
                (schema, c_abi.SCHEMA_CHILDREN),
            )
            owner, slot = pointers[pick % len(pointers)]
            owner[slot] = 0
        elif self._sizes:
            buffer_index = pick % len(self._sizes)
            offset = _STRIDE * (1 + buffer_index) + value // 16 * 8
            number = _SMALL_NUMBERS[value % 16 % len(_SMALL_NUMBERS)]
            _ARENA[offset : offset + 8] = (number & (1 << 64) - 1).to_bytes(8, "little")

    def _set_count(self, block: Any, slot: int, value: int) -> None:
        count = block[slot]
        block[slot] = (0, max(count - 1, 0), -1, 1 << 40, -(1 << 63), count)[value % 6]

    def _set_pointer(self, address: int, count: int, index: int, value: int) -> None:
        if address and 0 < count < 1 << 20:
            ctypes.c_int64.from_address(address + 8 * (index % count)).value = value

    def _set_text(self, schema: Any, pick: int, value: int) -> None:
        if pick % 4 <= 1:
            schema[c_abi.FORMAT] = self.text(_FORMATS[value % len(_FORMATS)]) if value < 250 else 0
        elif pick % 4 == 2:
            schema[c_abi.NAME] = self.text(_NAMES[value % len(_NAMES)]) if value < 250 else 0
        elif value % 2:
            schema[c_abi.FLAGS] = _SMALL_NUMBERS[value // 2 % len(_SMALL_NUMBERS)]
        else:
            schema[c_abi.METADATA] = self.text(_METADATA[value // 2 % len(_METADATA)]) if value < 250 else 0

    def clear_arena(self) -> None:
        """Fill the used part of the arena with zeros."""
        for index, size in enumerate(self._sizes):
            offset, used = _STRIDE * (1 + index), max(size, 256)
            _ARENA[offset : offset + used] = bytes(used)


def _choose_address(rows: list[Any], value: int) -> int:
    return ctypes.addressof(rows[value % len(rows)]) if value < 240 else 0


def check_c_data(data: bytes) -> bool:
    """Run the script and import the structures; return whether they are valid."""
    script = Script(data)
    case = CASES[script.byte() % len(CASES)]
    import_mode = script.byte()
    source = case.array()
    structures = CStructures(source.slice(import_mode // 8 % 3) if import_mode & 4 else source)
    try:
        while script.has_bytes:
            structures.apply_step(script)
        has_release = bool(structures.arrays[-1][c_abi.RELEASE])
        is_valid = _import_stream(structures) if import_mode & 1 else _import_structures(structures)
        expect(not has_release or structures.released == 1, f"released {structures.released} times")
        return is_valid
    finally:
        structures.clear_arena()


def _import_structures(structures: CStructures) -> bool:
    has_release = bool(structures.arrays[-1][c_abi.RELEASE])
    try:
        field = c_schema.read_field(structures.schema)
    except InvalidDataError as error:
        expect(bool(str(error)), "the error has no message")
        structures.released += has_release  # not imported, so not released
        return False
    return _check_array(lambda: c_array.import_array_struct(structures.array, layout_of(field.type)), field)


def _import_stream(structures: CStructures) -> bool:
    """Import the structure from a C stream with the original schema."""
    field = bs.Field("c", bs.null())
    try:
        field = c_schema.read_field(structures.schema)
    except InvalidDataError:
        structures.released += bool(structures.arrays[-1][c_abi.RELEASE])
        return False
    block = c_abi.ExportedStructBlock()
    block.address = structures.array
    stream_block = c_stream.build_stream_block(field, iter([block]))
    with c_stream.ImportedArrayStream(stream_block.address) as stream:
        return _check_array(lambda: next(stream), field)


def _check_array(import_array: Callable[[], ArrayData], field: bs.Field) -> bool:
    try:
        array = import_array()
    except (InvalidDataError, InvalidArgumentError, StopIteration) as error:
        expect(isinstance(error, StopIteration) or bool(str(error)), "the error has no message")
        return False
    for part in _arrays(array):
        for buffer in part.own_buffers:
            if buffer is not None and buffer.size and not _is_in_arena(buffer.address, buffer.size):
                return False
    try:
        validate(array, full=True)
    except InvalidDataError:
        return False
    try:
        values = array.to_pylist()
        if crc32(repr(values).encode("utf-8", "replace")) % 4:
            return True
        check_batch_statistics(bs.RecordBatch(bs.Schema((field,)), array.length, [Array.from_array_data(array)]))
    except ALLOWED_ERRORS:
        pass
    except BowstringError as error:
        expect("extension" in str(error), f"valid C data, but {error}")
    return True


def _is_in_arena(address: int, size: int) -> bool:
    return address >= _BASE and address + size <= _BASE + len(_ARENA)


def _arrays(array: ArrayData) -> Iterator[ArrayData]:
    yield array
    for child in array.children:
        yield from _arrays(child)
    if array.dictionary is not None:
        yield from _arrays(array.dictionary)
