"""Publish DataFrames of several sizes until another process has summed a column: from how many rows on it pays.

The peers are `toArrow()` with an IPC stream through a socket, and Parquet (snappy), as in `publish`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.measure import Measurement, Settings, compare_timings, measure
from benchmarks.publish import open_publish_methods

_SMALL_BOUND = 2.0
_SIZES, _QUICK_SIZES = (10_000, 100_000, 1_000_000, 5_000_000), (1_000, 10_000)


def run(folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure each size in one Spark session."""
    with open_publish_methods(folder) as create_methods:
        for rows in _QUICK_SIZES if settings.is_quick else _SIZES:
            publish, stream, _, parquet, _ = create_methods(rows).candidates()
            timings = measure((publish, stream, parquet), replace(settings, min_time_s=0.0, warmup_rounds=5))
            bound = _SMALL_BOUND if rows == min(_SIZES) else None
            yield compare_timings(f"{rows:,} rows", bound, timings[0], timings[1:])
