"""The progress that `publish` shows in a terminal, and the description of its jobs in Spark's UI."""

from __future__ import annotations

import os
import pty
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError

from bowstring.spark import publish, register
from bowstring.spark.versions import SPARK_VERSION
from tests.polling import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark")
DESCRIPTION = "spark.job.description"
NUM_TASKS = 6


def slow_frame(spark: SparkSession, seconds: float = 0.5) -> DataFrame:
    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        time.sleep(seconds)
        yield from batches

    return spark.range(0, 600, 1, NUM_TASKS).mapInArrow(wait, "id long")


class Terminal:
    """A pseudo-terminal in the place of standard error."""

    def __init__(self) -> None:
        self._master, slave = pty.openpty()
        self.file = os.fdopen(slave, "w")
        self._chunks: list[bytes] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while chunk := os.read(self._master, 1 << 16):
                self._chunks.append(chunk)
        except OSError:
            pass  # how Linux reports the end

    def close(self) -> str:
        """Return the text that was written, without control sequences."""
        self.file.close()
        self._reader.join(30)
        os.close(self._master)
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", b"".join(self._chunks).decode())


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yields a list that has the terminal's text when the block has ended."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")
    screen, texts = Terminal(), list[str]()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", screen.file)
        try:
            yield texts
        finally:
            texts.append(screen.close())


def progress_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "bowstring-progress"]


def test_a_terminal_shows_tasks_rows_and_bytes(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    with terminal(monkeypatch) as texts, publish(slow_frame(spark), name="slow") as published:
        assert not progress_threads()
    assert published.id in texts[0]
    assert re.search(rf"[1-5] of {NUM_TASKS} tasks, [1-5]00 rows, \d\.\d kB", texts[0])


@pytest.mark.parametrize("case", ["off", "not a terminal", "without rich", "other bar"])
def test_there_is_no_progress_and_no_thread(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    seen = list[threading.Thread]()
    with terminal(monkeypatch) as texts:
        if case == "not a terminal":
            monkeypatch.setattr(sys, "stderr", open(os.devnull, "w"))  # noqa: SIM115 -- until the test ends
        if case == "without rich":
            monkeypatch.setitem(sys.modules, "rich.progress", None)
        if case == "other bar":
            monkeypatch.setattr("bowstring.spark.runtime.job_progress._has_console_progress", lambda _spark: True)
        watcher = threading.Timer(0.4, lambda: seen.extend(progress_threads()))
        watcher.start()
        publish(slow_frame(spark, 0.3), progress=False if case == "off" else None).close()
        watcher.join()
    assert texts == [""]
    assert seen == []


def test_the_thread_ends_with_a_failed_job(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        time.sleep(0.5)
        raise RuntimeError("injected")
        yield from batches

    with terminal(monkeypatch), pytest.raises(Exception, match="injected"):
        publish(spark.range(2).mapInArrow(fail, "id long"))
    assert not progress_threads()


def test_ctrl_c_cancels_the_job_and_ends_the_thread(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = spark.sparkContext.statusTracker()

    def interrupt() -> None:
        assert wait_until(lambda: bool(tracker.getActiveStageIds()))
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    # Older versions of PySpark fail to cancel the job in their handler of the signal, and raise that error.
    interruption = KeyboardInterrupt if SPARK_VERSION >= (4, 2) else Py4JError
    with terminal(monkeypatch) as texts, pytest.raises(interruption):
        interrupter.start()
        publish(slow_frame(spark, 20), name="interrupted")
    interrupter.join()
    assert not progress_threads()
    assert wait_until(lambda: not tracker.getActiveJobsIds())
    assert "interrupted" in texts[0]
    register(spark)  # Java has another thread for this one from now on, without an active session


def last_job(spark: SparkSession) -> Any:
    jobs: Any = spark.sparkContext
    jobs = jobs._jsc.sc().statusStore().jobsList(None)
    return max((jobs.apply(index) for index in range(jobs.size())), key=lambda job: job.jobId())


def test_jobs_have_a_description_in_the_ui_unless_the_caller_has_set_one(spark: SparkSession) -> None:
    context: Any = spark.sparkContext
    with publish(spark.range(10), name="numbers") as published:
        pass
    assert last_job(spark).description().get() == f"bowstring.spark.publish {published.id} (1 columns)"
    assert context.getLocalProperty(DESCRIPTION) is None
    assert not context.getJobTags()
    properties = {DESCRIPTION: "my own", "spark.jobGroup.id": "group"}
    for name, value in properties.items():
        context.setLocalProperty(name, value)
    try:
        publish(spark.range(10)).close()
        assert context.getLocalProperty(DESCRIPTION) == "my own"
        assert last_job(spark).description().get() == "my own"
        assert last_job(spark).jobGroup().get() == "group"
    finally:
        for name in properties:
            context.setLocalProperty(name, None)
