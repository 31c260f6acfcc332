"""Sources read by byte ranges: seekable file objects and object stores.

Ranges requested together are fetched together: ranges with gaps of at most 64 KiB are merged, large ranges are split
into parallel requests of at most 8 MiB, and more than 64 MiB are fetched in several rounds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import Any, Protocol

from bowstring.errors import ClosedError, InvalidArgumentError, InvalidDataError, ResourceError, TruncatedError
from bowstring.io.byte_ranges import (
    MAX_GAP_BYTES,
    FetchedRanges,
    Span,
    allocate_for_range,
    merge_fetched_ranges,
    merge_spans,
)
from bowstring.io.io_errors import translate_io_error
from bowstring.memory.buffer import ALIGNMENT_BYTES, EMPTY, Buffer
from bowstring.redaction import translated_errors

MAX_ROUND_BYTES = 64 << 20
"""Maximum size of one round of requests; limits the memory for replies."""
# Longer ranges are split into requests that run in parallel: a store limits the rate of one connection.
_MAX_REQUEST_BYTES = 8 << 20
# The first request reads at least this much of the end: a footer of a few hundred columns then needs no second one.
_MIN_EDGE_BYTES = 1 << 16
# The edges stay in memory as long as the file is open.
_MAX_EDGE_BYTES = 4 << 20
# Shorter headers are fetched as a whole: a request for some of their bytes takes about as long.
_MAX_WHOLE_HEADER_BYTES = 1 << 17
_FIRST_WINDOW_BYTES, _MAX_WINDOW_BYTES, _MAX_WINDOWS = 1 << 18, 8 << 20, 4
"""The windows that are read ahead: the sizes of the first and of the largest, and the number that is kept."""


class RangeReader(Protocol):
    """Access to the byte ranges of one file."""

    name: str

    def read_size_and_edges(self) -> tuple[int, list[tuple[int, bytes]]]:
        """The file's size in bytes, and the ranges that were read at the same time: offset and bytes of each."""

    def read_ranges(self, spans: Sequence[Span]) -> Iterable[bytes]:
        """The bytes of each span, in one round trip if possible; the caller checks for short replies."""

    def close(self) -> None:
        """Release the resources."""


class RangeSource:
    """A file whose byte ranges are fetched on demand; its beginning and end stay in memory.

    `size` is its size in bytes. Errors of the reader are raised as `ResourceError`, `ConnectionLostError` or
    `DeadlineError`, short replies as `TruncatedError`.
    """

    descriptor = -1
    """Ranges are fetched without a descriptor."""

    __slots__ = (
        "_cached_ranges",
        "_headers",
        "_prefetched_ranges",
        "_range_reader",
        "_readahead",
        "is_closed",
        "name",
        "num_rounds",
        "position",
        "size",
    )

    def __init__(self, range_reader: RangeReader) -> None:
        self._range_reader = range_reader
        self.name = range_reader.name
        self.num_rounds = 1
        """The number of round trips."""
        self.size, edges = range_reader.read_size_and_edges()
        self.position = 0
        self._cached_ranges = FetchedRanges((start, Buffer.of(chunk)) for start, chunk in edges)
        self._prefetched_ranges = FetchedRanges()
        self._readahead = _ReadAheadCache()
        self._headers: dict[int, LazyRangeBytes] = {}
        self.is_closed = False
        """Whether the source was closed; it can't fetch then."""

    def find(self, offset: int, size_bytes: int) -> Buffer | None:
        """Bytes that are in memory; None if they have to be fetched."""
        return self._cached_ranges.find(offset, size_bytes) or self._prefetched_ranges.find(offset, size_bytes)

    def fetch_into_cache(self, spans: Sequence[Span]) -> None:
        """Fetch ranges and keep them for the lifetime of the source."""
        fetched = self.fetch(spans)
        parts = [(start, buffer) for start, buffer in (*self._cached_ranges, *fetched) if buffer.size]
        self._cached_ranges = FetchedRanges(merge_fetched_ranges(parts))

    def prefetch(self, spans: Sequence[Span]) -> None:
        """Fetch the ranges that will be read next; ranges of the previous call are dropped."""
        self._prefetched_ranges = FetchedRanges()
        self._prefetched_ranges = self.fetch(spans)

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """The bytes at `offset`, with read-ahead; the caller has checked the bounds."""
        return self._fetch_with_readahead(offset, size_bytes).slice(0, size_bytes).to_bytes()

    def _fetch_with_readahead(self, offset: int, size_bytes: int) -> Buffer:
        """At least `size_bytes` bytes at `offset`, fetched with read-ahead unless they are in memory."""
        if not size_bytes:
            return EMPTY
        for ranges in (self._cached_ranges, self._prefetched_ranges, self._readahead):
            buffer = ranges.find_contiguous(offset, size_bytes)
            if buffer is not None:
                return buffer
        fetch_bytes = min(max(size_bytes, self._readahead.next_window_bytes(offset)), self.size - offset)
        buffer = self.fetch([(offset, fetch_bytes)]).find(offset, fetch_bytes)
        assert buffer is not None
        if fetch_bytes <= _MAX_WINDOW_BYTES:
            self._readahead.add(offset, buffer)
        return buffer

    def read_lazily(self, offset: int, size_bytes: int) -> LazyRangeBytes | bytes:
        """The bytes at `offset`; many bytes are fetched lazily. The caller has checked the bounds."""
        header = self._headers.pop(offset, None)
        if header is None or len(header) != size_bytes:
            header = LazyRangeBytes(self, offset, size_bytes)
        buffer = header.find(0, size_bytes)
        return header if buffer is None else buffer.to_bytes()

    def store_for_lazy_read(self, offset: int, size_bytes: int, ranges: FetchedRanges) -> None:
        """Store fetched ranges of a header for a later `read_lazily`."""
        self._headers[offset] = LazyRangeBytes(self, offset, size_bytes, ranges)

    def has_cached_header_at(self, offset: int) -> bool:
        """Whether ranges of the header at `offset` have been fetched."""
        return offset in self._headers

    def read(self, size_bytes: int) -> bytes:
        """The next bytes; fewer only at the end."""
        return self.read_buffer(size_bytes).to_bytes()

    def read_buffer(self, size_bytes: int) -> Buffer:
        """The next bytes, with read-ahead; fewer only at the end."""
        start = self.position
        size_bytes = max(min(size_bytes, self.size - start), 0)
        self.position += size_bytes
        return self._fetch_with_readahead(start, size_bytes).slice(0, size_bytes)

    def fetch(self, spans: Sequence[Span], gap_bytes: int = MAX_GAP_BYTES) -> FetchedRanges:
        """Fetch all spans, which must be within the file, in rounds of at most `MAX_ROUND_BYTES`.

        Each range has memory of its own, whose address equals the file offset modulo 64.
        """
        if self.is_closed:
            raise ClosedError(f"{self.name}: the reader is closed and the requested bytes were not fetched before")
        available, missing = [], []
        for start, length_bytes in merge_spans(spans, ALIGNMENT_BYTES):
            size_bytes = min(length_bytes, self.size - start)
            buffer = self._cached_ranges.find(start, size_bytes)
            if buffer is None:
                missing.append((start, size_bytes))
            else:
                available.append((start, buffer))
        return FetchedRanges([*available, *self._fetch_missing(missing, gap_bytes)])

    def _fetch_missing(self, spans: Sequence[Span], gap_bytes: int) -> list[tuple[int, Buffer]]:
        """Fetch sorted, disjoint spans; bytes in the gaps between them are dropped."""
        if any(start < 0 or size_bytes <= 0 or start + size_bytes > self.size for start, size_bytes in spans):
            raise InvalidDataError(f"{self.name}: bytes {spans[:4]} … are out of range for a file of {self.size} bytes")
        starts = [start for start, _ in spans]
        # For each span its own: one small column must not keep a merged range of many in memory.
        memories = [allocate_for_range(start, size_bytes, self.name) for start, size_bytes in spans]
        for requests in _group_into_rounds(merge_spans(spans, gap_bytes)):
            self.num_rounds += 1
            for (offset, expected), raw_reply in zip(requests, self._range_reader.read_ranges(requests), strict=True):
                reply = memoryview(raw_reply)
                if reply.nbytes != expected:
                    reply = self._trim_reply(reply, offset, expected)
                first = max(bisect_right(starts, offset) - 1, 0)
                for index in range(first, bisect_left(starts, offset + expected)):
                    start, size_bytes = spans[index]
                    begin, end = max(start, offset), min(start + size_bytes, offset + expected)
                    if begin < end:
                        memories[index][begin - start : end - start] = reply[begin - offset : end - offset]
        return [(start, Buffer.of(memory)) for start, memory in zip(starts, memories, strict=True)]

    def _trim_reply(self, reply: memoryview, offset: int, expected: int) -> memoryview:
        if reply.nbytes == self.size:  # a server without range support returns the whole file
            return reply[offset : offset + expected]
        if reply.nbytes > expected:
            raise ResourceError(f"{self.name}: requested {expected} bytes at byte {offset}, received {reply.nbytes}")
        raise TruncatedError(
            f"{self.name}: expected {expected} bytes at byte {offset} of {self.size}, found {reply.nbytes}: the file "
            f"changed, or the store returned a short reply"
        )

    def close(self) -> None:
        """Close the reader; fetched bytes stay valid."""
        if not self.is_closed:
            self.is_closed = True
            self._range_reader.close()


class LazyRangeBytes:
    """The bytes of a header, fetched lazily, as mostly few are needed. Slicing returns bytes."""

    __slots__ = ("_ranges", "_size", "_source", "offset")

    def __init__(self, source: RangeSource, offset: int, size_bytes: int, ranges: FetchedRanges | None = None) -> None:
        self._source = source
        self._ranges = [] if ranges is None else [ranges]
        self._size = size_bytes
        self.offset = offset

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: slice) -> bytes:
        start, stop, _ = key.indices(self._size)
        buffer = self.find(start, max(stop - start, 0))
        if buffer is None:
            self.fetch(self._select_spans_to_fetch(start, stop))
            buffer = self.find(start, stop - start)
            assert buffer is not None
        return buffer.to_bytes()

    def _select_spans_to_fetch(self, start: int, stop: int) -> list[Span]:
        if self._size <= _MAX_WHOLE_HEADER_BYTES:
            return [(self.offset, self._size)]
        return [(self.offset + start, stop - start)]

    def find(self, start: int, size_bytes: int) -> Buffer | None:
        """Bytes at `start` of the header that are in memory; None if they have to be fetched."""
        file_offset = self.offset + start
        for ranges in self._ranges:
            buffer = ranges.find(file_offset, size_bytes)
            if buffer is not None:
                return buffer
        return self._source.find(file_offset, size_bytes)

    def find_missing_spans(self, spans: Iterable[Span]) -> list[Span]:
        """Return the spans that are not in memory, relative to the file; `spans` are relative to the header."""
        return [
            (self.offset + offset, size_bytes) for offset, size_bytes in spans if self.find(offset, size_bytes) is None
        ]

    def fetch(self, spans: Sequence[Span]) -> None:
        """Fetch ranges of the file."""
        self.add(self._source.fetch(spans))

    def add(self, ranges: FetchedRanges) -> None:
        """Add ranges that were fetched."""
        self._ranges.append(ranges)


class FileObjectRangeReader:
    """Reads a seekable file object. `close` does not close it, and its position is not restored.

    Several threads may read as long as nothing else moves the position at the same time.
    """

    def __init__(self, file: Any, name: str) -> None:
        self._file = file
        self._lock = Lock()
        self.name = name

    def read_size_and_edges(self) -> tuple[int, list[tuple[int, bytes]]]:
        """The size, found by seeking to the end; then the beginning and the end of the file."""
        with translated_errors(lambda error: translate_io_error(error, self.name)):
            end = self._file.seek(0, 2)
            size = int(self._file.tell() if end is None else end)
        edges = compute_edge_spans(size)
        return size, [(start, bytes(chunk)) for (start, _), chunk in zip(edges, self.read_ranges(edges), strict=True)]

    def read_ranges(self, spans: Sequence[Span]) -> Iterator[bytes]:
        """Seek and read each span."""
        for start, size_bytes in spans:
            # The position belongs to the file object, so no other thread may seek in between.
            with self._lock, translated_errors(lambda error: translate_io_error(error, self.name)):
                self._file.seek(start)
                chunk = self._read(size_bytes)
            yield chunk

    def _read(self, size_bytes: int) -> bytes:
        parts, remaining_bytes = [], size_bytes
        while remaining_bytes:
            part = self._file.read(remaining_bytes)
            if part is None:
                raise BlockingIOError
            if not isinstance(part, bytes | bytearray | memoryview):
                raise InvalidArgumentError(f"expected a binary file object, but reading returned {type(part).__name__}")
            if len(part) > remaining_bytes:
                raise InvalidArgumentError(
                    f"{self.name}: requested up to {remaining_bytes} bytes, received {len(part)}"
                )
            if not part:
                break
            parts.append(part)
            remaining_bytes -= len(part)
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Do nothing: the caller owns the file object."""


def compute_edge_spans(size_bytes: int, divisor: int = 64) -> list[Span]:
    """The spans at the beginning and end of a file to read first: each 1/`divisor` of its size, within bounds."""
    edge = min(max(size_bytes // divisor, _MIN_EDGE_BYTES), _MAX_EDGE_BYTES)
    if size_bytes <= 2 * edge:
        return [(0, size_bytes)] if size_bytes else []
    return [(0, edge), (size_bytes - edge, edge)]


def _group_into_rounds(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Split spans into requests, and group these into rounds of at most `MAX_ROUND_BYTES`."""
    requests: list[Span] = []
    total_bytes = 0
    for start, size_bytes in spans:
        for offset in range(start, start + size_bytes, _MAX_REQUEST_BYTES):
            length = min(_MAX_REQUEST_BYTES, start + size_bytes - offset)
            if requests and total_bytes + length > MAX_ROUND_BYTES:
                yield requests
                requests, total_bytes = [], 0
            requests.append((offset, length))
            total_bytes += length
    if requests:
        yield requests


class _ReadAheadCache:
    """The last windows that were read ahead, and the size of the next one. Does not fetch."""

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows: deque[tuple[int, Buffer]] = deque(maxlen=_MAX_WINDOWS)

    def next_window_bytes(self, offset: int) -> int:
        """The bytes to fetch from `offset` on: twice the last window if reading continues at its end."""
        if not self._windows:
            return _FIRST_WINDOW_BYTES
        start, last = self._windows[-1]
        is_contiguous = start < offset <= start + last.size + MAX_GAP_BYTES
        return (
            min(2 * last.size, _MAX_WINDOW_BYTES)
            if is_contiguous and last.size >= _FIRST_WINDOW_BYTES
            else _FIRST_WINDOW_BYTES
        )

    def add(self, start: int, buffer: Buffer) -> None:
        """Add a window that was fetched; the oldest one is dropped."""
        self._windows.append((start, buffer))

    def find_contiguous(self, offset: int, size_bytes: int) -> Buffer | None:
        """All contiguous bytes from `offset` on; None if they are fewer than `size_bytes`."""
        for window in reversed(tuple(self._windows)):  # another thread may add one
            buffer = FetchedRanges([window]).find_contiguous(offset, size_bytes)
            if buffer is not None:
                return buffer
        return None
