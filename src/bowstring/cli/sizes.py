"""`bowstring sizes`: the size of each column, largest first, with its encoding and share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from bowstring.cli.help_text import examples
from bowstring.cli.input_output import echo_json, list_inputs, open_input, source_name
from bowstring.cli.options import all_option, file_argument, from_option, json_option, max_piped_bytes_option
from bowstring.cli.table_report import TableReport, column_document, report_table
from bowstring.cli.terminal_tables import ColumnFit, borderless_table, fit_columns, open_console, terminal_width
from bowstring.display.printable_text import format_percent, format_size, fraction, to_printable
from bowstring.errors import format_count
from bowstring.file_formats import SourceOptions
from bowstring.inspection.report import ColumnReport, Inspection
from bowstring.inspection.report_builder import inspect

# The largest come first; `--json` has all.
_COLUMNS_SHOWN = 100
_NAME_CHARACTERS = 60
_TITLES = ("column", "type", "encoding", "bytes", "size", "share")


@click.command(
    epilog=examples(
        "bowstring sizes flights.arrow",
        "bowstring sizes --json flights.parquet",
    )
)
@file_argument
@from_option
@json_option("Write all columns as JSON, sizes in bytes.")
@all_option(f"Show all columns, not only the {_COLUMNS_SHOWN} largest.")
@max_piped_bytes_option
def sizes(file: str | None, *, source_format: str | None, as_json: bool, show_all: bool, max_piped_bytes: int) -> None:
    """Show the size of each column of a file, largest first.

    FILE is a path, a URL, a folder or a glob in quotes, or - for standard input. If FILE is omitted, standard input is
    read, unless it is a terminal. The sizes of Arrow and Parquet are those in the file; only headers are read. CSV and
    JSON are read completely; their sizes are of the Arrow data in memory.
    """
    reports: list[Inspection | TableReport] = []
    for each in list_inputs(file):
        with open_input(each, source_format) as source:
            if source.format == "arrow":
                reports.append(inspect(source.source, max_piped_bytes=max_piped_bytes))
            else:
                reports.append(report_table(source, SourceOptions(max_piped_bytes=max_piped_bytes)))
    columns = _add_sizes(reports)
    encodings = [_encoding_text(column, reports[0]) for column in columns]
    if as_json:
        documents = [column_document(*column) for column in zip(columns, encodings, strict=True)]
        size_bytes = sum(
            each.bytes.buffers if isinstance(each, Inspection) else sum(c.total_bytes for c in each.columns)
            for each in reports
        )
        num_rows = sum(report.rows for report in reports)
        echo_json({"source": source_name(file), "rows": num_rows, "bytes": size_bytes, "columns": documents})
        return
    shown = columns if show_all else columns[:_COLUMNS_SHOWN]
    titles: Sequence[str] = _TITLES
    rows = [_column_cells(column, encoding, show_all) for column, encoding in zip(shown, encodings, strict=False)]
    width = terminal_width()
    if width is not None and not show_all:
        titles, rows = fit_columns(titles, rows, width, ColumnFit(("column", "type"), ("bytes", "encoding")))
    table = borderless_table(*((title, title in _TITLES[3:]) for title in titles))
    for row in rows:
        table.add_row(*row)
    with open_console() as console:
        console.print(table)
    hidden = len(columns) - len(table.rows)
    if hidden:
        click.echo(f"… and {format_count(hidden, 'more column')} (--all shows them)")


def _add_sizes(reports: Sequence[Inspection | TableReport]) -> list[ColumnReport]:
    """Return the columns of several files, with the sums of their sizes, largest first."""
    total_bytes = sum(column.total_bytes for report in reports for column in report.columns)
    columns = []
    for same in zip(*(report.columns for report in reports), strict=True):
        nulls = [column.null_count for column in same]
        buffer_bytes, dictionary_bytes = (
            sum(getattr(column, name) for column in same) for name in ("buffer_bytes", "dictionary_bytes")
        )
        columns.append(
            replace(
                same[0],
                buffer_bytes=buffer_bytes,
                dictionary_bytes=dictionary_bytes,
                share=fraction(buffer_bytes + dictionary_bytes, total_bytes),
                null_count=None if None in nulls else sum(filter(None, nulls)),
            )
        )
    return sorted(columns, key=lambda column: -column.total_bytes)


def _column_cells(column: ColumnReport, encoding: str, show_all: bool) -> list[str]:
    max_characters = None if show_all else _NAME_CHARACTERS
    return [
        to_printable(column.name, max_characters) or "(no name)",
        to_printable(column.field.type_without_children, max_characters),
        encoding,
        f"{column.total_bytes:,}",
        format_size(column.total_bytes),
        format_percent(column.share),
    ]


def _encoding_text(column: ColumnReport, report: Inspection | TableReport) -> str:
    """Return the encoding of a column: plain, dictionary or run-end encoded, and the codecs of the bodies."""
    if not isinstance(report, Inspection):
        return report.encodings[column.index]
    kind = column.field.type_without_children.partition("<")[0]
    parts = [kind.replace("_", "-")] if column.field.dictionary is not None or kind.startswith("run_end") else ["plain"]
    return " + ".join([*parts, *report.encoding.codecs])
