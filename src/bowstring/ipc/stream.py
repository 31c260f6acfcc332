"""The streaming format («IPC Streaming Format»): an encoder and a decoder that do no input or output, and the reader
over them.

`Encoder` turns batches into `EncodedMessage`s: a flatbuffer and the parts of a body. `Decoder` takes a flatbuffer, says
how long its body is, and takes the body. The dissociated protocol uses both as they are; framing is added by whoever
writes a stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any, Protocol

from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table
from bowstring.datatypes.field import Metadata, Schema, SchemaLike, as_schema
from bowstring.errors import ClosedError, InvalidDataError, LimitError, TruncatedError, UsageError
from bowstring.ipc.codecs import compressor
from bowstring.ipc.dictionaries.reader import StreamDictionaries
from bowstring.ipc.dictionaries.writer import DictionaryWriter, assign_shared_ids
from bowstring.ipc.encoded_schema import EncodedSchema, encode_schema
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.message import (
    CONTINUATION,
    LEGACY_PREFIX_BYTES,
    MAGIC,
    PREFIX_BYTES,
    detect_foreign_format,
    format_mismatch,
    is_stream_start,
    parse_prefix,
)
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.header import BatchHeader, DictionaryHeader, HeaderReader, HeaderWriter
from bowstring.ipc.options import DEFAULT_WRITE_OPTIONS, IpcWriteOptions
from bowstring.ipc.record_batch.reader import BatchColumns, link_batches
from bowstring.ipc.record_batch.writer import EncodedBody, encode_body
from bowstring.ipc.schema_cache import CachedSchema, load_schema
from bowstring.layouts.array import Array
from bowstring.memory.buffer import EMPTY, Buffer
from bowstring.memory.closable import Closable


@dataclass(frozen=True, slots=True)
class EncodedMessage:
    """A message: its flatbuffer (a multiple of 8 bytes), and the parts of its body, padding included.

    The parts are objects with the buffer protocol that share the arrays' memory; together they are `body_bytes` long.
    """

    kind: str
    metadata: bytes
    parts: Sequence[Any]
    body_bytes: int


class Encoder:
    """Batches of one schema in, messages out; nothing is written.

    Buffers begin at multiples of `alignment` bytes in a body: 8, 16, 32 or 64. A dictionary goes out before the first
    batch that uses it, what it has grown by before a later one, and all of it again where it has changed; without
    `may_replace` that is a `UsageError`. The `options` says how they are written.
    """

    def __init__(
        self,
        schema: SchemaLike,
        alignment: int = 64,
        may_replace: bool = True,
        options: IpcWriteOptions = DEFAULT_WRITE_OPTIONS,
    ) -> None:
        if alignment not in (8, 16, 32, 64):
            raise UsageError(f"alignment is 8, 16, 32 or 64 bytes, not {alignment!r}")
        schema = as_schema(schema, "the schema of what is written")
        self.schema = schema
        self.alignment = alignment
        self.options = options
        self._may_replace = may_replace
        encoded = encode_schema(schema, options)
        self._set_schema(encoded)
        self._layouts = encoded.layouts
        self._passthrough = None if options.compression or options.is_big_endian else encoded.relay
        self.may_share_dictionaries = (
            options.share_dictionaries and not options.unify_dictionaries and encoded.can_share_dictionaries
        )
        """Whether the first batch can say that fields share a dictionary."""
        self._headers = HeaderWriter(options.version, options.compression)
        self._compress = (
            None if options.compression is None else compressor(options.compression, options.compression_level)
        )

    def _set_schema(self, encoded: EncodedSchema) -> None:
        self.wire, self.schema_table = encoded.wire, encoded.table
        self._dictionaries = DictionaryWriter(self.wire, self.options, self._may_replace) if self.wire.by_id else None

    def share_dictionaries(self, batch: RecordBatch) -> None:
        """Give fields that have one dictionary, the same memory, in the first batch one id in the schema message.

        Only before that message is taken. Raises `UsageError` for a batch of another schema.
        """
        if batch.schema != self.schema:
            raise self._schema_mismatch(batch)
        if self.may_share_dictionaries:
            ids = tuple(assign_shared_ids(self.wire, batch.columns))
            self._set_schema(encode_schema(self.schema, self.options, ids if len(set(ids)) < len(ids) else None))

    def resume(self, encoded: EncodedSchema, dictionaries: Mapping[int, Array]) -> None:
        """Go on where another encoder ended: with its schema's table and ids, and what it has written of each
        dictionary, by id.
        """
        self._set_schema(encoded)
        self.may_share_dictionaries = False
        if self._dictionaries is not None:
            self._dictionaries.mark_written(dictionaries)

    def schema_message(self) -> EncodedMessage:
        """The message that begins a stream."""
        return EncodedMessage(headers.SCHEMA, headers.schema_message(self.schema_table, self.options.version), [], 0)

    def encode_batch(self, batch: RecordBatch) -> list[EncodedMessage]:
        """The messages of a batch: dictionaries that are due, then the batch. `UsageError` for another schema."""
        if batch.schema is not self.schema and batch.schema != self.schema:
            raise self._schema_mismatch(batch)
        body = None if self._passthrough is None else self._passthrough.body(batch.source, self.alignment)
        if body is not None and body.numbers.length == batch.num_rows:
            return [self._framed(body, batch.pairs, None)]
        columns = batch.columns
        for field, layout, column in zip(self.schema.fields, self._layouts, columns, strict=True):
            if column.layout is not layout and column.type != field.type:
                raise UsageError(f"column {field.name!r} is {column.type}, its field says {field.type}")
            if column.length != batch.num_rows:
                raise UsageError(
                    f"column {field.name!r} has {column.length} values in a batch of {batch.num_rows} rows"
                )
        if self._dictionaries is None:
            return [self._message(batch.num_rows, columns, batch.pairs, None)]
        plan = self._dictionaries.plan(columns)
        messages = [self._message(values.length, [values], (), mark) for mark, values in plan.due]
        messages.append(self._message(batch.num_rows, plan.columns, batch.pairs, None))
        self._dictionaries.commit(plan)
        return messages

    def _schema_mismatch(self, batch: RecordBatch) -> UsageError:
        return UsageError(f"a batch of another schema: expected {self.schema!r}, found {batch.schema!r}")

    def _message(
        self, length: int, arrays: Sequence[Array], pairs: Metadata, mark: DictionaryHeader | None
    ) -> EncodedMessage:
        return self._framed(encode_body(length, arrays, self.alignment, self.options, self._compress), pairs, mark)

    def _framed(self, body: EncodedBody, pairs: Metadata, mark: DictionaryHeader | None) -> EncodedMessage:
        metadata = self._headers.write(body.numbers, body.size_bytes, pairs, mark)
        kind = headers.RECORD_BATCH if mark is None else headers.DICTIONARY_BATCH
        return EncodedMessage(kind, metadata, body.parts, body.size_bytes)


class Decoder:
    """Messages in, batches out; nothing is read.

    For each message in turn: `begin` with its flatbuffer tells how long its body is, `finish` with the body gives a
    batch, or None for a schema or a dictionary. `columns` chooses columns by name or position.
    """

    def __init__(self, columns: Sequence[str | int] | None = None, limits: ReadLimits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.messages = 0
        self.batches = 0
        self._column_keys = columns
        self._headers = HeaderReader(limits)
        self._cached_schema: CachedSchema | None = None
        self._column_indices: tuple[int, ...] | None = None
        self._schema: Schema | None = None
        self._dictionaries = StreamDictionaries()

    @property
    def schema(self) -> Schema:
        """The schema of the chosen columns; raises `UsageError` before the schema message has come."""
        if self._schema is None:
            raise UsageError("no schema message has been read yet")
        return self._schema

    @property
    def has_schema(self) -> bool:
        """Whether the schema message has come."""
        return self._schema is not None

    def begin(self, raw: bytes, skip: int = 0) -> BatchHeader | None:
        """Read a message's flatbuffer, from byte `skip` of `raw` on: the header of a batch, None for a schema (it has
        no body).

        Raises `InvalidDataError` for malformed bytes, or where a schema does not come first and once.
        """
        header = self._headers.read(raw, skip, ("message", self.messages))
        if isinstance(header, BatchHeader):
            if self._cached_schema is None:
                raise InvalidDataError(
                    f"message {self.messages}: expected a schema first, found a {header.template.kind}"
                )
            return header
        if self._cached_schema is not None:
            raise InvalidDataError(f"message {self.messages}: a second schema")
        cached = load_schema(header, self.limits)
        self._column_indices = cached.column_indices(self._column_keys)
        self._cached_schema = cached
        self._schema = cached.schema(self._column_indices)
        tuple(self._schema)  # what is malformed is told here
        self.messages += 1
        return None

    def finish(self, header: BatchHeader, body: Buffer) -> RecordBatch | None:
        """Take the body of the header that `begin` gave: a batch over it, without copying, or None for a dictionary."""
        cached, version = self._cached_schema, header.template.version
        assert cached is not None
        self.messages += 1
        if header.template.kind == headers.DICTIONARY_BATCH:
            where: tuple[object, ...] = ("message", self.messages - 1, "(dictionary)")
            self._dictionaries = self._dictionaries.with_batch(cached.wire, header, body, where)
            return None
        where = ("record batch", self.batches)
        self.batches += 1
        dictionaries, plans = self._dictionaries.share(), cached.column_plans(self._column_indices, version)
        columns = BatchColumns(cached.plan(version), header, body, dictionaries, where, plans)
        return make_record_batch(self.schema, header, columns)

    def decode(self, metadata: bytes, body: Buffer = EMPTY) -> RecordBatch | None:
        """`begin` and `finish` in one, for a message that is there as a whole."""
        header = self.begin(metadata)
        return None if header is None else self.finish(header, body)


def make_record_batch(schema: Schema, header: BatchHeader, columns: BatchColumns) -> RecordBatch:
    """A record batch over columns that are made when they are asked for."""
    return RecordBatch(schema, header.length, columns, header.template.pairs)


class ByteSource(Protocol):
    """Bytes in order: what a `StreamReader` reads from."""

    name: str
    position: int

    def read(self, size_bytes: int) -> bytes:
        """The next bytes; fewer only where the source ends."""

    def read_buffer(self, size_bytes: int) -> Buffer:
        """The next bytes as a buffer, without copying where the source is memory; shorter only where it ends."""

    def close(self) -> None:
        """Let go of what belongs to the source."""


class StreamReader(Closable):
    """Reads a stream: iterate over it, or take one batch after the other.

    The schema is read at once. A stream ends with its end marker, or where the source ends between two messages. Raises
    `TruncatedError` where it ends within one, other `InvalidDataError`s for malformed messages. After an error it is
    closed. Of several threads that read, each gets whole batches that no other one gets.
    """

    def __init__(
        self, source: ByteSource, columns: Sequence[str | int] | None = None, limits: ReadLimits = DEFAULT_LIMITS
    ) -> None:
        self._source = source
        self._decoder = Decoder(columns, limits)
        self._lock = RLock()
        self._is_at_end = False
        self._closed = False
        try:
            while not self._decoder.has_schema:
                if self._message() is _END:
                    raise TruncatedError(f"{source.name}: the stream ends at byte {source.position}, before a schema")
        except BaseException:
            self.close()
            raise

    @property
    def schema(self) -> Schema:
        """The schema of the chosen columns."""
        return self._decoder.schema

    def read_next_batch(self) -> RecordBatch:
        """The next batch; raises `StopIteration` at the end, as iterating does."""
        with self._lock:
            if self._closed:
                raise ClosedError(f"{self._source.name}: the reader is closed")
            if self._is_at_end:
                raise StopIteration
            try:
                while True:
                    batch = self._message()
                    if batch is _END:
                        self._is_at_end = True
                        raise StopIteration
                    if batch is not None:
                        assert isinstance(batch, RecordBatch)
                        return batch
            except StopIteration:
                raise
            except BaseException:  # after an interrupt, too: what comes next would be the middle of a message
                self.close()
                raise

    def _message(self) -> object:
        source, decoder = self._source, self._decoder
        start = source.position
        prefix = source.read(LEGACY_PREFIX_BYTES)
        if not prefix or prefix == bytes(4):
            return _END
        if len(prefix) == 4 and prefix == CONTINUATION:
            prefix += source.read(PREFIX_BYTES - LEGACY_PREFIX_BYTES)
            prefix_bytes = PREFIX_BYTES
        else:
            prefix_bytes = LEGACY_PREFIX_BYTES
        if len(prefix) < prefix_bytes:
            raise self._truncated(start, "a message's length", prefix_bytes, len(prefix))
        where = f"{source.name}: message {decoder.messages} at byte {start}"
        if start == 0 and (
            foreign_format := detect_foreign_format(prefix) or (MAGIC.startswith(prefix) and "an Arrow file")
        ):
            hint = ": use open_file" if "Arrow" in foreign_format else ""
            raise format_mismatch(source.name, "an Arrow stream", foreign_format + hint)
        try:
            length_bytes, _ = parse_prefix(prefix, where, decoder.limits.max_metadata_bytes)
        except InvalidDataError as error:
            if start or prefix_bytes == PREFIX_BYTES:
                raise
            raise format_mismatch(source.name, "an Arrow stream", f"other bytes ({prefix!r}): {error}") from None
        if length_bytes == 0:
            return _END
        metadata = source.read(length_bytes)
        if len(metadata) < length_bytes:
            if start == 0 and prefix_bytes == LEGACY_PREFIX_BYTES and not is_stream_start(prefix + metadata):
                raise format_mismatch(source.name, "an Arrow stream", f"other bytes ({prefix!r})")
            raise self._truncated(source.position - len(metadata), "metadata", length_bytes, len(metadata))
        header = decoder.begin(metadata)
        if header is None:
            return None
        if header.body_bytes > decoder.limits.max_body_bytes:
            raise LimitError(
                f"{where}: a body of {header.body_bytes} bytes, more than the limit of {decoder.limits.max_body_bytes} "
                "(max_body_bytes)"
            )
        body = source.read_buffer(header.body_bytes)
        if body.size < header.body_bytes:
            raise self._truncated(source.position - body.size, "a body", header.body_bytes, body.size)
        return decoder.finish(header, body)

    def _truncated(self, offset: int, what: str, expected: int, actual: int) -> TruncatedError:
        return TruncatedError(
            f"{self._source.name}: message {self._decoder.messages}: expected {expected} bytes of {what} at byte "
            f"{offset}, found {actual}: the stream is cut off"
        )

    def read_all(self) -> Table:
        """All remaining batches as a table."""
        batches = list(self)
        link_batches(batch.source for batch in batches)
        return Table.from_batches(batches, self.schema)

    def close(self) -> None:
        """Let go of the source; batches that were read stay valid."""
        if not self._closed:
            self._closed = True
            self._source.close()

    def __iter__(self) -> Iterator[RecordBatch]:
        return self

    def __next__(self) -> RecordBatch:
        return self.read_next_batch()

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The batches that are still to come, for another library; read when it asks for them."""
        from bowstring.interop import c_data

        return c_data.export_stream(self.schema, self, requested_schema)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"at byte {self._source.position}"
        return f"<bowstring.StreamReader {self._source.name}: {state}>"


_END = object()
