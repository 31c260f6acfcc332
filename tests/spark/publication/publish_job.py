"""What test_publish_cluster.py runs in a process of its own: publishes on a real cluster while an executor is killed.

Usage: publish_job.py MASTER FOLDER. Prints a line of JSON; when it reads "executors", it kills all executors and prints
their numbers.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROWS = 40_000


def disturb_tasks(folder: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Kills the executor in the middle of partition 1, once; fails the first attempt of partition 2 at its end."""

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        from bowstring.sharing.processes import find_java_ancestor

        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        for index, batch in enumerate(batches):
            yield batch
            if index == 8 and partition == 1:
                try:
                    os.close(os.open(f"{folder}/killed", os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                executor = find_java_ancestor()
                assert executor is not None
                os.kill(executor.pid, signal.SIGKILL)
                time.sleep(60)
        if partition == 2 and context.attemptNumber() == 0:
            raise RuntimeError("injected")

    return pass_on


def executors() -> list[int]:
    """The Java processes below our own that are executors."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue
        if b"CoarseGrainedExecutorBackend" in command and f"BOWSTRING_JOB={os.getpid()}\0".encode() in environment:
            pids.append(int(folder.name))
    return pids


def main(master: str, folder: str) -> None:
    from bowstring.sharing.agent_client import AgentClient
    from bowstring.spark import publish, session

    path = os.pathsep.join(p for p in sys.path if p)
    spark = session(
        master,
        {
            "spark.executor.memory": "512m",
            "spark.sql.execution.arrow.maxRecordsPerBatch": 500,
            "spark.executorEnv.PYTHONPATH": path,
            "spark.executorEnv.BOWSTRING_JOB": str(os.getpid()),
        },
    )
    frame = (
        spark.range(0, ROWS, 1, 4)
        .selectExpr("id", "repeat('x', 50) as s")
        .mapInArrow(disturb_tasks(folder), "id long, s string")
    )
    published = publish(frame)
    assert published._job is not None
    with AgentClient.open(published._job.agent_key, start=False) as agent:
        status = agent.status()
    report = {"published": pickle.dumps(published).hex(), "agent": status["pid"], "kept": status["datasets"]}
    report["detached"] = [
        publish(spark.range(0, ROWS, 1, 4), name="left-behind", ttl_s=3600, lifetime="detached").id for _ in range(2)
    ]
    print(json.dumps(report), flush=True)  # noqa: T201
    for line in sys.stdin:
        if line.strip() == "executors":
            killed = executors()
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            print(json.dumps(killed), flush=True)  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
