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

from bowstring.datatypes.extension import ExtensionType
from bowstring.datatypes.types import DataType, Dictionary
from bowstring.errors import InvalidArgumentError, TypeMismatchError
from bowstring.ipc.codecs import create_compressor
from bowstring.ipc.metadata.field import DictionaryDeclaration
from bowstring.ipc.metadata.header import BatchHeaderBuilder, DictionaryHeader
from bowstring.ipc.metadata.schema import V4, IpcSchema
from bowstring.ipc.record_batch.writer import EncodedBody, encode_body
from bowstring.ipc.tools.scan import BatchMessage
from bowstring.ipc.write_options import IpcWriteOptions, MetadataVersion
from bowstring.kernels.unify_dictionaries import (
    iter_dictionary_arrays,
    merge_dictionaries,
    replace_dictionary,
    replace_dictionary_encoded_arrays,
)
from bowstring.layouts.base import ArrayData, Indices
from bowstring.layouts.equality import has_prefix
from bowstring.memory.buffer import Buffer

ALIGNMENT_BYTES = 64
ValuesFunction: TypeAlias = Callable[[], ArrayData]
"""Returns all values of a dictionary."""


@dataclass(frozen=True, slots=True)
class OutputDictionaryBatch:
    """A dictionary batch to write: a message to copy under this id, or new values."""

    dictionary_header: DictionaryHeader
    message: BatchMessage | None
    values: ArrayData | None = None


@dataclass(slots=True)
class _OutputDictionary:
    """The output's state of one dictionary: its messages, None for those encoded here, and its values."""

    messages: list[BatchMessage | None]
    values: ValuesFunction


class DictionaryMerger:
    """Tracks the dictionaries of the output and decides what to write for each source.

    `ipc_schema` is the output's schema.
    """

    def __init__(self, ipc_schema: IpcSchema, may_replace: bool) -> None:
        self._ipc_schema = ipc_schema
        self._may_replace = may_replace
        self._output_dictionaries: dict[int, _OutputDictionary] = {}
        self._index_maps: dict[int, Indices] = {}
        self._stale_ids: set[int] = set()  # ids of dictionaries that contain a replaced one
        self.has_replaced = False
        self._inner_ids = {
            id_: {inner.id for inner in flatten_declarations(declaration.nested)}
            for id_, declaration in ipc_schema.dictionaries_by_id.items()
        }
        self._ordered_ids = {
            declaration.id
            for field, declarations in zip(ipc_schema.schema.fields, ipc_schema.dictionaries, strict=True)
            for declaration, kind in zip(
                flatten_declarations(declarations), _find_dictionary_types(field.type), strict=True
            )
            if kind.ordered
        }
        self._column_names = {
            declaration.id: field.name
            for field, declarations in zip(ipc_schema.schema.fields, ipc_schema.dictionaries, strict=True)
            for declaration in flatten_declarations(declarations)
        }

    def merge(
        self, declaration: DictionaryDeclaration, messages: Sequence[BatchMessage], values: ValuesFunction
    ) -> list[OutputDictionaryBatch]:
        """Return the dictionary batches that make a source's dictionary available as `declaration`; `messages` are all
        messages that define it.

        Dictionaries inside it must be merged first. Raises `InvalidArgumentError` if a file would have to replace a
        dictionary that can't be unified, `InvalidDataError` for values that can't be read.
        """
        self._index_maps.pop(declaration.id, None)
        is_replacement = declaration.id in self._output_dictionaries
        batches = self._merge_messages(declaration, messages, values)
        if self._may_replace and declaration.nested and any(batch.dictionary_header.is_delta for batch in batches):
            return self._encode_all_values(declaration.id, values(), is_replacement)  # pyarrow can't read such a delta
        return batches

    def _merge_messages(
        self, declaration: DictionaryDeclaration, messages: Sequence[BatchMessage], values: ValuesFunction
    ) -> list[OutputDictionaryBatch]:
        output = self._output_dictionaries.get(declaration.id)
        if output is None:
            return self._reuse_messages(declaration.id, messages, values)
        # Equal messages are found without decoding values: sources often repeat a dictionary or extend it by deltas.
        common_count = _count_equal_leading(output.messages, messages)
        if declaration.id in self._stale_ids:
            return self._replace_or_unify(declaration.id, messages, values, "a dictionary inside it differs")
        if common_count == len(messages):
            return []
        if common_count == len(output.messages):
            self._output_dictionaries[declaration.id] = _OutputDictionary(list(messages), values)
            return [
                OutputDictionaryBatch(DictionaryHeader(declaration.id, True), message)
                for message in messages[common_count:]
            ]
        return self._merge_values(declaration.id, output, messages, values)

    def _reuse_messages(
        self, id_: int, messages: Sequence[BatchMessage], values: ValuesFunction
    ) -> list[OutputDictionaryBatch]:
        self._output_dictionaries[id_] = _OutputDictionary(list(messages), values)
        self._stale_ids.discard(id_)
        return [
            OutputDictionaryBatch(DictionaryHeader(id_, index > 0), message) for index, message in enumerate(messages)
        ]

    def _merge_values(
        self, id_: int, output: _OutputDictionary, messages: Sequence[BatchMessage], values: ValuesFunction
    ) -> list[OutputDictionaryBatch]:
        output_values, source_values = output.values(), values()
        for array in (output_values, source_values):
            array.validate(full=True)
        # If one dictionary begins with the other, indices stay valid, and at most a delta is written.
        common_length = min(output_values.length, source_values.length)
        if not has_prefix(
            *(
                (output_values, source_values)
                if common_length == source_values.length
                else (source_values, output_values)
            )
        ):
            return self._replace_or_unify(
                id_, messages, values, _describe_difference(output_values, source_values, common_length)
            )
        if source_values.length <= output_values.length:
            return []
        self._output_dictionaries[id_] = _OutputDictionary([*output.messages, None], lambda: source_values)
        return [OutputDictionaryBatch(DictionaryHeader(id_, True), None, source_values.slice(common_length))]

    def _replace_or_unify(
        self, id_: int, messages: Sequence[BatchMessage], values: ValuesFunction, reason: str
    ) -> list[OutputDictionaryBatch]:
        if self._may_replace:
            self._mark_replaced(id_)
            return self._reuse_messages(id_, messages, values)
        if id_ in self._ordered_ids:
            raise self._unreplaceable_error(
                id_, f"its ordered dictionary differs from that of earlier sources: {reason}"
            )
        # Unifying changes indices. Those into an inner dictionary are values of the outer one, which is not rewritten.
        if self._inner_ids[id_] or any(id_ in inner_ids for inner_ids in self._inner_ids.values()):
            raise self._unreplaceable_error(id_, f"its dictionary is nested and differs: {reason}")
        return self._extend_by_missing_values(id_, self._output_dictionaries[id_], values)

    def _mark_replaced(self, id_: int) -> None:
        # Readers resolve inner dictionaries when a batch is read: outer ones that were written for the old values must
        # be written again before they are used.
        self.has_replaced = True
        self._stale_ids |= {
            outer
            for outer, inner_ids in self._inner_ids.items()
            if id_ in inner_ids and outer in self._output_dictionaries
        }

    def _encode_all_values(self, id_: int, values: ArrayData, is_replacement: bool) -> list[OutputDictionaryBatch]:
        values.validate(full=True)
        if is_replacement:
            self._mark_replaced(id_)
        self._stale_ids.discard(id_)
        self._output_dictionaries[id_] = _OutputDictionary([None], lambda: values)
        return [OutputDictionaryBatch(DictionaryHeader(id_), None, values)]

    def _extend_by_missing_values(
        self, id_: int, output: _OutputDictionary, values: ValuesFunction
    ) -> list[OutputDictionaryBatch]:
        output_values = output.values()
        unified, (_, self._index_maps[id_]) = merge_dictionaries([output_values, values()])
        if unified.length == output_values.length:
            return []
        self._output_dictionaries[id_] = _OutputDictionary([*output.messages, None], lambda: unified)
        return [OutputDictionaryBatch(DictionaryHeader(id_, True), None, unified.slice(output_values.length))]

    def _unreplaceable_error(self, id_: int, reason: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"column {self._column_names[id_]!r}: {reason}. A file has one dictionary for all batches; a stream can "
            f"replace it: write a stream (as_stream=True, --to stream)"
        )

    def begin_source(self) -> None:
        """Begin another source, whose indices are not remapped yet."""
        self._index_maps.clear()

    def is_remapped(self, declarations: Sequence[DictionaryDeclaration]) -> bool:
        """Whether indices into one of these dictionaries are remapped."""
        return any(declaration.id in self._index_maps for declaration in declarations)

    def remap_indices(self, column: ArrayData, declarations: Sequence[DictionaryDeclaration]) -> ArrayData:
        """Return a column of the source with the output's indices; `declarations` are its dictionaries in the output.

        Raises `InvalidArgumentError` if the index type is too small, `InvalidDataError` for indices without a value.
        """
        parts = []
        for declaration, part in zip(declarations, iter_dictionary_arrays(column), strict=True):
            new_indices = self._index_maps.get(declaration.id)
            try:
                parts.append(
                    part
                    if new_indices is None
                    else replace_dictionary(part, self._output_dictionaries[declaration.id].values(), new_indices)
                )
            except TypeMismatchError as error:
                raise self._unreplaceable_error(
                    declaration.id, f"dictionaries differ and can't be unified: {error}"
                ) from None
        return replace_dictionary_encoded_arrays(column, iter(parts))

    def encode_batch(self, batch: OutputDictionaryBatch, version: int) -> tuple[bytes, EncodedBody, str | None]:
        """Return the flatbuffer, the body and its codec of a batch that can't be copied unchanged."""
        message = batch.message
        if message is not None:
            header = message.header
            body = message.body
            assert isinstance(body, Buffer)
            numbers, size_bytes = header.to_values(), header.body_bytes + -header.body_bytes % 8
            metadata = BatchHeaderBuilder(header.template.version, header.template.compression).build(
                numbers, size_bytes, header.template.pairs, batch.dictionary_header
            )
            parts = [body.bytes[: header.body_bytes].data, bytes(size_bytes - header.body_bytes)]
            return metadata, EncodedBody(numbers, parts, size_bytes), header.template.compression
        assert batch.values is not None
        name: MetadataVersion = "V4" if version == V4 else "V5"
        options = IpcWriteOptions("big" if self._ipc_schema.is_big_endian else "little", name)
        codec = self._get_dictionary_codec(batch.dictionary_header.id)
        flat = encode_body(
            batch.values.length,
            [batch.values],
            ALIGNMENT_BYTES,
            options,
            None if codec is None else create_compressor(codec),
        )
        builder = BatchHeaderBuilder(version, codec)
        return builder.build(flat.header_values, flat.size_bytes, (), batch.dictionary_header), flat, codec

    def _get_dictionary_codec(self, id_: int) -> str | None:
        first = self._output_dictionaries[id_].messages[0]
        return None if first is None else first.header.template.compression


def _find_dictionary_types(type_: DataType) -> list[Dictionary]:
    """The dictionary-encoded types in a type, in the order of `flatten_declarations`."""
    storage_type = type_.storage_type if isinstance(type_, ExtensionType) else type_
    if isinstance(storage_type, Dictionary):
        return [*_find_dictionary_types(storage_type.value_type), storage_type]
    return [encoded_type for field in storage_type.fields for encoded_type in _find_dictionary_types(field.type)]


def flatten_declarations(declarations: Sequence[DictionaryDeclaration]) -> list[DictionaryDeclaration]:
    """Return dictionaries and those inside them, inner ones first."""
    return [
        dictionary
        for declaration in declarations
        for dictionary in (*flatten_declarations(declaration.nested), declaration)
    ]


def _count_equal_leading(output_messages: Sequence[BatchMessage | None], messages: Sequence[BatchMessage]) -> int:
    """Return the number of equal messages at the beginning."""
    count = 0
    for output_message, message in zip(output_messages, messages, strict=False):
        if output_message is None or not _is_same_message(output_message, message):
            break
        count += 1
    return count


def _is_same_message(left: BatchMessage, right: BatchMessage) -> bool:
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
