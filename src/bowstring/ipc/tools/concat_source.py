"""Sources of `concat_files`: files and streams, detected by content, with their schema read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bowstring.io.memory_source import MemorySource
from bowstring.io.range_source import RangeSource
from bowstring.io.stream_source import StreamSource
from bowstring.ipc.format_detection import detect_format, open_source
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.schema_cache import CachedSchema, load_schema
from bowstring.ipc.tools.scan import FileScan, StreamScan


@dataclass(frozen=True, slots=True)
class ConcatSource:
    """A source whose schema has been read; `memory` is its whole content, or None if bodies are read one by one.

    A pipe (`is_pipe`) can't be reopened; a file from a pipe is kept in memory.
    """

    name: str
    scan: FileScan | StreamScan
    cached_schema: CachedSchema
    memory: MemorySource | None
    is_pipe: bool


@contextmanager
def open_concat_source(source: Any, limits: ReadLimits, max_piped_bytes: int) -> Iterator[ConcatSource]:
    """Open a source until the block ends; one that is open already is returned unchanged.

    Raises the errors of opening a source, and `LimitError` for a piped file larger than `max_piped_bytes`.
    """
    if isinstance(source, ConcatSource):
        yield source
        return
    opened_source = open_source(source)
    try:
        is_file, readable = detect_format(opened_source, max_piped_bytes)
        memory = readable if isinstance(readable, MemorySource) else None
        is_pipe = isinstance(opened_source, StreamSource)
        if is_file:
            assert isinstance(readable, MemorySource | RangeSource)
            scan = FileScan(readable, limits, keeps_bodies=True)
            yield ConcatSource(readable.name, scan, scan.reader.cached_schema, memory, is_pipe)
        else:
            stream = StreamScan(readable, limits, keeps_bodies=True)
            cached_schema = load_schema(stream.schema, limits)
            yield ConcatSource(readable.name, stream, cached_schema, memory, is_pipe)
    finally:
        opened_source.close()
