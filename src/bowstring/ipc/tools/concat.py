"""Concatenate files and streams without decoding their bodies («IPC File Format», «IPC Streaming Format»).

Messages are copied unchanged, compressed or not; only schemas and dictionaries are compared. If a file has to unify
different dictionaries, the columns whose indices change are re-encoded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bowstring.arrays.array import Array
from bowstring.datatypes.field import Metadata, MetadataLike, as_metadata
from bowstring.datatypes.types import Dictionary
from bowstring.display.objects import report_to_html
from bowstring.errors import InvalidArgumentError, InvalidDataError, prefix_errors
from bowstring.io.sinks import Sink, open_sink, reject_same_file
from bowstring.ipc.dictionaries.reader import (
    FileDictionaries,
    StreamDictionaries,
    check_file_dictionary_order,
    get_dictionary_declaration,
)
from bowstring.ipc.dictionaries.tracker import DictionaryTracker
from bowstring.ipc.file_statistics import FileStatistics, concat_statistics, replace_statistics
from bowstring.ipc.format_detection import MAX_PIPED_BYTES
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.field import DictionaryDeclaration
from bowstring.ipc.metadata.header import (
    check_metadata_version,
    format_metadata_version,
)
from bowstring.ipc.metadata.schema import V4
from bowstring.ipc.record_batch.reader import BatchColumns, DictionaryLookup
from bowstring.ipc.tools.message_writer import MessageWriter
from bowstring.ipc.tools.replace_columns import encode_with_replacements
from bowstring.ipc.tools.scan import BatchMessage, FileScan, StreamScan, open_scan
from bowstring.ipc.tools.schema_difference import describe_schema_difference
from bowstring.ipc.write_options import IpcWriteOptions
from bowstring.kernels.unify_dictionaries import iter_dictionary_arrays
from bowstring.layouts.base import ArrayData
from bowstring.memory.closable import call_on_error


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ConcatReport:
    """The number of concatenated sources, record batches and rows, and the size of the output in bytes.

    >>> import io
    >>> sink = io.BytesIO()
    >>> with bs.new_file(sink, {"n": "int64"}) as writer:
    ...     writer.write(bs.record_batch({"n": [1, 2]}))
    >>> report = bs.ipc.concat_files([sink.getvalue()] * 3, "thrice.arrow")
    >>> report.sources, report.rows
    (3, 6)
    """

    sources: int
    record_batches: int
    rows: int
    size_bytes: int

    _repr_html_ = report_to_html


def concat_files(
    sources: Iterable[Any],
    sink: Any,
    as_stream: bool = False,
    metadata: MetadataLike = None,
    limits: ReadLimits = DEFAULT_LIMITS,
    max_piped_bytes: int = MAX_PIPED_BYTES,
) -> ConcatReport:
    """Concatenate the record batches of several Arrow files and streams into one file, or one stream.

    Bodies are neither decoded nor checked; between files the kernel copies them. Each of `sources` is an argument of
    `open_file` or `open_stream`, detected by content and opened in turn. `sink` is an argument of `new_file`; a path is
    replaced only if all succeeds. The first source determines the schema and its metadata. The custom metadata of the
    file is `metadata`, by default the metadata of the sources' footers, the first value of each key. Statistics are
    merged if every source has them.

    Equal dictionaries are written once, and one that extends another as a delta. Different ones are replaced in a
    stream and unified in a file: new values become a delta, and the columns that use them are decoded and written with
    new indices. Dictionaries that can't be unified (ordered and nested ones, and more values than the index type
    allows) raise `InvalidArgumentError`; so do sources with another schema, byte order or metadata version, an empty
    list, and a source that is also `sink`, by any path or link.

    Raises `InvalidDataError` for malformed sources, `LimitError` for a piped file larger than `max_piped_bytes`, and
    the errors of opening sources.

    >>> for name in ("monday", "tuesday"):
    ...     with bs.new_file(f"{name}.arrow", {"visits": "int64"}) as writer:
    ...         writer.write(bs.record_batch({"visits": [3, 4]}))
    >>> report = bs.ipc.concat_files(["monday.arrow", "tuesday.arrow"], "week.arrow")
    >>> report.record_batches, report.rows
    (2, 4)
    """
    if isinstance(sources, str | bytes | os.PathLike):
        raise InvalidArgumentError(
            f"sources are a list of files and streams, not {sources!r:.60}: write [{sources!r:.60}]"
        )
    if isinstance(sources, Sequence):
        reject_same_file(sources, sink)
    target = open_sink(sink)
    with call_on_error(target.abandon):
        output: _Output | None = None
        count = 0
        for source in sources:
            reject_same_file([source], sink)
            with open_scan(source, limits, max_piped_bytes, keeps_bodies=True) as scan:
                output = output or _Output(target, scan, as_stream)
                output.add(scan)
            count += 1
        if output is None:
            raise InvalidArgumentError("nothing to concatenate: give at least one file or stream")
        output.finish(None if metadata is None else as_metadata(metadata))
        return ConcatReport(count, output.record_batches, output.rows, target.position)


class _Output:
    """The output, which has the schema and the metadata version of the first source, and the dictionaries written.

    A file has one dictionary for all batches, so the dictionaries of its sources are unified by deltas; a stream
    replaces them. Raises `UnsupportedError` for unsupported metadata versions.
    """

    def __init__(self, sink: Sink, first: FileScan | StreamScan, as_stream: bool) -> None:
        check_metadata_version(first.version, first.name)
        self._first_name, self._version = first.name, first.version
        self.ipc_schema = first.ipc_schema
        self.writer = MessageWriter(
            sink, first.schema, first.ipc_schema.dictionaries_by_id.values(), first.version, as_stream
        )
        self.dictionaries = {index: each for index, each in enumerate(first.ipc_schema.dictionaries) if each}
        """The declarations of each column that has dictionaries, by index."""
        self._options = IpcWriteOptions(
            "big" if first.ipc_schema.is_big_endian else "little",
            "V4" if first.version == V4 else "V5",
            unify_dictionaries=not as_stream,
        )
        self._tracker = DictionaryTracker(first.ipc_schema, self._options, as_stream, unifies_by_deltas=True)
        self._pairs: dict[bytes, bytes] = {}
        self._statistics: list[FileStatistics | None] = []
        self.record_batches = self.rows = 0

    def add(self, source: FileScan | StreamScan) -> None:
        """Write the batches of a source. Raises `InvalidArgumentError` if it is incompatible with the first one."""
        self._check_compatible(source)
        copier = _MessageCopier(source, self)
        for message in source.batch_messages():
            if message.header.template.kind == headers.DICTIONARY_BATCH:
                copier.add_dictionary_batch(message)
            else:
                copier.add_record_batch(message)
                self.record_batches += 1
                self.rows += message.header.length
        self._statistics.append(source.reader.statistics if isinstance(source, FileScan) else None)
        for key, value in source.footer_metadata:
            self._pairs.setdefault(key, value)

    def _check_compatible(self, source: FileScan | StreamScan) -> None:
        """Raise `InvalidArgumentError` with the first difference, if any."""
        ipc_schema, other, difference = self.ipc_schema, source.ipc_schema, None
        if source.version != self._version:
            expected, actual = map(format_metadata_version, (self._version, source.version))
            difference = f"metadata version {expected}", actual
        elif ipc_schema.is_big_endian != other.is_big_endian:
            orders = "little-endian", "big-endian"
            difference = orders[ipc_schema.is_big_endian], orders[other.is_big_endian]
        elif other is not ipc_schema:
            difference = describe_schema_difference(ipc_schema.schema, other.schema, check_metadata=True)
        if difference is not None:
            raise InvalidArgumentError(
                f"{source.name}: expected {difference[0]} as in {self._first_name}, found {difference[1]}"
            )

    def finish(self, metadata: Metadata | None) -> None:
        """Write the end."""
        # Statistics list all batches of a file: statistics of only some sources would be useless.
        parts = [part for part in self._statistics if part is not None]
        has_all = len(parts) == len(self._statistics)
        statistics = concat_statistics(self.ipc_schema.schema, parts) if has_all else None
        pairs = tuple(self._pairs.items()) if metadata is None else metadata
        self.writer.finish(replace_statistics(pairs, statistics, self.writer.blocks[headers.RECORD_BATCH]))

    def write_dictionaries(self, columns: Mapping[int, Array], codec: str | None) -> dict[int, ArrayData]:
        """Write the dictionaries that readers need for the dictionary-encoded columns of a batch; return the columns
        whose indices differ in the output.

        Raises `InvalidArgumentError` if a file would have to replace a dictionary.
        """
        try:
            batch = self._tracker.prepare_batch(columns)
        except InvalidArgumentError as error:
            raise _create_replacement_error(str(error)) from None
        for index, changed_column in batch.changed_columns.items():
            types = [part.storage.type for part in iter_dictionary_arrays(changed_column)]
            is_ordered = any(isinstance(type_, Dictionary) and type_.ordered for type_ in types)
            # pyarrow reads no deltas of nested ones.
            if is_ordered or any(declaration.nested for declaration in self.dictionaries[index]):
                name, kind = self.ipc_schema.schema.names[index], "ordered" if is_ordered else "nested"
                raise _create_replacement_error(
                    f"column {name!r}: its {kind} dictionary differs from the dictionary of earlier sources"
                )
        for header, values in batch.dictionary_batches:
            self.writer.write_dictionary(header, values, self._options, codec)
        self._tracker.commit(batch)
        return batch.changed_columns


def _create_replacement_error(reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{reason}. A file has one dictionary for all batches; a stream can replace it: write a stream "
        "(as_stream=True, --to stream)"
    )


class _MessageCopier:
    """Copies the record batches of one source, each after the dictionaries that it needs."""

    def __init__(self, source: FileScan | StreamScan, output: _Output) -> None:
        self._source = source
        self._output = output
        self._positions = source.ipc_schema.column_positions(source.version)
        self._dictionary_ids: set[int] = set()
        self._in_stream: StreamDictionaries | None = None
        self._lookup: DictionaryLookup = lambda _: None
        if isinstance(source, FileScan):
            self._lookup = FileDictionaries(source.ipc_schema, source.reader.read_dictionary_messages)
        else:
            self._lookup = self._in_stream = StreamDictionaries()
        self._are_dictionaries_written = not output.dictionaries

    def add_dictionary_batch(self, message: BatchMessage) -> None:
        """Add a dictionary batch. Raises `InvalidDataError` if its id is not in the schema, or the batches are out of
        order.
        """
        ipc_schema, header, location = self._source.ipc_schema, message.header, message.location_words
        id_ = get_dictionary_declaration(ipc_schema, header, location).id
        if self._in_stream is not None:
            assert message.body is not None
            self._lookup = self._in_stream = self._in_stream.with_dictionary_batch(
                ipc_schema, header, message.body, location
            )
        else:
            check_file_dictionary_order(header, id_ in self._dictionary_ids, location)
        self._dictionary_ids.add(id_)
        self._are_dictionaries_written = False

    def add_record_batch(self, message: BatchMessage) -> None:
        """Add a record batch. Raises `InvalidDataError` if it does not match the schema."""
        header, positions = message.header, self._positions
        if header.template.version != self._source.version:
            positions = self._source.ipc_schema.column_positions(header.template.version)
        assert message.body is not None
        if self._are_dictionaries_written:
            header.check(positions, message.body.size, message.location_words)
        else:
            columns = BatchColumns(positions, header, message.body, self._find_values, message.location_words)
            changed_columns = self._write_dictionaries(columns, message.location)
            if changed_columns:
                encoded = encode_with_replacements(columns, changed_columns, message.location)
                self._output.writer.write_batch(header.template, encoded)
                return
        self._output.writer.copy_message(message, self._source.memory)

    def _write_dictionaries(self, columns: BatchColumns, location: str) -> dict[int, ArrayData]:
        """Write the dictionaries that a batch needs; return the columns whose indices differ in the output."""
        encoded_columns = {index: columns[index] for index in self._output.dictionaries}
        try:
            changed_columns = self._output.write_dictionaries(encoded_columns, columns.header.template.compression)
        except InvalidDataError:
            for index, column in encoded_columns.items():
                with prefix_errors(f"{location}, column {columns.positions[index].name!r}"):
                    column.validate(full=True)
            raise
        # Readers need no values for a column of nulls, but perhaps for the same column of the next batch.
        self._are_dictionaries_written = not changed_columns and all(
            part.null_count < part.length
            for column in encoded_columns.values()
            for part in iter_dictionary_arrays(column)
        )
        return changed_columns

    def _find_values(self, declaration: DictionaryDeclaration) -> Array | None:
        values = self._lookup(declaration)
        if values is not None:
            values.validate(full=True)
        return values
