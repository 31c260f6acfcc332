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
from bowstring.spark.runtime import arrow_batch_job
from bowstring.spark.runtime.arrow_batch_job import MAX_BATCH_BYTES
from bowstring.spark.versions import BATCH_BYTE_LIMIT, SPARK_VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
from py4j.clientserver import ClientServerConnection  # noqa: E402

JOB = Path(__file__).with_name("wide_rows_job.py")
MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
MAX_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
WIDE = "if(id % 7 = 3, null, repeat('é', cast(id * id % 5000 as int)))"


@contextmanager
def spark_setting(spark: SparkSession, name: str, value: int | str) -> Iterator[None]:
    before = spark.conf.get(name, None)
    spark.conf.set(name, str(value))
    try:
        yield
    finally:
        spark.conf.unset(name) if before is None else spark.conf.set(name, before)


def with_numbered_columns(frame: DataFrame) -> DataFrame:
    return frame.toDF(*map(str, range(len(frame.columns))))


@pytest.mark.thorough
@pytest.mark.spark
def test_no_wide_rows_exhaust_the_memory_of_the_jvm(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, str(JOB), str(tmp_path / "files")], check=False, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr[-4000:]
    reports = [json.loads(line) for line in process.stdout.splitlines()]
    assert [report["rows"] for report in reports] == [1600, 1600, 154, 5000, 15_000, 5000, 1500, 100_000, 1600]
    for report in reports:
        assert report["max_bytes"] < 1.05 * MAX_BATCH_BYTES + report["row_bytes"], report


def test_batches_of_wide_strings_are_small(spark: SparkSession) -> None:
    frame = spark.range(0, 200, 1, 1).selectExpr("id", "if(id % 2 = 0, repeat('x', 1000000), null) as s")
    with spark_setting(spark, MAX_RECORDS, 10_000), publish(frame) as published, bs.connect(published) as dataset:
        sizes = [(batch.num_rows, batch.nbytes) for batch in dataset]
    assert sum(rows for rows, _ in sizes) == 200
    assert max(nbytes for _, nbytes in sizes) < MAX_BATCH_BYTES + 1_100_000
    assert len(sizes) == 2


def test_batches_of_narrow_rows_are_as_long_as_the_row_limit_allows(spark: SparkSession) -> None:
    frame = spark.range(0, 70_000, 1, 1).selectExpr("id", "concat('name ', id) as s", "id * 0.5D as x")
    with spark_setting(spark, MAX_RECORDS, 65_536), publish(frame) as published, bs.connect(published) as dataset:
        assert [batch.num_rows for batch in dataset] == [65_536, 4464]


@pytest.mark.parametrize("limit", [20_000, "20000b", "20k"])
def test_a_byte_limit_of_the_user_limits_published_batches(spark: SparkSession, limit: int | str) -> None:
    BATCH_BYTE_LIMIT.check()
    frame = spark.range(0, 2000, 1, 1).selectExpr("id", "repeat('x', 100) as s")
    with (
        spark_setting(spark, MAX_RECORDS, 10_000),
        spark_setting(spark, MAX_BYTES, limit),
        publish(frame) as published,
        bs.connect(published) as dataset,
    ):
        assert max(batch.nbytes for batch in dataset) < 22_000


def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


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


def test_a_session_of_bowstring_changes_only_the_high_byte_limit_of_spark_4_0(spark: SparkSession) -> None:
    expected = str(MAX_BATCH_BYTES) if SPARK_VERSION == (4, 0) else None
    assert spark.conf.getAll.get(MAX_BYTES) == expected


@pytest.mark.parametrize(
    "converter_class", [arrow_batch_job._CONVERTER_CLASS, "org.example.Missing", "java.lang.Object"]
)
def test_columns_of_any_name_arrive_with_and_without_sparks_converter(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, converter_class: str
) -> None:
    """The class may be missing, or lack the method; every Spark 4 has both."""
    BATCH_BYTE_LIMIT.check()
    has_converter = converter_class == arrow_batch_job._CONVERTER_CLASS
    monkeypatch.setattr(arrow_batch_job, "_CONVERTER_CLASS", converter_class)
    assert (arrow_batch_job._create_batch_rdd(spark.range(1)) is not None) == has_converter
    frame = spark.range(0, 4000, 1, 3).selectExpr(
        "id", f"{WIDE} as a", "array(id) as `b.c`", "-id as a", "binary('x') as d"
    )
    with publish(frame) as published, bs.connect(published) as dataset:
        table = dataset.read_all()
        assert max(batch.num_rows for batch in dataset) <= 100  # the session's maxRecordsPerBatch
    assert table.schema == published.schema
    assert pa.table(table).equals(frame.toArrow())


def test_a_frame_that_was_cached_after_its_first_use_is_read_from_the_cache(spark: SparkSession) -> None:
    frame = spark.range(10).selectExpr("uuid() as u").repartition(2)
    frame.count()
    frame.cache()
    rows = {row.u for row in frame.select("*").collect()}
    with publish(frame) as published, bs.connect(published) as dataset:
        assert set(dataset.read_all().column("u").to_pylist()) == rows
    frame.unpersist()


def test_java_classes_are_looked_up_once_in_a_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = spark.range(10)
    publish(frame).close()
    commands: list[str] = []
    send = ClientServerConnection.send_command

    def record(connection: ClientServerConnection, command: str) -> object:
        commands.append(command)
        return send(connection, command)

    monkeypatch.setattr(ClientServerConnection, "send_command", record)
    publish(frame).close()
    assert commands
    assert [command for command in commands if command.startswith(("r\nu\njava", "r\nu\norg", "r\nu\nscala"))] == []


@pytest.mark.parametrize(
    ("max_messages", "spare_bytes", "max_records", "num_rows"),
    [
        (3, 0, 1000, [30, 30, 10]),
        (3, -1, 1000, [20, 20, 20, 10]),
        (1, -1, 1000, [10] * 7),
        (7, 0, 30, [30, 30, 10]),
        (7, 0, 29, [20, 20, 20, 10]),
        (7, 0, 9, [10] * 7),
        (7, 0, 0, [70]),
        (7, 0, -1, [70]),
    ],
)
def test_small_batches_are_joined_up_to_the_limits_of_bytes_and_rows(
    monkeypatch: pytest.MonkeyPatch, max_messages: int, spare_bytes: int, max_records: int, num_rows: list[int]
) -> None:
    schema = bs.schema({"n": "int64"})
    messages = [
        pa.record_batch({"n": range(10 * index, 10 * index + 10)}, pa.schema(schema)).serialize() for index in range(7)
    ]
    monkeypatch.setattr(arrow_batch_job, "MAX_BATCH_BYTES", max_messages * messages[0].size + spare_bytes)
    batches = list(arrow_batch_job._join_small_batches(schema, max_records, map(bytes, messages)))
    assert [batch.num_rows for batch in batches] == num_rows
    assert [number for batch in batches for number in batch["n"].to_pylist()] == list(range(70))
