"""Measure the memory growth of Spark's driver while it publishes a DataFrame; the executors are other processes.

The publish benchmarks run this module in its own process, because a process has only one Spark session. It prints one
line of JSON.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import bowstring
from benchmarks.spark_dataframe import create_dataframe
from benchmarks.worker import send_message

_INTERVAL_S = 0.01
_WARMUP_ROWS = 100_000


def resident_bytes(pid: int | str = "self") -> int:
    """The resident set size of a process (VmRSS)."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))


def peak_growth(pids: dict[str, int], call: Callable[[], object]) -> dict[str, int]:
    """The peak resident bytes of each process during `call`, minus those just before it."""
    before = {name: resident_bytes(pid) for name, pid in pids.items()}
    peak = dict(before)
    is_finished = threading.Event()

    def sample_until_finished() -> None:
        is_last = False
        while not is_last:
            is_last = is_finished.wait(_INTERVAL_S)
            for name, pid in pids.items():
                peak[name] = max(peak[name], resident_bytes(pid))

    thread = threading.Thread(target=sample_until_finished)
    thread.start()
    try:
        call()
    finally:
        is_finished.set()
        thread.join()
    return {name: peak[name] - before[name] for name in pids}


def driver_pids(spark: Any) -> dict[str, int]:
    """The driver's two processes."""
    return {"python": os.getpid(), "jvm": int(spark._jvm.java.lang.ProcessHandle.current().pid())}


def main(master: str, rows: str) -> None:
    """Publish two small DataFrames as a warm-up, then measure the large one."""
    spark = bowstring.spark.session(master)
    try:
        sizes: list[int] = []

        def publish(count: int) -> None:
            with bowstring.spark.publish(create_dataframe(spark, count)) as published:
                sizes.append(published.nbytes)

        for _ in range(2):
            publish(_WARMUP_ROWS)
        send_message(peak_growth(driver_pids(spark), lambda: publish(int(rows))) | {"published": sizes[-1]})
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
