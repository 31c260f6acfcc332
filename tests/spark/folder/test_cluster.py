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


def attempts_by_folder(report: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """By partition folder: the task and the attempt that wrote each file."""
    attempts: dict[str, list[tuple[str, str]]] = {}
    for name in report["names"]:
        folder, _, file = name.rpartition("/")
        if not folder.startswith("_"):
            _, _, task, attempt, *_ = file.removesuffix(".arrow").split("-")
            attempts.setdefault(folder, []).append((task, attempt))
    return attempts


def test_failed_attempts_leave_no_files(cluster_report: dict[str, Any]) -> None:
    assert cluster_report["old"] == [-2, -1]
    attempts = attempts_by_folder(cluster_report)
    assert {folder: len(each) for folder, each in attempts.items()} == {"k=0": 20, "k=1": 21, "k=2": 1}
    assert [len(set(attempts[folder])) for folder in ("k=0", "k=1")] == [4, 5]
    assert sorted(path.name for path in cluster_report["folder"].iterdir()) == ["data", "trouble-1", "trouble-3"]


def test_one_of_an_attempt_and_its_speculative_copy_replaces_the_partitions(
    cluster_reports: list[dict[str, Any]],
) -> None:
    report = cluster_reports[1]
    folder = report["folder"]
    assert report["rows"] == report["distinct"] == ROWS
    assert report["old"] == [-1], "only partitions that are written are replaced"
    attempts = attempts_by_folder(report)
    assert {name: len(each) for name, each in attempts.items()} == {"k=0": 20, "k=1": 20, "k=2": 1}
    committed = set(attempts["k=0"])
    assert committed == set(attempts["k=1"])
    assert sorted(task for task, _ in committed) == ["00000", "00001", "00002", "00003"]
    lagging = (folder / "trouble-3").read_text()
    assert lagging
    assert ("00003", lagging) not in committed
    assert not (folder / "data" / "_staging").exists()
