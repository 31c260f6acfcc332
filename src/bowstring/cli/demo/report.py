"""The report of the demo in a terminal: sample rows, checks, tables and bars, killed writers, and a verdict."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from bowstring.cli.demo.comparison import ALL, MIN_ROUNDS, ONE, WORKLOADS, Comparison, Ratio, describe_verdict
from bowstring.cli.demo.transfer_methods import PUBLISH, READERS, READS, TRANSFER_METHODS
from bowstring.cli.terminal_tables import column_width, columns_that_fit, rows_table
from bowstring.display.printable_text import format_size, to_printable
from bowstring.errors import format_count

if TYPE_CHECKING:
    from rich.console import Console

    from bowstring.cli.demo.comparison import Total
    from bowstring.cli.demo.killed_writers import KilledWriter
    from bowstring.cli.demo.transfer_methods import Measurement, MemoryUse

_MAX_COLUMNS = 10
_CELL_CHARACTERS = 32
_BAR_CHARACTERS = 40
_BAR_MARGIN = 66
"""The width of a line of bars without the bar."""


@dataclass(slots=True)
class DemoReport:
    """All that the demo shows, in the terminal and on its page."""

    main: Comparison
    """With the rows of the input."""
    other: Comparison | None
    """With many more rows of the same columns, or far fewer; None if there are too few rounds for a verdict."""
    memory: dict[str, MemoryUse]
    """What each method takes, with the rows of the input."""
    num_columns: int
    num_sums: int
    killed_writers: list[KilledWriter] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    """The differences of published rows from Spark's."""
    sample: dict[str, Any] = field(default_factory=dict)
    elapsed_s: float = 0.0

    @property
    def is_successful(self) -> bool:
        """Whether all rows are as Spark's, and killed writers had the promised effect."""
        return not self.differences and all(killed.is_as_promised for killed in self.killed_writers)

    @property
    def verdict(self) -> str:
        """One sentence."""
        if self.differences:
            return f"Failed: {format_count(len(self.differences), 'difference')} from Spark's rows."
        return describe_verdict(self.main, self.other)


def show_report(console: Console, report: DemoReport) -> None:
    """Print the whole report. The verdict is last."""
    console.print()
    console.print("Some of the rows that another process read from shared memory:")
    show_sample(console, report.sample)
    console.print()
    show_verification(console, report)
    console.print()
    show_measurements(console, report)
    for total in WORKLOADS:
        console.print()
        show_bars(console, report.main, total)
    if report.killed_writers:
        console.print()
        show_killed_writers(console, report.killed_writers)
    console.print()
    style = "bold red" if report.differences else "bold"
    console.print(Text(report.verdict, style=style))


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


def show_verification(console: Console, report: DemoReport) -> None:
    """Print whether the published rows match the statistics computed by Spark."""
    if report.differences:
        console.print("[bold red]The rows do not match Spark's:[/bold red]")
        for difference in report.differences:
            console.print(f"  {escape(difference)}", highlight=False)
        return
    console.print(
        f"[green]✓[/green] {format_count(report.main.rows, 'row')} match Spark's in each read: null counts of "
        f"{format_count(report.num_columns, 'column')}, sums of {format_count(report.num_sums, 'numeric column')}.",
        highlight=False,
    )


def show_measurements(console: Console, report: DemoReport) -> None:
    """Print a column for each method: memory, and medians of all rounds with minimum and maximum below them."""
    comparison = report.main
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("")
    for name in comparison.rounds:
        style = "bold green" if name == PUBLISH.name else ""
        table.add_column(name, justify="right", style=style, header_style=f"bold {style}")
    media = {method.name: method.medium for method in TRANSFER_METHODS}
    table.add_row("through", *(media[name] for name in comparison.rounds))
    table.add_row("size", *(format_size(rounds[-1].size_bytes) for rounds in comparison.rounds.values()))
    for title, count in MEMORY:
        table.add_row(title, *(format_size(max(count(report.memory[name]), 0)) for name in comparison.rounds))
    for title, time in TIMES:
        times = [list(map(time, rounds)) for rounds in comparison.rounds.values()]
        table.add_row(title, *(format_time(statistics.median(round_times)) for round_times in times))
        table.add_row("", *(Text(format_time_range(round_times), style="not bold dim") for round_times in times))
    console.print(table)
    console.print(describe_method(report), style="dim", highlight=False)


def describe_method(report: DemoReport) -> str:
    """Describe the measurements and their method."""
    rounds = format_count(len(report.main.rounds[PUBLISH.name]), "round")
    return (
        f"The rows were cached in Spark. Medians of {rounds}, minimum and maximum below them, after a run that was "
        f"not timed. A reader keeps nothing between reads, and sums the numeric columns in each. Memory is the private "
        f"memory of one run. The demo took {report.elapsed_s:.0f} s."
    )


def show_bars(console: Console, comparison: Comparison, total: Total) -> None:
    """Print a bar for each method, as long as its median time until the readers of the workload have finished."""
    times = {name: comparison.median(name, total) for name in comparison.rounds}
    width = max(min(console.width - _BAR_MARGIN, _BAR_CHARACTERS), 1)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, seconds in times.items():
        bar = Text("█" * max(round(seconds / max(times.values()) * width), 1))
        bar.stylize("green" if name == PUBLISH.name else "blue")
        ratio = "" if name == PUBLISH.name else describe_ratio(comparison.ratio(name, total))
        table.add_row(name, bar, format_time(seconds), Text(ratio, style="dim"))
    console.print(f"Until rows are written, and read by {WORKLOADS[total]}:", highlight=False)
    console.print(table)


def describe_ratio(ratio: Ratio) -> str:
    """Describe how long publishing takes compared with another method, and whether that is beyond the noise."""
    median = f"publishing: {ratio.median:.2f} of it"
    if ratio.interval is None:
        return f"{median} (noise: at least {MIN_ROUNDS} rounds)"
    low, high = ratio.interval
    return f"{median} ({low:.2f}–{high:.2f}{'' if ratio.is_faster or ratio.is_slower else ': noise'})"


def show_killed_writers(console: Console, killed_writers: Sequence[KilledWriter]) -> None:
    """Print what readers get after each process was killed."""
    console.print("When a writer is killed (SIGKILL):")
    for killed in killed_writers:
        mark = "[green]✓[/green]" if killed.is_as_promised else "[bold red]✗[/bold red]"
        console.print(f"{mark} {escape(killed.writer)}: {escape(killed.outcome)}.", highlight=False)


MEMORY: tuple[tuple[str, Callable[[MemoryUse], int]], ...] = (
    ("copied by each reader", lambda memory: memory.copied_bytes),
    ("growth of the driver", lambda memory: memory.driver_bytes),
)

TIMES: tuple[tuple[str, Callable[[Measurement], float]], ...] = (
    ("write", lambda measurement: measurement.write_s),
    ("1 reader, 1 read", lambda measurement: measurement.one_read_s),
    (f"{READERS} readers, {READS} reads each", lambda measurement: measurement.all_reads_s),
    ("write and 1 read", ONE),
    ("write and all reads", ALL),
)
