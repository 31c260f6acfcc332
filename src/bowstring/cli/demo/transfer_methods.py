"""Three methods to hand a data frame over to other processes: publish, through the driver, and Parquet."""

from __future__ import annotations

import json
import os
import shutil
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from bowstring.cli.demo.process_memory import find_driver_pids, measure_peak_growth
from bowstring.cli.demo.summary import TableSummary
from bowstring.errors import ConnectionLostError
from bowstring.spark.publication.frame import publish

if TYPE_CHECKING:
    from types import TracebackType

    from pyspark.sql import DataFrame

READERS = 4
READS = 3
"""How often each of the readers reads the rows."""
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """Where readers find the rows, by one method of `consumer.Reader`."""

    read_method: str
    location: Any
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TransferMethod:
    """How the rows are written: a context manager, which removes them at the end."""

    name: str
    medium: str
    write: Callable[[DataFrame], AbstractContextManager[WrittenRows]]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One round of one method, in seconds: the write, one reader that reads once, then all readers that read `READS`
    times. `summaries` are those of published rows.
    """

    rows: int
    size_bytes: int
    write_s: float
    one_read_s: float
    all_reads_s: float
    summaries: tuple[TableSummary, ...] = ()

    @property
    def one_total_s(self) -> float:
        """The time until one reader has read once."""
        return self.write_s + self.one_read_s

    @property
    def all_total_s(self) -> float:
        """The time until all readers have read `READS` times."""
        return self.write_s + self.all_reads_s


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The memory that one run of a method takes: what each reader copies, and by how much the private memory of the
    driver grows.
    """

    copied_bytes: int
    driver_bytes: int


class ReaderProcess:
    """A process that runs `consumer`, started before the measurement."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bowstring.cli.demo.consumer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,  # only the demo receives interrupts; it ends its readers
        )

    def receive(self) -> Any:
        """Return the next reply."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ConnectionLostError(f"a reader ended with status {self._process.wait()}; see above")
        return json.loads(line)

    def send(self, method: str, location: Any, reads: int = 1) -> None:
        """Send a request."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"method": method, "location": location, "reads": reads}) + "\n")
        self._process.stdin.flush()

    def end(self, is_killed: bool) -> None:
        """End the process, and wait for its end."""
        if is_killed:
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()


class Readers:
    """Reader processes, which are starting. A context manager, which ends them."""

    def __init__(self, count: int = READERS) -> None:
        self._processes = [ReaderProcess() for _ in range(count)]

    def wait_until_ready(self) -> None:
        """Wait until all have started. To be called once, before the first request."""
        for process in self._processes:
            process.receive()

    def __iter__(self) -> Iterator[ReaderProcess]:
        return iter(self._processes)

    def read(self, rows: WrittenRows, count: int, reads: int) -> list[dict[str, Any]]:
        """Let the first readers read the rows at once, and return their last replies."""
        for process in self._processes[:count]:
            process.send(rows.read_method, rows.location, reads)
        return [process.receive() for process in self._processes[:count]]

    def request(self, method: str, location: Any, index: int = 0) -> dict[str, Any]:
        """Return the reply of one reader."""
        self._processes[index].send(method, location)
        reply: dict[str, Any] = self._processes[index].receive()
        return reply

    def _end(self, is_killed: bool) -> None:
        for process in self._processes:
            process.end(is_killed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(is_killed=kind is not None)


@contextmanager
def _publish(frame: DataFrame) -> Iterator[WrittenRows]:
    """The executors write the rows to shared memory, and readers attach to it."""
    with publish(frame, progress=False) as published:
        yield WrittenRows("read_published", list(published.uris), published.nbytes)


@contextmanager
def _collect_to_driver(frame: DataFrame) -> Iterator[WrittenRows]:
    """`toArrow()` collects the rows, and pyarrow sends an IPC stream to each reader that connects."""
    table = frame.toArrow()
    with _serve_stream(table) as path:
        yield WrittenRows("read_stream", path, table.nbytes)


@contextmanager
def _write_parquet(frame: DataFrame) -> Iterator[WrittenRows]:
    """Spark writes files, and readers read them with pyarrow."""
    folder = tempfile.mkdtemp(prefix="bowstring-demo-")
    try:
        path = os.path.join(folder, "rows.parquet")
        frame.write.parquet(path)
        yield WrittenRows("read_parquet", path, sum(entry.stat().st_size for entry in os.scandir(path)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


PUBLISH = TransferMethod("publishing", "shared memory", _publish)
TRANSFER_METHODS = (
    PUBLISH,
    TransferMethod("toArrow()", "driver, sockets", _collect_to_driver),
    TransferMethod("Parquet", "files", _write_parquet),
)


@contextmanager
def _serve_stream(table: Any) -> Iterator[str]:
    """Send a table of pyarrow as an IPC stream to each client of the unix socket at this path."""
    import pyarrow as pa

    class Handler(socketserver.StreamRequestHandler):
        wbufsize = -1

        def handle(self) -> None:
            with pa.ipc.new_stream(self.wfile, table.schema) as writer:
                writer.write_table(table)

    with tempfile.TemporaryDirectory(prefix="bowstring-demo-") as folder:
        path = os.path.join(folder, "socket")
        with _QuietServer(path, Handler) as server:
            threading.Thread(target=server.serve_forever, args=(_POLL_S,), daemon=True).start()
            try:
                yield path
            finally:
                server.shutdown()


class _QuietServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = READERS

    def handle_error(self, *_: object) -> None:
        """Print nothing if a reader is killed, because the demo is being interrupted."""


def measure(method: TransferMethod, frame: DataFrame, readers: Readers) -> Measurement:
    """Write the rows, let one reader read them once, and then all readers `READS` times."""
    start = time.perf_counter()
    with method.write(frame) as rows:
        written = time.perf_counter()
        first = readers.read(rows, 1, 1)
        first_end = time.perf_counter()
        replies = readers.read(rows, READERS, READS)
        end = time.perf_counter()
    summaries = tuple(TableSummary.from_json(reply["summary"]) for reply in replies + first if "summary" in reply)
    times = (written - start, first_end - written, end - first_end)
    return Measurement(replies[0]["rows"], rows.size_bytes, *times, summaries)


def measure_memory(method: TransferMethod, frame: DataFrame, reader: ReaderProcess) -> MemoryUse:
    """Let a reader that has not read before read the rows once: later it would reuse its memory."""

    def read_once() -> int:
        with method.write(frame) as rows:
            reader.send(rows.read_method, rows.location)
            return int(reader.receive()["copied_bytes"])

    return MemoryUse(*measure_peak_growth(find_driver_pids(frame.sparkSession), read_once))
