"""`bowstring concat`: join files and streams without decoding them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from bowstring.cli.help_text import examples
from bowstring.cli.input_output import choose_arrow_format, echo_json, list_inputs, resolve_output, resolve_source
from bowstring.cli.options import PATH, arrow_format_option, json_option, max_piped_bytes_option
from bowstring.cli.progress import ReportProgress, progress_bar
from bowstring.display.printable_text import to_printable
from bowstring.errors import format_count
from bowstring.ipc.tools.concat import concat_files
from bowstring.redaction import redact


@click.command(
    epilog=examples(
        "bowstring concat monday.arrow tuesday.arrow -o week.arrow",
        "bowstring concat monday.arrow tuesday.arrow -o - --to stream | bowstring head",
    )
)
@click.argument("files", nargs=-1, required=True, type=PATH, metavar="FILE...")
@click.option(
    "-o", "--output", "target", required=True, type=PATH, help="Path or URL to write to, or - for standard output."
)
@arrow_format_option("stream if OUTPUT ends in .arrows, else file")
@json_option("Write the summary as JSON.")
@max_piped_bytes_option
def concat(files: Sequence[str], *, target: str, arrow_format: str | None, as_json: bool, max_piped_bytes: int) -> None:
    """Join the record batches of several Arrow files and streams, in the order given.

    Bodies are copied as they are, compressed or not. Schemas, byte orders and metadata versions must be equal.
    Different dictionaries are unified in a file, and replaced in a stream. One FILE may be - for standard input.
    OUTPUT is replaced atomically, when it is complete.
    """
    if list(files).count("-") > 1:
        raise click.UsageError("standard input can be read only once")
    if as_json and target == "-":
        raise click.UsageError("--json and the data can't both be written to standard output: give --output a path")
    as_stream = choose_arrow_format(target, arrow_format) == "stream"
    out = resolve_output(target)
    with progress_bar("concatenating", "sources") as report_progress:
        report = concat_files(_resolve_sources(files, report_progress), out, as_stream, max_piped_bytes=max_piped_bytes)
    if as_json:
        echo_json(
            {
                "target": redact(target),
                "format": "stream" if as_stream else "file",
                "sources": report.sources,
                "record_batches": report.record_batches,
                "rows": report.rows,
                "bytes": report.size_bytes,
            }
        )
        return
    rows, batches = format_count(report.rows, "row"), format_count(report.record_batches, "record batch")
    sources, size = format_count(report.sources, "source"), format_count(report.size_bytes, "byte")
    click.echo(f"{to_printable(redact(target))}: {rows} in {batches} of {sources}, {size}", err=target == "-")


def _resolve_sources(files: Sequence[str], report_progress: ReportProgress) -> Iterator[Any]:
    inputs = [each for file in files for each in list_inputs(file)]
    for number, file in enumerate(inputs):
        report_progress(number, len(inputs))
        yield resolve_source(file)
    report_progress(len(inputs), len(inputs))
