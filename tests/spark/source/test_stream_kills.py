"""Some of the kills of stream_kills.py, which runs more of them by hand.

`test_stream_writer` has what is left after a kill between our commit and Spark's, without a kill.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.spark.needs_spark import needs_spark
from tests.spark.source import stream_kills


@pytest.mark.thorough
@pytest.mark.spark
@needs_spark(4, 0)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scenario", stream_kills.SCENARIOS, ids=lambda each: f"{each.query} on {each.master}")
def test_each_row_arrives_once_whatever_is_killed(tmp_path: Path, scenario: stream_kills.Scenario) -> None:
    kills = stream_kills.run_scenario(scenario, len(stream_kills.PHASES), 0, tmp_path / "run")
    assert kills.total() == len(stream_kills.PHASES)
