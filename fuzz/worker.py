"""A process that runs inputs until it is killed.

It writes each input to shared memory before it runs it, so that the supervisor can report the input of a crash. Python
exceptions are recorded as findings, and the worker continues.

Atheris (libFuzzer for Python) guides it by the coverage of Bowstring's code. Without Atheris, seeds are mutated at
random, which finds less.
"""

from __future__ import annotations

import faulthandler
import importlib
import mmap
import os
import random
import resource
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MAX_INPUT_BYTES = 1 << 16
MAX_MEMORY_BYTES = 1536 << 20
SLOW_S = 5.0
MAX_RESIDENT_BYTES = 700 << 20
"""A worker exits at this size, because the engine leaks a little memory with each custom mutation."""
PLANTED_MODULE = "BOWSTRING_FUZZ_PLANT"
"""The environment variable with the name of a module to import: tests use it to plant bugs."""
_STATE = struct.Struct("<QQdI")
_STATE_BYTES = _STATE.size + MAX_INPUT_BYTES + 1


class WorkerState:
    """The current input and the counts of a worker, in a file that the supervisor maps, too."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.truncate(_STATE_BYTES)
            self._map = mmap.mmap(file.fileno(), _STATE_BYTES)

    def begin(self, input_count: int, valid_count: int, raw: bytes) -> None:
        """Record the counts and the input that runs next."""
        self._map[_STATE.size : _STATE.size + len(raw)] = raw
        self._map[: _STATE.size] = _STATE.pack(input_count, valid_count, time.monotonic(), len(raw))

    def read(self) -> tuple[int, int, float, bytes]:
        """The numbers of inputs and of valid ones, the start time of the current input, and its bytes."""
        input_count, valid_count, started_s, size = _STATE.unpack(self._map[: _STATE.size])
        return input_count, valid_count, started_s, self._map[_STATE.size : _STATE.size + size]


def run_worker(home: Path, seed: int) -> None:
    """Run inputs of the corpus in `home` and mutations of them. Never return; write standard output to a log."""
    with (home / "log.txt").open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    stack = (home / "stack.txt").open("w")
    faulthandler.enable(stack)
    faulthandler.register(signal.SIGUSR1, stack)
    from fuzz.instrumentation import engine
    from fuzz.temporary_files import use_folder

    import_planted_bugs()
    use_folder(home / "files")
    limit_resources()
    runner = InputRunner(home, seed)
    if engine is None:
        runner.run_without_coverage()
    else:
        _run_with_atheris(engine, runner, home, seed)


def import_planted_bugs() -> None:
    """Import the module of planted bugs, if a test has set one."""
    if PLANTED_MODULE in os.environ:
        importlib.import_module(os.environ[PLANTED_MODULE])


def limit_resources() -> None:
    """Limit the memory of this process, and disable core dumps."""
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # pyarrow's other allocators reserve 1 GiB of addresses
    resource.setrlimit(resource.RLIMIT_AS, (_process_bytes(0) + MAX_MEMORY_BYTES, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _process_bytes(column: int) -> int:
    """The size of this process in bytes: virtual (column 0) or resident (column 1)."""
    return int(Path("/proc/self/statm").read_text().split()[column]) * mmap.PAGESIZE


def _run_with_atheris(atheris: Any, runner: InputRunner, home: Path, seed: int) -> None:
    def mutator(raw: bytes, max_size: int, seed: int) -> bytes:
        if seed % 4:
            mutated = runner.mutate(raw, random.Random(seed))
            if mutated is not None and len(mutated) <= max_size:
                return mutated
        # Keep the kind: each kind has its own seeds.
        return raw[:1] + bytes(atheris.Mutate(raw[1:], max_size - 1))

    names = ("segv", "bus", "abrt", "ill", "fpe", "usr1", "usr2", "int", "term", "xfsz")
    options = [f"-handle_{name}=0" for name in names]
    sizes = [f"-max_len={MAX_INPUT_BYTES}", "-timeout=3600", "-rss_limit_mb=0", "-malloc_limit_mb=0"]
    command = [
        "fuzz",
        str(home / "corpus"),
        f"-seed={seed % (1 << 31) + 1}",
        "-len_control=0",
        "-reload=0",
        "-mutate_depth=2",
    ]
    atheris.Setup([*command, *options, *sizes], runner.run_input, custom_mutator=mutator)
    atheris.Fuzz()


class InputRunner:
    """Runs inputs, and records their failures."""

    def __init__(self, home: Path, seed: int) -> None:
        from fuzz.findings import Findings
        from fuzz.inputs import FuzzInput
        from fuzz.instrumentation import check

        self._check: Callable[[Any], bool] = check
        self._input = FuzzInput
        self._findings = Findings(home.parent / "findings")
        self._state = WorkerState(home / "state")
        self._corpus = home / "corpus"
        self._random = random.Random(seed)
        self._input_count = self._valid_count = 0
        self._parent = os.getppid()

    def run_input(self, raw: bytes) -> None:
        """Run one input."""
        raw = raw[: MAX_INPUT_BYTES + 1]
        fuzz_input = self._input.unpack(raw)
        self._input_count += 1
        if os.getppid() != self._parent or (self._input_count % 1000 == 0 and _process_bytes(1) > MAX_RESIDENT_BYTES):
            os._exit(0)
        self._state.begin(self._input_count, self._valid_count, raw)
        started = time.monotonic()
        try:
            self._valid_count += self._check(fuzz_input)
        except Exception as error:  # noqa: BLE001 -- a finding
            self._findings.add_error(fuzz_input, error)
        if time.monotonic() - started > SLOW_S:
            self._confirm_slow(fuzz_input)

    def _confirm_slow(self, fuzz_input: Any) -> None:
        """Run a slow input again and measure its processor time: the machine may have been busy."""
        started = time.process_time()
        try:
            self._check(fuzz_input)
        except Exception:  # noqa: BLE001 -- already recorded
            pass
        elapsed_s = time.process_time() - started
        if elapsed_s > SLOW_S:
            self._findings.add(fuzz_input, "slow", f"{elapsed_s:.1f} s of processor time")

    def mutate(self, raw: bytes, rng: random.Random) -> bytes | None:
        """The input with structural changes, or None."""
        mutated_input = self._input.unpack(raw).mutate(rng)
        return None if mutated_input is None else mutated_input.pack()

    def run_without_coverage(self) -> None:
        """Run random mutations of the corpus, without coverage."""
        from fuzz.mutations import flip_bits

        corpus = [path.read_bytes() for path in sorted(self._corpus.iterdir())]
        while True:
            raw = self._random.choice(corpus)
            mutated_input = self.mutate(raw, self._random) if self._random.random() < 0.8 else None
            if mutated_input is None:
                flipped = bytearray(raw)
                flip_bits(self._random, flipped)
                mutated_input = bytes(flipped)
            self.run_input(mutated_input)
