"""`bowstring head`: show the first rows of an Arrow file or stream."""

from __future__ import annotations

from functools import partial

import click

from bowstring.cli.input_output import is_input_idle, prefix_errors_with_source, resolve_source
from bowstring.cli.options import (
    all_option,
    columns_option,
    file_argument,
    max_piped_bytes_option,
    row_format_option,
    rows_option,
)
from bowstring.cli.rows import LimitedBatches, batches_without_readahead, write_rows
from bowstring.ipc.api import open_any


@click.command()
@file_argument
@rows_option("Number of rows.")
@row_format_option("Output format.", default="table")
@columns_option
@all_option("In a table, show all columns and truncate nothing.")
@max_piped_bytes_option
def head(
    file: str | None, *, count: int, row_format: str, columns: tuple[str, ...], show_all: bool, max_piped_bytes: int
) -> None:
    """Show the first rows of an Arrow file or stream, as a table, as JSON lines or as CSV.

    FILE is a path or URL, or - for standard input. If FILE is omitted, standard input is read, unless it is a
    terminal. Only the batches that contain those rows are read.
    """
    source = resolve_source(file)
    with prefix_errors_with_source(file), open_any(source, columns or None, max_piped_bytes=max_piped_bytes) as reader:
        batches = LimitedBatches(batches_without_readahead(reader), count)
        write_rows(reader.schema, batches, row_format, show_all, partial(is_input_idle, file))
