"""A driver on another host that is cut off: its host agent keeps the data, until the data set expires."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from bowstring.errors import UnmetRequirementError
from bowstring.sharing.agent.client import AgentKey
from bowstring.sharing.agent.control import RemoteAccess
from tests.polling import wait_until
from tests.sharing.python_process import PythonProcess
from tests.simulated_hosts import SimulatedHosts

RUN_AGENT = """
import socket
from bowstring.sharing.agent import host_agent
from bowstring.transports.sockets import tcp_channel
from bowstring.transports.sockets.unix import encode_unix_address
host_agent._IDLE_S = 3.0
# Of 30 s for an unreachable peer, one or two.
tcp_channel._KEEP_ALIVE_OPTIONS = (("TCP_KEEPIDLE", 1), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 1))
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind(encode_unix_address(address))
listener.listen()
send("ready")
host_agent.main(listener.detach())
"""
PUT = """
import bowstring as bs
from bowstring.sharing.agent.client import AgentClient
from bowstring.sharing.stored_parts import store_in_region
region, rows = store_in_region(bs.table({"a": [1, 2]}))
send("ready")
receive()
with AgentClient.open(key) as agent:
    send(agent.put("d", (0, 0), region, num_rows=rows))
receive()
"""
COMMIT = """
from dataclasses import replace
from bowstring.sharing.agent.group import AgentGroup
from bowstring.sharing.processes import ProcessIdentity
group = AgentGroup(replace(key, owner=ProcessIdentity.current()))
send(group.commit("d", {control_uri: {0: 0}}, ttl_s))
receive()
"""
ESTABLISHED, EMPTY = "01", "00000000:00000000"


def list_queues(pid: int) -> list[str]:
    """The bytes that are not acknowledged and not received, of each TCP connection of the network of a process."""
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return [line[4] for line in lines if line[3] == ESTABLISHED]


@pytest.mark.thorough
def test_an_agent_keeps_the_data_of_a_driver_that_is_cut_off_until_it_expires() -> None:
    try:
        hosts = SimulatedHosts("driver", "worker")
    except UnmetRequirementError as reason:
        pytest.skip(str(reason))
    key = AgentKey(access=RemoteAccess(gateway=hosts.addresses["driver"]))
    elsewhere = replace(key, owner=replace(key.owner, host="elsewhere"))
    network = hosts.namespace("worker")
    with ExitStack() as stack:
        stack.enter_context(hosts)
        executor = stack.enter_context(PythonProcess(PUT, network=network, key=elsewhere))
        executor.receive()
        agent = stack.enter_context(PythonProcess(RUN_AGENT, network=network, address=key.address))
        agent.receive()
        executor.send(None)
        values = {"key": key, "control_uri": executor.receive().control_uri, "ttl_s": 6.0}
        driver = stack.enter_context(PythonProcess(COMMIT, network=hosts.namespace("driver"), **values))
        assert driver.receive() == {}
        pid = agent.process.pid
        assert wait_until(lambda: list_queues(pid) == [EMPTY])
        hosts.set_connected("worker", False)
        assert wait_until(lambda: list_queues(pid) == []), "the agent has not noticed the silence"
        executor.kill()
        driver.kill()
        assert not wait_until(lambda: agent.process.poll() is not None, 2.5), "the agent has ended"
        assert agent.process.wait(30) == 0
