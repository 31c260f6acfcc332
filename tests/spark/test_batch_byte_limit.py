"""How many bytes are in the batches that Spark sends to Python."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bowstring as bs
from bowstring.spark import publish
from bowstring.spark.batch_byte_limit import (
    MAX_BATCH_BYTES,
    MAX_BYTES_SETTING,
    UNLIMITED_BYTES,
    add_padding_rows,
    count_python_plan_nodes,
    largest_cached_partition_bytes,
    plan_map_in_arrow,
)
from bowstring.spark.job_properties import local_property

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")


JOB = Path(__file__).with_name("wide_rows_job.py")
MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
MAX_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
WIDE = "if(id % 7 = 3, null, repeat('é', cast(id * id % 5000 as int)))"


@contextmanager
def spark_setting(spark: SparkSession, name: str, value: int) -> Iterator[None]:
    before = spark.conf.getAll.get(name)
    spark.conf.set(name, str(value))
    try:
        yield
    finally:
        spark.conf.unset(name) if before is None else spark.conf.set(name, before)


def with_numbered_columns(frame: DataFrame) -> DataFrame:
    return frame.toDF(*map(str, range(len(frame.columns))))


@pytest.mark.spark
def test_no_wide_rows_exhaust_the_memory_of_the_jvm(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, str(JOB), str(tmp_path / "files")], check=False, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr[-4000:]
    reports = [json.loads(line) for line in process.stdout.splitlines()]
    assert [report["rows"] for report in reports] == [3200, 3200, 154, 10_000, 30_000, 3000, 100_000, 3200]
    for report in reports:
        assert report["max_bytes"] < 1.05 * MAX_BATCH_BYTES + report["row_bytes"], report


def test_padded_frames_are_published_without_their_padding(spark: SparkSession) -> None:
    frame = spark.range(0, 4000, 1, 3).selectExpr(
        "id", f"{WIDE} as a", "string(id) as `b.c`", "-id as a", f"{WIDE} as d"
    )
    with spark_setting(spark, MAX_RECORDS, 65_536):
        padded = add_padding_rows(with_numbered_columns(frame))
        assert padded is not None
        assert padded.count() > 2 * frame.count()
        with publish(frame) as published, bs.connect(published) as dataset:
            table = dataset.read_all()
    assert table.schema == published.schema
    assert pa.table(table).equals(frame.toArrow())


def test_padding_keeps_batches_of_wide_strings_small(spark: SparkSession) -> None:
    frame = spark.range(0, 600, 1, 1).selectExpr("id", "if(id % 2 = 0, repeat('x', 1000000), null) as s")
    with spark_setting(spark, MAX_RECORDS, 10_000), publish(frame) as published, bs.connect(published) as dataset:
        sizes = [(batch.num_rows, batch.nbytes) for batch in dataset]
    assert sum(rows for rows, _ in sizes) == 600
    assert max(nbytes for _, nbytes in sizes) < MAX_BATCH_BYTES + 1_100_000
    assert len(sizes) == 5


def test_batches_of_narrow_rows_are_as_long_as_the_row_limit_allows(spark: SparkSession) -> None:
    frame = spark.range(0, 70_000, 1, 1).selectExpr("id", "concat('name ', id) as s", "id * 0.5D as x")
    with spark_setting(spark, MAX_RECORDS, 65_536), publish(frame) as published, bs.connect(published) as dataset:
        assert [batch.num_rows for batch in dataset] == [65_536, 4464]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("id, double(id) as x, decimal(id) as d, id > 3 as b, date '2024-01-01' as day, null as n", "same"),
        ("named_struct('x', id, 'y', named_struct('z', float(id))) as s", "same"),
        ("id, string(id) as s, id > 1 as b", "padded"),
        ("id, binary(string(id)) as b", "checked"),
        ("id, array(float(id)) as v", "checked"),
        ("id, string(id) as s, named_struct('s', string(id)) as t", "checked"),
        ("map(id, id) as m", "checked"),
        (", ".join(f"string(id) as s{i}" for i in range(51)), "checked"),
        (", ".join(f"id as s{i}" for i in range(51)), "same"),
        (", ".join(f"id as s{i}" for i in range(100)), "checked"),
    ],
)
def test_frames_with_narrow_columns_skip_sparks_check(spark: SparkSession, columns: str, expected: str) -> None:
    frame = with_numbered_columns(spark.sql(f"select {columns} from range(3)"))
    with spark_setting(spark, MAX_RECORDS, 65_536):
        padded = add_padding_rows(frame)
    if expected == "checked":
        assert padded is None
    elif expected == "same":
        assert padded is frame
    else:
        assert padded is not None
        assert padded.columns == [*frame.columns, "is_row"]


def test_small_partitions_of_a_cached_frame_need_no_padding(spark: SparkSession) -> None:
    frame = spark.range(0, 3000, 1, 3).selectExpr("id", "repeat('x', 9000) as s").cache()
    numbered = with_numbered_columns(frame)
    with spark_setting(spark, MAX_RECORDS, 65_536):
        assert add_padding_rows(numbered, frame) is not numbered
        frame.take(1)  # fills one partition
        assert largest_cached_partition_bytes(frame) is None
        frame.count()
        assert 9_000_000 < (largest_cached_partition_bytes(frame) or 0) < 9_100_000
        assert add_padding_rows(numbered, frame) is numbered
        longer = frame.selectExpr("id", "repeat(s, 100) as s")
        assert largest_cached_partition_bytes(longer) is None
        with publish(frame) as published, bs.connect(published) as dataset:
            assert pa.table(dataset.read_all()).equals(frame.toArrow())
    frame.unpersist()


def test_large_partitions_of_a_cached_frame_are_padded(spark: SparkSession) -> None:
    frame = spark.range(0, 7, 1, 1).selectExpr("id", "repeat('x', 10000000) as s").cache()
    assert frame.count() == 7
    with spark_setting(spark, MAX_RECORDS, 65_536):
        numbered = with_numbered_columns(frame)
        assert add_padding_rows(numbered, frame) is not numbered
        with publish(frame) as published, bs.connect(published) as dataset:
            assert max(batch.nbytes for batch in dataset) < MAX_BATCH_BYTES + 10_000_000
    frame.unpersist()


@pytest.mark.parametrize(
    ("name", "value", "is_unchecked"),
    [(MAX_RECORDS, 0, False), (MAX_RECORDS, 65_537, False), (MAX_BYTES, 1 << 20, False), (MAX_BYTES, 2**31 - 1, True)],
)
def test_settings_of_the_user_take_precedence(spark: SparkSession, name: str, value: int, is_unchecked: bool) -> None:
    with spark_setting(spark, name, value):
        assert (add_padding_rows(with_numbered_columns(spark.range(1))) is not None) == is_unchecked


def test_a_byte_limit_of_the_user_limits_published_batches(spark: SparkSession) -> None:
    frame = spark.range(0, 2000, 1, 1).selectExpr("id", "repeat('x', 100) as s")
    with (
        spark_setting(spark, MAX_RECORDS, 10_000),
        spark_setting(spark, MAX_BYTES, 20_000),
        publish(frame) as published,
        bs.connect(published) as dataset,
    ):
        assert max(batch.nbytes for batch in dataset) < 22_000


def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def frame_with_python_node(spark: SparkSession, source: str) -> DataFrame:
    """A frame whose plan has a Python node."""
    from pyspark.sql import functions as f

    frame = spark.range(3)
    mapped = frame.mapInArrow(lambda batches: batches, "id long")
    match source:
        case "mapInArrow":
            return mapped
        case "mapInPandas":
            return frame.mapInPandas(pass_on, "id long").groupBy("id").count()
        case "a function":
            return frame.select(f.udf(abs, "long")("id"))
        case "a subquery":
            return frame.where(f.col("id") > mapped.agg(f.max("id")).scalar())
        case "groups":
            return frame.groupBy("id").applyInArrow(lambda table: table, "id long")
        case "pairs of groups":
            groups = frame.groupBy("id")
            return groups.cogroup(groups).applyInArrow(lambda left, _: left, "id long")
        case "an empty cache":
            return mapped.cache()
        case "a cache and a function":
            cached = mapped.cache()
            cached.count()
            return cached.union(frame.mapInArrow(lambda batches: batches, "id long"))
    return spark.createDataFrame(mapped.rdd, "id long")


@pytest.mark.parametrize(
    "source",
    [
        "mapInArrow",
        "mapInPandas",
        "a function",
        "a subquery",
        "groups",
        "pairs of groups",
        "an empty cache",
        "a cache and a function",
        "an RDD",
    ],
)
def test_python_nodes_of_a_frame_are_counted(spark: SparkSession, source: str) -> None:
    frame = frame_with_python_node(spark, source)
    assert count_python_plan_nodes(frame) > 0
    frame.unpersist()
    assert count_python_plan_nodes(spark.range(3)) == 0


def test_jobs_with_other_python_nodes_keep_sparks_check(spark: SparkSession) -> None:
    from pyspark import TaskContext

    def limit(_batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        yield pa.record_batch({"limit": [context.getLocalProperty(MAX_BYTES)]})

    schema = "limit string"
    frame = spark.range(3)
    with spark_setting(spark, MAX_RECORDS, 10_000):
        assert {row.limit for row in plan_map_in_arrow(frame, limit, schema).collect()} == {"2147483647"}
        mapped = frame.mapInArrow(lambda batches: batches, "id long")
        assert {row.limit for row in plan_map_in_arrow(mapped, limit, schema).collect()} == {None}


@pytest.mark.parametrize("is_adaptive", [True, False])
def test_python_nodes_behind_a_filled_cache_do_not_count(spark: SparkSession, is_adaptive: bool) -> None:
    frame = spark.range(3).mapInArrow(lambda batches: batches, "id long")
    frame = (frame.groupBy("id").count() if is_adaptive else frame).cache()
    assert count_python_plan_nodes(frame.selectExpr("id + 1 as x")) == 1
    frame.count()
    assert count_python_plan_nodes(frame.selectExpr("id + 2 as x")) == 0
    assert count_python_plan_nodes(frame.selectExpr("id + 2 as x").union(frame.select("id"))) == 0
    frame.unpersist()


def test_the_check_is_skipped_in_the_current_thread_alone(spark: SparkSession) -> None:
    observations: dict[str, Any] = {}

    def look() -> None:
        observations["thread"] = spark.sparkContext.getLocalProperty(MAX_BYTES)
        observations["settings"] = spark.conf.getAll.get(MAX_BYTES)

    with local_property(spark, MAX_BYTES_SETTING, UNLIMITED_BYTES):
        assert spark.sparkContext.getLocalProperty(MAX_BYTES) == "2147483647"
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert observations == {"thread": None, "settings": None}
    assert spark.sparkContext.getLocalProperty(MAX_BYTES) is None


def test_publishing_does_not_change_settings_of_other_threads(spark: SparkSession) -> None:
    is_over = threading.Event()
    settings: list[dict[str, str]] = []

    def watch() -> None:
        while not is_over.is_set():
            settings.append(spark.conf.getAll)

    before = spark.conf.getAll
    thread = threading.Thread(target=watch)
    thread.start()
    frame = spark.range(0, 2, 1, 2).selectExpr("id", "java_method('java.lang.Thread', 'sleep', 300L) as s")
    try:
        with publish(frame) as published:
            assert published.num_rows == 2
    finally:
        is_over.set()
        thread.join()
    assert len(settings) > 1
    assert all(observations == before for observations in settings)


def test_a_session_of_bowstring_leaves_the_byte_limit_to_spark(spark: SparkSession) -> None:
    assert MAX_BYTES not in spark.conf.getAll
