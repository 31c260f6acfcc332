"""Publish a Spark DataFrame, and compare that with what Spark needs for the same rows as Arrow batches: in the JVM, and
until Python has counted them without Spark's size check of each row. That is the least that any method can take for
rows. Another line publishes the same rows from Spark's Arrow cache. `publish_sizes` has the methods to pass the rows to
another process, until it has summed a column.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import bowstring
from benchmarks.measure import Candidate, Measurement, Settings, compare_timings, measure
from benchmarks.spark_dataframe import SUM_COLUMN, create_dataframe, expected_sum
from benchmarks.worker import WorkerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS, _QUICK_ROWS = 5_000_000, 200_000
_MEMORY_BOUND_MB = 50.0
_JVM_BOUND, _COUNT_BOUND = 1.3, 1.1
_CACHED_BOUND = 0.45
_MAX_BYTES_SETTING, _UNCHECKED = "spark.sql.execution.arrow.maxBytesPerBatch", 2**31 - 1
_CLUSTER = "local-cluster[1,2,1536]"
_BUFFER_BYTES = 1 << 20
_REPOSITORY = Path(__file__).resolve().parent.parent


def run(folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure all methods in one Spark session, then the memory of the driver in another one."""
    rows = _QUICK_ROWS if settings.is_quick else _ROWS
    with open_publish_methods(folder) as create_methods:
        methods = create_methods(rows)
        long_calls = settings.for_long_calls(1 if settings.is_quick else 2)
        alone, jvm, count = measure(methods.candidates_without_consumer(), long_calls)
        methods.df.cache().count()
        cached, *cached_peers = measure(methods.cached_candidates(), long_calls)
        methods.df.unpersist()
    yield compare_timings(f"{rows:,} rows published, the JVM's rows to Arrow", _JVM_BOUND, alone, [jvm])
    yield compare_timings(f"{rows:,} rows published, counted in mapInArrow", _COUNT_BOUND, alone, [count])
    yield compare_timings(f"{rows:,} cached rows published, toArrow()", _CACHED_BOUND, cached, cached_peers)
    yield from _measure_driver_memory(rows)


@contextmanager
def open_publish_methods(folder: Path) -> Iterator[Callable[[int], PublishMethods]]:
    """Start a Spark session and a consumer, and yield a function that creates the methods for a number of rows."""
    local, remote = socket.socketpair()
    with (
        local,
        remote,
        WorkerProcess("publish_consumer", str(remote.fileno()), descriptors=(remote.fileno(),)) as consumer,
    ):
        spark = bowstring.spark.session("local[*]", arrow_cache=True)
        try:
            yield lambda rows: PublishMethods(
                create_dataframe(spark, rows), rows, consumer, local, folder, expected_sum(rows)
            )
        finally:
            spark.stop()


@dataclass(slots=True)
class PublishMethods:
    """The methods to pass a DataFrame to the consumer, each until it has replied with the right sum."""

    df: DataFrame
    rows: int
    consumer: WorkerProcess
    connection: socket.socket
    folder: Path
    sum: int

    def candidates(self) -> list[Candidate]:
        """`publish`, then two methods with `toArrow()` and Arrow IPC, as a stream through a socket or as a mapped file,
        then two with Parquet (snappy, uncompressed), of which pyarrow reads the one column.
        """
        handles: list[bowstring.spark.PublishedFrame] = []
        parquet, arrow = self.folder / "parquet", self.folder / "table.arrow"
        new_frame = self._create_frame
        return [
            Candidate.of_call("bowstring", lambda: self._publish(handles), new_frame, lambda: handles.pop().close()),
            Candidate.of_call("toArrow, stream through a socket", self._send_stream, new_frame),
            Candidate.of_call("toArrow, mapped file", lambda: self._write_file(arrow), new_frame, arrow.unlink),
            *(
                Candidate.of_call(
                    f"Parquet, {codec}", self._parquet_writer(parquet, codec), new_frame, lambda: shutil.rmtree(parquet)
                )
                for codec in ("snappy", "uncompressed")
            ),
        ]

    def _create_frame(self) -> None:
        """Create the frame again, since users transfer a new query: Spark keeps the plan of an earlier one."""
        self.df = create_dataframe(self.df.sparkSession, self.rows)

    def candidates_without_consumer(self) -> list[Candidate]:
        """`publish` alone, then the JVM's step, then ``mapInArrow`` that counts."""
        frame: Any = self.df
        return [
            self._publish_alone(),
            Candidate.of_call("toArrowBatchRdd().count()", lambda: frame._jdf.toArrowBatchRdd().count()),
            Candidate.of_call("mapInArrow", self._count_in_python),
        ]

    def cached_candidates(self) -> list[Candidate]:
        """`publish` alone, then `toArrow`."""
        return [self._publish_alone(), Candidate.of_call("toArrow", self.df.toArrow)]

    def _publish_alone(self) -> Candidate:
        handles: list[bowstring.spark.PublishedFrame] = []
        return Candidate.of_call(
            "bowstring",
            lambda: handles.append(bowstring.spark.publish(self.df)),
            teardown=lambda: handles.pop().close(),
        )

    def _count_in_python(self) -> None:
        settings = self.df.sparkSession.conf
        settings.set(_MAX_BYTES_SETTING, _UNCHECKED)
        try:
            self.df.mapInArrow(_count_rows, "rows long").collect()
        finally:
            settings.unset(_MAX_BYTES_SETTING)

    def _publish(self, handles: list[Any]) -> None:
        handles.append(bowstring.spark.publish(self.df))
        self._request("sum_published", uris=list(handles[0].uris))

    def _send_stream(self) -> None:
        table = self.df.toArrow()
        self.consumer.send("sum_stream", column=SUM_COLUMN)
        with self.connection.makefile("wb", _BUFFER_BYTES) as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        self._check_sum(self.consumer.receive())

    def _write_file(self, path: Path) -> None:
        table = self.df.toArrow()
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        self._request("sum_file", path=str(path))

    def _parquet_writer(self, path: Path, codec: str) -> Callable[[], None]:
        def write() -> None:
            self.df.write.option("compression", codec).parquet(str(path))
            self._request("sum_parquet", path=str(path))

        return write

    def _request(self, method: str, **parameters: Any) -> None:
        self._check_sum(self.consumer.request(method, column=SUM_COLUMN, **parameters))

    def _check_sum(self, reply: dict[str, Any]) -> None:
        assert reply == {"sum": self.sum}, f"expected the sum {self.sum}, found {reply}"


def _count_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"rows": [sum(batch.num_rows for batch in batches)]})


def _measure_driver_memory(rows: int) -> Iterator[Measurement]:
    """The growth of the driver on a cluster; in local mode its JVM is also the executor."""
    command = [sys.executable, "-m", "benchmarks.driver_memory", _CLUSTER, str(rows)]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=_REPOSITORY)
    growth = json.loads(process.stdout.splitlines()[-1])
    line = f"while it publishes {growth['published'] / 1e6:,.0f} MB, {_CLUSTER}"
    yield Measurement(f"growth of the driver's Python {line}", growth["python"] / 1e6, _MEMORY_BOUND_MB, "MB")
    yield Measurement(f"growth of the driver's JVM {line}", growth["jvm"] / 1e6, _MEMORY_BOUND_MB, "MB")
