"""`bowstring fetch`: save a data set of a server as an Arrow file or stream."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import schema_has_dictionaries, unify_batches
from bowstring.cli.input_output import progress, report_batches, resolve_output
from bowstring.cli.options import PATH, record_option
from bowstring.cli.tls import tls_options
from bowstring.errors import format_count
from bowstring.inspection.text import printable
from bowstring.ipc.api import new_file, new_stream
from bowstring.sharing.connect import connect
from bowstring.transports.tls import TlsOptions

_STREAM_ENDING = ".arrows"


@click.command()
@click.argument("uri")
@click.argument("output", type=PATH, default="-")
@click.option(
    "--to",
    "kind",
    type=click.Choice(["file", "stream"]),
    help="Format to write.  [default: stream if OUTPUT is - or ends in .arrows, else file]",
)
@click.option("--ticket", help="Ticket of the data set.  [default: that of the URI]")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    metavar="SECONDS",
    help="How long the server may be silent.",
)
@click.option("--tls-server-name", help="Name in the server's certificate.  [default: the host of the URI]")
@record_option
@tls_options
def fetch(  # noqa: PLR0913 -- one parameter for each option
    uri: str,
    output: str,
    *,
    kind: str | None,
    ticket: str | None,
    timeout_s: float,
    record: str | None,
    tls: TlsOptions | None,
) -> None:
    """Save a data set of bowstring serve, or of another server, as an Arrow file or stream.

    URI is that of the data set, or - to read it from standard input: other users can see the arguments of a command,
    but the URI may be secret. OUTPUT is a path or URL, or - for standard output, the default; it is replaced
    atomically, when it is complete. Values are not validated.
    """
    as_stream = kind == "stream" or (kind is None and (output == "-" or Path(output).suffix.lower() == _STREAM_ENDING))
    out = resolve_output(output)
    rows = 0

    def count_rows(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        nonlocal rows
        for batch in batches:
            rows += batch.num_rows
            yield batch

    with (
        connect(_read_uri() if uri == "-" else uri, ticket, timeout_s=timeout_s, tls=tls, record=record) as dataset,
        progress("fetching") as advance,
    ):
        batches: Iterable[RecordBatch] = report_batches(count_rows(dataset), advance)
        if not as_stream and schema_has_dictionaries(dataset.schema):  # a file can't replace dictionaries
            batches = unify_batches(dataset.schema, list(batches))
        with new_stream(out, dataset.schema) if as_stream else new_file(out, dataset.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    if output != "-":
        click.echo(f"{printable(output)}: {format_count(rows, 'row')}", err=True)


def _read_uri() -> str:
    """Read the URI from the first line of standard input."""
    uri = sys.stdin.readline().strip()
    if not uri:
        raise click.UsageError("expected a URI on standard input, found an empty line")
    return uri
