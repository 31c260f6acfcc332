"""`bowstring ls`: the published data sets of this host and user."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from bowstring.cli.durations import format_duration
from bowstring.cli.help_text import examples
from bowstring.cli.input_output import echo_json
from bowstring.cli.options import POSITIVE_SECONDS, json_option
from bowstring.cli.terminal_tables import ColumnFit, print_table
from bowstring.datasets.published_dataset import published
from bowstring.display.printable_text import format_size, to_printable
from bowstring.sharing.agent.publications import PublishedSummary

_TITLES = ("id", "rows", "size", "parts", "age", "expires in", "readers", "lifetime", "hosts")
_DROPPED_TITLES = ("hosts", "lifetime", "parts", "readers", "age", "rows", "size", "expires in")
"""The columns that narrow terminals do not show, in this order."""


@click.command(
    epilog=examples(
        "bowstring ls",
        "bowstring ls --json",
    )
)
@json_option("Write the data sets as JSON, sizes in bytes.")
@click.option(
    "--timeout",
    "timeout_s",
    type=POSITIVE_SECONDS,
    default=5.0,
    metavar="SECONDS",
    help="How long to wait for the reply of a host agent.",
)
def ls(*, as_json: bool, timeout_s: float) -> None:
    """List the data sets that you have published and that have memory on this host, newest first.

    The ID of a data set is its name and a number. Give either to fetch and unpublish. On narrow terminals, trailing
    columns are dropped.
    """
    summaries = published(timeout_s)
    if as_json:
        echo_json({"datasets": [_to_json(summary) for summary in summaries]})
        return
    now = datetime.now(UTC)
    rows = [list(map(to_printable, _cells(summary, now))) for summary in summaries]
    print_table(_TITLES, rows, _TITLES[1:7], ColumnFit(droppable=_DROPPED_TITLES))


def _cells(summary: PublishedSummary, now: datetime) -> list[str]:
    return [
        summary.id,
        f"{summary.num_rows:,}",
        format_size(summary.nbytes),
        str(summary.num_parts),
        format_duration(now - summary.created_at),
        "never" if summary.expires_at is None else format_duration(summary.expires_at - now),
        str(summary.num_readers),
        summary.lifetime,
        ", ".join(summary.hosts),
    ]


def _to_json(summary: PublishedSummary) -> dict[str, Any]:
    expires_at = summary.expires_at
    return {
        "id": summary.id,
        "name": summary.name,
        "rows": summary.num_rows,
        "bytes": summary.nbytes,
        "parts": summary.num_parts,
        "hosts": summary.hosts,
        "lifetime": summary.lifetime,
        "created_at": summary.created_at.isoformat(),
        "expires_at": None if expires_at is None else expires_at.isoformat(),
        "readers": summary.num_readers,
    }
