"""Tables on standard output: as wide as the terminal, or without line breaks if there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDE = 1000


@contextmanager
def open_console() -> Iterator[Console]:
    """Yield a console for standard output, with lines of any length if it is not a terminal."""
    console = Console(markup=False, highlight=False, emoji=False)
    if console.is_terminal:
        yield console
        return
    console.width = _WIDE
    with console.capture() as capture:
        yield console
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def terminal_width() -> int | None:
    """Return the width of the terminal in characters, or None if standard output is not a terminal."""
    console = Console()
    return console.width if console.is_terminal else None


def plain_table(*columns: tuple[str, bool], folds: bool = False, header: bool = True) -> Table:
    """Return a table without borders. Each column has a title and a flag for numbers, which are aligned to the right.

    Each row is one line, unless `folds`: then long text is wrapped, and the table is indented.
    """
    padding = (0, 0, 0, 2) if folds else (0, 2, 0, 0)
    table = Table(box=None, show_header=header, padding=padding, pad_edge=folds, header_style="dim")
    for title, is_number in columns:
        is_line = is_number or not folds
        table.add_column(
            Text(title),
            justify="right" if is_number else "left",
            no_wrap=is_line,
            overflow="ellipsis" if is_line else "fold",
        )
    return table
