"""Publishing cached frames: the batches of Spark's Arrow cache, or rows where a frame has others than its cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bowstring as bs
from bowstring.arrays.table import Table

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
from pyspark.ml.functions import array_to_vector  # noqa: E402
from pyspark.sql import functions  # noqa: E402

from bowstring.spark import publish, write  # noqa: E402
from bowstring.spark.runtime import arrow_batch_job  # noqa: E402
from bowstring.spark.runtime.arrow_cache import find_cached_messages  # noqa: E402
from bowstring.spark.versions import ARROW_CACHE  # noqa: E402
from tests.polling import wait_until  # noqa: E402
from tests.spark.runtime.test_arrow_batch_job import MAX_RECORDS, spark_setting  # noqa: E402
from tests.spark.test_round_trip import EVERY_TYPE, SPARK_TYPES  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.skipif(not ARROW_CACHE.is_available, reason="this PySpark has no Arrow cache")
CODEC = "spark.sql.execution.arrow.compression.codec"


@contextmanager
def cached(frame: DataFrame) -> Iterator[DataFrame]:
    frame.cache()
    try:
        yield frame
    finally:
        frame.unpersist(blocking=True)


def read_published(frame: DataFrame) -> Table:
    with publish(frame) as published, bs.connect(published) as data:
        table = data.read_all()
        assert table.schema == published.schema
        table.validate(full=True)
        return table


def is_read_from_cache(frame: DataFrame) -> bool:
    return find_cached_messages(frame.alias("other")) is not None


@pytest.fixture
def convert_rows(monkeypatch: pytest.MonkeyPatch) -> Callable[[DataFrame], Table]:
    """Publishes a frame the ordinary way, and reads it."""

    def publish_rows(frame: DataFrame) -> Table:
        with monkeypatch.context() as patch:
            patch.setattr(arrow_batch_job, "find_cached_messages", lambda _: None)
            return read_published(frame)

    return publish_rows


def assert_same(table: Table, expected: Table) -> None:
    assert table.schema == expected.schema
    for name, column in zip(table.schema.names, table.columns, strict=True):
        other = expected.column(name)
        assert column.null_count == other.null_count, name
        assert repr(column.to_pylist()) == repr(other.to_pylist()), name  # in which NaN is NaN


@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
def test_the_batches_of_the_cache_are_those_of_the_rows_for_all_types(
    spark: SparkSession, convert_rows: Callable[[DataFrame], Table], codec: str
) -> None:
    with spark_setting(spark, CODEC, codec), cached(every_type(spark)) as frame:
        assert is_read_from_cache(frame)
        assert_same(read_published(frame), convert_rows(frame))


def every_type(spark: SparkSession) -> DataFrame:
    types = ",\n".join(map(str.strip, (EVERY_TYPE, SPARK_TYPES)))
    frame = spark.range(0, 300, 1, 2).selectExpr("id", *types.split(",\n"), "make_ym_interval(1, int(id)) as months_")
    vectors = array_to_vector(functions.array(functions.col("doubles")))
    return frame.withColumn("vectors", vectors).withMetadata("nothing", {"comment": "of nothing"})


def test_a_pruned_filtered_or_sorted_cache_is_converted_by_rows(spark: SparkSession) -> None:
    with cached(spark.range(0, 300, 1, 2).selectExpr("id", "-id as n", "string(id) as s")) as frame:
        for other in (
            frame.select("s"),
            frame.select("n", "id", "s"),
            frame.where("id % 3 = 1"),
            frame.selectExpr("*", "id + 1 as m"),
            frame.sort("n"),
            frame.limit(7),
            frame.union(frame),
            frame.sample(0.5, 1),
        ):
            assert not is_read_from_cache(other)
            assert sorted(read_published(other).to_pylist(), key=repr) == sorted(
                (row.asDict() for row in other.collect()), key=repr
            )


def test_a_frame_with_the_plan_of_the_cache_has_its_own_names(spark: SparkSession) -> None:
    with cached(spark.range(20).selectExpr("id as a", "-id as b")):
        frame = spark.range(20).selectExpr("id as c", "-id as `c.d`")
        assert is_read_from_cache(frame)
        assert read_published(frame).to_pydict() == {"c": [*range(20)], "c.d": [-n for n in range(20)]}


def test_duplicate_names_no_columns_and_no_rows_are_read_from_the_cache(spark: SparkSession) -> None:
    with cached(spark.range(20).selectExpr("id as a", "-id as a")) as frame:
        assert is_read_from_cache(frame)
        assert [column.to_pylist()[:2] for column in read_published(frame).columns] == [[0, 1], [0, -1]]
    with cached(spark.range(0, 20, 1, 3).select()) as frame:
        assert read_published(frame).num_rows == 20
    with cached(spark.range(0, 20, 1, 3).where("id < 0")) as frame:
        assert is_read_from_cache(frame)
        assert read_published(frame).to_pydict() == {"id": []}


def test_small_batches_of_the_cache_are_joined_up_to_the_limit_of_rows(spark: SparkSession) -> None:
    with spark_setting(spark, MAX_RECORDS, 10), cached(spark.range(0, 200, 1, 2)) as frame:
        frame.count()
        with spark_setting(spark, MAX_RECORDS, 25), publish(frame) as published, bs.connect(published) as data:
            assert [batch.num_rows for batch in data] == [20, 20, 20, 20, 20] * 2


def test_missing_blocks_are_computed_again_and_kept(spark: SparkSession) -> None:
    with cached(spark.range(0, 100, 1, 4).selectExpr("id", "-id as n")) as frame:
        plan: Any = frame.alias("other")._jdf.queryExecution().optimizedPlan()
        blocks = plan.cacheBuilder().cachedColumnBuffers()
        frame.count()
        assert wait_until(lambda: count_blocks(spark, blocks) == 4)
        level = blocks.getStorageLevel()
        blocks.unpersist(True).persist(level)
        assert wait_until(lambda: count_blocks(spark, blocks) == 0)
        assert is_read_from_cache(frame)
        assert sorted(read_published(frame).column("n").to_pylist()) == [-number for number in reversed(range(100))]
        assert wait_until(lambda: count_blocks(spark, blocks) == 4)


def count_blocks(spark: SparkSession, rdd: Any) -> int:
    """The blocks in Spark's storage status, which follows the blocks with a delay."""
    context: Any = spark.sparkContext
    return sum(info.numCachedPartitions() for info in context._jsc.sc().getRDDStorageInfo() if info.id() == rdd.id())


def test_columns_that_the_cache_stores_in_another_form_are_converted_by_rows(spark: SparkSession) -> None:
    with cached(spark.range(3).selectExpr("make_interval(1, 2, 0, int(id)) as i", "id")) as frame:
        assert not is_read_from_cache(frame)
        assert read_published(frame).column("i").to_pylist()[1:] == [(14, 1, 0), (14, 2, 0)]


def test_a_released_cache_and_large_types_are_converted_by_rows(spark: SparkSession) -> None:
    frame = spark.range(20).selectExpr("string(id) as s")
    with cached(frame), spark_setting(spark, "spark.sql.execution.arrow.useLargeVarTypes", "true"):
        assert not is_read_from_cache(frame)
        assert read_published(frame).schema["s"].type == bs.large_string()
    assert not is_read_from_cache(frame)


def test_a_spark_with_other_classes_converts_rows(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bowstring.spark.runtime.arrow_cache._BATCH_CLASS", "org.example.Missing")
    with cached(spark.range(20)) as frame:
        assert not is_read_from_cache(frame)
        assert read_published(frame).num_rows == 20


def test_a_cached_frame_is_written_from_its_batches(spark: SparkSession, tmp_path: Path) -> None:
    with cached(spark.range(0, 300, 1, 2).selectExpr("id", "id % 2 as part", "string(id) as s")) as frame:
        assert is_read_from_cache(frame)
        write(frame, tmp_path / "files", partition_by=["part"])
    rows = spark.read.format("arrow").load(str(tmp_path / "files")).sort("id").collect()
    assert [(row.id, row.part, row.s) for row in rows] == [(n, n % 2, str(n)) for n in range(300)]
