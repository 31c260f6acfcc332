"""`bowstring validate`: list all errors of an Arrow file or stream."""

from __future__ import annotations

import json
from typing import Any

import click

from bowstring.cli.input_output import PATH, max_piped_option, progress, resolve_source, source_name
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
    """List all errors of an Arrow file or stream, with their location. The exit status is 1 if there are any.

    FILE is a path, a URL, or - for standard input, which is also read if FILE is omitted and input is piped. Every
    value is checked: offsets, indices, UTF-8, run ends, decimals and so on.
    """
    source, limit = resolve_source(file), None if show_all else _FAULTS_SHOWN
    listed: list[Fault] = []
    with progress("validating") as advance:
        validator = Validator(source, not quick, max_piped_bytes=max_piped_bytes, advance=advance)
        for fault in validator.faults():
            if limit is None or len(listed) < limit:
                listed.append(fault)
    name, validation = source_name(file), validator.validation
    if as_json:
        click.echo(json.dumps(_document(name, validation, listed, not quick), indent=2))
    else:
        _show(printable(name), validation, listed)
    return FAILED if validation.fault_count else 0


def _show(name: str, validation: Validation, listed: list[Fault]) -> None:
    for fault in listed:
        message = printable(fault.message, _MESSAGE_CHARACTERS).removeprefix(f"{name}: ")
        click.echo(f"{name}: {_place(fault)}{message}")
    hidden = validation.fault_count - len(listed)
    if hidden:
        click.echo(f"{name}: … and {hidden:,} more errors (--all shows them)")
    if validation.fault_count:
        return
    batches = f"{validation.record_batches:,} record batch{'' if validation.record_batches == 1 else 'es'}"
    click.echo(
        f"{name}: valid: an Arrow {validation.format}, {validation.rows:,} rows in {batches}, "
        f"{validation.columns:,} columns"
    )


def _place(fault: Fault) -> str:
    parts = [] if fault.record_batch is None else [f"record batch {fault.record_batch}"]
    if fault.column_name is not None:
        parts.append(f"column {fault.column} ('{printable(fault.column_name, _NAME_CHARACTERS)}')")
    steps = [", ".join(parts)] if parts else []
    steps += [printable(step, _NAME_CHARACTERS) for step in fault.path]
    return " → ".join(steps) + (": " if steps else "")


def _document(name: str, validation: Validation, listed: list[Fault], full: bool) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "source": name,
        "format": validation.format,
        "valid": not validation.fault_count,
        "full": full,
        "columns": validation.columns,
        "record_batches": validation.record_batches,
        "rows": validation.rows,
        "fault_count": validation.fault_count,
        "faults": [
            {
                "record_batch": fault.record_batch,
                "column": fault.column,
                "column_name": fault.column_name,
                "error": fault.error,
                "path": list(fault.path),
                "message": fault.message,
            }
            for fault in listed
        ],
    }
