"""UCX: processes are killed or stopped, or change messages. The peer gets all data or an error, and continues.

UCX has no bytes on the wire that a test could change: memory is shared, or libucp frames what it sends. So the sender
changes messages before it passes them to libucp. Each fault takes half a second, so a run has only some of them, unless
BOWSTRING_TESTS_ALL_FAULTS is set.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import pytest

from bowstring.errors import BowstringError, ConnectionLostError, DeadlineError
from networks.tests.ucx.ucp_processes import require_libucp
from tests.polling import wait_until
from tests.sharing.faults.children import BATCHES, MessageChange
from tests.sharing.faults.conftest import FaultCounter
from tests.sharing.faults.processes import Children, Usage
from tests.thorough import thorough

require_libucp()

IS_COMPLETE = "BOWSTRING_TESTS_ALL_FAULTS" in os.environ
SEED = int(os.environ.get("BOWSTRING_TESTS_SEED", random.SystemRandom().randrange(1 << 20)))
NUM_SAMPLES = 2
NUM_STEPS = 12
"""At least as many a client and a server have."""
TIMEOUT_S = 1.0
"""How long a client waits for what was dropped."""
Fault = TypeVar("Fault")


def sample(faults: Sequence[Fault], count: int = NUM_SAMPLES) -> Sequence[Fault]:
    return faults if IS_COMPLETE else random.Random(SEED).sample(faults, count)


MODES = pytest.mark.parametrize("shares_memory", [True, *thorough(False)], ids=["addresses", "bytes"])


def read(children: Children, uri: str, shares_memory: bool) -> list[type[BowstringError] | None]:
    client = children.start("try_to_read", uri=uri, copy=False, shares_memory=shares_memory)
    assert client.wait() == 0, client.receive()
    outcomes: list[type[BowstringError] | None] = client.receive()
    return outcomes


@pytest.mark.thorough
@MODES
def test_a_server_survives_clients_that_are_killed(
    children: Children, shares_memory: bool, count_faults: FaultCounter
) -> None:
    server = children.start("serve_ucx", shares_memory=shares_memory)
    uri = server.receive()
    assert read(children, uri, shares_memory) == [None]
    before = Usage.of(server.pid)
    num_kills = 0
    for step in sample(range(NUM_STEPS)) if not IS_COMPLETE else itertools.count():
        client = children.start("read", uri=uri, copy=False, shares_memory=shares_memory, kill_at=step)
        if client.wait() == 0:
            assert IS_COMPLETE, "there are fewer steps"
            break
        assert read(children, uri, shares_memory) == [None]
        num_kills += 1
    assert wait_until(lambda: Usage.of(server.pid).is_flat(before)), f"{before}, {Usage.of(server.pid)}"
    server.kill()
    count_faults(f"kills of a client over ucx (seed {SEED})", num_kills)


@pytest.mark.thorough
@MODES
def test_clients_get_an_error_or_all_data_of_a_server_that_is_killed(
    children: Children, shares_memory: bool, count_faults: FaultCounter
) -> None:
    num_kills = 0
    for step in sample(range(NUM_STEPS)) if not IS_COMPLETE else itertools.count():
        server = children.start("serve", name="t", scheme="ucx", kill_at=step, shares_memory=shares_memory)
        (outcome,) = read(children, server.receive(), shares_memory)
        assert outcome is None or issubclass(outcome, ConnectionLostError), outcome
        if server.wait() == 0:
            assert IS_COMPLETE, "there are fewer steps"
            break
        num_kills += 1
    count_faults(f"kills of a server over ucx (seed {SEED})", num_kills)


@pytest.mark.thorough
@MODES
def test_a_stopped_server_is_a_deadline_error(
    children: Children, shares_memory: bool, count_faults: FaultCounter
) -> None:
    server = children.start("serve_ucx", shares_memory=shares_memory)
    uri = server.receive()
    assert read(children, uri, shares_memory) == [None]
    server.stop()
    client = children.start("try_to_read", uri=uri, copy=False, shares_memory=shares_memory, timeout_s=0.5)
    assert client.wait() == 0, client.receive()
    assert client.receive() == [DeadlineError]
    server.send_signal(signal.SIGCONT)
    assert read(children, uri, shares_memory) == [None]
    server.kill()
    count_faults("stopped processes", 1)


def changes(num_messages: int) -> list[MessageChange]:
    """Changes of each message: its order, its tag, its length, and its type and sequence number."""
    arguments = {
        "drop": (0,), "repeat": (0,), "swap": (0,), "tag": (0, 1, 40, 56, 63), "prefix": range(5), "length": (-1, -8, 8)
    }  # fmt: skip
    return [
        MessageChange(index, kind, argument)
        for index in range(num_messages)
        for kind, values in arguments.items()
        for argument in values
    ]


@pytest.mark.thorough
@MODES
def test_changed_messages_of_a_server_cause_an_error_or_no_harm(
    children: Children, shares_memory: bool, count_faults: FaultCounter
) -> None:
    faults = sample(changes(2 + 2 * BATCHES), 6)
    server = children.start("serve_ucx", changes=faults, shares_memory=shares_memory)
    uri = server.receive()
    client = children.start(
        "try_to_read",
        uri=uri,
        copy=False,
        shares_memory=shares_memory,
        changes=[None] * len(faults),
        timeout_s=TIMEOUT_S,
    )
    assert client.wait() == 0, client.receive()
    outcomes = client.receive()
    assert read(children, uri, shares_memory) == [None]  # without a change
    server.kill()
    if IS_COMPLETE:
        assert Counter(outcomes)[None] < len(outcomes) / 2, Counter(outcomes)
    count_faults(f"changed messages over ucx (seed {SEED})", len(faults))


@pytest.mark.thorough
@MODES
def test_changed_requests_cause_an_error_or_no_harm(
    children: Children, shares_memory: bool, count_faults: FaultCounter
) -> None:
    server = children.start("serve_ucx", shares_memory=shares_memory)
    uri = server.receive()
    assert read(children, uri, shares_memory) == [None]
    before = Usage.of(server.pid)
    faults = sample(changes(1), 3)
    client = children.start(
        "try_to_read", uri=uri, copy=False, shares_memory=shares_memory, changes=faults, timeout_s=TIMEOUT_S
    )
    assert client.wait() == 0, client.receive()
    client.receive()
    assert read(children, uri, shares_memory) == [None]
    assert wait_until(lambda: Usage.of(server.pid).is_flat(before)), f"{before}, {Usage.of(server.pid)}"
    server.kill()
    count_faults(f"changed messages over ucx (seed {SEED})", len(faults))
