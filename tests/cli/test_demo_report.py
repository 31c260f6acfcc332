"""The demo's output on wide and narrow terminals."""

from __future__ import annotations

from io import StringIO

import pytest

pytest.importorskip("rich")
pytest.importorskip("pyspark")

from rich.cells import cell_len
from rich.console import Console

from bowstring.cli.demo import report
from bowstring.cli.demo.comparison import ALL, ONE
from bowstring.cli.demo.killed_writers import KilledWriter
from tests.cli.demo_reports import SAMPLE, compare, create_report


def console(width: int) -> tuple[Console, StringIO]:
    written = StringIO()
    return Console(width=width, file=written), written


@pytest.mark.parametrize(("width", "columns"), [(20, 1), (60, 2), (80, 3), (200, 9)])
def test_a_sample_has_the_columns_that_fit_and_the_number_of_the_others(width: int, columns: int) -> None:
    out, written = console(width)
    report.show_sample(out, SAMPLE)
    lines = written.getvalue().splitlines()
    assert all(cell_len(line) <= width for line in lines)
    assert "…" not in lines[0].replace("Airport Name", "")
    assert lines[1].split() == (["string", "double", "string"] * 4)[:columns]
    assert lines[-1] == f"and {12 - columns} more columns"


def test_control_characters_in_names_are_escaped() -> None:
    out, written = console(80)
    report.show_sample(out, {"names": ["a\x1b[2Jb\n"], "types": ["string"], "rows": [["[red]\x07"]]})
    assert "\x1b" not in written.getvalue()
    assert r"a\x1b[2Jb\n" in written.getvalue()
    assert r"[red]\x07" in written.getvalue()


def test_the_note_about_one_hidden_column_is_singular() -> None:
    out, written = console(20)
    report.show_sample(out, {"names": ["a" * 20, "b"], "types": ["int64", "int64"], "rows": []})
    assert written.getvalue().splitlines()[-1] == "and 1 more column"


def test_an_empty_table_has_a_sample() -> None:
    out, written = console(80)
    report.show_sample(out, {"names": ["a"], "types": ["int64"], "rows": []})
    report.show_sample(out, {"names": [], "types": [], "rows": []})
    assert "int64" in written.getvalue()


def test_differences_from_spark_are_reported_per_column() -> None:
    out, written = console(100)
    report.show_verification(out, create_report())
    report.show_verification(out, create_report(differences=["column 'b': 7 nulls and sum None, not 8 and None"]))
    text = " ".join(written.getvalue().split())
    assert "✓ 1,000,000 rows match Spark's in each read: null counts of 12 columns, sums of 4 numeric columns." in text
    assert "The rows do not match Spark's: column 'b': 7 nulls and sum None, not 8 and None" in text


@pytest.mark.parametrize("width", [80, 200])
def test_the_methods_are_side_by_side_with_memory_and_the_spread_of_times(width: int) -> None:
    out, written = console(width)
    report.show_measurements(out, create_report())
    lines = written.getvalue().splitlines()
    words = [line.split() for line in lines]
    assert words[0] == ["publishing", "toArrow()", "Parquet"]
    assert words[1] == ["through", "shared", "memory", "driver,", "sockets", "files"]
    assert ["copied", "by", "each", "reader", "283", "KiB", "400", "MiB", "500", "MiB"] in words
    assert ["growth", "of", "the", "driver", "1.00", "MiB", "180", "MiB", "2.00", "MiB"] in words
    assert ["write", "and", "all", "reads", "1.40", "s", "4.40", "s", "6.00", "s"] in words
    assert words[words.index(["write", "1.00", "s", "1.40", "s", "2.00", "s"]) + 1][:2] == ["0.97–1.03", "s"]
    assert all(cell_len(line) <= width for line in lines)
    assert "…" not in written.getvalue()
    assert "The demo took 42 s." in " ".join(written.getvalue().split())


@pytest.mark.parametrize("width", [40, 80, 200])
def test_bars_are_as_long_as_the_times_and_name_the_noise(width: int) -> None:
    out, written = console(width)
    main = compare(1 << 20, (1.0, 0.1, 1.0), (1.5, 0.1, 1.5), (2.0, 0.1, 2.0))
    report.show_bars(out, main, ALL)
    lines = written.getvalue().splitlines()
    assert all(cell_len(line) <= width for line in lines)
    bars = [line.count("█") for line in lines if "█" in line]
    assert len(bars) == 3
    if width >= 80:
        assert bars[0] * 2 == bars[2] == max(bars)
        assert "publishing: 0.50 of it (0.50–0.50)" in written.getvalue()


def test_a_ratio_within_the_noise_is_named_so() -> None:
    main = compare(1 << 20, (1.0, 0.1, 1.0), (1.0, 0.1, 1.0), (2.0, 0.1, 2.0))
    assert report.describe_ratio(main.ratio("toArrow()", ONE)) == "publishing: 1.00 of it (1.00–1.00: noise)"
    few = compare(1 << 20, (1.0, 0.1, 1.0), (1.0, 0.1, 1.0), (2.0, 0.1, 2.0), noise=(1.0,))
    assert report.describe_ratio(few.ratio("toArrow()", ONE)) == "publishing: 1.00 of it (noise: at least 6 rounds)"


def test_killed_writers_that_break_the_promise_are_marked_and_a_failure() -> None:
    killed = [KilledWriter("The executor", "2 rows [of 3]", False), KilledWriter("A worker", "3 rows", True)]
    out, written = console(80)
    report.show_killed_writers(out, killed)
    assert written.getvalue().splitlines()[1:] == ["✗ The executor: 2 rows [of 3].", "✓ A worker: 3 rows."]
    assert not create_report(killed_writers=killed).is_successful


def test_the_verdict_is_the_last_line() -> None:
    out, written = console(400)
    report.show_report(out, create_report())
    assert written.getvalue().splitlines()[-1] == create_report().verdict


def test_a_spread_has_the_unit_of_its_longest_time() -> None:
    assert report.format_time_range([0.9, 1.234]) == "0.90–1.23 s"
    assert report.format_time_range([0.0134, 0.9]) == "13.4–900.0 ms"
