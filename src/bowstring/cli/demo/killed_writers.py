"""What readers get when a writer is killed: while it writes, after it has written, and when it owns the rows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bowstring.cli.demo.summary import TableSummary
from bowstring.errors import ConnectionLostError, format_count
from bowstring.sharing.processes import parent_pid
from bowstring.spark.publication.frame import PublishedFrame, publish

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bowstring.cli.demo.transfer_methods import Readers

_POLL_S = 0.005
_TASK_START_S = 0.2
"""How long tasks that run need, at most, to take their workers."""
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
    if not str(frame.sparkSession.sparkContext.master).startswith("local-cluster"):
        with publish(frame, progress=False) as published:
            return [_kill_publisher(published, readers)]
    with publish(frame, progress=False) as published:
        executors = {pid for pid in published.metrics["executor_pid"].to_pylist() if isinstance(pid, int)}
    with _kill_python_workers(frame, executors):
        rows = publish(frame, progress=False)
    with rows:
        repetition = _describe_repetition(rows, summary, readers)
        return [repetition, _kill_executors(rows, executors, summary, readers), _kill_publisher(rows, readers)]


def _describe_repetition(rows: PublishedFrame, summary: TableSummary, readers: Readers) -> KilledWriter:
    repeated = sum(number > 0 for number in rows.metrics["attempt_number"].to_pylist())
    reply = readers.request("read_published", list(rows.uris))
    num_tasks = format_count(len(rows.parts), "task")
    return KilledWriter(
        "Python workers, during their tasks",
        f"Spark repeated {repeated} of {num_tasks}; a reader gets {format_count(reply['rows'], 'row')}, each once",
        not TableSummary.from_json(reply["summary"]).find_differences(summary),
    )


def _kill_executors(rows: PublishedFrame, executors: set[int], summary: TableSummary, readers: Readers) -> KilledWriter:
    readers.request("attach", list(rows.uris))
    for pid in executors:
        _send_signal(pid, signal.SIGKILL)
    replies = [readers.request("read_attached", None), readers.request("read_published", list(rows.uris), 1)]
    return KilledWriter(
        "The executor, after it has written",
        f"an attached reader and a new one read all {format_count(replies[0]['rows'], 'row')}",
        all(not TableSummary.from_json(reply["summary"]).find_differences(summary) for reply in replies),
    )


def _kill_publisher(rows: PublishedFrame, readers: Readers) -> KilledWriter:
    """Publish the largest part from another process, and kill that."""
    part = max(rows.parts, key=lambda part: part.num_rows)
    with _run_publisher(part.locations[0]) as (process, uris):
        readers.request("attach", uris)
        expected = readers.request("read_attached", None)
        process.kill()
        process.wait()
        attached = readers.request("read_attached", None)
        # The agent drops the rows once it has noticed the end of their owner, shortly after.
        end = time.monotonic() + _LOSS_TIMEOUT_S
        while "error" not in (reply := readers.request("attach", uris, 1)) and time.monotonic() < end:
            time.sleep(_POLL_S)
    outcome = f"an attached reader reads its {format_count(attached['rows'], 'row')} to the end; a new one gets "
    return KilledWriter(
        "The process that has published",
        outcome + reply.get("error", "them, too"),
        attached["summary"] == expected["summary"] and "error" in reply,
    )


@contextmanager
def _run_publisher(uri: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    command = [sys.executable, "-m", "bowstring.cli.demo.publisher", uri]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, process_group=0) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise ConnectionLostError(f"the publishing process ended with status {process.wait()}; see above")
            yield process, json.loads(line)
        finally:
            process.kill()


@contextmanager
def _kill_python_workers(frame: DataFrame, executors: set[int]) -> Iterator[None]:
    """Stop the Python workers, which a job has left idle, and kill them when tasks of the block use them."""
    tracker = frame.sparkSession.sparkContext.statusTracker()
    is_over = threading.Event()
    workers = _find_children(set(_find_children(executors)))
    # Stopped first: otherwise a task could end before its worker is killed.
    for worker in workers:
        _send_signal(worker, signal.SIGSTOP)

    def kill_when_tasks_run() -> None:
        has_tasks = False
        while not (has_tasks or is_over.wait(_POLL_S)):
            stages: list[Any] = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            has_tasks = any(stage and stage.numActiveTasks for stage in stages)
        is_over.wait(_TASK_START_S)
        for worker in workers:
            _send_signal(worker, signal.SIGKILL)

    thread = threading.Thread(target=kill_when_tasks_run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _send_signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _find_children(parents: set[int]) -> list[int]:
    children = []
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and parent_pid(int(name)) in parents:
                children.append(int(name))
    return children
