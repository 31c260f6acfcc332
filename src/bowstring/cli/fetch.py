"""`bowstring fetch`: save a data set of a server in a file of any format."""

from __future__ import annotations

import sys

import click

from bowstring.cli.help_text import examples
from bowstring.cli.input_output import choose_target_format, echo_written, resolve_output
from bowstring.cli.options import PATH, POSITIVE_SECONDS, complete_dataset_names, record_option, target_format_option
from bowstring.cli.progress import iterate_with_progress, progress_bar
from bowstring.cli.tls import tls_options
from bowstring.datasets.published_dataset import PublishedDataset, open_published
from bowstring.file_formats import LazyTable, validate_table, write_batches
from bowstring.io.io_errors import translate_io_error
from bowstring.sharing.client.connect import Target, connect
from bowstring.transports.tls import TlsOptions


@click.command(
    epilog=examples(
        "bowstring fetch flights flights.parquet   # a published data set",
        "bowstring fetch - copy.arrow < uris   # the first URI that bowstring serve wrote",
        "bowstring fetch flights | bowstring head",
    )
)
@click.argument("uri", metavar="URI|NAME", shell_complete=complete_dataset_names)
@click.argument("output", type=PATH, default="-")
@target_format_option("by extension, else file; stream for -")
@click.option("--ticket", help="Ticket of the data set.  [default: the ticket of the URI]")
@click.option(
    "--timeout",
    "timeout_s",
    type=POSITIVE_SECONDS,
    default=30.0,
    metavar="SECONDS",
    help="How long to wait for the next message of the server.",
)
@click.option("--tls-server-name", help="Name in the server's certificate.  [default: the host of the URI]")
@record_option
@tls_options
def fetch(  # noqa: PLR0913 -- one parameter for each option
    uri: str,
    output: str,
    *,
    target_format: str | None,
    ticket: str | None,
    timeout_s: float,
    record: str | None,
    tls: TlsOptions | None,
) -> None:
    """Save a data set of bowstring serve, of another server, or of bowstring ls: as Arrow, Parquet, CSV or JSON.

    URI names the data set, or is - to read it from standard input: other users can see the arguments of a command,
    but the URI may be secret. NAME is the name or ID of a published data set. OUTPUT is a path or URL, or - for
    standard output, the default; it is replaced atomically, when it is complete. Only values written as Parquet and
    CSV are validated.
    """
    target_format = choose_target_format(output, target_format, "stream" if output == "-" else "file")
    out = resolve_output(output)
    source = _find_target(uri, timeout_s)
    total_rows = source.num_rows if isinstance(source, PublishedDataset) else None
    with (
        connect(source, ticket, timeout_s=timeout_s, tls=tls, record=record) as dataset,
        progress_bar("fetching", "record batches" if total_rows is None else "rows") as report_progress,
    ):
        table = LazyTable(dataset.schema, iterate_with_progress(dataset, report_progress, total_rows))
        rows = write_batches(out, target_format, validate_table(table, target_format, "", is_quick=True))
    echo_written(output, rows, len(table.schema))


def _find_target(uri: str, timeout_s: float) -> Target:
    """Return a URI, or the published data set of a name, which has no scheme."""
    text = _read_uri_from_stdin() if uri == "-" else uri
    return text if ":" in text else open_published(text, timeout_s)


def _read_uri_from_stdin() -> str:
    """Read the URI from the first line of standard input."""
    try:
        uri = sys.stdin.readline().strip()
    except OSError as error:
        raise translate_io_error(error, "standard input") from None
    if not uri:
        raise click.UsageError("expected a URI on standard input, found an empty line")
    return uri
