"""More batches for a file that exists («IPC File Format»): its bytes up to the footer, the batches, a new footer.

All of it becomes a new file beside the old one, and takes its name when it is complete. Whoever has the old one open
keeps it, and a process that dies in between leaves it as it was. What is there is not decoded, and where the file
system can share bytes between files it is not even copied.
"""

from __future__ import annotations

import fcntl
import os
import stat
from dataclasses import replace
from math import gcd

import numpy as np

from bowstring.arrays.record_batch import RecordBatch
from bowstring.datatypes.field import Metadata, MetadataLike, as_metadata
from bowstring.errors import InvalidDataError, ResourceError, TruncatedError, UnsupportedError, UsageError
from bowstring.flatbuf.reader import Table
from bowstring.flatbuf.writer import SerializedTable
from bowstring.io.memory_source import MemorySource
from bowstring.io.os_errors import translate_io_error
from bowstring.io.sinks import PathSink
from bowstring.io.sources import open_mapped
from bowstring.ipc.dictionaries.reader import FileDictionaries
from bowstring.ipc.encoded_schema import COMPRESSED_BODY, encode_schema
from bowstring.ipc.file import FileReader
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.message import CONTINUATION, FILE_START, PREFIX_BYTES, parse_leading_prefix
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.header import HeaderReader
from bowstring.ipc.metadata.schema import V4, V5, read_pairs
from bowstring.ipc.options import IpcWriteOptions
from bowstring.ipc.schema_cache import schema_difference
from bowstring.ipc.statistics import StatisticsCollector, with_statistics
from bowstring.ipc.stream import EncodedMessage, Encoder
from bowstring.ipc.tools.copy import clone
from bowstring.ipc.tools.message_writer import copy_schema_table
from bowstring.ipc.writers import Block, FileWriter
from bowstring.layouts.array import Array

AS_BEFORE = "as before"
_ALIGNMENTS = (64, 32, 16)


def append_file(
    path: str | os.PathLike[str],
    metadata: MetadataLike = None,
    compression: str | None = AS_BEFORE,
    compression_level: int | None = None,
    alignment: int | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
) -> AppendWriter:
    """Begin to append record batches to an Arrow file; use it in a `with` block, as what `new_file` gives.

    The file is the old one until the block ends without an error, and then the new one, at once. Schema, dictionaries,
    byte order, metadata version and framing are the file's; so are compression (that of its last batch) and alignment,
    unless they are said. `metadata` is added to the footer's custom metadata, and replaces the values of keys that are
    there. Dictionaries of the file count as written: one that goes on becomes a delta, another is a `UsageError`.
    Statistics that the file has go on. Where compressed batches are appended the footer's schema says so (feature
    `COMPRESSED_BODY`), and so does the schema message at the beginning if it has room for that.

    Raises `NotFoundError` where there is no file, `InvalidDataError` where it is malformed, `UsageError` for what is no
    regular file, `ResourceError` while another process appends to it. Writing a batch of another schema raises
    `UsageError` that names the difference.
    """
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"a file is appended to by its path, not by {type(path).__name__}")
    name, given = os.fspath(path), as_metadata(metadata)
    keys = {key for key, _ in given}
    source = _locked(name)
    try:
        before = _ExistingFile(source, limits)
        options = before.options(compression, compression_level)
        encoder = Encoder(before.reader.schema, alignment or before.alignment(), False, options)
        written = replace(
            encode_schema(before.reader.schema, options),
            table=copy_schema_table(before.reader.footer["schema"]),
            wire=before.reader.known.wire.whole,
        )
        encoder.resume(written, before.dictionaries())
        held = with_statistics(read_pairs(before.reader.footer), None, ())
        pairs = (*(pair for pair in held if pair[0] not in keys), *given)
        collector = before.collector()
        sink = AppendSink(name, source, before.end)
    except BaseException:
        _let_go(source)
        raise
    return AppendWriter(sink, encoder, pairs, before, collector)


def _locked(name: str) -> MemorySource:
    """The file, which nobody else appends to while it is open."""
    while True:
        try:
            mode = os.stat(name).st_mode
        except (OSError, ValueError):
            mode = stat.S_IFREG
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # of those, what opening says is better
            raise UsageError(f"{name}: is no regular file: only such a file can be appended to")
        source = open_mapped(name)
        if not isinstance(source, MemorySource):
            source.close()
            continue  # it was replaced between the two calls
        try:
            fcntl.flock(source.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same(name, source.descriptor):
                return source
        except BlockingIOError:
            source.close()
            raise ResourceError(f"{name}: somebody else is appending to it") from None
        except BaseException:
            _let_go(source)
            raise
        _let_go(source)  # it was replaced between the two calls


def _let_go(source: MemorySource) -> None:
    """Unlock and close the file: its mapping has the descriptor, too, and may live on."""
    if source.descriptor >= 0:
        fcntl.flock(source.descriptor, fcntl.LOCK_UN)
    source.close()


def _is_same(name: str, descriptor: int) -> bool:
    try:
        now, held = os.stat(name), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (now.st_dev, now.st_ino) == (held.st_dev, held.st_ino)


class _ExistingFile:
    """What is in the file: where its messages end, where its batches are, and how they were written."""

    def __init__(self, source: MemorySource, limits: ReadLimits) -> None:
        self.reader = reader = FileReader(source, None, limits)
        self._source = source
        _ = reader.known.wire.whole
        version = reader.footer["version"]
        if version not in (V4, V5):
            raise UnsupportedError(f"{source.name}: metadata version number {version} is not supported")
        footer_at = reader.footer_at
        start = len(FILE_START)
        prefix = source.read_at(start, min(PREFIX_BYTES, footer_at - start))
        self._is_legacy = len(prefix) == PREFIX_BYTES and not prefix.startswith(CONTINUATION)
        self._schema_bytes, prefix_bytes = parse_leading_prefix(prefix, footer_at - start)
        self._schema_at = start + prefix_bytes
        self.end = self._schema_at + self._schema_bytes
        self.blocks: dict[str, list[Block]] = {}
        for kind, blocks in (
            (headers.DICTIONARY_BATCH, reader.dictionary_blocks),
            (headers.RECORD_BATCH, reader.blocks),
        ):
            at, head, body = (blocks[name].astype(np.int64) for name in ("offset", "metaDataLength", "bodyLength"))
            bad = (at < start) | (head < 8) | (body < 0) | (at > footer_at - head) | (body > footer_at - head - at)
            if bad.any():
                raise InvalidDataError(f"{source.name}: footer: a block of {kind} is not within the file")
            self.end = max(self.end, int((at + head + body).max(initial=0)))
            self.blocks[kind] = [(int(o), int(m), 0, int(b)) for o, m, b in zip(at, head, body, strict=True)]
        self.end += -self.end % 8

    def options(self, compression: str | None, level: int | None) -> IpcWriteOptions:
        """How the file was written, and what is to be otherwise; in metadata version 4 bodies are not compressed."""
        reader = self.reader
        if compression == AS_BEFORE:
            compression = None
            if reader.num_record_batches and reader.footer["version"] != V4:
                compression = reader.read_batch_message(reader.num_record_batches - 1)[0].template.compression
        return IpcWriteOptions(
            "big" if reader.known.wire.is_big_endian else "little",
            "V4" if reader.footer["version"] == V4 else "V5",
            self._is_legacy,
            compression,
            level,
        )

    def alignment(self) -> int:
        """The multiple of bytes at which all bodies begin, and the buffers of the last batch: 8 to 64."""
        reader, common = self.reader, 64
        for at, head, _, _ in self.blocks[headers.RECORD_BATCH]:
            common = gcd(common, at + head)
        if reader.num_record_batches:
            offsets = reader.read_batch_message(reader.num_record_batches - 1)[0].buffers()["offset"]
            common = gcd(common, *(int(offset) for offset in np.unique(offsets)))
        return next((alignment for alignment in _ALIGNMENTS if common % alignment == 0), 8)

    def collector(self) -> StatisticsCollector | None:
        """What goes on with the file's statistics; None where it has none."""
        known, schema = self.reader.statistics, self.reader.schema
        if known is None:
            return None
        distinct = any(column.distinct_counts is not None for column in known.columns.values())
        return StatisticsCollector(schema, list(known.columns), distinct, known)

    def saying(self, feature: int) -> tuple[SerializedTable, tuple[int, bytes] | None]:
        """The schema's table with a feature, and where the schema message says it with which bytes: None where there is
        no room, as all that follows would have to move.
        """
        table = self.reader.footer["schema"]
        says = copy_schema_table(table, {*table["features"].tolist(), feature})
        raw = self._source.read_at(self._schema_at, self._schema_bytes)
        try:
            message = HeaderReader(DEFAULT_LIMITS).read(raw, 0, f"{self._source.name}: schema")
        except InvalidDataError:
            return says, None
        if not isinstance(message, Table) or read_pairs(message.message.root("Message")):
            return says, None
        features = {*message["features"].tolist(), feature}
        made = headers.schema_message(copy_schema_table(message, features), message.message.root("Message")["version"])
        return says, (self._schema_at, made + bytes(len(raw) - len(made))) if len(made) <= len(raw) else None

    def dictionaries(self) -> dict[int, Array]:
        """The dictionaries of the file by id, checked."""
        wire = self.reader.known.wire.whole
        lookup = FileDictionaries(wire, self.reader.read_dictionary_messages)
        found = {}
        for id_, node in wire.by_id.items():
            values = lookup(node)
            if values is not None:
                values.validate(full=True)
                found[id_] = values
        return found


class AppendSink(PathSink):
    """A file that begins with another one's bytes and takes its place; `source` is open and locked."""

    __slots__ = ("_source",)

    def __init__(self, path: str, source: MemorySource, kept_bytes: int) -> None:
        super().__init__(path)
        self._source = source
        try:
            target, _ = self.skip(kept_bytes)
            held = os.fstat(source.descriptor)
            os.fchmod(target, stat.S_IMODE(held.st_mode))
            clone(source.descriptor, target, kept_bytes)
        except EOFError:
            super().abandon()
            raise TruncatedError(f"{path}: the file was cut while it was copied") from None
        except OSError as error:
            super().abandon()
            raise translate_io_error(error, path, "copied") from None

    def finish(self) -> None:
        """Put the file in its place, if the old one is still there."""
        if not _is_same(self._path, self._source.descriptor):
            raise ResourceError(f"{self._path}: was replaced or removed while it was appended to; nothing is changed")
        super().finish()
        _let_go(self._source)

    def abandon(self) -> None:
        """Remove the unfinished file."""
        super().abandon()
        _let_go(self._source)


class AppendWriter(FileWriter):
    """Appends to a file; a context manager that puts the new file in its place when no error is raised inside."""

    def __init__(
        self,
        sink: AppendSink,
        encoder: Encoder,
        pairs: Metadata,
        before: _ExistingFile,
        collector: StatisticsCollector | None,
    ) -> None:
        self._collector = collector
        self._before = before
        self._is_more = False
        self._go_on(sink, encoder, pairs, {**before.blocks, headers.SCHEMA: []})

    def write_batch(self, batch: RecordBatch) -> None:
        """Write one batch; raises `UsageError` that names the difference where it has not the file's schema."""
        if isinstance(batch, RecordBatch):
            found = schema_difference(self.schema, batch.schema)
            if found is not None:
                raise UsageError(f"a batch of another schema than the file's: expected {found[0]}, found {found[1]}")
        super().write_batch(batch)

    def _put(self, message: EncodedMessage) -> tuple[int, int]:
        self._is_more = True
        return super()._put(message)

    def _end(self) -> None:
        encoder, sink, said = self._encoder, self._sink, self._before.reader.footer["schema"]["features"]
        if self._is_more and encoder.options.compression is not None and COMPRESSED_BODY not in said:
            assert isinstance(sink, AppendSink)
            encoder.schema_table, message = self._before.saying(COMPRESSED_BODY)
            if message is not None:
                sink.overwrite(*message)
        super()._end()
