"""Compute in Spark and compare three methods to pass the rows to other processes: `python -m examples.demo --help`."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click
from rich.console import Console

import bowstring as bs
import bowstring.spark
from examples.demo.comparison import MIN_ROUNDS, Comparison, DemoReport
from examples.demo.killed_writers import kill_writers
from examples.demo.methods import TRANSFER_METHODS, Readers, measure, measure_memory, summarize_frame
from examples.demo.page import build_page
from examples.demo.report import show_report
from examples.demo.texts import format_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from examples.demo.methods import Measurement

_JAVA_NOTICE = "WARNING: Using incubator modules"
# Wider than any table of the report.
_PIPE_WIDTH = 200
_PAGE = "bowstring-demo.html"
# From here on, publishing is faster than `toArrow()` for one reader, too.
_ROWS = 1_000_000
# Odd, and more than `MIN_ROUNDS`: the median is the time of a round.
_ROUNDS = 7
# The heap of the executor: many times the default rows.
_EXECUTOR_MEBIBYTES = 2048
# As many as a page shows without scrolling.
_SAMPLE_ROWS = 8
_ORDERS_QUERY = """
SELECT id, concat('customer ', customer) AS customer, timestamp_seconds(1700000000 + id) AS time, amount,
       named_struct('orders', orders, 'total', total) AS history
FROM orders JOIN (SELECT customer, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY customer)
     USING (customer)
"""


def create_orders(spark: SparkSession, rows: int) -> DataFrame:
    """Return orders, each joined with the number and the sum of its customer's."""
    orders = spark.range(rows).selectExpr(
        "id", "id * 7919 % 10007 AS customer", "CAST(id % 9973 / 100 AS DECIMAL(9, 2)) AS amount"
    )
    orders.createOrReplaceTempView("orders")
    return spark.sql(_ORDERS_QUERY)


def compare_methods(
    console: Console, frame: DataFrame, readers: Readers, rounds: int, *, kills_writers: bool
) -> DemoReport:
    """Compare the methods, and kill writers. The readers may still be starting."""
    with console.status("Computing the rows"):
        summary = summarize_frame(frame.cache())
    with console.status("Measuring the memory of each method"):
        readers.wait_until_ready()
        memory = {
            method.name: measure_memory(method, frame, readers, index) for index, method in enumerate(TRANSFER_METHODS)
        }
    main = _run_rounds(console, frame, summary.rows, rounds, readers)
    report = DemoReport(main, memory, summary.names, sum(total is not None for total in summary.sums))
    read = [found for measurements in main.rounds.values() for run in measurements for found in run.summaries]
    report.differences = list(dict.fromkeys(text for found in read for text in found.find_differences(summary)))
    report.sample = [[str(value) for value in row] for row in frame.limit(_SAMPLE_ROWS).collect()]
    if kills_writers:
        with console.status("Killing writers"):
            report.killed_writers = kill_writers(frame, summary, readers)
    return report


def _run_rounds(console: Console, frame: DataFrame, rows: int, rounds: int, readers: Readers) -> Comparison:
    """Run each method once in each round. Another method is the first in each, because the order affects the times."""
    measurements: dict[str, list[Measurement]] = {method.name: [] for method in TRANSFER_METHODS}
    for number in range(rounds):
        first = number % len(TRANSFER_METHODS)
        with console.status(f"{format_count(rows, 'row')}: round {number + 1} of {rounds}"):
            for method in (*TRANSFER_METHODS[first:], *TRANSFER_METHODS[:first]):
                measurements[method.name].append(measure(method, frame, readers))
    return Comparison(rows, measurements)


@contextmanager
def show_log_on_failure() -> Iterator[BinaryIO]:
    """Yield a temporary file for the standard error of Spark's processes; print it if the block fails."""
    with tempfile.TemporaryFile() as log:
        try:
            yield log
        except Exception:
            log.seek(0)
            lines = log.read().decode(errors="backslashreplace").splitlines()
            sys.stderr.writelines(f"{line}\n" for line in lines if not line.startswith(_JAVA_NOTICE))
            raise


@contextmanager
def _run_spark(master: str, log: BinaryIO) -> Iterator[SparkSession]:
    """Start Spark, whose processes inherit `log` as standard error, and stop it at the end of the block.

    SIGINT raises `KeyboardInterrupt`, also during a call of py4j: PySpark's own handler would use the same connection.
    """
    sys.stderr.flush()
    standard_error = os.dup(2)
    os.dup2(log.fileno(), 2)
    try:
        spark = bowstring.spark.session(master, app_name="bowstring demo")
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        spark.conf.set("spark.sql.shuffle.partitions", 2 * spark.sparkContext.defaultParallelism)
        yield spark
    finally:
        spark.stop()


def _default_master() -> str:
    """A local cluster, whose executor is a process of its own, unless its worker can't write to Spark's folder."""
    import pyspark

    if not os.access(os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent), os.W_OK):
        return "local[*]"
    return f"local-cluster[1,{len(os.sched_getaffinity(0))},{_EXECUTOR_MEBIBYTES}]"


@click.command(context_settings={"max_content_width": 120})
@click.option("--quick", is_flag=True, help="Only compare the methods: about a minute.")
@click.option("--input", "path", metavar="PATH", help="Use the rows of this Parquet, CSV, JSON or Arrow path.")
@click.option(
    "--master", metavar="URL", help="The Spark master.  [default: a local cluster with one executor; local[*] if quick]"
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    help=f"Number of runs of each method; differences are reported from {MIN_ROUNDS} rounds on."
    f"  [default: {_ROUNDS}, {MIN_ROUNDS} if quick]",
)
@click.option(
    "-o", "--output", metavar="PAGE", type=Path, default=_PAGE, show_default=True, help="The page with plots."
)
def demo(*, quick: bool, path: str | None, master: str | None, rounds: int | None, output: Path) -> None:
    """Compute in Spark and pass the rows to other processes by three methods, compared side by side.

    Publishing: the executors write the rows to shared memory, and other processes read them in place, without a copy.
    toArrow(): the driver collects the rows and sends them over sockets. Parquet: Spark writes files, which the other
    processes read. Four processes read all rows three times each. Then the demo kills writers, and shows what readers
    get.

    By default Spark computes a million orders, and joins each with the number and the sum of its customer's.
    """
    # The demo does not use pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    console = Console()
    if not console.is_terminal:
        console.width = _PIPE_WIDTH  # no line breaks in a pipe
    start = time.perf_counter()
    try:
        data = None if path is None else bs.dataset(path)
        if data is not None and not data.num_rows:
            raise click.ClickException(f"{path}: there are no rows to publish")
        logging.disable(logging.CRITICAL)  # py4j and PySpark log the errors that they raise
        with (
            show_log_on_failure() as log,
            Readers() as readers,  # they start while Spark does
            _run_spark(master or ("local[*]" if quick else _default_master()), log) as spark,
        ):
            frame = create_orders(spark, _ROWS) if data is None else bowstring.spark.read(spark, data)
            rounds = rounds or (MIN_ROUNDS if quick else _ROUNDS)
            report = compare_methods(console, frame, readers, rounds, kills_writers=not quick)
    except bs.errors.BowstringError as error:
        raise click.ClickException(str(error)) from error
    report.elapsed_s = time.perf_counter() - start
    output.write_text(build_page(report, path or "generated orders"), encoding="utf-8")
    show_report(console, report)
    console.print(f"Plots: {output}", highlight=False)
    sys.exit(0 if report.is_successful else 1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that temporary files are removed
    demo()
