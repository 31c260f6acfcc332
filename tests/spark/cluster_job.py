"""What test_cluster.py runs in a process of its own, since a process has only one Spark: jobs on a real cluster.

Usage: cluster_job.py MASTER FOLDER... Prints a line of JSON with a report for each folder.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 60_000


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


def write_and_read(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Write the rows while tasks are disturbed; return what is read, and the names of the files."""
    frame = (
        spark.range(0, ROWS, 1, 4)
        .selectExpr("id", "repeat('x', 50) as s")
        .mapInArrow(disturb_tasks(str(folder)), "id long, s string")
    )
    data = str(folder / "data")
    frame.write.format("arrow").mode("append").save(data)
    saved_frame = spark.read.format("arrow").load(data)
    rows, distinct, total = saved_frame.selectExpr("count(id)", "count(distinct id)", "sum(id)").collect()[0]
    return {"rows": rows, "distinct": distinct, "sum": total, "names": sorted(os.listdir(data))}


def main(master: str, *folders: str) -> None:
    from bowstring.spark import session

    spark = session(
        master,
        {
            "spark.executor.memory": "512m",
            "spark.sql.execution.arrow.maxRecordsPerBatch": 500,
            "spark.speculation": True,
            "spark.speculation.minTaskRuntime": "1s",
            "spark.speculation.quantile": "0.5",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        },
    )
    print(json.dumps([write_and_read(spark, Path(folder)) for folder in folders]))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
