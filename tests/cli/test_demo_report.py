"""The demo's output on wide and narrow terminals."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import Any

import pytest

pytest.importorskip("rich")
pytest.importorskip("pyspark")

from rich.cells import cell_len
from rich.console import Console

from bowstring.cli.demo import report
from bowstring.cli.demo.summary import ColumnSummary, TableSummary
from bowstring.cli.demo.transfer_methods import Measurement

SUMMARY = TableSummary(200_000, (ColumnSummary("a", 0, "1"), ColumnSummary("b", 7, None)))
MEASUREMENT = Measurement(200_000, 1_600_000, 1.25, 0.1, 0.11, 0.14, 290_000, SUMMARY)
SAMPLE: dict[str, Any] = {
    "names": ["Airport Name", "n", "Aircraft Make Model"] * 4,
    "types": ["string", "double", "string"] * 4,
    "rows": [["BARKSDALE AIR FORCE BASE ARPT, LOUISIANA", "1.5", "日本語"] * 4] * 2,
}


def console(width: int) -> tuple[Console, StringIO]:
    written = StringIO()
    return Console(width=width, file=written), written


@pytest.mark.parametrize(("width", "columns"), [(20, 1), (60, 2), (80, 3), (200, 9)])
def test_a_sample_has_the_columns_that_fit_and_says_how_many_do_not(width: int, columns: int) -> None:
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
    report.show_verification(out, MEASUREMENT, [])
    report.show_verification(
        out,
        MEASUREMENT,
        SUMMARY.find_differences(TableSummary(200_000, (SUMMARY.columns[0], ColumnSummary("b", 8, None)))),
    )
    assert "✓ 200,000 rows match Spark's: null counts of 2 columns, sums of 1 numeric column." in written.getvalue()
    assert "column 'b': 7 nulls and sum None, not 8 and None" in written.getvalue()


def test_the_methods_are_shown_side_by_side_with_sizes_as_info_writes_them() -> None:
    out, written = console(80)
    report.show_measurements(out, {"Publish": [MEASUREMENT], "Parquet": [MEASUREMENT]}, 41.7)
    lines = written.getvalue().splitlines()
    words = [line.split() for line in lines]
    assert words[0] == ["Publish", "Parquet"]
    assert words[1] == ["through", "shared", "memory", "files"]
    assert ["size", "1.53", "MiB", "1.53", "MiB"] in words
    assert words[-3] == ["total", "1.39", "s", "1.39", "s"]
    assert " ".join(words[-2] + words[-1]).endswith("once before. Total: write, read and sum. The demo took 42 s.")


@pytest.mark.parametrize(
    ("parquet_s", "conclusion"),
    [
        (3.0, "Publish was the fastest, 1.39 s in total (Parquet 3.14 s); the reader of Publish copied"),
        (0.5, "Parquet was the fastest, 640.0 ms in total (Publish 1.39 s); the reader of Publish copied"),
    ],
)
def test_the_conclusion_is_a_sentence_that_names_the_fastest_method(parquet_s: float, conclusion: str) -> None:
    out, written = console(200)
    report.show_conclusion(out, {"Publish": [MEASUREMENT], "Parquet": [replace(MEASUREMENT, write_s=parquet_s)]}, 0)
    assert written.getvalue() == f"{conclusion} 283 KiB of 1.53 MiB.\n"


def test_the_conclusion_is_a_failure_if_the_rows_differ() -> None:
    out, written = console(200)
    report.show_conclusion(out, {"Publish": [MEASUREMENT]}, 2)
    assert written.getvalue() == "Failed: 2 differences from Spark's rows.\n"


def test_several_rounds_are_medians_over_their_spread() -> None:
    out, written = console(80)
    rounds = [
        replace(MEASUREMENT, write_s=produced, first_batch_s=first)
        for produced, first in ((9, 0.5), (2, 0.1), (3, 0.2))
    ]
    report.show_measurements(out, {"Publish": rounds, "Through the driver": rounds, "Parquet": [MEASUREMENT] * 3}, 1.0)
    text = written.getvalue()
    lines = [line.split("  ") for line in text.splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert ["write", "3.00 s", "3.00 s", "1.25 s"] in cells
    assert ["2.00–9.00 s", "2.00–9.00 s", "1.25–1.25 s"] in cells
    assert ["read the first batch", "200.0 ms", "200.0 ms", "100.0 ms"] in cells
    assert ["100.0–500.0 ms", "100.0–500.0 ms", "100.0–100.0 ms"] in cells
    assert ["total", "3.14 s", "3.14 s", "1.39 s"] in cells
    assert all(cell_len(line) <= 80 for line in text.splitlines())
    assert "Medians of 3 rounds" in text
    assert "…" not in text


def test_a_spread_has_the_unit_of_its_longest_time() -> None:
    assert report.format_time_range([0.9, 1.234]) == "0.90–1.23 s"
    assert report.format_time_range([0.0134, 0.9]) == "13.4–900.0 ms"
