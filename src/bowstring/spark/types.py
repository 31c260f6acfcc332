"""Spark's types and Arrow's («Data Types»): which stands for which, and which have no counterpart.

Both directions are tables: `_TO_ARROW` by the name of Spark's class, `_TO_SPARK` by Bowstring's class. What is in
neither is unsupported and named with its column path, in which ``[]`` stands for a list's elements, ``{key}`` and
``{value}`` for a map's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from bowstring.datatypes import types as arrow
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import Field, Schema
from bowstring.errors import InvalidDataError, UnsupportedTypeError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType as SparkType, StructType

METADATA_KEY = b"SPARK::metadata::json"
"""Where Spark keeps the metadata of a column in the metadata of an Arrow field, as JSON."""
SPARK_MAX_DIGITS = 38

_ToArrow: TypeAlias = "Callable[[Any, str, bool], arrow.DataType]"
_ToSpark: TypeAlias = "Callable[[Any, str], SparkType]"


def arrow_schema(schema: StructType, *, prefers_large_types: bool = False) -> Schema:
    """The Arrow schema of `schema`, as ``DataFrame.toArrow`` gives it: timestamps are labelled UTC, whatever the
    session's time zone. With `prefers_large_types`, strings and binaries have 64-bit offsets.

    Raises:
        UnsupportedTypeError: a type has no Arrow counterpart that Spark's Python side takes; the message has its
            column path.
    """
    return Schema(tuple(_arrow_field(field, field.name, prefers_large_types) for field in schema.fields))


def with_utc_timestamps(schema: Schema) -> Schema:
    """`schema` with the label UTC on all timestamps that have a time zone; their values are relative to UTC anyway.

    Spark labels the batches that it sends to Python with the session's time zone, whose names ("GMT+8", "Z") Arrow's
    readers often do not know.
    """
    return Schema(tuple(map(_field_in_utc, schema)), schema.pairs)


def _in_utc(data_type: arrow.DataType) -> arrow.DataType:
    if isinstance(data_type, arrow.Timestamp):
        return data_type if data_type.timezone is None else replace(data_type, timezone="UTC")
    if isinstance(data_type, arrow.List):
        return arrow.List(_field_in_utc(data_type.value_field))
    if isinstance(data_type, arrow.Map):
        return replace(data_type, entries_field=_field_in_utc(data_type.entries_field))
    if isinstance(data_type, arrow.Struct):
        return arrow.Struct(tuple(map(_field_in_utc, data_type.children)))
    return data_type


def _field_in_utc(field: Field) -> Field:
    return field.with_type(_in_utc(field.type))


def spark_schema(schema: Schema) -> StructType:
    """The Spark schema that data of an Arrow `schema` is read as: everything nullable, wider types where Spark has no
    equal.

    Unsigned integers become the next wider signed type (uint64: decimal(20,0)), half floats float, dictionaries and
    runs their values, every unit of time microseconds (time of day: nanoseconds).

    Raises:
        UnsupportedTypeError: a type has no counterpart; the message has its column path.
    """
    from pyspark.sql.types import StructType

    return StructType([_spark_field(field, field.name) for field in schema])


def parse_schema(folder: Path, schema: dict[str, Any]) -> StructType:
    """The Spark schema in the manifest of `folder`, which has it in Spark's own JSON form.

    Raises:
        InvalidDataError: it is not such a schema.
    """
    from pyspark.sql.types import StructType

    try:
        return StructType.fromJson(schema)
    except Exception as problem:  # from outside, and Spark raises what it likes
        raise InvalidDataError(f"{folder}: the manifest's schema is not Spark's: {problem}") from problem


def all_nullable(schema: StructType) -> StructType:
    """`schema` with everything in it nullable, as Spark's own file formats read it (a map's keys stay as they are)."""
    from pyspark.sql.types import StructType

    def relax(node: Any) -> Any:
        if isinstance(node, list):
            return [relax(item) for item in node]
        if isinstance(node, dict):
            return {
                key: value if key == "metadata" else True if key in _NULLABILITY else relax(value)
                for key, value in node.items()
            }
        return node

    return StructType.fromJson(relax(schema.jsonValue()))


_NULLABILITY = frozenset(("nullable", "containsNull", "valueContainsNull"))


def _arrow_field(field: Any, path: str, large: bool) -> Field:
    pairs = ((METADATA_KEY, json.dumps(field.metadata).encode()),) if field.metadata else ()
    return Field(field.name, _arrow_type(field.dataType, path, large), field.nullable, pairs)


def _arrow_type(data_type: Any, path: str, large: bool) -> arrow.DataType:
    make = _TO_ARROW.get(type(data_type).__name__)
    if make is None:
        raise UnsupportedTypeError(
            f"column {path}: Spark's type {data_type.simpleString()} has no Arrow counterpart that Spark's Python takes"
        )
    return make(data_type, path, large)


def _always(arrow_type: arrow.DataType) -> _ToArrow:
    return lambda _data_type, _path, _large: arrow_type


def _arrow_list(data_type: Any, path: str, large: bool) -> arrow.DataType:
    element = _arrow_type(data_type.elementType, f"{path}[]", large)
    return arrow.List(Field("element", element, data_type.containsNull))


def _arrow_map(data_type: Any, path: str, large: bool) -> arrow.DataType:
    key = Field("key", _arrow_type(data_type.keyType, f"{path}{{key}}", large), nullable=False)
    value = _arrow_type(data_type.valueType, f"{path}{{value}}", large)
    return arrow.map_(key, Field("value", value, data_type.valueContainsNull))


def _arrow_struct(data_type: Any, path: str, large: bool) -> arrow.DataType:
    return arrow.Struct(tuple(_arrow_field(field, f"{path}.{field.name}", large) for field in data_type.fields))


_TO_ARROW: Mapping[str, _ToArrow] = {
    "NullType": _always(arrow.Null()),
    "BooleanType": _always(arrow.Bool()),
    "ByteType": _always(arrow.Int(8)),
    "ShortType": _always(arrow.Int(16)),
    "IntegerType": _always(arrow.Int(32)),
    "LongType": _always(arrow.Int(64)),
    "FloatType": _always(arrow.FloatingPoint(32)),
    "DoubleType": _always(arrow.FloatingPoint(64)),
    "DecimalType": lambda data_type, _path, _large: arrow.Decimal(data_type.precision, data_type.scale),
    "StringType": lambda _data_type, _path, large: arrow.LargeUtf8() if large else arrow.Utf8(),
    "BinaryType": lambda _data_type, _path, large: arrow.LargeBinary() if large else arrow.Binary(),
    "DateType": _always(arrow.Date("day")),
    "TimeType": _always(arrow.Time("ns")),
    "TimestampType": _always(arrow.Timestamp("us", "UTC")),
    "TimestampNTZType": _always(arrow.Timestamp("us")),
    "DayTimeIntervalType": _always(arrow.Duration("us")),
    "ArrayType": _arrow_list,
    "MapType": _arrow_map,
    "StructType": _arrow_struct,
}


def _spark_field(field: Field, path: str) -> Any:
    from pyspark.sql.types import StructField

    return StructField(field.name, _spark_type(field.type, path), True, _spark_metadata(field))


def _spark_metadata(field: Field) -> dict[str, Any] | None:
    try:
        metadata = json.loads(field.metadata.get(METADATA_KEY, b"null"))
    except ValueError:
        return None  # from outside, and only a remark: the data does not depend on it
    return metadata if isinstance(metadata, dict) else None


def _spark_type(data_type: arrow.DataType, path: str) -> SparkType:
    if isinstance(data_type, ExtensionType):
        return _spark_type(data_type.storage_type, path)
    make = _TO_SPARK.get(type(data_type))
    if make is None:
        raise UnsupportedTypeError(f"column {path}: Arrow's type {data_type} has no counterpart in Spark")
    return make(data_type, path)


def _named(class_name: str) -> _ToSpark:
    def make(_data_type: arrow.DataType, _path: str) -> SparkType:
        from pyspark.sql import types as spark

        spark_type: SparkType = getattr(spark, class_name)()
        return spark_type

    return make


def _spark_int(data_type: arrow.Int, path: str) -> SparkType:
    from pyspark.sql import types as spark

    if data_type == arrow.Int(64, is_signed=False):
        return spark.DecimalType(20, 0)
    bits = data_type.bit_width if data_type.is_signed else data_type.bit_width * 2
    name = {8: "ByteType", 16: "ShortType", 32: "IntegerType", 64: "LongType"}[bits]
    return _named(name)(data_type, path)


def _spark_float(data_type: arrow.FloatingPoint, path: str) -> SparkType:
    return _named("DoubleType" if data_type.bit_width == 64 else "FloatType")(data_type, path)


def _spark_decimal(data_type: arrow.Decimal, path: str) -> SparkType:
    from pyspark.sql import types as spark

    if data_type.precision > SPARK_MAX_DIGITS or not 0 <= data_type.scale <= data_type.precision:
        raise UnsupportedTypeError(
            f"column {path}: Arrow's type {data_type} has no counterpart in Spark, whose decimals have up to "
            f"{SPARK_MAX_DIGITS} digits, and no more of them behind the point nor fewer than none"
        )
    return spark.DecimalType(data_type.precision, data_type.scale)


def _spark_time(data_type: arrow.Time, path: str) -> SparkType:
    from pyspark.sql import types as spark

    if not hasattr(spark, "TimeType"):
        raise UnsupportedTypeError(f"column {path}: Arrow's type {data_type} has no counterpart in Spark before 4.1")
    return spark.TimeType()


def _spark_timestamp(data_type: arrow.Timestamp, path: str) -> SparkType:
    return _named("TimestampNTZType" if data_type.timezone is None else "TimestampType")(data_type, path)


def _spark_list(data_type: Any, path: str) -> SparkType:
    from pyspark.sql import types as spark

    return spark.ArrayType(_spark_type(data_type.value_type, f"{path}[]"))


def _spark_map(data_type: arrow.Map, path: str) -> SparkType:
    from pyspark.sql import types as spark

    key = _spark_type(data_type.key_field.type, f"{path}{{key}}")
    return spark.MapType(key, _spark_type(data_type.item_field.type, f"{path}{{value}}"))


def _spark_struct(data_type: arrow.Struct, path: str) -> SparkType:
    from pyspark.sql import types as spark

    return spark.StructType([_spark_field(field, f"{path}.{field.name}") for field in data_type.fields])


def _spark_values(data_type: Any, path: str) -> SparkType:
    return _spark_type(data_type.value_type, path)


_TO_SPARK: Mapping[type[arrow.DataType], _ToSpark] = {
    arrow.Null: _named("NullType"),
    arrow.Bool: _named("BooleanType"),
    arrow.Int: _spark_int,
    arrow.FloatingPoint: _spark_float,
    arrow.Decimal: _spark_decimal,
    arrow.Date: _named("DateType"),
    arrow.Time: _spark_time,
    arrow.Timestamp: _spark_timestamp,
    arrow.Duration: _named("DayTimeIntervalType"),
    **dict.fromkeys((arrow.Utf8, arrow.LargeUtf8, arrow.Utf8View), _named("StringType")),
    **dict.fromkeys((arrow.Binary, arrow.LargeBinary, arrow.BinaryView, arrow.FixedSizeBinary), _named("BinaryType")),
    **dict.fromkeys(
        (arrow.List, arrow.LargeList, arrow.ListView, arrow.LargeListView, arrow.FixedSizeList), _spark_list
    ),
    arrow.Map: _spark_map,
    arrow.Struct: _spark_struct,
    arrow.Dictionary: _spark_values,
    arrow.RunEndEncoded: _spark_values,
}
