"""Compare types and schemas without regard to which fields may have nulls."""

from __future__ import annotations

from dataclasses import replace

from bowstring.datatypes.field import DataType, Field
from bowstring.datatypes.schema import Schema
from bowstring.datatypes.types import BaseList, Map, RunEndEncoded, Struct, Union


def as_nullable(schema: Schema) -> Schema:
    """Return a schema whose fields and their children may all have nulls, where the format allows them."""
    return Schema(tuple(map(_as_nullable_field, schema)), schema.pairs)


def _as_nullable_field(field: Field) -> Field:
    return replace(field, type=_with_nullable_children(field.type), nullable=True)


def _with_nullable_children(data_type: DataType) -> DataType:
    if isinstance(data_type, BaseList):
        return replace(data_type, value_field=_as_nullable_field(data_type.value_field))
    if isinstance(data_type, Struct | Union):
        return replace(data_type, children=tuple(map(_as_nullable_field, data_type.children)))
    if isinstance(data_type, RunEndEncoded):
        return replace(data_type, values_field=_as_nullable_field(data_type.values_field))
    if isinstance(data_type, Map):
        entries = data_type.entries_field
        key, value = entries.type.fields  # entries and keys have no nulls
        children = (replace(key, type=_with_nullable_children(key.type)), _as_nullable_field(value))
        return replace(data_type, entries_field=replace(entries, type=Struct(children)))
    return data_type
