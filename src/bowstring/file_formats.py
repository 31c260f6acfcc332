"""Tables in files of any format: Arrow files and streams, and through pyarrow, an extra, Parquet, CSV and JSON.

The command line and `read_table`, `write_table`, `dataset`, `publish` and `share` use this module.
"""

from __future__ import annotations

import atexit
import codecs
import csv
import gc
import io
import json
import os
import re
import sys
import time
import warnings
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from itertools import chain, pairwise, zip_longest
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from bowstring.arrays.array import Array
from bowstring.arrays.construction import array
from bowstring.arrays.record_batch import RecordBatch, record_batch
from bowstring.arrays.table import RecordBatchReader, Table, as_table, has_dictionary_fields, unify_batch_dictionaries
from bowstring.datatypes import factories, types as t
from bowstring.datatypes.extension import ExtensionType, get_storage_type
from bowstring.datatypes.field import Field, Metadata
from bowstring.datatypes.schema import Schema, SchemaLike, as_schema, import_schema
from bowstring.errors import (
    BowstringError,
    ClosedError,
    FormatMismatchError,
    InvalidArgumentError,
    InvalidDataError,
    LimitError,
    MissingFileError,
    NotFoundError,
    UnsupportedTypeError,
    format_count,
    prefix_errors,
    require_package,
    suggest,
)
from bowstring.inspection.formatting import (
    check_row_count,
    check_unique_names,
    encode_lines,
    format_json_line,
    format_text,
    iterate_rows,
)
from bowstring.inspection.validation import iter_validated_batches
from bowstring.io.fsspec_store import find_store_location, is_fsspec_open_file, is_url, with_storage_options
from bowstring.io.memory_source import MemorySource
from bowstring.io.range_source import RangeSource
from bowstring.io.sinks import Sink, open_finished_sink
from bowstring.io.sources import ensure_random_access, open_at_position, open_random_access
from bowstring.io.store_path import StorePath
from bowstring.io.stream_source import StreamSource
from bowstring.ipc.api import create_file_reader, new_file, new_stream, open_any
from bowstring.ipc.codecs import CodecName
from bowstring.ipc.file import FileReader
from bowstring.ipc.file_statistics import replace_statistics
from bowstring.ipc.format_detection import MAX_PIPED_BYTES
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.message import CONTINUATION, MAGIC, is_stream_start
from bowstring.ipc.remote_file import RemoteFileReader
from bowstring.ipc.stream import StreamReader
from bowstring.ipc.write_options import DEFAULT_WRITE_OPTIONS, IpcWriteOptions
from bowstring.kernels.filters import FiltersLike
from bowstring.layouts import expansion_limits

EXTRA = "convert"
SOURCE_FORMATS = ("arrow", "parquet", "csv", "json", "jsonl")
TARGET_FORMATS = ("file", "stream", "parquet", "csv", "json", "jsonl")
ARROW_FORMATS = ("file", "stream")
FORMATS_BY_EXTENSION = {
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "file"),
    ".arrows": "stream",
    ".parquet": "parquet",
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    ".json": "json",
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
}
# Several times pyarrow's, because the first block determines the types.
DEFAULT_BLOCK_BYTES = 8 << 20
# As many determine the types if invalid rows are skipped and the first has no value of a column: of the type null, all
# later rows with a value would be invalid.
_MAX_INFERENCE_BLOCKS = 8
_MAX_PYARROW_BLOCK_BYTES = (1 << 31) - 1
_COMPRESSION_EXTENSIONS = (".gz", ".bz2", ".zst", ".lz4")
_CODECS = {b"\x1f\x8b\x08": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}
# As many as Spark passes in a batch, and pyarrow's default for Parquet.
_BATCH_ROWS = 1 << 16
# More than any magic number.
_START_BYTES = 16
# The head of text determines columns with leading zeros, and the form of JSON.
_HEAD_BYTES = 1 << 16
# Options of pyarrow for which there are others here.
_OWN_CSV_OPTIONS = ("block_size", "use_threads", "column_types", "include_columns", "invalid_row_handler", "equals")
_JSON_START = re.compile(rb'(\xef\xbb\xbf)?\s*(\{\s*("|\}|$)|\[\s*(\{|\]|$))')
_CONTROL_CHARACTER = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_NOT_NESTING = bytes(set(range(256)) - set(b'"[]{}'))
_NOTE = (
    "bowstring convert has --column-type, --encoding, --invalid-rows skip, --block-size and other options, "
    'and bowstring.read_table has column_types, invalid_rows="skip" and pyarrow\'s options of CSV, such as delimiter'
)
_Lines: TypeAlias = list[tuple[int, bytes]]
_MAX_EXAMPLES = 5
_EXAMPLE_CHARACTERS = 80
InvalidRowsAction: TypeAlias = Literal["error", "skip"]
"""What to do with rows of CSV and JSON that have other columns, or values that are not of the column's type."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How to read a file; each format has its own among the options.

    `columns` selects columns; empty for all. `max_piped_bytes` limits what is read into memory of a pipe: Parquet, or
    an array of JSON. CSV and JSON are read in blocks of `block_bytes`, of which the first determines the types; None
    reads them at once, and infers the types from all rows. If invalid rows are skipped, columns without values in the
    first block get their types from the first eight; without any value in these, columns of CSV become text.
    `column_types` and `invalid_rows` are for CSV and JSON. `csv_options` are those of `pyarrow.csv.ReadOptions`,
    `ParseOptions` and `ConvertOptions`, by name.
    """

    columns: tuple[str, ...] = ()
    max_piped_bytes: int = MAX_PIPED_BYTES
    block_bytes: int | None = DEFAULT_BLOCK_BYTES
    column_types: Mapping[str, Any] = field(default_factory=dict)
    invalid_rows: InvalidRowsAction = "error"
    csv_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.invalid_rows not in get_args(InvalidRowsAction):
            raise InvalidArgumentError(f"invalid_rows: expected 'error' or 'skip', found {self.invalid_rows!r}")


DEFAULT_SOURCE_OPTIONS = SourceOptions()
WHOLE_FILE = SourceOptions(block_bytes=None)


@dataclass(frozen=True, slots=True)
class LazyTable:
    """A schema and batches that are read lazily.

    `has_fixed_dictionaries` is True if each column has the same dictionary in all batches, as in a file.
    `footer_metadata` is the custom metadata of a file, without the statistics of its batches. `num_rows` is None if it
    is not known before all batches are read.
    """

    schema: Schema
    batches: Iterable[RecordBatch]
    has_fixed_dictionaries: bool = False
    footer_metadata: Metadata = ()
    num_rows: int | None = None


@dataclass(slots=True)
class InvalidRows:
    """The number of rows that were left out, and the reasons for the first ones."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, location: str, reason: str, text: str) -> None:
        """Add a row at a location, such as a line."""
        self.count += 1
        if len(self.examples) < _MAX_EXAMPLES:
            self.examples.append(f"{location}: {reason}: {text!r:.{_EXAMPLE_CHARACTERS}}")

    def __str__(self) -> str:
        return f"skipped {format_count(self.count, 'invalid row')}"


# Whole tables


def read_file(
    source: Any,
    columns: Sequence[str | int] | None = None,
    filters: FiltersLike | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
    options: SourceOptions = WHOLE_FILE,
) -> Table:
    """Read one file of any format into a table; parameters and errors as in `bowstring.read_table`."""
    with TableSource(source) as table_source:
        table_source.check_options(options)
        if table_source.format == "arrow":
            return _read_arrow(table_source.source, columns, filters, limits)
        names = () if filters is not None else tuple(name for name in columns or () if isinstance(name, str))
        options = replace(options, columns=names if len(names) == len(columns or ()) else ())
        with table_source.open_table(options) as lazy:
            table = Table(lazy.schema, lazy.batches)
    if table_source.invalid_rows.count:
        examples = "; ".join(table_source.invalid_rows.examples)
        warnings.warn(f"{table_source.invalid_rows}: {examples}", stacklevel=3)  # of the caller of `read_table`
    table = table if filters is None else table.filter(filters)
    return table if columns is None else table.select(columns)


def _read_arrow(
    source: Any, columns: Sequence[str | int] | None, filters: FiltersLike | None, limits: ReadLimits
) -> Table:
    with open_any(source, None, limits) as reader:
        if not isinstance(reader, FileReader):
            table = reader.read_all(filters)
            return table if columns is None else table.select(columns)
        table = create_file_reader(reader.messages.source, columns, limits).read_all(filters)
        if isinstance(reader, RemoteFileReader):
            tuple(table.columns)  # fetched before the file is closed
        return table


def open_batches(
    source: str | os.PathLike[str] | StorePath, columns: Sequence[str | int] | None = None
) -> FileReader | StreamReader | RecordBatchReader:
    """Open the file at a path or URL for reading its batches once; formats and errors as in `read_file`."""
    if is_arrow(source):
        return open_any(source, columns)
    batches = _iterate_batches(source, columns)
    return RecordBatchReader(next(batches), batches)


def _iterate_batches(source: Any, columns: Sequence[str | int] | None) -> Iterator[Any]:
    """Yield the schema, then the batches."""
    with TableSource(source) as file, file.open_table(WHOLE_FILE) as table:
        yield table.schema if columns is None else table.schema.select(columns)
        for batch in table.batches:
            yield batch if columns is None else batch.select(columns)


def write_table(
    table: Any,
    sink: Any,
    compression: CodecName | Literal["snappy", "gzip", "brotli"] | None = None,
    max_chunksize: int | None = None,
    options: IpcWriteOptions = DEFAULT_WRITE_OPTIONS,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write a table, of Bowstring or another library, in the format of the extension of a path or URL: an Arrow file
    (`.arrow`, `.feather`, `.ipc`) or stream (`.arrows`), `.parquet`, `.csv`, `.tsv`, `.json` (an array of objects),
    `.jsonl` or `.ndjson`. File objects and descriptors get an Arrow file.

    Batches, and row groups of Parquet, have at most `max_chunksize` rows. `sink`, `options` and `storage_options` are
    as in `new_file`, `compression` is Arrow's or Parquet's (default: snappy). All formats but Arrow need pyarrow
    (`MissingExtraError`). Raises `InvalidArgumentError` for another extension and for options that the format does not
    have, and `UnsupportedTypeError`, with the column, for a type that it can't hold.

    >>> bs.write_table(bs.table({"a": [1, 2, 3]}), "a.arrow", max_chunksize=2)
    >>> bs.open_file("a.arrow").num_record_batches
    2
    """
    table, sink = as_table(table), with_storage_options(sink, storage_options)
    location = get_location(sink)
    format_ = "file" if location is None else choose_target_format(location)
    writer_options: dict[str, Any] = {} if compression is None else {"compression": compression}
    if format_ in ARROW_FORMATS:
        writer_options["options"] = options
    elif options != DEFAULT_WRITE_OPTIONS or (compression is not None and format_ != "parquet"):
        raise InvalidArgumentError(f"{location}: compression and options do not apply to {format_}")
    lazy = validate_table(LazyTable(table.schema, table.to_batches(max_chunksize)), format_, "", is_quick=True)
    write_batches(sink, format_, lazy, **writer_options)


# Formats


def get_location(file: Any) -> str | None:
    """Return the path or URL of a source or sink, which has an extension; None for file objects and memory."""
    if isinstance(file, str | os.PathLike):
        return os.fspath(file)
    if isinstance(file, StorePath):
        return str(file)
    return str(file.path) if is_fsspec_open_file(file) else None


def get_uncompressed_extension(path: str) -> str:
    """Return the extension of a path or URL that names its format, without one of compressed data."""
    name = PurePosixPath(re.split(r"[?#]", path, maxsplit=1)[0] if is_url(path) else path)
    if name.suffix.lower() in _COMPRESSION_EXTENSIONS:
        name = name.with_suffix("")
    return name.suffix.lower()


def default_delimiter(path: str | None) -> str:
    """Return the delimiter of CSV in a file of this name."""
    return "\t" if path is not None and get_uncompressed_extension(path) == ".tsv" else ","


def choose_target_format(path: str, default: str | None = None) -> str:
    """Return the format to write by the extension of a path or URL, or the default.

    Raises `InvalidArgumentError` for the extension of compressed data, and for an unknown one without a default.
    """
    if PurePosixPath(path).suffix.lower() in _COMPRESSION_EXTENSIONS:
        raise InvalidArgumentError(f"{path!r}: compressed files can be read, but not written: remove the extension")
    format_ = FORMATS_BY_EXTENSION.get(get_uncompressed_extension(path), default)
    if format_ is None:
        raise InvalidArgumentError(
            f"{path!r}: unknown format: expected the extension {', '.join(FORMATS_BY_EXTENSION)}"
        )
    return format_


# Reading


class TableSource(AbstractContextManager["TableSource"]):
    """A file in a format; a path is opened, a URL not yet.

    Without a `format`, Arrow and Parquet are detected by content, CSV and JSON by the extension of the path or URL,
    JSON also by content. `name` is for errors. Rows that are skipped are added to `invalid_rows`.
    """

    def __init__(
        self,
        source: Any,
        format: str | None = None,
        name: str | None = None,
        invalid_rows: InvalidRows | None = None,
    ) -> None:
        self.source = source
        self.invalid_rows = invalid_rows or InvalidRows()
        self._rows_read = 0
        with suppress(MissingFileError):  # `open_table` raises it, after errors in the use of options
            if find_store_location(source) is None:  # the first bytes of a URL would take another request
                self.source = open_at_position(source)
        self.name = name or get_location(source) or str(getattr(self.source, "name", ""))
        detected = FORMATS_BY_EXTENSION.get(get_uncompressed_extension(self.name), "arrow")
        detected = "arrow" if detected in ARROW_FORMATS else detected
        is_open = isinstance(self.source, MemorySource | StreamSource)
        self.format = format or (_detect_format(self.source.peek(_START_BYTES), detected) if is_open else detected)

    def __exit__(self, *_: object) -> None:
        if isinstance(self.source, MemorySource | StreamSource | RangeSource):
            self.source.close()

    @property
    def size_bytes(self) -> int | None:
        """The size of a file in bytes; None for a pipe."""
        return getattr(self.source, "size", None)

    @property
    def progress_unit(self) -> str:
        """The unit of progress: rows, record batches, or bytes if only the position in the source is known."""
        is_stream = isinstance(self.source, MemorySource) and is_stream_start(self.source.peek(_START_BYTES))
        return {"parquet": "rows", "arrow": "bytes" if is_stream else "record batches"}.get(self.format, "bytes")

    def check_options(self, options: SourceOptions) -> None:
        """Raise `InvalidArgumentError` for options of CSV and JSON if the format is another."""
        if self.format in ("arrow", "parquet") and (options.column_types or options.invalid_rows != "error"):
            raise InvalidArgumentError(
                f"{self.name}: types of columns and invalid_rows are for CSV and JSON, not for {self.format}"
            )
        if self.format != "csv" and options.csv_options:
            raise InvalidArgumentError(
                f"{self.name}: {next(iter(options.csv_options))} is for CSV, not for {self.format}"
            )

    @contextmanager
    def open_table(self, options: SourceOptions = DEFAULT_SOURCE_OPTIONS) -> Iterator[LazyTable]:
        """Open the table. Its batches are a reader if it is Arrow data.

        Raises `InvalidDataError`, with pyarrow's message, for what it can't read as the format, and as `check_options`.
        """
        self.check_options(options)
        if self.format == "arrow":
            with open_any(self.source, options.columns or None, max_piped_bytes=options.max_piped_bytes) as reader:
                pairs = tuple(reader.metadata.items()) if isinstance(reader, FileReader) else ()
                metadata = replace_statistics(pairs, None, ())
                yield LazyTable(reader.schema, reader, isinstance(reader, FileReader), metadata)
        elif self.format == "parquet":
            with self.open_parquet(options.max_piped_bytes) as file:
                # pyarrow takes a.b as a field of a, and returns columns in their order in the file.
                batches = file.iter_batches(_BATCH_ROWS, columns=options.columns or None)
                yield self._import_table(file.schema_arrow, batches, options.columns, file.metadata.num_rows)
        else:
            self.source = open_at_position(self.source)
            open_text = _open_csv if self.format == "csv" else _open_json
            # Closed, so that a thread of pyarrow that reads ahead ends soon.
            with closing(_SourceFile(_decompress(self.source))) as file:
                with self._translated_errors():
                    schema, batches = open_text(file, self.name, options, self.invalid_rows)
                yield self._import_table(schema, batches, options.columns)

    def open_parquet(self, max_piped_bytes: int) -> Any:
        """Return pyarrow's `ParquetFile`. A pipe, and a URL whose server lacks ranges, is read into memory."""
        pq = import_pyarrow("pyarrow.parquet")
        self.source = ensure_random_access(open_random_access(self.source), max_piped_bytes)
        with self._translated_errors():
            return pq.ParquetFile(_SourceFile(self.source))

    def _import_table(
        self, pa_schema: Any, pa_batches: Iterable[Any], columns: Sequence[str], num_rows: int | None = None
    ) -> LazyTable:
        """Return record batches of pyarrow as a table, with only `columns` if any."""

        def iterate() -> Iterator[RecordBatch]:
            with self._translated_errors():
                for batch in map(record_batch, pa_batches):
                    self._rows_read += batch.num_rows
                    yield batch.select(columns) if columns else batch

        with self._translated_errors():
            schema = import_schema(pa_schema)
        return LazyTable(schema.select(columns) if columns else schema, iterate(), num_rows=num_rows)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raise `InvalidDataError` with pyarrow's message, and the number of rows read before, if any."""
        pa = import_pyarrow()
        try:
            yield
        except BowstringError:
            raise
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # an OSError for damaged pages
            rows = f"after {self._rows_read:,} rows: " if self._rows_read else ""
            invalid = InvalidDataError(f"{self.name}: {rows}{error}")
            if self.format != "parquet":
                invalid.add_note(_NOTE)
            raise invalid from error


def is_arrow(path: str | os.PathLike[str] | StorePath) -> bool:
    """Return whether the file at a path or URL is read as Arrow data."""
    with TableSource(path) as file:
        return file.format == "arrow"


def _detect_format(first_bytes: bytes, default: str) -> str:
    """Return the format by the first bytes, if they are not text, else the default."""
    # A CSV file may begin with PAR1 or ARROW1, too, but not with control characters.
    if _CONTROL_CHARACTER.search(first_bytes):
        if first_bytes.startswith(b"PAR1"):
            return "parquet"
        if first_bytes.startswith((MAGIC, CONTINUATION)):
            return "arrow"
    return "json" if default == "arrow" and _JSON_START.match(first_bytes) else default


# pyarrow


def import_pyarrow(module: str = "pyarrow") -> Any:
    """Import a module of pyarrow. Raises `MissingExtraError` if it is not installed."""
    with require_package("pyarrow", EXTRA):
        return import_module(module)


def import_column_types(types: SchemaLike) -> dict[str, Any]:
    """Return the types of pyarrow for names of columns."""
    pa_schema = import_pyarrow().schema(as_schema(types))
    return dict(zip(pa_schema.names, pa_schema.types, strict=True))


_EXIT_TIMEOUT_S = 10.0
_unreleased_files: weakref.WeakSet[_SourceFile] = weakref.WeakSet()


@atexit.register
def _wait_until_files_are_released() -> None:
    """Wait until pyarrow's threads have released their files.

    A thread that reads or releases one while the interpreter is finalized ends the process with SIGABRT.
    """
    deadline_s = time.monotonic() + _EXIT_TIMEOUT_S
    while _unreleased_files and time.monotonic() < deadline_s:
        gc.collect()
        time.sleep(0.001)


class _SourceFile:
    """A source as a file object, which threads of pyarrow may read. It does not close the source."""

    def __init__(self, source: Any) -> None:
        _unreleased_files.add(self)
        self.source = source
        self.closed = False

    def read(self, size_bytes: int) -> bytes:
        if self.closed:
            raise ClosedError(f"{self.source.name}: closed")
        return bytes(self.source.read(size_bytes))

    def tell(self) -> int:
        return int(self.source.position)

    def seek(self, offset: int, whence: int) -> None:
        self.source.position = offset + {io.SEEK_SET: 0, io.SEEK_END: self.source.size}[whence]

    def close(self) -> None:
        self.closed = True


def _decompress(source: MemorySource | StreamSource) -> MemorySource | StreamSource:
    """Return the decompressed bytes of a source; codecs are detected by their first bytes."""
    start = source.peek(_START_BYTES)
    codec = next((name for magic, name in _CODECS.items() if start.startswith(magic)), None)
    if codec is None:
        return source
    pa = import_pyarrow()
    stream = pa.CompressedInputStream(pa.PythonFile(_SourceFile(source), mode="r"), codec)
    return StreamSource(stream.readinto, source.name)


# CSV


def _open_csv(
    file: _SourceFile, name: str, options: SourceOptions, invalid_rows: InvalidRows
) -> tuple[Any, Iterable[Any]]:
    """Return pyarrow's schema and record batches."""
    pa, pc = import_pyarrow(), import_pyarrow("pyarrow.csv")
    dialect = _CsvDialect.from_options(options.csv_options, name)
    lines = _read_head_lines(file.source, dialect.read)
    names, is_whole, start = dialect.read.column_names, options.block_bytes is None, file.tell()
    has_header = not (names or dialect.read.autogenerate_column_names)
    if has_header and _JSON_START.match("".join(lines).encode()):
        mismatch = FormatMismatchError(f"{name}: expected CSV with a header of column names, found JSON")
        mismatch.add_note("rename it to .json or .jsonl")
        raise mismatch
    rows = _parse_head_rows(lines, dialect.parse)
    first = rows[0] if rows else []
    header = names or (first if has_header else [f"f{index}" for index in range(len(first))])
    # A name in quotes may have any characters.
    if (
        has_header
        and len(header) == 1
        and f'"{header[0]}"' != lines[0].strip()
        and "delimiter" not in options.csv_options
    ):
        _check_delimiter(name, header[0], dialect.parse.delimiter)
    for column in (*options.columns, *options.column_types):
        if column not in header:
            raise NotFoundError(f"{name}: there is no column {column!r}")
    Schema(tuple(Field(column, factories.string()) for column in header)).resolve_indices(options.columns)
    columns = zip(header, zip_longest(*rows[has_header:]), strict=False)
    text_columns = [column for column, values in columns if any(value and _loses_digits(value) for value in values)]
    skipped = _SkippedCsvRows(name, dialect, invalid_rows, first_row=dialect.read.skip_rows + 1 + has_header)
    if options.block_bytes is not None:
        dialect.read.block_size = options.block_bytes
    dialect.parse.ignore_empty_lines = len(header) != 1  # an empty line is a null in a file with a single column

    def read(source: Any, types: Mapping[str, Any], handler: Any = None, *, use_threads: bool = False) -> Any:
        dialect.read.use_threads = use_threads
        if handler is not None:
            dialect.parse.invalid_row_handler = handler
        convert_options = dialect.create_convert_options(types, include_columns=options.columns)
        return (pc.read_csv if is_whole else pc.open_csv)(source, dialect.read, dialect.parse, convert_options)

    types = {**dict.fromkeys(text_columns, pa.string()), **options.column_types}
    if options.invalid_rows == "skip":
        if options.block_bytes is not None:
            size = options.block_bytes
            max_size = max(size, min(_MAX_INFERENCE_BLOCKS * size, _MAX_PYARROW_BLOCK_BYTES))
            while True:
                head = file.source.peek(size + 4)  # a character more: the last row of the block is known to be cut off
                dialect.read.block_size = size
                inferred = read(io.BytesIO(head), dict.fromkeys(types, pa.binary()), lambda _: "skip").schema
                is_cut = len(head) > size
                if not is_cut or size == max_size or pa.null() not in inferred.types:
                    break
                size = min(2 * size, max_size)
            dialect.read.block_size = options.block_bytes
            fields = [each.with_type(pa.string()) if is_cut and each.type == pa.null() else each for each in inferred]
            types = {**{each.name: each.type for each in fields}, **types}
        reader = read(file, dict.fromkeys(types, pa.binary()), skipped.add)
        schema = pa.schema([each.with_type(types.get(each.name, each.type)) for each in reader.schema])
        schema = pa.schema([each.with_type(_text_if_binary(each, options)) for each in schema])
        return schema, skipped.convert(reader.to_batches() if is_whole else reader, schema)
    # One thread is equally fast for one block at a time, and then errors have the row.
    use_threads = is_whole and isinstance(file.source, MemorySource)
    try:
        reader = read(file, types, use_threads=use_threads)
    except pa.ArrowInvalid:
        if not use_threads:
            raise
        file.source.position = start
        reader = read(file, types)
    for each in reader.schema:
        if _text_if_binary(each, options) != each.type:
            raise pa.ArrowInvalid(f"column {each.name!r} is not valid UTF-8")
    return reader.schema, reader.to_batches() if is_whole else reader


def _check_delimiter(name: str, header: str, delimiter: str) -> None:
    """Raise `InvalidDataError` if the only column has a name with another delimiter than the default one."""
    for other in ",;\t|":
        if other in header and other != delimiter:
            raise InvalidDataError(
                f"{name}: expected {delimiter!r} between the names of columns, found {other!r}: use --delimiter of "
                f"bowstring convert, or bowstring.read_table(…, delimiter={other!r})"
            )


def _read_head_lines(source: StreamSource | MemorySource, read_options: Any) -> list[str]:
    """Return the first lines of CSV: those that end in the first 64 KiB, or further on if it has no two such lines."""
    size = _HEAD_BYTES
    while True:
        head = source.peek(size)
        text = head.decode(read_options.encoding, "ignore").removeprefix("\ufeff")
        lines = list(io.StringIO(text, newline=""))[read_options.skip_rows :]
        if len(head) < size:
            return lines
        if len(lines) > 2 or size >= DEFAULT_BLOCK_BYTES:
            return lines[:-1] or lines  # the last line is cut: `08` of `08:30:00` would have a leading zero
        size *= 2


def _parse_head_rows(lines: Iterable[str], parse_options: Any) -> list[list[str]]:
    """Return the rows of lines of CSV, up to the first that Python's reader rejects, as for a value beyond 128 KiB."""
    quote, rows = parse_options.quote_char, list[list[str]]()
    quoting: dict[str, Any] = {"quotechar": quote} if quote else {"quoting": csv.QUOTE_NONE}
    with suppress(csv.Error):
        for row in csv.reader(lines, delimiter=parse_options.delimiter, **quoting):
            rows.append(row)  # one by one: those before an error are kept
    return rows


def _text_if_binary(field: Any, options: SourceOptions) -> Any:
    """Return the type of a field of pyarrow, which infers binary for text that is not valid UTF-8."""
    pa = import_pyarrow()
    return pa.string() if pa.types.is_binary(field.type) and field.name not in options.column_types else field.type


@dataclass(frozen=True, slots=True)
class _CsvDialect:
    """pyarrow's options of CSV: `ReadOptions`, `ParseOptions`, and the arguments of `ConvertOptions`."""

    read: Any
    parse: Any
    convert: Mapping[str, Any]

    @classmethod
    def from_options(cls, options: Mapping[str, Any], name: str) -> _CsvDialect:
        """Distribute options among pyarrow's classes, by their names. Raises `InvalidArgumentError` for others."""
        pc = import_pyarrow("pyarrow.csv")
        read: dict[str, Any] = {}
        parse: dict[str, Any] = {"delimiter": default_delimiter(name), "newlines_in_values": True}
        convert: dict[str, Any] = {
            "null_values": [""],
            "strings_can_be_null": True,
            "quoted_strings_can_be_null": False,
        }
        arguments_by_option = {
            option: arguments
            for arguments, kind in ((read, pc.ReadOptions), (parse, pc.ParseOptions), (convert, pc.ConvertOptions))
            for option in vars(kind)
            if not option.startswith("_") and option not in _OWN_CSV_OPTIONS
        }
        for option, value in options.items():
            if option not in arguments_by_option:
                raise InvalidArgumentError(f"CSV has no option {option!r}{suggest(option, arguments_by_option)}")
            arguments_by_option[option][option] = value
        try:
            dialect = cls(pc.ReadOptions(**read), pc.ParseOptions(**parse), convert)
            dialect.create_convert_options({})
            dialect.read.validate()
            dialect.parse.validate()
            b"name".decode(dialect.read.encoding, "ignore")
        except (LookupError, TypeError, ValueError) as error:
            raise InvalidArgumentError(f"options of CSV: {error}") from None
        return dialect

    def create_convert_options(self, types: Mapping[str, Any], **others: Any) -> Any:
        """Return `ConvertOptions` with types of columns."""
        return import_pyarrow("pyarrow.csv").ConvertOptions(column_types=types, **{**self.convert, **others})


class _SkippedCsvRows:
    """Leaves out rows with another number of columns, and those whose values can't be converted.

    pyarrow can leave out only the first kind, so columns are read as bytes, and then converted. If that fails for a
    batch, halves of it are converted, down to the rows.
    """

    def __init__(self, name: str, dialect: _CsvDialect, invalid_rows: InvalidRows, first_row: int) -> None:
        self._name = name
        self._dialect = dialect
        self._invalid_rows = invalid_rows
        self._first_row = first_row
        """The number of the first row of values, as in pyarrow's errors: the first row of the file has number 1."""
        self._gaps: list[int] = []
        """The indices, among the rows that pyarrow returns, before which one was left out."""

    def add(self, row: Any) -> str:
        """Handle pyarrow's `InvalidRow`."""
        self._gaps.append(row.number - self._first_row - len(self._gaps))
        expected = format_count(row.expected_columns, "column")
        self._add(row.number, f"expected {expected}, found {row.actual_columns}", row.text)
        return "skip"

    def _add(self, number: int, reason: str, text: str) -> None:
        self._invalid_rows.add(f"{self._name}: row {number:,}", reason, text)

    def convert(self, batches: Iterable[Any], schema: Any) -> Iterator[Any]:
        """Yield record batches of pyarrow with this schema, without the rows that do not have it."""
        index = 0
        for batch in batches:
            yield from self._convert(batch, schema, index)
            index += batch.num_rows

    def _convert(self, batch: Any, schema: Any, index: int) -> Iterator[Any]:
        pa = import_pyarrow()
        try:
            yield self._convert_all(batch, schema)
            return
        except pa.ArrowInvalid as error:
            if batch.num_rows == 1:
                number = self._first_row + index + bisect_right(self._gaps, index)
                reason = re.sub(r"^In CSV column #\d+: Row #1: CSV conversion error to ", "", str(error))
                values = [(value.as_py() or b"") for (value,) in batch]
                texts = [value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in values]
                self._add(number, reason, ",".join(texts))
                return
        half = batch.num_rows // 2
        yield from self._convert(batch[:half], schema, index)
        yield from self._convert(batch[half:], schema, index + half)

    def _convert_all(self, batch: Any, schema: Any) -> Any:
        """Convert the columns. Raises pyarrow's `ArrowInvalid` if there is an invalid value."""
        pa, pc = import_pyarrow(), import_pyarrow("pyarrow.csv")
        columns = {
            index: batch.column(index).cast(pa.string())
            for index, each in enumerate(schema)
            if each.type != batch.schema.field(index).type
        }
        others = {str(index): column for index, column in columns.items() if schema.field(index).type != pa.string()}
        if others and batch.num_rows:
            # pyarrow's other casts accept other texts. Nulls are written as empty text, and values in quotes.
            text = io.BytesIO()
            pc.write_csv(pa.table(others), text, pc.WriteOptions(include_header=False))
            converted = pc.read_csv(
                io.BytesIO(text.getvalue()),
                pc.ReadOptions(column_names=list(others), use_threads=False, block_size=max(len(text.getvalue()), 1)),
                pc.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
                self._dialect.create_convert_options(
                    {key: schema.field(int(key)).type for key in others}, null_values=[""]
                ),
            )
            columns |= {int(key): converted[key].combine_chunks() for key in others}
        arrays = [columns.get(index, column) for index, column in enumerate(batch.columns)]
        return pa.record_batch(arrays, schema=schema)


def _loses_digits(value: str) -> bool:
    """Return whether text looks like an integer, but has leading zeros, or is beyond 64 bits."""
    digits = value[value[:1] in ("+", "-") :]
    if not (digits.isascii() and digits.isdigit()):
        return False
    is_beyond = len(digits) > 19 or not -(1 << 63) <= int(value) < 1 << 63
    return is_beyond or (digits[0] == "0" and len(digits) > 1)


# JSON


def _open_json(
    file: _SourceFile, name: str, options: SourceOptions, invalid_rows: InvalidRows
) -> tuple[Any, Iterable[Any]]:
    """Return pyarrow's schema and record batches of one object per line, or of an array of objects."""
    is_array = file.source.peek(_HEAD_BYTES).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")
    unit = f"{name}: {'object' if is_array else 'line'}"

    def handle_invalid(number: int, line: bytes, error: Exception) -> None:
        reason, text = re.sub(r"^JSON parse error: |\.? in row \d+$", "", str(error)), line.decode(errors="replace")
        if options.invalid_rows == "error":
            invalid = InvalidDataError(f"{unit} {number:,}: {reason}: {text!r:.{_EXAMPLE_CHARACTERS}}")
            invalid.add_note(_NOTE)
            raise invalid from error
        invalid_rows.add(f"{unit} {number:,}", reason, text)

    tables = _parse_json(_read_json_blocks(file.source, name, options), name, options, handle_invalid)
    first = next(tables, import_pyarrow().schema(options.column_types.items()).empty_table())
    return first.schema, (batch for table in chain([first], tables) for batch in table.to_batches())


def _parse_json(
    blocks: Iterable[bytes], name: str, options: SourceOptions, handle_invalid: Callable[[int, bytes, Exception], None]
) -> Iterator[Any]:
    """Yield a table of pyarrow for each block of lines, which is parsed by itself, with the types of the first.

    Lines that can't be parsed are passed to `handle_invalid`, with their number and the error, and left out. If they
    are skipped, the first block is joined with the next ones while a column has no value.
    """
    pa, pj = import_pyarrow(), import_pyarrow("pyarrow.json")
    types, schema = options.column_types, pa.schema(options.column_types.items())
    floats = [json.dumps(column, ensure_ascii=False) for column, kind in types.items() if pa.types.is_floating(kind)]
    # pyarrow reads NaN and infinities without quotes.
    special = re.compile(rb'((?:%s)[ \t]*:[ \t]*)"(NaN|-?Infinity)"' % "|".join(map(re.escape, floats)).encode())

    def parse_with_types(block: bytes, schema: Any) -> Any:
        return pj.read_json(
            pa.BufferReader(special.sub(rb"\1\2", block) if floats else block),
            pj.ReadOptions(use_threads=False, block_size=max(len(block), _HEAD_BYTES)),
            pj.ParseOptions(schema, unexpected_field_behavior="infer" if is_first else "error"),
        )

    def parse(block: bytes, schema: Any) -> Any:
        table = parse_with_types(block, schema)
        try:
            table.validate(full=True)
        except pa.ArrowInvalid:
            # pyarrow loses nulls of lists whose type it does not know yet, as of `[null, 1]`: apache/arrow#51305.
            types = pa.schema([each.with_type(_replace_null_type(each.type)) for each in table.schema])
            pairs = zip(parse_with_types(block, types).columns, table.schema, strict=True)
            columns = [
                column if column.type == each.type else pa.array(column.to_pylist(), each.type)
                for column, each in pairs
            ]
            table = pa.table(columns, schema=table.schema)
        return table

    is_first, number = True, 1
    first_lines, num_joined, table = _Lines(), 0, None
    for block in blocks:
        _check_json(block, name)
        lines = [(index, line) for index, line in enumerate(block.split(b"\n"), number) if line.strip()]
        number += block.count(b"\n")
        if not lines:
            continue
        lines = first_lines + lines
        try:
            table = parse(b"\n".join(line for _, line in lines) if first_lines else block, schema)
        except pa.ArrowInvalid:
            if 2 * sum(line.lstrip().startswith(b"{") for _, line in lines) < len(lines):
                raise  # objects that have several lines
            lines, valid_schema = _drop_invalid_lines(lines, parse, schema, handle_invalid)
            if not lines:
                continue
            table = parse(b"\n".join(line for _, line in lines), valid_schema)
        num_joined += 1
        if (
            is_first
            and options.invalid_rows == "skip"
            and num_joined < _MAX_INFERENCE_BLOCKS
            and any(map(_has_null_type, table.schema.types))
        ):
            first_lines = lines
            continue
        schema, is_first, first_lines = table.schema, False, []
        yield table
    if first_lines:
        yield table


def _has_null_type(type: Any) -> bool:
    """Whether values of a type, or in its lists and structs, are only nulls."""
    pa = import_pyarrow()
    return bool(type == pa.null()) or any(_has_null_type(type.field(index).type) for index in range(type.num_fields))


def _replace_null_type(type: Any) -> Any:
    """Return the type with another one for values, or elements of lists and structs, that are only nulls."""
    pa = import_pyarrow()
    if pa.types.is_list(type):
        return pa.list_(_replace_null_type(type.value_type))
    if pa.types.is_struct(type):
        return pa.struct([each.with_type(_replace_null_type(each.type)) for each in type])
    return pa.bool_() if pa.types.is_null(type) else type


def _drop_invalid_lines(
    lines: _Lines,
    parse: Callable[[bytes, Any], Any],
    schema: Any,
    handle_invalid: Callable[[int, bytes, Exception], None],
) -> tuple[_Lines, Any]:
    """Return the lines that can be parsed together, and the schema to do so. Lines have their numbers."""
    pa = import_pyarrow()

    def find_error(lines: _Lines, schema: Any) -> Exception | None:
        try:
            parse(b"\n".join(line for _, line in lines), schema)
        except pa.ArrowInvalid as error:
            invalid: Exception = error
            return invalid
        return None

    def drop(lines: _Lines, schema: Any) -> _Lines:
        error = find_error(lines, schema) if lines else None
        if error is None:
            return lines
        if len(lines) == 1:
            handle_invalid(*lines[0], error)
            return []
        half = len(lines) // 2
        return drop(lines[:half], schema) + drop(lines[half:], schema)

    lines = drop(lines, schema)
    if lines and find_error(lines, schema) is not None:
        # The lines are valid, but have different types: those of the longest beginning that can be parsed are used.
        length = bisect_left(range(1, len(lines)), 1, key=lambda length: find_error(lines[:length], schema) is not None)
        schema = parse(b"\n".join(line for _, line in lines[:length]), schema).schema
        lines = drop(lines, schema)
    return lines, schema


def _read_json_blocks(source: Any, name: str, options: SourceOptions) -> Iterator[bytes]:
    """Yield lines, about a block at a time. An array, whose objects become lines, is read into memory."""
    block_bytes = options.block_bytes or sys.maxsize
    if source.peek(3) == codecs.BOM_UTF8:
        source.read(3)
    if source.peek(_HEAD_BYTES).lstrip().startswith(b"["):
        source = ensure_random_access(source, options.max_piped_bytes)
        yield from encode_lines(_split_array(source.read(source.size).decode(), name), block_bytes, block_bytes)
    elif options.block_bytes is None:
        source = ensure_random_access(source, sys.maxsize)
        yield source.read(source.size)
    while block := source.peek(block_bytes + 1):  # a line as long as a block, and its end, if any
        end = block.rfind(b"\n") + 1 if len(block) > block_bytes else len(block)
        if not end:
            raise LimitError(f"{name}: a line is larger than a block of {block_bytes} bytes (--block-size)")
        yield source.read(end)


def _split_array(text: str, name: str) -> Iterator[str]:
    """Yield the texts of the objects of an array, without line ends, which JSON allows only between values."""
    decode, start_pattern, end, count = json.JSONDecoder().raw_decode, r"\s*\[\s*(?=\{)", 0, 0
    try:
        while start := re.compile(start_pattern).match(text, end):
            _, end = decode(text, start.end())
            yield re.sub(r"[\r\n]", " ", text[start.end() : end])
            start_pattern, count = r"\s*,\s*(?=\{)", count + 1
        if not re.compile(r"\s*\]\s*" if count else r"\s*\[\s*\]\s*").fullmatch(text, end):
            raise json.JSONDecodeError("expected an object or the end of the array", text, end)
    except RecursionError:
        raise LimitError(f"{name}: values are nested too deep") from None
    except json.JSONDecodeError as error:
        problem = f"{error.msg}, found {text[end : end + 20]!r}"
        raise InvalidDataError(f"{name}: after {count:,} objects of the array: {problem}") from None


def _check_json(block: bytes, name: str) -> None:
    """Raise `LimitError` for values that are nested so deep that pyarrow overflows the stack, and for objects with so
    many different keys that most values would be nulls.
    """
    # Without escapes and what is in strings; line ends count for nothing, as pyarrow permits them in values.
    text = re.sub(rb"\\.", b"", block).translate(None, _NOT_NESTING).replace(b'""', b"")
    brackets = np.frombuffer(re.sub(rb'"[^"]*"', b"", text), np.uint8)
    is_opening = np.isin(brackets, list(b"[{"))
    depths = np.cumsum(np.where(is_opening, 1, -1))
    if depths.max(initial=0) > DEFAULT_LIMITS.max_nesting:
        raise LimitError(f"{name}: values are nested deeper than {DEFAULT_LIMITS.max_nesting} levels")
    # Not lines: pyarrow permits several objects in one.
    num_objects, num_keys = int(np.count_nonzero(is_opening & (depths == 1))), block.count(b":")
    if num_objects * num_keys > expansion_limits.MAX_VALUES:
        keys = set(re.findall(rb'"((?:[^"\\]|\\.)*)"\s*:', block))
        with prefix_errors(f"{name}: {num_objects:,} objects with {len(keys):,} keys"):
            expansion_limits.check_expanded_values(num_objects * len(keys), num_keys)


# Writing


def validate_table(table: LazyTable, target_format: str, hint: str, is_quick: bool = False) -> LazyTable:
    """Return the table with batches that are validated when they are read, even if `is_quick` for Parquet and CSV:
    pyarrow crashes on invalid values. `hint` is for the errors.
    """
    if is_quick and target_format not in ("parquet", "csv"):
        return table
    return replace(table, batches=iter_validated_batches(table.batches, hint))


def decode_dictionaries(table: LazyTable, encoded_types: tuple[type[t.DataType], ...] = ()) -> LazyTable:
    """Decode the dictionary-encoded columns, except those whose values have one of `encoded_types`."""

    def decode(column: Array) -> Array:
        type_ = column.type
        is_decoded = isinstance(type_, t.Dictionary) and not isinstance(type_.value_type, encoded_types)
        return column.dictionary_decode() if is_decoded else column

    return _convert_columns(table, decode)


def _convert_columns(table: LazyTable, convert: Callable[[Array], Array]) -> LazyTable:
    """Convert each column; its type must depend on the column's type only. Errors name the column."""
    fields = []
    for each in table.schema:
        try:
            fields.append(each.with_type(convert(array([], each.type)).type))
        except UnsupportedTypeError as error:
            raise UnsupportedTypeError(f"column {each.name!r}: {error}") from None
    schema = Schema(tuple(fields), table.schema.pairs)
    batches = (
        RecordBatch(schema, batch.num_rows, list(map(convert, batch.columns)), batch.pairs) for batch in table.batches
    )
    return replace(table, schema=schema, batches=batches)


def write_batches(out: Any, target_format: str, table: LazyTable, **options: Any) -> int:
    """Write a table, and return the number of rows. An Arrow file, and a stream if the option `unify_dictionaries` is
    set, has one dictionary for each column, which keeps all batches in memory.

    `options` are as in `new_file` and `new_stream`, or in pyarrow's `ParquetWriter` or `csv.WriteOptions`.
    """
    rows = 0

    def count_rows() -> Iterator[RecordBatch]:
        nonlocal rows
        for batch in table.batches:
            yield batch
            rows += batch.num_rows

    batches: Iterable[RecordBatch] = count_rows()
    if target_format in ARROW_FORMATS:
        is_file = target_format == "file"
        is_unified = options.get("options", DEFAULT_WRITE_OPTIONS).unify_dictionaries
        if has_dictionary_fields(table.schema) and (is_unified or (is_file and not table.has_fixed_dictionaries)):
            batches = unify_batch_dictionaries(table.schema, list(batches))
        create = partial(new_file, metadata=table.footer_metadata) if is_file else partial(new_stream, atomic=True)
        with create(out, table.schema, **options) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return rows
    counted = replace(table, batches=batches)
    with open_finished_sink(out) as sink:
        if target_format in ("parquet", "csv"):
            _write_with_pyarrow(sink, target_format, counted, options)
        else:
            for chunk in _encode_json(counted, is_array=target_format == "json"):
                sink.write([chunk], len(chunk))
    return rows


def _write_with_pyarrow(sink: Sink, target_format: str, table: LazyTable, options: Mapping[str, Any]) -> None:
    """Write batches as row groups of Parquet, or as a header and lines of CSV (RFC 4180, UTF-8, line feeds)."""
    pa, module = import_pyarrow(), import_pyarrow(f"pyarrow.{target_format}")
    if target_format == "csv":
        table = _convert_columns(table, _to_csv_column)
        write_options = module.WriteOptions(**{"delimiter": default_delimiter(sink.name), **options})
        open_writer, options = module.CSVWriter, {"write_options": write_options}
    else:  # of other dictionaries, pyarrow loses time zones and units
        table = decode_dictionaries(table, (t.Utf8, t.LargeUtf8, t.Binary, t.LargeBinary))
        for each in table.schema:
            _check_parquet_type(each.type, f"column {each.name!r}")
        open_writer = module.ParquetWriter
    # What pyarrow uses of a file object.
    file = SimpleNamespace(closed=False, tell=lambda: sink.position, write=lambda part: sink.write([part], len(part)))
    try:
        with open_writer(file, pa.schema(table.schema), **options) as writer:
            for batch in table.batches:
                check_row_count(batch)
                if batch.num_rows and not table.schema:
                    name = {"csv": "CSV", "parquet": "Parquet"}[target_format]
                    raise UnsupportedTypeError(
                        f"{name} can't have rows without columns: write JSON lines or Arrow instead"
                    )
                writer.write_batch(pa.record_batch(batch))
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid, pa.ArrowKeyError) as error:
        # Without quotes around the message of a KeyError.
        raise UnsupportedTypeError(f"pyarrow can't write this as {target_format}: {error.args[0]}") from error


def _check_parquet_type(type: t.DataType, path: str) -> None:
    """Raise `UnsupportedTypeError`, with the path, for a type that pyarrow can't write or read back.

    pyarrow aborts the process for some lists of size 0, and can't read back the others if they are nullable.
    """
    stored = get_storage_type(type)
    values = stored.value_type if isinstance(stored, t.Dictionary) else None
    if (
        isinstance(stored, t.Interval | t.Union | t.RunEndEncoded)
        or (isinstance(stored, t.FixedSizeList) and stored.list_size == 0)
        or (isinstance(stored, t.FixedSizeBinary) and stored.byte_width == 0)
        or (isinstance(stored, t.Struct) and not stored.fields)
        or (isinstance(stored, t.Decimal) and stored.scale < 0)
        or (values and (values.fields or isinstance(values, t.Duration | t.Utf8View | t.BinaryView | t.Null)))
    ):
        raise UnsupportedTypeError(f"{path}: {type} can't be written as Parquet")
    if values is not None:
        _check_parquet_type(values, f"{path} → dictionary values")
    for child in stored.fields:
        name = f"field {child.name!r}" if isinstance(stored, t.Struct) else child.name
        _check_parquet_type(child.type, f"{path} → {name}")


def _to_csv_column(column: Array) -> Array:
    """Convert a column to a type that pyarrow writes as text; values are written as by `bowstring cat`."""
    type_ = column.type
    if isinstance(type_, t.Dictionary):
        return _to_csv_column(column.dictionary_decode())
    if isinstance(type_, t.RunEndEncoded):
        return _to_csv_column(column.run_end_decode())
    stored = get_storage_type(type_)
    has_text = not stored.fields or getattr(type_, "extension_name", "") == "arrow.timestamp_with_offset"
    if not has_text or isinstance(stored, t.Interval):
        raise UnsupportedTypeError(f"{type_} can't be written as CSV: write JSON lines or Arrow instead")
    if isinstance(type_, ExtensionType | t.BaseBinary | t.Duration | t.Utf8View):
        return array(list(map(format_text, column.to_pylist())), factories.string())
    return column


def _encode_json(table: LazyTable, is_array: bool) -> Iterator[bytes]:
    """Yield one object per line, or the lines of an array. Raises `InvalidArgumentError` for equal column names."""
    names = table.schema.names
    check_unique_names(names, "write CSV instead")
    batches = ((format_json_line(names, row) for row in iterate_rows(batch)) for batch in table.batches)
    if is_array:
        lines = (
            f"{line}," if next_line else line for line, next_line in pairwise(chain(chain.from_iterable(batches), [""]))
        )
        yield from encode_lines(chain(["["], lines, ["]"]))
    for objects in () if is_array else batches:  # a reader of a pipe gets the lines of a batch before the next one
        yield from encode_lines(objects)
