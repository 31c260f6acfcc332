"""Importing, each time in a fresh interpreter. The peer is pyarrow."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.timing import Contender, Effort, Outcome, Sample, compare

GROUP = "import"
_BOUND = 0.5
_CLOCK = "import time; start = time.perf_counter(); {work}; print(time.perf_counter() - start)"


def run(_folder: Path, effort: Effort) -> Iterator[Outcome]:
    """Measure the import alone, the life of the whole process, and the way to a first array."""
    ours, theirs = "import bowstring", "import pyarrow"
    yield _line("import bowstring / import pyarrow, inside the interpreter", _BOUND, (ours, theirs), effort, _inside)
    yield _line("the whole process that does it", _BOUND, (ours, theirs), effort, _whole)
    arrays = f"{ours}; bowstring.array([1, 2, 3])", f"{theirs}; pyarrow.array([1, 2, 3])"
    yield _line("import and a first array, inside the interpreter", None, arrays, effort, _inside)


def _line(
    line: str, bound: float | None, works: tuple[str, str], effort: Effort, how: Callable[[str], Sample]
) -> Outcome:
    ours, theirs = (Contender(name, how(work)) for name, work in zip(("bowstring", "pyarrow"), works, strict=True))
    return compare((GROUP, line), bound, ours, [theirs], effort)


def _inside(work: str) -> Sample:
    """What the interpreter itself measures around the work."""
    return lambda: float(_python(_CLOCK.format(work=work)))


def _whole(work: str) -> Sample:
    """From starting the process until it has ended."""

    def sample() -> float:
        start = time.perf_counter()
        _python(work)
        return time.perf_counter() - start

    return sample


def _python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
