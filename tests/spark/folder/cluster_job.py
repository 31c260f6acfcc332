"""What test_cluster.py runs in a process of its own, since a process has only one Spark: jobs on a real cluster.

Usage: cluster_job.py MASTER APPENDED OVERWRITTEN. Prints a line of JSON with a report for each folder.
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


def write_and_read(spark: SparkSession, folder: Path, mode: str) -> dict[str, Any]:
    """Write the rows with many options while tasks are disturbed; return what is read, and the names of the files."""
    data = str(folder / "data")
    options = {"partitionBy": "k", "partitionOverwriteMode": "dynamic", "compression": "zstd"}
    options["maxRecordsPerFile"] = "1500"
    # The partition k=1 is replaced by an overwrite, and k=2 is not.
    before = spark.range(-2, 0, 1, 1).selectExpr("id", "'old' as s", "id + 3 as k")
    before.write.format("arrow").mode("append").options(**options).save(data)
    frame = (
        spark.range(0, ROWS, 1, 4)
        .selectExpr("id", "repeat('x', 50) as s", "id % 2 as k")
        .mapInArrow(disturb_tasks(str(folder)), "id long, s string, k long")
    )
    frame.write.format("arrow").mode(mode).options(**options).save(data)
    saved_frame = spark.read.format("arrow").load(data)
    counts = "count(id)", "count(distinct id)", "sum(id)"
    rows, distinct, total = saved_frame.where("s != 'old'").selectExpr(*counts).collect()[0]
    old = sorted(row.id for row in saved_frame.where("s = 'old'").collect())
    names = sorted(str(path.relative_to(data)) for path in Path(data).rglob("*") if path.is_file())
    return {"rows": rows, "distinct": distinct, "sum": total, "old": old, "names": names}


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
    modes = ("append", "overwrite")
    reports = [write_and_read(spark, Path(folder), mode) for folder, mode in zip(folders, modes, strict=True)]
    print(json.dumps(reports))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
