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
from bowstring.interop.c_format import MAP_KEYS_SORTED, format_string, parse_format_string

DICTIONARY_ORDERED, NULLABLE = 1, 2
MAX_NESTING = 64
"""Maximum nesting depth of children and dictionaries."""
MAX_FIELDS = 500_000
"""Maximum number of fields of one schema. A malformed structure can refer to the same child many times."""
MAX_PAIRS = 1 << 20
"""Maximum number of key-value pairs of one metadata string."""
MAX_METADATA_BYTES = 1 << 28
"""Maximum length of one metadata string."""

_MAX_CACHED_BYTES = 200
"""Fields with names and formats of this length or longer are not cached."""
_CString = ctypes.c_char_p
_FIRST, _LAST = c_abi.FIRST_ADDRESS, c_abi.LAST_ADDRESS


# Export


def build_field_block(field: Field) -> c_abi.Block:
    """Return a block with the ArrowSchema structure of a field. A schema is a field of a struct type.

    Raises `UnsupportedTypeError`, naming the field's path, for types and names that the C data interface can't express.
    """
    with c_abi.Block() as block:
        _write(block, field, field.name)
    return block


def _write(block: c_abi.Block, field: Field, path: str) -> int:
    storage_field = annotate(field)
    type_ = storage_field.type
    flags = NULLABLE if storage_field.nullable else 0
    dictionary = None
    if isinstance(type_, Dictionary):
        flags |= DICTIONARY_ORDERED if type_.ordered else 0
        dictionary, type_ = Field("", type_.value_type), type_.index_type
    if isinstance(type_, Map) and type_.keys_sorted:
        flags |= MAP_KEYS_SORTED
    name = storage_field.name.encode()
    if b"\0" in name:
        raise UnsupportedTypeError(
            f"the name of field {path!r} contains a NUL character, which is not allowed in a C string"
        )
    children = type_.fields
    index = block.append([0, 0, 0, flags, len(children), 0, 0, c_abi.RELEASE_SCHEMA_ADDRESS, block.retain()])
    try:
        block.set_string(index + c_abi.FORMAT, format_string(type_) + b"\0")
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"field {path!r}: {error}") from None
    block.set_string(index + c_abi.NAME, name + b"\0")
    if storage_field.pairs:
        block.set_string(index + c_abi.METADATA, _metadata_bytes(storage_field.pairs))
    if children:
        pointers = block.append([0] * len(children))
        block.set_pointer(index + c_abi.SCHEMA_CHILDREN, pointers)
        for i, child in enumerate(children):
            block.set_pointer(pointers + i, _write(block, child, f"{path}.{child.name}"))
    if dictionary is not None:
        block.set_pointer(index + c_abi.SCHEMA_DICTIONARY, _write(block, dictionary, f"{path}.dictionary"))
    return index


def _metadata_bytes(pairs: Metadata) -> bytes:
    parts = [struct.pack("=i", len(pairs))]
    for text in (text for pair in pairs for text in pair):
        parts += (struct.pack("=i", len(text)), text)
    return b"".join(parts)


# Import


def read_field(address: int) -> Field:
    """Read the field of an ArrowSchema structure, with registered extension types resolved. The structure is copied and
    not released.

    Raises `InvalidDataError` or a subclass for a malformed structure.
    """
    return _read(address, 0, iter(range(MAX_FIELDS)))


def _read(address: int, depth: int, budget: Iterator[int]) -> Field:
    if next(budget, None) is None:
        raise LimitError(f"a schema has more than {MAX_FIELDS} fields")
    fields = c_abi.SchemaStruct.from_address(address)[:]
    format_address, name_address, metadata, flags, n_children, children, dictionary, release, _ = fields
    if not release:
        raise InvalidDataError("a schema is released already")
    if not format_address:
        raise InvalidDataError("a schema's format is a null pointer")
    if not _FIRST <= format_address < _LAST:
        c_abi.check_pointer(format_address, "a schema's format")
    if name_address and not _FIRST <= name_address < _LAST:
        c_abi.check_pointer(name_address, "a schema's name")
    format_text = _CString.from_address(address).value or b""
    name = _CString.from_address(address + 8).value or b""
    if not n_children and not dictionary and not metadata:
        read_leaf = _read_leaf if len(name) + len(format_text) < _MAX_CACHED_BYTES else _read_leaf.__wrapped__
        return read_leaf(format_text, name, flags)
    if depth >= MAX_NESTING:
        raise LimitError(f"a schema is nested more than {MAX_NESTING} levels deep")
    if n_children < 0:
        raise InvalidDataError(f"a schema has {n_children} children")
    addresses = c_abi.read_pointers(children, n_children, "children of a schema")
    type_ = parse_format_string(format_text, tuple(_read(child, depth + 1, budget) for child in addresses), flags)
    if dictionary:
        if not isinstance(type_, Int):
            raise InvalidDataError(f"dictionary indices must be integers, found {type_}")
        c_abi.check_pointer(dictionary, "a schema's dictionary")
        type_ = Dictionary(type_, _read(dictionary, depth + 1, budget).type, bool(flags & DICTIONARY_ORDERED))
    pairs = _read_metadata(metadata) if metadata else ()
    field = Field(_decode_name(name), type_, bool(flags & NULLABLE), pairs)
    try:
        return resolve(field)
    except InvalidDataError as error:
        if isinstance(type_, Dictionary):
            return field  # some writers add the extension metadata to the dictionary values, too
        has_path = str(error).startswith("field ")
        raise InvalidDataError(str(error) if has_path else f"field {field.name!r}: {error}") from error


@lru_cache(maxsize=4096)
def _read_leaf(format_text: bytes, name: bytes, flags: int) -> Field:
    return Field(_decode_name(name), parse_format_string(format_text, (), flags), bool(flags & NULLABLE))


def _decode_name(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise InvalidDataError(f"a field's name {text[:60]!r} is not valid UTF-8: {error}") from None


def _read_metadata(address: int) -> Metadata:
    cursor = address
    c_abi.check_pointer(address, "a schema's metadata")

    def read_int32() -> int:
        nonlocal cursor
        value = ctypes.c_int32.from_address(cursor).value
        cursor += 4
        return value

    def read_bytes() -> bytes:
        nonlocal cursor
        size = read_int32()
        if size < 0:
            raise InvalidDataError(f"a schema's metadata has a string of {size} bytes")
        if cursor - address + size > MAX_METADATA_BYTES:
            raise LimitError(f"a schema's metadata is longer than {MAX_METADATA_BYTES} bytes")
        value = ctypes.string_at(cursor, size)
        cursor += size
        return value

    num_pairs = read_int32()
    if not 0 <= num_pairs <= MAX_PAIRS:
        raise LimitError(f"a schema's metadata has {num_pairs} key-value pairs, the limit is {MAX_PAIRS}")
    return tuple((read_bytes(), read_bytes()) for _ in range(num_pairs))


def schema_from_field(field: Field) -> Schema:
    """Return the schema that a field of a struct type represents («Record batches»).

    Raises `InvalidDataError` for any other type.
    """
    if not isinstance(field.type, Struct):
        raise InvalidDataError(f"expected a struct as the type of a schema or record batch, found {field.type}")
    return Schema(field.type.children, field.pairs)


def field_from_schema(schema: Schema) -> Field:
    """Return the field of a struct type that represents a schema in the C data interface."""
    return Field("", Struct(schema.fields), False, schema.pairs)
