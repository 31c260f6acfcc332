"""`bowstring demo`: compute in Spark and compare three methods to hand the rows over to other processes."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, NoReturn, Self, TypeVar

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from bowstring import spark as bowstring_spark
from bowstring.cli.demo import corpus, input_option, transfer_methods
from bowstring.cli.demo.comparison import MIN_ROUNDS, Comparison
from bowstring.cli.demo.hosts_demo import show_hosts
from bowstring.cli.demo.killed_writers import kill_writers
from bowstring.cli.demo.page import build_page
from bowstring.cli.demo.report import DemoReport, show_report
from bowstring.cli.demo.summary import summarize_frame
from bowstring.cli.help_text import examples
from bowstring.cli.input_output import open_output, resolve_output
from bowstring.display.printable_text import to_printable
from bowstring.errors import InvalidArgumentError, format_count
from bowstring.spark.runtime.java_runtime import find_spark_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from bowstring.cli.demo.transfer_methods import Measurement, Readers, TransferMethod

T = TypeVar("T")
_JAVA_NOTICE = "WARNING: Using incubator modules"
_POLL_S = 0.1
_PIPE_WIDTH = 200
_PAGE = "bowstring-demo.html"
_LINES = 300_000
_ROUNDS = 7
_EXECUTOR_MEBIBYTES = 2048
_SMALL_BYTES = 16 << 20
_LARGE_BYTES = 32 << 20
_FEW_ROWS = 100
_COMPARISON_OPTIONS = {"path": "--input", "master": "--master", "rounds": "--rounds", "output": "--output"}
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


def create_other_frame(frame: DataFrame, rows: int, size_bytes: int) -> DataFrame:
    """Return a few of the rows, or enough copies of a small frame for about `_LARGE_BYTES`."""
    if size_bytes >= _SMALL_BYTES:
        return frame.limit(_FEW_ROWS)
    spark = frame.sparkSession
    copies = _LARGE_BYTES // max(size_bytes, rows) + 1
    partitions = 2 * spark.sparkContext.defaultParallelism
    numbers = spark.range(0, copies, 1, partitions).toDF("bowstring copy")
    return numbers.crossJoin(frame).drop("bowstring copy")


def _compare(steps: StepProgress, title: str, frame: DataFrame, rounds: int, readers: Readers) -> Comparison:
    """Run each method once in each round. Another method is the first in each, because the order affects the times."""
    methods = transfer_methods.TRANSFER_METHODS
    measurements: dict[str, list[Measurement]] = {method.name: [] for method in methods}
    for number in range(rounds):
        first = number % len(methods)

        def run_round(order: Sequence[TransferMethod] = (*methods[first:], *methods[:first])) -> None:
            for method in order:
                measurements[method.name].append(transfer_methods.measure(method, frame, readers))

        steps.run_step(f"{title}: round {number + 1} of {rounds}", run_round)
    return Comparison(measurements[transfer_methods.PUBLISH.name][0].rows, measurements)


def _compare_other_size(steps: StepProgress, frame: DataFrame, main: Comparison, readers: Readers) -> Comparison:
    other_frame = create_other_frame(frame, main.rows, main.size_bytes).cache()
    rows = steps.run_step("Computing more rows, or fewer", other_frame.count)
    rounds = len(main.rounds[transfer_methods.PUBLISH.name])
    try:
        return _compare(steps, format_count(rows, "row"), other_frame, rounds, readers)
    finally:
        other_frame.unpersist()


def compare_methods(steps: StepProgress, spark: SparkSession, path: str | None, lines: int, rounds: int) -> DemoReport:
    """Compute the rows, compare the methods, and kill writers. The readers start while Spark computes."""
    with transfer_methods.Readers() as readers:
        frame = steps.run_step(
            "Computing: Spark reads, parses, joins and aggregates", lambda: _create_frame(spark, path, lines).cache()
        )
        summary = steps.run_step(
            "Counting rows and nulls, and summing columns in Spark", lambda: summarize_frame(frame)
        )
        if not summary.rows:
            raise InvalidArgumentError(f"{path}: there are no rows to publish")
        steps.run_step("Starting readers", readers.wait_until_ready)
        memory = {
            method.name: steps.run_step(
                f"Measuring the memory of {method.name}",
                partial(transfer_methods.measure_memory, method, frame, reader),
            )
            for method, reader in zip(transfer_methods.TRANSFER_METHODS, readers, strict=False)
        }
        main = _compare(steps, format_count(summary.rows, "row"), frame, rounds, readers)
        other = None if rounds < MIN_ROUNDS else _compare_other_size(steps, frame, main, readers)
        sums = sum(column.total is not None for column in summary.columns)
        report = DemoReport(main, other, memory, len(summary.columns), sums)
        summaries = [summary for run in main.rounds[transfer_methods.PUBLISH.name] for summary in run.summaries]
        report.differences = list(
            dict.fromkeys(difference for published in summaries for difference in published.find_differences(summary))
        )
        with transfer_methods.PUBLISH.write(frame) as rows:
            report.sample = readers.request("read_sample", rows.location)
        report.killed_writers = steps.run_step("Killing writers", lambda: kill_writers(frame, summary, readers))
    return report


@contextmanager
def show_log_on_failure() -> Iterator[BinaryIO]:
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


def _default_master() -> str:
    """A local cluster, whose executor is a process of its own, unless its worker can't write to Spark's folder."""
    if not os.access(find_spark_class().parents[1], os.W_OK):
        return "local[*]"
    return f"local-cluster[1,{len(os.sched_getaffinity(0))},{_EXECUTOR_MEBIBYTES}]"


@click.command(epilog=examples("bowstring demo", "bowstring demo --input flights.parquet", "bowstring demo --hosts 2"))
@click.option("--input", "path", metavar="PATH", help="Use the rows of this Parquet, CSV, JSON or Arrow path.")
@click.option("--master", metavar="URL", help="The Spark master.  [default: a local cluster with one executor]")
@click.option(
    "--lines",
    type=click.IntRange(min=1),
    default=_LINES,
    help="Approximate number of lines of Python to read without --input.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=_ROUNDS,
    help=f"Number of runs of each method; differences count from {MIN_ROUNDS} on.",
)
@click.option(
    "-o",
    "--output",
    metavar="PAGE",
    type=click.Path(readable=False),
    help="Path of the page with plots.  [default: bowstring-demo.html in the current folder]",
)
@click.option(
    "--hosts",
    type=click.IntRange(2, 8),
    help="Instead, start a Spark cluster on this many hosts, simulated by Linux's namespaces: needs root.",
)
@click.pass_context
def demo(  # noqa: PLR0913 - a parameter for each option
    context: click.Context,
    *,
    path: str | None,
    master: str | None,
    lines: int,
    rounds: int,
    output: str | None,
    hosts: int | None,
) -> int:
    """Compute in Spark and hand the rows over to other processes by three methods, compared side by side.

    Publishing: the executors write the rows to shared memory, and other processes read them in place, without a copy.
    toArrow(): the driver collects the rows and sends them over sockets. Parquet: Spark writes files, which the other
    processes read. Four processes read all rows three times each. Then the demo kills writers, and shows what readers
    get.

    By default Spark parses the Python source files that are installed on this machine, line by line, and joins each
    line with statistics of its module and package.

    With --hosts, a consumer on each host reads the published partitions of that host from shared memory, and the others
    over TCP.
    """
    warnings.filterwarnings(
        "ignore", "PySpark does not yet fully support pandas", FutureWarning
    )  # pandas is not used here
    if hosts is not None:
        for name, option in _COMPARISON_OPTIONS.items():
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise InvalidArgumentError(f"demo: {option} is not supported together with --hosts")
        return 0 if show_hosts(Console(), hosts, lines) else 1
    if path is not None:
        input_option.infer_input_format(path)  # raise for a wrong path before Spark starts
    target = output or _PAGE
    out = resolve_output(target, *([path] if path and os.path.isfile(path) else ()))
    logging.disable(logging.CRITICAL)  # py4j and PySpark log the errors that they raise
    console = Console()
    if not console.is_terminal:
        console.width = _PIPE_WIDTH  # no line breaks in a pipe
    start = time.perf_counter()
    with open_output(out) as sink:
        with show_log_on_failure() as log, StepProgress(console) as steps:
            spark = steps.run_step("Starting Spark", partial(_start_spark, master or _default_master(), log))
            with _stop_spark_at_end(spark):
                steps.spark = spark
                report = compare_methods(steps, spark, path, lines, rounds)
        report.elapsed_s = time.perf_counter() - start
        page = build_page(report, path or "lines of the installed Python files").encode()
        sink.write([page], len(page))
    show_report(console, report)
    console.print(f"Plots: {to_printable(target)}", highlight=False)
    return 0 if report.is_successful else 1
