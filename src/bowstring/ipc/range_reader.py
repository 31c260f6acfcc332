"""Files that are read by ranges («IPC File Format»): what a column needs is fetched for many batches at once.

Reading one column takes four rounds, however many batches and columns there are: the end of the file; the rest of a
large footer, and a look at the first header; of all headers the few bytes that matter; the buffers. Dictionaries take
one more or two, and so does the file that has view columns and wide headers. How headers lie is learned from the first
one and compared in each: where one differs it is fetched as a whole.
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
_WHOLE_BYTES = 1 << 17
_SMALL_BODY_BYTES = 1 << 16
_GLANCE_BYTES = 1 << 12
_ITERATED_BATCHES = 64
_MOST_HEADERS = 10_000


class RemoteFileReader(FileReader):
    """A `FileReader` of a file that is not in memory: what is asked for is fetched, several batches at once.

    `column` and `read_all` fetch for all batches together; iterating does for as many as `ROUND_BYTES` hold. Close the
    reader when all columns that are wanted have been asked for: what was not fetched until then can't be.
    """

    _columns = RemoteColumns

    def __init__(
        self, source: RangeSource, columns: Sequence[str | int] | None = None, limits: ReadLimits = DEFAULT_LIMITS
    ) -> None:
        self._far = source
        _look_ahead(source, limits)
        super().__init__(source, columns, limits)

    def body(self, offset: int, size_bytes: int) -> Any:
        """A body that is not fetched yet. Raises `LimitError` for one above the limit."""
        if size_bytes > self._limits.max_body_bytes:
            raise LimitError(
                f"{self._far.name}: a body of {size_bytes} bytes, more than the limit of {self._limits.max_body_bytes} "
                "(max_body_bytes)"
            )
        return RemoteBody(self._far, offset, size_bytes)

    def _message(self, at: int, kind: str, where: tuple[object, ...]) -> tuple[BatchHeader, int, int]:
        header, body_at, body_bytes = super()._message(at, kind, where)
        if isinstance(header.raw, RangeBytes):
            header = RemoteHeader(header.raw, header.template)
        return header, body_at, body_bytes

    def read_batch_message(self, index: int) -> tuple[BatchHeader, Buffer]:
        """The header and the body of record batch `index`, both fetched as a whole, at once."""
        found = FetchedRanges()
        if -len(self) <= index < len(self):
            offset, metadata_bytes, body_bytes = self._block(self._batches_at + BLOCK.itemsize * (index % len(self)))
            if self._is_sound(offset, metadata_bytes, body_bytes) and body_bytes <= self._limits.max_body_bytes:
                found = self._far.fetch([(offset, metadata_bytes + body_bytes)])
                self._far.begin(offset, metadata_bytes, found)
        header, body = super().read_batch_message(index)
        here = found.find(body.offset, body.size)
        assert here is not None
        return BatchHeader(header.raw[:], header.template), here

    def read_whole_batch(self, index: int) -> RecordBatch:
        """Record batch `index`, fetched as a whole; errors as of `get_batch`."""
        return self._batch(index, *self.read_batch_message(index), BatchColumns)

    def spans(self) -> Iterator[tuple[BatchHeader, int, int, tuple[object, ...]]]:
        """As of `FileReader`; many headers are fetched at once."""
        for group in self._groups():
            blocks = [self._block(at) for at, _, _ in group]
            sound = [block[:2] for block in blocks if self._is_sound(*block)]
            found = self._far.fetch(sound)
            for offset, metadata_bytes in sound:
                self._far.begin(offset, metadata_bytes, found)
            for at, kind, where in group:
                yield (*self._message(at, kind, where), where)

    def _groups(self) -> Iterator[list[tuple[int, str, tuple[object, ...]]]]:
        """Places of the footer, as many together as have their headers fetched in one round."""
        group: list[tuple[int, str, tuple[object, ...]]] = []
        held_bytes = 0
        for place in self._places():
            size_bytes = max(self._block(place[0])[1], 0)
            if group and (held_bytes + size_bytes > ROUND_BYTES or len(group) == _MOST_HEADERS):
                yield group
                group, held_bytes = [], 0
            group.append(place)
            held_bytes += size_bytes
        if group:
            yield group

    def read_dictionary_messages(self) -> Iterator[tuple[BatchHeader, Any, tuple[object, ...]]]:
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
        for header, body, where in super().read_dictionary_messages():
            yield header, found.find(body.offset, body.size) or body, where

    # Headers

    def _block(self, at: int) -> tuple[int, int, int]:
        offset, metadata_bytes, body_bytes = _BLOCK.unpack_from(self._raw, at)
        return offset, metadata_bytes, body_bytes

    def _is_sound(self, offset: int, metadata_bytes: int, body_bytes: int) -> bool:
        sizes = min(offset, metadata_bytes - 8, body_bytes) >= 0
        return (
            sizes
            and offset + metadata_bytes + body_bytes <= self.footer_at
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
            if size > _WHOLE_BYTES and self._headers.template_of(size) is None
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
        template = None if size_bytes <= _WHOLE_BYTES else self._headers.template_of(size_bytes)
        if template is None:
            return [(0, min(size_bytes, _WHOLE_BYTES))]
        spans = [(start, stop - start) for start, stop, _ in template.constants]
        spans += [(at, 8) for at in (template.length_at, template.body_length_at) if at]
        if template.variadic_count:
            spans.append((template.variadic_at, 8 * template.variadic_count))
        elif positions is not None:
            plan = self.known.plan(template.version)
            if plan.node_count == template.node_count and plan.buffer_count == template.buffer_count:
                for index in positions:
                    column = plan[index]
                    spans += header_entries(template, column, column.first_buffer, column.buffer_count)
        return spans

    def _suppose(self, offset: int, size_bytes: int, glances: FetchedRanges | None = None) -> None:
        """Suppose that headers of this length lie as the beginning of one says, with the counts of the schema.

        Each header is compared with what is supposed here, so a wrong guess costs time and nothing else.
        """
        if size_bytes <= _WHOLE_BYTES or self._headers.template_of(size_bytes) is not None:
            return
        glance = min(size_bytes, _GLANCE_BYTES)
        found = self._far.held(offset, glance) or (glances.find(offset, glance) if glances is not None else None)
        if found is None:
            return
        start = found.to_bytes()
        skip = PREFIX_BYTES if start[:4] == CONTINUATION else LEGACY_PREFIX_BYTES
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
        batches = [super(RemoteFileReader, self).get_batch(index) for index in indices]
        link_batches(batch.source for batch in batches)
        link_remote_batches(batches)
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


def _look_ahead(source: RangeSource, limits: ReadLimits) -> None:
    """Fetch what is missing of the footer, and with it the beginning of the first message after the schema."""
    size = source.size
    if size < len(FILE_START) + TRAILER.size:
        return
    length_bytes, magic = TRAILER.unpack(source.read_at(size - TRAILER.size, TRAILER.size))
    footer_at = size - TRAILER.size - length_bytes
    start = source.read_at(0, min(size, 16))
    is_sound = is_file_start(start) and magic == MAGIC and 0 < length_bytes <= limits.max_metadata_bytes
    if not is_sound or footer_at < len(FILE_START) or source.held(footer_at, length_bytes) is not None:
        return
    spans = [(footer_at, length_bytes)]
    if start[8:12] == CONTINUATION:
        first_at = len(FILE_START) + PREFIX_BYTES + int.from_bytes(start[12:16], "little")
        if first_at + _GLANCE_BYTES <= footer_at and source.held(first_at, _GLANCE_BYTES) is None:
            spans.append((first_at, _GLANCE_BYTES))
    source.keep(spans)
