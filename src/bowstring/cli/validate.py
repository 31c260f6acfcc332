"""`bowstring validate`: list all errors of an Arrow file or stream."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from bowstring.cli.error_messages import EXIT_FAILURE
from bowstring.cli.input_output import echo_json, resolve_source, source_name
from bowstring.cli.options import all_option, file_argument, json_option, max_piped_bytes_option, quick_option
from bowstring.cli.progress import progress_bar
from bowstring.errors import format_count
from bowstring.inspection.printable_text import to_printable
from bowstring.inspection.validation import Fault, ValidationSummary, Validator

_FAULTS_SHOWN = 100
_MESSAGE_CHARACTERS = 400
_NAME_CHARACTERS = 60


@click.command()
@file_argument
@quick_option
@json_option("Write the report as JSON.")
@all_option(f"Show all errors, not only the first {_FAULTS_SHOWN}.")
@max_piped_bytes_option
def validate(file: str | None, *, quick: bool, as_json: bool, show_all: bool, max_piped_bytes: int) -> int:
    """List all errors of an Arrow file or stream, with their location. The exit status is 1 if there are any.

    FILE is a path or URL, or - for standard input. If FILE is omitted, standard input is read, unless it is a
    terminal. Every value is checked: offsets, indices, UTF-8, run ends, decimals and so on.
    """
    source, limit = resolve_source(file), None if show_all else _FAULTS_SHOWN
    faults: list[Fault] = []
    with progress_bar("validating") as report_progress:
        validator = Validator(source, not quick, max_piped_bytes=max_piped_bytes, report_progress=report_progress)
        for fault in validator.faults():
            if limit is None or len(faults) < limit:
                faults.append(fault)
    name, validation = source_name(file), validator.validation
    if as_json:
        echo_json(_to_json(name, validation, faults, not quick))
    else:
        _show_faults(to_printable(name), validation, faults)
    return EXIT_FAILURE if validation.fault_count else 0


def _show_faults(name: str, validation: ValidationSummary, faults: list[Fault]) -> None:
    for fault in faults:
        message = to_printable(fault.message, _MESSAGE_CHARACTERS).removeprefix(f"{name}: ")
        click.echo(f"{name}: {_format_location(fault)}{message}")
    hidden = validation.fault_count - len(faults)
    if hidden:
        click.echo(f"{name}: … and {hidden:,} more errors (--all shows them)")
    for warning in validation.warnings:
        text = to_printable(warning, _MESSAGE_CHARACTERS).removeprefix(f"{name}: ")
        click.echo(f"{name}: warning: {text}")
    if validation.fault_count:
        return
    batches = format_count(validation.record_batches, "record batch")
    click.echo(
        f"{name}: valid: an Arrow {validation.format}, {validation.rows:,} rows in {batches}, "
        f"{validation.columns:,} columns"
    )


def _format_location(fault: Fault) -> str:
    parts = [] if fault.record_batch is None else [f"record batch {fault.record_batch}"]
    if fault.column_name is not None:
        parts.append(f"column {fault.column} ('{to_printable(fault.column_name, _NAME_CHARACTERS)}')")
    steps = [", ".join(parts)] if parts else []
    steps += [to_printable(step, _NAME_CHARACTERS) for step in fault.path]
    return " → ".join(steps) + (": " if steps else "")


def _to_json(name: str, validation: ValidationSummary, faults: list[Fault], is_full: bool) -> dict[str, Any]:
    return {
        "source": name,
        "format": validation.format,
        "valid": not validation.fault_count,
        "full": is_full,
        "columns": validation.columns,
        "record_batches": validation.record_batches,
        "rows": validation.rows,
        "fault_count": validation.fault_count,
        "faults": [asdict(fault) for fault in faults],
        "warnings": validation.warnings,
    }
