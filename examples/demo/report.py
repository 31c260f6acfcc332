"""The report of the demo in a terminal: checks, a table of all methods, killed writers, and a verdict."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from examples.demo.comparison import total_of_all_reads, total_of_one_read
from examples.demo.methods import READERS, READS, TRANSFER_METHODS
from examples.demo.texts import format_count, format_size, format_time, format_time_range

if TYPE_CHECKING:
    from rich.console import Console

    from examples.demo.comparison import DemoReport
    from examples.demo.methods import Measurement, MemoryUse

MEMORY: tuple[tuple[str, Callable[[MemoryUse], int]], ...] = (
    ("copied by each reader", lambda memory: memory.copied_bytes),
    ("growth of the driver", lambda memory: memory.driver_bytes),
)
TIMES: tuple[tuple[str, Callable[[Measurement], float]], ...] = (
    ("write", lambda measurement: measurement.write_s),
    ("1 reader, 1 read", lambda measurement: measurement.one_read_s),
    (f"{READERS} readers, {READS} reads each", lambda measurement: measurement.all_reads_s),
    ("write and 1 read", total_of_one_read),
    ("write and all reads", total_of_all_reads),
)


def show_report(console: Console, report: DemoReport) -> None:
    """Print the whole report. The verdict is last."""
    console.print()
    if report.differences:
        console.print("[bold red]The rows do not match Spark's:[/bold red]")
        for difference in report.differences:
            console.print(f"  {escape(difference)}", highlight=False)
    else:
        console.print(
            f"[green]✓[/green] {format_count(report.main.rows, 'row')} match Spark's in each read: null counts of "
            f"{format_count(len(report.names), 'column')}, sums of {format_count(report.num_sums, 'numeric column')}.",
            highlight=False,
        )
    if report.killed_writers:
        console.print("When a writer is killed (SIGKILL):")
    for killed in report.killed_writers:
        mark = "[green]✓[/green]" if killed.is_as_promised else "[bold red]✗[/bold red]"
        console.print(f"{mark} {escape(killed.writer)}: {escape(killed.outcome)}.", highlight=False)
    console.print()
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    for name in ("", *report.main.rounds):
        table.add_column(name, justify="right" if name else "left")
    for title, cells in describe_measurements(report):
        table.add_row(title, *(text for text, _ in cells))
        if any(spread for _, spread in cells):
            table.add_row("", *(Text(spread, style="dim") for _, spread in cells))
    console.print(table)
    console.print(describe_method(report), style="dim", highlight=False)
    console.print()
    console.print(Text(report.verdict, style="bold red" if report.differences else "bold"))


def describe_measurements(report: DemoReport) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the rows of a table: a title, and for each method its text, and minimum and maximum of times."""
    rounds, memory = report.main.rounds.values(), report.memory.values()
    rows = [
        ("through", [(method.medium, "") for method in TRANSFER_METHODS]),
        ("size", [(format_size(measurements[-1].size_bytes), "") for measurements in rounds]),
    ]
    rows += [(title, [(format_size(max(count(use), 0)), "") for use in memory]) for title, count in MEMORY]
    for title, time in TIMES:
        times = [list(map(time, measurements)) for measurements in rounds]
        rows.append((title, [(format_time(statistics.median(t)), format_time_range(t)) for t in times]))
    return rows


def describe_method(report: DemoReport) -> str:
    """Describe the measurements and their method."""
    return (
        f"The rows were cached in Spark. Medians of {format_count(report.main.num_rounds, 'round')}, minimum and "
        f"maximum below them, after a run that was not timed. A reader keeps nothing between reads, and sums the "
        f"numeric columns in each. Memory is the private memory of one run. The demo took {report.elapsed_s:.0f} s."
    )
