"""Concatenate files and streams without decoding their bodies («IPC File Format», «IPC Streaming Format»).

Messages are copied unchanged, compressed or not; only schemas and dictionaries are compared. If a file has to unify
different dictionaries, the columns whose indices change are re-encoded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any

from bowstring.datatypes.field import Metadata, MetadataLike, as_metadata
from bowstring.display.objects import report_to_html
from bowstring.errors import InvalidArgumentError, prefix_errors
from bowstring.flatbuf.reader import FlatTable
from bowstring.io.sinks import RewritableSink, Sink, open_sink, reject_same_file
from bowstring.ipc.dictionaries.reader import (
    FileDictionaries,
    StreamDictionaries,
    check_file_dictionary_order,
    get_dictionary_declaration,
)
from bowstring.ipc.encoded_schema import COMPRESSED_BODY, DICTIONARY_REPLACEMENT
from bowstring.ipc.file_statistics import FileStatistics, concat_statistics, replace_statistics
from bowstring.ipc.format_detection import MAX_PIPED_BYTES
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.field import DictionaryDeclaration
from bowstring.ipc.metadata.header import (
    BatchHeaderBuilder,
    DictionaryHeader,
    check_metadata_version,
    format_metadata_version,
)
from bowstring.ipc.metadata.schema import IpcSchema
from bowstring.ipc.record_batch.reader import BatchColumns, DictionaryLookup
from bowstring.ipc.record_batch.remote import RemoteBody, create_columns, fetch_body
from bowstring.ipc.tools.merge_dictionaries import DictionaryMerger, OutputDictionaryBatch, flatten_declarations
from bowstring.ipc.tools.message_writer import MessageWriter, get_preserved_features
from bowstring.ipc.tools.replace_columns import encode_with_replacements
from bowstring.ipc.tools.scan import BatchMessage, FileScan, StreamScan, open_scan
from bowstring.ipc.tools.schema_difference import describe_schema_difference
from bowstring.memory.closable import abandon_on_error


@dataclass(frozen=True, slots=True)
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
    file is `metadata`, by default that of the sources' footers, the first value of each key. Statistics are merged if
    every source has them.

    Equal dictionaries are written once, and one that extends another as a delta. Different ones are replaced in a
    stream and unified in a file: new values become a delta, and the columns that use them are decoded and written with
    new indices. Dictionaries that can't be unified (ordered and nested ones, and more values than the index type
    allows) raise `InvalidArgumentError`; so do sources with another schema, byte order or metadata version, an empty
    list, and a source that is also `sink`, by any path or link. The schema lists the features in use. If `sink` is
    neither a path nor a `BytesIO`, so that it can't be rewritten, the schema at the beginning lists those of the first
    source; the footer of a file lists all.

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
    with abandon_on_error(target):
        concatenator = _Concatenator(target, as_stream)
        count = 0
        for source in sources:
            reject_same_file([source], sink)
            with open_scan(source, limits, max_piped_bytes, keeps_bodies=True) as scan:
                concatenator.add(scan)
            count += 1
        counts = concatenator.finish(None if metadata is None else as_metadata(metadata))
        return ConcatReport(count, *counts, target.position)


class _Concatenator:
    """Writes the batches of sources to a sink."""

    def __init__(self, sink: Sink, as_stream: bool) -> None:
        self._sink = sink
        self._as_stream = as_stream
        self._output: _Output | None = None
        self._pairs: dict[bytes, bytes] = {}
        self._statistics: list[FileStatistics | None] = []
        self._batches = 0
        self._rows = 0

    def add(self, source: FileScan | StreamScan) -> None:
        """Write the batches of a source. Raises `InvalidArgumentError` if it is incompatible with the first one."""
        messages = source.batch_messages()
        if self._output is None:
            self._output, messages = self._begin_output(_FirstSource.from_source(source), source.schema, messages)
        else:
            self._output.first.check_compatible(source)
        self._output.writer.features |= get_preserved_features(source.schema)
        copier = _MessageCopier(source, self._output)
        for message in messages:
            if message.header.template.kind == headers.DICTIONARY_BATCH:
                copier.add_dictionary_batch(message)
            else:
                copier.add_record_batch(message)
                self._batches += 1
                self._rows += message.header.length
        copier.finish_source()
        self._statistics.append(source.reader.statistics if isinstance(source, FileScan) else None)
        for key, value in source.footer_metadata:
            self._pairs.setdefault(key, value)

    def _begin_output(
        self, first: _FirstSource, schema: FlatTable, messages: Iterator[BatchMessage]
    ) -> tuple[_Output, Iterator[BatchMessage]]:
        """Begin the output, and return it and the messages of the first source.

        A schema message that can't be rewritten has to list features in advance: the features of the first source.
        """
        features: set[int] | None = None
        if not isinstance(self._sink, RewritableSink):
            features, start = get_preserved_features(schema), list(islice(messages, 1))
            features |= {COMPRESSED_BODY for message in start if message.header.template.compression is not None}
            messages = chain(start, messages)
        dictionaries = first.ipc_schema.dictionaries_by_id
        writer = MessageWriter(self._sink, schema, dictionaries.values(), first.version, self._as_stream, features)
        merger = DictionaryMerger(first.ipc_schema, self._as_stream) if dictionaries else None
        return _Output(first, writer, merger), messages

    def finish(self, metadata: Metadata | None) -> tuple[int, int]:
        """Write the end; return the numbers of record batches and rows."""
        if self._output is None:
            raise InvalidArgumentError("nothing to concatenate: give at least one file or stream")
        output, parts = self._output, [part for part in self._statistics if part is not None]
        # Statistics list all batches of a file: statistics of only some sources would be useless.
        statistics = (
            concat_statistics(output.first.ipc_schema.schema, parts)
            if parts and len(parts) == len(self._statistics)
            else None
        )
        pairs = tuple(self._pairs.items()) if metadata is None else metadata
        writer = output.writer
        if output.merger is not None and output.merger.has_replaced:
            writer.features.add(DICTIONARY_REPLACEMENT)
        writer.finish(replace_statistics(pairs, statistics, writer.blocks[headers.RECORD_BATCH]))
        return self._batches, self._rows


@dataclass(frozen=True, slots=True)
class _Output:
    """The first source and the output begun with it."""

    first: _FirstSource
    writer: MessageWriter
    merger: DictionaryMerger | None


class _MessageCopier:
    """Copies the messages of one source, in runs as long as possible, and its dictionaries before the first batch that
    needs them.

    All dictionaries of a file precede its first record batch.
    """

    def __init__(self, source: FileScan | StreamScan, output: _Output) -> None:
        self._source = source
        self._writer = output.writer
        self._merger = output.merger
        self._positions = source.ipc_schema.column_positions(source.version)
        self._pending: list[BatchMessage] = []
        self._messages_by_id: dict[int, list[BatchMessage]] = {}
        self._changed_ids: set[int] = set()
        self._target_declarations: dict[int, list[DictionaryDeclaration]] = {}
        self._in_stream: StreamDictionaries | None = None
        self._lookup: DictionaryLookup = lambda _: None
        if isinstance(source, FileScan):
            self._lookup = FileDictionaries(source.ipc_schema, source.reader.read_dictionary_messages)
        else:
            self._lookup = self._in_stream = StreamDictionaries()
        self._dictionaries = output.first.ipc_schema.dictionaries
        if output.merger is not None:
            output.merger.begin_source()
            self._target_declarations = _map_dictionaries(output.first.ipc_schema, source.ipc_schema)

    def add_dictionary_batch(self, message: BatchMessage) -> None:
        """Add a dictionary batch. Raises `InvalidDataError` if its id is not in the schema, or the batches are out of
        order.
        """
        ipc_schema, header, location = self._source.ipc_schema, message.header, message.location_words
        id_ = get_dictionary_declaration(ipc_schema, header, location).id
        messages = self._messages_by_id.get(id_)
        assert message.body is not None
        if isinstance(message.body, RemoteBody):
            message = replace(message, body=fetch_body(message.body))  # it is compared with those of later sources
            assert message.body is not None
        if self._in_stream is not None:
            self._lookup = self._in_stream = self._in_stream.with_dictionary_batch(
                ipc_schema, header, message.body, location
            )
        else:
            check_file_dictionary_order(header, bool(messages), location)
        self._messages_by_id[id_] = [*(messages or ()), message] if header.template.is_delta else [message]
        self._changed_ids.add(id_)

    def add_record_batch(self, message: BatchMessage) -> None:
        """Add a record batch. Raises `InvalidDataError` if it does not match the schema."""
        if self._changed_ids:
            self._write_dictionaries()
        header, positions = message.header, self._positions
        if header.template.version != self._source.version:
            positions = self._source.ipc_schema.column_positions(header.template.version)
        assert message.body is not None
        columns = create_columns(positions, header, message.body, self._lookup, message.location_words)
        if len(self._messages_by_id) < len(self._target_declarations):
            self._check_missing_dictionaries(columns)
        if self._merger is not None:
            remapped = [
                index for index, declarations in enumerate(self._dictionaries) if self._merger.is_remapped(declarations)
            ]
            if remapped:
                batch_columns = BatchColumns(
                    positions, header, fetch_body(message.body), self._lookup, message.location_words
                )
                self._write_remapped(batch_columns, remapped, message.location)
                return
        self._pending.append(message)
        # Bodies in one memory are copied together; those of other sources would all stay in memory until then.
        if self._source.memory is None:
            self._flush()

    def _write_remapped(self, columns: BatchColumns, column_indices: Sequence[int], location: str) -> None:
        """Write a batch with new indices in the columns at `column_indices`."""
        assert self._merger is not None
        replacements = {}
        for index in column_indices:
            with prefix_errors(f"{location}, column {columns.positions[index].name!r}"):
                replacements[index] = self._merger.remap_indices(columns[index], self._dictionaries[index])
        body, template = encode_with_replacements(columns, replacements, location), columns.header.template
        header = BatchHeaderBuilder(template.version, template.compression).build(
            body.header_values, body.size_bytes, template.pairs
        )
        self._flush()
        self._writer.write_message(headers.RECORD_BATCH, header, body, template.compression)

    def _check_missing_dictionaries(self, columns: BatchColumns) -> None:
        """Create the columns whose dictionaries this source lacks: an error unless all their values are null.

        Otherwise the batch would use the dictionary of another source.
        """
        for index, declarations in enumerate(self._source.ipc_schema.dictionaries):
            if any(declaration.id not in self._messages_by_id for declaration in flatten_declarations(declarations)):
                _ = columns[index]

    def _write_dictionaries(self) -> None:
        """Write the new dictionary batches of the source, inner dictionaries first."""
        assert self._merger is not None
        for id_, declarations in self._target_declarations.items():
            if id_ in self._changed_ids:
                lookup = self._lookup if self._in_stream is None else self._in_stream.freeze()
                declaration_in_source = self._source.ipc_schema.dictionaries_by_id[id_]
                values: Any = partial(lookup, declaration_in_source)  # not None, as messages define it
                for declaration in declarations:
                    for batch in self._merger.merge(declaration, self._messages_by_id[id_], values):
                        self._write_dictionary(batch)
        self._changed_ids.clear()

    def _write_dictionary(self, batch: OutputDictionaryBatch) -> None:
        template = None if batch.message is None else batch.message.header.template
        if (
            batch.message is not None
            and template is not None
            and DictionaryHeader(template.dictionary_id, template.is_delta) == batch.dictionary_header
        ):
            self._pending.append(batch.message)
            return
        self._flush()
        assert self._merger is not None
        encoded = self._merger.encode_batch(batch, self._source.version)
        self._writer.write_message(headers.DICTIONARY_BATCH, *encoded, dictionary_id=batch.dictionary_header.id)

    def finish_source(self) -> None:
        """Write the rest of the source."""
        if self._changed_ids:
            self._write_dictionaries()
        self._flush()

    def _flush(self) -> None:
        messages, self._pending = self._pending, []
        self._writer.copy_messages(messages, self._source.memory)


def _map_dictionaries(ipc_schema: IpcSchema, source_schema: IpcSchema) -> dict[int, list[DictionaryDeclaration]]:
    """Map each of the source's dictionary ids to the output's dictionaries, inner ones first."""
    targets: dict[int, list[DictionaryDeclaration]] = {}
    for declarations, source_declarations in zip(ipc_schema.dictionaries, source_schema.dictionaries, strict=True):
        for declaration, source in zip(
            flatten_declarations(declarations), flatten_declarations(source_declarations), strict=True
        ):
            target_declarations = targets.setdefault(source.id, [])
            if declaration not in target_declarations:
                target_declarations.append(declaration)
    return targets


_MAX_EQUAL_SCHEMAS = 64
"""The number of schemas that are kept so that sources with the same object need no comparison."""


@dataclass(frozen=True, slots=True)
class _FirstSource:
    """Name, schema and metadata version of the first source, and the cached schemas that equal its schema."""

    name: str
    ipc_schema: IpcSchema
    version: int
    equal_schemas: list[IpcSchema]

    @classmethod
    def from_source(cls, source: FileScan | StreamScan) -> _FirstSource:
        """Begin with a source. Raises `UnsupportedError` for unsupported metadata versions."""
        version = source.version
        check_metadata_version(version, source.name)
        return cls(source.name, source.ipc_schema, version, [source.ipc_schema])

    def check_compatible(self, source: FileScan | StreamScan) -> None:
        """Raise `InvalidArgumentError` with the first difference, if any."""
        if source.version != self.version:
            raise self._mismatch_error(
                source,
                f"metadata version {format_metadata_version(self.version)}",
                format_metadata_version(source.version),
            )
        if any(source.ipc_schema is ipc_schema for ipc_schema in self.equal_schemas):
            return
        ipc_schema, other = self.ipc_schema, source.ipc_schema
        if ipc_schema.is_big_endian != other.is_big_endian:
            raise self._mismatch_error(
                source,
                *("big-endian" if each.is_big_endian else "little-endian" for each in (ipc_schema, other)),
            )
        mismatch = describe_schema_difference(ipc_schema.schema, other.schema, check_metadata=True)
        if mismatch is not None:
            raise self._mismatch_error(source, *mismatch)
        if len(self.equal_schemas) < _MAX_EQUAL_SCHEMAS:
            self.equal_schemas.append(source.ipc_schema)

    def _mismatch_error(self, source: FileScan | StreamScan, expected: str, actual: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"{source.name}: expected {expected} as in {self.name}, found {actual}")
