"""Publish 50 million rows once, and report the memory of all processes: `python -m benchmarks.large_publish [ROWS]`.

Executors are processes of their own. Memory is anonymous resident memory (RssAnon): not the published data, which all
processes share, but what each has for itself. Prints one line of JSON for each kind of process and for the consumers.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import bowstring as bs
from benchmarks.worker import WorkerProcess, send_message, serve_requests
from bowstring.datasets import Dataset

_MASTER, _ROWS, _CONSUMERS, _SUM_COLUMN = "local-cluster[1,2,1536]", 50_000_000, 8, "amount"
_INTERVAL_S = 0.1
_KINDS = {"daemon": "Python workers", "executorbackend": "executor's JVM", "java": "driver's JVM"}


def publish_and_read(rows: int) -> None:
    """Publish, and let eight processes read all rows at once."""
    spark = bs.spark.session(_MASTER)
    try:
        df = spark.range(rows).selectExpr(
            "id",
            f"id * 7919 % 1000003 AS {_SUM_COLUMN}",
            "id * 0.25D AS price",
            "CASE WHEN id % 10 != 0 THEN CAST(id % 7 AS int) END AS rating",
            "concat('customer-', CAST(id % 99991 AS string)) AS customer",
        )
        with PeakMemory() as peak:
            start = time.perf_counter()
            published = bs.spark.publish(df)
            publish_s = time.perf_counter() - start
        send_message({"rows": published.num_rows, "bytes": published.nbytes, "publish_s": round(publish_s, 1)})
        send_message({"peak_anonymous_mb": {kind: size // 10**6 for kind, size in sorted(peak.bytes_by_kind.items())}})
        with published, ExitStack() as stack:
            consumers = [stack.enter_context(WorkerProcess("large_publish", "consumer")) for _ in range(_CONSUMERS)]
            for consumer in consumers:
                consumer.send("read", description=published.to_json())
            replies = [consumer.receive() for consumer in consumers]
        assert {reply["rows"] for reply in replies} == {rows}
        assert len({reply["sum"] for reply in replies}) == 1
        send_message({"consumers": [replies[0], *replies[-1:]]})
    finally:
        spark.stop()


def read(description: str) -> dict[str, Any]:
    """Sum a column of all rows; return what it took."""
    start = time.perf_counter()
    first_batch_s, rows, total = 0.0, 0, 0
    with bs.connect(Dataset.from_json(description)) as reader:
        for batch in reader:
            first_batch_s = first_batch_s or time.perf_counter() - start
            rows, total = rows + batch.num_rows, total + int(batch.column(_SUM_COLUMN).to_numpy().sum())
    seconds = time.perf_counter() - start
    return {
        "rows": rows,
        "sum": total,
        "first_batch_ms": round(first_batch_s * 1e3, 1),
        "all_s": round(seconds, 2),
        "anonymous_mb": anonymous_bytes(os.getpid()) // 10**6,
    }


class PeakMemory:
    """The peak anonymous memory of this process and its descendants by kind. A context manager."""

    def __init__(self) -> None:
        self.bytes_by_kind: dict[str, int] = {}
        self._is_finished = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_finished)

    def _sample_until_finished(self) -> None:
        while not self._is_finished.wait(_INTERVAL_S):
            totals: dict[str, int] = defaultdict(int)
            for pid in find_descendants(os.getpid()):
                totals[describe_kind(pid)] += anonymous_bytes(pid)
            for kind, size in totals.items():
                self.bytes_by_kind[kind] = max(self.bytes_by_kind.get(kind, 0), size)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_finished.set()
        self._thread.join()


def find_descendants(pid: int) -> list[int]:
    """A process, and all that it and its children have started."""
    children: dict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            children[int(path.read_text().rpartition(")")[2].split()[1])].append(int(path.parent.name))
        except OSError:
            pass  # it has ended
    pids = [pid]
    for parent in pids:
        pids += children[parent]
    return pids


def describe_kind(pid: int) -> str:
    """Which of Spark's processes it is, by its command."""
    if pid == os.getpid():
        return "driver's Python"
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text().lower()
    except OSError:
        return "other"
    return next((kind for word, kind in _KINDS.items() if word in command), "other")


def anonymous_bytes(pid: int) -> int:
    """The anonymous resident memory of a process; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)


if __name__ == "__main__":
    if sys.argv[1:] == ["consumer"]:
        serve_requests({"read": read})
    else:
        publish_and_read(int(sys.argv[1]) if sys.argv[1:] else _ROWS)
