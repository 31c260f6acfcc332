"""Sources whose messages are passed on: files and streams, told apart by content, with their schema read."""

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
    """A source whose schema has been read; `memory` is where all of it lies, None where each body comes by itself.

    One that `comes_once`, through a pipe, can't be opened again; if it is a file, it is kept in memory.
    """

    name: str
    scan: FileScan | StreamScan
    known: CachedSchema
    memory: MemorySource | None
    comes_once: bool


@contextmanager
def opened(source: Any, limits: ReadLimits, max_piped_bytes: int) -> Iterator[ConcatSource]:
    """A source, open for as long as the block runs; one that is open already as it is.

    Raises what opening raises, and `LimitError` for a file on a pipe that is larger than `max_piped_bytes`.
    """
    if isinstance(source, ConcatSource):
        yield source
        return
    held = open_source(source)
    try:
        is_file, ready = detect_format(held, max_piped_bytes)
        memory = ready if isinstance(ready, MemorySource) else None
        once = isinstance(held, StreamSource)
        if is_file:
            assert isinstance(ready, MemorySource | RangeSource)
            scan = FileScan(ready, limits, keeps_bodies=True)
            yield ConcatSource(ready.name, scan, scan.reader.known, memory, once)
        else:
            stream = StreamScan(ready, limits, keeps_bodies=True)
            known = load_schema(stream.schema, limits)
            yield ConcatSource(ready.name, stream, known, memory, once)
    finally:
        held.close()
