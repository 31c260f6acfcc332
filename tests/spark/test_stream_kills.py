"""A few of the kills of stream_kills.py, which runs more of them by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.spark import stream_kills


@pytest.mark.spark
def test_each_row_arrives_once_though_the_driver_and_a_worker_are_killed(tmp_path: Path) -> None:
    scenario = stream_kills.Scenario("windows", True, "local[2,4]", ("driver", "worker"))
    kills = stream_kills.run_scenario(scenario, 2, 1, tmp_path / "run")
    assert kills.total() == 2
