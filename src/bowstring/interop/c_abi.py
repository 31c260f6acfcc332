"""The structures of the Arrow C data, C stream and C device interfaces, and the capsules that carry them («PyCapsule
Standard»).

The structures are rows of 64-bit words (a pointer is one, too), read and written whole: that is several times as fast
as field by field. What an exported structure points to lies in one `Block`, which lives until the structure is
released.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from array import array
from collections.abc import Sequence
from itertools import count
from typing import Any, Self, TypeVar

from bowstring.errors import DataTypeError, InvalidDataError, LimitError, UnsupportedError, UsageError
from bowstring.interop.c_callbacks import callback, immortal

if ctypes.sizeof(ctypes.c_void_p) != 8:
    raise UnsupportedError("the C data interface needs pointers of 64 bits in this version")
_interpreter = ctypes.PYFUNCTYPE(ctypes.c_void_p)
if (
    _interpreter(("PyInterpreterState_Get", ctypes.pythonapi))()
    != _interpreter(("PyInterpreterState_Main", ctypes.pythonapi))()
):
    raise UnsupportedError(
        "the C data interface works in the main interpreter of a process: in another one, the callbacks of ctypes "
        "would wait for a lock that it holds itself"
    )

# struct ArrowSchema
FORMAT, NAME, METADATA, FLAGS, SCHEMA_N_CHILDREN, SCHEMA_CHILDREN, SCHEMA_DICTIONARY, SCHEMA_RELEASE, SCHEMA_PRIVATE = (
    range(9)
)
# struct ArrowArray
LENGTH, NULL_COUNT, OFFSET, N_BUFFERS, N_CHILDREN, BUFFERS, CHILDREN, DICTIONARY, RELEASE, PRIVATE = range(10)
# struct ArrowArrayStream
GET_SCHEMA, GET_NEXT, GET_LAST_ERROR, STREAM_RELEASE, STREAM_PRIVATE = range(5)
# struct ArrowDeviceArray is a struct ArrowArray, these, and three words that are reserved
DEVICE_ID, DEVICE_TYPE, SYNC_EVENT = range(10, 13)
# struct ArrowDeviceArrayStream is a word for the device, and then a struct ArrowArrayStream
DEVICE_STREAM_RELEASE = 1 + STREAM_RELEASE

SchemaWords = ctypes.c_int64 * 9
ArrayWords = ctypes.c_int64 * 10
StreamWords = ctypes.c_int64 * 5
DeviceArrayWords = ctypes.c_int64 * 16
DeviceStreamWords = ctypes.c_int64 * 6

_ROWS = tuple(ctypes.c_int64 * size for size in range(8))

FIRST_ADDRESS, LAST_ADDRESS = 1 << 12, 1 << 62
"""Between them lies all memory that a process can have: the first page is no process's own."""
MAX_POINTERS = 1 << 20
"""The most children or buffers of one array that are read."""

ReleaseFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
"""void (*)(struct *): releases a structure."""

SCHEMA_CAPSULE = immortal(b"arrow_schema")
ARRAY_CAPSULE = immortal(b"arrow_array")
STREAM_CAPSULE = immortal(b"arrow_array_stream")
DEVICE_ARRAY_CAPSULE = immortal(b"arrow_device_array")
DEVICE_STREAM_CAPSULE = immortal(b"arrow_device_array_stream")
RELEASE_WORD = {
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
# A destructor is given a capsule without references: as a bare address, nobody counts any.
_dying_capsule_name = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(("PyCapsule_GetName", ctypes.pythonapi))
_dying_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)

live: dict[int, Any] = {}
"""What each exported structure that is not released needs, by its `private_data`."""
_in_capsules: dict[int, tuple[Block, int]] = {}
_keys = count(1)


_Words = TypeVar("_Words", bound="ctypes.Array[ctypes.c_int64]")


class Block:
    """Memory that an exported structure and what it points to lie in: words, then strings.

    Positions are words from the start; `at` and `text` make a word point into the block itself. It is filled within its
    own context, and settles at an address when that ends.
    """

    __slots__ = ("_keys", "_strings", "_to_strings", "_to_words", "address", "words")

    def __init__(self) -> None:
        self.words = array("q")
        self.address = 0
        self._strings = bytearray()
        self._to_words: list[int] = []
        self._to_strings: list[int] = []
        self._keys: list[int] = []

    def add(self, words: list[int]) -> int:
        """Append words; their position."""
        position = len(self.words)
        self.words.extend(words)
        return position

    def at(self, word: int, position: int) -> None:
        """Make a word point to the word at `position`."""
        self.words[word] = position * 8
        self._to_words.append(word)

    def text(self, word: int, text: bytes) -> None:
        """Make a word point to a copy of `text`, which has to bring its own NUL."""
        self.words[word] = len(self._strings)
        self._to_strings.append(word)
        self._strings += text + bytes(-len(text) % 8)

    def keep(self, *held: Any) -> int:
        """Keep the block and `held` until the structure whose `private_data` is the returned key is released."""
        key = next(_keys)
        live[key] = (self, *held)
        self._keys.append(key)
        return key

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is not None:
            for key in self._keys:
                del live[key]
            return
        words = self.words
        strings = len(words) * 8
        words.frombytes(self._strings)
        self.address = base = words.buffer_info()[0]
        for word in self._to_words:
            words[word] += base
        for word in self._to_strings:
            words[word] += base + strings


def _releaser(words_type: Any, release: int) -> Any:
    """The release callback of schemas or arrays: in both, the words that it walks come before `release` in one
    order.
    """

    # At the very end of the process not even the names of builtins are left: what this needs is bound to it.
    def release_one(
        address: int,
        _words_type: Any = words_type,
        _live: Any = live,
        _word: Any = ctypes.c_int64,
        _range: Any = range,
    ) -> None:
        words = _words_type.from_address(address)
        if not words[release]:
            return
        held = _live.pop(words[release + 1], None)  # noqa: F841 - the block stays until the walk is over
        children = words[release - 2]
        for i in _range(words[4]):
            child = _word.from_address(children + 8 * i).value
            if child:
                release_one(child)
        if words[release - 1]:
            release_one(words[release - 1])
        words[release] = 0

    return callback(ReleaseFunction, release_one)


release_schema = _releaser(SchemaWords, SCHEMA_RELEASE)
release_array = _releaser(ArrayWords, RELEASE)


def _stream_releaser(words_type: Any, release: int) -> Any:
    """The release callback of streams; their private data is the word behind it."""

    def release_stream(address: int, _words_type: Any = words_type, _live: Any = live, _release: int = release) -> None:
        words = _words_type.from_address(address)
        if words[_release]:
            held = _live.pop(words[_release + 1], None)  # noqa: F841 - gone when this function is
            words[_release] = 0

    return callback(ReleaseFunction, release_stream)


release_stream = _stream_releaser(StreamWords, STREAM_RELEASE)
release_device_stream = _stream_releaser(DeviceStreamWords, DEVICE_STREAM_RELEASE)


def address_of(function: Any) -> int:
    """The address of a C function."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


SCHEMA_RELEASER = address_of(release_schema)
ARRAY_RELEASER = address_of(release_array)
STREAM_RELEASER = address_of(release_stream)
DEVICE_STREAM_RELEASER = address_of(release_device_stream)


# Capsules


def _destroy(
    capsule: int,
    _name: Any = _dying_capsule_name,
    _pointer: Any = _dying_capsule_pointer,
    _held: Any = _in_capsules,
    _word: Any = ctypes.c_int64,
    _function: Any = ReleaseFunction,
) -> None:
    address = _pointer(capsule, _name(capsule))
    block, release_word = _held.pop(address)
    release = block.words[release_word]
    if release:
        _function(release)(address)


_destructor = address_of(callback(ReleaseFunction, _destroy))


def capsule(name: bytes, block: Block) -> object:
    """A capsule over the structure that a settled block begins with; it releases what no consumer has taken over."""
    made: object = _capsule_new(block.address, name, _destructor)
    _in_capsules[block.address] = (block, RELEASE_WORD[name])
    return made


def moved(address: int, words_type: type[_Words], release_word: int) -> _Words:
    """A copy of the structure at an address, which is marked as released there («Moving an array»).

    Of several threads that move one structure, one gets it; the others get one that is released.
    """
    with _moving:
        there = words_type.from_address(address)
        held = words_type.from_buffer_copy(there)
        there[release_word] = 0
    return held


_moving = threading.RLock()


def is_capsule(held: object, name: bytes) -> bool:
    """Whether an object is a capsule of that name."""
    return bool(_capsule_is_valid(held, name))


def pointer(held: object, name: bytes) -> int:
    """The address of the structure in somebody's capsule.

    Raises `DataTypeError` for anything but a capsule of that name, `UsageError` if its structure was taken already.
    """
    try:
        address: int = _capsule_pointer(held, name)
    except ValueError:
        raise DataTypeError(f"expected a capsule named {name.decode()!r}, not {held!r}") from None
    release = ctypes.c_int64.from_address(address + 8 * RELEASE_WORD[name]).value
    if not release:
        raise UsageError(f"the structure in the capsule {name.decode()!r} was taken or released already")
    return address


def addresses(address: int, size: int, what: str) -> Sequence[int]:
    """The `size` words at an address, each a pointer that may be null.

    Raises `InvalidDataError` where the address itself is null or none of a process's, `LimitError` for more words than
    `MAX_POINTERS`.
    """
    if not size:
        return ()
    if not address:
        raise InvalidDataError(f"a null pointer stands where {size} {what} should be")
    if size > MAX_POINTERS:
        raise LimitError(f"there are {size} {what} (at most {MAX_POINTERS} are read)")
    if not FIRST_ADDRESS <= address < LAST_ADDRESS:
        raise InvalidDataError(f"{size} {what} at address {address:#x} are no memory of this process")
    return _many(address, size) if size >= len(_ROWS) else _ROWS[size].from_address(address)[:]


def _many(address: int, size: int) -> tuple[int, ...]:
    return struct.unpack(f"={size}q", ctypes.string_at(address, 8 * size))


def pointers(address: int, size: int, what: str) -> Sequence[int]:
    """The `size` pointers at an address; raises as `addresses`, and `InvalidDataError` where one of them is null, or
    none of a process's.
    """
    found = addresses(address, size, what)
    if found and (min(found) < FIRST_ADDRESS or max(found) >= LAST_ADDRESS):
        at = next(at for at, one in enumerate(found) if not FIRST_ADDRESS <= one < LAST_ADDRESS)
        name = f"number {at} of {size} {what}"
        if not found[at]:
            raise InvalidDataError(f"{name} is a null pointer")
        check_pointer(found[at], name)
    return found


def check_pointer(address: int, what: str) -> None:
    """Raise `InvalidDataError` where no process has memory at an address."""
    if not FIRST_ADDRESS <= address < LAST_ADDRESS:
        raise InvalidDataError(f"{what} is at address {address:#x}, which is no memory of this process")
