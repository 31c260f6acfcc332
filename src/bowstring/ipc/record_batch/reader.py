"""Bodies, read («RecordBatch message», «Variadic buffers»): the walk from field nodes and buffers to arrays.

It follows the layouts' declaration, depth first. A column is made when it is asked for, without a look at the others.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol, TypeAlias, overload
from weakref import ReferenceType, ref

from bowstring.errors import InvalidDataError, UnsupportedError
from bowstring.ipc.metadata.header import BatchHeader
from bowstring.ipc.metadata.schema import DictionaryId
from bowstring.ipc.record_batch.byte_order import swap_byte_order
from bowstring.ipc.record_batch.compression import BodyDecompressor, DecompressionJob, decompress_buffers
from bowstring.ipc.record_batch.legacy_unions import move_nulls_to_children
from bowstring.ipc.record_batch.plan import ColumnPlan, SchemaPlan
from bowstring.layouts.array import Array
from bowstring.layouts.base import Layout, error_context
from bowstring.layouts.union import UnionLayout
from bowstring.memory import bitmap
from bowstring.memory.buffer import Buffer, Memory

DictionaryLookup: TypeAlias = Callable[[DictionaryId], Array | None]
"""Gives the dictionary as of a batch; None where it has not been defined."""


class BodyLocation(Protocol):
    """Where a body is: a `Buffer`, or something like it for one that is not here."""

    @property
    def memory(self) -> Memory:
        """What holds its bytes; nothing does where they are not here."""

    @property
    def offset(self) -> int:
        """Its first byte."""

    @property
    def size(self) -> int:
        """Its length in bytes."""


class BatchColumns(Sequence[Array]):
    """The columns of a record batch that lies in a body; each is checked and made when it is first asked for, without
    copying.

    `selection` are the positions of the wanted columns in the schema. Asking raises `InvalidDataError` where nodes or
    buffers do not fit the column or the body.
    """

    __slots__ = (
        "__weakref__",
        "_beside",
        "_made",
        "_plans",
        "_unpacked",
        "_unpacking",
        "body_at",
        "dictionaries",
        "header",
        "memory",
        "plan",
        "variadic",
        "where",
    )

    def __init__(
        self,
        plan: SchemaPlan,
        header: BatchHeader,
        body: BodyLocation,
        dictionaries: DictionaryLookup,
        where: tuple[object, ...],
        selection: Sequence[ColumnPlan] | None = None,
    ) -> None:
        template = header.template
        self.variadic: tuple[int, ...] = ()
        if template.variadic_count or plan.variadic_count:
            self.variadic = _checked_variadic(plan, header, where)
        buffer_count = plan.buffer_count + sum(self.variadic)
        if template.node_count != plan.node_count or template.buffer_count != buffer_count:
            raise InvalidDataError(
                f"{_text(where)}: expected {plan.node_count} nodes and {buffer_count} buffers for its schema, found "
                f"{template.node_count} and {template.buffer_count}"
            )
        if header.body_bytes > body.size:
            raise InvalidDataError(f"{_text(where)}: expected a body of {header.body_bytes} bytes, found {body.size}")
        self.plan = plan
        self.header = header
        self._lie_in(body)
        self.dictionaries = dictionaries
        self.where = where
        self._plans: Sequence[ColumnPlan] = plan if selection is None else selection
        self._made: dict[int, Array] | None = None
        self._unpacking: BodyDecompressor | None = None
        self._unpacked: dict[int, list[Buffer]] = {}
        self._beside: Sequence[ReferenceType[BatchColumns]] = ()
        if template.compression is not None:
            self._unpacking = BodyDecompressor(template.compression, header.body_bytes, plan.wire.limits)

    def _lie_in(self, body: BodyLocation) -> None:
        """Have the place of the body."""
        self.memory = body.memory
        self.body_at = body.offset

    @property
    def has_all_columns(self) -> bool:
        """Whether these are all columns of the schema, in its order."""
        return self._plans is self.plan

    def __len__(self) -> int:
        return len(self._plans)

    @overload
    def __getitem__(self, index: int) -> Array: ...
    @overload
    def __getitem__(self, index: slice) -> list[Array]: ...
    def __getitem__(self, index: int | slice) -> Array | list[Array]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self._plans)))]
        held = self._made
        if held is None:
            held = self._made = {}
        made = held.get(index)
        if made is None:
            if not 0 <= index < len(self._plans):
                if not -len(self._plans) <= index < 0:
                    raise IndexError(f"column {index} of {len(self._plans)}")
                return self[index + len(self._plans)]
            if self._beside and self._plans[index].first_node not in self._unpacked:
                decompress_columns([(columns, (index,)) for other in self._beside if (columns := other()) is not None])
            made = held[index] = self._make(self._plans[index])
        return made

    def __iter__(self) -> Iterator[Array]:
        every = range(len(self._plans))
        decompress_columns([(self, every)])
        return map(self.__getitem__, every)

    def _make(self, column: ColumnPlan) -> Array:
        header, unpacking = self.header, self._unpacking
        nodes, spans = self._numbers(column)
        if nodes[0] != header.length:
            raise self._error(column, f"{nodes[0]} slots in a batch of {header.length} rows")
        if column.is_flat and unpacking is None:
            array = self._flat(column, nodes[0], nodes[1], spans)
        else:
            for length, null_count in zip(nodes[::2], nodes[1::2], strict=True):
                if not 0 <= null_count <= length:
                    raise self._error(column, f"a node of {length} slots, {null_count} of them null")
            buffers = self._unpacked.pop(column.first_node, None)
            if buffers is None:
                buffers = self._buffers(column, spans)
                if unpacking is not None:
                    try:
                        buffers = unpacking.all(buffers, column.first_node)
                    except InvalidDataError as error:
                        raise type(error)(f"{_text(self.where)}, column {column.name!r}: {error}") from None
            array = _Walk(self, column, nodes, buffers).array(column.layout)
        return swap_byte_order(array, is_native=False) if self.plan.wire.is_big_endian else array

    def _numbers(self, column: ColumnPlan) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Lengths and null counts, offsets and sizes, in turn."""
        header, template = self.header, self.header.template
        nodes = header.unpack(column.nodes, template.nodes_at + 16 * column.first_node)
        first_buffer, buffers = column.first_buffer, column.buffers
        if self.variadic:
            first_buffer += sum(self.variadic[: column.first_variadic])
            extra = sum(self._own_variadic(column))
            if extra:
                buffers = struct.Struct(f"<{2 * (column.buffer_count + extra)}q")
        return nodes, header.unpack(buffers, template.buffers_at + 16 * first_buffer)

    def _buffers(self, column: ColumnPlan, spans: tuple[int, ...]) -> list[Buffer]:
        """The stretches of the body, compressed where it is."""
        limit, memory, base = self.header.body_bytes, self.memory, self.body_at
        out = []
        for offset, size in zip(spans[::2], spans[1::2], strict=True):
            if offset < 0 or size < 0 or offset + size > limit:
                raise self._error(column, f"a buffer of {size} bytes at byte {offset} of a body of {limit}")
            out.append(Buffer(memory, base + offset, size))
        return out

    def _flat(self, column: ColumnPlan, length: int, null_count: int, spans: tuple[int, ...]) -> Array:
        """A column of validity and one or two buffers, the frequent case."""
        memory, base, limit = self.memory, self.body_at, self.header.body_bytes
        if not 0 <= null_count <= length:
            raise self._error(column, f"a node of {length} slots, {null_count} of them null")
        validity_at, validity_size, offset, size, *rest = spans
        worst = max(validity_at + validity_size, offset + size)
        least = min(spans)
        second: tuple[Buffer, ...] = ()
        if rest:
            last, last_size = rest
            worst = max(worst, last + last_size)
            second = (Buffer(memory, base + last, last_size),)
        if least < 0 or worst > limit:
            raise self._error(column, f"buffers (offset, size, …) {spans} in a body of {limit} bytes")
        validity = None
        if null_count:
            validity = self._validity(column, length, null_count, Buffer(memory, base + validity_at, validity_size))
        return Array(
            column.layout, length, (validity, Buffer(memory, base + offset, size), *second), (), None, null_count
        )

    def _own_variadic(self, column: ColumnPlan) -> tuple[int, ...]:
        return self.variadic[column.first_variadic : column.first_variadic + column.variadic_count]

    def _validity(self, column: ColumnPlan, length: int, null_count: int, bits: Buffer) -> Buffer:
        if bits.size < bitmap.size_bytes(length):
            raise self._error(column, f"{null_count} of {length} slots are null, but the bitmap has {bits.size} bytes")
        return bits

    def _error(self, column: ColumnPlan, problem: str) -> InvalidDataError:
        return InvalidDataError(f"{_text(self.where)}, column {column.name!r}: {problem}")


def link_batches(every: Iterable[Sequence[Array]]) -> None:
    """Columns of batches that make one table: where one is asked for, its part in all of them is decompressed."""
    refs = [ref(columns) for columns in every if isinstance(columns, BatchColumns) and columns._unpacking is not None]
    for held in refs:
        columns = held()
        if columns is not None and len(refs) > 1:
            columns._beside = refs


def decompress_columns(wanted: Iterable[tuple[BatchColumns, Iterable[int]]]) -> None:
    """Decompress columns of batches by several threads, for when they are made; what is wrong is told then.

    `wanted` are positions of columns in each batch. Where nothing is compressed, nothing is done.
    """
    places: list[tuple[BatchColumns, int, int]] = []
    jobs: list[DecompressionJob] = []
    for columns, positions in wanted:
        unpacking = columns._unpacking
        if unpacking is None:
            continue
        for index in positions:
            column = columns._plans[index]
            if column.first_node in columns._unpacked or (columns._made and index in columns._made):
                continue
            try:
                found = columns._buffers(column, columns._numbers(column)[1])
                claims = unpacking.claims(found, column.first_node)
            except InvalidDataError:
                continue
            places.append((columns, column.first_node, len(found)))
            jobs += [(unpacking, buffer, claim) for buffer, claim in zip(found, claims, strict=True)]
    try:
        done = iter(decompress_buffers(jobs))
    except InvalidDataError:
        return
    for columns, first_node, count in places:
        columns._unpacked[first_node] = list(islice(done, count))


class _Walk:
    """Takes nodes, buffers, variadic counts and dictionaries in order while the layouts are walked depth first."""

    __slots__ = ("_buffers", "_column", "_columns", "_dictionaries", "_nodes", "_variadic")

    def __init__(
        self, columns: BatchColumns, column: ColumnPlan, nodes: Sequence[int], buffers: Iterable[Buffer]
    ) -> None:
        self._columns = columns
        self._column = column
        self._nodes = iter(zip(nodes[::2], nodes[1::2], strict=True))
        self._buffers = iter(buffers)
        self._variadic = iter(columns._own_variadic(column))
        self._dictionaries = iter(column.dictionaries)

    def array(self, layout: Layout) -> Array:
        columns = self._columns
        length, null_count = next(self._nodes)
        legacy_validity = next(self._buffers) if columns.plan.has_extra_validity(layout) else None
        buffers: list[Buffer | None] = []
        for spec in layout.buffers:
            buffer = next(self._buffers)
            if spec is layout.buffers[0] and layout.has_validity:
                buffers.append(columns._validity(self._column, length, null_count, buffer) if null_count else None)
            else:
                buffers.append(buffer)
        if layout.VARIADIC:
            buffers += islice(self._buffers, next(self._variadic))
        dictionary = None if layout.dictionary is None else self._dictionary(layout.dictionary, length == null_count)
        children = tuple([self.array(child) for child in layout.children])
        known = null_count if layout.has_validity else -1
        array = Array(layout, length, tuple(buffers), children, dictionary, known)
        if legacy_validity is None or not null_count:
            return array
        return self._with_legacy_nulls(array, columns._validity(self._column, length, null_count, legacy_validity))

    def _with_legacy_nulls(self, array: Array, validity: Buffer) -> Array:
        where = f"{_text(self._columns.where)}, column {self._column.name!r}"
        if not isinstance(array.layout.storage, UnionLayout):
            raise UnsupportedError(f"{where}: {array.type} of metadata version 4 with nulls of its own")
        with error_context(where):
            if not self._columns.plan.wire.is_big_endian:
                return move_nulls_to_children(array, validity)
            native = move_nulls_to_children(swap_byte_order(array, is_native=False), validity)
            return swap_byte_order(native, is_native=True)  # the whole column is turned round in the end

    def _dictionary(self, layout: Layout, may_be_missing: bool) -> Array:
        node = next(self._dictionaries)
        try:
            found = self._columns.dictionaries(node)
        except InvalidDataError as error:
            raise type(error)(f"{_text(self._columns.where)}, column {self._column.name!r}: {error}") from None
        if found is not None:
            return found if found.layout is layout else found.with_layout(layout)
        if not may_be_missing:
            raise self._columns._error(self._column, f"dictionary {node.id} has not been defined")
        return layout.build([])


def _checked_variadic(plan: SchemaPlan, header: BatchHeader, where: tuple[object, ...]) -> tuple[int, ...]:
    counts = header.variadic_counts()
    if len(counts) != plan.variadic_count:
        raise InvalidDataError(f"{_text(where)}: expected {plan.variadic_count} variadic counts, found {len(counts)}")
    if any(not 0 <= n <= header.template.buffer_count for n in counts):
        raise InvalidDataError(f"{_text(where)}: variadic counts {counts} of {header.template.buffer_count} buffers")
    return counts


def _text(where: tuple[object, ...]) -> str:
    return " ".join(map(str, where))
