"""`bowstring concat`: join files and streams without decoding them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from bowstring.cli.input_output import PATH, binary_output, max_piped_option, progress, resolve_source
from bowstring.inspection.text import printable
from bowstring.ipc.tools.concat import concat_files

FORMAT_VERSION = 1
_STREAM_ENDING = ".arrows"


@click.command()
@click.argument("files", nargs=-1, required=True, type=PATH, metavar="FILE...")
@click.option(
    "-o", "--output", "target", required=True, type=PATH, help="Path or URL to write to, or - for standard output."
)
@click.option(
    "--to",
    "kind",
    type=click.Choice(["file", "stream"]),
    help="Format to write.  [default: stream if OUTPUT ends in .arrows, else file]",
)
@click.option("--json", "as_json", is_flag=True, help="Write the summary as JSON.")
@max_piped_option
def concat(files: Sequence[str], *, target: str, kind: str | None, as_json: bool, max_piped_bytes: int) -> None:
    """Join the record batches of several Arrow files and streams, in the order given.

    Bodies are copied as they are, compressed or not. Schemas, byte orders and metadata versions must be equal.
    Different dictionaries are unified in a file, and replaced in a stream. One FILE may be - for standard input.
    OUTPUT is replaced atomically, when it is complete.
    """
    if list(files).count("-") > 1:
        raise click.UsageError("standard input can be read only once")
    if as_json and target == "-":
        raise click.UsageError("--json and the data can't both be written to standard output: give --output a path")
    as_stream = kind == "stream" or (kind is None and Path(target).suffix.lower() == _STREAM_ENDING)
    with binary_output(target) as out, progress("concatenating", "sources") as advance:
        done = concat_files(_resolve_sources(files, advance), out, as_stream, max_piped_bytes=max_piped_bytes)
    document = {
        "format_version": FORMAT_VERSION,
        "target": target,
        "format": "stream" if as_stream else "file",
        "sources": done.sources,
        "record_batches": done.record_batches,
        "rows": done.rows,
        "bytes": done.size_bytes,
    }
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    click.echo(
        f"{printable(target)}: {done.rows:,} rows in {done.record_batches:,} record batches of {done.sources:,} "
        f"sources, {done.size_bytes:,} bytes",
        err=target == "-",
    )


def _resolve_sources(files: Sequence[str], advance: Callable[[int, int | None], None]) -> Iterator[Any]:
    for number, file in enumerate(files):
        advance(number, len(files))
        yield resolve_source(file)
    advance(len(files), len(files))
