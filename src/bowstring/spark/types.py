"""Convert schemas between Spark and Arrow («Data Types»).

Spark types without an Arrow type of their own have the type of their stored form: a string for a string with a
collation, a struct for a vector. Other readers see plain values; the metadata of the column's field has Spark's type
(`TYPE_KEY`), so that Spark reads it back.

Types that `_to_arrow_type` or `_to_spark_type` do not list are unsupported. Errors name the column path, in which
``[]`` means the elements of a list, ``{key}`` and ``{value}`` the keys and values of a map.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

from pyspark.sql import types as spark

from bowstring.datatypes import factories, types as arrow
from bowstring.datatypes.canonical.bool8 import Bool8Type
from bowstring.datatypes.canonical.parquet_variant import ParquetVariantType
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import Field, Metadata
from bowstring.datatypes.nullability import as_nullable as without_nullability
from bowstring.datatypes.schema import Schema
from bowstring.datatypes.types import BaseList
from bowstring.errors import InvalidDataError, UnsupportedTypeError
from bowstring.io.store_path import FolderPath
from bowstring.spark.versions import SPARK_VERSION

METADATA_KEY = b"SPARK::metadata::json"
"""Where Spark keeps the metadata of a column in the metadata of an Arrow field, as JSON."""
TIME_PRECISION_KEY = b"SPARK::time::precision"
"""Where Spark keeps the number of digits of a time of day."""
TYPE_KEY = b"bowstring::spark::field"
"""Where the field of a column has the Spark field, as JSON, if its type does not follow from the Arrow type."""
_LARGE_TYPES_SETTING = "spark.sql.execution.arrow.useLargeVarTypes"
# `DecimalType.MAX_PRECISION`.
SPARK_MAX_DIGITS = 38
TRUSTED_USER_DEFINED_TYPES = frozenset(
    f"pyspark.{package}.linalg.{name}" for package in ("ml", "mllib") for name in ("VectorUDT", "MatrixUDT")
)
"""The Python classes of user-defined types that a file may name: to read the type of a column imports its class."""

_TYPES_WITHOUT_PARAMETERS: dict[str, arrow.DataType] = {
    "NullType": arrow.Null(),
    "BooleanType": arrow.Bool(),
    "ByteType": arrow.Int(8),
    "ShortType": arrow.Int(16),
    "IntegerType": arrow.Int(32),
    "LongType": arrow.Int(64),
    "FloatType": arrow.FloatingPoint(32),
    "DoubleType": arrow.FloatingPoint(64),
    "StringType": arrow.Utf8(),
    "CharType": arrow.Utf8(),
    "VarcharType": arrow.Utf8(),
    "BinaryType": arrow.Binary(),
    "DateType": arrow.Date("day"),
    "TimeType": arrow.Time("ns"),
    "TimestampType": arrow.Timestamp("us", "UTC"),
    "TimestampNTZType": arrow.Timestamp("us"),
    "DayTimeIntervalType": arrow.Duration("us"),
    "YearMonthIntervalType": arrow.Interval("year_month"),
    "CalendarIntervalType": arrow.Interval("month_day_nano"),
}
"""The types without parameters, by the name of Spark's class."""
_SPARK_TYPE_NAMES = {arrow_type: name for name, arrow_type in _TYPES_WITHOUT_PARAMETERS.items()}


_VARIANT_STORAGE = arrow.Struct(
    (
        Field("value", arrow.Binary(), nullable=False),
        Field("metadata", arrow.Binary(), nullable=False, pairs=((b"variant", b"true"),)),
    )
)
"""Variants as Spark sends them. Their encoding is Parquet's, whose canonical extension type the files have."""


_TAGS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("value", "metadata"): ("variant",),
    ("srid", "wkb"): ("geometry", "geography"),
}
"""The marks that the second child of a struct with these children may have."""


class UnsupportedType(spark.DataType):
    """The place of an Arrow type without a Spark counterpart in the schema of a file: columns can be read as others."""

    def __init__(self, arrow_type: arrow.DataType, advice: str = "") -> None:
        self.arrow_type = arrow_type
        self.advice = advice

    def simpleString(self) -> str:  # noqa: N802 -- Spark's own
        """Return the Arrow type's name."""
        return f"Arrow's type {self.arrow_type}"

    def to_error(self, location: str) -> UnsupportedTypeError:
        """Return the error for a column of this type."""
        return UnsupportedTypeError(f"{location}: {self.simpleString()} has no counterpart in Spark: {self.advice}")


def to_arrow_schema(struct: spark.StructType, *, prefers_large_types: bool = False) -> Schema:
    """Return the Arrow schema of ``DataFrame.toArrow``: timestamps have the time zone UTC, whatever the session's.

    With `prefers_large_types`, strings and binaries have 64-bit offsets.

    Raises:
        UnsupportedTypeError: a type has no Arrow counterpart; the message has its column path.
    """
    fields = []
    for column in struct.fields:
        field = _to_arrow_field(column, column.name)
        if _needs_annotation(column.dataType):
            field = replace(field, pairs=(*field.pairs, (TYPE_KEY, json.dumps(to_json_value(column)).encode())))
        fields.append(_with_large_types(field) if prefers_large_types else field)
    return Schema(tuple(fields))


def _with_large_types(field: Field) -> Field:
    """Return a field with 64-bit offsets of strings and binaries, except in variants and geometries, as in Spark."""
    match field.type:
        case arrow.Utf8():
            return field.with_type(arrow.LargeUtf8())
        case arrow.Binary():
            return field.with_type(arrow.LargeBinary())
    return field if _find_tag(field.type) else field.with_type(map_child_fields(field.type, _with_large_types))


def prefers_large_types(session: Any) -> bool:
    """Whether a session passes strings and binaries with 64-bit offsets to Python."""
    return bool(session.conf.get(_LARGE_TYPES_SETTING, None) == "true")


def _to_arrow_field(field: spark.StructField, path: str) -> Field:
    pairs: Metadata = ((METADATA_KEY, json.dumps(field.metadata).encode()),) if field.metadata else ()
    return _create_field(field.name, field.dataType, path, field.nullable, pairs)


def _create_field(name: str, data_type: Any, path: str, nullable: bool, pairs: Metadata = ()) -> Field:
    if type(data_type).__name__ == "TimeType":
        pairs = (*pairs, (TIME_PRECISION_KEY, b"%d" % data_type.precision))
    return Field(name, _to_arrow_type(data_type, path), nullable, pairs)


def _to_arrow_type(data_type: Any, path: str) -> arrow.DataType:
    match type(data_type).__name__:
        case name if name in _TYPES_WITHOUT_PARAMETERS:
            return _TYPES_WITHOUT_PARAMETERS[name]
        case "DecimalType":
            return arrow.Decimal(data_type.precision, data_type.scale)
        case "ArrayType":
            return arrow.List(_create_field("element", data_type.elementType, f"{path}[]", data_type.containsNull))
        case "MapType":
            key = _create_field("key", data_type.keyType, f"{path}{{key}}", nullable=False)
            value = _create_field("value", data_type.valueType, f"{path}{{value}}", data_type.valueContainsNull)
            return factories.map_(key, value)
        case "StructType":
            return arrow.Struct(tuple(_to_arrow_field(field, f"{path}.{field.name}") for field in data_type.fields))
        case "VariantType":
            return ParquetVariantType(_VARIANT_STORAGE)
        case "GeometryType" | "GeographyType" as name:
            pairs = ((name.removesuffix("Type").lower().encode(), b"true"), (b"srid", b"%d" % data_type.srid))
            wkb = Field("wkb", arrow.Binary(), nullable=False, pairs=pairs)
            return arrow.Struct((Field("srid", arrow.Int(32), nullable=False), wkb))
        case _ if hasattr(data_type, "sqlType"):
            return _to_arrow_type(data_type.sqlType(), path)
    raise UnsupportedTypeError(
        f"column {path}: Spark's type {data_type.simpleString()} has no Arrow counterpart that PySpark supports"
    )


def _needs_annotation(data_type: Any) -> bool:
    """Whether a Spark type, or one in it, does not follow from the Arrow type."""
    match type(data_type).__name__:
        case "StringType":
            return getattr(data_type, "collation", "UTF8_BINARY") != "UTF8_BINARY"
        case "CharType" | "VarcharType":
            return True
        case "DayTimeIntervalType" | "YearMonthIntervalType":
            return bool(data_type != type(data_type)())
    return hasattr(data_type, "sqlType") or any(_needs_annotation(child) for child, _ in iter_children(data_type))


def to_json_value(field: spark.StructField | spark.StructType) -> Any:
    """Return Spark's JSON of a field or schema, without pickled classes of user-defined types, which nothing loads."""

    def remove_classes(node: Any) -> Any:
        if isinstance(node, list):
            return list(map(remove_classes, node))
        if isinstance(node, dict):
            return {key: remove_classes(value) for key, value in node.items() if key != "serializedClass"}
        return node

    return remove_classes(field.jsonValue())


def to_file_type(data_type: arrow.DataType) -> arrow.DataType:
    """Return the type of columns in files for the `data_type` of the batches that Spark sends.

    Timestamps have the session's time zone there, whose names ("GMT+8", "Z") many Arrow readers do not support, but
    values relative to UTC. Variants are structs.
    """
    if isinstance(data_type, arrow.Timestamp) and data_type.timezone is not None:
        return replace(data_type, timezone="UTC")
    if _find_tag(data_type) == "variant":
        return ParquetVariantType(data_type)
    return map_child_fields(data_type, lambda field: field.with_type(to_file_type(field.type)))


def has_file_types(batch_schema: Schema, schema: Schema) -> bool:
    """Whether batches that Spark sends have the types of a file with `schema`; names and nullability may differ."""
    if len(batch_schema) != len(schema):
        return False
    fields = [Field(field.name, to_file_type(sent.type)) for sent, field in zip(batch_schema, schema, strict=True)]
    return without_nullability(Schema(tuple(fields))) == without_nullability(schema)


def _find_tag(data_type: arrow.DataType) -> str | None:
    """Return "variant", "geometry" or "geography" if a struct is one for Spark, which marks a child of it."""
    if not isinstance(data_type, arrow.Struct):
        return None
    names = tuple(child.name for child in data_type.children)
    return next(
        (tag for tag in _TAGS.get(names, ()) if data_type.children[1].metadata.get(tag.encode()) == b"true"), None
    )


def has_large_types(parent: Schema | arrow.DataType) -> bool:
    """Whether strings or binaries in a schema or type have 64-bit offsets."""
    if isinstance(parent, arrow.LargeUtf8 | arrow.LargeBinary):
        return True
    return any(has_large_types(field.type) for field in parent.fields)


def map_child_fields(data_type: arrow.DataType, convert: Callable[[Field], Field]) -> arrow.DataType:
    """Return a list, map or struct type with its child fields converted; any other type as it is."""
    match data_type:
        case BaseList():
            return replace(data_type, value_field=convert(data_type.value_field))
        case arrow.Map():
            return replace(data_type, entries_field=convert(data_type.entries_field))
        case arrow.Struct():
            return arrow.Struct(tuple(map(convert, data_type.children)))
    return data_type


def to_spark_schema(schema: Schema) -> spark.StructType:
    """Return the Spark schema of data with an Arrow `schema`: fields are nullable.

    Types without an equivalent become wider: unsigned integers the next wider signed type (uint64: decimal(20,0)),
    half floats float, dictionaries and run-end encoded arrays their values, unions structs, all units of time
    microseconds (time of day in nanoseconds: nanoseconds, since Spark 4.3). Types without a counterpart are an
    `UnsupportedType`, which `check_supported` rejects.
    """
    fields = []
    for field in schema:
        plain_field = _to_spark_field(field)
        data_type = _read_annotation(field, plain_field.dataType) or plain_field.dataType
        fields.append(spark.StructField(field.name, data_type, True, plain_field.metadata))
    return spark.StructType(fields)


def _read_annotation(field: Field, plain_type: spark.DataType) -> spark.DataType | None:
    """Return the Spark type in the metadata of a column; None if it has none, or one of another stored type."""
    text = field.metadata.get(TYPE_KEY)
    if text is None:
        return None
    try:
        columns = as_nullable(spark.StructType([parse_json_field(text)]))
        (stored,) = to_arrow_schema(columns)
    except Exception:  # noqa: BLE001 -- Spark raises many types of errors; malformed metadata does not affect the data
        return None
    is_same = _to_spark_type(stored).simpleString() == plain_type.simpleString()
    return columns.fields[0].dataType if is_same else None


def check_supported(schema: spark.StructType, source: str) -> None:
    """Raise `UnsupportedTypeError` if a column of the schema of `source` has an Arrow type without a counterpart."""
    for field in schema.fields:
        _check_supported_type(field.dataType, f"{source}: column {field.name}")


def _check_supported_type(data_type: Any, location: str) -> None:
    if isinstance(data_type, UnsupportedType):
        raise data_type.to_error(location)
    if isinstance(data_type, spark.MapType) and isinstance(data_type.keyType, spark.NullType):
        raise UnsupportedTypeError(
            f"{location}: PySpark does not take {data_type.simpleString()} from Python data sources: leave it out with "
            ".schema()"
        )
    for child, child_location in iter_children(data_type, location):
        _check_supported_type(child, child_location)


def parse_struct_type(folder: FolderPath, schema: dict[str, Any]) -> spark.StructType:
    """Parse the Spark schema in the manifest of `folder`, in Spark's JSON format.

    Raises:
        InvalidDataError: it is not such a schema.
    """
    try:
        return parse_json_schema(schema)
    except Exception as problem:  # Spark raises many types of errors
        raise InvalidDataError(f"{folder}: the manifest's schema is not Spark's: {problem}") from problem


def parse_json_schema(schema: dict[str, Any]) -> spark.StructType:
    """Parse a schema in Spark's JSON format; user-defined types that are not trusted become their stored types."""

    def replace_types(node: Any) -> Any:
        if isinstance(node, list):
            return list(map(replace_types, node))
        if isinstance(node, dict):
            if node.get("type") == "udt" and node.get("pyClass") not in TRUSTED_USER_DEFINED_TYPES:
                return replace_types(node["sqlType"])
            # A copy, because PySpark changes the collations in the metadata that it parses.
            return {key: deepcopy(value) if key == "metadata" else replace_types(value) for key, value in node.items()}
        return node

    return spark.StructType.fromJson(replace_types(schema))


def parse_json_field(text: str | bytes) -> spark.StructField:
    """Parse a field in Spark's JSON format, as `parse_json_schema`."""
    return parse_json_schema({"type": "struct", "fields": [json.loads(text)]}).fields[0]


def to_stored_type(data_type: Any) -> spark.DataType:
    """Return a Spark type with the types that user-defined types in it are stored as."""
    if isinstance(data_type, spark.UserDefinedType):
        return to_stored_type(data_type.sqlType())
    return map_children(data_type, to_stored_type)


def as_nullable(schema: spark.StructType) -> spark.StructType:
    """Return `schema` with all fields nullable, as Spark's own file formats read it (except the keys of maps)."""

    def convert(data_type: spark.DataType) -> spark.DataType:
        return map_children(data_type, convert, is_nullable=True)

    return cast(spark.StructType, convert(schema))


def map_children(
    data_type: spark.DataType, convert: Callable[[spark.DataType], spark.DataType], *, is_nullable: bool = False
) -> spark.DataType:
    """Return Spark's type of an array, map or struct with its children's types converted, and with `is_nullable` all
    nullable; any other type as it is.
    """
    match data_type:
        case spark.ArrayType():
            return spark.ArrayType(convert(data_type.elementType), is_nullable or data_type.containsNull)
        case spark.MapType():
            key, value = convert(data_type.keyType), convert(data_type.valueType)
            return spark.MapType(key, value, is_nullable or data_type.valueContainsNull)
        case spark.StructType():
            return spark.StructType(
                [
                    spark.StructField(f.name, convert(f.dataType), is_nullable or f.nullable, f.metadata)
                    for f in data_type.fields
                ]
            )
    return data_type


def iter_children(data_type: Any, location: str = "") -> Iterator[tuple[Any, str]]:
    """Yield the children's types of Spark's type of an array, map or struct, and where they are."""
    match data_type:
        case spark.ArrayType():
            yield data_type.elementType, f"{location}[]"
        case spark.MapType():
            yield data_type.keyType, f"{location}{{key}}"
            yield data_type.valueType, f"{location}{{value}}"
        case spark.StructType():
            for field in data_type.fields:
                yield field.dataType, f"{location}.{field.name}"


def _to_spark_metadata(field: Field) -> dict[str, Any] | None:
    try:
        metadata = json.loads(field.metadata.get(METADATA_KEY, b"null"))
    except ValueError:
        return None  # malformed metadata does not affect the data
    return metadata if isinstance(metadata, dict) else None


def _to_spark_field(field: Field) -> spark.StructField:
    return spark.StructField(field.name, _to_spark_type(field), True, _to_spark_metadata(field))


def _to_spark_type(field: Field) -> spark.DataType:
    digits = field.metadata.get(TIME_PRECISION_KEY)
    if isinstance(field.type, arrow.Time) and digits in [b"%d" % number for number in range(_max_time_digits() + 1)]:
        return _create_type("TimeType", field.type, int(digits))
    return _to_plain_spark_type(field.type)


def _to_plain_spark_type(data_type: arrow.DataType) -> spark.DataType:
    match data_type:
        case Bool8Type():
            return spark.BooleanType()
        case ExtensionType():
            if isinstance(data_type, ParquetVariantType) and _is_unshredded(data_type.storage_type):
                return _to_tagged_type("variant", data_type.storage_type)
            return _to_plain_spark_type(data_type.storage_type)
        case arrow.Dictionary() | arrow.RunEndEncoded():
            return _to_plain_spark_type(data_type.value_type)
        case arrow.Int(bit_width=64, is_signed=False):
            return spark.DecimalType(20, 0)
        case arrow.Int(bit_width=bits, is_signed=False):
            return _to_plain_spark_type(arrow.Int(2 * bits))
        case arrow.FloatingPoint(bit_width=16):
            return spark.FloatType()
        case arrow.Decimal():
            return _to_spark_decimal(data_type)
        case arrow.Date():
            return spark.DateType()
        case arrow.Time():
            return _create_type("TimeType", data_type, _max_time_digits() if data_type.unit == "ns" else 6)
        case arrow.Timestamp():
            return spark.TimestampNTZType() if data_type.timezone is None else spark.TimestampType()
        case arrow.Duration():
            return spark.DayTimeIntervalType()
        case arrow.Interval():
            is_months = data_type.unit == "year_month"
            return _create_type("YearMonthIntervalType" if is_months else "CalendarIntervalType", data_type)
        case arrow.BaseString():
            return spark.StringType()
        case arrow.BaseBinary():
            return spark.BinaryType()
        case BaseList():
            return spark.ArrayType(_to_spark_type(data_type.value_field))
        case arrow.Map():
            return spark.MapType(_to_spark_type(data_type.key_field), _to_spark_type(data_type.item_field))
        case arrow.Struct() if tag := _find_tag(data_type):
            return _to_tagged_type(tag, data_type)
        case arrow.Struct() | arrow.Union():
            return spark.StructType(list(map(_to_spark_field, data_type.fields)))
        case _ if data_type in _SPARK_TYPE_NAMES:
            return _create_type(_SPARK_TYPE_NAMES[data_type], data_type)
    return UnsupportedType(data_type, "leave it out with .schema()")


def _create_type(name: str, arrow_type: arrow.DataType, *parameters: Any) -> spark.DataType:
    """Return a Spark type by the name of its class; an `UnsupportedType` if this version of PySpark lacks it."""
    class_ = getattr(spark, name, None)
    if class_ is None:
        return UnsupportedType(arrow_type, f"a newer PySpark has {name}; leave it out with .schema()")
    spark_type: spark.DataType = class_(*parameters)
    return spark_type


def _to_spark_decimal(decimal: arrow.Decimal) -> spark.DataType:
    """Return the narrowest decimal whose scale is from 0 to its precision, as Spark's are."""
    scale = max(decimal.scale, 0)
    precision = max(decimal.precision - min(decimal.scale, 0), scale)
    if precision <= SPARK_MAX_DIGITS:
        return spark.DecimalType(precision, scale)
    narrower = f"decimal({SPARK_MAX_DIGITS},{min(scale, SPARK_MAX_DIGITS)})"
    return UnsupportedType(decimal, f"read it as {narrower} with .schema() if its values fit, or leave it out there")


def _to_tagged_type(tag: str, storage: arrow.DataType) -> spark.DataType:
    """Return the type of a struct that Spark marks as a variant, geometry or geography."""
    try:
        if tag == "variant":
            return spark.VariantType()
        class_ = spark.GeometryType if tag == "geometry" else spark.GeographyType
        srid = int(storage.fields[1].metadata[b"srid"])
        return class_("ANY" if srid == class_.MIXED_SRID else srid)
    except Exception:  # noqa: BLE001 -- an unknown reference system, or PySpark lacks the class: its fields can be read
        return spark.StructType(list(map(_to_spark_field, storage.fields)))


def _is_unshredded(storage: arrow.DataType) -> bool:
    """Whether a variant has only the fields `value` and `metadata`, in any order."""
    return sorted(field.name for field in storage.fields) == ["metadata", "value"]


def _max_time_digits() -> int:
    """The digits of a second that Spark's times of day can have: nine since 4.3."""
    return 9 if SPARK_VERSION >= (4, 3) else 6
