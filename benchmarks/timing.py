"""How a time is taken: contenders take turns, garbage collection stands still, and medians are compared."""

from __future__ import annotations

import gc
import mmap
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

Sample: TypeAlias = Callable[[], float]
"""Does the work once and says how many seconds it took."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much time may go into measuring."""

    rounds: int
    """The rounds of every race, after those to warm up."""
    more_s: float = 0.0
    """A race that took less than this goes on, as short times are noisy ones."""
    max_rounds: int = 200
    quick: bool = False
    """Small data, to see that everything runs; its ratios say little."""
    warm_ups: int = 1

    def rows(self, full: int, share: int = 50) -> int:
        """How many rows to measure with: all of them, or where it has to be quick one in `share`."""
        return full // share if self.quick else full

    def few(self, warm_ups: int = 1) -> Effort:
        """The same for work of many seconds."""
        return replace(self, rounds=min(self.rounds, 3), more_s=0.0, warm_ups=warm_ups)


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do the work."""

    name: str
    sample: Sample


@dataclass(frozen=True, slots=True)
class Times:
    """What one contender took, in seconds, round by round."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The median of all rounds."""
        return statistics.median(self.seconds)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One line of the table: a ratio of times or, where nobody is raced against, an amount."""

    group: str
    line: str
    value: float
    bound: float | None
    unit: str = "ratio"
    ours: Times | None = None
    peers: tuple[Times, ...] = field(default=())

    @property
    def holds(self) -> bool | None:
        """Whether the value keeps within the bound; None where the line only informs."""
        return None if self.bound is None else self.value <= self.bound

    @property
    def best_peer(self) -> Times | None:
        """The peer in the fastest of its settings."""
        return min(self.peers, key=lambda times: times.median_s, default=None)


def timed(
    work: Callable[[], object], before: Callable[[], object] | None = None, after: Callable[[], object] | None = None
) -> Sample:
    """A sample of `work`; `before` and `after` are called, and what it returns is let go, while the clock stands."""

    def sample() -> float:
        if before is not None:
            before()
        settle()
        gc.disable()
        try:
            start = time.perf_counter()
            made = work()
            seconds = time.perf_counter() - start
            del made
        finally:
            gc.enable()
        if after is not None:
            after()
        return seconds

    return sample


def writing(name: str, folder: Path, work: Callable[[str], object], is_new: bool = True) -> Contender:
    """A contender that writes a file of its own in a folder: a new one each time, or over the last one."""
    path = folder / f"{name.replace(' ', '-')}.arrow"
    return Contender(name, timed(lambda: work(str(path)), after=path.unlink if is_new else None))


def settle() -> None:
    """Put memory in order, so that nobody pays for what another one left behind.

    glibc sorts freed pieces only when the next ones are asked for, up to ten thousand at a time: after a contender that
    freed a million small objects, as pyarrow does, the next allocations would take a millisecond each.
    """
    gc.collect()
    held = [bytearray(_LARGE_BYTES) for _ in range(_LARGE_PIECES)]
    held.clear()


_LARGE_BYTES = 60_000
_LARGE_PIECES = 300


def with_memory(contender: Contender, size_bytes: int) -> Contender:
    """The contender, who finds so much memory at hand each time.

    The host of a virtual machine takes back memory that was free for some seconds; whoever then gets it first waits for
    the host, five times as long as copying takes.
    """

    def sample() -> float:
        with mmap.mmap(-1, size_bytes) as held:
            held.madvise(mmap.MADV_HUGEPAGE)
            for start in range(0, size_bytes, mmap.PAGESIZE):
                held[start] = 1
        return contender.sample()

    return Contender(contender.name, sample)


def race(contenders: Sequence[Contender], effort: Effort) -> tuple[Times, ...]:
    """Let the contenders take turns, each once a round; who begins changes from round to round."""
    for contender in (*contenders,) * effort.warm_ups:
        contender.sample()
    seconds: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    start, done = time.perf_counter(), 0
    while done < effort.rounds or (done < effort.max_rounds and time.perf_counter() - start < effort.more_s):
        first = done % len(contenders)
        for contender in (*contenders[first:], *contenders[:first]):
            seconds[contender.name].append(contender.sample())
        done += 1
    return tuple(Times(name, tuple(taken)) for name, taken in seconds.items())


def compare(
    where: tuple[str, str], bound: float | None, ours: Contender, peers: Sequence[Contender], effort: Effort
) -> Outcome:
    """Race `ours` against a peer in each of its settings: the ratio of our median to the best of theirs.

    `where` is the group and the line.
    """
    our_times, *peer_times = race((ours, *peers), effort)
    ratio = our_times.median_s / min(times.median_s for times in peer_times)
    return Outcome(*where, ratio, bound, "ratio", our_times, tuple(peer_times))
