"""Tables without borders on standard output, fitted to the width of a terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import click

from bowstring.display.printable_text import display_width, fit_to_width
from bowstring.display.tables import align_cells

COLUMN_GAP = "  "
# Narrower columns show nothing useful: instead, other columns are dropped.
_MIN_CHARACTERS = 6


@dataclass(frozen=True, slots=True)
class ColumnFit:
    """How columns with these titles are fitted to a narrow terminal.

    The `shrinkable` columns are truncated, the widest first; if that is not enough, the `droppable` columns are removed
    one after the other. With `wraps_last` the last column continues below, between words.
    """

    shrinkable: Sequence[str] = ()
    droppable: Sequence[str] = ()
    wraps_last: bool = False


def terminal_width() -> int | None:
    """Return the width of the terminal in characters, or None if standard output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Sequence[str] = (),
    fit: ColumnFit | None = None,
    *,
    indent: str = "",
    colors: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Print printable texts as a table, in which `numbers` are aligned to the right; `fit` fits it to a terminal.

    `colors` are the colors of some texts. There is no header if all titles are empty.
    """
    columns = [[title, *cells] for title, *cells in zip(titles, *rows, strict=True)]
    width = None if fit is None else terminal_width()
    if fit is not None and width is not None:
        columns = _fit_columns(columns, width - len(indent), fit)
    widths = [max(map(display_width, column)) for column in columns]
    aligned = [align_cells(column, size, column[0] in numbers) for column, size in zip(columns, widths, strict=True)]
    header, *lines = zip(*aligned, strict=True)
    if any(titles):
        click.secho(indent + COLUMN_GAP.join(header).rstrip(), dim=True)
    start_width = len(indent) + sum(widths[:-1]) + len(COLUMN_GAP) * (len(widths) - 1)
    for *cells, last in lines:
        parts = [last.rstrip()]
        if fit is not None and fit.wraps_last and width is not None:
            parts = textwrap.wrap(last, max(width - start_width, 1), break_on_hyphens=False) or [""]
        colored = [click.style(cell, fg=colors[text]) if (text := cell.strip()) in colors else cell for cell in cells]
        start = indent + "".join(cell + COLUMN_GAP for cell in colored)
        click.echo((start + f"\n{' ' * start_width}".join(parts)).rstrip())


def _fit_columns(columns: list[list[str]], width: int, fit: ColumnFit) -> list[list[str]]:
    """Return columns that fit side by side into `width` characters; the first cell of each is its title."""
    for title in (None, *fit.droppable):
        columns = [column for column in columns if column[0] != title]
        widths = [max(map(display_width, column)) for column in columns]
        if fit.wraps_last:  # longer words are broken
            words = (word for cell in columns[-1] for word in cell.split(" "))
            widths[-1] = min(max(map(display_width, words)), width * 2 // 3)
        is_shrinkable = [column[0] in fit.shrinkable for column in columns]
        sizes = [size for size, shrinks in zip(widths, is_shrinkable, strict=True) if shrinks]
        available = width - len(COLUMN_GAP) * (len(columns) - 1) - (sum(widths) - sum(sizes))
        if sum(min(size, _MIN_CHARACTERS) for size in sizes) <= available:
            break
    limit = max(sizes, default=0)
    while sum(min(size, limit) for size in sizes) > max(available, 1) and limit > 1:
        limit -= 1
    return [
        [fit_to_width(cell, limit) for cell in column] if shrinks else column
        for column, shrinks in zip(columns, is_shrinkable, strict=True)
    ]
