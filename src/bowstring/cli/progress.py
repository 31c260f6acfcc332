"""Progress bars on standard error."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bowstring.arrays.record_batch import RecordBatch
from bowstring.cli.input_output import check_schemas
from bowstring.display.printable_text import format_size
from bowstring.file_formats import LazyTable, SourceOptions, TableSource
from bowstring.ipc.file import FileReader

ReportProgress: TypeAlias = Callable[[int, int | None], None]
"""A callback for progress: the amount done, and the total or None if it is unknown."""


@contextmanager
def progress_bar(title: str, unit: str = "record batches") -> Iterator[ReportProgress]:
    """Yield a callback that shows progress as a bar on standard error.

    There is no bar if standard error is not a terminal, or if standard output is a pipe: its reader may write to the
    same terminal. The bar disappears when the block ends.
    """
    if not sys.stderr.isatty() or _is_pipe(sys.stdout):
        yield lambda _done, _of: None
        return

    def format_counts(done: int, of: int | None) -> str:
        if unit == "bytes":
            return format_size(done) + ("" if of is None else f" of {format_size(of)}")
        return f"{done:,}" + ("" if of is None else f" of {of:,}") + f" {unit}"

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[counts]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, counts="")
        yield lambda done, of: bar.update(task, completed=done, total=of, counts=format_counts(done, of))


def _is_pipe(file: Any) -> bool:
    try:
        mode = os.fstat(file.fileno()).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def iterate_with_progress(
    batches: Iterable[RecordBatch], report_progress: ReportProgress, total_rows: int | None = None
) -> Iterator[RecordBatch]:
    """Yield the batches of a reader; call `report_progress` before the first, and after each.

    The progress is the number of rows if `total_rows` is known, else the number of batches.
    """
    of = len(batches) if total_rows is None and isinstance(batches, FileReader) else total_rows
    done = 0
    report_progress(0, of)
    for batch in batches:
        yield batch
        done += 1 if total_rows is None else batch.num_rows
        report_progress(done, of)


def report_in_unit(source: TableSource, report_progress: ReportProgress) -> ReportProgress:
    """Return a callback for an amount and a total; if the source's unit is bytes, it reports the position in it."""
    if source.progress_unit != "bytes":
        return report_progress
    return lambda _done, _of: report_progress(source.source.position, source.size_bytes)


@contextmanager
def open_with_progress(
    source: TableSource, options: SourceOptions, report_progress: ReportProgress | None
) -> Iterator[LazyTable]:
    """Open the table of a source, all of whose batches will be read, and report progress, if to be reported.

    Raises `InvalidDataError` if the files of a folder have different schemas: no row of any must be written then.
    """
    check_schemas(source, options)
    report = report_progress and report_in_unit(source, report_progress)
    with source.open_table(options) as table:
        batches = table.batches if report is None else iterate_with_progress(table.batches, report, table.num_rows)
        yield replace(table, batches=batches)
