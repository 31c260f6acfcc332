"""`bowstring serve`: serve files to other processes."""

from __future__ import annotations

import logging
import re
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from bowstring.cli.error_messages import EXIT_FAILURE, format_error_line
from bowstring.cli.help_text import examples
from bowstring.cli.input_output import apply_storage_options
from bowstring.cli.options import PATH, POSITIVE_SECONDS, SECONDS, record_option
from bowstring.cli.tls import tls_options
from bowstring.datasets.files import is_glob, list_files, read_table
from bowstring.display.printable_text import to_printable
from bowstring.io.io_errors import translate_io_error
from bowstring.io.local_path import absolute_path
from bowstring.sharing.server.options import ServerOptions
from bowstring.sharing.server.server import serve as serve_sources
from bowstring.sharing.server.signals import catch_signals
from bowstring.sharing.share import TableSource
from bowstring.sharing.uris import shorten_uri
from bowstring.transports.registry import list_schemes
from bowstring.transports.tls import TlsOptions

_SCHEMES = list_schemes()
_LOG_LEVELS = ("debug", "info", "warning")
_PATTERN = re.compile(r"\[[^]]*\]|[*?]")


@click.command(
    epilog=examples(
        "bowstring serve flights.arrow",
        "bowstring serve flights.arrow people.arrows > uris &",
        "bowstring serve flights.arrow --scheme tcp --address 0.0.0.0:5000 --ticket-key-file key "
        "--ticket-lifetime 3600",
    )
)
@click.argument("paths", nargs=-1, required=True, type=PATH, metavar="PATH...")
@click.option(
    "--name",
    "names",
    multiple=True,
    help="Name of a data set; give one for each PATH.  [default: the file's name without its extension, of *.arrow "
    "the folder's]",
)
@click.option("--scheme", type=click.Choice(_SCHEMES), default="unix", help="Transport.")
@click.option(
    "--address", help="Path of a unix socket, or HOST:PORT.  [default: an abstract socket, or a port of 127.0.0.1]"
)
@tls_options
@click.option(
    "--ticket-key-file", type=PATH, help="File with 32 or more random bytes, the key that signs the tickets of URIs."
)
@click.option(
    "--ticket-lifetime",
    "ticket_lifetime_s",
    type=POSITIVE_SECONDS,
    metavar="SECONDS",
    help="How long the URIs are valid; required where other hosts can connect.  [default: until the key changes]",
)
@click.option(
    "--drain",
    "drain_s",
    type=SECONDS,
    default=30.0,
    metavar="SECONDS",
    help="How long to wait at the end for clients that still use the data.",
)
@click.option("--log", "log_level", type=click.Choice(_LOG_LEVELS), help="Write log messages from this level on.")
@record_option
def serve(  # noqa: PLR0913 -- one parameter for each option
    paths: Sequence[str],
    *,
    names: Sequence[str],
    scheme: str,
    address: str | None,
    tls: TlsOptions | None,
    ticket_key_file: str | None,
    ticket_lifetime_s: float | None,
    drain_s: float,
    log_level: str | None,
    record: str | None,
) -> int:
    """Serve Arrow, Parquet, CSV and JSON files to other processes.

    PATH is a path, URL, folder or glob in quotes. Writes one URI for each PATH to standard output, in this order, one
    per line; bowstring fetch and bowstring.connect read them. On a terminal the URIs are short, and followed by how to
    read them. Serves until SIGINT or SIGTERM, then accepts no more requests and waits for clients that still read.
    Arrow files are shared as they are; only their headers are read. Log messages are written to standard error.
    """
    if ticket_lifetime_s is not None and ticket_key_file is None:
        raise click.UsageError("--ticket-lifetime needs --ticket-key-file")
    options = ServerOptions(
        tls=tls,
        ticket_key=None if ticket_key_file is None else _read_ticket_key(ticket_key_file),
        ticket_lifetime_s=ticket_lifetime_s,
        record=record,
    )
    names = _resolve_dataset_names(paths, names)
    if log_level is not None:
        logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(message)s")
    sources = dict(zip(names, map(_open_source, paths), strict=True))
    with serve_sources(sources, address, options, scheme=scheme) as server:
        with catch_signals() as wait_for_signal:  # before the URIs are written: their reader may send one at once
            uris = [server.uri(name) for name in names]
            if sys.stdout.isatty():
                _show_uris(names, list(map(shorten_uri, uris)))
            else:
                click.echo("\n".join(uris))
            wait_for_signal()
        if server.drain(drain_s):
            return 0
    click.echo(
        format_error_line(f"clients still used the data after {drain_s:g} s, and were disconnected", ""), err=True
    )
    return EXIT_FAILURE


def _open_source(path: str) -> TableSource:
    """Return the path of a file, or the table of a folder, a glob, or a URL with options."""
    files = list_files(apply_storage_options(path))
    return files[0] if len(files) == 1 and isinstance(files[0], str) else read_table(files)


def _show_uris(names: Sequence[str], uris: Sequence[str]) -> None:
    """Show a person what is served, how to read it and how to stop."""
    width = max(map(len, names))
    for name, uri in zip(names, uris, strict=True):
        click.echo(f"{to_printable(name):{width}}  {uri}")
    click.echo("Read it in another terminal:")
    click.echo(f"  bowstring fetch {shlex.quote(uris[0])} | bowstring head")
    click.echo("or in Python:")
    click.echo(f"  bowstring.connect({uris[0]!r})")
    click.echo("Stop with Ctrl+C.")


def _resolve_dataset_names(paths: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    """Return the names of the data sets. Raises `click.UsageError` unless there is a different one for each path."""
    if names and len(names) != len(paths):
        raise click.UsageError(f"expected one --name for each PATH: {len(paths)}, found {len(names)}")
    names = names or list(map(_choose_name, paths))
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise click.UsageError(f"{count} data sets have the name {name!r}: give each a --name")
    return names


def _choose_name(path: str) -> str:
    """Return the name of a file or folder without its extension; of a glob without patterns, or else of its folder."""
    absolute = Path(absolute_path(path))
    if not is_glob(apply_storage_options(path)):
        return absolute.stem
    names = (_PATTERN.sub("", each.stem).strip("-_. ") for each in (absolute, *absolute.parents))
    return next(filter(None, names), "data")


def _read_ticket_key(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise translate_io_error(error, path) from error
