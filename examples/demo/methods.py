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
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import bowstring.spark
from examples.demo.summary import TableSummary, private_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Several, as a job has; each reads `READS` times.
READERS = 4
READS = 3
"""How often each of the readers reads the rows."""
_ROOT = Path(__file__).parents[2]
"""The folder in which `examples.demo` can be imported."""
# How often the server looks whether it is to end.
_POLL_S = 0.02
_NUMERIC_TYPES = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """Where readers find the rows, by one method of `reader.Reader`."""

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
    times. `summaries` describe the rows that the readers have read.
    """

    size_bytes: int
    write_s: float
    one_read_s: float
    all_reads_s: float
    summaries: tuple[TableSummary, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The memory that one run of a method takes: what each reader copies, and by how much the private memory of the
    driver grows.
    """

    copied_bytes: int
    driver_bytes: int


class Readers:
    """Reader processes, which are starting. A context manager, which ends them."""

    def __init__(self, count: int = READERS) -> None:
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-m", "examples.demo.reader"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=_ROOT,
                process_group=0,  # only the demo receives interrupts; it ends its readers
            )
            for _ in range(count)
        ]

    def wait_until_ready(self) -> None:
        """Wait until all have started. To be called once, before the first request."""
        for index in range(len(self.processes)):
            self._receive(index)

    def read(self, rows: WrittenRows, count: int, reads: int) -> list[dict[str, Any]]:
        """Let the first readers read the rows at once, and return their last replies."""
        for index in range(count):
            self._send(index, rows.read_method, rows.location, reads)
        return [self._receive(index) for index in range(count)]

    def request(self, method: str, argument: Any, index: int = 0) -> dict[str, Any]:
        """Return the reply of one reader."""
        self._send(index, method, argument)
        reply: dict[str, Any] = self._receive(index)
        return reply

    def _send(self, index: int, method: str, argument: Any, reads: int = 1) -> None:
        stdin = self.processes[index].stdin
        assert stdin is not None
        stdin.write(json.dumps({"method": method, "argument": argument, "reads": reads}) + "\n")
        stdin.flush()

    def _receive(self, index: int) -> Any:
        process = self.processes[index]
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"a reader ended with status {process.wait()}; see above")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with ExitStack() as stack:
            for process in self.processes:
                if kind is not None:
                    process.kill()
                stack.enter_context(process)  # at the end it closes the pipes, and waits


@contextmanager
def _publish(frame: DataFrame) -> Iterator[WrittenRows]:
    """The executors write the rows to shared memory, and readers attach to it."""
    with bowstring.spark.publish(frame, progress=False) as published:
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
    summaries = tuple(TableSummary(**reply["summary"]) for reply in replies + first)
    times = (written - start, first_end - written, end - first_end)
    return Measurement(rows.size_bytes, *times, summaries)


def measure_memory(method: TransferMethod, frame: DataFrame, readers: Readers, index: int) -> MemoryUse:
    """Let a reader that has not read before read the rows once: later it would reuse its memory."""
    pids = find_driver_pids(frame.sparkSession)
    before = sum(map(private_bytes, pids))
    with method.write(frame) as rows:
        growth = sum(map(private_bytes, pids)) - before
        return MemoryUse(readers.request(rows.read_method, rows.location, index)["copied_bytes"], growth)


def find_driver_pids(spark: SparkSession) -> list[int]:
    """Return the processes of the driver: Python, and its JVM unless that is also the executor."""
    if str(spark.sparkContext.master).partition("[")[0] == "local":
        return [os.getpid()]
    return [os.getpid(), int(spark._jvm.java.lang.ProcessHandle.current().pid())]  # type: ignore[union-attr]


def summarize_frame(frame: DataFrame) -> TableSummary:
    """Summarize a data frame in one Spark job."""
    types = [type_.partition("(")[0] for _, type_ in frame.dtypes]
    expressions = ["count(*)"]
    for index, type_ in enumerate(types):
        number = f"cast({f'c{index}' if type_ in _NUMERIC_TYPES else 'null'} as double)"
        expressions += [f"count(*) - count(c{index})", f"sum({number})", f"sum(abs({number}))"]
    plain = frame.toDF(*(f"c{index}" for index in range(len(types))))
    rows, *cells = plain.selectExpr(*expressions).collect()[0]
    return TableSummary(rows, frame.columns, cells[::3], cells[1::3], cells[2::3])
