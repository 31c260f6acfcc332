"""`bowstring sizes`: one line a column, largest first, with its encoding and its share."""

from __future__ import annotations

import json
from typing import Any

import click

from bowstring.cli.input_output import PATH, given, max_piped_option, named
from bowstring.cli.tables import page, plain_table, terminal_width
from bowstring.inspection.inspector import inspect
from bowstring.inspection.report import ColumnReport, Inspection
from bowstring.inspection.text import human_bytes, percent, printable

FORMAT_VERSION = 1
_COLUMNS_SHOWN = 100
_NAME_CHARACTERS, _LEAST_CHARACTERS = 60, 6
_TITLES = ("column", "type", "encoding", "bytes", "size", "share")


@click.command()
@click.argument("file", required=False, type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Write all columns as JSON, sizes in bytes.")
@click.option("--all", "show_all", is_flag=True, help=f"Show all columns, not only the {_COLUMNS_SHOWN} largest.")
@max_piped_option
def sizes(file: str | None, *, as_json: bool, show_all: bool, max_piped_bytes: int) -> None:
    """Show the size of each column of an Arrow file or stream, as stored, largest first.

    FILE is a path, a URL, or - for standard input, which is also read if FILE is omitted and input is piped. Only
    headers are read, never the data.
    """
    found = inspect(given(file), max_piped_bytes=max_piped_bytes)
    if as_json:
        click.echo(json.dumps(_document(named(file), found), indent=2))
        return
    limit = None if show_all else _COLUMNS_SHOWN
    titles, rows = list(_TITLES), [_cells(column, found, show_all) for column in found.columns_by_size()[:limit]]
    room = terminal_width()
    if room is not None and not show_all:
        titles, rows = _narrowed(rows, room)
    table = plain_table(*((title, title in _TITLES[3:]) for title in titles))
    for row in rows:
        table.add_row(*row)
    with page() as console:
        console.print(table)
    left = len(found.columns) - len(table.rows)
    if left:
        click.echo(f"… and {left:,} more columns (--all shows them)")


def _cells(column: ColumnReport, found: Inspection, whole: bool) -> list[str]:
    cut = None if whole else _NAME_CHARACTERS
    return [
        printable(column.name, cut) or "(no name)",
        printable(column.field.head, cut),
        encoding(column, found),
        f"{column.total_bytes:,}",
        human_bytes(column.total_bytes),
        percent(column.share),
    ]


def _narrowed(rows: list[list[str]], width: int) -> tuple[list[str], list[list[str]]]:
    """The titles and rows for a terminal of so many columns: names and types cut so that the numbers have room; where
    there is none, without the sizes in bytes and then without the encodings.
    """
    columns = {title: cells for title, *cells in zip(_TITLES, *rows, strict=True)}
    for title in ("", "bytes", "encoding"):
        columns.pop(title, None)
        widths = {title: max(map(len, (title, *cells))) for title, cells in columns.items()}
        room = width - sum(widths.values()) - 2 * (len(widths) - 1) + widths["column"] + widths["type"]
        if room >= min(widths["column"], _LEAST_CHARACTERS) + min(widths["type"], _LEAST_CHARACTERS):
            break
    types = max(_LEAST_CHARACTERS, min(widths["type"], room // 3, room - 12))
    names = max(_LEAST_CHARACTERS, room - types)
    columns["column"] = [printable(name, names) for name in columns["column"]]
    columns["type"] = [printable(kind, types) for kind in columns["type"]]
    return list(columns), list(map(list, zip(*columns.values(), strict=True)))


def encoding(column: ColumnReport, found: Inspection) -> str:
    """How a column is stored: dictionary or run ends at its top, and what its bodies are compressed with."""
    kind = column.field.head.partition("<")[0]
    parts = [kind.replace("_", "-")] if column.field.dictionary is not None or kind.startswith("run_end") else ["plain"]
    return " + ".join([*parts, *found.encoding.codecs])


def _document(name: str, found: Inspection) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "source": name,
        "rows": found.rows,
        "bytes": found.bytes.buffers,
        "columns": [
            {
                "index": column.index,
                "name": column.name,
                "type": column.field.type,
                "encoding": encoding(column, found),
                "bytes": column.total_bytes,
                "share": round(column.share, 6),
                "null_count": column.null_count,
            }
            for column in found.columns_by_size()
        ],
    }
