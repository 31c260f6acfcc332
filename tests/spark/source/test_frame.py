"""`bowstring.spark.read`: the rows of the data source, without its processes."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import InvalidArgumentError, InvalidDataError, MissingFileError, NotFoundError
from bowstring.io.store_path import StorePath
from bowstring.spark import publish, read, write
from tests.spark.test_round_trip import EVERY_TYPE, SPARK_TYPES, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")


def load(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("arrow").options(**options).load(str(path))


def query_plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_all_types_are_read_as_by_the_data_source(spark: SparkSession, tmp_path: Path) -> None:
    types = f"id, {EVERY_TYPE}, {SPARK_TYPES}, make_ym_interval(1, cast(id as int)) as years"
    spark.range(0, 60, 1, 2).createOrReplaceTempView("numbers")
    frame = spark.sql(f"select {types}, id as `a.b`, id as `c d` from numbers")
    write(frame, tmp_path)
    actual, source = read(spark, tmp_path), load(spark, tmp_path)
    assert actual.dtypes == frame.dtypes

    def texts(frame: DataFrame, *others: str) -> list[str]:
        names = [name for name in frame.columns if name not in ("variants", "points", *others)]
        return sorted(map(repr, frame.selectExpr([f"cast(`{name}` as string) `{name}`" for name in names]).collect()))

    assert texts(actual) == texts(frame)
    intervals = ("months", "years")  # of which the source has the parts
    assert actual.drop(*intervals).schema == source.drop(*intervals).schema
    assert texts(actual, *intervals) == texts(source, *intervals)


def test_arguments_are_the_options_of_the_source_as_values(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 100, 1, 2).selectExpr(
        *("id", "cast(id / 4 as decimal(10, 2)) price", "named_struct('x', id, 'y', 1) st"),
        *(
            "timestamp '2024-01-01 00:00:00 UTC' + make_dt_interval(cast(id as int)) t",
            "date_add(date '2024-01-01', cast(id as int)) day",
        ),
    )
    write(frame, tmp_path)
    noon = dt.datetime(2024, 1, 3, 12, tzinfo=dt.UTC)
    for filters, expected in (
        ([("id", "<", 3)], [0, 1, 2]),
        ([("id", "in", {1, 5})], [1, 5]),
        ([("id", "<=", np.int64(1))], [0, 1]),
        ([[("price", "=", Decimal("0.25"))], [("id", "=", 9)]], [1, 9]),
        ([("t", ">", noon), ("t", "<", noon + dt.timedelta(2))], [3, 4]),
        ([("day", "=", dt.date(2024, 1, 8))], [7]),
        ("[('id', '=', 2)]", [2]),
    ):
        assert sorted(row.id for row in read(spark, tmp_path, columns=["id"], filters=filters).collect()) == expected
    assert (
        read(spark, str(tmp_path), columns=["st.x", "id"]).schema.simpleString()
        == "struct<st:struct<x:bigint>,id:bigint>"
    )
    assert read(spark, tmp_path, columns="id", metadata_column="_m").columns == ["id"]
    changed = read(spark, tmp_path, schema="id decimal(20,0), q string")
    assert changed.schema.simpleString() == "struct<id:decimal(20,0),q:string>"
    assert read(spark, tmp_path, schema=changed.schema).count() == 100
    (file, *_) = tmp_path.glob("part-*.arrow")
    os.utime(file, (0, 0))
    later = read(spark, tmp_path, modified_after=dt.datetime(2000, 1, 1, tzinfo=dt.UTC))
    assert later.count() + read(spark, tmp_path, path_glob_filter=file.name).count() == 100
    assert read(spark, tmp_path, split_bytes=100).rdd.getNumPartitions() > 1


def test_errors_are_raised_before_any_job(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.range(3), tmp_path / "data")
    with pytest.raises(InvalidArgumentError, match="does not support the option 'column' for reading: did you mean"):
        read(spark, tmp_path / "data", column="id")  # type: ignore[call-arg]
    with pytest.raises(MissingFileError, match="there is no such file or folder"):
        read(spark, tmp_path / "other")
    with pytest.raises(NotFoundError, match="no column is called 'x'"):
        read(spark, tmp_path / "data", columns=["x"])
    with pytest.raises(InvalidArgumentError, match="expected at least one column"):
        read(spark, tmp_path / "data", columns=[])
    (tmp_path / "text.arrow").write_text("not Arrow")
    with pytest.raises(InvalidDataError, match=r"text\.arrow"):
        read(spark, tmp_path / "text.arrow")


def test_malformed_rows_and_removed_files_fail_with_their_message(spark: SparkSession, tmp_path: Path) -> None:
    with bs.new_file(tmp_path / "a.arrow", {"t": "timestamp[ns]"}) as writer:
        writer.write(bs.record_batch({"t": bs.array([1], "timestamp[ns]")}))
    frame = read(spark, tmp_path)
    with pytest.raises(Exception, match="record batch 0, column t: a value of timestamp"):
        frame.collect()
    assert read(spark, tmp_path, truncate=True).count() == 1
    assert read(spark, tmp_path, mode="DROPMALFORMED").count() == 0
    (row,) = read(spark, tmp_path, mode="PERMISSIVE").collect()
    assert "column t: a value of timestamp" in row._corrupt_record
    (tmp_path / "a.arrow").unlink()
    with pytest.raises(Exception, match="was removed after the query was planned"):
        frame.collect()


def test_folders_without_rows_have_their_columns(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(3).selectExpr("id", "cast(id as string) k")
    write(frame.limit(0), tmp_path / "empty")
    write(frame, tmp_path / "rows", partition_by=["k"])
    for path, filters in (("empty", ""), ("rows", "[('id', '>', 5)]"), ("rows", "[('k', '=', 'x')]")):
        empty = read(spark, tmp_path / path, filters=filters)
        assert (empty.dtypes, empty.collect()) == (frame.dtypes, [])
    assert sorted(map(tuple, read(spark, f"{tmp_path}/rows/k=*", base_path=tmp_path / "rows").collect())) == [
        (0, "0"),
        (1, "1"),
        (2, "2"),
    ]


def test_a_frame_keeps_its_rows_and_a_later_one_has_those_appended(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.range(3), tmp_path)
    cached = read(spark, tmp_path).cache()
    assert cached.count() == 3
    write(spark.range(3), tmp_path, mode="append")
    assert (cached.count(), read(spark, tmp_path).count()) == (3, 6)
    cached.unpersist()


def test_thousands_of_files_are_several_tasks(spark: SparkSession, tmp_path: Path) -> None:
    with bs.new_file(tmp_path / "0.arrow", {"x": "int64"}) as writer:
        writer.write(bs.record_batch({"x": [1]}))
    content = (tmp_path / "0.arrow").read_bytes()
    for index in range(1, 1000):
        (tmp_path / f"{index}.arrow").write_bytes(content)
    frame = read(spark, tmp_path)
    assert 3 < frame.rdd.getNumPartitions() < 6
    assert frame.count() == 1000


def test_only_small_frames_are_broadcast(spark: SparkSession, tmp_path: Path) -> None:
    for name, count in (("large.arrow", 2_000_000), ("small.arrow", 10)):
        with bs.new_file(tmp_path / name, {"id": "int64"}) as writer:
            writer.write(bs.record_batch({"id": np.arange(count)}))
    large, small = (read(spark, tmp_path / f"{name}.arrow") for name in ("large", "small"))
    assert "BroadcastHashJoin" in query_plan(large.join(small, "id"))
    assert "SortMergeJoin" in query_plan(large.join(read(spark, tmp_path / "large.arrow"), "id"))


def test_data_sets_and_several_paths_are_read(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 40, 1, 2).selectExpr("id", "cast(id as string) s")
    with publish(frame) as published:
        assert rows(read(spark, published)) == rows(frame)
        assert read(spark, [published, published], columns=["s"], filters=[("id", "<", 5)]).count() == 10
    write(frame, tmp_path / "a")
    write(frame, tmp_path / "b")
    assert read(spark, [tmp_path / "a", str(tmp_path / "b")]).count() == 80


@pytest.mark.thorough
def test_a_folder_of_a_store_is_read(spark: SparkSession, store_folder: StorePath) -> None:
    frame = spark.range(10).selectExpr("id", "id % 2 k")
    write(frame, store_folder.url, partition_by=["k"], storage_options=store_folder.options)
    again = read(spark, store_folder.url, filters=[("k", "=", 1)], storage_options=store_folder.options)
    assert sorted(row.id for row in again.collect()) == [1, 3, 5, 7, 9]


def test_the_data_source_interface_that_spark_3_5_lacks_is_not_imported() -> None:
    code = (
        "import sys, pyspark.sql; sys.modules['pyspark.sql.datasource'] = None\n"
        "sys.modules['pyspark.sql.streaming.datasource'] = None\n"
        "from bowstring.spark import count_rows, read, write"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
