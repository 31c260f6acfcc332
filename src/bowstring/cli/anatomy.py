"""`bowstring anatomy`: an Arrow file or stream drawn to scale, as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from bowstring.cli.input_output import PATH, binary_output, given, max_piped_option, named, progress, sink_to
from bowstring.inspection.anatomy.page import drawn_page
from bowstring.inspection.text import human_bytes, printable


@click.command()
@click.argument("file", required=False, type=PATH)
@click.option(
    "-o",
    "--output",
    metavar="PAGE",
    type=PATH,
    help="Where to write the page, - for standard output; by default NAME.anatomy.html in the current folder.",
)
@click.option("--quick", is_flag=True, help="Check the structure only, not every value.")
@max_piped_option
def anatomy(file: str | None, *, output: str | None, quick: bool, max_piped_bytes: int) -> None:
    """Draw an Arrow file or stream to scale, as one HTML page that needs no network.

    FILE is a path, a URL, or - for standard input, which is also read if FILE is omitted and input is piped. The
    page shows every message, buffer and padding byte, what it means in the specification's words, its bytes and
    values, and what each column takes. A damaged file is drawn as far as it can be read.
    """
    source, is_path = given(file), file is not None and file != "-"
    target = output or (f"{Path(file).stem}.anatomy.html" if is_path and file else "anatomy.html")
    name = Path(file).name if is_path and file else named(file)
    with binary_output(target, file) as out:
        with progress("reading", "parts") as advance:
            html, errors = drawn_page(source, name, max_piped_bytes=max_piped_bytes, advance=advance, full=not quick)
            page = html.encode("utf-8")
        with sink_to(out) as sink:
            sink.write([page], len(page))
    if target != "-":
        damage = f"; {errors:,} error{'' if errors == 1 else 's'} in {printable(name)}" if errors else ""
        click.echo(f"{printable(target)}: {human_bytes(len(page))}{damage}")
