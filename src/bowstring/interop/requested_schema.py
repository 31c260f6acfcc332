"""«Schema Requests» of the PyCapsule interface: convert exported data to the representation a consumer requests.

A request is granted if the requested type is another layout of the same values (strings with another offset width, with
or without a dictionary, another list layout, integers of another width, …) and every value converts without loss.
Otherwise the data is exported unchanged, which the protocol allows. A request for other columns is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bowstring.datatypes import types as t
from bowstring.datatypes.c_schema import read_field
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import Field
from bowstring.datatypes.schema import Schema, schema_from_field
from bowstring.errors import InvalidArgumentError, InvalidDataError, TypeMismatchError
from bowstring.interop.c_array import AbstractRecordBatch, ColumnarBatch
from bowstring.kernels.cast import cast
from bowstring.layouts.base import ArrayData
from bowstring.memory import c_abi


def convert_array(array: ArrayData, requested: object) -> ArrayData:
    """Convert the array to the requested type if possible without loss, else return the array itself.

    Raises `TypeMismatchError` if a struct with other fields is requested, or `requested` is not a schema capsule.
    """
    if requested is None:
        return array
    chunks, _ = _convert_column([array], array.type, _read_requested_field(requested).type)
    return chunks[0]


def convert_chunks(
    chunks: Sequence[ArrayData], type_: t.DataType, requested: object
) -> tuple[Sequence[ArrayData], t.DataType]:
    """Convert all chunks of one column, or none, as `convert_array`. Return the chunks and their type."""
    if requested is None:
        return chunks, type_
    return _convert_column(chunks, type_, _read_requested_field(requested).type)


def convert_batches(
    schema: Schema, batches: Iterable[AbstractRecordBatch], requested: object
) -> tuple[Schema, Iterable[AbstractRecordBatch]]:
    """Convert the columns of the batches one by one, as `convert_chunks`. Return the converted schema and batches.

    Without a request, batches are passed through lazily. With a request, all batches are read first: a column is
    converted only if all its values can be.
    """
    if requested is None:
        return schema, batches
    requested_schema = schema_from_field(_read_requested_field(requested))
    if requested_schema.names != schema.names:
        raise TypeMismatchError(f"columns {schema.names} can't be exported as the requested {requested_schema.names}")
    if requested_schema.types == schema.types:
        return schema, batches
    batches = list(batches)
    columns, fields = [], []
    for index, (field, requested_field) in enumerate(zip(schema, requested_schema, strict=True)):
        chunks, type_ = _convert_column([batch.columns[index] for batch in batches], field.type, requested_field.type)
        columns.append(chunks)
        fields.append(field.with_type(type_))
    converted_schema = Schema(tuple(fields), schema.pairs)
    return converted_schema, [
        ColumnarBatch(batch.num_rows, [chunks[i] for chunks in columns]) for i, batch in enumerate(batches)
    ]


def _read_requested_field(requested: object) -> Field:
    return read_field(c_abi.capsule_pointer(requested, c_abi.SCHEMA_CAPSULE))


def _convert_column(
    chunks: Sequence[ArrayData], type_: t.DataType, requested_type: t.DataType
) -> tuple[Sequence[ArrayData], t.DataType]:
    """Convert all chunks of a column, or none; return the chunks and their type."""
    if type_ == requested_type or not _is_convertible(type_, requested_type):
        return chunks, type_
    try:
        return [cast(chunk, requested_type) for chunk in chunks], requested_type
    except (InvalidArgumentError, InvalidDataError):
        return chunks, type_  # a value would change, or does not fit: a producer may ignore the request


# Types with the same values in different representations

_CONVERSION_CONDITIONS: dict[type[t.DataType], Callable[[Any, Any], bool]] = {
    t.FloatingPoint: lambda type_, requested_type: bool(requested_type.bit_width >= type_.bit_width),
    t.Decimal: lambda type_, requested_type: bool(requested_type.scale >= type_.scale),
    t.Timestamp: lambda type_, requested_type: bool(requested_type.timezone == type_.timezone),
}
"""Conditions for converting between two types of a class; the cast itself rejects values that would change."""


def _is_convertible(type_: t.DataType, requested_type: t.DataType) -> bool:
    if type_ == requested_type or isinstance(type_, t.Null):
        return True
    if isinstance(requested_type, ExtensionType):
        return False
    if isinstance(type_, ExtensionType):
        return _is_convertible(type_.storage_type, requested_type)
    value_type, requested_value_type = _value_type(type_), _value_type(requested_type)
    if value_type is not type_ or requested_value_type is not requested_type:
        return _is_convertible(value_type, requested_value_type)
    if type_.num_fields or requested_type.num_fields:
        are_lists = isinstance(type_, t.BaseList) and isinstance(requested_type, t.BaseList)
        return (are_lists or type(type_) is type(requested_type)) and _has_convertible_children(type_, requested_type)
    if type(type_) is type(requested_type):
        condition = _CONVERSION_CONDITIONS.get(type(type_))
        return condition is None or condition(type_, requested_type)
    return any(
        isinstance(type_, family) and isinstance(requested_type, family) for family in (t.BaseString, t.BaseBinary)
    )


def _value_type(type_: t.DataType) -> t.DataType:
    if isinstance(type_, t.Dictionary):
        return type_.value_type
    return type_.fields[1].type if isinstance(type_, t.RunEndEncoded) else type_


def _has_convertible_children(type_: t.DataType, requested_type: t.DataType) -> bool:
    if isinstance(type_, t.Struct):
        names, requested_names = [f.name for f in type_.fields], [f.name for f in requested_type.fields]
        if names != requested_names:
            raise TypeMismatchError(f"a struct of fields {names} can't be exported as the requested {requested_names}")
    return type_.num_fields == requested_type.num_fields and all(
        _is_convertible(field.type, requested.type) and (requested.nullable or not field.nullable)
        for field, requested in zip(type_.fields, requested_type.fields, strict=True)
    )
