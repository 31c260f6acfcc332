"""Sources and sinks of commands: paths, URLs, pipes and terminals; and progress bars."""

from __future__ import annotations

import json
import os
import select
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, TypeAlias

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import schema_has_dictionaries, unify_batch_dictionaries
from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidDataError, TypeMismatchError
from bowstring.inspection.text import human_bytes
from bowstring.io.sinks import Sink, open_sink, reject_same_file
from bowstring.ipc.api import new_file, new_stream
from bowstring.ipc.file import FileReader
from bowstring.memory.closable import abandon_on_error

Advance: TypeAlias = Callable[[int, int | None], None]
"""A callback for progress: the amount done, and the total or None if it is unknown."""

FORMAT_VERSION = 1
"""The version of the JSON that commands write; it changes if the meaning of a key changes."""


def resolve_source(file: str | None) -> Any:
    """Return the source for a FILE argument: the path, or standard input for "-" and None.

    Raises `click.UsageError` if standard input is a terminal or the path is empty, and `UsageError` if standard output
    is the same file.
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


def idle_check(file: str | None) -> Callable[[], bool]:
    """Return a function that checks whether standard input, if it is the source, has no bytes to read right now."""
    return lambda: file in (None, "-") and not select.select([sys.stdin], [], [], 0)[0]


@contextmanager
def report_errors(file: str | None) -> Iterator[None]:
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
    output is a terminal, and `UsageError` if the path is one of the FILE arguments `files`.
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
def output_sink(out: str | int | BinaryIO) -> Iterator[Sink]:
    """Open a sink; finish it at the end of the block, or discard it if the block fails."""
    sink = open_sink(out)
    with abandon_on_error(sink):
        yield sink
        sink.finish()


def is_stream_name(path: str) -> bool:
    """Return whether the name of a file to write is that of an Arrow stream."""
    return path.lower().endswith(".arrows")


def write_arrow(out: str | int | BinaryIO, schema: Schema, batches: Iterable[RecordBatch], as_stream: bool) -> int:
    """Write record batches as an Arrow file or stream, and return the number of rows.

    Dictionaries of a file are unified, which keeps all batches in memory: a file can't replace them.
    """
    if not as_stream and schema_has_dictionaries(schema):
        batches = unify_batch_dictionaries(schema, list(batches))
    rows = 0
    with (new_stream if as_stream else new_file)(out, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


@contextmanager
def progress(what: str, unit: str = "record batches") -> Iterator[Advance]:
    """Yield a callback that shows progress as a bar on standard error.

    There is no bar if standard error is not a terminal, or if standard output is a pipe: its reader may write to the
    same terminal. The bar disappears when the block ends.
    """
    if not sys.stderr.isatty() or _is_pipe(sys.stdout):
        yield lambda _done, _of: None
        return

    def state(done: int, of: int | None) -> str:
        if unit == "bytes":
            return human_bytes(done) + ("" if of is None else f" of {human_bytes(of)}")
        return f"{done:,}" + ("" if of is None else f" of {of:,}") + f" {unit}"

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None, state="")
        yield lambda done, of: bar.update(task, completed=done, total=of, state=state(done, of))


def _is_pipe(file: Any) -> bool:
    try:
        mode = os.fstat(file.fileno()).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def report_batches(batches: Iterable[RecordBatch], advance: Advance) -> Iterator[RecordBatch]:
    """Yield the batches of a reader; call `advance` before the first, and after each."""
    of = len(batches) if isinstance(batches, FileReader) else None
    advance(0, of)
    for number, batch in enumerate(batches, 1):
        yield batch
        advance(number, of)
