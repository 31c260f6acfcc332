"""The memory of a partition while it is written, without Spark: both sides of each limit, and lost agents."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bowstring as bs
from bowstring.errors import ConnectionLostError, ResourceError
from bowstring.memory.unnamed_file import is_in_memory
from bowstring.sharing.agent import partition_memory
from bowstring.sharing.agent.client import AgentClient, AgentKey
from bowstring.sharing.agent.memory_budget import MemoryRequest
from bowstring.sharing.agent.partition_memory import PartitionMemory
from bowstring.sharing.stored_parts import store_in_region
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess
from tests.small_disk import run_on_4_mb

MB = 1 << 20
WRITE_PARTITIONS = """
import os
import numpy as np
import bowstring as bs
from bowstring.sharing.agent.memory_budget import MemoryRequest
from bowstring.sharing.agent.partition_memory import PartitionMemory
from bowstring.sharing.stored_parts import store_in_region
for number in numbers:
    content = store_in_region(bs.table({"a": np.full(values, number)}))[0].memory
    with PartitionMemory(key, "partition") as memory:
        for start in range(0, len(content), step):
            memory.reserve(len(content[start : start + step]))
            os.write(memory.fileno(), content[start : start + step])
        memory.put("d", (number, 0), values)
send("done")
"""
WRITE_WITHOUT_SHARED_MEMORY = """
import os, sys
import numpy as np
import bowstring as bs
from bowstring.sharing.agent.client import AgentClient, AgentKey
from bowstring.sharing.agent.memory_budget import MemoryRequest
from bowstring.sharing.agent.partition_memory import PartitionMemory
from bowstring.sharing.stored_parts import store_in_region
with open("/dev/shm/full", "wb") as file:
    try:
        while True:
            file.write(bytes(1 << 20))
            file.flush()
    except OSError:
        pass
key = AgentKey()
content = store_in_region(bs.table({"a": np.arange(1_000_000)}))[0].memory
with PartitionMemory(key, "partition") as memory:
    memory.reserve(len(content))
    os.write(memory.fileno(), content)
    uri, _ = memory.put("d", (0, 0), 1_000_000)
with AgentClient.open(key, start=False) as agent:
    agent.commit_attempts("d", {0: 0})
    print(bs.connect(uri).read_all().num_rows, agent.status()["memory"]["held_bytes"] == len(content))
    os.kill(agent.status()["pid"], 9)
"""


@pytest.fixture
def key() -> Iterator[AgentKey]:
    agent_key = AgentKey()
    yield agent_key
    kill_agent(agent_key)


def kill_agent(key: AgentKey) -> None:
    try:
        with AgentClient.open(key, start=False) as agent:
            os.kill(agent.status()["pid"], 9)
    except ConnectionLostError:
        pass


def read_memory_status(key: AgentKey) -> dict[str, int]:
    with AgentClient.open(key, start=False) as agent:
        memory: dict[str, int] = agent.status()["memory"]
        return memory


def write(memory: PartitionMemory, content: bytes | memoryview) -> None:
    memory.reserve(len(content))
    os.write(memory.fileno(), content)


def is_spilled(memory: PartitionMemory) -> bool:
    return memory.describe_space().startswith("in a file")


@pytest.mark.parametrize("steps", [[MB], [1] * 3, [1, MB - 1, 1], [5 * MB, 5 * MB], [63 * MB, 2 * MB, 1]])
@pytest.mark.parametrize("beyond", [0, 1])
def test_a_partition_is_in_memory_up_to_the_limit(key: AgentKey, steps: list[int], beyond: int) -> None:
    limited = replace(key, memory_limit_bytes=sum(steps) - beyond)
    with PartitionMemory(limited, "partition") as memory:
        for index, step in enumerate(steps):
            write(memory, bytes(step))
            assert is_spilled(memory) == (beyond == 1 and index == len(steps) - 1)
        assert memory.size_bytes == sum(steps)
        reserved_bytes = read_memory_status(key)["reserved_bytes"]
        assert reserved_bytes == (0 if beyond else sum(steps))
    assert wait_until(lambda: read_memory_status(key)["reserved_bytes"] == 0)


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_partition_is_in_memory_as_long_as_some_can_be_spared(key: AgentKey, beyond: int) -> None:
    spare = [10 * MB, 5 * MB - beyond]
    with PartitionMemory(key, "partition", lambda: spare[0]) as memory:
        write(memory, bytes(5 * MB))
        del spare[0]
        write(memory, bytes(5 * MB))
        assert is_spilled(memory) == bool(beyond)


def test_an_unlimited_partition_asks_once_per_64_mib(key: AgentKey, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []
    reserve = AgentClient.reserve

    def count_request(agent: AgentClient, request: MemoryRequest) -> tuple[int, str]:
        requests.append(request)
        return reserve(agent, request)

    monkeypatch.setattr(AgentClient, "reserve", count_request)
    with PartitionMemory(key, "partition", lambda: None) as memory:
        for _ in range(1000):
            memory.reserve(MB)
    assert 15 < len(requests) < 24


def test_a_partition_outlives_its_agent_while_it_is_written(key: AgentKey) -> None:
    content = store_in_region(bs.table({"a": np.arange(1000)}))[0].memory
    with PartitionMemory(key, "partition") as memory:
        write(memory, content[:1000])
        kill_agent(key)
        memory.reserve(10 * MB)
        os.write(memory.fileno(), content[1000:])
        assert read_memory_status(key)["reserved_bytes"] >= 10 * MB
        kill_agent(key)
        location, size_bytes = memory.put("d", (0, 0), 1000)
    assert size_bytes == len(content)
    with AgentClient.open(key, start=False) as agent:
        agent.commit_attempts("d", {0: 0})
        assert bs.connect(location.uris[0]).read_all()["a"].to_numpy().sum() == 499_500


@pytest.fixture
def only_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_in_memory("/dev/shm"):
        pytest.skip("requires a file system in memory")
    monkeypatch.setattr(partition_memory, "find_spill_folders", lambda: ["/dev/shm"])


@pytest.mark.usefixtures("only_shared_memory")
def test_without_a_disk_the_limit_is_one_of_memory(key: AgentKey) -> None:
    spare = [10 * MB]
    limited = replace(key, memory_limit_bytes=MB)
    with PartitionMemory(limited, "partition", lambda: spare[0]) as memory:
        write(memory, bytes(MB))
        write(memory, bytes(MB))
        assert is_spilled(memory)
        spare[0] = MB
        write(memory, bytes(MB))
        spare[0] = MB - 1
        with pytest.raises(ResourceError, match=f"memory is short: {MB - 1} bytes can be spared"):
            write(memory, bytes(10 * MB))
    with PartitionMemory(limited, "partition", lambda: spare[0]) as memory:
        write(memory, bytes(MB // 2))
        with pytest.raises(ResourceError, match=r"; files in /dev/shm take memory, too"):
            write(memory, bytes(MB))
        assert memory.size_bytes == MB // 2
    assert wait_until(lambda: read_memory_status(key) == dict.fromkeys(read_memory_status(key), 0))


def test_without_a_folder_the_error_has_the_shortage(key: AgentKey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_memory, "find_spill_folders", lambda: ["/proc"])
    expected = r"memory is short: 0 bytes are held .* limit, 5; can't create a file"
    limited = replace(key, memory_limit_bytes=5)
    with PartitionMemory(limited, "partition") as memory, pytest.raises(ResourceError, match=expected):
        memory.reserve(6)


@pytest.mark.thorough
def test_the_limit_holds_for_thousands_of_partitions_of_several_processes(key: AgentKey) -> None:
    count, values = 1000, 2000
    limit = 300 * values * 8
    with AgentClient.open(key) as agent:
        processes = [
            PythonProcess(
                WRITE_PARTITIONS,
                key=replace(key, memory_limit_bytes=limit),
                numbers=range(first, count, 4),
                values=values,
                step=10_000,
            )
            for first in range(4)
        ]
        while any(process.process.poll() is None for process in processes):
            memory = agent.status()["memory"]
            assert memory["held_bytes"] + memory["reserved_bytes"] <= limit
            wait_until(lambda: False, within_s=0.05)
        for process in processes:
            with process:
                assert process.receive() == "done"
        memory = agent.status()["memory"]
        assert memory["reserved_bytes"] == 0
        assert 0.9 * limit < memory["held_bytes"] <= limit
        assert memory["spilled_bytes"] > (count - 300) * values * 8
        assert agent.commit_attempts("d", dict.fromkeys(range(count), 0)) == []
        memory = agent.status()["memory"]
        assert agent.status()["datasets"]["d"]["regions"] == 2
        assert 0.9 * limit < memory["held_bytes"] <= limit + count * 64  # packed ones are aligned


def test_a_full_dev_shm_does_not_matter() -> None:
    process = run_on_4_mb(Path("/dev/shm"), "-c", WRITE_WITHOUT_SHARED_MEMORY)
    assert process.stdout == "1000000 True\n", process.stderr
