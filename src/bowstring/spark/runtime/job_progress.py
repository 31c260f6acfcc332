"""The progress of `publish` in terminals and notebooks: tasks, rows and bytes. Nothing is shown without rich.

The tasks of a classic session belong to the jobs with a tag, in Spark's status tracker; the tasks of a Connect session
come with the server's reports. The host agent of this host has the rows and bytes.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from bowstring.errors import BowstringError
from bowstring.sharing.agent.client import AgentClient, AgentKey
from bowstring.spark.runtime.job_properties import has_local_properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGER = logging.getLogger(__name__)
_INTERVAL_S = 0.3  # Spark's own bar is updated every 0.2 s
# The bar goes on without the bytes if the agent is busy.
_AGENT_TIMEOUT_S = 2.0
# Longer than one request to the agent or to the JVM takes; after it, the daemon thread is left to end alone.
_JOIN_TIMEOUT_S = 5.0

# Two bars would overwrite each other.
_display_lock = threading.Lock()


@contextmanager
def show_progress(spark: SparkSession, dataset: str, agent_key: AgentKey, is_wanted: bool | None) -> Iterator[None]:
    """Show the progress of the jobs that publish a data set, whose name is their tag, until the block ends.

    By default (None) only if standard error is a terminal, or in a notebook. Nothing is shown if rich is not installed,
    if another thread shows its progress, or in a terminal where Spark shows its own (``spark.ui.showConsoleProgress``).
    """
    bar = _create_bar(spark, is_wanted)
    if bar is None or not _display_lock.acquire(blocking=False):
        yield
        return
    with ExitStack() as stack:
        stack.callback(_display_lock.release)
        stack.enter_context(bar)
        task = bar.add_task(dataset, total=None, counts="")

        def show_tasks(done: int, total: int) -> None:
            counts = f"{done} of {total} tasks{_describe_size(dataset, agent_key)}"
            bar.update(task, completed=done, total=total or None, counts=counts)

        stack.enter_context(_report_tasks(spark, dataset, show_tasks))
        yield


def _create_bar(spark: SparkSession, is_wanted: bool | None) -> Any:
    """Return a bar of rich, or None if nothing is to be shown."""
    if is_wanted is False or (is_wanted is None and not sys.stderr.isatty() and "ipykernel" not in sys.modules):
        return None
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        return None
    console = Console(stderr=True)
    if console.is_jupyter:
        if importlib.util.find_spec("ipywidgets") is None:
            return None  # rich would warn, and show nothing before the end
    elif (is_wanted is None and not console.is_terminal) or _has_console_progress(spark):
        return None
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[counts]}", markup=False),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=console.is_terminal)


def _has_console_progress(spark: SparkSession) -> bool:
    return hasattr(spark, "_jsparkSession") and spark.sparkContext._jsc.sc().progressBar().isDefined()


def _describe_size(dataset: str, agent_key: AgentKey) -> str:
    """Return the rows and bytes that the agent of this host has of a data set, as text; empty if there is no agent."""
    from rich.filesize import decimal

    try:
        with AgentClient.open(agent_key, start=False, timeout_s=_AGENT_TIMEOUT_S) as agent:
            status = agent.status()["datasets"].get(dataset)
    except BowstringError:
        return ""
    return "" if status is None else f", {status['rows']:,} rows, {decimal(status['bytes'])}"


@contextmanager
def _report_tasks(spark: SparkSession, tag: str, show_tasks: Callable[[int, int], None]) -> Iterator[None]:
    """Call `show_tasks` with the numbers of finished and of all tasks, in another thread or during an operation."""
    if not has_local_properties(spark):
        with _report_connect_tasks(spark, show_tasks):
            yield
        return
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    is_finished = threading.Event()

    def poll() -> None:
        try:
            while not is_finished.wait(_INTERVAL_S):
                show_tasks(*_count_tasks(tracker, tag))
        except Exception:  # such as of a session that is stopped: progress must not affect the job
            _LOGGER.debug("progress ends", exc_info=True)

    thread = threading.Thread(target=poll, name="bowstring-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_finished.set()
        thread.join(_JOIN_TIMEOUT_S)


@contextmanager
def _report_connect_tasks(spark: Any, show_tasks: Callable[[int, int], None]) -> Iterator[None]:
    if hasattr(spark, "_jsparkSession"):
        yield  # threads are not pinned, so that jobs have no tag
        return

    def show(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:  # noqa: ARG001 -- PySpark's
        numbers = [(stage.num_completed_tasks, stage.num_tasks) for stage in stages or ()]
        if numbers:
            show_tasks(sum(done for done, _ in numbers), sum(total for _, total in numbers))

    spark.registerProgressHandler(show)
    try:
        yield
    finally:
        spark.removeProgressHandler(show)


def _count_tasks(tracker: Any, tag: str) -> tuple[int, int]:
    """Return the numbers of finished and of all tasks of the jobs with a tag, as far as they are known."""
    completed: dict[int, tuple[int, int]] = {}
    for job_id in tracker.getJobIdsForTag(tag):
        job = tracker.getJobInfo(job_id)
        has_later_started = False
        for stage_id in sorted(job.get().stageIds(), reverse=True) if job.isDefined() else ():
            stage = tracker.getStageInfo(stage_id)
            if not stage.isDefined():
                continue
            info = stage.get()
            done, total = int(info.numCompletedTasks()), int(info.numTasks())
            is_started = done + int(info.numActiveTasks()) > 0
            # Spark skips a stage whose output an earlier job has computed.
            if is_started or not has_later_started:
                completed[stage_id] = done, total
            has_later_started |= is_started
    return sum(done for done, _ in completed.values()), sum(total for _, total in completed.values())
