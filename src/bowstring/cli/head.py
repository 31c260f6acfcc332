"""`bowstring head`: show the first rows of an Arrow file or stream."""

from __future__ import annotations

import click

from bowstring.cli.input_output import PATH, idle_check, max_piped_option, report_errors, resolve_source
from bowstring.cli.rows import (
    COLUMNS_SHOWN,
    LimitedBatches,
    column_option,
    rows_by_batch,
    without_readahead,
    write_csv,
    write_json_lines,
    write_table,
)
from bowstring.ipc.format_detection import open_any


@click.command()
@click.argument("file", required=False, type=PATH)
@click.option(
    "-n", "--rows", "count", type=click.IntRange(min=0), default=10, show_default=True, help="Number of rows."
)
@click.option("--format", "form", type=click.Choice(["table", "jsonl", "csv"]), default="table", show_default=True)
@column_option
@click.option("--all", "whole", is_flag=True, help="In a table, show all columns and truncate nothing.")
@max_piped_option
def head(
    file: str | None, *, count: int, form: str, columns: tuple[str, ...], whole: bool, max_piped_bytes: int
) -> None:
    """Show the first rows of an Arrow file or stream, as a table, as JSON lines or as CSV.

    FILE is a path, a URL, or - for standard input, which is also read if FILE is omitted and input is piped. Only the
    batches that contain those rows are read.
    """
    source = resolve_source(file)
    with report_errors(file), open_any(source, columns or None, max_piped_bytes=max_piped_bytes) as reader:
        is_table = form == "table"
        rows = rows_by_batch(
            LimitedBatches(without_readahead(reader), count), COLUMNS_SHOWN if is_table and not whole else None
        )
        if is_table:
            write_table(reader.schema, rows, whole, idle_check(file))
        else:
            (write_csv if form == "csv" else write_json_lines)(reader.schema, rows)
