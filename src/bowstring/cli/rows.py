"""Rows on standard output: a table for people, JSON lines and CSV for programs. What `head` and `cat` share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bowstring.datatypes.field import Schema
from bowstring.errors import UsageError
from bowstring.inspection.text import printable
from bowstring.inspection.values import csv_line, json_line, rows_of, text_of, together
from bowstring.ipc.file import FileReader
from bowstring.ipc.stream import StreamReader
from bowstring.tabular.batch import RecordBatch

CELL_CHARACTERS = 40
COLUMNS_SHOWN = 100
_GAP = 2
_TABLE_ROWS, _TABLE_CELLS = 500, 5000
_Row = Sequence[Any]
_Command = TypeVar("_Command", bound=Callable[..., Any])


def column_option(command: _Command) -> _Command:
    """The option that chooses columns."""
    return click.option("-c", "--column", "columns", multiple=True, help="Only this column; may be repeated.")(command)


def one_by_one(reader: FileReader | StreamReader) -> Iterable[RecordBatch]:
    """The batches of a reader; from afar none is fetched before it is asked for, where iterating looks ahead."""
    return map(reader.get_batch, range(len(reader))) if isinstance(reader, FileReader) else reader


def limited(batches: Iterable[RecordBatch], limit: int | None, columns: int | None = None) -> Iterator[_Row]:
    """The rows of batches, the first `limit` of them and the first `columns` in them; no batch is taken that is not
    needed.
    """
    left = limit
    for number, batch in enumerate(batches if left is None or left > 0 else ()):
        part = batch if left is None else batch.slice(0, left)
        if columns is not None and columns < part.num_columns:
            part = part.select(range(columns))
        yield from rows_of(part, where=f"record batch {number}, ")
        if left is not None:
            left -= part.num_rows
            if left <= 0:
                return


def write_json_lines(schema: Schema, rows: Iterable[_Row]) -> None:
    """Write an object a row; on a terminal in ASCII, so that no value steers it. Raises `UsageError` for twin names."""
    names, is_terminal = schema.names, sys.stdout.isatty()
    twin = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twin is not None:
        raise UsageError(f"two columns are called {twin!r}: a JSON object has one of them only; take --format csv")
    _write(json_line(names, row, is_terminal) for row in rows)


def write_csv(schema: Schema, rows: Iterable[_Row]) -> None:
    """Write a line of names, then a line a row; on a terminal with control characters as escapes."""
    shown: Callable[[str], str] = printable if sys.stdout.isatty() else str
    _write(
        csv_line([None if cell is None else shown(cell) for cell in cells])
        for cells in _with_names(schema.names, (map(text_of, row) for row in rows))
    )


def _with_names(names: Sequence[str], rows: Iterable[Iterable[str | None]]) -> Iterator[Iterable[str | None]]:
    yield names
    yield from rows


def _write(lines: Iterator[str]) -> None:
    out = sys.stdout.buffer
    sys.stdout.flush()
    for some in together(lines):
        out.write(some)
    out.flush()


def write_table(schema: Schema, rows: Iterable[_Row], whole: bool = False) -> None:
    """Print names, types and rows as tables of up to 500 rows, or of 5,000 cells; on a terminal as many columns as fit.

    Cells are cut to 40 characters, unless they are wanted `whole`.
    """
    console = Console(markup=False, highlight=False, emoji=False)
    width = console.width if console.is_terminal else None
    cut, left = None if whole else CELL_CHARACTERS, iter(rows)
    shown = len(schema) if whole else COLUMNS_SHOWN
    names = [printable(name, cut) or "(no name)" for name in schema.names[:shown]]
    types = [printable(str(kind), cut) for kind in schema.types[:shown]]
    at_once = min(_TABLE_ROWS, max(1, _TABLE_CELLS // max(1, len(names))))
    is_first = True
    while (cells := [[_cell(value, cut) for value in row[:shown]] for row in islice(left, at_once)]) or is_first:
        columns = [[names[i], types[i], *(row[i] for row in cells)] for i in range(len(names))]
        if width is not None and not whole:
            columns = _fitting(columns, width)
        table = _table(columns, len(cells), schema)
        console.width = width or max(1, sum(max(map(cell_len, column)) + _GAP for column in columns))
        if width is None:
            with console.capture() as capture:
                console.print(table)
            click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))
        else:
            console.print(table)
        is_first = False
    hidden = len(schema) - len(columns)
    if hidden:
        click.echo(f"and {hidden:,} more column{'' if hidden == 1 else 's'} (--all shows them)", err=True)


def _table(columns: Sequence[Sequence[str]], row_count: int, schema: Schema) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, _GAP, 0, 0))
    for index, column in enumerate(columns):
        numeric = str(schema.types[index]).startswith(("int", "uint", "float", "double", "half", "decimal"))
        table.add_column(Text(column[0]), no_wrap=True, overflow="fold", justify="right" if numeric else "left")
    for number in range(row_count + 1):
        table.add_row(*(Text(column[number + 1], style="" if number else "dim") for column in columns))
    return table


def _cell(value: Any, cut: int | None) -> str:
    if isinstance(value, str) and cut is not None:
        value = value[: cut + 1]  # the rest need not be looked at
    text = text_of(value)
    return "null" if text is None else printable(text, cut)


def _fitting(columns: list[list[str]], width: int) -> list[list[str]]:
    """The first columns, one at the least, that stand side by side."""
    fitting, left = columns[:1], width - sum(max(map(cell_len, column)) for column in columns[:1])
    for column in columns[1:]:
        left -= max(map(cell_len, column)) + _GAP
        if left < 0:
            break
        fitting.append(column)
    return fitting
