"""Rows on standard output: a table for people, JSON lines and CSV for programs. What `head` and `cat` share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import le
from typing import Any, Literal, TypeAlias, TypeVar

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bowstring.arrays.record_batch import RecordBatch
from bowstring.datatypes.field import Schema
from bowstring.errors import UsageError
from bowstring.inspection.text import printable
from bowstring.inspection.values import csv_line, json_line, rows_of, text_of, together
from bowstring.ipc.file import FileReader
from bowstring.ipc.stream import StreamReader

CELL_CHARACTERS = 40
COLUMNS_SHOWN = 100
_GAP = 2
_TABLE_ROWS, _TABLE_CELLS = 500, 5000
_Row: TypeAlias = Sequence[Any]
_Rows: TypeAlias = Iterable[_Row]
_Command = TypeVar("_Command", bound=Callable[..., Any])


def column_option(command: _Command) -> _Command:
    """The option that chooses columns."""
    return click.option("-c", "--column", "columns", multiple=True, help="Only this column; may be repeated.")(command)


def one_by_one(reader: FileReader | StreamReader) -> Iterable[RecordBatch]:
    """The batches of a reader; from afar none is fetched before it is asked for, where iterating looks ahead."""
    return map(reader.get_batch, range(len(reader))) if isinstance(reader, FileReader) else reader


class First:
    """The first `limit` rows of batches, or all of them, as batches; none is taken that is not needed."""

    def __init__(self, batches: Iterable[RecordBatch], limit: int | None) -> None:
        self._batches = iter(batches)
        self._left = limit
        self._is_cut = False

    def __iter__(self) -> Iterator[RecordBatch]:
        while self._left is None or self._left > 0:
            batch = next(self._batches, None)
            if batch is None:
                return
            if self._left is not None:
                self._is_cut = batch.num_rows > self._left
                batch = batch.slice(0, self._left)
                self._left -= batch.num_rows
            yield batch

    def has_more(self) -> bool:
        """Whether there are rows beyond those, which are through."""
        return self._is_cut or any(batch.num_rows for batch in self._batches)


def by_batch(batches: Iterable[RecordBatch], columns: int | None = None) -> Iterator[_Rows]:
    """The rows of each batch, the first `columns` in them. What is made of them is to be written before the next batch
    is asked for, which may be long in coming.
    """
    for number, batch in enumerate(batches):
        is_wide = columns is not None and columns < batch.num_columns
        part = batch.select(range(columns)) if is_wide and columns is not None else batch
        yield rows_of(part, where=f"record batch {number}, ")


def write_json_lines(schema: Schema, parts: Iterable[_Rows]) -> None:
    """Write an object a row; on a terminal in ASCII, so that no value steers it. Raises `UsageError` for twin names."""
    names, is_terminal = schema.names, sys.stdout.isatty()
    twin = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twin is not None:
        raise UsageError(f"two columns are called {twin!r}: a JSON object has one of them only; take --format csv")
    _write((json_line(names, row, is_terminal) for row in rows) for rows in parts)


def write_csv(schema: Schema, parts: Iterable[_Rows]) -> None:
    """Write a line of names, then a line a row; on a terminal with control characters as escapes."""
    shown: Callable[[str], str] = printable if sys.stdout.isatty() else str

    def line(cells: Iterable[str | None]) -> str:
        return csv_line([None if cell is None else shown(cell) for cell in cells])

    _write(chain([[line(schema.names)]], ((line(map(text_of, row)) for row in rows) for rows in parts)))


def _write(parts: Iterable[Iterable[str]]) -> None:
    out = sys.stdout.buffer
    sys.stdout.flush()
    for lines in parts:
        for some in together(lines):
            out.write(some)
        out.flush()


def write_table(
    schema: Schema, parts: Iterable[_Rows], whole: bool = False, is_quiet: Callable[[], bool] = bool
) -> None:
    """Print names, types and rows as tables of up to 500 rows, or of 5,000 cells; on a terminal as many columns as fit.

    Cells are cut to 40 characters, unless they are wanted `whole`. A terminal is shown what is there where it
    `is_quiet`, as nothing more has come yet; what comes then goes on below it, as long as it is no wider.
    """
    console = Console(markup=False, highlight=False, emoji=False)
    width = console.width if console.is_terminal else None
    cut = None if whole else CELL_CHARACTERS
    shown = len(schema) if whole else COLUMNS_SHOWN
    names = [printable(name, cut) or "(no name)" for name in schema.names[:shown]]
    types = [printable(str(kind), cut) for kind in schema.types[:shown]]
    at_once = min(_TABLE_ROWS, max(1, _TABLE_CELLS // max(1, len(names))))
    before: list[int] = []
    for rows, goes_on in _tables(parts, at_once, bool if width is None else is_quiet):
        cells = [[_cell(value, cut) for value in row[:shown]] for row in rows]
        columns = [[names[i], types[i], *(row[i] for row in cells)] for i in range(len(names))]
        if width is not None and not whole:
            columns = _fitting(columns, width)
        widths = [max(map(cell_len, column)) for column in columns]
        is_more = goes_on and len(widths) >= len(before) and all(map(le, widths, before))
        if is_more:
            columns, widths = columns[: len(before)], before
        before = widths
        table = _table(columns, widths, schema, has_head=not is_more)
        console.width = width or max(1, sum(each + _GAP for each in widths))
        if width is None:
            with console.capture() as capture:
                console.print(table)
            click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))
        else:
            console.print(table)
    hidden = len(schema) - len(columns)
    if hidden:
        click.echo(f"and {hidden:,} more column{'' if hidden == 1 else 's'} (--all shows them)", err=True)


def _tables(parts: Iterable[_Rows], at_once: int, is_quiet: Callable[[], bool]) -> Iterator[tuple[list[_Row], bool]]:
    """The rows of each table, one at the least, and whether it goes on with the table before, which was not full."""
    held: list[_Row] = []
    is_first, goes_on = True, False
    for rows in parts:
        for row in rows:
            held.append(row)
            if len(held) == at_once:
                yield held, goes_on
                held, is_first, goes_on = [], False, False
        if held and is_quiet():
            yield held, goes_on
            held, is_first, goes_on = [], False, True
    if held or is_first:
        yield held, goes_on


def _table(columns: Sequence[Sequence[str]], widths: Sequence[int], schema: Schema, has_head: bool) -> Table:
    table = Table(box=None, show_header=has_head, header_style="bold", pad_edge=False, padding=(0, _GAP, 0, 0))
    for column, width, kind in zip(columns, widths, schema.types, strict=False):
        numeric = str(kind).startswith(("int", "uint", "float", "double", "half", "decimal"))
        justify: Literal["left", "right"] = "right" if numeric else "left"
        table.add_column(Text(column[0]), no_wrap=True, overflow="fold", justify=justify, min_width=width)
    if has_head:
        table.add_row(*(Text(column[1], style="dim") for column in columns))
    for row in zip(*(column[2:] for column in columns), strict=True):
        table.add_row(*map(Text, row))
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
