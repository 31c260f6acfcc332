"""Batches as regions, and a region as messages: what is served always lies in memory that can be passed.

Whatever is given becomes a region with an uncompressed Arrow file in it, buffers at multiples of 64 bytes. A file
that exists is such a region already. Batches whose dictionaries change on the way can't be a file; they become a
stream, which is laid out alike.

A large table becomes several regions, each a file with some of its batches: the system lets one thread at a time write
to a memfd, so that this is how several processors copy it in.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.arrays.construction import as_batch, table
from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table, schema_has_dictionaries
from bowstring.datatypes.field import Schema
from bowstring.dissociated.wire import AddressBody
from bowstring.errors import InvalidDataError, TruncatedError, UsageError
from bowstring.io.memory_source import MemorySource
from bowstring.io.sinks import open_sink
from bowstring.ipc.file import FileReader
from bowstring.ipc.limits import DEFAULT_LIMITS
from bowstring.ipc.message import (
    CONTINUATION,
    FILE_START,
    LEGACY_PREFIX_BYTES,
    PREFIX_BYTES,
    is_file_start,
    parse_prefix,
)
from bowstring.ipc.metadata.header import BatchHeader, HeaderReader
from bowstring.ipc.stream import Encoder, StreamReader
from bowstring.ipc.writers import FileWriter, StreamWriter
from bowstring.memory.buffer import ALIGNMENT_BYTES, Memory
from bowstring.memory.descriptors import check_available
from bowstring.memory.region import Region
from bowstring.transports.regions import addresses_of


class SupportsArrowStream(Protocol):
    """Another library's table, by the C data interface."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A capsule with its batches."""


Batches: TypeAlias = RecordBatch | Table | FileReader | StreamReader | SupportsArrowStream | Iterable[RecordBatch]
"""What can be written into a region: ours, or another library's table."""

_FIRST_MESSAGE = len(FILE_START)
_PART_BYTES = 32 << 20
_MAX_PARTS = 8


def store(source: Batches, name: str = "table") -> tuple[Region, int]:
    """Copy batches once into a new sealed region: the region, and the number of rows.

    Raises `UsageError` for anything else than batches, `ResourceError` where memory is short; then nothing is left.
    """
    schema, batches = as_batches(source)
    if isinstance(source, RecordBatch | Table):
        check_available(source.nbytes, name)
        try:
            return _write(FileWriter, schema, batches, name)
        except UsageError:
            if not schema_has_dictionaries(schema):
                raise
            batches = as_batches(source)[1]
    kind = StreamWriter if schema_has_dictionaries(schema) else FileWriter
    return _write(kind, schema, batches, name)


def store_in_parts(source: Batches, name: str = "table") -> tuple[tuple[Region, ...], int]:
    """As `store`, but a large table is copied by as many threads as there are processors, each into its own region.

    The regions, whose batches follow one another, and the number of rows. What has dictionaries is one region.
    """
    if hasattr(source, "__arrow_c_stream__") and not isinstance(source, RecordBatch | FileReader | StreamReader):
        source = table(source)
    if not isinstance(source, Table) or len(shares := _shares(source)) < 2:
        region, rows = store(source, name)
        return (region,), rows
    from concurrent.futures import ThreadPoolExecutor  # it is only loaded where there is work for it

    check_available(source.nbytes, name)
    schema = source.schema
    with ThreadPoolExecutor(len(shares), "bowstring-copy") as pool:
        futures = [pool.submit(_write, FileWriter, schema, share, name) for share in shares]
    try:
        return tuple(future.result()[0] for future in futures), source.num_rows
    except BaseException:
        for future in futures:
            if future.exception() is None:
                future.result()[0].close()
        raise


def _shares(large_table: Table) -> list[list[RecordBatch]]:
    """A table's batches in runs of about the same size, one for each processor where there is enough to copy."""
    if schema_has_dictionaries(large_table.schema):
        return []
    batches = large_table.to_batches()
    sizes = np.array([batch.nbytes for batch in batches], np.int64)
    total = int(sizes.sum())
    count = min(os.cpu_count() or 1, _MAX_PARTS, total // _PART_BYTES)
    if count < 2:
        return []
    middles = np.cumsum(sizes) - sizes / 2
    owners = (middles * count / total).astype(np.int64).tolist()
    return [[b for b, owner in zip(batches, owners, strict=True) if owner == n] for n in sorted(set(owners))]


def as_batches(source: Batches) -> tuple[Schema, Iterable[RecordBatch]]:
    """Schema and batches of anything that has them. Raises `UsageError`."""
    if isinstance(source, RecordBatch):
        return source.schema, [source]
    if isinstance(source, Table):
        return source.schema, source.to_batches()
    if isinstance(source, FileReader | StreamReader):
        return source.schema, source
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        return as_batches(table(source))
    if hasattr(source, "__iter__"):
        iterator = iter(source)
        first = next(iterator, None)
        if isinstance(first, RecordBatch) or hasattr(first, "__arrow_c_array__"):
            first = as_batch(first)
            return first.schema, _chained(first, map(as_batch, iterator))
        if first is None:
            raise UsageError("no batches, so no schema: give an empty table")
    raise UsageError(f"expected a table, record batches or a reader, not {type(source).__name__}")


def _chained(first: RecordBatch, rest: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    yield first
    yield from rest


def _write(
    kind: type[FileWriter | StreamWriter], schema: Schema, batches: Iterable[RecordBatch], name: str
) -> tuple[Region, int]:
    rows = 0
    with Region.writer(name) as memory:
        writer = kind(open_sink(memory.fileno()), Encoder(schema, may_replace=kind is StreamWriter))
        with writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        return memory.seal(), rows


def open_region(region: Region) -> FileReader | StreamReader:
    """A reader of the file or stream in a region; nothing is copied, and its batches keep the mapping."""
    source = MemorySource(Memory(region.memory), region.name)
    if is_file_start(bytes(region.memory[:_FIRST_MESSAGE])):
        return FileReader(source)
    return StreamReader(source)


@dataclass(frozen=True, slots=True, eq=False)
class StoredMessage:
    """A message that lies in a region: its flatbuffer, and where body and buffers are, in bytes from the region's
    start.
    """

    metadata: bytes
    buffers: AddressBody
    body_offset: int
    body_bytes: int

    def addressed(self, index: int) -> AddressBody:
        """The buffers' addresses where this is the region with that index of a connection."""
        body = self.buffers  # the addresses in region 0 are the offsets
        return AddressBody(addresses_of(index, body.addresses), body.lengths, body.total_bytes) if index else body

    def shifted(self, shift_bytes: int, region_bytes: int) -> StoredMessage:
        """The same message in a region of `region_bytes` where everything lies `shift_bytes` further on."""
        offsets = (self.buffers.addresses.astype(np.int64) + shift_bytes).astype(np.uint64)
        buffers = _address_body(offsets, self.buffers.lengths, region_bytes)
        return StoredMessage(self.metadata, buffers, self.body_offset + shift_bytes, self.body_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class StoredDataset:
    """Everything that a server says about a file or stream in a region: the schema's flatbuffer, then dictionaries and
    batches in order.

    `offset_bytes` and `size_bytes` are where in the region it lies: a region may have several.
    """

    region: Region
    schema: bytes
    messages: tuple[StoredMessage, ...]
    num_rows: int
    offset_bytes: int
    size_bytes: int

    def moved(self, region: Region, offset_bytes: int) -> StoredDataset:
        """The same bytes in another region."""
        shift_bytes = offset_bytes - self.offset_bytes
        messages = tuple(message.shifted(shift_bytes, region.size_bytes) for message in self.messages)
        return StoredDataset(region, self.schema, messages, self.num_rows, offset_bytes, self.size_bytes)


def pack(datasets: Sequence[StoredDataset], name: str) -> list[StoredDataset]:
    """Copy the files and streams of several regions into a new sealed one, so that they need one descriptor together.

    Raises `ResourceError` if memory is short; then nothing is left behind.
    """
    offsets = []
    check_available(sum(dataset.size_bytes for dataset in datasets), name)
    with Region.writer(name) as memory:
        for dataset in datasets:
            offsets.append(memory.tell())
            padding = bytes(-dataset.size_bytes % ALIGNMENT_BYTES)
            memory.writelines((dataset.region.view(dataset.offset_bytes, dataset.size_bytes), padding))
        region = memory.seal()
    return [dataset.moved(region, offset) for dataset, offset in zip(datasets, offsets, strict=True)]


def read_stored_dataset(region: Region) -> StoredDataset:
    """Read the headers of the file or stream in a region; bodies are not touched. Raises `InvalidDataError`s."""
    source = MemorySource(Memory(region.memory), region.name)
    is_file = is_file_start(source.read_at(0, min(_FIRST_MESSAGE, source.size)))
    if is_file:
        reader = FileReader(source)
        _ = reader.schema
        schema, _ = _framed(source, _FIRST_MESSAGE)
        messages = [
            _message(header, body.offset, region.size_bytes, True)
            for header, body, _ in reader.read_dictionary_messages()
        ]
        rows = 0
        for index in range(reader.num_record_batches):
            header, body = reader.read_batch_message(index)
            rows += header.length
            messages.append(_message(header, body.offset, region.size_bytes, True))
        return StoredDataset(region, schema, tuple(messages), rows, 0, region.size_bytes)
    StreamReader(source)  # it says in detail what is wrong with other bytes
    schema, position = _framed(source, 0)
    headers, messages, rows = HeaderReader(DEFAULT_LIMITS), [], 0
    while position < source.size:
        raw, position = _framed(source, position)
        if not raw:
            break
        read = headers.read(raw, 0, ("message", len(messages) + 1))
        if not isinstance(read, BatchHeader) or read.body_bytes > source.size - position:
            raise InvalidDataError(
                f"{region.name}: message {len(messages) + 1} is no batch that ends within the stream"
            )
        messages.append(_message(read, position, region.size_bytes, False))
        rows += read.length if read.template.kind == "RecordBatch" else 0
        position += read.body_bytes
    return StoredDataset(region, schema, tuple(messages), rows, 0, region.size_bytes)


def _framed(source: MemorySource, position: int) -> tuple[bytes, int]:
    """The flatbuffer of the message that begins at `position`, and where its body begins; no bytes at an end marker."""
    prefix = source.read_at(position, min(PREFIX_BYTES, source.size - position))
    where = f"{source.name}: message at byte {position}"
    if len(prefix) < PREFIX_BYTES:
        return b"", source.size
    length_bytes, skip = parse_prefix(prefix, where, DEFAULT_LIMITS.max_metadata_bytes)
    raw = source.read_at(position + skip, min(length_bytes, source.size - position - skip))
    if len(raw) < length_bytes:
        raise TruncatedError(f"{where}: expected {length_bytes} bytes of metadata, found {len(raw)}")
    return raw, position + skip + length_bytes


def _message(header: BatchHeader, body_offset: int, region_bytes: int, is_framed: bool) -> StoredMessage:
    spans, metadata = header.buffers(), bytes(header.raw[:])
    if is_framed:
        skip = PREFIX_BYTES if metadata[:4] == CONTINUATION else LEGACY_PREFIX_BYTES
        metadata = metadata[skip : skip + int.from_bytes(metadata[skip - 4 : skip], "little")]
    buffers = _address_body(spans["offset"] + body_offset, spans["length"], region_bytes)
    return StoredMessage(metadata, buffers, body_offset, header.body_bytes)


def _address_body(offsets: npt.ArrayLike, lengths: npt.ArrayLike, region_bytes: int) -> AddressBody:
    """The buffers at these offsets of a region; empty ones at its end, where no other buffer begins."""
    return AddressBody.of(np.where(np.asarray(lengths) > 0, offsets, region_bytes), lengths)
