"""The file format («IPC File Format»): footer and random access."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from bowstring.arrays.chunked_array import ChunkedArray
from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table
from bowstring.datatypes.field import Field, Schema
from bowstring.errors import ClosedError, InvalidDataError, NotFoundError, UsageError
from bowstring.flatbuf.reader import Table as FlatbufferTable
from bowstring.flatbuf.tables import BLOCK
from bowstring.io.memory_source import MemorySource
from bowstring.io.range_source import RangeSource
from bowstring.ipc.dictionaries.reader import FileDictionaries
from bowstring.ipc.footer import read_footer
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.message import CONTINUATION, parse_prefix
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.header import BatchHeader, HeaderBytes, HeaderReader
from bowstring.ipc.metadata.schema import DictionaryId, read_pairs
from bowstring.ipc.record_batch.reader import BatchColumns, link_batches
from bowstring.ipc.schema_cache import CachedSchema, load_schema
from bowstring.ipc.statistics import FileStatistics, check_batch, read_statistics
from bowstring.ipc.stream import make_record_batch
from bowstring.layouts.array import Array
from bowstring.memory.buffer import Buffer, Memory
from bowstring.memory.closable import Closable

_BLOCK = struct.Struct("<qi4xq")
_LENGTH = struct.Struct("<i")
_MAX_EAGER_FIELDS = 256


class FileReader(Closable):
    """Reads a file at random: `reader[i]`, `get_batch(i)`, or iterate.

    Opening reads the footer and nothing else; a batch reads its header, a column its buffers, and nothing is copied
    where the source is memory. `columns` chooses columns by name or position. Raises `FormatMismatchError` for another
    format, `TruncatedError` for a file that is cut off, other `InvalidDataError`s for malformed metadata.
    """

    _columns: type[BatchColumns] = BatchColumns

    def __init__(
        self,
        source: MemorySource | RangeSource,
        columns: Sequence[str | int] | None = None,
        limits: ReadLimits = DEFAULT_LIMITS,
    ) -> None:
        self._source = source
        self._column_keys = columns
        self._headers = HeaderReader(limits)
        self._limits = limits
        self._cached_schema: CachedSchema | None = None
        self._lazy_schema: Schema | None = None
        self._selections: dict[int, Any] = {}
        self._parsed_footer = footer = read_footer(source, limits)
        self._raw, self.footer, self.footer_at = footer.raw, footer.table, footer.offset
        self._batches_at, self.num_record_batches = footer.batches.offset, footer.batches.count
        self._dictionaries_at, self.num_dictionary_batches = footer.dictionaries.offset, footer.dictionaries.count
        self._dictionaries: FileDictionaries | None = None
        self._statistics: FileStatistics | None = None
        self._has_statistics: bool | None = None
        if columns is not None:
            _ = self.cached_schema  # a wrong name is told at once

    # What the footer says

    @property
    def cached_schema(self) -> CachedSchema:
        """The schema with what only the wire knows, of all columns."""
        cached = self._cached_schema
        if cached is None:
            table = self.footer["schema"]
            if table is None:
                raise InvalidDataError(f"{self._source.name}: the footer has no schema")
            cached = load_schema(table, self._limits, self._parsed_footer.bytes_around_blocks())
            self._column_indices = cached.column_indices(self._column_keys)
            self._cached_schema = cached  # last: another thread that finds it relies on the positions
        return cached

    @property
    def schema(self) -> Schema:
        """The schema of the chosen columns.

        Up to 256 fields are read at once, and what is malformed in them is told here. Of more than that each is read,
        and told, when it is asked for, or something that needs all.
        """
        schema = self._selected_schema()
        if len(schema) <= _MAX_EAGER_FIELDS:
            tuple(schema)
        return schema

    def _selected_schema(self) -> Schema:
        schema = self._lazy_schema
        if schema is None:
            schema = self._lazy_schema = self.cached_schema.schema(self._column_indices)
        return schema

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """The footer's custom metadata."""
        return dict(read_pairs(self.footer))

    @property
    def memory(self) -> Memory:
        """The file's bytes. Raises `UsageError` for a file that is read by ranges."""
        if not isinstance(self._source, MemorySource):
            raise UsageError(f"{self._source.name}: is read by ranges, so there is no memory that holds it")
        return self._source.memory

    @property
    def descriptor(self) -> int:
        """The descriptor of the file that is mapped; -1 where the source is no file."""
        return self._source.descriptor

    @property
    def blocks(self) -> npt.NDArray[Any]:
        """Where the record batches are: a view of dtype `BLOCK` (offset, metaDataLength, bodyLength, in bytes)."""
        return self._parsed_footer.blocks(self._parsed_footer.batches)

    @property
    def dictionary_blocks(self) -> npt.NDArray[Any]:
        """Where the dictionary batches are, as `blocks`."""
        return self._parsed_footer.blocks(self._parsed_footer.dictionaries)

    # What it says of its batches

    @property
    def statistics(self) -> FileStatistics | None:
        """What the file says of its batches (`FileWriter.collect_statistics`); None where it says nothing.

        Rows are checked against the header of each batch that is read. That minima and maxima are right is taken on
        trust. Raises `InvalidDataError` where they are malformed or contradict themselves.
        """
        if self._has_statistics is None:
            statistics = read_statistics(
                read_pairs(self.footer), self.cached_schema.wire, self.blocks, self._limits, self._source.name
            )
            self._statistics, self._has_statistics = statistics, statistics is not None
        return self._statistics

    @property
    def row_counts(self) -> npt.NDArray[np.int64]:
        """The rows of each record batch, shape (batches,): as the file's statistics say, or else as headers do."""
        if self.statistics is not None:
            return self.statistics.row_counts
        return np.array([self._locate_batch(index)[0].length for index in range(self.num_record_batches)], np.int64)

    @property
    def num_rows(self) -> int:
        """The rows of all record batches, as `row_counts`."""
        return int(self.row_counts.sum())

    def check_statistics(self) -> None:
        """Compare what the file says of its batches with their values, all of them.

        Raises `InvalidDataError` that names the record batch, and the column by its position, where it is wrong.
        """
        if self.statistics is not None:
            reader = type(self)(self._source, None, self._limits)
            reader._statistics = self.statistics
            for index in range(self.num_record_batches):
                check_batch(self.statistics, index, reader.get_batch(index).columns)

    def find_batches(self, column: str | int, low: Any = None, high: Any = None) -> list[int]:
        """The positions of the record batches that may hold a value of a column from `low` to `high`, both included.

        None is no bound. All others hold none, as the file's statistics say; without statistics of the column these are
        all batches. `column` is a name or position in the whole file, chosen for reading or not; of dictionaries, runs
        and extension types the plain values count. Raises `NotFoundError` for a column that is not there,
        `DataTypeError` for bounds of another type, `UsageError` for NaN.
        """
        index = self.cached_schema.schema().index(column)
        if self.statistics is None:
            return list(range(self.num_record_batches))
        return self.statistics.find(index, low, high)

    # Messages

    def spans(self) -> Iterator[tuple[BatchHeader, int, int, tuple[object, ...]]]:
        """The header of each dictionary batch, then of each record batch; the first byte of its body and its length in
        bytes; how errors name it. Nothing of bodies is read.
        """
        for at, kind, where in self._block_positions():
            yield (*self._message(at, kind, where), where)

    def _block_positions(self) -> Iterator[tuple[int, str, tuple[object, ...]]]:
        """Where the footer says where each batch is, what it has to be, and its name."""
        for kind, label, first, count in (
            (headers.DICTIONARY_BATCH, "dictionary batch", self._dictionaries_at, self.num_dictionary_batches),
            (headers.RECORD_BATCH, "record batch", self._batches_at, self.num_record_batches),
        ):
            for index in range(count):
                yield first + BLOCK.itemsize * index, kind, (label, index)

    def read_batch_message(self, index: int) -> tuple[BatchHeader, Buffer]:
        """The header of record batch `index`, and where its body is in the file; nothing of the body is read."""
        try:
            is_there = -self.num_record_batches <= index < self.num_record_batches
        except TypeError:
            raise UsageError(f"a record batch is found by its index, not by {index!r:.80}") from None
        if not is_there:
            raise NotFoundError(
                f"{self._source.name}: there is no record batch {index}: there are {self.num_record_batches}"
            )
        if self._source.is_closed:
            raise ClosedError(f"{self._source.name}: the reader is closed")
        index %= self.num_record_batches
        at = self._batches_at + BLOCK.itemsize * index
        header, body_at, body_bytes = self._message(at, headers.RECORD_BATCH, ("record batch", index))
        return header, self.body(body_at, body_bytes)

    _locate_batch = read_batch_message  # a remote reader overrides only the public method

    def body(self, offset: int, size_bytes: int) -> Any:
        """The bytes of a body; of a file that is read by ranges its place, a `RemoteBody`."""
        return Buffer(self._source.memory, offset, size_bytes)  # type: ignore[union-attr]

    def read_dictionary_messages(self) -> Iterator[tuple[BatchHeader, Buffer, tuple[object, ...]]]:
        """The header and body of each dictionary batch, in the footer's order, and how errors name it."""
        for index in range(self.num_dictionary_batches):
            where = ("dictionary batch", index)
            at = self._dictionaries_at + BLOCK.itemsize * index
            header, body_at, body_bytes = self._message(at, headers.DICTIONARY_BATCH, where)
            yield header, self.body(body_at, body_bytes), where

    def _message(self, at: int, kind: str, where: tuple[object, ...]) -> tuple[BatchHeader, int, int]:
        offset, metadata_bytes, body_bytes = _BLOCK.unpack_from(self._raw, at)
        body_at = offset + metadata_bytes
        if offset < 0 or metadata_bytes < 8 or body_bytes < 0 or body_at + body_bytes > self.footer_at:
            raise InvalidDataError(
                f"{self._source.name}: {where[0]} {where[1]}: expected a block before byte {self.footer_at}, found "
                f"{metadata_bytes} + {body_bytes} bytes at byte {offset}"
            )
        if metadata_bytes > self._limits.max_metadata_bytes:
            parse_prefix(
                _LENGTH.pack(metadata_bytes), self._source.name, self._limits.max_metadata_bytes
            )  # raises LimitError
        raw = self._source.peek(offset, metadata_bytes)
        skip = 8 if raw[:4] == CONTINUATION else 4
        header = self._headers.match(raw, skip) or self._parse(raw, skip, offset, where)
        if not isinstance(header, BatchHeader) or header.template.kind != kind:
            actual_kind = header.template.kind if isinstance(header, BatchHeader) else headers.SCHEMA
            raise InvalidDataError(
                f"{self._source.name}: {where[0]} {where[1]} at byte {offset}: "
                f"expected a {kind} message, found a {actual_kind}"
            )
        return header, body_at, body_bytes

    def _parse(
        self, raw: HeaderBytes, skip: int, offset: int, where: tuple[object, ...]
    ) -> BatchHeader | FlatbufferTable:
        length_bytes = _LENGTH.unpack(raw[skip - 4 : skip])[0]
        if not 0 < length_bytes <= len(raw) - skip:
            raise InvalidDataError(
                f"{self._source.name}: {where[0]} {where[1]} at byte {offset}: expected a metadata length of up to "
                f"{len(raw) - skip}, found {length_bytes}"
            )
        return self._headers.read(raw, skip, where)

    # Batches

    def get_batch(self, index: int) -> RecordBatch:
        """Record batch `index`, without copying; its columns are made when they are asked for.

        Raises `NotFoundError` where there is none, `InvalidDataError` where its header is malformed.
        """
        return self._batch(index, *self._locate_batch(index), self._columns)

    def read_whole_batch(self, index: int) -> RecordBatch:
        """Record batch `index`, of which all columns will be asked for; errors as of `get_batch`."""
        return self.get_batch(index)

    def _batch(self, index: int, header: BatchHeader, body: Buffer, kind: type[BatchColumns]) -> RecordBatch:
        if self._statistics is not None and header.length != self._statistics.row_counts[index]:
            raise InvalidDataError(
                f"{self._source.name}: record batch {index}: has {header.length} rows, but the file's statistics say "
                f"{self._statistics.row_counts[index]}"
            )
        cached, version = self.cached_schema, header.template.version
        plans = self._selections.get(version)
        if plans is None:
            plans = self._selections[version] = (
                cached.plan(version),
                cached.column_plans(self._column_indices, version),
            )
        dictionaries = self._dictionaries or self._load_dictionaries()
        where = ("record batch", index)
        columns = kind(plans[0], header, body, dictionaries, where, plans[1])
        return make_record_batch(self._selected_schema(), header, columns)

    def _load_dictionaries(self) -> FileDictionaries:
        if self._dictionaries is None:
            self._dictionaries = FileDictionaries(self.cached_schema.wire, self.read_dictionary_messages)
        return self._dictionaries

    def dictionary(self, node: DictionaryId) -> Array | None:
        """The values of one dictionary, of all its batches; None where the file does not define it.

        Raises `InvalidDataError` where one of the dictionary batches is malformed.
        """
        return self._load_dictionaries()(node)

    def column(self, key: str | int) -> ChunkedArray:
        """One column of all batches, without copying; raises `NotFoundError` where there is none."""
        index, field = self._field(key)
        batches = list(self)
        link_batches(batch.source for batch in batches)
        return ChunkedArray([batch.column(index) for batch in batches], field.type)

    def _field(self, key: str | int) -> tuple[int, Field]:
        """A chosen column's position among them and its field, without a look at all the others."""
        schema = self._selected_schema()
        index = schema.index(key)
        return index, schema.field(index)

    def read_all(self) -> Table:
        """All batches as a table, without copying."""
        batches = list(self)
        link_batches(batch.source for batch in batches)
        return Table.from_batches(batches, self.schema)

    @overload
    def __getitem__(self, index: int) -> RecordBatch: ...
    @overload
    def __getitem__(self, index: slice) -> list[RecordBatch]: ...
    def __getitem__(self, index: int | slice) -> RecordBatch | list[RecordBatch]:
        if isinstance(index, slice):
            return [self.get_batch(i) for i in range(*index.indices(self.num_record_batches))]
        return self.get_batch(index)

    def __len__(self) -> int:
        return self.num_record_batches

    def __iter__(self) -> Iterator[RecordBatch]:
        return map(self.get_batch, range(self.num_record_batches))

    def close(self) -> None:
        """Close the file; batches that were read stay valid, as they hold the mapping."""
        self._source.close()

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The batches of the file, for another library; which has to stay open until it has them."""
        from bowstring.interop import c_data

        return c_data.export_stream(self.schema, self, requested_schema)

    def __repr__(self) -> str:
        state = "closed" if self._source.is_closed else f"{self.num_record_batches} record batches"
        return f"<bowstring.FileReader {self._source.name}: {state}>"
