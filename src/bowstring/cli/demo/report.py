"""The report of the demo: sample rows, the comparison with Spark, the three methods, and a conclusion."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from bowstring.cli.terminal_tables import column_width, columns_that_fit, rows_table
from bowstring.display.printable_text import format_size, to_printable
from bowstring.errors import format_count

if TYPE_CHECKING:
    from rich.console import Console

    from bowstring.cli.demo.transfer_methods import Measurement

_MAX_COLUMNS = 10
_CELL_CHARACTERS = 32


def format_time(seconds: float) -> str:
    """Format a time in seconds, or in milliseconds below one second."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def format_time_range(seconds: Sequence[float]) -> str:
    """Format the minimum and maximum of times, in the unit of the maximum."""
    least, most = min(seconds), max(seconds)
    return f"{least:.2f}–{most:.2f} s" if most >= 1 else f"{least * 1000:.1f}–{most * 1000:.1f} ms"


def show_sample(console: Console, sample: dict[str, Any]) -> None:
    """Print a few rows, with as many columns as fit."""
    columns = [
        [to_printable(cell, _CELL_CHARACTERS) for cell in cells]
        for cells in zip(sample["names"], sample["types"], *sample["rows"], strict=True)
    ]
    visible_columns = columns_that_fit(columns[:_MAX_COLUMNS], console.width)
    widths = list(map(column_width, visible_columns))
    console.print(rows_table(visible_columns, [""] * len(visible_columns), widths))
    hidden = len(columns) - len(visible_columns)
    if hidden:
        console.print(f"[dim]and {format_count(hidden, 'more column')}[/dim]", highlight=False)


def show_verification(console: Console, measurement: Measurement, differences: list[str]) -> None:
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


def show_measurements(console: Console, measurements: dict[str, list[Measurement]], elapsed_s: float) -> None:
    """Print a column for each method: medians of all rounds, with minimum and maximum of the times below."""
    rounds = len(next(iter(measurements.values())))
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("")
    for number, name in enumerate(measurements):
        style = "" if number else "bold green"
        table.add_column(name, justify="right", style=style, header_style=f"bold {style}")
    table.add_row("through", *(_MEDIA[name] for name in measurements))
    for title, count, format_value in _COUNTS:
        table.add_row(
            title, *(format_value(statistics.median_low(map(count, samples))) for samples in measurements.values())
        )
    for title, time in _TIMES:
        times = [[time(measurement) for measurement in samples] for samples in measurements.values()]
        table.add_row(title, *(format_time(statistics.median(round_times)) for round_times in times))
        if rounds > 1:
            table.add_row("", *(Text(format_time_range(round_times), style="not bold dim") for round_times in times))
    console.print(table)
    sentences = ["The rows were cached in Spark, and each method was run once before.", "Total: write, read and sum."]
    if rounds > 1:
        sentences.append(f"Medians of {rounds} rounds, minimum and maximum below them.")
    console.print(*sentences, f"The demo took {elapsed_s:.0f} s.", style="dim", highlight=False)


def show_conclusion(console: Console, measurements: dict[str, list[Measurement]], difference_count: int) -> None:
    """Print one sentence: the fastest method, and the bytes that the reader of the first method copied."""
    if difference_count:
        console.print(f"[bold red]Failed:[/bold red] {format_count(difference_count, 'difference')} from Spark's rows.")
        return
    totals = {
        name: statistics.median(measurement.total_s for measurement in rounds) for name, rounds in measurements.items()
    }
    first, *others = sorted(totals, key=totals.__getitem__)
    rest = ", ".join(f"{name} {format_time(totals[name])}" for name in others)
    published, rounds = next(iter(measurements.items()))
    copied_bytes = statistics.median_low(measurement.copied_bytes for measurement in rounds)
    console.print(
        f"[bold]{first} was the fastest, {format_time(totals[first])} in total ({rest}); the reader of {published} "
        f"copied {format_size(copied_bytes)} of {format_size(rounds[-1].size_bytes)}.[/bold]",
        highlight=False,
    )


_MEDIA = {"Publish": "shared memory", "Through the driver": "toArrow(), socket", "Parquet": "files"}
"""What each method hands the rows over through."""

_COUNTS: tuple[tuple[str, Callable[[Measurement], int], Callable[[int], str]], ...] = (
    ("rows", lambda measurement: measurement.rows, lambda rows: f"{rows:,}"),
    ("size", lambda measurement: measurement.size_bytes, format_size),
    ("bytes the reader copied", lambda measurement: measurement.copied_bytes, format_size),
)

_TIMES: tuple[tuple[str, Callable[[Measurement], float]], ...] = (
    ("write", lambda measurement: measurement.write_s),
    ("read the first batch", lambda measurement: measurement.first_batch_s),
    ("read all batches", lambda measurement: measurement.all_batches_s),
    ("read and sum", lambda measurement: measurement.read_and_sum_s),
    ("total", lambda measurement: measurement.total_s),
)
