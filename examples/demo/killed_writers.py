"""What readers get when a writer is killed: while it writes, after it has written, and when it owns the rows."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bowstring.spark import PublishedFrame, publish
from examples.demo.summary import TableSummary
from examples.demo.texts import format_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from examples.demo.methods import Readers

# The agent drops the rows of a killed process within milliseconds.
_POLL_S = 0.005
_TASK_START_S = 2.0
"""How long a job needs, at most, until its tasks have taken their workers."""
# Long enough for a busy machine: the end of this wait is reported as a fault.
_LOSS_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class KilledWriter:
    """A process that was killed, what readers got, and whether that is what Bowstring promises."""

    writer: str
    outcome: str
    is_as_promised: bool


def kill_writers(frame: DataFrame, summary: TableSummary, readers: Readers) -> list[KilledWriter]:
    """Kill Python workers, the executor and a publishing process.

    The first two only of a local cluster: elsewhere the executor is the driver's JVM, or runs on another host.
    """

    def is_complete(reply: dict[str, Any]) -> bool:
        return not TableSummary(**reply["summary"]).find_differences(summary)

    with publish(frame, progress=False) as published:
        if not str(frame.sparkSession.sparkContext.master).startswith("local-cluster"):
            return [_kill_publisher(published, readers)]
        executors = {pid for pid in published.metrics["executor_pid"].to_pylist() if isinstance(pid, int)}
    timer = _kill_python_workers_later(executors)
    with publish(frame, progress=False) as rows:
        timer.join()
        uris = list(rows.uris)
        repeated = sum(number > 0 for number in rows.metrics["attempt_number"].to_pylist())
        reply = readers.request("read_published", uris)
        worker = KilledWriter(
            "Python workers, during their tasks",
            f"Spark repeated {repeated} of {format_count(len(rows.parts), 'task')}; a reader gets "
            f"{format_count(reply['summary']['rows'], 'row')}, each once",
            is_complete(reply),
        )
        readers.request("attach", uris)
        for pid in executors:
            _send_signal(pid, signal.SIGKILL)
        replies = [readers.request("read_attached", None), readers.request("read_published", uris, 1)]
        executor = KilledWriter(
            "The executor, after it has written",
            f"an attached reader and a new one read all {format_count(summary.rows, 'row')}",
            all(map(is_complete, replies)),
        )
        return [worker, executor, _kill_publisher(rows, readers)]


def _kill_publisher(rows: PublishedFrame, readers: Readers) -> KilledWriter:
    """Let the last reader publish the largest part, and kill it."""
    part, last = max(rows.parts, key=lambda part: part.num_rows), len(readers.processes) - 1
    uris = readers.request("publish", [part.locations[0]], last)["uris"]
    readers.request("attach", uris)
    expected = readers.request("read_attached", None)
    readers.processes[last].kill()
    attached = readers.request("read_attached", None)
    # The agent drops the rows once it has noticed the end of their owner, shortly after.
    end = time.monotonic() + _LOSS_TIMEOUT_S
    while "error" not in (reply := readers.request("attach", uris, 1)) and time.monotonic() < end:
        time.sleep(_POLL_S)
    return KilledWriter(
        "The process that has published",
        f"an attached reader reads its {format_count(attached['summary']['rows'], 'row')} to the end; a new one gets "
        + reply.get("error", "them, too"),
        attached["summary"] == expected["summary"] and "error" in reply,
    )


def _kill_python_workers_later(executors: set[int]) -> threading.Timer:
    """Stop the Python workers, which a job has left idle, and kill them when the tasks of the next job use them."""
    workers = _find_children(set(_find_children(executors)))

    def kill_workers() -> None:
        for worker in workers:
            _send_signal(worker, signal.SIGKILL)

    # Stopped first: otherwise a task could end before its worker is killed.
    for worker in workers:
        _send_signal(worker, signal.SIGSTOP)
    timer = threading.Timer(_TASK_START_S, kill_workers)
    timer.start()
    return timer


def _send_signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _find_children(parents: set[int]) -> list[int]:
    children = []
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and _read_parent_pid(name) in parents:
                children.append(int(name))
    return children


def _read_parent_pid(pid: str) -> int:
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])
