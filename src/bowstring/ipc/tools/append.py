"""Append batches to an existing file («IPC File Format»): its bytes up to the footer, the new batches, a new footer.

The new file is written next to the old one and replaces it once complete. Readers of the old file keep it, and a
process that dies in between leaves it unchanged. The old content is not decoded, and not even copied if the file system
can share bytes between files.
"""

from __future__ import annotations

import fcntl
import os
import stat
from dataclasses import replace
from math import gcd
from typing import Literal

import numpy as np

from bowstring.arrays.array import Array
from bowstring.arrays.record_batch import RecordBatch
from bowstring.datatypes.field import Metadata, MetadataLike, as_metadata
from bowstring.errors import FormatMismatchError, InvalidArgumentError, InvalidDataError, ResourceError
from bowstring.io.fsspec_store import is_url
from bowstring.io.io_errors import translate_io_error
from bowstring.io.memory_source import MemorySource
from bowstring.io.sinks import PathSink
from bowstring.io.sources import open_path
from bowstring.ipc.api import BatchesLike, as_schema_and_batches
from bowstring.ipc.codecs import CodecName
from bowstring.ipc.dictionaries.reader import FileDictionaries
from bowstring.ipc.encoded_schema import encode_schema
from bowstring.ipc.file import FileReader
from bowstring.ipc.file_statistics import StatisticsCollector, replace_statistics
from bowstring.ipc.format_detection import detect_format
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.message import CONTINUATION, FILE_START, PREFIX_BYTES, Block, parse_first_message_prefix
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.header import check_metadata_version
from bowstring.ipc.metadata.schema import V4
from bowstring.ipc.stream import Encoder
from bowstring.ipc.tools.copy_byte_ranges import copy_file_range
from bowstring.ipc.tools.message_writer import copy_schema_table
from bowstring.ipc.tools.scan import find_unlisted_messages
from bowstring.ipc.tools.schema_difference import describe_schema_difference
from bowstring.ipc.write_options import IpcWriteOptions
from bowstring.ipc.writers import FileWriter
from bowstring.memory.closable import call_on_error
from bowstring.memory.descriptors import is_same_file

KEEP_COMPRESSION: Literal["as before"] = "as before"
# The largest of these that all buffers have is the file's; 8 is required by the format, and is left.
_ALIGNMENTS = (64, 32, 16)


def append_to_file(  # noqa: PLR0913 -- as `new_file`
    path: str | os.PathLike[str],
    data: BatchesLike | None = None,
    *,
    metadata: MetadataLike = None,
    compression: CodecName | Literal["as before"] | None = KEEP_COMPRESSION,
    compression_level: int | None = None,
    alignment: int | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
) -> AppendWriter:
    """Append record batches to an Arrow file. `data` is a batch, table, reader or iterable of batches, of Bowstring or
    another library. Without `data`, use the returned writer in a `with` block, as the writer of `new_file`; with it,
    the writer is closed.

    The file stays unchanged until all batches are written, or the block ends without an error, and is then replaced
    atomically. Schema,
    dictionaries, byte order, metadata version and framing are the file's; so are compression (from its last
    batch) and alignment by default. `metadata` is added to the footer's custom metadata and replaces the values of
    existing keys. Dictionaries of the file count as written: one that extends them becomes a delta, any other raises
    `InvalidArgumentError`. Existing statistics are continued.

    Raises `NotFoundError` if the file does not exist, `InvalidDataError` if it is malformed, `InvalidArgumentError` if
    it is not a regular file, `ResourceError` while another process appends to it (the file is locked with `flock`) or
    if it was replaced meanwhile. Writing a batch of another schema raises `InvalidArgumentError` with the difference.

    >>> batch = bs.record_batch({"n": [1, 2]})
    >>> with bs.new_file("numbers.arrow", batch.schema) as writer:
    ...     writer.write(batch)
    >>> bs.ipc.append_to_file("numbers.arrow", batch)
    <bowstring.ipc.AppendWriter: closed>
    >>> with bs.ipc.append_to_file("numbers.arrow") as writer:
    ...     for number in range(3, 5):
    ...         writer.write(bs.record_batch({"n": [number]}))
    >>> bs.read_table("numbers.arrow")["n"].to_pylist()
    [1, 2, 1, 2, 3, 4]
    """
    batches = None if data is None else as_schema_and_batches(data)[1]
    if is_url(path) and not str(path).startswith("unix:"):  # of a server: opening it raises a better error
        raise InvalidArgumentError(f"{path}: only local files can be appended to: write a new file, next to this one")
    if not isinstance(path, str | os.PathLike):
        raise InvalidArgumentError(f"expected a path to append to, found {type(path).__name__}")
    name, added_pairs = os.fspath(path), as_metadata(metadata)
    keys = {key for key, _ in added_pairs}
    source = _open_locked(name)
    with call_on_error(_unlock_and_close, source):
        if detect_format(source, "an Arrow file") == "stream":
            raise FormatMismatchError(
                f"{name}: expected an Arrow file, found an Arrow stream, which can't be appended to: "
                "concat_files makes a file of it"
            )
        existing = _ExistingFile(source, limits)
        options = existing.create_write_options(compression, compression_level)
        encoder = Encoder(existing.reader.schema, alignment or existing.detect_alignment(), False, options)
        encoded_schema = replace(
            encode_schema(existing.reader.schema, options),
            table=copy_schema_table(existing.reader.footer["schema"]),
            ipc_schema=existing.reader.ipc_schema,
        )
        encoder.resume(encoded_schema, existing.read_dictionaries())
        existing_pairs = replace_statistics(existing.reader.footer_metadata, None, ())
        pairs = (*(pair for pair in existing_pairs if pair[0] not in keys), *added_pairs)
        collector = existing.create_statistics_collector()
        sink = AppendSink(name, source, existing.end)
    writer = AppendWriter(sink, encoder, pairs, existing, collector)
    if batches is not None:
        with writer:
            for batch in batches:
                writer.write_batch(batch)
    return writer


def _open_locked(name: str) -> MemorySource:
    """Open the file and lock it against other appends."""
    while True:
        try:
            mode = os.stat(name).st_mode
        except (OSError, ValueError):
            mode = stat.S_IFREG
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # for these, opening raises a better error
            raise InvalidArgumentError(f"{name}: is not a regular file, so it can't be appended to")
        source = open_path(name)
        if not isinstance(source, MemorySource):
            source.close()
            continue  # it was replaced between the two calls
        try:
            fcntl.flock(source.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_same_file(name, source.descriptor):
                return source
        except OSError as error:
            source.close()
            if isinstance(error, BlockingIOError):
                raise ResourceError(f"{name}: another process is appending to it") from None
            raise translate_io_error(error, name, "locked for appending", name) from None
        except BaseException:
            _unlock_and_close(source)
            raise
        _unlock_and_close(source)  # it was replaced between the two calls


def _unlock_and_close(source: MemorySource) -> None:
    """Unlock and close the file; its mapping shares the descriptor and may remain open longer."""
    if source.descriptor >= 0:
        fcntl.flock(source.descriptor, fcntl.LOCK_UN)
    source.close()


class _ExistingFile:
    """The existing file: the end of its messages, its blocks, and its write options."""

    def __init__(self, source: MemorySource, limits: ReadLimits) -> None:
        self.reader = reader = FileReader(source, None, limits)
        _ = reader.ipc_schema.dictionaries_by_id  # raises errors of malformed fields now
        check_metadata_version(reader.footer["version"], source.name)
        footer_offset = reader.footer_offset
        start = len(FILE_START)
        prefix = source.read_at(start, min(PREFIX_BYTES, footer_offset - start))
        # The schema message has the framing of the file; appended messages have the same.
        self._is_legacy = len(prefix) == PREFIX_BYTES and not prefix.startswith(CONTINUATION)
        schema_bytes, prefix_bytes = parse_first_message_prefix(prefix, footer_offset - start)
        self.end = start + prefix_bytes + schema_bytes
        self.blocks: dict[str, list[Block]] = {}
        messages = reader.messages
        for kind, block_list in messages.block_lists.items():
            blocks = [messages.get_block(kind, index) for index in range(block_list.count)]
            if any(block[0] < start or not messages.is_valid_block(block) for block in blocks):
                raise InvalidDataError(f"{source.name}: footer: a block of {kind} is outside the file")
            self.end = max([self.end, *(sum(block) for block in blocks)])
            self.blocks[kind] = blocks
        for kind, offset in find_unlisted_messages(reader, limits):  # it would be overwritten
            raise InvalidDataError(
                f"{source.name}: footer: the {kind} at byte {offset} is not listed: `recover` saves it"
            )
        # New messages begin after the last old one, in place of the old end marker and footer.
        self.end += -self.end % 8

    def create_write_options(
        self, compression: CodecName | Literal["as before"] | None, level: int | None
    ) -> IpcWriteOptions:
        """Return the file's write options with these changes; bodies of metadata version 4 are not compressed."""
        reader = self.reader
        if compression == KEEP_COMPRESSION:
            compression = None
            if reader.num_record_batches and reader.footer["version"] != V4:
                compression = reader.read_batch_message(reader.num_record_batches - 1)[0].template.compression
        return IpcWriteOptions(
            "big" if reader.ipc_schema.is_big_endian else "little",
            "V4" if reader.footer["version"] == V4 else "V5",
            self._is_legacy,
            compression,
            level,
        )

    def detect_alignment(self) -> int:
        """Return the alignment of all bodies and of the last batch's buffers: 8 to 64 bytes."""
        reader, common = self.reader, 64
        for at, head, _ in self.blocks[headers.RECORD_BATCH]:
            common = gcd(common, at + head)
        if reader.num_record_batches:
            offsets = reader.read_batch_message(reader.num_record_batches - 1)[0].buffers()["offset"]
            common = gcd(common, *(int(offset) for offset in np.unique(offsets)))
        return next((alignment for alignment in _ALIGNMENTS if common % alignment == 0), 8)

    def create_statistics_collector(self) -> StatisticsCollector | None:
        """Return a collector that continues the file's statistics, or None if it has none."""
        statistics, schema = self.reader.statistics, self.reader.schema
        if statistics is None:
            return None
        distinct = any(column.distinct_counts is not None for column in statistics.columns.values())
        return StatisticsCollector(schema, list(statistics.columns), distinct, statistics)

    def read_dictionaries(self) -> dict[int, Array]:
        """Return the file's dictionaries by id, checked."""
        ipc_schema = self.reader.ipc_schema
        lookup = FileDictionaries(ipc_schema, self.reader.read_dictionary_messages)
        dictionaries = {}
        for id_, declaration in ipc_schema.dictionaries_by_id.items():
            values = lookup(declaration)
            if values is not None:
                values.validate(full=True)
                dictionaries[id_] = values
        return dictionaries


class AppendSink(PathSink):
    """A sink that begins with the bytes of a file and replaces it; `source` is open and locked."""

    __slots__ = ("_source",)

    def __init__(self, path: str, source: MemorySource, copied_bytes: int) -> None:
        super().__init__(path)
        self._source = source
        with call_on_error(super().abandon):
            copy_file_range(source, 0, self, copied_bytes)

    def finish(self) -> None:
        """Replace the old file, unless it was replaced or removed meanwhile."""
        # The lock keeps other appends away, but not programs that replace the file without locking it.
        if not is_same_file(self._path, self._source.descriptor):
            raise ResourceError(f"{self._path}: was replaced or removed while it was appended to; nothing was changed")
        super().finish()
        _unlock_and_close(self._source)

    def abandon(self) -> None:
        super().abandon()
        _unlock_and_close(self._source)


class AppendWriter(FileWriter):
    """Appends to a file; a context manager that replaces it if no error is raised inside.

    >>> with bs.new_file("numbers.arrow", {"n": "int64"}) as writer:
    ...     writer.write(bs.record_batch({"n": [1, 2]}))
    >>> writer = bs.ipc.append_to_file("numbers.arrow")
    >>> writer.write(bs.record_batch({"n": [3]}))
    >>> writer.abandon()
    >>> bs.read_table("numbers.arrow")["n"].to_pylist()
    [1, 2]
    """

    def __init__(
        self,
        sink: AppendSink,
        encoder: Encoder,
        pairs: Metadata,
        existing: _ExistingFile,
        collector: StatisticsCollector | None,
    ) -> None:
        self._collector = collector
        self._resume(sink, encoder, pairs, {**existing.blocks, headers.SCHEMA: []})

    def write_batch(self, batch: RecordBatch) -> None:
        """Write a batch; raises `InvalidArgumentError` with the difference if its schema is not the file's."""
        if isinstance(batch, RecordBatch):
            mismatch = describe_schema_difference(self.schema, batch.schema)
            if mismatch is not None:
                raise InvalidArgumentError(
                    f"the batch's schema differs from the file's: expected {mismatch[0]}, found {mismatch[1]}"
                )
        super().write_batch(batch)
