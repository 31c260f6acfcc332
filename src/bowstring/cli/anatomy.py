"""`bowstring anatomy`: draw an Arrow file or stream to scale, as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from bowstring.cli.input_output import (
    PATH,
    binary_output,
    max_piped_option,
    output_sink,
    progress,
    resolve_source,
    source_name,
)
from bowstring.inspection.anatomy.page import render_page
from bowstring.inspection.text import human_bytes, printable


@click.command()
@click.argument("file", required=False, type=PATH)
@click.option(
    "-o",
    "--output",
    metavar="PAGE",
    type=PATH,
    help="Path of the page, or - for standard output.  [default: NAME.anatomy.html in the current folder]",
)
@click.option("--quick", is_flag=True, help="Check the structure only, not every value.")
@max_piped_option
def anatomy(file: str | None, *, output: str | None, quick: bool, max_piped_bytes: int) -> None:
    """Draw an Arrow file or stream to scale, as one HTML page that needs no network.

    FILE is a path, a URL, or - for standard input, which is also read if FILE is omitted and input is piped. The
    page shows every message, buffer and padding byte, its meaning according to the specification, its bytes and
    values, and the size of each column. A damaged file is drawn as far as it can be read.
    """
    source, is_path = resolve_source(file), file is not None and file != "-"
    target = output or (f"{Path(file).stem}.anatomy.html" if is_path and file else "anatomy.html")
    name = Path(file).name if is_path and file else source_name(file)
    with binary_output(target, file) as out:
        with progress("reading", "parts") as advance:
            html, errors = render_page(source, name, max_piped_bytes=max_piped_bytes, advance=advance, full=not quick)
            page = html.encode("utf-8")
        with output_sink(out) as sink:
            sink.write([page], len(page))
    if target != "-":
        damage = f"; {errors:,} error{'' if errors == 1 else 's'} in {printable(name)}" if errors else ""
        click.echo(f"{printable(target)}: {human_bytes(len(page))}{damage}")
