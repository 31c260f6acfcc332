"""Measure what one partition, one connection and one byte cost the host agent and its clients.

Times are seconds of CPU, of all threads of a process, because other processes of the machine change them less than
elapsed times.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import bowstring as bs
from bowstring.datasets import Dataset, DatasetPart
from bowstring.memory.region import Region
from bowstring.sharing.agent.client import AgentClient, AgentKey, AttemptLocation
from bowstring.sharing.agent.control import RemoteAccess
from bowstring.sharing.stored_parts import store_in_region

_TASKS, _PARTS, _CLIENTS, _DIALS = 300, 1000, 200, 50
_PART_BYTES = 256 << 20
_PATH = Path(__file__).with_name("constants.json")


@dataclass(frozen=True, slots=True)
class Constants:
    """What is measured. `agent` and `client` are the processes that spend the time."""

    put_agent_s: float
    """A task's connection, greeting and partition."""
    put_client_s: float
    commit_agent_s: float
    """Committing one small partition of many, which is packed with the others."""
    description_bytes: float
    """One part, with a local and a remote location, in the JSON of a data set."""
    description_parse_s: float
    """Reading one part of that JSON."""
    connection_agent_s: float
    """A consumer's connection and its first request, of one part."""
    connection_client_s: float
    connection_agent_bytes: float
    """The agent's resident memory for it."""
    connection_agent_descriptors: float
    part_agent_s: float
    """One more part of a request for many."""
    part_client_s: float
    byte_agent_s: float
    """A byte over TCP."""
    byte_client_s: float
    dial_agent_s: float
    """The driver's authenticated connection to an agent of another host, and a commit there."""
    dial_driver_s: float
    agent_bytes: float
    """The resident memory of an agent without data."""

    @classmethod
    def load(cls) -> Constants:
        """Return the constants in docs/evidence/index.md."""
        return cls(**json.loads(_PATH.read_text()))

    def save(self) -> None:
        """Replace the constants in docs/evidence/index.md."""
        _PATH.write_text(
            json.dumps({name: float(f"{value:.4g}") for name, value in asdict(self).items()}, indent=2) + "\n"
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """The CPU seconds of both ends, and what the agent has more afterwards."""

    agent_s: float
    client_s: float
    agent_bytes: int
    agent_descriptors: int


class Agent:
    """A host agent with small partitions."""

    def __init__(self) -> None:
        self.key = AgentKey(access=RemoteAccess())
        self.client = AgentClient.open(self.key)
        self.pid: int = self.client.status()["pid"]
        region, self._num_rows = store_in_region(bs.table({"a": np.zeros(10)}))
        with region:
            self._content = bytes(region.memory)
        location = self.put(0, "warm up")
        self.control_uri, self.uri = location.control_uri, location.uris[0]
        self.client.commit_attempts("warm up", {0: 0})

    def put(self, number: int, name: str, client: AgentClient | None = None) -> AttemptLocation:
        """Pass a small partition to the agent."""
        with Region.copy_of([self._content]) as region:
            return (client or self.client).put(name, (number, 0), region, num_rows=self._num_rows)

    def put_as_task(self, number: int, name: str) -> AttemptLocation:
        """Pass a small partition to the agent over a new connection."""
        with AgentClient.open(self.key, start=False) as client:
            return self.put(number, name, client)

    def put_parts(self, name: str, num_parts: int) -> list[AttemptLocation]:
        """Pass small partitions to the agent, each thousand over one connection."""
        locations: list[AttemptLocation] = []
        for first in range(0, num_parts, 1000):
            with AgentClient.open(self.key, start=False) as client:
                locations += [self.put(number, name, client) for number in range(first, min(first + 1000, num_parts))]
        return locations

    def commit(self, name: str, num_parts: int) -> None:
        """Commit the first parts of a data set."""
        assert self.client.commit_attempts(name, dict.fromkeys(range(num_parts), 0)) == []

    def measure(self, call: Callable[[], object]) -> Cost:
        """Call once, and return the cost."""
        before, agent_s, client_s = self._usage(), cpu_s(self.pid), time.process_time()
        call()
        client_s = time.process_time() - client_s
        time.sleep(0.2)  # what the agent does after its reply
        agent_s, after = cpu_s(self.pid) - agent_s, self._usage()
        return Cost(agent_s, client_s, after[0] - before[0], after[1] - before[1])

    def _usage(self) -> tuple[int, int]:
        return resident_bytes(self.pid), len(os.listdir(f"/proc/{self.pid}/fd"))


@contextmanager
def running_agent() -> Iterator[Agent]:
    """An agent that ends with the context."""
    agent = Agent()
    try:
        yield agent
    finally:
        agent.client.close()
        os.kill(agent.pid, 9)


def measure_constants() -> Constants:
    """Measure all constants, which takes half a minute on an idle machine."""
    with running_agent() as agent, ExitStack() as stack:
        agent_bytes = resident_bytes(agent.pid)
        # First, while the agent has no free memory that it could use again.
        connections = agent.measure(lambda: repeat(lambda: open_reader(agent.uri, stack), _CLIENTS))
        locations: list[AttemptLocation] = []
        put = agent.measure(lambda: locations.extend(agent.put_as_task(number, "tasks") for number in range(_TASKS)))
        locations = agent.put_parts("parts", _PARTS)
        commit = agent.measure(lambda: agent.commit("parts", _PARTS))
        description_bytes, description_parse_s = _measure_description(locations)
        uris = [location.uris[0] for location in locations]
        parts = agent.measure(lambda: read_parts(uris))
        transfer = _measure_tcp(agent)
        dials = agent.measure(lambda: repeat(lambda: dial_and_commit(agent), _DIALS))
    return Constants(
        put_agent_s=put.agent_s / _TASKS,
        put_client_s=put.client_s / _TASKS,
        commit_agent_s=commit.agent_s / _PARTS,
        description_bytes=description_bytes,
        description_parse_s=description_parse_s,
        connection_agent_s=connections.agent_s / _CLIENTS,
        connection_client_s=connections.client_s / _CLIENTS,
        connection_agent_bytes=connections.agent_bytes / _CLIENTS,
        connection_agent_descriptors=connections.agent_descriptors / _CLIENTS,
        part_agent_s=parts.agent_s / _PARTS,
        part_client_s=parts.client_s / _PARTS,
        byte_agent_s=transfer.agent_s / _PART_BYTES,
        byte_client_s=transfer.client_s / _PART_BYTES,
        dial_agent_s=dials.agent_s / _DIALS,
        dial_driver_s=dials.client_s / _DIALS,
        agent_bytes=agent_bytes,
    )


def repeat(call: Callable[[], object], times: int) -> None:
    """Call several times."""
    for _ in range(times):
        call()


def open_reader(uri: str, stack: ExitStack) -> None:
    """Read a part, and keep the connection."""
    stack.enter_context(bs.connect(uri, timeout_s=300)).read_all()


def read_parts(uris: list[str]) -> None:
    """Read parts over one connection."""
    with bs.connect(uris, timeout_s=300) as reader:
        reader.read_all()


def dial_and_commit(agent: Agent) -> None:
    """Connect as a driver on another host, and ask for a commit, which has nothing to do."""
    with AgentClient.dial(agent.key, agent.control_uri) as client:
        client.commit_attempts("warm up", {0: 0})


def _measure_description(locations: list[AttemptLocation]) -> tuple[float, float]:
    """The bytes of a part, and the seconds to parse it."""
    parts = [DatasetPart(10, 1000, location.uris, "host-0001.example.com") for location in locations]
    description = Dataset("data", bs.schema({"a": bs.float64()}), parts).to_json()
    start = time.process_time()
    Dataset.from_json(description)
    return len(description) / len(parts), (time.process_time() - start) / len(parts)


def _measure_tcp(agent: Agent) -> Cost:
    region, rows = store_in_region(bs.table({"a": np.zeros(_PART_BYTES // 8)}))
    with region:
        uris = agent.client.put("large", (0, 0), region, num_rows=rows).uris
    agent.commit("large", 1)
    (uri,) = [uri for uri in uris if uri.startswith("tcp:")]
    return agent.measure(lambda: read_parts([uri]))


def cpu_s(pid: int) -> float:
    """The CPU seconds of all threads of a process."""
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def resident_bytes(pid: int) -> int:
    """The resident set size of a process (VmRSS)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))
