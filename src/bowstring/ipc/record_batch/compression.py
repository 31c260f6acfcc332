"""Compressed bodies («Compression»): LZ4 frames and Zstandard, buffer by buffer.

A compressed buffer begins with the length of what is in it, a little-endian 64-bit integer; -1 says that the bytes
after it are as they were. The codecs let go of the interpreter lock, so buffers are worked on by several threads where
there is enough to do.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from threading import Lock
from typing import Any, TypeAlias, TypeVar

from bowstring.errors import InvalidDataError, LimitError
from bowstring.ipc import codecs
from bowstring.ipc.codecs import Compress
from bowstring.ipc.limits import ReadLimits
from bowstring.memory.buffer import ALIGNMENT_BYTES, Buffer, Memory, allocate
from bowstring.memory.pool import POOL
from bowstring.memory.threads import group_by_size, map_in_threads

PREFIX = struct.Struct("<q")
RAW = -1

_ROOM_BYTES = 1 << 23
_WORTH_POOL_BYTES = 1 << 20
_LEAST_BYTES = 1 << 14
_IN_ANY_CASE_BYTES = 256 << 20
_LARGEST_WINDOW = 1 << 23

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


def compress_buffers(buffers: Sequence[Buffer | None], compress: Compress) -> list[list[Any]]:
    """Buffers as they lie in a compressed body, each as its parts: nothing for an empty one, else prefix and bytes.

    A buffer that compressing makes no smaller is not copied and stays as it is, behind the prefix -1.
    """

    def pack(job: tuple[Buffer, memoryview | None]) -> list[Any]:
        buffer, out = job
        data = buffer.bytes.data
        small = compress(data, out)
        return [PREFIX.pack(buffer.size), small] if len(small) < buffer.size else [PREFIX.pack(RAW), data]

    filled = [buffer for buffer in buffers if buffer is not None and buffer.size]
    sizes = [buffer.size for buffer in filled]
    done = iter(_largest_first(pack, list(zip(filled, _outs(sizes), strict=True)), sizes))
    return [next(done) if buffer is not None and buffer.size else [] for buffer in buffers]


def _outs(sizes_bytes: Sequence[int]) -> Iterator[memoryview | None]:
    """Where compressed buffers wait until all of a body is there: in memory that is used again, which costs less than
    what a codec asks for anew. None where they are too small for that.
    """
    total = sum(sizes_bytes)
    try:
        room = POOL.take(total).data if total >= _WORTH_POOL_BYTES else None
    except MemoryError:
        room = None
    for end, size in zip(accumulate(sizes_bytes), sizes_bytes, strict=True):
        yield None if room is None or size < _LEAST_BYTES else room[end - size : end]


class BodyDecompressor:
    """Decompresses buffers of one body and keeps account of how much has come out of it.

    Raises `MissingExtraError` where the codec's package is not installed.
    """

    __slots__ = ("_counted", "_decompress", "_left", "_limit", "_lock")

    def __init__(self, codec: str, body_bytes: int, limits: ReadLimits) -> None:
        self._decompress = codecs.decompress_lz4 if codec == "lz4" else codecs.decompress_zstd
        (codecs.lz4_frame if codec == "lz4" else codecs.zstandard)()
        in_proportion = max(_IN_ANY_CASE_BYTES, body_bytes * limits.max_decompression_ratio)
        self._left = self._limit = min(limits.max_decompressed_bytes, in_proportion)
        self._counted: set[int] = set()
        self._lock = Lock()

    def claims(self, buffers: Sequence[Buffer], column: int) -> list[int]:
        """What the buffers' prefixes say: the length that comes out, -1 where it is not compressed, 0 for nothing.

        They are those of the column whose first node is `column`, which counts once, however many threads ask for it.
        Raises `InvalidDataError` for a length that makes no sense, `LimitError` where the body as a whole goes beyond
        the limits.
        """
        lengths = [_claim(buffer) for buffer in buffers]
        with self._lock:
            if column in self._counted:
                return lengths
            left = self._left
            for buffer, length in zip(buffers, lengths, strict=True):
                if length > left:
                    raise LimitError(
                        f"a buffer of {buffer.size} compressed bytes claims to hold {length}: more than the "
                        f"{self._limit} bytes that may come out of this body (ReadLimits: max_decompressed_bytes, "
                        "max_decompression_ratio)"
                    )
                left -= max(length, 0)
            self._left = left
            self._counted.add(column)
        return lengths

    def all(self, buffers: Sequence[Buffer], column: int) -> list[Buffer]:
        """Buffers of a column as they were before they were compressed; without copying where they are not."""
        claims = self.claims(buffers, column)
        return decompress_buffers([(self, buffer, claim) for buffer, claim in zip(buffers, claims, strict=True)])

    def open(self, buffer: Buffer, room: Buffer | None) -> Buffer:
        """One buffer, decompressed into `room`, of the length that its prefix claims; None for one that is not
        compressed.
        """
        if room is None:
            return buffer.slice(PREFIX.size)
        if room.size:
            writable = room.memory.owner[room.offset : room.offset + room.size]
            self._decompress(buffer.bytes[PREFIX.size :].data, writable.data)
        return room


def _claim(buffer: Buffer) -> int:
    if not buffer.size:
        return 0
    if buffer.size < PREFIX.size:
        raise InvalidDataError(f"a compressed buffer of {buffer.size} bytes has no room for its length")
    length: int = PREFIX.unpack_from(buffer.bytes.data)[0]
    if length < RAW:
        raise InvalidDataError(f"a compressed buffer that claims to hold {length} bytes")
    return length


DecompressionJob: TypeAlias = tuple[BodyDecompressor, Buffer, int]
"""A compressed buffer, who decompresses it, and the length that its prefix claims."""


def decompress_buffers(jobs: Sequence[DecompressionJob]) -> list[Buffer]:
    """Decompress buffers by several threads, into memory that they share; raises what one that fails does."""
    sizes = [max(claim, 0) for _, _, claim in jobs]
    rooms = [None if claim == RAW else room for (_, _, claim), room in zip(jobs, _rooms(sizes), strict=True)]
    return _largest_first(lambda job: job[0][0].open(job[0][1], job[1]), list(zip(jobs, rooms, strict=True)), sizes)


def _largest_first(work: Callable[[_Job], _Result], jobs: Sequence[_Job], sizes_bytes: Sequence[int]) -> list[_Result]:
    """As `map_in_threads`, in such an order that no thread is left with a large buffer when the others have done."""
    order = sorted(range(len(jobs)), key=sizes_bytes.__getitem__, reverse=True)
    done = map_in_threads(work, [jobs[place] for place in order], [sizes_bytes[place] for place in order])
    results = dict(zip(order, done, strict=True))
    return [results[place] for place in range(len(jobs))]


def _rooms(sizes_bytes: Sequence[int]) -> list[Buffer]:
    """Memory of each of the sizes, not filled, cut out of stretches that are used again where they are large."""
    rooms: list[Buffer] = []
    for group in group_by_size(sizes_bytes, sizes_bytes, _ROOM_BYTES):
        *starts, total = accumulate((-(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for size in group), initial=0)
        try:
            memory = Memory(POOL.take(total) if total >= _WORTH_POOL_BYTES else allocate(total, is_zeroed=False))
        except (MemoryError, ValueError):
            raise LimitError(f"no memory for the {total} bytes that compressed buffers claim to hold") from None
        rooms += [Buffer(memory, start, size) for start, size in zip(starts, group, strict=True)]
    return rooms


def decompress_prefix(codec: str, data: bytes, size_bytes: int) -> bytes:
    """The first bytes that come out of a compressed buffer, of which `data` is the beginning, its prefix included.

    Fewer than `size_bytes` where there are no more, or where `data` is too short or malformed; no more memory is used
    than the codec's own window. Raises `MissingExtraError` where the codec's package is not installed.
    """
    if len(data) < PREFIX.size:
        return b""
    claimed: int = PREFIX.unpack_from(data)[0]
    if claimed == RAW:
        return data[PREFIX.size : PREFIX.size + size_bytes]
    size_bytes = min(size_bytes, max(claimed, 0))
    if codec == "lz4":
        lz4 = codecs.lz4_frame()
        try:
            held, _, _ = lz4.decompress_chunk(
                lz4.create_decompression_context(), data[PREFIX.size :], max_length=size_bytes
            )
        except RuntimeError:
            return b""
        return held  # type: ignore[no-any-return]
    zstandard = codecs.zstandard()
    try:
        with zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW).stream_reader(data[PREFIX.size :]) as reader:
            return reader.read(size_bytes)  # type: ignore[no-any-return]
    except zstandard.ZstdError:
        return b""
