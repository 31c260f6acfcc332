"""From asking Spark for a data frame until another process has summed a column of it.

The peers are toArrow() with Arrow IPC to that process (as a stream through a socket, as a mapped file), and Parquet
(snappy, uncompressed) of which pyarrow reads the one column. The process runs, and has imported everything, before.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import bowstring
from benchmarks.child import Child
from benchmarks.frame import SUMMED, expected_sum, frame
from benchmarks.timing import Contender, Effort, Outcome, Times, race, timed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUP = "publish"
_ROWS, _QUICK_ROWS = 5_000_000, 200_000
_DRIVER_BOUND, _PARQUET_BOUND, _MEMORY_BOUND_MB = 0.8, 0.6, 50.0
_CLUSTER = "local-cluster[1,2,1536]"
_BUFFER_BYTES = 1 << 20


def run(folder: Path, effort: Effort) -> Iterator[Outcome]:
    """Race all of them in one session, then watch the driver of another one."""
    rows = _QUICK_ROWS if effort.quick else _ROWS
    mine, theirs = socket.socketpair()
    with mine, theirs, Child("consumer", str(theirs.fileno()), descriptors=(theirs.fileno(),)) as consumer:
        spark = bowstring.spark.session("local[*]")
        try:
            roads = _Roads(frame(spark, rows), consumer, mine, folder, expected_sum(rows))
            found = {times.name: times for times in race(roads.contenders(), effort.few(1 if effort.quick else 2))}
        finally:
            spark.stop()
    yield _outcome(rows, "toArrow() and IPC", found, _DRIVERS, _DRIVER_BOUND)
    yield _outcome(rows, "Parquet and pyarrow", found, _PARQUETS, _PARQUET_BOUND)
    yield from _memory(rows)


_OURS = "bowstring"
_DRIVERS = ("toArrow, stream through a socket", "toArrow, mapped file")
_PARQUETS = ("Parquet, snappy", "Parquet, uncompressed")


@dataclass(frozen=True, slots=True)
class _Roads:
    """The ways from Spark to the process, each until that has answered with the right sum."""

    df: DataFrame
    consumer: Child
    outgoing: socket.socket
    folder: Path
    sum: int

    def contenders(self) -> list[Contender]:
        held: list[bowstring.spark.Published] = []
        parquet, arrow = self.folder / "parquet", self.folder / "result.arrow"
        return [
            Contender(_OURS, timed(lambda: self._published(held), after=lambda: held.pop().close())),
            Contender(_DRIVERS[0], timed(self._stream)),
            Contender(_DRIVERS[1], timed(lambda: self._file(arrow), after=arrow.unlink)),
            *(
                Contender(name, timed(self._parquet(parquet, codec), after=lambda: shutil.rmtree(parquet)))
                for name, codec in zip(_PARQUETS, ("snappy", "uncompressed"), strict=True)
            ),
        ]

    def _published(self, held: list[Any]) -> None:
        held.append(bowstring.spark.publish(self.df))
        self._ask("published", uris=list(held[0].uris))

    def _stream(self) -> None:
        table = self.df.toArrow()
        self.consumer.tell("stream", column=SUMMED)
        with self.outgoing.makefile("wb", _BUFFER_BYTES) as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        self._verify(self.consumer.answer())

    def _file(self, path: Path) -> None:
        table = self.df.toArrow()
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        self._ask("file", path=str(path))

    def _parquet(self, path: Path, codec: str) -> Callable[[], None]:
        def work() -> None:
            self.df.write.option("compression", codec).parquet(str(path))
            self._ask("parquet", path=str(path))

        return work

    def _ask(self, order: str, **details: Any) -> None:
        self._verify(self.consumer.ask(order, column=SUMMED, **details))

    def _verify(self, answer: dict[str, Any]) -> None:
        assert answer == {"sum": self.sum}, f"expected a sum of {self.sum}, the consumer found {answer}"


def _outcome(rows: int, against: str, found: dict[str, Times], names: tuple[str, ...], bound: float) -> Outcome:
    peers = tuple(found[name] for name in names)
    ratio = found[_OURS].median_s / min(times.median_s for times in peers)
    line = f"{rows:,} rows until another process has summed a column, against {against}"
    return Outcome(GROUP, line, ratio, bound, "ratio", found[_OURS], peers)


def _memory(rows: int) -> Iterator[Outcome]:
    for master, bound in ((_CLUSTER, _MEMORY_BOUND_MB), ("local[*]", None)):
        command = [sys.executable, "-m", "benchmarks.driver_memory", master, str(rows)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=_REPOSITORY)
        grown = json.loads(done.stdout.splitlines()[-1])
        size = f"publishing {grown['published'] / 1e6:,.0f} MB, {master}"
        note = "" if bound else ", where it is the executor, too"
        yield Outcome(GROUP, f"driver's Python grows, {size}", grown["python"] / 1e6, bound, "MB")
        yield Outcome(GROUP, f"driver's JVM grows, {size}{note}", grown["jvm"] / 1e6, bound, "MB")


_REPOSITORY = Path(__file__).resolve().parent.parent
