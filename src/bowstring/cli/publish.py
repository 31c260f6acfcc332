"""`bowstring publish`: keep the rows of a file in memory for other processes."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import click

from bowstring.arrays.table import Table
from bowstring.cli.durations import DURATION, format_duration
from bowstring.cli.help_text import examples
from bowstring.cli.input_output import echo_invalid_rows, echo_json, open_input, prefix_errors_with_source
from bowstring.cli.options import (
    UTF8_TEXT,
    column_types_option,
    columns_option,
    file_argument,
    from_option,
    invalid_rows_option,
    json_option,
    max_piped_bytes_option,
)
from bowstring.cli.progress import open_with_progress, progress_bar
from bowstring.datasets.publication import publish as publish_table
from bowstring.datasets.published_dataset import PublishedDataset
from bowstring.display.printable_text import format_size
from bowstring.errors import format_count
from bowstring.file_formats import SourceOptions
from bowstring.io.local_path import absolute_path
from bowstring.sharing.agent.client import DEFAULT_TTL_S

_INVALID_CHARACTERS = re.compile(r"[^A-Za-z0-9_.-]+")
# The limit of `check_name`; names of files can be longer.
_MAX_NAME_CHARACTERS = 200


@click.command(
    epilog=examples(
        "bowstring publish flights.parquet --name flights --ttl 2h",
        "bowstring fetch flights copy.arrow",
        "python -c \"import bowstring as bs; print(bs.connect(bs.open_published('flights')).read_all())\"",
        "bowstring publish flights-new.parquet --name flights --replace",
        "bowstring unpublish flights",
    )
)
@file_argument
@click.option("--name", type=UTF8_TEXT, help="Name of the data set.  [default: the file's name without its extension]")
@click.option(
    "--ttl",
    "ttl_s",
    type=DURATION,
    default=DEFAULT_TTL_S,
    show_default=False,
    help="When to free the memory, such as 90s, 10min or 2h.  [default: 1d]",
)
@click.option("--replace", is_flag=True, help="Free the older data sets of this name when the new one can be read.")
@from_option
@columns_option
@column_types_option
@invalid_rows_option
@json_option("Write the data set as JSON.")
@max_piped_bytes_option
def publish(
    file: str | None,
    *,
    name: str | None,
    ttl_s: float,
    replace: bool,
    source_format: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Keep the rows of a file in memory for other processes of this user and host, which find them by name.

    FILE is a path, URL, folder or glob in quotes of Arrow, Parquet, CSV or JSON, or - for standard input. If FILE is
    omitted, standard input is read, unless it is a terminal. The rows are copied into the memory of a host agent, a
    process that starts when it is needed, and stay there until bowstring unpublish or the end of --ttl. The ID of the
    data set is written to standard output; bowstring ls lists all.
    """
    if name is None and file is not None and file != "-":
        # Without "-" at the ends: `fetch -` reads standard input, and the stem of a glob is often "*".
        name = _INVALID_CHARACTERS.sub("-", Path(absolute_path(file)).stem)[:_MAX_NAME_CHARACTERS].strip("-") or None
    with (
        prefix_errors_with_source(file),
        open_input(file, source_format) as source,
        progress_bar("publishing", source.progress_unit) as report_progress,
        open_with_progress(source, SourceOptions(**options), report_progress) as table,
    ):
        batches = iter(table.batches)
        first = next(batches, None)
        rows = Table(table.schema, []) if first is None else chain([first], batches)  # no batches have no schema
        dataset = publish_table(rows, name=name, ttl_s=ttl_s, replace=replace)
    echo_invalid_rows(source.invalid_rows)
    try:
        _show_dataset(dataset, as_json)
        sys.stdout.flush()
    except OSError:  # the ID of the data set was not printed
        dataset.close()
        raise


def _show_dataset(dataset: PublishedDataset, as_json: bool) -> None:
    num_rows, expires_at = dataset.num_rows or 0, dataset.expires_at
    if as_json:
        expiry = None if expires_at is None else expires_at.isoformat()
        sizes = {"rows": num_rows, "bytes": dataset.nbytes}
        echo_json({"id": dataset.id, "name": dataset.name, **sizes, "expires_at": expiry})
        return
    click.echo(dataset.id)
    expiry = "" if expires_at is None else f", expires in {format_duration(expires_at - datetime.now(UTC))}"
    size = f"{format_count(num_rows, 'row')}, {format_size(dataset.nbytes or 0)}"
    click.echo(f"published {size}{expiry}: bowstring fetch {dataset.name} reads them", err=True)
