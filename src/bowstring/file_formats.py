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
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import accumulate, zip_longest
from pathlib import PurePosixPath
from typing import Any, Literal, TypeAlias, cast

from bowstring.arrays.array import Array
from bowstring.arrays.construction import array
from bowstring.arrays.record_batch import RecordBatch, record_batch
from bowstring.arrays.table import RecordBatchReader, Table, as_table, has_dictionary_fields, unify_batch_dictionaries
from bowstring.datatypes import types as t
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.field import Metadata
from bowstring.datatypes.schema import Schema, import_schema
from bowstring.errors import (
    BowstringError,
    FormatMismatchError,
    InvalidArgumentError,
    InvalidDataError,
    LimitError,
    MissingExtraError,
    MissingFileError,
    NotFoundError,
    UnsupportedTypeError,
    prefix_errors,
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
from bowstring.io.fsspec_store import find_store_location, is_fsspec_open_file, is_url
from bowstring.io.memory_source import MemorySource
from bowstring.io.range_source import RangeSource
from bowstring.io.sinks import Sink, open_sink
from bowstring.io.sources import ensure_random_access, open_at_position, open_random_access
from bowstring.io.stream_source import StreamSource
from bowstring.ipc.api import create_file_reader, new_file, new_stream, open_any
from bowstring.ipc.file import FileReader
from bowstring.ipc.file_statistics import replace_statistics
from bowstring.ipc.format_detection import MAX_PIPED_BYTES
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.message import CONTINUATION, MAGIC, is_stream_start
from bowstring.ipc.metadata.header import Codec
from bowstring.ipc.remote_file import RemoteFileReader
from bowstring.ipc.stream import StreamReader
from bowstring.ipc.write_options import DEFAULT_WRITE_OPTIONS, IpcWriteOptions
from bowstring.kernels.filters import FiltersLike
from bowstring.layouts import expansion_limits
from bowstring.memory.closable import abandon_on_error

EXTRA = "convert"
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
# Several times pyarrow's, because the first block determines the types.
DEFAULT_BLOCK_BYTES = 8 << 20
_COMPRESSION_EXTENSIONS = (".gz", ".bz2", ".zst", ".lz4")
_CODECS = {b"\x1f\x8b\x08": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}
# As many as Spark passes in a batch, and pyarrow's default for Parquet.
_BATCH_ROWS = 1 << 16
# The first bytes determine Arrow, Parquet and codecs; the head of text its delimiter, leading zeros and form of JSON.
_FIRST_BYTES, _HEAD_BYTES = 16, 1 << 16
_JSON_START = re.compile(rb'(\xef\xbb\xbf)?\s*(\{\s*("|\}|$)|\[\s*(\{|\]|$))')
_CONTROL_CHARACTER = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_CSV_NOTE = "bowstring convert has --column-type, --delimiter, --encoding, --block-size and other options for CSV"
_JSON_NOTE = "bowstring convert has --column-type and --block-size for JSON"
_SchemaAndBatches: TypeAlias = tuple[Schema, Iterator[RecordBatch]]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How to read a file; each format has its own among the options.

    `columns` selects columns; empty for all. `max_piped_bytes` limits a file that is read from a pipe into memory,
    `batch_rows` is the number of rows of batches of Parquet. CSV and JSON are read in blocks of `block_bytes`, of which
    the first determines the types; None reads them at once, and infers the types from all rows. All others are the
    dialect and the types of CSV; `column_types` and `timestamp_formats` are also for JSON. Without a `delimiter`, it is
    detected. An empty `quote` disables quoting.
    """

    columns: tuple[str, ...] = ()
    max_piped_bytes: int = MAX_PIPED_BYTES
    batch_rows: int | None = None
    block_bytes: int | None = DEFAULT_BLOCK_BYTES
    column_types: Mapping[str, Any] = field(default_factory=dict)
    column_names: tuple[str, ...] = ()
    null_values: tuple[str, ...] = ()
    timestamp_formats: tuple[str, ...] = ()
    skip_rows: int = 0
    encoding: str = "utf-8"
    quote: str = '"'
    delimiter: str | None = None
    has_header: bool = True


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """How to write a file: Arrow with `ipc` and the alignment of buffers in bytes, Parquet with a codec and its level
    (None for a fast one), CSV with a delimiter and maybe a header.
    """

    ipc: IpcWriteOptions = DEFAULT_WRITE_OPTIONS
    alignment_bytes: int = 64
    compression: str = "snappy"
    compression_level: int | None = None
    delimiter: str = ","
    has_header: bool = True


DEFAULT_SOURCE_OPTIONS, DEFAULT_TARGET_OPTIONS = SourceOptions(), TargetOptions()
_WHOLE_FILE = SourceOptions(block_bytes=None)


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


# Whole tables


def read_table(
    source: Any,
    columns: Sequence[str | int] | None = None,
    filters: FiltersLike | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
) -> Table:
    """Read an Arrow file or stream, a Parquet, CSV or JSON file into a table.

    Arrow and Parquet are detected by their first bytes, CSV and JSON by the extension of the path or URL. Sources and
    errors are as in `open_file`, `filters` as in `Table.filter`; they may name columns that are not in `columns`.
    A local Arrow file is mapped, not copied; batches that have no matching rows according to its statistics are not
    read. Parquet, CSV and JSON need pyarrow (`MissingExtraError`). JSON is one object per line, or an array of objects.
    Columns of CSV with leading zeros or integers beyond 64 bits in the first 64 KiB are text.

    >>> bs.write_table(bs.table({"day": [1, 2, 3], "degrees": [-3.5, 14.0, 9.25]}), "days.csv")
    >>> bs.read_table("days.csv", columns=["degrees"], filters=[("day", ">=", 2)]).to_pydict()
    {'degrees': [14.0, 9.25]}
    """
    with open_table_source(source) as table_source:
        if table_source.format == "arrow":
            return _read_arrow(table_source.source, columns, filters, limits)
        names = () if filters is not None else tuple(name for name in columns or () if isinstance(name, str))
        options = replace(_WHOLE_FILE, columns=names if len(names) == len(columns or ()) else ())
        with table_source.open_table(options) as lazy:
            table = Table(lazy.schema, lazy.batches)
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
    source: str | os.PathLike[str], columns: Sequence[str | int] | None = None
) -> FileReader | StreamReader | RecordBatchReader:
    """Open the file at a path or URL for reading its batches once; formats and errors as in `read_table`."""
    if is_arrow(source):
        return open_any(source, columns)
    batches = _iterate_batches(source, columns)
    return RecordBatchReader(next(batches), batches)


def _iterate_batches(source: Any, columns: Sequence[str | int] | None) -> Iterator[Any]:
    """Yield the schema, then the batches."""
    with open_table_source(source) as file, file.open_table(_WHOLE_FILE) as table:
        yield table.schema if columns is None else table.schema.select(columns)
        for batch in table.batches:
            yield batch if columns is None else batch.select(columns)


def write_table(
    table: Any,
    sink: Any,
    compression: Codec | Literal["snappy", "gzip", "brotli"] | None = None,
    max_chunksize: int | None = None,
    options: IpcWriteOptions = DEFAULT_WRITE_OPTIONS,
) -> None:
    """Write a table, of Bowstring or another library, in the format of the extension of a path or URL: an Arrow file
    (`.arrow`, `.feather`, `.ipc`) or stream (`.arrows`), `.parquet`, `.csv`, `.tsv`, `.json` (an array of objects),
    `.jsonl` or `.ndjson`. File objects and descriptors get an Arrow file.

    Batches, and row groups of Parquet, have at most `max_chunksize` rows. `sink` and `options` are as in `new_file`,
    `compression` is Arrow's or Parquet's (default: snappy). All formats but Arrow need pyarrow (`MissingExtraError`).
    Raises `InvalidArgumentError` for another extension and for options that the format does not have, and
    `UnsupportedTypeError`, with the column, for a type that it can't hold.

    >>> bs.write_table(bs.table({"a": [1, 2, 3]}), "a.arrow", max_chunksize=2)
    >>> bs.open_file("a.arrow").num_record_batches
    2
    """
    table = as_table(table)
    location = get_location(sink)
    format_ = "file" if location is None else choose_target_format(location)
    if format_ in ARROW_FORMATS:
        if compression is not None:
            options = replace(options, compression=cast("Codec", compression))
    elif options != DEFAULT_WRITE_OPTIONS or (compression is not None and format_ != "parquet"):
        raise InvalidArgumentError(f"{location}: compression and options do not apply to {format_}")
    lazy = LazyTable(table.schema, table.to_batches(max_chunksize))
    lazy = fit_to_format(validate_table(lazy, format_, "", is_quick=True), format_)
    delimiter = default_delimiter(location)
    write_batches(sink, format_, lazy, TargetOptions(options, compression=compression or "snappy", delimiter=delimiter))


# Formats


def get_location(file: Any) -> str | None:
    """Return the path or URL of a source or sink, which has an extension; None for file objects and memory."""
    if isinstance(file, str | os.PathLike):
        return os.fspath(file)
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


class TableSource:
    """A file and its format; a path is opened, a URL not yet. Create it with `open_table_source`."""

    def __init__(self, source: Any, format: str | None = None, name: str | None = None) -> None:
        self.source = source
        is_open = find_store_location(source) is None  # the first bytes of a URL would take another request
        try:
            self.source = open_at_position(source) if is_open else source
        except MissingFileError:
            is_open = False  # `open_table` raises it, after errors in the use of options
        self._location = get_location(source) or name or str(self.source.name)
        self.name = name or self._location
        detected = FORMATS_BY_EXTENSION.get(get_uncompressed_extension(self._location), "arrow")
        detected = "arrow" if detected in ARROW_FORMATS else detected
        self.format = format or (_detect_format(_peek(self.source), detected) if is_open else detected)

    @property
    def size_bytes(self) -> int | None:
        """The size of a file in bytes; None for a pipe."""
        return getattr(self.source, "size", None)

    @property
    def progress_unit(self) -> str:
        """The unit of progress: rows, record batches, or bytes if only the position in the source is known."""
        is_stream = isinstance(self.source, MemorySource) and is_stream_start(_peek(self.source))
        return {"parquet": "rows", "arrow": "bytes" if is_stream else "record batches"}.get(self.format, "bytes")

    @contextmanager
    def open_table(self, options: SourceOptions = DEFAULT_SOURCE_OPTIONS) -> Iterator[LazyTable]:
        """Open the table. Its batches are a reader if it is Arrow data.

        Raises `InvalidDataError`, with pyarrow's message, for what it can't read as the format.
        """
        if self.format == "arrow":
            with open_any(self.source, options.columns or None, max_piped_bytes=options.max_piped_bytes) as reader:
                pairs = tuple(reader.metadata.items()) if isinstance(reader, FileReader) else ()
                metadata = replace_statistics(pairs, None, ())
                yield LazyTable(reader.schema, reader, isinstance(reader, FileReader), metadata)
        elif self.format == "parquet":
            with self.open_parquet(options.max_piped_bytes) as file:
                with _translate_pyarrow_errors(self.name):
                    schema = import_schema(file.schema_arrow)
                schema = schema.select(options.columns) if options.columns else schema
                # pyarrow takes a.b as a field of a, and returns columns in their order in the file.
                reader = file.iter_batches(options.batch_rows or _BATCH_ROWS, columns=options.columns or None)
                batches = _read_batches(reader, self.name, options.columns)
                yield LazyTable(schema, batches, num_rows=file.metadata.num_rows)
        else:
            self.source = open_at_position(self.source)
            open_text = _open_csv if self.format == "csv" else _open_json
            delimiter = default_delimiter(self._location)
            with _open_decompressed(self.source) as file:
                with _translate_pyarrow_errors(self.name, _CSV_NOTE if self.format == "csv" else _JSON_NOTE):
                    schema, batches = open_text(file, self.name, options, delimiter)
                yield LazyTable(schema, batches)

    @contextmanager
    def open_parquet(self, max_piped_bytes: int) -> Iterator[Any]:
        """Yield pyarrow's `ParquetFile`. A pipe, or a URL whose server does not support ranges, is read into memory."""
        pq = import_pyarrow("pyarrow.parquet")
        self.source = ensure_random_access(open_random_access(self.source), max_piped_bytes)
        with _translate_pyarrow_errors(self.name):
            file = pq.ParquetFile(_SourceFile(self.source, is_sequential=False))
        yield file


@contextmanager
def open_table_source(source: Any, format: str | None = None, name: str | None = None) -> Iterator[TableSource]:
    """Open a file in a format; without one, Arrow and Parquet are detected by content, CSV and JSON
    by the extension of the path or URL, of JSON also by content. `name` is for errors.
    """
    file = TableSource(source, format, name)
    try:
        yield file
    finally:
        if isinstance(file.source, MemorySource | StreamSource | RangeSource):
            file.source.close()


def is_arrow(path: str | os.PathLike[str]) -> bool:
    """Return whether the file at a path or URL is read as Arrow data."""
    with open_table_source(path) as file:
        return file.format == "arrow"


def _peek(source: MemorySource | StreamSource) -> bytes:
    if isinstance(source, StreamSource):
        return source.peek(_FIRST_BYTES)
    return source.read_at(source.position, min(_FIRST_BYTES, source.size - source.position))


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
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtraError.for_package("pyarrow", EXTRA) from None


@contextmanager
def _translate_pyarrow_errors(where: str, note: str = "") -> Iterator[None]:
    """Raise `InvalidDataError` with pyarrow's message and a note; a Bowstring error is raised unchanged."""
    pa = import_pyarrow()
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # an OSError for damaged pages
        if isinstance(error, BowstringError):
            raise
        invalid = InvalidDataError(f"{where}: {error}")
        if note:
            invalid.add_note(note)
        raise invalid from error


def _read_batches(reader: Any, name: str, columns: Sequence[str] = (), note: str = "") -> Iterator[RecordBatch]:
    """Yield the record batches of a pyarrow reader or table, with only `columns` if any, and translate its errors."""
    batches = iter(reader.to_batches() if hasattr(reader, "to_batches") else reader)
    while True:
        with _translate_pyarrow_errors(name, note):
            batch = next(batches, None)
        if batch is None:
            return
        yield record_batch(batch).select(columns) if columns else record_batch(batch)


# A blocked read, as of a pipe, must not keep the process for ever.
_EXIT_TIMEOUT_S = 10.0
_unreleased_files: weakref.WeakSet[io.RawIOBase] = weakref.WeakSet()


@atexit.register
def _wait_until_files_are_released() -> None:
    """Wait until pyarrow's threads have released their files.

    A thread that reads or releases one while the interpreter is finalized ends the process with SIGABRT.
    """
    deadline_s = time.monotonic() + _EXIT_TIMEOUT_S
    while _unreleased_files and time.monotonic() < deadline_s:
        gc.collect()
        time.sleep(0.001)


class _SourceFile(io.RawIOBase):
    """A source as a file object, which threads of pyarrow may read."""

    def __init__(self, source: Any, is_sequential: bool) -> None:
        super().__init__()
        _unreleased_files.add(self)
        self._source = source
        self._is_sequential = is_sequential
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return not self._is_sequential

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._source.size}[whence]
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        if self._is_sequential:
            part = self._source.read(len(buffer))
        else:
            size_bytes = max(0, min(len(buffer), self._source.size - self._position))
            part = self._source.read_at(self._position, size_bytes)
        buffer[: len(part)] = part
        self._position += len(part)
        return len(part)


class _SinkFile(io.RawIOBase):
    """A sink as a file object."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._sink.position

    def write(self, data: Any) -> int:
        self._sink.write([bytes(data)], len(data))
        return len(data)


@contextmanager
def _open_decompressed(source: MemorySource | StreamSource) -> Iterator[Any]:
    """Yield the decompressed bytes of a source as a file object; codecs are detected by their first bytes."""
    raw_file: Any = _SourceFile(source, is_sequential=True)
    codec = next((name for magic, name in _CODECS.items() if _peek(source).startswith(magic)), None)
    if codec is not None:
        pa = import_pyarrow()
        raw_file = pa.CompressedInputStream(pa.PythonFile(raw_file, mode="r"), codec)
    file = io.BufferedReader(raw_file, _HEAD_BYTES)
    try:
        yield file
    finally:
        file.close()  # so that a thread of pyarrow that reads ahead ends soon


# CSV


def _open_csv(file: Any, name: str, options: SourceOptions, default_delimiter: str) -> _SchemaAndBatches:
    pa, pc = import_pyarrow(), import_pyarrow("pyarrow.csv")
    text = file.peek(_HEAD_BYTES)[:_HEAD_BYTES].decode(options.encoding, "ignore").removeprefix("\ufeff")
    lines = list(io.StringIO(text, newline=""))[options.skip_rows :]
    if options.has_header and not options.column_names and _JSON_START.match("".join(lines).encode()):
        mismatch = FormatMismatchError(f"{name}: expected CSV with a header of column names, found JSON")
        mismatch.add_note("rename it to .json or .jsonl")
        raise mismatch
    delimiter = options.delimiter or _detect_delimiter(lines, default_delimiter, len(options.column_names) == 1)
    quoting: dict[str, Any] = {"quotechar": options.quote} if options.quote else {"quoting": csv.QUOTE_NONE}
    rows = list(csv.reader(lines, delimiter=delimiter, **quoting))
    first = rows[0] if rows else []
    header = options.column_names or (first if options.has_header else [f"f{index}" for index in range(len(first))])
    for column in (*options.columns, *options.column_types):
        if column not in header:
            raise NotFoundError(f"{name}: there is no column {column!r}")
    text_columns = [
        column
        for column, values in zip(header, zip_longest(*rows[header is first :]), strict=False)
        if any(value and _loses_digits(value) for value in values)
    ]
    is_whole = options.block_bytes is None
    reader = (pc.read_csv if is_whole else pc.open_csv)(
        file,
        read_options=pc.ReadOptions(
            use_threads=is_whole,  # equally fast for one block at a time, and then errors contain the row
            block_size=options.block_bytes,
            skip_rows=options.skip_rows,
            column_names=options.column_names or None,
            autogenerate_column_names=not options.has_header and not options.column_names,
            encoding=options.encoding,
        ),
        parse_options=pc.ParseOptions(
            delimiter=delimiter,
            quote_char=options.quote or False,
            newlines_in_values=True,
            ignore_empty_lines=len(header) != 1,  # an empty line is a null in a file with a single column
        ),
        convert_options=pc.ConvertOptions(
            column_types={**dict.fromkeys(text_columns, pa.string()), **options.column_types},
            include_columns=options.columns,
            null_values=options.null_values or [""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            timestamp_parsers=[*options.timestamp_formats, pc.ISO8601],
        ),
    )
    schema = import_schema(reader.schema)
    for each in schema:
        if isinstance(each.type, t.Binary) and each.name not in options.column_types:  # as pyarrow reads it
            error = InvalidDataError(f"{name}: column {each.name!r} is not valid UTF-8")
            error.add_note(_CSV_NOTE)
            raise error
    return schema, _read_batches(reader, name, note=_CSV_NOTE)


def _detect_delimiter(lines: list[str], default: str, is_single_column: bool) -> str:
    """Return the default delimiter, or another if the first line does not have it."""
    if not is_single_column and default not in "".join(lines[:1]):
        with suppress(csv.Error):
            return csv.Sniffer().sniff("".join(lines[:100]), ",;\t|").delimiter
    return default


def _loses_digits(value: str) -> bool:
    """Return whether text looks like an integer, but has leading zeros, or is beyond 64 bits."""
    digits = value[value[:1] in ("+", "-") :]
    if not (digits.isascii() and digits.isdigit()):
        return False
    is_beyond = len(digits) > 19 or not -(1 << 63) <= int(value) < 1 << 63
    return is_beyond or (digits[0] == "0" and len(digits) > 1)


# JSON


def _open_json(file: Any, name: str, options: SourceOptions, _: str) -> _SchemaAndBatches:
    """Return the schema and batches of one object per line, or of an array of objects.

    The lines of each block are parsed by themselves, with the types of the first block.
    """
    pa, pj = import_pyarrow(), import_pyarrow("pyarrow.json")
    explicit = pa.schema(list(options.column_types.items()))
    formats, timestamps = options.timestamp_formats, {}
    if formats:  # pyarrow's reader of JSON takes ISO 8601 only: read the text, then parse it
        timestamps = {each.name: each.type for each in explicit if pa.types.is_timestamp(each.type)}
        explicit = pa.schema([(each.name, pa.string() if each.name in timestamps else each.type) for each in explicit])
    block_bytes = options.block_bytes or -1
    if file.peek(3).startswith(codecs.BOM_UTF8):
        file.read(3)
    is_array = file.peek(_HEAD_BYTES).lstrip().startswith(b"[")
    blocks = (_read_array if is_array else _read_lines)(file, name, block_bytes)
    floats = [json.dumps(each.name, ensure_ascii=False) for each in explicit if pa.types.is_floating(each.type)]
    # pyarrow reads NaN and infinities without quotes.
    special = re.compile(rb'((?:%s)[ \t]*:[ \t]*)"(NaN|-?Infinity)"' % "|".join(map(re.escape, floats)).encode())

    def parse(schema: Any, rows: int) -> Any:
        with _translate_pyarrow_errors(f"{name}: after {rows:,} rows" if rows else name, _JSON_NOTE):
            block = next(blocks, None)
            if block is None:
                return None
            _check_json(block, name)
            return pj.read_json(
                pa.BufferReader(special.sub(rb"\1\2", block) if floats else block),
                pj.ReadOptions(use_threads=False, block_size=max(len(block), _HEAD_BYTES)),
                pj.ParseOptions(schema, unexpected_field_behavior="error" if rows else "infer"),
            )

    def parse_timestamps(table: Any, rows: int) -> Any:
        for index, column in enumerate(table.schema):
            if column.name in timestamps:
                with _translate_pyarrow_errors(f"{name}: after {rows:,} rows, column {column.name!r}", _JSON_NOTE):
                    values = _parse_timestamps(table[index], formats, timestamps[column.name])
                table = table.set_column(index, column.name, values)
        return table

    def iterate() -> Iterator[RecordBatch]:
        table, rows = first, 0
        while table is not None:
            yield from _read_batches(parse_timestamps(table, rows), name, options.columns)
            rows += table.num_rows
            table = parse(first.schema, rows)

    first = parse(explicit if len(explicit) else None, 0)
    if first is not None and formats:  # as in CSV, text of which each value fits becomes timestamps
        for column in first.schema:
            if pa.types.is_string(column.type) and column.name not in options.column_types:
                with suppress(pa.ArrowInvalid):
                    _parse_timestamps(first[column.name], formats, pa.timestamp("s"))
                    timestamps[column.name] = pa.timestamp("s")
    types = explicit if first is None else first.schema
    schema = import_schema(pa.schema([(each.name, timestamps.get(each.name, each.type)) for each in types]))
    return schema.select(options.columns) if options.columns else schema, iterate()


def _parse_timestamps(text: Any, formats: Sequence[str], type: Any) -> Any:
    """Parse a column of text in ISO 8601, or each value in the first of `formats` that fits it."""
    pa, pc = import_pyarrow(), import_pyarrow("pyarrow.compute")
    with suppress(pa.ArrowInvalid):
        return text.cast(type)
    values = pc.coalesce(*(pc.strptime(text, each, type.unit, error_is_null=True) for each in formats))
    if values.null_count > text.null_count:
        unparsed = text.filter(pc.and_(pc.is_null(values), pc.is_valid(text)))
        raise pa.ArrowInvalid(f"{unparsed[0].as_py()!r} has none of the formats {', '.join(map(repr, formats))}")
    return pc.assume_timezone(values, type.tz) if type.tz else values


def _read_lines(file: Any, name: str, block_bytes: int) -> Iterator[bytes]:
    """Yield whole lines, about a block at a time."""
    while block := file.read(block_bytes):
        block += file.readline(block_bytes)
        if not block.endswith(b"\n") and file.peek(1):
            raise LimitError(f"{name}: a line is larger than a block of {block_bytes} bytes (--block-size)")
        if not block.isspace():
            yield block


def _read_array(file: Any, name: str, block_bytes: int) -> Iterator[bytes]:
    """Yield the objects of an array as lines, about a block at a time."""
    limit = sys.maxsize if block_bytes < 0 else block_bytes
    yield from encode_lines(_split_array(io.TextIOWrapper(file, "utf-8"), name, block_bytes), limit, limit)


def _split_array(text: io.TextIOWrapper, name: str, block_characters: int) -> Iterator[str]:
    """Yield the texts of the objects of an array, without line ends, which JSON allows only between values."""
    decode, buffer, offset, count = json.JSONDecoder().raw_decode, "", 0, 0
    while True:
        start = re.compile(r"\s*%s\s*(?=\{)" % ("," if count else r"\[")).match(buffer, offset)
        try:
            if start is None:
                raise json.JSONDecodeError("expected an object or the end of the array", buffer, offset)
            end = decode(buffer, start.end())[1]
        except RecursionError:
            raise LimitError(f"{name}: values are nested too deep") from None
        except json.JSONDecodeError as error:
            try:
                is_limited = 0 < block_characters < len(buffer) - offset
                block = "" if is_limited else text.read(block_characters)
            except UnicodeDecodeError as decode_error:
                raise InvalidDataError(f"{name}: {decode_error}") from None
            if block:
                buffer, offset = buffer[offset:] + block, 0
                continue
            if re.compile(r"\s*\]\s*" if count else r"\s*\[\s*\]\s*").fullmatch(buffer, offset):
                return
            found = f"{error.msg}, found {buffer[offset : offset + 20]!r}"
            raise InvalidDataError(f"{name}: after {count:,} objects of the array: {found}") from None
        yield re.sub(r"[\r\n]", " ", buffer[start.end() : end])
        offset, count = end, count + 1


def _check_json(block: bytes, name: str) -> None:
    """Raise `LimitError` for values that are nested so deep that pyarrow overflows the stack, and for objects with so
    many different keys that most values would be nulls.
    """
    max_nesting, lines = DEFAULT_LIMITS.max_nesting, block.splitlines()
    for line in lines:
        if line.count(b"[") + line.count(b"{") > max_nesting:
            brackets = re.sub(rb'"(?:[^"\\]|\\.)*"|[^\[\]{}]', b"", line)
            if max(accumulate(1 if code in b"[{" else -1 for code in brackets), default=0) > max_nesting:
                raise LimitError(f"{name}: values are nested deeper than {max_nesting} levels")
    num_keys = block.count(b":")
    if len(lines) * num_keys > expansion_limits.MAX_VALUES:
        keys = set(re.findall(rb'"([^"\\]*)"\s*:', block))
        with prefix_errors(f"{name}: {len(lines):,} objects with {len(keys):,} keys"):
            expansion_limits.check_expanded_values(len(lines) * len(keys), num_keys)


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
    if target_format == "parquet":  # of other dictionaries, pyarrow loses time zones and units
        return decode_dictionaries(table, (t.Utf8, t.LargeUtf8, t.Binary, t.LargeBinary))
    is_replaced = target_format == "file" and not table.has_fixed_dictionaries
    if has_dictionary_fields(table.schema) and (is_unified or is_replaced):
        return replace(table, batches=unify_batch_dictionaries(table.schema, list(table.batches)))
    return table


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


def write_batches(
    out: Any, target_format: str, table: LazyTable, options: TargetOptions = DEFAULT_TARGET_OPTIONS
) -> int:
    """Write a table that fits the format, and return the number of rows."""
    if target_format == "file":
        with new_file(
            out, table.schema, table.footer_metadata, options.alignment_bytes, options=options.ipc
        ) as file_writer:
            return _write_all(table.batches, file_writer.write_batch)
    if target_format == "stream":
        with new_stream(out, table.schema, options.alignment_bytes, options=options.ipc, atomic=True) as stream_writer:
            return _write_all(table.batches, stream_writer.write_batch)
    sink = open_sink(out)
    with abandon_on_error(sink):
        write = {"parquet": _write_parquet, "csv": _write_csv}.get(target_format, _write_json)
        rows = write(sink, table, options, target_format)
        sink.finish()
    return rows


def _write_all(batches: Iterable[RecordBatch], write_batch: Callable[[RecordBatch], Any]) -> int:
    rows = 0
    for batch in batches:
        write_batch(batch)
        rows += batch.num_rows
    return rows


def _write_with_pyarrow(open_writer: Callable[[], Any], table: LazyTable, format: str) -> int:
    pa = import_pyarrow()

    def write_batch(batch: RecordBatch) -> None:
        check_row_count(batch)
        writer.write_batch(pa.record_batch(batch))

    try:
        with open_writer() as writer:
            return _write_all(table.batches, write_batch)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise UnsupportedTypeError(f"pyarrow can't write this as {format}: {error}") from error


def _write_parquet(sink: Sink, table: LazyTable, options: TargetOptions, _: str) -> int:
    """Write batches as row groups."""
    pa, pq = import_pyarrow(), import_pyarrow("pyarrow.parquet")
    for each in table.schema:
        _check_parquet_type(each.type, f"column {each.name!r}")
    codec = {"compression": options.compression, "compression_level": options.compression_level}
    return _write_with_pyarrow(
        lambda: pq.ParquetWriter(_SinkFile(sink), pa.schema(table.schema), **codec), table, "Parquet"
    )


def _check_parquet_type(type: t.DataType, path: str) -> None:
    """Raise `UnsupportedTypeError`, with the path, for a type that pyarrow can't write or read back.

    pyarrow aborts the process for some lists of size 0, and can't read back the others if they are nullable.
    """
    stored = type.storage_type if isinstance(type, ExtensionType) else type
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


def _write_csv(sink: Sink, table: LazyTable, options: TargetOptions, _: str) -> int:
    """Write a header, if any, and a line per row (RFC 4180, UTF-8, line feeds)."""
    pa, pc = import_pyarrow(), import_pyarrow("pyarrow.csv")
    table = _convert_columns(table, _to_csv_column)
    write_options = pc.WriteOptions(include_header=options.has_header, delimiter=options.delimiter)
    return _write_with_pyarrow(
        lambda: pc.CSVWriter(_SinkFile(sink), pa.schema(table.schema), write_options=write_options), table, "CSV"
    )


def _to_csv_column(column: Array) -> Array:
    """Convert a column to a type that pyarrow writes as text; values are written as by `bowstring cat`."""
    type_ = column.type
    if isinstance(type_, t.Dictionary):
        return _to_csv_column(column.dictionary_decode())
    if isinstance(type_, t.RunEndEncoded):
        return _to_csv_column(column.run_end_decode())
    stored = type_.storage_type if isinstance(type_, ExtensionType) else type_
    has_text = not stored.fields or getattr(type_, "extension_name", "") == "arrow.timestamp_with_offset"
    if not has_text or isinstance(stored, t.Interval):
        raise UnsupportedTypeError(f"{type_} can't be written as CSV: write JSON lines or Parquet instead")
    if isinstance(type_, ExtensionType | t.BaseBinary | t.Duration | t.Utf8View):
        return array(list(map(format_text, column.to_pylist())), t.string())
    return column


def _write_json(sink: Sink, table: LazyTable, _: TargetOptions, target_format: str) -> int:
    """Write one object per line, or an array of objects. Raises `InvalidArgumentError` for duplicate column names."""
    names = table.schema.names
    check_unique_names(names, "write CSV instead")
    is_array, separator = target_format == "json", b"[\n"

    def write_batch(batch: RecordBatch) -> None:
        nonlocal separator
        lines = (format_json_line(names, row) for row in iterate_rows(batch))
        for chunk in encode_lines(lines):
            part = chunk
            if is_array:  # the separator of the last line is not known yet
                part = separator + chunk[:-1].replace(b"\n", b",\n")
                separator = b",\n"
            sink.write([part], len(part))

    rows = _write_all(table.batches, write_batch)
    if is_array:
        end = b"\n]\n" if rows else b"[\n]\n"
        sink.write([end], len(end))
    return rows
