"""`bowstring recover`: save the intact batches of a damaged or truncated file or stream."""

from __future__ import annotations

import json
from typing import Any

import click

from bowstring.cli.input_output import PATH, binary_output, max_piped_option, progress, resolve_source, source_name
from bowstring.cli.settings import FAILED
from bowstring.inspection.text import printable
from bowstring.ipc.tools.recover import RecoveryReport, recover as recover_data
from bowstring.ipc.tools.salvage import DroppedRange

FORMAT_VERSION = 1
_DROPPED_SHOWN = 100
_REASON_CHARACTERS = 300


@click.command()
@click.argument("source", type=PATH)
@click.argument("target", type=PATH)
@click.option("--quick", is_flag=True, help="Check the structure of batches only, not every value.")
@click.option("--json", "as_json", is_flag=True, help="Write the report as JSON.")
@click.option(
    "--all", "show_all", is_flag=True, help=f"List everything that is dropped, not only the first {_DROPPED_SHOWN}."
)
@max_piped_option
def recover(source: str, target: str, *, quick: bool, as_json: bool, show_all: bool, max_piped_bytes: int) -> int:
    """Save the intact batches of a damaged or truncated Arrow file or stream, and list what is lost.

    SOURCE and TARGET are two paths, or - for standard input and output. A file is written as a file, a stream as a
    stream. The report is written to standard error if the data is written to standard output. The exit status is 1 if
    something was dropped. TARGET is valid, but changed values can't be detected: Arrow has no checksums.
    """
    with binary_output(target, source) as out, progress("recovering", "bytes") as advance:
        report = recover_data(resolve_source(source), out, not quick, max_piped_bytes=max_piped_bytes, advance=advance)
    listed = list(report.dropped if show_all else report.dropped[:_DROPPED_SHOWN])
    if as_json:
        click.echo(json.dumps(_document(source_name(source), target, report, listed), indent=2), err=target == "-")
    else:
        _show(printable(source_name(source)), printable(target), report, listed, target == "-")
    return FAILED if report.dropped else 0


def _show(name: str, target: str, report: RecoveryReport, listed: list[DroppedRange], to_error: bool) -> None:
    def tell(line: str) -> None:
        click.echo(f"{name}: {line}", err=to_error)

    for span in listed:
        what = str(span.kind or "")
        if span.rows is not None:
            what += f" of {span.rows:,} rows"
        reason = printable(span.reason, _REASON_CHARACTERS)
        tell(f"dropped bytes {span.start:,} to {span.stop:,}{': ' if what else ''}{what}: {reason}")
    hidden = len(report.dropped) - len(listed)
    if hidden:
        tell(f"… and {hidden:,} more (--all shows them)")
    if report.footer_problem is not None:
        tell(f"no footer and no custom metadata of the file: {printable(report.footer_problem, _REASON_CHARACTERS)}")
    state = f"an intact {report.format}" if report.is_intact else f"a damaged {report.format}"
    batches = f"{report.record_batches:,} record batch{'' if report.record_batches == 1 else 'es'}"
    tell(f"{state}; {report.rows:,} rows in {batches} are in {target}")


def _document(name: str, target: str, report: RecoveryReport, listed: list[DroppedRange]) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "source": name,
        "target": target,
        "format": report.format,
        "intact": report.is_intact,
        "record_batches": report.record_batches,
        "dictionary_batches": report.dictionary_batches,
        "rows": report.rows,
        "footer_problem": report.footer_problem,
        "dropped_count": len(report.dropped),
        "dropped": [
            {"start": span.start, "stop": span.stop, "kind": span.kind, "rows": span.rows, "reason": span.reason}
            for span in listed
        ],
    }
