"""``writeStream.format("arrow")``: each batch of a stream is committed once, whatever is repeated."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StructType

from bowstring.datasets.manifest import (
    STAGING_FOLDER,
    Manifest,
    ManifestEntry,
    QueryBatch,
    data_file_name,
    read_manifest,
    try_create_manifest,
)
from bowstring.errors import InvalidArgumentError
from bowstring.sharing.processes import ProcessIdentity
from bowstring.spark.folder import staging
from bowstring.spark.folder.job import FolderJob
from bowstring.spark.options import WriteOptions
from pyspark_bowstring import DefaultSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def numbers(spark: SparkSession, rows: int = 10) -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load().select("value")


def run_batches(frame: DataFrame, folder: Path, checkpoint: Path, num_batches: int, **options: Any) -> StreamingQuery:
    """Run a query until it has committed so many batches in all, and stop it."""
    writer = frame.writeStream.format("arrow").option("checkpointLocation", str(checkpoint)).options(**options)
    query = writer.outputMode("append").start(str(folder))
    while not (checkpoint / "commits" / str(num_batches - 1)).exists():
        if not query.isActive:
            query.awaitTermination(1)  # raises the query's error
        time.sleep(0.05)
    query.stop()
    return query


def read_values(spark: SparkSession, folder: Path) -> list[int]:
    return sorted(row.value for row in spark.read.format("arrow").load(str(folder)).collect())


def run_last_batch(frame: DataFrame, folder: Path, checkpoint: Path, **options: Any) -> None:
    """Run one more batch, whose commit removes what a batch left that ran when the query was stopped."""
    writer = frame.writeStream.format("arrow").option("checkpointLocation", str(checkpoint)).options(**options)
    writer.outputMode("append").trigger(availableNow=True).start(str(folder)).awaitTermination()


def test_batches_are_appended_and_seen_at_once_by_batch_readers(spark: SparkSession, tmp_path: Path) -> None:
    run_batches(numbers(spark), tmp_path / "data", tmp_path / "checkpoint", 3)
    values = read_values(spark, tmp_path / "data")
    assert values == list(range(len(values)))
    assert len(values) >= 30
    run_last_batch(numbers(spark), tmp_path / "data", tmp_path / "checkpoint")
    assert len(read_values(spark, tmp_path / "data")) > len(values)
    assert not (tmp_path / "data" / "_staging").exists()


def test_a_batch_that_was_committed_before_the_driver_died_is_not_written_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = numbers(spark, 300).selectExpr("value", "value % 3 AS rest")
    options = {"partitionBy": "rest", "compression": "zstd"}
    query = run_batches(frame, tmp_path / "data", tmp_path / "checkpoint", 3, **options)
    before = read_values(spark, tmp_path / "data")
    last = max(int(path.name) for path in (tmp_path / "checkpoint" / "commits").iterdir() if path.name.isdecimal())
    manifest = read_manifest(tmp_path / "data")
    assert manifest is not None
    assert manifest.has_batch(QueryBatch(query.id, last))
    # As if the driver had died after our commit and before Spark's.
    for path in (tmp_path / "checkpoint" / "commits").glob(f"*{last}*"):
        path.unlink()
    run_batches(frame, tmp_path / "data", tmp_path / "checkpoint", last + 2, **options)
    rows = sorted(tuple(row) for row in spark.read.format("arrow").load(str(tmp_path / "data")).collect())
    assert rows == [(value, value % 3) for value in range(len(rows))]
    assert len(rows) > len(before)
    assert {path.name for path in (tmp_path / "data").glob("rest=*")} == {"rest=0", "rest=1", "rest=2"}
    for path in (tmp_path / "data").rglob("*.arrow"):
        assert b"\x28\xb5\x2f\xfd" in path.read_bytes(), "a frame of Zstandard"
    run_last_batch(frame, tmp_path / "data", tmp_path / "checkpoint", **options)
    assert not (tmp_path / "data" / "_staging").exists()


def test_another_query_with_the_same_batch_numbers_is_another_source_of_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    run_batches(numbers(spark), tmp_path / "data", tmp_path / "first", 1)
    first = read_values(spark, tmp_path / "data")
    run_batches(numbers(spark), tmp_path / "data", tmp_path / "second", 1)
    assert len(read_values(spark, tmp_path / "data")) >= len(first) + 10


def test_complete_mode_replaces_the_rows_of_the_batch_before(spark: SparkSession, tmp_path: Path) -> None:
    counts = numbers(spark).selectExpr("value % 3 AS rest").groupBy("rest").count()
    query = (
        counts.writeStream.format("arrow")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .outputMode("complete")
        .start(str(tmp_path / "data"))
    )
    while not (tmp_path / "checkpoint" / "commits" / "2").exists():
        time.sleep(0.05)
    query.stop()
    rows = spark.read.format("arrow").load(str(tmp_path / "data")).collect()
    assert sorted(row.rest for row in rows) == [0, 1, 2]
    manifest = read_manifest(tmp_path / "data")
    assert manifest is not None
    assert len(list((tmp_path / "data").glob("part-*.arrow"))) == len(manifest.entries)


@pytest.mark.thorough
def test_a_failed_batch_leaves_no_rows_and_its_files_go_with_the_next_one(spark: SparkSession, tmp_path: Path) -> None:
    flag = tmp_path / "fail"
    flag.touch()

    def fail_once(batches: Any) -> Any:
        for batch in batches:
            yield batch
            if os.path.exists(str(flag)) and 7 in batch.column(0).to_pylist():
                raise RuntimeError("as planned")

    frame = numbers(spark).repartition(2, "value").mapInArrow(fail_once, "value long")
    with pytest.raises(Exception, match="as planned"):
        run_batches(frame, tmp_path / "data", tmp_path / "checkpoint", 1)
    assert read_manifest(tmp_path / "data") is None
    flag.unlink()
    run_batches(frame, tmp_path / "data", tmp_path / "checkpoint", 2)
    values = read_values(spark, tmp_path / "data")
    assert values == list(range(len(values)))
    run_last_batch(frame, tmp_path / "data", tmp_path / "checkpoint")
    assert not (tmp_path / "data" / "_staging").exists()


def test_no_job_removes_the_files_of_a_commit_that_outlives_its_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["true"]) as process:
        driver = ProcessIdentity.from_pid(process.pid)
    job = FolderJob(tmp_path, StructType().add("x", LongType()), "append", WriteOptions(), base=0)
    staging.create_staging_folder(tmp_path, job.id, "query", driver)
    entry = ManifestEntry(data_file_name(job.id, 0, 1), 4, 1, 1)
    (tmp_path / STAGING_FOLDER / job.id / entry.name).write_bytes(b"data")

    def start_another_driver(folder: Path, manifest: Manifest) -> bool:
        staging.discard_orphaned_jobs(folder)
        return try_create_manifest(folder, manifest)

    monkeypatch.setattr("bowstring.spark.folder.job.try_create_manifest", start_another_driver)
    job.commit([entry], QueryBatch("query", 0))
    assert (tmp_path / entry.name).read_bytes() == b"data"
    assert not (tmp_path / "_staging").exists()


def test_other_columns_than_those_of_the_folder_end_the_query(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.format("arrow").mode("append").save(str(tmp_path / "data"))
    with pytest.raises(Exception, match="cannot be appended to: column 0 is id bigint there, but value bigint"):
        run_batches(numbers(spark), tmp_path / "data", tmp_path / "checkpoint", 1)
    assert spark.read.format("arrow").load(str(tmp_path / "data")).count() == 3


@pytest.mark.parametrize("options", [{"compression": "zip"}, {"path": "dbfs:/key"}, {}])
def test_wrong_options_are_an_error_before_the_first_batch(options: dict[str, str]) -> None:
    with pytest.raises(InvalidArgumentError):
        DefaultSource(options).streamWriter(StructType().add("a", LongType()), False)
