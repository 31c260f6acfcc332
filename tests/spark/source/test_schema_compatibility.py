"""Which schema several files have together, and as what types they can be read: without a Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.ml.linalg import VectorUDT
from pyspark.sql import types as spark

import bowstring as bs
from bowstring.errors import InvalidArgumentError, NotFoundError, UnsupportedTypeError
from bowstring.spark.intervals import CALENDAR_FIELDS
from bowstring.spark.source.schema_compatibility import (
    add_partition_columns,
    check_read_conversions,
    check_same_types,
    check_unique_column_names,
    find_missing_columns,
    merge_schemas,
)
from bowstring.spark.types import UnsupportedType
from bowstring.spark.versions import SPARK_VERSION

A, B = Path("/a.arrow"), Path("/b.arrow")
LONG, INT, STRING = spark.LongType(), spark.IntegerType(), spark.StringType()


def struct_type(*fields: tuple[str, spark.DataType]) -> spark.StructType:
    return spark.StructType([spark.StructField(name, data_type) for name, data_type in fields])


def test_merged_schemas_have_the_columns_of_all_files_in_order() -> None:
    merged = merge_schemas([(A, struct_type(("x", LONG))), (B, struct_type(("y", STRING), ("x", LONG)))])
    assert merged == struct_type(("x", LONG), ("y", STRING))


def test_columns_of_different_types_are_not_merged() -> None:
    with pytest.raises(InvalidArgumentError, match=r"/b\.arrow: column x is int, but bigint in /a\.arrow"):
        merge_schemas([(A, struct_type(("x", LONG))), (B, struct_type(("x", INT)))])


def test_repeated_names_are_an_error_only_if_read() -> None:
    schema = struct_type(("x", LONG), ("x", LONG), ("y", LONG))
    check_unique_column_names(A, schema, ["y"])
    with pytest.raises(InvalidArgumentError, match=r"/a\.arrow: several columns are called 'x'"):
        check_unique_column_names(A, schema, schema.names)


def test_a_type_that_differs_from_the_first_files_is_named() -> None:
    inferred = struct_type(("x", LONG))
    check_same_types(B, struct_type(("x", LONG), ("y", LONG)), inferred)
    with pytest.raises(InvalidArgumentError, match=r"/b\.arrow: column x is int, but bigint in the first file"):
        check_same_types(B, struct_type(("x", INT)), inferred)


def test_missing_columns_are_named() -> None:
    assert find_missing_columns(A, struct_type(("x", LONG)), struct_type(("x", LONG), ("y", LONG))) == ("y",)


def test_partition_columns_come_last_or_replace_those_of_files() -> None:
    schema = add_partition_columns(struct_type(("K", LONG), ("x", LONG)), struct_type(("j", INT), ("k", INT)))
    assert schema == struct_type(("k", INT), ("x", LONG), ("j", INT))


def test_a_name_that_differs_only_in_case_is_not_a_missing_column() -> None:
    with pytest.raises(NotFoundError, match=r"/a\.arrow: no column is called 'X'; there are 'x'$"):
        find_missing_columns(A, struct_type(("x", LONG)), struct_type(("X", LONG)))


LOSSLESS: list[tuple[Any, Any]] = [
    (LONG, INT),
    (LONG, spark.DoubleType()),
    (LONG, spark.DecimalType(21, 2)),
    (spark.FloatType(), spark.DoubleType()),
    (spark.DecimalType(10, 2), spark.DecimalType(5, 1)),
    (spark.NullType(), spark.ArrayType(LONG)),
    (spark.BinaryType(), STRING),
    (spark.DayTimeIntervalType(0, 0), spark.DayTimeIntervalType()),
    (struct_type(("a", LONG), ("b", STRING)), struct_type(("b", STRING))),
    (VectorUDT.sqlType(), VectorUDT()),
    (VectorUDT(), VectorUDT.sqlType()),
    (UnsupportedType(bs.decimal256(60, 2)), spark.DecimalType(38, 2)),
    (spark.YearMonthIntervalType(), INT),
    (spark.CalendarIntervalType(), CALENDAR_FIELDS),
]
LOSSY: list[tuple[Any, Any]] = [
    (spark.DoubleType(), spark.FloatType()),
    (spark.DoubleType(), spark.DecimalType(5, 2)),
    (LONG, spark.BooleanType()),
    (LONG, spark.DecimalType(20, 2)),
    (LONG, spark.TimestampType()),
    (LONG, STRING),
    (spark.TimestampType(), spark.DateType()),
    (spark.TimestampType(), spark.TimestampNTZType()),
    (spark.TimestampNTZType(), spark.TimestampType()),
    (spark.DayTimeIntervalType(), spark.DayTimeIntervalType(0, 0)),
]
if SPARK_VERSION >= (4, 1):
    LOSSLESS += [(spark.TimeType(3), spark.TimeType(6)), (spark.TimeType(9), spark.TimeType(6))]
    LOSSY.append((spark.TimeType(6), spark.TimeType(4)))


def test_a_type_without_a_counterpart_is_an_error_if_it_is_read() -> None:
    schema = struct_type(("x", UnsupportedType(bs.decimal256(60, 2), "advice")), ("y", LONG))
    check_read_conversions(A, schema, struct_type(("y", LONG)))
    with pytest.raises(
        UnsupportedTypeError, match=r"/a\.arrow: column x: Arrow's type decimal256\(60, 2\) has .*advice"
    ):
        check_read_conversions(A, schema, struct_type(("x", LONG)))


def test_intervals_are_not_requested() -> None:
    for interval in (spark.YearMonthIntervalType(), spark.CalendarIntervalType()):
        with pytest.raises(UnsupportedTypeError, match=r"PySpark does not take interval.* from Python data sources"):
            check_read_conversions(A, struct_type(("x", interval)), struct_type(("x", interval)))


@pytest.mark.parametrize("nest", [lambda t: t, spark.ArrayType, lambda t: spark.MapType(STRING, t)])
def test_conversions_that_silently_lose_values_are_an_error_at_any_depth(nest: Any) -> None:
    for source, target in LOSSLESS:
        check_read_conversions(A, struct_type(("x", nest(source))), struct_type(("x", nest(target))))
    for source, target in LOSSY:
        names = f"{source.simpleString()} can't be read as {target.simpleString()}"
        with pytest.raises(UnsupportedTypeError) as refusal:
            check_read_conversions(A, struct_type(("x", nest(source))), struct_type(("x", nest(target))))
        assert names in str(refusal.value)
        assert str(refusal.value).startswith("/a.arrow: column x")


def test_a_struct_field_that_a_file_lacks_or_repeats_is_named() -> None:
    requested = struct_type(("s", struct_type(("z", LONG))))
    with pytest.raises(NotFoundError, match=r"/a\.arrow: column s: no field is called 'z'; there are 'a'"):
        check_read_conversions(A, struct_type(("s", struct_type(("a", LONG)))), requested)
    repeated = spark.ArrayType(struct_type(("z", LONG), ("z", STRING)))
    with pytest.raises(InvalidArgumentError, match=r"/a\.arrow: column s\[\]: several fields are called 'z'"):
        merge_schemas([(A, struct_type(("s", repeated)))])
    with pytest.raises(InvalidArgumentError, match=r"/a\.arrow: column s: several fields are called 'z'"):
        check_read_conversions(A, struct_type(("s", struct_type(("z", LONG), ("z", LONG)))), requested)
