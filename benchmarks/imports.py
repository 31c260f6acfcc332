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
    """Measure the import, the whole process, and the import with a first array."""
    imports = "import bowstring", "import pyarrow"
    arrays = f"{imports[0]}; bowstring.array([1, 2, 3])", f"{imports[1]}; pyarrow.array([1, 2, 3])"
    yield _compare_code("import, inside the interpreter", _BOUND, imports, settings)
    yield compare_calls(
        "import, the whole process",
        _BOUND,
        partial(_run_python, imports[0]),
        partial(_run_python, imports[1]),
        settings,
    )
    yield _compare_code("import and a first array, inside the interpreter", None, arrays, settings)


def _compare_code(line: str, bound: float | None, codes: tuple[str, str], settings: Settings) -> Measurement:
    """Compare two pieces of code by the times that their interpreters measure."""
    bowstring, pyarrow = (
        Candidate(name, partial(_time_inside, code)) for name, code in zip(("bowstring", "pyarrow"), codes, strict=True)
    )
    return compare(line, bound, bowstring, [pyarrow], settings)


def _time_inside(code: str) -> float:
    return float(_run_python(_TIMED_CODE.format(code=code)))


def _run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
