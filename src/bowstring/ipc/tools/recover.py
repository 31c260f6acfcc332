"""Recover the intact batches and columns of a damaged or truncated file or stream («IPC File Format», «IPC Streaming
Format»).

Arrow has no checksums: damage is detected if it breaks the structure or makes a value impossible, not if it changes a
value into another valid one. An unknown loss may include a dictionary, so batches that depend on a dictionary that may
have changed are dropped too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bowstring.arrays.array import Array
from bowstring.display.objects import report_to_html
from bowstring.errors import InvalidArgumentError, InvalidDataError, TypeMismatchError
from bowstring.io.range_source import RangeSource
from bowstring.io.sinks import open_sink, reject_same_file
from bowstring.io.sources import download, ensure_random_access, open_source
from bowstring.ipc.dictionaries.delta import DeltaDictionary
from bowstring.ipc.dictionaries.reader import (
    StreamDictionaries,
    create_empty_dictionary,
    get_dictionary_declaration,
    read_dictionary_values,
)
from bowstring.ipc.file_statistics import replace_statistics
from bowstring.ipc.format_detection import MAX_PIPED_BYTES
from bowstring.ipc.limits import DEFAULT_LIMITS, ReadLimits
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.field import DictionaryDeclaration
from bowstring.ipc.metadata.schema import V4, BatchColumnPositions
from bowstring.ipc.record_batch.reader import BatchColumns, DictionaryLookup
from bowstring.ipc.record_batch.writer import EncodedBody
from bowstring.ipc.tools.message_search import DroppedRange, MessageSearch
from bowstring.ipc.tools.message_writer import MessageWriter
from bowstring.ipc.tools.replace_columns import encode_with_replacements
from bowstring.ipc.tools.scan import BatchMessage
from bowstring.layouts.base import ArrayData
from bowstring.layouts.expansion_limits import check_expanded_values
from bowstring.memory.buffer import Buffer
from bowstring.memory.closable import call_on_error


@dataclass(frozen=True, slots=True, weakref_slot=True)
class DamagedColumn:
    """A column that is null in all rows of a saved record batch, because it could not be read.

    `record_batch` is the index of the batch among those saved, `start` the byte offset of its message in the source,
    and `column` the index of the column.

    >>> import io
    >>> sink = io.BytesIO()
    >>> with bs.new_file(sink, {"n": "int64", "s": "string"}) as writer:
    ...     writer.write(bs.record_batch({"n": [1, 2], "s": ["one", "two"]}))
    >>> damaged_bytes = sink.getvalue().replace(b"two", bytes([255, 255, 255]))
    >>> (damaged,) = bs.ipc.recover(damaged_bytes, "recovered.arrow").damaged_columns
    >>> damaged.name, damaged.rows
    ('s', 2)
    >>> bs.read_table("recovered.arrow").to_pydict()
    {'n': [1, 2], 's': [None, None]}
    """

    record_batch: int
    column: int
    name: str
    rows: int
    start: int
    reason: str


@dataclass(frozen=True, slots=True, weakref_slot=True)
class RecoveryReport:
    """The recovered and the dropped parts of a source.

    `is_intact` if nothing was missing or damaged: a file with its footer, a stream that ends between two messages.
    `footer_problem` is the reason why a file's footer could not be read, in which case its custom metadata is lost;
    None otherwise, and for streams. `dropped` are the ranges left out, in the order of the bytes, and `damaged_columns`
    the columns that are null in saved batches.

    >>> import io
    >>> sink = io.BytesIO()
    >>> with bs.new_file(sink, {"n": "int64"}) as writer:
    ...     writer.write(bs.record_batch({"n": [1, 2]}))
    >>> report = bs.ipc.recover(sink.getvalue(), "recovered.arrow")
    >>> report.is_intact, report.rows, report.dropped
    (True, 2, ())
    """

    source: str
    format: Literal["file", "stream"]
    is_intact: bool
    record_batches: int
    dictionary_batches: int
    rows: int
    footer_problem: str | None
    dropped: tuple[DroppedRange, ...]
    damaged_columns: tuple[DamagedColumn, ...] = ()

    _repr_html_ = report_to_html


def recover(  # noqa: PLR0913 -- each is an option of its own
    source: Any,
    sink: Any,
    full: bool = True,
    limits: ReadLimits = DEFAULT_LIMITS,
    max_piped_bytes: int = MAX_PIPED_BYTES,
    report_progress: Callable[[int, int | None], None] | None = None,
    damaged_columns: Literal["null", "drop"] = "null",
) -> RecoveryReport:
    """Save the complete record batches of a damaged file or stream, and the dictionaries that they need.

    `source` is an argument of `open_file` or `open_stream`. Piped input is kept in memory, and the file of a URL in a
    temporary file, since every byte of it is checked. A file is saved as a file and a stream as a stream; `sink` is an
    argument of `new_file`, and not the source. Each batch is checked, with `full` every value of it, and then copied
    without decoding. A damaged column becomes null, and its batch is dropped if `damaged_columns` is "drop", no column
    is intact, the column is not nullable, or bytes may be missing. The search for messages continues after damage.
    Batches are in the footer's order if all its blocks are complete. A batch is also dropped if no message follows
    directly and its padding is not zero. A lost dictionary that no recovered index refers to is written without values.
    A dictionary that contains others is checked with the batches that use it.
    `report_progress(done, total)` is called at the beginning and after each message, in bytes.

    Raises `InvalidArgumentError` if the source is the sink, by any path or link, `InvalidDataError` if there is no
    schema at the beginning or in a footer, `FormatMismatchError` for other formats, `LimitError` for more than
    `max_piped_bytes` through a pipe.

    >>> import io
    >>> sink = io.BytesIO()
    >>> with bs.new_file(sink, {"n": "int64"}) as writer:
    ...     writer.write(bs.record_batch({"n": [1, 2]}))
    ...     writer.write(bs.record_batch({"n": [3, 4]}))
    >>> report = bs.ipc.recover(sink.getvalue()[:-100], "recovered.arrow")  # the footer is cut off
    >>> report.is_intact, report.rows
    (False, 4)
    >>> bs.read_table("recovered.arrow")["n"].to_pylist()
    [1, 2, 3, 4]
    """
    if damaged_columns not in ("null", "drop"):
        raise InvalidArgumentError(f"damaged_columns: expected 'null' or 'drop', found {damaged_columns!r}")
    reject_same_file([source], sink)
    opened_source = open_source(source)
    try:
        source = ensure_random_access(opened_source, max_piped_bytes)
        if report_progress is not None:
            report_progress(0, source.size)
        search = MessageSearch(download(source) if isinstance(source, RangeSource) else source, limits)
        messages = list(search.find_messages())
        create_selector = _FileSelector if search.is_file else _StreamSelector
        selector = create_selector(search, messages, full, damaged_columns == "null")
        target = open_sink(sink)
        with call_on_error(target.abandon):
            dictionaries = search.schema.ipc_schema.dictionaries_by_id.values()
            writer = MessageWriter(target, search.schema.table, dictionaries, search.schema.version, not search.is_file)
            return _write_selected(selector, writer, report_progress)
    finally:
        opened_source.close()


def _write_selected(
    selector: _MessageSelector, writer: MessageWriter, report_progress: Callable[[int, int | None], None] | None
) -> RecoveryReport:
    search = selector.search
    damaged_columns: list[DamagedColumn] = []
    rows = batches = dictionaries = 0
    for selected in selector.select():
        message = selected.message if isinstance(selected, _RepairedBatch) else selected
        header, template = message.header, message.header.template
        if isinstance(selected, _RepairedBatch):
            writer.write_batch(template, selected.new_body)
            names = search.schema.ipc_schema.schema.names
            damaged_columns += [
                DamagedColumn(batches, index, names[index], header.length, message.start, reason)
                for index, reason in selected.reasons.items()
            ]
        else:
            writer.copy_message(message, search.source)
        if template.kind == headers.RECORD_BATCH:
            batches += 1
            rows += header.length
        else:
            dictionaries += 1
        if report_progress is not None:
            report_progress(message.body_offset + header.body_bytes, search.source.size)
    footer = search.footer
    writer.finish(() if footer is None else replace_statistics(footer.pairs, None, ()))
    dropped = sorted(selector.dropped, key=lambda dropped_range: (dropped_range.start, dropped_range.stop))
    problem = search.footer_problem if search.is_file else None
    return RecoveryReport(
        search.source.name,
        "file" if search.is_file else "stream",
        not (dropped or damaged_columns) and problem is None,
        batches,
        dictionaries,
        rows,
        problem,
        tuple(dropped),
        tuple(damaged_columns),
    )


@dataclass(frozen=True, slots=True)
class _RepairedBatch:
    """A record batch with a new body, in which damaged columns are null; `reasons` has the reason for each, by
    index.
    """

    message: BatchMessage
    new_body: EncodedBody
    reasons: dict[int, str]


@dataclass(slots=True)
class _MessageSelector:
    """Selects the messages to save."""

    search: MessageSearch
    messages: Sequence[BatchMessage | DroppedRange]
    full: bool
    replaces_columns: bool
    dropped: list[DroppedRange] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.search.schema.dropped_range is not None:
            self.dropped.append(self.search.schema.dropped_range)

    def select(self) -> Iterable[BatchMessage | _RepairedBatch]:
        """Yield the messages to keep, in order, and add all others to `dropped`."""
        raise NotImplementedError

    def drop(self, message: BatchMessage, why: str) -> None:
        """Drop a message."""
        header, location = message.header, f"{message.location}"
        stop = message.body_offset + header.body_bytes
        reason = why.removeprefix(f"{location}, ").removeprefix(f"{location}: ")
        if header.template.kind == headers.RECORD_BATCH:
            self.dropped.append(DroppedRange(message.start, stop, reason, "record batch", header.length))
        else:
            reason = f"dictionary {header.template.dictionary_id}: {reason}"
            self.dropped.append(DroppedRange(message.start, stop, reason, "dictionary batch"))

    def may_contain_dictionary(self, dropped_range: DroppedRange) -> bool:
        """Whether the dropped bytes may have contained a dictionary."""
        # The header of the lost message was valid, and its end is the start of the next one.
        if dropped_range.start in self.search.single_batch_losses:
            return False
        footer = self.search.footer
        if footer is None or dropped_range.kind == "dictionary batch":
            return True
        return any(dropped_range.start <= at < dropped_range.stop for at in footer.dictionaries)

    def read_checked_dictionary(self, message: BatchMessage, lookup: DictionaryLookup, full: bool) -> Array:
        """Return the values of a dictionary batch, checked as `Array.validate` does."""
        assert message.body is not None
        values = read_dictionary_values(
            self.search.schema.ipc_schema, message.header, message.body, lookup, message.location_words
        )[0]
        values.validate(full)
        _check_null_counts(values, message, iter(message.header.nodes()["null_count"].tolist()))
        return values

    def select_valid_batches(
        self, batches: Iterable[BatchMessage], lookup: DictionaryLookup
    ) -> Iterator[BatchMessage | _RepairedBatch]:
        """Yield the valid record batches, also those with null in place of damaged columns, and drop the others."""
        names = self.search.schema.ipc_schema.schema.names
        for message in batches:
            try:
                reasons = self._find_damaged_columns(message, lookup)
                if not reasons:
                    yield message
                    continue
                repaired = self._replace_columns(message, lookup, reasons)
                if repaired is None:
                    index, reason = next(iter(reasons.items()))
                    raise InvalidDataError(f"column {names[index]!r}: {reason}")
                yield repaired
            except InvalidDataError as error:
                self.drop(message, str(error))

    def _find_damaged_columns(self, message: BatchMessage, lookup: DictionaryLookup) -> dict[int, str]:
        """Return the reason for each column that is not valid, by its index."""
        null_counts = message.header.nodes()["null_count"].tolist()
        columns = iter(self._create_columns(message, lookup))
        reasons = {}
        for index, position in enumerate(self._get_positions(message)):
            stop = position.first_node + position.node_count
            try:
                column = next(columns)
                column.validate(self.full)
                _check_null_counts(column, message, iter(null_counts[position.first_node : stop]))
            except InvalidDataError as error:
                reasons[index] = str(error).removeprefix(f"{message.location}, column {position.name!r}: ")
        return reasons

    def _may_replace(self, message: BatchMessage, reasons: dict[int, str]) -> bool:
        """Whether null may replace these columns, and the others are where the header says."""
        fields, positions = self.search.schema.ipc_schema.schema.fields, self._get_positions(message)
        return (
            self.replaces_columns
            and len(reasons) < len(fields)
            and all(fields[index].nullable for index in reasons)
            # In a stream, such a dictionary is written before it is checked, and other readers check it with all nulls.
            and (
                self.search.is_file
                or not any(node.nested for index in reasons for node in positions[index].dictionaries)
            )
            and self.search.is_followed_directly(message)
        )

    def _replace_columns(
        self, message: BatchMessage, lookup: DictionaryLookup, reasons: dict[int, str]
    ) -> _RepairedBatch | None:
        """Return the batch with null in place of some columns; None if it has to be dropped."""
        if not self._may_replace(message, reasons):
            return None
        header, positions, columns = message.header, self._get_positions(message), self._create_columns(message, lookup)
        check_expanded_values(header.length * len(reasons), 8 * header.body_bytes)
        try:
            nulls = {index: positions[index].layout.nulls(header.length) for index in reasons}
        except TypeMismatchError:  # such as a union without types: it has no null
            return None
        return _RepairedBatch(message, encode_with_replacements(columns, nulls, message.location), reasons)

    def _get_positions(self, message: BatchMessage) -> BatchColumnPositions:
        return self.search.schema.ipc_schema.column_positions(message.header.template.version)

    def _create_columns(self, message: BatchMessage, lookup: DictionaryLookup) -> BatchColumns:
        assert isinstance(message.body, Buffer)
        positions = self._get_positions(message)
        return BatchColumns(positions, message.header, message.body, lookup, message.location_words)


class _StreamSelector(_MessageSelector):
    """A stream may replace a dictionary at any time, so all dictionaries are unknown after a gap that may have
    contained one.
    """

    def select(self) -> Iterable[BatchMessage | _RepairedBatch]:
        """Yield the messages to keep, in order."""
        dictionaries = StreamDictionaries()
        for message in self.messages:
            if isinstance(message, DroppedRange):
                self.dropped.append(message)
                if self.may_contain_dictionary(message):
                    dictionaries = StreamDictionaries()
                continue
            template = message.header.template
            if template.kind == headers.RECORD_BATCH:
                yield from self.select_valid_batches([message], dictionaries.freeze())
                continue
            try:
                if template.is_delta and template.dictionary_id not in dictionaries:
                    raise InvalidDataError("a delta for a dictionary that is lost or undefined")
                values = self._read_dictionary(message)
            except InvalidDataError as error:
                dictionaries = dictionaries.without_dictionary(template.dictionary_id)
                self.drop(message, str(error))
                continue
            dictionaries = dictionaries.with_values(template.dictionary_id, [values], is_delta=template.is_delta)
            yield message

    def _read_dictionary(self, message: BatchMessage) -> Array:
        """Return the checked values of a dictionary batch.

        The dictionaries inside it may follow later or change. So the values of one that contains others are checked
        with each batch that uses it.
        """
        ipc_schema = self.search.schema.ipc_schema
        declaration = get_dictionary_declaration(ipc_schema, message.header, message.location_words)
        return self.read_checked_dictionary(message, create_empty_dictionary, full=self.full and not declaration.nested)


class _FileSelector(_MessageSelector):
    """A file defines each dictionary once and then only extends it: dictionaries before a gap stay valid after it, and
    deltas after a gap that may have contained one are dropped.
    """

    def select(self) -> Iterable[BatchMessage | _RepairedBatch]:
        """Yield the messages to keep: dictionaries first, then the record batches in the footer's order."""
        batch_messages: list[BatchMessage] = []
        gap_offsets: list[int] = []
        for message in self.messages:
            if isinstance(message, BatchMessage):
                batch_messages.append(message)
                continue
            self.dropped.append(message)
            if self.may_contain_dictionary(message):
                gap_offsets.append(message.start)
        gap_offsets += self._find_missing_dictionary_offsets(batch_messages)
        dictionaries = self._sort_by_footer(batch_messages, headers.DICTIONARY_BATCH)
        batches = self._sort_by_footer(batch_messages, headers.RECORD_BATCH)
        messages_by_id = self._group_by_dictionary(dictionaries, gap_offsets)
        arrays: dict[int, Array] = {}
        unavailable_ids: set[int] = set()

        def get_dictionary(declaration: DictionaryDeclaration) -> Array | None:
            if (
                declaration.id not in arrays
                and declaration.id in messages_by_id
                and declaration.id not in unavailable_ids
            ):
                unavailable_ids.add(declaration.id)  # while it is read, so that a dictionary inside itself is undefined
                array = self._read_dictionary(messages_by_id[declaration.id], get_dictionary)
                if array is not None:
                    arrays[declaration.id] = array
                    unavailable_ids.discard(declaration.id)
            return arrays.get(declaration.id)

        for declaration in self.search.schema.ipc_schema.dictionaries_by_id.values():
            get_dictionary(declaration)
        readable_ids = {
            id(message) for id_, messages in messages_by_id.items() if id_ in arrays for message in messages
        }
        yield from (message for message in dictionaries if id(message) in readable_ids)
        yield from self.select_valid_batches(batches, get_dictionary)

    def _sort_by_footer(self, batch_messages: list[BatchMessage], kind: str) -> list[BatchMessage]:
        """Return the messages of a kind, in the footer's order if all that it lists are present, else by offset."""
        of_kind = [message for message in batch_messages if message.header.template.kind == kind]
        footer = self.search.footer
        if footer is None:
            return of_kind
        by_offset = {message.start: message for message in of_kind}
        offsets = footer.batches if kind == headers.RECORD_BATCH else footer.dictionaries
        listed = [by_offset[start] for start in dict.fromkeys(offsets) if start in by_offset]
        if len(set(offsets)) < len(offsets):  # following it could fill the disk
            reason = f"the footer lists a {kind} more than once: duplicates are ignored"
        elif len(listed) < len(of_kind):  # also if bytes before them were lost or added
            reason = f"the footer lists {len(listed)} of the {len(of_kind)} messages of type {kind} that were found"
        elif not all(map(footer.has_valid_block, listed)):
            reason = f"the footer lists a {kind} with other lengths than it has"
        else:
            return listed if len(listed) == len(offsets) else of_kind
        self.dropped.append(DroppedRange(footer.offset, self.search.source.size, reason))
        return of_kind

    def _find_missing_dictionary_offsets(self, batch_messages: list[BatchMessage]) -> list[int]:
        """Return the footer's offsets of missing dictionary batches, if there are fewer than it lists; if they are not
        at the listed offsets, an offset before each one.
        """
        footer = self.search.footer
        present_offsets = {
            message.start for message in batch_messages if message.header.template.kind == headers.DICTIONARY_BATCH
        }
        if footer is None or len(present_offsets) >= len(footer.dictionaries):
            return []
        if present_offsets.difference(footer.dictionaries):
            return [at - 1 for at in present_offsets]
        return [at for at in footer.dictionaries if at not in present_offsets]

    def _group_by_dictionary(
        self, batch_messages: list[BatchMessage], gap_offsets: list[int]
    ) -> dict[int, list[BatchMessage]]:
        """Return the messages of each dictionary, up to the first that may follow a missing one."""
        messages_by_id: dict[int, list[BatchMessage]] = {}
        incomplete_ids: set[int] = set()
        for message in batch_messages:
            template = message.header.template
            messages = messages_by_id.get(template.dictionary_id)
            if not template.is_delta:
                if messages is not None:  # ambiguous
                    incomplete_ids.add(template.dictionary_id)
                messages_by_id.setdefault(template.dictionary_id, []).append(message)
            elif (
                messages is None
                or template.dictionary_id in incomplete_ids
                or _is_any_offset_between(gap_offsets, messages[-1].start, message.start)
            ):
                incomplete_ids.add(template.dictionary_id)
                self.drop(message, "a delta whose predecessor may be lost")
            else:
                messages.append(message)
        for id_ in [
            id_
            for id_, messages in messages_by_id.items()
            if sum(not message.header.template.is_delta for message in messages) > 1
        ]:
            for message in messages_by_id.pop(id_):
                self.drop(message, "defined more than once in a file")
        return messages_by_id

    def _read_dictionary(self, messages: list[BatchMessage], lookup: DictionaryLookup) -> Array | None:
        parts: list[Array] = []
        for number, message in enumerate(list(messages)):
            try:
                parts.append(self.read_checked_dictionary(message, lookup, self.full))
            except InvalidDataError as error:
                self.drop(message, str(error))
                for later_delta in messages[number + 1 :]:
                    self.drop(later_delta, "a delta after one that is not valid")
                del messages[number:]  # `select` writes the others
                break
        return DeltaDictionary([[values] for values in parts]).concat(len(parts)) if parts else None


def _check_null_counts(array: ArrayData, message: BatchMessage, null_counts: Iterator[int]) -> None:
    """Check that the nodes of arrays without a validity bitmap have no nulls: our readers ignore the count, others do
    not. `null_counts` has the nodes from the array's on.

    Unions of metadata version 4 have a validity bitmap, and all slots of the null type are null.
    """
    null_count = next(null_counts)
    has_own_nulls = array.layout.has_validity or not array.layout.children
    if null_count and not has_own_nulls and message.header.template.version != V4:
        raise InvalidDataError(f"the null count is {null_count}, but there is no validity bitmap ({array.type})")
    for child in array.children:
        _check_null_counts(child, message, null_counts)


def _is_any_offset_between(offsets: list[int], start: int, stop: int) -> bool:
    return any(start < offset < stop for offset in offsets)
