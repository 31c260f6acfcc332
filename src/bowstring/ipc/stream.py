"""The streaming format («IPC Streaming Format»): a sans-IO encoder and decoder, and the stream reader.

`Encoder` encodes batches as `EncodedMessage`s: a flatbuffer and the parts of a body. `Decoder` decodes flatbuffers and
bodies. Neither adds or expects framing, so the dissociated protocol uses both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bowstring.arrays.record_batch import RecordBatch, filter_batches
from bowstring.arrays.table import Table
from bowstring.datatypes.extension import NAME_KEY
from bowstring.datatypes.field import Field, Metadata
from bowstring.datatypes.schema import Schema, SchemaLike, as_schema
from bowstring.display.objects import source_to_html
from bowstring.errors import InvalidArgumentError, InvalidDataError, TruncatedError, add_location
from bowstring.interop import c_data
from bowstring.io.sources import AnySource
from bowstring.ipc.codecs import create_compressor
from bowstring.ipc.dictionaries.reader import StreamDictionaries
from bowstring.ipc.dictionaries.tracker import DictionaryTracker, assign_shared_ids
from bowstring.ipc.encoded_schema import EncodedSchema, encode_schema
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.message import EndOfStream, Message, MessageCounts, MessageLocation
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.header import BatchHeader, BatchHeaderBuilder, DictionaryHeader, HeaderReader
from bowstring.ipc.metadata.schema import ColumnSelection
from bowstring.ipc.record_batch.reader import create_batch, link_for_decompression
from bowstring.ipc.record_batch.writer import EncodedBody, encode_body
from bowstring.ipc.schema_cache import get_ipc_schema
from bowstring.ipc.sequential_reader import SequentialReader
from bowstring.ipc.write_options import DEFAULT_WRITE_OPTIONS, IpcWriteOptions
from bowstring.kernels.filters import FiltersLike, parse_filters
from bowstring.layouts.base import ArrayData
from bowstring.memory.buffer import EMPTY, Buffer
from bowstring.memory.closable import call_on_error


@dataclass(frozen=True, slots=True)
class EncodedMessage:
    """A message: its flatbuffer (a multiple of 8 bytes), and the parts of its body, padding included.

    The parts are objects with the buffer protocol that share the arrays' memory; together they are `body_bytes` long.
    """

    kind: str
    metadata: bytes
    parts: Sequence[Any]
    body_bytes: int


def schema_mismatch_error(batch: RecordBatch, schema: Schema) -> InvalidArgumentError:
    """The error for a batch of another schema than the written one."""
    return InvalidArgumentError(f"a batch of another schema: expected {schema!r}, found {batch.schema!r}")


def check_column(column: ArrayData, field: Field, num_rows: int) -> None:
    """Raise `InvalidArgumentError` unless a column of a batch has the field's type and the rows of the batch."""
    if column.type != field.type:
        raise InvalidArgumentError(f"column {field.name!r} has type {column.type}, expected {field.type}")
    if column.length != num_rows:
        raise InvalidArgumentError(f"column {field.name!r} has {column.length} values in a batch of {num_rows} rows")


class Encoder:
    """Encodes batches of one schema as messages; does no I/O.

    Buffers begin at multiples of `alignment` bytes in a body: 8, 16, 32 or 64. A dictionary is encoded before the first
    batch that uses it, as a delta before a batch that extends it, and as a whole if it changed, which without
    `may_replace` raises `InvalidArgumentError`.
    """

    def __init__(
        self,
        schema: SchemaLike,
        alignment: int = 64,
        may_replace: bool = True,
        options: IpcWriteOptions = DEFAULT_WRITE_OPTIONS,
    ) -> None:
        if alignment not in (8, 16, 32, 64):
            raise InvalidArgumentError(f"alignment is 8, 16, 32 or 64 bytes, not {alignment!r}")
        schema = as_schema(schema, "the schema to write")
        self.schema = schema
        self.alignment = alignment
        self.options = options
        self._may_replace = may_replace
        encoded = encode_schema(schema, options)
        self._set_schema(encoded)
        self._layouts = encoded.layouts
        self._flat_columns_encoder = (
            None if options.compression or options.is_big_endian else encoded.flat_columns_encoder
        )
        self.may_share_dictionaries = (
            options.share_dictionaries and not options.unify_dictionaries and encoded.can_share_dictionaries
        )
        """Whether fields that share a dictionary in the first batch may share its id."""
        self._headers = BatchHeaderBuilder(options.metadata_version_number, options.compression)
        self._compress = (
            None if options.compression is None else create_compressor(options.compression, options.compression_level)
        )

    def _set_schema(self, encoded: EncodedSchema) -> None:
        self.ipc_schema, self.schema_table = encoded.ipc_schema, encoded.table
        self._dictionaries = (
            DictionaryTracker(self.ipc_schema, self.options, self._may_replace)
            if self.ipc_schema.dictionaries_by_id
            else None
        )

    def assign_shared_dictionary_ids(self, batch: RecordBatch) -> None:
        """Give one dictionary id to fields whose dictionaries in the first batch are the same memory.

        Call it before `encode_schema_message`. Raises `InvalidArgumentError` for a batch of another schema.
        """
        if batch.schema != self.schema:
            raise schema_mismatch_error(batch, self.schema)
        if self.may_share_dictionaries:
            ids = tuple(assign_shared_ids(self.ipc_schema, batch.columns))
            self._set_schema(encode_schema(self.schema, self.options, ids if len(set(ids)) < len(ids) else None))

    def resume(self, encoded: EncodedSchema, dictionaries: Mapping[int, ArrayData]) -> None:
        """Continue after another encoder: with its schema's table and dictionary ids, and the dictionaries that it has
        written, by id.
        """
        self._set_schema(encoded)
        self.may_share_dictionaries = False
        if self._dictionaries is not None:
            self._dictionaries.register_written(dictionaries)

    def encode_schema_message(self) -> EncodedMessage:
        """Return the schema message, the first of a stream."""
        return EncodedMessage(
            headers.SCHEMA, headers.build_schema_message(self.schema_table, self.options.metadata_version_number), [], 0
        )

    def encode_batch(self, batch: RecordBatch) -> list[EncodedMessage]:
        """Return the messages of a batch: new dictionaries and deltas, then the batch.

        Raises `InvalidArgumentError` for another schema.
        """
        if batch.schema is not self.schema and batch.schema != self.schema:
            raise schema_mismatch_error(batch, self.schema)
        # From the numbers in the header, if the batch was read: none of its columns is created.
        body = (
            None
            if self._flat_columns_encoder is None
            else self._flat_columns_encoder.encode(batch.lazy_columns, self.alignment)
        )
        if body is not None and body.header_values.length == batch.num_rows:
            return [self._create_message(body, batch.pairs, None)]
        columns = batch.columns
        for field, layout, column in zip(self.schema.fields, self._layouts, columns, strict=True):
            if column.layout is not layout or column.length != batch.num_rows:
                check_column(column, field, batch.num_rows)
        if self._dictionaries is None:
            return [self._encode_message(batch.num_rows, columns, batch.pairs, None)]
        prepared_batch = self._dictionaries.prepare_batch(columns)
        messages = [
            self._encode_message(values.length, [values], (), dictionary_header)
            for dictionary_header, values in prepared_batch.dictionary_batches
        ]
        changed = prepared_batch.changed_columns
        indexed = [changed.get(index, column) for index, column in enumerate(columns)] if changed else columns
        messages.append(self._encode_message(batch.num_rows, indexed, batch.pairs, None))
        # Only now: after an error of the encoding, readers do not have the dictionaries.
        self._dictionaries.commit(prepared_batch)
        return messages

    def _encode_message(
        self, length: int, arrays: Sequence[ArrayData], pairs: Metadata, dictionary_header: DictionaryHeader | None
    ) -> EncodedMessage:
        try:
            body = encode_body(length, arrays, self.alignment, self.options, self._compress)
        except InvalidDataError as error:
            raise error if dictionary_header is not None else self._add_column_name(error, arrays) from None
        return self._create_message(body, pairs, dictionary_header)

    def _add_column_name(self, error: InvalidDataError, columns: Sequence[ArrayData]) -> InvalidDataError:
        """Add the name of the first malformed column to an error."""
        for field, column in zip(self.schema.fields, columns, strict=True):
            try:
                column.layout.compact(column)
            except InvalidDataError:
                return add_location(error, f"column {field.name!r}")
        return error

    def _create_message(
        self, body: EncodedBody, pairs: Metadata, dictionary_header: DictionaryHeader | None
    ) -> EncodedMessage:
        metadata = self._headers.build(body.header_values, body.size_bytes, pairs, dictionary_header)
        kind = headers.RECORD_BATCH if dictionary_header is None else headers.DICTIONARY_BATCH
        return EncodedMessage(kind, metadata, body.parts, body.size_bytes)


class Decoder:
    """Decodes messages to batches; does no I/O.

    Call `decode_header` with the flatbuffer of each message, then `decode_body` with its body, whose size is in the
    header. `columns` selects columns by name or index.
    """

    def __init__(self, columns: Sequence[str | int] | None = None, limits: ReadLimits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.message_count = 0
        self.batch_count = 0
        self._column_keys = columns
        self._headers = HeaderReader(limits)
        self._selection: ColumnSelection | None = None
        self._previous: tuple[bytes, ColumnSelection] | None = None
        self._dictionaries = StreamDictionaries()

    def reset(self) -> None:
        """Decode another stream next. Headers like the previous one's, and its schema, are not decoded again."""
        self.message_count = self.batch_count = 0
        self._selection = None
        self._dictionaries = StreamDictionaries()

    @property
    def schema(self) -> Schema:
        """The schema of the selected columns. Raises `InvalidArgumentError` before the schema message."""
        if self._selection is None:
            raise InvalidArgumentError("no schema message has been read yet")
        return self._selection.schema

    def decode_header(self, metadata: bytes, location: MessageLocation | None = None) -> BatchHeader | None:
        """Decode a message's flatbuffer: the header of a batch, None for a schema, which has no body. `location` names
        the message in errors.

        Raises `InvalidDataError` for malformed bytes, and unless the schema comes first and once.
        """
        if self._selection is None and self._previous is not None and metadata == self._previous[0]:
            self._selection = self._previous[1]
            self.message_count += 1
            return None
        location = location or ("message", self.message_count)
        header = self._headers.read(metadata, location)
        error = headers.find_order_error(header, self._selection is not None, location)
        if error is not None:
            raise error
        if isinstance(header, BatchHeader):
            return header
        selection = ColumnSelection(get_ipc_schema(header, self.limits), self._column_keys)
        tuple(selection.schema)  # raises errors of malformed fields now
        self._selection = selection
        # Extension types depend on the current registry.
        self._previous = None if NAME_KEY in metadata else (bytes(metadata), selection)
        self.message_count += 1
        return None

    def has_body(self, metadata: bytes) -> bool:
        """Return whether a message has a body, from its flatbuffer; messages may come in any order. Raises as
        `decode_header`.
        """
        return isinstance(self._headers.read(metadata, ("message",)), BatchHeader)

    def decode_body(self, header: BatchHeader, body: Buffer) -> RecordBatch | None:
        """Return the record batch of a header from `decode_header` over its body, without copying; None for a
        dictionary.
        """
        selection = self._selection
        assert selection is not None
        self.message_count += 1
        if header.template.kind == headers.DICTIONARY_BATCH:
            location: MessageLocation = ("message", self.message_count - 1, "(dictionary)")
            self._dictionaries = self._dictionaries.with_dictionary_batch(selection.ipc_schema, header, body, location)
            return None
        location = ("record batch", self.batch_count)
        self.batch_count += 1
        return create_batch(selection, header, body, self._dictionaries.freeze(), location)

    def decode(self, metadata: bytes, body: Buffer = EMPTY) -> RecordBatch | None:
        """Decode a complete message: `decode_header`, then `decode_body`."""
        header = self.decode_header(metadata)
        return None if header is None else self.decode_body(header, body)


class StreamReader(SequentialReader[BatchHeader | None, RecordBatch]):
    """Reads a stream: iterate over it, or take one batch after the other.

    The schema is read at once. A stream ends with its end marker, or between two messages at the end of the source.
    Raises `TruncatedError` if the source ends within a message, other `InvalidDataError`s for malformed messages. An
    error closes the reader. Several threads may read; each batch is returned once.

    >>> import io
    >>> sink = io.BytesIO()
    >>> with bs.new_stream(sink, {"n": "int64"}) as writer:
    ...     for number in range(3):
    ...         writer.write(bs.record_batch({"n": [number]}))
    >>> reader = bs.open_stream(sink.getvalue())
    >>> next(reader)["n"].to_pylist(), reader.read_all()["n"].to_pylist()
    ([0], [1, 2])
    """

    def __init__(
        self, source: AnySource, columns: Sequence[str | int] | None = None, limits: ReadLimits = DEFAULT_LIMITS
    ) -> None:
        self._decoder = Decoder(columns, limits)
        super().__init__(source, limits, self._decoder.decode_header, "an Arrow stream")
        with call_on_error(self.close):
            if isinstance(self._read_message(), EndOfStream):  # any other message is the schema, or an error
                raise TruncatedError(f"{source.name}: the stream ends at byte {source.position}, before a schema")

    @property
    def schema(self) -> Schema:
        """The schema of the selected columns."""
        return self._decoder.schema

    @property
    def stats(self) -> MessageCounts:
        """The numbers of messages that have been read."""
        messages, batches = self._decoder.message_count, self._decoder.batch_count
        return MessageCounts(messages, batches, messages - batches - 1)  # the first one is the schema

    def read_next_batch(self) -> RecordBatch:
        """Return the next batch. Raises `StopIteration` at the end.

        >>> import io
        >>> sink = io.BytesIO()
        >>> with bs.new_stream(sink, {"n": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"n": [1, 2]}))
        >>> bs.open_stream(sink.getvalue()).read_next_batch()["n"].to_pylist()
        [1, 2]
        """
        return next(self)

    def _read_next(self) -> RecordBatch | None:
        while not isinstance(message := self._read_message(), EndOfStream):
            batch = self._decode(message)
            if batch is not None:
                return batch
        return None

    def _decode(self, message: Message[BatchHeader | None]) -> RecordBatch | None:
        """Read the body of a message and decode it; None for a schema or a dictionary."""
        header = message.header
        return None if header is None else self._decoder.decode_body(header, self._read_body(message))

    def read_all(self, filters: FiltersLike | None = None) -> Table:
        """Return all remaining batches as a table, or the rows that match filters, as `Table.filter`.

        >>> import io
        >>> sink = io.BytesIO()
        >>> with bs.new_stream(sink, {"n": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"n": [1, 2, 3]}))
        >>> bs.open_stream(sink.getvalue()).read_all([("n", "!=", 2)])["n"].to_pylist()
        [1, 3]
        """
        if filters is not None:
            return Table(self.schema, filter_batches(self, parse_filters(filters, self.schema)))
        batches = list(self)
        link_for_decompression(batches)
        return Table.from_batches(batches, self.schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the remaining batches by the C stream interface; they are read on demand."""
        return c_data.export_stream(self.schema, self, requested_schema)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"at byte {self._source.position}"
        return f"<bowstring.ipc.StreamReader {self._source.name}: {state}>"

    _repr_html_ = source_to_html
