"""The report of the demo: sample rows, the comparison with Spark, the three methods, and the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from bowstring.cli.tables import column_width, columns_that_fit, rows_table
from bowstring.errors import format_count
from bowstring.inspection.text import human_bytes, printable

if TYPE_CHECKING:
    from rich.console import Console

    from bowstring.cli.demo.methods import Measurement

_MAX_COLUMNS = 10
_CELL_CHARACTERS = 32


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
        [printable(cell, _CELL_CHARACTERS) for cell in cells]
        for cells in zip(sample["names"], sample["types"], *sample["rows"], strict=True)
    ]
    shown = columns_that_fit(columns[:_MAX_COLUMNS], console.width)
    console.print(rows_table(shown, [""] * len(shown), list(map(column_width, shown))))
    hidden = len(columns) - len(shown)
    if hidden:
        console.print(f"[dim]and {format_count(hidden, 'more column')}[/dim]", highlight=False)


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
        f"[green]✓[/green] {format_count(measurement.summary.rows, 'row')} match Spark's: null counts of "
        f"{format_count(len(measurement.summary.columns), 'column')}, sums of {format_count(sums, 'numeric column')}.",
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
        table.add_row(title, *(shown(statistics.median_low(map(value, samples))) for samples in measurements.values()))
    for title, time in _TIMES:
        times = [[time(measurement) for measurement in samples] for samples in measurements.values()]
        table.add_row(title, *(time_text(statistics.median(each)) for each in times))
        if rounds > 1:
            table.add_row("", *(Text(spread_text(each), style="not bold dim") for each in times))
    console.print(table)
    note = f"medians of {rounds} rounds, minimum and maximum below them; " if rounds > 1 else ""
    console.print(f"{note}the demo took {elapsed_s:.0f} s", style="dim", highlight=False)


def show_verdict(console: Console, measurements: dict[str, list[Measurement]], difference_count: int) -> None:
    """Print one sentence: the fastest method, and the bytes that the reader of the first method copied."""
    if difference_count:
        console.print(f"[bold red]Failed:[/bold red] {format_count(difference_count, 'difference')} from Spark's rows.")
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


_AMOUNTS: tuple[tuple[str, Callable[[Measurement], int], Callable[[int], str]], ...] = (
    ("rows", lambda measurement: measurement.rows, lambda rows: f"{rows:,}"),
    ("size", lambda measurement: measurement.size_bytes, human_bytes),
    ("bytes the reader copied", lambda measurement: measurement.copied_bytes, human_bytes),
)

_TIMES: tuple[tuple[str, Callable[[Measurement], float]], ...] = (
    ("write", lambda measurement: measurement.write_s),
    ("read the first batch", lambda measurement: measurement.first_batch_s),
    ("read all batches", lambda measurement: measurement.all_batches_s),
    ("read and sum", lambda measurement: measurement.read_and_sum_s),
    ("total", lambda measurement: measurement.total_s),
)
