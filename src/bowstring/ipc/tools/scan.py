"""Scan the messages of a file or a stream, headers only («IPC Streaming Format», «IPC File Format»)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from bowstring.datatypes.field import Metadata
from bowstring.errors import InvalidDataError, LimitError, TruncatedError
from bowstring.flatbuf.reader import Table
from bowstring.io.memory_source import MemorySource
from bowstring.io.range_source import RangeSource
from bowstring.io.stream_source import PeekedSource, StreamSource
from bowstring.ipc.footer import TRAILER
from bowstring.ipc.format_detection import make_file_reader
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.message import (
    CONTINUATION,
    FILE_START,
    LEGACY_PREFIX_BYTES,
    PREFIX_BYTES,
    parse_leading_prefix,
    parse_prefix,
)
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.header import BatchHeader, HeaderReader
from bowstring.ipc.metadata.schema import read_pairs
from bowstring.ipc.record_batch.remote import Body, RemoteBody
from bowstring.memory.buffer import Buffer

_CHUNK_BYTES = 1 << 20
_READ_AHEAD_UP_TO_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """A record batch or a dictionary batch: its header and the position of its body; `metadata_bytes` includes the
    framing.

    `body` is set for sources in memory and with `keeps_bodies`: remote bodies, except small ones of streams, are
    fetched on access.
    """

    header: BatchHeader
    body_at: int
    body_bytes: int
    metadata_bytes: int
    is_legacy: bool
    where: str
    body: Body | None = None

    @property
    def start(self) -> int:
        """The byte at which the message begins."""
        return self.body_at - self.metadata_bytes

    @property
    def _prefix_bytes(self) -> int:
        """The size of the framing in `header.raw`: all of it in a file, none in a stream."""
        if len(self.header.raw) < self.metadata_bytes:
            return 0
        return LEGACY_PREFIX_BYTES if self.is_legacy else PREFIX_BYTES

    def flatbuffer(self) -> bytes:
        """Return the message's metadata without its framing."""
        return bytes(self.header.raw[self._prefix_bytes :])

    def is_framing_consistent(self) -> bool:
        """Whether framing and footer agree, so that a stream reader finds the body at the same offset."""
        if self.is_legacy or not self._prefix_bytes:
            return not self.is_legacy
        return int.from_bytes(self.header.raw[4:8], "little") == self.metadata_bytes - PREFIX_BYTES


@dataclass(frozen=True, slots=True)
class Overhead:
    """The sizes of everything but batch messages, known when the scan is complete."""

    total_bytes: int
    schema_bytes: int
    footer_bytes: int
    framing_bytes: int
    end_marker: bool | None
    is_legacy: bool


class Scan(Protocol):
    """A source whose schema has been read."""

    schema: Table
    version: int
    footer_metadata: Metadata

    def batches(self) -> Iterator[BatchSpan]:
        """Yield every dictionary batch and record batch; in a file the dictionaries come first."""

    def overhead(self) -> Overhead:
        """Return the sizes of the rest, after all batches have been read."""


class FileScan:
    """Scans a file by its footer. With `keeps_bodies`, bodies of a remote file can be fetched too."""

    def __init__(self, source: MemorySource | RangeSource, limits: ReadLimits, keeps_bodies: bool = False) -> None:
        self._source = source
        self._keeps_bodies = keeps_bodies
        self.reader = make_file_reader(source, None, limits)  # checks magic and the footer's offset
        footer = self.reader.footer
        self._footer_bytes = footer.message.size
        self._footer_at = self.reader.footer_at
        schema = footer["schema"]
        if schema is None:
            raise InvalidDataError(f"{source.name}: footer: there is no schema")
        self.schema: Table = schema
        self.version: int = footer["version"]
        self.footer_metadata = read_pairs(footer)
        self._end = len(FILE_START)

    def batches(self) -> Iterator[BatchSpan]:
        """Yield every dictionary batch, then every record batch, each header read once."""
        for header, body_at, body_bytes, (word, index) in self.reader.spans():
            yield self._span(header, body_at, body_bytes, f"{self._source.name}: {word} {index}")

    def _span(self, header: BatchHeader, body_at: int, body_bytes: int, where: str) -> BatchSpan:
        self._end = max(self._end, body_at + body_bytes)
        is_legacy = header.raw[:4] != CONTINUATION
        keeps_body = self._keeps_bodies or isinstance(self._source, MemorySource)
        body = self.reader.body(body_at, body_bytes) if keeps_body else None
        return BatchSpan(header, body_at, body_bytes, len(header.raw), is_legacy, where, body)

    def overhead(self) -> Overhead:
        """Return the sizes of the first schema message, the footer, magic, trailer and the end marker, if any."""
        source, start = self._source, len(FILE_START)
        prefix = source.read_at(start, min(PREFIX_BYTES, self._footer_at - start))
        length, prefix_bytes = parse_leading_prefix(prefix, self._footer_at - start)
        schema_bytes, legacy = length + prefix_bytes, prefix_bytes == LEGACY_PREFIX_BYTES
        marker = self._footer_at - max(self._end, start + schema_bytes)
        if not (marker in (4, 8) and source.read_at(self._footer_at - 4, 4) == bytes(4)):
            marker = 0
        return Overhead(source.size, schema_bytes, self._footer_bytes, start + TRAILER.size + marker, None, legacy)


class StreamScan:
    """Scans a stream message by message; `source` is at its beginning. With `keeps_bodies`, piped bodies are kept as
    long as the span.
    """

    def __init__(
        self,
        source: MemorySource | StreamSource | RangeSource | PeekedSource,
        limits: ReadLimits,
        keeps_bodies: bool = False,
    ) -> None:
        self._source = source
        self._keeps_bodies = keeps_bodies or isinstance(source, MemorySource)
        self._limits = limits
        self._headers = HeaderReader(limits)
        self._messages = 0
        self._counts = {headers.RECORD_BATCH: 0, headers.DICTIONARY_BATCH: 0}
        self._peeked: BatchSpan | None = None
        self._is_over = False
        self._ending_bytes = 0
        self._is_legacy = False
        self.footer_metadata: Metadata = ()
        message = self._next()
        if message is None:
            raise TruncatedError(f"{source.name}: the stream ends at byte {source.position}, before a schema")
        header, self._schema_bytes, where = message
        if isinstance(header, BatchHeader):
            raise InvalidDataError(f"{where}: expected a schema first, found a {header.template.kind}")
        self.schema = header
        self.version: int = header.message.root("Message")["version"]

    def batches(self) -> Iterator[BatchSpan]:
        """Yield every batch in the order of the stream; a body is skipped before its span is returned."""
        while (span := self.peek()) is not None:
            self._peeked = None
            yield span

    def peek(self) -> BatchSpan | None:
        """Return the next batch without consuming it; None at the end."""
        if self._peeked is None and not self._is_over:
            self._peeked = self._batch()
            self._is_over = self._peeked is None
        return self._peeked

    def _batch(self) -> BatchSpan | None:
        message = self._next()
        if message is None:
            return None
        source, (header, metadata_bytes, where) = self._source, message
        if not isinstance(header, BatchHeader):
            raise InvalidDataError(f"{where}: found a second schema")
        kind, body_at = header.template.kind, source.position
        if header.body_bytes > self._limits.max_body_bytes:
            raise LimitError(
                f"{where}: a body of {header.body_bytes} bytes is above the limit of {self._limits.max_body_bytes} "
                "(max_body_bytes)"
            )
        body = self._body(header.body_bytes) if self._keeps_bodies else None
        available = body.size if isinstance(body, Buffer) else _skip(source, header.body_bytes)
        if available < header.body_bytes:
            raise self._truncated(where, "a body", body_at, header.body_bytes, available)
        word = "record batch" if kind == headers.RECORD_BATCH else "dictionary batch"
        where = f"{source.name}: {word} {self._counts[kind]}"
        self._counts[kind] += 1
        return BatchSpan(header, body_at, header.body_bytes, metadata_bytes, self._is_legacy, where, body)

    def _body(self, size_bytes: int) -> Body:
        source = self._source
        if isinstance(source, RangeSource) and size_bytes > _READ_AHEAD_UP_TO_BYTES:
            return RemoteBody(source, source.position, size_bytes)
        return source.read_buffer(size_bytes)

    def overhead(self) -> Overhead:
        """Return the sizes of the schema message, the end marker, and what follows it, if known."""
        source = self._source
        total = source.size if isinstance(source, MemorySource | RangeSource) else source.position
        ending = self._ending_bytes
        return Overhead(total, self._schema_bytes, 0, ending, ending > 0, self._is_legacy)

    def _next(self) -> tuple[BatchHeader | Table, int, str] | None:
        """Return the next header, the size of its framed metadata, and its name; None at the end."""
        source, start = self._source, self._source.position
        where = f"{source.name}: message {self._messages} at byte {start}"
        prefix = source.read(LEGACY_PREFIX_BYTES)
        if prefix == CONTINUATION:
            prefix += source.read(PREFIX_BYTES - LEGACY_PREFIX_BYTES)
        expected = PREFIX_BYTES if prefix[:4] == CONTINUATION else LEGACY_PREFIX_BYTES
        if not prefix:
            return None
        if len(prefix) < expected:
            raise self._truncated(where, "a message's length", start, expected, len(prefix))
        length, prefix_bytes = parse_prefix(prefix, where, self._limits.max_metadata_bytes)
        if length == 0:
            self._ending_bytes = prefix_bytes
            return None
        raw = source.read(length)
        if len(raw) < length:
            raise self._truncated(where, "metadata", start + prefix_bytes, length, len(raw))
        self._messages += 1
        self._is_legacy = prefix_bytes == LEGACY_PREFIX_BYTES
        return self._headers.read(raw, 0, where), prefix_bytes + length, where

    def _truncated(self, where: str, what: str, at: int, expected: int, found: int) -> TruncatedError:
        return TruncatedError(
            f"{where}: expected {expected} bytes of {what} at byte {at}, found {found}: the stream is cut off"
        )


def _skip(source: MemorySource | StreamSource | RangeSource | PeekedSource, size_bytes: int) -> int:
    """Skip bytes and return their number. Sources that can't seek are read in small chunks."""
    if isinstance(source, RangeSource):
        skipped = min(size_bytes, source.size - source.position)
        source.position += skipped
        return skipped
    left = size_bytes
    while left:
        count = len(source.read(min(left, _CHUNK_BYTES)))
        if count == 0:
            break
        left -= count
    return size_bytes - left
