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
from dataclasses import dataclass

from bowstring.cli.demo.transfer_methods import PUBLISH, READERS, READS, Measurement
from bowstring.display.printable_text import format_size
from bowstring.errors import format_count

CONFIDENCE = 0.95
MIN_ROUNDS = 6
"""With fewer rounds, no interval has the confidence."""

Total = Callable[[Measurement], float]
ONE: Total = Measurement.one_total_s.fget  # type: ignore[attr-defined]
ALL: Total = Measurement.all_total_s.fget  # type: ignore[attr-defined]
WORKLOADS: dict[Total, str] = {
    ONE: "one reader that reads once",
    ALL: f"{READERS} readers that read {READS} times each",
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
    if rounds < MIN_ROUNDS:
        return f"The noise is not known: at least {MIN_ROUNDS} rounds are necessary."
    least, _ = median_interval(range(1, rounds + 1)) or (1, rounds)
    outside = 2 * sum(math.comb(rounds, index) for index in range(int(least))) / 2**rounds
    return (
        f"The lines reach from the {_ordinal(int(least))}smallest to the {_ordinal(int(least))}largest ratio of "
        f"{rounds} rounds, which enclose the median with a probability of {1 - outside:.1%}, whatever the "
        f"distribution of the noise; a difference counts only if 1 is outside."
    )


def _ordinal(rank: int) -> str:
    return {1: "", 2: "second ", 3: "third "}.get(rank, f"{rank}th ")


@dataclass(frozen=True, slots=True)
class Ratio:
    """The time of publishing divided by that of another method: the median of all rounds, and its interval, if any."""

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
    """All rounds of all methods, by name, with the same rows."""

    rows: int
    rounds: dict[str, list[Measurement]]

    @property
    def size_bytes(self) -> int:
        """The size of the published rows."""
        return self.rounds[PUBLISH.name][-1].size_bytes

    @property
    def others(self) -> list[str]:
        """The methods other than publishing."""
        return [name for name in self.rounds if name != PUBLISH.name]

    def median(self, name: str, total: Total) -> float:
        """The median time of a method, in seconds."""
        return statistics.median(map(total, self.rounds[name]))

    def ratio(self, name: str, total: Total) -> Ratio:
        """Compare publishing with another method, round by round."""
        pairs = zip(self.rounds[PUBLISH.name], self.rounds[name], strict=True)
        ratios = [total(published) / total(other) for published, other in pairs]
        return Ratio(statistics.median(ratios), median_interval(ratios))

    def ratios(self, total: Total) -> dict[str, Ratio]:
        """Compare publishing with each other method."""
        return {name: self.ratio(name, total) for name in self.others}

    def is_fastest(self, total: Total) -> bool:
        """Whether publishing is faster than each other method, beyond the noise."""
        return all(ratio.is_faster for ratio in self.ratios(total).values())


def describe_verdict(main: Comparison, other: Comparison | None) -> str:
    """Return one sentence about the rows of `main`.

    `other` has the same columns and many more or far fewer rows; None if there are fewer than `MIN_ROUNDS` rounds.
    """
    subject = f"{format_count(main.rows, 'row')}, {format_size(main.size_bytes)}"
    if other is None:
        return f"{subject}: fewer than {MIN_ROUNDS} rounds, too few to distinguish differences from noise."
    clauses = [_describe_workload(main, ALL), _describe_one_read(main), _describe_size(main, other)]
    return f"{subject}: {'; '.join(filter(None, clauses))}."


def _describe_workload(comparison: Comparison, total: Total) -> str:
    """Name the fastest method of a workload, as far as the noise permits."""
    ratios = comparison.ratios(total)
    slower = [name for name, ratio in ratios.items() if ratio.is_slower]
    undecided = [name for name, ratio in ratios.items() if not (ratio.is_slower or ratio.is_faster)]
    workload = WORKLOADS[total]
    times = " and ".join(
        f"{ratio.median:.2f} of the time of {name}" for name, ratio in ratios.items() if ratio.is_faster
    )
    if slower:
        name = max(slower, key=lambda name: ratios[name].median)
        return f"{name} is faster than publishing for {workload}, {1 / ratios[name].median:.2f} of its time"
    if undecided:
        advantage = f", and publishing takes {times}" if times else ""
        return f"for {workload}, publishing and {' and '.join(undecided)} differ by less than the noise{advantage}"
    return f"publishing is the fastest for {workload}, {times}"


def _describe_one_read(comparison: Comparison) -> str:
    if not comparison.is_fastest(ALL):
        return ""
    if comparison.is_fastest(ONE):
        return f"also for {WORKLOADS[ONE]}"
    reads = find_paying_reads(comparison)
    if reads is None or reads == 1:  # the medians may favour publishing by less than the noise
        return _describe_workload(comparison, ONE)
    return f"{_describe_workload(comparison, ONE)}, and publishing pays from about read {reads} on"


def find_paying_reads(comparison: Comparison) -> int | None:
    """Return from how many reads on publishing is faster than each other method, by a line through both workloads."""
    reads = 1
    # Times are lines in the number of reads: publishing pays from where its line crosses each of the others.
    for name in comparison.others:
        slower_by = comparison.median(PUBLISH.name, ONE) - comparison.median(name, ONE)
        faster_by = comparison.median(name, ALL) - comparison.median(PUBLISH.name, ALL)
        if slower_by > 0:
            if faster_by <= 0:
                return None
            reads = max(reads, math.ceil(1 + (READERS * READS - 1) * slower_by / (slower_by + faster_by)))
    return reads


def _describe_size(main: Comparison, other: Comparison) -> str:
    small, large = sorted((main, other), key=lambda comparison: comparison.size_bytes)
    if small.is_fastest(ALL):
        return "" if main is small else f"even of {format_count(small.rows, 'row')}"
    if not large.is_fastest(ALL):
        return f"nor is it the fastest with {format_size(large.size_bytes)} of such rows" if main is small else ""
    paying_bytes = find_paying_bytes(small, large)
    return "" if paying_bytes is None else f"publishing pays from about {_round_size(paying_bytes)} on"


def find_paying_bytes(small: Comparison, large: Comparison) -> float | None:
    """Return the size from which on publishing is faster than each other method for all readers, by a line through both
    comparisons; None if publishing is slower at the larger size.
    """
    paying_bytes = float(small.size_bytes)
    for name in small.others:
        slower_by = small.median(PUBLISH.name, ALL) - small.median(name, ALL)
        faster_by = large.median(name, ALL) - large.median(PUBLISH.name, ALL)
        if faster_by <= 0:
            return None
        if slower_by > 0:
            share = slower_by / (slower_by + faster_by)
            paying_bytes = max(paying_bytes, small.size_bytes + share * (large.size_bytes - small.size_bytes))
    return paying_bytes


def _round_size(size_bytes: float) -> str:
    """Format a size with one significant digit, in MiB from half of one on."""
    mebibytes = size_bytes / 2**20
    if mebibytes < 1:
        return "1 MiB"
    digit = 10 ** math.floor(math.log10(mebibytes))
    return f"{round(mebibytes / digit) * digit} MiB"
