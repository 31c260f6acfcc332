"""`bowstring anatomy`: draw an Arrow file or stream to scale, as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from bowstring.cli.help_text import examples
from bowstring.cli.input_output import open_output, resolve_output, resolve_source, source_name
from bowstring.cli.options import PATH, file_argument, max_piped_bytes_option, quick_option
from bowstring.cli.progress import progress_bar
from bowstring.display.printable_text import format_size, to_printable
from bowstring.errors import format_count
from bowstring.inspection.anatomy.page import build_page_and_count_faults


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
    bytes and values, and the size of each column. The readable parts of a damaged file are drawn.
    """
    source, is_path = resolve_source(file), file is not None and file != "-"
    target = output or (f"{Path(file).stem}.anatomy.html" if is_path and file else "anatomy.html")
    name = Path(file).name if is_path and file else source_name(file)
    out = resolve_output(target, file)
    with progress_bar("reading", "parts") as report_progress:
        html, errors = build_page_and_count_faults(
            source, name, max_piped_bytes=max_piped_bytes, report_progress=report_progress, full=not quick
        )
        page = html.encode("utf-8")
    with open_output(out) as sink:
        sink.write([page], len(page))
    if target != "-":
        errors_note = f"; {format_count(errors, 'error')} in {to_printable(name)}" if errors else ""
        click.echo(f"{to_printable(target)}: {format_size(len(page))}{errors_note}")
