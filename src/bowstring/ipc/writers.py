"""Write streams and files («IPC Streaming Format», «IPC File Format»): framed messages and the footer of a file."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from threading import RLock

import numpy as np
import numpy.typing as npt

from bowstring.arrays.record_batch import RecordBatch, as_batch
from bowstring.arrays.table import Table, as_table, unify_batch_dictionaries
from bowstring.datatypes.field import Metadata, MetadataLike, as_metadata
from bowstring.datatypes.schema import Schema
from bowstring.errors import ClosedError, InvalidArgumentError, format_count
from bowstring.flatbuf.tables import BLOCK, DEFINITIONS
from bowstring.flatbuf.writer import SerializedSubTable, build_flatbuffer
from bowstring.io.sinks import ObjectStoreSink, PathSink, Sink
from bowstring.ipc.file_statistics import StatisticsCollector, replace_statistics
from bowstring.ipc.footer import TRAILER
from bowstring.ipc.message import (
    END_OF_STREAM,
    FILE_START,
    LEGACY_END_OF_STREAM,
    MAGIC,
    Block,
    MessageCounts,
    frame_message,
)
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.field import create_metadata_records
from bowstring.ipc.stream import EncodedMessage, Encoder
from bowstring.memory.closable import Transactional, call_on_error, warn_unclosed


def encode_footer_and_trailer(
    schema: SerializedSubTable, version: int, blocks: Mapping[str, Sequence[Block]], pairs: Metadata
) -> list[bytes]:
    """Return the end of a file, after the end-of-stream marker: the footer, its size and the magic.

    `schema` is the `Schema` table; `blocks` are the blocks of dictionary batches and record batches by kind.
    """
    footer = build_flatbuffer(
        DEFINITIONS,
        "Footer",
        {
            "version": version,
            "schema": schema,
            "dictionaries": _create_block_array(blocks[headers.DICTIONARY_BATCH]),
            "recordBatches": _create_block_array(blocks[headers.RECORD_BATCH]),
            "custom_metadata": create_metadata_records(pairs),
        },
    )
    return [footer, TRAILER.pack(len(footer), MAGIC)]


def _create_block_array(blocks: Sequence[Block]) -> npt.NDArray[np.void]:
    return np.array([(offset, metadata_bytes, 0, body_bytes) for offset, metadata_bytes, body_bytes in blocks], BLOCK)


class BatchWriter(Transactional):
    """Writes record batches and tables; a context manager that abandons them if the block raises an error."""

    def write(self, data: RecordBatch | Table) -> None:
        """Write a batch or the batches of a table, of Bowstring or another library.

        Raises `InvalidArgumentError` for another schema.

        >>> import io
        >>> sink = io.BytesIO()
        >>> with bs.new_stream(sink, {"n": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"n": [1]}))
        ...     writer.write(bs.table({"n": [2, 3]}))
        >>> bs.read_table(sink.getvalue())["n"].to_pylist()
        [1, 2, 3]
        """
        if isinstance(data, RecordBatch):
            self.write_batch(data)
        else:
            self.write_table(data)

    def write_table(self, table: Table) -> None:
        """Write the batches of a table, of Bowstring or another library.

        Raises `InvalidArgumentError` for another schema.
        """
        for batch in as_table(table).to_batches():
            self.write_batch(batch)

    @abstractmethod
    def write_batch(self, batch: RecordBatch) -> None:
        """Write one batch."""


class _IpcWriter(BatchWriter):
    """Writes the encoded messages of batches to a sink: the common part of streams and files.

    Several threads may write; batches are written one after the other.
    """

    def __init__(self, sink: Sink, encoder: Encoder) -> None:
        self._sink = sink
        self._encoder = encoder
        self._lock = RLock()
        self._is_closed = False
        self._is_schema_written = False
        self._message_counts: Counter[str] = Counter()
        self._row_count: int | None = None  # until construction has succeeded

    @property
    def schema(self) -> Schema:
        """The schema of the batches."""
        return self._encoder.schema

    @property
    def name(self) -> str:
        """The path or URL, or the name of the sink in errors."""
        return self._sink.name

    @property
    def stats(self) -> MessageCounts:
        """The numbers of messages that have been written."""
        counts = self._message_counts
        return MessageCounts(counts.total(), counts[headers.RECORD_BATCH], counts[headers.DICTIONARY_BATCH])

    def write_table(self, table: Table) -> None:
        """Write the batches of a table; with `unify_dictionaries` they get common dictionaries first."""
        table = as_table(table)
        batches: Iterable[RecordBatch] = table.to_batches()
        if self._encoder.options.unify_dictionaries and table.schema == self.schema:
            batches = unify_batch_dictionaries(self.schema, table.to_batches())
        for batch in batches:
            self.write_batch(batch)

    def write_batch(self, batch: RecordBatch) -> None:
        """Write a batch, after its dictionaries or their deltas if they are new.

        Raises `InvalidArgumentError` with the column, and writes nothing of the batch, if a dictionary would change in
        a way that the format or the options do not allow.
        """
        batch = as_batch(batch)
        with self._lock:
            if self._is_closed:
                raise ClosedError("the writer is closed")
            if not self._is_schema_written:
                self._encoder.assign_shared_dictionary_ids(batch)
            # Encoded before anything is written, so that an error writes nothing.
            messages = self._encoder.encode_batch(batch)
            self._write_schema()
            for message in messages:
                self._write_message(message)
            self._row_count = (self._row_count or 0) + batch.num_rows

    def flush(self) -> None:
        """Pass all batches to the operating system: they outlive this process, but not a power failure.

        A file object is flushed, too. A file that is not complete stays invisible. Raises `ClosedError` after `close`.
        """
        with self._lock:
            if self._is_closed:
                raise ClosedError("the writer is closed")
            if not self._encoder.may_share_dictionaries:
                self._write_schema()
            with call_on_error(self.abandon):
                self._sink.flush()

    def _write_schema(self) -> None:
        """Write the schema message unless it has been written.

        If fields may share dictionaries, the message depends on the first batch and is written with it.
        """
        if not self._is_schema_written:
            self._is_schema_written = True
            self._write_message(self._encoder.encode_schema_message())

    def _write_message(self, message: EncodedMessage) -> tuple[int, int]:
        """Write a message; return its offset and the size of its framed metadata."""
        start = self._sink.position
        framed = frame_message(
            message.metadata, start, self._encoder.alignment, self._encoder.options.is_legacy_framing
        )
        with call_on_error(self.abandon):  # an unknown part of the message has been written, so no other one can follow
            self._sink.write_message(framed, message.parts, message.body_bytes)
        self._message_counts[message.kind] += 1
        return start, len(framed)

    @property
    def _end_of_stream_marker(self) -> bytes:
        return LEGACY_END_OF_STREAM if self._encoder.options.is_legacy_framing else END_OF_STREAM

    @abstractmethod
    def _write_end(self) -> None:
        """Write the bytes after the last message."""

    def close(self) -> None:
        """Write the end and close the sink. A file appears at its path now."""
        with self._lock:
            if self._is_closed:
                return
            self._write_schema()
            self._is_closed = True
            with call_on_error(self._sink.abandon):
                self._write_end()
                self._sink.finish()

    def abandon(self) -> None:
        """Stop writing and discard gathered bytes and files that are not visible yet."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._sink.abandon()

    def abandon_with_warning(self, owner: object, gathered_rows: int = 0) -> None:
        """Abandon the writer and emit a `ResourceWarning`, because `owner` was not closed.

        `gathered_rows` is the number of rows that `owner` has not passed on.
        """
        row_count = self._row_count
        self.abandon()
        if row_count is None:
            return
        if isinstance(self._sink, PathSink | ObjectStoreSink) and self._sink.is_atomic:
            state = f"{format_count(row_count + gathered_rows, 'row')} not written"
        elif gathered_rows:
            state = f"{format_count(gathered_rows, 'row')} not written"
        else:
            state = f"{format_count(row_count, 'row')} written without an end"
        warn_unclosed(owner, f"{self.name}: unclosed {type(owner).__name__}: {state}")

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else format_count(len(self.schema), "column")
        return f"<bowstring.ipc.{type(self).__name__}: {state}>"

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True):
            self.abandon_with_warning(self)


class StreamWriter(_IpcWriter):
    """Writes a stream; a context manager that writes the end-of-stream marker if the block raises no error.

    A batch that was written has been passed to the operating system or the file object, unless the sink has a buffer:
    see `new_stream`. What a killed process has written can be read.

    >>> import io
    >>> sink = io.BytesIO()
    >>> with bs.new_stream(sink, {"city": "string"}) as writer:
    ...     writer.write(bs.record_batch({"city": ["Oslo", None]}))
    >>> bs.read_table(sink.getvalue())["city"].to_pylist()
    ['Oslo', None]
    """

    def __init__(self, sink: Sink, encoder: Encoder) -> None:
        super().__init__(sink, encoder)
        # A reader may wait for the schema, but not of a path, where the first batch makes the file appear.
        if not encoder.may_share_dictionaries and not isinstance(sink, PathSink):
            self._write_schema()
        self._row_count = 0

    def _write_end(self) -> None:
        end = self._end_of_stream_marker
        self._sink.write([end], len(end))


class FileWriter(_IpcWriter):
    """Writes a file; a context manager that writes the footer if the block raises no error.

    >>> with bs.new_file("cities.arrow", {"city": "string"}) as writer:
    ...     writer.write(bs.record_batch({"city": ["Oslo", None]}))
    ...     writer.write(bs.table({"city": ["Rome"]}))
    >>> bs.read_table("cities.arrow")["city"].to_pylist()
    ['Oslo', None, 'Rome']
    """

    _collector: StatisticsCollector | None = None

    def __init__(self, sink: Sink, encoder: Encoder, metadata: MetadataLike = None) -> None:
        super().__init__(sink, encoder)
        self._pairs: Metadata = as_metadata(metadata)
        self._blocks: dict[str, list[Block]] = {
            headers.DICTIONARY_BATCH: [],
            headers.RECORD_BATCH: [],
            headers.SCHEMA: [],
        }
        sink.write([FILE_START], len(FILE_START))
        if not encoder.may_share_dictionaries:
            self._write_schema()
        self._row_count = 0

    def _resume(self, sink: Sink, encoder: Encoder, pairs: Metadata, blocks: dict[str, list[Block]]) -> None:
        """Continue after the messages of a file with these blocks."""
        super().__init__(sink, encoder)
        self._is_schema_written = True
        self._pairs, self._blocks = pairs, blocks
        self._row_count = 0

    def enable_statistics(self, columns: Sequence[str | int] | None = None, distinct: bool = False) -> None:
        """Store statistics in the footer: the rows and position of each batch, and for each column the null count,
        minimum and maximum.

        `columns` are names or indices, by default all; `distinct` also counts distinct values. Values are validated
        when they are written, which takes time in proportion to their number. `FileReader.find_batches` uses the
        statistics to skip batches. Raises `InvalidArgumentError` if a batch has been written, `NotFoundError` for an
        unknown column.

        >>> with bs.new_file("days.arrow", {"day": "int64"}) as writer:
        ...     writer.enable_statistics(["day"])
        ...     writer.write(bs.record_batch({"day": [1, 2]}))
        >>> with bs.open_file("days.arrow") as reader:
        ...     reader.statistics.columns[0].maxima.to_pylist()
        [2]
        """
        if self._blocks[headers.RECORD_BATCH]:
            raise InvalidArgumentError("enable_statistics must be called before the first batch is written")
        if isinstance(columns, str | int):
            raise InvalidArgumentError(
                f"columns must be a list of names or indices, not {columns!r}: write [{columns!r}]"
            )
        indices = range(len(self.schema)) if columns is None else [self.schema.index(key) for key in columns]
        self._collector = StatisticsCollector(self.schema, indices, distinct)

    def write_batch(self, batch: RecordBatch) -> None:
        """Write a batch, after its dictionaries or their deltas if they are new.

        Raises `InvalidArgumentError` for another schema and for dictionaries that the format or the options do not
        allow, and with statistics `InvalidDataError` for invalid values; then nothing of the batch is written.
        """
        collector, statistics = self._collector, None
        if collector is None:
            super().write_batch(batch)
            return
        batch = as_batch(batch)
        with self._lock:
            if batch.schema == self.schema:  # otherwise writing it raises an error
                statistics = collector.compute_batch(batch)
            super().write_batch(batch)
            if statistics is not None:
                collector.add(statistics)

    def _write_message(self, message: EncodedMessage) -> tuple[int, int]:
        start, framed_bytes = super()._write_message(message)
        self._blocks[message.kind].append((start, framed_bytes, message.body_bytes))
        return start, framed_bytes

    def _write_end(self) -> None:
        pairs = self._pairs
        if self._collector is not None:
            pairs = replace_statistics(pairs, self._collector.to_file_statistics(), self._blocks[headers.RECORD_BATCH])
        encoder = self._encoder
        parts = [
            self._end_of_stream_marker,
            *encode_footer_and_trailer(
                encoder.schema_table, encoder.options.metadata_version_number, self._blocks, pairs
            ),
        ]
        self._sink.write(parts, sum(map(len, parts)))
