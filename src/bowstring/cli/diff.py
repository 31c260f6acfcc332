"""`bowstring diff`: what two Arrow files or streams differ in, the schema first, then the first rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import click

from bowstring.arrays.record_batch import RecordBatch
from bowstring.cli.input_output import PATH, counted, given, max_piped_option, named, progress, telling
from bowstring.cli.settings import FAILED
from bowstring.inspection.diff import (
    LengthDifference,
    RowDifference,
    comparable,
    row_differences,
    schema_differences,
)
from bowstring.inspection.text import printable
from bowstring.inspection.validation import sound
from bowstring.inspection.values import as_json, json_value
from bowstring.ipc.format_detection import open_any

FORMAT_VERSION = 1
_COLUMNS_SHOWN = 50
_VALUE_CHARACTERS = 60
_LINE_CHARACTERS = 400
_HINT = "bowstring validate lists all errors, --quick compares values as they are"


@click.command()
@click.argument("left", type=PATH)
@click.argument("right", type=PATH)
@click.option(
    "-n",
    "--rows",
    "count",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Maximum number of rows to show.",
)
@click.option("--ignore-metadata", is_flag=True, help="Let custom metadata differ.")
@click.option("--json", "as_document", is_flag=True, help="Write the result as JSON.")
@click.option("--quick", is_flag=True, help="Compare values as they are, whether they are sound or not.")
@max_piped_option
def diff(left: str, right: str, **options: Any) -> int:
    """Show the differences between two Arrow files or streams: the schema, then the first rows that differ.

    One of LEFT and RIGHT may be - for standard input. How the two are cut into batches, compressed or framed does not
    count. Every value that is compared is looked at: a malformed one is refused with its place. The exit status is 1
    where they differ.
    """
    if left == right == "-":
        raise click.UsageError("only one of the two can be standard input")
    count, most_bytes = options["count"], options["max_piped_bytes"]
    with (
        open_any(given(left), max_piped_bytes=most_bytes) as mine,
        open_any(given(right), max_piped_bytes=most_bytes) as theirs,
    ):
        schema = list(schema_differences(mine.schema, theirs.schema, not options["ignore_metadata"]))
        columns = comparable(mine.schema, theirs.schema)
        with progress("comparing") as advance:
            rows = row_differences(
                _compared(left, counted(mine, advance), [here for here, _ in columns], options["quick"]),
                _compared(right, theirs, [there for _, there in columns], options["quick"]),
                [(index, index) for index in range(len(columns))],
            )
            found = list(islice(rows, count + 1))
    if options["as_document"]:
        click.echo(json.dumps(_document((named(left), named(right)), schema, found, count), indent=2))
    else:
        _show(schema, found, count)
    return FAILED if schema or found else 0


def _compared(file: str, batches: Iterable[RecordBatch], columns: list[int], is_quick: bool) -> Iterator[RecordBatch]:
    """The columns of the batches that are compared, sound ones unless that is of no interest."""
    chosen = (batch.select(columns) for batch in batches)
    with telling(file):
        yield from chosen if is_quick else sound(chosen, _HINT)


def _show(schema: list[str], found: list[RowDifference | LengthDifference], count: int) -> None:
    for line in schema[:_COLUMNS_SHOWN]:
        click.echo(f"schema: {printable(line, _LINE_CHARACTERS)}")
    if len(schema) > _COLUMNS_SHOWN:
        click.echo(f"schema: … and {len(schema) - _COLUMNS_SHOWN:,} more differences (--json has them)")
    for item in found[:count]:
        if isinstance(item, LengthDifference):
            click.echo(f"rows: {item.left:,} on the left, {item.right:,} on the right")
            continue
        for cell in item.cells[:_COLUMNS_SHOWN]:
            values = (printable(as_json(json_value(value)), _VALUE_CHARACTERS) for value in (cell.left, cell.right))
            click.echo(f"row {item.row}, column '{printable(cell.column, _VALUE_CHARACTERS)}': {' | '.join(values)}")
        if len(item.cells) > _COLUMNS_SHOWN:
            click.echo(f"row {item.row}: … and {len(item.cells) - _COLUMNS_SHOWN:,} more columns (--json has them)")
    if len(found) > count:
        click.echo("… and more (-n shows more rows)")


def _document(
    names: tuple[str, str], schema: list[str], found: list[RowDifference | LengthDifference], count: int
) -> dict[str, Any]:
    lengths = next((item for item in found if isinstance(item, LengthDifference)), None)
    return {
        "format_version": FORMAT_VERSION,
        "left": names[0],
        "right": names[1],
        "equal": not (schema or found),
        "schema": schema,
        "rows": [
            {
                "row": item.row,
                "cells": [
                    {"column": cell.column, "left": json_value(cell.left), "right": json_value(cell.right)}
                    for cell in item.cells
                ],
            }
            for item in found[:count]
            if isinstance(item, RowDifference)
        ],
        "lengths": None if lengths is None else {"left": lengths.left, "right": lengths.right},
        "more": len(found) > count,
    }
