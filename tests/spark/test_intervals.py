"""Year-month and calendar intervals in a real Spark, which does not pass them to or from Python sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql import functions, types as sql

import bowstring as bs
from bowstring.errors import UnsupportedTypeError
from bowstring.spark import publish, read, write
from bowstring.spark.intervals import CALENDAR_FIELDS, INTERVAL_KEY, split_intervals
from bowstring.spark.source.schema_compatibility import check_read_conversions
from bowstring.spark.types import as_nullable
from tests.spark.needs_spark import needs_spark
from tests.spark.test_round_trip import SPARK_TYPES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INTERVALS = """
    if(id = 1, null, make_ym_interval(-cast(id as int), 3)) as `year.months`,
    cast(make_ym_interval(cast(id as int), 0) as interval year) as years,
    if(id = 1, null, make_interval(1, -2, 0, cast(id as int), 0, 0, -7.000005)) as calendar,
    array(make_interval(0, id), null) as lists,
    map(make_ym_interval(1, 2), array(make_interval(0, 0, 0, id))) as maps,
    if(id = 1, null, named_struct('m', make_ym_interval(0, 1), 'i', null, 'v', parse_json('1'))) as structs
"""
EVERY_INTERVAL = ",\n".join(map(str.strip, (INTERVALS, SPARK_TYPES)))


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.range(0, 3, 1, 1).selectExpr(*EVERY_INTERVAL.split(",\n")).withMetadata("years", {"comment": "of age"})


def rows(frame: DataFrame) -> list[str]:
    """The rows as text: PySpark can't collect intervals."""
    columns = [
        functions.col(f"`{name}`").cast("string").alias("column")
        if "interval" in data_type
        else functions.col(f"`{name}`")
        for name, data_type in frame.dtypes
    ]
    return sorted(map(repr, frame.select(*columns).collect()))


@needs_spark(4, 0)  # PySpark 3.5 has no type for calendar intervals
def test_written_and_published_intervals_are_read_as_intervals(
    spark: SparkSession, frame: DataFrame, tmp_path: Path
) -> None:
    write(frame, tmp_path / "data")
    expected = rows(frame)
    for path in (tmp_path / "data", tmp_path / "data" / "*.arrow"):
        back = read(spark, path)
        assert back.schema == as_nullable(frame.schema)
        assert rows(back) == expected
    with publish(frame) as published:
        back = read(spark, published)
        assert back.schema == as_nullable(frame.schema)
        assert rows(back) == expected
        table = bs.connect(published).read_all()
    assert table.schema == published.schema
    assert table["year.months"].to_pylist() == [3, None, -21]
    assert table["calendar"].to_pylist() == [(10, 0, -7_000_005_000), None, (10, 2, -7_000_005_000)]


@needs_spark(4, 0)
def test_other_ways_to_read_give_the_parts_of_intervals(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    write(frame.select("`year.months`", "calendar"), tmp_path)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW parts USING arrow OPTIONS (path '{tmp_path}')")
    schema = f"`year.months` int, calendar {CALENDAR_FIELDS.simpleString()}"
    arrow = spark.read.format("arrow")
    for parts in (spark.table("parts"), arrow.load(str(tmp_path)), arrow.schema(schema).load(str(tmp_path))):
        assert parts.schema["calendar"].dataType == CALENDAR_FIELDS
        assert sorted(map(str, parts.select("`year.months`", "calendar.months", "calendar.days").collect())) == [
            "Row(year.months=-21, months=10, days=2)",
            "Row(year.months=3, months=10, days=0)",
            "Row(year.months=None, months=None, days=None)",
        ]
    reader = spark.read.format("arrow").schema("`year.months` interval year to month")
    with pytest.raises(PySparkException, match=r"does not take interval year to month from .*: read it without"):
        reader.load(str(tmp_path)).collect()


def test_only_columns_of_intervals_are_split_and_their_metadata_is_our_own() -> None:
    months, other = sql.YearMonthIntervalType(), sql.ArrayType(sql.StringType())
    schema = sql.StructType(
        [
            sql.StructField("m", sql.MapType(months, sql.CalendarIntervalType()), metadata={"a": 1}),
            sql.StructField("o", other, metadata={INTERVAL_KEY: "forged", "b": 2}),
        ]
    )
    parts = split_intervals(schema)
    assert parts["m"].dataType == sql.MapType(sql.IntegerType(), CALENDAR_FIELDS)
    assert parts["m"].metadata.keys() == {"a", INTERVAL_KEY}
    assert (parts["o"].dataType, parts["o"].metadata) == (other, {"b": 2})
    check_read_conversions("here", schema, parts)
    with pytest.raises(UnsupportedTypeError, match=r"here: column m\{value\}: interval can't be read as string"):
        check_read_conversions(
            "here", schema, sql.StructType().add("m", sql.MapType(sql.IntegerType(), sql.StringType()))
        )
