"""Helpers for pyarrow: its import, file objects over sources, and the batches of its readers."""

from __future__ import annotations

import atexit
import gc
import io
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from bowstring.errors import BowstringError, InvalidDataError, MissingExtraError
from bowstring.io.memory_source import MemorySource
from bowstring.io.range_source import RangeSource
from bowstring.io.sources import open_random_access
from bowstring.io.stream_source import StreamSource
from bowstring.ipc.format_detection import open_from_position, read_whole

EXTRA = "convert"
_BUFFER_BYTES = 1 << 16
_CODECS = {b"\x1f\x8b\x08": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}


_EXIT_TIMEOUT_S = 1.0
_open_files: weakref.WeakSet[io.RawIOBase] = weakref.WeakSet()


@atexit.register
def _wait_for_release() -> None:
    """Wait until pyarrow's threads have released their files.

    A thread that releases one while the interpreter is finalized ends the process with SIGABRT.
    """
    gc.collect()
    deadline_s = time.monotonic() + _EXIT_TIMEOUT_S
    while _open_files and time.monotonic() < deadline_s:
        time.sleep(0.001)


def import_pyarrow(module: str = "pyarrow") -> Any:
    """Import a module of pyarrow. Raises `MissingExtraError` if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtraError.of("pyarrow", EXTRA) from None


class SequentialFile(io.RawIOBase):
    """A source as a sequential file object."""

    def __init__(self, source: MemorySource | StreamSource) -> None:
        super().__init__()
        _open_files.add(self)
        self._source = source

    @property
    def size(self) -> int | None:
        """The length of the source in bytes, or None if it is unknown."""
        return self._source.size if isinstance(self._source, MemorySource) else None

    @property
    def position(self) -> int:
        """The number of bytes read."""
        return self._source.position

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer`, or less at the end; return the number of bytes."""
        part = self._source.read(len(buffer))
        buffer[: len(part)] = part
        return len(part)


class DecompressedFile(io.RawIOBase):
    """The decompressed bytes of a file. Raises `InvalidDataError` if malformed."""

    def __init__(self, file: Any, codec: str, name: str) -> None:
        super().__init__()
        pa = import_pyarrow()
        self._stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec)
        self._codec = codec
        self._name = name

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` or a part of it; return the number of bytes."""
        try:
            return int(self._stream.readinto(buffer))
        except OSError as error:
            if isinstance(error, BowstringError):
                raise
            raise InvalidDataError(f"{self._name}: can't be decompressed as {self._codec}: {error}") from None


class RandomAccessFile(io.RawIOBase):
    """A random access source as a file object."""

    def __init__(self, source: MemorySource | RangeSource) -> None:
        super().__init__()
        _open_files.add(self)
        self._source = source
        self._position = 0

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


@contextmanager
def sequential_file(source: Any) -> Iterator[tuple[SequentialFile, Any]]:
    """Open a path, URL or file object for sequential reading; yield the stored file and its decompressed bytes.

    gzip, bzip2, Zstandard and LZ4 are detected by their first bytes.
    """
    opened = open_from_position(source)
    try:
        stored = SequentialFile(opened)
        file: Any = io.BufferedReader(stored, _BUFFER_BYTES)
        head = file.peek(4)[:4]
        codec = next((name for magic, name in _CODECS.items() if head.startswith(magic)), None)
        if codec is not None:
            file = io.BufferedReader(DecompressedFile(file, codec, opened.name), _BUFFER_BYTES)
        yield stored, file
    finally:
        opened.close()


@contextmanager
def random_access_file(source: Any, max_piped_bytes: int) -> Iterator[RandomAccessFile]:
    """Open a path, URL or file object for random access.

    A pipe, or a URL whose server does not support ranges, is read into memory. Raises `LimitError` for more than
    `max_piped_bytes`.
    """
    opened = open_random_access(source)
    try:
        whole = read_whole(opened, max_piped_bytes) if isinstance(opened, StreamSource) else opened
        yield RandomAccessFile(whole)
    finally:
        opened.close()


def read_batches(reader: Any, translate: Callable[[], Any]) -> Iterator[Any]:
    """Yield the record batches of a pyarrow reader; errors are raised inside the context manager `translate()`."""
    batches = iter(reader)
    while True:
        with translate():
            batch = next(batches, None)
        if batch is None:
            return
        yield batch
