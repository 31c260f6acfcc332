"""Input and output of commands: paths, URLs, pipes and terminals."""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import click

from bowstring.arrays.record_batch import RecordBatch, with_nullability
from bowstring.cli.storage_options import get_storage_options
from bowstring.datasets.files import File, list_files, unify_nullability
from bowstring.datatypes.nullability import as_nullable
from bowstring.datatypes.schema import Schema
from bowstring.display.printable_text import to_printable
from bowstring.errors import (
    FormatMismatchError,
    InvalidArgumentError,
    InvalidDataError,
    NotFoundError,
    TypeMismatchError,
    add_location,
    format_count,
)
from bowstring.file_formats import (
    ARROW_FORMATS,
    DEFAULT_SOURCE_OPTIONS,
    TARGET_FORMATS,
    InvalidRows,
    LazyTable,
    SourceOptions,
    TableSource,
    choose_target_format as choose_format_by_extension,
)
from bowstring.io.fsspec_store import is_url, with_storage_options
from bowstring.io.sinks import reject_same_file
from bowstring.io.store_path import StorePath
from bowstring.redaction import redact

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
    source = apply_storage_options(str(file)) if is_path else sys.stdin
    reject_same_file([source], sys.stdout)
    return source


def apply_storage_options(path: str) -> File:
    """Return the path, or for a URL the path in its store, with the values of `--storage-option`."""
    store_path: File = with_storage_options(path, get_storage_options()) if is_url(path) else path
    return store_path


def list_inputs(file: str | None) -> Sequence[str | None]:
    """Return the files of a FILE argument: of a folder or a glob several, otherwise the argument itself."""
    if file in (None, "", "-"):
        return [file]
    files = list_files(apply_storage_options(str(file)))
    return [each.url if isinstance(each, StorePath) else each for each in files]


@contextmanager
def open_input(file: str | None, source_format: str | None = None, has_from: bool = True) -> Iterator[TableSource]:
    """Open a FILE argument as `TableSource` does; the files of a folder or a glob are one table. With `has_from`,
    the error of an unknown format names the option `--from` of the command. Raises as `resolve_source`.
    """
    files = list_inputs(file)
    try:
        with TableSource(resolve_source(files[0]), source_format, source_name(files[0])) as source:
            yield source if len(files) == 1 else _JoinedFiles(source_name(file), source, files)
    except FormatMismatchError as error:
        if has_from and hasattr(error, "__notes__"):  # it is perhaps one of the others
            error.add_note("use --from parquet, csv, json or jsonl for another format")
        raise


class _JoinedFiles(TableSource):
    """Files of one format and schema as one table."""

    size_bytes = None
    progress_unit = "record batches"

    def __init__(self, name: str, first: TableSource, files: Sequence[str | None]) -> None:
        self.name = name
        self.format = first.format
        self.invalid_rows = first.invalid_rows
        self._first = first
        self._files = files

    @contextmanager
    def open_table(self, options: SourceOptions = DEFAULT_SOURCE_OPTIONS) -> Iterator[LazyTable]:
        with self._first.open_table(options) as first:
            schema = as_nullable(first.schema)  # files may be more strict
            yield LazyTable(schema, self._iterate(schema, first, options))

    def check_schemas(self, options: SourceOptions) -> None:
        """Open each file, and raise `InvalidDataError` if their schemas differ. Of CSV and JSON a block is read."""
        schemas = []
        for file in self._files:
            with self._open_file(file, InvalidRows()) as source, source.open_table(options) as table:
                schemas.append((str(file), table.schema))
        unify_nullability(schemas)

    def _iterate(self, schema: Schema, first: LazyTable, options: SourceOptions) -> Iterator[RecordBatch]:
        yield from _with_schema(schema, first)
        for file in self._files[1:]:
            with self._open_file(file, self.invalid_rows) as source, source.open_table(options) as table:
                unify_nullability([(str(self._files[0]), schema), (str(file), table.schema)])
                yield from _with_schema(schema, table)

    def _open_file(self, file: str | None, invalid_rows: InvalidRows) -> TableSource:
        return TableSource(resolve_source(file), self.format, file, invalid_rows)


def check_schemas(source: TableSource, options: SourceOptions) -> None:
    """Raise `InvalidDataError` before any row is read if the files of a folder or glob have different schemas."""
    if isinstance(source, _JoinedFiles):
        source.check_schemas(options)


def _with_schema(schema: Schema, table: LazyTable) -> Iterator[RecordBatch]:
    for batch in table.batches:
        yield with_nullability(batch, schema)


def source_name(file: str | None) -> str:
    """Return the name of the source for messages."""
    return "standard input" if file is None or file == "-" else redact(file)


def is_input_idle(file: str | None) -> bool:
    """Return whether the source is standard input and has no bytes to read right now."""
    return file in (None, "-") and not select.select([sys.stdin], [], [], 0)[0]


@contextmanager
def prefix_errors_with_source(file: str | None) -> Iterator[None]:
    """Prefix errors in data, and of unknown columns, with the name of their source, unless they begin with it."""
    try:
        yield
    except (InvalidDataError, TypeMismatchError, NotFoundError) as error:
        if str(error).startswith(f"{source_name(file)}: ") or isinstance(error, OSError):  # an OSError has its path
            raise
        located = add_location(error, source_name(file))
        # A note of `Schema.index` says what to do in Python.
        if isinstance(error, NotFoundError) and hasattr(error, "__notes__"):
            located.__notes__ = ["without --columns, all columns are read"]
        raise located from None


@contextmanager
def open_table(file: str | None, source_format: str | None, options: SourceOptions) -> Iterator[LazyTable]:
    """Open the table of a FILE argument; errors in data name it. Raises as `open_input`."""
    with (
        prefix_errors_with_source(file),
        open_input(file, source_format) as source,
        source.open_table(options) as table,
    ):
        yield table


def echo_json(document: Mapping[str, Any], err: bool = False) -> None:
    """Write a JSON object, with `format_version` as its first key."""
    click.echo(json.dumps({"format_version": FORMAT_VERSION, **document}, indent=2), err=err)


def resolve_output(path: str, *files: str | None) -> File | int | BinaryIO:
    """Return the sink for binary data: the path, or the descriptor of standard output for "-".

    The descriptor bypasses Python's buffer, so that nothing is delayed in a pipe. Raises `click.UsageError` if standard
    output is a terminal, and `InvalidArgumentError` if the path is one of the FILE arguments `files`.
    """
    if path != "-":
        sink = apply_storage_options(path)
        reject_same_file(map(resolve_source, files), sink)
        return sink
    if sys.stdout.isatty():
        raise click.UsageError("standard output is a terminal: give a path, or pipe the output")
    sys.stdout.flush()
    try:
        return sys.stdout.fileno()
    except OSError:  # replaced by an object without a descriptor
        return sys.stdout.buffer


def echo_invalid_rows(invalid_rows: InvalidRows) -> None:
    """Write the first rows that were skipped, if any, and their number to standard error."""
    if invalid_rows.count:
        more = "" if invalid_rows.count == len(invalid_rows.examples) else "; these are the first"
        for text in (*invalid_rows.examples, f"{invalid_rows}{more}"):
            click.echo(to_printable(text), err=True)


def echo_written(target: str, rows: int, columns: int) -> None:
    """Write one line about the written file to standard error, unless the target is standard output."""
    if target != "-":
        counts = f"{format_count(rows, 'row')}, {format_count(columns, 'column')}"
        click.echo(f"{to_printable(redact(target))}: {counts}", err=True)


def choose_target_format(path: str, target_format: str | None, default: str | None = None) -> str:
    """Return the format to write: by the option, if any, else by the extension of the path, else the default.

    Raises `click.UsageError` for the extension of compressed data, and for an unknown one without a default.
    """
    try:
        return target_format or choose_format_by_extension(path, default)
    except InvalidArgumentError as error:
        raise click.UsageError(f"{error}, or --to {'|'.join(TARGET_FORMATS)}") from None


def choose_arrow_format(path: str, arrow_format: str | None) -> str:
    """Return the Arrow format to write: by the option, if any, else by the extension of the path, else a file.

    Raises `click.UsageError` for the extension of another format, unless there is an option.
    """
    target_format = choose_target_format(path, arrow_format, "file")
    if target_format not in ARROW_FORMATS:
        raise click.UsageError(
            f"{path!r}: expected a name of an Arrow file or stream: write .arrow or .arrows, then use bowstring convert"
        )
    return target_format
