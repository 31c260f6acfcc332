"""Fixtures for tests of published data sets."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from bowstring.sharing.agent import directory as agent_directory
from bowstring.sharing.agent.client import AgentClient


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An agent for this test alone, whose memory is free afterwards."""
    token = f"test-{secrets.token_hex(8)}-"
    monkeypatch.setattr(agent_directory, "_DETACHED_TOKEN", token)
    yield token
    addresses = [address for address in agent_directory.list_agent_addresses() if token in address]
    for address in addresses[-1:]:  # at the first, another user may listen
        with AgentClient.connect(address) as agent:
            datasets = agent.status()["datasets"]
            for dataset in datasets:  # of a test that has failed: they would stay for a day
                agent.drop(dataset)
            assert not [dataset for dataset, entry in datasets.items() if not entry["is_replaced"]]
