"""«The ArrowSchema structure» of the Arrow C data interface: types, fields and schemas as C structures, and back."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from functools import lru_cache

from bowstring.datatypes.extension import annotate, resolve
from bowstring.datatypes.field import Field, Metadata, Schema
from bowstring.datatypes.types import Dictionary, Int, Map, Struct
from bowstring.errors import InvalidDataError, LimitError, UnsupportedTypeError
from bowstring.interop import c_abi
from bowstring.interop.c_format import KEYS_SORTED, format_of, type_of

DICTIONARY_ORDERED, NULLABLE = 1, 2
MAX_NESTING = 64
"""The deepest nesting of children and dictionaries that is read."""
MAX_FIELDS = 500_000
"""The most fields of one schema that are read: children of children may be one and the same structure."""
MAX_PAIRS = 1 << 20
"""The most key-value pairs of one metadata string that are read."""
MAX_METADATA_BYTES = 1 << 28
"""The longest metadata string that is read."""

_LONG = 200
"""Names from this many bytes on are not remembered."""
_Text = ctypes.c_char_p
_FIRST, _LAST = c_abi.FIRST_ADDRESS, c_abi.LAST_ADDRESS


# Out


def schema_block(field: Field) -> c_abi.Block:
    """A field (a schema is a field whose type is a struct) as an ArrowSchema structure with all that it points to.

    Raises `UnsupportedTypeError`, naming the path, for what the C data interface cannot say.
    """
    with c_abi.Block() as block:
        _write(block, field, field.name)
    return block


def _write(block: c_abi.Block, field: Field, path: str) -> int:
    spelled = annotate(field)
    kind = spelled.type
    flags = NULLABLE if spelled.nullable else 0
    dictionary = None
    if isinstance(kind, Dictionary):
        flags |= DICTIONARY_ORDERED if kind.ordered else 0
        dictionary, kind = Field("", kind.value_type), kind.index_type
    if isinstance(kind, Map) and kind.keys_sorted:
        flags |= KEYS_SORTED
    name = spelled.name.encode()
    if b"\0" in name:
        raise UnsupportedTypeError(
            f"the name of field {path!r} has a NUL character in it, which a C string cannot hold"
        )
    children = kind.fields
    node = block.add([0, 0, 0, flags, len(children), 0, 0, c_abi.SCHEMA_RELEASER, block.keep()])
    try:
        block.text(node + c_abi.FORMAT, format_of(kind) + b"\0")
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"field {path!r}: {error}") from None
    block.text(node + c_abi.NAME, name + b"\0")
    if spelled.pairs:
        block.text(node + c_abi.METADATA, _metadata_bytes(spelled.pairs))
    if children:
        pointers = block.add([0] * len(children))
        block.at(node + c_abi.SCHEMA_CHILDREN, pointers)
        for i, child in enumerate(children):
            block.at(pointers + i, _write(block, child, f"{path}.{child.name}"))
    if dictionary is not None:
        block.at(node + c_abi.SCHEMA_DICTIONARY, _write(block, dictionary, f"{path}.dictionary"))
    return node


def _metadata_bytes(pairs: Metadata) -> bytes:
    parts = [struct.pack("=i", len(pairs))]
    for text in (text for pair in pairs for text in pair):
        parts += (struct.pack("=i", len(text)), text)
    return b"".join(parts)


# In


def read_field(address: int) -> Field:
    """The field that an ArrowSchema structure describes, copied; extension types that are registered are resolved.

    Raises `InvalidDataError` or one of its kinds for what is not well formed; the structure stays as it is.
    """
    return _read(address, 0, iter(range(MAX_FIELDS)))


def _read(address: int, depth: int, left: Iterator[int]) -> Field:
    if next(left, None) is None:
        raise LimitError(f"a schema has more than {MAX_FIELDS} fields")
    words = c_abi.SchemaWords.from_address(address)[:]
    text, name, metadata, flags, n_children, children, dictionary, release, _ = words
    if not release:
        raise InvalidDataError("a schema is released already")
    if not text:
        raise InvalidDataError("a schema's format is a null pointer")
    if not _FIRST <= text < _LAST:
        c_abi.check_pointer(text, "a schema's format")
    if name and not _FIRST <= name < _LAST:
        c_abi.check_pointer(name, "a schema's name")
    format_text = _Text.from_address(address).value or b""
    name_text = _Text.from_address(address + 8).value or b""
    if not n_children and not dictionary and not metadata:
        make = _leaf if len(name_text) + len(format_text) < _LONG else _leaf.__wrapped__
        return make(format_text, name_text, flags)
    if depth >= MAX_NESTING:
        raise LimitError(f"a schema is nested more than {MAX_NESTING} deep")
    if n_children < 0:
        raise InvalidDataError(f"a schema has {n_children} children")
    addresses = c_abi.pointers(children, n_children, "children of a schema")
    kind = type_of(format_text, tuple(_read(child, depth + 1, left) for child in addresses), flags)
    if dictionary:
        if not isinstance(kind, Int):
            raise InvalidDataError(f"the indices of a dictionary-encoded type are integers, not {kind}")
        c_abi.check_pointer(dictionary, "a schema's dictionary")
        kind = Dictionary(kind, _read(dictionary, depth + 1, left).type, bool(flags & DICTIONARY_ORDERED))
    pairs = _read_metadata(metadata) if metadata else ()
    field = Field(_name(name_text), kind, bool(flags & NULLABLE), pairs)
    try:
        return resolve(field)
    except InvalidDataError as error:
        if isinstance(kind, Dictionary):
            return field  # writers give it to the dictionary's values, too
        named = str(error).startswith("field ")
        raise InvalidDataError(str(error) if named else f"field {field.name!r}: {error}") from error


@lru_cache(maxsize=4096)
def _leaf(format_text: bytes, name: bytes, flags: int) -> Field:
    return Field(_name(name), type_of(format_text, (), flags), bool(flags & NULLABLE))


def _name(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise InvalidDataError(f"a field's name {text[:60]!r} is not UTF-8: {error}") from None


def _read_metadata(address: int) -> Metadata:
    position = address
    c_abi.check_pointer(address, "a schema's metadata")

    def integer() -> int:
        nonlocal position
        value = ctypes.c_int32.from_address(position).value
        position += 4
        return value

    def text() -> bytes:
        nonlocal position
        size = integer()
        if size < 0:
            raise InvalidDataError(f"a schema's metadata has a string of {size} bytes")
        if position - address + size > MAX_METADATA_BYTES:
            raise LimitError(f"a schema's metadata is longer than {MAX_METADATA_BYTES} bytes")
        value = ctypes.string_at(position, size)
        position += size
        return value

    pairs = integer()
    if not 0 <= pairs <= MAX_PAIRS:
        raise LimitError(f"a schema's metadata has {pairs} key-value pairs (at most {MAX_PAIRS} are read)")
    return tuple((text(), text()) for _ in range(pairs))


def as_schema(field: Field) -> Schema:
    """The schema that a field of a struct type stands for («Record batches»).

    Raises `InvalidDataError` for any other type.
    """
    if not isinstance(field.type, Struct):
        raise InvalidDataError(f"a schema or record batch is exchanged as a struct, not as {field.type}")
    return Schema(field.type.children, field.pairs)


def as_field(schema: Schema) -> Field:
    """The field of a struct type that a schema is exchanged as."""
    return Field("", Struct(schema.fields), False, schema.pairs)
