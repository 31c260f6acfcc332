"""What ``spark.read.format("arrow")`` does not read is an error that Spark reports before a task runs."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bowstring.errors import InvalidArgumentError
from bowstring.spark.runtime.worker_errors import hide_traceback
from tests.spark.needs_spark import needs_spark

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException, PythonException  # noqa: E402
from pyspark.sql.types import ArrayType, LongType, StructField, StructType  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

PYSPARK_VERSION = tuple(map(int, importlib.metadata.version("pyspark").split(".")[:2]))


def write_file(path: Path, table: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return path


def reader(spark: SparkSession, **options: str) -> DataFrameReader:
    return spark.read.format("arrow").options(**options)


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def planning_error(action: Callable[[], object]) -> str:
    """The message of an error that Spark raises before a task runs."""
    with pytest.raises(AnalysisException) as error:
        action()
    return str(error.value)


@pytest.fixture
def files_with_different_columns(tmp_path: Path) -> Path:
    """Two files, of which each has a column that the other lacks."""
    write_file(tmp_path / "a.arrow", pa.table({"x": [1], "z": ["z"]}))
    write_file(tmp_path / "b.arrow", pa.table({"y": [[2.5]], "x": [2]}))
    return tmp_path


def test_an_unsupported_option_is_rejected_by_load_and_save(
    spark: SparkSession, files_with_different_columns: Path
) -> None:
    message = planning_error(lambda: reader(spark, splitByte="1").load(str(files_with_different_columns)))
    assert (
        "format(\"arrow\") does not support the option 'splitbyte' for reading: did you mean 'splitBytes'?" in message
    )
    message = planning_error(
        lambda: reader(spark, compression="lz4").schema("x long").load(str(files_with_different_columns)).collect()
    )
    assert "does not support the option 'compression' for reading" in message
    writer = spark.range(1).write.format("arrow").mode("append").option("bucketBy", "x")
    message = planning_error(lambda: writer.save(str(files_with_different_columns / "new")))
    assert (
        "does not support the option 'bucketby' for writing: the options for writing are 'fsync', 'compression'"
        in message
    )
    assert not (files_with_different_columns / "new").exists()


def test_merge_schema_reads_the_columns_of_all_files_with_nulls(
    spark: SparkSession, files_with_different_columns: Path
) -> None:
    merged = reader(spark, mergeSchema="true").load(str(files_with_different_columns))
    assert merged.schema.simpleString() == "struct<x:bigint,z:string,y:array<double>>"
    assert rows(merged) == [{"x": 1, "z": "z", "y": None}, {"x": 2, "z": None, "y": [2.5]}]
    only = reader(spark, mergeSchema="true").schema("y array<double>").load(str(files_with_different_columns))
    assert rows(only) == [{"y": None}, {"y": [2.5]}]


def test_a_given_schema_reads_the_columns_that_all_files_have(
    spark: SparkSession, files_with_different_columns: Path
) -> None:
    assert rows(reader(spark).schema("x int").load(str(files_with_different_columns))) == [{"x": 1}, {"x": 2}]


def test_a_type_that_differs_between_files_is_named(spark: SparkSession, tmp_path: Path) -> None:
    write_file(tmp_path / "a.arrow", pa.table({"x": pa.array([1.5], pa.float32())}))
    write_file(tmp_path / "b.arrow", pa.table({"x": [0.1]}))
    message = planning_error(lambda: reader(spark).load(str(tmp_path)).collect())
    assert f"{tmp_path / 'b.arrow'}: column x is double, but float in the first file" in message
    assert rows(reader(spark).schema("x double").load(str(tmp_path))) == [{"x": 1.5}, {"x": 0.1}]


def test_partition_folders_are_rejected_where_their_column_would_be_lost(spark: SparkSession, tmp_path: Path) -> None:
    for k in (1, 2):
        write_file(tmp_path / f"k={k}" / "a.arrow", pa.table({"x": [k]}))
    lost = "the column 'k' of the partition folder"
    assert lost in planning_error(lambda: reader(spark).load(str(tmp_path / "*" / "*.arrow")))
    assert lost in planning_error(lambda: reader(spark).load([str(tmp_path / "k=1"), str(tmp_path / "k=2")]))
    for mode in ("append", "overwrite"):
        writer = spark.range(1).write.format("arrow").mode(mode)
        message = planning_error(lambda writer=writer: writer.save(str(tmp_path)))  # type: ignore[misc]
        assert f"{tmp_path}: partition folders such as 'k=1' are not supported here" in message
    assert rows(reader(spark).load(str(tmp_path / "k=2" / "*.arrow"))) == [{"x": 2}]


def test_repeated_column_names_are_rejected_unless_others_are_read(spark: SparkSession, tmp_path: Path) -> None:
    columns = [pa.array([1]), pa.array([2]), pa.array([3])]
    path = write_file(tmp_path / "a.arrow", pa.Table.from_arrays(columns, names=["x", "x", "y"]))
    repeated = f"{path}: several columns are called 'x'"
    assert repeated in planning_error(lambda: reader(spark).load(str(tmp_path)))
    assert repeated in planning_error(lambda: reader(spark).schema("x long").load(str(tmp_path)).collect())
    assert rows(reader(spark).schema("y long").load(str(tmp_path))) == [{"y": 3}]
    repeated_fields = pa.StructArray.from_arrays(columns, names=["z", "z", "w"])
    path = write_file(tmp_path / "nested.arrow", pa.table({"s": repeated_fields}))
    repeated = f"{path}: column s: several fields are called 'z'"
    assert repeated in planning_error(lambda: reader(spark).load(str(path)))
    assert rows(reader(spark).schema("s struct<w: long>").load(str(path))) == [{"s": (3,)}]


def test_a_conversion_that_would_lose_something_is_rejected(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([0], pa.timestamp("us")), "s": [{"a": 1, "b": 2}]})
    path = write_file(tmp_path / "a.arrow", table)
    message = planning_error(lambda: reader(spark).schema("t timestamp").load(str(tmp_path)).collect())
    assert f"{path}: column t: timestamp_ntz can't be read as timestamp: read it as timestamp_ntz" in message
    message = planning_error(lambda: reader(spark).schema("s struct<c: bigint>").load(str(tmp_path)).collect())
    assert f"{path}: column s: no field is called 'c'; there are 'a', 'b'" in message
    chosen = reader(spark).schema("s struct<b: bigint, a: int>").load(str(tmp_path))
    assert [tuple(row.s) for row in chosen.collect()] == [(2, 1)]


def test_nulls_in_elements_that_allow_none_are_rejected(spark: SparkSession, tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.arrow", pa.table({"l": [[1, None]]}))
    schema = StructType([StructField("l", ArrayType(LongType(), containsNull=False))])
    with pytest.raises(PythonException, match=r"column 'l': .*has 1 nulls, but its field is not nullable") as error:
        reader(spark).schema(schema).load(str(path)).collect()
    assert "Traceback" not in str(error.value)


@pytest.mark.skipif(PYSPARK_VERSION < (4, 3), reason="times of day have nanoseconds since Spark 4.3")
def test_nanoseconds_of_a_time_of_day_are_read(spark: SparkSession, tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.arrow", pa.table({"t": pa.array([1_000, 1_001], pa.time64("ns"))}))
    frame = reader(spark).load(str(path))
    assert frame.schema.simpleString() == "struct<t:time(9)>"
    assert frame.where("t = time '00:00:00.000001001'").count() == 1
    frame.write.format("arrow").mode("append").save(str(tmp_path / "written"))
    again = reader(spark).load(str(tmp_path / "written"))
    assert again.schema == frame.schema
    assert again.exceptAll(frame).count() == frame.exceptAll(again).count() == 0
    assert again.toArrow()["t"].cast(pa.int64()).to_pylist() == [1_000, 1_001]


def test_nanoseconds_of_a_time_of_six_digits_are_an_error_or_truncated(spark: SparkSession, tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.arrow", pa.table({"t": pa.array([1_000, 1_001], pa.time64("ns"))}))
    with pytest.raises(PythonException) as error:
        reader(spark).schema("t time(6)").load(str(path)).collect()
    assert f"{path}, record batch 0, column t: a value of time64[ns] does not fit time64[us]" in str(error.value)
    truncated = reader(spark, truncate="true").schema("t time(6)").load(str(path))
    assert truncated.where("t = time '00:00:00.000001'").count() == 2


@needs_spark(4, 1)  # 4.0 plans the query again
def test_a_view_after_an_overwrite_names_the_cure(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    spark.range(3).write.format("arrow").mode("append").save(path)
    create = f"CREATE OR REPLACE TEMPORARY VIEW replaced USING arrow OPTIONS (path '{path}')"
    spark.sql(create)
    assert spark.table("replaced").count() == 3
    spark.range(5).write.format("arrow").mode("overwrite").save(path)
    spark.sql("REFRESH TABLE replaced")
    with pytest.raises(PythonException, match=r"removed after the query was planned.*CREATE OR REPLACE TEMPORARY VIEW"):
        spark.table("replaced").count()
    spark.sql(create)
    assert spark.table("replaced").count() == 5


def test_an_error_is_reported_by_its_message_without_a_traceback(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_bytes(b"PAR1" + bytes(100))
    for path, message in (
        (tmp_path / "none", f"bowstring.errors.MissingFileError: {tmp_path / 'none'}: there is no such file or folder"),
        (
            tmp_path,
            f"bowstring.errors.FormatMismatchError: {tmp_path / 'a.arrow'}: expected an Arrow file or stream, found a ",
        ),
    ):
        first_line, *others = planning_error(lambda path=path: reader(spark).load(str(path))).splitlines()  # type: ignore[misc]
        assert message in first_line
        assert not any("Traceback" in line or line.startswith("  File") for line in others)


def test_a_traceback_is_hidden_only_in_sparks_workers() -> None:
    with pytest.raises(InvalidArgumentError), hide_traceback():
        raise InvalidArgumentError("here")
    assert "SPARK_HIDE_TRACEBACK" not in os.environ


@pytest.mark.thorough
def test_a_session_finds_the_source_without_a_call(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()  # has none of the sources that were registered in the other
    session.range(3).write.format("arrow").mode("append").save(str(tmp_path))
    assert session.read.format("arrow").load(str(tmp_path)).count() == 3


@pytest.fixture
def dropped_tables(spark: SparkSession) -> Iterator[None]:
    yield
    for table in spark.catalog.listTables():
        spark.sql(f"drop {'view' if table.isTemporary else 'table'} {table.name}")
    assert spark.catalog.listTables() == []


@needs_spark(4, 0)
@pytest.mark.parametrize(
    "statement",
    [
        "create table t using arrow location '{}'",
        "create table t using arrow options (path '{}')",
        "create table t using arrow location '{}' as select 2L as x",
        "create table t using arrow as select 2L as x",
    ],
)
def test_a_table_of_sparks_catalog_is_rejected_when_it_is_created(
    spark: SparkSession, tmp_path: Path, statement: str
) -> None:
    write_file(tmp_path / "a.arrow", pa.table({"x": [1]}))
    assert "CREATE TEMPORARY VIEW" in planning_error(lambda: spark.sql(statement.format(tmp_path)))
    assert not spark.catalog.tableExists("t")
    assert [path.name for path in tmp_path.iterdir()] == ["a.arrow"]


@pytest.mark.usefixtures("dropped_tables")
def test_a_table_that_spark_creates_without_the_source_is_rejected_when_it_is_used(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.range(1).write.format("arrow").mode("append").option("path", str(tmp_path / "data")).saveAsTable("saved")
    spark.sql(f"create table created (id long) using arrow location '{tmp_path / 'data'}'")
    for table in ("saved", "created"):
        assert "CREATE TEMPORARY VIEW" in planning_error(spark.table(table).collect)
        assert "CREATE TEMPORARY VIEW" in planning_error(lambda: spark.range(1).write.insertInto(table))  # noqa: B023
    assert "CREATE TEMPORARY VIEW" in planning_error(lambda: spark.range(1).write.format("arrow").saveAsTable("other"))


@pytest.mark.usefixtures("dropped_tables")
def test_a_view_reads_and_writes_its_folder(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(2).write.format("arrow").mode("append").save(str(tmp_path))
    create = f"create or replace temporary view numbers using arrow options (path '{tmp_path}')"
    for insert, expected in (("into", [0, 1, 5]), ("overwrite", [5])):
        spark.sql(create)
        spark.sql(f"insert {insert} numbers select 5L")
        spark.sql(create)  # Spark has kept the plan of the view
        assert sorted(row.id for row in spark.table("numbers").collect()) == expected
