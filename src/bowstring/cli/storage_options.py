"""The option `--storage-option`, of all commands that take a path or URL."""

from __future__ import annotations

import json
from typing import Any

import click

_STORAGE_OPTIONS = "bowstring.storage_options"


def get_storage_options() -> dict[str, Any]:
    """Return the values of the running command's `storage_option`."""
    context = click.get_current_context(silent=True)
    return {} if context is None else context.meta.get(_STORAGE_OPTIONS, {})


def _set_storage_options(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> None:
    """Parse `KEY=VALUE` options, which may be secret and are in no error."""
    options = ctx.meta[_STORAGE_OPTIONS] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key:
            raise click.BadParameter("expected KEY=VALUE, such as endpoint_url=https://minio.example", ctx, param)
        try:
            options[key] = json.loads(text)
        except (ValueError, RecursionError):
            options[key] = text


storage_option = click.option(
    "--storage-option",
    callback=_set_storage_options,
    multiple=True,
    expose_value=False,
    metavar="KEY=VALUE",
    help="Option of the store of a URL, such as anon=true; VALUE is JSON, or else text; may be repeated.",
)
