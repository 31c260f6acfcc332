"""Task failures lose and duplicate no rows, and raise errors of Bowstring."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bowstring.datasets.manifest import read_manifest
from bowstring.spark import register

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Functions that run in Spark's workers are made inside others, so that they travel by value.


def fail_first_attempts(attempts: int, partition: int = 1) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Yields batches, but raises in the middle of `partition` in the first `attempts` attempts."""

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for index, batch in enumerate(batches):
            if index == 3 and context.partitionId() == partition and context.attemptNumber() < attempts:
                raise RuntimeError(f"injected into attempt {context.attemptNumber()}")
            yield batch

    return pass_on


def frame_of_failing_task(spark: SparkSession, attempts: int) -> DataFrame:
    return spark.range(0, 2000, 1, 3).mapInArrow(fail_first_attempts(attempts), "id long")


def write(frame: DataFrame, path: Path, mode: str = "append", **options: str) -> None:
    register(frame.sparkSession)  # some of these tests write in threads
    frame.write.format("arrow").mode(mode).options(**options).save(str(path))


def read_ids(spark: SparkSession, path: Path) -> list[int]:
    return sorted(row[0] for row in spark.read.format("arrow").load(str(path)).collect())


def error_message(action: Callable[[], object]) -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def data_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("_"))


@pytest.mark.thorough
def test_failed_attempts_leave_no_rows_and_no_files(spark: SparkSession, tmp_path: Path) -> None:
    write(frame_of_failing_task(spark, attempts=2), tmp_path)
    assert read_ids(spark, tmp_path) == list(range(2000))
    assert len(data_files(tmp_path)) == 3
    assert not (tmp_path / "_staging").exists()


@pytest.mark.thorough
def test_failed_attempts_leave_no_rows_and_no_files_with_any_option(spark: SparkSession, tmp_path: Path) -> None:
    frame = frame_of_failing_task(spark, attempts=2).selectExpr("id", "id % 5 AS k", "string(id % 7) AS text")
    options = {"partitionBy": "k", "sortBy": "text", "dictionaryColumns": "text", "compression": "zstd"}
    write(frame, tmp_path, **options, maxRecordsPerFile="60", maxRecordsPerBatch="25")
    assert read_ids(spark, tmp_path) == list(range(2000))
    paths = [path for path in tmp_path.rglob("*.arrow") if path.is_file()]
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    assert sorted(paths) == sorted(tmp_path / entry.name for entry in manifest.entries)
    assert not (tmp_path / "_staging").exists()
    message = error_message(
        lambda: write(
            frame_of_failing_task(spark, 9).selectExpr("id", "id % 5 AS k", "'' AS text"),
            tmp_path,
            "overwrite",
            partitionBy="k",
            partitionOverwriteMode="dynamic",
        )
    )
    assert "injected into attempt" in message
    assert sorted(path for path in tmp_path.rglob("*.arrow") if path.is_file()) == sorted(paths)


def test_a_job_that_fails_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.range(5), tmp_path)
    before = data_files(tmp_path)
    for mode in ("append", "overwrite"):
        message = error_message(lambda mode=mode: write(frame_of_failing_task(spark, attempts=9), tmp_path, mode))  # type: ignore[misc]
        assert "injected into attempt" in message
        assert data_files(tmp_path) == before
        assert read_ids(spark, tmp_path) == list(range(5))
        assert not (tmp_path / "_staging").exists()


def test_readers_see_the_old_data_until_an_overwrite_commits(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.range(5), tmp_path / "data")
    started, gate = tmp_path / "started", tmp_path / "gate"

    def waits(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        started.touch()
        yield from batches
        deadline_s = time.monotonic() + 60
        while not gate.exists() and time.monotonic() < deadline_s:
            time.sleep(0.05)

    slow = spark.range(100, 103, 1, 1).mapInArrow(waits, "id long")
    writer = threading.Thread(target=write, args=(slow, tmp_path / "data", "overwrite"))
    writer.start()
    try:
        while not started.exists():
            writer.join(0.05)
            assert writer.is_alive()
        assert read_ids(spark, tmp_path / "data") == list(range(5))
    finally:
        gate.touch()
        writer.join(60)
    assert read_ids(spark, tmp_path / "data") == [100, 101, 102]


def test_concurrent_appends_are_all_committed(spark: SparkSession, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: write(spark.range(n * 10, n * 10 + 10, 1, 2), tmp_path), range(4)))
    assert read_ids(spark, tmp_path) == list(range(40))


def test_a_missing_or_truncated_file_of_the_manifest_is_named(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.range(0, 20, 1, 2), tmp_path)
    first, second = data_files(tmp_path)
    size = (tmp_path / second).stat().st_size
    os.truncate(tmp_path / second, size - 8)
    message = error_message(lambda: read_ids(spark, tmp_path))
    assert f"{tmp_path / second}: expected {size} bytes, as in manifest 1, found {size - 8}" in message
    (tmp_path / first).unlink()
    assert f"MissingFileError: {tmp_path / first}: is missing, though manifest 1" in error_message(
        lambda: read_ids(spark, tmp_path)
    )


def test_a_file_that_is_not_arrow_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_bytes(b"PAR1" + bytes(100))
    message = error_message(lambda: read_ids(spark, tmp_path))
    assert "bowstring.errors." in message
    assert str(tmp_path / "a.arrow") in message


def test_a_value_that_does_not_fit_is_named_with_file_batch_and_column(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema({"t": pa.timestamp("ns")})
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for value in (1000, 1001):
            writer.write_batch(pa.record_batch([pa.array([value], schema.field("t").type)], schema=schema))
    reader = spark.read.format("arrow")
    message = error_message(lambda: reader.load(str(tmp_path)).collect())
    assert f"InvalidDataError: {tmp_path / 'a.arrow'}, record batch 1, column t: a value of timestamp[ns]" in message
    rounded = reader.option("truncate", "true").load(str(tmp_path)).selectExpr("unix_micros(cast(t as timestamp_ltz))")
    assert len(rounded.collect()) == 2


UNREADABLE_PATHS = {
    "no such path": ("id long", "/no/such/path", "MissingFileError: /no/such/path: there is no such file or folder"),
    "another file system": (
        None,
        "dbfs:/key",
        "InvalidArgumentError: dbfs:/key: only URLs such as s3://bucket/folder, and paths of a file system",
    ),
    "nothing there": (None, "{}", "NotFoundError: {}: found no Arrow files"),
}


@pytest.mark.parametrize(("schema", "path", "expected"), UNREADABLE_PATHS.values(), ids=UNREADABLE_PATHS.keys())
def test_a_path_that_cannot_be_read_is_named(
    spark: SparkSession, tmp_path: Path, schema: str | None, path: str, expected: str
) -> None:
    reader = spark.read.format("arrow")
    reader = reader.schema(schema) if schema else reader
    message = error_message(lambda: reader.load(path.replace("{}", str(tmp_path))).collect())
    assert expected.replace("{}", str(tmp_path)) in message


def test_an_append_with_another_schema_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.range(3), tmp_path)
    message = error_message(lambda: write(spark.range(3).selectExpr("cast(id as int) as id"), tmp_path))
    assert "cannot be appended to: column 0 is id bigint there, but id int in the DataFrame" in message
    assert read_ids(spark, tmp_path) == [0, 1, 2]


def test_a_column_that_spark_does_not_send_is_named_before_a_task_runs(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("select array(interval 1 year) as terms, interval 1 year as term")
    message = error_message(lambda: write(frame, tmp_path / "data"))
    assert "UnsupportedTypeError: column term: PySpark passes interval year to Python functions only" in message
    assert not (tmp_path / "data").exists()


def test_duplicate_column_names_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    message = error_message(lambda: write(spark.range(1).selectExpr("id", "id"), tmp_path / "data"))
    assert "'id'" in message or "`id`" in message
    assert not (tmp_path / "data").exists()


def test_a_file_in_place_of_the_folder_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert f"InvalidArgumentError: {tmp_path / 'file'}: is a file" in error_message(
        lambda: write(spark.range(1), tmp_path / "file")
    )


def test_the_error_for_sparks_default_save_mode_names_the_supported_modes(spark: SparkSession, tmp_path: Path) -> None:
    message = error_message(lambda: spark.range(1).write.format("arrow").save(str(tmp_path / "data")))
    assert 'use either the "Append" or "Overwrite" mode' in message


def test_requesting_a_session_with_another_master_is_an_error(spark: SparkSession) -> None:
    from bowstring.errors import InvalidArgumentError
    from bowstring.spark import session

    assert session("local[2,4]", {"spark.sql.shuffle.partitions": 2}) is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"
    with pytest.raises(
        InvalidArgumentError, match=r"a Spark session with master local\[2,4\] runs in this process already"
    ):
        session("local[7]")


@pytest.mark.thorough
def test_a_failed_first_append_leaves_no_folder(spark: SparkSession, tmp_path: Path) -> None:
    error_message(lambda: write(frame_of_failing_task(spark, attempts=9), tmp_path / "new" / "deep"))
    assert list(tmp_path.iterdir()) == []
