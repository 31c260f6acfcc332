"""Spark's types and Arrow's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bowstring as bs
from bowstring.datatypes import bool8, parquet_variant, types as arrow, uuid
from bowstring.datatypes.conversion import field
from bowstring.datatypes.field import Field
from bowstring.datatypes.schema import Schema, schema
from bowstring.errors import UnsupportedTypeError

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql import types as sql
from pyspark.sql.pandas.types import to_arrow_schema as to_pyarrow_schema

from bowstring.spark.types import (
    METADATA_KEY,
    TIME_PRECISION_KEY,
    TYPE_KEY,
    as_nullable,
    check_supported,
    parse_struct_type,
    to_arrow_schema,
    to_file_type,
    to_json_value,
    to_spark_schema,
)
from bowstring.spark.versions import SPARK_VERSION
from tests.spark.needs_spark import needs_spark
from tests.spark.point_type import PointType


def single_field(spark_type: Any, nullable: bool = True) -> Any:
    return sql.StructType([sql.StructField("c", spark_type, nullable)])


VARIANT_FIELDS = [field(name, arrow.Binary(), nullable=False) for name in ("value", "metadata")]
EQUAL_TYPES = [
    ("NullType", bs.null()),
    ("BooleanType", bs.bool_()),
    ("ByteType", bs.int8()),
    ("ShortType", bs.int16()),
    ("IntegerType", bs.int32()),
    ("LongType", bs.int64()),
    ("FloatType", bs.float32()),
    ("DoubleType", bs.float64()),
    ("StringType", arrow.Utf8()),
    ("BinaryType", arrow.Binary()),
    ("DateType", bs.date32()),
    ("TimestampType", bs.timestamp("us", "UTC")),
    ("TimestampNTZType", bs.timestamp("us")),
    ("DayTimeIntervalType", bs.duration("us")),
    ("YearMonthIntervalType", bs.month_interval()),
    ("CalendarIntervalType", bs.month_day_nano_interval()),
    ("VariantType", parquet_variant(bs.struct(VARIANT_FIELDS))),
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
        moment = bs.timestamp("us", zone)
        inner = bs.struct([("m", bs.map_(arrow.Utf8(), moment)), ("naive", bs.timestamp("us"))])
        fields = [field("at", moment, nullable=False, metadata={"a": "b"}), field("list", bs.list_(inner))]
        return field("s", bs.struct(fields), metadata={"c": "d"})

    assert to_file_type(nested("GMT+8").type).equals(nested("UTC").type, check_metadata=True)


def test_nested_types_keep_their_nullability_on_the_way_to_arrow_and_lose_it_on_the_way_back() -> None:
    inner = sql.StructType([sql.StructField("m", sql.MapType(sql.StringType(), sql.DecimalType(10, 2), False), False)])
    there = to_arrow_schema(single_field(sql.ArrayType(inner, False), False))
    entries = bs.map_(arrow.Utf8(), field("value", bs.decimal128(10, 2), nullable=False))
    element = Field("element", bs.struct([Field("m", entries, False)]), False)
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


def if_spark_has(name: str, *entries: Any) -> list[Any]:
    """Return the entries of a list that need a type of Spark, if this version has it."""
    return list(entries) if hasattr(sql, name) else []


def newer_types(name: str, *parameters: Any) -> list[Any]:
    """A type, if this version of Spark has it."""
    return [getattr(sql, name)(*parameters)] if hasattr(sql, name) else []


WIDER_TYPES = [
    (bs.uint8(), "smallint"),
    (bs.uint16(), "int"),
    (bs.uint32(), "bigint"),
    (bs.uint64(), "decimal(20,0)"),
    (bs.float16(), "float"),
    (bs.decimal32(9, 2), "decimal(9,2)"),
    (bs.decimal256(38, 2), "decimal(38,2)"),
    (bs.date64(), "date"),
    (bs.timestamp("ns", "Asia/Tokyo"), "timestamp"),
    (bs.timestamp("s"), "timestamp_ntz"),
    (arrow.LargeUtf8(), "string"),
    (arrow.Utf8View(), "string"),
    (arrow.FixedSizeBinary(3), "binary"),
    (bs.list_(bs.int8(), 4), "array<tinyint>"),
    (bs.list_view(bs.int8()), "array<tinyint>"),
    (bs.dictionary(bs.int8(), arrow.Utf8()), "string"),
    (bs.run_end_encoded(bs.int32(), bs.float16()), "float"),
    (bs.decimal128(5, -2), "decimal(7,0)"),
    (bs.decimal128(2, 5), "decimal(5,5)"),
    (bs.decimal256(36, -2), "decimal(38,0)"),
    *if_spark_has("CalendarIntervalType", (bs.day_time_interval(), "interval")),
    (bs.sparse_union([("a", bs.int8()), ("b", arrow.Utf8())]), "struct<a:tinyint,b:string>"),
    (uuid(), "binary"),
    (bool8(), "boolean"),
    *if_spark_has("VariantType", (parquet_variant(bs.struct([*reversed(VARIANT_FIELDS)])), "variant")),
    (
        parquet_variant(bs.struct([VARIANT_FIELDS[1], ("typed_value", bs.int64())])),
        "struct<metadata:binary,typed_value:bigint>",
    ),
]


@pytest.mark.parametrize(("arrow_type", "expected"), WIDER_TYPES, ids=[str(t) for t, _ in WIDER_TYPES])
def test_a_type_without_an_equal_is_read_as_a_wider_one(arrow_type: arrow.DataType, expected: str) -> None:
    assert to_spark_schema(schema([("c", arrow_type)])).simpleString() == f"struct<c:{expected}>"


def vector_type() -> Any:
    return pytest.importorskip("pyspark.ml.linalg").VectorUDT()


ANNOTATED_TYPES = [
    (lambda: sql.StringType("UNICODE_CI"), arrow.Utf8()),
    (lambda: sql.CharType(3), arrow.Utf8()),
    (lambda: sql.VarcharType(3), arrow.Utf8()),
    (lambda: sql.DayTimeIntervalType(1, 2), bs.duration("us")),
    (lambda: sql.YearMonthIntervalType(0), bs.month_interval()),
    (vector_type, None),
]


@pytest.mark.parametrize(("create", "storage"), ANNOTATED_TYPES)
def test_a_type_without_an_arrow_type_is_named_in_the_metadata_of_its_column(create: Any, storage: Any) -> None:
    nested = sql.StructType([sql.StructField("m", sql.MapType(sql.StringType(), create()))])
    for spark_type in (create(), sql.ArrayType(create()), nested):
        (column,) = to_arrow_schema(single_field(spark_type))
        assert list(column.metadata) == [TYPE_KEY]
        assert storage is None or not isinstance(spark_type, type(create())) or column.type == storage
        assert to_spark_schema(Schema((column,))) == single_field(spark_type)
        plain = to_spark_schema(Schema((column.with_metadata([]),)))
        for other in (b"{", b"null", column.metadata[TYPE_KEY].replace(b"type", b"typ"), b'{"type": "long"}'):
            assert to_spark_schema(Schema((column.with_metadata([(TYPE_KEY, other)]),))) == plain
        renamed = Schema((column.with_type(bs.int8()),))
        assert to_spark_schema(renamed).simpleString() == "struct<c:tinyint>"  # the annotation is of another type


def test_a_class_that_a_file_names_is_not_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = single_field(sql.ArrayType(PointType()))
    column = to_arrow_schema(table)["c"]
    assert b"PointType" in column.metadata[TYPE_KEY]
    assert b"serializedClass" not in column.metadata[TYPE_KEY]
    monkeypatch.setattr(sql.UserDefinedType, "fromJson", lambda _: pytest.fail("imports the module"))
    storage = single_field(sql.ArrayType(sql.ArrayType(sql.DoubleType())))
    assert to_spark_schema(Schema((column,))) == storage
    assert as_nullable(parse_struct_type(tmp_path, to_json_value(table))) == storage


@needs_spark(4, 3)
def test_times_of_day_have_the_number_of_digits_where_spark_has_it() -> None:
    table = single_field(sql.ArrayType(sql.TimeType(3)))
    there = to_arrow_schema(table)
    assert there["c"].type.fields[0].metadata == {TIME_PRECISION_KEY: b"3"}
    assert to_spark_schema(there) == table
    malformed = Schema((field("c", arrow.Time("ns"), metadata={TIME_PRECISION_KEY: b"11"}),))
    assert to_spark_schema(malformed).simpleString() == "struct<c:time(9)>"


@needs_spark(4, 2)  # which takes a time zone in its conversion
@pytest.mark.parametrize("name", ["GeometryType", "GeographyType"])
def test_spatial_types_are_marked_as_spark_marks_them(name: str) -> None:
    for srid in (4326, "ANY"):
        table = single_field(sql.MapType(sql.StringType(), getattr(sql, name)(srid)))
        there = to_arrow_schema(table)
        assert to_spark_schema(there) == table
        assert pa.schema(there) == to_pyarrow_schema(table, timezone="UTC")
        wkb = pa.schema(there).field("c").type.item_type.field("wkb")
        assert wkb.metadata == to_pyarrow_schema(table).field("c").type.item_type.field("wkb").metadata
    wkb = field("wkb", arrow.Binary(), metadata={name[:-4].lower(): "true", "srid": "77"})
    unknown = bs.struct([("srid", bs.int32()), wkb])
    assert to_spark_schema(schema([("c", unknown)])).simpleString() == "struct<c:struct<srid:int,wkb:binary>>"


def test_variants_of_spark_are_written_as_the_canonical_extension_type() -> None:
    sent = schema(to_pyarrow_schema(single_field(sql.ArrayType(sql.VariantType()))))
    written = to_file_type(sent["c"].type)
    assert written.fields[0].type == parquet_variant(bs.struct(VARIANT_FIELDS))
    assert to_arrow_schema(single_field(sql.ArrayType(sql.VariantType())))["c"].type == written


def test_an_unsupported_spark_type_is_named_with_its_column_path() -> None:
    class UnknownType(sql.DataType):
        pass

    unknown = sql.MapType(sql.StringType(), sql.ArrayType(UnknownType()))
    nested = sql.StructType([sql.StructField("a.b", unknown)])
    with pytest.raises(UnsupportedTypeError, match=r"column c\.a\.b\{value\}\[\]: Spark's type unknown has no Arrow"):
        to_arrow_schema(single_field(nested))


UNSUPPORTED_TYPES = [
    (
        bs.decimal256(39, 2),
        r"decimal256\(39, 2\) has no counterpart in Spark: read it as decimal\(38,2\) with .schema",
    ),
    (bs.decimal128(38, -2), r"decimal128\(38, -2\) has no counterpart in Spark: read it as decimal\(38,0\)"),
    (bs.map_(bs.null(), bs.int8()), r"PySpark does not take map<void,tinyint> from Python data sources"),
]


@pytest.mark.parametrize(("arrow_type", "advice"), UNSUPPORTED_TYPES, ids=[str(t) for t, _ in UNSUPPORTED_TYPES])
def test_an_unsupported_arrow_type_is_named_with_its_column_path(arrow_type: arrow.DataType, advice: str) -> None:
    nested = bs.map_(bs.int8(), bs.list_(bs.struct([("x", arrow_type)])))
    unsupported = to_spark_schema(schema([("c", nested)]))
    with pytest.raises(UnsupportedTypeError, match=r"^here: column c\{value\}\[\]\.x: .*" + advice):
        check_supported(unsupported, "here")


SPARK_TYPES_BY_ROW: dict[str, list[Any]] = {
    "`void`": [sql.NullType()],
    "`boolean`": [sql.BooleanType()],
    "`tinyint`, `smallint`, `int`, `bigint`": [sql.ByteType(), sql.ShortType(), sql.IntegerType(), sql.LongType()],
    "`float`, `double`": [sql.FloatType(), sql.DoubleType()],
    "`decimal(p,s)`": [sql.DecimalType()],
    "`string`, `binary`": [sql.StringType(), sql.BinaryType()],
    "`string collate c`, `char(n)`, `varchar(n)`": [sql.CharType(1), sql.VarcharType(1)],
    "`date`": [sql.DateType()],
    "`time(p)`": newer_types("TimeType"),
    "`timestamp`": [sql.TimestampType()],
    "`timestamp_ntz`": [sql.TimestampNTZType()],
    "`interval day to second`": [sql.DayTimeIntervalType()],
    "`interval year to month`": [sql.YearMonthIntervalType()],
    "`interval`": newer_types("CalendarIntervalType"),
    "`array`, `map`, `struct`": [
        sql.ArrayType(sql.NullType()),
        sql.MapType(sql.StringType(), sql.NullType()),
        sql.StructType([sql.StructField("a", sql.NullType())]),
    ],
    "`variant`": newer_types("VariantType"),
    "`geometry(s)`, `geography(s)`": [*newer_types("GeometryType", 4326), *newer_types("GeographyType", 4326)],
    "user-defined types": [PointType()],
}
if SPARK_VERSION >= (4, 0):
    SPARK_TYPES_BY_ROW["`string collate c`, `char(n)`, `varchar(n)`"].append(sql.StringType("UNICODE"))


def read_documented_types() -> dict[str, tuple[str, str]]:
    """The Arrow types in the table of docs/reference/spark.md, written and also read, by its first column."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "spark.md").read_text()
    lines = page[page.index("\n## Types\n") :].split("\n\n")[1].splitlines()
    return {
        cells[0]: (cells[1], cells[2]) for cells in ([c.strip() for c in line.split("|")[1:-1]] for line in lines[2:])
    }


def test_every_spark_type_is_in_the_documentation_with_its_arrow_type() -> None:
    documented = read_documented_types()
    assert documented.keys() == SPARK_TYPES_BY_ROW.keys()
    for row, spark_types in SPARK_TYPES_BY_ROW.items():
        for spark_type in spark_types:
            (column,) = to_arrow_schema(single_field(spark_type))
            name = getattr(column.type, "extension_name", str(column.type)).partition("(")[0].partition("<")[0]
            words = documented[row][0]
            assert name in words or row == "user-defined types", row
            assert (TYPE_KEY in column.metadata) == ("annotated" in words and "annotated if" not in words), row
    classes = {type(spark_type) for spark_types in SPARK_TYPES_BY_ROW.values() for spark_type in spark_types}
    abstract = {
        "DataType",
        "AtomicType",
        "NumericType",
        "IntegralType",
        "FractionalType",
        "DatetimeType",
        "SpatialType",
    }
    abstract |= {"AnyTimeType", "AnsiIntervalType", "UserDefinedType"}
    names = {name for name, value in vars(sql).items() if isinstance(value, type) and issubclass(value, sql.DataType)}
    assert names - {class_.__name__ for class_ in classes} - abstract == {"StructField"}


READ_TYPES = [
    *[(f"uint{bits}", arrow.Int(bits, is_signed=False)) for bits in (8, 16, 32, 64)],
    ("halffloat", bs.float16()),
    ("decimal32", bs.decimal32(3, 1)),
    ("256", bs.decimal256(3, 1)),
    ("large, view and fixed-size", arrow.Utf8View()),
    ("large, view and fixed-size", arrow.LargeBinary()),
    ("large, view and fixed-size", arrow.FixedSizeBinary(2)),
    ("`arrow.uuid` as 16 bytes", uuid()),
    ("`arrow.bool8`", bool8()),
    ("date64[ms]", bs.date64()),
    *if_spark_has("TimeType", ("time32", arrow.Time("s"))),
    ("any zone and unit", bs.timestamp("ns", "Asia/Tokyo")),
    ("any unit", bs.timestamp("s")),
    ("any unit", bs.duration("ns")),
    *if_spark_has("CalendarIntervalType", ("day_time_interval", bs.day_time_interval())),
    ("large, fixed-size and view lists", bs.list_view(bs.int8())),
    ("large, fixed-size and view lists", bs.list_(bs.int8(), 2)),
    ("unions as structs", bs.dense_union([("a", bs.int8())])),
]


@pytest.mark.parametrize(("words", "arrow_type"), READ_TYPES, ids=[str(t) for _, t in READ_TYPES])
def test_an_arrow_type_is_read_as_documented(words: str, arrow_type: arrow.DataType) -> None:
    read_type = to_spark_schema(schema([("c", arrow_type)]))["c"].dataType
    row = next(row for row, types in SPARK_TYPES_BY_ROW.items() if type(read_type) in map(type, types))
    text = read_documented_types()[row][1]
    assert words in text
    if f"{words} as `" in text:
        assert f"{words} as `{read_type.simpleString()}`" in text
