"""«The ArrowSchema structure» of the Arrow C data interface: types, fields and schemas as C structures.

Each type class has its own format string and flags (`DataType.c_format`, `DataType.c_flags`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from bowstring.errors import UnsupportedTypeError
from bowstring.memory import c_abi

if TYPE_CHECKING:
    from bowstring.datatypes.base import DataType
    from bowstring.datatypes.field import Field, Metadata

NULLABLE = 2
"""ARROW_FLAG_NULLABLE"""


def export_schema(name: str, type: DataType, nullable: bool = True, pairs: Metadata = ()) -> object:
    """Return an "arrow_schema" capsule of a field with this name, type, nullability and custom metadata.

    Raises `UnsupportedTypeError`, naming the field's path, for types and names that the C data interface can't express.
    """
    with c_abi.ExportedStructBlock() as block:
        _append_schema_struct(block, name, type, nullable, pairs, name)
    return c_abi.new_capsule(c_abi.SCHEMA_CAPSULE, block)


def build_field_block(field: Field) -> c_abi.ExportedStructBlock:
    """Return a block with the ArrowSchema structure of a field. Raises as `export_schema`."""
    with c_abi.ExportedStructBlock() as block:
        _append_schema_struct(block, field.name, field.type, field.nullable, field.pairs, field.name)
    return block


def _append_schema_struct(
    block: c_abi.ExportedStructBlock, name: str, type_: DataType, nullable: bool, pairs: Metadata, path: str
) -> int:
    type_, pairs = type_.to_storage_and_metadata(pairs)
    encoded_name = name.encode()
    if b"\0" in encoded_name:
        raise UnsupportedTypeError(
            f"the name of field {path!r} contains a NUL character, which is not allowed in a C string"
        )
    children, flags = type_.fields, type_.c_flags | (NULLABLE if nullable else 0)
    index = block.append_fields([0, 0, 0, flags, len(children), 0, 0, c_abi.RELEASE_SCHEMA_ADDRESS, block.retain()])
    try:
        block.set_string(index + c_abi.FORMAT, _format_string(type_) + b"\0")
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"field {path!r}: {error}") from None
    block.set_string(index + c_abi.NAME, encoded_name + b"\0")
    if pairs:
        block.set_string(index + c_abi.METADATA, _encode_metadata(pairs))
    if children:
        pointers = block.append_fields([0] * len(children))
        block.set_pointer(index + c_abi.SCHEMA_CHILDREN, pointers)
        for i, child in enumerate(children):
            child_path = f"{path}.{child.name}"
            block.set_pointer(
                pointers + i,
                _append_schema_struct(block, child.name, child.type, child.nullable, child.pairs, child_path),
            )
    if type_.c_dictionary_type is not None:
        dictionary = _append_schema_struct(block, "", type_.c_dictionary_type, True, (), f"{path}.dictionary")
        block.set_pointer(index + c_abi.SCHEMA_DICTIONARY, dictionary)
    return index


def _format_string(type_: DataType) -> bytes:
    text = type_.c_format()
    if not text:
        raise UnsupportedTypeError(f"{type_} has no format string in the C data interface")
    if b"\0" in text:
        raise UnsupportedTypeError(f"{type_} contains a NUL character, which is not allowed in a format string")
    return text


def _encode_metadata(pairs: Metadata) -> bytes:
    parts = [struct.pack("=i", len(pairs))]
    for text in (text for pair in pairs for text in pair):
        parts += (struct.pack("=i", len(text)), text)
    return b"".join(parts)
