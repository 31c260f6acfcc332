"""Search damaged or truncated bytes for messages («Encapsulated message format»).

A message is valid if its marker, length, flatbuffer, counts for the schema, buffers and end of body are consistent.
After an invalid one the search continues at the next marker. A candidate has to be valid for this schema, so bytes of a
body are not mistaken for a message. A schema message in between begins another stream, for example one in a binary
column, which is skipped with all of its messages. The legacy framing has no marker; there only the footer locates the
next message.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, cast

from bowstring.datatypes.field import Metadata
from bowstring.errors import InvalidDataError, LimitError, TruncatedError
from bowstring.flatbuf.reader import FlatTable
from bowstring.io.memory_source import MemorySource
from bowstring.ipc.dictionaries.reader import get_dictionary_declaration
from bowstring.ipc.footer import Footer, read_footer_at_end
from bowstring.ipc.format_detection import check_format
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.message import (
    CONTINUATION,
    FILE_START,
    LEGACY_PREFIX_BYTES,
    MAX_ALIGNMENT_BYTES,
    PREFIX_BYTES,
    EndOfStream,
    Message,
    MessageLocation,
    format_location,
    is_file_start,
)
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.field import read_custom_metadata
from bowstring.ipc.metadata.header import BatchHeader, HeaderReader, check_metadata_version
from bowstring.ipc.metadata.schema import IpcSchema
from bowstring.ipc.schema_cache import get_ipc_schema
from bowstring.ipc.tools.scan import BatchMessage, MessageWalk
from bowstring.ipc.tools.schema_difference import describe_schema_difference
from bowstring.memory.buffer import Buffer

# The marker, and a length below 2**28, the default limit of metadata: of all bytes 0xff in data, few are followed by
# one.
_MARKER_AND_LENGTH = re.compile(rb"\xff{4}[\x00-\xff]{3}[\x00-\x0f]", re.DOTALL)
# In intact data, all metadata together is smaller than the source. Candidates overlap in data made of markers, where
# each could claim the rest of the source: without this bound the search takes quadratic time.
_MAX_PARSED_RATIO = 4
# A small source is searched to its end, whatever is in it.
_MIN_PARSED_LIMIT_BYTES = 64 << 20
# Each may claim to be long, if bytes before it were lost: the limit above is for the search.
_MAX_FRAMING_TRIALS = 8

MessageKind = Literal["record batch", "dictionary batch"]
SchemaMessage: TypeAlias = Message[FlatTable]
_Candidate: TypeAlias = BatchMessage | SchemaMessage | EndOfStream


@dataclass(frozen=True, slots=True, weakref_slot=True)
class DroppedRange:
    """Bytes `start` to `stop` of a source that were dropped, and the reason; `kind` and `rows` if known. The range is
    empty if a message begins where the one before is not declared to end, and both are saved.

    >>> import io
    >>> sink = io.BytesIO()
    >>> with bs.new_file(sink, {"n": "int64"}) as writer:
    ...     writer.write(bs.record_batch({"n": [1, 2]}))
    ...     writer.write(bs.record_batch({"n": [3, 4]}))
    >>> damaged = sink.getvalue().replace((3).to_bytes(8, "little"), b"")
    >>> (dropped, *_) = bs.ipc.recover(damaged, "recovered.arrow").dropped
    >>> dropped.rows
    2
    """

    start: int
    stop: int
    reason: str
    kind: MessageKind | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class DecodedFooter:
    """A readable footer, decoded: the schema, the offsets of batches, and the custom metadata."""

    footer: Footer
    ipc_schema: IpcSchema
    schema: FlatTable
    version: int
    batches: list[int]
    dictionaries: list[int]
    block_lengths: dict[int, tuple[int, int]]
    """The length of metadata and body of each block, by its offset."""
    pairs: Metadata

    @classmethod
    def read(cls, source: MemorySource, limits: ReadLimits) -> DecodedFooter:
        """Read the footer at the end of a source, whatever its first bytes are. Raises `InvalidDataError` if it or its
        schema is malformed.
        """
        footer = read_footer_at_end(source, limits)
        table = footer.table
        ipc_schema = get_ipc_schema(table["schema"], limits, footer.get_slices_outside_block_lists())
        _check_all_fields(ipc_schema)
        check_metadata_version(table["version"], "footer")
        pairs = read_custom_metadata(table)
        batches, dictionaries = footer.get_blocks(footer.batches), footer.get_blocks(footer.dictionaries)
        return cls(
            footer,
            ipc_schema,
            table["schema"],
            table["version"],
            batches["offset"].tolist(),
            dictionaries["offset"].tolist(),
            {
                offset: (metadata_bytes, body_bytes)
                for offset, metadata_bytes, _, body_bytes in (*dictionaries.tolist(), *batches.tolist())
            },
            pairs,
        )

    @property
    def offset(self) -> int:
        """The byte offset of the footer."""
        return self.footer.offset

    @property
    def sorted_offsets(self) -> list[int]:
        """The offsets of all messages."""
        return sorted((*self.batches, *self.dictionaries))

    def has_valid_block(self, message: BatchMessage) -> bool:
        """Whether the block of a message has its lengths and ends before the footer, as readers of files check."""
        lengths = message.metadata_bytes, message.header.body_bytes
        return self.block_lengths[message.start] == lengths and message.start + sum(lengths) <= self.offset

    def to_expected_schema(self, start: int, stop: int, dropped_range: DroppedRange | None = None) -> ExpectedSchema:
        """Return the footer's schema for messages after the one from `start` to `stop`."""
        return ExpectedSchema(self.schema, self.version, self.ipc_schema, start, stop, dropped_range)


@dataclass(frozen=True, slots=True)
class ExpectedSchema:
    """The schema that messages are checked with, from the footer or the first schema message.

    `start` is the offset of the schema message, and `stop` the byte after it, or its offset if it is damaged;
    `dropped_range` is the range before it that was dropped, if any.
    """

    table: FlatTable
    version: int
    ipc_schema: IpcSchema
    start: int
    stop: int
    dropped_range: DroppedRange | None = None


class CandidateReader(MessageWalk[BatchHeader | FlatTable]):
    """Reads possible messages at any offset of a source.

    The total size of metadata that is read is limited, as bytes may contain any number of overlapping candidates.
    """

    def __init__(self, source: MemorySource, limits: ReadLimits, first_offset: int) -> None:
        super().__init__(source, limits, self._read_header)
        self._memory = source.memory
        self._content = source.memory.bytes.data
        self._first_offset = first_offset
        self._headers = HeaderReader(limits)
        # The size of candidates and not their number: one near the beginning may claim nearly all bytes.
        self._remaining_bytes = _MAX_PARSED_RATIO * source.size + _MIN_PARSED_LIMIT_BYTES
        self.is_legacy_framing = False
        """Whether messages have the legacy framing; then there are no markers to search for."""

    def read_candidate(self, offset: int) -> _Candidate:
        """Read the message at an offset. A truncated batch has no body. Raises `InvalidDataError` if there is none."""
        source, size = self._source, self._source.size
        # Outside the legacy framing, four bytes that are not a marker would be taken for a length: almost any data is
        # one.
        if not self.is_legacy_framing and offset != self._first_offset:
            prefix = source.read_at(offset, min(PREFIX_BYTES, size - offset))
            if prefix[:4] != CONTINUATION:
                description = "a truncated marker" if CONTINUATION.startswith(prefix) else f"{prefix[:4]!r}"
                raise InvalidDataError(
                    f"{source.name}: message at byte {offset}: expected a message, found {description}"
                )
        message = self.read(offset)
        if isinstance(message, Message) and isinstance(message.header, BatchHeader):
            is_complete = message.stop <= size
            body = Buffer(self._memory, message.body_offset, message.body_bytes) if is_complete else None
            return BatchMessage.from_message(message, (f"{source.name}:", "message at byte", message.offset), body)
        return cast("SchemaMessage | EndOfStream", message)

    def read_schema_without_prefix(self, offset: int) -> SchemaMessage | None:
        """Read a schema message without a prefix, which ends at the next marker; None if there is none."""
        stop = self.find_marker(offset)
        raw = self._source.read_at(offset, min(stop - offset, self._headers.limits.max_metadata_bytes))
        try:
            header = self._read_header(raw, ("message at byte", offset))
        except InvalidDataError:
            return None
        return None if isinstance(header, BatchHeader) else Message(header, offset, 0, stop - offset, 0)

    def _read_header(self, raw: bytes, location: MessageLocation) -> BatchHeader | FlatTable:
        self._remaining_bytes -= len(raw)
        if self._remaining_bytes < 0:
            raise LimitError(f"{format_location(location)}: too many invalid messages: search abandoned")
        return self._headers.read(raw, location)

    def find_marker(self, offset: int, stop: int | None = None) -> int:
        """Return the offset of the next marker from `offset` on that begins before `stop`, which is the size of the
        source by default; `stop` if there is none.
        """
        size = self._source.size
        stop = size if stop is None else stop
        # After the budget is spent, the rest counts as damaged: what was found is still recovered.
        if self.is_legacy_framing or self._remaining_bytes < 0:
            return stop
        match = _MARKER_AND_LENGTH.search(self._content, offset, min(stop + PREFIX_BYTES - 1, size))
        return stop if match is None else match.start()


class MessageSearch:
    """A search for messages in a source; raises `InvalidDataError` if it has no schema, since messages can't be checked
    without one.
    """

    def __init__(self, source: MemorySource, limits: ReadLimits) -> None:
        self.source = source
        self.limits = limits
        self.footer: DecodedFooter | None = None
        self.footer_problem: str | None = None
        try:
            self.footer = DecodedFooter.read(source, limits)
        except InvalidDataError as error:
            self.footer_problem = str(error).removeprefix(f"{source.name}: ")
        has_magic = is_file_start(source.read_at(0, min(len(FILE_START), source.size)))
        self.is_file = has_magic or self.footer is not None
        first_offset = min(len(FILE_START), source.size) if self.is_file else 0
        self._candidates = CandidateReader(source, limits, first_offset)
        self.schema = self._read_schema(first_offset)
        if self.is_file and not has_magic and self.schema.dropped_range is None:
            damaged_magic = DroppedRange(0, first_offset, "the magic at the beginning is damaged")
            self.schema = replace(self.schema, dropped_range=damaged_magic)
        self.single_batch_losses: set[int] = set()  # offsets at which exactly one record batch was lost
        self._footer_offsets = [] if self.footer is None else self.footer.sorted_offsets

    # Schema

    def _read_schema(self, first_offset: int) -> ExpectedSchema:
        """Return the schema of the footer or of the first schema message."""
        offset, problem, footer = first_offset, "found another message or an end marker", self.footer
        message: _Candidate | None = None
        try:
            message = self._candidates.read_candidate(offset)
        except InvalidDataError as error:
            problem = str(error)
        dropped_range = None
        if isinstance(message, Message):
            self._candidates.is_legacy_framing = message.prefix_bytes == LEGACY_PREFIX_BYTES
        elif self.is_file and (unprefixed := self._candidates.read_schema_without_prefix(offset)) is not None:
            message = unprefixed  # Polars 2.1
        elif footer is not None:
            self._detect_legacy_framing(footer)
            stop = self._find_schema_end(footer, offset)
            dropped_range = DroppedRange(0, stop, f"the schema message is damaged: {problem}")
            return footer.to_expected_schema(stop, stop, dropped_range)
        else:
            offset, message = self._find_schema(offset, problem)
            self._candidates.is_legacy_framing = message.prefix_bytes == LEGACY_PREFIX_BYTES
            dropped_range = DroppedRange(0, offset, f"no schema message at the beginning: {problem}")
        if footer is not None:
            return self._choose_schema(footer, offset, message)
        return _decode_schema_message(message, self.limits, dropped_range)

    def _detect_legacy_framing(self, footer: DecodedFooter) -> None:
        """Detect the framing by the messages that the footer lists, as the schema message can't be read."""
        self.schema = footer.to_expected_schema(0, 0)
        self._candidates.is_legacy_framing = True
        messages: list[_Candidate] = []
        for offset in footer.sorted_offsets[:_MAX_FRAMING_TRIALS]:
            with suppress(InvalidDataError):
                messages.append(self._read_valid_message(offset))
        self._candidates.is_legacy_framing = any(
            isinstance(message, BatchMessage) and self.source.read_at(message.start, len(CONTINUATION)) != CONTINUATION
            for message in messages
        )

    def _find_schema_end(self, footer: DecodedFooter, start: int) -> int:
        """Return the end of the first schema message if no batch precedes it: bytes before it were lost or added. Else
        return `start`.
        """
        self.schema = footer.to_expected_schema(start, start)
        for _, candidate in self._find_candidates(start, self._read_valid_message):
            return candidate.stop if isinstance(candidate, Message) else start
        return start

    def _find_candidates(self, start: int, read: Callable[[int], _Candidate]) -> Iterator[tuple[int, _Candidate]]:
        """Yield the messages that `read` accepts at the markers from `start` on, with their offsets."""
        offset = self._candidates.find_marker(start)
        while offset < self.source.size:
            with suppress(InvalidDataError):
                yield offset, read(offset)
            offset = self._candidates.find_marker(offset + 1)

    def _choose_schema(self, footer: DecodedFooter, offset: int, message: SchemaMessage) -> ExpectedSchema:
        """Return the footer's schema, or the schema of the message at `offset` if it fits more messages: then the
        footer is damaged.
        """
        footer_schema = footer.to_expected_schema(offset, message.stop)
        try:
            message_schema = _decode_schema_message(message, self.limits)
        except InvalidDataError as error:
            reason = f"the schema message is damaged: {error}"
            return replace(footer_schema, dropped_range=DroppedRange(offset, message.stop, reason))
        difference = _describe_difference(footer_schema.ipc_schema, message_schema.ipc_schema)
        if difference is None:
            return footer_schema
        # Decided by the messages: of two schemas that both parse, neither the first nor the last is more likely to be
        # intact.
        offsets = {message.stop, *footer.sorted_offsets}
        if self._count_valid_messages(message_schema, offsets) > self._count_valid_messages(footer_schema, offsets):
            self.footer, self.footer_problem = None, f"{difference}, and fewer messages match the footer"
            return message_schema
        return replace(footer_schema, dropped_range=DroppedRange(offset, message.stop, difference))

    def _count_valid_messages(self, schema: ExpectedSchema, offsets: Iterable[int]) -> int:
        self.schema = schema
        return sum(map(self._is_valid_message, offsets))

    def _find_schema(self, start: int, problem: str) -> tuple[int, SchemaMessage]:
        for offset, candidate in self._find_candidates(start + 1, self._candidates.read_candidate):
            if isinstance(candidate, Message):
                with suppress(InvalidDataError):
                    _decode_schema_message(candidate, self.limits)
                    return offset, candidate
        name = self.source.name
        check_format(name, self.source.read_at(0, min(16, self.source.size)))
        raise InvalidDataError(
            f"{name}: nothing can be recovered: no schema at the beginning "
            f"({problem.removeprefix(f'{name}: ')}) or in a footer ({self.footer_problem})"
        )

    # Messages

    def find_messages(self) -> Iterator[BatchMessage | DroppedRange]:
        """Yield the valid messages in the order of the bytes, and the ranges dropped between them."""
        # The next message should be at `offset`. If it is not, the body length before may be damaged: then the search
        # begins at `search_start`, the end of the buffers of that message.
        schema, size = self.schema, self.source.size
        # A damaged length of metadata or a body may cover other messages, even up to where one begins.
        offset = search_start = self._find_valid_batch(schema.start + 1, schema.stop)
        if offset < schema.stop:
            yield DroppedRange(offset, offset, "a message begins inside the metadata that the schema message declares")
        while offset < size:
            try:
                candidate = self._read_valid_message(offset)
            except InvalidDataError as error:
                dropped, following = self._skip_damage(offset, search_start, str(error))
                if dropped is not None:
                    yield dropped
                offset = search_start = following
                continue
            if not isinstance(candidate, BatchMessage):
                resumed = self._find_batch_after_end(candidate.stop)
                if resumed is None:
                    dropped = self._find_dropped_end(offset, candidate.stop)
                    if dropped is not None:
                        yield dropped
                    return
                yield DroppedRange(offset, resumed, "an end marker before further messages")
                offset = search_start = resumed
                continue
            # A valid header does not prove its body: if bytes in it were lost, the message ends elsewhere.
            stop = _compute_next_offset(candidate)
            inner_offset = self._find_valid_batch(candidate.body_offset + _compute_end_of_buffers(candidate), stop)
            damage = self._find_body_damage(candidate, has_inner_message=inner_offset < stop)
            if damage is not None:
                yield damage
                offset = search_start = damage.stop
                continue
            yield candidate
            offset, search_start = stop, _compute_next_offset_by_buffers(candidate)
            if inner_offset < stop:
                reason = "a message begins inside the body that the one before declares"
                yield DroppedRange(inner_offset, inner_offset, reason)
                offset = search_start = inner_offset

    def _find_body_damage(self, message: BatchMessage, *, has_inner_message: bool) -> DroppedRange | None:
        """Return the range to drop if another message begins in a message's metadata, or if bytes of its body were lost
        or added and no message follows it directly, else None. `has_inner_message` if one begins after its buffers.
        """
        size, stop, buffers_end = (
            self.source.size,
            _compute_next_offset(message),
            _compute_next_offset_by_buffers(message),
        )
        kind, rows = _get_kind_and_rows(message)
        # Values are not searched, as they may contain messages; in the legacy framing, only the footer's offsets are.
        search_end = message.body_offset
        if self._candidates.is_legacy_framing:
            search_end += _compute_end_of_buffers(message)
        next_offset = self._find_valid_batch(message.start + 1, search_end)
        if next_offset < search_end:
            return DroppedRange(message.start, next_offset, "the next message begins inside it", kind, rows)
        if stop >= size or (self.footer is not None and stop >= self.footer.offset):
            if not has_inner_message and CONTINUATION in _read_body_padding(message, self.source):
                return DroppedRange(
                    message.start, stop, "bytes are missing: the end marker is inside its body", kind, rows
                )
            return None
        if self.is_followed_directly(message):
            return None
        # No message follows: the body has fewer bytes than declared if one begins inside it, or its padding shows that
        # its bytes were shifted.
        # Any marker in the body is tried: only a message that is valid for this schema, and not part of an embedded
        # stream, counts.
        next_offset = self._find_valid_batch(message.body_offset)
        if next_offset < buffers_end:
            return DroppedRange(
                message.start, next_offset, "bytes are missing: the next message begins inside its body", kind, rows
            )
        # Only if no message follows: the format does not require zeros in padding, so intact bodies may have others.
        if stop <= next_offset and _has_nonzero_padding(message, self.source):
            return DroppedRange(message.start, stop, "bytes are missing or added: its padding is not zero", kind, rows)
        return None

    def is_followed_directly(self, message: BatchMessage) -> bool:
        """Whether another message, the footer or the end of the source is where the message declares its end: then its
        body has neither lost nor gained bytes.
        """
        stop, size = _compute_next_offset(message), self.source.size
        if stop >= size or (self.footer is not None and stop == self.footer.offset):
            return True
        if self._candidates.is_legacy_framing:  # the footer's offsets prove nothing: they are those before the damage
            try:
                following = self._read_valid_message(stop)
            except InvalidDataError:
                return False
            # An end marker is zeros, as padding is, so it counts at the end only.
            end = size if self.footer is None else self.footer.offset
            return isinstance(following, BatchMessage) or end - stop <= PREFIX_BYTES
        return CONTINUATION.startswith(self.source.read_at(stop, min(4, size - stop)))

    def _find_batch_after_end(self, offset: int) -> int | None:
        """Return the offset of a batch after an end marker, where none should be, or None."""
        size = self.source.size
        if offset >= size or (self.footer is not None and offset > max(self._footer_offsets, default=0)):
            return None
        next_offset = self._find_valid_batch(offset)
        return next_offset if next_offset < size else None

    def _find_dropped_end(self, start: int, stop: int) -> DroppedRange | None:
        """Return the range to drop at an end marker from `start` to `stop` that no valid batch follows, if any."""
        if not self.is_file:
            size = self.source.size
            return DroppedRange(stop, size, "bytes after the end of the stream") if stop < size else None
        # The marker may be a damaged length: then the footer still lists a message at its offset.
        if self.footer is None or not any(start <= at < self.footer.offset for at in self._footer_offsets):
            return None
        return DroppedRange(start, self.footer.offset, "the footer lists messages here that cannot be read")

    def _skip_damage(self, offset: int, search_start: int, problem: str) -> tuple[DroppedRange | None, int]:
        """Return the range dropped at an invalid message, if any, and the offset of the next valid message."""
        size, source = self.source.size, self.source
        if (
            self.footer is not None
            and offset >= self.footer.offset
            and not any(footer_offset >= offset for footer_offset in self._footer_offsets)
        ):
            return None, size
        kind: MessageKind | None = None
        rows: int | None = None
        # If the next message is where this one declares its end, only this message is damaged.
        declared_end = 0
        try:
            candidate = self._candidates.read_candidate(offset)
            if isinstance(candidate, BatchMessage):
                kind, rows = _get_kind_and_rows(candidate)
                declared_end = _compute_next_offset(candidate)
        except InvalidDataError:
            pass
        if declared_end and declared_end < size and self._is_valid_message(declared_end):
            next_offset = declared_end
            if kind == "record batch":
                self.single_batch_losses.add(offset)
        else:
            next_offset = self._find_valid_batch(min(search_start, offset) if search_start != offset else offset + 1)
            if next_offset < offset:  # this message is inside the body that the one before declares
                kind = rows = None
        problem = problem.removeprefix(f"{source.name}: ").removeprefix(f"message at byte {offset}: ")
        return DroppedRange(offset, max(next_offset, offset), problem, kind, rows), next_offset

    def _find_valid_batch(self, start: int, stop: int | None = None) -> int:
        """Return the offset of the first valid batch from `start` to `stop`, which is the size of the source by
        default; `stop` if there is none.
        """
        offset = start
        stop = self.source.size if stop is None else stop
        while offset < stop:
            candidate_offset = self._candidates.find_marker(offset, stop)
            # The footer's offsets are tried as well as markers: the legacy framing has none, and a damaged marker may
            # be followed by an intact message.
            index = bisect_left(self._footer_offsets, offset)
            if index < len(self._footer_offsets):
                candidate_offset = min(candidate_offset, self._footer_offsets[index])
            if candidate_offset >= stop:
                break
            try:
                candidate = self._read_valid_message(candidate_offset)
                if isinstance(candidate, BatchMessage):
                    return candidate_offset
                offset = (
                    self._skip_embedded_stream(candidate) if isinstance(candidate, Message) else candidate_offset + 1
                )
            except InvalidDataError:
                offset = candidate_offset + 1
        return stop

    def _skip_embedded_stream(self, schema: SchemaMessage) -> int:
        """Return the end of the embedded stream that begins with `schema`."""
        offset = schema.stop
        while offset < self.source.size:
            try:
                candidate = self._candidates.read_candidate(offset)
            except InvalidDataError:
                return offset
            if not isinstance(candidate, BatchMessage):
                return candidate.stop
            offset = _compute_next_offset(candidate)
        return offset

    def _is_valid_message(self, offset: int) -> bool:
        try:
            self._read_valid_message(offset)
        except InvalidDataError:
            return False
        return True

    def _read_valid_message(self, offset: int) -> _Candidate:
        """Read the message at an offset and check all but its values."""
        candidate = self._candidates.read_candidate(offset)
        if not isinstance(candidate, BatchMessage):
            return candidate
        header, body, location = candidate.header, candidate.body, candidate.location_words
        if body is None:
            raise TruncatedError(
                f"{candidate.location}: expected a body of {header.body_bytes} bytes at byte {candidate.body_offset}, "
                f"found {self.source.size - candidate.body_offset}"
            )
        ipc_schema = self.schema.ipc_schema
        if header.template.kind == headers.DICTIONARY_BATCH:
            declaration = get_dictionary_declaration(ipc_schema, header, location)
            ipc_schema = IpcSchema.of_dictionary_values(declaration)
        header.check(ipc_schema.column_positions(header.template.version), body.size, location)
        problem = header.find_problem()
        if problem is not None:
            raise InvalidDataError(f"{candidate.location}: {problem}")
        return candidate


def _decode_schema_message(
    message: SchemaMessage, limits: ReadLimits, dropped_range: DroppedRange | None = None
) -> ExpectedSchema:
    """Decode all fields of a schema message. Raises `InvalidDataError` if one is malformed."""
    table = message.header
    ipc_schema = get_ipc_schema(table, limits)
    _check_all_fields(ipc_schema)
    version = table.flatbuffer.get_root_table("Message")["version"]
    return ExpectedSchema(table, version, ipc_schema, message.offset, message.stop, dropped_range)


def _check_all_fields(ipc_schema: IpcSchema) -> None:
    """Raise `InvalidDataError` if a field is malformed, or if other readers take its dictionary for absent."""
    if -1 in ipc_schema.dictionaries_by_id:
        raise InvalidDataError("schema: -1 is not the id of a dictionary")


def _describe_difference(in_footer: IpcSchema, in_message: IpcSchema) -> str | None:
    """Return the difference between the schemas of the footer and the schema message; None if there is none."""
    texts = describe_schema_difference(in_footer.schema, in_message.schema, check_metadata=True)
    if texts is None and in_footer.dictionaries != in_message.dictionaries:
        texts = f"dictionaries {in_footer.dictionaries}", f"{in_message.dictionaries}"
    if texts is None and in_footer.is_big_endian != in_message.is_big_endian:
        orders = "little-endian data", "big-endian data"
        texts = orders[in_footer.is_big_endian], orders[in_message.is_big_endian]
    if texts is None and in_footer.schema.pairs != in_message.schema.pairs:
        texts = f"metadata {in_footer.schema.pairs}", f"{in_message.schema.pairs}"
    return texts and f"the footer's schema has {texts[0]:.200}, the schema message {texts[1]:.200}"


def _get_kind_and_rows(message: BatchMessage) -> tuple[MessageKind, int | None]:
    """Return the kind of a message, and the number of rows of a record batch."""
    if message.header.template.kind == headers.RECORD_BATCH:
        return "record batch", message.header.length
    return "dictionary batch", None


# Ends of messages («Encapsulated message format», «Buffer Alignment and Padding»)


def _compute_next_offset(message: BatchMessage) -> int:
    """Return the offset of the next message: messages are padded to multiples of 8 bytes, wherever they begin."""
    size_bytes = message.metadata_bytes + message.header.body_bytes
    return message.start + size_bytes + -size_bytes % 8


def _compute_next_offset_by_buffers(message: BatchMessage) -> int:
    """Return the offset of the next message by the buffers, in case the body length is too large because of damage."""
    used = _compute_end_of_buffers(message)
    # Writers pad buffers to 64 bytes at most.
    size_bytes = message.metadata_bytes + min(used + -used % MAX_ALIGNMENT_BYTES, message.header.body_bytes)
    return message.start + size_bytes + -size_bytes % 8


def _compute_end_of_buffers(message: BatchMessage) -> int:
    """Return the end of the last buffer in a body."""
    buffers = message.header.buffers()
    # Checked by `find_problem`, so that the sum can't wrap around.
    return int((buffers["offset"] + buffers["length"]).max()) if len(buffers) else 0


def _has_nonzero_padding(message: BatchMessage, source: MemorySource) -> bool:
    """Whether bytes between the buffers of a body, or after the last one, are not zero as writers leave them."""
    buffers, paddings, end = message.header.buffers(), [], 0
    for start, stop in sorted(
        zip(buffers["offset"].tolist(), (buffers["offset"] + buffers["length"]).tolist(), strict=True)
    ):
        if stop > start:
            # A longer gap is not padding: it may be a buffer that the header does not list, or another writer's
            # reserve.
            if 0 < start - end < MAX_ALIGNMENT_BYTES:
                paddings.append((message.body_offset + end, start - end))
            end = max(end, stop)
    return any(any(source.read_at(*padding)) for padding in paddings) or any(_read_body_padding(message, source))


def _read_body_padding(message: BatchMessage, source: MemorySource) -> bytes:
    """Return the padding after the last buffer of a body."""
    end = _compute_end_of_buffers(message)
    return source.read_at(message.body_offset + end, min(MAX_ALIGNMENT_BYTES, message.header.body_bytes - end))
