"""Writing on executors that are processes of their own, and die."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

JOB = Path(__file__).with_name("cluster_job.py")
ROWS = 60_000


@pytest.fixture(scope="module")
def two_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The master of a cluster of two workers with addresses of their own: Spark never runs a task twice on one host."""
    from pyspark.find_spark_home import _find_spark_home

    from bowstring.spark.java_runtime import find_java

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    work = tmp_path_factory.mktemp("work")
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    for host in ("127.0.0.2", "127.0.0.3"):
        limits = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(work)]
        commands.append([f"{deploy}.worker.Worker", "--host", host, *limits, url])
    processes = []
    try:
        for command in commands:
            processes.append(
                subprocess.Popen(
                    [str(Path(_find_spark_home(), "bin", "spark-class")), *command],
                    env={**os.environ, "JAVA_HOME": str(find_java().home), "SPARK_DAEMON_MEMORY": "256m"},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
            deadline_s = time.monotonic() + 60
            while len(processes) == 1:  # the workers need the master to be there
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    assert time.monotonic() < deadline_s, "the master did not come up"
                    time.sleep(0.1)
        yield url
    finally:
        for process in reversed(processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


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
