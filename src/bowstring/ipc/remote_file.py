"""Remote files («IPC File Format»), read by byte ranges: the buffers of a column are fetched for many batches at once.

Reading one column takes four round trips, for any number of batches and columns: the end of the file; the rest of a
large footer and a preview of the first header; the relevant bytes of all headers; the buffers. Dictionaries take one or
two more, and so do view columns in files with wide headers. The column positions are learned from the first header and
compared with each other one; a header that differs is fetched as a whole.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from bowstring.arrays.chunked_array import ChunkedArray
from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table
from bowstring.errors import InvalidDataError
from bowstring.flatbuf.tables import read_root
from bowstring.io.byte_ranges import FetchedRanges, Span
from bowstring.io.range_source import MAX_ROUND_BYTES, LazyRangeBytes, RangeSource
from bowstring.ipc.file import KIND_LABELS, FileMessages, FileReader
from bowstring.ipc.footer import TRAILER
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.message import (
    CONTINUATION,
    FILE_START,
    MAGIC,
    PREFIX_BYTES,
    Block,
    Message,
    check_body_limit,
    is_file_start,
    parse_prefix,
)
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.header import BatchHeader
from bowstring.ipc.metadata.schema import IpcSchema
from bowstring.ipc.record_batch.reader import BatchColumns, link_for_decompression
from bowstring.ipc.record_batch.remote import (
    MAX_FETCH_BYTES,
    RemoteBatchHeader,
    RemoteBody,
    RemoteColumns,
    compute_column_header_spans,
    link_for_fetching,
)
from bowstring.kernels.filters import Filters, FiltersLike
from bowstring.memory.buffer import Buffer

_Entry = TypeVar("_Entry")
_VECTOR_LENGTH = struct.Struct("<I")
_MAX_WHOLE_HEADER_BYTES = 1 << 17
"""Headers up to this size are fetched whole; of larger ones, only the fixed parts and the entries of some columns."""
_SMALL_BODY_BYTES = 1 << 16
"""Bodies of dictionaries up to this size are fetched together with their headers."""
_PREVIEW_BYTES = 1 << 12
"""The size of the beginning of a header from which the positions of its parts are derived."""
_MAX_ITERATED_BATCHES = 64
"""The number of batches that iteration fetches together."""
_MAX_HEADERS_PER_FETCH = 10_000
"""The number of headers that one round fetches."""


class RemoteFileMessages(FileMessages):
    """The messages of a remote file; headers are fetched many at once, and bodies on access."""

    source: RangeSource

    def __init__(self, source: RangeSource, limits: ReadLimits) -> None:
        _prefetch_footer_and_first_message(source, limits)
        super().__init__(source, limits)

    def locate_body(self, block: Block) -> RemoteBody:
        """A body that is fetched on access. Raises `LimitError` if it exceeds the limit."""
        offset, metadata_bytes, body_bytes = block
        check_body_limit(self.source.name, offset, body_bytes, self.limits)
        return RemoteBody(self.source, offset + metadata_bytes, body_bytes)

    def read_header(self, kind: str, index: int) -> tuple[BatchHeader, Block]:
        """As in `FileMessages`; the header is fetched on access."""
        header, block = super().read_header(kind, index)
        if isinstance(header.raw, LazyRangeBytes):
            header = RemoteBatchHeader(header.raw, header.template)
        return header, block

    def read_all(self) -> Iterator[tuple[Message[BatchHeader], str]]:
        """As in `FileMessages`; many headers are fetched at once."""
        entries = self._enumerate_messages()
        for group in _group(entries, lambda entry: self.get_block(*entry)[1], _MAX_HEADERS_PER_FETCH, MAX_ROUND_BYTES):
            self.fetch_headers_and_bodies(self.get_block(kind, index) for kind, index in group)
            for kind, index in group:
                yield self.read(kind, index), f"{KIND_LABELS[kind]} {index}"

    def fetch_headers_and_bodies(self, blocks: Iterable[Block], max_body_bytes: int = -1) -> FetchedRanges:
        """Fetch the headers of those blocks that are valid, with bodies of up to `max_body_bytes`."""
        valid_blocks = self.select_valid_blocks(blocks)
        fetched = self.source.fetch(
            [
                (offset, metadata_bytes + (body_bytes if body_bytes <= max_body_bytes else 0))
                for offset, metadata_bytes, body_bytes in valid_blocks
            ]
        )
        for offset, metadata_bytes, _ in valid_blocks:
            self.source.store_for_lazy_read(offset, metadata_bytes, fetched)
        return fetched

    def select_valid_blocks(self, blocks: Iterable[Block]) -> list[Block]:
        """The blocks within the file and the limits; reading any other raises an error."""
        return [block for block in blocks if self.is_valid_block(block)]

    def read_dictionary_messages(self) -> Iterator[tuple[BatchHeader, Any, tuple[object, ...]]]:
        """The header and body of each dictionary batch; all headers and small bodies are fetched at once."""
        blocks = [self.get_block(headers.DICTIONARY_BATCH, index) for index in range(self.footer.dictionaries.count)]
        fetched = self.fetch_headers_and_bodies(blocks, _SMALL_BODY_BYTES)
        for header, body, location in super().read_dictionary_messages():
            yield header, fetched.find(body.offset, body.size) or body, location

    def fetch_batch_headers(
        self, indices: Iterable[int], ipc_schema: IpcSchema, column_indices: Sequence[int] | None
    ) -> None:
        """Fetch the fixed parts of the headers of batches, and their entries for the columns at `column_indices`."""
        blocks = self.select_valid_blocks(self.get_block(headers.RECORD_BATCH, index) for index in indices)
        # The beginning of the first batch was fetched with the footer, if it is the first message. Headers of one size
        # usually have one layout.
        for block in [self.get_block(headers.RECORD_BATCH, 0), *blocks[:1]] if blocks else []:
            self._derive_header_template(block, ipc_schema)
        unknown_headers = [
            (offset, min(size_bytes, _PREVIEW_BYTES))
            for offset, size_bytes, _ in blocks
            if size_bytes > _MAX_WHOLE_HEADER_BYTES and self.headers.find_template_by_size(size_bytes) is None
        ]
        if unknown_headers:
            previews = self.source.fetch(unknown_headers)
            for block in blocks:
                self._derive_header_template(block, ipc_schema, previews)
        fetched = self.source.fetch(
            [
                (block_offset + offset, span_bytes)
                for block_offset, size_bytes, _ in blocks
                for offset, span_bytes in self._compute_header_spans(size_bytes, ipc_schema, column_indices)
            ]
        )
        for offset, size_bytes, _ in blocks:
            self.source.store_for_lazy_read(offset, size_bytes, fetched)

    def _compute_header_spans(
        self, size_bytes: int, ipc_schema: IpcSchema, column_indices: Sequence[int] | None
    ) -> list[Span]:
        """The spans to fetch of a header of this size."""
        template = None if size_bytes <= _MAX_WHOLE_HEADER_BYTES else self.headers.find_template_by_size(size_bytes)
        if template is None:
            return [(0, min(size_bytes, _MAX_WHOLE_HEADER_BYTES))]
        spans = [(start, stop - start) for start, stop, _ in template.constants]
        spans += [(at, 8) for at in (template.length_at, template.body_length_at) if at]
        if template.variadic_count:
            spans.append((template.variadic_at, 8 * template.variadic_count))
        elif column_indices is not None:
            positions = ipc_schema.column_positions(template.version)
            if positions.node_count == template.node_count and positions.buffer_count == template.buffer_count:
                for index in column_indices:
                    column = positions[index]
                    spans += compute_column_header_spans(template, column, column.first_buffer, column.buffer_count)
        return spans

    def _derive_header_template(
        self, block: Block, ipc_schema: IpcSchema, previews: FetchedRanges | None = None
    ) -> None:
        """Derive the layout of headers of this size from the beginning of one and the counts of the schema.

        Each header is compared with the derived layout, so a wrong guess only costs time.
        """
        offset, size_bytes, _ = block
        if size_bytes <= _MAX_WHOLE_HEADER_BYTES or self.headers.find_template_by_size(size_bytes) is not None:
            return
        preview_bytes = min(size_bytes, _PREVIEW_BYTES)
        preview = self.source.find(offset, preview_bytes) or (
            previews.find(offset, preview_bytes) if previews is not None else None
        )
        if preview is None:
            return
        start = preview.to_bytes()
        flatbuffer_offset, metadata_bytes = parse_prefix(start)
        if flatbuffer_offset + metadata_bytes != size_bytes:  # an error when the header is read
            return
        # Zeros in place of what was not fetched: only positions are needed, and the lengths of vectors follow from the
        # schema.
        draft = bytearray(start + bytes(size_bytes - preview_bytes))
        try:
            root = read_root("Message", bytes(draft[flatbuffer_offset:]), "header")
            inner = root["header"]
            if headers.read_header_kind(root) != headers.RECORD_BATCH or inner is None:
                return
            positions = ipc_schema.column_positions(root["version"])
            for name, count in (
                ("nodes", positions.node_count),
                ("buffers", positions.buffer_count),
                ("variadicBufferCounts", positions.variadic_count),
            ):
                at = inner.locate_slot(name)
                vector = flatbuffer_offset + root.flatbuffer.follow_offset(at, name) if at else preview_bytes
                if vector + _VECTOR_LENGTH.size > preview_bytes and at:
                    _VECTOR_LENGTH.pack_into(draft, vector, count)
            self.headers.parse(bytes(draft), flatbuffer_offset, ("header",))
        except InvalidDataError:
            return


class RemoteFileReader(FileReader):
    """A `FileReader` of a remote file; columns are fetched on access, for several batches together.

    `column` and `read_all` fetch for all batches together, filters for up to 10,000 or 256 MiB, iteration for up to 64
    or 64 MiB. Columns that were not accessed before the reader is closed can't be fetched any more.
    """

    _columns_type = RemoteColumns
    _messages_type = RemoteFileMessages
    messages: RemoteFileMessages

    def read_batch_message(self, index: int) -> tuple[BatchHeader, Buffer]:
        """The header and the body of record batch `index`, both fetched completely in one round trip."""
        messages = self.messages
        fetched = messages.fetch_headers_and_bodies([self._get_block(index)], messages.limits.max_body_bytes)
        header, body = super().read_batch_message(index)
        fetched_body = fetched.find(body.offset, body.size)
        assert fetched_body is not None
        return BatchHeader(header.raw[:], header.template), fetched_body

    def read_whole_batch(self, index: int) -> RecordBatch:
        """Record batch `index`, fetched completely; errors as in `get_batch`."""
        return self._create_batch(index, *self.read_batch_message(index), BatchColumns)

    def _get_block(self, index: int) -> Block:
        return self.messages.get_block(headers.RECORD_BATCH, self._resolve_index(index))

    # Batches

    def get_batch(self, index: int) -> RecordBatch:
        """Record batch `index`; its columns are fetched on access. Errors as in `FileReader`."""
        if not self.messages.source.has_cached_header_at(self._get_block(index)[0]):
            self._fetch_batch_headers([self._resolve_index(index)], self._select_columns().indices)
        return super().get_batch(index)

    def _fetch_batch_headers(self, indices: Sequence[int], column_indices: Sequence[int] | None) -> None:
        self.messages.fetch_batch_headers(indices, self.ipc_schema, column_indices)

    @property
    def row_counts(self) -> npt.NDArray[np.int64]:
        """As in `FileReader`; the headers are fetched together."""
        if self.statistics is None:
            self._fetch_batch_headers(range(len(self)), ())
        return super().row_counts

    def _read_batches(self, indices: Sequence[int], column_indices: Sequence[int] | None) -> list[RecordBatch]:
        self._fetch_batch_headers(indices, column_indices)
        batches = [super(RemoteFileReader, self).get_batch(index) for index in indices]
        _link(batches)
        return batches

    def column(self, key: str | int) -> ChunkedArray:
        """One column of all batches, fetched together; raises `NotFoundError` for an unknown column."""
        index, field = self._get_index_and_field(key)
        column_indices = self._select_columns().indices
        batches = self._read_batches(range(len(self)), [index if column_indices is None else column_indices[index]])
        return ChunkedArray([batch.column(index) for batch in batches], field.type)

    def read_all(self, filters: FiltersLike | None = None) -> Table:
        """All batches as a table; a column is fetched for all batches on first access. With filters as in
        `FileReader`.
        """
        if filters is not None:
            return super().read_all(filters)
        return Table.from_batches(self._read_batches(range(len(self)), self._select_columns().indices), self.schema)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._read_batches(range(*index.indices(len(self))), self._select_columns().indices)
        return self.get_batch(index)

    def iter_batches(self, indices: Iterable[int]) -> Iterator[RecordBatch]:
        """Iterate over the record batches at `indices`, of which up to 64, or 64 MiB, are fetched together."""
        numbers = map(self._resolve_index, indices)
        for group in _group(numbers, self._get_batch_bytes, _MAX_ITERATED_BATCHES, MAX_ROUND_BYTES):
            yield from self._read_batches(group, self._select_columns().indices)

    def _iter_candidates(self, indices: Iterable[int], filters: Filters) -> Iterator[RecordBatch]:
        """As in `FileReader`, without the batches that have no matching rows.

        The columns of the filters are fetched for many batches together, then the others for those with matches.
        """
        selected = self._select_columns().indices
        filtered_columns = [index if selected is None else selected[index] for index in filters.column_indices]
        for group in _group(indices, self._get_batch_bytes, _MAX_HEADERS_PER_FETCH, MAX_FETCH_BYTES):
            # Only the batches with matches stay in memory, and linked to each other.
            matching = [batch for batch in self._read_batches(group, filtered_columns) if _has_matches(batch, filters)]
            _link(matching)
            yield from matching

    def _get_batch_bytes(self, index: int) -> int:
        """The size of a batch's header and body."""
        _, metadata_bytes, body_bytes = self._get_block(index)
        return max(metadata_bytes, 0) + max(body_bytes, 0)


def _link(batches: Sequence[RecordBatch]) -> None:
    """Link the batches of a table, so that access to a column of one reads it for the following ones too."""
    link_for_decompression(batches)
    link_for_fetching(batches)


def _has_matches(batch: RecordBatch, filters: Filters) -> bool:
    columns = batch.lazy_columns
    assert isinstance(columns, RemoteColumns)
    columns.fetch(filters.column_indices)
    return bool(filters.evaluate(columns).any())


def _group(
    entries: Iterable[_Entry], get_size: Callable[[_Entry], int], max_count: int, max_bytes: int
) -> Iterator[list[_Entry]]:
    """Group entries that are fetched in one round, in order: up to `max_count`, and none after `max_bytes`."""
    group: list[_Entry] = []
    total_bytes = 0
    for entry in entries:
        if len(group) == max_count or total_bytes > max_bytes:
            yield group
            group, total_bytes = [], 0
        group.append(entry)
        total_bytes += max(get_size(entry), 0)
    if group:
        yield group


def _prefetch_footer_and_first_message(source: RangeSource, limits: ReadLimits) -> None:
    """Fetch the rest of the footer together with a preview of the first message after the schema."""
    size = source.size
    if size < len(FILE_START) + TRAILER.size:
        return
    length_bytes, magic = TRAILER.unpack(source.read_at(size - TRAILER.size, TRAILER.size))
    footer_offset = size - TRAILER.size - length_bytes
    start = source.read_at(0, min(size, 16))
    has_trailer = is_file_start(start) and magic == MAGIC and 0 < length_bytes <= limits.max_metadata_bytes
    if not has_trailer or footer_offset < len(FILE_START) or source.find(footer_offset, length_bytes) is not None:
        return
    spans = [(footer_offset, length_bytes)]
    if start[8:12] == CONTINUATION:
        first_at = len(FILE_START) + PREFIX_BYTES + int.from_bytes(start[12:16], "little")
        if first_at + _PREVIEW_BYTES <= footer_offset and source.find(first_at, _PREVIEW_BYTES) is None:
            spans.append((first_at, _PREVIEW_BYTES))
    source.fetch_into_cache(spans)
