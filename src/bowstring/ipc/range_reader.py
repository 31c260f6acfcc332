"""Remote files («IPC File Format»), read by byte ranges: the buffers of a column are fetched for many batches at once.

Reading one column takes four round trips, for any number of batches and columns: the end of the file; the rest of a
large footer and a preview of the first header; the relevant bytes of all headers; the buffers. Dictionaries take one or
two more, and so do view columns in files with wide headers. The header layout is learned from the first header and
compared with each other one; a header that differs is fetched as a whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

from bowstring.arrays.chunked_array import ChunkedArray
from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table
from bowstring.errors import InvalidDataError, LimitError
from bowstring.flatbuf.reader import Message
from bowstring.flatbuf.tables import BLOCK, SPECS
from bowstring.io.byte_ranges import FetchedRanges, Span
from bowstring.io.range_source import ROUND_BYTES, RangeBytes, RangeSource
from bowstring.ipc.file import FileReader
from bowstring.ipc.footer import TRAILER
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.message import CONTINUATION, FILE_START, LEGACY_PREFIX_BYTES, MAGIC, PREFIX_BYTES, is_file_start
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.header import BatchHeader
from bowstring.ipc.record_batch.reader import BatchColumns, link_batches
from bowstring.ipc.record_batch.remote import (
    RemoteBody,
    RemoteColumns,
    RemoteHeader,
    header_entries,
    link_remote_batches,
)
from bowstring.memory.buffer import Buffer

_BLOCK = struct.Struct("<qi4xq")
_COUNT = struct.Struct("<I")
_MAX_WHOLE_HEADER_BYTES = 1 << 17
_SMALL_BODY_BYTES = 1 << 16
_PREVIEW_BYTES = 1 << 12
_MAX_ITERATED_BATCHES = 64
_MAX_HEADERS = 10_000


class RemoteFileReader(FileReader):
    """A `FileReader` of a remote file; columns are fetched on access, for several batches together.

    `column` and `read_all` fetch for all batches together, iteration for as many as fit in `ROUND_BYTES`. Columns that
    were not accessed before the reader is closed can't be fetched any more.
    """

    _columns = RemoteColumns

    def __init__(
        self, source: RangeSource, columns: Sequence[str | int] | None = None, limits: ReadLimits = DEFAULT_LIMITS
    ) -> None:
        self._range_source = source
        _prefetch_footer(source, limits)
        super().__init__(source, columns, limits)

    def body(self, offset: int, size_bytes: int) -> Any:
        """A body that is fetched on access. Raises `LimitError` if it exceeds the limit."""
        if size_bytes > self._limits.max_body_bytes:
            raise LimitError(
                f"{self._range_source.name}: a body of {size_bytes} bytes exceeds the limit of "
                f"{self._limits.max_body_bytes} (max_body_bytes)"
            )
        return RemoteBody(self._range_source, offset, size_bytes)

    def _message(self, at: int, kind: str, where: tuple[object, ...]) -> tuple[BatchHeader, int, int]:
        header, body_at, body_bytes = super()._message(at, kind, where)
        if isinstance(header.raw, RangeBytes):
            header = RemoteHeader(header.raw, header.template)
        return header, body_at, body_bytes

    def read_batch_message(self, index: int) -> tuple[BatchHeader, Buffer]:
        """The header and the body of record batch `index`, both fetched completely in one round trip."""
        fetched = FetchedRanges()
        if -len(self) <= index < len(self):
            offset, metadata_bytes, body_bytes = self._block(self._batches_at + BLOCK.itemsize * (index % len(self)))
            if self._is_valid_block(offset, metadata_bytes, body_bytes) and body_bytes <= self._limits.max_body_bytes:
                fetched = self._range_source.fetch([(offset, metadata_bytes + body_bytes)])
                self._range_source.add_header(offset, metadata_bytes, fetched)
        header, body = super().read_batch_message(index)
        fetched_body = fetched.find(body.offset, body.size)
        assert fetched_body is not None
        return BatchHeader(header.raw[:], header.template), fetched_body

    def read_whole_batch(self, index: int) -> RecordBatch:
        """Record batch `index`, fetched completely; errors as in `get_batch`."""
        return self._batch(index, *self.read_batch_message(index), BatchColumns)

    def spans(self) -> Iterator[tuple[BatchHeader, int, int, tuple[object, ...]]]:
        """As in `FileReader`; many headers are fetched at once."""
        for group in self._group_blocks():
            blocks = [self._block(at) for at, _, _ in group]
            valid_blocks = [block[:2] for block in blocks if self._is_valid_block(*block)]
            fetched = self._range_source.fetch(valid_blocks)
            for offset, metadata_bytes in valid_blocks:
                self._range_source.add_header(offset, metadata_bytes, fetched)
            for at, kind, where in group:
                yield (*self._message(at, kind, where), where)

    def _group_blocks(self) -> Iterator[list[tuple[int, str, tuple[object, ...]]]]:
        """Group the block positions whose headers are fetched in one round."""
        group: list[tuple[int, str, tuple[object, ...]]] = []
        group_bytes = 0
        for block_position in self._block_positions():
            size_bytes = max(self._block(block_position[0])[1], 0)
            if group and (group_bytes + size_bytes > ROUND_BYTES or len(group) == _MAX_HEADERS):
                yield group
                group, group_bytes = [], 0
            group.append(block_position)
            group_bytes += size_bytes
        if group:
            yield group

    def read_dictionary_messages(self) -> Iterator[tuple[BatchHeader, Any, tuple[object, ...]]]:
        """The header and body of each dictionary batch; all headers and small bodies are fetched at once."""
        blocks = [self._block(self._dictionaries_at + BLOCK.itemsize * i) for i in range(self.num_dictionary_batches)]
        spans = [
            (offset, metadata_bytes + (body_bytes if body_bytes <= _SMALL_BODY_BYTES else 0))
            for offset, metadata_bytes, body_bytes in blocks
            if self._is_valid_block(offset, metadata_bytes, body_bytes)
        ]
        fetched = self._range_source.fetch(spans)
        for offset, metadata_bytes, _ in blocks:
            self._range_source.add_header(offset, metadata_bytes, fetched)
        for header, body, where in super().read_dictionary_messages():
            yield header, fetched.find(body.offset, body.size) or body, where

    # Headers

    def _block(self, at: int) -> tuple[int, int, int]:
        offset, metadata_bytes, body_bytes = _BLOCK.unpack_from(self._raw, at)
        return offset, metadata_bytes, body_bytes

    def _is_valid_block(self, offset: int, metadata_bytes: int, body_bytes: int) -> bool:
        sizes = min(offset, metadata_bytes - 8, body_bytes) >= 0
        return (
            sizes
            and offset + metadata_bytes + body_bytes <= self.footer_at
            and metadata_bytes <= self._limits.max_metadata_bytes
        )

    def _fetch_headers(self, indices: Iterable[int], column_indices: Sequence[int] | None) -> None:
        """Fetch the fixed parts of the headers of batches, and their entries for the columns at `column_indices`."""
        blocks = [self._block(self._batches_at + BLOCK.itemsize * index) for index in indices]
        valid_blocks = [block[:2] for block in blocks if self._is_valid_block(*block)]
        for offset, metadata_bytes in [(self._block(self._batches_at)[:2]), *valid_blocks[:1]] if valid_blocks else []:
            self._learn_template(offset, metadata_bytes)
        unknown_headers = [
            (offset, min(size, _PREVIEW_BYTES))
            for offset, size in valid_blocks
            if size > _MAX_WHOLE_HEADER_BYTES and self._headers.template_of(size) is None
        ]
        if unknown_headers:
            previews = self._range_source.fetch(unknown_headers)
            for offset, size in valid_blocks:
                self._learn_template(offset, size, previews)
        header_spans: list[tuple[int, int, list[Span]]] = []
        for offset, size in valid_blocks:
            header_spans.append((offset, size, self._header_spans(size, column_indices)))
        fetched = self._range_source.fetch(
            [(offset + at, length) for offset, _, spans in header_spans for at, length in spans]
        )
        for offset, size, _ in header_spans:
            self._range_source.add_header(offset, size, fetched)

    def _header_spans(self, size_bytes: int, column_indices: Sequence[int] | None) -> list[Span]:
        """The spans to fetch of a header of this size."""
        template = None if size_bytes <= _MAX_WHOLE_HEADER_BYTES else self._headers.template_of(size_bytes)
        if template is None:
            return [(0, min(size_bytes, _MAX_WHOLE_HEADER_BYTES))]
        spans = [(start, stop - start) for start, stop, _ in template.constants]
        spans += [(at, 8) for at in (template.length_at, template.body_length_at) if at]
        if template.variadic_count:
            spans.append((template.variadic_at, 8 * template.variadic_count))
        elif column_indices is not None:
            plan = self.cached_schema.plan(template.version)
            if plan.node_count == template.node_count and plan.buffer_count == template.buffer_count:
                for index in column_indices:
                    column = plan[index]
                    spans += header_entries(template, column, column.first_buffer, column.buffer_count)
        return spans

    def _learn_template(self, offset: int, size_bytes: int, previews: FetchedRanges | None = None) -> None:
        """Learn the layout of headers of this size from the beginning of one and the counts of the schema.

        Each header is compared with the learned layout, so a wrong guess only costs time.
        """
        if size_bytes <= _MAX_WHOLE_HEADER_BYTES or self._headers.template_of(size_bytes) is not None:
            return
        preview_bytes = min(size_bytes, _PREVIEW_BYTES)
        preview = self._range_source.find(offset, preview_bytes) or (
            previews.find(offset, preview_bytes) if previews is not None else None
        )
        if preview is None:
            return
        start = preview.to_bytes()
        skip = PREFIX_BYTES if start[:4] == CONTINUATION else LEGACY_PREFIX_BYTES
        draft = bytearray(start + bytes(size_bytes - preview_bytes))
        try:
            message = Message(bytes(draft[skip:]), SPECS, "header")
            root = message.root("Message")
            inner = root.union("header", headers.header_kind(root))
            if inner is None or inner.spec.name != headers.RECORD_BATCH:
                return
            plan = self.cached_schema.plan(root["version"])
            for name, count in (
                ("nodes", plan.node_count),
                ("buffers", plan.buffer_count),
                ("variadicBufferCounts", plan.variadic_count),
            ):
                at = inner.locate(inner.spec.slots[name].number, 4)
                vector = skip + message.follow(at, name) if at else preview_bytes
                if vector + _COUNT.size > preview_bytes and at:
                    _COUNT.pack_into(draft, vector, count)
            self._headers.read(bytes(draft), skip, "header")
        except InvalidDataError:
            return

    # Batches

    def get_batch(self, index: int) -> RecordBatch:
        """Record batch `index`; its columns are fetched on access. Errors as in `FileReader`."""
        if not self._range_source.has_header(self._offset_of(index)) and -len(self) <= index < len(self):
            self._fetch_headers([index % len(self)], self._selected_columns())
        return super().get_batch(index)

    def _offset_of(self, index: int) -> int:
        if not -len(self) <= index < len(self):
            return -1
        return self._block(self._batches_at + BLOCK.itemsize * (index % len(self)))[0]

    def _selected_columns(self) -> Sequence[int] | None:
        _ = self.cached_schema
        return self._column_indices

    def _read_batches(self, indices: Sequence[int], column_indices: Sequence[int] | None) -> list[RecordBatch]:
        self._fetch_headers(indices, column_indices)
        batches = [super(RemoteFileReader, self).get_batch(index) for index in indices]
        link_batches(batch.source for batch in batches)
        link_remote_batches(batches)
        return batches

    def column(self, key: str | int) -> ChunkedArray:
        """One column of all batches, fetched together; raises `NotFoundError` for an unknown column."""
        index, field = self._field(key)
        column_indices = self._selected_columns()
        batches = self._read_batches(range(len(self)), [index if column_indices is None else column_indices[index]])
        return ChunkedArray([batch.column(index) for batch in batches], field.type)

    def read_all(self) -> Table:
        """All batches as a table; a column is fetched for all batches on first access."""
        return Table.from_batches(self._read_batches(range(len(self)), self._selected_columns()), self.schema)

    @overload
    def __getitem__(self, index: int) -> RecordBatch: ...
    @overload
    def __getitem__(self, index: slice) -> list[RecordBatch]: ...
    def __getitem__(self, index: int | slice) -> RecordBatch | list[RecordBatch]:
        if isinstance(index, slice):
            return self._read_batches(range(*index.indices(len(self))), self._selected_columns())
        return self.get_batch(index)

    def __iter__(self) -> Iterator[RecordBatch]:
        first = 0
        while first < len(self):
            last, total_bytes = first, 0
            while last < min(first + _MAX_ITERATED_BATCHES, len(self)) and total_bytes <= ROUND_BYTES:
                total_bytes += max(self._block(self._batches_at + BLOCK.itemsize * last)[2], 0)
                last += 1
            yield from self._read_batches(range(first, max(last, first + 1)), self._selected_columns())
            first = max(last, first + 1)


def _prefetch_footer(source: RangeSource, limits: ReadLimits) -> None:
    """Fetch the rest of the footer together with a preview of the first message after the schema."""
    size = source.size
    if size < len(FILE_START) + TRAILER.size:
        return
    length_bytes, magic = TRAILER.unpack(source.read_at(size - TRAILER.size, TRAILER.size))
    footer_at = size - TRAILER.size - length_bytes
    start = source.read_at(0, min(size, 16))
    has_trailer = is_file_start(start) and magic == MAGIC and 0 < length_bytes <= limits.max_metadata_bytes
    if not has_trailer or footer_at < len(FILE_START) or source.find(footer_at, length_bytes) is not None:
        return
    spans = [(footer_at, length_bytes)]
    if start[8:12] == CONTINUATION:
        first_at = len(FILE_START) + PREFIX_BYTES + int.from_bytes(start[12:16], "little")
        if first_at + _PREVIEW_BYTES <= footer_at and source.find(first_at, _PREVIEW_BYTES) is None:
            spans.append((first_at, _PREVIEW_BYTES))
    source.prefetch_edges(spans)
