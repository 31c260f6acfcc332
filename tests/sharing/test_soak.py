"""The soak, for some seconds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sharing.soak import run_soak

TIME_S = 6.0


@pytest.mark.thorough
def test_servers_and_clients_run_for_some_seconds_and_nothing_grows(
    record_property: Callable[[str, object], None],
) -> None:
    lines: list[str] = []
    counts = run_soak(TIME_S, 20_261_122, lines.append)
    assert len(counts) == 10, lines
    record_property("faults", ("clients of the soak", counts.total()))
