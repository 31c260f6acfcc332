"""What the demo prints: some rows, the check against Spark, and the three roads side by side."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from bowstring.inspection.text import human_bytes, printable

if TYPE_CHECKING:
    from rich.console import Console

    from bowstring.cli.demo.methods import Arrival

MAX_COLUMNS = 10
MAX_CELLS = 32
_GAP = 2


def time_text(seconds: float) -> str:
    """Seconds, or milliseconds for short times."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def spread_text(seconds: Sequence[float]) -> str:
    """The least and the most of some times, in the unit of the most."""
    least, most = min(seconds), max(seconds)
    return f"{least:.2f}–{most:.2f} s" if most >= 1 else f"{least * 1000:.1f}–{most * 1000:.1f} ms"


def show_sample(console: Console, sample: dict[str, Any]) -> None:
    """Print a few rows, as many columns as there is room for."""
    columns = [
        [printable(cell) for cell in cells]
        for cells in zip(sample["names"], sample["types"], *sample["rows"], strict=True)
    ]
    shown = _fitting(columns, console.width)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, _GAP, 0, 0))
    for name, *_ in shown:
        table.add_column(Text(name), overflow="ellipsis", no_wrap=True, max_width=MAX_CELLS)
    for number, cells in enumerate(zip(*(column[1:] for column in shown), strict=True)):
        table.add_row(*(Text(cell, style="" if number else "dim") for cell in cells))
    console.print(table)
    left = len(columns) - len(shown)
    if left:
        console.print(f"[dim]and {left} more column{'s' if left > 1 else ''}[/dim]")


def _fitting(columns: list[list[str]], width: int) -> list[list[str]]:
    """The first columns, one at the least, that stand side by side without being cut to less than `MAX_CELLS`."""
    fitting = columns[:1]
    left = width - sum(map(_width, fitting))
    for column in columns[1:MAX_COLUMNS]:
        left -= _width(column) + _GAP
        if left < 0:
            break
        fitting.append(column)
    return fitting


def _width(column: list[str]) -> int:
    return min(MAX_CELLS, max(map(cell_len, column)))


def show_check(console: Console, arrival: Arrival, differences: list[str]) -> None:
    """Print whether what arrived is what Spark says it is."""
    assert arrival.facts is not None
    sums = sum(column.total is not None for column in arrival.facts.columns)
    if differences:
        console.print("[bold red]It is not what Spark says:[/bold red]")
        for difference in differences:
            console.print(f"  {escape(difference)}", highlight=False)
        return
    console.print(
        f"[green]✓[/green] {arrival.facts.rows:,} rows are what Spark says: null counts of all columns "
        f"({len(arrival.facts.columns)}), sums of the numeric ones ({sums}).",
        highlight=False,
    )


def show_roads(console: Console, arrivals: dict[str, list[Arrival]]) -> None:
    """Print the roads side by side, a column each, ours first: medians of all rounds, over the spread of the times."""
    rounds = len(next(iter(arrivals.values())))
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("to another process")
    for number, road in enumerate(arrivals):
        style = "" if number else "bold green"
        table.add_column(road, justify="right", style=style, header_style=f"bold {style}")
    for title, value, shown in _AMOUNTS:
        table.add_row(title, *(shown(statistics.median_low(map(value, taken))) for taken in arrivals.values()))
    for title, time in _TIMES:
        times = [[time(arrival) for arrival in taken] for taken in arrivals.values()]
        table.add_row(title, *(time_text(statistics.median(each)) for each in times))
        if rounds > 1:
            table.add_row("", *(Text(spread_text(each), style="not bold dim") for each in times))
    console.print(table)
    if rounds > 1:
        note = f"medians of {rounds} rounds in which the roads took turns; the least and the most below"
        console.print(note, style="dim", highlight=False)


_AMOUNTS: tuple[tuple[str, Callable[[Arrival], int], Callable[[int], str]], ...] = (
    ("rows", lambda a: a.rows, lambda rows: f"{rows:,}"),
    ("bytes", lambda a: a.size_bytes, human_bytes),
    ("bytes copied there", lambda a: a.copied_bytes, human_bytes),
)

_TIMES: tuple[tuple[str, Callable[[Arrival], float]], ...] = (
    ("Spark hands it over", lambda a: a.produced_s),
    ("time to first batch", lambda a: a.first_s),
    ("time until usable", lambda a: a.usable_s),
    ("time until summed", lambda a: a.summed_s),
    ("all in all", lambda a: a.total_s),
)
