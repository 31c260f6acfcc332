"""Tables on standard output: as wide as the terminal, or without line breaks if it is not a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bowstring.display.printable_text import fit_to_width

# In a pipe: more than any line has.
_UNLIMITED_WIDTH = 1 << 24
_COLUMN_GAP = 2
# Narrower columns show nothing useful: instead, trailing columns are dropped.
_MIN_CHARACTERS = 6


@contextmanager
def open_console() -> Iterator[Console]:
    """Yield a console for standard output, with lines of any length if it is not a terminal."""
    console = Console(markup=False, highlight=False, emoji=False)
    if console.is_terminal:
        yield console
        return
    console.width = _UNLIMITED_WIDTH
    with console.capture() as capture:
        yield console
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def terminal_width() -> int | None:
    """Return the width of the terminal in characters, or None if standard output is not a terminal."""
    console = Console()
    return console.width if console.is_terminal else None


def borderless_table(*columns: tuple[str, bool], is_folded: bool = False, has_header: bool = True) -> Table:
    """Return a table without borders. Each column has a title and a flag for numbers, which are aligned to the right.

    Each row is one line, unless `is_folded`: then long text is wrapped, and the table is indented.
    """
    padding = (0, 0, 0, _COLUMN_GAP) if is_folded else (0, _COLUMN_GAP, 0, 0)
    table = Table(box=None, show_header=has_header, padding=padding, pad_edge=is_folded, header_style="dim")
    for title, is_number in columns:
        is_line = is_number or not is_folded
        table.add_column(
            Text(title),
            justify="right" if is_number else "left",
            no_wrap=is_line,
            overflow="ellipsis" if is_line else "fold",
        )
    return table


def print_table(
    console: Console,
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Sequence[str],
    fit: ColumnFit | None = None,
) -> None:
    """Print a table without borders, in which `numbers` are aligned to the right; `fit` fits it to the console."""
    if fit is not None:
        titles, rows = fit_columns(titles, rows, console.width, fit)
    table = borderless_table(*((title, title in numbers) for title in titles))
    for row in rows:
        table.add_row(*row)
    console.print(table)


@dataclass(frozen=True, slots=True)
class ColumnFit:
    """How columns with these titles are fitted to a narrow terminal, so that no word is broken.

    The `shrinkable` columns are truncated, the widest first; if that is not enough, the `droppable` columns are removed
    one after the other. The `wrapped` columns get at least the width of their longest word, all others the width of
    their cells. Words longer than two thirds of the terminal are broken.
    """

    shrinkable: Sequence[str]
    droppable: Sequence[str] = ()
    wrapped: Sequence[str] = ()


def fit_columns(
    titles: Sequence[str], rows: Sequence[Sequence[str]], width: int, fit: ColumnFit
) -> tuple[list[str], list[list[str]]]:
    """Return titles and rows that fit side by side into `width` characters."""
    columns = {title: list(cells) for title, *cells in zip(titles, *rows, strict=True)}
    for dropped in (None, *fit.droppable):
        if dropped is not None:
            del columns[dropped]
        widths = {
            title: _minimal_width([title, *cells], width if title in fit.wrapped else None)
            for title, cells in columns.items()
        }
        available = width - _COLUMN_GAP * (len(columns) - 1)
        available -= sum(size for title, size in widths.items() if title not in fit.shrinkable)
        shrunk = [size for title, size in widths.items() if title in fit.shrinkable]
        if sum(min(size, _MIN_CHARACTERS) for size in shrunk) <= available:
            break
    limit = max(shrunk, default=0)
    while sum(min(size, limit) for size in shrunk) > max(available, 1) and limit > 1:
        limit -= 1
    for title in set(fit.shrinkable) & columns.keys():
        columns[title] = [fit_to_width(cell, limit) for cell in columns[title]]
    return list(columns), list(map(list, zip(*columns.values(), strict=True))) if rows else []


def _minimal_width(cells: Sequence[str], wrap_width: int | None) -> int:
    """Return the width of a column, with a `wrap_width` the width of its longest word, if that can be wrapped."""
    if wrap_width is None:
        return max(map(cell_len, cells), default=0)
    return min(max((cell_len(word) for cell in cells for word in cell.split(" ")), default=0), wrap_width * 2 // 3)


def rows_table(
    columns: Sequence[Sequence[str]], types: Sequence[str], widths: Sequence[int], has_header: bool = True
) -> Table:
    """Return a table of rows. Each column has its name, its type and its values; numbers are aligned to the right."""
    table = Table(box=None, show_header=has_header, header_style="bold", pad_edge=False, padding=(0, _COLUMN_GAP, 0, 0))
    for (name, *_), type_, width in zip(columns, types, widths, strict=False):
        is_number = type_.startswith(("int", "uint", "float", "double", "half", "decimal"))
        justify = "right" if is_number else "left"
        table.add_column(Text(name), no_wrap=True, overflow="fold", justify=justify, min_width=width)  # type: ignore[arg-type]
    if has_header:
        table.add_row(*(Text(column[1], style="dim") for column in columns))
    for row in zip(*(column[2:] for column in columns), strict=True):
        table.add_row(*map(Text, row))
    return table


def column_width(cells: Sequence[str]) -> int:
    """Return the width of a column on a terminal."""
    return max(map(cell_len, cells))


def columns_that_fit(columns: Sequence[Sequence[str]], width: int) -> Sequence[Sequence[str]]:
    """Return the first columns, at least one, that fit side by side."""
    remaining = width + _COLUMN_GAP
    for count, column in enumerate(columns):
        remaining -= column_width(column) + _COLUMN_GAP
        if count and remaining < 0:
            return columns[:count]
    return columns
