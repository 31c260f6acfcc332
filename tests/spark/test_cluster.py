"""Writing on executors that are processes of their own, and die."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

JOB = Path(__file__).with_name("cluster_job.py")
ROWS = 60_000


@pytest.fixture(scope="module")
def cluster_report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one job on a local cluster of two executors found, after one executor was killed in the middle of it."""
    folder = tmp_path_factory.mktemp("cluster")
    command = [sys.executable, str(JOB), "local-cluster[2,1,1024]", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**report, "folder": folder, "log": done.stderr}


def test_an_executor_was_killed_and_a_task_failed_in_the_middle_of_their_files(cluster_report: dict[str, Any]) -> None:
    assert (cluster_report["folder"] / "trouble-1").exists()
    assert "Command exited with code 137" in cluster_report["log"]


def test_no_row_is_lost_and_none_is_doubled(cluster_report: dict[str, Any]) -> None:
    assert cluster_report["rows"] == cluster_report["distinct"] == ROWS
    assert cluster_report["sum"] == sum(range(ROWS))


def test_the_attempts_that_died_leave_nothing_behind(cluster_report: dict[str, Any]) -> None:
    manifest, *parts = cluster_report["names"]
    assert manifest == "_manifest"
    assert [part.split("-")[2] for part in parts] == ["00000", "00001", "00002", "00003"]
    assert sorted(path.name for path in cluster_report["folder"].iterdir()) == ["data", "trouble-1", "trouble-3"]
