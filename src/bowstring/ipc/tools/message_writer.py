"""Write files and streams of existing messages («Encapsulated message format», «IPC File Format»).

A flatbuffer and a body do not depend on their position, so both are copied unchanged; only the framing, the schema and
the footer are new.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bowstring.datatypes.field import Metadata
from bowstring.flatbuf.reader import FlatTable
from bowstring.flatbuf.tables import DEFINITIONS, read_root
from bowstring.flatbuf.writer import SerializedSubTable, UnionValue, serialize_subtable
from bowstring.io.memory_source import MemorySource
from bowstring.io.sinks import Sink
from bowstring.ipc.codecs import create_compressor
from bowstring.ipc.message import END_OF_STREAM, FILE_START, Block, frame_message
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.field import DictionaryDeclaration
from bowstring.ipc.metadata.header import BatchHeaderBuilder, DictionaryHeader
from bowstring.ipc.record_batch.writer import EncodedBody, encode_body
from bowstring.ipc.tools.copy_byte_ranges import copy_memory
from bowstring.ipc.tools.scan import BatchMessage
from bowstring.ipc.write_options import DEFAULT_WRITE_OPTIONS, IpcWriteOptions
from bowstring.ipc.writers import encode_footer_and_trailer
from bowstring.layouts.base import ArrayData
from bowstring.layouts.registry import layout_of
from bowstring.memory.buffer import Buffer

ALIGNMENT_BYTES = 64
"""The alignment of messages and of the buffers of new bodies."""


def copy_schema_table(table: FlatTable) -> SerializedSubTable:
    """Serialize a `Schema` table for other flatbuffers, with its dictionary ids and features.

    Other readers reject nullable entries and keys of maps, and indices without a type, so these are written in full.

    The schema has been read before, so its depth is bounded. Raises `InvalidDataError` for malformed bytes.
    """
    return serialize_subtable(DEFINITIONS, table.definition.name, _table_to_record(table))


def _table_to_record(table: FlatTable) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for name in table.definition.slots:
        if not table.locate_slot(name):
            continue
        value = table[name]
        if isinstance(value, FlatTable):
            record[name] = UnionValue(value.definition.name, _table_to_record(value))
        elif isinstance(value, list):
            record[name] = [_table_to_record(child) for child in value]
        else:
            record[name] = value
    if isinstance(type_ := record.get("type"), UnionValue) and type_.definition == "Map":
        (entries,) = record["children"]
        entries["nullable"] = entries["children"][0]["nullable"] = False
    if table.definition.name == "DictionaryEncoding":
        record.setdefault("indexType", {"bitWidth": 32, "is_signed": True})
    return record


class MessageWriter:
    """Writes a file, or with `as_stream` a stream, message by message; `finish` completes it.

    `schema` is its `Schema` table, and `version` the metadata version of the footer.

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
    ) -> None:
        self._sink = sink
        self._schema = copy_schema_table(schema)
        self._version = version
        self._as_stream = as_stream
        self._missing_dictionaries = {declaration.id: declaration for declaration in dictionaries}
        self.blocks: dict[str, list[Block]] = {
            headers.DICTIONARY_BATCH: [],
            headers.RECORD_BATCH: [],
        }
        if not as_stream:
            sink.write([FILE_START], len(FILE_START))
        framed_metadata = frame_message(headers.build_schema_message(self._schema, version))
        sink.write([framed_metadata], len(framed_metadata))

    def write_dictionary(
        self,
        header: DictionaryHeader,
        values: ArrayData,
        options: IpcWriteOptions = DEFAULT_WRITE_OPTIONS,
        codec: str | None = None,
    ) -> None:
        """Write a new dictionary batch, compressed with `codec`. `options` has byte order and metadata version."""
        self._missing_dictionaries.pop(header.id, None)
        compress = None if codec is None else create_compressor(codec)
        body = encode_body(values.length, [values], ALIGNMENT_BYTES, options, compress)
        builder = BatchHeaderBuilder(self._version, codec)
        metadata = builder.build(body.header_values, body.size_bytes, (), header)
        self._write_message(headers.DICTIONARY_BATCH, metadata, body)

    def write_batch(self, template: headers.HeaderTemplate, body: EncodedBody) -> None:
        """Write a record batch with a new body, a multiple of 8 bytes, and otherwise the header of `template`."""
        if self._as_stream:
            self._write_empty_dictionaries()
        builder = BatchHeaderBuilder(template.version, template.compression)
        metadata = builder.build(body.header_values, body.size_bytes, template.pairs)
        self._write_message(headers.RECORD_BATCH, metadata, body)

    def _write_message(self, kind: str, metadata: bytes, body: EncodedBody) -> None:
        start = self._sink.position
        framed_metadata = frame_message(metadata, start, ALIGNMENT_BYTES)
        self._sink.write_message(framed_metadata, body.parts, body.size_bytes)
        self.blocks[kind].append((start, len(framed_metadata), body.size_bytes))

    def copy_message(self, message: BatchMessage, source: MemorySource | None) -> None:
        """Copy a message; `source` is the memory or file that contains it, None if it has a body of its own."""
        template, body_bytes = message.header.template, message.header.body_bytes
        if template.kind == headers.DICTIONARY_BATCH:
            self._missing_dictionaries.pop(template.dictionary_id, None)
        elif self._as_stream:
            self._write_empty_dictionaries()
        start, padding = self._sink.position, bytes(-body_bytes % 8)
        flatbuffer = _with_padded_body_length(message) if padding else message.read_flatbuffer()
        framed_metadata = frame_message(flatbuffer, start, ALIGNMENT_BYTES)
        self._sink.write([framed_metadata], len(framed_metadata))
        assert message.body is not None
        copy_memory(source, Buffer(message.body.memory, message.body.offset, body_bytes), self._sink)
        if padding:
            self._sink.write([padding], len(padding))
        self.blocks[template.kind].append((start, len(framed_metadata), body_bytes + len(padding)))

    def _write_empty_dictionaries(self) -> None:
        """Write the missing dictionaries, without values."""
        for declaration in list(self._missing_dictionaries.values()):
            self.write_dictionary(DictionaryHeader(declaration.id), layout_of(declaration.value_type).from_pylist([]))

    def finish(self, pairs: Metadata = ()) -> None:
        """Write the end marker, and the footer of a file with this custom metadata; the sink is finished."""
        if any(self.blocks.values()):
            self._write_empty_dictionaries()
        sink, parts = self._sink, [END_OF_STREAM]
        if not self._as_stream:
            parts += encode_footer_and_trailer(self._schema, self._version, self.blocks, pairs)
        sink.write(parts, sum(map(len, parts)))
        sink.finish()


def _with_padded_body_length(message: BatchMessage) -> bytes:
    """Return the message's metadata with the padding counted in the body length, as the next message of a stream begins
    there.
    """
    root = read_root("Message", message.read_flatbuffer(), message.location)
    at = root.locate_slot("bodyLength")
    out = bytearray(root.flatbuffer.raw)
    out[at : at + 8] = (message.header.body_bytes + -message.header.body_bytes % 8).to_bytes(8, "little")
    return bytes(out)
