"""Publishing where memory is limited: partitions continue in files, or the job ends with an error."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bowstring as bs
from bowstring.errors import InvalidArgumentError
from bowstring.sharing.agent.client import AgentKey
from bowstring.spark import PublishedFrame, publish
from tests.polling import wait_until
from tests.sharing.python_process import run_python
from tests.spark.folder.test_faults import fail_first_attempts
from tests.spark.publication.test_publish import agent_of
from tests.thorough import thorough

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark")

MB = 1_000_000


def wide_frame(spark: SparkSession, megabytes: int, partitions: int) -> DataFrame:
    """Batches of 100 rows of 10 kB."""
    return spark.range(0, megabytes * 100, 1, partitions).selectExpr("id", "repeat('x', 9990) as text")


def read_memory_status(published: PublishedFrame) -> dict[str, int]:
    with agent_of(published) as agent:
        memory: dict[str, int] = agent.status()["memory"]
        return memory


def sum_ids(published: PublishedFrame) -> int:
    code = "import bowstring as bs; send(sum(bs.connect(published).read_all().column('id').to_pylist()))"
    total: int = run_python(code, published=published)
    return total


@pytest.mark.parametrize("limit", [0, "15m", *thorough(25 * MB, "1g")])
def test_partitions_beyond_the_limit_are_written_to_files(spark: SparkSession, limit: int | str) -> None:
    with publish(spark.range(1)) as other:
        before = read_memory_status(other)["held_bytes"]
        limit_bytes = {"15m": 15 << 20, "1g": 1 << 30}.get(str(limit), limit)
        with publish(wide_frame(spark, 40, 4), memory_limit=limit) as published:
            memory = read_memory_status(published)
            assert memory["reserved_bytes"] == 0
            assert memory["held_bytes"] <= max(int(limit_bytes), before)
            assert abs(memory["held_bytes"] - before + memory["spilled_bytes"] - published.nbytes) < 1000
            if limit == "1g":
                assert memory["spilled_bytes"] == 0
            elif limit == 25 * MB:  # two partitions at a time can't both be refused
                assert memory["held_bytes"] > 9 * MB
            assert sum_ids(published) == sum(range(4000))
        assert wait_until(lambda: read_memory_status(other)["spilled_bytes"] == 0)


def test_the_files_are_in_sparks_local_folder_and_have_no_name(spark: SparkSession) -> None:
    with publish(wide_frame(spark, 4, 2), memory_limit=0) as published, agent_of(published) as agent:
        maps = Path(f"/proc/{agent.status()['pid']}/maps").read_text().splitlines()
        files = [line.split(maxsplit=5)[5] for line in maps if line.endswith("(deleted)") and "memfd" not in line]
        assert len(files) == 2
        for file in files:
            assert "blockmgr-" in file
            assert not Path(file.removesuffix(" (deleted)")).exists()


def test_small_partitions_in_files_are_packed(spark: SparkSession) -> None:
    with publish(spark.range(0, 2000, 1, 20), memory_limit="0") as published, agent_of(published) as agent:
        status = agent.status()["datasets"][published.id]
        assert (status["partitions"], status["regions"], status["memory_bytes"]) == (20, 1, 0)
        assert sum_ids(published) == sum(range(2000))


@pytest.mark.thorough
def test_failed_attempts_leave_no_reservation_and_no_file(spark: SparkSession) -> None:
    frame = wide_frame(spark, 8, 2).select("id", "text").mapInArrow(fail_first_attempts(2), "id long, text string")
    with publish(spark.range(1)) as other:
        with publish(frame, memory_limit=MB) as published:
            memory = read_memory_status(published)
            assert memory["reserved_bytes"] == 0
            assert memory["held_bytes"] < MB < memory["spilled_bytes"] < 9 * MB
            assert sum_ids(published) == sum(range(800))
        with pytest.raises(Exception, match="injected into attempt"):
            publish(wide_frame(spark, 8, 2).mapInArrow(fail_first_attempts(9), "id long, text string"), memory_limit=MB)
        assert wait_until(lambda: read_memory_status(other)["spilled_bytes"] == 0)
        assert read_memory_status(other)["reserved_bytes"] == 0


def test_a_killed_worker_returns_its_reservation(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_and_be_killed(
        dataset: str, key: AgentKey, schema: bs.Schema, vectors: Any, batches: Iterator[Any]
    ) -> Iterator[Any]:
        from pyspark import TaskContext

        from bowstring.spark.publication.partition_writer import write_partition

        def pass_on() -> Iterator[Any]:
            context = TaskContext.get()
            assert context is not None
            for index, batch in enumerate(batches):
                yield batch
                if index == 1 and context.partitionId() == 1 and context.attemptNumber() == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        yield from write_partition(dataset, key, schema, vectors, pass_on())

    monkeypatch.setattr("bowstring.spark.publication.partition_job.write_partition", write_and_be_killed)
    with publish(wide_frame(spark, 6, 2), memory_limit="100m") as published:
        memory = read_memory_status(published)
        assert (memory["reserved_bytes"], memory["spilled_bytes"]) == (0, 0)
        assert sum_ids(published) == sum(range(600))


@contextmanager
def spark_setting(spark: SparkSession, value: str) -> Iterator[None]:
    spark.conf.set("spark.bowstring.publish.memoryLimit", value)
    try:
        yield
    finally:
        spark.conf.unset("spark.bowstring.publish.memoryLimit")


def test_a_setting_of_the_session_is_the_default(spark: SparkSession) -> None:
    with spark_setting(spark, "1kb"), publish(wide_frame(spark, 2, 1)) as published:
        assert read_memory_status(published)["spilled_bytes"] > MB
        with publish(wide_frame(spark, 2, 1), memory_limit="1g") as other:
            assert read_memory_status(other)["held_bytes"] > MB


@pytest.mark.parametrize("limit", [-1, "", "4 parsecs", "4.5g", True, None, 1.5])
def test_an_invalid_limit_is_an_error(spark: SparkSession, limit: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="memory_limit: expected a number of bytes"):
        if limit is None:
            with spark_setting(spark, "much"):
                publish(spark.range(1))
        publish(spark.range(1), memory_limit=limit)


def test_the_data_is_read_in_place_from_a_file(spark: SparkSession) -> None:
    with publish(wide_frame(spark, 4, 1), memory_limit=0) as published:
        with bs.connect(published) as data:
            table = data.read_all()
        assert "blockmgr-" in Path("/proc/self/maps").read_text()
        assert table.num_rows == 400
