"""Codecs («Compression»): a `Codec` for each, in `CODECS`. Their packages are optional and imported only here.

Allocating a page of new memory takes longer than decompressing into it. So the buffers of a body share large
allocations, which are reused (`memory.mapping_pool`), and each is decompressed to its final place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from bowstring.errors import InvalidArgumentError, InvalidDataError, require_package

EXTRA = "compression"
CodecName: TypeAlias = Literal["lz4", "zstd"]


class CompressFunction(Protocol):
    """Compresses bytes; several threads may call it."""

    def __call__(self, data: memoryview | bytes, out: memoryview | None = None) -> bytes | memoryview:
        """Return a frame of `data`: as bytes, or as the beginning of `out` if it is shorter. Otherwise all of `out` may
        be returned, and its content is undefined.
        """


@dataclass(frozen=True, slots=True)
class Codec:
    """A codec; its functions raise `MissingExtraError` if its package is not installed."""

    name: CodecName
    levels: tuple[int, int]
    """The lowest and the highest level that the package accepts."""
    default_level: int
    create_compressor: Callable[[int], CompressFunction]
    """Return a function that compresses at a level."""
    decompress_into: Callable[[memoryview, memoryview], None]
    """Decompress a frame. Raises `InvalidDataError` unless it fills the first memory, and its content the second."""
    read_start: Callable[[bytes, int], bytes]
    """Return the first bytes of a frame, given its beginning; fewer if that is too short or malformed. Uses no more
    memory than the codec's window.
    """
    import_package: Callable[[], Any]


# The block size of the frame (BLOCKSIZE_MAX1MB): each call completes one block.
_BLOCK_BYTES = 1 << 20
# With the block of 1 MiB that it is made from, it fits in the second-level cache of most processors.
_PIECE_BYTES = 1 << 19


@cache
def import_lz4_frame() -> Any:
    """Return the module for LZ4 frames. Raises `MissingExtraError` if it is not installed."""
    with require_package("lz4", EXTRA):
        import lz4.frame
    return lz4.frame


@cache
def import_zstandard() -> Any:
    """Return the module for Zstandard. Raises `MissingExtraError` if it is not installed."""
    with require_package("zstandard", EXTRA):
        import zstandard as module
    return module


def create_compressor(name: str, level: int | None = None) -> CompressFunction:
    """Return a function that compresses with a codec.

    `level` is -1000 to 16 for "lz4" (from 3 on it searches longer) and -131072 to 22 for "zstd"; None is the fast
    default. Raises `InvalidArgumentError` for another codec or level, `MissingExtraError` if its package is not
    installed.
    """
    codec = CODECS.get(name)
    if codec is None:
        raise InvalidArgumentError(f"compression is None, {' or '.join(map(repr, CODECS))}, not {name!r}")
    min_level, max_level = codec.levels
    if level is not None and not min_level <= level <= max_level:
        raise InvalidArgumentError(f"compression_level of {name} is {min_level} to {max_level}, not {level!r}")
    return codec.create_compressor(codec.default_level if level is None else level)


def _create_zstd_compressor(level: int) -> CompressFunction:
    module, thread_local = import_zstandard(), threading.local()

    def compress_zstd(data: memoryview | bytes, out: memoryview | None = None) -> bytes | memoryview:
        if not hasattr(thread_local, "context"):
            thread_local.context = module.ZstdCompressor(level=level)
        if out is None:
            return thread_local.context.compress(data)  # type: ignore[no-any-return]
        with thread_local.context.stream_reader(data, size=len(data)) as reader:
            return out[: reader.readinto(out)]

    return compress_zstd


def _create_lz4_compressor(level: int) -> CompressFunction:
    lz4 = import_lz4_frame()  # blocks of 64 KiB take up to four times as long
    options = {"compression_level": level, "block_size": lz4.BLOCKSIZE_MAX1MB}

    def compress_lz4(data: memoryview | bytes, out: memoryview | None = None) -> bytes | memoryview:
        if out is None:
            return lz4.compress(data, **options, store_size=False)  # type: ignore[no-any-return]
        context = lz4.create_compression_context()
        target, filled = np.frombuffer(out, np.uint8), 0
        for piece in _compress_lz4_blocks(lz4, context, data, options):
            if filled + len(piece) >= len(out):
                return out
            target[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
            filled += len(piece)
        return out[:filled]

    return compress_lz4


def _compress_lz4_blocks(lz4: Any, context: Any, data: memoryview | bytes, options: dict[str, int]) -> Iterator[bytes]:
    """Yield the blocks of a frame; memory of this size is reused, while a whole frame would take new memory."""
    yield lz4.compress_begin(context, **options, auto_flush=True, block_linked=False)
    for start in range(0, len(data), _BLOCK_BYTES):
        yield lz4.compress_chunk(context, data[start : start + _BLOCK_BYTES])
    yield lz4.compress_flush(context)


def decompress_lz4_into(data: memoryview, out: memoryview) -> None:
    """Decompress an LZ4 frame, in pieces that fit in the processor's cache. Raises `InvalidDataError` unless it fills
    `data`, and its content fills `out`.
    """
    lz4, filled, is_at_end = import_lz4_frame(), 0, False
    try:
        context = lz4.create_decompression_context()
        while not is_at_end:
            piece, consumed_bytes, is_at_end = lz4.decompress_chunk(
                context, data, max_length=max(min(_PIECE_BYTES, len(out) - filled), 1)
            )
            if not (piece or consumed_bytes):
                break
            filled, data = filled + len(piece), data[consumed_bytes:]
            if filled > len(out):
                break
            out[filled - len(piece) : filled] = piece
    except RuntimeError as error:
        raise InvalidDataError(f"a buffer is not an LZ4 frame: {error}") from None
    if not is_at_end or filled != len(out):
        raise InvalidDataError(f"an LZ4 frame does not contain exactly the {len(out)} bytes that its buffer declares")
    if len(data):
        raise InvalidDataError(f"a buffer has {len(data)} bytes after its LZ4 frame")


def _read_start_of_lz4(frame: bytes, size_bytes: int) -> bytes:
    lz4 = import_lz4_frame()
    try:
        return lz4.decompress_chunk(lz4.create_decompression_context(), frame, max_length=size_bytes)[0]  # type: ignore[no-any-return]
    except RuntimeError:
        return b""


_thread_local = threading.local()
# Zstandard's recommended maximum for decoders (RFC 8878, 3.1.1.1.2); the frame's header could ask for gigabytes.
_MAX_WINDOW_BYTES = 1 << 23
_CHECKSUM_FLAG = 4
"""The bit of a Zstandard frame's header for a checksum at its end."""


def _compute_zstd_frame_size(module: Any, data: memoryview) -> int:
    """Return the size in bytes of the frame at the beginning of `data`, from the headers of its blocks; more than
    `data` has if it is truncated.
    """
    offset, is_last = module.frame_header_size(data), 0
    while not is_last and offset + 3 <= len(data):
        header = int.from_bytes(data[offset : offset + 3], "little")
        is_last, is_repeated_byte = header & 1, header >> 1 & 3 == 1
        offset += 3 + (1 if is_repeated_byte else header >> 3)
    checksum_bytes = 4 if data[4] & _CHECKSUM_FLAG else 0
    return int(offset + checksum_bytes if is_last else len(data) + 1)


def decompress_zstd_into(data: memoryview, out: memoryview) -> None:
    """Decompress a Zstandard frame. Raises `InvalidDataError` unless it fills `data`, and its content fills `out`."""
    module = import_zstandard()
    if not hasattr(_thread_local, "zstd"):
        _thread_local.zstd = module.ZstdDecompressor()
    try:
        content_bytes = module.frame_content_size(data)
        if content_bytes not in (-1, len(out)):  # the package allocates this size in any case
            raise InvalidDataError(f"a buffer declares {len(out)} bytes, its Zstandard frame {content_bytes}")
        frame_bytes = _compute_zstd_frame_size(module, data)
        if frame_bytes < len(data):  # the package ignores them
            raise InvalidDataError(f"a buffer has {len(data) - frame_bytes} bytes after its Zstandard frame")
        if (
            content_bytes < 0 or data[4] & _CHECKSUM_FLAG
        ):  # `stream_reader` would stop at the end of `out`, before a truncated checksum
            content = _thread_local.zstd.decompress(data, max_output_size=len(out))
            filled = len(content)
            if filled == len(out):
                out[:] = content
        else:  # input and output are complete, so the frame is checked as a whole
            with _thread_local.zstd.stream_reader(data) as reader:
                filled = reader.readinto(out)
    except module.ZstdError as error:
        raise InvalidDataError(f"a buffer is not a Zstandard frame of {len(out)} bytes: {error}") from None
    if filled != len(out):
        raise InvalidDataError(f"a buffer declares {len(out)} bytes, but its Zstandard frame contains {filled}")


def _read_start_of_zstd(frame: bytes, size_bytes: int) -> bytes:
    module = import_zstandard()
    try:
        with module.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).stream_reader(frame) as reader:
            return reader.read(size_bytes)  # type: ignore[no-any-return]
    except module.ZstdError:
        return b""


LZ4 = Codec("lz4", (-1000, 16), 0, _create_lz4_compressor, decompress_lz4_into, _read_start_of_lz4, import_lz4_frame)
ZSTD = Codec(
    "zstd", (-131072, 22), 1, _create_zstd_compressor, decompress_zstd_into, _read_start_of_zstd, import_zstandard
)
CODECS: dict[str, Codec] = {codec.name: codec for codec in (LZ4, ZSTD)}
"""The codecs by name, in the order of their numbers in the metadata (CompressionType)."""
