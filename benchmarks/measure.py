"""Interleaved measurements: candidates take turns, the garbage collector is off, and medians are compared."""

from __future__ import annotations

import gc
import mmap
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TypeAlias

Call: TypeAlias = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Settings:
    """The number of rounds, and the size of the data."""

    rounds: int
    min_time_s: float = 0.0
    """A measurement that takes less time continues, because short times are noisy."""
    max_rounds: int = 200
    warmup_rounds: int = 1
    is_quick: bool = False
    """Small data: shows that everything runs; the ratios mean little."""

    def rows(self, count: int, divisor: int = 50) -> int:
        """The number of rows to measure: `count`, or `count // divisor` in a quick run."""
        return count // divisor if self.is_quick else count

    def for_long_calls(self, warmup_rounds: int = 1) -> Settings:
        """The settings for calls that take seconds: at most three rounds."""
        return replace(self, rounds=min(self.rounds, 3), min_time_s=0.0, warmup_rounds=warmup_rounds)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to do the work; `sample` does it once and returns the seconds it took."""

    name: str
    sample: Callable[[], float]

    @classmethod
    def of_call(cls, name: str, call: Call, setup: Call | None = None, teardown: Call | None = None) -> Self:
        """A candidate that times `call`. `setup`, `teardown` and the release of the returned value are not timed."""

        def sample() -> float:
            if setup is not None:
                setup()
            _empty_free_lists()
            gc.disable()
            try:
                start = time.perf_counter()
                value = call()
                seconds = time.perf_counter() - start
                del value
            finally:
                gc.enable()
            if teardown is not None:
                teardown()
            return seconds

        return cls(name, sample)

    @classmethod
    def of_writer(cls, name: str, folder: Path, write: Callable[[str], object]) -> Self:
        """A candidate that times writing a new file; the file is deleted after each sample."""
        path = folder / f"{name.replace(' ', '-')}.arrow"
        return cls.of_call(name, lambda: write(str(path)), teardown=path.unlink)

    def with_free_memory(self, size_bytes: int, name: str = "") -> Candidate:
        """The candidate, run just after the system has freed this much memory.

        The host of a virtual machine reclaims memory that is free for some seconds. The next process to allocate it
        waits for the host, five times as long as a copy takes.
        """

        def sample() -> float:
            with mmap.mmap(-1, size_bytes) as memory:
                memory.madvise(mmap.MADV_HUGEPAGE)
                for offset in range(0, size_bytes, mmap.PAGESIZE):
                    memory[offset] = 1
            return self.sample()

        return Candidate(name or self.name, sample)


@dataclass(frozen=True, slots=True)
class Timings:
    """The seconds that a candidate took in each round."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The median of all rounds."""
        return statistics.median(self.seconds)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One line of the table: a ratio of two times, or a quantity that has no peer."""

    line: str
    value: float
    bound: float | None
    unit: str = "ratio"
    bowstring: Timings | None = None
    peers: tuple[Timings, ...] = ()
    group: str = ""

    @property
    def is_within_bound(self) -> bool | None:
        """Whether the value is at most the bound; None if there is no bound."""
        return None if self.bound is None else self.value <= self.bound

    @property
    def best_peer(self) -> Timings | None:
        """The peer in its fastest setting."""
        return min(self.peers, key=lambda timings: timings.median_s, default=None)


def measure(candidates: Sequence[Candidate], settings: Settings) -> tuple[Timings, ...]:
    """Sample each candidate once per round. The first candidate changes from round to round."""
    for candidate in (*candidates,) * settings.warmup_rounds:
        candidate.sample()
    seconds: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    start, rounds = time.perf_counter(), 0
    while rounds < settings.rounds or (
        rounds < settings.max_rounds and time.perf_counter() - start < settings.min_time_s
    ):
        first = rounds % len(candidates)
        for candidate in (*candidates[first:], *candidates[:first]):
            seconds[candidate.name].append(candidate.sample())
        rounds += 1
    return tuple(Timings(name, tuple(samples)) for name, samples in seconds.items())


def compare_timings(line: str, bound: float | None, bowstring: Timings, peers: Sequence[Timings]) -> Measurement:
    """The ratio of Bowstring's median time to that of the fastest peer."""
    value = bowstring.median_s / min(timings.median_s for timings in peers)
    return Measurement(line, value, bound, "ratio", bowstring, tuple(peers))


def compare(
    line: str, bound: float | None, bowstring: Candidate, peers: Sequence[Candidate], settings: Settings
) -> Measurement:
    """Measure Bowstring and each setting of the peer, interleaved."""
    timings = measure((bowstring, *peers), settings)
    return compare_timings(line, bound, timings[0], timings[1:])


def compare_calls(
    line: str,
    bound: float | None,
    bowstring: Call,
    peers: Call | Mapping[str, Call],
    settings: Settings,
    setup: Call | None = None,
) -> Measurement:
    """Like `compare`, for plain calls: `peers` is pyarrow's, or one for each of its settings. `setup` is not timed."""
    calls = peers if isinstance(peers, Mapping) else {"pyarrow": peers}
    candidates = [Candidate.of_call(name, call, setup) for name, call in calls.items()]
    return compare(line, bound, Candidate.of_call("bowstring", bowstring, setup), candidates, settings)


def _empty_free_lists() -> None:
    """Collect garbage and make the C library merge its freed blocks, so that no candidate pays for the previous one.

    glibc merges them only on the next large allocation, up to ten thousand at a time: after a candidate that freed a
    million small objects, the next allocations would take a millisecond each.
    """
    gc.collect()
    blocks = [bytearray(60_000) for _ in range(300)]
    blocks.clear()
