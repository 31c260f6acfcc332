"""Tables in files of all formats: Arrow files and streams, Parquet, CSV and JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import click

from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import has_dictionary_fields, unify_batch_dictionaries
from bowstring.cli import csv, json, parquet
from bowstring.cli.format_options import DEFAULT_SOURCE_OPTIONS, DEFAULT_TARGET_OPTIONS, SourceOptions, TargetOptions
from bowstring.cli.input_output import open_output, resolve_source, source_name
from bowstring.cli.progress import ReportProgress, iterate_with_progress
from bowstring.datatypes.field import Metadata
from bowstring.datatypes.schema import Schema
from bowstring.datatypes.types import Dictionary
from bowstring.errors import BowstringError, FormatMismatchError, NotFoundError
from bowstring.inspection.validation import iter_validated_batches
from bowstring.io.fsspec_store import is_url
from bowstring.io.memory_source import MemorySource
from bowstring.io.sources import open_at_position
from bowstring.io.stream_source import StreamSource
from bowstring.ipc.api import new_file, new_stream, open_any
from bowstring.ipc.file import FileReader
from bowstring.ipc.file_statistics import replace_statistics
from bowstring.ipc.message import CONTINUATION, MAGIC, is_stream_start

SOURCE_FORMATS = ("arrow", "parquet", "csv", "json", "jsonl")
TARGET_FORMATS = ("file", "stream", "parquet", "csv", "json", "jsonl")
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
_TEXT_FORMATS = ("csv", "json", "jsonl")
_COMPRESSION_EXTENSIONS = (".gz", ".bz2", ".zst", ".lz4")
_PARQUET_MAGIC = b"PAR1"
_JSON_START = re.compile(rb'(\xef\xbb\xbf)?\s*(\{\s*("|\}|$)|\[\s*(\{|\]|$))')
_CONTROL_CHARACTER = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_FIRST_BYTES = 16
_FROM_NOTE = "use --from parquet, csv, json or jsonl for another format"


@dataclass(frozen=True, slots=True)
class LazyTable:
    """A schema and batches that are read lazily.

    `has_fixed_dictionaries` is True if each column has the same dictionary in all batches, as in a file.
    `footer_metadata` is the custom metadata of a file, without the statistics of its batches.
    """

    schema: Schema
    batches: Iterable[RecordBatch]
    has_fixed_dictionaries: bool = False
    footer_metadata: Metadata = ()


# Names


def get_uncompressed_extension(path: str) -> str:
    """Return the extension of a path or URL that names its format, without one of compressed data."""
    name = PurePosixPath(re.split(r"[?#]", path, maxsplit=1)[0] if is_url(path) else path)
    if name.suffix.lower() in _COMPRESSION_EXTENSIONS:
        name = name.with_suffix("")
    return name.suffix.lower()


def default_delimiter(path: str | None) -> str:
    """Return the delimiter of CSV in a file of this name."""
    return "\t" if path is not None and get_uncompressed_extension(path) == ".tsv" else ","


def _check_uncompressed(path: str) -> None:
    if PurePosixPath(path).suffix.lower() in _COMPRESSION_EXTENSIONS:
        raise click.UsageError(f"{path!r}: compressed files can be read, but not written: remove the extension")


def check_arrow_extension(path: str) -> None:
    """Raise `click.UsageError` if the suffix of a target is that of another format than Arrow."""
    _check_uncompressed(path)
    extension = get_uncompressed_extension(path)
    if FORMATS_BY_EXTENSION.get(extension, "file") not in ARROW_FORMATS:
        raise click.UsageError(
            f"{path!r}: expected a name of an Arrow file or stream, found the extension {extension}: "
            "write .arrow or .arrows, then use bowstring convert"
        )


def choose_arrow_format(path: str, arrow_format: str | None) -> str:
    """Return the Arrow format to write: that of the option, if any, else by the extension of the path, else a file.

    Raises `click.UsageError` for the extension of another format, unless there is an option.
    """
    if arrow_format is None:
        check_arrow_extension(path)
    return choose_target_format(path, arrow_format, "file")


def choose_target_format(path: str, target_format: str | None, default: str | None = None) -> str:
    """Return the format to write: that of the option, if any, else by the extension of the path, else the default.

    Raises `click.UsageError` for the extension of compressed data, and for an unknown one without a default.
    """
    if target_format is not None:
        return target_format
    _check_uncompressed(path)
    target_format = FORMATS_BY_EXTENSION.get(get_uncompressed_extension(path), default)
    if target_format is None:
        raise click.UsageError(f"unknown format of {path!r}: give --to {'|'.join(TARGET_FORMATS)}")
    return target_format


# Reading


class TableSource:
    """A source and its format. Create it with `open_table_source`."""

    def __init__(self, file: str | None, source_format: str | None, mismatch_note: str | None) -> None:
        self.name = source_name(file)
        self.source = resolve_source(file)
        self._default_delimiter = default_delimiter(file)
        self._mismatch_note = mismatch_note
        self._stream_size_bytes: int | None = None
        extension_format = FORMATS_BY_EXTENSION.get(get_uncompressed_extension(self.name))
        if isinstance(self.source, str) and is_url(self.source):
            # Not by its first bytes, which would take another request.
            is_arrow = extension_format is None or extension_format in ARROW_FORMATS
            detected_format = "arrow" if is_arrow else str(extension_format)
        else:
            detected_format = self._detect_format(extension_format)
        self.format = source_format or detected_format

    def _detect_format(self, extension_format: str | None) -> str:
        """Open the source, and detect its format by its first bytes, that of text by its extension."""
        default = str(extension_format) if extension_format in _TEXT_FORMATS else "arrow"
        try:
            self.source = open_at_position(self.source)
        except NotFoundError:  # raised by `open_table`, after errors in the usage of options
            return default
        if isinstance(self.source, StreamSource):
            first_bytes = self.source.peek(_FIRST_BYTES)
        else:
            size_bytes = self.source.size - self.source.position
            first_bytes = bytes(self.source.read_at(self.source.position, min(_FIRST_BYTES, max(0, size_bytes))))
            self._stream_size_bytes = self.source.size if is_stream_start(first_bytes) else None
        # A CSV file may begin with PAR1 or ARROW1, too, but not with control characters.
        if _CONTROL_CHARACTER.search(first_bytes):
            if first_bytes.startswith(_PARQUET_MAGIC):
                return "parquet"
            if first_bytes.startswith((MAGIC, CONTINUATION)):
                return "arrow"
        return "json" if extension_format is None and _JSON_START.match(first_bytes) else default

    @property
    def progress_unit(self) -> str:
        """The unit of the progress that `open_table` reports."""
        if self.format == "arrow":
            return "record batches" if self._stream_size_bytes is None else "bytes"
        return "rows" if self.format == "parquet" else "bytes"

    @contextmanager
    def open_table(
        self, options: SourceOptions = DEFAULT_SOURCE_OPTIONS, report_progress: ReportProgress | None = None
    ) -> Iterator[LazyTable]:
        """Open the table. Its batches are a reader of Arrow data if there is no progress to report."""
        if self.format == "arrow":
            with self._open_arrow(options) as reader:
                batches: Iterable[RecordBatch] = reader
                if report_progress is not None:
                    batches = iterate_with_progress(reader, self.report_in_unit(report_progress))
                if isinstance(reader, FileReader):
                    metadata = replace_statistics(tuple(reader.metadata.items()), None, ())
                    yield LazyTable(reader.schema, batches, has_fixed_dictionaries=True, footer_metadata=metadata)
                else:
                    yield LazyTable(reader.schema, batches)
            return
        open_batches = {"csv": csv.open_batches, "parquet": parquet.open_batches}.get(self.format, json.open_batches)
        options = replace(options, default_delimiter=self._default_delimiter)
        with open_batches(self.source, self.name, options, report_progress or _ignore_progress) as (schema, batches):
            yield LazyTable(schema, batches)

    def _open_arrow(self, options: SourceOptions) -> Any:
        try:
            return open_any(self.source, options.columns or None, max_piped_bytes=options.max_piped_bytes)
        except FormatMismatchError as error:
            if self._mismatch_note is not None and hasattr(error, "__notes__"):  # it is perhaps one of the others
                error.add_note(self._mismatch_note)
            raise

    def report_in_unit(self, report_progress: ReportProgress) -> ReportProgress:
        """Return a callback for numbers of batches, which reports the bytes read of a stream of known size."""
        size_bytes = self._stream_size_bytes
        if size_bytes is None:
            return report_progress
        return lambda _done, _of: report_progress(self.source.position, size_bytes)

    def close(self) -> None:
        """Close the source if `open_table` has not done it."""
        if isinstance(self.source, MemorySource | StreamSource):
            self.source.close()


@contextmanager
def open_table_source(
    file: str | None, source_format: str | None = None, mismatch_note: str | None = _FROM_NOTE
) -> Iterator[TableSource]:
    """Open a FILE in a format; without one, that of Arrow and Parquet is detected by content, and that of CSV and JSON
    by extension, of JSON also by content.

    `mismatch_note` is for the error of another format. Raises as `resolve_source`.
    """
    table_source = TableSource(file, source_format, mismatch_note)
    try:
        yield table_source
    finally:
        table_source.close()


@contextmanager
def refer_to_convert() -> Iterator[None]:
    """Qualify options in hints as those of `convert`: other commands read CSV and JSON without them."""
    try:
        yield
    except BowstringError as error:
        notes = getattr(error, "__notes__", [])
        if notes and "--" in notes[-1] and "--from" not in notes[-1]:
            notes[-1] += "; these are options of bowstring convert"
        raise


def _ignore_progress(_done: int, _of: int | None) -> None:
    pass


# Writing


def validate_table(table: LazyTable, target_format: str, hint: str, is_quick: bool = False) -> LazyTable:
    """Return the table with batches that are validated when they are read, even if `is_quick` for Parquet and CSV:
    pyarrow crashes on invalid values. `hint` is for the errors.
    """
    if is_quick and target_format not in ("parquet", "csv"):
        return table
    return replace(table, batches=iter_validated_batches(table.batches, hint))


def fit_to_format(table: LazyTable, target_format: str, is_unified: bool = False) -> LazyTable:
    """Return the table as a format can hold it: for Parquet with plain values instead of most dictionaries, for an
    Arrow file, and if `is_unified`, with one dictionary for each column, which keeps all batches in memory.
    """
    if target_format == "parquet":
        schema, batches = decode_dictionaries(table.schema, table.batches, parquet.keeps_dictionary)
        return replace(table, schema=schema, batches=batches)
    is_replaced = target_format == "file" and not table.has_fixed_dictionaries
    if has_dictionary_fields(table.schema) and (is_unified or is_replaced):
        return replace(table, batches=unify_batch_dictionaries(table.schema, list(table.batches)))
    return table


def decode_dictionaries(
    schema: Schema, batches: Iterable[RecordBatch], is_kept: Callable[[Dictionary], bool] = lambda _: False
) -> tuple[Schema, Iterator[RecordBatch]]:
    """Decode the dictionary-encoded columns, except those whose type is kept."""
    decoded = [isinstance(field.type, Dictionary) and not is_kept(field.type) for field in schema]
    fields = [
        field.with_type(field.type.value_type) if is_decoded else field  # type: ignore[attr-defined]
        for field, is_decoded in zip(schema, decoded, strict=True)
    ]
    decoded_schema = Schema(tuple(fields), schema.pairs)

    def decode(batch: RecordBatch) -> RecordBatch:
        columns = [
            column.dictionary_decode() if is_decoded else column
            for column, is_decoded in zip(batch.columns, decoded, strict=True)
        ]
        return RecordBatch(decoded_schema, batch.num_rows, columns, batch.pairs)

    return decoded_schema, map(decode, batches)


def write_table(
    out: str | int | BinaryIO, target_format: str, table: LazyTable, options: TargetOptions = DEFAULT_TARGET_OPTIONS
) -> int:
    """Write a table that fits the format, and return the number of rows."""
    rows = 0

    def count_rows(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        nonlocal rows
        for batch in batches:
            rows += batch.num_rows
            yield batch

    batches = count_rows(table.batches)
    if target_format in ARROW_FORMATS:
        with (
            new_file(out, table.schema, table.footer_metadata, options.alignment_bytes, options=options.ipc)
            if target_format == "file"
            else new_stream(out, table.schema, options.alignment_bytes, options=options.ipc, atomic=True)
        ) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return rows
    with open_output(out) as sink:
        if target_format == "parquet":
            parquet.write(sink, table.schema, batches, options)
        elif target_format == "csv":
            csv.write(sink, table.schema, batches, options)
        else:
            json.write(sink, table.schema, batches, is_array=target_format == "json")
    return rows
