"""The report of the demo: sample rows, the comparison with Spark, the three methods, and the verdict."""

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

    from bowstring.cli.demo.methods import Measurement

MAX_COLUMNS = 10
MAX_CELLS = 32
_GAP = 2


def time_text(seconds: float) -> str:
    """Format a time in seconds, or in milliseconds below one second."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def spread_text(seconds: Sequence[float]) -> str:
    """Format the minimum and maximum of times, in the unit of the maximum."""
    least, most = min(seconds), max(seconds)
    return f"{least:.2f}–{most:.2f} s" if most >= 1 else f"{least * 1000:.1f}–{most * 1000:.1f} ms"


def show_sample(console: Console, sample: dict[str, Any]) -> None:
    """Print a few rows, with as many columns as fit."""
    columns = [
        [printable(cell) for cell in cells]
        for cells in zip(sample["names"], sample["types"], *sample["rows"], strict=True)
    ]
    fitting = _columns_that_fit(columns, console.width)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, _GAP, 0, 0))
    for name, *_ in fitting:
        table.add_column(Text(name), overflow="ellipsis", no_wrap=True, max_width=MAX_CELLS)
    for number, cells in enumerate(zip(*(column[1:] for column in fitting), strict=True)):
        table.add_row(*(Text(cell, style="" if number else "dim") for cell in cells))
    console.print(table)
    hidden = len(columns) - len(fitting)
    if hidden:
        console.print(f"[dim]and {hidden} more column{'s' if hidden > 1 else ''}[/dim]")


def _columns_that_fit(columns: list[list[str]], width: int) -> list[list[str]]:
    """Return the first columns, at least one, that fit side by side without truncation below `MAX_CELLS`."""
    fitting = columns[:1]
    remaining = width - sum(map(_width, fitting))
    for column in columns[1:MAX_COLUMNS]:
        remaining -= _width(column) + _GAP
        if remaining < 0:
            break
        fitting.append(column)
    return fitting


def _width(column: list[str]) -> int:
    return min(MAX_CELLS, max(map(cell_len, column)))


def show_check(console: Console, measurement: Measurement, differences: list[str]) -> None:
    """Print whether the published rows match the statistics computed by Spark."""
    assert measurement.summary is not None
    sums = sum(column.total is not None for column in measurement.summary.columns)
    if differences:
        console.print("[bold red]The rows do not match Spark's:[/bold red]")
        for difference in differences:
            console.print(f"  {escape(difference)}", highlight=False)
        return
    console.print(
        f"[green]✓[/green] {counted(measurement.summary.rows, 'row')} match Spark's: null counts of "
        f"{counted(len(measurement.summary.columns), 'column')}, sums of {counted(sums, 'numeric column')}.",
        highlight=False,
    )


def show_methods(console: Console, measurements: dict[str, list[Measurement]], elapsed_s: float) -> None:
    """Print a column for each method: medians of all rounds, with minimum and maximum of the times below."""
    rounds = len(next(iter(measurements.values())))
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("")
    for number, name in enumerate(measurements):
        style = "" if number else "bold green"
        table.add_column(name, justify="right", style=style, header_style=f"bold {style}")
    for title, value, shown in _AMOUNTS:
        table.add_row(title, *(shown(statistics.median_low(map(value, taken))) for taken in measurements.values()))
    for title, time in _TIMES:
        times = [[time(measurement) for measurement in taken] for taken in measurements.values()]
        table.add_row(title, *(time_text(statistics.median(each)) for each in times))
        if rounds > 1:
            table.add_row("", *(Text(spread_text(each), style="not bold dim") for each in times))
    console.print(table)
    note = f"medians of {rounds} rounds, minimum and maximum below them; " if rounds > 1 else ""
    console.print(f"{note}the demo took {elapsed_s:.0f} s", style="dim", highlight=False)


def show_verdict(console: Console, measurements: dict[str, list[Measurement]], difference_count: int) -> None:
    """Print one sentence: the fastest method, and the bytes that the reader of the first method copied."""
    if difference_count:
        console.print(f"[bold red]Failed:[/bold red] {counted(difference_count, 'difference')} from Spark's rows.")
        return
    totals = {name: statistics.median(a.total_s for a in rounds) for name, rounds in measurements.items()}
    first, *others = sorted(totals, key=totals.__getitem__)
    rest = ", ".join(f"{name} {time_text(totals[name])}" for name in others)
    published, rounds = next(iter(measurements.items()))
    copied_bytes = statistics.median_low(measurement.copied_bytes for measurement in rounds)
    console.print(
        f"[bold]{first} was the fastest, {time_text(totals[first])} in total ({rest}); the reader of {published} "
        f"copied {human_bytes(copied_bytes)} of {human_bytes(rounds[-1].size_bytes)}.[/bold]",
        highlight=False,
    )


def counted(number: int, noun: str) -> str:
    """Format a number with a noun in the singular or plural."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


_AMOUNTS: tuple[tuple[str, Callable[[Measurement], int], Callable[[int], str]], ...] = (
    ("rows", lambda a: a.rows, lambda rows: f"{rows:,}"),
    ("size", lambda a: a.size_bytes, human_bytes),
    ("bytes the reader copied", lambda a: a.copied_bytes, human_bytes),
)

_TIMES: tuple[tuple[str, Callable[[Measurement], float]], ...] = (
    ("write", lambda a: a.produced_s),
    ("read the first batch", lambda a: a.first_s),
    ("read all batches", lambda a: a.usable_s),
    ("read and sum", lambda a: a.summed_s),
    ("total", lambda a: a.total_s),
)
