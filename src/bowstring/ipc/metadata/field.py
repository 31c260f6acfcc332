"""Fields in metadata («Schema message»): `Field` to and from the records of `bowstring.flatbuf`.

A dictionary-encoded field stores its value type and a dictionary id. The ids are not part of a `Field`: they are in a
tree of `DictionaryDeclaration`s next to it, in the order in which a walk over the arrays visits the dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bowstring.datatypes import extension, types
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import Field, Metadata
from bowstring.datatypes.types import DataType, Dictionary
from bowstring.errors import (
    InvalidArgumentError,
    InvalidDataError,
    LimitError,
    UnsupportedError,
    UnsupportedTypeError,
    add_location,
)
from bowstring.flatbuf.reader import FlatTable
from bowstring.flatbuf.tables import TYPES
from bowstring.ipc.metadata.types import create_int_record, create_type_record, read_int_type, read_type


@dataclass(frozen=True, slots=True)
class DictionaryDeclaration:
    """The dictionary of a dictionary-encoded field: its id, its value type, and the dictionaries in its values."""

    id: int
    value_type: DataType
    nested: tuple[DictionaryDeclaration, ...] = ()


# Reading


def read_custom_metadata(table: FlatTable) -> Metadata:
    """Return the custom metadata of a table, in order («Custom Application Metadata»)."""
    pairs = table["custom_metadata"]
    return tuple([(pair["key"] or b"", pair["value"] or b"") for pair in pairs]) if pairs else ()


def read_field(table: FlatTable, max_depth: int, depth: int = 1) -> tuple[Field, tuple[DictionaryDeclaration, ...]]:
    """Return the field of a `Field` table and its dictionaries, in the order of a walk over its array.

    `depth` is the field's. Raises `InvalidDataError` with the field's name, `LimitError` for types nested too
    deep.
    """
    name = table["name"] or ""
    try:
        if depth > max_depth:
            raise LimitError(f"types are nested deeper than {max_depth}, the limit (max_nesting)")
        children: list[Field] = []
        inner: list[DictionaryDeclaration] = []
        for child_table in table["children"]:
            child, inner_declarations = read_field(child_table, max_depth, depth + 1)
            children.append(child)
            inner += inner_declarations
        data_type, declarations = read_type(table, children), tuple(inner)
        encoding = table["dictionary"]
        if encoding is not None:
            declarations = (DictionaryDeclaration(encoding["id"], data_type, declarations),)
            data_type = _read_dictionary_type(encoding, data_type)
        field = Field(name, data_type, table["nullable"], read_custom_metadata(table))
        return (_resolve_extension(field) if field.pairs else field), declarations
    except InvalidArgumentError as error:  # from the types' own checks; here the data is malformed
        raise InvalidDataError(f"field {name!r}: {error}") from None
    except InvalidDataError as error:
        raise add_location(error, f"field {name!r}") from None


def _resolve_extension(field: Field) -> Field:
    """Return the field with its extension type, applied to its type, or, if that is a dictionary and the extension does
    not apply to dictionaries, to the dictionary's values; if neither matches, the field is unchanged.
    """
    resolved = extension.resolve_extension_type(field)
    dictionary_type = field.type
    if resolved is not field or not isinstance(dictionary_type, Dictionary):
        return resolved
    try:
        values = extension.resolve_extension_type(field.with_type(dictionary_type.value_type))
    except InvalidDataError:
        return field
    return values.with_type(Dictionary(dictionary_type.index_type, values.type, dictionary_type.ordered))


def _read_dictionary_type(encoding: FlatTable, values: DataType) -> Dictionary:
    if encoding["dictionaryKind"] != 0:
        raise UnsupportedError(f"unknown dictionary kind {encoding['dictionaryKind']}")
    index = encoding["indexType"]
    index_type = types.Int(32) if index is None else read_int_type(index)
    return Dictionary(index_type, values, encoding["isOrdered"])


# Writing


def create_metadata_records(pairs: Metadata) -> list[dict[str, bytes]] | None:
    """Return the records of custom metadata; None if empty."""
    return [{"key": key, "value": value} for key, value in pairs] or None


def create_field_record(
    field: Field, ids: Iterator[int], path: str
) -> tuple[dict[str, Any], tuple[DictionaryDeclaration, ...]]:
    """Return the record of a `Field` table and the field's dictionaries, which take their ids from `ids`.

    Raises `UnsupportedTypeError` with `path` for a type that the format can't represent.
    """
    field = extension.to_storage_field(field)
    values = field.type
    encoding: dict[str, Any] | None = None
    if isinstance(values, Dictionary):
        index, ordered = values.index_type, values.ordered
        encoding = {"id": next(ids), "indexType": create_int_record(index), "isOrdered": ordered}
        if isinstance(values.value_type, ExtensionType):
            field = _add_extension_metadata(field, values, path)
        values = extension.to_storage_field(Field("", values.value_type)).type
    type_table = create_type_record(values)
    if type_table is None:
        inside = "a dictionary of " if encoding else ""
        what = "an extension type" if isinstance(values, ExtensionType) else str(values)
        raise UnsupportedTypeError(f"column {path}: the IPC format can't represent {inside}{what} ({values})")
    children = [create_field_record(child, ids, f"{path}.{child.name}") for child in values.fields]
    declarations = tuple(declaration for _, inner_declarations in children for declaration in inner_declarations)
    if encoding:
        declarations = (DictionaryDeclaration(encoding["id"], values, declarations),)
    record = {
        "name": field.name,
        "nullable": field.nullable,
        "type_type": TYPES.index(type_table.definition),
        "type": type_table,
        "dictionary": encoding,
        "children": [r for r, _ in children],
        "custom_metadata": create_metadata_records(field.pairs),
    }
    return record, declarations


def _add_extension_metadata(field: Field, dictionary_type: Dictionary, path: str) -> Field:
    """Return the field of a dictionary of extension values, annotated with their extension."""
    if extension.NAME_KEY in field.metadata:
        raise UnsupportedTypeError(
            f"column {path}: one field can't have two extensions, of {dictionary_type} and of its values"
        )
    values = extension.to_storage_field(field.with_type(dictionary_type.value_type))
    annotated = values.with_type(Dictionary(dictionary_type.index_type, values.type, dictionary_type.ordered))
    if isinstance(_resolve_extension(annotated).type, ExtensionType):
        raise UnsupportedTypeError(
            f"column {path}: {dictionary_type} would be read as {_resolve_extension(annotated).type}: give the "
            f"extension to the dictionary, or decode it"
        )
    return annotated
