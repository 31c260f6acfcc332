"""What the tests on a cluster run in a process of its own, since a process has only one Spark: jobs of which executors,
tasks and the host agent fail, first those that write files, then those that publish.

Usage: cluster_job.py MASTER FOLDER. Prints a line of JSON with a report for each job, and then ends when it is killed.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from unittest.mock import patch

import bowstring.spark
from bowstring.spark.versions import DATA_SOURCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from bowstring.spark import PublishedFrame

WRITTEN_ROWS, ROWS = 60_000, 20_000
FAILURES = ("before", "while", "after put", "task", "speculation", "agent", "none")


def disturb_tasks(folder: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Kills the executor in the middle of partition 1, once; fails the first attempt of partition 2; partition 3 lags
    once."""

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        import signal
        import time

        from pyspark import TaskContext

        from bowstring.sharing.processes import find_java_ancestor

        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        for index, batch in enumerate(batches):
            yield batch
            if index != 8:
                continue
            if partition == 2 and context.attemptNumber() == 0:
                raise RuntimeError("injected")
            if partition in (1, 3):
                try:
                    marker = os.open(f"{folder}/trouble-{partition}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                except FileExistsError:
                    continue
                os.write(marker, str(context.taskAttemptId()).encode())
                os.close(marker)
                if partition == 3:
                    time.sleep(60 if Path(folder, "lag").exists() else 0)
                    continue
                executor = find_java_ancestor()
                assert executor is not None
                os.kill(executor.pid, signal.SIGKILL)
                time.sleep(60)

    return pass_on


def save(frame: DataFrame, data: str, mode: Literal["append", "overwrite"]) -> None:
    """Write by the data source, or in Spark 3.5, which has none, by `bowstring.spark.write`."""
    options: dict[str, Any] = {"partition_overwrite_mode": "dynamic", "compression": "zstd"}
    options["max_records_per_file"] = 1500
    if DATA_SOURCE.is_available:
        options = {name.replace("_", ""): value for name, value in options.items()}
        frame.write.format("arrow").mode(mode).options(partitionBy="k", **options).save(data)
    else:
        bowstring.spark.write(frame, data, mode=mode, partition_by=["k"], **options)


def write_and_read(spark: SparkSession, folder: Path, mode: Literal["append", "overwrite"]) -> dict[str, Any]:
    """Write the rows with many options while tasks are disturbed; return what is read, and the names of the files."""
    data = str(folder / "data")
    # The partition k=1 is replaced by an overwrite, and k=2 is not.
    save(spark.range(-2, 0, 1, 1).selectExpr("id", "'old' as s", "id + 3 as k"), data, "append")
    frame = (
        spark.range(0, WRITTEN_ROWS, 1, 4)
        .selectExpr("id", "repeat('x', 50) as s", "id % 2 as k")
        .mapInArrow(disturb_tasks(str(folder)), "id long, s string, k long")
    )
    save(frame, data, mode)
    saved_frame = bowstring.spark.read(spark, data)
    loaded_frame = spark.read.format("arrow").load(data) if DATA_SOURCE.is_available else saved_frame
    counts = "count(id)", "count(distinct id)", "sum(id)"
    rows, distinct, total = loaded_frame.where("s != 'old'").selectExpr(*counts).collect()[0]
    old = sorted(row.id for row in saved_frame.where("s = 'old'").collect())
    names = sorted(str(path.relative_to(data)) for path in Path(data).rglob("*") if path.is_file())
    return {"rows": rows, "distinct": distinct, "sum": total, "old": old, "names": names}


def fail_once(failure: str, folder: str) -> Callable[..., Iterator[Any]]:
    """The work of a task that publishes, but fails in one way; it travels to the workers by value."""

    def write(dataset: str, agent_key: Any, schema: Any, vectors: Any, batches: Iterator[Any]) -> Iterator[Any]:
        import signal

        from pyspark import TaskContext

        from bowstring.sharing.agent.client import AgentClient
        from bowstring.sharing.processes import find_java_ancestor
        from bowstring.spark.publication.partition_writer import write_partition

        context = TaskContext.get()
        assert context is not None
        number, attempt = context.partitionId(), context.taskAttemptId()

        def is_first() -> bool:
            try:
                marker = os.open(f"{folder}/{failure}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            except FileExistsError:
                return False
            os.write(marker, str(attempt).encode())
            os.close(marker)
            return True

        def kill_executor() -> None:
            executor = find_java_ancestor()
            assert executor is not None
            os.kill(executor.pid, signal.SIGKILL)
            time.sleep(60)

        def fail_in_the_middle() -> Iterator[Any]:
            for index, batch in enumerate(batches):
                if index == 5 and failure == "while" and number == 1 and is_first():
                    kill_executor()
                if index == 5 and failure == "task" and number == 2 and context.attemptNumber() < 2:
                    Path(folder, f"task-{attempt}").touch()
                    raise RuntimeError("injected")
                yield batch

        if failure == "before" and number == 1 and is_first():
            kill_executor()
        (report,) = write_partition(dataset, agent_key, schema, vectors, fail_in_the_middle())
        if failure == "after put" and number == 1 and is_first():
            kill_executor()
        if failure == "speculation" and number == 3 and is_first():
            time.sleep(60)
        if failure == "agent" and number == 2 and is_first():
            with AgentClient.open(agent_key) as agent:
                os.kill(agent.status()["pid"], signal.SIGKILL)
        yield report

    return write


def executors() -> list[int]:
    """The executors of this job."""
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
        except OSError:
            continue
        if b"CoarseGrainedExecutorBackend" in command and f"BOWSTRING_JOB={os.getpid()}\0".encode() in environment:
            pids.append(int(process.name))
    return pids


def kill_all(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, 9)
        while Path(f"/proc/{pid}/exe").exists():
            time.sleep(0.02)


def shuffled_rows(spark: SparkSession, attempts: int = 4) -> DataFrame:
    """Rows whose shuffle files are lost with an executor."""
    return spark.range(0, ROWS, 1, attempts).repartition(4, "id").selectExpr("id", "repeat('x', 50) as s")


def agent_status(published: PublishedFrame) -> dict[str, Any]:
    from bowstring.sharing.agent.client import AgentClient

    assert published._job is not None
    with AgentClient.open(published._job.agent_key, start=False) as agent:
        status: dict[str, Any] = agent.status()
    return status


def describe(published: PublishedFrame) -> dict[str, Any]:
    """The rows that the driver reads, and what the agent has."""
    import numpy as np

    import bowstring as bs

    ids = bs.connect(published).read_all()["id"].to_numpy()
    status = agent_status(published)
    return {
        "rows": len(ids),
        "distinct": len(np.unique(ids)),
        "sum": int(ids.sum()),
        "attempts": status["datasets"][published.id]["partitions"],
        "agent": status["pid"],
        "published": pickle.dumps(published).hex(),
        "uris": published.uris,
    }


def publish_with_failures(spark: SparkSession, folder: str) -> tuple[dict[str, Any], PublishedFrame]:
    """Publish once for each failure; return the reports, and a data set that lives as long as the object."""
    from bowstring.spark import publish

    reports: dict[str, Any] = {}
    published: dict[str, PublishedFrame] = {}
    for failure in FAILURES:
        with patch("bowstring.spark.publication.partition_job.write_partition", fail_once(failure, folder)):
            published[failure] = publish(shuffled_rows(spark), name=failure.replace(" ", "-"))
        reports[failure] = describe(published[failure])
    kill_all(executors())  # and with them the shuffle files
    reports["executors"] = describe(published["none"])
    os.kill(agent_status(published["none"])["pid"], 9)
    for other in [name for name in FAILURES if name != "none"]:
        published.pop(other).close()
    survivor = published["none"]
    lost = survivor.missing()
    reports["recomputed"] = {"lost": lost, "again": survivor.recompute(), "missing": survivor.missing()}
    reports["recomputed"].update(describe(survivor))
    rows = spark.range(0, ROWS, 1, 4)
    reports["detached"] = [publish(rows, name="left-behind", ttl_s=3600, lifetime="detached").id for _ in range(2)]
    return reports, survivor


def main(master: str, folder: str) -> None:
    from bowstring.spark import session

    spark = session(
        master,
        {
            "spark.executor.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.local.dir": f"{folder}/spark",
            "spark.sql.execution.arrow.maxRecordsPerBatch": 500,
            "spark.speculation": True,
            "spark.speculation.minTaskRuntime": "2s",
            "spark.speculation.quantile": "0.5",
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "spark.executorEnv.BOWSTRING_JOB": str(os.getpid()),
        },
    )
    reports = {
        "killed": write_and_read(spark, Path(folder, "killed"), "append"),
        "lagging": write_and_read(spark, Path(folder, "lagging"), "overwrite"),
    }
    others, survivor = publish_with_failures(spark, folder)
    print(json.dumps(reports | others), flush=True)  # noqa: T201
    sys.stdin.read()
    del survivor


if __name__ == "__main__":
    main(*sys.argv[1:])
