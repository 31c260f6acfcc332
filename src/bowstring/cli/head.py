"""`bowstring head`: show the first rows of a file."""

from __future__ import annotations

from functools import partial

import click

from bowstring.cli.help_text import examples
from bowstring.cli.input_output import is_input_idle, open_input, prefix_errors_with_source
from bowstring.cli.options import (
    all_option,
    columns_option,
    file_argument,
    from_option,
    max_piped_bytes_option,
    row_format_option,
    rows_option,
)
from bowstring.cli.rows import LimitedBatches, batches_without_readahead, write_rows
from bowstring.file_formats import SourceOptions


@click.command(
    epilog=examples(
        "bowstring head flights.arrow",
        "bowstring head -n 3 -c origin,delay flights.parquet",
        "bowstring head --format csv flights.jsonl",
    )
)
@file_argument
@rows_option("Number of rows.")
@row_format_option("Output format.", default="table")
@from_option
@columns_option
@all_option("In a table, show all columns and truncate nothing.")
@max_piped_bytes_option
def head(  # noqa: PLR0913 -- one parameter for each option
    file: str | None,
    *,
    count: int,
    row_format: str,
    source_format: str | None,
    columns: tuple[str, ...],
    show_all: bool,
    max_piped_bytes: int,
) -> None:
    """Show the first rows of an Arrow, Parquet, CSV or JSON file, as a table, as JSON lines or as CSV.

    FILE is a path, a URL, a folder or a glob in quotes, or - for standard input. If FILE is omitted, standard input is
    read, unless it is a terminal. Only the batches that contain those rows are read.
    """
    options = SourceOptions(columns, max_piped_bytes)
    with (
        prefix_errors_with_source(file),
        open_input(file, source_format) as source,
        source.open_table(options) as table,
    ):
        batches = LimitedBatches(batches_without_readahead(table.batches), count)
        write_rows(table.schema, batches, row_format, show_all, partial(is_input_idle, file))
