"""Walk through a file or a stream message by message («IPC Streaming Format», «IPC File Format»).

Readable bytes become sections; errors become `FaultAtOffset` records with their offset.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from operator import itemgetter
from typing import Any

from bowstring.errors import InvalidDataError, TruncatedError
from bowstring.flatbuf.reader import FlatTable
from bowstring.inspection.anatomy.body_layouts import BodyLayouts
from bowstring.inspection.anatomy.message_byte_ranges import (
    body_byte_ranges,
    clip_buffers,
    flatbuffer_size,
    framing_byte_ranges,
)
from bowstring.inspection.anatomy.model import ByteRangeKind, ByteRanges, FaultAtOffset, FileSection, FileSectionKind
from bowstring.io.sources import RandomAccessSource
from bowstring.ipc.file import FileMessages
from bowstring.ipc.footer import TRAILER
from bowstring.ipc.format_detection import Format
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.message import (
    FILE_START,
    LEGACY_PREFIX_BYTES,
    MAGIC,
    EndOfStream,
    Message,
)
from bowstring.ipc.metadata.header import BatchHeader, HeaderReader, find_order_error
from bowstring.ipc.tools.scan import BatchMessage, FileScan, HeaderPrefetch, LocatedSchema, MessageWalk

# More do not help to find the cause; `fault_count` counts all.
MAX_FAULTS = 100
_BATCH_SECTION_KINDS = {
    "RecordBatch": FileSectionKind.RECORD_BATCH,
    "DictionaryBatch": FileSectionKind.DICTIONARY_BATCH,
}
_HEADERS_BY_SECTION_KIND = {kind: name for name, kind in _BATCH_SECTION_KINDS.items()}
_RANGE_KINDS_BY_PART_KIND = {
    FileSectionKind.UNREAD: ByteRangeKind.UNREAD,
    FileSectionKind.UNCLAIMED: ByteRangeKind.UNCLAIMED,
    FileSectionKind.OMITTED: ByteRangeKind.OMITTED,
}


class FaultList:
    """The errors of a source: the first 100 in `entries`, and their number."""

    def __init__(self, name: str) -> None:
        self.entries: list[FaultAtOffset] = []
        self.count = 0
        self._name = name

    def add(self, offset: int, error: InvalidDataError | str) -> None:
        """Add an error at a byte offset."""
        self.count += 1
        if len(self.entries) < MAX_FAULTS:
            self.entries.append(FaultAtOffset(offset, str(error).removeprefix(f"{self._name}: ")))


class Walker:
    """Walks over the sections of a source and records its errors in `faults`.

    `schema` comes from the footer if it is valid, else from the first schema message. `sections` yields the sections in
    the order of their offsets. `bodies` has the layouts and the totals of batches, unless the schema is malformed.
    """

    def __init__(self, source: RandomAccessSource, is_file: bool, limits: ReadLimits, max_sections: int) -> None:
        self.source = source
        self.is_file = is_file
        self.format: Format = "file" if is_file else "stream"
        self.schema: LocatedSchema | None = None
        self.bodies: BodyLayouts | None = None
        self.faults = FaultList(source.name)
        self.is_shortened = False
        self.has_end_marker = False
        self._limits = limits
        self._messages = MessageWalk(source, limits, HeaderReader(limits).read)
        self._flatbuffer_sizes: dict[int, tuple[object, int]] = {}
        self._counts = dict.fromkeys(FileSectionKind, 0)
        self._remaining_sections = max_sections

    def sections(self) -> Iterator[FileSection]:
        """Yield every section in the order of offsets."""
        source = self.source
        if not self.is_file:
            offset = yield from self._message_sections(source.position, source.size)
            if self.schema is None and not self.faults.count:
                self.faults.add(
                    offset, TruncatedError(f"{source.name}: the stream ends at byte {offset}, before a schema")
                )
            yield from self._iter_unparsed_sections(
                offset, source.size, FileSectionKind.UNCLAIMED if self.has_end_marker else FileSectionKind.UNREAD
            )
            return
        start = len(FILE_START)
        start_bytes = source.read_at(0, min(start, source.size))
        yield FileSection(
            FileSectionKind.START,
            0,
            ByteRanges.from_sizes(
                (min(len(MAGIC), len(start_bytes)), ByteRangeKind.MAGIC),
                (len(start_bytes) - len(MAGIC), ByteRangeKind.PADDING),
            ),
        )
        try:
            scan = FileScan(source, self._limits)
            messages = scan.reader.messages
            self._set_schema(LocatedSchema(scan.schema, scan.version, scan.footer_metadata, messages.footer.offset))
        except InvalidDataError as error:
            yield from self._sections_without_footer(start, error)
            return
        offset = yield from self._sections_listed_by_footer(messages, start)
        offset = yield from self._unlisted_sections(offset, messages.footer.offset)
        yield FileSection(FileSectionKind.FOOTER, offset, _measure_footer(messages.footer.table, self._limits))

    # Files

    def _sections_without_footer(self, start: int, error: InvalidDataError) -> Iterator[FileSection]:
        source = self.source
        has_magic = source.read_at(source.size - 6, 6) == MAGIC if source.size >= start + 6 else False
        self.faults.add(max(start, source.size - (TRAILER.size if has_magic else 0)), error)
        offset = yield from self._message_sections(start, source.size)
        yield from self._iter_unparsed_sections(offset, source.size, FileSectionKind.UNREAD)

    def _sections_listed_by_footer(self, messages: FileMessages, offset: int) -> Generator[FileSection, None, int]:
        """Yield the batches of the footer and the sections between them by offset; return the offset after them."""
        prefetch = HeaderPrefetch(self.source, messages.footer, self._limits)
        for start, stop, kind, number in _list_blocks(messages):
            prefetch.fetch_from(offset)
            location = f"{kind.value} {number}"
            if start < offset or stop > messages.footer.offset:
                before = "before" if start < offset else "in"
                self.faults.add(
                    min(max(start, 0), self.source.size),
                    f"{location}: the footer places it at bytes {start} to {stop}, {before} the previous section",
                )
                continue
            if not self._try_reserve_section():
                break
            offset = yield from self._unlisted_sections(offset, start)
            section = self._block_section(start, stop, messages, kind, number)
            yield section
            offset = section.stop
        return offset

    def _block_section(
        self, start: int, stop: int, messages: FileMessages, kind: FileSectionKind, number: int
    ) -> FileSection:
        try:
            message = messages.read(_HEADERS_BY_SECTION_KIND[kind], number)
        except InvalidDataError as error:
            self.faults.add(start, error)
            return FileSection(
                FileSectionKind.UNREAD, start, ByteRanges.from_sizes((stop - start, ByteRangeKind.UNREAD)), number
            )
        return self._batch_section(message, number)

    def _unlisted_sections(self, offset: int, stop: int) -> Generator[FileSection, None, int]:
        """Yield the sections between messages of the footer: the schema message, the end marker, unlisted messages."""
        if offset < stop:
            offset = yield from self._message_sections(offset, stop, is_listed=False)
            yield from self._iter_unparsed_sections(offset, stop, FileSectionKind.UNCLAIMED)
        return stop

    # Consecutive messages

    def _message_sections(self, offset: int, stop: int, is_listed: bool = True) -> Generator[FileSection, None, int]:
        """Yield messages until one cannot be read; return the offset after the last."""
        is_error = is_listed  # bytes that a footer does not list may be anything
        while offset < stop:
            if not self._try_reserve_section():
                return offset
            try:
                message = self._messages.read(offset, stop)
                if isinstance(message, EndOfStream):
                    size_bytes = message.size_bytes
                    if not is_listed and size_bytes == LEGACY_PREFIX_BYTES and offset + size_bytes < stop:
                        return offset  # zeros between messages need not be the marker of the legacy form
                    marker_bytes = size_bytes - LEGACY_PREFIX_BYTES
                    yield FileSection(
                        FileSectionKind.END,
                        offset,
                        ByteRanges.from_sizes((marker_bytes, ByteRangeKind.CONTINUATION), (4, ByteRangeKind.LENGTH)),
                    )
                    self.has_end_marker = True
                    return offset + size_bytes
                section = self._message_section(message, stop, is_listed)
            except InvalidDataError as error:
                if is_error:
                    self.faults.add(offset, error)
                return offset
            if section.stop > stop or (section.kind is FileSectionKind.UNREAD and not is_error):
                return offset
            yield section
            offset = section.stop
        return offset

    def _message_section(self, message: Message[Any], stop: int, is_listed: bool) -> FileSection:
        """Return the section of a message. Raises `InvalidDataError` if it is not expected there."""
        header, offset, name = message.header, message.offset, f"message at byte {message.offset}"
        order_error = find_order_error(header, self.schema is not None, (name,))
        if not isinstance(header, BatchHeader):
            size_bytes = flatbuffer_size(header.flatbuffer.raw, "Message", name, self._limits.max_tables)
            if self.schema is None:
                version = header.flatbuffer.get_root_table("Message")["version"]
                self._set_schema(LocatedSchema(header, version, offset=offset))
            elif not self.is_file and order_error is not None:
                raise order_error
            return FileSection(
                FileSectionKind.SCHEMA,
                offset,
                framing_byte_ranges(message.metadata_bytes, message.prefix_bytes, size_bytes),
            )
        if order_error is not None and is_listed:
            self.faults.add(offset, order_error)
        kind = _BATCH_SECTION_KINDS[header.template.kind]
        number = self._counts[kind] if is_listed else -1
        if message.stop > stop:
            if not is_listed:
                raise TruncatedError(f"{name}: its body is missing")
            message = self._clip_truncated_body(message, stop)
        self._counts[kind] += is_listed
        return self._batch_section(message, number, is_listed)

    def _clip_truncated_body(self, message: Message[Any], stop: int) -> Message[Any]:
        """Add the error of a message whose body is truncated, and return the message with the available body."""
        available_bytes = stop - message.body_offset
        self.faults.add(
            stop,
            f"message at byte {message.offset}: expected {message.body_bytes} bytes of a body at byte "
            f"{message.body_offset}, found {available_bytes}",
        )
        return message._replace(body_bytes=available_bytes)

    def _batch_section(self, message: Message[BatchHeader], number: int, is_listed: bool = True) -> FileSection:
        header = message.header
        kind = _BATCH_SECTION_KINDS[header.template.kind]
        batch = BatchMessage.from_message(message, (f"{self.source.name}:", kind.value, number))
        layout_index = self._find_layout_index(batch, is_listed)
        byte_ranges = framing_byte_ranges(message.metadata_bytes, message.prefix_bytes, self._flatbuffer_size(batch))
        section = FileSection(kind, message.offset, byte_ranges, number, batch, layout_index, is_listed)
        offsets, lengths = section.buffers
        if layout_index < 0 or header.body_bytes > message.body_bytes:
            offsets, lengths = clip_buffers(offsets, lengths, message.body_bytes)
        body = body_byte_ranges(offsets, lengths, message.body_bytes)
        return replace(section, byte_ranges=byte_ranges.concat(body))

    def _set_schema(self, schema: LocatedSchema) -> None:
        self.schema = schema
        try:
            self.bodies = BodyLayouts(schema, self._limits)
        except InvalidDataError as error:
            self.faults.add(schema.offset, error)

    def _find_layout_index(self, batch: BatchMessage, is_listed: bool) -> int:
        """Return the index of the layout of a batch's body, or -1 for a batch that contradicts the schema."""
        if self.bodies is None:
            return -1
        try:
            return self.bodies.add(batch, is_listed)
        except InvalidDataError as error:
            if batch.body_bytes == batch.header.body_bytes:  # otherwise the truncation is recorded
                self.faults.add(batch.start, error)
            return -1

    def _flatbuffer_size(self, batch: BatchMessage) -> int:
        """Return the size of a header's flatbuffer, cached by template: its headers differ only in numbers."""
        template = batch.header.template
        cached = self._flatbuffer_sizes.get(id(template))
        if cached is None or cached[0] is not template:
            size_bytes = flatbuffer_size(batch.read_flatbuffer(), "Message", "header", self._limits.max_tables)
            cached = self._flatbuffer_sizes[id(template)] = (template, size_bytes)
        return cached[1]

    def _iter_unparsed_sections(self, offset: int, stop: int, kind: FileSectionKind) -> Iterator[FileSection]:
        """Yield the bytes up to `stop`, if any, as one section of this kind, or as omitted if the limit is exceeded."""
        if offset < stop:
            kind = FileSectionKind.OMITTED if self.is_shortened else kind
            range_kind = _RANGE_KINDS_BY_PART_KIND[kind]
            yield FileSection(kind, offset, ByteRanges.from_sizes((stop - offset, range_kind)))

    def _try_reserve_section(self) -> bool:
        """Count a section; return False if the limit is exceeded."""
        self._remaining_sections -= 1
        self.is_shortened = self._remaining_sections < 0
        return not self.is_shortened


def _list_blocks(messages: FileMessages) -> list[tuple[int, int, FileSectionKind, int]]:
    """Return start, stop, kind and number of each block of a footer, ordered by start."""
    blocks = []
    for kind, block_list in messages.block_lists.items():
        for number in range(block_list.count):
            start, metadata_bytes, body_bytes = messages.get_block(kind, number)
            blocks.append(
                (start, start + max(metadata_bytes, 0) + max(body_bytes, 0), _BATCH_SECTION_KINDS[kind], number)
            )
    return sorted(blocks, key=itemgetter(0))


def _measure_footer(footer: FlatTable, limits: ReadLimits) -> ByteRanges:
    """Return the byte ranges of a footer and the trailer."""
    raw, location = footer.flatbuffer.raw, footer.flatbuffer.location
    size_bytes = flatbuffer_size(raw, "Footer", location, limits.max_tables)
    return ByteRanges.from_sizes(
        (size_bytes, ByteRangeKind.METADATA),
        (len(raw) - size_bytes, ByteRangeKind.PADDING),
        (4, ByteRangeKind.FOOTER_LENGTH),
        (6, ByteRangeKind.MAGIC),
    )
