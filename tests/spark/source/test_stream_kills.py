"""One of the kills of stream_kills.py, which runs many of them by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.spark.source import stream_kills


@pytest.mark.spark
def test_each_row_arrives_once_though_the_driver_is_killed_between_our_commit_and_sparks(tmp_path: Path) -> None:
    scenario = stream_kills.Scenario("windows", True, "local[2,4]", ("driver",))
    kills = stream_kills.run_scenario(scenario, 1, stream_kills.PHASES.index("in our manifest"), tmp_path / "run")
    assert kills.total() == 1
