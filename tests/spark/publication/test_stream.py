"""`publish_stream`: the newest batches of a query can be read by their name, and followed."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import bowstring as bs
from bowstring.errors import InvalidArgumentError
from bowstring.sharing import PublishedSummary
from bowstring.spark import publish_stream
from bowstring.spark.versions import READ_LIMITS
from tests.polling import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# Older versions do not limit the files of a batch by format("arrow").
FORMAT = "arrow" if READ_LIMITS.is_available else "parquet"


def add_rows(folder: Path, *batches: range) -> None:
    """Add a file for each range of rows."""
    source = folder / "source"
    source.mkdir(exist_ok=True)
    for ids in batches:
        table = bs.table({"id": bs.array(list(ids), "int64")})
        bs.write_table(table, source / f".{ids.start:06d}.{FORMAT}")
        (source / f".{ids.start:06d}.{FORMAT}").rename(source / f"{ids.start:06d}.{FORMAT}")


def stream_writer(spark: SparkSession, folder: Path) -> Any:
    """A query that processes one file in each batch."""
    stream = spark.readStream.format(FORMAT).schema("id long").option("maxFilesPerTrigger", 1)
    writer = stream.load(str(folder / "source")).writeStream
    return writer.option("checkpointLocation", str(folder / "checkpoint"))


def list_batches(name: str) -> list[PublishedSummary]:
    return [summary for summary in bs.published() if summary.name == name]


@pytest.fixture
def name() -> Iterator[str]:
    name = f"stream-{secrets.token_hex(4)}"
    yield name
    for summary in list_batches(name):
        bs.unpublish(summary.id)


def read_rows(follower: Any) -> list[int]:
    return [value for batch in follower for value in batch.column(0).to_pylist()]


def test_the_newest_batches_stay_and_a_restarted_query_and_consumer_continue(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    def run() -> None:
        writer = stream_writer(spark, tmp_path).trigger(availableNow=True)
        assert publish_stream(writer, name, keep=1, lifetime="detached").awaitTermination(200)

    add_rows(tmp_path, range(10), range(10, 20))
    run()
    assert len(list_batches(name)) == 1
    assert bs.open_published(name).read_all()["id"].to_pylist() == list(range(10, 20))
    follower = bs.follow_published(name, timeout_s=0.01)
    assert read_rows(follower) == list(range(10, 20))
    add_rows(tmp_path, range(20, 25))
    run()
    before = list_batches(name)
    assert len(before) == 1
    follower = bs.follow_published(name, follower.state_dict(), timeout_s=0.01)
    assert read_rows(follower) == list(range(20, 25))
    # As if the driver had died after it had published and before Spark's commit.
    for path in (tmp_path / "checkpoint" / "commits").glob("*2*"):
        path.unlink()
    run()
    assert {summary.id for summary in list_batches(name)} == {summary.id for summary in before}
    assert read_rows(follower) == []


def test_the_memory_is_freed_when_the_query_is_stopped(spark: SparkSession, tmp_path: Path, name: str) -> None:
    add_rows(tmp_path, range(3), range(3, 6))
    query = publish_stream(stream_writer(spark, tmp_path), name)
    rows = iter(bs.follow_published(name))
    assert [next(rows).column(0).to_pylist() for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]
    query.stop()
    assert wait_until(lambda: not list_batches(name))
    # A batch that was published, but not committed when the query was stopped, comes again.
    next_query = publish_stream(stream_writer(spark, tmp_path), name)
    add_rows(tmp_path, range(6, 9))
    assert next(rows).column(0).to_pylist() == [6, 7, 8]
    next_query.stop()
    assert wait_until(lambda: not list_batches(name))


def test_a_failed_query_frees_its_batches_and_options_are_checked(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    def fail(batches: Any) -> Any:
        for batch in batches:
            if 3 in batch.column(0).to_pylist():
                raise RuntimeError("as planned")
            yield batch

    def with_failure(frame: DataFrame) -> Any:
        return frame.mapInArrow(fail, "id long").writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))

    add_rows(tmp_path, range(3), range(3, 6))
    stream = spark.readStream.format(FORMAT).schema("id long").option("maxFilesPerTrigger", 1)
    query = publish_stream(with_failure(stream.load(str(tmp_path / "source"))), name)
    with pytest.raises(Exception, match="as planned"):
        query.awaitTermination(200)
    assert wait_until(lambda: not list_batches(name))
    writer = stream_writer(spark, tmp_path)
    for options in ({"keep": 0}, {"ttl_s": 0}, {"lifetime": "long"}):
        with pytest.raises(InvalidArgumentError):
            publish_stream(writer, name, **options)
    with pytest.raises(InvalidArgumentError, match="name"):
        publish_stream(writer, "a b")
    with pytest.raises(InvalidArgumentError, match="classic"):
        publish_stream(object(), name)  # type: ignore[arg-type]
