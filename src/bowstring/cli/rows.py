"""Writing rows to standard output as a table, JSON lines or CSV, for `head` and `cat`."""

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
from bowstring.inspection.values import csv_line, format_text, iterate_rows, join_lines, json_line
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
    """Add the option that selects columns."""
    return click.option("-c", "--column", "columns", multiple=True, help="Select this column; may be repeated.")(
        command
    )


def without_readahead(reader: FileReader | StreamReader) -> Iterable[RecordBatch]:
    """Return the batches of a reader, without the prefetching of its iterator for remote files."""
    return map(reader.get_batch, range(len(reader))) if isinstance(reader, FileReader) else reader


class LimitedBatches:
    """Batches up to `limit` rows, or all rows for None. No batch is read that is not needed."""

    def __init__(self, batches: Iterable[RecordBatch], limit: int | None) -> None:
        self._batches = iter(batches)
        self._remaining = limit
        self._is_cut = False

    def __iter__(self) -> Iterator[RecordBatch]:
        while self._remaining is None or self._remaining > 0:
            batch = next(self._batches, None)
            if batch is None:
                return
            if self._remaining is not None:
                self._is_cut = batch.num_rows > self._remaining
                batch = batch.slice(0, self._remaining)
                self._remaining -= batch.num_rows
            yield batch

    def has_more(self) -> bool:
        """Return whether there are more rows, after the iteration."""
        return self._is_cut or any(batch.num_rows for batch in self._batches)


def rows_by_batch(batches: Iterable[RecordBatch], columns: int | None = None) -> Iterator[_Rows]:
    """Yield the rows of each batch, limited to the first `columns`.

    Write them before requesting the next batch, which can take long to arrive.
    """
    for number, batch in enumerate(batches):
        is_wide = columns is not None and columns < batch.num_columns
        part = batch.select(range(columns)) if is_wide and columns is not None else batch
        yield iterate_rows(part, where=f"record batch {number}, ")


def write_json_lines(schema: Schema, parts: Iterable[_Rows]) -> None:
    """Write one object per row, in ASCII on a terminal. Raises `UsageError` for duplicate column names."""
    names, is_terminal = schema.names, sys.stdout.isatty()
    twin = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twin is not None:
        raise UsageError(
            f"two columns have the name {twin!r}, but the keys of a JSON object are unique: use --format csv"
        )
    _write((json_line(names, row, is_terminal) for row in rows) for rows in parts)


def write_csv(schema: Schema, parts: Iterable[_Rows]) -> None:
    """Write a header and one line per row, with control characters as escapes on a terminal."""
    escape: Callable[[str], str] = printable if sys.stdout.isatty() else str

    def line(cells: Iterable[str | None]) -> str:
        return csv_line([None if cell is None else escape(cell) for cell in cells])

    _write(chain([[line(schema.names)]], ((line(map(format_text, row)) for row in rows) for rows in parts)))


def _write(parts: Iterable[Iterable[str]]) -> None:
    out = sys.stdout.buffer
    sys.stdout.flush()
    for lines in parts:
        for some in join_lines(lines):
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
    max_characters = None if whole else CELL_CHARACTERS
    column_limit = len(schema) if whole else COLUMNS_SHOWN
    names = [printable(name, max_characters) or "(no name)" for name in schema.names[:column_limit]]
    types = [printable(str(kind), max_characters) for kind in schema.types[:column_limit]]
    rows_per_table = min(_TABLE_ROWS, max(1, _TABLE_CELLS // max(1, len(names))))
    previous_widths: list[int] = []
    for rows, continues in _split_tables(parts, rows_per_table, bool if width is None else is_quiet):
        cells = [[_cell(value, max_characters) for value in row[:column_limit]] for row in rows]
        columns = [[names[i], types[i], *(row[i] for row in cells)] for i in range(len(names))]
        if width is not None and not whole:
            columns = _columns_that_fit(columns, width)
        widths = [max(map(cell_len, column)) for column in columns]
        is_more = continues and len(widths) >= len(previous_widths) and all(map(le, widths, previous_widths))
        if is_more:
            columns, widths = columns[: len(previous_widths)], previous_widths
        previous_widths = widths
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


def _split_tables(
    parts: Iterable[_Rows], rows_per_table: int, is_quiet: Callable[[], bool]
) -> Iterator[tuple[list[_Row], bool]]:
    """Yield the rows of each table, at least one table, and whether it continues the previous one."""
    pending: list[_Row] = []
    is_first, continues = True, False
    for rows in parts:
        for row in rows:
            pending.append(row)
            if len(pending) == rows_per_table:
                yield pending, continues
                pending, is_first, continues = [], False, False
        if pending and is_quiet():
            yield pending, continues
            pending, is_first, continues = [], False, True
    if pending or is_first:
        yield pending, continues


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


def _cell(value: Any, max_characters: int | None) -> str:
    if isinstance(value, str) and max_characters is not None:
        value = value[: max_characters + 1]  # the rest is not shown
    text = format_text(value)
    return "null" if text is None else printable(text, max_characters)


def _columns_that_fit(columns: list[list[str]], width: int) -> list[list[str]]:
    """Return the first columns, at least one, that fit side by side."""
    fitting, remaining = columns[:1], width - sum(max(map(cell_len, column)) for column in columns[:1])
    for column in columns[1:]:
        remaining -= max(map(cell_len, column)) + _GAP
        if remaining < 0:
            break
        fitting.append(column)
    return fitting
