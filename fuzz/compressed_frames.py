"""Compressed buffers with LZ4 and Zstandard frames of all kinds, valid and damaged."""

from __future__ import annotations

import random
import struct

import lz4.frame
import zstandard

_ZSTD = 1
_MAX_BYTES = 1 << 16
_PREFIX_LENGTHS = (-1, 0, 1, -2, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63))


def decompress(raw: bytes, codec: int) -> bytes:
    """The content of a compressed buffer; empty if it is damaged or larger than `_MAX_BYTES`."""
    if len(raw) < 8:
        return b""
    (length,) = struct.unpack_from("<q", raw)
    if length == -1:
        return raw[8:]
    if not 0 <= length <= _MAX_BYTES:
        return b""
    try:
        if codec == _ZSTD:
            return zstandard.ZstdDecompressor().decompress(raw[8:], max_output_size=_MAX_BYTES)
        return bytes(lz4.frame.decompress(raw[8:]))
    except (zstandard.ZstdError, RuntimeError):
        return b""


def compress(rng: random.Random, content: bytes, codec: int) -> bytes:
    """The content as a length prefix and a frame with random features; sometimes damaged."""
    if rng.random() < 0.1:
        return struct.pack("<q", -1) + content
    compressed = _compress_zstd(rng, content) if codec == _ZSTD else _compress_lz4(rng, content)
    pick = rng.randrange(12)
    if pick == 0:
        compressed += compressed  # two frames
    elif pick == 1:
        compressed = compressed[: -rng.randrange(1, 9)]
    elif pick == 2:
        compressed += rng.randbytes(rng.randrange(1, 9))
    elif pick == 3:  # a skippable frame first
        compressed = struct.pack("<II", 0x184D2A50 + rng.randrange(16), 4) + b"skip" + compressed
    elif pick == 4:
        damaged = bytearray(compressed)
        damaged[rng.randrange(min(len(damaged), 24))] ^= 1 << rng.randrange(8)
        compressed = bytes(damaged)
    length = rng.choice(_PREFIX_LENGTHS) if rng.random() < 0.1 else len(content)
    return struct.pack("<q", length) + compressed


def _compress_zstd(rng: random.Random, content: bytes) -> bytes:
    has_checksum, has_size = rng.random() < 0.5, rng.random() < 0.7
    create_compressor = zstandard.ZstdCompressor(
        rng.choice((-5, 1, 3, 19)), write_checksum=has_checksum, write_content_size=has_size
    )
    if rng.random() < 0.5:
        return create_compressor.compress(content)
    stream = create_compressor.compressobj(size=len(content))  # a window of this size, not of 8 MiB and more
    middle = len(content) // 2
    first = stream.compress(content[:middle]) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    return first + stream.compress(content[middle:]) + stream.flush()


def _compress_lz4(rng: random.Random, content: bytes) -> bytes:
    context = lz4.frame.create_compression_context()
    options = {
        "block_size": rng.choice((4, 5, 6, 7)),
        "block_linked": rng.random() < 0.5,
        "content_checksum": rng.random() < 0.5,
        "block_checksum": rng.random() < 0.3,
        "auto_flush": True,
    }
    size = len(content) if rng.random() < 0.5 else 0
    compressed = lz4.frame.compress_begin(context, source_size=size, **options)
    middle = len(content) // 2
    for part in (content[:middle], content[middle:]):
        compressed += lz4.frame.compress_chunk(context, part)
    return bytes(compressed + lz4.frame.compress_flush(context))
