"""Columns of remote batches («RecordBatch message»), fetched on access.

Access to a column of one batch also fetches it for the following batches of the table.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias
from weakref import ReferenceType, ref

from bowstring.arrays.array import Array
from bowstring.arrays.record_batch import RecordBatch
from bowstring.errors import InvalidDataError
from bowstring.io.byte_ranges import FetchedRanges, Span
from bowstring.io.range_source import MAX_ROUND_BYTES, LazyRangeBytes, RangeSource
from bowstring.ipc.metadata.header import BatchHeader, HeaderTemplate
from bowstring.ipc.metadata.schema import BatchColumnPositions, ColumnPositions
from bowstring.ipc.record_batch.reader import BatchColumns, BodyLocation
from bowstring.memory.buffer import EMPTY, Buffer

# The bytes that one access may fetch ahead and keep: several rounds in flight, and no more than that in memory.
MAX_FETCH_BYTES = 4 * MAX_ROUND_BYTES


class RemoteBody:
    """A body in a remote file: its offset in the file, and its size in bytes."""

    __slots__ = ("offset", "size", "source")

    memory = EMPTY.memory

    def __init__(self, source: RangeSource, offset: int, size: int) -> None:
        self.source = source
        self.offset = offset
        self.size = size

    def fetch(self) -> Buffer:
        """Fetch all of it."""
        chunks = self.source.fetch([(self.offset, self.size)]).find(self.offset, self.size)
        assert chunks is not None
        return chunks


Body: TypeAlias = Buffer | RemoteBody
"""A local or a remote body."""


def fetch_body(body: Body) -> Buffer:
    """Return the bytes of a body; a remote one is fetched."""
    return body if isinstance(body, Buffer) else body.fetch()


class RemoteBatchHeader(BatchHeader):
    """A header of which usually only a few bytes have been fetched."""

    __slots__ = ()

    def unpack_from(self, packer: struct.Struct, offset: int) -> tuple[int, ...]:
        return packer.unpack(self.raw[offset : offset + packer.size])


class RemoteColumns(BatchColumns):
    """The columns of a batch whose body is remote.

    Access to a column fetches its buffers: for all following batches of the table, together with the other selected
    columns; if columns are accessed in order, with an increasing number of the next ones.
    """

    is_local = False

    __slots__ = (
        "_created",
        "_fetched",
        "_group",
        "_group_index",
        "_last_index",
        "_next_index",
        "_read_ahead",
        "source",
    )

    def __init__(self, positions: BatchColumnPositions, header: BatchHeader, body: BodyLocation, *args: Any) -> None:
        super().__init__(positions, header, body, *args)
        assert isinstance(body, RemoteBody)
        self.source = body.source
        self._fetched: dict[int, FetchedRanges] = {}
        self._created: set[int] = set()
        self._group: Sequence[ReferenceType[RemoteColumns]] = ()
        self._group_index = 0
        self._last_index = -1
        self._next_index, self._read_ahead = -1, 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            self._fetch_missing([self._selected_columns[i] for i in range(*index.indices(len(self._selected_columns)))])
        else:
            self._last_index = index
        return super().__getitem__(index)

    def fetch(self, indices: Iterable[int]) -> None:
        """Fetch several columns, for all following batches of the table."""
        self._fetch_missing([self._selected_columns[index] for index in indices])

    def __iter__(self) -> Iterator[Array]:
        self._fetch_missing(self._selected_columns)
        return super().__iter__()

    def _fetch_missing(self, positions: Sequence[ColumnPositions]) -> None:
        missing = [column for column in positions if not self._is_fetched(column)]
        if missing:
            self._fetch_columns(missing)

    def _read_nodes_and_buffers(self, column: ColumnPositions) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if column.first_node not in self._fetched:
            self._fetch_columns(self._select_read_ahead_columns(column))
        return super()._read_nodes_and_buffers(column)

    def _select_read_ahead_columns(self, column: ColumnPositions) -> list[ColumnPositions]:
        """Return the column, and those likely to be accessed next."""
        if self._selected_columns is not self.positions:
            return [column, *(other for other in self._selected_columns if other is not column)]
        index = self._last_index
        if not (0 <= index < len(self._selected_columns) and self._selected_columns[index] is column):
            return [column]
        # A caller that skips columns pays for one at a time; one that reads all of them needs few rounds.
        self._read_ahead = 2 * self._read_ahead if index == self._next_index else 1
        self._next_index = index + self._read_ahead
        return [self._selected_columns[i] for i in range(index, min(self._next_index, len(self._selected_columns)))]

    def _fetch_columns(self, positions: Sequence[ColumnPositions]) -> None:
        """Fetch columns, at least the first, of this batch and the following ones of the table."""
        positions = [column for number, column in enumerate(positions) if not (number and self._is_fetched(column))]
        group = self._get_self_and_following()
        fetch_header_entries(self.source, group, positions)
        spans: list[Span] = []
        fetch: list[tuple[RemoteColumns, ColumnPositions]] = []
        left_bytes = MAX_FETCH_BYTES
        for number, column in enumerate(positions):
            for columns in group:
                if columns is not self and columns._is_fetched(column):
                    continue
                ranges = columns._get_buffer_ranges(column)
                # In order of columns and then of batches, so that the columns needed last are left out.
                left_bytes -= sum(size_bytes for _, size_bytes in ranges)
                # The column that was accessed is fetched in any case, the others as far as they fit.
                if left_bytes < 0 and (number or columns is not self):
                    break
                spans += ranges
                fetch.append((columns, column))
            if left_bytes < 0:
                break
        chunks = self.source.fetch(spans)
        for columns, column in fetch:
            columns._fetched[column.first_node] = chunks

    def _is_fetched(self, column: ColumnPositions) -> bool:
        """Whether a column was fetched."""
        return column.first_node in self._fetched or column.first_node in self._created

    def _get_self_and_following(self) -> list[RemoteColumns]:
        if not self._group:
            return [self]
        following_batches = [
            columns for reference in self._group[self._group_index + 1 :] if (columns := reference()) is not None
        ]
        return [self, *following_batches]

    def get_header_spans(self, column: ColumnPositions) -> list[Span]:
        """Return the ranges of a column's nodes and buffers in the header."""
        template, first, count = self.header.template, column.first_buffer, column.buffer_count
        if self.variadic:
            first += sum(self.variadic[: column.first_variadic])
            count += sum(self._get_variadic_counts(column))
        return compute_column_header_spans(template, column, first, count)

    def _get_buffer_ranges(self, column: ColumnPositions) -> list[Span]:
        """Return the ranges of a column's buffers in the file; none if they are malformed, which creating the column
        reports.
        """
        try:
            ranges = self._get_buffer_spans(column, super()._read_nodes_and_buffers(column)[1])
        except InvalidDataError:
            return []
        return [(self.body.offset + offset, size_bytes) for offset, size_bytes in ranges if size_bytes]

    def _create_array(self, column: ColumnPositions) -> Array:
        array = super()._create_array(column)
        # The array refers to the bytes from now on; `_created` prevents that the column is fetched again for another
        # batch.
        self._fetched.pop(column.first_node, None)
        self._created.add(column.first_node)
        return array

    def _get_buffer(self, column: ColumnPositions, offset: int, size: int) -> Buffer:
        at, chunks = self.body.offset + offset, self._fetched.get(column.first_node)
        buffer = chunks.find(at, size) if chunks is not None else None
        if buffer is None:  # another thread created the column meanwhile
            buffer = self.source.fetch([(at, size)]).find(at, size)
            assert buffer is not None
        return buffer


def compute_column_header_spans(
    template: HeaderTemplate, column: ColumnPositions, first_buffer: int, buffer_count: int
) -> list[Span]:
    """Return the ranges of a column's nodes and of `buffer_count` buffers in headers of this template."""
    return [
        (template.nodes_at + 16 * column.first_node, 16 * column.node_count),
        (template.buffers_at + 16 * first_buffer, 16 * buffer_count),
    ]


def fetch_header_entries(
    source: RangeSource, batches: Sequence[RemoteColumns], positions: Sequence[ColumnPositions]
) -> None:
    """Fetch the numbers of columns in the headers of batches, unless they have been fetched."""
    missing_spans: list[Span] = []
    headers = []
    for columns in batches:
        header_bytes = columns.header.raw
        if isinstance(header_bytes, LazyRangeBytes):
            ranges = header_bytes.find_missing_spans(
                span for column in positions for span in columns.get_header_spans(column)
            )
            if ranges:
                missing_spans += ranges
                headers.append(header_bytes)
    if missing_spans:
        chunks = source.fetch(missing_spans)
        for header_bytes in headers:
            header_bytes.add(chunks)


def link_for_fetching(batches: Iterable[RecordBatch]) -> None:
    """Link the batches of a table: fetching a column of one fetches it for the following ones too."""
    remote_batches = [columns for batch in batches if isinstance(columns := batch.lazy_columns, RemoteColumns)]
    # Weak, so that one batch does not keep the others of its table in memory.
    group = [ref(columns) for columns in remote_batches]
    for index, columns in enumerate(remote_batches):
        columns._group, columns._group_index = group, index
