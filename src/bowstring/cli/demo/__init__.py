"""`bowstring demo`: compute in Spark and compare three methods to hand the result over to another process."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, NoReturn, Self, TypeVar

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from bowstring import spark as bowstring_spark
from bowstring.cli.demo import corpus, input_option, report, transfer_methods
from bowstring.cli.demo.hosts_demo import show_hosts
from bowstring.cli.demo.summary import summarize_frame
from bowstring.cli.help_text import examples
from bowstring.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from bowstring.cli.demo.transfer_methods import Measurement

T = TypeVar("T")
_JAVA_NOTICE = "WARNING: Using incubator modules"
_POLL_S = 0.1
_PIPE_WIDTH = 200
_INTERRUPT_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StepProgress:
    """A progress bar for each step: the tasks of Spark, or a spinner."""

    def __init__(self, console: Console) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
        self._progress = Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal)
        self.spark: SparkSession | None = None

    def run_step(self, title: str, work: Callable[[], T]) -> T:
        """Run `work` under a progress bar and return its value."""
        task = self._progress.add_task(title, total=None, note="")
        is_done = threading.Event()
        watcher = threading.Thread(target=self._update_task_counts, args=(task, is_done), daemon=True)
        watcher.start()
        try:
            return work()
        finally:
            is_done.set()
            watcher.join()
            self._progress.update(task, total=1, completed=1, note="")

    def _update_task_counts(self, task: TaskID, is_done: threading.Event) -> None:
        while not is_done.wait(_POLL_S):
            if self.spark is None:
                continue
            tracker = self.spark.sparkContext.statusTracker()
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            total = sum(stage.numTasks for stage in stages if stage)
            finished = sum(stage.numCompletedTasks for stage in stages if stage)
            if total:
                self._progress.update(task, total=total, completed=finished, note=f"{finished}/{total} tasks")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def _create_frame(spark: SparkSession, path: str | None, lines: int) -> DataFrame:
    spark.conf.set("spark.sql.shuffle.partitions", 2 * spark.sparkContext.defaultParallelism)
    if path is not None:
        return input_option.read_dataframe(spark, path)
    return corpus.create_line_frame(spark, corpus.list_installed_python_files(lines))


def _warm_up(frame: DataFrame) -> None:
    """Run each method once with all rows, because Java compiles Spark's code while it runs the plans themselves."""
    for measure in transfer_methods.TRANSFER_METHODS.values():
        measure(frame)


def _measure_each_method(frame: DataFrame, number: int, measurements: dict[str, list[Measurement]]) -> None:
    """Run each method once. Another method is the first in each round, because the order affects the times."""
    names = list(transfer_methods.TRANSFER_METHODS)
    first = number % len(names)
    for method in (*names[first:], *names[:first]):
        measurements[method].append(transfer_methods.TRANSFER_METHODS[method](frame))


@contextmanager
def _show_log_on_failure() -> Iterator[BinaryIO]:
    """Yield a temporary file for the standard error of Spark's processes; print it if the block fails.

    It is not printed for a wrong input: Python workers log an error if a query ends before their last row is read.
    """
    with tempfile.TemporaryFile() as log:
        try:
            yield log
        except InvalidArgumentError:
            raise
        except Exception:
            log.seek(0)
            lines = log.read().decode(errors="backslashreplace").splitlines()
            sys.stderr.writelines(f"{line}\n" for line in lines if not line.startswith(_JAVA_NOTICE))
            raise


def _start_spark(master: str, log: BinaryIO) -> SparkSession:
    """Start Spark, and redirect the standard error of its processes to `log`."""
    sys.stderr.flush()
    standard_error = os.dup(2)
    os.dup2(log.fileno(), 2)
    try:
        return bowstring_spark.session(master, app_name="bowstring demo")
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)


@contextmanager
def _stop_spark_at_end(spark: SparkSession) -> Iterator[None]:
    """Stop Spark at the end of the block.

    SIGINT and SIGTERM raise `KeyboardInterrupt` and `SystemExit`, also during a call of py4j, and Spark does not log
    aborted jobs.
    """
    interrupts: list[BaseException] = []

    def raise_exit_error(number: int, _frame: object) -> NoReturn:
        for ignored_number in _INTERRUPT_SIGNALS:
            signal.signal(ignored_number, signal.SIG_IGN)  # Spark is being stopped
        interrupts.append(KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number))
        raise interrupts[0]

    if threading.current_thread() is threading.main_thread():
        for number in _INTERRUPT_SIGNALS:
            signal.signal(number, raise_exit_error)
    try:
        try:
            yield
        finally:
            if interrupts:
                spark.sparkContext.setLogLevel("OFF")
            spark.stop()
    except Exception as error:
        if interrupts:
            raise interrupts[0] from error
        raise


@click.command(epilog=examples("bowstring demo", "bowstring demo --input flights.parquet", "bowstring demo --hosts 2"))
@click.option("--input", "path", metavar="PATH", help="Use the rows of this Parquet, CSV, JSON or Arrow path.")
@click.option("--master", metavar="URL", default="local[*]", help="The Spark master.")
@click.option(
    "--lines",
    type=click.IntRange(min=1),
    default=1_000_000,
    help="Approximate number of lines of Python to read without --input.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=3,
    help="Number of runs of each method; medians are shown.",
)
@click.option(
    "--hosts",
    type=click.IntRange(2, 8),
    help="Instead, start a Spark cluster on this many hosts, simulated by Linux's namespaces: needs root.",
)
@click.pass_context
def demo(context: click.Context, path: str | None, master: str, lines: int, rounds: int, hosts: int | None) -> int:
    """Compute in Spark and hand the result over to another process by three methods, compared side by side.

    Publish: the executors write the result to shared memory, and the other process reads it in place, without a copy.
    Through the driver: the driver collects the result and sends it over a socket. Parquet: Spark writes files, which
    the other process reads.

    By default Spark parses the Python source files that are installed on this machine, line by line, and joins each
    line with statistics of its module and package.

    With --hosts, a consumer on each host reads the published partitions of that host from shared memory, and the others
    over TCP.
    """
    warnings.filterwarnings(
        "ignore", "PySpark does not yet fully support pandas", FutureWarning
    )  # pandas is not used here
    if hosts is not None:
        for name, option in (("path", "--input"), ("master", "--master"), ("rounds", "--rounds")):
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise InvalidArgumentError(f"demo: {option} is not supported together with --hosts")
        return 0 if show_hosts(Console(), hosts, lines) else 1
    if path is not None:
        input_option.infer_input_format(path)  # raise for a wrong path before Spark starts
    logging.disable(logging.CRITICAL)  # py4j and PySpark log the errors that they raise
    console = Console()
    if not console.is_terminal:
        console.width = _PIPE_WIDTH  # no line breaks in a pipe
    start = time.perf_counter()
    with _show_log_on_failure() as log, StepProgress(console) as steps:
        spark = steps.run_step("Starting Spark", partial(_start_spark, master, log))
        with _stop_spark_at_end(spark):
            steps.spark = spark
            frame = steps.run_step(
                "Computing: Spark reads, parses, joins and aggregates",
                lambda: _create_frame(spark, path, lines).cache(),
            )
            summary = steps.run_step(
                "Counting rows and nulls, and summing columns in Spark", lambda: summarize_frame(frame)
            )
            if not summary.rows:
                raise InvalidArgumentError(f"{path}: there are no rows to hand over")
            steps.run_step("Warming up: running each method once", partial(_warm_up, frame))
            measurements: dict[str, list[Measurement]] = {name: [] for name in transfer_methods.TRANSFER_METHODS}
            for number in range(rounds):
                title = f"Running each method with all rows, round {number + 1} of {rounds}"
                steps.run_step(title, partial(_measure_each_method, frame, number, measurements))
    published = next(iter(measurements.values()))
    differences = [
        difference
        for measurement in published
        if measurement.summary
        for difference in measurement.summary.find_differences(summary)
    ]
    last = published[-1]
    console.print()
    if last.sample:
        console.print("Some of the rows that another process read from shared memory:")
        report.show_sample(console, last.sample)
        console.print()
    report.show_verification(console, last, differences)
    console.print()
    report.show_measurements(console, measurements, time.perf_counter() - start)
    console.print()
    report.show_conclusion(console, measurements, len(differences))
    return 1 if differences else 0
