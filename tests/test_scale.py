"""docs/evidence/index.md has the times of the simulation, whose queues are those that an event loop would have."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.scale.__main__ import simulate
from benchmarks.scale.constants import Constants
from benchmarks.scale.simulation import visit_agents

PAGE = Path(__file__).resolve().parent.parent / "docs" / "evidence" / "index.md"


def test_the_page_has_the_times_of_the_simulation() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert [line for line in simulate(Constants.load()) if line not in lines] == []


def process_events(arrivals: Sequence[float], agent_s: Sequence[float], own_s: Sequence[float]) -> tuple[float, float]:
    """When the last consumer has left the first agent and the last one, by events in the order of time."""
    events = [(time, consumer, 0) for consumer, time in enumerate(arrivals)]
    heapq.heapify(events)
    free_at, left_at = [0.0] * len(agent_s), [0.0] * len(agent_s)
    while events:
        time, consumer, agent = heapq.heappop(events)
        free_at[agent] = max(time, free_at[agent]) + agent_s[agent]
        left_at[agent] = free_at[agent] + own_s[agent]
        if agent + 1 < len(agent_s):
            heapq.heappush(events, (left_at[agent], consumer, agent + 1))
    return left_at[0], left_at[-1]


@pytest.mark.parametrize("interval_s", [0.0, 0.5, 40.0])
@pytest.mark.parametrize("agent_s", [[0.1], [0.1, 0.3, 0.2, 0.05], [0.02] * 30])
def test_queues_are_served_in_the_order_of_events(agent_s: list[float], interval_s: float) -> None:
    arrivals, own_s = np.linspace(0.0, interval_s, 50), [0.25] * len(agent_s)
    first_s, last_s, busy_s = visit_agents(arrivals, agent_s, own_s)
    assert (first_s, last_s) == pytest.approx(process_events(arrivals.tolist(), agent_s, own_s))
    assert busy_s == pytest.approx(50 * max(agent_s))
