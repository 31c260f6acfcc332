"""`bowstring vacuum`: remove the files of a folder that no commit lists."""

from __future__ import annotations

import click

from bowstring.cli.help_text import examples
from bowstring.cli.input_output import echo_json
from bowstring.cli.options import PATH, SECONDS, json_option
from bowstring.cli.storage_options import get_storage_options
from bowstring.display.printable_text import to_printable
from bowstring.errors import format_count
from bowstring.io.fsspec_store import is_url
from bowstring.io.local_path import absolute_path
from bowstring.redaction import redact
from bowstring.spark.folder.vacuum import VACUUM_AGE_S, vacuum as vacuum_folder


@click.command(
    epilog=examples(
        "bowstring vacuum --dry-run /data/flights",
        "bowstring vacuum --older-than 3600 /data/flights",
    )
)
@click.argument("folder", type=PATH)
@click.option(
    "--older-than",
    "older_than_s",
    type=SECONDS,
    default=VACUUM_AGE_S,
    metavar="SECONDS",
    help="Remove only files that are unchanged for at least this long.",
)
@click.option("--dry-run", is_flag=True, help="List the files only.")
@json_option("Write the list as JSON.")
def vacuum(folder: str, *, older_than_s: float, dry_run: bool, as_json: bool) -> int:
    """Remove the files of a folder that no commit lists: superseded ones, and files of jobs that have died.

    Files of running jobs, and those that a manifest of the last hour lists, are kept.
    """
    target = folder if is_url(folder) else absolute_path(folder)
    paths = vacuum_folder(target, older_than_s=older_than_s, dry_run=dry_run, storage_options=get_storage_options())
    if as_json:
        echo_json({"source": folder, "removed": not dry_run, "files": [str(path) for path in paths]})
        return 0
    for path in paths:
        click.echo(to_printable(str(path)))
    verb = "would be removed" if dry_run else "removed"
    click.echo(f"{to_printable(redact(folder))}: {format_count(len(paths), 'file')} {verb}", err=True)
    return 0
