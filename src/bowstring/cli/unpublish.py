"""`bowstring unpublish`: free the memory of published data sets."""

from __future__ import annotations

import click

from bowstring.cli.help_text import examples
from bowstring.cli.options import complete_dataset_names
from bowstring.datasets.published_dataset import unpublish as unpublish_dataset


@click.command(
    epilog=examples(
        "bowstring unpublish flights",
        "bowstring unpublish flights-1f0a44 people",
    )
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_dataset_names)
def unpublish(names: tuple[str, ...]) -> None:
    """Free the memory of published data sets for all processes. Tables that they have read stay valid.

    NAME is an ID of bowstring ls, or the name of the newest data set with it.
    """
    for name in names:
        click.echo(f"{unpublish_dataset(name)}: unpublished", err=True)
