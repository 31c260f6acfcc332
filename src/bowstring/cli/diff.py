"""`bowstring diff`: what two Arrow files or streams differ in, the schema first, then the first rows."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import click

from bowstring.cli.settings import FAILED
from bowstring.cli.streams import PATH, counted, given, max_piped_option, named, progress
from bowstring.inspection.differences import (
    LengthDifference,
    RowDifference,
    comparable,
    row_differences,
    schema_differences,
)
from bowstring.inspection.text import printable
from bowstring.inspection.values import as_json, json_value
from bowstring.ipc.opening import open_any

FORMAT_VERSION = 1
_COLUMNS_SHOWN = 50
_VALUE_CHARACTERS = 60
_LINE_CHARACTERS = 400


@click.command()
@click.argument("left", type=PATH)
@click.argument("right", type=PATH)
@click.option("-n", "--rows", "count", type=click.IntRange(min=0), default=10, show_default=True, help="Most rows.")
@click.option("--ignore-metadata", is_flag=True, help="Let custom metadata differ.")
@click.option("--json", "as_document", is_flag=True, help="Write the result as JSON.")
@max_piped_option
def diff(left: str, right: str, *, count: int, ignore_metadata: bool, as_document: bool, max_piped_bytes: int) -> int:
    """Tell what two Arrow files or streams differ in: the schema first, then the first rows that differ.

    One of LEFT and RIGHT may be - for standard input. How the two are cut into batches, compressed or framed does not
    count. The exit status is 1 where they differ.
    """
    if left == right == "-":
        raise click.UsageError("only one of the two can be standard input")
    with (
        open_any(given(left), max_piped_bytes=max_piped_bytes) as mine,
        open_any(given(right), max_piped_bytes=max_piped_bytes) as theirs,
    ):
        schema = list(schema_differences(mine.schema, theirs.schema, not ignore_metadata))
        columns = comparable(mine.schema, theirs.schema)
        with progress("comparing") as advance:
            found = list(islice(row_differences(counted(mine, advance), theirs, columns), count + 1))
    if as_document:
        click.echo(json.dumps(_document((named(left), named(right)), schema, found, count), indent=2))
    else:
        _show(schema, found, count)
    return FAILED if schema or found else 0


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
