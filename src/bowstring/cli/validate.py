"""`bowstring validate`: every fault of an Arrow file or stream with its place, and an exit status."""

from __future__ import annotations

import json
from typing import Any

import click

from bowstring.cli.input_output import PATH, given, max_piped_option, named, progress
from bowstring.cli.settings import FAILED
from bowstring.inspection.text import printable
from bowstring.inspection.validation import Fault, Validation, Validator

FORMAT_VERSION = 1
_FAULTS_SHOWN = 100
_MESSAGE_CHARACTERS = 400
_NAME_CHARACTERS = 60


@click.command()
@click.argument("file", required=False, type=PATH)
@click.option("--quick", is_flag=True, help="Check the structure only, not every value.")
@click.option("--json", "as_json", is_flag=True, help="Write the result as JSON.")
@click.option("--all", "show_all", is_flag=True, help=f"Show all errors, not only the first {_FAULTS_SHOWN}.")
@max_piped_option
def validate(file: str | None, *, quick: bool, as_json: bool, show_all: bool, max_piped_bytes: int) -> int:
    """List all errors of an Arrow file or stream, each with its place. The exit status is 1 if there are any.

    FILE is a path, a URL, or - for standard input, which is also read if FILE is omitted and input is piped. Every
    value is looked at: offsets, indices, UTF-8, run ends, decimals and so on.
    """
    source, limit = given(file), None if show_all else _FAULTS_SHOWN
    kept: list[Fault] = []
    with progress("validating") as advance:
        validator = Validator(source, not quick, max_piped_bytes=max_piped_bytes, advance=advance)
        for fault in validator.faults():
            if limit is None or len(kept) < limit:
                kept.append(fault)
    name, result = named(file), validator.result
    if as_json:
        click.echo(json.dumps(_document(name, result, kept, not quick), indent=2))
    else:
        _show(printable(name), result, kept)
    return FAILED if result.fault_count else 0


def _show(name: str, result: Validation, kept: list[Fault]) -> None:
    for fault in kept:
        message = printable(fault.message, _MESSAGE_CHARACTERS).removeprefix(f"{name}: ")
        click.echo(f"{name}: {_place(fault)}{message}")
    left = result.fault_count - len(kept)
    if left:
        click.echo(f"{name}: … and {left:,} more faults (--all shows them)")
    if result.fault_count:
        return
    batches = f"{result.record_batches:,} record batch{'' if result.record_batches == 1 else 'es'}"
    click.echo(
        f"{name}: valid: an Arrow {result.format}, {result.rows:,} rows in {batches}, {result.columns:,} columns"
    )


def _place(fault: Fault) -> str:
    parts = [] if fault.record_batch is None else [f"record batch {fault.record_batch}"]
    if fault.column_name is not None:
        parts.append(f"column {fault.column} ('{printable(fault.column_name, _NAME_CHARACTERS)}')")
    steps = [", ".join(parts)] if parts else []
    steps += [printable(step, _NAME_CHARACTERS) for step in fault.path]
    return " → ".join(steps) + (": " if steps else "")


def _document(name: str, result: Validation, kept: list[Fault], full: bool) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "source": name,
        "format": result.format,
        "valid": not result.fault_count,
        "full": full,
        "columns": result.columns,
        "record_batches": result.record_batches,
        "rows": result.rows,
        "fault_count": result.fault_count,
        "faults": [
            {
                "record_batch": fault.record_batch,
                "column": fault.column,
                "column_name": fault.column_name,
                "error": fault.error,
                "path": list(fault.path),
                "message": fault.message,
            }
            for fault in kept
        ],
    }
