"""Fixtures for tests of published data sets."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from bowstring.sharing.agent import directory as agent_directory
from bowstring.sharing.agent.client import AgentClient, agent_address_prefix, list_agent_addresses


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An agent for this test alone, whose memory is free afterwards."""
    token = f"test-{secrets.token_hex(8)}"
    monkeypatch.setattr(agent_directory, "_DETACHED_TOKEN", token)
    yield token
    addresses, _ = list_agent_addresses(f"{agent_address_prefix()}{token}")
    for address in addresses:
        with AgentClient.connect(address) as agent:
            datasets = agent.status()["datasets"]
            for dataset in datasets:  # of a test that has failed: they would stay for a day
                agent.drop(dataset)
            assert not [dataset for dataset, entry in datasets.items() if not entry["is_replaced"]]
