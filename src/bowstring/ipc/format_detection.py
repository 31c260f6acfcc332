"""Detection of the file and the stream format by the first bytes («IPC Streaming Format», «IPC File Format»)."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Any

from bowstring.errors import FormatMismatchError, LimitError, NoDataError, TruncatedError
from bowstring.io import fsspec_store
from bowstring.io.memory_source import MemorySource
from bowstring.io.range_source import RangeSource
from bowstring.io.sources import AnySource, RandomAccessSource, map_descriptor, open_random_access, open_sequential
from bowstring.io.stream_source import StreamSource
from bowstring.ipc.file import FileReader
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.message import CONTINUATION, MAGIC, detect_foreign_format, is_file_start, is_stream_start
from bowstring.ipc.remote_file import RemoteFileReader
from bowstring.ipc.stream import StreamReader
from bowstring.memory.buffer import Memory
from bowstring.memory.closable import close_on_error

MAX_PIPED_BYTES = 1 << 30
_READ_BYTES = 1 << 20
_HEAD_BYTES = 16


def open_from_position(source: Any) -> MemorySource | StreamSource:
    """Open a source for reading from its current position; a regular file is mapped."""
    source = getattr(source, "buffer", source) if hasattr(source, "encoding") else source
    if isinstance(source, int) or (hasattr(source, "fileno") and hasattr(source, "read")):
        try:
            descriptor = source if isinstance(source, int) else source.fileno()
            is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        except (OSError, ValueError):
            is_regular = False
        if is_regular:
            name = getattr(source, "name", None)
            label = name if isinstance(name, str) else f"descriptor {descriptor}"
            mapped_source = map_descriptor(os.dup(descriptor), "standard input" if label == "<stdin>" else label)
            mapped_source.position = os.lseek(descriptor, 0, os.SEEK_CUR) if isinstance(source, int) else source.tell()
            return mapped_source
    return open_sequential(source)


def open_source(source: Any) -> AnySource:
    """Open a source as `open_from_position` does, but URLs and results of `fsspec.open` by ranges."""
    return open_random_access(source) if fsspec_store.find_store_location(source) else open_from_position(source)


def detect_format(source: AnySource, max_piped_bytes: int = MAX_PIPED_BYTES) -> tuple[bool, AnySource]:
    """Return whether a source is a file, by its first bytes, and the source to read it from.

    A file from a pipe is read into memory. Raises `FormatMismatchError` for other formats, `LimitError` for a piped
    file larger than `max_piped_bytes`.
    """
    if isinstance(source, StreamSource):
        head = source.peek(_HEAD_BYTES)
    else:
        head = source.read_at(source.position, max(0, min(_HEAD_BYTES, source.size - source.position)))
    if is_file_start(head):
        return True, as_random_access(source, max_piped_bytes)
    check_format(source.name, head)
    return False, source


def open_any(
    source: Any,
    columns: Sequence[str | int] | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
    max_piped_bytes: int = MAX_PIPED_BYTES,
) -> FileReader | StreamReader:
    """Open an Arrow file or stream, detected by its first bytes; sources and errors as in `inspection.inspect`, and
    URLs, which are read by ranges.
    """
    opened = open_source(source)
    with close_on_error(opened):
        is_file, ready = detect_format(opened, max_piped_bytes)
        if not is_file:
            return StreamReader(ready, columns, limits)
        if isinstance(opened, StreamSource):
            opened.close()  # it was read into memory
        return create_file_reader(ready, columns, limits)


def create_file_reader(
    source: Any, columns: Sequence[str | int] | None = None, limits: ReadLimits = DEFAULT_LIMITS
) -> FileReader:
    """Return a reader of a source that contains a file."""
    if isinstance(source, RangeSource):
        return RemoteFileReader(source, columns, limits)
    assert isinstance(source, MemorySource)
    return FileReader(source, columns, limits)


def check_format(name: str, head: bytes) -> None:
    """Raise `FormatMismatchError` unless the first 16 bytes may begin an Arrow file or stream, `TruncatedError` if they
    are too few to decide, `NoDataError` if there are none.
    """
    if not (is_file_start(head) or is_stream_start(head) or _is_stream_prefix(head)):
        raise _format_error(name, head)


def _is_stream_prefix(head: bytes) -> bool:
    """Whether the bytes are the beginning of a marker, or only an end marker."""
    return bool(head) and (CONTINUATION.startswith(head) or head == bytes(4))


def _format_error(name: str, head: bytes) -> FormatMismatchError | TruncatedError:
    expected = "an Arrow file or stream"
    if not head:
        return NoDataError(f"{name}: expected {expected}, but it is empty")
    if MAGIC.startswith(head):
        return TruncatedError(f"{name}: expected {expected}, found only {len(head)} bytes")
    is_text = (
        head.isascii() and head.decode("ascii").replace("\n", " ").replace("\r", " ").replace("\t", " ").isprintable()
    )
    actual = detect_foreign_format(head) or (
        ("text, perhaps JSON" if head.lstrip()[:1] in (b"{", b"[") else "text, perhaps CSV")
        if is_text
        else "other bytes"
    )
    return FormatMismatchError(f"{name}: expected {expected}, found {actual} (it begins with {head[:8]!r})")


def read_piped_file(source: StreamSource, max_bytes: int) -> MemorySource:
    """Read a piped file into memory as `read_into_memory` does; of other formats read only the beginning."""
    head = source.peek(_HEAD_BYTES)
    return read_into_memory(source, max_bytes) if is_file_start(head) else MemorySource(Memory(head), source.name)


def as_random_access(source: AnySource, max_piped_bytes: int) -> RandomAccessSource:
    """Return the rest of a source for random access: a pipe is read into memory, as `read_into_memory` does."""
    if isinstance(source, StreamSource):
        return read_into_memory(source, max_piped_bytes)
    if isinstance(source, MemorySource) and source.position:
        return MemorySource(Memory(source.memory.bytes[source.position :]), source.name)
    return source


def read_into_memory(source: StreamSource, max_bytes: int) -> MemorySource:
    """Read the rest of a pipe into memory for random access. Raises `LimitError` for more than `max_bytes`."""
    content = bytearray()
    while part := source.read(min(_READ_BYTES, max_bytes + 1 - len(content))):
        content += part
        if len(content) > max_bytes:
            raise LimitError(
                f"{source.name}: a pipe or a store without ranges has to be read into memory here, and this one is "
                f"larger than the limit of {max_bytes} bytes: use the path of a local file, or raise max_piped_bytes "
                "(--max-piped-bytes)"
            )
    return MemorySource(Memory(content), source.name)
