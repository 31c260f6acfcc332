"""Writing streams and files («IPC Streaming Format», «IPC File Format»): messages as they come, and a file's footer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from threading import RLock
from typing import TypeAlias

import numpy as np

from bowstring.arrays.construction import as_batch, as_table
from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table, unify_batches
from bowstring.datatypes.field import Metadata, MetadataLike, Schema, as_metadata
from bowstring.errors import ClosedError, UsageError
from bowstring.flatbuf.tables import BLOCK, SPECS
from bowstring.flatbuf.writer import SerializedTable, build
from bowstring.io.sinks import PathSink, Sink, StoreSink
from bowstring.ipc.footer import TRAILER
from bowstring.ipc.message import END_OF_STREAM, FILE_START, LEGACY_END_OF_STREAM, MAGIC, frame_message
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.schema import write_pairs
from bowstring.ipc.statistics import StatisticsCollector, with_statistics
from bowstring.ipc.stream import EncodedMessage, Encoder
from bowstring.memory.closable import Transactional, warn_unclosed

Block: TypeAlias = tuple[int, int, int, int]
"""Where a message is in a file: its offset, the length of its framed metadata, 0, and the length of its body."""


def encode_footer(
    schema: SerializedTable, version: int, blocks: Mapping[str, Sequence[Block]], pairs: Metadata
) -> list[bytes]:
    """The end of a file after the end of its stream: the footer, its length and the magic.

    `schema` is the `Schema` table; `blocks` are those of dictionary batches and record batches, by their kind.
    """
    footer = build(
        SPECS,
        "Footer",
        {
            "version": version,
            "schema": schema,
            "dictionaries": np.array(blocks[headers.DICTIONARY_BATCH], BLOCK),
            "recordBatches": np.array(blocks[headers.RECORD_BATCH], BLOCK),
            "custom_metadata": write_pairs(pairs),
        },
    )
    return [footer, TRAILER.pack(len(footer), MAGIC)]


class BatchWriter(Transactional):
    """Takes record batches and tables. A context manager: what is written is whole when no error is raised inside."""

    def write(self, data: RecordBatch | Table) -> None:
        """Write a batch, or the batches of a table, also another library's. Raises `UsageError` for another schema."""
        if isinstance(data, RecordBatch):
            self.write_batch(data)
        else:
            self.write_table(as_table(data))

    def write_table(self, table: Table) -> None:
        """Write the batches of a table."""
        for batch in batches_of(table):
            self.write_batch(batch)

    @abstractmethod
    def write_batch(self, batch: RecordBatch) -> None:
        """Write one batch."""


def batches_of(table: Table) -> list[RecordBatch]:
    """The batches of a table, also of another library's; raises `UsageError` for anything else."""
    return as_table(table).to_batches()


class _Writer(BatchWriter):
    """What writing a stream and a file have in common. Several threads may write: a batch after the other goes out."""

    def __init__(self, sink: Sink, encoder: Encoder) -> None:
        self._sink = sink
        self._encoder = encoder
        self._lock = RLock()
        self._closed = False
        self._is_schema_written = False
        self._rows = -1  # until the writer is ready

    def _begin(self) -> None:
        """Write the schema, if it is not out: where fields may share dictionaries, it waits for the first batch."""
        if not self._is_schema_written:
            self._is_schema_written = True
            self._write_message(self._encoder.schema_message())

    @property
    def schema(self) -> Schema:
        """The schema of what is written."""
        return self._encoder.schema

    @property
    def name(self) -> str:
        """The path of what is written, or what errors call it."""
        return self._sink.name

    def write_table(self, table: Table) -> None:
        """Write the batches of a table; with `unify_dictionaries` their dictionaries are united first."""
        table = as_table(table)
        batches: Iterable[RecordBatch] = table.to_batches()
        if self._encoder.options.unify_dictionaries and table.schema == self.schema:
            batches = unify_batches(self.schema, table.to_batches())
        for batch in batches:
            self.write_batch(batch)

    def write_batch(self, batch: RecordBatch) -> None:
        """Write one batch, and before it the dictionaries that are new, or what they have grown by.

        Raises `UsageError`, and writes nothing of the batch, where a dictionary would have to change in a way that the
        format or the form has no room for; it names the column.
        """
        batch = as_batch(batch)
        with self._lock:
            if self._closed:
                raise ClosedError("the writer is closed")
            if not self._is_schema_written:
                self._encoder.share_dictionaries(batch)
            messages = self._encoder.encode_batch(batch)
            self._begin()
            for message in messages:
                self._write_message(message)
            self._rows += batch.num_rows

    def _write_message(self, message: EncodedMessage) -> tuple[int, int]:
        """Write a message; where it begins, and the length of its framed metadata."""
        start = self._sink.position
        framed = frame_message(
            message.metadata, start, self._encoder.alignment, self._encoder.options.is_legacy_framing
        )
        try:
            self._sink.write_message(framed, message.parts, message.body_bytes)
        except BaseException:  # an unknown part of the message is out: nothing sound can follow
            self.abandon()
            raise
        return start, len(framed)

    @property
    def _end_of_stream(self) -> bytes:
        return LEGACY_END_OF_STREAM if self._encoder.options.is_legacy_framing else END_OF_STREAM

    def _end(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Write the end; a file appears under its name now."""
        with self._lock:
            if self._closed:
                return
            self._begin()
            self._closed = True
            try:
                self._end()
                self._sink.finish()
            except BaseException:
                self._sink.abandon()
                raise

    def abandon(self) -> None:
        """Stop writing; a path is left as it was before."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._sink.abandon()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self.schema)} columns"
        return f"<bowstring.{type(self).__name__}: {state}>"

    def __del__(self) -> None:
        if getattr(self, "_closed", True):
            return
        self.abandon()
        if self._rows >= 0:
            state = "were not written" if isinstance(self._sink, PathSink | StoreSink) else "have no end behind them"
            warn_unclosed(self, f"{self.name}: unclosed {type(self).__name__}: {self._rows} rows {state}")


class StreamWriter(_Writer):
    """Writes a stream; a context manager that writes the end marker when no error is raised inside."""

    def __init__(self, sink: Sink, encoder: Encoder) -> None:
        super().__init__(sink, encoder)
        if not encoder.may_share_dictionaries:
            self._begin()
        self._rows = 0

    def _end(self) -> None:
        end = self._end_of_stream
        self._sink.write([end], len(end))


class FileWriter(_Writer):
    """Writes a file; a context manager that writes the footer when no error is raised inside."""

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
            self._begin()
        self._rows = 0

    def _resume(self, sink: Sink, encoder: Encoder, pairs: Metadata, blocks: dict[str, list[Block]]) -> None:
        """Begin behind the messages of a file that has these blocks."""
        super().__init__(sink, encoder)
        self._is_schema_written = True
        self._pairs, self._blocks = pairs, blocks
        self._rows = 0

    def collect_statistics(self, columns: Sequence[str | int] | None = None, distinct: bool = False) -> None:
        """Have the footer say how many rows each batch has, where it lies, and of columns nulls, minimum and maximum.

        Of all columns, or of those named; `distinct` counts the values that differ, too. Only before the first batch.
        The values are validated and looked at as they are written, which takes time in proportion to them. Readers use
        it to skip batches (`FileReader.find_batches`). Raises `UsageError` where batches are there already,
        `NotFoundError` for a column that is not.
        """
        if self._blocks[headers.RECORD_BATCH]:
            raise UsageError("statistics are collected from the first batch on, and there are batches already")
        if isinstance(columns, str | int):
            raise UsageError(f"columns is a list of names or positions, not {columns!r}: write [{columns!r}]")
        indices = range(len(self.schema)) if columns is None else [self.schema.index(key) for key in columns]
        self._collector = StatisticsCollector(self.schema, indices, distinct)

    def write_batch(self, batch: RecordBatch) -> None:
        """As `StreamWriter.write_batch`; raises `InvalidDataError` where statistics are collected of invalid values."""
        collector, statistics = self._collector, None
        if collector is None:
            super().write_batch(batch)
            return
        with self._lock:
            if getattr(batch, "schema", None) == self.schema:
                statistics = collector.compute(batch)
            super().write_batch(batch)
            if statistics is not None:
                collector.add(statistics)

    def _write_message(self, message: EncodedMessage) -> tuple[int, int]:
        start, framed_bytes = super()._write_message(message)
        self._blocks[message.kind].append((start, framed_bytes, 0, message.body_bytes))
        return start, framed_bytes

    def _end(self) -> None:
        pairs = self._pairs
        if self._collector is not None:
            pairs = with_statistics(pairs, self._collector.statistics(), self._blocks[headers.RECORD_BATCH])
        encoder = self._encoder
        parts = [
            self._end_of_stream,
            *encode_footer(encoder.schema_table, encoder.options.version, self._blocks, pairs),
        ]
        self._sink.write(parts, sum(map(len, parts)))
