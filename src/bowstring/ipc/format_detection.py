"""Detection of the file and the stream format by the first bytes («IPC Streaming Format», «IPC File Format»)."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from bowstring.io.memory_source import MemorySource
from bowstring.io.sources import AnySource, ensure_random_access, open_source, read_into_memory
from bowstring.io.stream_source import StreamSource
from bowstring.ipc.message import CONTINUATION, format_mismatch_error, is_file_start, is_stream_start
from bowstring.memory.buffer import Memory
from bowstring.memory.closable import call_on_error

Format: TypeAlias = Literal["file", "stream"]

ARROW = "an Arrow file or stream"
# A file in a pipe has to be kept in memory, as its footer comes last; the caller can pass another limit.
MAX_PIPED_BYTES = 1 << 30
# The prefix of a first message and the first bytes of its flatbuffer; the longest magic of another format has 15.
_FIRST_BYTES = 16


def detect_format(source: AnySource, expected: str = ARROW) -> Format:
    """Return the format of a source by its first bytes, which are read again later; errors name what is `expected`.

    Raises `FormatMismatchError` for other formats, `TruncatedError` for too few bytes to decide.
    """
    if isinstance(source, StreamSource):
        first_bytes = source.peek(_FIRST_BYTES)
    else:
        first_bytes = source.read_at(source.position, max(0, min(_FIRST_BYTES, source.size - source.position)))
    if is_file_start(first_bytes):
        return "file"
    check_format(source.name, first_bytes, expected)
    return "stream"


def open_and_detect_format(
    source: Any, max_piped_bytes: int, needs_random_access: bool = False
) -> tuple[AnySource, Format]:
    """Open a source at its position and return it and its format. A file from a pipe is read into memory, with
    `needs_random_access` a stream too.

    Raises `FormatMismatchError` for other formats, `TruncatedError` for too few bytes to decide, `LimitError` for a
    pipe of more than `max_piped_bytes`, and the errors of opening the source.
    """
    opened = open_source(source)
    with call_on_error(opened.close):
        format_ = detect_format(opened)
        if format_ == "stream" and not needs_random_access:
            return opened, format_
        seekable = ensure_random_access(opened, max_piped_bytes)
    if seekable is not opened:
        opened.close()
    return seekable, format_


def check_format(name: str, first_bytes: bytes, expected: str = ARROW) -> None:
    """Raise `FormatMismatchError` unless the first 16 bytes may begin an Arrow file or stream, `TruncatedError` if they
    are too few to decide, `NoDataError` if there are none.
    """
    if not (is_file_start(first_bytes) or is_stream_start(first_bytes) or _is_stream_prefix(first_bytes)):
        raise format_mismatch_error(name, expected, first_bytes)


def _is_stream_prefix(first_bytes: bytes) -> bool:
    """Whether the bytes are the beginning of a marker, or only an end marker."""
    return bool(first_bytes) and (CONTINUATION.startswith(first_bytes) or first_bytes == bytes(4))


def read_piped_file(source: StreamSource, max_bytes: int) -> MemorySource:
    """Read a piped file into memory as `read_into_memory` does; of other formats read only the beginning."""
    first_bytes = source.peek(_FIRST_BYTES)
    return (
        read_into_memory(source, max_bytes)
        if is_file_start(first_bytes)
        else MemorySource(Memory(first_bytes), source.name)
    )
