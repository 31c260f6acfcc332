"""Year-month and calendar intervals, which PySpark does not pass to or from Python data sources.

The source delivers year-month intervals as a number of months, and calendar intervals as structs of months, days and
the rest. ``load`` makes intervals of them again, by the type in the metadata of their column.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import types as spark

from bowstring.errors import UnsupportedTypeError
from bowstring.spark.types import map_children, parse_json_field, to_json_value

INTERVAL_KEY = "bowstring.spark.field"
"""Where the metadata of a column has the Spark field of which it has the parts."""

CALENDAR_FIELDS = spark.StructType(
    [
        spark.StructField("months", spark.IntegerType()),
        spark.StructField("days", spark.IntegerType()),
        spark.StructField("time", spark.DayTimeIntervalType()),
    ]
)


def split_intervals(schema: spark.StructType) -> spark.StructType:
    """Return the schema that the source delivers, with the parts of intervals and the types to restore."""
    fields = []
    for field in schema.fields:
        parts = to_interval_parts(field.dataType)
        metadata = {key: value for key, value in field.metadata.items() if key != INTERVAL_KEY}
        if parts != field.dataType:
            metadata[INTERVAL_KEY] = json.dumps(to_json_value(field))
        fields.append(spark.StructField(field.name, parts, field.nullable, metadata))
    return spark.StructType(fields)


def to_interval_parts(data_type: Any) -> Any:
    """Return a Spark type with the parts of the intervals in it."""
    match type(data_type).__name__:  # Spark 3.5 has no class for calendar intervals
        case "YearMonthIntervalType":
            return spark.IntegerType()
        case "CalendarIntervalType":
            return CALENDAR_FIELDS
    return map_children(data_type, to_interval_parts)


def join_intervals(frame: Any) -> Any:
    """Return a data frame with intervals for their parts; the frame itself if it has none."""
    from pyspark.sql import functions as f

    if not any(INTERVAL_KEY in field.metadata for field in frame.schema.fields):
        return frame
    columns = []
    for field in frame.schema.fields:
        column = f.col("`" + field.name.replace("`", "``") + "`")
        if INTERVAL_KEY in field.metadata:
            original = parse_json_field(field.metadata[INTERVAL_KEY])
            column = _join(column, original.dataType).alias(field.name, metadata=original.metadata or {})
        columns.append(column)
    return frame.select(*columns)


def check_no_interval_columns(schema: spark.StructType, advice: str) -> None:
    """Raise `UnsupportedTypeError` for a column of year-month intervals, which PySpark does not pass to functions."""
    for field in schema.fields:
        if isinstance(field.dataType, spark.YearMonthIntervalType):
            raise UnsupportedTypeError(
                f"column {field.name}: PySpark passes {field.dataType.simpleString()} to Python functions only in "
                f"arrays, maps and structs: {advice}"
            )


def _join(column: Any, data_type: Any) -> Any:
    """Return the column of a type whose intervals are parts in `column`."""
    from pyspark.sql import functions as f

    if to_interval_parts(data_type) == data_type:
        return column
    zero = f.lit(0)
    match type(data_type).__name__:
        case "YearMonthIntervalType":
            return f.make_ym_interval(zero, column).cast(data_type)
        case "CalendarIntervalType":
            seconds = column["time"].cast("interval second").cast("decimal(18,6)")
            return f.make_interval(zero, column["months"], zero, column["days"], zero, zero, seconds)
        case "ArrayType":
            return f.transform(column, lambda element: _join(element, data_type.elementType))
        case "MapType":
            entries = f.transform(
                f.map_entries(column),
                lambda entry: f.struct(
                    _join(entry["key"], data_type.keyType).alias("key"),
                    _join(entry["value"], data_type.valueType).alias("value"),
                ),
            )
            return f.map_from_entries(entries)
    children = [_join(column.getField(c.name), c.dataType).alias(c.name, metadata=c.metadata) for c in data_type.fields]
    return f.when(column.isNotNull(), f.struct(*children))  # a struct of nulls would not be null
