"""The host agent does not keep the limits of the process that starts it, which all publishers would suffer from."""

from __future__ import annotations

import os
import resource
from typing import Any

import numpy as np
import pytest

import bowstring as bs
from bowstring.sharing.agent.client import AgentClient, AgentKey
from bowstring.sharing.stored_parts import store_in_region
from tests.sharing.python_process import PythonProcess

START_AGENT = """
import ctypes, os, resource, warnings
from bowstring.sharing.agent.client import AgentClient
for name, pair in limits.items():
    resource.setrlimit(getattr(resource, name), pair)
os.nice(nice)
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
if not may_raise_priority:
    assert ctypes.CDLL(None).prctl(24, 23, 0, 0, 0) == 0  # PR_CAPBSET_DROP, CAP_SYS_NICE: for programs that it starts
with warnings.catch_warnings(record=True) as messages:
    warnings.simplefilter("always")
    agent = AgentClient.open(key)
send((agent.status()["pid"], [(message.category, str(message.message)) for message in messages]))
receive()
"""
UNLIMITED = resource.RLIM_INFINITY


def starting_process(
    key: AgentKey, limits: dict[str, tuple[int, int]], *, nice: int = 0, may_raise_priority: bool = True
) -> PythonProcess:
    """A process that starts an agent, with its limits, and sends the agent's process and the warnings."""
    return PythonProcess(START_AGENT, key=key, limits=limits, nice=nice, may_raise_priority=may_raise_priority)


def put(agent: AgentClient, table: bs.Table, index: int) -> None:
    region, rows = store_in_region(table)
    with region:
        agent.put("d", (index, 0), region, num_rows=rows)


def test_soft_limits_nice_and_affinity_of_the_first_publisher_do_not_limit_the_agent() -> None:
    key = AgentKey()
    limits = {
        "RLIMIT_AS": (400 << 20, UNLIMITED),
        "RLIMIT_CPU": (60, UNLIMITED),
        "RLIMIT_DATA": (300 << 20, UNLIMITED),
        "RLIMIT_FSIZE": (1 << 20, UNLIMITED),
    }
    if any(resource.getrlimit(getattr(resource, name))[1] != UNLIMITED for name in limits):
        pytest.skip("requires a process without hard limits")
    with starting_process(key, limits, nice=10 if os.getuid() == 0 else 0) as first:
        pid, _ = first.receive()
        for name in limits:
            assert resource.prlimit(pid, getattr(resource, name)) == (UNLIMITED, UNLIMITED), name
        soft_limit, hard_limit = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        assert soft_limit == hard_limit
        assert os.getpriority(os.PRIO_PROCESS, pid) <= 0
        assert os.sched_getaffinity(pid) >= os.sched_getaffinity(0)
        table = bs.table({"a": np.ones(1 << 20)})
        with AgentClient.open(key) as agent:
            for index in range(60):  # 480 MiB are mapped
                put(agent, table, index)
            assert agent.commit_attempts("d", dict.fromkeys(range(60), 0)) == []


def test_the_publisher_is_warned_of_limits_that_the_agent_can_not_lift() -> None:
    key = AgentKey()
    bounds: dict[str, Any] = {"RLIMIT_AS": (4 << 30, 4 << 30), "RLIMIT_CPU": (1000, 1000)}
    with starting_process(key, bounds) as first:
        pid, messages = first.receive()
        text = f"the one that started it: ['RLIMIT_AS {4 << 30}', 'RLIMIT_CPU 1000']"
        (category, message), *others = messages
        assert (category, others) == (RuntimeWarning, [])
        assert message.endswith(text)
        with pytest.warns(RuntimeWarning, match="RLIMIT_AS"):
            AgentClient.open(key).close()
        assert resource.prlimit(pid, resource.RLIMIT_CPU) == (1000, 1000)


@pytest.mark.skipif(os.getuid() != 0, reason="requires root, to drop a capability")
def test_the_publisher_is_warned_of_a_priority_that_the_agent_may_not_raise() -> None:
    with starting_process(AgentKey(), {}, nice=5, may_raise_priority=False) as first:
        pid, ((_, message),) = first.receive()
        assert message.endswith("['nice 5']")
        assert os.getpriority(os.PRIO_PROCESS, pid) == 5
