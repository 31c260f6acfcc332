"""Three methods to hand a data frame over to another process: publish, through the driver, and Parquet."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from bowstring.cli.demo.summary import Facts
from bowstring.errors import ConnectionLostError
from bowstring.spark.publish import publish

if TYPE_CHECKING:
    from types import TracebackType

    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a result came over one road: times in seconds, the consumer's from the moment it was told where to look."""

    rows: int
    size_bytes: int
    produced_s: float
    first_s: float
    usable_s: float
    summed_s: float
    copied_bytes: int
    facts: Facts | None = None
    sample: dict[str, Any] | None = None

    @property
    def total_s(self) -> float:
        """From asking Spark for the result until another process has summed its numeric columns."""
        return self.produced_s + self.summed_s


class Consumer:
    """A Python process of its own, ready before the clock starts."""

    def __init__(self, *arguments: str, descriptor: int | None = None) -> None:
        command = [sys.executable, "-m", "bowstring.cli.demo.consumer", *arguments]
        passed = () if descriptor is None else (descriptor,)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=passed,
            process_group=0,  # an interrupt is for the demo, which ends its consumers
        )
        self._line()

    def _line(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ConnectionLostError(f"the consumer process ended with status {self._process.wait()}; see above")
        return json.loads(line)

    def send(self, road: str, at: Any) -> None:
        """Tell it where to look."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"road": road, "at": at}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """What it found."""
        found: dict[str, Any] = self._line()
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    made = work()
    return made, time.perf_counter() - start


def _arrival(size_bytes: int, produced_s: float, found: dict[str, Any]) -> Arrival:
    facts = Facts.from_json(found["facts"]) if "facts" in found else None
    rows = found["rows"] if facts is None else facts.rows
    times = (found["first_s"], found["usable_s"], found["summed_s"])
    return Arrival(rows, size_bytes, produced_s, *times, found["copied_bytes"], facts, found.get("sample"))


def by_publishing(frame: DataFrame) -> Arrival:
    """The executors write shared memory; the consumer attaches to it."""
    with Consumer() as consumer:
        published, produced_s = _timed(lambda: publish(frame))
        with published:
            consumer.send("shared", list(published.uris))
            return _arrival(published.nbytes, produced_s, consumer.answer())


def by_driver(frame: DataFrame) -> Arrival:
    """`toArrow()` collects everything in the driver, which writes an IPC stream to the consumer with pyarrow."""
    import pyarrow as pa

    mine, theirs = socket.socketpair()
    with mine, theirs, Consumer("peer", descriptor=theirs.fileno()) as consumer:
        table, produced_s = _timed(frame.toArrow)
        consumer.send("driver", theirs.fileno())
        with mine.makefile("wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
        mine.shutdown(socket.SHUT_WR)
        return _arrival(table.nbytes, produced_s, consumer.answer())


def by_parquet(frame: DataFrame) -> Arrival:
    """Spark writes Parquet files, the consumer reads them with pyarrow."""
    folder = tempfile.mkdtemp(prefix="bowstring-demo-")
    try:
        path = os.path.join(folder, "result.parquet")
        with Consumer("peer") as consumer:
            _, produced_s = _timed(lambda: frame.write.parquet(path))
            size_bytes = sum(entry.stat().st_size for entry in os.scandir(path))
            consumer.send("parquet", path)
            return _arrival(size_bytes, produced_s, consumer.answer())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


METHODS: dict[str, Callable[[DataFrame], Arrival]] = {
    "Publish": by_publishing,
    "Through the driver": by_driver,
    "Parquet": by_parquet,
}
