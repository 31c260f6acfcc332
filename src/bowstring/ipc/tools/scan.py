"""Scan the messages of a file or a stream, headers only («IPC Streaming Format», «IPC File Format»)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Generic

from bowstring.datatypes.field import Metadata
from bowstring.errors import InvalidDataError, TruncatedError
from bowstring.flatbuf.reader import FlatTable
from bowstring.io.byte_ranges import Span
from bowstring.io.memory_source import MemorySource
from bowstring.io.range_source import MAX_ROUND_BYTES, RangeSource
from bowstring.io.sources import AnySource, RandomAccessSource
from bowstring.io.stream_source import StreamSource
from bowstring.ipc.api import create_file_reader
from bowstring.ipc.file import KIND_LABELS, FileReader
from bowstring.ipc.footer import TRAILER, Footer
from bowstring.ipc.format_detection import Format, detect_format, open_and_detect_format
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.message import (
    FILE_START,
    LEGACY_PREFIX_BYTES,
    PREFIX_BYTES,
    EndOfStream,
    Header,
    Message,
    MessageLocation,
    MessageReader,
    check_body_limit,
    format_location,
    parse_first_message_prefix,
)
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.header import BatchHeader, HeaderReader
from bowstring.ipc.metadata.schema import IpcSchema
from bowstring.ipc.record_batch.remote import fetch_body
from bowstring.ipc.schema_cache import get_ipc_schema
from bowstring.ipc.sequential_reader import SequentialReader
from bowstring.memory.buffer import Buffer

_CHUNK_BYTES = 1 << 20  # a read of a stream whose bodies are skipped
# Bounds the ranges of one fetch if headers are small; `MAX_ROUND_BYTES` bounds their bytes.
_MAX_PREFETCHED_HEADERS = 10_000


@dataclass(frozen=True, slots=True)
class BatchMessage:
    """The message of a record batch or a dictionary batch in a source; the sizes and `header` are as in `Message`.

    `location_words` name it in errors. `body` is set for sources in memory and with `keeps_bodies`.
    """

    header: BatchHeader
    body_offset: int
    body_bytes: int
    metadata_bytes: int
    prefix_bytes: int
    location_words: MessageLocation
    body: Buffer | None = None

    @classmethod
    def from_message(
        cls, message: Message[Any], location_words: MessageLocation, body: Buffer | None = None
    ) -> BatchMessage:
        """Return the span of a message whose header is a `BatchHeader`."""
        at, sizes = message.body_offset, (message.body_bytes, message.metadata_bytes, message.prefix_bytes)
        return cls(message.header, at, *sizes, location_words, body)

    @property
    def location(self) -> str:
        """The name of the message in errors."""
        return format_location(self.location_words)

    @property
    def start(self) -> int:
        """The byte at which the message begins."""
        return self.body_offset - self.metadata_bytes

    @property
    def is_legacy_framing(self) -> bool:
        """Whether the message begins with its length."""
        return self.prefix_bytes == LEGACY_PREFIX_BYTES

    def read_flatbuffer(self) -> bytes:
        """Return the message's metadata without its framing."""
        is_prefix_in_header = len(self.header.raw) == self.metadata_bytes  # as in a file, not in a stream
        return bytes(self.header.raw[self.prefix_bytes if is_prefix_in_header else 0 :])


@dataclass(frozen=True, slots=True)
class LocatedSchema:
    """The `Schema` table of a source, its metadata version, the custom metadata of the footer, and the byte offset of
    the footer or the schema message that contains it.
    """

    table: FlatTable
    version: int
    footer_metadata: Metadata = ()
    offset: int = 0


@dataclass(frozen=True, slots=True)
class FramingSizes:
    """The sizes of a source and of its bytes outside batch messages, known when the scan is complete."""

    total_bytes: int
    schema_bytes: int
    footer_bytes: int
    framing_bytes: int
    has_end_marker: bool | None
    is_legacy_framing: bool


class MessageWalk(Generic[Header]):
    """Reads the messages of a source with random access, from any offset on.

    `read_header` decodes the metadata of a message, as for `MessageReader`. Damaged and incomplete sources are read
    this way: after an error the caller may continue at another offset.
    """

    def __init__(
        self,
        source: RandomAccessSource,
        limits: ReadLimits,
        read_header: Callable[[bytes, MessageLocation], Header],
    ) -> None:
        self._source = source
        self._messages = MessageReader(source.name, limits, read_header, is_seekable=True)

    def read(self, offset: int, stop: int | None = None) -> Message[Header] | EndOfStream:
        """Read the message at an offset; its body may be incomplete. Nothing from byte `stop` on is read.

        Raises `InvalidDataError` if there is none.
        """
        self._messages.seek(offset)
        return self._messages.read(self._source.read_at, self._source.size if stop is None else stop)


def find_unlisted_messages(reader: FileReader, limits: ReadLimits) -> Iterator[tuple[str, int]]:
    """Yield kind and offset of each dictionary and record batch of a file that is between those that its footer lists:
    readers skip them.
    """
    messages, footer = reader.messages, reader.messages.footer
    walk = MessageWalk(messages.source, limits, HeaderReader(limits).read)
    blocks = [
        footer.get_block(block_list, i) for block_list in messages.block_lists.values() for i in range(block_list.count)
    ]
    stop = len(FILE_START)
    for block in sorted([*filter(messages.is_valid_block, blocks), (footer.offset, 0, 0)]):
        # A message begins at a multiple of 8; an end marker, other bytes or nothing is no message.
        while (offset := stop + -stop % 8) < block[0]:
            try:
                message = walk.read(offset, block[0])
            except InvalidDataError:
                break
            if isinstance(message, EndOfStream) or message.stop > block[0]:
                break
            if isinstance(message.header, BatchHeader):
                yield KIND_LABELS[message.header.template.kind], offset
            stop = message.stop
        stop = max(stop, sum(block))


class HeaderPrefetch:
    """Fetches the headers of a file that is read by ranges, many at once, before they are read by increasing offset."""

    def __init__(self, source: RandomAccessSource, footer: Footer | None, limits: ReadLimits) -> None:
        self._source = source
        self._spans: list[Span] = []
        self._stop = source.size
        if footer is not None and isinstance(source, RangeSource):
            self._spans, self._stop = footer.get_header_spans(limits.max_metadata_bytes), 0

    def fetch_from(self, offset: int) -> None:
        """Fetch the headers from an offset on, unless the one there was fetched."""
        if offset < self._stop:
            return
        spans: list[Span] = []
        total_bytes, self._stop = 0, self._source.size
        for span in self._spans[bisect_left(self._spans, (offset, 0)) :]:
            total_bytes += span[1]
            if (spans and total_bytes > MAX_ROUND_BYTES) or len(spans) == _MAX_PREFETCHED_HEADERS:
                self._stop = span[0]
                break
            spans.append(span)
        self._source.prefetch(spans)


@contextmanager
def open_scan(
    source: Any, limits: ReadLimits, max_piped_bytes: int, keeps_bodies: bool = False
) -> Iterator[FileScan | StreamScan]:
    """Open a source until the block ends, and read its schema. Raises the errors of `open_and_detect_format`."""
    opened, format_ = open_and_detect_format(source, max_piped_bytes)
    with closing(opened):
        yield (FileScan if format_ == "file" else StreamScan)(opened, limits, keeps_bodies)


def create_scan(source: AnySource, limits: ReadLimits) -> FileScan | StreamScan:
    """Return a scan of an opened source. Raises the errors of `detect_format`."""
    return (FileScan if detect_format(source) == "file" else StreamScan)(source, limits)


class FileScan:
    """Scans a file by its footer. With `keeps_bodies`, a remote file's record batches are fetched one by one."""

    format: Format = "file"

    def __init__(self, source: AnySource, limits: ReadLimits, keeps_bodies: bool = False) -> None:
        assert not isinstance(source, StreamSource)
        self._source = source
        self.name = source.name
        self._keeps_bodies = keeps_bodies
        self.reader = create_file_reader(source, None, limits)  # checks magic and the footer's offset
        footer = self.reader.footer
        self._footer_bytes = footer.flatbuffer.size
        self.schema: FlatTable = footer["schema"]
        self.version: int = footer["version"]
        self._end = len(FILE_START)

    @property
    def footer_metadata(self) -> Metadata:
        """The custom metadata of the footer. Raises `InvalidDataError` if it is malformed."""
        return self.reader.footer_metadata

    @property
    def ipc_schema(self) -> IpcSchema:
        """The schema, decoded. Raises `InvalidDataError` if it is malformed."""
        return self.reader.ipc_schema

    @property
    def memory(self) -> MemorySource | None:
        """The source if its whole content is in memory or mapped."""
        return self._source if isinstance(self._source, MemorySource) else None

    def batch_messages(self) -> Iterator[BatchMessage]:
        """Yield every dictionary batch, then every record batch, each header read once."""
        messages = self.reader.messages
        for message, label in messages.read_all():
            self._end = max(self._end, message.stop)
            is_record_batch = message.header.template.kind == headers.RECORD_BATCH
            has_body = isinstance(self._source, MemorySource) or (self._keeps_bodies and is_record_batch)
            body = fetch_body(messages.locate_body(message.block)) if has_body else None
            yield BatchMessage.from_message(message, (f"{self.name}:", label), body)

    def get_framing_sizes(self) -> FramingSizes:
        """Return the sizes of the first schema message, the footer, magic, trailer and the end marker, if any."""
        source, start, footer_offset = self._source, len(FILE_START), self.reader.footer_offset
        prefix = source.read_at(start, min(PREFIX_BYTES, footer_offset - start))
        length, prefix_bytes = parse_first_message_prefix(prefix, footer_offset - start)
        schema_bytes, is_legacy_framing = length + prefix_bytes, prefix_bytes == LEGACY_PREFIX_BYTES
        marker = footer_offset - max(self._end, start + schema_bytes)
        if not (marker in (4, 8) and source.read_at(footer_offset - 4, 4) == bytes(4)):
            marker = 0
        return FramingSizes(
            source.size, schema_bytes, self._footer_bytes, start + TRAILER.size + marker, None, is_legacy_framing
        )


class StreamScan(SequentialReader[BatchHeader | FlatTable, BatchMessage]):
    """Scans a stream message by message; `source` is at its beginning. A body is skipped before its message is
    returned, or with `keeps_bodies` kept as long as the message.
    """

    format: Format = "stream"
    footer_metadata: Metadata = ()

    def __init__(self, source: AnySource, limits: ReadLimits, keeps_bodies: bool = False) -> None:
        super().__init__(source, limits, HeaderReader(limits).read, "an Arrow stream")
        self.name = source.name
        self.memory = source if isinstance(source, MemorySource) else None
        self._keeps_bodies = keeps_bodies or self.memory is not None
        self._counts = {headers.RECORD_BATCH: 0, headers.DICTIONARY_BATCH: 0}
        self._end: EndOfStream | None = None
        message = self._read_message_in_order(has_schema=False)
        if isinstance(message, EndOfStream):
            raise TruncatedError(f"{source.name}: the stream ends at byte {source.position}, before a schema")
        self._first = message
        self.schema = message.header
        self.version: int = message.header.flatbuffer.get_root_table("Message")["version"]
        self.ipc_schema = get_ipc_schema(message.header, limits)

    def batch_messages(self) -> Iterator[BatchMessage]:
        """Yield every batch in the order of the stream."""
        return self

    def _read_message_in_order(self, has_schema: bool) -> Message[Any] | EndOfStream:
        message = self._read_message()
        if isinstance(message, Message):
            location = f"{self.name}: message at byte", message.offset
            error = headers.find_order_error(message.header, has_schema, location)
            if error is not None:
                raise error
        return message

    def _read_next(self) -> BatchMessage | None:
        message = self._read_message_in_order(has_schema=True)
        if isinstance(message, EndOfStream):
            self._end = message
            return None
        body = self._read_or_skip_body(message)
        kind = message.header.template.kind
        location_words = f"{self.name}:", KIND_LABELS[kind], self._counts[kind]
        self._counts[kind] += 1
        return BatchMessage.from_message(message, location_words, body)

    def _read_or_skip_body(self, message: Message[Any]) -> Buffer | None:
        if self._keeps_bodies:
            return self._read_body(message)
        check_body_limit(self.name, message.offset, message.body_bytes, self._limits)
        self._messages.check_body_is_complete(message, _skip_bytes(self._source, message.body_bytes))
        return None

    def get_framing_sizes(self) -> FramingSizes:
        """Return the sizes of the schema message, the end marker, and what follows it, if known."""
        source = self._source
        total = source.size if isinstance(source, MemorySource | RangeSource) else source.position
        marker_bytes = 0 if self._end is None else self._end.size_bytes
        is_legacy_framing = self._first.prefix_bytes == LEGACY_PREFIX_BYTES
        return FramingSizes(total, self._first.metadata_bytes, 0, marker_bytes, marker_bytes > 0, is_legacy_framing)


def _skip_bytes(source: AnySource, size_bytes: int) -> int:
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
