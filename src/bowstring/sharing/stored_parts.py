"""Store batches in regions, and read the messages of regions, which are served from there.

A region contains an uncompressed Arrow file with buffers aligned to 64 bytes; an existing file is a region already.
Batches whose dictionaries change can't be stored as a file, and are stored as a stream.

A large table is stored in several regions, each a file with some of its batches, because only one thread at a time can
write to a memfd. Writing it through a mapping would take twice as long, for page faults; only an arena, whose pages are
mapped already, is filled that way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from bowstring.arrays.record_batch import RecordBatch
from bowstring.arrays.table import Table, has_dictionary_fields, table
from bowstring.datatypes.schema import Schema
from bowstring.dissociated.messages import AddressBody
from bowstring.errors import InvalidArgumentError, ResourceError
from bowstring.io.memory_source import MemorySource
from bowstring.io.sinks import Sink, open_sink
from bowstring.ipc.api import BatchesLike, as_schema_and_batches
from bowstring.ipc.file import FileReader
from bowstring.ipc.format_detection import detect_format
from bowstring.ipc.limits import DEFAULT_LIMITS
from bowstring.ipc.metadata.header import RECORD_BATCH, build_schema_message
from bowstring.ipc.stream import Decoder, Encoder, StreamReader
from bowstring.ipc.tools.message_writer import copy_schema_table
from bowstring.ipc.tools.scan import BatchMessage, StreamScan, create_scan
from bowstring.ipc.writers import FileWriter, StreamWriter
from bowstring.memory.arena import Arena
from bowstring.memory.available_memory import check_available_memory, spare_memory_bytes
from bowstring.memory.buffer import ALIGNMENT_BYTES, Buffer, Memory
from bowstring.memory.region import FileRange, Region, RegionWriter
from bowstring.memory.thread_pool import map_in_new_threads
from bowstring.memory.unnamed_file import check_free_space, is_in_memory
from bowstring.sharing.deferred_copy_sink import DeferredCopySink

# A thread takes some milliseconds to copy it, long compared to starting the thread and to one more region for readers
# to map.
_PART_BYTES = 32 << 20
# The memory's bandwidth is exhausted by fewer processors; each part is a descriptor and a mapping in every reader.
_MAX_PARTS = 8
_READ_BYTES = 1 << 18
"""How much of a file is read at once: small bodies take less time than calls."""
_MIN_CHECKED_BYTES, _MAX_CHECKED_BYTES = 1 << 20, 16 << 20
"""How much is written between two checks of the spare memory: its margin covers what eight threads write."""

FolderFinder: TypeAlias = Callable[[], Sequence[str]]
"""Returns the folders for unnamed files, the best first; called if memory is short."""


class TableRegions(NamedTuple):
    """The regions of a table, whose batches follow one another. If they were just written, the schema and the number of
    rows of each are known.
    """

    regions: tuple[Region, ...]
    schema: Schema | None = None
    row_counts: tuple[int, ...] = ()


def store_in_region(
    source: BatchesLike, name: str = "table", arena: Arena | None = None, find_folders: FolderFinder | None = None
) -> tuple[Region, int]:
    """Copy batches once into a new sealed region, or into memory of an arena. Return the region and the number of rows.

    With an arena, all batches of a reader are read first. Raises `InvalidArgumentError` for other objects,
    `ResourceError` if memory is short.
    """
    return _store_batches(source, *as_schema_and_batches(source), name, arena, find_folders)


def store_in_regions(
    source: BatchesLike, name: str = "table", arena: Arena | None = None, find_folders: FolderFinder | None = None
) -> TableRegions:
    """As `store_in_region`, but a large table is copied by one thread per processor, each into its own region.

    Memory of an arena is one region, as several threads can write it. With `find_folders`, what exceeds the
    spare memory is written to unnamed files in the first folder that allows it. A table with dictionaries is one
    region.
    """
    source = as_table_of_other_library(source)
    if arena is not None or not isinstance(source, Table) or len(groups := _group_batches_by_size(source)) < 2:
        schema, batches = as_schema_and_batches(source)
        region, num_rows = _store_batches(source, schema, batches, name, arena, find_folders)
        return TableRegions((region,), schema, (num_rows,))
    if find_folders is None:
        check_available_memory(source.nbytes, name)
    schema = source.schema
    stored: dict[int, tuple[Region, int]] = {}

    def write_group(index: int) -> None:
        stored[index] = _write_region(FileWriter, schema, groups[index], name, None, find_folders)

    try:
        map_in_new_threads(write_group, range(len(groups)), len(groups))
    except BaseException:
        # Frees the memory now, and not with the error's traceback.
        for region, _ in stored.values():
            region.close()
        raise
    regions, row_counts = zip(*(stored[index] for index in range(len(groups))), strict=True)
    return TableRegions(regions, schema, row_counts)


def as_table_of_other_library(source: BatchesLike) -> BatchesLike:
    """Return the table of another library as Bowstring's, without copying; anything else as it is."""
    # Iterators are readers of other libraries, whose batches may not fit into memory together.
    is_foreign = hasattr(source, "__arrow_c_stream__") and not isinstance(source, RecordBatch | FileReader | Iterator)
    return table(source) if is_foreign else source


def _store_batches(
    source: BatchesLike,
    schema: Schema,
    batches: Iterable[RecordBatch],
    name: str,
    arena: Arena | None,
    find_folders: FolderFinder | None,
) -> tuple[Region, int]:
    if arena is not None:
        batches = list(batches)
    if isinstance(source, RecordBatch | Table):
        if arena is None and find_folders is None:
            check_available_memory(source.nbytes, name)
        try:
            return _write_region(FileWriter, schema, batches, name, arena, find_folders)
        except InvalidArgumentError:
            if not has_dictionary_fields(schema):
                raise
            # Begins again, as a stream: a file can't replace a dictionary. Tables can be read twice, readers not.
            batches = as_schema_and_batches(source)[1]
    writer_class = StreamWriter if has_dictionary_fields(schema) else FileWriter
    return _write_region(writer_class, schema, batches, name, arena, find_folders)


def _group_batches_by_size(source: Table) -> list[list[RecordBatch]]:
    """Group the batches of a table by about the same size, one group per processor; fewer for small tables."""
    if has_dictionary_fields(source.schema):
        return []
    batches = source.to_batches()
    sizes = np.array([batch.nbytes for batch in batches], np.int64)
    total = int(sizes.sum())
    count = min(os.cpu_count() or 1, _MAX_PARTS, total // _PART_BYTES)
    if count < 2:
        return []
    # A batch belongs to the group of its middle byte, so that the order is kept, and sizes differ by a batch at most.
    middles = np.cumsum(sizes) - sizes / 2
    group_indices = (middles * count / total).astype(np.int64).tolist()
    return [
        [batch for batch, index in zip(batches, group_indices, strict=True) if index == group]
        for group in sorted(set(group_indices))
    ]


def _write_region(
    writer_class: type[FileWriter | StreamWriter],
    schema: Schema,
    batches: Iterable[RecordBatch],
    name: str,
    arena: Arena | None,
    find_folders: FolderFinder | None,
) -> tuple[Region, int]:
    if arena is not None:
        sink = DeferredCopySink(name)
        rows = _write_batches(writer_class, sink, schema, batches)
        with arena.create_builder(sink.position, name) as builder:
            sink.copy_into(builder.memory)
            return builder.seal(), rows
    with Region.create_writer(name) as memory:
        file = open_sink(memory.fileno())
        file.name = f"region {name!r}"
        rows = _write_batches(writer_class, file, schema, _check_memory(batches, memory, find_folders))
        return memory.seal(), rows


def _check_memory(
    batches: Iterable[RecordBatch], memory: RegionWriter, find_folders: FolderFinder | None
) -> Iterator[RecordBatch]:
    """The batches, before each of which memory is checked: the size of a reader or an iterable is not known before. If
    memory can't be spared, the region becomes a file in one of the folders.

    For files, the available memory is read in growing steps: what is written in between is in its margin. Raises
    `ResourceError` if there is neither memory nor disk space.
    """
    unchecked_bytes, step_bytes = 0, _MIN_CHECKED_BYTES
    for batch in batches:
        if find_folders is None:
            check_available_memory(batch.nbytes, memory.name)
        elif memory.spill_folder is None:
            unchecked_bytes += batch.nbytes
            if unchecked_bytes >= step_bytes:
                spare_bytes = spare_memory_bytes()
                if spare_bytes is not None and batch.nbytes > spare_bytes:
                    _spill(memory, batch.nbytes, spare_bytes, find_folders())
                unchecked_bytes, step_bytes = 0, min(2 * step_bytes, _MAX_CHECKED_BYTES)
        if memory.spill_folder is not None:
            check_free_space(memory.spill_folder, batch.nbytes, f"region {memory.name!r}: memory is short")
        yield batch


def _spill(memory: RegionWriter, needed_bytes: int, spare_bytes: int, folders: Sequence[str]) -> None:
    shortage = f"memory is short: {needed_bytes} bytes more are needed, and {max(spare_bytes, 0)} can be spared"
    if is_in_memory(folders[0]):
        raise ResourceError(f"region {memory.name!r}: {shortage}; files in {', '.join(folders)} take memory, too")
    try:
        memory.spill(folders)
    except ResourceError as problem:
        raise ResourceError(f"region {memory.name!r}: {shortage}; {problem}", problem) from problem


def _write_batches(
    writer_class: type[FileWriter | StreamWriter], sink: Sink, schema: Schema, batches: Iterable[RecordBatch]
) -> int:
    """Write batches and return their number of rows."""
    rows = 0
    with writer_class(sink, Encoder(schema, may_replace=writer_class is StreamWriter)) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def open_region_reader(region: Region) -> FileReader | StreamReader:
    """Open the file or stream in a region. Nothing is copied, and the batches keep the mapping."""
    source = MemorySource(Memory(region.memory), region.name)
    if detect_format(source) == "file":
        return FileReader(source)
    return StreamReader(source)


@dataclass(frozen=True, slots=True, eq=False)
class RegionMessage:
    """A message in a region: its flatbuffer, and the offsets of its body and buffers in the region, in bytes."""

    metadata: bytes
    buffers: AddressBody
    body_offset: int
    body_bytes: int

    def to_address_body(self, address: int) -> AddressBody:
        """Return the addresses of the buffers if the region begins at this address."""
        body = self.buffers  # the addresses of a region that begins at 0 are the offsets
        return body.with_addresses(body.addresses + np.uint64(address)) if address else body

    def shift_offsets(self, shift_bytes: int, region_bytes: int) -> RegionMessage:
        """Return the message for a region of `region_bytes` with all offsets higher by `shift_bytes`."""
        offsets = (self.buffers.addresses.astype(np.int64) + shift_bytes).astype(np.uint64)
        buffers = _create_address_body(offsets, self.buffers.lengths, region_bytes)
        return RegionMessage(self.metadata, buffers, self.body_offset + shift_bytes, self.body_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class RegionPart:
    """A part of a data set: a file or stream in a region, its schema's flatbuffer, and where its other messages are.

    `offset_bytes` and `size_bytes` are its location, because a region may contain several.
    """

    region: Region
    schema: bytes
    messages: tuple[RegionMessage, ...]
    num_rows: int
    offset_bytes: int
    size_bytes: int

    def move_to_region(self, region: Region, offset_bytes: int) -> RegionPart:
        """Return the part for a copy of its bytes in another region."""
        shift_bytes = offset_bytes - self.offset_bytes
        messages = tuple(message.shift_offsets(shift_bytes, region.size_bytes) for message in self.messages)
        return RegionPart(region, self.schema, messages, self.num_rows, offset_bytes, self.size_bytes)


def merge_into_region(parts: Sequence[RegionPart], name: str, spill_folders: Sequence[str] = ()) -> list[RegionPart]:
    """Copy the files and streams of several regions into a new one, which needs a single descriptor: a sealed one, or
    an unnamed file in one of `spill_folders`.

    Raises `ResourceError` if memory or disk space is short.
    """
    offsets = []
    with Region.create_writer(name) as memory:
        if spill_folders:
            memory.spill(spill_folders)
        else:
            check_available_memory(sum(part.size_bytes for part in parts), name)
        for part in parts:
            offsets.append(memory.tell())
            padding = bytes(-part.size_bytes % ALIGNMENT_BYTES)
            memory.writelines((part.region.view(part.offset_bytes, part.size_bytes), padding))
        region = memory.seal()
    return [part.move_to_region(region, offset) for part, offset in zip(parts, offsets, strict=True)]


class BodyReader:
    """Reads the bodies of a region's messages, in the order of its bytes.

    Those of a file are read, several short ones at once: another process can truncate the file, and then mapped bytes
    would be a SIGBUS. Others are mapped. `region` has the descriptor, if there is any.
    """

    __slots__ = ("_bytes", "_offset", "is_file", "region")

    def __init__(self, region: Region) -> None:
        self.region = region.duplicate() if region.is_descriptor_released else region
        self.is_file = self.region.has_descriptor and self.region.is_file
        self._offset, self._bytes = 0, memoryview(b"")

    def read(self, message: RegionMessage) -> memoryview:
        """Return the bytes of a body. Raises `TruncatedError` if the file has become shorter, `ResourceError`."""
        if not self.is_file:
            return self.region.view(message.body_offset, message.body_bytes)
        start = message.body_offset - self._offset
        if start < 0 or start + message.body_bytes > len(self._bytes):
            rest_bytes = self.region.size_bytes - message.body_offset
            size_bytes = max(message.body_bytes, min(_READ_BYTES, rest_bytes))
            self._bytes = FileRange(self.region, message.body_offset, size_bytes).read()
            self._offset, start = message.body_offset, 0
        return self._bytes[start : start + message.body_bytes]


def read_schema_and_batches(part: RegionPart) -> tuple[Schema, Iterator[RecordBatch]]:
    """Return the schema and the batches of a part, as `BodyReader` reads them.

    Raises `InvalidDataError`, also while iterating.
    """
    decoder = Decoder()
    decoder.decode_header(part.schema)
    return decoder.schema, _decode_batches(decoder, BodyReader(part.region), part.messages)


def _decode_batches(decoder: Decoder, reader: BodyReader, messages: Iterable[RegionMessage]) -> Iterator[RecordBatch]:
    for message in messages:
        batch = decoder.decode(message.metadata, Buffer(Memory(reader.read(message)), 0, message.body_bytes))
        if batch is not None:
            yield batch


def index_part(region: Region) -> RegionPart:
    """Index the messages of the file or stream in a region: read their headers. Raises `InvalidDataError`."""
    scan = create_scan(MemorySource(Memory(region.memory), region.name), DEFAULT_LIMITS)
    tuple(scan.ipc_schema.schema)  # raises errors of malformed fields now
    # For a file, the schema in the footer, which other readers use.
    schema = (
        scan.schema.flatbuffer.raw
        if isinstance(scan, StreamScan)
        else build_schema_message(copy_schema_table(scan.schema), scan.version)
    )
    messages, num_rows = [], 0
    for message in scan.batch_messages():
        num_rows += message.header.length if message.header.template.kind == RECORD_BATCH else 0
        messages.append(_create_stored_message(message, region.size_bytes))
    return RegionPart(region, schema, tuple(messages), num_rows, 0, region.size_bytes)


def _create_stored_message(message: BatchMessage, region_bytes: int) -> RegionMessage:
    spans = message.header.buffers()
    buffers = _create_address_body(spans["offset"] + message.body_offset, spans["length"], region_bytes)
    return RegionMessage(message.read_flatbuffer(), buffers, message.body_offset, message.body_bytes)


def _create_address_body(offsets: npt.ArrayLike, lengths: npt.ArrayLike, region_bytes: int) -> AddressBody:
    """The buffers at these offsets of a region; empty ones at its end, where no other buffer begins."""
    return AddressBody.from_arrays(np.where(np.asarray(lengths) > 0, offsets, region_bytes), lengths)
