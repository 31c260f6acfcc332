"""Reports of the demo with given times, without Spark."""

from __future__ import annotations

from typing import Any

from examples.demo.comparison import Comparison, DemoReport
from examples.demo.killed_writers import KilledWriter
from examples.demo.methods import Measurement, MemoryUse

NOISE = (0.97, 1.0, 1.03, 0.99, 1.01, 0.98, 1.02)
NAMES = ["Airport Name", "n", "Aircraft Make Model"] * 4
SAMPLE = [["BARKSDALE AIR FORCE BASE ARPT, LOUISIANA", "1.5", "日本語"] * 4] * 2


def compare(
    size_bytes: int,
    publishing: tuple[float, float, float],
    collecting: tuple[float, float, float],
    parquet: tuple[float, float, float],
    rows: int = 1000,
    noise: tuple[float, ...] = NOISE,
) -> Comparison:
    """Rounds with these seconds to write, for one read and for all reads, times the noise of each round."""
    times = {"publishing": publishing, "toArrow()": collecting, "Parquet": parquet}
    rounds = {
        name: [Measurement(size_bytes, write * n, one * n, every * n) for n in noise]
        for name, (write, one, every) in times.items()
    }
    return Comparison(rows, rounds)


def create_report(**changes: Any) -> DemoReport:
    """Publishing is the fastest."""
    memory = {
        "publishing": MemoryUse(290_000, 1 << 20),
        "toArrow()": MemoryUse(400 << 20, 180 << 20),
        "Parquet": MemoryUse(500 << 20, 2 << 20),
    }
    fields: dict[str, Any] = {
        "main": compare(100 << 20, (1.0, 0.1, 0.4), (1.4, 0.4, 3.0), (2.0, 0.5, 4.0), rows=1_000_000),
        "memory": memory,
        "names": NAMES,
        "num_sums": 4,
        "killed_writers": [KilledWriter("The executor", "a reader reads <all> [bold]rows", True)],
        "sample": SAMPLE,
        "elapsed_s": 41.7,
    }
    return DemoReport(**(fields | changes))
