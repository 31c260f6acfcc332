"""`bowstring anatomy`: draw Arrow files and streams to scale, each as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from bowstring.cli.help_text import examples
from bowstring.cli.input_output import list_inputs, resolve_output, resolve_source, source_name
from bowstring.cli.options import PATH, file_argument, max_piped_bytes_option, quick_option
from bowstring.cli.progress import progress_bar
from bowstring.display.printable_text import format_size, to_printable
from bowstring.errors import format_count
from bowstring.inspection.anatomy.page import build_page_and_count_faults
from bowstring.io.sinks import open_finished_sink
from bowstring.redaction import redact


@click.command(
    epilog=examples(
        "bowstring anatomy flights.arrow",
        "bowstring anatomy flights.arrow -o page.html",
    )
)
@file_argument
@click.option(
    "-o",
    "--output",
    metavar="PAGE",
    type=PATH,
    help="Path of the page, or - for standard output.  [default: NAME.anatomy.html in the current folder]",
)
@quick_option
@max_piped_bytes_option
def anatomy(file: str | None, *, output: str | None, quick: bool, max_piped_bytes: int) -> None:
    """Draw an Arrow file or stream to scale, as one HTML page that needs no network.

    FILE is a path or URL, or - for standard input. If FILE is omitted, standard input is read, unless it is a
    terminal. The page shows every message, buffer and padding byte, its meaning according to the specification, its
    bytes and values, and the size of each column. The readable sections of a damaged file are drawn. If FILE is a
    folder or a glob in quotes, each of its files gets a page.
    """
    files = list_inputs(file)
    if len(files) > 1 and output is not None:
        raise click.UsageError(f"{file} has {len(files):,} files, and --output is the page of one")
    pages = [output or _name_page(each) for each in files]
    if len(set(pages)) < len(pages):
        raise click.UsageError(f"{file} has several files of one name, whose pages would replace each other")
    for each, page in zip(files, pages, strict=True):
        _draw(each, page, quick, max_piped_bytes)


def _name_page(file: str | None) -> str:
    return "anatomy.html" if file in (None, "-") else f"{Path(str(file)).stem}.anatomy.html"


def _draw(file: str | None, target: str, quick: bool, max_piped_bytes: int) -> None:
    source, name = resolve_source(file), Path(source_name(file)).name
    out = resolve_output(target, file)
    with progress_bar("reading", "bytes") as report_progress:
        html, errors = build_page_and_count_faults(
            source, name, max_piped_bytes=max_piped_bytes, report_progress=report_progress, full=not quick
        )
        page = html.encode("utf-8")
    with open_finished_sink(out) as sink:
        sink.write([page], len(page))
    if target != "-":
        errors_note = f"; {format_count(errors, 'error')} in {to_printable(name)}" if errors else ""
        click.echo(f"{to_printable(redact(target))}: {format_size(len(page))}{errors_note}")
