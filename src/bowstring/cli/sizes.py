"""`bowstring sizes`: the size of each column, largest first, with its encoding and share."""

from __future__ import annotations

from typing import Any

import click

from bowstring.cli.input_output import echo_json, resolve_source, source_name
from bowstring.cli.options import all_option, file_argument, json_option, max_piped_bytes_option
from bowstring.cli.terminal_tables import borderless_table, open_console, terminal_width
from bowstring.errors import format_count
from bowstring.inspection.printable_text import format_percent, format_size, to_printable
from bowstring.inspection.report import ColumnReport, Inspection
from bowstring.inspection.report_builder import inspect

_COLUMNS_SHOWN = 100
_NAME_CHARACTERS, _MIN_CHARACTERS = 60, 6
_TITLES = ("column", "type", "encoding", "bytes", "size", "share")


@click.command()
@file_argument
@json_option("Write all columns as JSON, sizes in bytes.")
@all_option(f"Show all columns, not only the {_COLUMNS_SHOWN} largest.")
@max_piped_bytes_option
def sizes(file: str | None, *, as_json: bool, show_all: bool, max_piped_bytes: int) -> None:
    """Show the size of each column of an Arrow file or stream, as stored, largest first.

    FILE is a path or URL, or - for standard input. If FILE is omitted, standard input is read, unless it is a
    terminal. Only headers are read, never the data.
    """
    inspection = inspect(resolve_source(file), max_piped_bytes=max_piped_bytes)
    if as_json:
        echo_json(_to_json(source_name(file), inspection))
        return
    limit = None if show_all else _COLUMNS_SHOWN
    titles = list(_TITLES)
    rows = [_column_cells(column, inspection, show_all) for column in inspection.columns_by_size()[:limit]]
    width = terminal_width()
    if width is not None and not show_all:
        titles, rows = _fit_columns(rows, width)
    table = borderless_table(*((title, title in _TITLES[3:]) for title in titles))
    for row in rows:
        table.add_row(*row)
    with open_console() as console:
        console.print(table)
    hidden = len(inspection.columns) - len(table.rows)
    if hidden:
        click.echo(f"… and {format_count(hidden, 'more column')} (--all shows them)")


def _column_cells(column: ColumnReport, inspection: Inspection, show_all: bool) -> list[str]:
    max_characters = None if show_all else _NAME_CHARACTERS
    return [
        to_printable(column.name, max_characters) or "(no name)",
        to_printable(column.field.type_without_children, max_characters),
        _encoding_text(column, inspection),
        f"{column.total_bytes:,}",
        format_size(column.total_bytes),
        format_percent(column.share),
    ]


def _fit_columns(rows: list[list[str]], width: int) -> tuple[list[str], list[list[str]]]:
    """Return titles and rows that fit a terminal of `width` characters.

    Names and types are truncated. If that is not enough, the sizes in bytes are removed, then the encodings.
    """
    columns = {title: cells for title, *cells in zip(_TITLES, *rows, strict=True)}
    for title in ("", "bytes", "encoding"):
        columns.pop(title, None)
        widths = {title: max(map(len, (title, *cells))) for title, cells in columns.items()}
        available = width - sum(widths.values()) - 2 * (len(widths) - 1) + widths["column"] + widths["type"]
        if available >= min(widths["column"], _MIN_CHARACTERS) + min(widths["type"], _MIN_CHARACTERS):
            break
    type_width = max(_MIN_CHARACTERS, min(widths["type"], available // 3, available - 12))
    name_width = max(_MIN_CHARACTERS, available - type_width)
    columns["column"] = [to_printable(name, name_width) for name in columns["column"]]
    columns["type"] = [to_printable(type_text, type_width) for type_text in columns["type"]]
    return list(columns), list(map(list, zip(*columns.values(), strict=True)))


def _encoding_text(column: ColumnReport, inspection: Inspection) -> str:
    """Return the encoding of a column: plain, dictionary or run-end encoded, and the codecs of the bodies."""
    kind = column.field.type_without_children.partition("<")[0]
    parts = [kind.replace("_", "-")] if column.field.dictionary is not None or kind.startswith("run_end") else ["plain"]
    return " + ".join([*parts, *inspection.encoding.codecs])


def _to_json(name: str, inspection: Inspection) -> dict[str, Any]:
    return {
        "source": name,
        "rows": inspection.rows,
        "bytes": inspection.bytes.buffers,
        "columns": [
            {
                "index": column.index,
                "name": column.name,
                "type": column.field.type,
                "encoding": _encoding_text(column, inspection),
                "bytes": column.total_bytes,
                "share": round(column.share, 6),
                "null_count": column.null_count,
            }
            for column in inspection.columns_by_size()
        ],
    }
