"""`bowstring head`, `tail` and `cat`: show the first, the last or all rows of a file."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import click

from bowstring.arrays.record_batch import RecordBatch
from bowstring.cli.help_text import examples
from bowstring.cli.input_output import is_input_idle, open_input, open_table, prefix_errors_with_source
from bowstring.cli.options import (
    all_option,
    columns_option,
    file_argument,
    from_option,
    max_piped_bytes_option,
    row_format_option,
    rows_option,
)
from bowstring.cli.progress import open_with_progress, progress_bar
from bowstring.cli.rows import LimitedBatches, batches_without_readahead, write_rows
from bowstring.file_formats import SourceOptions
from bowstring.ipc.api import open_stream

# Only on a terminal, where more rows are rarely meant.
_ROWS_SHOWN = 1000


def _end_command(*lines: str) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator for a command that shows the rows of one end of a file, with these examples."""

    def decorate(function: Callable[..., None]) -> click.Command:
        options = (
            file_argument,
            rows_option("Number of rows, also as -5."),
            row_format_option("Output format.", default="table"),
            from_option,
            columns_option,
            all_option("In a table, show all columns and truncate nothing."),
            max_piped_bytes_option,
        )
        for add_option in reversed(options):
            function = add_option(function)
        return click.command(epilog=examples(*lines))(function)

    return decorate


@_end_command(
    "bowstring head flights.arrow",
    "bowstring head -n 3 -c origin,delay flights.parquet",
    "bowstring head --format csv flights.jsonl",
)
def head(file: str | None, **options: Any) -> None:
    """Show the first rows of an Arrow, Parquet, CSV or JSON file, as a table, as JSON lines or as CSV.

    FILE is a path, a URL, a folder or a glob in quotes, or - for standard input. If FILE is omitted, standard input is
    read, unless it is a terminal. Only the batches that contain those rows are read.
    """
    _show_rows(file, lambda batches, count: LimitedBatches(batches_without_readahead(batches), count), **options)


@_end_command("bowstring tail flights.arrow", "bowstring tail -n 3 --format jsonl flights.csv")
def tail(file: str | None, **options: Any) -> None:
    """Show the last rows of an Arrow, Parquet, CSV or JSON file, as a table, as JSON lines or as CSV.

    FILE is as for head. Of an Arrow file only the batches that contain those rows are read, others completely.
    """
    _show_rows(file, _last_batches, **options)


def _show_rows(  # noqa: PLR0913 -- one parameter for each option
    file: str | None,
    select: Callable[[Iterable[RecordBatch], int], Iterable[RecordBatch]],
    *,
    count: int,
    row_format: str,
    source_format: str | None,
    columns: tuple[str, ...],
    show_all: bool,
    max_piped_bytes: int,
) -> None:
    with open_table(file, source_format, SourceOptions(columns, max_piped_bytes)) as table:
        write_rows(table.schema, select(table.batches, count), row_format, show_all, partial(is_input_idle, file))


def _last_batches(batches: Iterable[RecordBatch], count: int) -> Iterator[RecordBatch]:
    """Yield the last `count` rows. The values of others are not read."""
    pending: deque[RecordBatch] = deque()
    rows = 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        while pending and rows - pending[0].num_rows >= count:
            rows -= pending.popleft().num_rows
    skipped = max(0, rows - count)
    for batch in pending:
        yield batch.slice(min(skipped, batch.num_rows))
        skipped = 0


@click.command(
    epilog=examples(
        "bowstring cat flights.arrow",
        "bowstring cat -c origin,delay --format csv flights.parquet",
        "bowstring cat --follow growing.arrows",
    )
)
@file_argument
@row_format_option("Output format.  [default: table on a terminal, else jsonl]")
@from_option
@columns_option
@all_option(f"Show all rows on a terminal, not only the first {_ROWS_SHOWN}; in a table, truncate nothing.")
@click.option(
    "-f", "--follow", is_flag=True, help="Wait for batches that are appended to an Arrow stream, until its end marker."
)
@max_piped_bytes_option
def cat(  # noqa: PLR0913 -- one parameter for each option
    file: str | None,
    *,
    row_format: str | None,
    source_format: str | None,
    columns: tuple[str, ...],
    show_all: bool,
    follow: bool,
    max_piped_bytes: int,
) -> None:
    """Write all rows of an Arrow, Parquet, CSV or JSON file, as a table, as JSON lines or as CSV.

    FILE is a path, a URL, a folder or a glob in quotes, or - for standard input. If FILE is omitted, standard input is
    read, unless it is a terminal. On a terminal the first 1,000 rows are shown.
    """
    is_terminal = sys.stdout.isatty()
    default = "table" if is_terminal else "jsonl"
    if follow:
        if file in (None, "-") or source_format not in (None, "arrow"):
            raise click.UsageError("--follow expects the path of an Arrow stream")
        with prefix_errors_with_source(file), open_stream(file, columns or None, follow=True) as reader:
            write_rows(reader.schema, reader, row_format or default, show_all, is_input_idle=lambda: True)
        return
    limit = _ROWS_SHOWN if is_terminal and not show_all else None
    with (
        prefix_errors_with_source(file),
        open_input(file, source_format) as source,
        # A bar would disturb the rows on a terminal.
        nullcontext() if is_terminal else progress_bar("writing", source.progress_unit) as report_progress,
        open_with_progress(source, SourceOptions(columns, max_piped_bytes), report_progress) as table,
    ):
        batches = LimitedBatches(table.batches if limit is None else batches_without_readahead(table.batches), limit)
        write_rows(table.schema, batches, row_format or default, show_all, partial(is_input_idle, file))
        has_more = batches.has_more()
    if has_more:
        click.echo(f"only the first {_ROWS_SHOWN:,} rows are shown (--all shows all of them)", err=True)
