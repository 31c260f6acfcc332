r"""«Parquet Variant» of the canonical extension types: semi-structured values, encoded as Parquet does.

Only the shape of the storage is known here: values are the struct's, with their encoded bytes as they are.

>>> import bowstring as bs
>>> row = {"metadata": b"\x01\x00\x00", "value": b"\x0c\x07"}
>>> bs.array([row, None], bs.parquet_variant()).to_pylist() == [row, None]
True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bowstring.datatypes.base import TypeLike, as_type
from bowstring.datatypes.canonical.plain import UuidType
from bowstring.datatypes.extension import ExtensionType, register_extension_type
from bowstring.datatypes.field import Field, field
from bowstring.datatypes.types import (
    Binary,
    BinaryView,
    Bool,
    DataType,
    Date,
    Decimal,
    Dictionary,
    FloatingPoint,
    Int,
    LargeBinary,
    LargeList,
    LargeUtf8,
    List,
    ListView,
    Null,
    RunEndEncoded,
    Struct,
    Time,
    Timestamp,
    Utf8,
    Utf8View,
)
from bowstring.errors import UsageError

_BYTES = (Binary, LargeBinary, BinaryView)
_PRIMITIVES = (Null, Bool, Int, *_BYTES, Utf8, LargeUtf8, Utf8View, UuidType)
"""Types of «Primitive Type Mappings» that are in it with all their parameters."""


@register_extension_type
@dataclass(frozen=True, slots=True, repr=False)
class ParquetVariantType(ExtensionType):
    """Variants, shredded or not: a struct of `metadata` and `value`, `typed_value` or both, in any order."""

    EXTENSION_NAME: ClassVar[str] = "arrow.parquet.variant"

    def __post_init__(self) -> None:
        name, storage = self.EXTENSION_NAME, self.storage_type
        if not isinstance(storage, Struct):
            raise UsageError(f"{name} is stored as a struct, not as {storage}")
        held = [f for f in storage.fields if f.name == "metadata"]
        if len(held) != 1 or held[0].nullable or not isinstance(_plain(held[0].type), _BYTES):
            raise UsageError(f"{name} has one field 'metadata' that is binary and not nullable, not {storage}")
        _check_values(name, [f for f in storage.fields if f.name != "metadata"], "")


def _plain(type_: DataType) -> DataType:
    return type_.value_type if isinstance(type_, (Dictionary, RunEndEncoded)) else type_


def _check_values(name: str, fields: list[Field], path: str) -> None:
    """`value`, `typed_value` or both, and nothing else; raises `UsageError` naming the path."""
    found = {f.name: f.type for f in fields}
    if len(found) != len(fields) or not found or found.keys() - {"value", "typed_value"}:
        raise UsageError(f"{name}: {path or 'its storage'} has 'value', 'typed_value' or both, not {sorted(found)}")
    if "value" in found and not isinstance(found["value"], _BYTES):
        raise UsageError(f"{name}: '{path}value' is binary, not {found['value']}")
    if "typed_value" in found:
        _check_typed(name, found["typed_value"], f"{path}typed_value")


def _check_typed(name: str, type_: DataType, path: str) -> None:
    if isinstance(type_, (List, LargeList, ListView, Struct)):
        if not type_.fields:
            raise UsageError(f"{name}: '{path}' is a struct without fields")
        for child in type_.fields:
            where = f"{path}.{child.name}."
            if child.nullable or not isinstance(child.type, Struct):
                raise UsageError(f"{name}: '{where[:-1]}' is a struct that is not nullable, not {child}")
            _check_values(name, list(child.type.fields), where)
    elif not _is_primitive(type_):
        raise UsageError(f"{name}: '{path}' is {type_}, which no variant has")


def _is_primitive(type_: DataType) -> bool:
    match type_:
        case FloatingPoint(bit_width=bits):
            return bits in (32, 64)
        case Decimal(bit_width=bits):
            return bits in (32, 64, 128)
        case Date(unit=unit):
            return unit == "day"
        case Time(unit=unit):
            return unit in ("us", "ns")
        case Timestamp(unit=unit, timezone=zone):
            return unit in ("us", "ns") and zone in (None, "UTC")
    return isinstance(type_, _PRIMITIVES)


def parquet_variant(storage_type: TypeLike | None = None) -> ParquetVariantType:
    """Variants, stored as `storage_type`; by default a struct of `metadata` and `value`, nothing shredded."""
    plain = Struct((field("metadata", Binary(), nullable=False), field("value", Binary(), nullable=False)))
    return ParquetVariantType(plain if storage_type is None else as_type(storage_type))
