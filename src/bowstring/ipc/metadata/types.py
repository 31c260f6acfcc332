"""Data types to and from flatbuffer tables («Schema message»; the union Type)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bowstring.datatypes import types
from bowstring.datatypes.field import Field
from bowstring.datatypes.type_specs import TYPE_SPECS_BY_CLASS, TYPE_SPECS_BY_NAME, Enumeration, TypeParameter
from bowstring.datatypes.types import DataType
from bowstring.errors import InvalidDataError
from bowstring.flatbuf.reader import FlatTable
from bowstring.flatbuf.writer import Record, UnionValue


def read_int_type(table: FlatTable) -> types.Int:
    """The integer type of an `Int` table."""
    return types.Int(table["bitWidth"], table["is_signed"])


def create_int_record(type: types.Int) -> Record:
    """The record of an `Int` table."""
    return {"bitWidth": type.bit_width, "is_signed": type.is_signed}


def read_type(field: FlatTable, children: Sequence[Field]) -> DataType:
    """Return the type of a `Field` table, given its children.

    Raises `InvalidDataError` for an unknown or malformed type; parameters out of range raise the types' own
    `InvalidArgumentError`.
    """
    table = field["type"]
    if table is None:
        raise InvalidDataError(f"{field.flatbuffer.location}: a field has no type")
    type_spec, values = TYPE_SPECS_BY_NAME[table.definition.name], []
    for parameter in type_spec.parameters:
        value, value_type = table[parameter.name], parameter.value_type
        if isinstance(value_type, Enumeration):
            choices = tuple(value_type.values.values())
            if not 0 <= value < len(choices):
                raise InvalidDataError(f"{value_type.label} {value} is out of range: there are {len(choices)}")
            value = choices[value]
        elif value_type is list:
            value = value.tolist() if table.locate_slot(parameter.name) else None
        values.append(value)
    return type_spec.create_type(children, values)


def create_type_record(type_: DataType) -> UnionValue | None:
    """Return the table of a type; None for types that are represented otherwise (dictionaries, extensions)."""
    type_spec = TYPE_SPECS_BY_CLASS.get(type(type_))
    if type_spec is None:
        return None
    return UnionValue(
        type_spec.name, {parameter.name: _encode_parameter(type_, parameter) for parameter in type_spec.parameters}
    )


def _encode_parameter(type_: DataType, parameter: TypeParameter) -> Any:
    value, value_type = getattr(type_, parameter.attribute), parameter.value_type
    return tuple(value_type.values.values()).index(value) if isinstance(value_type, Enumeration) else value
