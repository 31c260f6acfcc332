"""Opening and creating streams and files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from bowstring.datatypes.field import MetadataLike, SchemaLike
from bowstring.io.sinks import open_sink
from bowstring.io.sources import open_random_access, open_sequential
from bowstring.io.stream_source import StreamSource
from bowstring.ipc.file import FileReader
from bowstring.ipc.format_detection import MAX_PIPED_BYTES, make_file_reader, read_whole_file
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.options import DEFAULT_WRITE_OPTIONS, IpcWriteOptions
from bowstring.ipc.stream import Encoder, StreamReader
from bowstring.ipc.writers import FileWriter, StreamWriter


def open_file(
    source: Any,
    columns: Sequence[str | int] | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
    max_piped_bytes: int = MAX_PIPED_BYTES,
) -> FileReader:
    """Open an Arrow file («IPC File Format») for random access.

    `source` is a path (mapped), bytes or anything with the buffer protocol (used as it is), a URL or what `fsspec.open`
    gives (read by ranges), a binary file object or a descriptor (mapped where it is a regular file, else read by ranges
    if it can seek, else whole: `LimitError` for more than `max_piped_bytes`). `columns` are names or positions of the
    columns to read, in that order. Reads the footer only. Raises `FormatMismatchError` for a stream or a foreign
    format, `TruncatedError` for a file that is cut off, `MissingFileError` for a path or URL that does not exist,
    `AccessDeniedError`, `IsDirectoryError` and other errors that are also an `OSError`, `NotFoundError` for an unknown
    column; for URLs `MissingExtraError` if fsspec or the store's package is missing, `ConnectionLostError` and
    `DeadlineError`.
    """
    opened = open_random_access(source)
    if isinstance(opened, StreamSource):
        with closing(opened):
            opened = read_whole_file(opened, max_piped_bytes)
    try:
        return make_file_reader(opened, columns, limits)
    except BaseException:
        opened.close()
        raise


def open_stream(
    source: Any, columns: Sequence[str | int] | None = None, limits: ReadLimits = DEFAULT_LIMITS
) -> StreamReader:
    """Open an Arrow stream («IPC Streaming Format») and read its schema.

    `source` is a path (mapped, nothing is copied), bytes or anything with the buffer protocol (used as it is), a URL or
    what `fsspec.open` gives, a binary file object such as `sys.stdin.buffer`, a descriptor or a socket (read as batches
    are asked for, never beyond the stream's end marker). `columns` as in `open_file`. Raises `FormatMismatchError` for
    a file or a foreign format, `TruncatedError` for a stream that is cut off; a socket's timeout becomes
    `DeadlineError`.
    """
    return StreamReader(open_sequential(source), columns, limits)


def new_file(  # noqa: PLR0913 -- the two frequent ways of writing are said without a form
    sink: Any,
    schema: SchemaLike,
    metadata: MetadataLike = None,
    alignment: int = 64,
    compression: str | None = None,
    compression_level: int | None = None,
    options: IpcWriteOptions = DEFAULT_WRITE_OPTIONS,
) -> FileWriter:
    """Begin an Arrow file; use it in a `with` block.

    `sink` is a path (the file appears under its name when the block ends without an error, and not at all otherwise), a
    URL or what `fsspec.open` gives (the same, as far as the store can do that), a binary file object, a descriptor or a
    socket; what is not a path or URL stays open. `metadata` is the footer's custom metadata, `alignment` the multiple
    of bytes, 8 to 64, at which buffers begin in the file. `compression` is "lz4" or "zstd", optionally with a level,
    and `options` has the rarer settings (`IpcWriteOptions`). Raises `UnsupportedTypeError` for a schema that can't be
    written, `MissingExtraError` if the codec is not installed.
    """
    encoder = Encoder(schema, alignment, False, _options(options, compression, compression_level))
    return FileWriter(open_sink(sink), encoder, metadata)


def new_stream(
    sink: Any,
    schema: SchemaLike,
    alignment: int = 64,
    compression: str | None = None,
    compression_level: int | None = None,
    options: IpcWriteOptions = DEFAULT_WRITE_OPTIONS,
) -> StreamWriter:
    """Begin an Arrow stream; use it in a `with` block. `sink`, `alignment`, `compression`, `options` and errors as in
    `new_file`.
    """
    encoder = Encoder(schema, alignment, options=_options(options, compression, compression_level))
    return StreamWriter(open_sink(sink), encoder)


def _options(options: IpcWriteOptions, compression: str | None, level: int | None) -> IpcWriteOptions:
    if compression is None and level is None:
        return options
    return replace(options, compression=compression or options.compression, compression_level=level)
