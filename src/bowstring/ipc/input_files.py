"""Sources as Python's binary file objects, for readers of other formats: CSV, JSON lines, Parquet."""

from __future__ import annotations

import io
from typing import Any

from bowstring.io.memory_source import MemorySource
from bowstring.io.range_source import RangeSource
from bowstring.io.sources import open_random_access, open_sequential
from bowstring.io.stream_source import StreamSource
from bowstring.ipc.format_detection import MAX_PIPED_BYTES, read_whole

_BUFFER_BYTES = 1 << 18


def open_input_stream(source: Any) -> io.BufferedReader:
    """Open a source for reading from its beginning to its end, once.

    `source` is what `open_stream` takes: a path, a URL or what `fsspec.open` gives (read with one request, without
    ranges), bytes, a binary file object, a descriptor or a socket (read from where it stands). Closing the returned
    file closes what was opened for it, not a file object or descriptor of the caller. Raises `MissingFileError` and
    other errors of `open_stream`, also while reading.
    """
    return io.BufferedReader(_SourceFile(open_sequential(source)), _BUFFER_BYTES)


def open_input_file(source: Any, max_piped_bytes: int = MAX_PIPED_BYTES) -> io.BufferedReader:
    """Open a source for random access.

    `source` is what `open_file` takes: a path, a URL or what `fsspec.open` gives (read by ranges), bytes, a binary file
    object or a descriptor. A source that cannot seek is read into memory: `LimitError` for more than `max_piped_bytes`.
    Closing and errors as in `open_input_stream`.
    """
    opened_source = open_random_access(source)
    if isinstance(opened_source, StreamSource):
        try:
            opened_source = read_whole(opened_source, max_piped_bytes)
        finally:
            opened_source.close()
    opened_source.position = 0
    return io.BufferedReader(_SourceFile(opened_source), _BUFFER_BYTES)


class _SourceFile(io.RawIOBase):
    """A source as an unbuffered file object; it can seek unless the source has to be read in order."""

    def __init__(self, source: MemorySource | StreamSource | RangeSource) -> None:
        super().__init__()
        self._source = source
        self.name = source.name

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Whether the source has random access."""
        return not isinstance(self._source, StreamSource)

    def readinto(self, buffer: Any) -> int:
        """Fill a part of `buffer`; 0 is the end."""
        if isinstance(self._source, StreamSource):
            return self._source.read_some(memoryview(buffer).cast("B"))
        read = self._source.read_buffer(len(buffer))
        buffer[: read.size] = read.bytes.data
        return read.size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position in bytes; it is returned."""
        source = self._source
        if isinstance(source, StreamSource):
            raise io.UnsupportedOperation(f"{self.name}: can't seek")
        base = {io.SEEK_SET: 0, io.SEEK_CUR: source.position, io.SEEK_END: source.size}[whence]
        source.position = max(base + offset, 0)
        return source.position

    def tell(self) -> int:
        """The position in bytes."""
        return self._source.position

    def close(self) -> None:
        """Close what was opened for it."""
        if not self.closed:
            super().close()
            self._source.close()
