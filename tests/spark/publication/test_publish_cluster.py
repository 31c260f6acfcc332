"""Publishing with executors in separate processes that are killed, and after the driver is killed."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import bowstring as bs
from bowstring.errors import NotFoundError
from bowstring.sharing.processes import start_ticks
from tests.polling import wait_until
from tests.sharing.python_process import run_python

pytest.importorskip("pyspark")

JOB = Path(__file__).with_name("publish_job.py")
ROWS = 40_000


@dataclass
class PublishJob:
    process: subprocess.Popen[str]
    folder: Path
    report: dict[str, Any]
    shared_memory_before: set[str]

    @property
    def published(self) -> Any:
        return pickle.loads(bytes.fromhex(self.report["published"]))


def shared_memory_names() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def read_report(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    for line in process.stdout:
        if line[0] in "{[":
            return json.loads(line)
    raise AssertionError("the job ended without a word")


@pytest.fixture(scope="module")
def cluster_report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PublishJob]:
    """A driver with two executors, one of which was killed while it published."""
    folder = tmp_path_factory.mktemp("publish")
    before = shared_memory_names()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(JOB), "local-cluster[2,1,1024]", str(folder)],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        yield PublishJob(process, folder, read_report(process), before)
    finally:
        process.kill()
        process.communicate()


def test_each_row_is_published_once_although_an_executor_was_killed(cluster_report: PublishJob) -> None:
    assert (cluster_report.folder / "killed").exists()
    all_rows = bs.connect(cluster_report.published).read_all()
    assert sorted(all_rows.column("id").to_pylist()) == list(range(ROWS))


def test_the_agent_has_one_attempt_of_each_partition(cluster_report: PublishJob) -> None:
    (dataset,) = cluster_report.report["kept"].values()
    assert (dataset["partitions"], dataset["rows"]) == (4, ROWS)


def test_the_data_outlives_all_executors(cluster_report: PublishJob) -> None:
    assert cluster_report.process.stdin is not None
    cluster_report.process.stdin.write("executors\n")
    cluster_report.process.stdin.flush()
    assert read_report(cluster_report.process)
    assert bs.connect(cluster_report.published).read_all().num_rows == ROWS


def test_a_killed_driver_leaves_only_detached_data_sets_until_they_are_closed_or_expire(
    cluster_report: PublishJob,
) -> None:
    table = bs.connect(cluster_report.published).read_all()
    cluster_report.process.kill()  # all executors were killed before
    cluster_report.process.wait(30)
    assert wait_until(lambda: cluster_report.published.id not in {summary.id for summary in bs.published()})
    with pytest.raises(NotFoundError):
        bs.connect(cluster_report.published)
    assert table.num_rows == ROWS
    first, second = cluster_report.report["detached"]
    read = "import bowstring as bs\nsend(sorted(bs.open_published(id).read_all()['id'].to_pylist()))"
    assert run_python(read, id=first) == run_python(read, id=second) == list(range(ROWS))
    bs.unpublish(first)
    assert start_ticks(cluster_report.report["agent"]) > 0
    bs.open_published(second).extend(0.01)
    assert wait_until(lambda: start_ticks(cluster_report.report["agent"]) < 0, 20), "the host agent still runs"
    with pytest.raises(NotFoundError):
        bs.open_published(first)
    assert not {name for name in shared_memory_names() - cluster_report.shared_memory_before if "bowstring" in name}
