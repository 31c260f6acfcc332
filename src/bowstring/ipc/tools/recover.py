"""What is left of a damaged or cut-off file or stream, as a whole one («IPC File Format», «IPC Streaming Format»).

Arrow has no checksums: what is damaged is noticed where it breaks the structure or makes a value impossible, not where
it makes another value. Where it is unknown what was lost, it may have been a dictionary, so what depends on one that
may be another by then is dropped, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bowstring.errors import InvalidDataError
from bowstring.io.memory_source import MemorySource
from bowstring.io.sinks import open_sink, reject_same_file
from bowstring.io.stream_source import StreamSource
from bowstring.ipc.dictionaries.delta import DeltaDictionary
from bowstring.ipc.dictionaries.reader import Entry, read_values
from bowstring.ipc.encoded_schema import COMPRESSED_BODY, DICTIONARY_REPLACEMENT
from bowstring.ipc.format_detection import MAX_PIPED_BYTES, open_source, read_whole
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.schema import DictionaryId
from bowstring.ipc.record_batch.reader import BatchColumns
from bowstring.ipc.record_batch.remote import RemoteBody, RemoteColumns
from bowstring.ipc.statistics import with_statistics
from bowstring.ipc.tools.message_writer import MessageWriter, declared_features
from bowstring.ipc.tools.prefetch import prefetch_bodies
from bowstring.ipc.tools.salvage import DroppedRange, MessageSalvager
from bowstring.ipc.tools.scan import BatchSpan
from bowstring.layouts.array import Array
from bowstring.memory.buffer import Memory


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What was recovered from a source, and what was not.

    `is_intact` where nothing was missing or damaged: a file with its footer, a stream that ends between two messages.
    `footer_problem` says why a file's footer could not be read, and so that its custom metadata is lost; None where it
    could, and for streams. `dropped` are the stretches that were not taken, in the order of the bytes.
    """

    source: str
    format: Literal["file", "stream"]
    is_intact: bool
    record_batches: int
    dictionary_batches: int
    rows: int
    footer_problem: str | None
    dropped: tuple[DroppedRange, ...]


def recover(
    source: Any,
    sink: Any,
    full: bool = True,
    limits: ReadLimits = DEFAULT_LIMITS,
    max_piped_bytes: int = MAX_PIPED_BYTES,
    advance: Callable[[int, int | None], None] | None = None,
) -> RecoveryReport:
    """Write every complete and valid record batch of a damaged file or stream, and the dictionaries that they need.

    `source` is what `open_file` or `open_stream` takes; what comes through a pipe is kept in memory, and a URL is read
    by ranges, some batches at a time: headers first, then bodies. A file becomes a file and a stream a stream; `sink`
    is what `new_file` takes, and not the source. Each batch is checked, with
    `full` every value of it, and then passed on as it is, not decoded. Messages are looked for behind what is damaged.
    The schema says the features that sound messages use. `advance(done, of)` is called at the beginning and after
    each, in bytes.

    Raises `UsageError` if the source is the sink, by whatever path or link, `InvalidDataError` where there is no
    schema, neither at the beginning nor in a footer, `FormatMismatchError` for a foreign format, `LimitError` for more
    than `max_piped_bytes` through a pipe.
    """
    reject_same_file([source], sink)
    opened = open_source(source)
    try:
        whole = read_whole(opened, max_piped_bytes) if isinstance(opened, StreamSource) else opened
        if isinstance(whole, MemorySource) and whole.position:
            whole = MemorySource(Memory(whole.memory.bytes[whole.position :]), whole.name)
        if advance is not None:
            advance(0, whole.size)
        salvage = MessageSalvager(whole, limits)
        found = list(salvage.messages())
        judge = _FileJudge(salvage, found, full) if salvage.is_file else _StreamJudge(salvage, found, full)
        writing = open_sink(sink)
        try:
            features = _features(salvage, found)
            dictionaries = salvage.known.wire.by_id.values()
            writer = MessageWriter(
                writing, salvage.schema, dictionaries, salvage.version, not salvage.is_file, features
            )
        except BaseException:
            writing.abandon()
            raise
        try:
            return _written(judge, writer, advance)
        except BaseException:
            writer.abandon()
            raise
    finally:
        opened.close()


def _features(salvage: MessageSalvager, found: Sequence[BatchSpan | DroppedRange]) -> set[int]:
    """The features that the messages use, and what the schema says of others."""
    features = declared_features(salvage.schema)
    defined: set[int] = set()
    for span in found:
        if isinstance(span, DroppedRange):
            continue
        template = span.header.template
        if template.compression is not None:
            features.add(COMPRESSED_BODY)
        if template.kind == headers.RECORD_BATCH:
            defined.update(salvage.known.wire.by_id)  # the writer defines those that are missing
        if template.kind == headers.DICTIONARY_BATCH and not template.is_delta:
            if template.dictionary_id in defined and not salvage.is_file:
                features.add(DICTIONARY_REPLACEMENT)
            defined.add(template.dictionary_id)
    return features


def _written(judge: _Judge, writer: MessageWriter, advance: Callable[[int, int | None], None] | None) -> RecoveryReport:
    salvage = judge.salvage
    memory = salvage.source if isinstance(salvage.source, MemorySource) else None
    waiting: list[BatchSpan] = []
    rows = batches = dictionaries = 0
    for span in judge.sound():
        waiting.append(span)
        if memory is None:
            writer.copy_messages(waiting, None)
            waiting.clear()
        if span.header.template.kind == headers.RECORD_BATCH:
            batches += 1
            rows += span.header.length
        else:
            dictionaries += 1
        if advance is not None:
            advance(span.body_at + span.header.body_bytes, salvage.source.size)
    writer.copy_messages(waiting, memory)
    footer = salvage.footer
    writer.end(() if footer is None else with_statistics(footer.pairs, None, ()))
    dropped = sorted(judge.dropped, key=lambda lost: (lost.start, lost.stop))
    problem = salvage.footer_problem if salvage.is_file else None
    return RecoveryReport(
        salvage.source.name,
        "file" if salvage.is_file else "stream",
        not dropped and problem is None,
        batches,
        dictionaries,
        rows,
        problem,
        tuple(dropped),
    )


@dataclass(slots=True)
class _Judge:
    """Decides which of the messages that were found can be relied on."""

    salvage: MessageSalvager
    found: Sequence[BatchSpan | DroppedRange]
    full: bool
    dropped: list[DroppedRange] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.salvage.lost_at_start is not None:
            self.dropped.append(self.salvage.lost_at_start)

    def sound(self) -> Iterable[BatchSpan]:
        """The messages to be kept, in order; what is not is in `dropped` then."""
        raise NotImplementedError

    def drop(self, span: BatchSpan, why: str) -> None:
        """Drop a message."""
        header, where = span.header, f"{span.where}"
        stop = span.body_at + header.body_bytes
        reason = why.removeprefix(f"{where}, ").removeprefix(f"{where}: ")
        if header.template.kind == headers.RECORD_BATCH:
            self.dropped.append(DroppedRange(span.start, stop, reason, "record batch", header.length))
        else:
            reason = f"dictionary {header.template.dictionary_id}: {reason}"
            self.dropped.append(DroppedRange(span.start, stop, reason, "dictionary batch"))

    def may_hold_dictionary(self, lost: DroppedRange) -> bool:
        """Whether a dictionary may have been in bytes that are lost."""
        if lost.start in self.salvage.alone:
            return False
        footer = self.salvage.footer
        if footer is None or lost.kind == "dictionary batch":
            return True
        return any(lost.start <= at < lost.stop for at in footer.dictionaries)

    def values(self, span: BatchSpan, lookup: Callable[[DictionaryId], Array | None]) -> Array:
        """The values of a dictionary batch, checked."""
        assert span.body is not None
        values = read_values(self.salvage.known.wire, span.header, span.body, lookup, (span.where,))[0]
        values.validate(self.full)
        return values

    def check(self, span: BatchSpan, lookup: Callable[[DictionaryId], Array | None]) -> bool:
        """Check a record batch and drop it where it is not valid."""
        try:
            columns = self._columns(span, lookup)
            for name, column in zip(self.salvage.known.wire.whole.schema.names, columns, strict=True):
                try:
                    column.validate(self.full)
                except InvalidDataError as error:
                    raise type(error)(f"column {name!r}: {error}") from None
        except InvalidDataError as error:
            self.drop(span, str(error))
            return False
        return True

    def _columns(self, span: BatchSpan, lookup: Callable[[DictionaryId], Array | None]) -> Iterable[Array]:
        """The columns; of a body that was too large to be brought here one after the other, and none is kept."""
        header, body, where = span.header, span.body, (span.where,)
        plan = self.salvage.known.plan(header.template.version)
        assert body is not None
        if isinstance(body, RemoteBody):
            return (RemoteColumns(plan, header, body, lookup, where, [column])[0] for column in plan)
        return BatchColumns(plan, header, body, lookup, where)


class _StreamJudge(_Judge):
    """In a stream a dictionary can be replaced at any time: after a gap in which one may have been, none is known."""

    def sound(self) -> Iterable[BatchSpan]:
        """The messages to be kept, in order."""
        entries: dict[int, Entry] = {}

        def lookup(node: DictionaryId) -> Array | None:
            entry = entries.get(node.id)
            return None if entry is None else entry.array()

        for found in prefetch_bodies(self.found):
            if isinstance(found, DroppedRange):
                self.dropped.append(found)
                if self.may_hold_dictionary(found):
                    entries = {}
                continue
            if found.header.template.kind == headers.RECORD_BATCH:
                if self.check(found, lookup):
                    yield found
                continue
            id_ = found.header.template.dictionary_id
            before = entries.pop(id_, None)
            try:
                if found.header.template.is_delta and before is None:
                    raise InvalidDataError("a delta for a dictionary that is lost or was never there")
                values = self.values(found, lookup)
            except InvalidDataError as error:
                self.drop(found, str(error))
                continue
            entries[id_] = (
                Entry(DeltaDictionary([[values]]), 1)
                if before is None or not found.header.template.is_delta
                else before.extended([values])
            )
            yield found


class _FileJudge(_Judge):
    """In a file a dictionary is defined once and then only grows: what is before a gap holds after it, too, and deltas
    after a gap in which one may have been are not used.
    """

    def sound(self) -> Iterable[BatchSpan]:
        """The messages to be kept: dictionaries first, then the record batches in the order of the footer."""
        spans: list[BatchSpan] = []
        gaps: list[int] = []
        for found in self.found:
            if isinstance(found, BatchSpan):
                spans.append(found)
                continue
            self.dropped.append(found)
            if self.may_hold_dictionary(found):
                gaps.append(found.start)
        gaps += self._missing(spans)
        dictionaries = self._listed(spans, headers.DICTIONARY_BATCH)
        batches = self._listed(spans, headers.RECORD_BATCH)
        chains = self._chains(dictionaries, gaps)
        arrays: dict[int, Array] = {}
        broken: set[int] = set()

        def lookup(node: DictionaryId) -> Array | None:
            if node.id not in arrays and node.id in chains and node.id not in broken:
                broken.add(node.id)  # while it is read: one that holds itself is not there
                read = self._read(chains[node.id], lookup)
                if read is not None:
                    arrays[node.id] = read
                    broken.discard(node.id)
            return arrays.get(node.id)

        for node in self.salvage.known.wire.whole.by_id.values():
            lookup(node)
        kept = {id(span) for id_, chain in chains.items() if id_ in arrays for span in chain}
        yield from prefetch_bodies([span for span in dictionaries if id(span) in kept])
        yield from (span for span in prefetch_bodies(batches) if self.check(span, lookup))

    def _listed(self, spans: list[BatchSpan], kind: str) -> list[BatchSpan]:
        """Those of a kind: by the footer where all that it lists is there, else as they lie."""
        own = [span for span in spans if span.header.template.kind == kind]
        footer = self.salvage.footer
        if footer is None:
            return own
        at = {span.start: span for span in own}
        listed = footer.batches if kind == headers.RECORD_BATCH else footer.dictionaries
        if len(set(listed)) != len(listed):  # to follow it might fill a disk
            reason = f"the footer lists a {kind} more than once: each is taken once"
            self.dropped.append(DroppedRange(footer.at, self.salvage.source.size, reason))
        elif all(start in at for start in listed):
            return [at[start] for start in listed]
        return own

    def _missing(self, spans: list[BatchSpan]) -> list[int]:
        """Where the footer lists dictionary batches that are not there, if there are fewer than it lists; before each
        one that is there, if they are not where it lists them.
        """
        footer = self.salvage.footer
        there = {span.start for span in spans if span.header.template.kind == headers.DICTIONARY_BATCH}
        if footer is None or len(there) >= len(footer.dictionaries):
            return []
        if there.difference(footer.dictionaries):
            return [at - 1 for at in there]
        return [at for at in footer.dictionaries if at not in there]

    def _chains(self, spans: list[BatchSpan], gaps: list[int]) -> dict[int, list[BatchSpan]]:
        """The messages of each dictionary, as far as none between them may be missing."""
        chains: dict[int, list[BatchSpan]] = {}
        torn: set[int] = set()
        for span in spans:
            template = span.header.template
            chain = chains.get(template.dictionary_id)
            if not template.is_delta:
                if chain is not None:  # no way to tell which of them is meant
                    torn.add(template.dictionary_id)
                chains.setdefault(template.dictionary_id, []).append(span)
            elif chain is None or template.dictionary_id in torn or _between(gaps, chain[-1].start, span.start):
                torn.add(template.dictionary_id)
                self.drop(span, "a delta that may not be the next one: the one before it may be lost")
            else:
                chain.append(span)
        for id_ in [id_ for id_, chain in chains.items() if sum(not it.header.template.is_delta for it in chain) > 1]:
            for span in chains.pop(id_):
                self.drop(span, "a file defines it once, and here it is more than once")
        return chains

    def _read(self, chain: list[BatchSpan], lookup: Callable[[DictionaryId], Array | None]) -> Array | None:
        read: list[Array] = []
        for number, span in enumerate(prefetch_bodies(list(chain))):
            try:
                read.append(self.values(span, lookup))
            except InvalidDataError as error:
                self.drop(span, str(error))
                for rest in chain[number + 1 :]:
                    self.drop(rest, "a delta after one that is not valid")
                del chain[number:]
                break
        return DeltaDictionary([[values] for values in read]).joined(len(read)) if read else None


def _between(places: list[int], start: int, stop: int) -> bool:
    return any(start < place < stop for place in places)
