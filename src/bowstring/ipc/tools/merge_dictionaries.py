"""Merge the dictionaries of several files and streams («Dictionary Messages»), without re-encoding them where possible.

A dictionary that equals the output's, or is a prefix of it, is not written again. One that extends the output's becomes
a delta, unless it contains other dictionaries and can be replaced. If they differ, a stream takes the new one as a
replacement. A file can't: there the dictionaries are unified, new values become a delta, and the source's indices are
remapped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bowstring.compute.unify_dictionaries import (
    iter_dictionary_arrays,
    merge_dictionaries,
    replace_dictionary,
    replace_dictionary_arrays,
)
from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.types import DataType, Dictionary
from bowstring.errors import DataTypeError, UsageError
from bowstring.ipc.codecs import compressor
from bowstring.ipc.metadata.header import BatchHeader, DataHeader, DictionaryHeader, HeaderWriter
from bowstring.ipc.metadata.schema import V4, DictionaryId, WireSchema
from bowstring.ipc.record_batch.writer import EncodedBody, encode_body
from bowstring.ipc.tools.scan import BatchSpan
from bowstring.ipc.write_options import IpcWriteOptions, MetadataVersion
from bowstring.layouts.array_data import ArrayData
from bowstring.layouts.base import Indices
from bowstring.layouts.equality import has_prefix
from bowstring.memory.buffer import Buffer

ALIGNMENT_BYTES = 64
Values: TypeAlias = Callable[[], ArrayData]
"""Returns all values of a dictionary."""


@dataclass(frozen=True, slots=True)
class DictionaryBatch:
    """A dictionary batch to write: a message to copy under this id, or new values."""

    mark: DictionaryHeader
    span: BatchSpan | None
    values: ArrayData | None = None


@dataclass(slots=True)
class _OutputDictionary:
    """The output's state of one dictionary: its messages, None for those encoded here, and its values."""

    chain: list[BatchSpan | None]
    values: Values


class DictionaryMerger:
    """Tracks the dictionaries of the output and decides what to write for each source.

    `wire` is the output's schema.
    """

    def __init__(self, wire: WireSchema, may_replace: bool) -> None:
        self._wire = wire
        self._may_replace = may_replace
        self._output: dict[int, _OutputDictionary] = {}
        self._index_maps: dict[int, Indices] = {}
        self._stale: set[int] = set()  # ids of dictionaries that contain a replaced one
        self.has_replaced = False
        self._inner_ids = {
            id_: {inner.id for inner in flatten_inner_first(node.nested)} for id_, node in wire.by_id.items()
        }
        self._ordered = {
            node.id
            for field, nodes in zip(wire.schema.fields, wire.dictionaries, strict=True)
            for node, kind in zip(flatten_inner_first(nodes), _dictionary_types(field.type), strict=True)
            if kind.ordered
        }
        self._names = {
            node.id: field.name
            for field, nodes in zip(wire.schema.fields, wire.dictionaries, strict=True)
            for node in flatten_inner_first(nodes)
        }

    def merge(self, node: DictionaryId, chain: Sequence[BatchSpan], values: Values) -> list[DictionaryBatch]:
        """Return the dictionary batches that make a source's dictionary available as `node`; `chain` are all of its
        messages.

        Dictionaries inside it have to be merged first. Raises `UsageError` if a file would have to replace a dictionary
        that can't be unified, `InvalidDataError` for values that can't be read.
        """
        self._index_maps.pop(node.id, None)
        is_replacement = node.id in self._output
        batches = self._merge(node, chain, values)
        if self._may_replace and node.nested and any(batch.mark.is_delta for batch in batches):
            return self._write_whole(node.id, values(), is_replacement)  # pyarrow can't read such a delta
        return batches

    def _merge(self, node: DictionaryId, chain: Sequence[BatchSpan], values: Values) -> list[DictionaryBatch]:
        output = self._output.get(node.id)
        if output is None:
            return self._write_all(node.id, chain, values)
        common_count = _common_prefix_length(output.chain, chain)
        if node.id in self._stale:
            return self._replace(node.id, chain, values, "a dictionary inside it differs")
        if common_count == len(chain):
            return []
        if common_count == len(output.chain):
            self._output[node.id] = _OutputDictionary(list(chain), values)
            return [DictionaryBatch(DictionaryHeader(node.id, True), span) for span in chain[common_count:]]
        return self._merge_values(node.id, output, chain, values)

    def _write_all(self, id_: int, chain: Sequence[BatchSpan], values: Values) -> list[DictionaryBatch]:
        self._output[id_] = _OutputDictionary(list(chain), values)
        self._stale.discard(id_)
        return [DictionaryBatch(DictionaryHeader(id_, index > 0), span) for index, span in enumerate(chain)]

    def _merge_values(
        self, id_: int, output: _OutputDictionary, chain: Sequence[BatchSpan], values: Values
    ) -> list[DictionaryBatch]:
        output_values, source_values = output.values(), values()
        for array in (output_values, source_values):
            array.validate(full=True)
        common_length = min(output_values.length, source_values.length)
        if not has_prefix(
            *(
                (output_values, source_values)
                if common_length == source_values.length
                else (source_values, output_values)
            )
        ):
            return self._replace(id_, chain, values, _describe_difference(output_values, source_values, common_length))
        if source_values.length <= output_values.length:
            return []
        self._output[id_] = _OutputDictionary([*output.chain, None], lambda: source_values)
        return [DictionaryBatch(DictionaryHeader(id_, True), None, source_values.slice(common_length))]

    def _replace(self, id_: int, chain: Sequence[BatchSpan], values: Values, why: str) -> list[DictionaryBatch]:
        if self._may_replace:
            self._mark_replaced(id_)
            return self._write_all(id_, chain, values)
        if id_ in self._ordered:
            raise self._file_error(id_, f"its ordered dictionary differs from that of earlier sources: {why}")
        if self._inner_ids[id_] or any(id_ in inside for inside in self._inner_ids.values()):
            raise self._file_error(id_, f"its dictionary is nested and differs: {why}")
        return self._unify(id_, self._output[id_], values)

    def _mark_replaced(self, id_: int) -> None:
        self.has_replaced = True
        self._stale |= {outer for outer, inside in self._inner_ids.items() if id_ in inside and outer in self._output}

    def _write_whole(self, id_: int, values: ArrayData, is_replacement: bool) -> list[DictionaryBatch]:
        values.validate(full=True)
        if is_replacement:
            self._mark_replaced(id_)
        self._stale.discard(id_)
        self._output[id_] = _OutputDictionary([None], lambda: values)
        return [DictionaryBatch(DictionaryHeader(id_), None, values)]

    def _unify(self, id_: int, output: _OutputDictionary, values: Values) -> list[DictionaryBatch]:
        output_values = output.values()
        unified, (_, self._index_maps[id_]) = merge_dictionaries([output_values, values()])
        if unified.length == output_values.length:
            return []
        self._output[id_] = _OutputDictionary([*output.chain, None], lambda: unified)
        return [DictionaryBatch(DictionaryHeader(id_, True), None, unified.slice(output_values.length))]

    def _file_error(self, id_: int, why: str) -> UsageError:
        return UsageError(
            f"column {self._names[id_]!r}: {why}. A file has one dictionary for all batches; a stream can replace "
            f"it: write a stream (as_stream=True, --to stream)"
        )

    def begin_source(self) -> None:
        """Begin another source, whose indices are not remapped yet."""
        self._index_maps.clear()

    def is_remapped(self, nodes: Sequence[DictionaryId]) -> bool:
        """Whether indices into one of these dictionaries are remapped."""
        return any(node.id in self._index_maps for node in nodes)

    def remap_indices(self, column: ArrayData, nodes: Sequence[DictionaryId]) -> ArrayData:
        """Return a column of the source with the output's indices; `nodes` are its dictionaries in the output.

        Raises `UsageError` if the index type is too small, `InvalidDataError` for indices without a value.
        """
        parts = []
        for node, part in zip(nodes, iter_dictionary_arrays(column), strict=True):
            new_indices = self._index_maps.get(node.id)
            try:
                parts.append(
                    part
                    if new_indices is None
                    else replace_dictionary(part, self._output[node.id].values(), new_indices)
                )
            except DataTypeError as error:
                raise self._file_error(node.id, f"dictionaries differ and can't be unified: {error}") from None
        return replace_dictionary_arrays(column, iter(parts))

    def encode_batch(self, batch: DictionaryBatch, version: int) -> tuple[bytes, EncodedBody, str | None]:
        """Return the flatbuffer, the body and its codec of a batch that can't be copied unchanged."""
        span = batch.span
        if span is not None:
            header = span.header
            body = span.body
            assert isinstance(body, Buffer)
            numbers, size_bytes = read_data_header(header), header.body_bytes + -header.body_bytes % 8
            metadata = HeaderWriter(header.template.version, header.template.compression).write(
                numbers, size_bytes, header.template.pairs, batch.mark
            )
            parts = [body.bytes[: header.body_bytes].data, bytes(size_bytes - header.body_bytes)]
            return metadata, EncodedBody(numbers, parts, size_bytes), header.template.compression
        assert batch.values is not None
        name: MetadataVersion = "V4" if version == V4 else "V5"
        options = IpcWriteOptions("big" if self._wire.is_big_endian else "little", name)
        codec = self._codec(batch.mark.id)
        flat = encode_body(
            batch.values.length, [batch.values], ALIGNMENT_BYTES, options, None if codec is None else compressor(codec)
        )
        writer = HeaderWriter(version, codec)
        return writer.write(flat.data_header, flat.size_bytes, (), batch.mark), flat, codec

    def _codec(self, id_: int) -> str | None:
        first = self._output[id_].chain[0]
        return None if first is None else first.header.template.compression


def _dictionary_types(type_: DataType) -> list[Dictionary]:
    """The dictionary-encoded types in a type, in the order of `flatten_inner_first`."""
    storage_type = type_.storage_type if isinstance(type_, ExtensionType) else type_
    if isinstance(storage_type, Dictionary):
        return [*_dictionary_types(storage_type.value_type), storage_type]
    return [encoded_type for field in storage_type.fields for encoded_type in _dictionary_types(field.type)]


def flatten_inner_first(nodes: Sequence[DictionaryId]) -> list[DictionaryId]:
    """Return dictionaries and those inside them, inner ones first."""
    return [dictionary for node in nodes for dictionary in (*flatten_inner_first(node.nested), node)]


def read_data_header(header: BatchHeader) -> DataHeader:
    """Return the numbers of a header, to write into another one."""
    return DataHeader(
        header.length,
        header.nodes().view(np.int64).reshape(-1, 2),
        header.buffers().view(np.int64).reshape(-1, 2),
        np.array(header.variadic_counts(), np.int64),
    )


def _common_prefix_length(output_chain: Sequence[BatchSpan | None], chain: Sequence[BatchSpan]) -> int:
    """Return the number of equal messages at the beginning."""
    count = 0
    for output_span, span in zip(output_chain, chain, strict=False):
        if output_span is None or not _is_same_message(output_span, span):
            break
        count += 1
    return count


def _is_same_message(left: BatchSpan, right: BatchSpan) -> bool:
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


def _describe_difference(output_values: ArrayData, source_values: ArrayData, common_length: int) -> str:
    """Describe the first value that differs."""
    for index, (left, right) in enumerate(
        zip(
            output_values.slice(0, common_length).to_pylist(),
            source_values.slice(0, common_length).to_pylist(),
            strict=True,
        )
    ):
        if left != right:
            return f"value {index} is {right!r:.40}, expected {left!r:.40}"
    return "its values differ"
