"""The first write, read and batch of a stream in a new Spark session, as in each submitted job. The peer is Parquet.

A session is started for each sample, but its start is not timed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.measure import Candidate, Measurement, Settings, compare_timings, measure

_BOUND = 1.5
_PROGRAM = """
import sys, time
import bowstring.spark
spark = bowstring.spark.session("local[2]")
path, folder = sys.argv[1:]
frame = spark.range(1000).selectExpr("id", "id * 2 AS double", "string(id) AS text")
stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).load()
def start(format):
    query = stream.writeStream.format(format).option("checkpointLocation", path + "-checkpoint").trigger(once=True)
    query.start(path).awaitTermination()
start_s = time.perf_counter()
{statement}
print(time.perf_counter() - start_s)
"""
_WRITES = {
    "write": "bowstring.spark.write(frame, path)",
    "the sink": "frame.write.format('arrow').mode('append').save(path)",
    "Parquet": "frame.write.parquet(path)",
}
_READS = {
    "read": "assert bowstring.spark.read(spark, f'{folder}/write').count() == 1000",
    "the source": "assert spark.read.format('arrow').load(f'{folder}/write').count() == 1000",
    "Parquet": "assert spark.read.parquet(f'{folder}/Parquet').count() == 1000",
}
_STREAMS = {"the sink": "start('arrow')", "Parquet": "start('parquet')"}


def run(folder: Path, settings: Settings) -> Iterator[Measurement]:
    """Measure Bowstring's functions, and its data source."""
    for name in ("write", "Parquet"):  # for the reads
        _run(_WRITES[name], folder / name, folder)
    rounds = replace(settings.for_long_calls(0), rounds=1 if settings.is_quick else 2)
    for line, statements in (("write", _WRITES), ("read", _READS), ("micro-batch", _STREAMS)):
        candidates = [Candidate(name, partial(_sample, each, folder)) for name, each in statements.items()]
        *timings, parquet = measure(candidates, rounds)
        for each in timings:
            yield compare_timings(f"the first {line} of 1,000 rows by {each.name}", _BOUND, each, [parquet])


def _sample(statement: str, folder: Path) -> float:
    path = folder / "sample"
    try:
        return _run(statement, path, folder)
    finally:
        for each in (path, folder / "sample-checkpoint"):
            shutil.rmtree(each, ignore_errors=True)


def _run(statement: str, path: Path, folder: Path) -> float:
    command = [sys.executable, "-c", _PROGRAM.format(statement=statement), str(path), str(folder)]
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return float(process.stdout)
