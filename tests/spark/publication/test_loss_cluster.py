"""Publishing on two hosts while executors, tasks, the host agent and the driver fail: no row is lost or repeated."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import bowstring as bs
from bowstring.errors import ConnectionLostError
from bowstring.sharing.processes import start_ticks
from tests.polling import wait_until
from tests.sharing.faults.processes import num_descriptors
from tests.sharing.python_process import PythonProcess

pytest.importorskip("pyspark")

JOB = Path(__file__).with_name("loss_job.py")
ROWS = 20_000
EXACTLY_ALL_ROWS = (ROWS, ROWS, ROWS * (ROWS - 1) // 2, 4)


@dataclass
class LossJob:
    process: subprocess.Popen[str]
    folder: Path
    reports: dict[str, Any]
    shared_memory_before: set[str]


def shared_memory_names() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir() if "bowstring" in path.name}


@pytest.fixture(scope="module")
def cluster_report(two_hosts: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LossJob]:
    """A driver that has published once for each failure, and still runs."""
    folder, before = tmp_path_factory.mktemp("loss"), shared_memory_names()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(JOB), two_hosts, str(folder)],
            cwd=folder,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = next((line for line in process.stdout if line.startswith("{")), None)
        assert line is not None, (folder / "log").read_text()[-5000:]
        yield LossJob(process, folder, json.loads(line), before)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "failure", ["none", "before", "while", "after put", "task", "speculation", "agent", "executors", "recomputed"]
)
def test_each_row_is_published_once_whatever_fails(cluster_report: LossJob, failure: str) -> None:
    report = cluster_report.reports[failure]
    assert (report["rows"], report["distinct"], report["sum"], report["attempts"]) == EXACTLY_ALL_ROWS


def test_the_failures_were_in_the_phases_that_they_are_named_after(cluster_report: LossJob) -> None:
    markers = {path.name for path in cluster_report.folder.iterdir()}
    assert markers >= {"before", "while", "after put", "speculation", "agent"}
    assert len([name for name in markers if name.startswith("task-")]) == 2
    log = (cluster_report.folder / "log").read_text()
    assert log.count("Command exited with code 137") >= 3
    reports = cluster_report.reports
    assert len({reports[name]["agent"] for name in reports}) == 3, "two agents were killed"


def test_one_of_an_attempt_and_its_speculative_copy_is_committed(cluster_report: LossJob) -> None:
    lagging = (cluster_report.folder / "speculation").read_text()
    attempts = [uri.partition("speculation-")[2].split("%2F") for uri in cluster_report.reports["speculation"]["uris"]]
    assert lagging
    assert not any(lagging in attempt for attempt in attempts), attempts


def test_all_parts_were_computed_again_after_the_agent_and_all_executors_were_killed(cluster_report: LossJob) -> None:
    report = cluster_report.reports["recomputed"]
    assert (report["lost"], report["again"], report["missing"]) == ([0, 1, 2, 3], [0, 1, 2, 3], [])


def test_consumers_keep_their_rows_when_the_driver_is_killed_and_nothing_is_left(cluster_report: LossJob) -> None:
    report = cluster_report.reports["recomputed"]
    published = pickle.loads(bytes.fromhex(report["published"]))
    descriptors = num_descriptors(os.getpid())
    code = """
import bowstring as bs
reader = bs.connect(published)
batches = iter(reader)
first = next(batches)
send(first.num_rows)
receive()
total, rows = int(first["id"].to_numpy().sum()), first.num_rows
try:
    for batch in batches:
        total, rows = total + int(batch["id"].to_numpy().sum()), rows + batch.num_rows
    send((rows, total))
except bs.errors.ConnectionLostError:
    send(None)
"""
    with PythonProcess(code, published=published) as consumer, bs.connect(published) as reader:
        table = reader.read_all()
        assert consumer.receive() > 0
        cluster_report.process.kill()
        cluster_report.process.wait(30)
        assert wait_until(lambda: start_ticks(report["agent"]) < 0, 20), "the host agent outlives its driver"
        consumer.send(True)
        # Streams that were not sent completely end with an error, and never with fewer rows.
        assert consumer.receive() in (None, EXACTLY_ALL_ROWS[:3:2])
        assert int(table["id"].to_numpy().sum()) == EXACTLY_ALL_ROWS[2]
    with pytest.raises(ConnectionLostError, match=r"parts 0, 1, 2, 3 of host "):
        bs.connect(published)
    assert shared_memory_names() <= cluster_report.shared_memory_before
    assert wait_until(lambda: num_descriptors(os.getpid()) <= descriptors)
    job = f"BOWSTRING_JOB={cluster_report.process.pid}\0".encode()
    assert wait_until(lambda: not processes_with(job), 60), processes_with(job)


def processes_with(environment: bytes) -> list[str]:
    """The processes that have this in their environment."""
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if environment in (process / "environ").read_bytes():
                commands.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
        except OSError:
            continue
    return commands
