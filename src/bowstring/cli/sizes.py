"""`bowstring sizes`: one line a column, largest first, with its encoding and its share."""

from __future__ import annotations

import json
from typing import Any

import click

from bowstring.cli.streams import PATH, given, max_piped_option, named
from bowstring.cli.tables import page, plain_table, terminal_width
from bowstring.inspection.inspector import inspect
from bowstring.inspection.report import ColumnReport, Inspection
from bowstring.inspection.text import human_bytes, percent, printable

FORMAT_VERSION = 1
_COLUMNS_SHOWN = 100
_NAME_CHARACTERS = 60
_TITLES = ("column", "type", "encoding", "bytes", "size", "share")


@click.command()
@click.argument("file", required=False, type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Write all columns as JSON, sizes in bytes.")
@click.option("--all", "show_all", is_flag=True, help=f"Show all columns, not only the {_COLUMNS_SHOWN} largest.")
@max_piped_option
def sizes(file: str | None, *, as_json: bool, show_all: bool, max_piped_bytes: int) -> None:
    """Tell what each column of an Arrow file or stream takes, as stored, largest first: a line each.

    FILE is a path, or - for standard input; without it, standard input is read where it is no terminal. Only headers
    are read, never the data.
    """
    found = inspect(given(file), max_piped_bytes=max_piped_bytes)
    if as_json:
        click.echo(json.dumps(_document(named(file), found), indent=2))
        return
    limit = None if show_all else _COLUMNS_SHOWN
    table = plain_table(*((title, title in _TITLES[3:]) for title in _TITLES))
    rows = [_cells(column, found, show_all) for column in found.columns_by_size()[:limit]]
    room = terminal_width()
    if room is not None and not show_all:
        rows = _narrowed(rows, room)
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


def _narrowed(rows: list[list[str]], width: int) -> list[list[str]]:
    """The rows with names and types cut so that the numbers have room in a terminal of so many columns."""
    widths = [max(map(len, (title, *cells))) for title, *cells in zip(_TITLES, *rows, strict=True)]
    room = width - sum(widths[2:]) - 2 * (len(widths) - 1)
    types = max(6, min(widths[1], room // 3, room - 12))
    names = max(6, room - types)
    return [[printable(name, names), printable(kind, types), *others] for name, kind, *others in rows]


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
