"""What the measurements show: ratios with a confidence interval, and a verdict in one sentence.

The noise: in each round all methods run once, so a round gives a ratio of the times of publishing and of another
method. With n rounds, the k-th smallest and k-th largest ratio enclose the median of all possible rounds with a
probability that does not depend on the distribution of the noise: 1 - 2 P(B < k), where B is binomial with n and 1/2.
The interval is the narrowest with at least 95 %; with 7 rounds all ratios (98.4 %), with fewer than 6 there is none.
A difference counts only if the interval does not contain 1.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from examples.demo.killed_writers import KilledWriter
from examples.demo.methods import PUBLISH, READERS, READS, Measurement, MemoryUse
from examples.demo.texts import format_count, format_size

# The usual level of intervals.
CONFIDENCE = 0.95
MIN_ROUNDS = 6
"""With fewer rounds, no interval has the confidence."""

Total = Callable[[Measurement], float]


def total_of_one_read(measurement: Measurement) -> float:
    """The time until one reader has read once."""
    return measurement.write_s + measurement.one_read_s


def total_of_all_reads(measurement: Measurement) -> float:
    """The time until all readers have read `READS` times."""
    return measurement.write_s + measurement.all_reads_s


WORKLOADS: dict[Total, str] = {
    total_of_one_read: "one reader that reads once",
    total_of_all_reads: f"{READERS} readers that read {READS} times each",
}


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return an interval that contains the median of the distribution with `CONFIDENCE`; None for too few values."""
    ordered, n = sorted(values), len(values)
    rank, outside = 0, 0.0
    while (outside := outside + 2 * math.comb(n, rank) / 2**n) <= 1 - CONFIDENCE:
        rank += 1
    return (ordered[rank - 1], ordered[n - rank]) if rank else None


def describe_interval(rounds: int) -> str:
    """Describe the interval of `median_interval` in a sentence."""
    if median_interval(range(rounds)) is None:
        return f"The noise is not known: at least {MIN_ROUNDS} rounds are necessary."
    return (
        f"The lines enclose the median of all possible rounds with a probability of at least {CONFIDENCE:.0%}, "
        f"whatever the distribution of the noise; a difference counts only if 1 is outside."
    )


@dataclass(frozen=True, slots=True)
class Ratio:
    """The time of publishing divided by another method's: the median of all rounds, and its interval, if any."""

    median: float
    interval: tuple[float, float] | None

    @property
    def is_faster(self) -> bool:
        """Whether publishing is faster, beyond the noise."""
        return self.interval is not None and self.interval[1] < 1

    @property
    def is_slower(self) -> bool:
        """Whether publishing is slower, beyond the noise."""
        return self.interval is not None and self.interval[0] > 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rounds of all methods, by name, with the same rows; publishing is the first."""

    rows: int
    rounds: dict[str, list[Measurement]]

    @property
    def size_bytes(self) -> int:
        """The size of the published rows."""
        return self.rounds[PUBLISH.name][-1].size_bytes

    @property
    def num_rounds(self) -> int:
        """The number of rounds."""
        return len(self.rounds[PUBLISH.name])

    def median(self, name: str, total: Total) -> float:
        """The median time of a method, in seconds."""
        return statistics.median(map(total, self.rounds[name]))

    def ratios(self, total: Total) -> dict[str, Ratio]:
        """Compare publishing with each other method, round by round."""
        ratios = {}
        for name in list(self.rounds)[1:]:
            pairs = zip(self.rounds[PUBLISH.name], self.rounds[name], strict=True)
            values = [total(published) / total(other) for published, other in pairs]
            ratios[name] = Ratio(statistics.median(values), median_interval(values))
        return ratios


@dataclass(slots=True)
class DemoReport:
    """All that the demo shows, in the terminal and on its page."""

    main: Comparison
    memory: dict[str, MemoryUse]
    """The measurements of each method."""
    names: list[str]
    """Of the columns."""
    num_sums: int
    killed_writers: list[KilledWriter] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    """The differences of published rows from Spark's."""
    sample: list[list[str]] = field(default_factory=list)
    """The texts of a few rows."""
    elapsed_s: float = 0.0

    @property
    def is_successful(self) -> bool:
        """Whether all rows are as Spark's, and killed writers had the promised effect."""
        return not self.differences and all(killed.is_as_promised for killed in self.killed_writers)

    @property
    def verdict(self) -> str:
        """One sentence."""
        if self.differences:
            return f"Failed: {format_count(len(self.differences), 'difference')} from Spark's rows."
        subject = f"{format_count(self.main.rows, 'row')}, {format_size(self.main.size_bytes)}"
        if self.main.num_rounds < MIN_ROUNDS:
            return f"{subject}: fewer than {MIN_ROUNDS} rounds, too few to distinguish differences from noise."
        return f"{subject}: {'; '.join(_describe_workload(self.main, total) for total in reversed(WORKLOADS))}."


def _describe_workload(comparison: Comparison, total: Total) -> str:
    """Name the fastest method of a workload, as far as the noise permits."""
    ratios, workload = comparison.ratios(total), WORKLOADS[total]
    slower = {name: ratio.median for name, ratio in ratios.items() if ratio.is_slower}
    times = " and ".join(
        f"{1 / ratio.median:.1f} times as fast as {name}" for name, ratio in ratios.items() if ratio.is_faster
    )
    if slower:
        name = max(slower, key=lambda name: slower[name])
        return f"{name} is faster than publishing for {workload}, {slower[name]:.1f} times as fast"
    undecided = [name for name, ratio in ratios.items() if not ratio.is_faster]
    if undecided:
        advantage = f", and publishing is {times}" if times else ""
        return f"for {workload}, publishing and {' and '.join(undecided)} differ by less than the noise{advantage}"
    return f"publishing is the fastest for {workload}, {times}"
