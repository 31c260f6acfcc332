"""Host agents that serve other hosts: what listens, who may read and control them, and who owns them."""

from __future__ import annotations

import os
import secrets
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import bowstring as bs
from bowstring.datasets.dataset import DatasetPart
from bowstring.errors import (
    AccessDeniedError,
    ConnectionLostError,
    InvalidArgumentError,
    InvalidDataError,
    LimitError,
    NotFoundError,
)
from bowstring.sharing.agent.client import AgentClient, AgentKey, AttemptLocation
from bowstring.sharing.agent.control import ControlSession, RemoteAccess
from bowstring.sharing.dataset_locations import DatasetLocations
from bowstring.sharing.processes import ProcessIdentity, start_ticks
from bowstring.sharing.stored_parts import store_in_region
from bowstring.transports.base import TransportOptions
from bowstring.transports.blocking import BlockingChannel
from bowstring.transports.sockets.tcp import TCP
from bowstring.transports.sockets.tcp_address import parse_address
from bowstring_testing.transport_conformance import run_in_thread
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess
from tests.transports.blocking import BlockingListener
from tests.transports.certificates import Authority

OWN = """
from bowstring.sharing.agent.client import AgentClient
from bowstring.sharing.processes import ProcessIdentity
agent = AgentClient.dial(key, control_uri)
agent.own(ProcessIdentity.current())
send(None)
receive()
"""
PUT_AND_END = """
from dataclasses import replace
import bowstring as bs
from bowstring.sharing.agent.client import AgentClient
from bowstring.sharing.processes import ProcessIdentity
from bowstring.sharing.stored_parts import store_in_region
# As on another host: the owner is not there, and this process is the executor.
elsewhere = replace(key, owner=replace(key.owner, host="elsewhere"))
with AgentClient.open(elsewhere) as agent:
    region, rows = store_in_region(bs.table({"a": [1, 2]}))
    send((agent.put("d", (0, 0), region, num_rows=rows), agent.status()["pid"]))
    receive()
"""


def create_key(access: RemoteAccess | None = None) -> Iterator[AgentKey]:
    key = AgentKey(access=access or RemoteAccess("127.0.0.1"))
    yield key
    try:
        with AgentClient.open(key, start=False) as agent:
            os.kill(agent.status()["pid"], signal.SIGKILL)
    except ConnectionLostError:
        pass


@pytest.fixture
def key() -> Iterator[AgentKey]:
    yield from create_key()


def put_partition(agent: AgentClient, values: list[int], partition: int = 0) -> AttemptLocation:
    region, rows = store_in_region(bs.table({"a": values}))
    with region:
        return agent.put("d", (partition, 0), region, num_rows=rows)


def listening_ports(pid: int) -> set[int]:
    sockets = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {
        int(line[1].rpartition(":")[2], 16) for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets
    }


def test_only_an_agent_with_access_for_other_hosts_listens_at_the_network(key: AgentKey) -> None:
    with AgentClient.open(key) as agent:
        location = put_partition(agent, [1])
        _, data_port = parse_address(location.uris[1].partition(":")[2].partition("?")[0])
        _, control_port = parse_address(location.control_uri.partition(":")[2])
        assert listening_ports(agent.status()["pid"]) == {data_port, control_port}
    local_key = AgentKey()
    with AgentClient.open(local_key) as agent:
        local_location = put_partition(agent, [1])
        assert len(local_location.uris) == 1
        assert local_location.control_uri == ""
        assert listening_ports(agent.status()["pid"]) == set()
        os.kill(agent.status()["pid"], signal.SIGKILL)


def test_a_partition_is_read_from_shared_memory_or_over_tcp(key: AgentKey) -> None:
    with AgentClient.open(key) as agent:
        location = put_partition(agent, [1, 2])
        agent.commit_attempts("d", {0: 0})
    unix, tcp = location.uris
    assert unix.startswith("unix:")
    assert tcp.startswith("tcp://127.0.0.1:")
    for uri in location.uris:
        assert bs.connect(uri).read_all().to_pydict() == {"a": [1, 2]}


def test_forged_and_foreign_tickets_are_denied_and_those_of_a_dropped_data_set_are_refused(key: AgentKey) -> None:
    other_key = AgentKey(access=RemoteAccess("127.0.0.1"))
    with AgentClient.open(key) as agent, AgentClient.open(other_key) as other:
        location, foreign = put_partition(agent, [1, 2]), put_partition(other, [3])
        agent.commit_attempts("d", {0: 0})
        other.commit_attempts("d", {0: 0})
        foreign_ticket = foreign.uris[1].rpartition("&ticket=")[2]
        for uri in location.uris:
            beginning, _, ticket = uri.rpartition("&ticket=")
            name = ticket.partition("~")[0]
            forged = f"{ticket[:-2]}{'A' if ticket[-2] != 'A' else 'B'}{ticket[-1]}"
            for wrong in (name, f"{name}~~", forged, foreign_ticket):
                with pytest.raises(AccessDeniedError):
                    bs.connect(f"{beginning}&ticket={wrong}")
        agent.drop("d")
        for uri in location.uris:
            with pytest.raises(NotFoundError):
                bs.connect(uri)
        os.kill(other.status()["pid"], signal.SIGKILL)


def test_tickets_are_refused_once_the_data_set_has_expired(key: AgentKey) -> None:
    region, rows = store_in_region(bs.table({"a": [1]}))
    with AgentClient.open(key) as agent:
        location = agent.put("d", (0, 0), region, num_rows=rows, ttl_s=0.1)
        agent.commit_attempts("d", {0: 0})
        assert wait_until(lambda: not agent.status()["datasets"])
        for uri in location.uris:
            with pytest.raises(NotFoundError, match=r"data set 'd' expired after its lifetime of 0\.1 s at"):
                bs.connect(uri)


def test_a_driver_with_the_secret_commits_and_drops_over_tcp(key: AgentKey) -> None:
    with AgentClient.open(key) as agent:
        location = put_partition(agent, [1, 2])
    with AgentClient.dial(key, location.control_uri) as control:
        assert control.commit_attempts("d", {0: 0, 7: 0}) == [7]
        assert control.commit_attempts("d", {0: 0}) == []
        assert bs.connect(location.uris[1]).read_all().num_rows == 2
        assert control.status()["datasets"]["d"]["rows"] == 2
        control.drop("d")
        with pytest.raises(NotFoundError, match="data set 'd' was dropped at"):
            control.drop("d")


@pytest.mark.thorough
def test_a_driver_owns_an_agent_until_the_last_of_its_connections_ends(key: AgentKey) -> None:
    with PythonProcess(PUT_AND_END, key=key) as executor:
        location, pid = executor.receive()
        driver = ProcessIdentity.current()
        with AgentClient.dial(key, location.control_uri) as one, AgentClient.dial(key, location.control_uri) as other:
            other.own(driver)
            one.own(driver)
            executor.kill()
            one.close()  # as if threads of the driver had replaced them in another order
            assert not wait_until(lambda: not other.status()["datasets"], within_s=1.5)  # the agent looks each second
    assert wait_until(lambda: start_ticks(pid) < 0)


def test_control_requests_of_thousands_of_partitions_pass(key: AgentKey) -> None:
    with AgentClient.open(key) as agent:
        location = put_partition(agent, [1, 2])
        with AgentClient.dial(key, location.control_uri) as control:
            expected = list(range(1, 100_000))
            assert control.commit_attempts("d", dict.fromkeys(range(100_000), 0)) == expected


def test_other_hosts_can_neither_put_nor_reserve_nor_add_local_owners(key: AgentKey) -> None:
    with AgentClient.open(key) as agent:
        location = put_partition(agent, [1])
    with AgentClient.dial(key, location.control_uri) as control:
        for operation in ("put", "reserve", "hello"):
            with pytest.raises(InvalidDataError, match="expected a request"):
                control._request({"op": operation})
        with pytest.raises(InvalidDataError, match="memory of another host"):
            control._request({"op": "drop", "dataset": "d", "region": 0})


def test_another_secret_is_refused_by_both_ends(key: AgentKey) -> None:
    with AgentClient.open(key) as agent:
        location = put_partition(agent, [1])
        assert key.access is not None
        wrong = replace(key, access=replace(key.access, secret=secrets.token_bytes(32)))
        with pytest.raises(ConnectionLostError):
            AgentClient.dial(wrong, location.control_uri)
        with pytest.raises(InvalidArgumentError, match="another secret"):
            AgentClient.open(wrong, start=False)
        assert agent.status()["datasets"]["d"]["rows"] == 1


def dial_raw(location: AttemptLocation) -> BlockingChannel:
    options = TransportOptions(timeout_s=20)
    return BlockingChannel.dial(TCP, location.control_uri.partition(":")[2], options=options)


def test_a_repeated_changed_or_reflected_message_ends_the_connection(key: AgentKey) -> None:
    assert key.access is not None
    with AgentClient.open(key) as agent:
        location = put_partition(agent, [1])
    nonce = secrets.token_bytes(32)

    def start_session(channel: BlockingChannel) -> ControlSession:
        channel.send((nonce,))
        assert key.access is not None
        return ControlSession(key.access.secret, nonce, bytes(channel.receive().data), is_agent=False)

    request = b'{"op": "ping"}'
    with dial_raw(location) as channel:
        signed = b"".join(start_session(channel).sign(request))
        channel.send((signed,))
        reply = bytes(channel.receive().data)
        channel.send((signed,))
        with pytest.raises(ConnectionLostError):
            channel.receive()
    for wrong in (signed, reply, signed[:-1], b"", request):
        with dial_raw(location) as channel:
            start_session(channel)
            channel.send((wrong,))
            with pytest.raises(ConnectionLostError):
                channel.receive()
    with dial_raw(location) as channel:
        digest, message = start_session(channel).sign(request)
        channel.send((digest, message.replace(b"ping", b"drop")))
        with pytest.raises(ConnectionLostError):
            channel.receive()


@pytest.mark.parametrize("length_bytes", [0, 31, 33, 1 << 10, (1 << 10) + 1, 1 << 20])
def test_a_client_that_is_not_authenticated_can_send_only_the_greeting(key: AgentKey, length_bytes: int) -> None:
    with AgentClient.open(key) as agent:
        location = put_partition(agent, [1])
        with dial_raw(location) as channel, pytest.raises(ConnectionLostError):
            channel.send((bytes(length_bytes),))
            channel.receive()
        assert agent.status()["datasets"]["d"]["rows"] == 1


def test_an_agent_that_is_not_authenticated_can_send_only_a_short_reply(key: AgentKey) -> None:
    options = TransportOptions(timeout_s=20, allow_other_hosts=True)
    with BlockingListener.listen(TCP, "127.0.0.1:0", options=options) as listener:

        def answer() -> None:
            with listener.accept() as channel:
                channel.receive()
                channel.send((secrets.token_bytes(32),))
                channel.receive()
                with pytest.raises(ConnectionLostError):
                    channel.send((bytes(1 << 20),))
                    channel.receive()

        with run_in_thread(answer) as raised, pytest.raises(LimitError, match="1048576 bytes; at most 1024"):
            AgentClient.dial(key, f"tcp:{listener.address}")
        assert not raised


@pytest.mark.thorough
def test_silent_connections_of_other_hosts_displace_neither_tasks_nor_the_driver(key: AgentKey) -> None:
    with AgentClient.open(key) as agent:
        location = put_partition(agent, [1])
        host, port = parse_address(location.control_uri.partition(":")[2])
        with AgentClient.dial(key, location.control_uri) as control:
            connections = [socket.create_connection((host, port)) for _ in range(1100)]
            try:
                assert agent.status()["datasets"]["d"]["rows"] == 1
                assert control.status()["datasets"]["d"]["rows"] == 1
                with AgentClient.dial(key, location.control_uri) as another:
                    assert another.commit_attempts("d", {0: 0}) == []
            finally:
                for connection in connections:
                    connection.close()


FLOOD = """
import os, socket, struct
send("ready")
connections = []
while True:
    connections.append(socket.create_connection(address))
    # The greeting; the agent answers, and waits for a request that is signed.
    connections[-1].sendall(struct.pack("<4sBBHQQ", b"BWS1", 0, 0, 0, 0, 32) + os.urandom(32))
    if len(connections) > 500:
        connections.pop(0).close()
"""


@pytest.mark.thorough
def test_a_flood_of_the_control_port_keeps_out_neither_tasks_nor_readers_nor_the_driver(key: AgentKey) -> None:
    with AgentClient.open(key) as agent:
        location = put_partition(agent, [1, 2])
        agent.commit_attempts("d", {0: 0})
    address = parse_address(location.control_uri.partition(":")[2])
    with AgentClient.dial(key, location.control_uri) as driver, PythonProcess(FLOOD, address=address) as flood:
        flood.receive()
        for _ in range(20):
            assert driver.status()["datasets"]["d"]["rows"] == 2
            with AgentClient.dial(key, location.control_uri) as late, AgentClient.open(key, start=False) as task:
                assert late.status()["pid"] == task.status()["pid"]
            assert bs.connect(location.uris[1]).read_all().num_rows == 2
        flood.process.poll()
        assert flood.process.returncode is None


def test_the_secret_is_in_no_argument_environment_or_text(key: AgentKey) -> None:
    assert key.access is not None
    secret = key.access.secret
    with AgentClient.open(key) as agent:
        process = Path(f"/proc/{agent.status()['pid']}")
        for name in ("cmdline", "environ"):
            content = (process / name).read_bytes()
            assert secret not in content
            assert secret.hex().encode() not in content
    assert secret.hex() not in repr(key)
    assert repr(secret)[2:-1] not in repr(key)


def test_signatures_of_tickets_are_in_no_text(key: AgentKey) -> None:
    with AgentClient.open(key) as agent:
        location = put_partition(agent, [1])
    texts = [repr(location), repr(DatasetPart(1, 100, location.uris, "host")), repr(DatasetLocations(location.uris))]
    for uri in location.uris:
        signature = uri.rpartition("~")[2]
        assert len(signature) > 40
        assert not [text for text in texts if signature in text]


@pytest.mark.thorough
def test_an_agent_is_owned_by_a_process_with_a_connection_until_that_ends(key: AgentKey) -> None:
    with PythonProcess(PUT_AND_END, key=key) as executor:
        location, agent_pid = executor.receive()
        with AgentClient.dial(key, location.control_uri) as control:
            control.commit_attempts("d", {0: 0})
        with PythonProcess(OWN, key=key, control_uri=location.control_uri) as driver:
            driver.receive()
            executor.kill()
            assert bs.connect(location.uris[1]).read_all().num_rows == 2
            assert not wait_until(lambda: start_ticks(agent_pid) < 0, 1.2), "the agent ended with the executor"
            driver.kill()
        assert wait_until(lambda: start_ticks(agent_pid) < 0), "the agent outlives the driver"
        with pytest.raises(ConnectionLostError):
            bs.connect(location.uris[1])


@pytest.mark.thorough
def test_a_later_connection_of_an_owner_replaces_an_earlier_one(key: AgentKey) -> None:
    with PythonProcess(PUT_AND_END, key=key) as executor:
        location, agent_pid = executor.receive()
        first = AgentClient.dial(key, location.control_uri)
        first.own(ProcessIdentity.current())
        with AgentClient.dial(key, location.control_uri) as second:
            second.own(ProcessIdentity.current())
            executor.kill()
            first.close()
            assert not wait_until(lambda: start_ticks(agent_pid) < 0, 1.2)
        assert wait_until(lambda: start_ticks(agent_pid) < 0)


def test_with_certificates_readers_and_the_driver_use_tls(authority: Authority) -> None:
    access = RemoteAccess("127.0.0.1", tls=authority.server("127.0.0.1", checks_clients=True))
    for key in create_key(access):
        with AgentClient.open(key) as agent:
            location = put_partition(agent, [1, 2])
        assert location.control_uri.startswith("tcp+tls://127.0.0.1:")
        with AgentClient.dial(key, location.control_uri) as control:
            assert control.commit_attempts("d", {0: 0}) == []
        unix, network = location.uris
        assert network.startswith("tcp+tls://")
        with pytest.raises(ConnectionLostError):
            bs.connect(network, tls=authority.client())  # without a certificate, which `authorities` requires
        assert bs.connect(network, tls=access.tls).read_all().num_rows == 2
        assert bs.connect(unix).read_all().num_rows == 2


def test_the_advertised_host_is_in_the_uris(key: AgentKey) -> None:
    for other in create_key(RemoteAccess("localhost", bind_address="127.0.0.5")):
        with AgentClient.open(other) as agent:
            location = put_partition(agent, [1])
            assert location.uris[1].startswith("tcp://localhost:")
            assert location.control_uri.startswith("tcp://localhost:")
            _, port = parse_address(location.control_uri.partition(":")[2])
            socket.create_connection(("127.0.0.5", port)).close()
