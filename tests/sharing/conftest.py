"""Fixtures for tests of the host agent."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from bowstring.errors import ConnectionLostError
from bowstring.sharing.agent.client import AgentClient, AgentKey


@pytest.fixture
def key() -> Iterator[AgentKey]:
    """The key of agents that this test starts, if any; they are killed at its end."""
    agent_key = AgentKey()
    yield agent_key
    try:
        with AgentClient.open(agent_key, start=False) as agent:
            os.kill(agent.status()["pid"], 9)
    except ConnectionLostError:
        pass
