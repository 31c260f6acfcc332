"""By how much the memory of Spark's driver grows while a data frame is published; executors are processes of their own.

Run as a process of its own (the publish benchmark does), since a process has one Spark session. Says one line of JSON.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import bowstring
from benchmarks.child import say
from benchmarks.frame import frame

_EVERY_S = 0.01
_WARM_UP_ROWS = 100_000


def resident_bytes(pid: int | str = "self") -> int:
    """What a process has in memory, as the kernel counts it (VmRSS)."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))


def growth(pids: dict[str, int], work: Callable[[], object]) -> dict[str, int]:
    """By how many bytes each process was larger at its largest while `work` ran than just before."""
    before = {name: resident_bytes(pid) for name, pid in pids.items()}
    peak = dict(before)
    done = threading.Event()

    def watch() -> None:
        while True:
            is_last = done.wait(_EVERY_S)
            for name, pid in pids.items():
                peak[name] = max(peak[name], resident_bytes(pid))
            if is_last:
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return {name: peak[name] - before[name] for name in pids}


def processes(spark: Any) -> dict[str, int]:
    """The driver's two processes."""
    return {"python": os.getpid(), "jvm": int(spark._jvm.java.lang.ProcessHandle.current().pid())}


def main(master: str, rows: str) -> None:
    """Publish a little to warm up, then all of it, watched."""
    spark = bowstring.spark.session(master)
    try:
        sizes: list[int] = []

        def publish(count: int) -> None:
            with bowstring.spark.publish(frame(spark, count)) as published:
                sizes.append(published.nbytes)

        for _ in range(2):
            publish(_WARM_UP_ROWS)
        say(growth(processes(spark), lambda: publish(int(rows))) | {"published": sizes[-1]})
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
