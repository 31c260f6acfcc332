"""One Spark session for all tests of this folder, because starting it takes longer than most tests."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bowstring.spark.versions import SPARK_VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STARTS_SPARK = {"spark", "cluster"}
NEWEST_SPARK_VERSION = (4, 3)
_LACKING = re.compile(
    r"needs PySpark \d+\.\d+, this is [^\n]+"
    r"|No module named 'pyspark\.sql\.(?:streaming\.)?datasource'"
    r"|module 'pyspark\.sql\.types' has no attribute '\w+'"
    r"|'(?:DataFrame|RuntimeConfig)' object has no attribute '(?:toArrow|getAll)'"
    r"|cannot import name '\w+' from 'pyspark\.sql\.types'"
    r"|DataTypeSingleton\.__call__\(\) takes 1 positional argument but 2 were given"
    r"|Unsupported data type \"TIME"
    r"|time64\[ns\] is not supported in conversion to Arrow"
)
"""What the errors of tests say that need more than an older PySpark has."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore:distutils Version classes:DeprecationWarning"))  # of 3.5
        if STARTS_SPARK & set(getattr(item, "fixturenames", ())):
            item.add_marker("spark")
            # Warnings of PySpark and py4j.
            item.add_marker(pytest.mark.filterwarnings("ignore:PySpark does not yet fully support:FutureWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None]:
    with _skip_what_spark_lacks():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    with _skip_what_spark_lacks():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a file of tests that imports what this version of PySpark lacks."""
    report = yield
    lacking = _LACKING.search(str(report.longrepr)) if report.failed and SPARK_VERSION < NEWEST_SPARK_VERSION else None
    if lacking is not None:
        report.outcome, report.longrepr = "skipped", (str(collector.path), 1, f"Skipped: {lacking[0]}")
    return report


@contextmanager
def _skip_what_spark_lacks() -> Iterator[None]:
    """Skip a test that needs what this version of PySpark lacks, as its error says, or the output of a subprocess."""
    try:
        yield
    except Exception as problem:
        lacking = _LACKING.search(f"{type(problem).__name__}: {problem}")
        if SPARK_VERSION >= NEWEST_SPARK_VERSION or lacking is None:
            raise
        pytest.skip(lacking[0])


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores; a task may fail three times before its job does."""
    pytest.importorskip("pyspark")
    from bowstring.spark import session
    from bowstring.spark.versions import ARROW_CACHE

    home = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="bowstring-tests-") as folder:
        os.chdir(folder)  # to see that nothing is left there
        try:
            test_session = session(
                "local[2,4]",
                {
                    "spark.sql.execution.arrow.maxRecordsPerBatch": 100,
                    "spark.sql.session.timeZone": "Europe/Berlin",
                    "spark.sql.shuffle.partitions": 2,
                    "spark.driver.memory": "1g",
                },
                arrow_cache=ARROW_CACHE.is_available,
            )
        finally:
            os.chdir(home)
        yield test_session
        test_session.stop()
        assert list(Path(folder).iterdir()) == []


@dataclass
class Cluster:
    """A driver that has run all jobs of cluster_job.py on two hosts, and is still there."""

    process: subprocess.Popen[str]
    folder: Path
    reports: dict[str, Any]
    shared_memory_before: set[str]

    def read_log(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture(scope="session")
def cluster(two_hosts: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder, before = tmp_path_factory.mktemp("cluster"), shared_memory_names()
    for name in ("killed", "lagging"):
        (folder / name).mkdir()
    (folder / "lagging" / "lag").touch()
    (folder / "lagging" / "trouble-1").touch()  # no executor is killed this time
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("cluster_job.py")), two_hosts, str(folder)],
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
        yield Cluster(process, folder, json.loads(line), before)
    finally:
        process.kill()
        process.communicate()


def shared_memory_names() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir() if "bowstring" in path.name}


@pytest.fixture(scope="session")
def two_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The master of a cluster of two workers with addresses of their own: Spark never runs a task twice on one host."""
    from pyspark.find_spark_home import _find_spark_home

    from bowstring.spark.runtime.java_runtime import find_java

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
