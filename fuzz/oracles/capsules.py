"""The C data and C stream interfaces: structures of a producer that breaks the rules.

The bytes are a script. The first says which array the structures are of, the second how they come; then each step
changes something: a length, a count, a pointer, a format, a name, metadata, what lies in a buffer. All buffers lie in
one arena with zeros behind them, as a pointer that lies can't be told from one that does not: where an array would
reach beyond the arena, there is nothing to judge.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import bowstring as bs
from bowstring.datatypes.extension import METADATA_KEY, NAME_KEY
from bowstring.datatypes.types import Dictionary
from bowstring.errors import BowstringError, InvalidDataError, UsageError
from bowstring.interop import c_abi, c_array, c_schema, c_stream
from bowstring.interop.c_format import format_string
from bowstring.layouts.array import Array
from bowstring.layouts.registry import layout_of
from bowstring.memory.buffer import UINT8
from bowstring.testing.cases import CASES
from fuzz.oracles.batches import check_batch
from fuzz.oracles.protocol import Script
from fuzz.promises import TOO_MUCH, promise

c_schema.MAX_FIELDS = 5000
_STRIDE = 4 << 20
_MOST_BUFFERS = 40
_ARENA = mmap.mmap(-1, _STRIDE * (_MOST_BUFFERS + 8), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
"""A worker's own: shared memory would be that of all which are forked from the process that imports this."""
_BASE = ctypes.addressof(ctypes.c_char.from_buffer(_ARENA))
_COUNTS = (0, 1, 2, 3, 5, 8, 64, 1 << 10, 1 << 17, -1, -2, -(1 << 63), 1 << 59, 1 << 62, (1 << 63) - 1)
_SMALL = (0, 1, 2, 3, 4, 5, 9, 64, 1000, 1 << 16, -1, -2, -(1 << 31), -(1 << 63))
_NOWHERE = (0, 8, 1 << 62, -64, -(1 << 63))
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


class Forge:
    """Structures over an array and its field, and what a script does to them."""

    def __init__(self, array: Array) -> None:
        self.arrays: list[Any] = []
        self.schemas: list[Any] = []
        self.released = 0
        self._held: list[Any] = []
        self._sizes: list[int] = []
        self._release_schema = c_abi.ReleaseFunction(lambda address: self._ended(address, c_abi.SCHEMA_RELEASE))
        self._release_array = c_abi.ReleaseFunction(lambda address: self._ended(address, c_abi.RELEASE))
        self.array = self._array(array)
        self.schema = self._schema(bs.Field("c", array.type))

    def _ended(self, address: int, word: int) -> None:
        self.released += word == c_abi.RELEASE
        ctypes.c_int64.from_address(address + 8 * word).value = 0

    def _row(self, values: list[int]) -> Any:
        row = (ctypes.c_int64 * max(len(values), 1))(*values)
        self._held.append(row)
        return row

    def _pointers(self, values: list[int]) -> int:
        return ctypes.addressof(self._row(values)) if values else 0

    def text(self, text: bytes) -> int:
        """The address of a copy with a NUL behind it."""
        self._held.append(ctypes.create_string_buffer(text))
        return ctypes.addressof(self._held[-1])

    def _placed(self, data: bytes | None) -> int:
        if data is None or len(self._sizes) >= _MOST_BUFFERS:
            return 0
        at = _STRIDE * (1 + len(self._sizes))
        self._sizes.append(len(data))
        _ARENA[at : at + len(data)] = data
        return _BASE + at

    def _array(self, array: Array) -> int:
        layout, buffers = array.layout, array.buffers
        held = [None if buffer is None else buffer.view(UINT8).tobytes() for buffer in buffers]
        addresses = [self._placed(data) for data in held]
        if layout.VARIADIC:
            lengths = [len(data or b"") for data in held[len(layout.buffers) :]]
            addresses.append(self._placed(b"".join(length.to_bytes(8, "little") for length in lengths)))
        children = [self._array(child) for child in array.children]
        dictionary = 0 if array.dictionary is None else self._array(array.dictionary)
        nulls = array.null_count if layout.has_validity else 0 if layout.buffers or layout.children else array.length
        release = c_abi.function_address(self._release_array)
        words = [array.length, nulls, array.offset, len(addresses), len(children), self._pointers(addresses)]
        self.arrays.append(self._row([*words, self._pointers(children), dictionary, release, 0]))
        return ctypes.addressof(self.arrays[-1])

    def _schema(self, field: bs.Field) -> int:
        kind, dictionary = field.type, 0
        if isinstance(kind, Dictionary):
            dictionary, kind = self._schema(bs.Field("", kind.value_type)), kind.index_type
        children = [self._schema(child) for child in kind.fields]
        release = c_abi.function_address(self._release_schema)
        texts = [self.text(format_string(kind)), self.text(field.name.encode()), 0]
        self.schemas.append(self._row([*texts, 2, len(children), self._pointers(children), dictionary, release, 0]))
        return ctypes.addressof(self.schemas[-1])

    def change(self, script: Script) -> None:
        """One step of a script."""
        what = script.byte() % 9
        array = self.arrays[script.byte() % len(self.arrays)]
        schema = self.schemas[script.byte() % len(self.schemas)]
        pick, value = script.byte(), script.byte()
        if what == 0:
            array[pick % 3] = _COUNTS[value % len(_COUNTS)]
        elif what == 1:
            self._count(array, c_abi.N_BUFFERS if pick % 2 else c_abi.N_CHILDREN, value)
        elif what == 2:
            self._point(array[c_abi.BUFFERS], array[c_abi.N_BUFFERS], pick, _NOWHERE[value % len(_NOWHERE)])
        elif what == 3:
            self._point(array[c_abi.CHILDREN], array[c_abi.N_CHILDREN], pick, _one_of(self.arrays, value))
        elif what == 4:
            at, words = schema[c_abi.SCHEMA_CHILDREN], schema[c_abi.SCHEMA_N_CHILDREN]
            self._point(at, words, pick, _one_of(self.schemas, value))
        elif what == 5:
            owner, others = ((array, self.arrays), (schema, self.schemas))[pick % 2]
            owner[c_abi.DICTIONARY if pick % 2 == 0 else c_abi.SCHEMA_DICTIONARY] = _one_of(others, value)
        elif what == 6:
            self._say(schema, pick, value)
        elif what == 7:
            words = (
                (array, c_abi.RELEASE),
                (schema, c_abi.SCHEMA_RELEASE),
                (array, c_abi.BUFFERS),
                (array, c_abi.CHILDREN),
            )
            owner, word = (*words, (schema, c_abi.SCHEMA_CHILDREN))[pick % 5]
            owner[word] = 0
        elif self._sizes:
            number = pick % len(self._sizes)
            place = _STRIDE * (1 + number) + value // 16 * 8
            _ARENA[place : place + 8] = (_SMALL[value % 16 % len(_SMALL)] & (1 << 64) - 1).to_bytes(8, "little")

    def _count(self, words: Any, word: int, value: int) -> None:
        true = words[word]
        words[word] = (0, max(true - 1, 0), -1, 1 << 40, -(1 << 63), true)[value % 6]

    def _point(self, at: int, count: int, pick: int, value: int) -> None:
        if at and 0 < count < 1 << 20:
            ctypes.c_int64.from_address(at + 8 * (pick % count)).value = value

    def _say(self, schema: Any, pick: int, value: int) -> None:
        if pick % 4 <= 1:
            schema[c_abi.FORMAT] = self.text(_FORMATS[value % len(_FORMATS)]) if value < 250 else 0
        elif pick % 4 == 2:
            schema[c_abi.NAME] = self.text(_NAMES[value % len(_NAMES)]) if value < 250 else 0
        elif value % 2:
            schema[c_abi.FLAGS] = _SMALL[value // 2 % len(_SMALL)]
        else:
            schema[c_abi.METADATA] = self.text(_METADATA[value // 2 % len(_METADATA)]) if value < 250 else 0

    def clean(self) -> None:
        """Make the arena zeros again."""
        for number, size in enumerate(self._sizes):
            at, used = _STRIDE * (1 + number), max(size, 256)
            _ARENA[at : at + used] = bytes(used)


def _one_of(rows: list[Any], value: int) -> int:
    return ctypes.addressof(rows[value % len(rows)]) if value < 240 else 0


def check_capsule(data: bytes) -> bool:
    """Play the script and take what comes of it; whether it is sound."""
    script = Script(data)
    case = CASES[script.byte() % len(CASES)]
    way = script.byte()
    source = case.array()
    forge = Forge(source.slice(way // 8 % 3) if way & 4 else source)
    try:
        while script.is_left:
            forge.change(script)
        gives = bool(forge.arrays[-1][c_abi.RELEASE])
        sound = _by_stream(forge) if way & 1 else _take(forge)
        promise(not gives or forge.released == 1, f"released {forge.released} times")
        return sound
    finally:
        forge.clean()


def _take(forge: Forge) -> bool:
    given = bool(forge.arrays[-1][c_abi.RELEASE])
    try:
        field = c_schema.read_field(forge.schema)
    except InvalidDataError as error:
        promise(bool(str(error)), "an error without words")
        forge.released += given  # nobody took it
        return False
    return _judge(lambda: c_array.move_array(forge.array, layout_of(field.type)), field)


def _by_stream(forge: Forge) -> bool:
    """Let a stream of ours give the structure, under the schema that it was made for."""
    field = bs.Field("c", bs.null())
    try:
        field = c_schema.read_field(forge.schema)
    except InvalidDataError:
        forge.released += bool(forge.arrays[-1][c_abi.RELEASE])
        return False
    block = c_abi.Block()
    block.address = forge.array
    made = c_stream.build_stream_block(field, iter([block]))
    with c_stream.ArrayStream(made.address) as stream:
        return _judge(lambda: next(stream), field)


def _judge(take: Any, field: bs.Field) -> bool:
    try:
        array = take()
    except (InvalidDataError, UsageError, StopIteration) as error:
        promise(isinstance(error, StopIteration) or bool(str(error)), "an error without words")
        return False
    for part in _parts(array):
        for buffer in part.buffers:
            if buffer is not None and buffer.size and not _is_in_arena(buffer.address, buffer.size):
                return False
    try:
        array.validate(full=True)
    except InvalidDataError:
        return False
    try:
        values = array.to_pylist()
        if crc32(repr(values).encode("utf-8", "replace")) % 4:
            return True
        check_batch(bs.RecordBatch(bs.Schema((field,)), array.length, [array]))
    except TOO_MUCH:
        pass
    except BowstringError as error:
        promise("extension" in str(error), f"sound by C data, but {error}")
    return True


def _is_in_arena(address: int, size: int) -> bool:
    return address >= _BASE and address + size <= _BASE + len(_ARENA)


def _parts(array: Array) -> Iterator[Array]:
    yield array
    for child in array.children:
        yield from _parts(child)
    if array.dictionary is not None:
        yield from _parts(array.dictionary)
