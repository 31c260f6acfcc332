"""«The ArrowSchema structure» of the Arrow C data interface: read C structures as types and fields."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import lru_cache

from bowstring.datatypes.c_format import parse_format_string
from bowstring.datatypes.extension import resolve_extension_type
from bowstring.datatypes.field import NULLABLE, DataType, Field, Metadata
from bowstring.datatypes.types import DICTIONARY_ORDERED, Dictionary, Int
from bowstring.errors import InvalidDataError, LimitError, add_location
from bowstring.memory import c_abi

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


def read_field(address: int) -> Field:
    """Read the field of an ArrowSchema structure, with registered extension types resolved. The structure is copied and
    not released.

    Raises `InvalidDataError` or a subclass for a malformed structure.
    """
    return _read_field(address, 0, iter(range(MAX_FIELDS)))


def _read_field(address: int, depth: int, fields_left: Iterator[int]) -> Field:
    if next(fields_left, None) is None:
        raise LimitError(f"a schema has more than {MAX_FIELDS} fields")
    fields = c_abi.SchemaStruct.from_address(address)[:]
    format_address, name_address, metadata, flags, n_children, children, dictionary, release, _ = fields
    if not release:
        raise InvalidDataError("a schema was already released")
    if not format_address:
        raise InvalidDataError("a schema's format is a null pointer")
    if not _FIRST <= format_address < _LAST:
        c_abi.check_pointer(format_address, "a schema's format")
    if name_address and not _FIRST <= name_address < _LAST:
        c_abi.check_pointer(name_address, "a schema's name")
    format_text = _CString.from_address(address).value or b""
    name = _CString.from_address(address + 8).value or b""
    try:
        if not n_children and not dictionary and not metadata:
            is_short = len(name) + len(format_text) < _MAX_CACHED_BYTES
            read_leaf = _read_leaf_field if is_short else _read_leaf_field.__wrapped__
            return read_leaf(format_text, name, flags)
        if depth >= MAX_NESTING:
            raise LimitError(f"a schema is nested more than {MAX_NESTING} levels deep")
        if n_children < 0:
            raise InvalidDataError(f"a schema has {n_children} children")
        addresses = c_abi.read_pointers(children, n_children, "children of a schema")
        type_ = parse_format_string(
            format_text, tuple(_read_field(child, depth + 1, fields_left) for child in addresses), flags
        )
        if dictionary:
            type_ = _read_dictionary_type(type_, dictionary, flags, depth, fields_left)
        pairs = _read_metadata(metadata) if metadata else ()
        return resolve_extension_type(Field(_decode_field_name(name), type_, bool(flags & NULLABLE), pairs))
    except InvalidDataError as error:
        if not name:  # as in the schema of a record batch
            raise
        raise add_location(error, f"field {name[:60].decode('utf-8', 'replace')!r}") from error


def _read_dictionary_type(
    index_type: DataType, address: int, flags: int, depth: int, fields_left: Iterator[int]
) -> Dictionary:
    if not isinstance(index_type, Int):
        raise InvalidDataError(f"dictionary indices must be integers, found {index_type}")
    c_abi.check_pointer(address, "a schema's dictionary")
    values = _read_field(address, depth + 1, fields_left)
    return Dictionary(index_type, values.type, bool(flags & DICTIONARY_ORDERED))


@lru_cache(maxsize=4096)
def _read_leaf_field(format_text: bytes, name: bytes, flags: int) -> Field:
    return Field(_decode_field_name(name), parse_format_string(format_text, (), flags), bool(flags & NULLABLE))


def _decode_field_name(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise InvalidDataError(f"the name {text[:60]!r} is not valid UTF-8: {error}") from None


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


def import_field(source: object) -> Field:
    """Import a field from an object with `__arrow_c_schema__` or an "arrow_schema" capsule.

    Raises `TypeMismatchError` for any other object, `InvalidDataError` or a subclass for a malformed structure.

    >>> import pyarrow as pa
    >>> bs.datatypes.import_field(pa.field("n", pa.int8()))
    Field(n: int8)
    """
    capsule = source.__arrow_c_schema__() if hasattr(source, "__arrow_c_schema__") else source
    return read_field(c_abi.capsule_pointer(capsule, c_abi.SCHEMA_CAPSULE))
