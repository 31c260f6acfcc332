"""The agents of a data set on several hosts: committed together, owned by one process, and freed with it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import bowstring as bs
from bowstring.datasets.dataset import Dataset, DatasetPart
from bowstring.datasets.published_dataset import describe_publication
from bowstring.errors import ConnectionLostError, NotFoundError
from bowstring.sharing.agent import group as agent_group
from bowstring.sharing.agent.client import AgentClient, AgentKey, MissingEntry, PublishedEntry
from bowstring.sharing.agent.control import RemoteAccess
from bowstring.sharing.agent.group import AgentGroup
from bowstring.sharing.dataset_locations import DatasetLocations
from bowstring.sharing.processes import is_stopped, start_ticks
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess, run_python

EXECUTOR = """
from dataclasses import replace
import bowstring as bs
import numpy as np
from bowstring.sharing.agent.client import AgentClient
from bowstring.sharing.stored_parts import store_in_region
# As on another host: the owner is not there, and this process is the executor.
elsewhere = replace(key, owner=replace(key.owner, host="elsewhere"))
locations = {}
with AgentClient.open(elsewhere) as agent:
    for number in partitions:
        region, rows = store_in_region(bs.table({"a": np.full(rows_per_partition, number)}))
        with region:
            locations[number] = agent.put("d", (number, 0), region, num_rows=rows)
    send((locations, agent.status()["pid"]))
    receive()
"""
DRIVER = """
import os
from dataclasses import replace
from bowstring.sharing.agent.group import AgentGroup
from bowstring.sharing.processes import ProcessIdentity
group = AgentGroup(replace(key, owner=ProcessIdentity.current()))
send(group.commit("d", attempts, 3600.0))
if forks:
    child = os.fork()
    if not child:
        signal_number = __import__("signal").pause()
    send(child)
receive()
"""


class Cluster:
    """Two agents of one key, as of two hosts: each has half of the partitions, and an executor that owns it."""

    def __init__(self, num_partitions: int, rows_per_partition: int = 3) -> None:
        access = RemoteAccess("127.0.0.1")
        self.key = AgentKey(access=access)
        # The same secret and owner at another unix address, which on another host would be the same.
        keys = [self.key, replace(self.key, token="b" * 32 + self.key.token)]
        halves = [range(number, num_partitions, 2) for number in range(2)]
        self.executors = [
            PythonProcess(EXECUTOR, key=key, partitions=half, rows_per_partition=rows_per_partition)
            for key, half in zip(keys, halves, strict=True)
        ]
        replies = [executor.receive() for executor in self.executors]
        self.agent_pids = [pid for _, pid in replies]
        self.control_uris = [next(iter(locations.values())).control_uri for locations, _ in replies]
        self.attempts: dict[str, dict[int, int]] = {
            uri: dict.fromkeys(half, 0) for uri, half in zip(self.control_uris, halves, strict=True)
        }
        locations = replies[0][0] | replies[1][0]
        self.uris = [locations[number].uris for number in range(num_partitions)]
        self.group = AgentGroup(self.key)

    @property
    def tcp_uris(self) -> list[str]:
        return [uris[1] for uris in self.uris]

    def num_running_agents(self) -> int:
        return sum(start_ticks(pid) >= 0 for pid in self.agent_pids)

    def kill_executors(self) -> None:
        for executor in self.executors:
            executor.kill()

    def close(self) -> None:
        for executor in self.executors:
            executor.__exit__(None, None, None)
        for pid in self.agent_pids:
            if start_ticks(pid) >= 0:
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    two_hosts = Cluster(4)
    yield two_hosts
    two_hosts.close()


def test_partitions_of_all_agents_are_committed_and_dropped_together(cluster: Cluster) -> None:
    for uri in cluster.tcp_uris:
        with pytest.raises(NotFoundError):
            bs.connect(uri)
    assert cluster.group.commit("d", cluster.attempts, 3600.0) == {}
    assert [int(bs.connect(uri).read_all()["a"].to_numpy()[0]) for uri in cluster.tcp_uris] == [0, 1, 2, 3]
    cluster.group.drop("d", cluster.attempts)
    for uri in cluster.tcp_uris:
        with pytest.raises(NotFoundError):
            bs.connect(uri)


def test_the_memory_of_an_agent_that_does_not_answer_is_logged(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(agent_group, "DROP_TIMEOUT_S", 0.5)
    assert cluster.group.commit("d", cluster.attempts, 3600.0) == {}
    os.kill(cluster.agent_pids[0], signal.SIGSTOP)
    assert wait_until(lambda: is_stopped(cluster.agent_pids[0]))
    os.kill(cluster.agent_pids[1], signal.SIGKILL)
    cluster.group.drop("d", cluster.attempts)
    os.kill(cluster.agent_pids[0], signal.SIGCONT)
    (message,) = [record.getMessage() for record in caplog.records]  # of one that has ended, no memory remains
    assert message.startswith("data set d: its memory may remain until it expires: ")


def test_nothing_is_committed_if_an_agent_lacks_partitions(cluster: Cluster) -> None:
    first, second = cluster.attempts
    cluster.attempts[second][9] = 0
    assert cluster.group.commit("d", cluster.attempts, 3600.0) == {second: [9]}
    for uri in cluster.tcp_uris:
        with pytest.raises(NotFoundError):
            bs.connect(uri)
    os.kill(cluster.agent_pids[1], signal.SIGKILL)
    assert cluster.group.commit("d", cluster.attempts, 3600.0) == {second: [1, 3, 9]}
    assert cluster.group.commit("d", {first: cluster.attempts[first]}, 3600.0) == {}
    assert bs.connect(cluster.tcp_uris[0]).read_all().num_rows == 3


@pytest.mark.thorough
def test_agents_outlive_executors_and_end_with_the_driver(cluster: Cluster) -> None:
    with PythonProcess(DRIVER, key=cluster.key, attempts=cluster.attempts, forks=True) as driver:
        assert driver.receive() == {}
        child = driver.receive()
        cluster.kill_executors()
        assert not wait_until(lambda: cluster.num_running_agents() < 2, 1.2), "an agent ended with its executor"
        assert bs.connect(cluster.tcp_uris).read_all().num_rows == 12
        driver.kill()
        try:
            assert start_ticks(child) >= 0
            assert wait_until(lambda: cluster.num_running_agents() == 0), "agents outlive the driver"
        finally:
            os.kill(child, signal.SIGKILL)


def test_agents_end_with_an_interpreter_that_exits(cluster: Cluster) -> None:
    with PythonProcess(DRIVER, key=cluster.key, attempts=cluster.attempts, forks=False) as driver:
        assert driver.receive() == {}
        cluster.kill_executors()
        assert cluster.num_running_agents() == 2
        driver.send(None)
        assert driver.process.wait(30) == 0
        assert wait_until(lambda: cluster.num_running_agents() == 0)


def test_without_executors_agents_end_when_the_last_data_set_is_dropped(cluster: Cluster) -> None:
    assert cluster.group.commit("d", cluster.attempts, 3600.0) == {}
    cluster.kill_executors()
    assert not wait_until(lambda: cluster.num_running_agents() < 2, 1.2)
    cluster.group.drop("d", cluster.attempts)
    assert wait_until(lambda: cluster.num_running_agents() == 0)


def test_an_owner_connects_again_to_an_agent_that_ended_the_connection(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_group, "_MIN_INTERVAL_S", 0.05)
    assert cluster.group.commit("d", cluster.attempts, 3600.0) == {}
    (uri, *_) = cluster.attempts
    owned = agent_group._ownership._agents[uri]
    first = owned.client
    first._channel.channel.shut_down()  # as if the network had lost the connection
    assert wait_until(lambda: owned.client is not first)
    cluster.kill_executors()
    assert not wait_until(lambda: cluster.num_running_agents() < 2, 1.2)
    assert bs.connect(cluster.tcp_uris[0]).read_all().num_rows == 3
    cluster.group.drop("d", cluster.attempts)


READ = """
import bowstring as bs
from bowstring.transports.sockets import tcp
dialed = []
original = tcp.TcpTransport.dial
tcp.TcpTransport.dial = lambda self, *arguments: dialed.append(arguments) or original(self, *arguments)
with bs.connect(target) as data:
    total = sum(int(batch["a"].to_numpy().sum()) for batch in data)
send((total, len(dialed)))
"""


@pytest.mark.thorough
def test_hundreds_of_partitions_of_two_agents_are_read_over_few_connections() -> None:
    cluster = Cluster(400, 2)
    try:
        assert cluster.group.commit("d", cluster.attempts, 3600.0) == {}
        total = int(np.arange(400).sum()) * 2
        assert sorted(cluster.tcp_uris) != cluster.tcp_uris
        by_agent = cluster.tcp_uris[::2] + cluster.tcp_uris[1::2]
        sums, num_connections = run_python(READ, target=by_agent)
        assert sums == total
        assert num_connections <= 4
        sums, num_connections = run_python(READ, target=cluster.tcp_uris)  # those of the agents alternate
        assert sums == total
        assert num_connections <= 4
    finally:
        cluster.group.drop("d", cluster.attempts)
        cluster.close()


def test_the_nearest_location_of_each_part_is_used(cluster: Cluster) -> None:
    assert cluster.group.commit("d", cluster.attempts, 3600.0) == {}
    for uris in cluster.uris:
        with bs.connect(DatasetLocations(uris)) as data:
            assert data.location is not None
            assert data.location.startswith("unix:")
            assert not data.unusable_locations
            assert data.read_all().num_rows == 3
    cluster.group.drop("d", cluster.attempts)


def test_a_reader_of_a_data_set_on_this_host_opens_no_tcp_connection(cluster: Cluster) -> None:
    assert cluster.group.commit("d", cluster.attempts, 3600.0) == {}
    schema = bs.connect(cluster.uris[0][0]).schema
    dataset = Dataset("d", schema, [DatasetPart(3, 100, uris) for uris in cluster.uris])
    assert run_python(READ, target=dataset) == (18, 0)
    cluster.group.drop("d", cluster.attempts)


def test_a_process_that_finds_a_data_set_by_name_reaches_the_agents_of_all_hosts(cluster: Cluster) -> None:
    assert cluster.group.commit("d", cluster.attempts, 3600.0) == {}
    schema = bs.connect(cluster.uris[0][0]).schema
    dataset = Dataset("everywhere", schema, [DatasetPart(3, 100, uris) for uris in cluster.uris])
    publication = describe_publication(dataset, "application", tuple(cluster.control_uris))
    cluster.group.publish("d", cluster.attempts, publication)
    agents = [AgentClient.dial(cluster.key, uri) for uri in cluster.control_uris]
    code = """
import bowstring as bs
dataset = bs.open_published("d")
dataset.renew(7200)
send(dataset.expires_at)
receive()
send(bs.unpublish("d"))
"""
    with PythonProcess(code) as other:
        expires_at = other.receive()
        for agent in agents:
            entry = agent.find_published("d")
            assert isinstance(entry, PublishedEntry)
            assert entry.access is not None
            assert cluster.key.access is not None
            assert entry.access.secret == cluster.key.access.secret
            assert entry.summary.expires_at is not None
            assert abs(entry.summary.expires_at - expires_at).total_seconds() < 10
        other.send(None)
        assert other.receive() == "d"
    for agent in agents:
        with agent:
            reply = agent.find_published("d")
            assert isinstance(reply, MissingEntry)
            assert "data set 'd' was unpublished by process " in reply.ended
    with pytest.raises(NotFoundError, match="does not exist any more"):
        cluster.group.renew("d", cluster.attempts, 60)


def test_an_unreachable_agent_is_an_error_that_is_raised_in_time(cluster: Cluster) -> None:
    for pid in cluster.agent_pids:
        os.kill(pid, signal.SIGKILL)
    assert {uri: sorted(numbers) for uri, numbers in cluster.attempts.items()} == cluster.group.commit(
        "d", cluster.attempts, 3600.0
    )
    with pytest.raises(ConnectionLostError):
        AgentClient.dial(cluster.key, cluster.control_uris[0])
