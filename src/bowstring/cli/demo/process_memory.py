"""The private memory of processes: without files and shared memory, which are mapped."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
_INTERVAL_S = 0.01


def private_bytes(pid: int | None = None) -> int:
    """Return the size of the private memory of a process, by default this one; 0 if the process has ended."""
    try:
        with open(f"/proc/{pid or 'self'}/status", encoding="ascii", errors="replace") as status:
            return next((int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon:")), 0)
    except OSError:
        return 0


def find_driver_pids(spark: SparkSession) -> list[int]:
    """Return the processes of the driver: Python, and its JVM unless that is also the executor."""
    if str(spark.sparkContext.master).partition("[")[0] == "local":
        return [os.getpid()]
    return [os.getpid(), int(spark._jvm.java.lang.ProcessHandle.current().pid())]  # type: ignore[union-attr]


def measure_peak_growth(pids: Sequence[int], call: Callable[[], T]) -> tuple[T, int]:
    """Return what `call` returns, and by how many bytes the private memory of all processes grew meanwhile, at most."""
    before = peak = sum(map(private_bytes, pids))
    is_finished = threading.Event()

    def sample_until_finished() -> None:
        nonlocal peak
        is_last = False  # one sample after the end, too, so that a short call has at least one
        while not is_last:
            is_last = is_finished.wait(_INTERVAL_S)
            peak = max(peak, sum(map(private_bytes, pids)))

    thread = threading.Thread(target=sample_until_finished, daemon=True)
    thread.start()
    try:
        returned = call()
    finally:
        is_finished.set()
        thread.join()
    return returned, peak - before
