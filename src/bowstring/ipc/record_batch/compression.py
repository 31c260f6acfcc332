"""Compressed bodies («Compression»): LZ4 frames and Zstandard, buffer by buffer.

A compressed buffer begins with its uncompressed length, a little-endian 64-bit integer; -1 marks a buffer that is not
compressed. The codecs release the interpreter lock, so several threads share the work if there is enough.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

from bowstring.errors import InvalidDataError, LimitError
from bowstring.ipc.codecs import CODECS, CompressFunction
from bowstring.ipc.limits import ReadLimits
from bowstring.memory.buffer import ALIGNMENT_BYTES, Buffer, Memory, allocate
from bowstring.memory.forks import ProcessLock
from bowstring.memory.mapping_pool import MAPPING_POOL
from bowstring.memory.thread_pool import group_by_size, map_in_threads

LENGTH_PREFIX = struct.Struct("<q")
NOT_COMPRESSED = -1  # «Compression»: the length of a buffer whose bytes follow as they are

# Buffers of one allocation are freed together: larger groups would let one column keep more of a batch in memory,
# smaller ones would each round up to huge pages of 2 MiB.
_GROUP_BYTES = 1 << 23
# A mapping of the pool has at least 2 MiB: less than half of one is left to malloc.
_MIN_POOL_BYTES = 1 << 20
# For smaller buffers, the calls for writing into memory take longer than the codec needs to allocate its output.
_MIN_OUTPUT_BYTES = 1 << 14
# Memory that any process can be expected to have; above, only a body of some size may ask for much more.
_MIN_LIMIT_BYTES = 256 << 20


def compress_buffers(buffers: Sequence[Buffer | None], compress: CompressFunction) -> list[list[Any]]:
    """Compress buffers; return each as a list of parts: none for an empty buffer, else prefix and bytes.

    A buffer that does not shrink is neither copied nor compressed, and follows the prefix -1.
    """

    def compress_buffer(job: tuple[Buffer, memoryview | None]) -> list[Any]:
        buffer, out = job
        data = buffer.bytes.data
        compressed = compress(data, out)
        return (
            [LENGTH_PREFIX.pack(buffer.size), compressed]
            if len(compressed) < buffer.size
            else [LENGTH_PREFIX.pack(NOT_COMPRESSED), data]
        )

    nonempty = [buffer for buffer in buffers if buffer is not None and buffer.size]
    sizes = [buffer.size for buffer in nonempty]
    parts = iter(map_in_threads(compress_buffer, list(zip(nonempty, _allocate_outputs(sizes), strict=True)), sizes))
    return [next(parts) if buffer is not None and buffer.size else [] for buffer in buffers]


def _allocate_outputs(sizes_bytes: Sequence[int]) -> Iterator[memoryview | None]:
    """Yield the output memory for each buffer of a body, from the memory pool, which is cheaper than memory allocated
    by the codec. None if the buffers are too small for that.
    """
    total = sum(sizes_bytes)
    try:
        pooled = MAPPING_POOL.allocate(total).data if total >= _MIN_POOL_BYTES else None
    except MemoryError:
        pooled = None
    for end, size in zip(accumulate(sizes_bytes), sizes_bytes, strict=True):
        yield None if pooled is None or size < _MIN_OUTPUT_BYTES else pooled[end - size : end]


class BodyDecompressor:
    """Decompresses buffers of one body and counts the decompressed bytes.

    Raises `MissingExtraError` if the codec's package is not installed.
    """

    __slots__ = ("_decompress", "_left_bytes", "_limit_bytes", "_lock")

    def __init__(self, codec: str, body_bytes: int, limits: ReadLimits) -> None:
        self._decompress = CODECS[codec].decompress_into
        CODECS[codec].import_package()
        # A short body may shrink by any factor: the ratio counts only above this.
        in_proportion = max(_MIN_LIMIT_BYTES, body_bytes * limits.max_decompression_ratio)
        self._limit_bytes = min(limits.max_decompressed_bytes, in_proportion)
        # After each column that was counted, in this order: both in one change, for a process that is forked meanwhile.
        self._left_bytes: dict[int, int] = {}
        self._lock = ProcessLock()

    def read_uncompressed_lengths(self, buffers: Sequence[Buffer], first_node: int) -> list[int]:
        """Return the lengths in the buffers' prefixes: the uncompressed length, -1 if not compressed, 0 if empty.

        The buffers belong to the column with this `first_node`, which counts once, even if several threads
        request it. Raises `InvalidDataError` for an invalid length, `LimitError` if the body exceeds the limits.
        """
        lengths = [_read_uncompressed_length(buffer) for buffer in buffers]
        # Columns are decompressed by several threads, and the limit applies to all of a body.
        with self._lock.of_this_process:
            if first_node in self._left_bytes:
                return lengths
            left = next(reversed(self._left_bytes.values()), self._limit_bytes)
            for buffer, length in zip(buffers, lengths, strict=True):
                if length > left:
                    raise LimitError(
                        f"a buffer of {buffer.size} compressed bytes has an uncompressed length of {length}, above the "
                        f"{self._limit_bytes} bytes allowed for this body (ReadLimits: max_decompressed_bytes, "
                        "max_decompression_ratio)"
                    )
                left -= max(length, 0)
            # Only after all lengths fit, so that a column that raises does not use up the limit for others.
            self._left_bytes[first_node] = left
        return lengths

    def decompress_column(self, buffers: Sequence[Buffer], first_node: int) -> list[Buffer]:
        """Decompress the buffers of a column; uncompressed ones are not copied."""
        uncompressed_lengths = self.read_uncompressed_lengths(buffers, first_node)
        return decompress_buffers(
            [(self, buffer, length) for buffer, length in zip(buffers, uncompressed_lengths, strict=True)]
        )

    def decompress_buffer(self, buffer: Buffer, target: Buffer | None) -> Buffer:
        """Decompress one buffer into `target`, which has its uncompressed length; None for a buffer that is not
        compressed.
        """
        if target is None:
            return buffer.slice(LENGTH_PREFIX.size)
        if target.size or buffer.size > LENGTH_PREFIX.size:  # an empty frame, too, has to be valid
            writable = target.memory.owner[target.offset : target.offset + target.size]
            self._decompress(buffer.bytes[LENGTH_PREFIX.size :].data, writable.data)
        return target


def _read_uncompressed_length(buffer: Buffer) -> int:
    if not buffer.size:
        return 0
    if buffer.size < LENGTH_PREFIX.size:
        raise InvalidDataError(f"a compressed buffer of {buffer.size} bytes is too short for its length")
    length: int = LENGTH_PREFIX.unpack_from(buffer.bytes.data)[0]
    if length < NOT_COMPRESSED:
        raise InvalidDataError(f"a compressed buffer has an uncompressed length of {length}")
    return length


DecompressionJob: TypeAlias = tuple[BodyDecompressor, Buffer, int]
"""A decompressor, a compressed buffer, and the length in its prefix."""


def decompress_buffers(jobs: Sequence[DecompressionJob]) -> list[Buffer]:
    """Decompress buffers with several threads into shared memory; raises the first error."""
    sizes = [max(length, 0) for _, _, length in jobs]
    targets = [
        None if length == NOT_COMPRESSED else target
        for (_, _, length), target in zip(jobs, _allocate_targets(sizes), strict=True)
    ]
    return map_in_threads(
        lambda job: job[0][0].decompress_buffer(job[0][1], job[1]), list(zip(jobs, targets, strict=True)), sizes
    )


def _allocate_targets(sizes_bytes: Sequence[int]) -> list[Buffer]:
    """Return uninitialised buffers of these sizes, cut from pooled memory if large."""
    # Many small buffers share one allocation, of limited size: a single array must not keep a whole body in memory.
    targets: list[Buffer] = []
    for group in group_by_size(sizes_bytes, sizes_bytes, _GROUP_BYTES):
        *starts, total = accumulate((-(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for size in group), initial=0)
        try:
            memory = Memory(
                MAPPING_POOL.allocate(total) if total >= _MIN_POOL_BYTES else allocate(total, is_zeroed=False)
            )
        except (MemoryError, ValueError):
            raise LimitError(f"not enough memory for {total} decompressed bytes") from None
        targets += [Buffer(memory, start, size) for start, size in zip(starts, group, strict=True)]
    return targets


def decompress_first_bytes(codec: str, data: bytes, size_bytes: int) -> bytes:
    """Return the first bytes of a compressed buffer, given the beginning `data` of it, prefix included.

    Fewer than `size_bytes` if it is shorter, or if `data` is too short or malformed; uses no more memory than the
    codec's window. Raises `MissingExtraError` if the codec's package is not installed.
    """
    if len(data) < LENGTH_PREFIX.size:
        return b""
    length: int = LENGTH_PREFIX.unpack_from(data)[0]
    if length == NOT_COMPRESSED:
        return data[LENGTH_PREFIX.size : LENGTH_PREFIX.size + size_bytes]
    return CODECS[codec].read_start(data[LENGTH_PREFIX.size :], min(size_bytes, max(length, 0)))
