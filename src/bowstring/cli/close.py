"""`bowstring close`: free the memory of published data sets."""

from __future__ import annotations

import click

from bowstring.cli.help_text import examples
from bowstring.cli.options import complete_dataset_names
from bowstring.datasets.published_dataset import open_published


@click.command(
    epilog=examples(
        "bowstring close flights",
        "bowstring close flights-1f0a44 people",
    )
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_dataset_names)
def close(names: tuple[str, ...]) -> None:
    """Free the memory of published data sets. Tables that processes have read from them stay valid.

    NAME is an ID of bowstring ls, or the name of the newest data set with it.
    """
    for name in names:
        with open_published(name) as dataset:
            dataset_id = dataset.id
        click.echo(f"{dataset_id}: closed", err=True)
