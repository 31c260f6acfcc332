"""Published partitions that are lost with their host agent, and computed again."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bowstring as bs
from bowstring.errors import ConnectionLostError
from bowstring.spark import publish
from tests.spark.test_publish import agent_datasets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark")

Task = Callable[..., Iterator[Any]]


def kill_agent_after(partition: int, times: int, folder: Path) -> Task:
    """The work of a task that publishes; after `partition` was put, the host agent is killed, in the first attempts.

    Each task leaves an empty file in the folder. The function travels to the workers by value.
    """

    def write_and_kill(dataset: str, agent_key: Any, *arguments: Any) -> Iterator[Any]:
        import time

        from pyspark import TaskContext

        from bowstring.sharing.agent_client import AgentClient
        from bowstring.spark.partition_writer import write_partition

        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        while number == partition + 3 and not list(folder.glob(f"{partition}-*")):
            time.sleep(0.01)  # one that is put into the next agent
        yield from write_partition(dataset, agent_key, *arguments)
        if number == partition and len(list(folder.glob(f"{number}-*"))) < times:
            with AgentClient.open(agent_key) as agent:
                os.kill(agent.status()["pid"], 9)
        (folder / f"{number}-{context.taskAttemptId()}").touch()

    return write_and_kill


def tasks_per_partition(folder: Path) -> Counter[int]:
    return Counter(int(path.name.partition("-")[0]) for path in folder.iterdir())


def frames(spark: SparkSession) -> dict[str, DataFrame]:
    numbers = spark.range(0, 3000, 1, 5).selectExpr("id", "repeat('x', int(id % 90)) AS s", "id % 17 AS k")
    cached = numbers.repartition(5).cache()
    cached.count()
    return {
        "narrow": spark.range(0, 3000, 1, 5),
        "padded": numbers,
        "Python": numbers.mapInArrow(lambda batches: batches, numbers.schema),
        "grouped": numbers.groupBy("k").agg({"id": "sum", "s": "max"}).repartition(5, "k"),
        "sorted": numbers.repartitionByRange(5, "k").sortWithinPartitions("s"),
        "round robin": numbers.repartition(5),
        "random": numbers.selectExpr("*", "rand() AS r").where("r < 0.7").repartition(5, "id"),
        "joined": numbers.repartition(5, "id").join(numbers.selectExpr("id * 2 AS id", "k AS k2"), "id"),
        "cached": cached,
        "uncached columns": cached.selectExpr("s", "id"),
    }


def published_rows(published: Any) -> list[tuple[Any, ...]]:
    return sorted(zip(*bs.connect(published).read_all().to_pydict().values(), strict=True))


@pytest.mark.parametrize(
    "kind",
    [
        "narrow",
        "padded",
        "Python",
        "grouped",
        "sorted",
        "round robin",
        "random",
        "joined",
        "cached",
        "uncached columns",
    ],
)
def test_each_row_is_published_once_although_the_agent_was_killed_during_the_job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    frame = frames(spark)[kind]
    expected = sorted(tuple(row) for row in frame.collect())
    monkeypatch.setattr("bowstring.spark.partition_job.write_partition", kill_agent_after(1, 1, tmp_path))
    with publish(frame) as published:
        assert published_rows(published) == expected
        assert published.num_rows == len(expected)
        num_parts = sum(part.num_rows > 0 for part in published.parts)
        assert agent_datasets(published)[published.name]["partitions"] == num_parts
    tasks = tasks_per_partition(tmp_path)
    assert tasks[1] == 2, "the agent was killed before the partition was lost"
    if len(tasks) == 5:
        assert tasks[4] == 1, "only lost partitions are computed again"


def test_all_partitions_of_an_indeterminate_frame_are_computed_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bowstring.spark.partition_job.write_partition", kill_agent_after(1, 1, tmp_path))
    spark.conf.set("spark.sql.execution.sortBeforeRepartition", "false")
    frame = spark.range(0, 3000, 1, 5).repartition(3, "id").selectExpr("id + 1 AS id").repartition(5)
    try:
        with publish(frame) as published:
            assert published_rows(published) == [(number + 1,) for number in range(3000)]
    finally:
        spark.conf.unset("spark.sql.execution.sortBeforeRepartition")
    assert tasks_per_partition(tmp_path) == Counter(dict.fromkeys(range(5), 2))


def test_partitions_that_are_lost_in_each_attempt_are_an_error_after_as_many_as_spark_makes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bowstring.spark.partition_job.write_partition", kill_agent_after(1, 100, tmp_path))
    with pytest.raises(ConnectionLostError, match=r"with the partitions \[.*1.*\] in each of 4 consecutive attempts"):
        publish(spark.range(0, 300, 1, 3))
    assert tasks_per_partition(tmp_path)[1] == 4
