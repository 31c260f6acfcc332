"""Read bodies («RecordBatch message», «Variadic buffers»): walk from field nodes and buffers to arrays.

The walk follows the layouts' declarations, depth first. A column is created on access, independently of the others.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, Protocol, TypeAlias
from weakref import ReferenceType, ref

from bowstring.arrays.array import Array
from bowstring.arrays.record_batch import RecordBatch
from bowstring.errors import InvalidDataError, UnsupportedError, prefix_errors
from bowstring.ipc.message import format_location
from bowstring.ipc.metadata.field import DictionaryDeclaration
from bowstring.ipc.metadata.header import BatchHeader
from bowstring.ipc.metadata.schema import BatchColumnPositions, ColumnPositions, ColumnSelection
from bowstring.ipc.record_batch.byte_order import swap_byte_order
from bowstring.ipc.record_batch.compression import BodyDecompressor, DecompressionJob, decompress_buffers
from bowstring.ipc.record_batch.legacy_unions import move_nulls_to_children
from bowstring.layouts.base import ArrayData, Layout
from bowstring.layouts.union import UnionLayout
from bowstring.memory import bitmap
from bowstring.memory.buffer import Buffer, Memory

DictionaryLookup: TypeAlias = Callable[[DictionaryDeclaration], Array | None]
"""Returns the dictionary in effect for a batch; None if it has not been defined."""


class BodyLocation(Protocol):
    """The location of a body: a `Buffer`, or a remote body with the same attributes."""

    @property
    def memory(self) -> Memory:
        """The memory that contains it; empty for a remote body."""

    @property
    def offset(self) -> int:
        """Its first byte."""

    @property
    def size(self) -> int:
        """Its length in bytes."""


class BatchColumns(Sequence[Array]):
    """The columns of a record batch over a body; each is checked and created on first access, without copying.

    `selected_columns` are the positions of the selected columns, by default of all. Access raises
    `InvalidDataError` if nodes or buffers do not match the column or the body.
    """

    is_local: ClassVar[bool] = True
    """Whether `body.memory` contains the body."""

    __slots__ = (
        "__weakref__",
        "_arrays",
        "_decompressed",
        "_decompressor",
        "_linked_batches",
        "_selected_columns",
        "body",
        "dictionaries",
        "header",
        "location",
        "positions",
        "variadic",
    )

    def __init__(
        self,
        positions: BatchColumnPositions,
        header: BatchHeader,
        body: BodyLocation,
        dictionaries: DictionaryLookup,
        location: tuple[object, ...],
        selected_columns: Sequence[ColumnPositions] | None = None,
    ) -> None:
        self.variadic = header.check(positions, body.size, location)
        self.positions = positions
        self.header = header
        self.body = body
        self.dictionaries = dictionaries
        self.location = location
        self._selected_columns: Sequence[ColumnPositions] = positions if selected_columns is None else selected_columns
        self._arrays: dict[int, Array] = {}
        self._decompressor: BodyDecompressor | None = None
        self._decompressed: dict[int, list[Buffer]] = {}
        self._linked_batches: Sequence[ReferenceType[BatchColumns]] = ()
        if header.template.compression is not None:
            self._decompressor = BodyDecompressor(header.template.compression, header.body_bytes, positions.limits)

    @property
    def is_local_and_complete(self) -> bool:
        """Whether these are all columns of the schema, in its order, in local memory."""
        return self.is_local and self._selected_columns is self.positions

    def __len__(self) -> int:
        return len(self._selected_columns)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self._selected_columns))[index]]
        index = range(len(self._selected_columns))[index]
        array = self._arrays.get(index)
        if array is None:
            if self._linked_batches and self._selected_columns[index].first_node not in self._decompressed:
                decompress_columns(
                    [(columns, (index,)) for reference in self._linked_batches if (columns := reference()) is not None]
                )
            # Without a lock: if two threads create it, both arrays are equal.
            array = self._arrays[index] = self._create_array(self._selected_columns[index])
        return array

    def __iter__(self) -> Iterator[Array]:
        indices = range(len(self._selected_columns))
        if self._decompressor is not None:
            decompress_columns([(self, indices)])
        return map(self.__getitem__, indices)

    def _create_array(self, column: ColumnPositions) -> Array:
        header, decompressor = self.header, self._decompressor
        nodes, spans = self._read_nodes_and_buffers(column)
        if nodes[0] != header.length:
            raise self._column_error(column, f"expected {header.length} slots, the rows of the batch, found {nodes[0]}")
        for at in range(0, len(nodes), 2):
            if not 0 <= nodes[at + 1] <= nodes[at]:
                raise self._column_error(column, f"a node has {nodes[at]} slots and {nodes[at + 1]} nulls")
        if column.is_flat and decompressor is None and self.is_local:
            array = self._create_flat_array(column, nodes[0], nodes[1], spans)
        else:
            # Taken out, because from now on the array keeps them. A later thread decompresses them again.
            buffers = self._decompressed.pop(column.first_node, None)
            if buffers is None:
                buffers = self._locate_buffers(column, spans)
                if decompressor is not None:
                    with prefix_errors(self._describe_column(column)):
                        buffers = decompressor.decompress_column(buffers, column.first_node)
            array = _ArrayReader(self, column, nodes, buffers).read(column.layout)
        return Array.from_array_data(swap_byte_order(array, is_native=False)) if self.positions.is_big_endian else array

    def _read_nodes_and_buffers(self, column: ColumnPositions) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return lengths and null counts alternating, and offsets and sizes alternating."""
        header, template = self.header, self.header.template
        nodes = header.unpack_from(column.nodes, template.nodes_at + 16 * column.first_node)
        first_buffer, buffers = column.first_buffer, column.buffers
        if self.variadic:
            first_buffer += sum(self.variadic[: column.first_variadic])
            extra = sum(self._get_variadic_counts(column))
            if extra:
                buffers = struct.Struct(f"<{2 * (column.buffer_count + extra)}q")
        return nodes, header.unpack_from(buffers, template.buffers_at + 16 * first_buffer)

    def _locate_buffers(self, column: ColumnPositions, spans: tuple[int, ...]) -> list[Buffer]:
        """Return the column's buffers in the body, still compressed if it is."""
        return [self._get_buffer(column, offset, size) for offset, size in self._get_buffer_spans(column, spans)]

    def _get_buffer_spans(self, column: ColumnPositions, spans: tuple[int, ...]) -> list[tuple[int, int]]:
        """Return offset and size of each buffer. Raises `InvalidDataError` unless all are aligned and in the body."""
        limit, pairs = self.header.body_bytes, list(zip(spans[::2], spans[1::2], strict=True))
        for offset, size in pairs:
            if offset < 0 or size < 0 or offset + size > limit:
                raise self._column_error(column, f"a buffer of {size} bytes at byte {offset} of a body of {limit}")
            # Empty buffers may be anywhere. pyarrow rejects others, too: a damaged offset would lead to other values.
            if offset & 7 and size:
                raise self._column_error(column, f"a buffer at byte {offset} of the body, not at a multiple of 8")
        return pairs

    def _get_buffer(self, column: ColumnPositions, offset: int, size: int) -> Buffer:  # noqa: ARG002 -- for remote bodies
        """Return a buffer of a column, given its checked span."""
        body = self.body
        return Buffer(body.memory, body.offset + offset, size)

    def _create_flat_array(
        self, column: ColumnPositions, length: int, null_count: int, spans: tuple[int, ...]
    ) -> Array:
        """Create a column of validity and one or two buffers, the common case."""
        body, limit = self.body, self.header.body_bytes
        memory, base = body.memory, body.offset
        validity_at, validity_size, offset, size, *others = spans
        last, last_size = others or (0, 0)
        # Integers of Python, which do not overflow: the numbers are the peer's or the file's.
        if min(spans) < 0 or max(validity_at + validity_size, offset + size, last + last_size) > limit:
            raise self._column_error(column, f"buffers (offset, size, …) {spans} in a body of {limit} bytes")
        if (validity_at | offset | last) & 7:
            self._get_buffer_spans(column, spans)  # raises unless the buffer is empty
        validity = None
        if null_count:
            validity = self._get_checked_validity(
                column, length, null_count, Buffer(memory, base + validity_at, validity_size)
            )
        buffers = [validity, Buffer(memory, base + offset, size)]
        if others:
            buffers.append(Buffer(memory, base + last, last_size))
        return Array(column.layout, length, tuple(buffers), (), None, null_count)

    def _get_variadic_counts(self, column: ColumnPositions) -> tuple[int, ...]:
        return self.variadic[column.first_variadic : column.first_variadic + column.variadic_count]

    def _get_checked_validity(self, column: ColumnPositions, length: int, null_count: int, bits: Buffer) -> Buffer:
        if bits.size < bitmap.size_bytes(length):
            raise self._column_error(
                column, f"{null_count} of {length} slots are null, but the bitmap has {bits.size} bytes"
            )
        return bits

    def _column_error(self, column: ColumnPositions, problem: str) -> InvalidDataError:
        return InvalidDataError(f"{self._describe_column(column)}: {problem}")

    def _describe_column(self, column: ColumnPositions) -> str:
        """Return the name of a column in errors."""
        return f"{format_location(self.location)}, column {column.name!r}"


def create_batch(
    selection: ColumnSelection,
    header: BatchHeader,
    body: BodyLocation,
    dictionaries: DictionaryLookup,
    location: tuple[object, ...],
    columns_type: type[BatchColumns] = BatchColumns,
) -> RecordBatch:
    """Return a record batch whose selected columns are created on access. Raises `InvalidDataError` if the header does
    not match the schema or the body.
    """
    template = header.template
    positions, selected_columns = selection.get_selected_column_positions(template.version)
    columns = columns_type(positions, header, body, dictionaries, location, selected_columns)
    return RecordBatch.from_lazy_columns(selection.schema, header.length, columns, template.pairs)


def link_for_decompression(batches: Iterable[RecordBatch]) -> None:
    """Link the batches of a table: access to a column decompresses its part in all of them."""
    columns_of_batches = [batch.lazy_columns for batch in batches]
    compressed = [
        columns
        for columns in columns_of_batches
        if isinstance(columns, BatchColumns) and columns._decompressor is not None
    ]
    if len(compressed) > 1:
        # Weak, so that one batch does not keep the others of its table in memory.
        references = list(map(ref, compressed))
        for columns in compressed:
            columns._linked_batches = references


def decompress_columns(columns_of_batches: Iterable[tuple[BatchColumns, Iterable[int]]]) -> None:
    """Decompress columns of several batches with several threads, before they are created; errors are raised on
    creation.

    `columns_of_batches` are the batches with indices of their columns. Uncompressed batches are skipped.
    """
    targets: list[tuple[BatchColumns, int, int]] = []
    jobs: list[DecompressionJob] = []
    for columns, indices in columns_of_batches:
        decompressor = columns._decompressor
        if decompressor is None:
            continue
        for index in indices:
            column = columns._selected_columns[index]
            if column.first_node in columns._decompressed or index in columns._arrays:
                continue
            try:
                buffers = columns._locate_buffers(column, columns._read_nodes_and_buffers(column)[1])
                lengths = decompressor.read_uncompressed_lengths(buffers, column.first_node)
            except InvalidDataError:  # as below
                continue
            targets.append((columns, column.first_node, len(buffers)))
            jobs += [(decompressor, buffer, length) for buffer, length in zip(buffers, lengths, strict=True)]
    try:
        # An error belongs to one column, which raises it with its name when it is created.
        decompressed = iter(decompress_buffers(jobs))
    except InvalidDataError:
        return
    for columns, first_node, count in targets:
        columns._decompressed[first_node] = list(islice(decompressed, count))


class _ArrayReader:
    """Creates the array of a column: consumes its nodes, buffers, variadic counts and dictionaries in order, while the
    layouts are walked depth first.
    """

    __slots__ = ("_buffers", "_column", "_columns", "_dictionaries", "_nodes", "_variadic")

    def __init__(
        self, columns: BatchColumns, column: ColumnPositions, nodes: Sequence[int], buffers: Iterable[Buffer]
    ) -> None:
        self._columns = columns
        self._column = column
        self._nodes = iter(zip(nodes[::2], nodes[1::2], strict=True))
        self._buffers = iter(buffers)
        self._variadic = iter(columns._get_variadic_counts(column))
        self._dictionaries = iter(column.dictionaries)

    def read(self, layout: Layout) -> Array:
        columns = self._columns
        length, null_count = next(self._nodes)
        legacy_validity = next(self._buffers) if columns.positions.has_extra_validity(layout) else None
        buffers: list[Buffer | None] = []
        for spec in layout.buffers:
            buffer = next(self._buffers)
            if spec is layout.buffers[0] and layout.has_validity:
                buffers.append(
                    columns._get_checked_validity(self._column, length, null_count, buffer) if null_count else None
                )
            else:
                buffers.append(buffer)
        if layout.VARIADIC:
            buffers += islice(self._buffers, next(self._variadic))
        dictionary = (
            None if layout.dictionary is None else self._look_up_dictionary(layout.dictionary, length == null_count)
        )
        children = tuple([self.read(child) for child in layout.children])
        cached_null_count = null_count if layout.has_validity else -1
        array = Array(layout, length, tuple(buffers), children, dictionary, cached_null_count)
        if legacy_validity is None or not null_count:
            return array
        validity = columns._get_checked_validity(self._column, length, null_count, legacy_validity)
        return Array.from_array_data(self._move_legacy_nulls(array, validity))

    def _move_legacy_nulls(self, array: ArrayData, validity: Buffer) -> ArrayData:
        location = self._columns._describe_column(self._column)
        if not isinstance(array.layout.storage, UnionLayout):
            raise UnsupportedError(f"{location}: {array.type} of metadata version 4 with a validity bitmap")
        with prefix_errors(location):
            if not self._columns.positions.is_big_endian:
                return move_nulls_to_children(array, validity)
            native = move_nulls_to_children(swap_byte_order(array, is_native=False), validity)
            return swap_byte_order(native, is_native=True)  # the caller swaps the whole column

    def _look_up_dictionary(self, layout: Layout, may_be_missing: bool) -> Array:
        node = next(self._dictionaries)
        with prefix_errors(self._columns._describe_column(self._column)):
            dictionary = self._columns.dictionaries(node)
        if dictionary is not None:
            return dictionary if dictionary.layout is layout else dictionary.with_layout(layout)
        if not may_be_missing:
            raise self._columns._column_error(self._column, f"dictionary {node.id} has not been defined")
        return Array.from_array_data(layout.from_pylist([]))
