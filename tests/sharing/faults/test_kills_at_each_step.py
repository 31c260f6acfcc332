"""A server, client, host agent or task is killed at each step: the peer gets an error or all data, and nothing is left.

A step is an event of `bowstring.transports.observer`: a message before it is sent, after it is sent, or
before it is processed; likewise regions, the connection and its end.
"""

from __future__ import annotations

import gc
import itertools
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import quote

import pytest

import bowstring as bs
from bowstring.dissociated.server import ConnectionRole
from bowstring.dissociated.uri import parse_uri
from bowstring.errors import BowstringError, ConnectionLostError
from bowstring.sharing.agent.client import AgentClient, AgentKey
from bowstring.sharing.uris import ROLES
from bowstring.transports.tls import TlsOptions
from tests.sharing.faults.children import BATCHES, Step, numbers
from tests.sharing.faults.conftest import MODES, FaultCounter
from tests.sharing.faults.processes import Child, Children, has_memory, nothing_left


def kill_at_each_step(start: Callable[[int], Child], check: Callable[[Child], bool]) -> tuple[list[Step], int]:
    """Start a child for each step that it is killed at, until one survives.

    `check` returns whether the peer got all data. Return the steps, and the number of peers that did not. The last
    steps vary a little: a peer's last messages may arrive before or after the end of the connection.
    """
    num_errors = 0
    for step in itertools.count():
        child = start(step)
        num_errors += not check(child)
        code = child.wait()
        if code == 0:
            steps: list[Step] = child.receive()
            assert len(steps) <= step
            return steps, num_errors
        assert code == -signal.SIGKILL, child.receive()
    raise AssertionError


def is_read_whole(uri: str, copy: bool) -> bool:
    """Read a data set; return False after an error, which must not be that of a deadline."""
    try:
        with bs.connect(uri, copy=copy, timeout_s=20) as dataset:
            assert dataset.read_all() == numbers()
    except BowstringError as error:
        assert isinstance(error, ConnectionLostError), error  # noqa: PT017 -- data without an error is fine, too
        return False
    return True


@MODES
def test_a_server_survives_clients_that_are_killed(
    children: Children, scheme: str, tls: TlsOptions | None, copy: bool, count_faults: FaultCounter
) -> None:
    server = children.start("serve_all", tls=tls)
    uri = server.receive()[scheme]
    assert is_read_whole(uri, copy)

    def check(client: Child) -> bool:
        client.wait()
        return is_read_whole(uri, copy)

    with nothing_left(server.pid):
        steps, num_errors = kill_at_each_step(
            lambda step: children.start("read", uri=uri, copy=copy, kill_at=step), check
        )
    server.kill()
    assert not num_errors
    counts = Counter(steps)
    has_addresses = scheme == "unix"
    assert counts["received", "offer"] == (0 if has_addresses else BATCHES)
    assert counts["received", "message"] == 2 + 2 * BATCHES  # the schema, batches and their bodies, the end
    nums_sent = range(2, 2 + BATCHES) if copy else [1 + BATCHES]  # copies may be freed together
    assert counts["sent", "message"] in (nums_sent if has_addresses else [1])
    count_faults("kills of a client", len(steps))


@MODES
def test_clients_get_an_error_or_all_data_of_a_server_that_is_killed(
    children: Children, scheme: str, tls: TlsOptions | None, copy: bool, count_faults: FaultCounter
) -> None:
    name = f"faults-{scheme}-{copy}"

    def check(child: Child) -> bool:
        is_whole = is_read_whole(child.receive(), copy)
        gc.collect()
        assert not has_memory(name)
        return is_whole

    with nothing_left():
        steps, num_errors = kill_at_each_step(
            lambda step: children.start("serve", name=name, scheme=scheme, tls=tls, kill_at=step), check
        )
    counts = Counter(steps)
    assert counts["sent", "message"] == 2 + 2 * BATCHES
    assert counts["sent", "region"] == (scheme == "unix")
    assert num_errors >= counts["sent", "message"]
    count_faults("kills of a server", len(steps))


@pytest.mark.parametrize("role", [ConnectionRole.METADATA, ConnectionRole.BODIES], ids=lambda role: role.value)
def test_clients_of_two_servers_get_an_error_or_all_data_if_one_is_killed(
    children: Children, role: ConnectionRole, count_faults: FaultCounter
) -> None:
    other = children.start("serve_all")
    other_uri = other.receive()["tcp"]

    def check(child: Child) -> bool:
        uris = {role: uri_of_role(child.receive(), role)}
        (other_role,) = {ConnectionRole.METADATA, ConnectionRole.BODIES} - {role}
        uris[other_role] = uri_of_role(other_uri, other_role)
        return is_read_whole(
            f"{uris[ConnectionRole.METADATA]}&bodies={quote(uris[ConnectionRole.BODIES], safe='')}", copy=False
        )

    with nothing_left(other.pid):
        steps, num_errors = kill_at_each_step(
            lambda step: children.start("serve", name="t", scheme="unix", kill_at=step), check
        )
    other.kill()
    num_sent = 2 + BATCHES if role is ConnectionRole.METADATA else BATCHES
    assert Counter(steps)["sent", "message"] == num_sent
    assert num_errors >= num_sent
    count_faults("kills of a server", len(steps))


def uri_of_role(uri: str, role: ConnectionRole) -> str:
    """The URI of a server that sends only metadata, or only bodies."""
    tags = {each: tag for tag, each in ROLES.items()}
    return str(replace(parse_uri(uri), want_data=tags[role]))


@pytest.mark.thorough
def test_tasks_get_an_error_from_a_host_agent_that_is_killed(children: Children, count_faults: FaultCounter) -> None:
    key = AgentKey()

    def start(step: int) -> Child:
        agent = children.start("run_agent", address=key.address)
        agent.receive()
        return agent

    steps: list[Step] = []
    with nothing_left():
        for step in itertools.count():
            agent = start(step)
            task = children.start("publish", key=key, name="numbers", kill_at=step, victim=agent.pid)
            code, outcome = task.wait(), task.receive()
            agent.kill()
            if code == 0 and isinstance(outcome, list):
                steps = outcome
                break
            assert isinstance(outcome, type), outcome
            assert issubclass(outcome, BowstringError), outcome
    assert Counter(steps)["sent", "region"] == 2
    count_faults("kills of a host agent", len(steps))


def test_a_host_agent_survives_tasks_that_are_killed(children: Children, count_faults: FaultCounter) -> None:
    key = AgentKey()
    agent = children.start("run_agent", address=key.address)
    agent.receive()

    def check(task: Child) -> bool:
        task.wait()
        with AgentClient.open(key, start=False) as client:
            for name in client.status()["datasets"]:
                client.drop(name)
            assert client.status()["datasets"] == {}
        return True

    with AgentClient.open(key, start=False):
        pass
    with nothing_left(agent.pid):
        steps, _ = kill_at_each_step(
            lambda step: children.start("publish", key=key, name=f"numbers {step}", kill_at=step), check
        )
    agent.kill()
    count_faults("kills of a task", len(steps))
