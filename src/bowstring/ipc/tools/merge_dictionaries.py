"""Dictionaries of several files and streams in one («Dictionary Messages»): passed on as they are wherever they agree.

A dictionary that is there already, or begins like the one that is there, is not written again; one that goes on where
the other ends becomes a delta, unless others are inside it and it can be replaced. Where they differ a stream takes the
new one as a replacement. A file can't: there they are united, what is new becomes a delta, and the indices into the one
that came last are moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bowstring.compute.unify_dictionaries import (
    dictionary_arrays,
    merge_dictionaries,
    replace_dictionary_arrays,
    with_dictionary,
)
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.types import DataType, Dictionary
from bowstring.errors import DataTypeError, UsageError
from bowstring.ipc.codecs import compressor
from bowstring.ipc.metadata.header import BatchHeader, BatchNumbers, DictionaryHeader, HeaderWriter
from bowstring.ipc.metadata.schema import V4, DictionaryId, WireSchema
from bowstring.ipc.options import IpcWriteOptions, MetadataVersion
from bowstring.ipc.record_batch.writer import EncodedBody, encode_body
from bowstring.ipc.tools.scan import BatchSpan
from bowstring.layouts.array import Array
from bowstring.layouts.base import Indices
from bowstring.layouts.equality import has_prefix
from bowstring.memory.buffer import Buffer

ALIGNMENT_BYTES = 64
Values: TypeAlias = Callable[[], Array]
"""All values of a dictionary, made when they are asked for."""


@dataclass(frozen=True, slots=True)
class DictionaryBatch:
    """A dictionary batch to be written: a message that is passed on under this id, or values that were made now."""

    mark: DictionaryHeader
    span: BatchSpan | None
    values: Array | None = None


@dataclass(slots=True)
class _Held:
    """What is written of one dictionary: its messages, None for one that was made here, and its values."""

    chain: list[BatchSpan | None]
    values: Values


class DictionaryMerger:
    """What is written of each dictionary, and so what is due when the next source says what it has.

    `wire` is the schema of what is written.
    """

    def __init__(self, wire: WireSchema, may_replace: bool) -> None:
        self._wire = wire
        self._may_replace = may_replace
        self._held: dict[int, _Held] = {}
        self._moves: dict[int, Indices] = {}
        self._stale: set[int] = set()  # those in which a dictionary was replaced
        self.has_replaced = False
        self._inside = {
            id_: {node.id for node in dictionaries_inside_out(known.inside)} for id_, known in wire.by_id.items()
        }
        self._ordered = {
            node.id
            for field, nodes in zip(wire.schema.fields, wire.dictionaries, strict=True)
            for node, kind in zip(dictionaries_inside_out(nodes), _encoded(field.type), strict=True)
            if kind.ordered
        }
        self._names = {
            node.id: field.name
            for field, nodes in zip(wire.schema.fields, wire.dictionaries, strict=True)
            for node in dictionaries_inside_out(nodes)
        }

    def due(self, node: DictionaryId, chain: Sequence[BatchSpan], values: Values) -> list[DictionaryBatch]:
        """What to write so that a source's dictionary, all of whose messages are `chain`, is there as `node`.

        Dictionaries inside it come before it. Raises `UsageError` where a file would have to replace one and they can't
        be united, `InvalidDataError` for values that can't be read.
        """
        self._moves.pop(node.id, None)
        was_held = node.id in self._held
        due = self._due(node, chain, values)
        if self._may_replace and node.inside and any(one.mark.is_delta for one in due):
            return self._as_a_whole(node.id, values(), was_held)  # pyarrow reads no such delta
        return due

    def _due(self, node: DictionaryId, chain: Sequence[BatchSpan], values: Values) -> list[DictionaryBatch]:
        held = self._held.get(node.id)
        if held is None:
            return self._begin(node.id, chain, values)
        alike = _common(held.chain, chain)
        if node.id in self._stale:
            return self._replaced(node.id, chain, values, "a dictionary inside it differs")
        if alike == len(chain):
            return []
        if alike == len(held.chain):
            self._held[node.id] = _Held(list(chain), values)
            return [DictionaryBatch(DictionaryHeader(node.id, True), span) for span in chain[alike:]]
        return self._compared(node.id, held, chain, values)

    def _begin(self, id_: int, chain: Sequence[BatchSpan], values: Values) -> list[DictionaryBatch]:
        self._held[id_] = _Held(list(chain), values)
        self._stale.discard(id_)
        return [DictionaryBatch(DictionaryHeader(id_, index > 0), span) for index, span in enumerate(chain)]

    def _compared(self, id_: int, held: _Held, chain: Sequence[BatchSpan], values: Values) -> list[DictionaryBatch]:
        ours, theirs = held.values(), values()
        for array in (ours, theirs):
            array.validate(full=True)
        shared = min(ours.length, theirs.length)
        if not has_prefix(*((ours, theirs) if shared == theirs.length else (theirs, ours))):
            return self._replaced(id_, chain, values, _difference(ours, theirs, shared))
        if theirs.length <= ours.length:
            return []
        self._held[id_] = _Held([*held.chain, None], lambda: theirs)
        return [DictionaryBatch(DictionaryHeader(id_, True), None, theirs.slice(shared))]

    def _replaced(self, id_: int, chain: Sequence[BatchSpan], values: Values, why: str) -> list[DictionaryBatch]:
        if self._may_replace:
            self._note_replaced(id_)
            return self._begin(id_, chain, values)
        if id_ in self._ordered:
            raise self._refusal(id_, f"its dictionary is ordered, and differs from the one before: {why}")
        if self._inside[id_] or any(id_ in inside for inside in self._inside.values()):
            raise self._refusal(id_, f"its dictionary has one inside, or is in one, and differs: {why}")
        return self._united(id_, self._held[id_], values)

    def _note_replaced(self, id_: int) -> None:
        self.has_replaced = True
        self._stale |= {outer for outer, inside in self._inside.items() if id_ in inside and outer in self._held}

    def _as_a_whole(self, id_: int, values: Array, was_held: bool) -> list[DictionaryBatch]:
        values.validate(full=True)
        if was_held:
            self._note_replaced(id_)
        self._stale.discard(id_)
        self._held[id_] = _Held([None], lambda: values)
        return [DictionaryBatch(DictionaryHeader(id_), None, values)]

    def _united(self, id_: int, held: _Held, values: Values) -> list[DictionaryBatch]:
        ours = held.values()
        whole, (_, self._moves[id_]) = merge_dictionaries([ours, values()])
        if whole.length == ours.length:
            return []
        self._held[id_] = _Held([*held.chain, None], lambda: whole)
        return [DictionaryBatch(DictionaryHeader(id_, True), None, whole.slice(ours.length))]

    def _refusal(self, id_: int, why: str) -> UsageError:
        return UsageError(
            f"column {self._names[id_]!r}: {why}. A file holds one dictionary for all batches; a stream replaces it: "
            f"make one (as_stream=True, --to stream)"
        )

    def begin_source(self) -> None:
        """Another source begins: its indices are its own."""
        self._moves.clear()

    @property
    def has_moves(self) -> bool:
        """Whether indices into any of the source's dictionaries are others in what is written."""
        return bool(self._moves)

    def is_moved(self, nodes: Sequence[DictionaryId]) -> bool:
        """Whether indices into one of these dictionaries are others in what is written."""
        return any(node.id in self._moves for node in nodes)

    def moved(self, column: Array, nodes: Sequence[DictionaryId]) -> Array:
        """A column of the source with the indices that it has in what is written; `nodes` are its dictionaries there.

        Raises `UsageError` where the indices have no room for them, `InvalidDataError` for indices without a value.
        """
        parts = []
        for node, part in zip(nodes, dictionary_arrays(column), strict=True):
            places = self._moves.get(node.id)
            try:
                parts.append(part if places is None else with_dictionary(part, self._held[node.id].values(), places))
            except DataTypeError as error:
                raise self._refusal(node.id, f"dictionaries differ, and with the values of all {error}") from None
        return replace_dictionary_arrays(column, iter(parts))

    def message(self, due: DictionaryBatch, version: int) -> tuple[bytes, EncodedBody, str | None]:
        """The flatbuffer, the body and its codec, for what can't be passed on as it is."""
        span = due.span
        if span is not None:
            header = span.header
            body = span.body
            assert isinstance(body, Buffer)
            numbers, size_bytes = batch_numbers(header), header.body_bytes + -header.body_bytes % 8
            made = HeaderWriter(header.template.version, header.template.compression).write(
                numbers, size_bytes, header.template.pairs, due.mark
            )
            parts = [body.bytes[: header.body_bytes].data, bytes(size_bytes - header.body_bytes)]
            return made, EncodedBody(numbers, parts, size_bytes), header.template.compression
        assert due.values is not None
        name: MetadataVersion = "V4" if version == V4 else "V5"
        options = IpcWriteOptions("big" if self._wire.is_big_endian else "little", name)
        codec = self._codec(due.mark.id)
        flat = encode_body(
            due.values.length, [due.values], ALIGNMENT_BYTES, options, None if codec is None else compressor(codec)
        )
        writer = HeaderWriter(version, codec)
        return writer.write(flat.numbers, flat.size_bytes, (), due.mark), flat, codec

    def _codec(self, id_: int) -> str | None:
        first = self._held[id_].chain[0]
        return None if first is None else first.header.template.compression


def _encoded(type_: DataType) -> list[Dictionary]:
    """The dictionary-encoded types in a type, in the order of `dictionaries_inside_out`."""
    stored = type_.storage_type if isinstance(type_, ExtensionType) else type_
    if isinstance(stored, Dictionary):
        return [*_encoded(stored.value_type), stored]
    return [found for field in stored.fields for found in _encoded(field.type)]


def dictionaries_inside_out(nodes: Sequence[DictionaryId]) -> list[DictionaryId]:
    """Dictionaries and those inside them, inner ones first."""
    return [found for node in nodes for found in (*dictionaries_inside_out(node.inside), node)]


def batch_numbers(header: BatchHeader) -> BatchNumbers:
    """The numbers of a header, to be written into another."""
    return BatchNumbers(
        header.length,
        header.nodes().view(np.int64).reshape(-1, 2),
        header.buffers().view(np.int64).reshape(-1, 2),
        np.array(header.variadic_counts(), np.int64),
    )


def _common(held: Sequence[BatchSpan | None], chain: Sequence[BatchSpan]) -> int:
    """How many messages at the beginning are the same."""
    count = 0
    for ours, theirs in zip(held, chain, strict=False):
        if ours is None or not _same(ours, theirs):
            break
        count += 1
    return count


def _same(left: BatchSpan, right: BatchSpan) -> bool:
    if left is right:
        return True
    a, b = left.header, right.header
    if (a.length, a.body_bytes, a.template.compression) != (b.length, b.body_bytes, b.template.compression):
        return False
    if a.template.version != b.template.version or a.variadic_counts() != b.variadic_counts():
        return False
    if not (np.array_equal(a.nodes(), b.nodes()) and np.array_equal(a.buffers(), b.buffers())):
        return False
    assert isinstance(left.body, Buffer)
    assert isinstance(right.body, Buffer)
    return np.array_equal(left.body.bytes[: a.body_bytes], right.body.bytes[: b.body_bytes])


def _difference(ours: Array, theirs: Array, shared: int) -> str:
    """The first value that differs, in short."""
    for index, (left, right) in enumerate(
        zip(ours.slice(0, shared).to_pylist(), theirs.slice(0, shared).to_pylist(), strict=True)
    ):
        if left != right:
            return f"value {index} is {right!r:.40}, and was {left!r:.40}"
    return "its values are others"
