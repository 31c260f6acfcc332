"""Input and output of commands: paths, URLs, pipes and terminals."""

from __future__ import annotations

import json
import re
import select
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import click

from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import has_dictionary_fields, unify_batch_dictionaries
from bowstring.datatypes.schema import Schema
from bowstring.errors import InvalidDataError, TypeMismatchError
from bowstring.io.fsspec_store import is_url
from bowstring.io.sinks import Sink, open_sink, reject_same_file
from bowstring.ipc.api import new_file, new_stream
from bowstring.memory.closable import abandon_on_error

FORMAT_VERSION = 1
"""The version of the JSON that commands write; it changes if the meaning of a key changes."""

ARROW_FORMATS = ("file", "stream")
FORMATS_BY_EXTENSION = {
    ".arrow": "file",
    ".feather": "file",
    ".ipc": "file",
    ".arrows": "stream",
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
_COMPRESSION_EXTENSIONS = (".gz", ".bz2", ".zst", ".lz4")


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


def get_uncompressed_extension(path: str) -> str:
    """Return the extension of a path or URL that names its format, without one of compressed data."""
    name = PurePosixPath(re.split(r"[?#]", path, maxsplit=1)[0] if is_url(path) else path)
    if name.suffix.lower() in _COMPRESSION_EXTENSIONS:
        name = name.with_suffix("")
    return name.suffix.lower()


def check_uncompressed(path: str) -> None:
    """Raise `click.UsageError` if the name of a target says that it is compressed."""
    if PurePosixPath(path).suffix.lower() in _COMPRESSION_EXTENSIONS:
        raise click.UsageError(f"{path!r}: compressed files can be read, but not written: remove the extension")


def check_arrow_extension(path: str) -> None:
    """Raise `click.UsageError` if the name of a target says that its format is not Arrow."""
    check_uncompressed(path)
    extension = get_uncompressed_extension(path)
    if FORMATS_BY_EXTENSION.get(extension, "file") not in ARROW_FORMATS:
        raise click.UsageError(
            f"{path!r}: expected a name of an Arrow file or stream, found the extension {extension}: "
            "write .arrow or .arrows, then use bowstring convert"
        )


def choose_arrow_format(path: str, arrow_format: str | None, standard_output: str = "file") -> str:
    """Return the Arrow format to write: that of the option, if any, else by the extension of the path.

    `standard_output` is the default for "-". Raises `click.UsageError` for the extension of another format, unless
    there is an option.
    """
    if arrow_format is not None:
        return arrow_format
    if path == "-":
        return standard_output
    check_arrow_extension(path)
    return FORMATS_BY_EXTENSION.get(get_uncompressed_extension(path), "file")


def write_arrow(out: str | int | BinaryIO, schema: Schema, batches: Iterable[RecordBatch], as_stream: bool) -> int:
    """Write record batches as an Arrow file or stream, and return the number of rows.

    Dictionaries of a file are unified, which keeps all batches in memory: a file can't replace them.
    """
    if not as_stream and has_dictionary_fields(schema):
        batches = unify_batch_dictionaries(schema, list(batches))
    rows = 0
    with (new_stream if as_stream else new_file)(out, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows
