"""Written by ``format("arrow")``, and read by `read`, in a real Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import pytest

import bowstring as bs

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.ml.functions import array_to_vector
from pyspark.sql import functions

from bowstring.spark import read
from bowstring.spark.options import ReadArguments
from bowstring.spark.types import as_nullable
from tests.spark.needs_spark import available_columns, needs_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVERY_TYPE = available_columns("""
    if(id % 3 = 0, null, id % 2 = 0) as bools,
    cast(if(id % 3 = 1, null, id % 200 - 100) as tinyint) as bytes,
    cast(id as smallint) as shorts,
    cast(id as int) as ints,
    if(id % 5 = 0, null, id * 1000000007) as longs,
    cast(id / 3 as float) as floats,
    if(id = 7, double('NaN'), id / 7) as doubles,
    cast(if(id % 4 = 0, null, -id / 7) as decimal(38, 18)) as decimals,
    if(id % 3 = 2, null, repeat('é', cast(id % 4 as int))) as strings,
    cast(if(id % 3 = 2, null, repeat('x', cast(id % 4 as int))) as binary) as binaries,
    date_add(date '1969-12-01', cast(id as int)) as dates,
    timestamp '2024-10-27 02:30:00' + make_dt_interval(0, cast(id as int)) as moments,
    timestamp_ntz '1600-02-29 12:00:00.123456' + make_dt_interval(cast(id as int)) as wall_clock,
    time '23:59:59.123456' as times,
    make_dt_interval(cast(id as int), 1, 2, 3.000004) as durations,
    null as nothing,
    if(id % 4 = 1, null, sequence(0, id % 3)) as lists,
    map(concat('k', id), if(id % 2 = 0, null, id)) as maps,
    if(id % 5 = 1, null, named_struct('a', id, 'b', array(named_struct('c', if(id % 2 = 0, null, 'x'))))) as structs
""")

SPARK_TYPES = available_columns("""
    cast(time '23:59:59.123' as time(3)) as millis,
    cast('00:00:00.123456789' as time(9)) as nanos,
    cast(make_dt_interval(cast(id as int)) as interval hour) as hours,
    array(make_ym_interval(1, cast(id as int)), null) as months,
    if(id % 3 = 1, null, parse_json('{"a": [1, null]}')) as variants,
    array(named_struct('v', parse_json(cast(id as string)))) as nested_variants,
    if(id % 3 = 1, null, st_setsrid(st_geomfromwkb(X'0101000000000000000000F03F0000000000000040'), 3857)) as points,
    array(st_geogfromwkb(X'0101000000000000000000F03F0000000000000040')) as places,
    cast(id as string) collate UNICODE_CI as collated,
    map('k' collate UTF8_LCASE, array('v' collate UNICODE)) as nested_collated,
    array() as empty_lists
""")
"""Types that have no Arrow type of their own, or that pyarrow does not convert to Python values."""


def read_arrow(spark: SparkSession, path: Path | str, **options: Unpack[ReadArguments]) -> DataFrame:
    return read(spark, path, **options)


def write(frame: DataFrame, path: Path, mode: str = "append", **options: str) -> None:
    frame.write.format("arrow").mode(mode).options(**options).save(str(path))


def rows(frame: DataFrame) -> list[str]:
    """The rows as text; year-month intervals as strings, because PySpark can't collect them."""
    columns = [
        functions.col(name).cast("array<string>") if "year" in data_type else functions.col(name)
        for name, data_type in frame.dtypes
    ]
    return sorted(map(repr, frame.select(*columns).collect()))


def numbers(spark: SparkSession, path: Path) -> list[int]:
    return sorted(row[0] for row in read_arrow(spark, path).collect())


def data_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.arrow"))


def test_every_type_survives_a_round_trip_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    types = ",\n".join(map(str.strip, (EVERY_TYPE, SPARK_TYPES)))
    frame = spark.range(0, 400, 1, 3).selectExpr(*types.split(",\n"))
    frame = frame.withColumn("vectors", array_to_vector(functions.array(functions.col("doubles"))))
    frame = frame.withMetadata("nothing", {"comment": "of nothing"})
    write(frame, tmp_path / "data")
    back = read_arrow(spark, tmp_path / "data")
    assert back.schema == as_nullable(frame.schema)
    assert rows(back) == rows(frame)
    foreign = read_arrow(spark, tmp_path / "data" / "*.arrow")  # which do not have the manifest's schema
    assert foreign.schema == as_nullable(frame.schema)


def test_the_files_are_plain_arrow_files_that_can_be_mapped(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.range(0, 450, 1, 3), tmp_path)
    files = data_files(tmp_path)
    assert len(files) == 3
    for file in files:
        with pa.memory_map(str(file)) as mapped:
            start = pa.py_buffer(mapped.read_buffer()).address
            table = pa.ipc.open_file(mapped).read_all()
        assert table.num_rows == 150
        addresses = [chunk.buffers()[1].address for chunk in table["id"].chunks]
        assert [(address - start) % 64 for address in addresses] == [0] * len(addresses)


def test_the_footers_have_statistics_of_values_with_an_order_and_of_lists(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 450, 1, 1).selectExpr("id", "array(id) list", "nullif(id, 449) n", "string(id) s")
    write(frame, tmp_path)
    (file,) = data_files(tmp_path)
    with bs.open_file(file) as reader:
        reader.check_statistics()
        assert reader.statistics is not None
        assert list(reader.statistics.columns) == [0, 1, 2, 3]
        assert reader.statistics.columns[1].minima is None
        assert reader.statistics.list_lengths == ((1, ((1, 1),)),)
        assert reader.find_batches("id", 200, 299) == [2]
        assert reader.find_batches("n", 449) == []
        assert reader.find_batches("s", "99") == [0]


def test_timestamps_do_not_depend_on_the_time_zone_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.sql("select timestamp '2024-07-01 12:00:00' as t"), tmp_path)
    assert pa.ipc.open_file(data_files(tmp_path)[0]).schema.field("t").type.tz == "UTC"
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        write(spark.sql("select timestamp '2024-07-01 12:00:00' as t"), tmp_path)
        seconds = read_arrow(spark, tmp_path).selectExpr("unix_seconds(t)").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    utc = dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC).timestamp()
    assert sorted(row[0] for row in seconds) == [utc - 9 * 3600, utc - 2 * 3600]


def test_append_adds_and_overwrite_replaces(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.range(5), tmp_path)
    write(spark.range(5, 9), tmp_path)
    assert numbers(spark, tmp_path) == list(range(9))
    write(spark.range(100, 103), tmp_path, "overwrite")
    assert numbers(spark, tmp_path) == [100, 101, 102]
    assert sum(pa.ipc.open_file(path).read_all().num_rows for path in data_files(tmp_path)) == 3
    assert not (tmp_path / "_staging").exists()


def test_a_folder_can_be_overwritten_with_what_is_read_from_it(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.range(10), tmp_path)
    write(read_arrow(spark, tmp_path).where("id % 2 = 0"), tmp_path, "overwrite")
    assert numbers(spark, tmp_path) == [0, 2, 4, 6, 8]


def test_empty_partitions_have_no_file(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.range(0, 40, 1, 4).where("id = 33"), tmp_path)
    assert len(data_files(tmp_path)) == 1
    assert numbers(spark, tmp_path) == [33]


def test_an_empty_data_frame_keeps_its_schema(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.range(0).selectExpr("id", "array('x') as names"), tmp_path)
    back = read_arrow(spark, tmp_path)
    assert back.schema.simpleString() == "struct<id:bigint,names:array<string>>"
    assert back.collect() == []
    write(spark.range(3).selectExpr("id", "array('x') as names"), tmp_path)
    assert read_arrow(spark, tmp_path).count() == 3
    write(spark.range(0).selectExpr("id", "array('x') as names"), tmp_path, "overwrite")
    assert read_arrow(spark, tmp_path).count() == 0
    assert data_files(tmp_path) == []


def test_unusual_column_names_survive_a_round_trip(spark: SparkSession, tmp_path: Path) -> None:
    names = ["a.b", " ", "naïve ☃", "select", "`tick`", "a", "A b,c;{}()=\n\t"]
    frame = spark.createDataFrame([tuple(range(len(names)))], names)
    write(frame, tmp_path / "odd name ☃")
    back = read_arrow(spark, tmp_path / "odd name ☃")
    assert back.columns == names
    assert [tuple(row) for row in back.collect()] == [tuple(range(len(names)))]


def test_the_schema_of_a_reader_selects_and_casts_columns(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.range(3).selectExpr("id", "cast(id as string) as s", "id as unused"), tmp_path)
    back = spark.read.format("arrow").schema("s string, id double").load(str(tmp_path))
    assert [tuple(row) for row in back.orderBy("id").collect()] == [("0", 0.0), ("1", 1.0), ("2", 2.0)]


def test_plain_files_folders_and_globs_are_read(spark: SparkSession, tmp_path: Path) -> None:
    for name, start in (("a.arrow", 0), ("b.feather", 10), ("c.txt", 20)):
        with (
            pa.OSFile(str(tmp_path / name), "wb") as sink,
            pa.ipc.new_file(sink, pa.schema({"x": pa.int64()})) as writer,
        ):
            writer.write_table(pa.table({"x": pa.array([start, start + 1])}))
    with (
        pa.OSFile(str(tmp_path / "d.arrows"), "wb") as sink,
        pa.ipc.new_stream(sink, pa.schema({"x": pa.int64()})) as stream,
    ):
        for value in (30, 31):
            stream.write_table(pa.table({"x": pa.array([value])}))
    assert numbers(spark, tmp_path / "a.arrow") == [0, 1]
    assert numbers(spark, tmp_path) == [0, 1, 10, 11, 30, 31]
    assert numbers(spark, tmp_path / "[ab].*") == [0, 1, 10, 11]
    both = spark.read.format("arrow").load([str(tmp_path / "a.arrow"), (tmp_path / "d.arrows").as_uri()])
    assert sorted(row[0] for row in both.collect()) == [0, 1, 30, 31]


def test_an_append_to_plain_files_keeps_them_and_an_overwrite_does_not(spark: SparkSession, tmp_path: Path) -> None:
    with (
        pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, pa.schema({"id": pa.int64()})) as writer,
    ):
        writer.write_table(pa.table({"id": pa.array([1, 2])}))
    (tmp_path / "notes.txt").write_text("mine")
    write(spark.range(7, 9), tmp_path)
    assert numbers(spark, tmp_path) == [1, 2, 7, 8]
    write(spark.range(1), tmp_path, "overwrite")
    assert numbers(spark, tmp_path) == [0]
    assert not (tmp_path / "a.arrow").exists()
    assert (tmp_path / "notes.txt").read_text() == "mine"


FOREIGN: dict[str, tuple[Any, list[Any], str]] = {
    "uint8": (pa.array([255, None], pa.uint8()), [255, None], "smallint"),
    "uint64": (pa.array([2**64 - 1, None], pa.uint64()), [Decimal(2**64 - 1), None], "decimal(20,0)"),
    "half": (pa.array([1.5, None], pa.float16()), [1.5, None], "float"),
    "decimal256": (pa.array([Decimal("1.25"), None], pa.decimal256(38, 2)), [Decimal("1.25"), None], "decimal(38,2)"),
    "date64": (pa.array([dt.date(2024, 2, 29), None], pa.date64()), [dt.date(2024, 2, 29), None], "date"),
    "time32": (pa.array([dt.time(1, 2, 3), None], pa.time32("s")), [dt.time(1, 2, 3), None], "time(6)"),
    "ns": (pa.array([1000, None], pa.timestamp("ns")), [dt.datetime(1970, 1, 1, 0, 0, 0, 1), None], "timestamp_ntz"),
    "large string": (pa.array(["x", None], pa.large_string()), ["x", None], "string"),
    "string view": (
        pa.array(["x", "a string of more than 12"], pa.string_view()),
        ["x", "a string of more than 12"],
        "string",
    ),
    "fixed binary": (pa.array([b"abc", None], pa.binary(3)), [bytearray(b"abc"), None], "binary"),
    "dictionary": (pa.array(["x", None]).dictionary_encode(), ["x", None], "string"),
    "list of dictionary": (
        pa.array([["x"], None], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        [["x"], None],
        "array<string>",
    ),
    "large list": (pa.array([[1], None], pa.large_list(pa.int8())), [[1], None], "array<tinyint>"),
    "fixed list": (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), [[1, 2], None], "array<tinyint>"),
    "list view": (pa.array([[1, 2], None], pa.list_view(pa.int8())), [[1, 2], None], "array<tinyint>"),
    "runs": (
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array(["x", None])),
        ["x", None],
        "string",
    ),
    "extension": (pa.array([b"0123456789abcdef", None], pa.uuid()), [bytearray(b"0123456789abcdef"), None], "binary"),
    "bool8": (pa.array([1, None], pa.int8()).cast(pa.int8()).view(pa.bool8()), [True, None], "boolean"),
    "wide decimal": (pa.array([Decimal("1.25"), None], pa.decimal256(38, 2)), [Decimal("1.25"), None], "decimal(38,2)"),
    "hundreds": (pa.array([Decimal(300), None], pa.decimal128(5, -2)), [Decimal(300), None], "decimal(7,0)"),
    "union": (
        pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["x", "y"])], ["n", "s"]),
        [(1, None), (None, "y")],
        "struct<n:bigint,s:string>",
    ),
    "list of union": (
        pa.ListArray.from_arrays(
            pa.array([0, 2, 2], pa.int32()),
            pa.UnionArray.from_dense(
                pa.array([1, 0], pa.int8()),
                pa.array([0, 0], pa.int32()),
                [pa.array([1.5]), pa.array(["x"])],
                ["f", "s"],
            ),
        ),
        [[(None, "x"), (1.5, None)], []],
        "array<struct<f:double,s:string>>",
    ),
    "interval": (
        pa.array([(14, -3, 4_000), None], pa.month_day_nano_interval()),
        ["1 years 2 months -3 days 0.000004 seconds", None],
        "interval",
    ),
}


@needs_spark(4, 1)  # which has times of day
def test_types_that_spark_lacks_are_read_as_its_own(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({name: column for name, (column, _, _) in FOREIGN.items()})
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    back = read_arrow(spark, tmp_path)
    assert [field.dataType.simpleString() for field in back.schema] == [name for _, _, name in FOREIGN.values()]
    first, second = back.withColumn("interval", functions.col("interval").cast("string")).collect()
    assert {name: [first[name], second[name]] for name in FOREIGN} == {k: v for k, (_, v, _) in FOREIGN.items()}


def test_a_big_file_is_split_and_small_ones_are_grouped(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 100)
    write(spark.range(0, 4000, 1, 2), tmp_path / "few")
    assert all(pa.ipc.open_file(path).num_record_batches == 20 for path in data_files(tmp_path / "few"))
    split = read_arrow(spark, tmp_path / "few", split_bytes=4000)
    assert 8 <= split.rdd.getNumPartitions() <= 20
    assert sorted(row[0] for row in split.collect()) == list(range(4000))
    write(spark.range(0, 30, 1, 30), tmp_path / "many")
    assert len(data_files(tmp_path / "many")) == 30
    assert read_arrow(spark, tmp_path / "many").rdd.getNumPartitions() == 1
    assert numbers(spark, tmp_path / "many") == list(range(30))


@pytest.mark.thorough
def test_real_data_of_nested_columns_and_nulls_survives_a_round_trip(
    spark: SparkSession, tmp_path: Path, shared_folder: Path
) -> None:
    quakes = spark.read.option("multiLine", True).json(str(shared_folder / "data" / "earthquakes.json"))
    write(quakes, tmp_path / "quakes")
    assert rows(read_arrow(spark, tmp_path / "quakes")) == rows(quakes)
    flights = read_arrow(spark, shared_folder / "data" / "flights-200k.arrow")
    with pa.memory_map(str(shared_folder / "data" / "flights-200k.arrow")) as mapped:
        table = pa.ipc.open_file(mapped).read_all()
    sums = flights.selectExpr("count(*)", "sum(delay)", "sum(distance)").collect()[0]
    assert list(sums) == [table.num_rows, pc.sum(table["delay"]).as_py(), pc.sum(table["distance"]).as_py()]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["birdstrikes.csv", "flights-20k.json"])
def test_real_files_come_back_with_the_same_rows(
    spark: SparkSession, shared_folder: Path, tmp_path: Path, name: str
) -> None:
    source = str(shared_folder / "data" / name)
    csv = {"header": True, "inferSchema": True, "quote": '"', "escape": '"', "multiLine": True}
    frame = spark.read.csv(source, **csv) if name.endswith("csv") else spark.read.json(source, multiLine=True)  # type: ignore[arg-type]
    write(frame, tmp_path / "data")
    again = read_arrow(spark, tmp_path / "data")
    assert again.schema == frame.schema
    digests = "count(*) AS rows", "sum(xxhash64(*) % 1000003) AS rests", "bit_xor(xxhash64(*)) AS bits"
    expected = frame.selectExpr(*digests).collect()
    assert again.selectExpr(*digests).collect() == expected
    assert expected[0].rows >= 10_000
    (path,) = data_files(tmp_path / "data")
    assert pa.ipc.open_file(path).read_all().num_rows == expected[0].rows
