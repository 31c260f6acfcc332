"""A process that tries inputs until it is killed.

It says in shared memory what it is trying, before it does, so that whoever watches it knows what it died of. What goes
wrong in Python is written down as a finding, and the work goes on.

Atheris (libFuzzer under Python) guides it by the coverage of Bowstring's own code. Where Atheris is not installed,
seeds are mutated blindly: that finds less, but it runs everywhere.
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
STALE_BYTES = 700 << 20
"""A worker ends itself when it holds so much: the engine loses a little memory with each input that we mutate."""
PLANT = "BOWSTRING_FUZZ_PLANT"
"""The environment variable that names a module to import: tests plant bugs in this way, for the fuzzer to find."""
_STATE = struct.Struct("<QQdI")
_STATE_BYTES = _STATE.size + MAX_INPUT_BYTES + 1


class State:
    """What a worker is doing, in a file that the watching process maps too."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.truncate(_STATE_BYTES)
            self._map = mmap.mmap(file.fileno(), _STATE_BYTES)

    def begin(self, tried: int, sound: int, raw: bytes) -> None:
        """Say what is tried now."""
        self._map[_STATE.size : _STATE.size + len(raw)] = raw
        self._map[: _STATE.size] = _STATE.pack(tried, sound, time.monotonic(), len(raw))

    def read(self) -> tuple[int, int, float, bytes]:
        """How many inputs were tried and were sound, since when the current one is being tried, and what it is."""
        tried, sound, since, size = _STATE.unpack(self._map[: _STATE.size])
        return tried, sound, since, self._map[_STATE.size : _STATE.size + size]


def work(home: Path, seed: int) -> None:
    """Try inputs of the corpus in `home`, and what becomes of them; never returns. What is printed goes to a log."""
    with (home / "log.txt").open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    stack = (home / "stack.txt").open("w")
    faulthandler.enable(stack)
    faulthandler.register(signal.SIGUSR1, stack)
    from fuzz.instrumented import engine
    from fuzz.places import choose

    import_planted()
    choose(home / "files")
    limit_resources()
    begun = _Work(home, seed)
    if engine is None:
        begun.blindly()
    else:
        _guided(engine, begun, home, seed)


def import_planted() -> None:
    """Import the bugs that a test plants, if it does."""
    if PLANT in os.environ:
        importlib.import_module(os.environ[PLANT])


def limit_resources() -> None:
    """Let this process take no more memory than an input may, and dump no core."""
    resource.setrlimit(resource.RLIMIT_AS, (_statm(0) + MAX_MEMORY_BYTES, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _statm(column: int) -> int:
    """Bytes that this process has: of addresses (0) or of memory (1)."""
    return int(Path("/proc/self/statm").read_text().split()[column]) * mmap.PAGESIZE


def _guided(atheris: Any, begun: _Work, home: Path, seed: int) -> None:
    def mutator(raw: bytes, max_size: int, seed: int) -> bytes:
        if seed % 4:
            mutated = begun.mutated(raw, random.Random(seed))
            if mutated is not None and len(mutated) <= max_size:
                return mutated
        # The kind stays: each has seeds of its own, and kinds that nobody asked for would crowd out the rest.
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
    atheris.Setup([*command, *options, *sizes], begun.one, custom_mutator=mutator)
    atheris.Fuzz()


class _Work:
    def __init__(self, home: Path, seed: int) -> None:
        from fuzz.findings import Findings
        from fuzz.inputs import Input
        from fuzz.instrumented import check

        self._check: Callable[[Any], bool] = check
        self._input = Input
        self._findings = Findings(home.parent / "findings")
        self._state = State(home / "state")
        self._corpus = home / "corpus"
        self._chance = random.Random(seed)
        self._tried = self._sound = 0
        self._parent = os.getppid()

    def one(self, raw: bytes) -> None:
        """Try one input."""
        raw = raw[: MAX_INPUT_BYTES + 1]
        given = self._input.unpack(raw)
        self._tried += 1
        if os.getppid() != self._parent or (self._tried % 1000 == 0 and _statm(1) > STALE_BYTES):
            os._exit(0)
        self._state.begin(self._tried, self._sound, raw)
        started = time.monotonic()
        try:
            self._sound += self._check(given)
        except Exception as error:  # noqa: BLE001 -- that is what we look for
            self._findings.keep_error(given, error)
        if time.monotonic() - started > SLOW_S:
            self._try_slowly(given)

    def _try_slowly(self, given: Any) -> None:
        """Whether it was the input that took so long, or a machine that was busy."""
        started = time.process_time()
        try:
            self._check(given)
        except Exception:  # noqa: BLE001 -- it is known already
            pass
        took = time.process_time() - started
        if took > SLOW_S:
            self._findings.keep(given, "slow", f"{took:.1f} s of processor time")

    def mutated(self, raw: bytes, chance: random.Random) -> bytes | None:
        """The input with changes that know its structure, or None."""
        made = self._input.unpack(raw).mutated(chance)
        return None if made is None else made.pack()

    def blindly(self) -> None:
        """Mutate what is in the corpus, at random."""
        from fuzz.mutations import flip

        corpus = [path.read_bytes() for path in sorted(self._corpus.iterdir())]
        while True:
            raw = self._chance.choice(corpus)
            made = self.mutated(raw, self._chance) if self._chance.random() < 0.8 else None
            if made is None:
                held = bytearray(raw)
                flip(self._chance, held)
                made = bytes(held)
            self.one(made)
