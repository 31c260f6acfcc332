"""The options `--tls-…` of `serve` and `fetch`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from bowstring.cli.options import PATH
from bowstring.transports.tls import TlsOptions


def tls_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets them as `tls`: a `TlsOptions`, or None without any of them."""

    @click.option("--tls-certificate", type=PATH, help="PEM file with the certificate of this end.")
    @click.option("--tls-key", type=PATH, help="PEM file with its private key.  [default: the certificate's file]")
    @click.option("--tls-authorities", type=PATH, help="PEM file with the issuers of the other end's certificates.")
    @functools.wraps(command)
    def command_with_tls(
        *arguments: Any,
        tls_certificate: str | None,
        tls_key: str | None,
        tls_authorities: str | None,
        tls_server_name: str | None = None,
        **options: Any,
    ) -> Any:
        if tls_key is not None and tls_certificate is None:
            raise click.UsageError("--tls-key needs --tls-certificate")
        tls = TlsOptions(tls_certificate, tls_key, tls_authorities, tls_server_name)
        return command(*arguments, tls=None if tls == TlsOptions() else tls, **options)

    return command_with_tls
