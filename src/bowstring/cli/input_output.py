"""Input and output of commands: paths, URLs, pipes and terminals."""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

import click

from bowstring.display.printable_text import to_printable
from bowstring.errors import InvalidDataError, TypeMismatchError, format_count
from bowstring.io.sinks import Sink, open_sink, reject_same_file
from bowstring.memory.closable import abandon_on_error

FORMAT_VERSION = 1
"""The version of the JSON that commands write; it changes if the meaning of a key changes."""


def resolve_source(file: str | None) -> Any:
    """Return the source for a FILE argument: the path, or standard input for "-" and None.

    Raises `click.UsageError` if standard input is a terminal or the path is empty, and `InvalidArgumentError` if
    standard output is the same file.
    """
    if file == "":
        raise click.UsageError("expected a path for FILE, found empty text")
    is_path = file is not None and file != "-"
    if not is_path and (sys.stdin is None or sys.stdin.isatty()):
        raise click.UsageError("standard input is a terminal: give a FILE, or pipe the input")
    source = file if is_path else sys.stdin
    reject_same_file([source], sys.stdout)
    return source


def source_name(file: str | None) -> str:
    """Return the name of the source for messages."""
    return "standard input" if file is None or file == "-" else file


def is_input_idle(file: str | None) -> bool:
    """Return whether the source is standard input and has no bytes to read right now."""
    return file in (None, "-") and not select.select([sys.stdin], [], [], 0)[0]


@contextmanager
def prefix_errors_with_source(file: str | None) -> Iterator[None]:
    """Prefix errors in data with the name of their source, unless they begin with it."""
    try:
        yield
    except (InvalidDataError, TypeMismatchError) as error:
        if str(error).startswith(f"{source_name(file)}: "):
            raise
        named_error = type(error)(f"{source_name(file)}: {error}")
        for note in getattr(error, "__notes__", ()):
            named_error.add_note(note)
        raise named_error from None


def echo_json(document: Mapping[str, Any], err: bool = False) -> None:
    """Write a JSON object, with `format_version` as its first key."""
    click.echo(json.dumps({"format_version": FORMAT_VERSION, **document}, indent=2), err=err)


def resolve_output(path: str, *files: str | None) -> str | int | BinaryIO:
    """Return the sink for binary data: the path, or the descriptor of standard output for "-".

    The descriptor bypasses Python's buffer, so that nothing is delayed in a pipe. Raises `click.UsageError` if standard
    output is a terminal, and `InvalidArgumentError` if the path is one of the FILE arguments `files`.
    """
    if path != "-":
        reject_same_file(map(resolve_source, files), path)
        return path
    if sys.stdout.isatty():
        raise click.UsageError("standard output is a terminal: give a path, or pipe the output")
    sys.stdout.flush()
    try:
        return sys.stdout.fileno()
    except OSError:  # replaced by an object without a descriptor
        return sys.stdout.buffer


@contextmanager
def open_output(out: str | int | BinaryIO) -> Iterator[Sink]:
    """Open a sink; finish it at the end of the block, or discard it if the block fails."""
    sink = open_sink(out)
    with abandon_on_error(sink):
        yield sink
        sink.finish()


def echo_written(target: str, rows: int, columns: int) -> None:
    """Write one line about the written file to standard error, unless the target is standard output."""
    if target != "-":
        counts = f"{format_count(rows, 'row')}, {format_count(columns, 'column')}"
        click.echo(f"{to_printable(target)}: {counts}", err=True)
