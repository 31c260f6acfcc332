"""Shrink findings: remove parts of an input as long as it fails in the same way.

Each attempt runs in its own process, with the time and memory limits of a worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

from fuzz.editable_stream import parse_stream
from fuzz.findings import Finding, signature
from fuzz.forkserver import ForkedProcess, Pipe
from fuzz.inputs import FuzzInput
from fuzz.worker import import_planted_bugs, limit_resources


def _send_signature(fuzz_input: FuzzInput, sender: Connection) -> None:
    from fuzz.instrumentation import check

    import_planted_bugs()
    limit_resources()
    try:
        check(fuzz_input)
    except Exception as error:  # noqa: BLE001 -- the finding
        sender.send(signature(error))
    else:
        sender.send("")


def failure_signature(fuzz_input: FuzzInput, hang_s: float) -> str:
    """How an input fails: an error's signature, "ended with ...", "hang", or the empty string if it does not."""
    receiver, sender = Pipe(duplex=False)
    process = ForkedProcess(target=_send_signature, args=(fuzz_input, sender), daemon=True)
    process.start()
    sender.close()
    try:
        return str(receiver.recv()) if receiver.poll(hang_s) else "hang"
    except EOFError:
        process.join()
        return f"ended with {process.exitcode}"
    finally:
        process.kill()
        process.join()
        receiver.close()


def shrink(finding: Finding, hang_s: float = 20.0, time_s: float = 30.0) -> int:
    """Shrink a finding's input for at most `time_s`; return its size in bytes."""
    fuzz_input = finding.fuzz_input
    expected = failure_signature(fuzz_input, hang_s)
    deadline = time.monotonic() + time_s
    if expected:
        fuzz_input = _shrink_input(
            fuzz_input,
            lambda candidate: time.monotonic() < deadline and failure_signature(candidate, hang_s) == expected,
            deadline,
        )
        finding.replace(fuzz_input)
    return len(fuzz_input.data)


def _shrink_input(fuzz_input: FuzzInput, has_same_failure: Callable[[FuzzInput], bool], deadline: float) -> FuzzInput:
    improved = True
    while improved and time.monotonic() < deadline:
        improved = False
        for candidate in _smaller_inputs(fuzz_input):
            if time.monotonic() > deadline:
                break
            if len(candidate.data) < len(fuzz_input.data) and has_same_failure(candidate):
                fuzz_input, improved = candidate, True
                break
    return fuzz_input


def _smaller_inputs(fuzz_input: FuzzInput) -> Iterator[FuzzInput]:
    """Smaller inputs, the smallest first: without a message, then without a range of bytes."""
    stream = parse_stream(fuzz_input.data)
    if stream is not None:
        for index in range(len(stream.messages)):
            copy = parse_stream(fuzz_input.data)
            assert copy is not None
            del copy.messages[index]
            if copy.messages:
                yield FuzzInput(fuzz_input.kind, copy.encode())
    size = len(fuzz_input.data)
    step = size // 2
    while step >= max(1, size // 64):
        for start in range(0, size, step):
            yield FuzzInput(fuzz_input.kind, fuzz_input.data[:start] + fuzz_input.data[start + step :])
        step //= 2
