"""`bowstring recover`: what is whole of a damaged or cut-off file or stream, and what is not."""

from __future__ import annotations

import json
from typing import Any

import click

from bowstring.cli.input_output import PATH, binary_output, given, max_piped_option, named, progress
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
@click.option("--all", "show_all", is_flag=True, help=f"Show all that is dropped, not only the first {_DROPPED_SHOWN}.")
@max_piped_option
def recover(source: str, target: str, *, quick: bool, as_json: bool, show_all: bool, max_piped_bytes: int) -> int:
    """Save the intact batches of a damaged or truncated Arrow file or stream, and list what is lost.

    SOURCE and TARGET are two paths, or - for standard input and output; a file becomes a file, a stream a stream. The
    report goes to standard error where the data goes to standard output. Exit status 1 where something was dropped.
    What TARGET holds is sound, but damage that makes one value into another can't be seen: Arrow has no checksums.
    """
    with binary_output(target, source) as out, progress("recovering", "bytes") as advance:
        report = recover_data(given(source), out, not quick, max_piped_bytes=max_piped_bytes, advance=advance)
    shown = list(report.dropped if show_all else report.dropped[:_DROPPED_SHOWN])
    if as_json:
        click.echo(json.dumps(_document(named(source), target, report, shown), indent=2), err=target == "-")
    else:
        _show(printable(named(source)), printable(target), report, shown, target == "-")
    return FAILED if report.dropped else 0


def _show(name: str, target: str, report: RecoveryReport, shown: list[DroppedRange], to_error: bool) -> None:
    def tell(line: str) -> None:
        click.echo(f"{name}: {line}", err=to_error)

    for lost in shown:
        what = str(lost.kind or "")
        if lost.rows is not None:
            what += f" of {lost.rows:,} rows"
        reason = printable(lost.reason, _REASON_CHARACTERS)
        tell(f"dropped bytes {lost.start:,} to {lost.stop:,}{': ' if what else ''}{what}: {reason}")
    left = len(report.dropped) - len(shown)
    if left:
        tell(f"… and {left:,} more (--all shows them)")
    if report.footer_problem is not None:
        tell(f"no footer, and so no custom metadata of it: {printable(report.footer_problem, _REASON_CHARACTERS)}")
    state = f"an intact {report.format}" if report.is_intact else f"a damaged {report.format}"
    batches = f"{report.record_batches:,} record batch{'' if report.record_batches == 1 else 'es'}"
    tell(f"{state}; {report.rows:,} rows in {batches} are in {target}")


def _document(name: str, target: str, report: RecoveryReport, shown: list[DroppedRange]) -> dict[str, Any]:
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
            {"start": lost.start, "stop": lost.stop, "kind": lost.kind, "rows": lost.rows, "reason": lost.reason}
            for lost in shown
        ],
    }
