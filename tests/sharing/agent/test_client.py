"""The host agent: it outlives the processes that passed it memory, and ends with its owners."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import bowstring as bs
from bowstring.errors import (
    ConnectionLostError,
    InvalidArgumentError,
    InvalidDataError,
    NotFoundError,
    ProtocolError,
    ResourceError,
)
from bowstring.memory.region import Region
from bowstring.sharing.agent import client as agent_client
from bowstring.sharing.agent.client import AgentClient, AgentKey, try_launch_agent
from bowstring.sharing.processes import ProcessIdentity
from bowstring.sharing.stored_parts import store_in_region
from bowstring.transports.blocking import BlockingChannel
from bowstring.transports.sockets.unix import UNIX, encode_unix_address
from bowstring_testing.descriptors import assert_descriptors_closed
from bowstring_testing.transport_conformance import connect_pair
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess, run_python

PUT_PARTITION = """
import bowstring as bs
from bowstring.sharing.agent.client import AgentClient
from bowstring.sharing.stored_parts import store_in_region
with AgentClient.open(key) as agent:
    region, rows = store_in_region(bs.table({"a": values}))
    send(agent.put("d", place, region, num_rows=rows).uris[0])
"""
START_AND_COMMIT = """
from bowstring.sharing.agent.client import AgentClient, AgentKey
import bowstring as bs
from bowstring.sharing.stored_parts import store_in_region
key = AgentKey()
agent = AgentClient.open(key)
region, rows = store_in_region(bs.table({"a": [1, 2]}))
uri = agent.put("d", (0, 0), region, num_rows=rows).uris[0]
agent.commit_attempts("d", {0: 0})
send((uri, agent.status()["pid"]))
receive()
"""
RUN_AGENT_WITH_SETTING = """
import socket
from bowstring.sharing.agent import host_agent
from bowstring.transports.sockets.unix import encode_unix_address
setattr(host_agent, setting, 0.2)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind(encode_unix_address(address))
listener.listen()
send("ready")
host_agent.main(listener.detach())
"""


def put_partition(agent: AgentClient, values: list[int], attempt: tuple[int, int], dataset: str = "d") -> str:
    region, rows = store_in_region(bs.table({"a": values}))
    with region:
        return agent.put(dataset, attempt, region, num_rows=rows).uris[0]


def read_column(uri: str) -> list[int]:
    return list(bs.connect(uri).read_all().to_pydict()["a"])


def is_running(pid: int) -> bool:
    return ProcessIdentity.from_pid(pid).start_ticks >= 0


def test_partitions_can_be_read_after_their_process_has_ended(key: AgentKey) -> None:
    uri = run_python(PUT_PARTITION, key=key, values=[1, 2], place=(0, 5))
    with AgentClient.open(key, start=False) as agent:
        assert agent.commit_attempts("d", {0: 5}) == []
        assert read_column(uri) == [1, 2]


def test_only_committed_attempts_can_be_read_and_the_others_are_dropped(key: AgentKey) -> None:
    with AgentClient.open(key) as agent:
        first, second = put_partition(agent, [1], (0, 1)), put_partition(agent, [1], (0, 2))
        other = put_partition(agent, [3], (1, 3))
        with pytest.raises(NotFoundError):
            bs.connect(first)
        assert agent.commit_attempts("d", {0: 2, 1: 3}) == []
        assert read_column(second) + read_column(other) == [1, 3]
        with pytest.raises(NotFoundError):
            bs.connect(first)
        assert agent.status()["datasets"]["d"]["partitions"] == 2
        with pytest.raises(InvalidArgumentError, match="partitions can't be added"):
            put_partition(agent, [1], (0, 4))


def test_a_reopened_data_set_takes_attempts_and_serves_the_committed_ones_until_the_next_commit(key: AgentKey) -> None:
    with AgentClient.open(key) as agent:
        old = put_partition(agent, [1], (0, 1))
        same = put_partition(agent, [2], (1, 2))
        agent.commit_attempts("d", {0: 1, 1: 2})
        assert agent.find_missing("d", {0: 1, 1: 2, 2: 3}) == [2]
        agent.reopen("d")
        new, late = put_partition(agent, [3], (0, 5)), put_partition(agent, [4], (1, 6))
        assert read_column(old) + read_column(same) == [1, 2]
        with pytest.raises(NotFoundError):
            bs.connect(new)
        assert agent.commit_attempts("d", {0: 5, 1: 2}) == []
        assert read_column(new) + read_column(same) == [3, 2]
        with pytest.raises(NotFoundError, match="data set 'd': the partition was computed again"):
            bs.connect(old)
        with pytest.raises(NotFoundError):
            bs.connect(late)
        assert agent.status()["datasets"]["d"]["partitions"] == 2
        with pytest.raises(InvalidArgumentError, match="partitions can't be added"):
            put_partition(agent, [1], (0, 7))
        with pytest.raises(NotFoundError):
            agent.reopen("e")


def test_missing_partitions_are_named_and_nothing_is_committed(key: AgentKey) -> None:
    with AgentClient.open(key) as agent:
        uri = put_partition(agent, [1], (0, 1))
        assert agent.commit_attempts("d", {0: 1, 4: 9, 7: 9}) == [4, 7]
        with pytest.raises(NotFoundError):
            bs.connect(uri)


def test_a_dropped_data_set_cannot_be_read_and_its_memory_is_freed(key: AgentKey) -> None:
    with AgentClient.open(key) as agent:
        uri = put_partition(agent, [1, 2], (0, 1))
        agent.commit_attempts("d", {0: 1})
        table = bs.connect(uri).read_all()
        agent.drop("d")
        with pytest.raises(NotFoundError):
            bs.connect(uri)
        with pytest.raises(NotFoundError, match="data set 'd' was dropped at"):
            agent.drop("d")
        with pytest.raises(InvalidArgumentError, match="partitions can't be added"):
            put_partition(agent, [3], (0, 2))
        assert table.to_pydict() == {"a": [1, 2]}
        pid = agent.status()["pid"]
        del table
        assert wait_until(lambda: "memfd" not in Path(f"/proc/{pid}/maps").read_text())


def test_processes_that_start_the_agent_concurrently_use_one_agent(key: AgentKey) -> None:
    code = (
        "from bowstring.sharing.agent.client import AgentClient\n"
        "receive()\n"
        "with AgentClient.open(key) as agent: send(agent.status()['pid'])"
    )
    others = [PythonProcess(code, key=key) for _ in range(4)]
    try:
        for other in others:
            other.send("go")
        with ThreadPoolExecutor(4) as pool:
            assert len(set(pool.map(PythonProcess.receive, others))) == 1
    finally:
        for other in others:
            with other:
                pass


@pytest.mark.skipif(os.getuid() != 0, reason="requires root, to be several users")
def test_an_agent_has_another_address_if_another_user_occupies_that_of_its_key(key: AgentKey) -> None:
    code = """
import os, socket
os.setuid(65534)
occupier = socket.socket(socket.AF_UNIX)
occupier.bind(address)
send("ready")
receive()
"""
    with PythonProcess(code, address=encode_unix_address(key.address)) as other:
        assert other.receive() == "ready"
        with pytest.raises(ConnectionLostError):
            AgentClient.open(key, start=False)
        with AgentClient.open(key) as agent, AgentClient.open(key, start=False) as same:
            assert agent.address == same.address == f"{key.address}-1"
            assert agent.status()["pid"] == same.status()["pid"]


def test_the_agent_ends_with_its_owner_and_its_memory_is_freed() -> None:
    with PythonProcess(START_AND_COMMIT) as other:
        uri, pid = other.receive()
        table = bs.connect(uri).read_all()
        assert is_running(pid)
        other.kill()
        assert wait_until(lambda: not is_running(pid))
    assert table.to_pydict() == {"a": [1, 2]}
    with pytest.raises(ConnectionLostError):
        bs.connect(uri)


@pytest.mark.thorough
def test_the_agent_survives_killed_writers(key: AgentKey) -> None:
    with PythonProcess(PUT_PARTITION + "\nreceive()", key=key, values=[7], place=(0, 0)) as other:
        uri = other.receive()
        other.kill()
    time.sleep(1.5)  # the host agent looks once a second for who has ended
    with AgentClient.open(key, start=False) as agent:
        agent.commit_attempts("d", {0: 0})
    assert read_column(uri) == [7]


def test_a_killed_agent_is_a_lost_connection_and_attached_data_stays_valid(key: AgentKey) -> None:
    with AgentClient.open(key) as agent:
        uri = put_partition(agent, [1, 2], (0, 0))
        agent.commit_attempts("d", {0: 0})
        data = bs.connect(uri)
        table = data.read_all()
        os.kill(agent.status()["pid"], 9)
        with pytest.raises(ConnectionLostError):
            agent.status()
    for use in (data.read_all, lambda: bs.connect(uri)):
        with pytest.raises(ConnectionLostError, match=r"the published data no longer exists.*publish it again"):
            use()
    assert table.to_pydict() == {"a": [1, 2]}
    with pytest.raises(ConnectionLostError):
        AgentClient.open(key, start=False)
    with AgentClient.open(key) as agent, pytest.raises(NotFoundError):
        agent.commit_attempts("d", {0: 0})


def test_the_time_to_live_of_a_data_set_begins_with_its_commit(key: AgentKey) -> None:
    with AgentClient.open(key) as agent:
        region, rows = store_in_region(bs.table({"a": [1]}))
        uri = agent.put("short", (0, 0), region, num_rows=rows, ttl_s=0.1).uris[0]
        time.sleep(1.2)  # the agent looks for expired data sets each second
        assert "short" in agent.status()["datasets"], "the job still runs"
        agent.put("short", (1, 0), region, num_rows=rows, ttl_s=0.1).uris[0]
        assert agent.commit_attempts("short", {0: 0, 1: 0}) == []
        assert wait_until(lambda: "short" not in agent.status()["datasets"])
        with pytest.raises(NotFoundError, match=r"data set 'short' expired after its lifetime of 0\.1 s at"):
            bs.connect(uri)


def test_the_agent_inherits_no_descriptors_of_the_process_that_started_it(key: AgentKey) -> None:
    code = "from bowstring.sharing.agent.client import AgentClient; print(AgentClient.open(key).status()['pid'])"
    boot = f"import pickle; key = pickle.loads({__import__('pickle').dumps(key)!r}); exec({code!r})"
    began = time.monotonic()
    process = subprocess.run([sys.executable, "-c", boot], capture_output=True, text=True, timeout=60, check=True)
    assert time.monotonic() - began < 30
    pid = int(process.stdout)  # the pipe has ended, though the host agent still runs
    links = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    assert not [name for name in links if name.startswith("pipe:")]
    assert os.getsid(pid) != os.getsid(0)
    assert ProcessIdentity.from_pid(pid).is_alive()


def test_memory_that_is_not_a_sealed_arrow_file_is_an_error(key: AgentKey, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    with AgentClient.open(key) as agent:
        with Region.copy_of([b"x" * 100]) as region, pytest.raises(InvalidDataError):
            agent.put("d", (0, 0), region, num_rows=1)
        assert agent.status()["datasets"] == {}
        with Region.from_file(path) as region, pytest.raises(InvalidDataError):
            agent.put("d", (0, 0), region, num_rows=1)


def test_memory_with_another_number_of_rows_is_an_error(key: AgentKey) -> None:
    region, rows = store_in_region(bs.table({"a": [1, 2]}))
    with region, AgentClient.open(key) as agent:
        with pytest.raises(InvalidArgumentError, match="expected 3 rows, found 2"):
            agent.put("d", (0, 0), region, num_rows=rows + 1)
        assert agent.status()["datasets"] == {}


@pytest.mark.thorough
@pytest.mark.parametrize("setting", ["_IDLE_S", "_FIRST_OWNER_S"])
def test_an_unused_agent_ends_although_its_owner_runs(key: AgentKey, setting: str) -> None:
    with PythonProcess(RUN_AGENT_WITH_SETTING, address=key.address, setting=setting) as agent_process:
        agent_process.receive()
        if setting == "_IDLE_S":
            AgentClient.open(key, start=False).close()
        assert wait_until(lambda: agent_process.process.poll() is not None)
        assert agent_process.process.returncode == 0


def test_malformed_requests_are_errors_and_the_agent_continues(key: AgentKey) -> None:
    with AgentClient.open(key) as agent:
        for request in (
            {"op": "nonsense"},
            {"op": "put"},
            {"op": "commit", "dataset": "d", "attempts": 7},
            {"op": "put", "region": 5},
            {"op": "put", "region": float("inf")},
        ):
            with pytest.raises((ProtocolError, InvalidDataError, NotFoundError)):
                agent._request(request)
        for odd in (b"\xff\xfe", b"[" * 100_000):
            with BlockingChannel.dial(UNIX, key.address) as raw:
                raw.send((odd,))
                assert raw.receive().tag is not None
        with BlockingChannel.dial(UNIX, key.address) as raw:
            raw.send((b"{}",), tag=7)  # a request has no tag
            with pytest.raises(ConnectionLostError):
                raw.receive()
        for name in ("a\0b", "\udc80"):
            with pytest.raises(InvalidArgumentError, match="name of a data set"):
                put_partition(agent, [1], (0, 0), name)
        for ttl_s in (float("nan"), -1.0):
            region, rows = store_in_region(bs.table({"a": [1]}))
            with region, pytest.raises(InvalidArgumentError, match="ttl_s: expected a number of seconds"):
                agent.put("d", (0, 0), region, num_rows=rows, ttl_s=ttl_s)
        assert agent.status()["datasets"] == {}


@pytest.mark.parametrize(
    "reply", [b"{}", b'{"missing": 1, "uri": 1, "pid": 1, "datasets": 1}', b'{"missing": ["1"]}', b"[]", b"[" * 100_000]
)
def test_a_malformed_reply_of_an_agent_is_a_protocol_error(reply: bytes) -> None:
    own, peer = connect_pair(UNIX)
    region, _ = store_in_region(bs.table({"a": [1]}))
    with region, peer, AgentClient(own) as agent:
        for _ in range(3):
            peer.send((reply,))
        for call in (
            lambda: agent.put("d", (0, 0), region, num_rows=1),
            lambda: agent.commit_attempts("d", {}),
            agent.status,
        ):
            with pytest.raises(ProtocolError, match="host agent: "):
                call()


def test_starting_an_agent_without_free_descriptors_is_a_resource_error(key: AgentKey) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(ResourceError, match="Too many open files"):
            try_launch_agent(key.address)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("setting", ["executable", "_LAUNCH_TIMEOUT_S"])
def test_an_agent_that_does_not_start_is_a_resource_error_and_leaves_no_process(
    key: AgentKey, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if setting == "executable":
        monkeypatch.setattr(sys, "executable", "/bin/false")
    else:
        monkeypatch.setattr(agent_client, "_LAUNCH_SCRIPT", "import time; time.sleep(60)")
        monkeypatch.setattr(agent_client, "_LAUNCH_TIMEOUT_S", 0.2)
    with pytest.raises(ResourceError, match="the host agent can't be started"):
        AgentClient.open(key)
    with pytest.raises(ConnectionLostError):
        AgentClient.open(key, start=False)


@pytest.mark.parametrize(
    ("module", "cause"),
    [
        ("raise ImportError('libblas.so: no such file')", "1: ImportError: libblas.so: no such file"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "137"),
        ("import os; os._exit(0)", "128"),
    ],
)
def test_an_agent_that_ends_before_it_is_ready_is_started_once_and_its_error_is_reported(
    key: AgentKey, module: str, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    (tmp_path / "numpy.py").write_text(f"print('started', file=open({str(log)!r}, 'a'), flush=True)\n{module}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ResourceError) as problem:
        AgentClient.open(key)
    assert str(problem.value) == f"the host agent can't be started: {sys.executable} exited with code {cause}"
    assert log.read_text() == "started\n"


def test_an_agent_that_ends_as_soon_as_it_is_ready_is_started_a_few_times(
    key: AgentKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = "import main; from bowstring.sharing.agent.host_agent import HostAgent; HostAgent.run = lambda _: None"
    monkeypatch.setattr(agent_client, "_LAUNCH_SCRIPT", agent_client._LAUNCH_SCRIPT.replace("import main", ends))
    with pytest.raises(ResourceError, match="the host agent ended 3 times before it answered"):
        AgentClient.open(key)


OPEN_AGENT = """
import os, sys
from bowstring.sharing.agent.client import AgentClient, AgentKey
exec(change)
with AgentClient.open(AgentKey()) as agent:
    send(os.readlink(f"/proc/{agent.status()['pid']}/cwd"))
"""


@pytest.mark.parametrize(
    "change", ["os.mkdir(folder); os.chdir(folder); os.rmdir(folder)", "sys.executable = None", "sys.executable = ''"]
)
def test_an_agent_starts_without_a_working_folder_or_the_path_of_python(change: str, tmp_path: Path) -> None:
    assert run_python(OPEN_AGENT, change=change, folder=str(tmp_path / "removed")) == "/"


def test_an_agent_without_any_path_of_python_is_an_error_that_says_what_to_set(
    key: AgentKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", None)
    monkeypatch.setattr(sys, "exec_prefix", "/missing")
    with pytest.raises(
        ResourceError, match=r"sys\.executable is not set, and there is no /missing/bin/python.*: set it"
    ):
        AgentClient.open(key)


@pytest.mark.parametrize("host", ["here", "elsewhere"])
def test_an_attempt_is_accepted_once(key: AgentKey, host: str) -> None:
    owner = key.owner if host == "here" else replace(key.owner, host="another")  # which no attempt is confirmed for
    with AgentClient.open(replace(key, owner=owner)) as agent:
        uri = put_partition(agent, [1], (0, 0))
        with pytest.raises(InvalidArgumentError, match="partition 0, attempt 0"):
            put_partition(agent, [2], (0, 0))
        agent.commit_attempts("d", {0: 0})
        assert read_column(uri) == [1]
        agent.drop("d")
        with pytest.raises(NotFoundError):
            bs.connect(uri)


def test_an_owner_that_does_not_run_is_an_error(key: AgentKey) -> None:
    ended_owner_key = replace(key, owner=replace(key.owner, start_ticks=1))
    with AgentClient.open(key):  # without an agent, none is started
        pass
    with assert_descriptors_closed(), pytest.raises(InvalidArgumentError, match="does not run on this host") as caught:
        AgentClient.open(ended_owner_key)
    assert caught.traceback  # it would keep a connection that was not closed
