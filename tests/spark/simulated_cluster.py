"""A standalone Spark cluster on simulated hosts: the master on the first, and a worker with one core on each other."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bowstring.errors import UnmetRequirementError
from bowstring.spark.runtime.java_runtime import find_java
from tests.simulated_hosts import SimulatedHosts

_PORT = 7077
_MASTER_TIMEOUT_S = 120.0
_POLL_S = 0.1


def start_cluster(hosts: SimulatedHosts, folder: Path, driver: Sequence[str]) -> subprocess.Popen[str]:
    """Start the cluster, and on the first host a Python program, with the master's URL and its host as last arguments.

    Standard error of each process is a file in the folder. Raises `UnmetRequirementError` without Java.
    """
    from pyspark.find_spark_home import _find_spark_home

    first, *workers = hosts.addresses
    environment = {"JAVA_HOME": str(find_java().home), "SPARK_DAEMON_MEMORY": "256m"}
    url = f"spark://{hosts.addresses[first]}:{_PORT}"
    daemons = {first: ["master.Master", "--port", str(_PORT)]}
    for worker in workers:
        limits = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / worker)]
        daemons[worker] = ["worker.Worker", *limits, url]
    spark_class = str(Path(_find_spark_home(), "bin", "spark-class"))
    for host, (name, *arguments) in daemons.items():
        address = hosts.addresses[host]
        command = [spark_class, f"org.apache.spark.deploy.{name}", "--host", address, "--webui-port", "0", *arguments]
        with (folder / f"{host}-daemon.log").open("w") as log:
            hosts.start(host, command, {**environment, "SPARK_LOCAL_IP": address}, stderr=log)
        if host == first:
            _wait_for_master(hosts, host, folder / f"{host}-daemon.log")
    address = hosts.addresses[first]
    path = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
    with (folder / "driver.log").open("w") as log:
        return hosts.start(
            first,
            [sys.executable, *driver, url, address],
            {**environment, "SPARK_LOCAL_IP": address, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )


def _wait_for_master(hosts: SimulatedHosts, host: str, log: Path) -> None:
    """Wait until the master listens: what connects before tries it again only after 10 to 20 s."""
    end = time.monotonic() + _MASTER_TIMEOUT_S
    while not hosts.is_listening(host, _PORT):
        if time.monotonic() > end:
            raise UnmetRequirementError(f"Spark's master did not start: {log.read_text()[-2000:]}")
        time.sleep(_POLL_S)


def create_driver_settings(host: str) -> dict[str, str | int | bool]:
    """The settings of a session on the first host, which waits for all executors."""
    return {
        "spark.driver.host": host,
        "spark.driver.bindAddress": host,
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.bowstring.publish.remote": True,
    }
