"""Writing rows to standard output as a table, JSON lines or CSV, for `head` and `cat`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import le
from typing import Any, TypeAlias

import click

from bowstring.arrays.record_batch import RecordBatch
from bowstring.cli.terminal_tables import COLUMN_GAP, terminal_width
from bowstring.datatypes.schema import Schema
from bowstring.display.printable_text import display_width, to_printable
from bowstring.display.tables import align_cells
from bowstring.errors import format_count
from bowstring.inspection.formatting import (
    check_unique_names,
    encode_lines,
    format_csv_line,
    format_json_line,
    format_text,
    iterate_rows,
)
from bowstring.ipc.file import FileReader

# A few columns of long texts still fit a terminal; `--all` truncates nothing.
_CELL_CHARACTERS = 40
_COLUMNS_SHOWN = 100
# The rows in memory at a time, which determine the width of columns.
_TABLE_ROWS, _TABLE_CELLS = 500, 5000
_NUMBER_TYPES = ("int", "uint", "float", "double", "half", "decimal")
_Row: TypeAlias = Sequence[Any]
_Rows: TypeAlias = Iterable[_Row]


def batches_without_readahead(batches: Iterable[RecordBatch]) -> Iterable[RecordBatch]:
    """Return the batches, without the prefetching of iterating over remote files."""
    return map(batches.get_batch, range(len(batches))) if isinstance(batches, FileReader) else batches


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


def write_rows(
    schema: Schema, batches: Iterable[RecordBatch], row_format: str, show_all: bool, is_input_idle: Callable[[], bool]
) -> None:
    """Write the rows of batches as `row_format`: table, jsonl or csv; see `write_table` for the other parameters."""
    if row_format == "table":
        write_table(schema, _rows_by_batch(batches, None if show_all else _COLUMNS_SHOWN), show_all, is_input_idle)
    else:
        (write_csv if row_format == "csv" else write_json_lines)(schema, _rows_by_batch(batches))


def _rows_by_batch(batches: Iterable[RecordBatch], columns: int | None = None) -> Iterator[_Rows]:
    """Yield the rows of each batch, limited to the first `columns`.

    Write them before requesting the next batch, which can take long to arrive.
    """
    for number, batch in enumerate(batches):
        is_wide = columns is not None and columns < batch.num_columns
        selected = batch.select(range(columns)) if is_wide and columns is not None else batch
        yield iterate_rows(selected, error_prefix=f"record batch {number}, ")


def write_json_lines(schema: Schema, rows_by_batch: Iterable[_Rows]) -> None:
    """Write one object per row, in ASCII on a terminal. Raises `InvalidArgumentError` for duplicate column names."""
    names, is_terminal = schema.names, sys.stdout.isatty()
    check_unique_names(names, "use --format csv")
    _write_lines((format_json_line(names, row, is_terminal) for row in rows) for rows in rows_by_batch)


def write_csv(schema: Schema, rows_by_batch: Iterable[_Rows]) -> None:
    """Write a header and one line per row, with control characters as escapes on a terminal."""
    escape: Callable[[str], str] = to_printable if sys.stdout.isatty() else str

    def escaped_line(cells: Iterable[str | None]) -> str:
        return format_csv_line([None if cell is None else escape(cell) for cell in cells])

    _write_lines(
        chain(
            [[escaped_line(schema.names)]],
            ((escaped_line(map(format_text, row)) for row in rows) for rows in rows_by_batch),
        )
    )


def _write_lines(lines_by_batch: Iterable[Iterable[str]]) -> None:
    out = sys.stdout.buffer
    sys.stdout.flush()
    for lines in lines_by_batch:
        for chunk in encode_lines(lines):
            out.write(chunk)
        out.flush()


def write_table(
    schema: Schema, rows_by_batch: Iterable[_Rows], show_all: bool = False, is_input_idle: Callable[[], bool] = bool
) -> None:
    """Print names, types and rows as tables of up to 500 rows, or of 5,000 cells; on a terminal as many columns as fit.

    Cells are truncated to 40 characters, or complete if `show_all`. A terminal shows the rows received so far whenever
    `is_input_idle` returns True; later rows continue the table below if they are not wider.
    """
    width = terminal_width()
    max_characters = None if show_all else _CELL_CHARACTERS
    column_limit = len(schema) if show_all else _COLUMNS_SHOWN
    types = list(map(str, schema.types[:column_limit]))
    headings = [
        [to_printable(name, max_characters) or "(no name)", to_printable(type_, max_characters)]
        for name, type_ in zip(schema.names, types, strict=False)
    ]
    rows_per_table = min(_TABLE_ROWS, max(1, _TABLE_CELLS // max(1, len(types))))
    previous_widths: list[int] = []
    for rows, is_continuation in _split_into_tables(
        rows_by_batch, rows_per_table, bool if width is None else is_input_idle
    ):
        cells = [[_format_cell(value, max_characters) for value in row[:column_limit]] for row in rows]
        columns: Sequence[Sequence[str]] = [
            [*heading, *(row[i] for row in cells)] for i, heading in enumerate(headings)
        ]
        if width is not None and not show_all:
            columns = _columns_that_fit(columns, width)
        widths = [max(map(display_width, column)) for column in columns]
        is_same_table = (
            is_continuation and len(widths) >= len(previous_widths) and all(map(le, widths, previous_widths))
        )
        if is_same_table:
            columns, widths = columns[: len(previous_widths)], previous_widths
        previous_widths = widths
        if columns:
            _print_columns(columns, types, widths, has_header=not is_same_table)
    hidden = len(schema) - len(columns)
    if hidden:
        click.echo(f"and {format_count(hidden, 'more column')} (--all shows them)", err=True)


def _columns_that_fit(columns: Sequence[Sequence[str]], width: int) -> Sequence[Sequence[str]]:
    """Return the first columns, at least one, that fit side by side."""
    remaining = width + len(COLUMN_GAP)
    for count, column in enumerate(columns):
        remaining -= max(map(display_width, column)) + len(COLUMN_GAP)
        if count and remaining < 0:
            return columns[:count]
    return columns


def _print_columns(
    columns: Sequence[Sequence[str]], types: Sequence[str], widths: Sequence[int], has_header: bool
) -> None:
    """Print columns, each with its name, its type and its values; numbers are aligned to the right."""
    aligned = [
        align_cells(column, width, type_.startswith(_NUMBER_TYPES))
        for column, type_, width in zip(columns, types, widths, strict=False)
    ]
    names, types_line, *lines = (COLUMN_GAP.join(cells).rstrip() for cells in zip(*aligned, strict=True))
    if has_header:
        lines[:0] = [click.style(names, bold=True), click.style(types_line, dim=True)]
    click.echo("\n".join(lines))


def _split_into_tables(
    rows_by_batch: Iterable[_Rows], rows_per_table: int, is_input_idle: Callable[[], bool]
) -> Iterator[tuple[list[_Row], bool]]:
    """Yield the rows of each table, at least one table, and whether it continues the previous one."""
    pending: list[_Row] = []
    is_first, is_continuation = True, False
    for rows in rows_by_batch:
        for row in rows:
            pending.append(row)
            if len(pending) == rows_per_table:
                yield pending, is_continuation
                pending, is_first, is_continuation = [], False, False
        if pending and is_input_idle():
            yield pending, is_continuation
            pending, is_first, is_continuation = [], False, True
    if pending or is_first:
        yield pending, is_continuation


def _format_cell(value: Any, max_characters: int | None) -> str:
    if isinstance(value, str) and max_characters is not None:
        value = value[: max_characters + 1]  # the rest is not shown
    text = format_text(value)
    return "null" if text is None else to_printable(text, max_characters)
