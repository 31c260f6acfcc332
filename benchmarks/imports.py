"""Import the library in a new interpreter. The peer is pyarrow."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.measure import Candidate, Measurement, Settings, compare, compare_calls

_BOUND = 0.5
_TIMED_CODE = "import time; start = time.perf_counter(); {code}; print(time.perf_counter() - start)"


def run(_folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure the whole process, and the import with a first array."""
    yield compare_calls(
        "import, the whole process",
        _BOUND,
        partial(_run_python, "import bowstring"),
        partial(_run_python, "import pyarrow"),
        settings,
    )
    bowstring, pyarrow = (
        Candidate(name, partial(_time_inside, f"import {name}; {name}.array([1, 2, 3])"))
        for name in ("bowstring", "pyarrow")
    )
    yield compare("import and a first array, inside the interpreter", None, bowstring, [pyarrow], settings)


def _time_inside(code: str) -> float:
    return float(_run_python(_TIMED_CODE.format(code=code)))


def _run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
