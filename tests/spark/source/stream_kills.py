"""Kill the processes of streaming queries in all phases of their batches; each row arrives once.

``python -m tests.spark.source.stream_kills --kills 100`` prints the number of kills in each phase. The queries
aggregate a growing folder, and start again from their checkpoints. What to kill, and when, is chosen in turn; a kill
counts for the phase that the folders show afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bowstring as bs
from bowstring.datasets.manifest import Manifest, ManifestEntry, read_manifest, try_create_manifest
from bowstring.sharing.processes import parent_pid
from bowstring.spark.versions import READ_LIMITS
from tests.polling import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PHASES = ("planned", "writing", "written", "in our manifest", "in Spark's log")
WINDOW_S, NUM_KEYS = 10, 3
_FILE_ROWS, _ROW_US = 24, 200_000
_TIMEOUT_S = 240.0
_COLUMNS = {"id": "long", "key": "long", "at": "timestamp"}


@dataclass(frozen=True, slots=True)
class Scenario:
    """A query, what it follows, and what is killed."""

    query: str
    """"windows" or "distinct", in append mode, or "totals", in complete mode."""
    has_manifest: bool
    """Whether the folder that it follows has a manifest."""
    master: str
    victims: tuple[str, ...]
    """"driver", "worker" (a Python process of Spark's) or "executor"."""


_LOCAL, _CLUSTER = "local[2,4]", "local-cluster[2,1,512]"
# As many victims as have no factor in common with the number of phases: so each meets each. Drivers take long to start.
_OF_DRIVER = ("worker", "worker", "driver", "worker", "worker", "worker")
SCENARIOS = (
    Scenario("windows", True, _LOCAL, _OF_DRIVER),
    Scenario("totals", False, _LOCAL, _OF_DRIVER),
    Scenario("windows", False, _CLUSTER, ("executor", "worker", "executor", "driver", "executor", "worker")),
    Scenario("distinct", True, _LOCAL, _OF_DRIVER),
)


# The driver


def run_driver(folder: str, query: str, master: str) -> None:
    """Run the query, again after each failure, until there is a file "finish"."""
    from bowstring.spark import session

    spark = session(
        master,
        {
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            # Most time passes in drivers that have just started.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.sql.codegen.wholeStage": False,
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.local.dir": f"{folder}/spark",
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.execution.arrow.maxRecordsPerBatch": 2,
            "spark.sql.session.timeZone": "UTC",
            "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        },
    )
    while not Path(folder, "finish").exists():
        try:
            running = start_query(spark, folder, query)
            while not running.awaitTermination(1) and not Path(folder, "finish").exists():
                pass
            running.stop()
        except Exception as error:  # noqa: BLE001 -- Spark reports a killed process in many ways
            print(f"{query}: {error!s:.3000}", file=sys.stderr, flush=True)  # noqa: T201
            spark.range(1).collect()  # unless the driver itself has ended
    spark.stop()


def start_query(spark: SparkSession, folder: str, query: str) -> StreamingQuery:
    from pyspark.sql import functions as f

    schema = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
    stream = spark.readStream.format("arrow").schema(schema)
    if READ_LIMITS.is_available:
        stream = stream.option("maxFilesPerTrigger", 1)
    rows = stream.load(f"{folder}/source")
    sums = (f.count("*").alias("rows"), f.sum("id").alias("sum"))
    if query == "windows":
        window = f.window("at", f"{WINDOW_S} seconds")
        windows = rows.withWatermark("at", "1 second").groupBy(window, "key").agg(*sums)
        rows = windows.select(f.unix_seconds("window.start").alias("start"), "key", "rows", "sum")
    elif query == "totals":
        rows = rows.groupBy("key").agg(*sums)
    else:
        rows = rows.withWatermark("at", "1 minute").dropDuplicates(["id", "at"]).select("id", "key")
    writer = slow_down(rows).writeStream.format("arrow").option("checkpointLocation", f"{folder}/checkpoint")
    return writer.outputMode("complete" if query == "totals" else "append").start(f"{folder}/sink")


def slow_down(rows: DataFrame) -> DataFrame:
    """The same rows, in batches some milliseconds apart: otherwise a file is hardly ever incomplete."""

    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            time.sleep(0.01)
            yield batch

    return rows.mapInArrow(wait, rows.schema)


# What the queries read and have to write


def source_rows(query: str, num_files: int) -> list[list[tuple[int, int, int]]]:
    """The rows of each file: ID, key and time in microseconds. Files of "distinct" repeat half of the file before.

    Spark drops a row of the time 0 as late.
    """
    step = _FILE_ROWS // 2 if query == "distinct" else _FILE_ROWS
    starts = range(0, num_files * step, step)
    return [
        [(row, row % NUM_KEYS, (row + 1) * _ROW_US) for row in range(start, start + _FILE_ROWS)] for start in starts
    ]


def expected_rows(query: str, num_files: int) -> list[tuple[int, ...]]:
    """What the sink has when all files are processed."""
    rows = sorted({row for file in source_rows(query, num_files) for row in file})
    if query == "distinct":
        return sorted((row, key) for row, key, _ in rows)
    groups: dict[tuple[int, ...], list[int]] = {}
    for row, key, at_us in rows:
        start = at_us // 1_000_000 // WINDOW_S * WINDOW_S
        groups.setdefault((start, key) if query == "windows" else (key,), []).append(row)
    watermark_s = (rows[-1][2] - 1_000_000) / 1e6 if query == "windows" else 0
    return sorted(
        (*group, len(ids), sum(ids))
        for group, ids in groups.items()
        if query != "windows" or group[0] + WINDOW_S <= watermark_s
    )


class Run:
    """A scenario with its folders, and its driver, which is a process of its own."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario = scenario
        self.num_files = 0
        self._folder, self._source, self._sink = folder, folder / "source", folder / "sink"
        self._source.mkdir(parents=True)
        self._driver: subprocess.Popen[bytes] | None = None
        self._last_batch = -1
        """The batch that was interrupted last."""

    def add_file(self) -> None:
        """Add a file to the folder that the query follows."""
        self.num_files += 1
        rows = source_rows(self.scenario.query, self.num_files)[-1]
        ids, keys, times = zip(*rows, strict=True)
        columns = (bs.array(ids, "int64"), bs.array(keys, "int64"), bs.array(times, bs.timestamp("us", "UTC")))
        table = bs.table(dict(zip(_COLUMNS, columns, strict=True)))
        path = self._source / f"{self.num_files:06d}.arrow"
        with bs.new_file(path.with_name(f".{path.name}"), table.schema) as writer:
            writer.write_table(table)
        path.with_name(f".{path.name}").rename(path)
        if self.scenario.has_manifest:
            fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in _COLUMNS.items()]
            entry = ManifestEntry(path.name, path.stat().st_size, len(rows), 1)
            newest = read_manifest(self._source)
            assert try_create_manifest(
                self._source,
                Manifest(0, {}, ()).replace_all({"type": "struct", "fields": fields}, [entry])
                if newest is None
                else newest.append([entry]),
            )

    def start_driver(self) -> None:
        """Start the driver, unless it runs."""
        if self._driver is None or self._driver.poll() is not None:
            arguments = ["--driver", str(self._folder), self.scenario.query, self.scenario.master]
            with (self._folder / "log").open("ab") as log:
                self._driver = subprocess.Popen(
                    [sys.executable, "-m", "tests.spark.source.stream_kills", *arguments],
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )

    def kill(self, victim: str, phase: str) -> str | None:
        """Kill a process when the query reaches a phase; return the phase in which it was, None if there was nothing
        to kill.
        """
        self.start_driver()
        assert self._driver is not None
        end = time.monotonic() + _TIMEOUT_S
        while not self._has_new_batch() or self._phase() != phase:
            assert self._driver.poll() is None, self._describe("the driver has ended")
            if time.monotonic() > end:
                return None
            if self.num_files < newest_number(self._folder / "checkpoint" / "offsets") + 3:
                self.add_file()
            time.sleep(0.001)
        self._last_batch = newest_number(self._folder / "checkpoint" / "offsets")
        pids = self._find_victims(victim)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if victim == "driver":
            assert self._driver is not None
            self._driver.wait()
            assert wait_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids))
            phase = self._phase()
        self.check()
        return phase if pids else None

    def finish(self) -> None:
        """Let the query process all files, end it, and check what it has written."""
        self.start_driver()
        self.add_file()
        expected = expected_rows(self.scenario.query, self.num_files)
        is_complete = wait_until(lambda: sorted(self.sink_rows()) == expected, _TIMEOUT_S)
        (self._folder / "finish").touch()
        assert self._driver is not None
        try:
            self._driver.wait(_TIMEOUT_S)
        finally:
            self.end()
        assert is_complete, self._describe(f"expected {len(expected)} rows")
        assert sorted(self.sink_rows()) == expected, self._describe("rows were added at the end")
        manifest = read_manifest(self._sink)
        assert manifest is not None
        names = {"_manifest", *(entry.name for entry in manifest.entries)}
        others = {path.name for path in self._sink.iterdir()} - names
        if self.scenario.query == "totals":  # a batch that was killed leaves what it has replaced to `vacuum`
            others = {name for name in others if not name.startswith("part-")}
        assert not others, self._describe(f"files remain: {sorted(others)}")

    def end(self) -> None:
        """Kill what still runs."""
        if self._driver is not None:
            for pid in (*descendants(self._driver.pid), self._driver.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._driver.wait()

    def check(self) -> None:
        """Raise `AssertionError` if a row is in the sink twice, or is not one of those that may be there."""
        rows = self.sink_rows()
        keys = [row[:1] if self.scenario.query == "totals" else row[:2] for row in rows]
        assert len(set(keys)) == len(keys), self._describe(f"rows are there twice: {sorted(rows)}")
        if self.scenario.query != "totals":
            # All windows are closed when there are many more files.
            unexpected = set(rows) - set(expected_rows(self.scenario.query, self.num_files + 20))
            assert not unexpected, self._describe(f"unexpected rows: {sorted(unexpected)}")

    def sink_rows(self) -> list[tuple[int, ...]]:
        """The rows of the files in the newest manifest."""
        for _ in range(20):
            manifest = read_manifest(self._sink) if self._sink.exists() else None
            rows: list[tuple[int, ...]] = []
            try:
                for entry in manifest.entries if manifest is not None else ():
                    table = bs.open_file(self._sink / entry.name).read_all()
                    rows += zip(*(column.to_pylist() for column in table.columns), strict=True)
            except FileNotFoundError:
                continue  # replaced meanwhile
            return rows
        raise AssertionError(self._describe("a file of the manifest is missing"))

    def _phase(self) -> str:
        """The phase of the newest batch, as the folders show it."""
        checkpoint = self._folder / "checkpoint"
        batch = newest_number(checkpoint / "offsets")
        if batch == newest_number(checkpoint / "commits"):
            return PHASES[-1]
        if newest_batch(self._sink) >= batch:
            return "in our manifest"
        staged = list(self._sink.glob("_staging/*"))
        manifest = read_manifest(self._sink) if staged else None
        listed = {entry.name for entry in manifest.entries} if manifest is not None else set()
        moved = [path for path in self._sink.glob("part-*") if path.name not in listed]
        files = [*(path for job in staged for path in job.glob("part-*")), *moved]
        if not staged:
            return "planned"
        return "written" if files and all(map(is_complete_file, files)) else "writing"

    def _has_new_batch(self) -> bool:
        return newest_number(self._folder / "checkpoint" / "offsets") > self._last_batch

    def _find_victims(self, victim: str) -> list[int]:
        assert self._driver is not None
        children = descendants(self._driver.pid)
        commands = {pid: read_command(pid) for pid in children}
        java = [pid for pid in children if b"java" in commands[pid].partition(b"\0")[0]]
        executors = [pid for pid in java if b"CoarseGrainedExecutorBackend" in commands[pid]]
        if victim == "driver":
            return [*(pid for pid in java if pid not in executors), self._driver.pid]
        workers = [pid for pid in children if b"-m\0pyspark." in commands[pid]]
        others = executors if victim == "executor" else workers
        return random.sample(others, 1) if others else []

    def _describe(self, problem: str) -> str:
        log = (self._folder / "log").read_text()[-6000:]
        return f"{self.scenario}: {problem}; {len(self.sink_rows())} rows of {self.num_files} files: {log}"


def newest_number(folder: Path) -> int:
    """The number of the newest batch in a log of Spark's; -1 without any."""
    with contextlib.suppress(FileNotFoundError):
        return max((int(name) for name in os.listdir(folder) if name.isdecimal()), default=-1)
    return -1


def newest_batch(folder: Path) -> int:
    """The number of the newest batch in the manifest; -1 without any."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        name = max(name for name in os.listdir(folder / "_manifest") if not name.startswith("."))
        batches: dict[str, int] = json.loads((folder / "_manifest" / name).read_bytes())["stream_batches"]
        return max(batches.values())
    return -1


def is_complete_file(path: Path) -> bool:
    """Whether an Arrow file is complete; True if it no longer exists."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes().endswith(b"ARROW1") and path.stat().st_size > 16
    return True


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those of these."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        children.setdefault(parent_pid(int(path.name)), []).append(int(path.name))
    pids = [pid]
    for each in pids:
        pids += children.get(each, [])
    return pids[1:]


def read_command(pid: int) -> bytes:
    """The command line of a process; empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def run_scenario(scenario: Scenario, num_kills: int, seed: int, folder: Path) -> Counter[tuple[str, str]]:
    """Kill so many processes; return the kills by victim and phase. Raises `AssertionError`."""
    kills = Counter[tuple[str, str]]()
    run = Run(scenario, folder)
    try:
        for index in range(seed, seed + 10 * num_kills):
            victim = scenario.victims[index % len(scenario.victims)]
            phase = run.kill(victim, PHASES[index % len(PHASES)])
            if phase is not None:
                kills[victim, phase] += 1
                print(f"{scenario.query}: {victim} killed, {phase}", flush=True)  # noqa: T201
            if kills.total() == num_kills:
                break
        run.finish()
    finally:
        run.end()
    return kills


def main() -> None:
    """Run scenarios in turn until there were enough kills, and print how many there were of each kind so far."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--kills-per-query", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0, help="where to begin with scenarios, victims and phases")
    parser.add_argument("--driver", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.driver:
        run_driver(*options.driver)
        return
    kills, index, started_s = Counter[tuple[str, str]](), options.seed, time.monotonic()
    while kills.total() < options.kills:
        scenario = SCENARIOS[index % len(SCENARIOS)]
        num_kills = min(options.kills_per_query, options.kills - kills.total())
        with tempfile.TemporaryDirectory(prefix="bowstring-kills-") as folder:
            kills += run_scenario(scenario, num_kills, index * num_kills, Path(folder, "run"))
        index += 1
        counts = {f"{victim}, {phase}": count for (victim, phase), count in sorted(kills.items())}
        report = {"kills": kills.total(), "seconds": round(time.monotonic() - started_s), **counts}
        print(json.dumps(report), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
