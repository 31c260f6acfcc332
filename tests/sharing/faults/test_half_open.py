"""Peers that are stopped: the other end gives up at its deadline, and others are served meanwhile."""

from __future__ import annotations

import re
import signal

import pytest

import bowstring as bs
from bowstring.errors import DeadlineError
from bowstring.sharing.agent.client import AgentClient, AgentKey
from bowstring.transports.tls import TlsOptions
from tests.polling import wait_until
from tests.sharing.faults.children import SCHEMES, numbers
from tests.sharing.faults.conftest import MODES, FaultCounter
from tests.sharing.faults.processes import Children, nothing_left, num_descriptors


@MODES
def test_a_stopped_server_is_a_deadline_error_when_it_has_to_answer(
    children: Children, scheme: str, tls: TlsOptions | None, copy: bool, count_faults: FaultCounter
) -> None:
    server = children.start("serve_all", tls=tls)
    uri = server.receive()[scheme]
    with nothing_left(server.pid):
        with bs.connect(uri, copy=copy, timeout_s=20) as dataset:
            assert dataset.read_all() == numbers()
        server.stop()
        with pytest.raises(DeadlineError):
            bs.connect(uri, copy=copy, timeout_s=0.2)
        server.send_signal(signal.SIGCONT)
        with bs.connect(uri, copy=copy, timeout_s=20) as dataset:
            assert dataset.read_all() == numbers()
    server.kill()
    count_faults("stopped processes", 1)


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_stopped_client_loses_its_connection_when_it_has_to_receive(
    children: Children, scheme: str, tls: TlsOptions | None, count_faults: FaultCounter
) -> None:
    server = children.start("serve_all", tls=tls, rows=5_000_000, stall_s=2.0)  # more than the kernel takes
    uri = re.sub("&free_data=[0-9]+", "", server.receive()[scheme])  # requests bytes
    before = num_descriptors(server.pid)
    with nothing_left(server.pid):
        client = children.start("read", uri=uri, copy=False, pause=True)
        client.receive()
        assert num_descriptors(server.pid) == before + 1
        with bs.connect(uri, timeout_s=20) as dataset:
            assert sum(batch.num_rows for batch in dataset) == 15_000_000
        assert wait_until(lambda: num_descriptors(server.pid) == before)
    client.kill()
    server.kill()
    count_faults("stopped processes", 1)


def test_a_stopped_host_agent_is_a_deadline_error(children: Children, count_faults: FaultCounter) -> None:
    key = AgentKey()
    agent = children.start("run_agent", address=key.address)
    agent.receive()
    with AgentClient.open(key, start=False) as client:
        client.status()
    with nothing_left(agent.pid):
        agent.stop()
        with pytest.raises(DeadlineError):
            AgentClient.open(key, start=False, timeout_s=0.2)
        agent.send_signal(signal.SIGCONT)
        with AgentClient.open(key, start=False) as client:
            assert client.status()["datasets"] == {}
    agent.kill()
    count_faults("stopped processes", 1)
