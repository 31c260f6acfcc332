"""The soak, for a minute, of which most is spent asleep: other tests run meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from tests.sharing.soak import run_soak

TIME_S, BUSY_SHARE = 60.0, 0.25


def test_servers_and_clients_run_for_a_minute_and_nothing_grows(
    record_property: Callable[[str, object], None],
) -> None:
    lines: list[str] = []
    counts = run_soak(TIME_S, 20_261_122, lines.append, BUSY_SHARE)
    assert len(counts) == 8, lines
    record_property("faults", ("clients of the soak", counts.total()))
