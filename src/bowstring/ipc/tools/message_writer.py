"""Write files and streams of existing messages («Encapsulated message format», «IPC File Format»).

A flatbuffer and a body do not depend on their position, so both are copied unchanged; only the framing, the schema and
the footer are new. Adjacent messages are copied as one range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bowstring.datatypes.field import Metadata
from bowstring.flatbuf.reader import FlatTable
from bowstring.flatbuf.tables import SPECS, read_root
from bowstring.flatbuf.writer import SerializedSubTable, UnionValue, serialize_subtable
from bowstring.io.memory_source import MemorySource
from bowstring.io.sinks import RewritableSink, Sink
from bowstring.ipc.codecs import create_compressor
from bowstring.ipc.encoded_schema import COMPRESSED_BODY, DICTIONARY_REPLACEMENT
from bowstring.ipc.message import END_OF_STREAM, FILE_START, PREFIX_BYTES, Block, frame_message
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.field import DictionaryDeclaration
from bowstring.ipc.metadata.header import BatchHeaderBuilder, DictionaryHeader
from bowstring.ipc.record_batch.remote import RemoteBody
from bowstring.ipc.record_batch.writer import EncodedBody, encode_body
from bowstring.ipc.tools.copy_byte_ranges import copy_memory, copy_remote_body
from bowstring.ipc.tools.scan import BatchMessage
from bowstring.ipc.write_options import DEFAULT_WRITE_OPTIONS, IpcWriteOptions
from bowstring.ipc.writers import encode_footer_and_trailer
from bowstring.layouts.base import ArrayData
from bowstring.layouts.registry import layout_of
from bowstring.memory.buffer import Buffer

ALIGNMENT_BYTES = 64
"""The alignment of messages and of the buffers of new bodies."""
_FEATURES_OF_MESSAGES = {0, DICTIONARY_REPLACEMENT, COMPRESSED_BODY}


def copy_schema_table(table: FlatTable, features: Iterable[int] | None = None) -> SerializedSubTable:
    """Serialize a `Schema` table for other flatbuffers, with its dictionary ids, and with other `features` if given.

    Other readers reject nullable entries and keys of maps, and indices without a type, so these are written in full.

    The schema has been read before, so its depth is bounded. Raises `InvalidDataError` for malformed bytes.
    """
    record = _table_to_record(table)
    if features is not None:
        listed = sorted(features)
        record["features"] = np.array(listed, np.int64) if listed else None
    return serialize_subtable(SPECS, table.spec.name, record)


def _table_to_record(table: FlatTable) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for name in table.spec.slots:
        if not table.locate_slot(name):
            continue
        value = table[name]
        if isinstance(value, FlatTable):
            record[name] = UnionValue(value.spec.name, _table_to_record(value))
        elif isinstance(value, list):
            record[name] = [_table_to_record(child) for child in value]
        else:
            record[name] = value
    if isinstance(type_ := record.get("type"), UnionValue) and type_.spec == "Map":
        (entries,) = record["children"]
        entries["nullable"] = entries["children"][0]["nullable"] = False
    if table.spec.name == "DictionaryEncoding":
        record.setdefault("indexType", {"bitWidth": 32, "is_signed": True})
    return record


def get_preserved_features(schema: FlatTable) -> set[int]:
    """Return the features of a source's `Schema` table, except those that its messages show."""
    return set(schema["features"].tolist()) - _FEATURES_OF_MESSAGES


class MessageWriter:
    """Writes a file, or with `as_stream` a stream, message by message; `finish` completes it.

    `schema` is its `Schema` table, and `version` the metadata version of the footer. The schema message lists
    `features` if given, else those in use at the end, for which the sink has to be `RewritableSink`. The footer lists
    both.

    Other readers need each of the schema's `dictionaries`, in a stream before the first record batch, even if all
    indices are null. Missing ones are written without values.
    """

    def __init__(
        self,
        sink: Sink,
        schema: FlatTable,
        dictionaries: Iterable[DictionaryDeclaration],
        version: int,
        as_stream: bool = False,
        features: Iterable[int] | None = None,
    ) -> None:
        self.features = set(features or ())
        """The features in use so far."""
        self._sink = sink
        self._table = schema
        self._schema = copy_schema_table(schema, features)
        self._version = version
        self._as_stream = as_stream
        self._rewritable_sink = sink if features is None and isinstance(sink, RewritableSink) else None
        self._declared_features = set(schema["features"].tolist() if features is None else features)
        self._missing_dictionaries = {declaration.id: declaration for declaration in dictionaries}
        self.blocks: dict[str, list[Block]] = {
            headers.DICTIONARY_BATCH: [],
            headers.RECORD_BATCH: [],
        }
        if not as_stream:
            sink.write([FILE_START], len(FILE_START))
        self._schema_offset = sink.position
        self._schema_bytes = 0
        if self._rewritable_sink is not None:
            widest = copy_schema_table(schema, self._declared_features | _FEATURES_OF_MESSAGES)
            self._schema_bytes = len(frame_message(headers.build_schema_message(widest, version)))
        framed_metadata = self._frame_schema_message()
        sink.write([framed_metadata], len(framed_metadata))

    def _add_codec(self, codec: str | None) -> None:
        """Add the feature of a body compressed with this codec, if any."""
        if codec is not None:
            self.features.add(COMPRESSED_BODY)

    def _frame_schema_message(self) -> bytes:
        """Return the framed schema message, with reserved space for all features that may be added later."""
        flatbuffer = headers.build_schema_message(self._schema, self._version)
        return frame_message(flatbuffer + bytes(max(self._schema_bytes - PREFIX_BYTES - len(flatbuffer), 0)))

    def write_dictionary(
        self,
        header: DictionaryHeader,
        values: ArrayData,
        options: IpcWriteOptions = DEFAULT_WRITE_OPTIONS,
        codec: str | None = None,
    ) -> None:
        """Write a new dictionary batch, compressed with `codec`. `options` has byte order and metadata version."""
        if header.id not in self._missing_dictionaries and not header.is_delta:
            self.features.add(DICTIONARY_REPLACEMENT)
        self._missing_dictionaries.pop(header.id, None)
        compress = None if codec is None else create_compressor(codec)
        body = encode_body(values.length, [values], ALIGNMENT_BYTES, options, compress)
        builder = BatchHeaderBuilder(self._version, codec)
        metadata = builder.build(body.header_values, body.size_bytes, (), header)
        self._write_message(headers.DICTIONARY_BATCH, metadata, body, codec)

    def write_batch(self, metadata: bytes, body: EncodedBody, codec: str | None) -> None:
        """Write a new record batch, compressed with `codec`; its body is a multiple of 8 bytes."""
        if self._as_stream:
            self._write_empty_dictionaries()
        self._write_message(headers.RECORD_BATCH, metadata, body, codec)

    def _write_message(self, kind: str, metadata: bytes, body: EncodedBody, codec: str | None) -> None:
        self._add_codec(codec)
        start = self._sink.position
        framed_metadata = frame_message(metadata, start, ALIGNMENT_BYTES)
        self._sink.write_message(framed_metadata, body.parts, body.size_bytes)
        self.blocks[kind].append((start, len(framed_metadata), body.size_bytes))

    def copy_messages(self, messages: Sequence[BatchMessage], source: MemorySource | None) -> None:
        """Copy messages; `source` is the memory or file that contains them, None if each has its own body."""
        first = 0
        for index, message in enumerate(messages if self._missing_dictionaries else ()):
            template = message.header.template
            if template.kind == headers.DICTIONARY_BATCH:
                self._missing_dictionaries.pop(template.dictionary_id, None)
            elif self._as_stream:
                self._copy_runs(messages[first:index], source)
                first = index
                self._write_empty_dictionaries()
        self._copy_runs(messages[first:], source)

    def _write_empty_dictionaries(self) -> None:
        """Write the missing dictionaries, without values."""
        for declaration in list(self._missing_dictionaries.values()):
            self.write_dictionary(DictionaryHeader(declaration.id), layout_of(declaration.value_type).from_pylist([]))

    def _copy_runs(self, messages: Sequence[BatchMessage], source: MemorySource | None) -> None:
        for run in _group_contiguous(messages, source is not None):
            self._copy_run(run, source)

    def _copy_run(self, run: Sequence[BatchMessage], source: MemorySource | None) -> None:
        sink, first, last = self._sink, run[0], run[-1]
        skew = first.body_offset % ALIGNMENT_BYTES if len(run) > 1 else 0  # the others keep their alignment
        start = sink.position
        size_bytes = last.body_offset + last.header.body_bytes - first.body_offset
        padding = bytes(-size_bytes % 8)
        flatbuffer = _with_padded_body_length(first) if padding else first.read_flatbuffer()
        framed_metadata = frame_message(flatbuffer, start - skew, ALIGNMENT_BYTES)
        sink.write([framed_metadata], len(framed_metadata))
        shift = sink.position - first.body_offset
        assert first.body is not None
        if isinstance(first.body, RemoteBody):
            copy_remote_body(first.body, sink)
        else:
            copy_memory(source, Buffer(first.body.memory, first.body.offset, size_bytes), sink)
        if padding:
            sink.write([padding], len(padding))
        for message in run:
            self._add_codec(message.header.template.compression)
            at = start if message is first else message.start + shift
            body_bytes = message.header.body_bytes + len(padding)
            self.blocks[message.header.template.kind].append((at, message.body_offset + shift - at, body_bytes))

    def finish(self, pairs: Metadata = ()) -> None:
        """Write the end marker, and the footer of a file with this custom metadata; the sink is finished."""
        if any(self.blocks.values()):
            self._write_empty_dictionaries()
        self._update_features()
        sink, parts = self._sink, [END_OF_STREAM]
        if not self._as_stream:
            parts += encode_footer_and_trailer(self._schema, self._version, self.blocks, pairs)
        sink.write(parts, sum(map(len, parts)))
        sink.finish()

    def _update_features(self) -> None:
        """List the features in use in the footer and, if the sink can be rewritten, in the schema message."""
        if self._declared_features != self.features:
            self._schema = copy_schema_table(self._table, self.features)
            if self._rewritable_sink is not None:
                self._rewritable_sink.overwrite(self._schema_offset, self._frame_schema_message())


def _with_padded_body_length(message: BatchMessage) -> bytes:
    """Return the message's metadata with the padding counted in the body length, as the next message of a stream begins
    there.
    """
    root = read_root("Message", message.read_flatbuffer(), message.location)
    at = root.locate_slot("bodyLength")
    out = bytearray(root.flatbuffer.raw)
    out[at : at + 8] = (message.header.body_bytes + -message.header.body_bytes % 8).to_bytes(8, "little")
    return bytes(out)


def _group_contiguous(messages: Sequence[BatchMessage], is_one_memory: bool) -> Iterator[list[BatchMessage]]:
    """Group adjacent messages if the bytes between their bodies can stay unchanged."""
    run: list[BatchMessage] = []
    for message in messages:
        if run and not (is_one_memory and _is_adjacent(run[-1], message)):
            yield run
            run = []
        run.append(message)
    if run:
        yield run


def _is_adjacent(before: BatchMessage, message: BatchMessage) -> bool:
    return (
        message.start == before.body_offset + before.header.body_bytes
        and before.body_offset % 8 == 0
        and message.start % 8 == 0
        and message.body_offset % 8 == 0
        and message.header.body_bytes % 8 == 0
        and message.has_valid_stream_framing()
    )
