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

from bowstring.cli.demo.summary import TableSummary
from bowstring.errors import ConnectionLostError
from bowstring.spark.publication import publish

if TYPE_CHECKING:
    from types import TracebackType

    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Measurement:
    """The times of one method in seconds; those of the consumer start when it receives the location of the data."""

    rows: int
    size_bytes: int
    write_s: float
    first_batch_s: float
    all_batches_s: float
    read_and_sum_s: float
    copied_bytes: int
    summary: TableSummary | None = None
    sample: dict[str, Any] | None = None

    @classmethod
    def from_reply(cls, size_bytes: int, write_s: float, reply: dict[str, Any]) -> Measurement:
        """Create a measurement from the size and time of writing, and the reply of the consumer."""
        summary = TableSummary.from_json(reply["summary"]) if "summary" in reply else None
        rows = reply["rows"] if summary is None else summary.rows
        times = (reply["first_batch_s"], reply["all_batches_s"], reply["read_and_sum_s"])
        return cls(rows, size_bytes, write_s, *times, reply["copied_bytes"], summary, reply.get("sample"))

    @property
    def total_s(self) -> float:
        """The time to write, to read, and to sum the numeric columns."""
        return self.write_s + self.read_and_sum_s


class ConsumerProcess:
    """A consumer process, started before the measurement."""

    def __init__(self, *arguments: str, descriptor: int | None = None) -> None:
        command = [sys.executable, "-m", "bowstring.cli.demo.consumer", *arguments]
        descriptors = () if descriptor is None else (descriptor,)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=descriptors,
            process_group=0,  # only the demo receives interrupts; it ends its consumers
        )
        self.receive()

    def receive(self) -> Any:
        """Return the next reply."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ConnectionLostError(f"the consumer process ended with status {self._process.wait()}; see above")
        return json.loads(line)

    def send(self, method: str, location: Any) -> None:
        """Send the method and the location of the data."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"method": method, "location": location}) + "\n")
        self._process.stdin.flush()

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


def _measure_time(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    returned = work()
    return returned, time.perf_counter() - start


def measure_publish(frame: DataFrame) -> Measurement:
    """Publish: the executors write shared memory, and the consumer attaches to it."""
    with ConsumerProcess() as consumer:
        published, write_s = _measure_time(lambda: publish(frame))
        with published:
            consumer.send("shared", list(published.uris))
            return Measurement.from_reply(published.nbytes, write_s, consumer.receive())


def measure_collect_to_driver(frame: DataFrame) -> Measurement:
    """Through the driver: `toArrow()` collects the rows, and pyarrow sends an IPC stream to the consumer."""
    import pyarrow as pa

    local, remote = socket.socketpair()
    with local, remote, ConsumerProcess("peer", descriptor=remote.fileno()) as consumer:
        table, write_s = _measure_time(frame.toArrow)
        consumer.send("driver", remote.fileno())
        with local.makefile("wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
        local.shutdown(socket.SHUT_WR)
        return Measurement.from_reply(table.nbytes, write_s, consumer.receive())


def measure_parquet(frame: DataFrame) -> Measurement:
    """Parquet: Spark writes files, and the consumer reads them with pyarrow."""
    folder = tempfile.mkdtemp(prefix="bowstring-demo-")
    try:
        path = os.path.join(folder, "result.parquet")
        with ConsumerProcess("peer") as consumer:
            _, write_s = _measure_time(lambda: frame.write.parquet(path))
            size_bytes = sum(entry.stat().st_size for entry in os.scandir(path))
            consumer.send("parquet", path)
            return Measurement.from_reply(size_bytes, write_s, consumer.receive())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


TRANSFER_METHODS: dict[str, Callable[[DataFrame], Measurement]] = {
    "Publish": measure_publish,
    "Through the driver": measure_collect_to_driver,
    "Parquet": measure_parquet,
}
