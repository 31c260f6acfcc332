"""What the demo prints: some rows, the check against Spark, and the three roads side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from bowstring.cli.demo.roads import Arrival

MAX_COLUMNS = 10


def size_text(size_bytes: int) -> str:
    """Bytes in the unit that reads best."""
    return decimal(int(size_bytes))


def time_text(seconds: float) -> str:
    """Seconds, or milliseconds for short times."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def show_sample(console: Console, sample: dict[str, Any]) -> None:
    """Print a few rows, as many columns as there is room for."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    shown = range(min(len(sample["names"]), MAX_COLUMNS, max(console.width // 12, 1)))
    for index in shown:
        table.add_column(Text(sample["names"][index]), overflow="ellipsis", no_wrap=True, max_width=32)
    table.add_row(*(Text(sample["types"][index], style="dim") for index in shown))
    for row in sample["rows"]:
        table.add_row(*(Text(row[index]) for index in shown))
    console.print(table)
    left = len(sample["names"]) - len(shown)
    if left:
        console.print(f"[dim]and {left} more columns[/dim]")


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
        f"[green]✓[/green] {arrival.facts.rows:,} rows, the nulls of {len(arrival.facts.columns)} columns "
        f"and the sums of {sums} numeric ones are what Spark says.",
        highlight=False,
    )


def show_roads(console: Console, arrivals: dict[str, Arrival]) -> None:
    """Print the roads side by side, a column each, ours first."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("to another process")
    for number, road in enumerate(arrivals):
        style = "" if number else "bold green"
        table.add_column(road, justify="right", style=style, header_style=f"bold {style}")
    for title, value in _LINES:
        table.add_row(title, *(value(arrival) for arrival in arrivals.values()))
    console.print(table)


_LINES: tuple[tuple[str, Callable[[Arrival], str]], ...] = (
    ("rows", lambda a: f"{a.rows:,}"),
    ("bytes", lambda a: size_text(a.size_bytes)),
    ("Spark hands it over", lambda a: time_text(a.produced_s)),
    ("time to first batch", lambda a: time_text(a.first_s)),
    ("time until usable", lambda a: time_text(a.usable_s)),
    ("time until summed", lambda a: time_text(a.summed_s)),
    ("bytes copied there", lambda a: size_text(a.copied_bytes)),
    ("all in all", lambda a: time_text(a.total_s)),
)
