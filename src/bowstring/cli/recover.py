"""`bowstring recover`: save the intact batches of a damaged or truncated file or stream."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from bowstring.cli.error_messages import EXIT_FAILURE
from bowstring.cli.formats import check_arrow_extension
from bowstring.cli.help_text import examples
from bowstring.cli.input_output import echo_json, resolve_output, resolve_source, source_name
from bowstring.cli.options import PATH, all_option, json_option, max_piped_bytes_option, quick_option
from bowstring.cli.progress import progress_bar
from bowstring.display.printable_text import to_printable
from bowstring.errors import format_count
from bowstring.ipc.tools.message_search import DroppedRange
from bowstring.ipc.tools.recover import RecoveryReport, recover as recover_data

_DROPPED_RANGES_SHOWN = 100
_REASON_CHARACTERS = 300


@click.command(
    epilog=examples(
        "bowstring recover damaged.arrow sound.arrow",
        "bowstring recover --json damaged.arrow sound.arrow",
    )
)
@click.argument("source", type=PATH)
@click.argument("target", type=PATH)
@quick_option
@json_option("Write the report as JSON.")
@all_option(f"List everything that is dropped, not only the first {_DROPPED_RANGES_SHOWN}.")
@max_piped_bytes_option
def recover(source: str, target: str, *, quick: bool, as_json: bool, show_all: bool, max_piped_bytes: int) -> int:
    """Save the intact batches of a damaged or truncated Arrow file or stream, and list the losses.

    SOURCE and TARGET are two paths, or - for standard input and output. A file is written as a file, a stream as a
    stream. The report is written to standard error if the data is written to standard output. The exit status is 1 if
    something was dropped. TARGET is valid, but changed values can't be detected: Arrow has no checksums.
    """
    check_arrow_extension(target)
    out = resolve_output(target, source)
    with progress_bar("recovering", "bytes") as report_progress:
        report = recover_data(
            resolve_source(source), out, not quick, max_piped_bytes=max_piped_bytes, report_progress=report_progress
        )
    dropped_ranges = list(report.dropped if show_all else report.dropped[:_DROPPED_RANGES_SHOWN])
    if as_json:
        echo_json(_to_json(source_name(source), target, report, dropped_ranges), err=target == "-")
    else:
        _show_report(to_printable(source_name(source)), to_printable(target), report, dropped_ranges, target == "-")
    return EXIT_FAILURE if report.dropped else 0


def _show_report(
    name: str, target: str, report: RecoveryReport, dropped_ranges: list[DroppedRange], to_error: bool
) -> None:
    def write_line(line: str) -> None:
        click.echo(f"{name}: {line}", err=to_error)

    for span in dropped_ranges:
        what = str(span.kind or "")
        if span.rows is not None:
            what += f" of {span.rows:,} rows"
        reason = to_printable(span.reason, _REASON_CHARACTERS)
        write_line(f"dropped bytes {span.start:,} to {span.stop:,}{': ' if what else ''}{what}: {reason}")
    hidden = len(report.dropped) - len(dropped_ranges)
    if hidden:
        write_line(f"… and {hidden:,} more (--all shows them)")
    if report.footer_problem is not None:
        write_line(
            f"no footer and no custom metadata of the file: {to_printable(report.footer_problem, _REASON_CHARACTERS)}"
        )
    state = f"an intact {report.format}" if report.is_intact else f"a damaged {report.format}"
    batches = format_count(report.record_batches, "record batch")
    write_line(f"{state}; {report.rows:,} rows in {batches} are in {target}")


def _to_json(name: str, target: str, report: RecoveryReport, dropped_ranges: list[DroppedRange]) -> dict[str, Any]:
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
        "dropped": [asdict(dropped_range) for dropped_range in dropped_ranges],
    }
