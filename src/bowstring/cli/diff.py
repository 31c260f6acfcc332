"""`bowstring diff`: the differences between two files: the schema, then the first rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any

import click

from bowstring.arrays.record_batch import RecordBatch
from bowstring.cli.error_messages import EXIT_FAILURE
from bowstring.cli.help_text import examples
from bowstring.cli.input_output import echo_json, open_input, prefix_errors_with_source, source_name
from bowstring.cli.options import PATH, json_option, max_piped_bytes_option, rows_option
from bowstring.cli.progress import open_with_progress, progress_bar
from bowstring.display.printable_text import to_printable
from bowstring.file_formats import SourceOptions
from bowstring.inspection.diff import (
    LengthDifference,
    RowDifference,
    find_common_columns,
    find_row_differences,
    find_schema_differences,
)
from bowstring.inspection.formatting import format_json, to_json_value
from bowstring.inspection.validation import iter_validated_batches

# Enough to find the cause; `--json` has all.
_COLUMNS_SHOWN = 50
_VALUE_CHARACTERS = 60
_LINE_CHARACTERS = 400
_HINT = "bowstring validate lists all errors, --quick compares without validation"


@click.command(
    epilog=examples(
        "bowstring diff flights.arrow copy.parquet",
        "bowstring diff -n 3 --ignore-metadata flights.arrow copy.parquet",
    )
)
@click.argument("left", type=PATH)
@click.argument("right", type=PATH)
@rows_option("Maximum number of rows to show.")
@click.option("--ignore-metadata", is_flag=True, help="Ignore differences in custom metadata.")
@json_option("Write the differences as JSON.")
@click.option("--quick", is_flag=True, help="Do not validate values before they are compared.")
@max_piped_bytes_option
def diff(left: str, right: str, **options: Any) -> int:
    """Show the differences between two files, in any format: the schema, then the first rows that differ.

    One of LEFT and RIGHT may be - for standard input. Formats, batch sizes, compression and framing are
    ignored. Every value that is compared is validated first. The exit status is 1 if there are differences.
    """
    if left == right == "-":
        raise click.UsageError("only one of the two can be standard input")
    count, read_options = options["count"], SourceOptions(max_piped_bytes=options["max_piped_bytes"])
    with (
        open_input(left, has_from=False) as left_source,
        progress_bar("comparing", left_source.progress_unit) as report_progress,
        open_with_progress(left_source, read_options, report_progress) as left_table,
        open_input(right, has_from=False) as right_source,
        right_source.open_table(read_options) as right_table,
    ):
        schema = list(find_schema_differences(left_table.schema, right_table.schema, not options["ignore_metadata"]))
        columns = find_common_columns(left_table.schema, right_table.schema)
        rows = find_row_differences(
            _select_columns(left, left_table.batches, [index for index, _ in columns], options["quick"]),
            _select_columns(right, right_table.batches, [index for _, index in columns], options["quick"]),
            [(index, index) for index in range(len(columns))],
        )
        differences = list(islice(rows, count + 1))
    if options["as_json"]:
        echo_json(_to_json((source_name(left), source_name(right)), schema, differences, count))
    else:
        _show_differences(schema, differences, count)
    return EXIT_FAILURE if schema or differences else 0


def _select_columns(
    file: str, batches: Iterable[RecordBatch], columns: list[int], is_quick: bool
) -> Iterator[RecordBatch]:
    """Select the columns to compare, and validate them unless `is_quick`."""
    selected = (batch.select(columns) for batch in batches)
    with prefix_errors_with_source(file):
        yield from selected if is_quick else iter_validated_batches(selected, _HINT)


def _select_shown(
    differences: list[RowDifference | LengthDifference], count: int
) -> tuple[list[RowDifference], LengthDifference | None, bool]:
    """Return the first `count` rows that differ, the difference in length, if reached, and whether more rows differ."""
    rows = [difference for difference in differences if isinstance(difference, RowDifference)]
    lengths = next((difference for difference in differences if isinstance(difference, LengthDifference)), None)
    return rows[:count], lengths, len(rows) > count


def _show_differences(schema: list[str], differences: list[RowDifference | LengthDifference], count: int) -> None:
    for line in schema[:_COLUMNS_SHOWN]:
        click.echo(f"schema: {to_printable(line, _LINE_CHARACTERS)}")
    if len(schema) > _COLUMNS_SHOWN:
        click.echo(f"schema: … and {len(schema) - _COLUMNS_SHOWN:,} more differences (--json has them)")
    rows, lengths, has_more = _select_shown(differences, count)
    for difference in rows:
        for cell in difference.cells[:_COLUMNS_SHOWN]:
            values = (
                to_printable(format_json(to_json_value(value)), _VALUE_CHARACTERS) for value in (cell.left, cell.right)
            )
            click.echo(
                f"row {difference.row}, column '{to_printable(cell.column, _VALUE_CHARACTERS)}': {' | '.join(values)}"
            )
        if len(difference.cells) > _COLUMNS_SHOWN:
            click.echo(
                f"row {difference.row}: … and {len(difference.cells) - _COLUMNS_SHOWN:,} more columns (--json has them)"
            )
    if lengths is not None:
        click.echo(f"rows: {lengths.left:,} on the left, {lengths.right:,} on the right")
    if has_more:
        click.echo("… and more (-n shows more rows)")


def _to_json(
    names: tuple[str, str], schema: list[str], differences: list[RowDifference | LengthDifference], count: int
) -> dict[str, Any]:
    rows, lengths, has_more = _select_shown(differences, count)
    return {
        "left": names[0],
        "right": names[1],
        "equal": not (schema or differences),
        "schema": schema,
        "rows": [
            {
                "row": difference.row,
                "cells": [
                    {"column": cell.column, "left": to_json_value(cell.left), "right": to_json_value(cell.right)}
                    for cell in difference.cells
                ],
            }
            for difference in rows
        ],
        "lengths": None if lengths is None else asdict(lengths),
        "more": has_more,
    }
