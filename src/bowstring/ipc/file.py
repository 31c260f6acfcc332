"""The file format («IPC File Format»): messages by the footer's blocks, and random access to record batches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import index as to_integer
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from bowstring.arrays.array import Array
from bowstring.arrays.chunked_array import ChunkedArray
from bowstring.arrays.record_batch import RecordBatch, filter_batches
from bowstring.arrays.table import Table
from bowstring.datatypes.field import Field, Metadata
from bowstring.datatypes.schema import Schema
from bowstring.display.objects import source_to_html
from bowstring.errors import ClosedError, InvalidArgumentError, InvalidDataError, NotFoundError, format_count
from bowstring.flatbuf.reader import FlatTable
from bowstring.interop import c_data
from bowstring.io.memory_source import MemorySource
from bowstring.io.range_source import RangeSource
from bowstring.ipc.dictionaries.reader import FileDictionaries
from bowstring.ipc.file_statistics import FileStatistics, check_batch_statistics, read_statistics
from bowstring.ipc.footer import read_footer
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.message import (
    FILE_START,
    PREFIX_BYTES,
    Block,
    Message,
    MessageCounts,
    MessageReader,
    get_prefix_size,
    metadata_limit_error,
    parse_prefix,
)
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.field import DictionaryDeclaration, read_custom_metadata
from bowstring.ipc.metadata.header import BatchHeader, HeaderReader
from bowstring.ipc.metadata.schema import ColumnSelection, IpcSchema
from bowstring.ipc.record_batch.reader import BatchColumns, BodyLocation, create_batch, link_for_decompression
from bowstring.ipc.schema_cache import get_ipc_schema
from bowstring.kernels.filters import Filters, FiltersLike, parse_filters
from bowstring.memory.buffer import Buffer, Memory
from bowstring.memory.closable import Closable
from bowstring.memory.forks import cached_property

# Malformed fields of ordinary schemas are errors at once; wide files are opened without decoding all fields.
_MAX_EAGER_FIELDS = 256
KIND_LABELS = {headers.DICTIONARY_BATCH: "dictionary batch", headers.RECORD_BATCH: "record batch"}


class FileMessages:
    """The messages of a file, read by the blocks of its footer; bodies are located, not read.

    Raises `FormatMismatchError` for another format, `TruncatedError` for a file that is cut off, other
    `InvalidDataError`s for a malformed footer. Several threads may use it.
    """

    def __init__(self, source: MemorySource | RangeSource, limits: ReadLimits) -> None:
        self.source = source
        self.limits = limits
        self.footer = read_footer(source, limits)
        self.block_lists = {
            headers.DICTIONARY_BATCH: self.footer.dictionaries,
            headers.RECORD_BATCH: self.footer.batches,
        }
        self.headers = HeaderReader(limits)

    def read_all(self) -> Iterator[tuple[Message[BatchHeader], str]]:
        """Read every dictionary batch, then every record batch; the second value names it in errors."""
        for kind, index in self._enumerate_messages():
            yield self.read(kind, index), f"{KIND_LABELS[kind]} {index}"

    def _enumerate_messages(self) -> Iterator[tuple[str, int]]:
        """The kind and the index of every message."""
        for kind, block_list in self.block_lists.items():
            for index in range(block_list.count):
                yield kind, index

    def get_block(self, kind: str, index: int) -> Block:
        """The position of a message, unchecked."""
        return self.footer.get_block(self.block_lists[kind], index)

    def read_schema_message(self) -> FlatTable:
        """Read the schema message at the beginning of the file. Only readers of streams need it: the footer has a copy.

        Raises `InvalidDataError` if there is another message or none, or if it is malformed.
        """
        source, reader = self.source, MessageReader(self.source.name, self.limits, HeaderReader(self.limits).read)
        reader.seek(len(FILE_START))
        message = reader.read(source.read_at, self.footer.offset)
        if isinstance(message, Message) and isinstance(message.header, FlatTable):
            return message.header
        actual = f"a {message.header.template.kind}" if isinstance(message, Message) else "the end of the stream"
        raise InvalidDataError(f"{source.name}: message at byte {message.offset}: expected a schema, found {actual}")

    def read(self, kind: str, index: int) -> Message[BatchHeader]:
        """Read the dictionary batch or record batch at `index` of the footer's list; errors as in `read_header`."""
        header, (offset, metadata_bytes, body_bytes) = self.read_header(kind, index)
        return Message(header, offset, get_prefix_size(header.raw[:4]), metadata_bytes, body_bytes)

    def read_header(self, kind: str, index: int) -> tuple[BatchHeader, Block]:
        """Read the header of the dictionary batch or record batch at `index` of the footer's list.

        Raises `InvalidDataError` if its block or header is malformed.
        """
        block = self.footer.get_block(self.block_lists[kind], index)
        if not self.is_valid_block(block):
            raise self._block_error(block, kind, index)
        raw = self.source.read_lazily(block[0], block[1])
        # A template includes the prefix of a header that was read before.
        location = KIND_LABELS[kind], index
        header = self.headers.read_with_template(raw, location) or self._parse_header(raw, block, kind, index)
        if not isinstance(header, BatchHeader) or header.template.kind != kind:
            actual_kind = header.template.kind if isinstance(header, BatchHeader) else headers.SCHEMA
            raise InvalidDataError(
                f"{self._describe(block, kind, index)}: expected a {kind} message, found a {actual_kind}"
            )
        return header, block

    def is_valid_block(self, block: Block) -> bool:
        """Whether a block ends before the footer, has no negative size and no more metadata than the limit."""
        offset, metadata_bytes, body_bytes = block
        return (
            offset >= 0
            and PREFIX_BYTES <= metadata_bytes <= self.limits.max_metadata_bytes
            and body_bytes >= 0
            and offset + metadata_bytes + body_bytes <= self.footer.offset
        )

    def _block_error(self, block: Block, kind: str, index: int) -> InvalidDataError:
        """Return the error for a block that is not valid."""
        offset, metadata_bytes, body_bytes = block
        location = f"{self.source.name}: {KIND_LABELS[kind]} {index}"
        if metadata_bytes > self.limits.max_metadata_bytes:
            return metadata_limit_error(metadata_bytes, (location,), self.limits)
        return InvalidDataError(
            f"{location}: expected a block before byte {self.footer.offset}, found {metadata_bytes} + {body_bytes} "
            f"bytes at byte {offset}"
        )

    def _parse_header(self, raw: Any, block: Block, kind: str, index: int) -> BatchHeader | FlatTable:
        """Parse the metadata of a valid block, of which only the needed bytes are read."""
        prefix_bytes, size_bytes = parse_prefix(raw[:PREFIX_BYTES])
        # The body begins after the metadata. If one of the two lengths is damaged, which one is unknown, and the values
        # after the wrong one could be valid.
        if size_bytes != block[1] - prefix_bytes:
            raise InvalidDataError(
                f"{self._describe(block, kind, index)}: expected a metadata length of {block[1] - prefix_bytes}, as in "
                f"the footer, found {size_bytes}"
            )
        return self.headers.parse(raw, prefix_bytes, (KIND_LABELS[kind], index))

    def _describe(self, block: Block, kind: str, index: int) -> str:
        """Return the name of a message in errors."""
        return f"{self.source.name}: {KIND_LABELS[kind]} {index} at byte {block[0]}"

    def locate_body(self, block: Block) -> Any:
        """The body of a message, without copying: a `Buffer`; of a file that is read by ranges a `RemoteBody`."""
        offset, metadata_bytes, body_bytes = block
        return Buffer(self.source.memory, offset + metadata_bytes, body_bytes)  # type: ignore[union-attr]

    def read_dictionary_messages(self) -> Iterator[tuple[BatchHeader, Buffer, tuple[object, ...]]]:
        """The header and body of each dictionary batch, in the footer's order, and the words that name it in errors."""
        for index in range(self.footer.dictionaries.count):
            header, block = self.read_header(headers.DICTIONARY_BATCH, index)
            yield header, self.locate_body(block), ("dictionary batch", index)


class FileReader(Closable):
    """Random access to the record batches of a file: `reader[i]`, `get_batch(i)`, or iterate.

    Opening reads only the footer, a batch its header, a column its buffers; a source in memory is not copied. `columns`
    selects columns by name or index. Raises `FormatMismatchError` for another
    format, `TruncatedError` for a file that is cut off, other `InvalidDataError`s for malformed metadata.

    >>> with bs.new_file("numbers.arrow", {"n": "int64"}) as writer:
    ...     for number in range(3):
    ...         writer.write(bs.record_batch({"n": [number] * 2}))
    >>> with bs.open_file("numbers.arrow") as reader:
    ...     reader.num_record_batches, reader[2]["n"].to_pylist()
    (3, [2, 2])
    """

    _columns_type: type[BatchColumns] = BatchColumns
    _messages_type: type[FileMessages] = FileMessages

    def __init__(
        self,
        source: MemorySource | RangeSource,
        columns: Sequence[str | int] | None = None,
        limits: ReadLimits = DEFAULT_LIMITS,
    ) -> None:
        self.messages = self._messages_type(source, limits)
        self._column_keys = columns
        self._selection: ColumnSelection | None = None
        self._dictionaries: FileDictionaries  # set with the selection
        self._statistics: FileStatistics | None = None
        """The statistics of all columns, once they have been read."""
        if columns is not None:
            self._select_columns()  # raises an error for an unknown column now

    @property
    def name(self) -> str:
        """The name of the source, as in errors."""
        return self.messages.source.name

    # Footer

    @property
    def footer(self) -> FlatTable:
        """The footer's flatbuffer table."""
        return self.messages.footer.table

    @property
    def footer_offset(self) -> int:
        """The byte offset of the footer."""
        return self.messages.footer.offset

    @property
    def num_record_batches(self) -> int:
        """The number of record batches."""
        return self.messages.footer.batches.count

    @property
    def num_dictionary_batches(self) -> int:
        """The number of dictionary batches."""
        return self.messages.footer.dictionaries.count

    @property
    def stats(self) -> MessageCounts:
        """The numbers of messages in the file according to its footer, whether they have been read or not."""
        batches, dictionaries = self.num_record_batches, self.num_dictionary_batches
        return MessageCounts(1 + batches + dictionaries, batches, dictionaries)

    def _select_columns(self) -> ColumnSelection:
        selection = self._selection
        if selection is None:
            footer, limits = self.messages.footer, self.messages.limits
            ipc_schema = get_ipc_schema(footer.table["schema"], limits, footer.get_slices_outside_block_lists())
            selection = ColumnSelection(ipc_schema, self._column_keys)
            # A method of the reader would be a reference cycle: the memory would stay until garbage is collected.
            self._dictionaries = FileDictionaries(ipc_schema, self.messages.read_dictionary_messages)
            self._selection = selection
        return selection

    @property
    def ipc_schema(self) -> IpcSchema:
        """The schema of all columns, with dictionary ids and column positions."""
        return self._select_columns().ipc_schema

    @property
    def schema(self) -> Schema:
        """The schema of the selected columns.

        Up to 256 fields are decoded at once, and malformed ones raise `InvalidDataError`. With more fields, each is
        decoded on access.
        """
        schema = self._select_columns().schema
        if len(schema) <= _MAX_EAGER_FIELDS:
            tuple(schema)
        return schema

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """The footer's custom metadata."""
        return dict(self.footer_metadata)

    @cached_property
    def footer_metadata(self) -> Metadata:
        """The footer's custom metadata, in order."""
        # Read once: each time would use up the budget of the flatbuffer.
        return read_custom_metadata(self.footer)

    @property
    def memory(self) -> Memory:
        """The file's bytes. Raises `InvalidArgumentError` for a file that is read by ranges."""
        if not isinstance(self.messages.source, MemorySource):
            raise InvalidArgumentError(f"{self.name}: is read by ranges, so it is not in memory")
        return self.messages.source.memory

    @property
    def descriptor(self) -> int:
        """The descriptor of the mapped file; -1 for other sources."""
        return self.messages.source.descriptor

    @property
    def blocks(self) -> npt.NDArray[np.void]:
        """The positions of the record batches: a view of dtype `BLOCK` (offset, metaDataLength, bodyLength)."""
        footer = self.messages.footer
        return footer.get_blocks(footer.batches)

    @property
    def dictionary_blocks(self) -> npt.NDArray[np.void]:
        """The positions of the dictionary batches, as `blocks`."""
        footer = self.messages.footer
        return footer.get_blocks(footer.dictionaries)

    # Statistics

    @property
    def statistics(self) -> FileStatistics | None:
        """The statistics in the file (`FileWriter.enable_statistics`); None if there are none.

        Row counts are compared with the header of each batch that is read afterwards, minima and maxima are not
        checked. Raises `InvalidDataError` if the statistics are malformed or contradict each other.
        """
        if self._statistics is None:
            self._statistics = self.read_statistics(None)
        return self._statistics

    def read_statistics(self, columns: Collection[int] | None) -> FileStatistics | None:
        """Read the statistics of some columns of the file, by index, as `statistics`; None if there are none."""
        if self._statistics is not None:
            return self._statistics
        limits = self.messages.limits
        return read_statistics(self.footer_metadata, self.ipc_schema, self.blocks, limits, self.name, columns)

    @property
    def row_counts(self) -> npt.NDArray[np.int64]:
        """The number of rows of each record batch, shape (batches,): from statistics if any, else from the headers."""
        if self.statistics is not None:
            return self.statistics.row_counts
        return np.array([self._read_message(index)[0].length for index in range(self.num_record_batches)], np.int64)

    @property
    def num_rows(self) -> int:
        """The number of rows of all record batches."""
        return sum(self.row_counts.tolist())

    def check_statistics(self) -> None:
        """Compare the file's statistics with all values.

        Raises an `InvalidDataError` that names the record batch and the index of the column if they differ.
        """
        if self.statistics is not None:
            reader = type(self)(self.messages.source, None, self.messages.limits)
            reader._statistics = self.statistics
            for index in range(self.num_record_batches):
                check_batch_statistics(self.statistics, index, reader.get_batch(index).columns)

    def find_batches(self, column: str | int, low: Any = None, high: Any = None) -> list[int]:
        """Return the indices of the record batches that may contain a value of a column from `low` to `high`, both
        included; None means no bound.

        According to the file's statistics, the other batches contain no such value; without statistics of the column,
        all batches are returned. `column` is a name or index in the whole file, selected or not; bounds are compared
        with plain values, without dictionary, run-end encoding and extension type. Raises `NotFoundError` for an
        unknown column, `TypeMismatchError` for bounds of another type, `InvalidArgumentError` for NaN.

        >>> with bs.new_file("days.arrow", {"day": "int64"}) as writer:
        ...     writer.enable_statistics(["day"])
        ...     for day in range(4):
        ...         writer.write(bs.record_batch({"day": [day, day]}))
        >>> with bs.open_file("days.arrow") as reader:
        ...     reader.find_batches("day", low=1, high=2)
        [1, 2]
        """
        index = self.ipc_schema.schema.index(column)
        if self.statistics is None:
            return list(range(self.num_record_batches))
        return self.statistics.find_batches(index, low, high)

    # Messages

    def read_batch_message(self, index: int) -> tuple[BatchHeader, Buffer]:
        """The header and the body of record batch `index`; the body is located, not read."""
        return self._read_message(index)

    def _read_message(self, index: int) -> tuple[BatchHeader, Any]:
        messages, number = self.messages, self._resolve_index(index)
        if messages.source.is_closed:
            raise ClosedError(f"{self.name}: the reader is closed")
        header, block = messages.read_header(headers.RECORD_BATCH, number)
        return header, messages.locate_body(block)

    def _resolve_index(self, index: int) -> int:
        """Return the index of a record batch from the beginning; a negative one counts from the end."""
        count = self.messages.footer.batches.count
        try:
            number = to_integer(index)
        except TypeError:
            raise InvalidArgumentError(f"expected the index of a record batch, found {index!r:.80}") from None
        if not -count <= number < count:
            raise NotFoundError(f"{self.name}: record batch {index} is out of range: the file has {count}")
        return number % count

    def read_dictionary_messages(self) -> Iterator[tuple[BatchHeader, Buffer, tuple[object, ...]]]:
        """As `FileMessages.read_dictionary_messages`."""
        return self.messages.read_dictionary_messages()

    # Batches

    def get_batch(self, index: int) -> RecordBatch:
        """Return record batch `index`, without copying; its columns are created on access.

        Raises `NotFoundError` if the index is out of range, `InvalidDataError` if the header is malformed.

        >>> with bs.new_file("numbers.arrow", {"n": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"n": [1, 2]}))
        >>> with bs.open_file("numbers.arrow") as reader:
        ...     reader.get_batch(0)["n"].to_pylist()
        [1, 2]
        """
        return self._create_batch(index, *self._read_message(index), self._columns_type)

    def read_whole_batch(self, index: int) -> RecordBatch:
        """Return record batch `index`, all of whose columns will be read; errors as in `get_batch`."""
        return self.get_batch(index)

    def _create_batch(
        self, index: int, header: BatchHeader, body: BodyLocation, columns_type: type[BatchColumns]
    ) -> RecordBatch:
        if self._statistics is not None and header.length != self._statistics.row_counts[index]:
            raise InvalidDataError(
                f"{self.name}: record batch {index}: has {header.length} rows, expected "
                f"{self._statistics.row_counts[index]} by the file's statistics"
            )
        selection = self._selection or self._select_columns()
        return create_batch(selection, header, body, self._dictionaries, ("record batch", index), columns_type)

    def get_dictionary(self, declaration: DictionaryDeclaration) -> Array | None:
        """Return the values of a dictionary, including deltas; None if the file does not define it.

        Raises `InvalidDataError` if one of its dictionary batches is malformed.
        """
        self._select_columns()
        return self._dictionaries(declaration)

    def column(self, key: str | int) -> ChunkedArray:
        """Return a column of all batches, without copying. Raises `NotFoundError` for an unknown column.

        >>> with bs.new_file("numbers.arrow", {"n": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"n": [1, 2]}))
        ...     writer.write(bs.record_batch({"n": [3]}))
        >>> with bs.open_file("numbers.arrow") as reader:
        ...     reader.column("n")
        <bowstring.ChunkedArray int64[3] in 2 chunks>
        [1, 2, 3]
        """
        index, field = self._get_index_and_field(key)
        batches = list(self)
        link_for_decompression(batches)
        return ChunkedArray([batch.column(index) for batch in batches], field.type)

    def _get_index_and_field(self, key: str | int) -> tuple[int, Field]:
        """Return the index of a selected column and its field; other fields are not decoded."""
        schema = self._select_columns().schema
        index = schema.index(key)
        return index, schema.field(index)

    def read_all(self, filters: FiltersLike | None = None) -> Table:
        """Return all batches as a table, without copying, or the rows that match filters, as `filter_batches`.

        >>> with bs.new_file("numbers.arrow", {"n": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"n": [1, 2, 3]}))
        >>> with bs.open_file("numbers.arrow") as reader:
        ...     reader.read_all([("n", ">", 1)])["n"].to_pylist()
        [2, 3]
        """
        batches = list(self if filters is None else self.filter_batches(filters))
        if filters is None:
            link_for_decompression(batches)
        return Table.from_batches(batches, self.schema)

    def filter_batches(self, filters: FiltersLike) -> Iterator[RecordBatch]:
        """Yield the rows that match filters such as ``[("a", ">", 5)]``, as `Table.filter`, batch by batch.

        The filters may name columns of the file that are not selected. Batches that have no matching rows according to
        the file's statistics are not read. Raises as `Table.filter`.

        >>> with bs.new_file("numbers.arrow", {"n": "int64"}) as writer:
        ...     writer.write(bs.record_batch({"n": [1, 2]}))
        ...     writer.write(bs.record_batch({"n": [3, 4]}))
        >>> with bs.open_file("numbers.arrow") as reader:
        ...     [batch["n"].to_pylist() for batch in reader.filter_batches([("n", ">", 1)])]
        [[2], [3, 4]]
        """
        parsed, selected = parse_filters(filters, self.ipc_schema.schema), self._select_columns().indices
        candidates = self.find_candidates(parsed)
        if selected is None:
            yield from filter_batches(self._iter_candidates(candidates, parsed), parsed)
            return
        columns = [*selected, *(index for index in parsed.column_indices if index not in selected)]
        reader = type(self)(self.messages.source, columns, self.messages.limits)
        filters_of_columns = parsed.with_column_indices({index: at for at, index in enumerate(columns)})
        batches = reader._iter_candidates(candidates, filters_of_columns)
        yield from filter_batches(batches, filters_of_columns, len(selected))

    def find_candidates(self, filters: Filters) -> list[int]:
        """Return the indices of the batches that may have rows which match filters of all columns of the file."""
        statistics = self.read_statistics(filters.column_indices)
        if statistics is None:
            return list(range(self.num_record_batches))
        candidates: list[int] = np.flatnonzero(statistics.may_match(filters)).tolist()
        return candidates

    def _iter_candidates(self, indices: Iterable[int], _filters: Filters) -> Iterator[RecordBatch]:
        """Iterate over the record batches at `indices`, except batches that can't have matching rows."""
        return self.iter_batches(indices)

    def iter_batches(self, indices: Iterable[int]) -> Iterator[RecordBatch]:
        """Iterate over the record batches at `indices`.

        >>> with bs.new_file("numbers.arrow", {"n": "int64"}) as writer:
        ...     for number in range(4):
        ...         writer.write(bs.record_batch({"n": [number]}))
        >>> with bs.open_file("numbers.arrow") as reader:
        ...     [batch["n"].to_pylist() for batch in reader.iter_batches([3, 1])]
        [[3], [1]]
        """
        return map(self.get_batch, indices)

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
        return self.iter_batches(range(self.num_record_batches))

    def close(self) -> None:
        """Close the file. Batches that were read stay valid; they keep the mapping alive."""
        self.messages.source.close()

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the batches by the C stream interface. The file must stay open until they are read."""
        return c_data.export_stream(self.schema, self, requested_schema)

    def __repr__(self) -> str:
        is_closed = self.messages.source.is_closed
        state = "closed" if is_closed else format_count(self.num_record_batches, "record batch")
        return f"<bowstring.ipc.FileReader {self.name}: {state}>"

    _repr_html_ = source_to_html
