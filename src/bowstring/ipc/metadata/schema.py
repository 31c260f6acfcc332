"""Schemas as metadata («Schema message»): `Schema` and `Field` to and from the records of `bowstring.flatbuf`.

A dictionary-encoded field carries its values' type and a dictionary id. The ids are no part of a `Schema`: they are in
a tree of `DictionaryId`s beside it, in the order in which a walk over the arrays meets the dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

from bowstring.datatypes import extension, types
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import Field, Metadata, Schema
from bowstring.datatypes.types import DataType, Dictionary
from bowstring.errors import InvalidDataError, LimitError, UnsupportedError, UnsupportedTypeError, UsageError
from bowstring.flatbuf.reader import Table
from bowstring.flatbuf.tables import TYPES
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.metadata.types import read_int, read_type, write_int, write_type

LITTLE, BIG = 0, 1
V4, V5 = 3, 4


@dataclass(frozen=True, slots=True)
class DictionaryId:
    """The dictionary of one dictionary-encoded field: its id, the type of its values, the dictionaries inside."""

    id: int
    value_type: DataType
    inside: tuple[DictionaryId, ...] = ()


@dataclass(frozen=True, slots=True)
class WireSchema:
    """A schema with what only the wire knows: for each field the dictionaries that a walk over its array meets, whether
    numbers in bodies are big-endian, and what bodies may make a reader do.
    """

    schema: Schema
    dictionaries: tuple[tuple[DictionaryId, ...], ...]
    is_big_endian: bool = False
    limits: ReadLimits = DEFAULT_LIMITS
    by_id: dict[int, DictionaryId] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found: dict[int, DictionaryId] = {}
        for node in _every(chain.from_iterable(self.dictionaries)):
            if found.setdefault(node.id, node) != node:
                raise InvalidDataError(
                    f"schema: dictionary {node.id} is of type {found[node.id].value_type} and of type {node.value_type}"
                )
        object.__setattr__(self, "by_id", found)

    def __len__(self) -> int:
        return len(self.dictionaries)

    def entry(self, index: int) -> tuple[Field, tuple[DictionaryId, ...]]:
        """One field, and the dictionaries that a walk over its array meets."""
        return self.schema.fields[index], self.dictionaries[index]


def _every(nodes: Iterable[DictionaryId]) -> Iterator[DictionaryId]:
    for node in nodes:
        yield node
        yield from _every(node.inside)


# Reading


def read_endianness(table: Table) -> bool:
    """Whether a `Schema` table says that its data is big-endian; raises `InvalidDataError` for an unknown order."""
    endianness: int = table["endianness"]
    if endianness not in (LITTLE, BIG):
        raise InvalidDataError(f"{table.message.where}: endianness {endianness} is neither little (0) nor big (1)")
    return endianness == BIG


def read_fields(table: Table, limits: ReadLimits) -> WireSchema:
    """The schema of a `Schema` table whatever the endianness of its data: no header depends on it.

    Raises `InvalidDataError` naming the field, `LimitError` for types nested too deep.
    """
    read = [read_field(child, limits.max_nesting) for child in table["fields"]]
    schema = Schema(tuple(f for f, _ in read), read_pairs(table))
    return WireSchema(schema, tuple(nodes for _, nodes in read))


def read_pairs(table: Table) -> Metadata:
    """The custom metadata of a table, in order («Custom Application Metadata»)."""
    return tuple((pair["key"] or b"", pair["value"] or b"") for pair in table["custom_metadata"])


def read_field(table: Table, max_depth: int) -> tuple[Field, tuple[DictionaryId, ...]]:
    """The field of a `Field` table, and the dictionaries that a walk over its array meets; errors as `read_fields`."""
    return _read_field(table, max_depth, max_depth)


def _read_field(table: Table, depth: int, max_depth: int) -> tuple[Field, tuple[DictionaryId, ...]]:
    name = table["name"] or ""
    try:
        if depth == 0:
            raise LimitError(f"types are nested deeper than {max_depth}, the limit (max_nesting)")
        below = [_read_field(child, depth - 1, max_depth) for child in table["children"]]
        nodes = tuple(node for _, inside in below for node in inside)
        made = read_type(table, [child for child, _ in below])
        encoding = table["dictionary"]
        if encoding is not None:
            nodes = (DictionaryId(encoding["id"], made, nodes),)
            made = _read_encoding(encoding, made)
        field = Field(name, made, table["nullable"], read_pairs(table))
        return (_resolved(field) if field.pairs else field), nodes
    except UsageError as error:  # from the types' own checks: here it is the data's fault
        raise InvalidDataError(f"field {name!r}: {error}") from None
    except InvalidDataError as error:
        raise type(error)(f"field {name!r}: {error}") from None


def _resolved(field: Field) -> Field:
    """The field with its extension type: over the type it has, or, where that is a dictionary and the extension is none
    over dictionaries, with a dictionary of values of that extension; one that is neither stays as it is.
    """
    coded = field.type
    try:
        return extension.resolve(field)
    except InvalidDataError:
        if not isinstance(coded, Dictionary):
            raise
    try:
        values = extension.resolve(field.with_type(coded.value_type))
    except InvalidDataError:
        return field
    return values.with_type(Dictionary(coded.index_type, values.type, coded.ordered))


def _read_encoding(encoding: Table, values: DataType) -> Dictionary:
    if encoding["dictionaryKind"] != 0:
        raise UnsupportedError(f"dictionary kind {encoding['dictionaryKind']} is not known")
    index = encoding["indexType"]
    index_type = types.Int(32) if index is None else read_int(index)
    return Dictionary(index_type, values, encoding["isOrdered"])


# Writing


def write_schema(schema: Schema, ids: Iterable[int] | None = None) -> tuple[dict[str, Any], WireSchema]:
    """The record of a `Schema` table, and the schema with the dictionary ids that were given out.

    `ids` are those of the dictionaries in the order in which fields name them, an outer one before those inside it; by
    default they are counted. Raises `UnsupportedTypeError` naming the column path for a type that the format has no
    words for.
    """
    given = count() if ids is None else iter(ids)
    written = [_write_field(field, given, field.name) for field in schema.fields]
    record = {"fields": [r for r, _ in written], "custom_metadata": write_pairs(schema.pairs)}
    return record, WireSchema(schema, tuple(nodes for _, nodes in written))


def write_pairs(pairs: Metadata) -> list[dict[str, bytes]] | None:
    """The records of custom metadata; None where there is none."""
    return [{"key": key, "value": value} for key, value in pairs] or None


def _write_field(field: Field, ids: Iterator[int], path: str) -> tuple[dict[str, Any], tuple[DictionaryId, ...]]:
    field = extension.annotate(field)
    values = field.type
    encoding: dict[str, Any] | None = None
    if isinstance(values, Dictionary):
        index, ordered = values.index_type, values.ordered
        encoding = {"id": next(ids), "indexType": write_int(index), "isOrdered": ordered}
        if isinstance(values.value_type, ExtensionType):
            field = _with_extension_of_values(field, values, path)
        values = extension.annotate(Field("", values.value_type)).type
    made = write_type(values)
    if made is None:
        inside = "a dictionary of " if encoding else ""
        what = "an extension type" if isinstance(values, ExtensionType) else str(values)
        raise UnsupportedTypeError(f"column {path}: the IPC format has no words for {inside}{what} ({values})")
    below = [_write_field(child, ids, f"{path}.{child.name}") for child in values.fields]
    nodes = tuple(node for _, inside_nodes in below for node in inside_nodes)
    if encoding:
        nodes = (DictionaryId(encoding["id"], values, nodes),)
    record = {
        "name": field.name,
        "nullable": field.nullable,
        "type_type": TYPES.index(made.spec),
        "type": made,
        "dictionary": encoding,
        "children": [r for r, _ in below],
        "custom_metadata": write_pairs(field.pairs),
    }
    return record, nodes


def _with_extension_of_values(field: Field, coded: Dictionary, path: str) -> Field:
    """The field of a dictionary of extension values: it says their extension in the place of its own."""
    if extension.NAME_KEY in field.metadata:
        raise UnsupportedTypeError(f"column {path}: one field can't say two extensions, of {coded} and of its values")
    values = extension.annotate(field.with_type(coded.value_type))
    made = values.with_type(Dictionary(coded.index_type, values.type, coded.ordered))
    if isinstance(_resolved(made).type, ExtensionType):
        raise UnsupportedTypeError(
            f"column {path}: {coded} would be read as {_resolved(made).type}: give the extension to the dictionary, or "
            f"decode it"
        )
    return made
