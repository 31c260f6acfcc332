"""Tables on standard output: as wide as the terminal, or without line breaks if it is not a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

_UNLIMITED_WIDTH = 1 << 24
_COLUMN_GAP = 2


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
