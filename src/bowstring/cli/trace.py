"""`bowstring trace`: show a recording of the messages between servers and clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import click

from bowstring.cli.help_text import examples
from bowstring.cli.input_output import echo_json, prefix_errors_with_source, resolve_source, source_name
from bowstring.cli.options import all_option, file_argument, json_option
from bowstring.display.printable_text import to_printable
from bowstring.sharing.recording.recorder import read_entries
from bowstring.sharing.recording.trace import TraceStep, decode_trace

# One or two lines of a terminal; `--json` has the whole text.
_TEXT_CHARACTERS = 200


@click.command(
    epilog=examples(
        "bowstring fetch - --record session.recording < uris | bowstring head",
        "bowstring trace session.recording",
    )
)
@file_argument
@json_option("Write the entries as JSON.")
@all_option(f"Show descriptions in full, not only {_TEXT_CHARACTERS} characters.")
def trace(file: str | None, *, as_json: bool, show_all: bool) -> None:
    """Show a recording of the messages between servers and clients, one line for each.

    FILE is a path or URL, or - for standard input. If FILE is omitted, standard input is read, unless it is a
    terminal. A line has the time in seconds, the index of the connection, the end that acts, and what it does. Bodies
    are not shown.
    """
    steps = decode_trace(read_entries(resolve_source(file)))
    with prefix_errors_with_source(file):
        if as_json:
            _write_json(source_name(file), steps)
            return
        for step in steps:
            click.echo(_format_step(step, None if show_all else _TEXT_CHARACTERS))


def _write_json(source: str, steps: Iterator[TraceStep]) -> None:
    entries = []
    try:
        for step in steps:
            entries.append(asdict(step))  # noqa: PERF401 - those before an error are written
    finally:
        echo_json({"source": source, "entries": entries})


def _format_step(step: TraceStep, max_characters: int | None) -> str:
    text = to_printable(step.text, max_characters)
    return f"{step.time_ns / 1e9:12.6f}  {step.connection:>3}  {step.sender}  {text}"
