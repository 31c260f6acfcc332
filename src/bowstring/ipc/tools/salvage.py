"""Finding messages in bytes that are damaged or cut off («Encapsulated message format»).

A message is sound where its marker, its length, its flatbuffer, its counts for the schema, its buffers and its body's
end all fit. After one that is not, the next is looked for by its marker: what follows has to be sound as a message of
this schema, so bytes of a body are not taken for one. A schema message that is met on the way begins another stream,
such as one that lies in a binary column: it is passed over with all of its messages. The legacy framing has no marker,
so there only the footer tells where to go on.
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

_MAY_BEGIN = re.compile(rb"\xff{4}[\x00-\xff]{3}[\x00-\x0f]", re.DOTALL)
_MOST_TRIED = 4
_MOST_AT_ONCE = 10_000
_TRIED_IN_ANY_CASE_BYTES = 64 << 20

Kind = Literal["record batch", "dictionary batch"]


@dataclass(frozen=True, slots=True)
class DroppedRange:
    """Bytes `start` to `stop` of a source that were not taken, and why; what they were and how many rows they had,
    where that is known.
    """

    start: int
    stop: int
    reason: str
    kind: Kind | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Footer:
    """What a footer that can be read says, and at which byte it begins: the schema, where batches are and how long each
    is up to its body, and custom metadata.
    """

    at: int
    known: CachedSchema
    schema: Table
    version: int
    batches: list[int]
    dictionaries: list[int]
    head_bytes: dict[int, int]
    pairs: Metadata


@dataclass(frozen=True, slots=True)
class _Other:
    """A message that is no batch: a schema, or the end marker."""

    stop: int
    schema: Table | None


class MessageSalvager:
    """What can be found in a source; raises `InvalidDataError` where there is no schema, as nothing is known then."""

    def __init__(self, source: RandomAccess, limits: ReadLimits) -> None:
        self.source = source
        self.limits = limits
        self.footer_problem: str | None = None
        self.footer = self._read_footer()
        start = source.read_at(0, min(len(FILE_START), source.size))
        self.is_file = is_file_start(start) or self.footer is not None
        self._headers = HeaderReader(limits)
        self.alone: set[int] = set()  # where a record batch was lost, and for certain nothing else with it
        self._tried_bytes = 0
        self._gave_up = False
        self._is_legacy = False
        self._first = len(FILE_START) if self.is_file else 0
        self.lost_at_start: DroppedRange | None = None
        self._begin()
        offsets = () if self.footer is None else (*self.footer.batches, *self.footer.dictionaries)
        self._hints = sorted(offsets)
        self._looked_to = 0 if isinstance(source, RangeSource) else source.size

    def _read_footer(self) -> Footer | None:
        try:
            reader = make_file_reader(self.source, None, self.limits)
            known = reader.known
            _ = known.wire.whole
            if reader.footer["version"] not in (V4, V5):
                raise InvalidDataError(f"metadata version {reader.footer['version']}")
            pairs = read_pairs(reader.footer)
        except InvalidDataError as error:
            self.footer_problem = str(error).removeprefix(f"{self.source.name}: ")
            return None
        blocks, dictionaries = reader.blocks["offset"].tolist(), reader.dictionary_blocks["offset"].tolist()
        listed = np.concatenate([reader.blocks, reader.dictionary_blocks])
        heads = dict(zip(listed["offset"].tolist(), listed["metaDataLength"].tolist(), strict=True))
        said = reader.footer
        return Footer(reader.footer_at, known, said["schema"], said["version"], blocks, dictionaries, heads, pairs)

    # The schema

    def _begin(self) -> None:
        """Find the schema: the footer's where there is one, else the first message that is one."""
        at, problem = self._first, ""
        found: BatchSpan | _Other | None = None
        try:
            found = self._at(at)
        except InvalidDataError as error:
            problem = str(error)
        if not (isinstance(found, _Other) and found.schema is not None):
            if self.footer is None:
                at, other = self._find_schema(at, problem)
                found = other
                self.lost_at_start = DroppedRange(0, at, f"no schema where it belongs: {problem or 'another message'}")
            else:
                self.lost_at_start = DroppedRange(0, at, f"the schema message is damaged: {problem or 'it is another'}")
                found = None
        if self.footer is not None:
            self.schema, self.version, self.known = self.footer.schema, self.footer.version, self.footer.known
        else:
            assert isinstance(found, _Other)
            assert found.schema is not None
            self.schema = found.schema
            self.version = found.schema.message.root("Message")["version"]
            self.known = load_schema(found.schema, self.limits)
            _ = self.known.wire.whole
        if isinstance(found, _Other):
            self._is_legacy = self.source.read_at(at, 4) != CONTINUATION
            self._first = found.stop

    def _find_schema(self, start: int, problem: str) -> tuple[int, _Other]:
        at = self._next_marker(start + 1)
        while at < self.source.size:
            try:
                found = self._at(at)
                if isinstance(found, _Other) and found.schema is not None:
                    load_schema(found.schema, self.limits).wire.whole  # noqa: B018
                    return at, found
            except InvalidDataError:
                pass
            at = self._next_marker(at + 1)
        name = self.source.name
        check_format(name, self.source.read_at(0, min(16, self.source.size)))
        raise InvalidDataError(
            f"{name}: nothing can be recovered, as there is no schema, neither at the beginning "
            f"({problem.removeprefix(f'{name}: ') or 'another message'}) nor in a footer ({self.footer_problem})"
        )

    # Messages

    def messages(self) -> Iterator[BatchSpan | DroppedRange]:
        """What is found, in the order of the bytes, and what lies between."""
        at, slack_from, size = self._first, self._first, self.source.size
        while at < size:
            if at >= self._looked_to:
                self._look_ahead(at)
            try:
                found = self._sound(at)
            except InvalidDataError as error:
                lost, following = self._lost(at, slack_from, str(error))
                if lost is not None:
                    yield lost
                at = slack_from = following
                continue
            if isinstance(found, _Other):
                resumed = self._after_end(found.stop)
                if resumed is None:
                    if found.stop < size and not self.is_file:
                        yield DroppedRange(found.stop, size, "bytes after the end of the stream")
                    return
                yield DroppedRange(at, resumed, "an end marker, but messages follow")
                at = slack_from = resumed
                continue
            doubt = self._doubt(found)
            if doubt is None:
                yield found
                at, slack_from = next_message_offset(found), next_offset_by_buffers(found)
            else:
                yield doubt
                at = slack_from = doubt.stop

    def _look_ahead(self, at: int) -> None:
        """Of a file that is far away, have the headers that its footer lists from a place on, many at once."""
        spans: list[Span] = []
        held_bytes, self._looked_to = 0, self.source.size
        heads = {} if self.footer is None else self.footer.head_bytes
        for start in self._hints[bisect_left(self._hints, at) :]:
            size_bytes = heads[start]
            if held_bytes + max(size_bytes, 0) > ROUND_BYTES or len(spans) == _MOST_AT_ONCE:
                self._looked_to = start
                break
            if start >= 0 and 0 < size_bytes <= min(self.limits.max_metadata_bytes, self.source.size - start):
                spans.append((start, size_bytes))
                held_bytes += size_bytes
        self.source.expect(spans)

    def _doubt(self, span: BatchSpan) -> DroppedRange | None:
        """What says that bytes of a message's body were lost or added, where no message begins behind it."""
        size, stop, buffers_end = self.source.size, next_message_offset(span), next_offset_by_buffers(span)
        kind, rows = _kind_of(span)
        if stop >= size or self._is_legacy or (self.footer is not None and stop >= self.footer.at):
            if CONTINUATION in read_end_padding(span, self.source):
                return DroppedRange(span.start, stop, "bytes of it are lost: the end marker is inside it", kind, rows)
            return None
        if CONTINUATION.startswith(self.source.read_at(stop, min(4, size - stop))):
            return None
        inside = self._resume(span.body_at)
        if inside < buffers_end:
            return DroppedRange(
                span.start, inside, "bytes of it are lost: the next message begins inside it", kind, rows
            )
        if stop <= inside and has_nonzero_padding(span, self.source):
            return DroppedRange(span.start, stop, "bytes of it were lost or added: its padding is not zero", kind, rows)
        return None

    def _after_end(self, at: int) -> int | None:
        """Where messages go on after an end marker, which they should not; None where they don't."""
        size = self.source.size
        if at >= size or (self.footer is not None and at > max(self._hints, default=0)):
            return None
        following = self._resume(at)
        return following if following < size else None

    def _lost(self, at: int, slack_from: int, problem: str) -> tuple[DroppedRange | None, int]:
        """What is lost at a place where there is no sound message, and where the next one is."""
        size, source = self.source.size, self.source
        if self.footer is not None and at >= self.footer.at and not any(hint >= at for hint in self._hints):
            return None, size
        kind: Kind | None = None
        rows: int | None = None
        declared = 0
        try:
            found = self._at(at)
            if isinstance(found, BatchSpan):
                kind, rows = _kind_of(found)
                declared = next_message_offset(found)
        except InvalidDataError:
            pass
        if declared and declared < size and self._is_sound(declared):
            following = declared
            if kind == "record batch":
                self.alone.add(at)
        else:
            following = self._resume(min(slack_from, at) if slack_from != at else at + 1)
            if following < at:  # the message before had a length that swallowed this one
                kind = rows = None
        problem = problem.removeprefix(f"{source.name}: ").removeprefix(f"byte {at}: ")
        return DroppedRange(at, max(following, at), problem, kind, rows), following

    def _resume(self, start: int) -> int:
        """The next place at or after `start` where a sound batch begins; the size where there is none."""
        size, at = self.source.size, start
        while at < size:
            following = self._next_marker(at)
            hint = bisect_left(self._hints, at)
            if hint < len(self._hints):
                following = min(following, self._hints[hint])
            if following >= size:
                break
            try:
                found = self._sound(following)
                if isinstance(found, BatchSpan):
                    return following
                at = self._passed_over(found) if found.schema is not None else following + 1
            except InvalidDataError:
                at = following + 1
        return size

    def _passed_over(self, schema: _Other) -> int:
        """Where another stream ends, of which the schema was met."""
        at = schema.stop
        while at < self.source.size:
            try:
                found = self._at(at)
            except InvalidDataError:
                return at
            if isinstance(found, _Other):
                return found.stop
            at = next_message_offset(found)
        return at

    def _next_marker(self, at: int) -> int:
        if self._is_legacy or self._gave_up:
            return self.source.size
        return self.source.search(_MAY_BEGIN, at)

    def _is_sound(self, at: int) -> bool:
        try:
            self._sound(at)
        except InvalidDataError:
            return False
        return True

    def _sound(self, at: int) -> BatchSpan | _Other:
        """The message at a place, checked as far as that is possible without its values."""
        found = self._at(at)
        if isinstance(found, _Other):
            return found
        header, body, where = found.header, found.body, (found.where,)
        if body is None:
            raise TruncatedError(
                f"{found.where}: expected a body of {header.body_bytes} bytes at byte {found.body_at}, found "
                f"{self.source.size - found.body_at}"
            )
        if header.template.version != self.version:
            raise InvalidDataError(f"{found.where}: metadata version {header.template.version}, not {self.version}")
        if header.template.kind == headers.DICTIONARY_BATCH:
            find_dictionary(self.known.wire, header, where)
            read_values(self.known.wire, header, body, lambda _: None, where)
        else:
            open_columns(self.known.plan(header.template.version), header, body, lambda _: None, where)
        nodes, buffers = header.nodes(), header.buffers()
        if (nodes["null_count"] < 0).any() or (nodes["null_count"] > nodes["length"]).any():
            raise InvalidDataError(f"{found.where}: a node with more nulls than slots")
        if (
            (buffers["offset"] < 0).any()
            or (buffers["length"] < 0).any()
            or (buffers["offset"] > header.body_bytes - buffers["length"]).any()
        ):
            raise InvalidDataError(f"{found.where}: a buffer that is not within its body of {header.body_bytes} bytes")
        return found

    def _at(self, at: int) -> BatchSpan | _Other:
        """The message that begins at a byte; of a batch that is cut off without its body."""
        source, size = self.source, self.source.size
        where = f"{source.name}: byte {at}"
        prefix = source.read_at(at, min(PREFIX_BYTES, size - at))
        marked = prefix[:4] == CONTINUATION
        is_at_start = at == (len(FILE_START) if self.is_file else 0)
        if not marked and not self._is_legacy and not is_at_start:
            other = "a marker that is cut off" if CONTINUATION.startswith(prefix) else f"{prefix[:4]!r}"
            raise InvalidDataError(f"{where}: expected a message, found {other}")
        prefix_bytes = PREFIX_BYTES if marked else LEGACY_PREFIX_BYTES
        if len(prefix) < prefix_bytes:
            raise TruncatedError(f"{where}: expected a message, found its first {len(prefix)} bytes only")
        length, _ = parse_prefix(prefix, where, self.limits.max_metadata_bytes)
        if length == 0:
            return _Other(at + prefix_bytes, None)
        stop = at + prefix_bytes + length
        if stop > size:
            raise TruncatedError(
                f"{where}: expected {length} bytes of metadata, found {size - at - prefix_bytes}: it is cut off"
            )
        self._tried_bytes += length
        if self._tried_bytes > _MOST_TRIED * size + _TRIED_IN_ANY_CASE_BYTES:
            self._gave_up = True
            raise LimitError(f"{where}: too much here looks like a message without being one: given up")
        header = self._headers.read(source.read_at(at + prefix_bytes, length), 0, where)
        if not isinstance(header, BatchHeader):
            return _Other(stop, header)
        body: Body | None = None
        if stop + header.body_bytes <= size:
            if isinstance(source, RangeSource):
                body = RemoteBody(source, stop, header.body_bytes)
            else:
                body = Buffer(source.memory, stop, header.body_bytes)
        return BatchSpan(header, stop, header.body_bytes, stop - at, not marked, where, body)


def _kind_of(span: BatchSpan) -> tuple[Kind, int | None]:
    """What a message is, and how many rows it has if it is a record batch."""
    if span.header.template.kind == headers.RECORD_BATCH:
        return "record batch", span.header.length
    return "dictionary batch", None
