"""Open and create streams and files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from typing import Any, TypeAlias

from bowstring.arrays.record_batch import RecordBatch, as_batch
from bowstring.arrays.table import RecordBatchReader, Table, as_table, table
from bowstring.datatypes.field import MetadataLike
from bowstring.datatypes.schema import Schema, SchemaLike
from bowstring.errors import InvalidArgumentError
from bowstring.interop.c_data import SupportsArrowStream
from bowstring.io.fsspec_store import with_storage_options
from bowstring.io.memory_source import MemorySource
from bowstring.io.range_source import RangeSource
from bowstring.io.sinks import open_sink
from bowstring.io.sources import open_growing, open_random_access, open_sequential
from bowstring.io.stream_source import StreamSource
from bowstring.ipc.codecs import CodecName
from bowstring.ipc.file import FileReader
from bowstring.ipc.format_detection import MAX_PIPED_BYTES, open_and_detect_format, read_piped_file
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.message import frame_message
from bowstring.ipc.remote_file import RemoteFileReader
from bowstring.ipc.stream import Encoder, StreamReader
from bowstring.ipc.write_options import DEFAULT_WRITE_OPTIONS, IpcWriteOptions
from bowstring.ipc.writers import FileWriter, StreamWriter
from bowstring.memory.closable import call_on_error

BatchesLike: TypeAlias = (
    RecordBatch | Table | FileReader | StreamReader | SupportsArrowStream | Iterable[RecordBatch] | Mapping[str, Any]
)
"""An object with record batches of one schema, or a mapping of columns, as for `bowstring.table`."""


def open_file(
    source: Any,
    columns: Sequence[str | int] | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
    max_piped_bytes: int = MAX_PIPED_BYTES,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> FileReader:
    """Open an Arrow file («IPC File Format») for random access.

    `source` is a path (mapped, or up to 64 KiB copied), bytes or anything with the buffer protocol (used in place), a
    URL or what `fsspec.open` returns (read by ranges), a binary file object or a descriptor (as a path if it is a
    regular file, else read by ranges if it can seek, else read whole: `LimitError` for more than `max_piped_bytes`).
    `columns` are names or indices of the columns to read, in that order. `storage_options` are fsspec's options for a
    URL. Reads the footer only. Raises
    `FormatMismatchError` for a stream or a foreign format, `TruncatedError` for a file that is cut off,
    `MissingFileError` for a path or URL that does not exist, `AccessDeniedError`, `IsDirectoryError` and other errors
    that are also an `OSError`, `NotFoundError` for an unknown column; for URLs `MissingExtraError` if fsspec or the
    store's package is missing, `AccessDeniedError` for status 401 and 403, `ConnectionLostError` for a refused
    connection or an unknown host, `DeadlineError` for a timeout (the store's, or five minutes), and `TruncatedError`
    for a short reply.

    >>> table = bs.table({"city": ["Riga", "Lima", None], "people": [605_273, 10_092_000, 7]})
    >>> with bs.new_file("cities.arrow", table.schema) as writer:
    ...     writer.write(table)
    >>> with bs.open_file("cities.arrow", columns=["people"]) as reader:
    ...     reader.num_rows, reader.read_all().to_pydict()
    (3, {'people': [605273, 10092000, 7]})
    """
    opened = open_random_access(with_storage_options(source, storage_options))
    if isinstance(opened, StreamSource):
        with closing(opened):
            opened = read_piped_file(opened, max_piped_bytes)
    with call_on_error(opened.close):
        return create_file_reader(opened, columns, limits)


def open_stream(
    source: Any,
    columns: Sequence[str | int] | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
    *,
    follow: bool = False,
    timeout_s: float | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> StreamReader:
    """Open an Arrow stream («IPC Streaming Format») and read its schema.

    `source` is a path (mapped, or up to 64 KiB copied), bytes or anything with the buffer protocol (used in place), a
    URL or what `fsspec.open` returns, a binary file object such as `sys.stdin.buffer`, a descriptor or a socket (read
    on demand, never beyond the stream's end marker). `columns` and `storage_options` as in `open_file`. Raises
    `FormatMismatchError` for a file or a foreign format, `TruncatedError` for a stream that is cut off; a socket's
    timeout becomes `DeadlineError`.

    With `follow=True` the file at a path may grow, and is copied: at its end, the reader waits for more bytes, also for
    the schema, until the stream's end marker. It raises `DeadlineError` if none arrive for `timeout_s` seconds,
    `ResourceError` if the file was replaced or removed, `TruncatedError` if it has become shorter, and `ClosedError` if
    another thread closes it.

    >>> import io
    >>> sink = io.BytesIO()
    >>> with bs.new_stream(sink, {"n": "int64"}) as writer:
    ...     writer.write(bs.record_batch({"n": [1, 2]}))
    ...     writer.write(bs.record_batch({"n": [3]}))
    >>> [batch["n"].to_pylist() for batch in bs.open_stream(sink.getvalue())]
    [[1, 2], [3]]
    """
    if timeout_s is not None and not follow:
        raise InvalidArgumentError("timeout_s is only for follow=True")
    source = with_storage_options(source, storage_options)
    return StreamReader(open_growing(source, timeout_s) if follow else open_sequential(source), columns, limits)


def open_any(
    source: Any,
    columns: Sequence[str | int] | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
    max_piped_bytes: int = MAX_PIPED_BYTES,
) -> FileReader | StreamReader:
    """Open an Arrow file or stream, detected by its first bytes: a path, bytes, a URL, a file object or a descriptor,
    from its position on. A file in a pipe is read whole: `LimitError` for more than `max_piped_bytes`.

    Raises `FormatMismatchError` for another format, `TruncatedError` for a source that is cut off, other
    `InvalidDataError`s for malformed metadata, and `NotFoundError` for an unknown column or a missing file.
    """
    opened, format_ = open_and_detect_format(source, max_piped_bytes)
    with call_on_error(opened.close):
        create = StreamReader if format_ == "stream" else create_file_reader
        return create(opened, columns, limits)


def read_schema(source: Any, limits: ReadLimits = DEFAULT_LIMITS) -> Schema:
    """Read the schema of an Arrow file or stream, or of what `Schema.serialize` returned: a path, bytes, a URL, a file
    object or a descriptor.

    Raises `FormatMismatchError` for another format, `TruncatedError` for a source that is cut off, and other
    `InvalidDataError`s for malformed metadata.

    >>> bs.ipc.read_schema(bs.ipc.serialize_schema({"a": "int64"})).names
    ['a']
    """
    with open_any(source, None, limits) as reader:
        return reader.schema


def serialize_schema(schema: SchemaLike) -> bytes:
    """Return the schema message of a stream («Schema message»), which `read_schema` reads.

    Raises `UnsupportedTypeError` for a type that can't be written.

    >>> bs.ipc.read_schema(bs.ipc.serialize_schema({"n": "int64"})).names
    ['n']
    """
    return frame_message(Encoder(schema).encode_schema_message().metadata)


def as_schema_and_batches(source: BatchesLike) -> tuple[Schema, Iterable[RecordBatch]]:
    """Return the schema and batches of `source`. Raises `InvalidArgumentError` for objects without batches."""
    if isinstance(source, Mapping):
        source = table(source)
    if isinstance(source, RecordBatch):
        return source.schema, [source]
    if isinstance(source, Table):
        return source.schema, source.to_batches()
    if isinstance(source, FileReader | StreamReader | RecordBatchReader):
        return source.schema, source
    if hasattr(source, "__arrow_c_stream__"):
        reader = RecordBatchReader.from_stream(source)
        return reader.schema, reader
    if hasattr(source, "__arrow_c_array__"):
        return as_schema_and_batches(as_table(source))
    if hasattr(source, "__iter__"):
        iterator = iter(source)
        first = next(iterator, None)
        if isinstance(first, RecordBatch) or hasattr(first, "__arrow_c_array__"):
            first = as_batch(first)
            return first.schema, chain([first], map(as_batch, iterator))
        if first is None:
            raise InvalidArgumentError("no batches, so no schema: give an empty table")
    raise InvalidArgumentError(
        f"expected a table, record batches or a reader, not {type(source).__name__}: bowstring.table creates a table"
    )


def create_file_reader(
    source: Any, columns: Sequence[str | int] | None = None, limits: ReadLimits = DEFAULT_LIMITS
) -> FileReader:
    """Return a reader of a source that contains a file."""
    if isinstance(source, RangeSource):
        return RemoteFileReader(source, columns, limits)
    assert isinstance(source, MemorySource)
    return FileReader(source, columns, limits)


def new_file(  # noqa: PLR0913 -- compression is frequent enough for parameters of its own
    sink: Any,
    schema: SchemaLike,
    metadata: MetadataLike = None,
    alignment: int = 64,
    compression: CodecName | None = None,
    compression_level: int | None = None,
    options: IpcWriteOptions = DEFAULT_WRITE_OPTIONS,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> FileWriter:
    """Create an Arrow file («IPC File Format»); use it in a `with` block.

    `sink` is a path (the file appears there when the block ends without an error), a URL or an `fsspec.open` object
    (the same, if the store supports it), a binary file object, a file descriptor or a socket; only paths and URLs are
    closed. `metadata` is the footer's custom metadata. Buffers begin at multiples of `alignment` bytes: 8, 16, 32 or
    64. `compression` is "lz4" or "zstd", `options` has further settings, and `storage_options` has fsspec's for a URL.
    Raises `UnsupportedTypeError` for a schema that can't be written, `MissingExtraError` if the codec is not installed.
    A writer that is garbage-collected unclosed emits a `ResourceWarning`.

    >>> batch = bs.record_batch({"city": ["Oslo", "Rome"], "degrees": [-3.5, 14.0]})
    >>> with bs.new_file("weather.arrow", batch.schema, metadata={"station": "7"}, compression="zstd") as writer:
    ...     writer.write(batch)
    >>> with bs.open_file("weather.arrow") as reader:
    ...     reader.metadata, reader[0]["city"].to_pylist()
    ({b'station': b'7'}, ['Oslo', 'Rome'])
    """
    encoder = Encoder(schema, alignment, False, _with_compression(options, compression, compression_level))
    return FileWriter(open_sink(with_storage_options(sink, storage_options)), encoder, metadata)


def new_stream(  # noqa: PLR0913 -- as `new_file`, and two settings of streams
    sink: Any,
    schema: SchemaLike,
    alignment: int = 64,
    compression: CodecName | None = None,
    compression_level: int | None = None,
    options: IpcWriteOptions = DEFAULT_WRITE_OPTIONS,
    *,
    buffer_bytes: int | None = None,
    atomic: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> StreamWriter:
    """Create an Arrow stream («IPC Streaming Format»); use it in a `with` block. Other parameters and errors as in
    `new_file`.

    Each batch has been passed to the operating system, or to the file object, when `write` returns. With `buffer_bytes`
    small batches are gathered until they have that many bytes together; `flush` passes them on earlier. A file at a
    path appears with its first batch, replaces the old one, and grows; with `atomic=True` it appears when it is
    complete, and the default of `buffer_bytes` is 1 MiB. A URL is like a path, but object stores show only complete
    files.

    >>> import io
    >>> sink = io.BytesIO()
    >>> with bs.new_stream(sink, {"city": "string"}) as writer:
    ...     writer.write(bs.record_batch({"city": ["Oslo", "Rome"]}))
    >>> bs.read_table(sink.getvalue())
    <bowstring.Table 2 rows × 1 column in 1 batch>
    ┌────────┐
    │ city   │
    │ string │
    ╞════════╡
    │ "Oslo" │
    │ "Rome" │
    └────────┘
    """
    encoder = Encoder(schema, alignment, options=_with_compression(options, compression, compression_level))
    sink = with_storage_options(sink, storage_options)
    return StreamWriter(open_sink(sink, atomic, 0 if buffer_bytes is None and not atomic else buffer_bytes), encoder)


def _with_compression(options: IpcWriteOptions, compression: CodecName | None, level: int | None) -> IpcWriteOptions:
    if compression is None and level is None:
        return options
    return replace(options, compression=compression or options.compression, compression_level=level)
