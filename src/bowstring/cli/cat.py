"""`bowstring cat`: write all rows of an Arrow file or stream."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import click

from bowstring.cli.input_output import (
    PATH,
    idle_check,
    max_piped_option,
    progress,
    report_batches,
    report_errors,
    resolve_source,
)
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

_ROWS_SHOWN = 1000


@click.command()
@click.argument("file", required=False, type=PATH)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "jsonl", "csv"]),
    help="Output format.  [default: table on a terminal, else jsonl]",
)
@column_option
@click.option(
    "--all",
    "whole",
    is_flag=True,
    help=f"Show all rows on a terminal, not only the first {_ROWS_SHOWN}; in a table, truncate nothing.",
)
@max_piped_option
def cat(file: str | None, *, form: str | None, columns: tuple[str, ...], whole: bool, max_piped_bytes: int) -> None:
    """Write all rows of an Arrow file or stream, as a table, as JSON lines or as CSV.

    FILE is a path, a URL, or - for standard input, which is also read if FILE is omitted and input is piped. On a
    terminal the first 1,000 rows are shown.
    """
    is_terminal = sys.stdout.isatty()
    limit = _ROWS_SHOWN if is_terminal and not whole else None
    source = resolve_source(file)
    with (
        report_errors(file),
        open_any(source, columns or None, max_piped_bytes=max_piped_bytes) as reader,
        nullcontext() if is_terminal else progress("writing") as advance,  # a bar would disturb the rows
    ):
        is_table = form == "table" or (form is None and is_terminal)
        batches = reader if advance is None else report_batches(reader, advance)
        first = LimitedBatches(batches if limit is None else without_readahead(reader), limit)
        rows = rows_by_batch(first, COLUMNS_SHOWN if is_table and not whole else None)
        if is_table:
            write_table(reader.schema, rows, whole, idle_check(file))
        else:
            (write_csv if form == "csv" else write_json_lines)(reader.schema, rows)
        has_more = first.has_more()
    if has_more:
        click.echo(f"only the first {_ROWS_SHOWN:,} rows are shown (--all shows all of them)", err=True)
