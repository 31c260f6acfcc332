"""«Schema Requests» of the PyCapsule interface: the same data in the representation that its consumer prefers.

A request is granted where the wanted type is another way to lay out the same values (text of another offset width,
with a dictionary or without, lists of another kind, integers of another width that hold every value, …), and where
every value goes through unchanged. Otherwise the data goes out as it is, which the protocol allows; nobody gets other
values than there are. A request for other columns than there are is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bowstring.arrays.record_batch import RecordBatch
from bowstring.datatypes import types as t
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import Field, Schema
from bowstring.errors import DataTypeError, InvalidDataError
from bowstring.interop import c_abi
from bowstring.interop.c_schema import as_schema, read_field
from bowstring.layouts.array import Array


def fitted_array(array: Array, requested: object) -> Array:
    """The array as one of the requested type where that is granted, else the array itself.

    Raises `DataTypeError` where a struct of other fields is requested, or `requested` is no capsule of a schema.
    """
    if requested is None:
        return array
    return _fitted_chunks([array], _wanted(requested).type)[0]


def fitted_chunks(chunks: Sequence[Array], type_: t.DataType, requested: object) -> tuple[Sequence[Array], t.DataType]:
    """The chunks of one column and their type, as `fitted_array`: all of them, or none."""
    if requested is None:
        return chunks, type_
    wanted = _wanted(requested).type
    if not chunks:
        return chunks, wanted if _alike(type_, wanted) else type_
    made = _fitted_chunks(chunks, wanted)
    return made, made[0].type


def fitted_batches(
    schema: Schema, batches: Iterable[RecordBatch], requested: object
) -> tuple[Schema, Iterable[RecordBatch]]:
    """The schema and the batches with their columns as requested, column by column as `fitted_chunks`.

    Batches are taken one by one only where nothing is requested: whether a column's values fit is known when all have
    been seen.
    """
    if requested is None:
        return schema, batches
    wanted = as_schema(_wanted(requested))
    if wanted.names != schema.names:
        raise DataTypeError(f"columns {schema.names} do not go out as the requested {wanted.names}")
    if wanted.types == schema.types:
        return schema, batches
    held = list(batches)
    columns, fields = [], []
    for index, (field, other) in enumerate(zip(schema, wanted, strict=True)):
        chunks = [batch.column(index) for batch in held]
        made = _fitted_chunks(chunks, other.type) if chunks else []
        kind = made[0].type if made else (other.type if _alike(field.type, other.type) else field.type)
        columns.append(made)
        fields.append(Field(field.name, kind, field.nullable, field.pairs))
    fitted = Schema(tuple(fields), schema.pairs)
    return fitted, [
        RecordBatch(fitted, batch.num_rows, [made[number] for made in columns]) for number, batch in enumerate(held)
    ]


def _wanted(requested: object) -> Field:
    return read_field(c_abi.pointer(requested, c_abi.SCHEMA_CAPSULE))


def _fitted_chunks(chunks: Sequence[Array], wanted: t.DataType) -> Sequence[Array]:
    if chunks[0].type == wanted or not _alike(chunks[0].type, wanted):
        return chunks
    try:
        return [chunk.cast(wanted) for chunk in chunks]
    except (DataTypeError, InvalidDataError):
        return chunks


# Which types show the same values

_FAMILIES: tuple[tuple[type[t.DataType], ...], ...] = (
    (t.Utf8, t.LargeUtf8, t.Utf8View),
    (t.Binary, t.LargeBinary, t.BinaryView, t.FixedSizeBinary),
    (t.Int,),
    (t.Date,),
    (t.Duration,),
    (t.Time,),
)
_CONDITIONS: dict[type[t.DataType], Callable[[Any, Any], bool]] = {
    t.FloatingPoint: lambda own, wanted: bool(wanted.bit_width >= own.bit_width),
    t.Decimal: lambda own, wanted: bool(wanted.scale >= own.scale),
    t.Timestamp: lambda own, wanted: bool(wanted.timezone == own.timezone),
}
"""What has to hold between two types of this class; casts do the rest, and refuse what would change a value."""


def _alike(own: t.DataType, wanted: t.DataType) -> bool:
    if own == wanted or isinstance(own, t.Null):
        return True
    if isinstance(wanted, ExtensionType):
        return False
    if isinstance(own, ExtensionType):
        return _alike(own.storage_type, wanted)
    inner_own, inner_wanted = _within(own), _within(wanted)
    if inner_own is not own or inner_wanted is not wanted:
        return _alike(inner_own, inner_wanted)
    if own.num_fields or wanted.num_fields:
        are_lists = isinstance(own, t.ListLike) and isinstance(wanted, t.ListLike)
        return (are_lists or type(own) is type(wanted)) and _children_alike(own, wanted)
    condition = _CONDITIONS.get(type(own))
    if condition is not None:
        return type(own) is type(wanted) and condition(own, wanted)
    return any(isinstance(own, family) and isinstance(wanted, family) for family in _FAMILIES)


def _within(type_: t.DataType) -> t.DataType:
    if isinstance(type_, t.Dictionary):
        return type_.value_type
    return type_.fields[1].type if isinstance(type_, t.RunEndEncoded) else type_


def _children_alike(own: t.DataType, wanted: t.DataType) -> bool:
    if isinstance(own, t.Struct):
        names, others = [f.name for f in own.fields], [f.name for f in wanted.fields]
        if names != others:
            raise DataTypeError(f"a struct of fields {names} does not go out as one of the requested {others}")
    return own.num_fields == wanted.num_fields and all(
        _alike(mine.type, theirs.type) and (theirs.nullable or not mine.nullable)
        for mine, theirs in zip(own.fields, wanted.fields, strict=True)
    )
