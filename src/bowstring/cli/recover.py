"""`bowstring recover`: save the intact batches and columns of a damaged or truncated file or stream."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from bowstring.cli.error_messages import EXIT_FAILURE
from bowstring.cli.help_text import examples
from bowstring.cli.input_output import (
    choose_arrow_format,
    echo_json,
    list_inputs,
    resolve_output,
    resolve_source,
    source_name,
)
from bowstring.cli.main import format_error
from bowstring.cli.options import PATH, all_option, json_option, max_piped_bytes_option, quick_option
from bowstring.cli.progress import progress_bar
from bowstring.display.printable_text import to_printable
from bowstring.errors import InvalidDataError, MissingFileError, format_count
from bowstring.file_formats import ARROW_FORMATS, FORMATS_BY_EXTENSION
from bowstring.ipc.tools.message_search import DroppedRange
from bowstring.ipc.tools.recover import DamagedColumn, RecoveryReport, recover as recover_data
from bowstring.redaction import redact

# Enough to see a pattern; `recover` in Python returns all losses.
_LOSSES_SHOWN = 100
_REASON_CHARACTERS = 300
_Loss = TypeVar("_Loss", DroppedRange, DamagedColumn)


@click.command(
    epilog=examples(
        "bowstring recover damaged.arrow sound.arrow",
        "bowstring recover --json damaged.arrow sound.arrow",
    )
)
@click.argument("source", type=PATH)
@click.argument("target", type=PATH)
@quick_option
@click.option(
    "--damaged-columns",
    type=click.Choice(["null", "drop"]),
    default="null",
    show_default=True,
    help="Save damaged columns as null, or drop their batches.",
)
@json_option("Write the report as JSON.")
@all_option(f"List all losses, not only the first {_LOSSES_SHOWN}.")
@max_piped_bytes_option
def recover(  # noqa: PLR0913 -- one parameter for each option
    source: str,
    target: str,
    *,
    quick: bool,
    damaged_columns: Literal["null", "drop"],
    as_json: bool,
    show_all: bool,
    max_piped_bytes: int,
) -> int:
    """Save the intact batches and columns of a damaged or truncated Arrow file or stream, and list the losses.

    SOURCE and TARGET are two paths, or - for standard input and output. A file is written as a file, a stream as a
    stream. If SOURCE is a folder or a glob in quotes, TARGET is a folder for files of the same names; files without
    intact data are only listed. The report is written to standard error if the data is written to standard output. The
    exit status is 1 if data was lost. TARGET is valid, but changed values can't be detected: Arrow has no checksums.
    """
    targets = _choose_targets(source, target)
    count = None if show_all else _LOSSES_SHOWN
    documents, is_lost = [], False
    for each, path in targets:
        choose_arrow_format(path, None)
        try:
            out = resolve_output(path, each)
            with progress_bar("recovering", "bytes") as report_progress:
                report = recover_data(
                    resolve_source(each),
                    out,
                    not quick,
                    max_piped_bytes=max_piped_bytes,
                    report_progress=report_progress,
                    damaged_columns=damaged_columns,
                )
        except InvalidDataError as error:
            if len(targets) == 1:
                raise
            click.echo(format_error(error), err=True)
            documents.append({"source": source_name(each), "error": str(error)})
            is_lost = True
            continue
        is_lost = is_lost or bool(report.dropped or report.damaged_columns)
        documents.append(_to_json(source_name(each), redact(path), report, count))
        if not as_json:
            _show_report(to_printable(source_name(each)), to_printable(redact(path)), report, count, target == "-")
    if as_json:
        echo_json(documents[0] if len(documents) == 1 else {"files": documents}, err=target == "-")
    return EXIT_FAILURE if is_lost else 0


def _choose_targets(source: str, target: str) -> list[tuple[str, str]]:
    """Return each source with its target; the files of a folder keep their paths in it.

    A manifest is not read: the damaged files may have other sizes than those in it.
    """
    folder = Path(source)
    if source and folder.is_dir():  # Path("") is the current folder
        files = [path for path in sorted(folder.rglob("*")) if _is_data_file(path.relative_to(folder))]
        if not files:
            raise MissingFileError(f"{folder}: found no Arrow files", filename=source)
        pairs = [(str(path), Path(target) / path.relative_to(folder)) for path in files]
    else:
        inputs = list_inputs(source)
        if len(inputs) == 1:
            return [(str(inputs[0]), target)]
        folder = Path(os.path.commonpath([Path(str(path)).parent for path in inputs]))
        # Files of several folders may have equal names. The path of a URL has one slash after its scheme.
        pairs = [(str(path), Path(target) / Path(str(path)).relative_to(folder)) for path in inputs]
    for _, path in pairs:
        path.parent.mkdir(parents=True, exist_ok=True)
    return [(path, str(out)) for path, out in pairs]


def _is_data_file(path: Path) -> bool:
    """Return whether a path in a folder is an Arrow file, and not of a manifest or a job that has not committed."""
    is_hidden = any(name.startswith(("_", ".")) for name in path.parts)
    return not is_hidden and FORMATS_BY_EXTENSION.get(path.suffix.lower()) in ARROW_FORMATS


def _show_report(name: str, target: str, report: RecoveryReport, count: int | None, to_error: bool) -> None:
    def write_line(line: str) -> None:
        click.echo(f"{name}: {line}", err=to_error)

    def write_losses(losses: Sequence[_Loss], describe: Callable[[_Loss], str]) -> None:
        for loss in losses[:count]:
            write_line(f"{describe(loss)}: {to_printable(loss.reason, _REASON_CHARACTERS)}")
        if len(losses) > len(losses[:count]):
            write_line(f"… and {len(losses[count:]):,} more (--all shows them)")

    write_losses(report.dropped, _describe_range)
    write_losses(report.damaged_columns, _describe_column)
    if report.footer_problem is not None:
        write_line(
            f"no footer and no custom metadata of the file: {to_printable(report.footer_problem, _REASON_CHARACTERS)}"
        )
    state = f"an intact {report.format}" if report.is_intact else f"a damaged {report.format}"
    batches = format_count(report.record_batches, "record batch")
    write_line(f"{state}; {report.rows:,} rows in {batches} are in {target}")


def _describe_range(dropped: DroppedRange) -> str:
    what = "" if dropped.kind is None else f": {dropped.kind}"
    rows = "" if dropped.rows is None else f" of {format_count(dropped.rows, 'row')}"
    return f"dropped bytes {dropped.start:,} to {dropped.stop:,}{what}{rows}"


def _describe_column(damaged: DamagedColumn) -> str:
    rows = format_count(damaged.rows, "row")
    return f"record batch {damaged.record_batch}: column {to_printable(repr(damaged.name))} is null in {rows}"


def _to_json(name: str, target: str, report: RecoveryReport, count: int | None) -> dict[str, Any]:
    return {
        "source": name,
        "target": target,
        "format": report.format,
        "intact": report.is_intact,
        "record_batches": report.record_batches,
        "dictionary_batches": report.dictionary_batches,
        "rows": report.rows,
        "footer_problem": report.footer_problem,
        "dropped_count": len(report.dropped),
        "dropped": [asdict(dropped_range) for dropped_range in report.dropped[:count]],
        "damaged_column_count": len(report.damaged_columns),
        "damaged_columns": [asdict(damaged) for damaged in report.damaged_columns[:count]],
    }
