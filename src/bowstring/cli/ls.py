"""`bowstring ls`: the published data sets of this host and user."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from bowstring.cli.input_output import echo_json
from bowstring.cli.options import json_option
from bowstring.cli.terminal_tables import borderless_table, open_console
from bowstring.datasets.published_dataset import published
from bowstring.display.printable_text import format_size, to_printable
from bowstring.sharing.publications import PublishedSummary

_TITLES = ("id", "rows", "size", "parts", "age", "expires in", "readers", "lifetime", "hosts")


@click.command()
@json_option("Write the data sets as JSON, sizes in bytes.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    metavar="SECONDS",
    help="How long a host agent may be silent.",
)
def ls(*, as_json: bool, timeout_s: float) -> None:
    """List the data sets that you have published and that have memory on this host, newest first.

    The ID of a data set is its name and a number. Give either to fetch and close.
    """
    summaries = published(timeout_s)
    if as_json:
        echo_json({"datasets": [_to_json(summary) for summary in summaries]})
        return
    now = datetime.now(UTC)
    table = borderless_table(*((title, title in _TITLES[1:7]) for title in _TITLES))
    for summary in summaries:
        table.add_row(*map(to_printable, _cells(summary, now)))
    with open_console() as console:
        console.print(table)


def _cells(summary: PublishedSummary, now: datetime) -> list[str]:
    return [
        summary.id,
        f"{summary.num_rows:,}",
        format_size(summary.nbytes),
        str(summary.num_parts),
        _format_duration(now - summary.created_at),
        "never" if summary.expires_at is None else _format_duration(summary.expires_at - now),
        str(summary.num_readers),
        summary.lifetime,
        ", ".join(summary.hosts),
    ]


def _format_duration(duration: timedelta) -> str:
    """Format a duration in the largest unit of which it has two, or in seconds."""
    seconds = max(duration.total_seconds(), 0)
    for unit, unit_s in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{seconds:.0f} s"


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
