"""Columns of batches whose bodies are elsewhere («RecordBatch message»), fetched when they are asked for.

What one batch is asked for is fetched for the batches of its table that follow, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, overload
from weakref import ReferenceType, ref

from bowstring.arrays.record_batch import RecordBatch
from bowstring.errors import InvalidDataError
from bowstring.io.byte_ranges import FetchedRanges, Span
from bowstring.io.range_source import ROUND_BYTES, RangeBytes, RangeSource
from bowstring.ipc.metadata.header import BatchHeader, HeaderTemplate
from bowstring.ipc.record_batch.plan import ColumnPlan, SchemaPlan
from bowstring.ipc.record_batch.reader import BatchColumns, BodyLocation, DictionaryLookup
from bowstring.layouts.array import Array
from bowstring.memory.buffer import EMPTY, Buffer

_AT_ONCE_BYTES = 4 * ROUND_BYTES


class RemoteBody:
    """A body that is in a file elsewhere: its place, in bytes from the file's beginning, and its size."""

    __slots__ = ("offset", "size", "source")

    memory = EMPTY.memory

    def __init__(self, source: RangeSource, offset: int, size: int) -> None:
        self.source = source
        self.offset = offset
        self.size = size

    def fetched(self) -> Buffer:
        """All of it."""
        found = self.source.fetch([(self.offset, self.size)]).find(self.offset, self.size)
        assert found is not None
        return found


Body: TypeAlias = Buffer | RemoteBody
"""A body that is here, or elsewhere."""


def fetch_body(body: Body) -> Buffer:
    """The bytes of a body; fetched where they are elsewhere."""
    return body if isinstance(body, Buffer) else body.fetched()


class RemoteHeader(BatchHeader):
    """A header of which mostly a few bytes are here."""

    __slots__ = ()

    def unpack(self, form: struct.Struct, at: int) -> tuple[int, ...]:
        """The numbers at a place of the header."""
        return form.unpack(self.raw[at : at + form.size])


class RemoteColumns(BatchColumns):
    """The columns of a batch whose body is elsewhere.

    Asking for one fetches its buffers: for all batches of a table at once, with the other columns that a reader was
    told to read; and more and more of those that follow where columns are asked for in their order.
    """

    __slots__ = ("_asked", "_done", "_group", "_here", "_next", "_place", "_reach", "source")

    def _lie_in(self, body: BodyLocation) -> None:
        super()._lie_in(body)
        assert isinstance(body, RemoteBody)
        self.source = body.source
        self._here: dict[int, FetchedRanges] = {}
        self._done: set[int] = set()
        self._group: Sequence[ReferenceType[RemoteColumns]] = ()
        self._place = 0
        self._asked = -1
        self._next, self._reach = -1, 1

    @property
    def has_all_columns(self) -> bool:
        """There is no memory that holds all columns: False."""
        return False

    @overload
    def __getitem__(self, index: int) -> Array: ...
    @overload
    def __getitem__(self, index: slice) -> list[Array]: ...
    def __getitem__(self, index: int | slice) -> Array | list[Array]:
        if isinstance(index, slice):
            self._bring_new([self._plans[i] for i in range(*index.indices(len(self._plans)))])
        else:
            self._asked = index
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[Array]:
        self._bring_new(self._plans)
        return super().__iter__()

    def _bring_new(self, wanted: Sequence[ColumnPlan]) -> None:
        new = [column for column in wanted if not self._has(column)]
        if new:
            self._bring(new)

    def _numbers(self, column: ColumnPlan) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if column.first_node not in self._here:
            self._bring(self._also_wanted(column))
        return super()._numbers(column)

    def _also_wanted(self, column: ColumnPlan) -> list[ColumnPlan]:
        """The column, and those that are likely to be asked for after it."""
        if self._plans is not self.plan:
            return [column, *(other for other in self._plans if other is not column)]
        asked = self._asked
        if not (0 <= asked < len(self._plans) and self._plans[asked] is column):
            return [column]
        self._reach = 2 * self._reach if asked == self._next else 1
        self._next = asked + self._reach
        return [self._plans[i] for i in range(asked, min(self._next, len(self._plans)))]

    def _bring(self, wanted: Sequence[ColumnPlan]) -> None:
        """Fetch columns, the first of them in any case, of this batch and those of the table that follow it."""
        wanted = [column for number, column in enumerate(wanted) if not (number and self._has(column))]
        group = self._following()
        fetch_header_entries(self.source, group, wanted)
        spans: list[Span] = []
        taken: list[tuple[RemoteColumns, ColumnPlan]] = []
        left = _AT_ONCE_BYTES
        for number, column in enumerate(wanted):
            for columns in group:
                if columns is not self and columns._has(column):
                    continue
                needed = columns._needed(column)
                left -= sum(size_bytes for _, size_bytes in needed)
                if left < 0 and (number or columns is not self):
                    break
                spans += needed
                taken.append((columns, column))
            if left < 0:
                break
        found = self.source.fetch(spans)
        for columns, column in taken:
            columns._here[column.first_node] = found

    def _has(self, column: ColumnPlan) -> bool:
        """Whether a column was fetched."""
        return column.first_node in self._here or column.first_node in self._done

    def _following(self) -> list[RemoteColumns]:
        if not self._group:
            return [self]
        held = [columns for other in self._group[self._place + 1 :] if (columns := other()) is not None]
        return [self, *held]

    def entries(self, column: ColumnPlan) -> list[Span]:
        """Where a column's nodes and buffers are in the header."""
        template, first, count = self.header.template, column.first_buffer, column.buffer_count
        if self.variadic:
            first += sum(self.variadic[: column.first_variadic])
            count += sum(self._own_variadic(column))
        return header_entries(template, column, first, count)

    def _needed(self, column: ColumnPlan) -> list[Span]:
        """Where a column's buffers are in the file; nothing where they are malformed, which is told when it is made."""
        try:
            nodes, spans = super()._numbers(column)
            places = self._places(column, spans)
        except InvalidDataError:
            return []
        if column.is_flat and self._unpacking is None and nodes[1] == 0:
            places = places[1:]
        return [(self.body_at + offset, size_bytes) for offset, size_bytes in places if size_bytes]

    def _make(self, column: ColumnPlan) -> Array:
        array = super()._make(column)
        self._here.pop(column.first_node, None)
        self._done.add(column.first_node)
        return array

    def _buffers(self, column: ColumnPlan, spans: tuple[int, ...]) -> list[Buffer]:
        return [self._buffer(column, *place) for place in self._places(column, spans)]

    def _places(self, column: ColumnPlan, spans: tuple[int, ...]) -> list[Span]:
        limit = self.header.body_bytes
        places = list(zip(spans[::2], spans[1::2], strict=True))
        for offset, size_bytes in places:
            if offset < 0 or size_bytes < 0 or offset + size_bytes > limit:
                raise self._error(column, f"a buffer of {size_bytes} bytes at byte {offset} of a body of {limit}")
        return places

    def _buffer(self, column: ColumnPlan, offset: int, size_bytes: int) -> Buffer:
        at, here = self.body_at + offset, self._here.get(column.first_node)
        found = here.find(at, size_bytes) if here is not None else None
        if found is None:  # another thread made the column meanwhile
            found = self.source.fetch([(at, size_bytes)]).find(at, size_bytes)
            assert found is not None
        return found

    def _flat(self, column: ColumnPlan, length: int, null_count: int, spans: tuple[int, ...]) -> Array:
        if not 0 <= null_count <= length:
            raise self._error(column, f"a node of {length} slots, {null_count} of them null")
        validity_span, *others = self._places(column, spans)
        validity = None
        if null_count:
            validity = self._validity(column, length, null_count, self._buffer(column, *validity_span))
        buffers = [self._buffer(column, *place) for place in others]
        return Array(column.layout, length, (validity, *buffers), (), None, null_count)


def open_columns(
    plan: SchemaPlan, header: BatchHeader, body: Body, dictionaries: DictionaryLookup, where: tuple[object, ...]
) -> BatchColumns:
    """All columns of a batch in a body that is here or elsewhere; errors as of `BatchColumns`."""
    if isinstance(body, Buffer):
        return BatchColumns(plan, header, body, dictionaries, where)
    return RemoteColumns(plan, header, body, dictionaries, where)


def header_entries(template: HeaderTemplate, column: ColumnPlan, first_buffer: int, buffer_count: int) -> list[Span]:
    """Where a column's nodes and so many buffers are in headers of this template."""
    return [
        (template.nodes_at + 16 * column.first_node, 16 * column.node_count),
        (template.buffers_at + 16 * first_buffer, 16 * buffer_count),
    ]


def fetch_header_entries(source: RangeSource, every: Sequence[RemoteColumns], wanted: Sequence[ColumnPlan]) -> None:
    """Fetch what the headers of batches say of columns, where it is not here yet."""
    lacking: list[Span] = []
    takers = []
    for columns in every:
        raw = columns.header.raw
        if isinstance(raw, RangeBytes):
            missing = raw.missing_spans(span for column in wanted for span in columns.entries(column))
            if missing:
                lacking += missing
                takers.append(raw)
    if lacking:
        found = source.fetch(lacking)
        for raw in takers:
            raw.add(found)


def link_remote_batches(batches: Iterable[RecordBatch]) -> None:
    """Batches of one table: where a column of one is fetched, it is fetched for those that follow, too."""
    every = [columns for batch in batches if isinstance(columns := batch.source, RemoteColumns)]
    group = [ref(columns) for columns in every]
    for place, columns in enumerate(every):
        columns._group, columns._place = group, place
