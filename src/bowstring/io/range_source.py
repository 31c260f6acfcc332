"""Sources that are read by ranges: seekable file objects, and stores behind a network.

What is asked for at once is fetched at once: neighbours are merged where the gap between them is smaller than what a
request costs, large stretches are cut into pieces that come side by side, and huge results come in several rounds.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import Any, Protocol

from bowstring.errors import ClosedError, InvalidDataError, ResourceError, TruncatedError, UsageError
from bowstring.io.byte_ranges import GAP_BYTES, FetchedRanges, Span, allocate_for_range, join_buffers, merge_spans
from bowstring.io.os_errors import translate_io_error
from bowstring.io.readahead import MAX_WINDOW_BYTES, ReadAhead
from bowstring.memory.buffer import ALIGNMENT_BYTES, EMPTY, Buffer

ROUND_BYTES = 64 << 20
"""What is fetched in one round at the most; what is larger takes several, so that no answers pile up."""
_REQUEST_BYTES = 8 << 20
_EDGE_BYTES = 1 << 16
_MOST_EDGE_BYTES = 4 << 20
_WHOLE_AT_ONCE_BYTES = 1 << 17
_LONGEST_MATCH_BYTES = 64


class Store(Protocol):
    """Gives stretches of one file's bytes."""

    name: str

    def begin(self) -> tuple[int, list[tuple[int, bytes]]]:
        """The file's size in bytes, and the stretches that were read on the way: where each begins, and its bytes."""

    def get(self, spans: Sequence[Span]) -> Iterable[bytes]:
        """The bytes of each span, all in one round trip where that can be; shorter answers are the caller's affair."""

    def close(self) -> None:
        """Let go of what belongs to the store."""


class RangeSource:
    """A file of which stretches are fetched when they are asked for; its beginning and its end are kept.

    `size` is its length in bytes. Errors of the store come as `ResourceError`, `ConnectionLostError` or
    `DeadlineError`; answers that are too short as `TruncatedError`.
    """

    __slots__ = (
        "_begun",
        "_edges",
        "_expected",
        "_is_closed",
        "_store",
        "_windows",
        "name",
        "position",
        "rounds",
        "size",
    )

    def __init__(self, store: Store) -> None:
        self._store = store
        self.name = store.name
        self.rounds = 1
        """How many times the store was asked; what was asked for at once counts once."""
        self.size, edges = store.begin()
        self.position = 0
        self._edges = FetchedRanges((start, Buffer.of(held)) for start, held in edges)
        self._expected = FetchedRanges()
        self._windows = ReadAhead()
        self._begun: dict[int, RangeBytes] = {}
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether it was closed; nothing can be fetched then."""
        return self._is_closed

    @property
    def descriptor(self) -> int:
        """There is no descriptor: -1."""
        return -1

    def held(self, offset: int, size_bytes: int) -> Buffer | None:
        """Bytes that need not be fetched; None where they have to be."""
        return self._edges.find(offset, size_bytes) or self._expected.find(offset, size_bytes)

    def keep(self, spans: Sequence[Span]) -> None:
        """Fetch stretches now that are asked for later, and keep them until the source goes."""
        found = self.fetch(spans)
        parts = [(start, buffer) for start, buffer in (*self._edges, *found) if buffer.size]
        self._edges = FetchedRanges(join_buffers(parts))

    def expect(self, spans: Sequence[Span]) -> None:
        """Fetch stretches that are asked for next, many at once; those that were expected before are let go."""
        self._expected = FetchedRanges()
        self._expected = self.fetch(spans)

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """The bytes from byte `offset` on; the caller has checked that they are there. Small pieces are read ahead."""
        return self._window(offset, size_bytes).slice(0, size_bytes).to_bytes()

    def _window(self, offset: int, size_bytes: int) -> Buffer:
        """From byte `offset` on what is here, at least `size_bytes`: fetched where it is not, as a part of more."""
        if not size_bytes:
            return EMPTY
        for here in (self._edges, self._expected, self._windows):
            found = here.at(offset, size_bytes)
            if found is not None:
                return found
        wanted = min(max(size_bytes, self._windows.worth(offset)), self.size - offset)
        found = self.fetch([(offset, wanted)]).find(offset, wanted)
        assert found is not None
        if wanted <= MAX_WINDOW_BYTES:
            self._windows.keep(offset, found)
        return found

    def search(self, pattern: re.Pattern[bytes], start: int) -> int:
        """Where a pattern, which takes 64 bytes at the most, is found from byte `start` on; the size where it is not.
        The bytes on the way are read, and not kept.
        """
        at = start
        while at < self.size:
            here = self._window(at, min(_LONGEST_MATCH_BYTES, self.size - at))
            found = pattern.search(here.bytes.data)
            if found is not None:
                return at + found.start()
            if at + here.size >= self.size:
                break
            at += here.size - _LONGEST_MATCH_BYTES + 1
        return self.size

    def peek(self, offset: int, size_bytes: int) -> RangeBytes | bytes:
        """The bytes from byte `offset` on, fetched in part if they are many; the caller has checked the bounds."""
        begun = self._begun.pop(offset, None)
        if begun is None or len(begun) != size_bytes:
            begun = RangeBytes(self, offset, size_bytes)
        whole = begun.held(0, size_bytes)
        return begun if whole is None else whole.to_bytes()

    def begin(self, offset: int, size_bytes: int, pieces: FetchedRanges) -> None:
        """Have pieces of a header for when it is asked for."""
        self._begun[offset] = RangeBytes(self, offset, size_bytes, pieces)

    def has_begun(self, offset: int) -> bool:
        """Whether pieces of the header that begins there are here."""
        return offset in self._begun

    def read(self, size_bytes: int) -> bytes:
        """The next bytes; fewer only at the end."""
        return self.read_buffer(size_bytes).to_bytes()

    def read_buffer(self, size_bytes: int) -> Buffer:
        """The next bytes; fewer only at the end. Small pieces are read ahead."""
        start = self.position
        size_bytes = max(min(size_bytes, self.size - start), 0)
        self.position += size_bytes
        return self._window(start, size_bytes).slice(0, size_bytes)

    def fetch(self, spans: Sequence[Span], gap_bytes: int = GAP_BYTES) -> FetchedRanges:
        """The bytes of all spans, which lie within the file: at once, or in rounds of `ROUND_BYTES` where they are
        many.

        Each stretch has memory of its own, in which bytes lie as in the file modulo 64.
        """
        if self._is_closed:
            raise ClosedError(f"{self.name}: the reader is closed, and what was asked for has not been fetched")
        held, missing = [], []
        for start, length_bytes in merge_spans(spans, ALIGNMENT_BYTES):
            size_bytes = min(length_bytes, self.size - start)
            found = self._edges.find(start, size_bytes)
            if found is None:
                missing.append((start, size_bytes))
            else:
                held.append((start, found))
        return FetchedRanges([*held, *self._fetch(missing, gap_bytes)])

    def _fetch(self, spans: Sequence[Span], gap_bytes: int) -> list[tuple[int, Buffer]]:
        """`spans` are in order and lie apart; what is read over between them is not kept."""
        if any(start < 0 or size_bytes <= 0 or start + size_bytes > self.size for start, size_bytes in spans):
            raise InvalidDataError(f"{self.name}: bytes {spans[:4]} … were asked for in a file of {self.size}")
        starts = [start for start, _ in spans]
        memories = [allocate_for_range(start, size_bytes, self.name) for start, size_bytes in spans]
        for requests in _rounds(merge_spans(spans, gap_bytes)):
            self.rounds += 1
            for (at, expected), answer in zip(requests, self._store.get(requests), strict=True):
                held = memoryview(answer)
                if held.nbytes != expected:
                    held = self._fitting(held, at, expected)
                first = max(bisect_right(starts, at) - 1, 0)
                for number in range(first, bisect_left(starts, at + expected)):
                    start, size_bytes = spans[number]
                    begin, end = max(start, at), min(start + size_bytes, at + expected)
                    if begin < end:
                        memories[number][begin - start : end - start] = held[begin - at : end - at]
        return [(start, Buffer.of(memory)) for start, memory in zip(starts, memories, strict=True)]

    def _fitting(self, answer: memoryview, at: int, expected: int) -> memoryview:
        if answer.nbytes == self.size:  # a server that does not know ranges gives everything
            return answer[at : at + expected]
        if answer.nbytes > expected:
            raise ResourceError(f"{self.name}: was asked for {expected} bytes at byte {at}, and gave {answer.nbytes}")
        raise TruncatedError(
            f"{self.name}: expected {expected} bytes at byte {at} of {self.size}, found {answer.nbytes}: the file "
            f"changed, or the store gives less than was asked for"
        )

    def close(self) -> None:
        """Let go of the store; what was fetched stays."""
        if not self._is_closed:
            self._is_closed = True
            self._store.close()


class RangeBytes:
    """The bytes of a header, of which mostly a few are wanted: fetched when they are asked for. Slicing gives bytes."""

    __slots__ = ("_pieces", "_size", "_source", "offset")

    def __init__(self, source: RangeSource, offset: int, size_bytes: int, pieces: FetchedRanges | None = None) -> None:
        self._source = source
        self._pieces = [] if pieces is None else [pieces]
        self._size = size_bytes
        self.offset = offset

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: slice) -> bytes:
        start, stop, _ = key.indices(self._size)
        found = self.held(start, max(stop - start, 0))
        if found is None:
            self.load(self._missing(start, stop))
            found = self.held(start, stop - start)
            assert found is not None
        return found.to_bytes()

    def _missing(self, start: int, stop: int) -> list[Span]:
        if self._size <= _WHOLE_AT_ONCE_BYTES:
            return [(self.offset, self._size)]
        return [(self.offset + start, stop - start)]

    def held(self, start: int, size_bytes: int) -> Buffer | None:
        """Bytes that need not be fetched, from byte `start` of the header on; None where they have to be."""
        at = self.offset + start
        for pieces in self._pieces:
            found = pieces.find(at, size_bytes)
            if found is not None:
                return found
        return self._source.held(at, size_bytes)

    def lacks(self, spans: Iterable[Span]) -> list[Span]:
        """Those of the spans, counted from the header's first byte, that are not here; counted from the file's."""
        return [(self.offset + at, size_bytes) for at, size_bytes in spans if self.held(at, size_bytes) is None]

    def load(self, spans: Sequence[Span]) -> None:
        """Fetch stretches of the file."""
        self.take(self._source.fetch(spans))

    def take(self, pieces: FetchedRanges) -> None:
        """Have pieces that were fetched."""
        self._pieces.append(pieces)


class FileObjectStore:
    """A file object that can seek, as a store; it is not closed with it. Its position is where we left it.

    Several threads may ask at once, as long as nobody else moves the position at that time.
    """

    def __init__(self, file: Any, name: str) -> None:
        self._file = file
        self._lock = Lock()
        self.name = name

    def begin(self) -> tuple[int, list[tuple[int, bytes]]]:
        """The size, by seeking to the end; then the beginning and the end."""
        try:
            at = self._file.seek(0, 2)
            size = int(self._file.tell() if at is None else at)
        except Exception as error:
            raise translate_io_error(error, self.name) from error
        edges = edge_spans(size)
        return size, [(start, bytes(held)) for (start, _), held in zip(edges, self.get(edges), strict=True)]

    def get(self, spans: Sequence[Span]) -> Iterator[bytes]:
        """One seek and as many reads as it takes for each span."""
        for start, size_bytes in spans:
            with self._lock:
                try:
                    self._file.seek(start)
                    held = self._read(size_bytes)
                except Exception as error:
                    raise translate_io_error(error, self.name) from error
            yield held

    def _read(self, size_bytes: int) -> bytes:
        parts, left = [], size_bytes
        while left:
            part = self._file.read(left)
            if part is None:
                raise BlockingIOError
            if not isinstance(part, bytes | bytearray | memoryview):
                raise UsageError(f"expected a binary file object, but reading gave {type(part).__name__}")
            if len(part) > left:
                raise UsageError(f"{self.name}: was asked for up to {left} bytes, and gave {len(part)}")
            if not part:
                break
            parts.append(part)
            left -= len(part)
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """The file object is the caller's."""


def edge_spans(size_bytes: int, share: int = 64) -> list[Span]:
    """What to read of a file before anything is known of it but its size: of its beginning and its end so large a
    share, within bounds.
    """
    edge = min(max(size_bytes // share, _EDGE_BYTES), _MOST_EDGE_BYTES)
    if size_bytes <= 2 * edge:
        return [(0, size_bytes)] if size_bytes else []
    return [(0, edge), (size_bytes - edge, edge)]


def _rounds(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """The requests for spans, as many at once as `ROUND_BYTES` allow."""
    requests: list[Span] = []
    held = 0
    for start, size_bytes in spans:
        for at in range(start, start + size_bytes, _REQUEST_BYTES):
            wanted = min(_REQUEST_BYTES, start + size_bytes - at)
            if requests and held + wanted > ROUND_BYTES:
                yield requests
                requests, held = [], 0
            requests.append((at, wanted))
            held += wanted
    if requests:
        yield requests
