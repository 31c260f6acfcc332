"""The demo's output on wide and narrow terminals."""

from __future__ import annotations

from io import StringIO

import pytest

pytest.importorskip("rich")
pytest.importorskip("pyspark")

from rich.cells import cell_len
from rich.console import Console

from examples.demo import report, texts
from examples.demo.killed_writers import KilledWriter
from tests.demo.reports import create_report


def console(width: int) -> tuple[Console, StringIO]:
    written = StringIO()
    return Console(width=width, file=written), written


def show(width: int, **changes: object) -> list[str]:
    out, written = console(width)
    report.show_report(out, create_report(**changes))
    return written.getvalue().splitlines()


def test_differences_from_spark_are_reported_per_column() -> None:
    expected = "✓ 1,000,000 rows match Spark's in each read: null counts of 12 columns, sums of 4 numeric columns."
    assert show(200)[1] == expected
    difference = "column 'b': 7 nulls and sum None, not 8 and None"
    assert show(200, differences=[difference])[1:3] == ["The rows do not match Spark's:", f"  {difference}"]


@pytest.mark.parametrize("width", [80, 200])
def test_the_methods_are_side_by_side_with_memory_and_the_spread_of_times(width: int) -> None:
    lines = show(width)
    words = [line.split() for line in lines]
    at = words.index(["publishing", "toArrow()", "Parquet"])
    assert words[at + 1] == ["through", "shared", "memory", "driver,", "sockets", "files"]
    assert ["copied", "by", "each", "reader", "283", "KiB", "400", "MiB", "500", "MiB"] in words
    assert ["growth", "of", "the", "driver", "1.00", "MiB", "180", "MiB", "2.00", "MiB"] in words
    assert ["write", "and", "all", "reads", "1.40", "s", "4.40", "s", "6.00", "s"] in words
    assert words[words.index(["write", "1.00", "s", "1.40", "s", "2.00", "s"]) + 1][:2] == ["0.97–1.03", "s"]
    assert all(cell_len(line) <= width for line in lines)
    assert "…" not in "".join(lines)
    assert "The demo took 42 s." in " ".join(" ".join(lines).split())


def test_killed_writers_that_break_the_promise_are_marked_and_a_failure() -> None:
    killed = [KilledWriter("The executor", "2 rows [of 3]", False), KilledWriter("A worker", "3 rows", True)]
    assert show(200, killed_writers=killed)[3:5] == [
        "✗ The executor: 2 rows [of 3].",
        "✓ A worker: 3 rows.",
    ]
    assert not create_report(killed_writers=killed).is_successful


def test_the_verdict_is_the_last_line() -> None:
    out, written = console(400)
    report.show_report(out, create_report())
    assert written.getvalue().splitlines()[-1] == create_report().verdict


def test_a_spread_has_the_unit_of_its_longest_time() -> None:
    assert texts.format_time_range([0.9, 1.234]) == "0.90–1.23 s"
    assert texts.format_time_range([0.0134, 0.9]) == "13.4–900.0 ms"
