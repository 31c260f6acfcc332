"""Publishing on two hosts while executors, tasks, the host agent and the driver fail: no row is lost or repeated."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

import bowstring as bs
from bowstring.errors import ConnectionLostError, NotFoundError
from bowstring.sharing.processes import start_ticks
from tests.polling import wait_until
from tests.sharing.faults.processes import num_descriptors
from tests.sharing.python_process import PythonProcess, run_python
from tests.spark.conftest import Cluster, shared_memory_names

pytest.importorskip("pyspark")

pytestmark = pytest.mark.thorough

ROWS = 20_000
EXACTLY_ALL_ROWS = (ROWS, ROWS, ROWS * (ROWS - 1) // 2, 4)


@pytest.mark.parametrize(
    "failure", ["none", "before", "while", "after put", "task", "speculation", "agent", "executors", "recomputed"]
)
def test_each_row_is_published_once_whatever_fails(cluster: Cluster, failure: str) -> None:
    report = cluster.reports[failure]
    assert (report["rows"], report["distinct"], report["sum"], report["attempts"]) == EXACTLY_ALL_ROWS


def test_the_failures_were_in_the_phases_that_they_are_named_after(cluster: Cluster) -> None:
    markers = {path.name for path in cluster.folder.iterdir()}
    assert markers >= {"before", "while", "after put", "speculation", "agent"}
    assert len([name for name in markers if name.startswith("task-")]) == 2
    log = cluster.read_log()
    assert log.count("Command exited with code 137") >= 4  # also one while files were written
    reports = cluster.reports
    agents = {report["agent"] for report in reports.values() if "agent" in report}
    assert len(agents) == 3, "two agents were killed"


def test_one_of_an_attempt_and_its_speculative_copy_is_committed(cluster: Cluster) -> None:
    lagging = (cluster.folder / "speculation").read_text()
    attempts = [uri.partition("speculation-")[2].split("%2F") for uri in cluster.reports["speculation"]["uris"]]
    assert lagging
    assert not any(lagging in attempt for attempt in attempts), attempts


def test_all_parts_were_computed_again_after_the_agent_and_all_executors_were_killed(cluster: Cluster) -> None:
    report = cluster.reports["recomputed"]
    assert (report["lost"], report["again"], report["missing"]) == ([0, 1, 2, 3], [0, 1, 2, 3], [])


def test_consumers_keep_their_rows_when_the_driver_is_killed_and_only_detached_data_sets_are_left(
    cluster: Cluster,
) -> None:
    report = cluster.reports["recomputed"]
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
        cluster.process.kill()
        cluster.process.wait(30)
        assert wait_until(lambda: published.id not in {summary.id for summary in bs.published()})
        consumer.send(True)
        # Streams that were not sent completely end with an error, and never with fewer rows.
        assert consumer.receive() in (None, EXACTLY_ALL_ROWS[:3:2])
        assert int(table["id"].to_numpy().sum()) == EXACTLY_ALL_ROWS[2]
    with pytest.raises(NotFoundError):
        bs.connect(published)
    first, second = cluster.reports["detached"]
    read = "import bowstring as bs\nsend(sorted(bs.open_published(id).read_all()['id'].to_pylist()))"
    assert run_python(read, id=first) == run_python(read, id=second) == list(range(ROWS))
    bs.unpublish(first)
    assert start_ticks(report["agent"]) > 0
    bs.open_published(second).renew(0.01)
    assert wait_until(lambda: start_ticks(report["agent"]) < 0, 20), "the host agent still runs"
    with pytest.raises(NotFoundError):
        bs.open_published(first)
    with pytest.raises(ConnectionLostError, match=r"parts 0, 1, 2 and 3 on host "):
        bs.connect(published)
    assert shared_memory_names() <= cluster.shared_memory_before
    assert wait_until(lambda: num_descriptors(os.getpid()) <= descriptors)
    job = f"BOWSTRING_JOB={cluster.process.pid}\0".encode()
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
