"""Starting workers, watching them, and killing those that hang: what a worker cannot tell of itself."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fuzz.findings import Findings
from fuzz.forks import Fork
from fuzz.inputs import Input
from fuzz.worker import State, work

_POLL_S = 0.2
_COUNT_S = 1.0
_COVERAGE = re.compile(rb"cov: (\d+)")


@dataclass(frozen=True, slots=True)
class Effort:
    """How many workers, where chance begins, for how long and up to how many findings, and how long an input may
    take.
    """

    jobs: int
    seed: int
    time_s: float = float("inf")
    hang_s: float = 20.0
    max_findings: int | None = None


@dataclass(slots=True)
class Progress:
    """What has been done so far, by all workers."""

    elapsed_s: float = 0.0
    tried: int = 0
    sound: int = 0
    coverage: int = 0
    corpus: int = 0
    findings: int = 0
    deaths: int = 0


class Watched:
    """A worker process and its folder; it is started anew whenever it died."""

    def __init__(self, home: Path, seed: int, hang_s: float, findings: Findings) -> None:
        self._home = home
        self._seed = seed
        self._hang_s = hang_s
        self._findings = findings
        self._past = (0, 0)
        self.deaths = self._starts = 0
        home.mkdir(parents=True, exist_ok=True)
        (home / "corpus").mkdir(exist_ok=True)
        self._start()

    def _start(self) -> None:
        (self._home / "state").unlink(missing_ok=True)
        self.state = State(self._home / "state")
        (self._home / "log.txt").write_bytes(b"")
        self._process = Fork(target=work, args=(self._home, self._seed + self._starts), daemon=True)
        self._process.start()

    def counts(self) -> tuple[int, int]:
        """How many inputs were tried and were sound."""
        tried, sound, _, _ = self.state.read()
        return self._past[0] + tried, self._past[1] + sound

    @property
    def coverage(self) -> int:
        """The edges that were reached, as the engine counts them; 0 where it does not."""
        with (self._home / "log.txt").open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - 4096))
            found = _COVERAGE.findall(log.read())
        return int(found[-1]) if found else 0

    @property
    def corpus(self) -> int:
        """How many inputs are kept because they reach something new."""
        return sum(1 for _ in os.scandir(self._home / "corpus"))

    def look(self) -> None:
        """See whether it is still at work; write down what it died of, and start another one."""
        tried, _, since, raw = self.state.read()
        status = self._process.exitcode
        if status == 0:
            self._restart()  # it had grown
        elif status is not None:
            self._died(raw, tried, f"exit-{status}" if status > 0 else signal.Signals(-status).name)
        elif tried and time.monotonic() - since > self._hang_s:
            assert self._process.pid is not None
            os.kill(self._process.pid, signal.SIGUSR1)  # writes the stack
            time.sleep(0.5)
            self.stop()
            self._died(raw, tried, "hang")

    def _died(self, raw: bytes, tried: int, what: str) -> None:
        story = (self._home / "stack.txt").read_text(errors="replace")
        log = (self._home / "log.txt").read_text(errors="replace")[-3000:]
        if not tried:
            raise RuntimeError(f"a worker died before it tried anything ({what}): {log}")
        frame = re.search(r'File ".*?(bowstring/[^"]*)\.py", line (\d+)', story)
        place = f"-{frame[1].removeprefix('bowstring/').replace('/', '.')}-{frame[2]}" if frame else ""
        self._findings.keep(Input.unpack(raw), f"{what}{place}", f"{what}\n{story}\n{log}")
        self.deaths += 1
        self._restart()

    def _restart(self) -> None:
        self._past = self.counts()
        self._starts += 1
        self._start()

    def stop(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.join()


def watch(home: Path, seeds: list[Input], effort: Effort, advance: Callable[[Progress], None]) -> Progress:
    """Let workers try inputs; `advance` is called now and then.

    `home` keeps the corpus of each worker from one run to the next, and the findings. Ends early on an interrupt.
    """
    findings = Findings(home / "findings")
    done = Progress()
    started = time.monotonic()
    workers: list[Watched] = []
    try:
        for number in range(effort.jobs):
            place = home / f"worker-{number}"
            (place / "corpus").mkdir(parents=True, exist_ok=True)
            for given in seeds:
                (place / "corpus" / given.name).write_bytes(given.pack())
            workers.append(Watched(place, effort.seed + 1000 * number, effort.hang_s, findings))
        looked = started
        while done.elapsed_s < effort.time_s:
            time.sleep(_POLL_S)
            for worker in workers:
                worker.look()
            done.elapsed_s = time.monotonic() - started
            if time.monotonic() - looked < _COUNT_S and done.elapsed_s < effort.time_s:
                continue
            looked = time.monotonic()
            counts = [worker.counts() for worker in workers]
            done = Progress(
                time.monotonic() - started,
                sum(tried for tried, _ in counts),
                sum(sound for _, sound in counts),
                max((worker.coverage for worker in workers), default=0),
                max((worker.corpus for worker in workers), default=0),
                len(findings.all()),
                sum(worker.deaths for worker in workers),
            )
            advance(done)
            if effort.max_findings is not None and done.findings >= effort.max_findings:
                break
    except KeyboardInterrupt:
        pass
    finally:
        for worker in workers:
            worker.stop()
    return done
