"""Start workers, observe their progress, and kill and replace those that hang or crash."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fuzz.findings import Findings
from fuzz.forkserver import ForkedProcess
from fuzz.inputs import FuzzInput
from fuzz.worker import WorkerState, run_worker

_POLL_S = 0.2
_COUNT_S = 1.0
_COVERAGE = re.compile(rb"cov: (\d+)")


@dataclass(frozen=True, slots=True)
class Settings:
    """The number of workers, the seed, and the limits of the run."""

    jobs: int
    seed: int
    time_s: float = float("inf")
    hang_s: float = 20.0
    max_findings: int | None = None


@dataclass(slots=True)
class Progress:
    """The progress of all workers."""

    elapsed_s: float = 0.0
    input_count: int = 0
    valid_count: int = 0
    coverage: int = 0
    corpus: int = 0
    findings: int = 0
    deaths: int = 0


class SupervisedWorker:
    """A worker process and its folder. A worker that exits is replaced."""

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
        self.state = WorkerState(self._home / "state")
        (self._home / "log.txt").write_bytes(b"")
        self._process = ForkedProcess(target=run_worker, args=(self._home, self._seed + self._starts), daemon=True)
        self._process.start()

    def counts(self) -> tuple[int, int]:
        """The number of inputs run, and of valid ones."""
        input_count, valid_count, _, _ = self.state.read()
        return self._past[0] + input_count, self._past[1] + valid_count

    @property
    def coverage(self) -> int:
        """The number of edges reached since the process started, from the engine's log; 0 without coverage."""
        with (self._home / "log.txt").open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - 4096))
            counts = _COVERAGE.findall(log.read())
        return int(counts[-1]) if counts else 0

    @property
    def corpus(self) -> int:
        """The number of inputs in the corpus."""
        return sum(1 for _ in os.scandir(self._home / "corpus"))

    def check_process(self) -> None:
        """Record and replace the process if it has crashed or hangs."""
        input_count, _, started_s, raw = self.state.read()
        status = self._process.exitcode
        if status == 0:
            self._restart()  # it exits when it has grown too large
        elif status is not None:
            self._record_death(raw, input_count, f"exit-{status}" if status > 0 else signal.Signals(-status).name)
        elif input_count and time.monotonic() - started_s > self._hang_s:
            assert self._process.pid is not None
            os.kill(self._process.pid, signal.SIGUSR1)  # writes the stack
            time.sleep(0.5)
            self.stop()
            self._record_death(raw, input_count, "hang")

    def _record_death(self, raw: bytes, input_count: int, cause: str) -> None:
        stack = (self._home / "stack.txt").read_text(errors="replace")
        log = (self._home / "log.txt").read_text(errors="replace")[-3000:]
        if not input_count:
            raise RuntimeError(f"a worker died before its first input ({cause}): {log}")
        frame = re.search(r'File ".*?(bowstring/[^"]*)\.py", line (\d+)', stack)
        location = f"-{frame[1].removeprefix('bowstring/').replace('/', '.')}-{frame[2]}" if frame else ""
        self._findings.add(FuzzInput.unpack(raw), f"{cause}{location}", f"{cause}\n{stack}\n{log}")
        self.deaths += 1
        self._restart()

    def _restart(self) -> None:
        self._past = self.counts()
        self._starts += 1
        self._start()

    def stop(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join()


def supervise(home: Path, seeds: list[FuzzInput], settings: Settings, advance: Callable[[Progress], None]) -> Progress:
    """Run workers until a limit or an interrupt; call `advance` about once per second.

    `home` contains the corpus of each worker, which later runs reuse, and the findings.
    """
    findings = Findings(home / "findings")
    progress = Progress()
    started = time.monotonic()
    workers: list[SupervisedWorker] = []
    try:
        for number in range(settings.jobs):
            worker_home = home / f"worker-{number}"
            (worker_home / "corpus").mkdir(parents=True, exist_ok=True)
            for seed_input in seeds:
                (worker_home / "corpus" / seed_input.name).write_bytes(seed_input.pack())
            workers.append(SupervisedWorker(worker_home, settings.seed + 1000 * number, settings.hang_s, findings))
        counted_s = started
        while progress.elapsed_s < settings.time_s:
            time.sleep(_POLL_S)
            for worker in workers:
                worker.check_process()
            progress.elapsed_s = time.monotonic() - started
            if time.monotonic() - counted_s < _COUNT_S and progress.elapsed_s < settings.time_s:
                continue
            counted_s = time.monotonic()
            counts = [worker.counts() for worker in workers]
            progress = Progress(
                time.monotonic() - started,
                sum(input_count for input_count, _ in counts),
                sum(valid_count for _, valid_count in counts),
                max(progress.coverage, *(worker.coverage for worker in workers)),
                max((worker.corpus for worker in workers), default=0),
                len(findings.all()),
                sum(worker.deaths for worker in workers),
            )
            advance(progress)
            if settings.max_findings is not None and progress.findings >= settings.max_findings:
                break
    except KeyboardInterrupt:
        pass
    finally:
        for worker in workers:
            worker.stop()
    return progress
