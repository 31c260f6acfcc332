"""Schemas in metadata («Schema message»): `Schema` and `Field` to and from the records of `bowstring.flatbuf`.

A dictionary-encoded field stores its value type and a dictionary id. The ids are not part of a `Schema`: they are in a
tree of `DictionaryDeclaration`s next to it, in the order in which a walk over the arrays visits the dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

from bowstring.datatypes import extension, types
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import Field, Metadata
from bowstring.datatypes.schema import Schema
from bowstring.datatypes.types import DataType, Dictionary
from bowstring.errors import InvalidArgumentError, InvalidDataError, LimitError, UnsupportedError, UnsupportedTypeError
from bowstring.flatbuf.reader import Table
from bowstring.flatbuf.tables import TYPES
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.metadata.types import create_int_record, create_type_record, read_int_type, read_type

LITTLE_ENDIAN, BIG_ENDIAN = 0, 1
V4, V5 = 3, 4


@dataclass(frozen=True, slots=True)
class DictionaryDeclaration:
    """The dictionary of a dictionary-encoded field: its id, its value type, and the dictionaries in its values."""

    id: int
    value_type: DataType
    nested: tuple[DictionaryDeclaration, ...] = ()


@dataclass(frozen=True, slots=True)
class IpcSchema:
    """A schema with the details of its encoding: the dictionaries of each field in the order of a walk over its array,
    whether bodies are big-endian, and the limits for reading them.
    """

    schema: Schema
    dictionaries: tuple[tuple[DictionaryDeclaration, ...], ...]
    is_big_endian: bool = False
    limits: ReadLimits = DEFAULT_LIMITS
    dictionaries_by_id: dict[int, DictionaryDeclaration] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        dictionaries_by_id: dict[int, DictionaryDeclaration] = {}
        for declaration in _walk_declarations(chain.from_iterable(self.dictionaries)):
            if dictionaries_by_id.setdefault(declaration.id, declaration) != declaration:
                raise InvalidDataError(
                    f"schema: dictionary {declaration.id} is of type {dictionaries_by_id[declaration.id].value_type} "
                    f"and of type {declaration.value_type}"
                )
        object.__setattr__(self, "dictionaries_by_id", dictionaries_by_id)

    def __len__(self) -> int:
        return len(self.dictionaries)

    def get_field_and_dictionaries(self, index: int) -> tuple[Field, tuple[DictionaryDeclaration, ...]]:
        """Return one field and its dictionaries, in the order of a walk over its array."""
        return self.schema.fields[index], self.dictionaries[index]


def _walk_declarations(declarations: Iterable[DictionaryDeclaration]) -> Iterator[DictionaryDeclaration]:
    for declaration in declarations:
        yield declaration
        yield from _walk_declarations(declaration.nested)


# Reading


def is_big_endian_schema(table: Table) -> bool:
    """Whether the data of a `Schema` table is big-endian; raises `InvalidDataError` for an unknown order."""
    endianness: int = table["endianness"]
    if endianness not in (LITTLE_ENDIAN, BIG_ENDIAN):
        raise InvalidDataError(
            f"{table.flatbuffer.location}: endianness {endianness} is neither little (0) nor big (1)"
        )
    return endianness == BIG_ENDIAN


def read_ipc_schema(table: Table, limits: ReadLimits) -> IpcSchema:
    """Read a `Schema` table, ignoring its endianness, which headers do not depend on.

    Raises `InvalidDataError` with the field's name, `LimitError` for types nested too deep.
    """
    entries = [read_field(child, limits.max_nesting) for child in table["fields"]]
    schema = Schema(tuple(f for f, _ in entries), read_custom_metadata(table))
    return IpcSchema(schema, tuple(declarations for _, declarations in entries))


def read_custom_metadata(table: Table) -> Metadata:
    """Return the custom metadata of a table, in order («Custom Application Metadata»)."""
    return tuple((pair["key"] or b"", pair["value"] or b"") for pair in table["custom_metadata"])


def read_field(table: Table, max_depth: int, depth: int = 1) -> tuple[Field, tuple[DictionaryDeclaration, ...]]:
    """Return the field of a `Field` table and its dictionaries, in the order of a walk over its array; errors as
    `read_ipc_schema`. `depth` is that of the field.
    """
    name = table["name"] or ""
    try:
        if depth > max_depth:
            raise LimitError(f"types are nested deeper than {max_depth}, the limit (max_nesting)")
        child_entries = [read_field(child, max_depth, depth + 1) for child in table["children"]]
        declarations = tuple(declaration for _, inside in child_entries for declaration in inside)
        data_type = read_type(table, [child for child, _ in child_entries])
        encoding = table["dictionary"]
        if encoding is not None:
            declarations = (DictionaryDeclaration(encoding["id"], data_type, declarations),)
            data_type = _read_dictionary_type(encoding, data_type)
        field = Field(name, data_type, table["nullable"], read_custom_metadata(table))
        return (_resolve_extension(field) if field.pairs else field), declarations
    except InvalidArgumentError as error:  # from the types' own checks; here the data is malformed
        raise InvalidDataError(f"field {name!r}: {error}") from None
    except InvalidDataError as error:
        raise type(error)(f"field {name!r}: {error}") from None


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


def _read_dictionary_type(encoding: Table, values: DataType) -> Dictionary:
    if encoding["dictionaryKind"] != 0:
        raise UnsupportedError(f"unknown dictionary kind {encoding['dictionaryKind']}")
    index = encoding["indexType"]
    index_type = types.Int(32) if index is None else read_int_type(index)
    return Dictionary(index_type, values, encoding["isOrdered"])


# Writing


def create_schema_record(schema: Schema, ids: Iterable[int] | None = None) -> tuple[dict[str, Any], IpcSchema]:
    """Return the record of a `Schema` table, and the schema with the assigned dictionary ids.

    `ids` are assigned in the order of the fields, an outer dictionary before those inside it; by default they are
    counted. Raises `UnsupportedTypeError` with the column path for a type that the format can't represent.
    """
    next_ids = count() if ids is None else iter(ids)
    written = [_create_field_record(field, next_ids, field.name) for field in schema.fields]
    record = {"fields": [r for r, _ in written], "custom_metadata": create_metadata_records(schema.pairs)}
    return record, IpcSchema(schema, tuple(declarations for _, declarations in written))


def create_metadata_records(pairs: Metadata) -> list[dict[str, bytes]] | None:
    """Return the records of custom metadata; None if empty."""
    return [{"key": key, "value": value} for key, value in pairs] or None


def _create_field_record(
    field: Field, ids: Iterator[int], path: str
) -> tuple[dict[str, Any], tuple[DictionaryDeclaration, ...]]:
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
    children = [_create_field_record(child, ids, f"{path}.{child.name}") for child in values.fields]
    declarations = tuple(declaration for _, inner_declarations in children for declaration in inner_declarations)
    if encoding:
        declarations = (DictionaryDeclaration(encoding["id"], values, declarations),)
    record = {
        "name": field.name,
        "nullable": field.nullable,
        "type_type": TYPES.index(type_table.spec),
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
