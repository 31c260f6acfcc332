"""`bowstring cat`: write all rows of an Arrow file or stream."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import partial

import click

from bowstring.cli.input_output import is_input_idle, prefix_errors_with_source, resolve_source
from bowstring.cli.options import all_option, columns_option, file_argument, max_piped_bytes_option, row_format_option
from bowstring.cli.progress import iterate_with_progress, progress_bar
from bowstring.cli.rows import LimitedBatches, batches_without_readahead, write_rows
from bowstring.ipc.api import open_any

_ROWS_SHOWN = 1000


@click.command()
@file_argument
@row_format_option("Output format.  [default: table on a terminal, else jsonl]")
@columns_option
@all_option(f"Show all rows on a terminal, not only the first {_ROWS_SHOWN}; in a table, truncate nothing.")
@max_piped_bytes_option
def cat(
    file: str | None, *, row_format: str | None, columns: tuple[str, ...], show_all: bool, max_piped_bytes: int
) -> None:
    """Write all rows of an Arrow file or stream, as a table, as JSON lines or as CSV.

    FILE is a path or URL, or - for standard input. If FILE is omitted, standard input is read, unless it is a
    terminal. On a terminal the first 1,000 rows are shown.
    """
    is_terminal = sys.stdout.isatty()
    limit = _ROWS_SHOWN if is_terminal and not show_all else None
    source = resolve_source(file)
    with (
        prefix_errors_with_source(file),
        open_any(source, columns or None, max_piped_bytes=max_piped_bytes) as reader,
        nullcontext() if is_terminal else progress_bar("writing") as report_progress,  # a bar would disturb the rows
    ):
        batches = reader if report_progress is None else iterate_with_progress(reader, report_progress)
        limited_batches = LimitedBatches(batches if limit is None else batches_without_readahead(reader), limit)
        default = "table" if is_terminal else "jsonl"
        write_rows(reader.schema, limited_batches, row_format or default, show_all, partial(is_input_idle, file))
        has_more = limited_batches.has_more()
    if has_more:
        click.echo(f"only the first {_ROWS_SHOWN:,} rows are shown (--all shows all of them)", err=True)
