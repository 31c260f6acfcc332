"""Making findings small: parts are taken away for as long as the same thing goes wrong.

Each attempt runs in a process of its own, which has as much time and memory as a worker gives an input.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

from fuzz.anatomy import dissect
from fuzz.findings import Finding, signature
from fuzz.forks import Fork, Pipe
from fuzz.inputs import Input
from fuzz.worker import import_planted, limit_resources


def _attempt(given: Input, says: Connection) -> None:
    from fuzz.instrumented import check

    import_planted()
    limit_resources()
    try:
        check(given)
    except Exception as error:  # noqa: BLE001 -- that is what is asked for
        says.send(signature(error))
    else:
        says.send("")


def outcome(given: Input, hang_s: float) -> str:
    """What goes wrong with an input: a signature, "signal …", "hang"; the empty string where nothing does."""
    hears, says = Pipe(duplex=False)
    process = Fork(target=_attempt, args=(given, says), daemon=True)
    process.start()
    says.close()
    try:
        return str(hears.recv()) if hears.poll(hang_s) else "hang"
    except EOFError:
        process.join()
        return f"ended with {process.exitcode}"
    finally:
        process.kill()
        process.join()
        hears.close()


def shrink(finding: Finding, hang_s: float = 20.0, time_s: float = 30.0) -> int:
    """Make a finding's input smaller, for at most so long; how many bytes are left."""
    given = finding.given
    wanted = outcome(given, hang_s)
    until = time.monotonic() + time_s
    if wanted:
        given = _smaller(given, lambda it: time.monotonic() < until and outcome(it, hang_s) == wanted, until)
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
