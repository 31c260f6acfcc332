"""Micro-batches of a streaming query, from files of the source to the commit of the sink, in Arrow and in Parquet.

Each round starts a query anew, which processes one file in each batch. The first batches are not counted: Spark
compiles their plans, and the Python workers start. The time of a batch is the one that Spark reports.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import bowstring.spark
from benchmarks.measure import Candidate, Measurement, Settings, compare_timings, measure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_ROWS, _NUM_BATCHES, _UNCOUNTED_BATCHES = 10_000, 12, 4
_BOUND = 1.0
_SCHEMA = "id long, name string, amount double"


def run(folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure both formats in one Spark session."""
    rows = settings.rows(_BATCH_ROWS)
    write_sources(folder, rows)
    spark = bowstring.spark.session("local[2]", {"spark.sql.shuffle.partitions": 2})
    try:
        queries = [StreamingCopy(spark, folder, name) for name in ("arrow", "parquet")]
        candidates = [Candidate(query.format, query.run) for query in queries]
        arrow, parquet = measure(candidates, settings.for_long_calls())
    finally:
        spark.stop()
    yield compare_timings(f"a micro-batch of {rows:,} rows, source to sink, Parquet's", _BOUND, arrow, [parquet])


def write_sources(folder: Path, rows: int) -> None:
    """Write the files of both sources, with the same rows."""
    ids = range(rows)
    table = pa.table({"id": ids, "name": [f"customer-{i}" for i in ids], "amount": [i * 0.25 for i in ids]})
    for name in ("arrow", "parquet"):
        (folder / f"source-{name}").mkdir()
    for index in range(_NUM_BATCHES):
        pq.write_table(table, folder / "source-parquet" / f"{index:03d}.parquet")
        with pa.ipc.new_file(folder / "source-arrow" / f"{index:03d}.arrow", table.schema) as writer:
            writer.write_table(table)


@dataclass
class StreamingCopy:
    """A query that copies a folder of files."""

    spark: SparkSession
    folder: Path
    format: str

    def run(self) -> float:
        """Run the query from the first file to the last; return the median time of a batch."""
        sink, checkpoint = (self.folder / f"{name}-{self.format}" for name in ("sink", "checkpoint"))
        reader = self.spark.readStream.format(self.format).schema(_SCHEMA).option("maxFilesPerTrigger", 1)
        writer = reader.load(str(self.folder / f"source-{self.format}")).writeStream.format(self.format)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(str(sink))
        query.awaitTermination()
        batches: list[dict[str, Any]] = [batch for batch in query.recentProgress if batch["numInputRows"]]
        for path in (sink, checkpoint, self.folder / "source-arrow" / "_streams"):
            shutil.rmtree(path, ignore_errors=True)
        times_ms = [float(batch["durationMs"]["triggerExecution"]) for batch in batches[_UNCOUNTED_BATCHES:]]
        return statistics.median(times_ms) / 1e3
