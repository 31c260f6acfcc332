"""Spark's types and Arrow's."""

from __future__ import annotations

from typing import Any

import pytest

from bowstring.datatypes import types as arrow
from bowstring.datatypes.conversion import field
from bowstring.datatypes.field import Field
from bowstring.datatypes.schema import Schema, schema
from bowstring.errors import UnsupportedTypeError
from bowstring.spark.types import METADATA_KEY, as_nullable, to_arrow_schema, to_spark_schema, with_utc_timestamps

sql = pytest.importorskip("pyspark.sql.types")


def single_field(spark_type: object, nullable: bool = True) -> Any:
    return sql.StructType([sql.StructField("c", spark_type, nullable)])


EQUAL_TYPES = [
    ("NullType", arrow.null()),
    ("BooleanType", arrow.bool_()),
    ("ByteType", arrow.int8()),
    ("ShortType", arrow.int16()),
    ("IntegerType", arrow.int32()),
    ("LongType", arrow.int64()),
    ("FloatType", arrow.float32()),
    ("DoubleType", arrow.float64()),
    ("StringType", arrow.Utf8()),
    ("BinaryType", arrow.Binary()),
    ("DateType", arrow.date32()),
    ("TimestampType", arrow.timestamp("us", "UTC")),
    ("TimestampNTZType", arrow.timestamp("us")),
    ("DayTimeIntervalType", arrow.duration("us")),
]


@pytest.mark.parametrize(("name", "arrow_type"), EQUAL_TYPES, ids=[name for name, _ in EQUAL_TYPES])
def test_a_flat_type_survives_a_round_trip(name: str, arrow_type: arrow.DataType) -> None:
    there = to_arrow_schema(single_field(getattr(sql, name)()))
    assert there == schema([("c", arrow_type)])
    assert to_spark_schema(there) == single_field(getattr(sql, name)())


def test_strings_and_binaries_have_64_bit_offsets_where_the_session_prefers_them() -> None:
    nested = sql.StructType(
        [sql.StructField("c", sql.ArrayType(sql.StringType())), sql.StructField("d", sql.BinaryType())]
    )
    element = field("element", arrow.LargeUtf8())
    expected = schema([("c", arrow.List(element)), ("d", arrow.LargeBinary())])
    assert to_arrow_schema(nested, prefers_large_types=True) == expected


def test_timestamps_with_a_zone_are_labelled_utc_at_every_depth() -> None:
    def nested(zone: str) -> Field:
        moment = arrow.timestamp("us", zone)
        inner = arrow.struct([("m", arrow.map_(arrow.Utf8(), moment)), ("naive", arrow.timestamp("us"))])
        fields = [field("at", moment, nullable=False, metadata={"a": "b"}), field("list", arrow.list_(inner))]
        return field("s", arrow.struct(fields), metadata={"c": "d"})

    assert with_utc_timestamps(nested("GMT+8").type).equals(nested("UTC").type, check_metadata=True)


def test_nested_types_keep_their_nullability_on_the_way_to_arrow_and_lose_it_on_the_way_back() -> None:
    inner = sql.StructType([sql.StructField("m", sql.MapType(sql.StringType(), sql.DecimalType(10, 2), False), False)])
    there = to_arrow_schema(single_field(sql.ArrayType(inner, False), False))
    entries = arrow.map_(arrow.Utf8(), field("value", arrow.decimal128(10, 2), nullable=False))
    element = Field("element", arrow.struct([Field("m", entries, False)]), False)
    assert there == Schema((Field("c", arrow.List(element), False),))
    assert to_spark_schema(there) == as_nullable(single_field(sql.ArrayType(inner, False), False))
    assert to_spark_schema(there).simpleString() == "struct<c:array<struct<m:map<string,decimal(10,2)>>>>"


def test_the_metadata_of_a_column_survives_a_round_trip() -> None:
    column = sql.StructField("c", sql.LongType(), True, {"comment": "of fishes"})
    schema = to_arrow_schema(sql.StructType([column]))
    assert schema["c"].metadata == {METADATA_KEY: b'{"comment": "of fishes"}'}
    assert to_spark_schema(schema)["c"].metadata == {"comment": "of fishes"}
    malformed = Schema((schema["c"].with_metadata([(METADATA_KEY, b"{")]),))
    assert to_spark_schema(malformed)["c"].metadata == {}


WIDER_TYPES = [
    (arrow.uint8(), "smallint"),
    (arrow.uint16(), "int"),
    (arrow.uint32(), "bigint"),
    (arrow.uint64(), "decimal(20,0)"),
    (arrow.float16(), "float"),
    (arrow.decimal32(9, 2), "decimal(9,2)"),
    (arrow.decimal256(38, 2), "decimal(38,2)"),
    (arrow.date64(), "date"),
    (arrow.timestamp("ns", "Asia/Tokyo"), "timestamp"),
    (arrow.timestamp("s"), "timestamp_ntz"),
    (arrow.LargeUtf8(), "string"),
    (arrow.Utf8View(), "string"),
    (arrow.FixedSizeBinary(3), "binary"),
    (arrow.list_(arrow.int8(), 4), "array<tinyint>"),
    (arrow.list_view(arrow.int8()), "array<tinyint>"),
    (arrow.dictionary(arrow.int8(), arrow.Utf8()), "string"),
    (arrow.run_end_encoded(arrow.int32(), arrow.float16()), "float"),
]


@pytest.mark.parametrize(("arrow_type", "expected"), WIDER_TYPES, ids=[str(t) for t, _ in WIDER_TYPES])
def test_a_type_without_an_equal_is_read_as_a_wider_one(arrow_type: arrow.DataType, expected: str) -> None:
    assert to_spark_schema(schema([("c", arrow_type)])).simpleString() == f"struct<c:{expected}>"


def test_an_unsupported_spark_type_is_named_with_its_column_path() -> None:
    intervals = sql.MapType(sql.StringType(), sql.ArrayType(sql.YearMonthIntervalType()))
    nested = sql.StructType([sql.StructField("a.b", intervals)])
    with pytest.raises(UnsupportedTypeError, match=r"column c\.a\.b\{value\}\[\]: Spark's type interval year to month"):
        to_arrow_schema(single_field(nested))
    with pytest.raises(UnsupportedTypeError, match="column c: Spark's type variant"):
        to_arrow_schema(single_field(sql.VariantType()))


@pytest.mark.parametrize(
    "arrow_type",
    [
        arrow.month_interval(),
        arrow.decimal256(39, 0),
        arrow.decimal128(5, -2),
        arrow.sparse_union([("a", arrow.int8())]),
    ],
    ids=str,
)
def test_an_unsupported_arrow_type_is_named_with_its_column_path(arrow_type: arrow.DataType) -> None:
    with pytest.raises(UnsupportedTypeError, match=r"column c\[\]\.x: Arrow's type .* has no counterpart in Spark"):
        to_spark_schema(schema([("c", arrow.list_(arrow.struct([("x", arrow_type)])))]))
