"""A standalone cluster of two workers, each on a host of its own: network, process and mount namespaces."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bowstring.errors import AccessDeniedError, ConnectionLostError, NotFoundError, UnmetRequirementError
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess, run_python
from tests.simulated_hosts import SimulatedHosts
from tests.spark.simulated_cluster import start_cluster

pytest.importorskip("pyspark")

pytestmark = pytest.mark.thorough

CONSUMER = Path(__file__).with_name("hosts_consumer.py")
JOB = Path(__file__).with_name("remote_job.py")
ROWS = 40_000
WORKERS = ("worker1", "worker2")
CONSUME = """
import bowstring as bs
from bowstring.transports.sockets import tcp
dialed = []
original = tcp.TcpTransport.dial
def dial(self, address, *arguments):
    dialed.append(address)
    return original(self, address, *arguments)
tcp.TcpTransport.dial = dial
while True:
    target = receive()
    dialed.clear()
    try:
        with bs.connect(target, timeout_s=timeout_s) as data:
            ids = sorted(data.read_all()["id"].to_pylist())
        send((ids, list(dialed)))
    except Exception as error:
        send((error, list(dialed)))
"""


class Cluster:
    """The hosts, the driver's process, and a consumer on each worker's host."""

    def __init__(self, hosts: SimulatedHosts, driver: subprocess.Popen[str]) -> None:
        self.hosts = hosts
        self.driver = driver
        self.published: Any = None
        self.consumers = {
            name: PythonProcess(CONSUME, network=hosts.namespace(name), timeout_s=5.0) for name in WORKERS
        }

    def command(self, line: str) -> Any:
        assert self.driver.stdin is not None
        assert self.driver.stdout is not None
        self.driver.stdin.write(f"{line}\n")
        self.driver.stdin.flush()
        for reply in self.driver.stdout:
            if reply.startswith("["):
                return json.loads(reply)[0]
        raise AssertionError("the driver has ended")

    def publish(self) -> None:
        self.published = pickle.loads(bytes.fromhex(self.command("publish")))

    def consume(self, worker: str, target: Any) -> Any:
        """The sorted rows that a consumer beside a worker reads or the error, and the addresses that it dialed."""
        self.consumers[worker].send(target)
        return self.consumers[worker].receive()

    def find_processes(self, worker: str, name: bytes) -> list[int]:
        def command_line(pid: int) -> bytes:
            try:
                return Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                return b""

        return [pid for pid in self.hosts.process_ids(worker) if name in command_line(pid)]

    def find_agents(self) -> list[int]:
        return [pid for worker in WORKERS for pid in self.find_processes(worker, b"bowstring.sharing.agent.host_agent")]


@pytest.fixture(scope="module")
def cluster_report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("hosts")
    try:
        hosts = SimulatedHosts("driver", *WORKERS)
    except UnmetRequirementError as reason:
        pytest.skip(str(reason))
    with hosts:
        cluster = Cluster(hosts, start_cluster(hosts, folder, [str(JOB)]))
        try:
            cluster.publish()
            yield cluster
        finally:
            for consumer in cluster.consumers.values():
                consumer.__exit__(None, None, None)
            with cluster.driver:  # closes its pipes
                cluster.driver.kill()


def parts_of(cluster: Cluster, worker: str) -> list[tuple[str, ...]]:
    return [part.locations for part in cluster.published.parts if part.host == worker]


def test_each_consumer_reads_the_part_of_its_host_in_place_and_the_rest_over_tcp(cluster_report: Cluster) -> None:
    hosts = cluster_report.hosts
    for worker, other in (WORKERS, WORKERS[::-1]):
        assert parts_of(cluster_report, worker)
        ids, dialed = cluster_report.consume(worker, cluster_report.published)
        assert ids == list(range(ROWS))
        assert dialed
        assert {address.rpartition(":")[0] for address in dialed} == {f"//{hosts.addresses[other]}"}
        assert len(dialed) <= 2
    ids, dialed = cluster_report.consume("worker1", [uris[0] for uris in parts_of(cluster_report, "worker1")])
    assert len(ids) == sum(part.num_rows for part in cluster_report.published.parts if part.host == "worker1")
    assert dialed == []


def test_the_demos_consumer_has_the_rows_that_it_read_in_place_and_over_tcp(cluster_report: Cluster) -> None:
    pipe = subprocess.PIPE
    process = cluster_report.hosts.start("worker1", [sys.executable, str(CONSUMER)], stdin=pipe, stdout=pipe)
    reply = json.loads(process.communicate(cluster_report.published.to_json())[0])
    assert reply["sum"] == sum(range(ROWS))
    rows = {worker: sum(p.num_rows for p in cluster_report.published.parts if p.host == worker) for worker in WORKERS}
    assert {scheme: amounts[0] for scheme, amounts in reply["schemes"].items()} == {
        "unix": rows["worker1"],
        "tcp": rows["worker2"],
    }


def test_shared_memory_of_another_host_is_refused(cluster_report: Cluster) -> None:
    unix, tcp = parts_of(cluster_report, "worker2")[0]
    assert isinstance(cluster_report.consume("worker1", unix)[0], ConnectionLostError)
    assert tcp.startswith(f"tcp://{cluster_report.hosts.addresses['worker2']}:")


def test_forged_and_foreign_tickets_are_denied(cluster_report: Cluster) -> None:
    (_, first), (_, second) = (parts_of(cluster_report, worker)[0] for worker in WORKERS)
    beginning, _, ticket = second.rpartition("&ticket=")
    foreign = first.rpartition("&ticket=")[2]
    for wrong in (foreign, ticket.partition("~")[0], f"{ticket[:-2]}{'AB'[ticket[-2] == 'A']}{ticket[-1]}"):
        assert isinstance(cluster_report.consume("worker1", f"{beginning}&ticket={wrong}")[0], AccessDeniedError)


def test_data_outlives_killed_executors(cluster_report: Cluster) -> None:
    agents = cluster_report.find_agents()
    assert len(agents) == 2
    executors = [
        pid for worker in WORKERS for pid in cluster_report.find_processes(worker, b"CoarseGrainedExecutorBackend")
    ]
    assert len(executors) == 2
    for pid in executors:
        os.kill(pid, signal.SIGKILL)
    assert not wait_until(lambda: cluster_report.find_agents() != agents, 3)
    assert cluster_report.consume("worker2", cluster_report.published)[0] == list(range(ROWS))


def test_closing_frees_the_memory_of_all_hosts(cluster_report: Cluster) -> None:
    # Of the owners of the agents, only the driver is left, which has no other data set.
    cluster_report.command("close")
    assert wait_until(lambda: not cluster_report.find_agents())
    error, _ = cluster_report.consume("worker1", cluster_report.published)
    assert isinstance(error, NotFoundError | ConnectionLostError)


def test_a_host_that_is_cut_off_is_an_error_in_bounded_time_and_keeps_its_data(cluster_report: Cluster) -> None:
    cluster_report.publish()
    hosts = cluster_report.hosts
    hosts.set_connected("worker2", False)
    try:
        error, _ = cluster_report.consume("worker1", cluster_report.published)
        assert isinstance(error, ConnectionLostError)
        local = [uris[0] for uris in parts_of(cluster_report, "worker2")]
        assert isinstance(cluster_report.consume("worker2", local)[0], list)
    finally:
        hosts.set_connected("worker2", True)
    assert cluster_report.consume("worker1", cluster_report.published)[0] == list(range(ROWS))


def test_the_parts_of_a_killed_agent_are_computed_again_and_those_of_the_other_host_stay(
    cluster_report: Cluster,
) -> None:
    before = cluster_report.published.parts
    lost = [index for index, part in enumerate(before) if part.host == "worker2"]
    for pid in cluster_report.find_processes("worker2", b"bowstring.sharing.agent.host_agent"):
        os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: cluster_report.command("missing") == json.dumps(lost))
    error, _ = cluster_report.consume("worker1", cluster_report.published)
    assert f" {lost[-1]} on host worker2 can't be reached: " in str(error)  # one part or more, as Spark chooses
    cluster_report.published = pickle.loads(bytes.fromhex(cluster_report.command("recompute")))
    assert cluster_report.command("missing") == "[]"
    changed = [index for index, part in enumerate(cluster_report.published.parts) if part != before[index]]
    assert changed == lost
    for worker in WORKERS:
        assert cluster_report.consume(worker, cluster_report.published)[0] == list(range(ROWS))


def test_any_process_extends_and_unpublishes_by_name_what_all_hosts_have(cluster_report: Cluster) -> None:
    # The agent of worker2 is another one than at first; it has none if Spark has computed all lost parts on worker1.
    if not parts_of(cluster_report, "worker2"):
        cluster_report.command("close")
        cluster_report.publish()
    assert all(parts_of(cluster_report, worker) for worker in WORKERS)
    dataset_id, one, other = cluster_report.published.id, *map(cluster_report.hosts.namespace, WORKERS)
    renew = "dataset = bs.open_published(name)\ndataset.renew(9999)\nsend(dataset.expires_at)"
    expires_at = run_python(f"import bowstring as bs\n{renew}", network=one, name=dataset_id)
    listed = "import bowstring as bs\nsend({each.id: each.expires_at for each in bs.published()})"
    for network in (one, other):
        assert abs(run_python(listed, network=network)[dataset_id] - expires_at).total_seconds() < 10
    command = ["ip", "netns", "exec", one, sys.executable, "-m", "bowstring", "unpublish", dataset_id]
    subprocess.run(command, check=True, capture_output=True)
    for network in (one, other):
        assert dataset_id not in run_python(listed, network=network)
    assert isinstance(cluster_report.consume("worker2", cluster_report.published)[0], NotFoundError)
    assert cluster_report.command("missing") == json.dumps(list(range(len(cluster_report.published.parts))))
    cluster_report.publish()


def test_a_killed_driver_leaves_no_memory_on_any_host(cluster_report: Cluster) -> None:
    assert cluster_report.find_agents()
    cluster_report.driver.kill()
    assert wait_until(lambda: not cluster_report.find_agents(), 60)
    for worker in WORKERS:
        assert isinstance(cluster_report.consume(worker, cluster_report.published)[0], ConnectionLostError)
