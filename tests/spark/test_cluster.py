"""Writing on executors that are processes of their own, and die."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

JOB = Path(__file__).with_name("cluster_job.py")
ROWS = 60_000


@pytest.fixture(scope="module")
def cluster_reports(two_hosts: str, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The reports of two jobs: an executor is killed during the first, and a task of the second lags."""
    folder = tmp_path_factory.mktemp("cluster")
    killed, lagging = folder / "killed", folder / "lagging"
    killed.mkdir()
    lagging.mkdir()
    (lagging / "lag").touch()
    (lagging / "trouble-1").touch()  # no executor is killed this time
    process = subprocess.run(
        [sys.executable, str(JOB), two_hosts, str(killed), str(lagging)],
        cwd=folder,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-5000:]
    reports = json.loads(process.stdout.splitlines()[-1])
    return [
        {**report, "folder": path, "log": process.stderr}
        for report, path in zip(reports, (killed, lagging), strict=True)
    ]


@pytest.fixture
def cluster_report(cluster_reports: list[dict[str, Any]]) -> dict[str, Any]:
    """The report of the job during which an executor was killed."""
    return cluster_reports[0]


def test_an_executor_was_killed_and_a_task_failed_in_the_middle_of_their_files(cluster_report: dict[str, Any]) -> None:
    assert (cluster_report["folder"] / "trouble-1").exists()
    assert "Command exited with code 137" in cluster_report["log"]


def test_each_row_is_written_once(cluster_report: dict[str, Any]) -> None:
    assert cluster_report["rows"] == cluster_report["distinct"] == ROWS
    assert cluster_report["sum"] == sum(range(ROWS))


def test_failed_attempts_leave_no_files(cluster_report: dict[str, Any]) -> None:
    manifest, *parts = cluster_report["names"]
    assert manifest == "_manifest"
    assert [part.split("-")[2] for part in parts] == ["00000", "00001", "00002", "00003"]
    assert sorted(path.name for path in cluster_report["folder"].iterdir()) == ["data", "trouble-1", "trouble-3"]


def test_one_of_an_attempt_and_its_speculative_copy_is_committed(cluster_reports: list[dict[str, Any]]) -> None:
    report = cluster_reports[1]
    folder = report["folder"]
    assert report["rows"] == report["distinct"] == ROWS
    committed = {part.split("-")[2]: part.split("-")[3].removesuffix(".arrow") for part in report["names"][1:]}
    assert sorted(committed) == ["00000", "00001", "00002", "00003"]
    lagging = (folder / "trouble-3").read_text()
    assert lagging
    assert committed["00003"] != lagging
    assert not (folder / "data" / "_staging").exists()
