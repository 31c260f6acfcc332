"""Published partitions that are lost with their host agent, and computed again."""

from __future__ import annotations

import functools
import os
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bowstring as bs
from bowstring.errors import ClosedError, ConnectionLostError, InvalidArgumentError, NotFoundError
from bowstring.sharing.agent.publications import Lifetime
from bowstring.sharing.processes import start_ticks
from bowstring.spark import PublishedFrame, RemoteOptions, publish
from tests.polling import wait_until
from tests.spark.publication.test_publish import agent_datasets, agent_of
from tests.thorough import thorough

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

        from bowstring.sharing.agent.client import AgentClient
        from bowstring.spark.publication.partition_writer import write_partition

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


@functools.cache
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
        "padded",
        *thorough(
            "narrow", "Python", "grouped", "sorted", "round robin", "random", "joined", "cached", "uncached columns"
        ),
    ],
)
def test_each_row_is_published_once_although_the_agent_was_killed_during_the_job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    frame = frames(spark)[kind]
    expected = sorted(tuple(row) for row in frame.collect())
    monkeypatch.setattr("bowstring.spark.publication.partition_job.write_partition", kill_agent_after(1, 1, tmp_path))
    with publish(frame) as published:
        assert published_rows(published) == expected
        assert published.num_rows == len(expected)
        num_parts = sum(part.num_rows > 0 for part in published.parts)
        assert agent_datasets(published)[published.id]["partitions"] == num_parts
    tasks = tasks_per_partition(tmp_path)
    assert tasks[1] == 2, "the agent was killed before the partition was lost"
    if len(tasks) == 5:
        assert tasks[4] == 1, "only lost partitions are computed again"


def test_all_partitions_of_an_indeterminate_frame_are_computed_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bowstring.spark.publication.partition_job.write_partition", kill_agent_after(1, 1, tmp_path))
    spark.conf.set("spark.sql.execution.sortBeforeRepartition", "false")
    frame = spark.range(0, 3000, 1, 5).repartition(3, "id").selectExpr("id + 1 AS id").repartition(5)
    try:
        with publish(frame) as published:
            assert published_rows(published) == [(number + 1,) for number in range(3000)]
    finally:
        spark.conf.unset("spark.sql.execution.sortBeforeRepartition")
    assert tasks_per_partition(tmp_path) == Counter(dict.fromkeys(range(5), 2))


@pytest.mark.thorough
def test_partitions_that_are_lost_in_each_attempt_are_an_error_after_as_many_as_spark_makes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bowstring.spark.publication.partition_job.write_partition", kill_agent_after(1, 100, tmp_path))
    with pytest.raises(ConnectionLostError, match=r"with the partitions \[.*1.*\] in each of 4 consecutive attempts"):
        publish(spark.range(0, 300, 1, 3))
    assert tasks_per_partition(tmp_path)[1] == 4


def kill_agent(published: PublishedFrame) -> None:
    with agent_of(published) as agent:
        pid = agent.status()["pid"]
    os.kill(pid, 9)
    assert wait_until(lambda: start_ticks(pid) < 0)


def drop_parts(published: PublishedFrame, indices: list[int]) -> None:
    """Let the agent have only the other parts."""
    assert published._job is not None
    remaining = published._job._attempts_by_agent()[""]
    for index in indices:
        del remaining[index]
    with agent_of(published) as agent:
        agent.reopen(published.id)
        assert agent.commit_attempts(published.id, remaining) == []


@pytest.mark.parametrize("kind", ["padded", "random", *thorough("sorted", "cached")])
def test_lost_parts_are_computed_again_and_connecting_before_is_an_error(spark: SparkSession, kind: str) -> None:
    frame = frames(spark)[kind]
    expected = sorted(tuple(row) for row in frame.collect())
    with publish(frame) as published:
        copy = pickle.loads(pickle.dumps(published))
        sizes = [part.num_rows for part in published.parts]
        assert published.missing() == []
        assert published.recompute() == []
        kill_agent(published)
        lost = [index for index, part in enumerate(published.parts) if part.num_rows]
        assert published.missing() == lost
        host = os.uname().nodename
        text = f"data set {published.name}: parts? (.+, )?{lost[0]}.*{lost[-1]} on host {host} can't be reached: "
        with pytest.raises(ConnectionLostError, match=text):
            bs.connect(published)
        assert published.recompute() == lost
        assert published.missing() == []
        assert [part.num_rows for part in published.parts] == sizes
        assert published_rows(published) == expected
        assert agent_datasets(published)[published.id]["rows"] == len(expected)
        with pytest.raises(ConnectionLostError):
            bs.connect(copy)
        kill_agent(published)
        assert published.recompute() == lost
        assert published_rows(published) == expected


def test_parts_that_are_not_lost_stay_where_they_are(spark: SparkSession) -> None:
    with publish(spark.range(0, 3000, 1, 5)) as published:
        drop_parts(published, [1, 3])
        parts, open_datasets = published.parts, {published}
        with bs.connect(parts[0].locations[0]) as reader:
            assert published.missing() == [1, 3]
            assert published.recompute() == [1, 3]
            assert reader.read_all().num_rows == 600
        assert [index for index in range(5) if published.parts[index] != parts[index]] == [1, 3]
        assert published in open_datasets, "its hash depends on its parts"
        assert published_rows(published) == [(number,) for number in range(3000)]


def test_all_parts_of_an_indeterminate_frame_are_replaced(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.execution.sortBeforeRepartition", "false")
    frame = spark.range(0, 3000, 1, 5).repartition(3, "id").selectExpr("id + 1 AS id").repartition(5)
    try:
        with publish(frame) as published:
            copy = pickle.loads(pickle.dumps(published))
            drop_parts(published, [2])
            table = bs.connect(copy.parts[0].locations[0]).read_all()
            assert published.recompute() == [2]
            assert published_rows(published) == [(number + 1,) for number in range(3000)]
            with pytest.raises(NotFoundError, match="the partition was computed again"):
                bs.connect(copy)
            assert table.num_rows == copy.parts[0].num_rows
    finally:
        spark.conf.unset("spark.sql.execution.sortBeforeRepartition")


@pytest.mark.thorough
def test_a_data_set_without_rows_is_restored(spark: SparkSession) -> None:
    for frame in (spark.createDataFrame([], "id long"), spark.range(0, 10, 1, 3).where("id < 0")):
        with publish(frame) as published:
            kill_agent(published)
            assert published.missing() == published.recompute() == [0]
            assert bs.connect(published).read_all().to_pydict() == {"id": []}


@pytest.mark.thorough
@pytest.mark.parametrize(("remote", "lifetime"), [(False, "application"), (True, "detached")])
def test_a_computation_that_fails_changes_nothing_and_can_be_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool, lifetime: Lifetime
) -> None:
    monkeypatch.setattr(
        "bowstring.spark.publication.partition_job.count_executors", lambda _: 1
    )  # as if it were of another host

    def fail_if_told(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        if (tmp_path / "fail").exists() and context.partitionId() == 2:
            raise RuntimeError("injected")

    frame = spark.range(0, 300, 1, 3).mapInArrow(fail_if_told, "id long")
    options = RemoteOptions("127.0.0.1") if remote else False
    with publish(frame, name="again", remote=options, lifetime=lifetime) as published:
        kill_agent(published)
        parts = published.parts
        (tmp_path / "fail").touch()
        with pytest.raises(Exception, match="injected"):
            published.recompute()
        assert published.parts == parts
        assert published.missing() == [0, 1, 2]
        left = agent_datasets(published).get(published.id)
        assert left is None or left["partitions"] == 0
        (tmp_path / "fail").unlink()
        assert published.recompute() == [0, 1, 2]
        assert published_rows(published) == [(number,) for number in range(300)]
        assert bs.open_published("again").parts == published.parts
        assert [each.lifetime for each in bs.published() if each.id == published.id] == [lifetime]


@pytest.mark.thorough
def test_a_restored_data_set_expires_when_it_would_have(spark: SparkSession) -> None:
    published = publish(spark.range(10), ttl_s=5)
    time.sleep(1)
    kill_agent(published)
    published.recompute()
    with agent_of(published) as agent:
        assert agent.status()["datasets"]
        assert wait_until(lambda: not agent.status()["datasets"], 20)
    assert published.missing() == [0, 1]
    with pytest.raises(NotFoundError, match="has expired"):
        published.recompute()


def test_a_copy_and_a_closed_data_set_cannot_be_computed_again(spark: SparkSession) -> None:
    published = publish(spark.range(10))
    with pytest.raises(InvalidArgumentError, match="recompute: this is a copy"):
        pickle.loads(pickle.dumps(published)).recompute()
    published.close()
    with pytest.raises(ClosedError):
        published.missing()
