"""`bowstring validate`: list all errors of an Arrow file or stream, or of a folder with a manifest."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from bowstring.cli.error_messages import EXIT_FAILURE
from bowstring.cli.help_text import examples
from bowstring.cli.input_output import echo_json, list_inputs, open_input, source_name
from bowstring.cli.options import all_option, file_argument, json_option, max_piped_bytes_option, quick_option
from bowstring.cli.progress import progress_bar, report_in_unit
from bowstring.datasets.folder_validation import check_listed_file, list_unlisted_files
from bowstring.datasets.manifest import ManifestEntry, list_files_without_manifest, read_manifest
from bowstring.display.printable_text import to_printable
from bowstring.errors import InvalidDataError, MissingFileError, NotFoundError, format_count
from bowstring.inspection.validation import Fault, ValidationSummary, Validator

# Enough to see a pattern, in lines that can still be read.
_FAULTS_SHOWN = 100
_MESSAGE_CHARACTERS = 400
_NAME_CHARACTERS = 60


@click.command(
    epilog=examples(
        "bowstring validate flights.arrow",
        "bowstring validate --quick --json flights.arrows",
        "bowstring validate /data/flights   # a folder that Spark wrote",
    )
)
@file_argument
@quick_option
@json_option("Write the report as JSON.")
@all_option(f"Show all errors, not only the first {_FAULTS_SHOWN}.")
@max_piped_bytes_option
def validate(file: str | None, *, quick: bool, as_json: bool, show_all: bool, max_piped_bytes: int) -> int:
    """List all errors of an Arrow file or stream, with their location. The exit status is 1 if there are any.

    FILE is a path or URL, or - for standard input. If FILE is omitted, standard input is read, unless it is a
    terminal. Every value is checked: offsets, indices, UTF-8, run ends, decimals and so on. FILE may be a folder that
    Spark wrote: its files are compared with its manifest, too.
    """
    limit = None if show_all else _FAULTS_SHOWN
    if file is not None and Path(file).is_dir():
        return _validate_folder(Path(file), quick=quick, as_json=as_json, limit=limit)
    documents, is_valid = [], True
    for each in list_inputs(file):
        validation, faults = _validate_file(each, quick, limit, max_piped_bytes)
        is_valid = is_valid and not validation.fault_count
        documents.append(_to_json(source_name(each), validation, faults, not quick))
        if not as_json:
            _show_faults(to_printable(source_name(each)), validation, faults)
    if as_json:
        echo_json(documents[0] if len(documents) == 1 else {"files": documents})
    return 0 if is_valid else EXIT_FAILURE


def _validate_file(
    file: str | None, quick: bool, limit: int | None, max_piped_bytes: int
) -> tuple[ValidationSummary, list[Fault]]:
    faults: list[Fault] = []
    with (
        open_input(file, "arrow") as source,
        progress_bar("validating", source.progress_unit) as report_progress,
    ):
        report_batches = report_in_unit(source, report_progress)
        validator = Validator(source.source, not quick, max_piped_bytes=max_piped_bytes, report_progress=report_batches)
        for fault in validator.faults():
            if limit is None or len(faults) < limit:
                faults.append(fault)
    return validator.validation, faults


def _validate_folder(folder: Path, *, quick: bool, as_json: bool, limit: int | None) -> int:
    """Validate the files that the manifest of a folder lists, or without one its Arrow files."""
    manifest = read_manifest(folder)
    if manifest is None:
        entries = [ManifestEntry(path.name, path.stat().st_size) for path in list_files_without_manifest(folder)]
        if not entries:
            raise NotFoundError(f"{folder}: found no manifest and no Arrow files")
        unlisted = []
    else:
        entries, unlisted = list(manifest.entries), list_unlisted_files(folder, manifest)
    reports, fault_count, num_rows = [], 0, 0
    for entry in entries:
        name = str(folder / entry.name)
        validation, faults = _validate_listed_file(folder, entry, quick=quick)
        num_rows, fault_count = num_rows + validation.rows, fault_count + validation.fault_count
        if validation.fault_count or validation.warnings:
            shown = faults if limit is None else faults[:limit]
            reports.append(_to_json(name, validation, shown, not quick))
            if not as_json:
                _show_faults(to_printable(name), validation, shown)
    warnings = [f"{path}: is not listed in manifest {manifest.sequence_number}" for path in unlisted if manifest]
    if as_json:
        totals = {"source": str(folder), "format": "folder", "valid": not fault_count, "full": not quick}
        counts = {"files": len(entries), "rows": num_rows, "fault_count": fault_count}
        echo_json({**totals, **counts, "reports": reports, "warnings": warnings})
        return EXIT_FAILURE if fault_count else 0
    for warning in warnings:
        click.echo(f"{to_printable(warning, _MESSAGE_CHARACTERS)} (warning)")
    if not fault_count:
        commit = "without a manifest" if manifest is None else f"as in manifest {manifest.sequence_number}"
        files = format_count(len(entries), "file")
        click.echo(f"{to_printable(str(folder))}: valid: {files} {commit}, {format_count(num_rows, 'row')}")
    return EXIT_FAILURE if fault_count else 0


def _validate_listed_file(folder: Path, entry: ManifestEntry, *, quick: bool) -> tuple[ValidationSummary, list[Fault]]:
    path = folder / entry.name
    try:
        check_listed_file(folder, entry, checksum=not quick)
    except (InvalidDataError, MissingFileError) as error:
        summary = ValidationSummary(str(path), fault_count=1)
        return summary, [Fault(None, None, None, type(error).__name__, str(error))]
    validator = Validator(str(path), not quick)
    faults = list(validator.faults())
    validation = validator.validation
    if not faults:
        try:
            entry.check_counts(validation.rows, validation.record_batches)
        except InvalidDataError as error:
            faults.append(Fault(None, None, None, type(error).__name__, str(error)))
            validation.fault_count += 1
    return validation, faults


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
        f"{name}: valid: an Arrow {validation.format}, {format_count(validation.rows, 'row')} in {batches}, "
        f"{format_count(validation.columns or 0, 'column')}"
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
        **asdict(validation),
        "source": name,
        "valid": not validation.fault_count,
        "full": is_full,
        "faults": [asdict(fault) for fault in faults],
    }
