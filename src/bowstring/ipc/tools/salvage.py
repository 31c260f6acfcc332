"""Search damaged or truncated bytes for messages («Encapsulated message format»).

A message is valid if its marker, length, flatbuffer, counts for the schema, buffers and end of body are consistent.
After an invalid one the search continues at the next marker. A candidate has to be valid for this schema, so bytes of a
body are not mistaken for a message. A schema message on the way begins another stream, for example one in a binary
column, which is skipped with all of its messages. The legacy framing has no marker; there only the footer locates the
next message.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bowstring.datatypes.field import Metadata
from bowstring.errors import InvalidDataError, LimitError, TruncatedError
from bowstring.flatbuf.reader import Table
from bowstring.io.byte_ranges import Span
from bowstring.io.range_source import ROUND_BYTES, RangeSource
from bowstring.io.sources import RandomAccess
from bowstring.ipc.dictionaries.reader import find_dictionary, read_values
from bowstring.ipc.format_detection import check_format, make_file_reader
from bowstring.ipc.limits import ReadLimits
from bowstring.ipc.message import (
    CONTINUATION,
    FILE_START,
    LEGACY_PREFIX_BYTES,
    PREFIX_BYTES,
    is_file_start,
    parse_prefix,
)
from bowstring.ipc.metadata import header as headers
from bowstring.ipc.metadata.header import BatchHeader, HeaderReader
from bowstring.ipc.metadata.schema import V4, V5, read_pairs
from bowstring.ipc.record_batch.remote import Body, RemoteBody, open_columns
from bowstring.ipc.schema_cache import CachedSchema, load_schema
from bowstring.ipc.tools.message_bounds import (
    has_nonzero_padding,
    next_message_offset,
    next_offset_by_buffers,
    read_end_padding,
)
from bowstring.ipc.tools.scan import BatchSpan
from bowstring.memory.buffer import Buffer

_MARKER_AND_LENGTH = re.compile(rb"\xff{4}[\x00-\xff]{3}[\x00-\x0f]", re.DOTALL)
_MAX_PARSED_RATIO = 4
_MAX_PREFETCHED_HEADERS = 10_000
_MIN_PARSED_LIMIT_BYTES = 64 << 20

Kind = Literal["record batch", "dictionary batch"]


@dataclass(frozen=True, slots=True)
class DroppedRange:
    """Bytes `start` to `stop` of a source that were dropped, and the reason; `kind` and `rows` if known."""

    start: int
    stop: int
    reason: str
    kind: Kind | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Footer:
    """A readable footer: its offset in the file, the schema, the offsets of batches, the metadata size of each, and the
    custom metadata.
    """

    at: int
    cached_schema: CachedSchema
    schema: Table
    version: int
    batches: list[int]
    dictionaries: list[int]
    metadata_bytes: dict[int, int]
    pairs: Metadata


@dataclass(frozen=True, slots=True)
class _NonBatchMessage:
    """A schema message or the end marker."""

    stop: int
    schema: Table | None


class MessageSalvager:
    """Finds messages in a source; raises `InvalidDataError` if it has no schema, since messages can't be checked
    without one.
    """

    def __init__(self, source: RandomAccess, limits: ReadLimits) -> None:
        self.source = source
        self.limits = limits
        self.footer_problem: str | None = None
        self.footer = self._read_footer()
        start = source.read_at(0, min(len(FILE_START), source.size))
        self.is_file = is_file_start(start) or self.footer is not None
        self._headers = HeaderReader(limits)
        self.lone_batch_losses: set[int] = set()  # offsets at which exactly one record batch was lost
        self._parsed_bytes = 0
        self._gave_up = False
        self._is_legacy = False
        self._first_offset = len(FILE_START) if self.is_file else 0
        self.lost_at_start: DroppedRange | None = None
        self._find_start()
        offsets = () if self.footer is None else (*self.footer.batches, *self.footer.dictionaries)
        self._footer_offsets = sorted(offsets)
        self._prefetched_to = 0 if isinstance(source, RangeSource) else source.size

    def _read_footer(self) -> Footer | None:
        try:
            reader = make_file_reader(self.source, None, self.limits)
            cached_schema = reader.cached_schema
            _ = cached_schema.wire.whole
            if reader.footer["version"] not in (V4, V5):
                raise InvalidDataError(f"metadata version {reader.footer['version']}")
            pairs = read_pairs(reader.footer)
        except InvalidDataError as error:
            self.footer_problem = str(error).removeprefix(f"{self.source.name}: ")
            return None
        batch_offsets, dictionary_offsets = (
            reader.blocks["offset"].tolist(),
            reader.dictionary_blocks["offset"].tolist(),
        )
        blocks = np.concatenate([reader.blocks, reader.dictionary_blocks])
        metadata_bytes = dict(zip(blocks["offset"].tolist(), blocks["metaDataLength"].tolist(), strict=True))
        table = reader.footer
        return Footer(
            reader.footer_at,
            cached_schema,
            table["schema"],
            table["version"],
            batch_offsets,
            dictionary_offsets,
            metadata_bytes,
            pairs,
        )

    # The schema

    def _find_start(self) -> None:
        """Find the schema: the footer's if any, else the first schema message."""
        at, problem = self._first_offset, ""
        first_message: BatchSpan | _NonBatchMessage | None = None
        try:
            first_message = self._read_message(at)
        except InvalidDataError as error:
            problem = str(error)
        if not (isinstance(first_message, _NonBatchMessage) and first_message.schema is not None):
            if self.footer is None:
                at, schema_message = self._find_schema(at, problem)
                first_message = schema_message
                self.lost_at_start = DroppedRange(
                    0, at, f"no schema message at the beginning: {problem or 'found another message'}"
                )
            else:
                self.lost_at_start = DroppedRange(
                    0, at, f"the schema message is damaged: {problem or 'found another message'}"
                )
                first_message = None
        if self.footer is not None:
            self.schema, self.version, self.cached_schema = (
                self.footer.schema,
                self.footer.version,
                self.footer.cached_schema,
            )
        else:
            assert isinstance(first_message, _NonBatchMessage)
            assert first_message.schema is not None
            self.schema = first_message.schema
            self.version = first_message.schema.message.root("Message")["version"]
            self.cached_schema = load_schema(first_message.schema, self.limits)
            _ = self.cached_schema.wire.whole
        if isinstance(first_message, _NonBatchMessage):
            self._is_legacy = self.source.read_at(at, 4) != CONTINUATION
            self._first_offset = first_message.stop

    def _find_schema(self, start: int, problem: str) -> tuple[int, _NonBatchMessage]:
        at = self._find_marker(start + 1)
        while at < self.source.size:
            try:
                candidate = self._read_message(at)
                if isinstance(candidate, _NonBatchMessage) and candidate.schema is not None:
                    load_schema(candidate.schema, self.limits).wire.whole  # noqa: B018
                    return at, candidate
            except InvalidDataError:
                pass
            at = self._find_marker(at + 1)
        name = self.source.name
        check_format(name, self.source.read_at(0, min(16, self.source.size)))
        raise InvalidDataError(
            f"{name}: nothing can be recovered: no schema at the beginning "
            f"({problem.removeprefix(f'{name}: ') or 'found another message'}) or in a footer ({self.footer_problem})"
        )

    # Messages

    def messages(self) -> Iterator[BatchSpan | DroppedRange]:
        """Yield the valid messages in the order of the bytes, and the ranges dropped between them."""
        at, slack_from, size = self._first_offset, self._first_offset, self.source.size
        while at < size:
            if at >= self._prefetched_to:
                self._prefetch_headers(at)
            try:
                candidate = self._read_valid_message(at)
            except InvalidDataError as error:
                dropped, following = self._skip_damage(at, slack_from, str(error))
                if dropped is not None:
                    yield dropped
                at = slack_from = following
                continue
            if isinstance(candidate, _NonBatchMessage):
                resumed = self._find_batch_after_end(candidate.stop)
                if resumed is None:
                    if candidate.stop < size and not self.is_file:
                        yield DroppedRange(candidate.stop, size, "bytes after the end of the stream")
                    return
                yield DroppedRange(at, resumed, "an end marker before further messages")
                at = slack_from = resumed
                continue
            damage = self._find_body_damage(candidate)
            if damage is None:
                yield candidate
                at, slack_from = next_message_offset(candidate), next_offset_by_buffers(candidate)
            else:
                yield damage
                at = slack_from = damage.stop

    def _prefetch_headers(self, at: int) -> None:
        """For a remote file, request the headers listed in the footer from an offset on, many at once."""
        spans: list[Span] = []
        total_bytes, self._prefetched_to = 0, self.source.size
        sizes_bytes = {} if self.footer is None else self.footer.metadata_bytes
        for start in self._footer_offsets[bisect_left(self._footer_offsets, at) :]:
            size_bytes = sizes_bytes[start]
            if total_bytes + max(size_bytes, 0) > ROUND_BYTES or len(spans) == _MAX_PREFETCHED_HEADERS:
                self._prefetched_to = start
                break
            if start >= 0 and 0 < size_bytes <= min(self.limits.max_metadata_bytes, self.source.size - start):
                spans.append((start, size_bytes))
                total_bytes += size_bytes
        self.source.expect(spans)

    def _find_body_damage(self, span: BatchSpan) -> DroppedRange | None:
        """Return the range to drop if bytes of a message's body were lost or added and no message follows it directly,
        else None.
        """
        size, stop, buffers_end = self.source.size, next_message_offset(span), next_offset_by_buffers(span)
        kind, rows = _kind_of(span)
        if stop >= size or self._is_legacy or (self.footer is not None and stop >= self.footer.at):
            if CONTINUATION in read_end_padding(span, self.source):
                return DroppedRange(
                    span.start, stop, "bytes are missing: the end marker is inside its body", kind, rows
                )
            return None
        if CONTINUATION.startswith(self.source.read_at(stop, min(4, size - stop))):
            return None
        next_offset = self._find_batch(span.body_at)
        if next_offset < buffers_end:
            return DroppedRange(
                span.start, next_offset, "bytes are missing: the next message begins inside its body", kind, rows
            )
        if stop <= next_offset and has_nonzero_padding(span, self.source):
            return DroppedRange(span.start, stop, "bytes are missing or added: its padding is not zero", kind, rows)
        return None

    def _find_batch_after_end(self, at: int) -> int | None:
        """Return the offset of a batch after an end marker, where none should be, or None."""
        size = self.source.size
        if at >= size or (self.footer is not None and at > max(self._footer_offsets, default=0)):
            return None
        next_offset = self._find_batch(at)
        return next_offset if next_offset < size else None

    def _skip_damage(self, at: int, slack_from: int, problem: str) -> tuple[DroppedRange | None, int]:
        """Return the range dropped at an invalid message, if any, and the offset of the next valid message."""
        size, source = self.source.size, self.source
        if (
            self.footer is not None
            and at >= self.footer.at
            and not any(offset >= at for offset in self._footer_offsets)
        ):
            return None, size
        kind: Kind | None = None
        rows: int | None = None
        declared_end = 0
        try:
            candidate = self._read_message(at)
            if isinstance(candidate, BatchSpan):
                kind, rows = _kind_of(candidate)
                declared_end = next_message_offset(candidate)
        except InvalidDataError:
            pass
        if declared_end and declared_end < size and self._is_valid_message(declared_end):
            next_offset = declared_end
            if kind == "record batch":
                self.lone_batch_losses.add(at)
        else:
            next_offset = self._find_batch(min(slack_from, at) if slack_from != at else at + 1)
            if next_offset < at:  # the message before had a length that swallowed this one
                kind = rows = None
        problem = problem.removeprefix(f"{source.name}: ").removeprefix(f"byte {at}: ")
        return DroppedRange(at, max(next_offset, at), problem, kind, rows), next_offset

    def _find_batch(self, start: int) -> int:
        """Return the offset of the first valid batch at or after `start`, or the size of the source."""
        size, at = self.source.size, start
        while at < size:
            candidate_offset = self._find_marker(at)
            index = bisect_left(self._footer_offsets, at)
            if index < len(self._footer_offsets):
                candidate_offset = min(candidate_offset, self._footer_offsets[index])
            if candidate_offset >= size:
                break
            try:
                candidate = self._read_valid_message(candidate_offset)
                if isinstance(candidate, BatchSpan):
                    return candidate_offset
                at = self._skip_embedded_stream(candidate) if candidate.schema is not None else candidate_offset + 1
            except InvalidDataError:
                at = candidate_offset + 1
        return size

    def _skip_embedded_stream(self, schema: _NonBatchMessage) -> int:
        """Return the end of the embedded stream that begins with `schema`."""
        at = schema.stop
        while at < self.source.size:
            try:
                candidate = self._read_message(at)
            except InvalidDataError:
                return at
            if isinstance(candidate, _NonBatchMessage):
                return candidate.stop
            at = next_message_offset(candidate)
        return at

    def _find_marker(self, at: int) -> int:
        if self._is_legacy or self._gave_up:
            return self.source.size
        return self.source.search(_MARKER_AND_LENGTH, at)

    def _is_valid_message(self, at: int) -> bool:
        try:
            self._read_valid_message(at)
        except InvalidDataError:
            return False
        return True

    def _read_valid_message(self, at: int) -> BatchSpan | _NonBatchMessage:
        """Read the message at an offset and check all but its values."""
        candidate = self._read_message(at)
        if isinstance(candidate, _NonBatchMessage):
            return candidate
        header, body, where = candidate.header, candidate.body, (candidate.where,)
        if body is None:
            raise TruncatedError(
                f"{candidate.where}: expected a body of {header.body_bytes} bytes at byte {candidate.body_at}, found "
                f"{self.source.size - candidate.body_at}"
            )
        if header.template.version != self.version:
            raise InvalidDataError(
                f"{candidate.where}: expected metadata version {self.version}, found {header.template.version}"
            )
        if header.template.kind == headers.DICTIONARY_BATCH:
            find_dictionary(self.cached_schema.wire, header, where)
            read_values(self.cached_schema.wire, header, body, lambda _: None, where)
        else:
            open_columns(self.cached_schema.plan(header.template.version), header, body, lambda _: None, where)
        nodes, buffers = header.nodes(), header.buffers()
        if (nodes["null_count"] < 0).any() or (nodes["null_count"] > nodes["length"]).any():
            raise InvalidDataError(f"{candidate.where}: a node has more nulls than slots")
        if (
            (buffers["offset"] < 0).any()
            or (buffers["length"] < 0).any()
            or (buffers["offset"] > header.body_bytes - buffers["length"]).any()
        ):
            raise InvalidDataError(f"{candidate.where}: a buffer is outside its body of {header.body_bytes} bytes")
        return candidate

    def _read_message(self, at: int) -> BatchSpan | _NonBatchMessage:
        """Read the message at an offset; a truncated batch has no body."""
        source, size = self.source, self.source.size
        where = f"{source.name}: byte {at}"
        prefix = source.read_at(at, min(PREFIX_BYTES, size - at))
        has_marker = prefix[:4] == CONTINUATION
        is_at_start = at == (len(FILE_START) if self.is_file else 0)
        if not has_marker and not self._is_legacy and not is_at_start:
            description = "a truncated marker" if CONTINUATION.startswith(prefix) else f"{prefix[:4]!r}"
            raise InvalidDataError(f"{where}: expected a message, found {description}")
        prefix_bytes = PREFIX_BYTES if has_marker else LEGACY_PREFIX_BYTES
        if len(prefix) < prefix_bytes:
            raise TruncatedError(f"{where}: expected a message, found only its first {len(prefix)} bytes")
        length, _ = parse_prefix(prefix, where, self.limits.max_metadata_bytes)
        if length == 0:
            return _NonBatchMessage(at + prefix_bytes, None)
        stop = at + prefix_bytes + length
        if stop > size:
            raise TruncatedError(
                f"{where}: expected {length} bytes of metadata, found {size - at - prefix_bytes}: truncated"
            )
        self._parsed_bytes += length
        if self._parsed_bytes > _MAX_PARSED_RATIO * size + _MIN_PARSED_LIMIT_BYTES:
            self._gave_up = True
            raise LimitError(f"{where}: too many invalid messages: search abandoned")
        header = self._headers.read(source.read_at(at + prefix_bytes, length), 0, where)
        if not isinstance(header, BatchHeader):
            return _NonBatchMessage(stop, header)
        body: Body | None = None
        if stop + header.body_bytes <= size:
            if isinstance(source, RangeSource):
                body = RemoteBody(source, stop, header.body_bytes)
            else:
                body = Buffer(source.memory, stop, header.body_bytes)
        return BatchSpan(header, stop, header.body_bytes, stop - at, not has_marker, where, body)


def _kind_of(span: BatchSpan) -> tuple[Kind, int | None]:
    """Return the kind of a message, and the number of rows of a record batch."""
    if span.header.template.kind == headers.RECORD_BATCH:
        return "record batch", span.header.length
    return "dictionary batch", None
