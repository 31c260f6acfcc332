"""Detection of the file and the stream format by the first bytes («IPC Streaming Format», «IPC File Format»)."""

from __future__ import annotations

from typing import Literal

from bowstring.errors import FormatMismatchError, NoDataError, TruncatedError
from bowstring.io.memory_source import MemorySource
from bowstring.io.sources import AnySource, read_into_memory
from bowstring.io.stream_source import StreamSource
from bowstring.ipc.message import CONTINUATION, MAGIC, detect_foreign_format, is_file_start, is_stream_start
from bowstring.memory.buffer import Memory

MAX_PIPED_BYTES = 1 << 30
_FIRST_BYTES = 16


def detect_format(source: AnySource) -> Literal["file", "stream"]:
    """Return the format of a source by its first bytes, which are read again later.

    Raises `FormatMismatchError` for other formats, `TruncatedError` for too few bytes to decide.
    """
    if isinstance(source, StreamSource):
        first_bytes = source.peek(_FIRST_BYTES)
    else:
        first_bytes = source.read_at(source.position, max(0, min(_FIRST_BYTES, source.size - source.position)))
    if is_file_start(first_bytes):
        return "file"
    check_format(source.name, first_bytes)
    return "stream"


def check_format(name: str, first_bytes: bytes) -> None:
    """Raise `FormatMismatchError` unless the first 16 bytes may begin an Arrow file or stream, `TruncatedError` if they
    are too few to decide, `NoDataError` if there are none.
    """
    if not (is_file_start(first_bytes) or is_stream_start(first_bytes) or _is_stream_prefix(first_bytes)):
        raise _format_mismatch_error(name, first_bytes)


def _is_stream_prefix(first_bytes: bytes) -> bool:
    """Whether the bytes are the beginning of a marker, or only an end marker."""
    return bool(first_bytes) and (CONTINUATION.startswith(first_bytes) or first_bytes == bytes(4))


def _format_mismatch_error(name: str, first_bytes: bytes) -> FormatMismatchError | TruncatedError:
    expected = "an Arrow file or stream"
    if not first_bytes:
        return NoDataError(f"{name}: expected {expected}, but it is empty")
    if MAGIC.startswith(first_bytes):
        return TruncatedError(f"{name}: expected {expected}, found only {len(first_bytes)} bytes")
    is_text = (
        first_bytes.isascii()
        and first_bytes.decode("ascii").replace("\n", " ").replace("\r", " ").replace("\t", " ").isprintable()
    )
    actual = detect_foreign_format(first_bytes) or (
        ("text, perhaps JSON" if first_bytes.lstrip()[:1] in (b"{", b"[") else "text, perhaps CSV")
        if is_text
        else "other bytes"
    )
    return FormatMismatchError(f"{name}: expected {expected}, found {actual} (it begins with {first_bytes[:8]!r})")


def read_piped_file(source: StreamSource, max_bytes: int) -> MemorySource:
    """Read a piped file into memory as `read_into_memory` does; of other formats read only the beginning."""
    first_bytes = source.peek(_FIRST_BYTES)
    return (
        read_into_memory(source, max_bytes)
        if is_file_start(first_bytes)
        else MemorySource(Memory(first_bytes), source.name)
    )
