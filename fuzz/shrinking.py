"""Making findings small: parts are taken away for as long as the same thing goes wrong.

Each attempt runs in a process of its own, which has as much time and memory as a worker gives an input.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fuzz.anatomy import dissect
from fuzz.findings import Finding
from fuzz.inputs import Input

_ROOT = Path(__file__).resolve().parent.parent
_ATTEMPT_S = 20.0


def outcome(given: Input, timeout_s: float = _ATTEMPT_S) -> str:
    """What goes wrong with an input: a signature, "SIG…", "hang"; the empty string where nothing does."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / f"input.{given.kind}"
        path.write_bytes(given.data)
        command = [sys.executable, "-m", "fuzz", "--again", str(path), "--brief"]
        try:
            done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            return "hang"
    return f"signal {-done.returncode}" if done.returncode < 0 else done.stdout.strip()


def shrink(finding: Finding, time_s: float = 30.0) -> int:
    """Make a finding's input smaller, for at most so long; how many bytes are left."""
    given = finding.given
    wanted = outcome(given)
    until = time.monotonic() + time_s
    if wanted:
        given = _smaller(given, lambda it: time.monotonic() < until and outcome(it) == wanted, until)
        finding.replace(given)
    return len(given.data)


def _smaller(given: Input, is_same: Callable[[Input], bool], until: float) -> Input:
    improved = True
    while improved and time.monotonic() < until:
        improved = False
        for candidate in _candidates(given):
            if time.monotonic() > until:
                break
            if len(candidate.data) < len(given.data) and is_same(candidate):
                given, improved = candidate, True
                break
    return given


def _candidates(given: Input) -> Iterator[Input]:
    """Smaller inputs, the boldest first: whole messages, fields and pairs less, then stretches of bytes."""
    anatomy = dissect(given.data)
    if anatomy is not None:
        for index in range(len(anatomy.pieces)):
            again = dissect(given.data)
            assert again is not None
            del again.pieces[index]
            if again.pieces:
                yield Input(given.kind, again.render())
    size = len(given.data)
    step = size // 2
    while step >= max(1, size // 64):
        for start in range(0, size, step):
            yield Input(given.kind, given.data[:start] + given.data[start + step :])
        step //= 2
