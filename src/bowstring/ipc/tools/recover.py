"""Recover the intact batches of a damaged or truncated file or stream («IPC File Format», «IPC Streaming Format»).

Arrow has no checksums: damage is detected if it breaks the structure or makes a value impossible, not if it changes a
value into another valid one. An unknown loss may include a dictionary, so batches that depend on a dictionary that may
have changed are dropped too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from bowstring.arrays.array import Array
from bowstring.errors import InvalidDataError
from bowstring.io.memory_source import MemorySource
from bowstring.io.range_source import MAX_ROUND_BYTES, RangeSource
from bowstring.io.sinks import open_sink, reject_same_file
from bowstring.ipc.dictionaries.delta import DeltaDictionary
from bowstring.ipc.dictionaries.reader import DictionarySnapshot, read_values
from bowstring.ipc.encoded_schema import COMPRESSED_BODY, DICTIONARY_REPLACEMENT
from bowstring.ipc.format_detection import MAX_PIPED_BYTES, as_random_access, open_source
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.schema import DictionaryId
from bowstring.ipc.record_batch.reader import BatchColumns
from bowstring.ipc.record_batch.remote import RemoteBody, RemoteColumns
from bowstring.ipc.statistics import with_statistics
from bowstring.ipc.tools.message_writer import MessageWriter, declared_features
from bowstring.ipc.tools.salvage import DroppedRange, MessageSalvager
from bowstring.ipc.tools.scan import BatchSpan
from bowstring.layouts.base import prefix_errors
from bowstring.memory.closable import abandon_on_error

_MAX_GROUP_LENGTH = 1000
_Message = TypeVar("_Message")


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The recovered and the dropped parts of a source.

    `is_intact` if nothing was missing or damaged: a file with its footer, a stream that ends between two messages.
    `footer_problem` is the reason why a file's footer could not be read, in which case its custom metadata is lost;
    None otherwise, and for streams. `dropped` are the ranges left out, in the order of the bytes.
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
    """Save the complete and valid record batches of a damaged file or stream, and the dictionaries that they need.

    `source` is an argument of `open_file` or `open_stream`. Piped input is kept in memory, and a URL is read by ranges,
    some batches at a time: headers first, then bodies. A file is saved as a file and a stream as a stream; `sink` is an
    argument of `new_file`, and not the source. Each batch is checked, with `full` every value of it, and then copied
    without decoding. The search for messages continues after damage. The schema lists the features that valid messages
    use. Batches are in the footer's order if all its blocks are complete. A batch is also dropped if no message follows
    directly and its padding is not zero. A lost dictionary that no recovered index refers to is written without values.
    `advance(done, total)` is called at the beginning and after each message, in bytes.

    Raises `UsageError` if the source is the sink, by any path or link, `InvalidDataError` if there is no schema at the
    beginning or in a footer, `FormatMismatchError` for other formats, `LimitError` for more than `max_piped_bytes`
    through a pipe.
    """
    reject_same_file([source], sink)
    opened_source = open_source(source)
    try:
        seekable = as_random_access(opened_source, max_piped_bytes)
        if advance is not None:
            advance(0, seekable.size)
        salvage = MessageSalvager(seekable, limits)
        messages = list(salvage.messages())
        selector = (
            _FileSelector(salvage, messages, full) if salvage.is_file else _StreamSelector(salvage, messages, full)
        )
        target = open_sink(sink)
        with abandon_on_error(target):
            features = _collect_features(salvage, messages)
            dictionaries = salvage.schema.cached.wire.by_id.values()
            writer = MessageWriter(
                target, salvage.schema.table, dictionaries, salvage.schema.version, not salvage.is_file, features
            )
            return _write_selected(selector, writer, advance)
    finally:
        opened_source.close()


def _collect_features(salvage: MessageSalvager, messages: Sequence[BatchSpan | DroppedRange]) -> set[int]:
    """Return the features that the messages use, and the schema's other features."""
    features = declared_features(salvage.schema.table)
    defined: set[int] = set()
    for span in messages:
        if isinstance(span, DroppedRange):
            continue
        template = span.header.template
        if template.compression is not None:
            features.add(COMPRESSED_BODY)
        if template.kind == headers.RECORD_BATCH:
            defined.update(salvage.schema.cached.wire.by_id)  # the writer defines those that are missing
        if template.kind == headers.DICTIONARY_BATCH and not template.is_delta:
            if template.dictionary_id in defined and not salvage.is_file:
                features.add(DICTIONARY_REPLACEMENT)
            defined.add(template.dictionary_id)
    return features


def _write_selected(
    selector: _MessageSelector, writer: MessageWriter, advance: Callable[[int, int | None], None] | None
) -> RecoveryReport:
    salvage = selector.salvage
    memory = salvage.source if isinstance(salvage.source, MemorySource) else None
    pending: list[BatchSpan] = []
    rows = batches = dictionaries = 0
    for span in selector.select():
        pending.append(span)
        if memory is None:
            writer.copy_messages(pending, None)
            pending.clear()
        if span.header.template.kind == headers.RECORD_BATCH:
            batches += 1
            rows += span.header.length
        else:
            dictionaries += 1
        if advance is not None:
            advance(span.body_offset + span.header.body_bytes, salvage.source.size)
    writer.copy_messages(pending, memory)
    footer = salvage.footer
    writer.end(() if footer is None else with_statistics(footer.pairs, None, ()))
    dropped = sorted(selector.dropped, key=lambda dropped_range: (dropped_range.start, dropped_range.stop))
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
class _MessageSelector:
    """Decides which messages are kept."""

    salvage: MessageSalvager
    messages: Sequence[BatchSpan | DroppedRange]
    full: bool
    dropped: list[DroppedRange] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.salvage.schema.lost is not None:
            self.dropped.append(self.salvage.schema.lost)

    def select(self) -> Iterable[BatchSpan]:
        """Yield the messages to keep, in order, and add all others to `dropped`."""
        raise NotImplementedError

    def drop(self, span: BatchSpan, why: str) -> None:
        """Drop a message."""
        header, where = span.header, f"{span.where}"
        stop = span.body_offset + header.body_bytes
        reason = why.removeprefix(f"{where}, ").removeprefix(f"{where}: ")
        if header.template.kind == headers.RECORD_BATCH:
            self.dropped.append(DroppedRange(span.start, stop, reason, "record batch", header.length))
        else:
            reason = f"dictionary {header.template.dictionary_id}: {reason}"
            self.dropped.append(DroppedRange(span.start, stop, reason, "dictionary batch"))

    def may_contain_dictionary(self, dropped_range: DroppedRange) -> bool:
        """Whether the dropped bytes may have contained a dictionary."""
        if dropped_range.start in self.salvage.lone_batch_losses:
            return False
        footer = self.salvage.footer
        if footer is None or dropped_range.kind == "dictionary batch":
            return True
        return any(dropped_range.start <= at < dropped_range.stop for at in footer.dictionaries)

    def values(self, span: BatchSpan, lookup: Callable[[DictionaryId], Array | None]) -> Array:
        """Return the checked values of a dictionary batch."""
        assert span.body is not None
        values = read_values(self.salvage.schema.cached.wire, span.header, span.body, lookup, (span.where,))[0]
        values.validate(self.full)
        return values

    def check(self, span: BatchSpan, lookup: Callable[[DictionaryId], Array | None]) -> bool:
        """Check a record batch and drop it if it is not valid."""
        try:
            columns = self._columns(span, lookup)
            for name, column in zip(self.salvage.schema.cached.wire.whole.schema.names, columns, strict=True):
                with prefix_errors(f"column {name!r}"):
                    column.validate(self.full)
        except InvalidDataError as error:
            self.drop(span, str(error))
            return False
        return True

    def _columns(self, span: BatchSpan, lookup: Callable[[DictionaryId], Array | None]) -> Iterable[Array]:
        """Return the columns; those of a body too large to prefetch are fetched one after another, and none is kept."""
        header, body, where = span.header, span.body, (span.where,)
        plan = self.salvage.schema.cached.plan(header.template.version)
        assert body is not None
        if isinstance(body, RemoteBody):
            return (RemoteColumns(plan, header, body, lookup, where, [column])[0] for column in plan)
        return BatchColumns(plan, header, body, lookup, where)


class _StreamSelector(_MessageSelector):
    """A stream may replace a dictionary at any time, so all dictionaries are unknown after a gap that may have
    contained one.
    """

    def select(self) -> Iterable[BatchSpan]:
        """Yield the messages to keep, in order."""
        entries: dict[int, DictionarySnapshot] = {}

        def lookup(node: DictionaryId) -> Array | None:
            entry = entries.get(node.id)
            return None if entry is None else entry.array()

        for message in _prefetch_bodies(self.messages):
            if isinstance(message, DroppedRange):
                self.dropped.append(message)
                if self.may_contain_dictionary(message):
                    entries = {}
                continue
            if message.header.template.kind == headers.RECORD_BATCH:
                if self.check(message, lookup):
                    yield message
                continue
            id_ = message.header.template.dictionary_id
            snapshot = entries.pop(id_, None)
            try:
                if message.header.template.is_delta and snapshot is None:
                    raise InvalidDataError("a delta for a dictionary that is lost or undefined")
                values = self.values(message, lookup)
            except InvalidDataError as error:
                self.drop(message, str(error))
                continue
            entries[id_] = (
                DictionarySnapshot(DeltaDictionary([[values]]), 1)
                if snapshot is None or not message.header.template.is_delta
                else snapshot.extend([values])
            )
            yield message


class _FileSelector(_MessageSelector):
    """A file defines each dictionary once and then only extends it: dictionaries before a gap stay valid after it, and
    deltas after a gap that may have contained one are dropped.
    """

    def select(self) -> Iterable[BatchSpan]:
        """Yield the messages to keep: dictionaries first, then the record batches in the footer's order."""
        spans: list[BatchSpan] = []
        gaps: list[int] = []
        for message in self.messages:
            if isinstance(message, BatchSpan):
                spans.append(message)
                continue
            self.dropped.append(message)
            if self.may_contain_dictionary(message):
                gaps.append(message.start)
        gaps += self._missing_offsets(spans)
        dictionaries = self._in_footer_order(spans, headers.DICTIONARY_BATCH)
        batches = self._in_footer_order(spans, headers.RECORD_BATCH)
        chains = self._build_chains(dictionaries, gaps)
        arrays: dict[int, Array] = {}
        unavailable: set[int] = set()

        def lookup(node: DictionaryId) -> Array | None:
            if node.id not in arrays and node.id in chains and node.id not in unavailable:
                unavailable.add(node.id)  # while it is read, so that a dictionary inside itself is undefined
                array = self._read_dictionary(chains[node.id], lookup)
                if array is not None:
                    arrays[node.id] = array
                    unavailable.discard(node.id)
            return arrays.get(node.id)

        for node in self.salvage.schema.cached.wire.whole.by_id.values():
            lookup(node)
        kept_ids = {id(span) for id_, chain in chains.items() if id_ in arrays for span in chain}
        yield from _prefetch_bodies([span for span in dictionaries if id(span) in kept_ids])
        yield from (span for span in _prefetch_bodies(batches) if self.check(span, lookup))

    def _in_footer_order(self, spans: list[BatchSpan], kind: str) -> list[BatchSpan]:
        """Return the messages of a kind, in the footer's order if all that it lists are present, else by offset."""
        of_kind = [span for span in spans if span.header.template.kind == kind]
        footer = self.salvage.footer
        if footer is None:
            return of_kind
        by_offset = {span.start: span for span in of_kind}
        offsets = footer.batches if kind == headers.RECORD_BATCH else footer.dictionaries
        if len(set(offsets)) != len(offsets):  # following it could fill the disk
            reason = f"the footer lists a {kind} more than once: duplicates are ignored"
            self.dropped.append(DroppedRange(footer.offset, self.salvage.source.size, reason))
        elif all(start in by_offset for start in offsets):
            return [by_offset[start] for start in offsets]
        return of_kind

    def _missing_offsets(self, spans: list[BatchSpan]) -> list[int]:
        """Return the footer's offsets of missing dictionary batches, if there are fewer than it lists; if they are not
        at the listed offsets, an offset before each one.
        """
        footer = self.salvage.footer
        present = {span.start for span in spans if span.header.template.kind == headers.DICTIONARY_BATCH}
        if footer is None or len(present) >= len(footer.dictionaries):
            return []
        if present.difference(footer.dictionaries):
            return [at - 1 for at in present]
        return [at for at in footer.dictionaries if at not in present]

    def _build_chains(self, spans: list[BatchSpan], gaps: list[int]) -> dict[int, list[BatchSpan]]:
        """Return the messages of each dictionary, up to the first that may follow a missing one."""
        chains: dict[int, list[BatchSpan]] = {}
        incomplete: set[int] = set()
        for span in spans:
            template = span.header.template
            chain = chains.get(template.dictionary_id)
            if not template.is_delta:
                if chain is not None:  # ambiguous
                    incomplete.add(template.dictionary_id)
                chains.setdefault(template.dictionary_id, []).append(span)
            elif (
                chain is None
                or template.dictionary_id in incomplete
                or _is_any_between(gaps, chain[-1].start, span.start)
            ):
                incomplete.add(template.dictionary_id)
                self.drop(span, "a delta whose predecessor may be lost")
            else:
                chain.append(span)
        for id_ in [id_ for id_, chain in chains.items() if sum(not it.header.template.is_delta for it in chain) > 1]:
            for span in chains.pop(id_):
                self.drop(span, "defined more than once in a file")
        return chains

    def _read_dictionary(self, chain: list[BatchSpan], lookup: Callable[[DictionaryId], Array | None]) -> Array | None:
        parts: list[Array] = []
        for number, span in enumerate(_prefetch_bodies(list(chain))):
            try:
                parts.append(self.values(span, lookup))
            except InvalidDataError as error:
                self.drop(span, str(error))
                for rest in chain[number + 1 :]:
                    self.drop(rest, "a delta after one that is not valid")
                del chain[number:]
                break
        return DeltaDictionary([[values] for values in parts]).concat(len(parts)) if parts else None


def _is_any_between(places: list[int], start: int, stop: int) -> bool:
    return any(start < place < stop for place in places)


def _prefetch_bodies(messages: Iterable[_Message]) -> Iterator[_Message]:
    """Yield the same in the same order, with the remote bodies of `BatchSpan`s fetched.

    A body larger than `MAX_ROUND_BYTES` stays remote; its columns are fetched on access.
    """
    group: list[_Message] = []
    group_bytes = 0
    for message in messages:
        body = message.body if isinstance(message, BatchSpan) else None
        size_bytes = body.size if isinstance(body, RemoteBody) else 0
        if group_bytes + size_bytes > MAX_ROUND_BYTES or len(group) == _MAX_GROUP_LENGTH:
            yield from _fetch_group(group)
            group, group_bytes = [], 0
        group.append(message)
        group_bytes += size_bytes
    yield from _fetch_group(group)


def _fetch_group(group: list[_Message]) -> Iterator[_Message]:
    remote_bodies = [
        message.body for message in group if isinstance(message, BatchSpan) and isinstance(message.body, RemoteBody)
    ]
    small_bodies = [body for body in remote_bodies if body.size <= MAX_ROUND_BYTES]
    if not small_bodies:
        yield from group
        return
    source: RangeSource = small_bodies[0].source
    chunks = source.fetch([(body.offset, body.size) for body in small_bodies])
    for message in group:
        if (
            isinstance(message, BatchSpan)
            and isinstance(message.body, RemoteBody)
            and message.body.size <= MAX_ROUND_BYTES
        ):
            yield replace(message, body=chunks.find(message.body.offset, message.body.size))
        else:
            yield message
