"""The options `columns` and `filters`: the rows are those of Parquet, and batches that can't match are not read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bowstring as bs
from bowstring.errors import InvalidArgumentError, MissingFileError, NotFoundError, TypeMismatchError

pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException, PythonException
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from bowstring.spark.options import ReadOptions
from bowstring.spark.row_filters import RowFilters
from bowstring.spark.source import reader as data_source_reader
from bowstring.spark.source.file_discovery import find_files
from bowstring.spark.source.frame import count_rows
from bowstring.spark.source.planning import ReadPlanner
from bowstring.spark.source.reader import ArrowReader, BatchRange
from bowstring.spark.source.schema_compatibility import select_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NUMBERS = bs.record_batch({"id": [1, 2, 3]})
COLUMNS = """
    id,
    if(id % 7 = 0, null, cast(id / 3 as int)) n,
    if(id % 11 = 0, null, if(id % 5 = 0, -0.0D, id / 4)) x,
    cast(id / 7 as decimal(12, 3)) d,
    if(id % 9 = 0, null, repeat(char(97 + cast(id % 26 as int)), cast(id % 80 as int))) s,
    cast(repeat(char(97 + cast(id % 26 as int)), cast(id % 5 as int)) as binary) bin,
    date_add(date '2020-01-01', cast(id as int)) day,
    timestamp '2020-03-29 00:00:00' + make_dt_interval(0, cast(id as int)) t,
    id % 3 = 0 b,
    named_struct('a', id, 'b', array(id)) st
"""
CONDITIONS: dict[str, list[Any]] = {
    "id < 20 and n is not null and st is not null": [("id", "<", "20"), ("n", "is not null"), ("st", "is not null")],
    "n is null or n in (30, 31)": [[("n", "is null")], [("n", "in", (30, 31))]],
    # Parquet's own filter does not find -0.0 by 0.0.
    "x + 0 = 0 and n not in (1, 50) and n <> 6 and n > 5.5": [
        *(("x", "=", 0), ("n", "not in", {1, 50}), ("n", "!=", 6), ("n", ">", 5.5))
    ],
    "s >= 'y' and s < 'zz' or s = '' or bin < X'62'": [
        *([("s", ">=", "y"), ("s", "<", "zz")], [("s", "==", "")], [("bin", "<", b"b")])
    ],
    "day > date '2020-01-04' and t < timestamp '2020-03-29 23:30:00 UTC' and b and d <= 2.25": [
        *(("day", ">", "2020-01-04"), ("t", "<", "2020-03-29 23:30:00Z"), ("b", "==", True), ("d", "<=", "2.25"))
    ],
    "id < 0": [("id", "<", 0)],
}


def write_both(spark: SparkSession, folder: Path) -> dict[str, str]:
    """Write the same rows as Parquet and as Arrow, and return the paths."""
    columns = [line.rstrip(",") for line in COLUMNS.strip().splitlines()]
    frame = spark.range(0, 320, 1, 2).selectExpr(*columns)
    frame.write.parquet(str(folder / "parquet"))
    frame.write.format("arrow").mode("append").save(str(folder / "arrow"))
    return {source: str(folder / source) for source in ("parquet", "arrow")}


def union(frames: Iterable[DataFrame]) -> list[tuple[Any, ...]]:
    """Return the rows of the frames, each with the frame's index, in one job."""
    numbered = [frame.selectExpr(f"{index} c", "*") for index, frame in enumerate(frames)]
    return sorted(tuple(row) for row in reduce(lambda one, other: one.union(other), numbered).collect())


def test_filters_select_the_rows_of_parquet(spark: SparkSession, tmp_path: Path) -> None:
    paths = write_both(spark, tmp_path)
    parquet, arrow = spark.read.parquet(paths["parquet"]), spark.read.format("arrow")
    expected = union(parquet.where(condition).select("id") for condition in CONDITIONS)
    assert len({index for index, _ in expected}) == len(CONDITIONS) - 1
    frames = [arrow.options(filters=str(each), columns="id").load(paths["arrow"]) for each in CONDITIONS.values()]
    assert union(frames) == expected


def test_columns_reads_some_columns_and_fields_in_their_order(spark: SparkSession, tmp_path: Path) -> None:
    paths = write_both(spark, tmp_path)
    frame = spark.read.format("arrow").option("columns", "s, st.b, id").load(paths["arrow"])
    expected = spark.read.parquet(paths["parquet"]).selectExpr("s", "named_struct('b', st.b) st", "id")
    assert frame.schema.simpleString() == expected.schema.simpleString()
    assert sorted(map(str, frame.collect())) == sorted(map(str, expected.collect()))
    one_column = spark.read.format("arrow").option("columns", str(["id"])).load(paths["arrow"])
    assert (one_column.columns, one_column.count()) == (["id"], 320)
    for options, message in (
        ({"columns": "id,id"}, "'id' is named twice"),
        ({"columns": "ids"}, "option columns: no column is called 'ids'; there are 'id', 'n'"),
        ({"columns": "[id]"}, "option columns: expected names"),
        ({"filters": "id < 5"}, 'option filters: expected a Python literal such as [("id", "<", 5)], found id < 5'),
        ({"filters": "[('s', '<', 5)]"}, "option filters: filter ('s', '<', 5)"),
    ):
        with pytest.raises(AnalysisException) as error:
            spark.read.format("arrow").options(**options).load(paths["arrow"]).collect()
        assert message in str(error.value)
    with pytest.raises(AnalysisException, match=r"can't be combined with \.schema"):
        spark.read.format("arrow").schema("id long").option("columns", "id").load(paths["arrow"]).collect()


def test_rows_are_counted_by_the_manifest_or_the_footers(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(0, 250, 1, 2).write.format("arrow").mode("append").save(str(tmp_path / "written"))
    for name, statistics in (("a.arrow", True), ("b.arrow", False)):
        with bs.new_file(tmp_path / name, NUMBERS.schema) as writer:
            if statistics:
                writer.enable_statistics()
            writer.write(NUMBERS)
            writer.write(NUMBERS)
    with bs.new_stream(tmp_path / "c.arrows", NUMBERS.schema) as stream:
        stream.write(NUMBERS)
    assert count_rows(tmp_path / "written") == 250
    assert count_rows([str(tmp_path / "written"), tmp_path]) == 265
    (part,) = {path.name for path in (tmp_path / "written").glob("*-00001-*.arrow")}
    (tmp_path / "written" / part).rename(tmp_path / "d.arrow")
    with pytest.raises(MissingFileError, match="is missing, though manifest 1"):
        count_rows(tmp_path / "written")
    assert count_rows(str(tmp_path / "?.arrow"), merge_schema=True) == 137
    with pytest.raises(InvalidArgumentError, match="counts all rows"):
        count_rows(tmp_path, filters="[('id', '<', 5)]")
    with pytest.raises(InvalidArgumentError, match="does not support the option 'column'"):
        count_rows(tmp_path, column="id")  # type: ignore[call-arg]
    with pytest.raises(InvalidArgumentError, match="a data set has `num_rows`"):
        count_rows("tcp://localhost:1/x")


def write_with_invalid_batches(path: Path, invalid_batches: Iterable[int]) -> None:
    """Write a file of ten batches with statistics, of which some have text that is not valid UTF-8."""
    batches = [bs.record_batch({"id": range(i * 10, i * 10 + 10), "s": [f"secret-{i}"] * 10}) for i in range(10)]
    with bs.new_file(path, batches[0].schema) as writer:
        writer.enable_statistics()
        for batch in batches:
            writer.write(batch)
    raw = path.read_bytes()
    for index in invalid_batches:
        raw = raw.replace(f"secret-{index}".encode(), b"\xff" * 6 + f"-{index}".encode())
    path.write_bytes(raw)


def test_batches_without_matching_rows_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    write_with_invalid_batches(tmp_path / "a.arrow", {0, 1, 2, 4, 5, 6, 7, 8, 9})

    def read_ids(filters: Any) -> list[int]:
        frame = spark.read.format("arrow").option("filters", str(filters)).load(str(tmp_path))
        # Spark reuses a data frame's plan: a filter of Spark must not affect other queries.
        assert frame.where("id < 0").count() == 0
        return [row.id for row in frame.collect()]

    assert read_ids([("id", ">=", 33), ("id", "<=", 38), ("s", ">=", "secret")]) == [*range(33, 39)]
    assert read_ids([("s", "==", "secret-3"), ("id", "<", 32)]) == [30, 31]
    with pytest.raises(PythonException, match=r"record batch 4.*UTF-8"):
        read_ids([("id", ">=", 33), ("id", "<=", 40)])


def test_the_tasks_skip_batches_of_files_that_the_driver_did_not_open(tmp_path: Path) -> None:
    write_with_invalid_batches(tmp_path / "a.arrow", {0, 1, 2, 4, 5, 6, 7, 8, 9})
    schema = StructType().add("id", LongType()).add("s", StringType())
    reader = ArrowReader(
        [],
        schema,
        ReadOptions(split_bytes=1),
        RowFilters.parse("[('id', '>', 31), ('id', '<', 35)]", schema),
    )
    ranges = [BatchRange(tmp_path / "a.arrow", 0, 10)]
    assert [batch.column("id").to_pylist() for batch in reader.read(ranges)] == [[32, 33, 34]]


def test_the_driver_skips_batches_of_a_limited_number_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        write_with_invalid_batches(tmp_path / f"{name}.arrow", {0, 1, 2, 4, 5, 6, 7, 8, 9})
    schema = StructType().add("id", LongType()).add("s", StringType())
    filters = RowFilters.parse("[('id', '>', 31), ('id', '<', 35)]", schema)
    reader = ArrowReader(find_files([tmp_path], ReadOptions()), schema, ReadOptions(split_bytes=1 << 30), filters)
    for limit, expected in ((3, [(3, 4), (3, 4), (3, 4)]), (2, [(3, 4), (3, 4), (0, 10)])):
        monkeypatch.setattr(data_source_reader, "MAX_PLANNED_FOOTERS", limit)
        (task,) = reader.plan()
        assert [(each.start, each.stop) for each in task.ranges] == expected
        assert [batch.column("id").to_pylist() for batch in reader.read(task.ranges)] == [[32, 33, 34]] * 3


def test_the_driver_plans_only_batches_that_may_match(tmp_path: Path) -> None:
    write_with_invalid_batches(tmp_path / "a.arrow", {})
    write_with_invalid_batches(tmp_path / "b.arrow", {})

    def plan(filters: str) -> list[tuple[str, int, int]]:
        planner = ReadPlanner({"path": str(tmp_path), "filters": filters})
        ranges = [each for task in planner.reader(planner.schema()).plan() for each in task.ranges]
        return [(Path(each.path).name, each.start, each.stop) for each in ranges]

    assert plan("[('id', '>', 85)]") == [("a.arrow", 8, 10), ("b.arrow", 8, 10)]
    assert plan("[[('id', '<', 5)], [('id', '==', 15)], [('s', '==', 'secret-4')]]")[:2] == [
        ("a.arrow", 0, 2),
        ("a.arrow", 4, 5),
    ]
    assert plan("[('id', '>', 100)]") == []


def test_statistics_of_columns_that_partition_folders_replace_are_not_used(tmp_path: Path) -> None:
    (tmp_path / "id=7").mkdir()
    write_with_invalid_batches(tmp_path / "id=7" / "a.arrow", {})
    schema = StructType().add("id", LongType()).add("s", StringType())
    planner = ReadPlanner({"path": str(tmp_path), "filters": "[('id', '==', 7), ('s', '>', 'secret-4')]"})
    reader = planner.reader(schema)
    (task,) = reader.plan()
    assert [(each.start, each.stop) for each in task.ranges] == [(5, 10)]
    ranges = (BatchRange(tmp_path / "id=7" / "a.arrow", 0, 10, ("id",), (("id", 7),)),)
    for each in (task.ranges, ranges):
        assert [batch.column("id").to_pylist() for batch in reader.read(each)] == [[7] * 10] * 5


def test_data_sets_and_columns_of_other_types_are_filtered(spark: SparkSession, tmp_path: Path) -> None:
    write_with_invalid_batches(tmp_path / "a.arrow", {})
    filters = [("id", ">", 96), ("id", "!=", 98)]
    for schema in ("id long, s string", "id double"):
        frame = spark.read.format("arrow").schema(schema).option("filters", str(filters)).load(str(tmp_path))
        assert [int(row.id) for row in frame.collect()] == [97, 99]
    with bs.serve({"ids": bs.table({"id": range(100), "x": ["x"] * 100})}) as server:
        frame = spark.read.format("arrow").options(filters=str(filters), columns="x").load(server.uri("ids"))
        assert frame.collect() == [("x",), ("x",)]


# Without Spark


SCHEMA = (
    StructType()
    .add("a", LongType())
    .add("d", DecimalType(5, 2))
    .add("s", StringType())
    .add("t", TimestampType())
    .add("day", DateType())
    .add("l", ArrayType(LongType()))
    .add("span", DayTimeIntervalType())
)


def test_strings_are_parsed_for_columns_of_numbers_and_times() -> None:
    text = """[("a", "in", ["1", 2]), ("d", "<", "2.5"), ("s", "=", "3"), ("t", ">", "2020-01-01 02:00:00+02:00")]"""
    moment = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    expected = (("a", "in", [1, 2]), ("d", "<", Decimal("2.50")), ("s", "=", "3"), ("t", ">", moment))
    assert RowFilters.parse(text, SCHEMA).conjunctions == (expected,)
    assert RowFilters.parse("", SCHEMA).conjunctions == ()


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("[('a', '<', datetime.date(2020, 1, 1))]", InvalidArgumentError, "write times as text"),
        ("5", InvalidArgumentError, "expected lists of tuples, found 5"),
        ("[]", InvalidArgumentError, "expected lists of tuples"),
        ("[['a', '<', 5]]", InvalidArgumentError, "expected lists of tuples"),
        ("[('t', '<', '2020-01-01')]", TypeMismatchError, "can't parse '2020-01-01' as timestamp"),
        ("[('a', '<', 'x')]", TypeMismatchError, r"filter \('a', '<', 'x'\): value 0: can't parse 'x' as int64"),
        ("[('z', '<', 5)]", NotFoundError, "no column is called 'z'"),
        ("[('l', '=', [5])]", TypeMismatchError, "have no order"),
        ("(" * 10_000, InvalidArgumentError, "expected a Python literal"),
    ],
)
def test_malformed_filters_are_rejected(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match="option filters: .*" + message):
        RowFilters.parse(text, SCHEMA)


def test_values_of_a_partition_are_compared() -> None:
    filters = RowFilters.parse("[[('a', '>', 5), ('s', '==', 'x')], [('day', '==', '2020-01-01')]]", SCHEMA)
    assert filters.may_match_values({})
    assert filters.may_match_values({"a": 5})
    assert filters.may_match_values({"a": 6, "day": dt.date(2020, 1, 2)})
    assert not filters.may_match_values({"a": 5, "day": dt.date(2020, 1, 2)})
    assert not filters.may_match_values({"a": 6, "s": None, "day": None})
    first = dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))  # in UTC in the year 0
    filters = RowFilters.parse("[('t', '<', '0001-01-01 00:00:00Z')]", SCHEMA)
    assert filters.may_match_values({"t": first})
    assert not filters.may_match_values({"t": first + dt.timedelta(hours=1)})


def test_statistics_of_values_that_are_converted_are_not_used(tmp_path: Path) -> None:
    columns = {"a": ([1], "int32"), "t": ([1], "timestamp[ns, tz=UTC]"), "span": ([1], "duration[ns]")}
    batch = bs.record_batch({name: bs.array(values, type_) for name, (values, type_) in columns.items()})
    with bs.new_file(tmp_path / "a.arrow", batch.schema) as writer:
        writer.enable_statistics()
        writer.write(batch)
    with bs.open_file(tmp_path / "a.arrow") as reader:
        for text, truncate_times, may_match in (
            ("[('a', '>', 5)]", False, True),  # int32 read as long
            ("[('t', '<', '1970-01-01 00:00:00Z')]", False, False),
            ("[('t', '<', '1970-01-01 00:00:00Z')]", True, True),
            ("[('span', '==', 0)]", False, False),
            ("[('span', '==', 0)]", True, True),
            ("[('s', '==', 'x')]", False, True),  # not in the file
            ("[('a', '>', 5), ('t', 'is null')]", False, False),
            ("[[('a', '>', 5)], [('t', 'is null')]]", False, True),
        ):
            mask = RowFilters.parse(text, SCHEMA, truncate_times=truncate_times).find_batches(reader, SCHEMA.names)
            assert (mask is None or mask.tolist() == [True]) is may_match, text


def test_a_value_that_the_type_of_a_file_can_not_have_leaves_the_statistics_of_other_columns(tmp_path: Path) -> None:
    schema = bs.schema([("id", bs.int64()), ("code", bs.binary(2))])
    with bs.new_file(tmp_path / "a.arrow", schema) as writer:
        writer.enable_statistics()
        for index in range(3):
            writer.write(bs.record_batch({"id": [index], "code": [b"ab"]}, schema))
    spark_schema = StructType().add("id", LongType()).add("code", BinaryType())
    with bs.open_file(tmp_path / "a.arrow") as reader:
        for text, expected in (
            ("[('id', '==', 1), ('code', '!=', b'long')]", [False, True, False]),
            ("[[('id', '==', 1), ('code', '!=', b'long')], [('id', '==', 2)]]", [False, True, True]),
            ("[[('id', '==', 1)], [('code', '!=', b'long')]]", None),
            ("[('code', '!=', b'long')]", None),
        ):
            mask = RowFilters.parse(text, spark_schema).find_batches(reader, spark_schema.names)
            assert (None if mask is None else mask.tolist()) == expected, text


def test_fields_of_structs_are_joined_and_errors_name_the_column() -> None:
    inner = StructType().add("b.c", LongType()).add("d", SCHEMA)
    schema = StructType().add("a", inner).add("b.c", LongType())
    assert select_columns(schema, ["b.c", "a.d.s", "a.b.c", "a.d.a"]).simpleString() == (
        "struct<b.c:bigint,a:struct<d:struct<s:string,a:bigint>,b.c:bigint>>"
    )
    for path, error, message in (
        (["a", "a.d"], InvalidArgumentError, "'a' is named twice"),
        (["a.d.a.x"], NotFoundError, "'a' is bigint, which has no fields"),
        (["a.x"], NotFoundError, "no column is called 'x'; there are 'b.c', 'd'"),
    ):
        with pytest.raises(error, match=message):
            select_columns(schema, path)
