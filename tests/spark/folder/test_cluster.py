"""Writing on executors that are processes of their own, and die."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.conftest import Cluster

pytest.importorskip("pyspark")

pytestmark = pytest.mark.thorough

ROWS = 60_000


def test_an_executor_was_killed_and_a_task_failed_in_the_middle_of_their_files(cluster: Cluster) -> None:
    assert (cluster.folder / "killed" / "trouble-1").exists()
    assert "Command exited with code 137" in cluster.read_log()


def test_each_row_is_written_once(cluster: Cluster) -> None:
    report = cluster.reports["killed"]
    assert report["rows"] == report["distinct"] == ROWS
    assert report["sum"] == sum(range(ROWS))


def attempts_by_folder(report: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """By partition folder: the task and the attempt that wrote each file."""
    attempts: dict[str, list[tuple[str, str]]] = {}
    for name in report["names"]:
        folder, _, file = name.rpartition("/")
        if not folder.startswith("_"):
            _, _, task, attempt, *_ = file.removesuffix(".arrow").split("-")
            attempts.setdefault(folder, []).append((task, attempt))
    return attempts


def test_failed_attempts_leave_no_files(cluster: Cluster) -> None:
    report = cluster.reports["killed"]
    assert report["old"] == [-2, -1]
    attempts = attempts_by_folder(report)
    assert {folder: len(each) for folder, each in attempts.items()} == {"k=0": 20, "k=1": 21, "k=2": 1}
    assert [len(set(attempts[folder])) for folder in ("k=0", "k=1")] == [4, 5]
    assert sorted(path.name for path in (cluster.folder / "killed").iterdir()) == ["data", "trouble-1", "trouble-3"]


def test_one_of_an_attempt_and_its_speculative_copy_replaces_the_partitions(cluster: Cluster) -> None:
    report, folder = cluster.reports["lagging"], cluster.folder / "lagging"
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
