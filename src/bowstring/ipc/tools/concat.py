"""One file or stream out of several, without decoding their bodies («IPC File Format», «IPC Streaming Format»).

Messages are passed on as they are, compressed or not; what is compared are schemas and dictionaries. Only where a file
has to unite dictionaries that differ are columns made anew: those whose indices change.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any

from bowstring.datatypes.field import Metadata, MetadataLike, as_metadata
from bowstring.errors import InvalidDataError, UsageError
from bowstring.flatbuf.reader import Table as FlatbufferTable
from bowstring.io import fsspec_store
from bowstring.io.sinks import Rewritable, open_sink, reject_same_file
from bowstring.ipc.dictionaries.reader import FileDictionaries, StreamDictionaries, find_dictionary
from bowstring.ipc.encoded_schema import DICTIONARY_REPLACEMENT
from bowstring.ipc.format_detection import MAX_PIPED_BYTES
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.header import DictionaryHeader, HeaderWriter
from bowstring.ipc.metadata.schema import DictionaryId, WireSchema
from bowstring.ipc.record_batch.reader import BatchColumns, DictionaryLookup
from bowstring.ipc.record_batch.remote import RemoteBody, fetch_body, open_columns
from bowstring.ipc.statistics import FileStatistics, merged as merged_statistics, with_statistics
from bowstring.ipc.tools.compatibility import FirstSource
from bowstring.ipc.tools.concat_source import ConcatSource, opened
from bowstring.ipc.tools.merge_dictionaries import DictionaryBatch, DictionaryMerger, dictionaries_inside_out
from bowstring.ipc.tools.message_writer import DryRunWriter, MessageWriter
from bowstring.ipc.tools.replace_columns import encode_replaced
from bowstring.ipc.tools.scan import BatchSpan, FileScan, StreamScan
from bowstring.layouts.base import error_context


@dataclass(frozen=True, slots=True)
class ConcatReport:
    """What was put together: how many sources, record batches and rows, and the length in bytes of the whole."""

    sources: int
    record_batches: int
    rows: int
    size_bytes: int


def concat_files(
    sources: Iterable[Any],
    sink: Any,
    as_stream: bool = False,
    metadata: MetadataLike = None,
    limits: ReadLimits = DEFAULT_LIMITS,
    max_piped_bytes: int = MAX_PIPED_BYTES,
) -> ConcatReport:
    """Put the record batches of several Arrow files and streams, one after the other, into one file, or one stream.

    Bodies are neither decoded nor checked; between files they are copied without coming here. Each of `sources` is what
    `open_file` or `open_stream` takes, told apart by content, and is opened when its turn comes. `sink` is what
    `new_file` takes; a path appears when all is well, and not at all otherwise. The first source says schema and schema
    metadata. The custom metadata of the file is `metadata`, or else what the sources' footers have, where a key's first
    value counts. Statistics are put together where every source has them.

    Dictionaries that are the same are written once, one that goes on where another ends as a delta. Otherwise a stream
    replaces them, and in a file they are united: what is new goes out as a delta, and the columns that use them are
    decoded and written with other indices. What can't be united (ordered and nested dictionaries, and more values than
    the indices have room for) is a `UsageError`, as are sources of another schema, byte order or metadata version, none
    at all, and one that is `sink`, too, by whatever path or link. The schema says the features that are in use. Where
    `sink` is no path and no `BytesIO`, so that nothing can be written anew, they are learned beforehand: sources are
    opened twice, and of a stream that can be read only once the schema and the first message are looked at.

    Raises `InvalidDataError` for malformed sources, `LimitError` for a file on a pipe that is larger than
    `max_piped_bytes`, and what opening them raises.
    """
    if isinstance(sources, str | bytes | os.PathLike):
        raise UsageError(f"sources are a list of files and streams, not {sources!r:.60}: write [{sources!r:.60}]")
    if not isinstance(sink, str | os.PathLike) or fsspec_store.find_location(sink) is not None:
        sources = list(sources)  # what is written to such a sink can't be taken back
    if isinstance(sources, Sequence):
        reject_same_file(sources, sink)
    target = open_sink(sink)
    joiner: _Concatenator | None = None
    with ExitStack() as held:
        try:
            door = _SourceOpener(sink, limits, max_piped_bytes, held)
            features: set[int] | None = None
            if not isinstance(target, Rewritable):
                features, sources = _rehearsed(sources, door, as_stream)
            joiner = _Concatenator(
                lambda schema, first: MessageWriter(
                    target, schema, first.wire.by_id.values(), first.version, as_stream, features
                ),
                as_stream,
            )
            count = 0
            for source in sources:
                with door.opened(source) as incoming:
                    joiner.add(incoming)
                count += 1
            done = joiner.end(None if metadata is None else as_metadata(metadata))
            return ConcatReport(count, *done, target.position)
        except BaseException:
            if joiner is None or not joiner.abandon():
                target.abandon()
            raise


@dataclass(frozen=True, slots=True)
class _SourceOpener:
    """Opens sources; `held` closes those in the end that can't be opened again."""

    sink: Any
    limits: ReadLimits
    max_piped_bytes: int
    held: ExitStack

    def opened(self, source: Any) -> AbstractContextManager[ConcatSource]:
        """A source, open for as long as the block runs. Raises `UsageError` if it is the sink."""
        reject_same_file([source], self.sink)
        return opened(source, self.limits, self.max_piped_bytes)


def _rehearsed(sources: Iterable[Any], door: _SourceOpener, as_stream: bool) -> tuple[set[int], list[Any]]:
    """The features that will be in use, learned by going through the sources; and what to take in their place.

    Of a stream that comes once only its schema and its first message are looked at.
    """
    joiner, again = _Concatenator(lambda _schema, _first: DryRunWriter(), as_stream), []
    for source in sources:
        with ExitStack() as own:
            incoming = own.enter_context(door.opened(source))
            if incoming.comes_once:
                door.held.enter_context(own.pop_all())
            if incoming.comes_once and isinstance(incoming.scan, StreamScan):
                joiner.begin(incoming)
                joiner.look(incoming.scan.peek())
            else:
                joiner.add(incoming)
            again.append(incoming if incoming.comes_once else source)
    return joiner.features, again


class _Concatenator:
    """Takes one source after the other, and gives what comes of them to the writer that `make` makes."""

    def __init__(
        self, make: Callable[[FlatbufferTable, FirstSource], MessageWriter | DryRunWriter], as_stream: bool
    ) -> None:
        self._make = make
        self._as_stream = as_stream
        self._begun: _Begun | None = None
        self._pairs: dict[bytes, bytes] = {}
        self._statistics: list[FileStatistics | None] = []
        self._batches = 0
        self._rows = 0

    def begin(self, incoming: ConcatSource) -> _Begun:
        """Begin with a source. Raises `UsageError` where it does not go with the first one."""
        begun = self._begun
        if begun is None:
            first, scan = FirstSource.of(incoming), incoming.scan
            merged = DictionaryMerger(first.wire, self._as_stream) if first.wire.by_id else None
            begun = self._begun = _Begun(first, self._make(scan.schema, first), merged)
        else:
            begun.first.check(incoming)
        begun.writer.take_features(incoming.scan.schema)
        return begun

    def look(self, span: BatchSpan | None) -> None:
        """Have a message that is not to be passed on yet."""
        if self._begun is not None and span is not None:
            self._begun.writer.note_codec(span.header.template.compression)

    @property
    def features(self) -> set[int]:
        """Those that are in use so far."""
        begun = self._begun
        if begun is None:
            return set()
        has_replaced = begun.merged is not None and begun.merged.has_replaced
        return begun.writer.features | ({DICTIONARY_REPLACEMENT} if has_replaced else set())

    def add(self, incoming: ConcatSource) -> None:
        """Pass the batches of a source on."""
        begun = self.begin(incoming)
        passage = _MessageCopier(incoming, begun)
        for span in incoming.scan.batches():
            if span.header.template.kind == headers.DICTIONARY_BATCH:
                passage.add_dictionary(span)
            else:
                passage.add_batch(span)
                self._batches += 1
                self._rows += span.header.length
        passage.finish()
        scan = incoming.scan
        self._statistics.append(scan.reader.statistics if isinstance(scan, FileScan) else None)
        for key, value in incoming.scan.footer_metadata:
            self._pairs.setdefault(key, value)

    def end(self, metadata: Metadata | None) -> tuple[int, int]:
        """Write the end; how many record batches and rows there are."""
        if self._begun is None:
            raise UsageError("there is nothing to concatenate: give at least one file or stream")
        begun, parts = self._begun, [part for part in self._statistics if part is not None]
        whole = (
            merged_statistics(begun.first.wire.schema, parts) if parts and len(parts) == len(self._statistics) else None
        )
        pairs = tuple(self._pairs.items()) if metadata is None else metadata
        writer = begun.writer
        assert isinstance(writer, MessageWriter)
        writer.features |= self.features
        writer.end(with_statistics(pairs, whole, writer.blocks[headers.RECORD_BATCH]))
        return self._batches, self._rows

    def abandon(self) -> bool:
        """Stop, if anything was begun; a path is left as it was."""
        if self._begun is None or not isinstance(self._begun.writer, MessageWriter):
            return False
        self._begun.writer.abandon()
        return True


@dataclass(frozen=True, slots=True)
class _Begun:
    """What the first source has said, and what is written of it."""

    first: FirstSource
    writer: MessageWriter | DryRunWriter
    merged: DictionaryMerger | None


class _MessageCopier:
    """Passes the messages of one source on, in stretches as long as possible, and its dictionaries where they are due.

    Of a file all dictionaries are taken before the first record batch.
    """

    def __init__(self, incoming: ConcatSource, begun: _Begun) -> None:
        self._incoming = incoming
        self._writer = begun.writer
        self._merged = begun.merged
        self._plan = incoming.known.plan(incoming.scan.version)
        self._waiting: list[BatchSpan] = []
        self._chains: dict[int, list[BatchSpan]] = {}
        self._changed: set[int] = set()
        self._targets: dict[int, list[DictionaryId]] = {}
        self._in_stream: StreamDictionaries | None = None
        self._lookup: DictionaryLookup = lambda _: None
        if isinstance(incoming.scan, FileScan):
            self._lookup = FileDictionaries(incoming.known.wire, incoming.scan.reader.read_dictionary_messages)
        else:
            self._lookup = self._in_stream = StreamDictionaries()
        self._ours = begun.first.wire.dictionaries
        if begun.merged is not None:
            begun.merged.begin_source()
            self._targets = _targets(begun.first.wire, incoming.known.wire.whole)

    def add_dictionary(self, span: BatchSpan) -> None:
        """Take a dictionary batch. Raises `InvalidDataError` where it is none of the schema's, or out of order."""
        wire, header, where = self._incoming.known.wire, span.header, (span.where,)
        id_ = find_dictionary(wire, header, where).id
        chain = self._chains.get(id_)
        assert span.body is not None
        if isinstance(span.body, RemoteBody):
            span = replace(span, body=fetch_body(span.body))  # it is compared with those of the sources that follow
            assert span.body is not None
        if self._in_stream is not None:
            self._lookup = self._in_stream = self._in_stream.with_batch(wire, header, span.body, where)
        elif header.template.is_delta != bool(chain):
            problem = "a delta comes before" if header.template.is_delta else "a file has only one non-delta batch of"
            raise InvalidDataError(f"{span.where}: {problem} dictionary {id_}")
        self._chains[id_] = [*(chain or ()), span] if header.template.is_delta else [span]
        self._changed.add(id_)

    def add_batch(self, span: BatchSpan) -> None:
        """Take a record batch. Raises `InvalidDataError` where it does not fit the schema."""
        if self._changed:
            self._settle()
        header, plan = span.header, self._plan
        if header.template.version != self._incoming.scan.version:
            plan = self._incoming.known.plan(header.template.version)
        assert span.body is not None
        columns = open_columns(plan, header, span.body, self._lookup, (span.where,))
        if len(self._chains) < len(self._targets):
            self._check_missing(columns)
        if self._merged is not None and self._merged.has_moves:
            moving = [index for index, nodes in enumerate(self._ours) if self._merged.is_moved(nodes)]
            if moving:
                here = BatchColumns(plan, header, fetch_body(span.body), self._lookup, (span.where,))
                self._put_moved(here, moving, span.where)
                return
        self._waiting.append(span)
        if self._incoming.memory is None:
            self._flush()

    def _put_moved(self, columns: BatchColumns, moving: Sequence[int], where: str) -> None:
        """Write a batch with other indices in the columns at these positions."""
        assert self._merged is not None
        others = {}
        for index in moving:
            with error_context(f"{where}, column {columns.plan[index].name!r}"):
                others[index] = self._merged.moved(columns[index], self._ours[index])
        body, template = encode_replaced(columns, others, where), columns.header.template
        header = HeaderWriter(template.version, template.compression).write(
            body.numbers, body.size_bytes, template.pairs
        )
        self._flush()
        self._writer.write_message(headers.RECORD_BATCH, header, body, template.compression)

    def _check_missing(self, columns: BatchColumns) -> None:
        """Make the columns whose dictionaries this source has not: an error, unless they are null altogether.

        Otherwise the batch would find the dictionary of another source.
        """
        for index, nodes in enumerate(self._incoming.known.wire.whole.dictionaries):
            if any(node.id not in self._chains for node in dictionaries_inside_out(nodes)):
                _ = columns[index]

    def _settle(self) -> None:
        """Write what is due of the dictionaries that came, inner ones first."""
        assert self._merged is not None
        for id_, nodes in self._targets.items():
            if id_ in self._changed:
                own = self._incoming.known.wire.by_id[id_]
                lookup, chain = self._lookup, self._chains[id_]
                if self._in_stream is not None:
                    lookup = self._in_stream.held()
                for node in nodes:
                    for due in self._merged.due(node, chain, lambda own=own, lookup=lookup: lookup(own)):  # type: ignore[misc]
                        self._put(due)
        self._changed.clear()

    def _put(self, due: DictionaryBatch) -> None:
        template = None if due.span is None else due.span.header.template
        if (
            due.span is not None
            and template is not None
            and DictionaryHeader(template.dictionary_id, template.is_delta) == due.mark
        ):
            self._waiting.append(due.span)
            return
        self._flush()
        assert self._merged is not None
        message = self._merged.message(due, self._incoming.scan.version)
        self._writer.write_message(headers.DICTIONARY_BATCH, *message, dictionary_id=due.mark.id)

    def finish(self) -> None:
        """Write what is left of the source."""
        if self._changed:
            self._settle()
        self._flush()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._writer.copy_messages(waiting, self._incoming.memory)


def _targets(ours: WireSchema, theirs: WireSchema) -> dict[int, list[DictionaryId]]:
    """Which of our dictionaries each of theirs is, by id, inner ones first."""
    targets: dict[int, list[DictionaryId]] = {}
    for nodes, source_nodes in zip(ours.dictionaries, theirs.dictionaries, strict=True):
        for node, source in zip(dictionaries_inside_out(nodes), dictionaries_inside_out(source_nodes), strict=True):
            known = targets.setdefault(source.id, [])
            if node not in known:
                known.append(node)
    return targets
