"""The host agent with few descriptors: many partitions, many readers, and many silent connections."""

from __future__ import annotations

import json
import math
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import astuple, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import ConnectionLostError, InvalidArgumentError, NotFoundError, ResourceError
from bowstring.sharing.agent.client import AgentClient, AgentKey, agent_address_prefix, list_agent_addresses
from bowstring.sharing.agent.host_agent import TRANSPORT_OPTIONS, HostAgent
from bowstring.sharing.processes import ProcessIdentity
from bowstring.sharing.stored_parts import store_in_region
from bowstring.transports.base import RECEIVE, SEND, MessageOffered, MessageReceived
from bowstring.transports.sockets.unix import (
    UnixChannel,
    UnixListener,
    encode_unix_address,
)
from tests.polling import wait_until
from tests.sharing.faults.processes import num_descriptors
from tests.sharing.python_process import PythonProcess, needs_user_namespaces, run_python

# The agents have few descriptors.
pytestmark = pytest.mark.filterwarnings("ignore:the host agent, which all publishers share:RuntimeWarning")
RUN_AGENT = """
import resource, socket
from bowstring.sharing.agent import host_agent, agent_datasets
from bowstring.transports.sockets.unix import encode_unix_address
for name, limit in limits.items():
    resource.setrlimit(getattr(resource, name), (limit, limit))
for name, value in settings.items():
    modules = [module for module in (host_agent, agent_datasets) if hasattr(module, name)]
    setattr(modules[0], name, value)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind(encode_unix_address(address))
listener.listen()
send("ready")
host_agent.main(listener.detach())
"""
PUBLISH_AND_READ = """
import os, resource, subprocess, sys
import numpy as np
import bowstring as bs
from bowstring.memory.region import Region
from bowstring.sharing.agent.client import AgentClient, AgentKey
from bowstring.sharing.stored_parts import store_in_region, index_part
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
template = store_in_region(bs.table({"a": np.array([0])}))[0]
at = index_part(template).messages[0].body_offset
content = bytearray(template.memory)
uris = []
with AgentClient.open(AgentKey()) as agent:
    for number in range(partitions):
        content[at : at + 8] = number.to_bytes(8, "little")
        with Region.copy_of([content]) as region:
            uris.append(agent.put("many", (number, 7), region, num_rows=1).uris[0])
    missing = agent.commit_attempts("many", dict.fromkeys(range(partitions), 7))
    agent = agent.status()
    children = [
        subprocess.Popen([sys.executable, "-c", reader], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(readers)
    ]
    for child in children:
        child.stdin.write("\\n".join([*uris, "", ""]).encode())
        child.stdin.flush()
    answers = [child.stdout.readline() for child in children]
    agent_descriptors = len(os.listdir(f"/proc/{agent['pid']}/fd"))
    os.kill(agent["pid"], 9)
    answers += [child.communicate(b"\\n", timeout=600)[0] for child in children]
send((missing, agent["datasets"]["many"], agent_descriptors, answers, [child.returncode for child in children]))
"""
READ_URIS = """
import os, sys
import numpy as np
import bowstring as bs
uris = []
while line := sys.stdin.readline().strip():
    uris.append(line)
with bs.connect(uris, timeout_s=600) as data:
    table = data.read_all()
assert np.array_equal(table["a"].to_numpy(), np.arange(len(uris)))
print(len(os.listdir("/proc/self/fd")), flush=True)
sys.stdin.readline()
assert np.array_equal(table["a"].to_numpy(), np.arange(len(uris)))
print("still there")
"""


@pytest.fixture
def key() -> AgentKey:
    return AgentKey()


@contextmanager
def running_agent(key: AgentKey, limits: dict[str, int], **settings: Any) -> Iterator[int]:
    """An agent with other limits; its process."""
    with PythonProcess(RUN_AGENT, address=key.address, limits=limits, settings=settings) as other:
        assert other.receive() == "ready"
        yield other.process.pid


def put_partition(agent: AgentClient, number: int, attempt: int = 0, values: int = 100, dataset: str = "d") -> str:
    region, rows = store_in_region(bs.table({"a": np.full(values, number)}))
    with region:
        return agent.put(dataset, (number, attempt), region, num_rows=rows).uris[0]


def read_numbers(uris: list[str]) -> list[int]:
    with bs.connect(uris) as data:
        return [int(batch["a"].to_numpy()[0]) for batch in data]


@pytest.mark.thorough
def test_two_processes_read_1200_partitions_with_1024_descriptors_each() -> None:
    names = set(os.listdir("/dev/shm"))
    missing, dataset_status, agent_descriptors, answers, codes = run_python(
        PUBLISH_AND_READ, reader=READ_URIS, partitions=1200, readers=2
    )
    assert missing == []
    assert (dataset_status["partitions"], dataset_status["rows"]) == (1200, 1200)
    assert agent_descriptors < 100
    assert all(int(answer) < 20 for answer in answers[:2])
    assert (answers[2:], codes) == ([b"still there\n"] * 2, [0] * 2)  # the agent was killed in between
    new_names = set(os.listdir("/dev/shm")) - names
    assert [name for name in new_names if "ucx" not in name and not name.startswith("sem.")] == []  # of other tests


def test_requests_of_all_sizes_are_answered(key: AgentKey) -> None:
    """Above the size of messages that are offered first, within and beyond the bytes that are received at once."""
    limits = (1 << 15, 3 << 14, 1 << 16, 1 << 17, 1 << 20)
    sizes = [limit + step for limit in limits for step in range(-128, 129, 32)]
    with running_agent(key, {}), AgentClient.open(key, start=False) as agent:
        for size_bytes in sizes:
            with pytest.raises(NotFoundError):
                agent.drop("x" * size_bytes)


def test_commits_of_2000_to_6000_partitions_are_answered(key: AgentKey) -> None:
    with running_agent(key, {}), AgentClient.open(key, start=False) as agent:
        put_partition(agent, 0)
        for count in range(2000, 6001, 100):
            assert agent.commit_attempts("d", dict.fromkeys(range(count), 0)) == list(range(1, count))


def test_an_agent_holds_more_uncommitted_partitions_than_it_has_descriptors(key: AgentKey) -> None:
    with running_agent(key, {"RLIMIT_NOFILE": 64}, _SMALL_BYTES=0) as pid, AgentClient.open(key, start=False) as agent:
        uris = [put_partition(agent, number) for number in range(200)]
        assert num_descriptors(pid) < 40
        agent.commit_attempts("d", dict.fromkeys(range(200), 0))
        assert read_numbers(uris) == list(range(200))
        assert read_numbers([uris[170]]) == [170]


def test_many_data_sets_of_few_partitions_share_no_memory_and_take_few_descriptors(key: AgentKey) -> None:
    with running_agent(key, {"RLIMIT_NOFILE": 64}, _SMALL_BYTES=0) as pid, AgentClient.open(key, start=False) as agent:
        names = [f"d{number}" for number in range(15)]
        uris = [[put_partition(agent, number, dataset=name) for number in range(5)] for name in names]
        assert num_descriptors(pid) < 40
        for name in names:
            agent.commit_attempts(name, dict.fromkeys(range(5), 0))
        agent.drop(names.pop())
        assert [read_numbers(parts) for parts in uris[:-1]] == [list(range(5))] * 14
        for name in names:
            agent.drop(name)
        assert wait_until(lambda: "memfd" not in Path(f"/proc/{pid}/maps").read_text())


def test_attempts_that_are_not_committed_are_freed_at_the_commit(key: AgentKey) -> None:
    with running_agent(key, {"RLIMIT_NOFILE": 64}, _SMALL_BYTES=0) as pid, AgentClient.open(key, start=False) as agent:
        uris = [[put_partition(agent, number, attempt, 2000) for attempt in range(3)] for number in range(40)]
        before = agent.status()["datasets"]["d"]
        assert agent.commit_attempts("d", {number: number % 3 for number in range(40)}) == []
        after = agent.status()["datasets"]["d"]
        assert (before["partitions"], after["partitions"]) == (120, 40)
        assert after["bytes"] * 3 == before["bytes"]
        assert after["memory_bytes"] < after["bytes"] + 40 * 64
        assert wait_until(lambda: Path(f"/proc/{pid}/maps").read_text().count("memfd") <= after["regions"])
        assert read_numbers([tries[number % 3] for number, tries in enumerate(uris)]) == list(range(40))
        with pytest.raises(NotFoundError):
            bs.connect(uris[0][1])


def test_partitions_stay_valid_for_readers_while_others_are_packed(key: AgentKey) -> None:
    elsewhere = replace(key, owner=replace(key.owner, host="another"))  # where nothing is confirmed
    with running_agent(key, {"RLIMIT_NOFILE": 64}), AgentClient.open(elsewhere, start=False) as agent:
        uris = [put_partition(agent, number) for number in range(12)]
        with bs.connect(uris) as data:
            table = data.read_all()
            uris += [put_partition(agent, number) for number in range(12, 120)]
            assert table["a"].to_numpy().tolist() == [number for number in range(12) for _ in range(100)]
            assert data.read_all() == table
        assert read_numbers(uris) == list(range(120))


def test_small_partitions_share_a_region_that_is_freed_with_their_data_set(key: AgentKey) -> None:
    with running_agent(key, {}) as pid, AgentClient.open(key, start=False) as agent:
        uris = [put_partition(agent, number) for number in range(20)]
        uris.append(put_partition(agent, 20, values=100_000))
        agent.commit_attempts("d", dict.fromkeys(range(21), 0))
        assert agent.status()["datasets"]["d"]["regions"] == 2
        assert read_numbers(uris) == list(range(21))
        agent.drop("d")
        assert wait_until(lambda: "memfd" not in Path(f"/proc/{pid}/maps").read_text())


def test_partitions_stay_in_their_regions_if_there_is_no_memory_to_pack_them(key: AgentKey) -> None:
    limits = {"RLIMIT_NOFILE": 256, "RLIMIT_FSIZE": 20_000}
    with running_agent(key, limits) as pid, AgentClient.open(key, start=False) as agent:
        uris = [put_partition(agent, number) for number in range(100)]
        assert agent.commit_attempts("d", dict.fromkeys(range(100), 0)) == []
        assert agent.status()["datasets"]["d"]["regions"] == 100
        assert num_descriptors(pid) > 100
        assert read_numbers(uris) == list(range(100))


def test_connections_without_a_request_are_closed_for_those_with_one(key: AgentKey) -> None:
    with running_agent(key, {"RLIMIT_NOFILE": 256}, _FIRST_REQUEST_S=3600.0) as pid, ExitStack() as stack:
        silent = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(300)]
        for number, one in enumerate(silent):
            one.settimeout(20)
            one.connect(encode_unix_address(key.address))
            if number % 50 == 0:
                with AgentClient.open(key, start=False) as agent:
                    assert agent.status()["pid"] == pid
        assert num_descriptors(pid) < 60
        assert len(os.listdir(f"/proc/{pid}/task")) < 5
        with AgentClient.open(key, start=False) as agent:
            put_partition(agent, 1)
            assert [one.recv(1) for one in silent[:200]] == [b""] * 200  # closed by the agent


def test_connections_with_a_request_stay_open_while_others_connect(key: AgentKey) -> None:
    with running_agent(key, {"RLIMIT_NOFILE": 256}), ExitStack() as stack:
        first = [stack.enter_context(AgentClient.open(key, start=False)) for _ in range(32)]  # all that are allowed
        late = stack.enter_context(socket.socket(socket.AF_UNIX))
        late.connect(encode_unix_address(key.address))  # waits in the queue
        assert len({agent.status()["pid"] for agent in first}) == 1
        first[0].close()
        with AgentClient.open(key, start=False) as agent:
            assert agent.status()["datasets"] == {}


@pytest.mark.parametrize("setting", ["_FIRST_REQUEST_S", "_NEXT_REQUEST_S"])
@pytest.mark.parametrize("beginning", [b"", b"BWS1"])
def test_a_silent_connection_is_closed(key: AgentKey, setting: str, beginning: bytes) -> None:
    with running_agent(key, {}, **{setting: 0.05}), ExitStack() as stack:
        if setting == "_FIRST_REQUEST_S":
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(encode_unix_address(key.address))
        else:
            agent = stack.enter_context(AgentClient.open(key, start=False))
            connection = agent._channel.channel._socket  # type: ignore[attr-defined]
        connection.settimeout(20)
        connection.sendall(beginning)
        assert connection.recv(1) == b""


def ask_until_the_end(key: AgentKey, ask: Callable[[], object]) -> bool:
    """Call a function again and again until no agent of the key runs; return False after some seconds."""

    def has_ended() -> bool:
        with suppress(ConnectionLostError, InvalidArgumentError):
            ask()
        return key.address not in list_agent_addresses(key.address)[0]

    return wait_until(has_ended)


def ended_process() -> ProcessIdentity:
    """Return the identity of a process that was killed."""
    with PythonProcess(
        "from bowstring.sharing.processes import ProcessIdentity\nsend(ProcessIdentity.current())"
    ) as process:
        identity: ProcessIdentity = process.receive()
        process.kill()
    return identity


def test_an_agent_whose_owner_died_before_it_connected_ends_although_others_ask_it(key: AgentKey) -> None:
    dead = replace(key, owner=ended_process())
    with running_agent(key, {}, _FIRST_OWNER_S=1.0):

        def ask() -> None:
            bs.published()
            AgentClient.open(dead, start=False).close()

        assert ask_until_the_end(key, ask)


@pytest.mark.thorough
def test_an_unused_agent_ends_although_others_ask_it(key: AgentKey) -> None:
    with running_agent(key, {}, _IDLE_S=1.0):
        with AgentClient.open(key, start=False):  # owns it until the end of this process
            pass
        assert ask_until_the_end(key, bs.published)


START_AND_WAIT = """
import bowstring as bs
from bowstring.sharing.agent import client as agent_client
from bowstring.sharing.processes import ProcessIdentity
from bowstring.sharing.stored_parts import store_in_region
agent_client._LAUNCH_SCRIPT = agent_client._LAUNCH_SCRIPT.replace(
    "import main", "import main; from bowstring.sharing.agent import host_agent; host_agent._FIRST_OWNER_S = 1.0"
)
region, rows = store_in_region(bs.table({"a": [1, 2]}))
send("ready")
receive()
with agent_client.AgentClient.open(agent_client.AgentKey(token)) as agent:
    agent.put(f"d{number}", (0, 0), region, num_rows=rows)
    agent.commit_attempts(f"d{number}", {0: 0})
    receive()
"""


@pytest.mark.thorough
def test_agents_end_after_their_owners_have_died_in_any_order_also_while_they_connected() -> None:
    random = Random(7)
    tokens = [secrets.token_hex(16) for _ in range(3)]

    def count_agents() -> int:
        return sum(address.endswith(tuple(tokens)) for address in list_agent_addresses(agent_address_prefix())[0])

    with ExitStack() as stack:
        owners = [
            stack.enter_context(PythonProcess(START_AND_WAIT, token=tokens[number % 3], number=number))
            for number in range(6)
        ]
        for owner in owners:
            owner.receive()
        for owner in owners:
            owner.send(None)
        assert wait_until(count_agents)
        for owner in random.sample(owners, len(owners)):
            time.sleep(random.random() / 10)
            owner.process.kill()
            bs.published()
    assert wait_until(lambda: not count_agents())


def test_no_agent_is_started_for_an_owner_that_has_ended(key: AgentKey) -> None:
    dead = replace(key, owner=ended_process())
    with pytest.raises(ConnectionLostError, match=f"process {dead.owner.pid} has ended"):
        AgentClient.open(dead)
    assert list_agent_addresses(key.address) == (set(), set())


def test_an_owner_is_not_taken_for_ended_if_the_agent_has_no_descriptor_to_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: ProcessIdentity) -> bool:
        raise ResourceError("too many open files")

    with HostAgent() as agent:
        client, owner = RawClient(agent), ProcessIdentity.current()
        client.request(op="hello", owner=astuple(owner))
        client.put(is_detached=False)
        monkeypatch.setattr(ProcessIdentity, "is_alive", fail)
        turns = iter([False, True])
        monkeypatch.setattr(HostAgent, "_is_finished", property(lambda _: next(turns)))
        agent.run()
        assert agent._owners == {owner}
        assert len(agent.datasets) == 1


def test_a_client_that_receives_no_answers_gets_no_more_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    num_requests, num_answered = 64, 0

    def answer(*_: object) -> tuple[bytes, None]:
        nonlocal num_answered
        num_answered += 1
        return bytes(1 << 20), None

    monkeypatch.setattr(HostAgent, "answer", answer)
    listener = UnixListener(options=TRANSPORT_OPTIONS)
    with HostAgent() as agent:
        agent.listen(listener)
        with UnixChannel.dial(listener.address) as client:
            for _ in range(num_requests):
                client.submit((b"{}",))
            for _ in range(num_requests):
                client.progress(SEND)
                agent.step(0.0)
            assert 0 < num_answered < num_requests // 4
            num_received = 0
            while num_received < num_requests:
                client.progress(SEND)
                agent.step(0.0)
                for event in client.progress(RECEIVE):
                    if isinstance(event, MessageOffered):
                        client.accept_offered_message(event.token)
                    num_received += isinstance(event, MessageReceived)
                    client.grant_credit(isinstance(event, MessageReceived), 0)
            assert num_answered == num_requests


def test_a_local_connection_that_owns_the_agent_owns_it_until_it_ends() -> None:
    listener = UnixListener(options=TRANSPORT_OPTIONS)
    with HostAgent() as agent:
        agent.listen(listener)
        with UnixChannel.dial(listener.address) as client:
            owner = ProcessIdentity.current()
            client.submit((json.dumps({"op": "own", "owner": [owner.pid, owner.start_ticks, owner.host]}).encode(),))
            client.progress(SEND)
            while not agent._has_owner:
                agent.step(1.0)
        while agent._has_owner:
            assert agent.step(1.0), "the agent waits, although the connection has ended"


class RawClient:
    """A client of an agent that runs in this thread, which sends any requests."""

    def __init__(self, agent: HostAgent) -> None:
        self.agent = agent
        listener = UnixListener(options=TRANSPORT_OPTIONS)
        agent.listen(listener)
        self.channel = UnixChannel.dial(listener.address)

    def request(self, **fields: Any) -> bytes:
        """Return the reply."""
        self.channel.submit((json.dumps(fields).encode(),))
        self.channel.progress(SEND)
        while True:
            self.agent.step(1.0)
            for event in self.channel.progress(RECEIVE):
                assert isinstance(event, MessageReceived)
                return bytes(event.data)

    def put(self, **fields: Any) -> bytes:
        """Send a partition of one row with its memory; return the reply."""
        exporter = self.channel.exporter
        assert exporter is not None
        put = {"op": "put", "dataset": "d", "attempt": [0, 0], "num_rows": 1, "ttl_s": 60}
        put |= {"needs_commit": False, "is_detached": True, "is_temporary": False}
        with store_in_region(bs.table({"a": [1]}))[0] as region:
            return self.request(**{**put, "region": exporter.export(region).index, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"attempt": [0, []]},
        {"attempt": [[], 0], "needs_commit": True},
        {"attempt": [0]},
        {"ttl_s": 10**400},
        {"ttl_s": "60"},
        {"num_rows": 2},
        {"region": 1},
        {"connection": 1},
    ],
)
def test_a_malformed_partition_leaves_no_data_set(fields: dict[str, Any]) -> None:
    with HostAgent() as agent:
        reply = RawClient(agent).put(**fields)
        assert reply.startswith((b"invalid\n", b"usage\n"))
        assert not agent.datasets
        assert agent._server.names == []


def test_the_name_of_a_data_set_is_text() -> None:
    with HostAgent() as agent:
        RawClient(agent).put(dataset=7, attempt=[0.0, True])
        assert agent._server.names == ["7/0/1"]


@pytest.mark.parametrize("operation", [{"op": "renew"}, {"op": "commit", "attempts": []}])
def test_a_data_set_expires_after_a_request_for_an_impossible_lifetime(operation: dict[str, Any]) -> None:
    with HostAgent() as agent:
        client = RawClient(agent)
        client.put(ttl_s=0.2)
        assert client.request(**operation, dataset="d", ttl_s=10**400).startswith(b"invalid\n")
        wait_until(agent.datasets.drop_expired, 10.0)
        assert not agent.datasets


@pytest.mark.parametrize("owner", [[[], [], []], [1, 2], 5, None])
def test_the_connection_of_a_malformed_owner_is_counted_until_its_end(owner: object) -> None:
    with HostAgent() as agent:
        client = RawClient(agent)
        assert client.request(op="own", owner=owner).startswith(b"invalid\n")
        (connections,) = [handler.connections for handler in agent._loop._handlers if hasattr(handler, "connections")]
        assert len(connections) == 1
        client.channel.close()
        agent.step(1.0)
        assert len(connections) == 0


@pytest.mark.parametrize("ttl_s", [math.nan, -1.0])
def test_a_commit_with_an_impossible_lifetime_is_refused(key: AgentKey, ttl_s: float) -> None:
    with AgentClient.open(key) as agent, store_in_region(bs.table({"a": [1]}))[0] as region:
        agent.put("d", (0, 0), region, num_rows=1)
        with pytest.raises(InvalidArgumentError, match="ttl_s: expected a number of seconds"):
            agent.commit_attempts("d", {0: 0}, ttl_s)
        assert agent.commit_attempts("d", {0: 0}, 60.0) == []


REQUEST_AS_OTHER_USER = """
import os, socket, struct
os.setuid(65533)
request = b'{"op": "list", "name": null}'
connection = socket.socket(socket.AF_UNIX)
connection.connect(address)
try:
    connection.sendall(struct.pack("<4sBBHQQ", b"BWS1", 0, 0, 0, 0, len(request)) + request)
    send(connection.recv(1000))
except ConnectionError:
    send(b"")
"""


@needs_user_namespaces
@pytest.mark.parametrize("isolation", [[], ["--user"]], ids=["mapped", "not mapped"])
def test_an_agent_answers_no_other_user(key: AgentKey, isolation: list[str]) -> None:
    with PythonProcess(RUN_AGENT, isolation=isolation, address=key.address, limits={}, settings={}) as agent:
        assert agent.receive() == "ready"
        assert run_python(REQUEST_AS_OTHER_USER, address=encode_unix_address(key.address)) == b""


FLOOD_AS_OTHER_USER = """
import os, socket
os.setuid(65533)
send("ready")
while True:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
"""


@pytest.mark.thorough
@pytest.mark.skipif(os.getuid() != 0, reason="requires root, to connect as another user")
def test_tasks_are_answered_while_another_user_connects_again_and_again(key: AgentKey) -> None:
    with running_agent(key, {}), ExitStack() as stack:
        for _ in range(2):
            flood = PythonProcess(FLOOD_AS_OTHER_USER, address=encode_unix_address(key.address))
            stack.enter_context(flood).receive()
        for _ in range(10):
            with AgentClient.open(key, start=False) as agent:
                assert agent.status()["datasets"] == {}
            flood.process.poll()
            assert flood.process.returncode is None


@needs_user_namespaces
def test_a_process_whose_user_is_not_mapped_can_not_use_agents() -> None:
    code = """
import bowstring as bs
for call in (bs.published, lambda: bs.publish(bs.table({"a": [1]})), lambda: bs.open_published("x")):
    try:
        call()
    except bs.errors.AccessDeniedError as error:
        problem = str(error)
send(problem)
"""
    assert "host agents can't be used by user 65534: the user namespace" in run_python(code, isolation=["--user"])
