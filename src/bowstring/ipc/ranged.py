"""Files that are read by ranges («IPC File Format»): what a column needs is fetched for many batches at once.

Reading one column takes four rounds at the most, however many batches and columns there are: the end of the file; the
rest of a large footer, and a look at the first header; of all other headers the few bytes that matter; the buffers.
How headers lie is learned from the first one and compared in each: where one differs it is fetched as a whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload
from weakref import ReferenceType, ref

from bowstring.errors import InvalidDataError, LimitError
from bowstring.flatbuf.codec import Message
from bowstring.flatbuf.tables import BLOCK, SPECS
from bowstring.ipc import framing, header as headers
from bowstring.ipc.body import BatchColumns, ColumnPlan, DictionaryLookup, SchemaPlan, belong_together
from bowstring.ipc.file import FileReader
from bowstring.ipc.header import BatchHeader, Shape
from bowstring.ipc.limits import DEFAULT_LIMITS, Limits
from bowstring.ipc.ranges import ROUND_BYTES, Pieces, RangeBytes, RangeSource, Span
from bowstring.layouts.array import Array
from bowstring.memory.buffer import EMPTY, Buffer
from bowstring.tabular.batch import RecordBatch
from bowstring.tabular.chunked import ChunkedArray
from bowstring.tabular.table import Table

_BLOCK = struct.Struct("<qi4xq")
_TRAILER = struct.Struct("<i6s")
_COUNT = struct.Struct("<I")
_WHOLE_BYTES = 1 << 17
_SMALL_BODY_BYTES = 1 << 16
_GLANCE_BYTES = 1 << 12
_AT_ONCE_BYTES = 4 * ROUND_BYTES
_ITERATED_BATCHES = 64


class FarBody:
    """A body that is in a file elsewhere: its place, in bytes from the file's beginning, and its size."""

    __slots__ = ("offset", "size", "source")

    memory = EMPTY.memory
    columns: type[FarColumns]

    def __init__(self, source: RangeSource, offset: int, size: int) -> None:
        self.source = source
        self.offset = offset
        self.size = size


class FarHeader(BatchHeader):
    """A header of which mostly a few bytes are here."""

    __slots__ = ()

    def unpack(self, form: struct.Struct, at: int) -> tuple[int, ...]:
        """The numbers at a place of the header."""
        return form.unpack(self.raw[at : at + form.size])


class FarColumns(BatchColumns):
    """The columns of a batch whose body is elsewhere.

    Asking for one fetches its buffers: for all batches of a table at once, with the other columns that a reader was
    told to read; and more and more of those that follow where columns are asked for in their order.
    """

    __slots__ = ("_asked", "_done", "_group", "_here", "_next", "_place", "_reach", "source")

    def __init__(
        self,
        plan: SchemaPlan,
        header: BatchHeader,
        body: Any,
        dictionaries: DictionaryLookup,
        where: tuple[object, ...],
        selection: Sequence[ColumnPlan] | None = None,
    ) -> None:
        super().__init__(plan, header, body, dictionaries, where, selection)
        self.source: RangeSource = body.source
        self._here: dict[int, Pieces] = {}
        self._done: set[int] = set()
        self._group: Sequence[ReferenceType[FarColumns]] = ()
        self._place = 0
        self._asked = -1
        self._next, self._reach = -1, 1

    @property
    def is_whole(self) -> bool:
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
        _fetch_entries(self.source, group, wanted)
        spans: list[Span] = []
        taken: list[tuple[FarColumns, ColumnPlan]] = []
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

    def _following(self) -> list[FarColumns]:
        if not self._group:
            return [self]
        held = [columns for other in self._group[self._place + 1 :] if (columns := other()) is not None]
        return [self, *held]

    def entries(self, column: ColumnPlan) -> list[Span]:
        """Where a column's nodes and buffers are in the header."""
        shape, first, count = self.header.shape, column.first_buffer, column.buffer_count
        if self.variadic:
            first += sum(self.variadic[: column.first_variadic])
            count += sum(self._own_variadic(column))
        return _entries(shape, column, first, count)

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


FarBody.columns = FarColumns


def _entries(shape: Shape, column: ColumnPlan, first_buffer: int, buffer_count: int) -> list[Span]:
    return [
        (shape.nodes_at + 16 * column.first_node, 16 * column.node_count),
        (shape.buffers_at + 16 * first_buffer, 16 * buffer_count),
    ]


def _fetch_entries(source: RangeSource, every: Sequence[FarColumns], wanted: Sequence[ColumnPlan]) -> None:
    """Fetch what the headers of batches say of columns, where it is not here yet."""
    lacking: list[Span] = []
    takers = []
    for columns in every:
        raw = columns.header.raw
        if isinstance(raw, RangeBytes):
            missing = raw.lacks(span for column in wanted for span in columns.entries(column))
            if missing:
                lacking += missing
                takers.append(raw)
    if lacking:
        found = source.fetch(lacking)
        for raw in takers:
            raw.take(found)


def _make_group(batches: Iterable[RecordBatch]) -> None:
    """Batches of one table: where a column of one is fetched, it is fetched for those that follow, too."""
    every = [columns for batch in batches if isinstance(columns := batch.source, FarColumns)]
    group = [ref(columns) for columns in every]
    for place, columns in enumerate(every):
        columns._group, columns._place = group, place


class RangedReader(FileReader):
    """A `FileReader` of a file that is not in memory: what is asked for is fetched, several batches at once.

    `column` and `read_all` fetch for all batches together; iterating does for as many as `ROUND_BYTES` hold. Close the
    reader when all columns that are wanted have been asked for: what was not fetched until then can't be.
    """

    _columns = FarColumns

    def __init__(
        self, source: RangeSource, columns: Sequence[str | int] | None = None, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self._far = source
        _look_ahead(source, limits)
        super().__init__(source, columns, limits)

    def _body(self, offset: int, size_bytes: int) -> Any:
        if size_bytes > self._limits.max_body_bytes:
            raise LimitError(
                f"{self._far.name}: a body of {size_bytes} bytes, more than the limit of {self._limits.max_body_bytes} "
                "(max_body_bytes)"
            )
        return FarBody(self._far, offset, size_bytes)

    def _message(self, at: int, kind: str, where: tuple[object, ...]) -> tuple[BatchHeader, int, int]:
        header, body_at, body_bytes = super()._message(at, kind, where)
        if isinstance(header.raw, RangeBytes):
            header = FarHeader(header.raw, header.shape)
        return header, body_at, body_bytes

    def batch_message(self, index: int) -> tuple[BatchHeader, Buffer]:
        """The header and the body of record batch `index`, both fetched as a whole."""
        header, body = super().batch_message(index)
        found = self._far.fetch([(body.offset, body.size)]).find(body.offset, body.size)
        assert found is not None
        return BatchHeader(header.raw[:], header.shape), found

    def dictionary_messages(self) -> Iterator[tuple[BatchHeader, Any, tuple[object, ...]]]:
        """The header and body of each dictionary batch; all headers are fetched at once, and small bodies with them."""
        blocks = [self._block(self._dictionaries_at + BLOCK.itemsize * i) for i in range(self.num_dictionary_batches)]
        spans = [
            (offset, metadata_bytes + (body_bytes if body_bytes <= _SMALL_BODY_BYTES else 0))
            for offset, metadata_bytes, body_bytes in blocks
            if self._is_sound(offset, metadata_bytes, body_bytes)
        ]
        found = self._far.fetch(spans)
        for offset, metadata_bytes, _ in blocks:
            self._far.begin(offset, metadata_bytes, found)
        for header, body, where in super().dictionary_messages():
            yield header, found.find(body.offset, body.size) or body, where

    # Headers

    def _block(self, at: int) -> tuple[int, int, int]:
        offset, metadata_bytes, body_bytes = _BLOCK.unpack_from(self._raw, at)
        return offset, metadata_bytes, body_bytes

    def _is_sound(self, offset: int, metadata_bytes: int, body_bytes: int) -> bool:
        sizes = min(offset, metadata_bytes - 8, body_bytes) >= 0
        return (
            sizes
            and offset + metadata_bytes + body_bytes <= self._body_end
            and metadata_bytes <= self._limits.max_metadata_bytes
        )

    def _begin(self, indices: Iterable[int], positions: Sequence[int] | None) -> None:
        """Fetch of the headers of batches what tells how they lie, and what they say of the columns at `positions`."""
        blocks = [self._block(self._batches_at + BLOCK.itemsize * index) for index in indices]
        sound = [block[:2] for block in blocks if self._is_sound(*block)]
        for offset, metadata_bytes in [(self._block(self._batches_at)[:2]), *sound[:1]] if sound else []:
            self._suppose(offset, metadata_bytes)
        strange = [
            (offset, min(size, _GLANCE_BYTES))
            for offset, size in sound
            if size > _WHOLE_BYTES and self._headers.shape_of(size) is None
        ]
        if strange:
            glances = self._far.fetch(strange)
            for offset, size in sound:
                self._suppose(offset, size, glances)
        wanted: list[tuple[int, int, list[Span]]] = []
        for offset, size in sound:
            wanted.append((offset, size, self._stretches(size, positions)))
        found = self._far.fetch([(offset + at, length) for offset, _, spans in wanted for at, length in spans])
        for offset, size, _ in wanted:
            self._far.begin(offset, size, found)

    def _stretches(self, size_bytes: int, positions: Sequence[int] | None) -> list[Span]:
        """What to fetch of a header of this length."""
        shape = None if size_bytes <= _WHOLE_BYTES else self._headers.shape_of(size_bytes)
        if shape is None:
            return [(0, min(size_bytes, _WHOLE_BYTES))]
        spans = [(start, stop - start) for start, stop, _ in shape.fixed]
        spans += [(at, 8) for at in (shape.length_at, shape.body_length_at) if at]
        if shape.variadic_count:
            spans.append((shape.variadic_at, 8 * shape.variadic_count))
        elif positions is not None:
            plan = self.known.plan(shape.version)
            if plan.node_count == shape.node_count and plan.buffer_count == shape.buffer_count:
                for index in positions:
                    column = plan[index]
                    spans += _entries(shape, column, column.first_buffer, column.buffer_count)
        return spans

    def _suppose(self, offset: int, size_bytes: int, glances: Pieces | None = None) -> None:
        """Suppose that headers of this length lie as the beginning of one says, with the counts of the schema.

        Each header is compared with what is supposed here, so a wrong guess costs time and nothing else.
        """
        if size_bytes <= _WHOLE_BYTES or self._headers.shape_of(size_bytes) is not None:
            return
        glance = min(size_bytes, _GLANCE_BYTES)
        found = self._far.held(offset, glance) or (glances.find(offset, glance) if glances is not None else None)
        if found is None:
            return
        start = found.to_bytes()
        skip = framing.PREFIX_BYTES if start[:4] == framing.CONTINUATION else framing.LEGACY_PREFIX_BYTES
        draft = bytearray(start + bytes(size_bytes - glance))
        try:
            message = Message(bytes(draft[skip:]), SPECS, "header")
            root = message.root("Message")
            inner = root.union("header", headers.header_kind(root))
            if inner is None or inner.spec.name != headers.RECORD_BATCH:
                return
            plan = self.known.plan(root["version"])
            for name, count in (
                ("nodes", plan.node_count),
                ("buffers", plan.buffer_count),
                ("variadicBufferCounts", plan.variadic_count),
            ):
                at = inner.locate(inner.spec.slots[name].number, 4)
                vector = skip + message.follow(at, name) if at else glance
                if vector + _COUNT.size > glance and at:
                    _COUNT.pack_into(draft, vector, count)
            self._headers.read(bytes(draft), skip, "header")
        except InvalidDataError:
            return

    # Batches

    def get_batch(self, index: int) -> RecordBatch:
        """Record batch `index`; its columns are fetched when they are asked for. Errors as of `FileReader`."""
        if not self._far.has_begun(self._offset_of(index)) and -len(self) <= index < len(self):
            self._begin([index % len(self)], self._positions_wanted())
        return super().get_batch(index)

    def _offset_of(self, index: int) -> int:
        if not -len(self) <= index < len(self):
            return -1
        return self._block(self._batches_at + BLOCK.itemsize * (index % len(self)))[0]

    def _positions_wanted(self) -> Sequence[int] | None:
        _ = self.known
        return self._positions

    def _together(self, indices: Sequence[int], positions: Sequence[int] | None) -> list[RecordBatch]:
        self._begin(indices, positions)
        batches = [super(RangedReader, self).get_batch(index) for index in indices]
        belong_together(batch.source for batch in batches)
        _make_group(batches)
        return batches

    def column(self, key: str | int) -> ChunkedArray:
        """One column of all batches, fetched together; raises `NotFoundError` where there is none."""
        index, field = self._field(key)
        known = self._positions_wanted()
        batches = self._together(range(len(self)), [index if known is None else known[index]])
        return ChunkedArray([batch.column(index) for batch in batches], field.type)

    def read_all(self) -> Table:
        """All batches as a table; a column is fetched for all of them when it is asked for."""
        return Table.from_batches(self._together(range(len(self)), self._positions_wanted()), self.schema)

    @overload
    def __getitem__(self, index: int) -> RecordBatch: ...
    @overload
    def __getitem__(self, index: slice) -> list[RecordBatch]: ...
    def __getitem__(self, index: int | slice) -> RecordBatch | list[RecordBatch]:
        if isinstance(index, slice):
            return self._together(range(*index.indices(len(self))), self._positions_wanted())
        return self.get_batch(index)

    def __iter__(self) -> Iterator[RecordBatch]:
        first = 0
        while first < len(self):
            last, held = first, 0
            while last < min(first + _ITERATED_BATCHES, len(self)) and held <= ROUND_BYTES:
                held += max(self._block(self._batches_at + BLOCK.itemsize * last)[2], 0)
                last += 1
            yield from self._together(range(first, max(last, first + 1)), self._positions_wanted())
            first = max(last, first + 1)


def _look_ahead(source: RangeSource, limits: Limits) -> None:
    """Fetch what is missing of the footer, and with it the beginning of the first message after the schema."""
    size = source.size
    if size < len(framing.FILE_START) + _TRAILER.size:
        return
    length_bytes, magic = _TRAILER.unpack(source.read_at(size - _TRAILER.size, _TRAILER.size))
    footer_at = size - _TRAILER.size - length_bytes
    start = source.read_at(0, min(size, 16))
    is_sound = framing.is_file(start) and magic == framing.MAGIC and 0 < length_bytes <= limits.max_metadata_bytes
    if not is_sound or footer_at < len(framing.FILE_START) or source.held(footer_at, length_bytes) is not None:
        return
    spans = [(footer_at, length_bytes)]
    if start[8:12] == framing.CONTINUATION:
        first_at = len(framing.FILE_START) + framing.PREFIX_BYTES + int.from_bytes(start[12:16], "little")
        if first_at + _GLANCE_BYTES <= footer_at and source.held(first_at, _GLANCE_BYTES) is None:
            spans.append((first_at, _GLANCE_BYTES))
    source.keep(spans)
