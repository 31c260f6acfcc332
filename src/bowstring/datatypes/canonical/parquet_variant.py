r"""«Parquet Variant» of the canonical extension types: semi-structured values in Parquet's encoding.

Only the storage type is checked. Values are structs; the encoded bytes are not decoded.

>>> import bowstring as bs
>>> row = {"metadata": b"\x01\x00\x00", "value": b"\x0c\x07"}
>>> bs.array([row, None], bs.datatypes.parquet_variant()).to_pylist() == [row, None]
True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bowstring.datatypes import types as t
from bowstring.datatypes.canonical.uuid import UuidType
from bowstring.datatypes.conversion import TypeLike, as_type, field
from bowstring.datatypes.extension import ExtensionType, register_extension_type
from bowstring.datatypes.field import Field
from bowstring.errors import InvalidArgumentError

_BYTES = (t.Binary, t.LargeBinary, t.BinaryView)
_PRIMITIVES = (t.Null, t.Bool, t.Int, *_BYTES, t.Utf8, t.LargeUtf8, t.Utf8View, UuidType)
"""Types of «Primitive Type Mappings» that are allowed with any parameters."""


@register_extension_type
@dataclass(frozen=True, slots=True, repr=False)
class ParquetVariantType(ExtensionType):
    """Variants, shredded or not: a struct of `metadata` and of `value`, `typed_value` or both, in any order."""

    EXTENSION_NAME: ClassVar[str] = "arrow.parquet.variant"

    def __post_init__(self) -> None:
        name, storage = self.EXTENSION_NAME, self.storage_type
        if not isinstance(storage, t.Struct):
            raise InvalidArgumentError(f"{name}: expected a struct as storage type, found {storage}")
        metadata = [f for f in storage.fields if f.name == "metadata"]
        types = [_decoded_type(f.type) for f in metadata]
        if len(metadata) != 1 or metadata[0].nullable or not isinstance(types[0], _BYTES):
            raise InvalidArgumentError(f"{name}: expected one binary, non-nullable field 'metadata', found {storage}")
        _check_shredded_fields(name, [f for f in storage.fields if f.name != "metadata"], "")


def _decoded_type(type_: t.DataType) -> t.DataType:
    return type_.value_type if isinstance(type_, (t.Dictionary, t.RunEndEncoded)) else type_


def _check_shredded_fields(name: str, fields: list[Field], path: str) -> None:
    """Raise `InvalidArgumentError`, naming the path, unless the fields are `value`, `typed_value` or both."""
    types = {f.name: f.type for f in fields}
    if len(types) != len(fields) or not types or types.keys() - {"value", "typed_value"}:
        raise InvalidArgumentError(
            f"{name}: expected 'value', 'typed_value' or both in {path or 'its storage'}, found {sorted(types)}"
        )
    if "value" in types and not isinstance(types["value"], _BYTES):
        raise InvalidArgumentError(f"{name}: expected '{path}value' to be binary, found {types['value']}")
    if "typed_value" in types:
        _check_typed_value(name, types["typed_value"], f"{path}typed_value")


def _check_typed_value(name: str, type_: t.DataType, path: str) -> None:
    if isinstance(type_, (t.List, t.LargeList, t.ListView, t.Struct)):
        if not type_.fields:
            raise InvalidArgumentError(f"{name}: '{path}' is a struct without fields")
        for child in type_.fields:
            child_path = f"{path}.{child.name}"
            if child.nullable or not isinstance(child.type, t.Struct):
                raise InvalidArgumentError(
                    f"{name}: expected '{child_path}' to be a non-nullable struct, found {child}"
                )
            _check_shredded_fields(name, list(child.type.fields), f"{child_path}.")
    elif not _is_primitive(type_):
        raise InvalidArgumentError(f"{name}: '{path}' is {type_}, which is not a type of variants")


def _is_primitive(type_: t.DataType) -> bool:
    match type_:
        case t.FloatingPoint(bit_width=bits):
            return bits in (32, 64)
        case t.Decimal(bit_width=bits):
            return bits in (32, 64, 128)
        case t.Date(unit=unit):
            return unit == "day"
        case t.Time(unit=unit):
            return unit in ("us", "ns")
        case t.Timestamp(unit=unit, timezone=zone):
            return unit in ("us", "ns") and zone in (None, "UTC")
    return isinstance(type_, _PRIMITIVES)


def parquet_variant(storage_type: TypeLike | None = None) -> ParquetVariantType:
    """Variants, stored as `storage_type`; by default an unshredded struct of `metadata` and `value`.

    >>> fields = [bs.field("metadata", "binary", nullable=False), bs.field("value", "binary", nullable=False)]
    >>> bs.datatypes.parquet_variant(bs.struct(fields)).EXTENSION_NAME
    'arrow.parquet.variant'
    """
    unshredded = t.Struct((field("metadata", t.Binary(), nullable=False), field("value", t.Binary(), nullable=False)))
    return ParquetVariantType(unshredded if storage_type is None else as_type(storage_type))
