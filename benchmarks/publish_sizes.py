"""Publish DataFrames of several sizes until another process has summed a column: from how many rows on it pays.

The peers are `toArrow()` with an IPC stream through a socket, and Parquet (snappy). For the most rows, which the README
shows, they are also a mapped file and Parquet without compression. The process has imported everything before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.measure import Measurement, Settings, compare_timings, measure
from benchmarks.publish import open_publish_methods

_SMALL_BOUND, _TO_ARROW_BOUND, _PARQUET_BOUND = 2.0, 0.8, 0.6
_SIZES, _QUICK_SIZES = (10_000, 100_000, 1_000_000, 5_000_000), (1_000, 10_000)


def run(folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure each size in one Spark session."""
    settings = replace(settings, min_time_s=0.0, warmup_rounds=5)
    *small_sizes, most = _QUICK_SIZES if settings.is_quick else _SIZES
    with open_publish_methods(folder) as create_methods:
        for rows in small_sizes:
            publish, stream, _, parquet, _ = create_methods(rows).candidates()
            published, *peers = measure((publish, stream, parquet), settings)
            bound = _SMALL_BOUND if rows == min(_SIZES) else None
            yield compare_timings(f"{rows:,} rows", bound, published, peers)
        published, *peers = measure(create_methods(most).candidates(), settings)
        yield compare_timings(f"{most:,} rows, toArrow() and IPC", _TO_ARROW_BOUND, published, peers[:2])
        yield compare_timings(f"{most:,} rows, Parquet and pyarrow", _PARQUET_BOUND, published, peers[2:])
