"""Adapters to pyarrow: its import, file objects over sources and sinks, batches of its readers, and its errors."""

from __future__ import annotations

import atexit
import gc
import io
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

from bowstring.arrays.record_batch import RecordBatch, record_batch
from bowstring.cli.progress import ReportProgress
from bowstring.errors import BowstringError, InvalidDataError, MissingExtraError, UnsupportedTypeError
from bowstring.inspection.formatting import check_row_count
from bowstring.io.memory_source import MemorySource
from bowstring.io.range_source import RangeSource
from bowstring.io.sinks import Sink
from bowstring.io.sources import open_at_position, open_random_access, read_into_memory
from bowstring.io.stream_source import StreamSource

EXTRA = "convert"
_BUFFER_BYTES = 1 << 16
_CODECS = {b"\x1f\x8b\x08": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}
_Error = TypeVar("_Error", bound=Exception)
INFERENCE_NOTE = "types are inferred from the first block: --column-type '{column}=TYPE' or a larger --block-size"
"""A format string for the note of an error in a value whose type is inferred."""

ErrorFactory: TypeAlias = Callable[[str, int], InvalidDataError]
"""Converts a message of pyarrow, and the number of rows read before, to an error."""
ReportRows: TypeAlias = Callable[[int], None]
"""Reports progress after a number of rows."""

_EXIT_TIMEOUT_S = 10.0
_unreleased_files: weakref.WeakSet[io.RawIOBase] = weakref.WeakSet()


@atexit.register
def _wait_until_files_are_released() -> None:
    """Wait until pyarrow's threads have released their files.

    A thread that reads or releases one while the interpreter is finalized ends the process with SIGABRT.
    """
    gc.collect()
    deadline_s = time.monotonic() + _EXIT_TIMEOUT_S
    while _unreleased_files and time.monotonic() < deadline_s:
        time.sleep(0.001)


def import_pyarrow(module: str = "pyarrow") -> Any:
    """Import a module of pyarrow. Raises `MissingExtraError` if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtraError.for_package("pyarrow", EXTRA) from None


def add_hint(error: _Error, note: str) -> _Error:
    """Return the error with a note, which is shown as a hint."""
    error.add_note(note)
    return error


class ReadableFile(io.RawIOBase):
    """A file object over a function that reads up to a number of bytes, and returns none at the end."""

    def __init__(self, read: Callable[[int], bytes | memoryview]) -> None:
        super().__init__()
        _unreleased_files.add(self)
        self._read = read

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` or a part of it; return the number of bytes."""
        part = self._read(len(buffer))
        buffer[: len(part)] = part
        return len(part)

    def stop(self) -> None:
        """Return no more bytes, so that a thread of pyarrow that reads ahead ends soon."""
        self._read = lambda _size_bytes: b""


class RawSourceFile(io.RawIOBase):
    """A random access source as a file object."""

    def __init__(self, source: MemorySource | RangeSource) -> None:
        super().__init__()
        _unreleased_files.add(self)
        self._source = source
        self._position = 0

    @property
    def size_bytes(self) -> int:
        """The size of the source."""
        return self._source.size

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the offset of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the offset of the next read and return it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._source.size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer`, or less at the end; return the number of bytes."""
        size_bytes = max(0, min(len(buffer), self._source.size - self._position))
        buffer[:size_bytes] = self._source.read_at(self._position, size_bytes)
        self._position += size_bytes
        return size_bytes


class WritableFile(io.RawIOBase):
    """A sink as a file object."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink
        self._position = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._position

    def write(self, data: Any) -> int:
        """Write all of `data`."""
        size_bytes = memoryview(data).nbytes
        self._sink.write([bytes(data)], size_bytes)
        self._position += size_bytes
        return size_bytes


@contextmanager
def open_sequential_file(
    source: Any, report_progress: ReportProgress | None = None
) -> Iterator[tuple[Any, ReportRows]]:
    """Open a path, URL or file object for sequential reading.

    Yield its decompressed bytes as a file object, and a function that reports the position to `report_progress`,
    whatever the number of rows. gzip, bzip2, Zstandard and LZ4 are detected by their first bytes.
    """
    source = open_at_position(source)

    def report_position(_rows: int) -> None:
        if report_progress is not None:
            report_progress(source.position, source.size if isinstance(source, MemorySource) else None)

    raw_files = [ReadableFile(source.read)]
    try:
        file = io.BufferedReader(raw_files[0], _BUFFER_BYTES)
        magic = file.peek(4)[:4]
        codec = next((name for prefix, name in _CODECS.items() if magic.startswith(prefix)), None)
        if codec is not None:
            raw_files.append(ReadableFile(_decompressor(file, codec, source.name)))
            file = io.BufferedReader(raw_files[1], _BUFFER_BYTES)
        yield file, report_position
    finally:
        for raw_file in raw_files:
            raw_file.stop()
        source.close()


def _decompressor(file: Any, codec: str, name: str) -> Callable[[int], bytes]:
    """Return a function that reads decompressed bytes of a file. It raises `InvalidDataError` if they are malformed."""
    pa = import_pyarrow()
    stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec)

    def read(size_bytes: int) -> bytes:
        try:
            return bytes(stream.read(size_bytes))
        except OSError as error:
            if isinstance(error, BowstringError):
                raise
            raise InvalidDataError(f"{name}: can't be decompressed as {codec}: {error}") from None

    return read


@contextmanager
def open_random_access_file(source: Any, max_piped_bytes: int) -> Iterator[RawSourceFile]:
    """Open a path, URL or file object for random access.

    A pipe, or a URL whose server does not support ranges, is read into memory. Raises `LimitError` for more than
    `max_piped_bytes`.
    """
    source = open_random_access(source)
    try:
        readable = read_into_memory(source, max_piped_bytes) if isinstance(source, StreamSource) else source
        yield RawSourceFile(readable)
    finally:
        source.close()


@contextmanager
def translate_pyarrow_errors(translated_error: ErrorFactory, rows: int = 0) -> Iterator[None]:
    """Raise `translated_error(message, rows)` for an error of pyarrow in malformed data after this many rows."""
    pa = import_pyarrow()
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # an OSError for damaged pages
        if isinstance(error, BowstringError):
            raise
        raise translated_error(str(error), rows) from error


def read_batches(
    reader: Any, translated_error: ErrorFactory, report_rows: ReportRows, columns: Sequence[str] = ()
) -> Iterator[RecordBatch]:
    """Yield the record batches of a pyarrow reader, with only `columns` if any, and translate its errors.

    `report_rows` is called before the first batch and after each.
    """
    batches, rows = iter(reader), 0
    while True:
        report_rows(rows)
        with translate_pyarrow_errors(translated_error, rows):
            batch = next(batches, None)
        if batch is None:
            return
        yield record_batch(batch).select(columns) if columns else record_batch(batch)
        rows += batch.num_rows


def write_batches(
    open_writer: Callable[[], Any],
    batches: Iterable[RecordBatch],
    format_name: str,
    convert: Callable[[RecordBatch], RecordBatch] = lambda batch: batch,
) -> None:
    """Convert record batches and write them with a writer of pyarrow, which does not check that values are valid.

    Raises `UnsupportedTypeError` for a type that pyarrow can't write, and what `check_row_count` raises.
    """
    pa = import_pyarrow()
    try:
        with open_writer() as writer:
            for number, batch in enumerate(batches):
                check_row_count(batch, f"record batch {number}, ")
                writer.write_batch(pa.record_batch(convert(batch)))
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise UnsupportedTypeError(f"pyarrow can't write this as {format_name}: {error}") from error
