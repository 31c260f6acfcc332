"""Convert schemas between Spark and Arrow («Data Types»).

Types that `_to_arrow_type` or `_to_spark_type` do not list are unsupported. Errors name the column path, in which
``[]`` stands for the elements of a list, ``{key}`` and ``{value}`` for those of a map.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bowstring.datatypes import types as arrow
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import Field
from bowstring.datatypes.nested import BaseList
from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidDataError, UnsupportedTypeError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType as SparkType, StructType

METADATA_KEY = b"SPARK::metadata::json"
"""Where Spark keeps the metadata of a column in the metadata of an Arrow field, as JSON."""
SPARK_MAX_DIGITS = 38

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
    "BinaryType": arrow.Binary(),
    "DateType": arrow.Date("day"),
    "TimeType": arrow.Time("ns"),
    "TimestampType": arrow.Timestamp("us", "UTC"),
    "TimestampNTZType": arrow.Timestamp("us"),
    "DayTimeIntervalType": arrow.Duration("us"),
}
"""The types without parameters, by the name of Spark's class."""
_SPARK_TYPE_NAMES = {arrow_type: name for name, arrow_type in _TYPES_WITHOUT_PARAMETERS.items()}


def to_arrow_schema(struct: StructType, *, prefers_large_types: bool = False, prefix: str = "") -> Schema:
    """Return the Arrow schema of ``DataFrame.toArrow``: timestamps have the time zone UTC, whatever the session's.

    With `prefers_large_types`, strings and binaries have 64-bit offsets. `prefix` precedes the column paths in errors.

    Raises:
        UnsupportedTypeError: a type has no Arrow counterpart that PySpark supports; the message has its column path.
    """
    fields = []
    for field in struct.fields:
        data_type = _to_arrow_type(field.dataType, prefix + field.name, prefers_large_types)
        pairs = ((METADATA_KEY, json.dumps(field.metadata).encode()),) if field.metadata else ()
        fields.append(Field(field.name, data_type, field.nullable, pairs))
    return Schema(tuple(fields))


def _to_arrow_type(data_type: Any, path: str, prefers_large_types: bool) -> arrow.DataType:
    match type(data_type).__name__:
        case "StringType" | "BinaryType" as name if prefers_large_types:
            return arrow.LargeUtf8() if name == "StringType" else arrow.LargeBinary()
        case name if name in _TYPES_WITHOUT_PARAMETERS:
            return _TYPES_WITHOUT_PARAMETERS[name]
        case "DecimalType":
            return arrow.Decimal(data_type.precision, data_type.scale)
        case "ArrayType":
            element = _to_arrow_type(data_type.elementType, f"{path}[]", prefers_large_types)
            return arrow.List(Field("element", element, data_type.containsNull))
        case "MapType":
            key = _to_arrow_type(data_type.keyType, f"{path}{{key}}", prefers_large_types)
            value = _to_arrow_type(data_type.valueType, f"{path}{{value}}", prefers_large_types)
            return arrow.map_(Field("key", key, nullable=False), Field("value", value, data_type.valueContainsNull))
        case "StructType":
            schema = to_arrow_schema(data_type, prefers_large_types=prefers_large_types, prefix=f"{path}.")
            return arrow.Struct(schema.fields)
    raise UnsupportedTypeError(
        f"column {path}: Spark's type {data_type.simpleString()} has no Arrow counterpart that PySpark supports"
    )


def with_utc_timestamps(data_type: arrow.DataType) -> arrow.DataType:
    """Return the type with the time zone UTC for all timestamps in it that have one; their values are relative to UTC.

    Spark sends batches with the session's time zone, whose names ("GMT+8", "Z") many Arrow readers do not support.
    """
    if isinstance(data_type, arrow.Timestamp) and data_type.timezone is not None:
        return replace(data_type, timezone="UTC")
    return map_child_types(data_type, with_utc_timestamps)


def map_child_types(data_type: arrow.DataType, convert: Callable[[arrow.DataType], arrow.DataType]) -> arrow.DataType:
    """Return a list, map or struct type with its children's types converted; any other type as it is."""

    def convert_field(field: Field) -> Field:
        return replace(field, type=convert(field.type))

    match data_type:
        case BaseList():
            return replace(data_type, value_field=convert_field(data_type.value_field))
        case arrow.Map():
            return replace(data_type, entries_field=convert_field(data_type.entries_field))
        case arrow.Struct():
            return arrow.Struct(tuple(map(convert_field, data_type.children)))
    return data_type


def to_spark_schema(schema: Schema) -> StructType:
    """Return the Spark schema of data with an Arrow `schema`: fields are nullable.

    Types without an equivalent become wider: unsigned integers the next wider signed type (uint64: decimal(20,0)),
    half floats float, dictionaries and run-end encoded arrays their values, all units of time microseconds (time of
    day in nanoseconds: nanoseconds, since Spark 4.3).

    Raises:
        UnsupportedTypeError: a type has no counterpart; the message has its column path.
    """
    return _to_spark_struct(schema, "")


def parse_struct_type(folder: Path, schema: dict[str, Any]) -> StructType:
    """Parse the Spark schema in the manifest of `folder`, in Spark's JSON format.

    Raises:
        InvalidDataError: it is not such a schema.
    """
    from pyspark.sql.types import StructType

    try:
        return StructType.fromJson(schema)
    except Exception as problem:  # Spark raises many types of errors
        raise InvalidDataError(f"{folder}: the manifest's schema is not Spark's: {problem}") from problem


def as_nullable(schema: StructType) -> StructType:
    """Return `schema` with all fields nullable, as Spark's own file formats read it (except the keys of maps)."""
    from pyspark.sql.types import StructType

    def set_nullable(node: Any) -> Any:
        if isinstance(node, list):
            return [set_nullable(item) for item in node]
        if isinstance(node, dict):
            return {
                key: value if key == "metadata" else True if key in _NULLABILITY_KEYS else set_nullable(value)
                for key, value in node.items()
            }
        return node

    return StructType.fromJson(set_nullable(schema.jsonValue()))


_NULLABILITY_KEYS = frozenset(("nullable", "containsNull", "valueContainsNull"))


def _to_spark_struct(fields: Iterable[Field], prefix: str) -> StructType:
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [StructField(f.name, _to_spark_type(f.type, prefix + f.name), True, _to_spark_metadata(f)) for f in fields]
    )


def _to_spark_metadata(field: Field) -> dict[str, Any] | None:
    try:
        metadata = json.loads(field.metadata.get(METADATA_KEY, b"null"))
    except ValueError:
        return None  # malformed metadata does not affect the data
    return metadata if isinstance(metadata, dict) else None


def _to_spark_type(data_type: arrow.DataType, path: str) -> SparkType:
    from pyspark.sql import types as spark

    match data_type:
        case ExtensionType():
            return _to_spark_type(data_type.storage_type, path)
        case arrow.Dictionary() | arrow.RunEndEncoded():
            return _to_spark_type(data_type.value_type, path)
        case arrow.Int(bit_width=64, is_signed=False):
            return spark.DecimalType(20, 0)
        case arrow.Int(bit_width=bits, is_signed=False):
            return _to_spark_type(arrow.Int(2 * bits), path)
        case arrow.FloatingPoint(bit_width=16):
            return spark.FloatType()
        case arrow.Decimal():
            if data_type.precision > SPARK_MAX_DIGITS or not 0 <= data_type.scale <= data_type.precision:
                reason = (
                    f", whose decimals have a precision of up to {SPARK_MAX_DIGITS} and a scale from 0 to the precision"
                )
                raise _unsupported_type_error(data_type, path, reason)
            return spark.DecimalType(data_type.precision, data_type.scale)
        case arrow.Date():
            return spark.DateType()
        case arrow.Time():
            return spark.TimeType(9) if data_type.unit == "ns" and _has_nanosecond_times() else spark.TimeType()
        case arrow.Timestamp():
            return spark.TimestampNTZType() if data_type.timezone is None else spark.TimestampType()
        case arrow.Duration():
            return spark.DayTimeIntervalType()
        case arrow.BaseString():
            return spark.StringType()
        case arrow.BaseBinary():
            return spark.BinaryType()
        case BaseList():
            return spark.ArrayType(_to_spark_type(data_type.value_type, f"{path}[]"))
        case arrow.Map():
            key = _to_spark_type(data_type.key_field.type, f"{path}{{key}}")
            return spark.MapType(key, _to_spark_type(data_type.item_field.type, f"{path}{{value}}"))
        case arrow.Struct():
            return _to_spark_struct(data_type.fields, f"{path}.")
        case _ if data_type in _SPARK_TYPE_NAMES:
            spark_type: SparkType = getattr(spark, _SPARK_TYPE_NAMES[data_type])()
            return spark_type
    raise _unsupported_type_error(data_type, path)


def _has_nanosecond_times() -> bool:
    """Whether Spark has times of day with more than six digits: since 4.3."""
    from pyspark import __version__

    return tuple(map(int, __version__.split(".")[:2])) >= (4, 3)


def _unsupported_type_error(data_type: arrow.DataType, path: str, reason: str = "") -> UnsupportedTypeError:
    return UnsupportedTypeError(f"column {path}: Arrow's type {data_type} has no counterpart in Spark{reason}")
